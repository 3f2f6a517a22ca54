"""The fault table: a sick source beside a healthy one, and the sick one alone."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lab import (
    NO_DIGESTS,
    Change,
    Chunked,
    Coded,
    Delay,
    Digests,
    Drop,
    FailedTrailer,
    Fault,
    Filed,
    Flip,
    FoldedHeaders,
    Garbage,
    Hang,
    Http10,
    IgnoreRange,
    LineFeeds,
    LyingHead,
    Made,
    OtherBytes,
    Portal,
    Rate,
    Redirect,
    Reset,
    Server,
    Shorter,
    Silent,
    Status,
    Truncate,
    Unsized,
    Validators,
    Version,
    WrongContentRange,
    WrongLength,
    black_hole,
    dead_url,
)
from tests.lab.stopwatch import Stopwatch

from headway.node.errors import HeadwayError, TransferError
from headway.node.transfer import Fetched, fetch
from headway.node.transfer.connection import Connection

from .chunks import manifest_of

MB = 1 << 20
SIZE = 48 * MB
NAME = "/a.tar"
TIME = 0.25  # of the engine's own: see the fixture `quick`
BUFFERS = 6 * MB  # of the kernel: sent, and not received when a connection is given up
BUSY = 1.5  # seconds that a busy machine may add
LATE, WASTE = 10.0 * TIME + BUSY, 0.05  # what a sick source may cost beside a healthy one
OTHER = Made(SIZE, seed=8)

pytestmark = pytest.mark.usefixtures("quick")


class Row:
    """One fault: what a transfer from that source alone comes to, as words of the error.

    `unseen`: only a proof of the bytes tells; a checksum then costs up to so many times the whole.
    `again`: so much of the whole may come twice beside a healthy source. `undeclared`: what it
    comes to, alone, where nothing is declared: "" is the object, "?" is anything, for nothing can
    tell. `beside`: the same with a healthy source beside it.
    """

    def __init__(
        self,
        *faults: Fault,
        alone: str = "",
        retryable: bool = True,
        unseen: float = 0.0,
        again: float = 0.0,
        undeclared: str | None = None,
        beside: str | None = None,
    ) -> None:
        self.faults, self.alone, self.retryable, self.unseen = faults, alone, retryable, unseen
        self.again, self.beside = again, beside or ("?" if unseen else "")
        self.undeclared = undeclared if undeclared is not None else "?" if unseen else alone


TABLE = {
    "hang": Row(Hang(), alone="first byte"),
    "hang after the request": Row(Hang(at="request"), alone="first byte"),
    "hang of the first connection": Row(Hang().connections(1)),
    "late": Row(Delay(30), alone="first byte"),
    "silent for ever": Row(Silent(after=5 * MB, scope="server"), alone="body"),
    "silent per connection": Row(Silent(after=5 * MB)),
    "404 for a while": Row(Status(404).for_seconds(2 * TIME)),
    "404": Row(Status(404), alone="HTTP 404"),
    "403": Row(Status(403), alone="HTTP 403", retryable=False),
    "500": Row(Status(500), alone="HTTP 500"),
    "503": Row(Status(503, retry_after="30"), alone="HTTP 503"),
    "503 for a while": Row(Status(503, retry_after="1").for_seconds(1)),
    "truncated": Row(Truncate(5 * MB)),
    "truncated for good": Row(Truncate(20 * MB, scope="object"), alone="(body"),
    "shorter": Row(
        Shorter(20 * MB),
        alone="not 50331648",
        retryable=False,
        undeclared="?",
        beside="sources disagree",
    ),
    "flipped byte": Row(Flip(5 * MB), alone="sha256 is", retryable=False, unseen=1.0),
    "flipped byte once": Row(Flip(5 * MB).once(), unseen=1.0),
    "flipped bytes": Row(
        *(Flip(place * MB + 5) for place in range(0, 48, 2)),
        alone="sha256 is",
        retryable=False,
        unseen=1.5,
    ),
    "reset": Row(Reset(5 * MB)),
    "no ranges": Row(IgnoreRange()),
    "wrong range": Row(WrongContentRange()),
    "wrong range once": Row(WrongContentRange().once()),
    "wrong range that lies": Row(
        WrongContentRange(lie=True),
        alone="sha256 is",
        retryable=False,
        unseen=1.0,
        beside="sources disagree",
    ),
    "wrong bytes after a good start": Row(
        OtherBytes(SIZE * 2 // 3),
        alone="sha256 is",
        retryable=False,
        unseen=0.6,
        beside="sources disagree",
    ),
    "chunks without a length, cut": Row(
        Chunked(1 << 16), IgnoreRange(), Truncate(20 * MB), alone="within a chunk", again=0.5
    ),
    "no length, cut": Row(
        Unsized(),
        Truncate(20 * MB),
        alone="too early; no try came further",
        undeclared="?",
        again=0.5,
    ),
    "HTTP/1.0, cut": Row(
        Http10(),
        Truncate(20 * MB),
        alone="too early; no try came further",
        undeclared="?",
        again=0.5,
    ),
    "HEAD says 0 bytes": Row(LyingHead(length=0)),
    "HEAD says another size": Row(LyingHead(length=12345)),
    "HEAD says another ETag": Row(LyingHead(etag='"other"')),
    "HEAD says another date": Row(LyingHead(modified="Wed, 21 Oct 2015 07:28:00 GMT")),
    "a new ETag each time": Row(Validators(etag="new"), again=1.0),
    "two back ends with their own ETags": Row(Validators(etag=('"a"', '"b"')), again=1.0),
    "modified now": Row(Validators(etag=("",), modified="new"), again=1.0),
    "a portal": Row(Portal(), alone="not 50331648", retryable=False, undeclared="a web page"),
    "an error page with 200": Row(
        Portal().methods("GET"), alone="not 50331648", retryable=False, undeclared="a web page"
    ),
    "gzip that nobody asked for": Row(Coded(), alone="content coding"),
    "wrong length": Row(WrongLength(-7), alone="first byte"),
    "another version": Row(Version(OTHER), alone="sha256 is", retryable=False, unseen=1.0),
    "garbage": Row(Garbage(), alone="HTTP properly"),
    "dropped": Row(Drop(), alone="reset by peer"),
    "dropped once": Row(Drop().once()),
    "small chunks": Row(Chunked(64)),
    "a loose head": Row(FoldedHeaders(), LineFeeds()),
    "redirects for ever": Row(Redirect(), alone="redirects"),
    "failed trailer": Row(FailedTrailer(3 * MB), alone="failed at the server"),
    "failed trailer once": Row(FailedTrailer(3 * MB).once()),
    # alone it goes on for hours: see test_a_slow_source_alone_is_never_given_up
    "1 kB/s": Row(Rate(1000), alone="-"),
}


class Connections:
    """How many are open at once, by host, as the client has it: a server notices an end later."""

    def __init__(self) -> None:
        self.now: dict[str, set[Connection]] = {}
        self.most: dict[str, int] = {}
        self.most_of_all = 0
        self._lock = threading.Lock()

    def change(self, wire: Connection, *, is_open: bool) -> None:
        with self._lock:
            now = self.now.setdefault(wire.route.host, set())
            (now.add if is_open else now.discard)(wire)
            self.most[wire.route.host] = max(self.most.get(wire.route.host, 0), len(now))
            self.most_of_all = max(self.most_of_all, sum(map(len, self.now.values())))


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Connections:
    counted = Connections()
    connect, close = Connection._connect, Connection.close

    def counting_connect(self: Connection) -> None:
        counted.change(self, is_open=True)
        connect(self)

    def counting_close(self: Connection) -> None:
        counted.change(self, is_open=False)
        close(self)

    monkeypatch.setattr(Connection, "_connect", counting_connect)
    monkeypatch.setattr(Connection, "close", counting_close)
    return counted


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filed]:
    with Made(SIZE, seed=7).write(tmp_path_factory.mktemp("lab") / "object") as filed:
        yield filed


def both(
    sick: Row, content: Filed, path: Path, *pace: Rate, **proof: object
) -> tuple[Fetched, float, list[Server]]:
    """A fetch from a sick source and a healthy one after it."""
    with (
        Server({NAME: content}, [*pace, *sick.faults]) as one,
        Server({NAME: content}, pace) as other,
    ):
        watch = Stopwatch()
        got = fetch([one.url(NAME), other.url(NAME)], str(path), **proof)
        return got, watch.seconds, [one, other]


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("declared", [True, False], ids=["declared", "undeclared"])
def test_beside_a_healthy_source(
    name: str, declared: bool, content: Filed, tmp_path: Path, connections: Connections
) -> None:
    row, path = TABLE[name], tmp_path / "object"
    proof = {"size": SIZE, "checksum": content.checksum()} if declared else {}
    if not declared and row.beside == "?":
        pytest.skip("nothing tells which bytes are right")
    if not declared and row.beside:
        with pytest.raises(TransferError, match=row.beside):
            both(row, content, path)
        assert os.listdir(tmp_path) == []
        return
    got, took, servers = both(row, content, path, **proof)
    assert content.fault(path) is None
    assert took < LATE
    again = row.unseen + row.again + WASTE
    assert sum(server.sent for server in servers) <= (1 + again) * SIZE + BUFFERS
    assert sum(state.wasted for state in got.snapshot.sources) <= (row.again + WASTE) * SIZE
    assert max(connections.most.values()) <= 2
    assert connections.most_of_all <= 4
    assert sorted(os.listdir(tmp_path)) == ["object"]


@pytest.mark.parametrize("name", [name for name in TABLE if TABLE[name].unseen])
def test_beside_a_healthy_source_with_a_manifest(name: str, content: Filed, tmp_path: Path) -> None:
    """Each wrong chunk shows by itself, so what only a proof can tell costs little, too."""
    row, path, size = TABLE[name], tmp_path / "object", MB // 4
    wrong = len(row.faults) if "flipped" in name else 2
    got, took, servers = both(
        row, content, path, Rate(60 * MB, scope="server"), manifest=manifest_of(content, size)
    )
    assert content.fault(path) is None
    assert took < LATE
    assert sum(server.sent for server in servers) <= (1 + WASTE) * SIZE + wrong * size + BUFFERS
    assert (got.verified, got.proof) == (True, "manifest")


@pytest.mark.parametrize("name", [name for name in TABLE if TABLE[name].alone != "-"])
def test_alone(name: str, content: Filed, tmp_path: Path) -> None:
    row, path = TABLE[name], tmp_path / "object"
    proof = {"size": SIZE, "checksum": content.checksum()}
    with Server({NAME: content}, row.faults) as server:
        url = server.url(NAME, query="sig=geheim")
        watch = Stopwatch()
        if not row.alone:
            fetch([url], str(path), patience=20 * TIME, **proof)
            assert content.fault(path) is None
            return
        with pytest.raises(TransferError) as caught:
            # what no other try can change ends it, and not that nothing came
            patience = (6 if row.retryable else 40) * TIME
            fetch([url], str(path), patience=patience, grace=2 * TIME, **proof)
        assert watch.seconds < 6 * TIME + 5 * BUSY + _again(name, server)
    assert row.alone in caught.value.message
    assert caught.value.retryable is row.retryable
    assert "geheim" not in str(caught.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", [name for name in TABLE if TABLE[name].alone != "-"])
def test_alone_and_nothing_declared(name: str, content: Filed, tmp_path: Path) -> None:
    """The object, or an error; wrong bytes only where nothing could tell, and that is said."""
    row, path = TABLE[name], tmp_path / "object"
    with Server({NAME: content}, row.faults) as server:
        watch = Stopwatch()
        patience = (6 if row.undeclared else 20) * TIME
        try:
            got = fetch([server.url(NAME)], str(path), patience=patience, grace=patience)
        except TransferError as error:
            assert row.undeclared and (row.undeclared == "?" or row.undeclared in error.message)
            assert os.listdir(tmp_path) == []
        else:
            assert row.undeclared in ("", "?")
            assert got.proof == ""
            assert row.undeclared or content.fault(path) is None
        assert watch.seconds < patience + 5 * BUSY + _again(name, server)
        assert server.sent <= (4 if "length" in name else 2.1) * SIZE + BUFFERS


def _again(name: str, server: Server) -> float:
    """An answer of unknown length begins at the first byte each time, which takes its time."""
    sending = sum(request.sending for request in server.requests)
    return min(sending, 20 * BUSY) if "length" in name else 0.0  # but not without end


def test_nobody_there(content: Filed, tmp_path: Path) -> None:
    with pytest.raises(TransferError) as caught:
        fetch(urls=[dead_url("/a")], path=str(tmp_path / "object"), patience=2 * TIME)
    assert "refuses connections" in caught.value.message
    assert caught.value.retryable


def test_a_dead_host_and_a_black_hole(content: Filed, tmp_path: Path) -> None:
    path = tmp_path / "object"
    with Server({"/a": content}) as healthy, black_hole() as hole:
        watch = Stopwatch()
        fetch([dead_url("/a"), f"{hole}/a", healthy.url("/a")], str(path), size=SIZE)
        assert watch.seconds < 4
    assert content.fault(path) is None


def test_a_slow_source_alone_is_never_given_up(tmp_path: Path) -> None:
    small = Made(60_000, seed=3)
    slow: list[str] = []
    with Server({"/a": small}, [Rate(30_000)]) as server:
        fetch(
            [server.url("/a")],
            str(tmp_path / "object"),
            patience=1,
            watch=lambda shot: slow.extend(state.state for state in shot.sources),
        )
        assert len(server.requests) == 1
    assert small.fault(tmp_path / "object") is None
    assert set(slow[:-1]) == {"active"}


def test_a_pause_longer_than_usual_is_survived(tmp_path: Path) -> None:
    """One source that pauses for a while goes on; nothing is fetched twice beyond a rest."""
    content = Made(8 * MB, seed=3)
    with Server({"/a": content}, [Silent(after=3 * MB).connections(1)]) as server:
        fetch([server.url("/a")], str(tmp_path / "object"))
        assert server.sent < 9.5 * MB  # with what lay in buffers
    assert content.fault(tmp_path / "object") is None


def test_a_bad_chunk_that_heals_at_the_only_source(content: Filed, tmp_path: Path) -> None:
    with Server({"/a": content}, [Flip(9 * MB).once()]) as server:
        chunks = manifest_of(content, 2 * MB)
        fetch([server.url("/a")], str(tmp_path / "object"), manifest=chunks)
        assert server.sent == SIZE + 2 * MB
    assert content.fault(tmp_path / "object") is None


def test_a_bad_chunk_that_stays_is_no_file(content: Filed, tmp_path: Path) -> None:
    chunks = manifest_of(content, 2 * MB)
    with Server({"/a": content}, [Flip(9 * MB)]) as server, pytest.raises(TransferError) as caught:
        fetch([server.url("/a")], str(tmp_path / "object"), manifest=chunks, patience=5)
    assert not caught.value.retryable
    assert "manifest" in caught.value.message
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("proof", ["checksum", "nothing"])
def test_another_version_at_the_second_source(proof: str, content: Filed, tmp_path: Path) -> None:
    """Where nothing tells which of them is right, neither is taken."""
    path = str(tmp_path / "object")
    with Server({"/a": content}, [Rate(60 * MB)]) as good, Server({"/a": OTHER}) as stale:
        urls = [good.url("/a"), stale.url("/a")]
        if proof == "checksum":
            fetch(urls, path, checksum=content.checksum())
            assert content.fault(tmp_path / "object") is None
        else:
            with pytest.raises(TransferError, match="sources disagree"):
                fetch(urls, path)
        assert good.sent + stale.sent < (1 + WASTE) * SIZE


@pytest.mark.parametrize("told", ["by the stale one", "by the good one", "by more of them"])
def test_another_version_at_the_first_source_when_somebody_can_tell(
    told: str, content: Filed, tmp_path: Path
) -> None:
    """A source's word about itself, or a majority, spares the bytes of the wrong version."""
    stale_digests = Digests() if "stale" in told else NO_DIGESTS
    good_digests = Digests() if "good" in told else NO_DIGESTS
    pace = [Rate(8 * MB, scope="server")]  # what arrives before an answer depends on the machine
    content.digest("sha256"), OTHER.digest("sha256")  # servers have them at hand
    with (
        Server({"/a": OTHER}, pace, digests=stale_digests) as stale,
        Server({"/a": content}, pace, digests=good_digests) as good,
        Server({"/a": content if "more" in told else OTHER}, pace) as third,
    ):
        urls = [each.url("/a") for each in (stale, good, third)]
        fetch(urls, str(tmp_path / "object"), checksum=content.checksum())
        assert good.sent + stale.sent + third.sent < (1 + 4 * WASTE) * SIZE
    assert content.fault(tmp_path / "object") is None


