"""Uploads: whole and proven under their final name, or not there at all."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.lab import (
    Authority,
    Digests,
    Drop,
    Hang,
    Headers,
    Held,
    Redirect,
    Reset,
    Server,
    Shorter,
    Status,
)

from headway.node.errors import Stopped, TransferError
from headway.node.transfer import put, upload
from headway.node.transfer.checksum import as_header, file_digests, said_digests
from headway.node.transfer.source import Fault
from headway.node.transfer.upload import Delivery, temporary_url

from .federation import TRACER, Registry, clean, creds, jwt

pytestmark = pytest.mark.usefixtures(clean.__name__)
__all__ = ["clean"]

DATA = os.urandom(3_000_000)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "model.pt"
    path.write_bytes(DATA)
    return str(path)


def held(server: Server, path: str) -> bytes:
    content = server.store[path].content
    return content.read(0, content.size)


def methods(server: Server) -> list[str]:
    return [request.method for request in server.requests]


def fails(delivery: Delivery, **more: bool) -> Fault:
    with pytest.raises(Fault) as caught:
        delivery.put(**more)  # type: ignore[arg-type]
    return caught.value


@pytest.mark.parametrize(
    "digests", [Digests(), Digests(algorithms=("adler32",)), Digests(refuse=405)]
)
@pytest.mark.parametrize("moves", [True, False])
def test_a_file_is_there_and_proven(file: str, moves: bool, digests: Digests) -> None:
    with Server(moves=moves, digests=digests) as it:
        sent = Delivery(file, it.url("/out/model.pt"))
        assert sent.put() == len(DATA)
        assert held(it, "/out/model.pt") == DATA
        assert it.store.paths() == ["/out/model.pt"]
        assert sent.proof == ("size" if digests.refuse else "digest")
        (put,) = [request for request in it.requests if request.method == "PUT"]
        assert (put.path == "/out/model.pt") is not moves
        assert put.headers["repr-digest"].startswith("sha-256=:")


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for moves in (True, False):
        with Server(moves=moves) as it:
            assert Delivery(str(tmp_path / "empty"), it.url("/e")).put() == 0
            assert held(it, "/e") == b""


def test_what_lies_there_stays_unless_told(file: str) -> None:
    for moves in (True, False):
        with Server({"/m": Held(b"theirs")}, moves=moves) as it:
            fault = fails(Delivery(file, it.url("/m")))
            assert "already" in fault.words
            assert not fault.retryable
            assert held(it, "/m") == b"theirs"
            assert "PUT" not in methods(it)
            Delivery(file, it.url("/m")).put(overwrite=True)
            assert held(it, "/m") == DATA
            assert it.store.paths() == ["/m"]


def test_the_same_content_is_not_sent_twice(file: str) -> None:
    with Server({"/m": Held(DATA)}, digests=Digests()) as it:
        assert Delivery(file, it.url("/m")).put() == len(DATA)
        assert methods(it) == ["HEAD", "HEAD"]


@pytest.mark.parametrize("moves", [True, False])
def test_half_an_upload_leaves_nothing(file: str, moves: bool) -> None:
    """The server keeps what came of a broken put, as XRootD does."""
    broken = Reset(1_000_000).methods("PUT").once()
    with Server(faults=[broken], half_objects=True, moves=moves) as it:
        it.store.moves = True  # DELETE is known in both cases
        if not moves:
            upload._moves[f"{it.address[0]}:{it.address[1]}"] = False
        sent = Delivery(file, it.url("/m"))
        fault = fails(sent)
        assert fault.retryable
        assert it.store.paths() == []
        assert sent.put(again=True) == len(DATA)
        assert held(it, "/m") == DATA
        assert it.store.paths() == ["/m"]


@pytest.mark.parametrize("kind", ["a web server", "a folder"])
def test_what_a_killed_process_leaves_is_taken_over(kind: str, file: str, tmp_path: Path) -> None:
    code = (
        "import sys, time; from headway.node.transfer import put\n"
        "def slow(done, total): print(done, flush=True); time.sleep(60)\n"
        "put(sys.argv[1], sys.argv[2], progress=slow)"
    )
    folder = tmp_path / "there"
    with Server(half_objects=True, moves=True) as it:
        url = it.url("/m") if kind == "a web server" else f"file://{folder}/m"

        def names() -> list[str]:
            if kind == "a web server":
                return [path.lstrip("/") for path in it.store.paths()]
            return sorted(os.listdir(folder)) if folder.exists() else []

        command = [sys.executable, "-c", code, file, url]
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None and process.stdout.readline()
        process.kill()
        process.wait()
        process.stdout.close()
        end = time.monotonic() + 5
        while not names() and time.monotonic() < end:
            time.sleep(0.02)  # until the server has noticed
        assert len(names()) == 1 and names()[0].startswith(".m.")
        put(file, url)
        assert names() == ["m"]
        got = held(it, "/m") if kind == "a web server" else (folder / "m").read_bytes()
    assert got == DATA


def test_half_an_object_that_cannot_be_removed_is_replaced(file: str) -> None:
    broken = Reset(1_000_000).methods("PUT").once()
    with Server(faults=[broken], half_objects=True) as it:
        sent = Delivery(file, it.url("/m"))
        fails(sent)
        deadline = time.monotonic() + 5
        while "/m" not in it.store and time.monotonic() < deadline:
            time.sleep(0.02)
        assert 0 < len(held(it, "/m")) < len(DATA)
        sent.put(again=True)
        assert held(it, "/m") == DATA


def test_half_an_object_of_somebody_else_is_not_ours(file: str) -> None:
    with Server({"/m": Held(DATA[:100])}) as it:
        assert "already" in fails(Delivery(file, it.url("/m")), again=True).words
        assert held(it, "/m") == DATA[:100]


def test_an_answer_that_is_lost(file: str) -> None:
    with Server(faults=[Drop().methods("PUT").once()], digests=Digests()) as it:
        sent = Delivery(file, it.url("/m"))
        assert fails(sent).retryable
        assert sent.put(again=True) == len(DATA)
        assert held(it, "/m") == DATA


def test_a_server_that_stores_other_bytes(file: str) -> None:
    wrong = Digests(of=Held(DATA[:-1] + bytes([DATA[-1] ^ 1])))
    for moves in (True, False):
        with Server(digests=wrong, moves=moves) as it:
            fault = fails(Delivery(file, it.url("/m")))
            assert "digest" in fault.words
            assert fault.phase == "verify"
            if moves:
                assert it.store.paths() == []
                assert "DELETE" in methods(it)


def test_a_server_that_stores_fewer_bytes(file: str) -> None:
    with Server(faults=[Shorter(5).methods("HEAD")]) as it:
        it.store["/m"] = b"x"
        fault = fails(Delivery(file, it.url("/m")), overwrite=True)
        assert "5 of 3000000 bytes" in fault.words


@pytest.mark.parametrize(
    ("code", "retryable"), [(401, False), (403, False), (413, False), (500, True), (503, True)]
)
def test_refusals(file: str, code: int, retryable: bool) -> None:
    body = f"https://h/?sig={TRACER}".encode()
    with Server(faults=[Status(code, body=body).methods("PUT")]) as it:
        fault = fails(Delivery(file, it.url("/m", query=f"sig={TRACER}")))
        assert fault.retryable is retryable
        assert f"HTTP {code}" in fault.words
        assert TRACER not in f"{fault} {fault!r} {fault.remedy}"
        assert it.store.paths() == []


def test_a_signed_url_is_used_as_it_is(file: str) -> None:
    with Server(moves=True) as it:
        Delivery(file, it.url("/m", query="sig=1")).put()
        assert "MOVE" not in methods(it)
        (put,) = [request for request in it.requests if request.method == "PUT"]
        assert put.target == "/m?sig=1"
        assert not {"digest", "content-md5", "repr-digest"} & put.headers.keys()


def test_redirects_are_followed_before_the_body(file: str) -> None:
    with Server() as there:
        with Server(faults=[Redirect(there.url("/m")).methods("PUT")]) as it:
            it.store["/m"] = DATA  # what a redirector says of the object
            Delivery(file, it.url("/m")).put(overwrite=True)
            assert held(there, "/m") == DATA
            assert it.received == 0
        with Server(faults=[Redirect("file:///etc/x").methods("PUT")]) as it:
            assert "file of this node" in fails(Delivery(file, it.url("/m"))).words
        with Server(faults=[Redirect(there.url("/m"))], tls=Authority.get().good) as it:
            fault = fails(Delivery(file, it.url("/m")))
            assert "https to http" in fault.words
            assert not fault.retryable


@pytest.mark.parametrize("moves", [True, False])
@pytest.mark.parametrize("expects", [True, False])
def test_a_redirected_put_is_sent_once_and_lies_where_it_was_sent(
    file: str, moves: bool, expects: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server that redirects knows nothing of the object, before or after."""
    if not expects:  # the redirect comes after the body
        monkeypatch.setattr(upload, "_SMALL", len(DATA))
    with Server(moves=moves, digests=Digests()) as there:
        for path in ("/m", "/folder/m"):
            led = [Redirect(there.url(path)).methods("PUT")] if not moves else []
            with Server(faults=led, moves=moves) as it:
                if moves:
                    part = temporary_url(it.url("/m"), file_digests(file)).rpartition("/")[2]
                    to = there.url(f"{path[:-1]}{part}")
                    it.faults = [Redirect(to, code=307).methods("PUT")]
                assert put(file, it.url("/m")).proof == "digest"
                assert methods(it).count("PUT") == 1
                assert it.received == (0 if expects else len(DATA))
                assert it.store.paths() == []
            assert held(there, path) == DATA
        assert sorted(there.store.paths()) == ["/folder/m", "/m"]
        assert there.received == 2 * len(DATA)
        with Server(faults=[Redirect(there.url("/m")).methods("PUT")]) as it:
            there.store["/m"] = b"theirs"
            assert "already" in fails(Delivery(file, it.url("/m"))).words
            assert held(there, "/m") == b"theirs"


