"""What happens before an object gets a name that nothing proves, and when to give up early."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.lab import (
    Authority,
    Coded,
    Fault,
    Hang,
    Headers,
    LyingHead,
    Made,
    Object,
    OtherBytes,
    Patched,
    Portal,
    Rate,
    Redirect,
    Server,
    Shorter,
    Silent,
    Status,
    Version,
)

from headway import transfers
from headway.node.errors import ManifestError, NodeError, TransferError
from headway.node.transfer import fetch, manifest, versions
from headway.node.transfer.fetch import pinned_manifest

from .scale import scaled

MB = 1 << 20
SIZE = 6 * MB
CONTENT = Made(SIZE, seed=31)
TIME = 0.25  # of the engine's own: see the fixture `quick`


@pytest.mark.usefixtures("quick")
class TestSecondOpinion:
    def test_a_portal_alone_is_taken_where_nothing_speaks_against_it(self, tmp_path: Path) -> None:
        """A name without a suffix may well be a page's; it is said that nothing proves it."""
        with Server({"/page": CONTENT}, [Portal()]) as server:
            got = fetch([server.url("/page")], str(tmp_path / "page"))
        assert (got.proof, got.verified) == ("", False)

    def test_a_portal_that_comes_first_is_refused_when_a_mirror_says_otherwise(
        self, tmp_path: Path
    ) -> None:
        with Server({"/page": CONTENT}, [Portal()]) as portal, Server({"/page": CONTENT}) as mirror:
            with pytest.raises(TransferError, match="sources disagree") as caught:
                fetch([portal.url("/page"), mirror.url("/page")], str(tmp_path / "page"))
            assert f"has {SIZE} bytes" in caught.value.message
            assert "checksum" in caught.value.remedy
            assert mirror.sent < MB
        assert os.listdir(tmp_path) == []

    def test_nothing_stays_that_nobody_could_go_on_from(self, tmp_path: Path) -> None:
        with Server({"/a": CONTENT}) as one, Server({"/a": Made(MB, seed=3)}) as other:
            with pytest.raises(TransferError, match="sources disagree"):
                transfers.fetch([one.url("/a"), other.url("/a")], tmp_path / "object")
            assert os.listdir(tmp_path) == []

    def test_a_declared_size_settles_what_sources_disagree_on(self, tmp_path: Path) -> None:
        with Server({"/a": CONTENT}, [Shorter(MB)]) as one, Server({"/a": CONTENT}) as other:
            fetch([one.url("/a"), other.url("/a")], str(tmp_path / "object"), size=SIZE)
        assert CONTENT.fault(tmp_path / "object") is None

    def test_a_mirror_whose_head_lies_has_no_say(self, tmp_path: Path) -> None:
        with (
            Server({"/a": CONTENT}) as good,
            Server({"/a": CONTENT}, [LyingHead(length=5)]) as liar,
        ):
            fetch([good.url("/a"), liar.url("/a")], str(tmp_path / "object"))
        assert CONTENT.fault(tmp_path / "object") is None

    def test_a_mirror_that_hangs_is_not_waited_for(self, tmp_path: Path) -> None:
        begin = time.monotonic()
        with Server({"/a": CONTENT}) as good, Server({"/a": CONTENT}, [Hang()]) as hung:
            fetch([good.url("/a"), hung.url("/a")], str(tmp_path / "object"))
        assert CONTENT.fault(tmp_path / "object") is None
        assert time.monotonic() - begin < 10 * TIME + 2

    def test_a_mirror_with_other_validators_and_the_same_bytes_is_well(
        self, tmp_path: Path
    ) -> None:
        other = Object(CONTENT, etag='"other"', modified="Wed, 21 Oct 2015 07:28:00 GMT")
        with Server({"/a": CONTENT}) as one, Server({"/a": other}) as two:
            fetch([one.url("/a"), two.url("/a")], str(tmp_path / "object"))
        assert CONTENT.fault(tmp_path / "object") is None

    @pytest.mark.parametrize("size", [SIZE, None], ids=["size declared", "nothing declared"])
    def test_a_small_part_that_differs_at_the_end_is_seen(
        self, size: int | None, tmp_path: Path
    ) -> None:
        wrong = Version(Patched(CONTENT, SIZE - 5000, SIZE), keep_etag=True)
        with (
            Server({"/a": CONTENT}) as one,
            Server({"/a": CONTENT}, [wrong]) as two,
            pytest.raises(TransferError, match="give different bytes"),
        ):
            fetch([one.url("/a"), two.url("/a")], str(tmp_path / "object"), size=size)
        assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("quick")