def test_an_object_that_changes_on_the_way(tmp_path: Path) -> None:
    """Either version is right, a mixture never."""
    old, new = Made(SIZE, seed=1), Made(SIZE, seed=2)
    with Server({"/a": old}, [Change(new, after=10 * MB)]) as server:
        try:
            fetch([server.url("/a")], str(tmp_path / "object"), patience=5)
        except HeadwayError:
            assert not (tmp_path / "object").exists()
        else:
            assert new.fault(tmp_path / "object") is None


def test_two_sources_of_different_versions_and_the_first_dies(tmp_path: Path) -> None:
    old, new = Made(SIZE, seed=1), Made(SIZE, seed=2)
    silent = [Silent(after=10 * MB, scope="server")]
    with Server({"/a": old}, silent) as dying, Server({"/a": new}) as other:
        urls = [dying.url("/a"), other.url("/a")]
        fetch(urls, str(tmp_path / "object"), patience=60)
    assert new.fault(tmp_path / "object") is None


def test_a_crowd_makes_it_modest(content: Filed, tmp_path: Path) -> None:
    from tests.lab import Crowded

    with Server({"/a": content}, [Crowded(1), Rate(40 * MB)]) as server:
        fetch([server.url("/a")], str(tmp_path / "object"), size=SIZE)
        refused = [request for request in server.requests if request.status == 503]
        assert len(refused) <= 3
    assert content.fault(tmp_path / "object") is None