@pytest.mark.parametrize("moves", [True, False])
def test_a_redirected_put_that_breaks_leaves_nothing_and_goes_on_there(
    file: str, moves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "_SMALL", len(DATA))  # the redirect comes after the body
    broken = Reset(1_000_000).methods("PUT").once()
    with Server(faults=[broken], half_objects=True, moves=True) as there, Server(moves=moves) as it:
        upload._moves[f"{there.address[0]}:{there.address[1]}"] = moves
        name = temporary_url(it.url("/m"), file_digests(file)).rpartition("/")[2] if moves else "m"
        it.faults = [Redirect(there.url(f"/{name}"), code=307).methods("PUT")]
        sent = Delivery(file, it.url("/m"))
        assert fails(sent).retryable
        assert there.store.paths() == []
        sent.put(again=True)
        assert there.store.paths() == ["/m"] and held(there, "/m") == DATA
        assert methods(it).count("PUT") == 1  # the second try goes straight there
        assert it.store.paths() == []


def test_a_redirect_that_gives_names_of_its_own(file: str) -> None:
    """What cannot be moved is sent to its final name."""
    with Server(moves=True) as there, Server(moves=True) as it:
        it.faults = [Redirect(there.url("/elsewhere/x1"), code=307).methods("PUT")]
        put(file, it.url("/m"))
        assert there.store.paths() == ["/elsewhere/x1"]
        assert there.received == len(DATA)