def test_hung_sources_come_after_untried_ones(tmp_path: Path) -> None:
    """Twenty that hang, then a good one: 10 s of the engine's time, and no byte twice."""
    begin = time.monotonic()
    with Server({"/a": CONTENT}, [Hang(at="request").on("/hung")]) as server:
        hung = [server.url("/hung", query=f"n={number}") for number in range(20)]
        fetch([*hung, server.url("/a")], str(tmp_path / "object"), checksum=CONTENT.checksum())
        asked = [request.target for request in server.requests if request.path == "/hung"]
        assert server.sent < SIZE + MB
    assert CONTENT.fault(tmp_path / "object") is None
    assert time.monotonic() - begin < 16 * TIME + 5
    assert len(set(asked[:20])) == 20  # nobody twice before everybody once


class TestCompletePart:
    """A part that is whole, by a process that was killed before it could name it."""

    def leave(self, server: Server, path: Path, *, checksum: str | None = None) -> None:
        code = (
            "import sys, os, signal; from headway.node.transfer import fetch, part; "
            "part.Part.finish = lambda *_: os.kill(os.getpid(), signal.SIGKILL); "
            "from headway.node.transfer import assembly; assembly._EVERY = 0.05; "
            "fetch([sys.argv[1]], sys.argv[2], checksum=sys.argv[3] or None)"
        )
        words = [sys.executable, "-c", code, server.url("/a"), str(path), checksum or ""]
        done = subprocess.run(words, timeout=60, check=False)
        assert done.returncode == -signal.SIGKILL
        assert path.with_name("object.part.journal").exists()

    def test_it_is_named_when_the_object_is_still_the_same(self, tmp_path: Path) -> None:
        path = tmp_path / "object"
        with Server({"/a": CONTENT}, [Rate(8 * MB)]) as server:
            self.leave(server, path)
            before = server.sent
            fetch([server.url("/a")], str(path))
            assert server.sent - before < SIZE
        assert CONTENT.fault(path) is None

    def test_it_is_fetched_again_when_the_object_has_changed(self, tmp_path: Path) -> None:
        path, new = tmp_path / "object", Made(SIZE, seed=32)
        with Server({"/a": CONTENT}, [Rate(8 * MB)]) as server:
            self.leave(server, path)
            server.faults = [Version(new)]
            fetch([server.url("/a")], str(path))
        assert new.fault(path) is None

    def test_nobody_need_be_asked_where_a_checksum_proves_it(self, tmp_path: Path) -> None:
        path = tmp_path / "object"
        with Server({"/a": CONTENT}, [Rate(8 * MB)]) as server:
            self.leave(server, path, checksum=CONTENT.checksum())
            before = len(server.requests)
            # the journal may lie behind what is here by what came last
            server.faults = []
            fetch([server.url("/a")], str(path), checksum=CONTENT.checksum())
            assert len(server.requests) - before <= 3
        assert CONTENT.fault(path) is None

    def test_nobody_answers(self, tmp_path: Path) -> None:
        path = tmp_path / "object"
        with Server({"/a": CONTENT}, [Rate(8 * MB)]) as server:
            self.leave(server, path)
            server.faults = [Status(500)]
            with pytest.raises(TransferError):
                fetch([server.url("/a")], str(path), patience=1, keep=True)
        assert not path.exists()
        assert path.with_name("object.part").exists()