def test_a_redirect_for_the_bytes_alone(file: str) -> None:
    """A door of a storage element: its URL has a query and is good for one PUT."""
    with Server(moves=False) as there:
        door = Redirect(there.url("/m", query="uuid=1"), code=307).methods("PUT")
        with Server(faults=[door]) as it:
            sent = put(file, it.url("/m"))
            assert sent.proof == "size"
            assert held(there, "/m") == DATA
            assert there.received == len(DATA) and it.received == 0


def test_silence_ends(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "SILENCE", 0.5)
    monkeypatch.setattr(upload, "DIGEST_TIME", 0.5)
    monkeypatch.setattr(upload, "_TIDY", 0.5)
    with Server(faults=[Hang("request")]) as it:
        begin = time.monotonic()
        assert fails(Delivery(file, it.url("/m"))).retryable
        assert time.monotonic() - begin < 5


def test_a_wish_to_stop_is_heard_and_nothing_stays(file: str) -> None:
    with Server(moves=True, half_objects=True, faults=[Hang("request").methods("PUT")]) as it:
        begin = time.monotonic()
        with pytest.raises(Stopped):
            Delivery(file, it.url("/m")).put(should_stop=lambda: time.monotonic() - begin > 1.5)
        assert time.monotonic() - begin < 5
        deadline = time.monotonic() + 5
        while it.store.paths() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert it.store.paths() == []