def test_a_process_that_is_stopped_for_longer_than_its_patience_goes_on(tmp_path: Path) -> None:
    code = (
        "import sys; from headway.node.transfer import fetch; "
        "sys.modules['headway.node.transfer.fetch']._STOPPED = 2.0; "
        "fetch([sys.argv[1]], sys.argv[2], patience=1.5, grace=1.5)"
    )
    path = tmp_path / "object"
    with Server({"/a": CONTENT}, [Rate(3 * MB)]) as server:
        process = subprocess.Popen([sys.executable, "-c", code, server.url("/a"), str(path)])
        try:
            while server.sent < MB:
                assert process.poll() is None
                time.sleep(0.02)
            process.send_signal(signal.SIGSTOP)
            time.sleep(3.5)
            process.send_signal(signal.SIGCONT)
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
    assert CONTENT.fault(path) is None


def test_a_folder_that_is_removed_meanwhile_is_told_in_words(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()

    def remove(_shot: object) -> None:
        shutil.rmtree(folder, ignore_errors=True)

    with (
        Server({"/a": CONTENT}, [Rate(6 * MB)]) as server,
        pytest.raises(NodeError, match="was removed while it arrived") as caught,
    ):
        transfers.fetch(server.url("/a"), folder / "object", progress=remove)
    assert "make the folder again" in caught.value.remedy


class TestGivingUpEarly:
    """What no other try soon can change ends a fetch by hand at once, and not one on a slot."""

    @pytest.fixture(autouse=True)
    def quicker(self) -> Iterator[None]:
        with scaled(seconds=0.1):
            yield

    @pytest.mark.parametrize("kind", ["expired", "wrong_host", "unknown"])
    def test_a_bad_certificate(
        self, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        authority = Authority.get()
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.bundle))
        begin = time.monotonic()
        with (
            Server({"/a": CONTENT}, tls=getattr(authority, kind)) as server,
            pytest.raises(TransferError, match="certificate"),
        ):
            transfers.fetch(server.url("/a"), tmp_path / "object")
        assert time.monotonic() - begin < 20

    @pytest.mark.parametrize(
        ("fault", "words"),
        [(Redirect(), "redirect"), (Coded(), "content coding"), (Portal(), "web page")],
        ids=["loop", "gzip", "portal"],
    )
    def test_other_faults_that_last(
        self, fault: Redirect | Coded | Portal, words: str, tmp_path: Path
    ) -> None:
        begin = time.monotonic()
        with Server({"/a.tar": CONTENT}, [fault]) as server:
            with pytest.raises(TransferError, match=words):
                transfers.fetch(server.url("/a.tar"), tmp_path / "object")
            assert server.sent < SIZE + MB
        assert time.monotonic() - begin < 20

    def test_a_slot_keeps_its_patience(self, tmp_path: Path) -> None:
        fault = Portal().for_seconds(0.8)
        with Server({"/a.tar": CONTENT}, [fault]) as server:
            fetch([server.url("/a.tar")], str(tmp_path / "object"), patience=15)
        assert CONTENT.fault(tmp_path / "object") is None

    def test_a_healthy_mirror_is_waited_for(self, tmp_path: Path) -> None:
        with (
            Server({"/a.tar": CONTENT}, [Portal()]) as portal,
            Server({"/a.tar": CONTENT}, [Status(503).for_seconds(2.5)]) as late,
        ):
            urls = [portal.url("/a.tar"), late.url("/a.tar")]
            transfers.fetch(urls, tmp_path / "object")
        assert CONTENT.fault(tmp_path / "object") is None