@pytest.mark.parametrize("moves", [True, False])
def test_a_file_that_changes_on_the_way(file: str, moves: bool) -> None:
    with Server(moves=True) as it:
        upload._moves[f"{it.address[0]}:{it.address[1]}"] = moves

        def touch(_: int, __: int | None) -> None:
            os.utime(file, (1, 1))

        sent = Delivery(file, it.url("/m"))
        with pytest.raises(Fault) as caught:
            sent.put(progress=touch)
        assert "changed" in caught.value.words
        assert it.store.paths() == []  # nobody finds a mixture of two files
        sent.put(again=True)
        assert held(it, "/m") == DATA


def test_a_server_that_takes_but_does_not_move(file: str) -> None:
    """A token may allow to create and not to rename; the next try does without."""
    refuses = Status(403).methods("MOVE").requests(3, 99)
    with Server(moves=True, faults=[refuses], digests=Digests()) as it:
        sent = put(file, it.url("/m"))
        assert sent.proof == "digest"
        assert it.store.paths() == ["/m"]


def test_a_server_that_says_404_to_what_it_does_not_know(file: str) -> None:
    """As if it knew MOVE and not the name; that the part is there and not to be moved says no."""
    with Server(moves=True, faults=[Status(404).methods("MOVE")], digests=Digests()) as it:
        assert put(file, it.url("/m")).proof == "digest"
        assert put(file, it.url("/n")).proof == "digest"
        assert methods(it).count("MOVE") == 2  # asked once, tried once: it is remembered
        assert it.store.paths() == ["/m", "/n"]


def test_a_digest_that_nobody_asked_for_proves_nothing(file: str) -> None:
    with Server({"/m": Held(bytes(len(DATA)))}, digests=Digests(algorithms=("crc32c",))) as it:
        said = Headers((("Digest", "crc32c=AAAAAA=="),)).methods("HEAD")
        it.faults = [said]
        assert "already" in fails(Delivery(file, it.url("/m"))).words


# -- federations


def test_to_a_federation_with_a_token(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in creds(tmp_path, scitokens=jwt("storage.create:/ storage.modify:/")).items():
        monkeypatch.setenv(name, value)
    good = Authority.get().good
    with (
        Server(tls=good, moves=True, digests=Digests()) as origin,
        Server(tls=good) as cache,
        Registry("/lab", [cache], [origin], require_token=True) as it,
    ):
        Delivery(file, it.pelican_url("/out/m")).put()
        assert held(origin, "/lab/out/m") == DATA
        assert cache.requests == []
        assert not it.saw(TRACER)
        assert all(TRACER in request.headers["authorization"] for request in origin.requests)
        assert it.requests[-1].method == "PUT"


def test_a_token_does_not_follow_a_redirect(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BEARER_TOKEN", jwt("storage.modify:/"))
    good = Authority.get().good
    with (
        Server(tls=good) as elsewhere,
        Server(tls=good, faults=[Redirect(elsewhere.url("/x"))]) as origin,
        Registry("/lab", [], [origin], require_token=True) as it,
    ):
        Delivery(file, it.pelican_url("/m")).put()
        assert held(elsewhere, "/x") == DATA
        assert origin.saw(TRACER)
        assert not elsewhere.saw(TRACER)


def test_a_federation_that_takes_nothing(file: str) -> None:
    refuses = Status(405, body=b'{"msg": "no"}').methods("PUT")
    with Registry("/lab", [], ["https://o.invalid"], faults=[refuses]) as it:
        fault = fails(Delivery(file, it.pelican_url("/m")))
        assert "no origin takes uploads" in fault.words
        assert not fault.retryable


# -- files


def test_to_a_folder_of_the_node(file: str, tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder" / "model"
    sent = put(file, f"file://{target}")
    assert (sent.bytes, sent.proof) == (len(DATA), "size")
    assert target.read_bytes() == DATA
    with pytest.raises(TransferError) as caught:
        put(file, f"file://{target}")
    assert not caught.value.retryable
    put(file, f"file://{target}", overwrite=True)
    assert os.listdir(target.parent) == ["model"]


def test_a_file_that_changes_before_it_is_copied(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure_then_grow(path: str) -> int:
        with open(path, "ab") as stream:
            return stream.tell() * stream.write(b"x")

    monkeypatch.setattr(upload, "_size", measure_then_grow)
    with pytest.raises(TransferError) as caught:
        put(file, f"file://{tmp_path}/out/model", rounds=1)
    assert f"{len(DATA) + 1} of {len(DATA)} bytes are there after the copy" in caught.value.message
    assert os.listdir(tmp_path / "out") == []


def test_a_full_disk_leaves_nothing(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TransferError) as caught:
        put(file, f"file://{tmp_path}/out/model", rounds=1)
    assert "no room" in caught.value.message
    assert os.listdir(tmp_path / "out") == []


def test_all_tries_of_a_put(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's own door: tried again, and the half object of the first try is gone."""
    broken = Reset(1_000_000).methods("PUT").once()
    with Server(faults=[broken], half_objects=True, moves=True, digests=Digests()) as it:
        sent = put(file, it.url("/m"))
        assert (sent.bytes, sent.proof) == (len(DATA), "digest")
        assert it.store.paths() == ["/m"]
    with Server(faults=[Status(403).methods("PUT")]) as it, pytest.raises(TransferError) as caught:
        put(file, it.url("/m", query=f"sig={TRACER}"))
    assert not caught.value.retryable
    assert TRACER not in str(caught.value)
    assert methods(it).count("PUT") == 1


@pytest.mark.parametrize("scheme", ["http", "file"])
@pytest.mark.parametrize("what", ["nothing", "folder"])
def test_a_file_that_is_not_there(scheme: str, what: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with Server(moves=True) as it, pytest.raises(TransferError) as caught:
        put(str(tmp_path / what), it.url("/m") if scheme == "http" else f"file://{tmp_path}/m")
    assert not caught.value.retryable
    words = {"nothing": "No such file", "folder": "not a file"}[what]
    assert what in caught.value.message and words in caught.value.message
    assert methods(it) == [] and not (tmp_path / "m").exists()


# -- digests


def test_digests_in_all_their_forms(file: str) -> None:
    digests = file_digests(file)
    header = {**as_header(digests)}
    assert said_digests(lambda name: header.get(name, "")) == {"sha256": digests["sha256"]}
    said = f"adler32={digests['adler32'].upper()}, md5={header['Content-MD5']}, unixsum=5,crc32c=!"
    assert said_digests({"Repr-Digest": "", "Digest": said}.__getitem__) == {
        "adler32": digests["adler32"],
        "md5": digests["md5"],
    }
    for text in ("", "=", "md5=", "md5=a", "sha-256=:AAAA:", "md5=é", "x" * 10_000):
        assert said_digests({"Repr-Digest": text, "Digest": text}.__getitem__) == {}


def test_temporary_names() -> None:
    assert temporary_url("https://h/a/b").startswith("https://h/a/.b.")
    assert temporary_url("https://h/a/b") != temporary_url("https://h/a/b")
    first, second = {"md5": "1"}, {"md5": "2"}
    assert temporary_url("https://h/a/b", first) == temporary_url("https://h/a/b", first)
    assert temporary_url("https://h/a/b", first) != temporary_url("https://h/a/b", second)
    assert temporary_url("https://h/a/b", first) != temporary_url("https://h/a/c", first)
    assert len(temporary_url("https://h/" + "x" * 300)) < 200