def test_a_manifest_of_unknown_length_ends_at_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At full speed, where a look twice a second would let hundreds of megabytes pass."""
    from tests.lab import Unsized

    monkeypatch.setattr(manifest, "MAX_MANIFEST", 4 * MB)
    endless = {"/a.headway": Made(1 << 30, seed=1)}
    with Server(endless, [Unsized()]) as server:
        with pytest.raises(ManifestError, match="too large"):
            pinned_manifest([server.url("/a")], "sha256:" + "0" * 64, folder=str(tmp_path))
        assert server.sent < 40 * MB  # with what lay in buffers
    assert os.listdir(tmp_path) == []


class TestComparison:
    @given(
        size=st.integers(1, 40 * MB),
        begin=st.integers(0, 40 * MB),
        length=st.integers(1, 40 * MB),
        first=st.integers(0, 1 << 40),
    )
    def test_borders_hold_what_samples_show(
        self, size: int, begin: int, length: int, first: int
    ) -> None:
        """One wrong part of a stretch: where a sample meets it, what is found holds all of it."""
        wrong = first + min(begin, size - 1), first + min(begin + length, size)
        looks: list[tuple[int, bool]] = []

        def same(at: int) -> bool:
            assert first <= at < first + size
            right = not (at < wrong[1] and min(at + versions.COMPARED, first + size) > wrong[0])
            looks.append((at, right))
            return right

        parts = versions.borders(first, first + size, same)
        met = any(not right for _, right in looks)
        assert bool(parts) == met
        if met:
            assert len(looks) < 60
            assert parts[0][0] <= wrong[0] and wrong[1] <= parts[-1][1]
            extra = sum(b - a for a, b in parts) - (wrong[1] - wrong[0])
            assert extra <= 2 * (versions._NEAR + 2 * versions.COMPARED)
            assert all(first <= a < b <= first + size for a, b in parts)

    def test_who_is_outvoted_comes_first(self) -> None:
        parts = {1: [(0, 10, 1)], 2: [(10, 12, 2)]}
        assert versions.rounds(parts, {1}) == [[(0, 10, 1)], [(0, 10, 1), (10, 12, 2)]]
        assert versions.rounds(parts, set()) == [[(10, 12, 2)], [(0, 10, 1), (10, 12, 2)]]
        assert versions.rounds({1: parts[1]}, set()) == [parts[1]]
        assert versions.rounds({}, set()) == []

    def test_probes_are_small_and_few(self) -> None:
        written = [(0, 10 * MB, 0), (10 * MB, 10 * MB + 5, 1), (11 * MB, 30 * MB, 0)]
        found = versions.probes(written)
        assert found[0] == (0, versions.COMPARED, 0)
        assert found[-1] == (30 * MB - versions.COMPARED, 30 * MB, 0)
        assert [each for each in found if each[2] == 1] == [(10 * MB, 10 * MB + 5, 1)]
        assert all(0 < end - begin <= versions.COMPARED for begin, end, _ in found)

    @pytest.mark.usefixtures("quick")
    @pytest.mark.parametrize("sick", [0, 1])
    def test_of_three_sources_the_wrong_one_is_found(self, sick: int, tmp_path: Path) -> None:
        content, pace = Made(24 * MB, seed=5), Rate(40 * MB, "server")
        faults: list[list[Fault]] = [[pace], [pace], [pace]]
        faults[sick] = [pace, OtherBytes(8 * MB)]
        with (
            Server({"/a": content}, faults[0]) as one,
            Server({"/a": content}, faults[1]) as two,
            Server({"/a": content}, faults[2]) as three,
        ):
            urls = [each.url("/a") for each in (one, two, three)]
            fetch(urls, str(tmp_path / "object"), checksum=content.checksum())
            assert one.sent + two.sent + three.sent < 1.7 * content.size
        assert content.fault(tmp_path / "object") is None

    @pytest.mark.usefixtures("quick")
    def test_a_source_that_falls_silent_at_a_sample_holds_nothing_up(self, tmp_path: Path) -> None:
        content = Made(8 * MB, seed=5)
        with (
            Server({"/a": content}, [OtherBytes(4 * MB)]) as wrong,
            Server({"/a": content}, [Silent(after=content.size, scope="server")]) as mute,
            Server({"/a": content}, [Rate(20 * MB, "server")]) as good,
        ):
            urls = [wrong.url("/a"), mute.url("/a"), good.url("/a")]
            fetch(urls, str(tmp_path / "object"), checksum=content.checksum(), patience=30)
        assert content.fault(tmp_path / "object") is None


@pytest.mark.usefixtures("quick")
def test_validators_may_change_while_a_checksum_is_declared(tmp_path: Path) -> None:
    """Every answer is resumed, whatever the server calls it."""
    changing = [Headers((("ETag", f'"{number}"'),)).requests(number) for number in range(1, 40)]
    with Server({"/a": CONTENT}, [*changing, Silent(after=MB)]) as server:
        fetch([server.url("/a")], str(tmp_path / "object"), checksum=CONTENT.checksum())
        assert server.sent < 1.5 * SIZE
    assert CONTENT.fault(tmp_path / "object") is None
