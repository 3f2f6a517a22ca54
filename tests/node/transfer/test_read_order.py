"""What is fetched first for those who read while an object arrives, and how."""

from __future__ import annotations

import contextlib
import math
import random
import select
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lab import Authority, Content, Flip, Made, Rate, Server, WidePath

from headway.node.transfer.fetch import fetch
from headway.node.transfer.ledger import Ledger, ReadOrder
from headway.node.transfer.manifest import Manifest, make_manifest, read_manifest

if TYPE_CHECKING:
    from headway.node.transfer.options import ReadControl

UNIT = 1 << 16


class Readers:
    """Want the chunks in an order, and take down in which they come."""

    def __init__(self, order: Sequence[int], unit: int = UNIT, room: int = 0) -> None:
        self.order, self.unit, self.room = order, unit, room
        self.came: list[int] = []
        self.size = 0
        self._turned = False

    def begins(self, size: int) -> list[tuple[int, int]]:
        self.size = size
        return []

    def proven(self, begin: int, end: int) -> None:
        self.came.append(begin // self.unit)

    def lost(self, begin: int, end: int) -> None:
        pass

    def look(self, control: ReadControl) -> None:
        if not self._turned:
            self._turned = True
            chunks = [(n * self.unit, (n + 1) * self.unit) for n in self.order]
            control.turn([(a, min(self.size, b)) for a, b in chunks])


def test_wishes_then_the_order_then_the_rest() -> None:
    order = ReadOrder()
    ledger = Ledger(10, order=order)
    order.turn([(6, 8), (2, 4)])
    order.wishes = [(9, 10)]
    taken = [ledger.take(1, 2) for _ in range(6)]
    assert [(lease.begin, lease.end) for lease in taken if lease] == [
        (9, 10), (6, 8), (2, 4), (0, 2), (4, 6), (8, 9),
    ]  # fmt: skip


def test_what_lies_side_by_side_is_asked_for_at_once() -> None:
    order = ReadOrder()
    ledger = Ledger(100, order=order)
    order.turn([(40, 50), (50, 60), (60, 70), (0, 10)])
    first, second, third = (ledger.take(1, most) for most in (20, 20, 20))
    assert first and second and third
    spans = [(each.begin, each.end) for each in (first, second, third)]
    assert spans == [(40, 60), (60, 70), (0, 10)]


def test_what_failed_comes_again_first() -> None:
    order = ReadOrder()
    ledger = Ledger(100, order=order)
    order.turn([(n, n + 10) for n in (50, 20, 80)])
    lease = ledger.take(1, 10)
    assert lease is not None and lease.begin == 50
    ledger.claim(lease, 4)
    ledger.release(lease)
    again = ledger.take(1, 10)
    assert again is not None and (again.begin, again.end) == (54, 60)


@given(st.integers(0, 1 << 32), st.integers(1, 40), st.integers(1, 7))
def test_everything_is_taken_once(seed: int, count: int, most: int) -> None:
    dice = random.Random(seed)
    chunks = [(n, n + 1) for n in range(count)]
    dice.shuffle(chunks)
    named = chunks[: dice.randint(0, count)]
    order = ReadOrder()
    ledger = Ledger(count, order=order)
    order.turn(named)
    taken: list[int] = []
    while lease := ledger.take(1, most):
        assert lease.end is not None
        if dice.random() < 0.2:  # it fails
            ledger.release(lease)
            continue
        ledger.claim(lease, lease.end - lease.begin)
        ledger.wrote(lease)
        ledger.release(lease)
        taken += range(lease.begin, lease.end)
    assert sorted(taken) == list(range(count))
    assert taken[: len(named)] == [begin for begin, _ in named] or most > 1


def test_a_window_holds_back(tmp_path: Path) -> None:
    order = ReadOrder(room=30)
    ledger = Ledger(100, grain=10, order=order)
    order.turn([(n, n + 10) for n in range(0, 100, 10)])
    taken = [ledger.take(1, 10) for _ in range(4)]
    assert [lease.begin if lease else None for lease in taken] == [0, 10, 20, None]
    for lease in taken[:3]:
        assert lease is not None
        ledger.claim(lease, 10)
        ledger.wrote(lease)
        ledger.release(lease)
    order.wishes = [(90, 100)]
    wished = ledger.take(1, 10)
    assert wished is not None and wished.begin == 90  # who waits is served in any case


def published(folder: Path, size: int, unit: int = UNIT) -> tuple[Content, Manifest]:
    content = Made(size, seed=3)
    content.write(folder / "object").close()
    return content, read_manifest(make_manifest(str(folder / "object"), chunk_size=unit))


@pytest.fixture
def shuffled() -> list[int]:
    order = list(range(64))
    random.Random(1).shuffle(order)
    return order


def test_chunks_come_in_the_order_in_which_they_are_wanted(
    tmp_path: Path, shuffled: list[int]
) -> None:
    content, manifest = published(tmp_path, 64 * UNIT - 99)
    readers = Readers(shuffled)
    with Server({"/a": content}) as server:
        fetch([server.url("/a")], str(tmp_path / "a"), manifest=manifest, readers=readers)
    assert content.fault(tmp_path / "a") is None
    assert sorted(readers.came) == list(range(64))
    places = {number: place for place, number in enumerate(shuffled)}
    assert max(abs(places[n] - at) for at, n in enumerate(readers.came)) <= 10


def test_requests_are_sent_early_over_tls_too(
    tmp_path: Path, shuffled: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority.get()
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.bundle))
    content, manifest = published(tmp_path, 64 * UNIT)
    with Server({"/a": content}, [Rate(8 << 20)], tls=authority.good) as server:
        readers = Readers(shuffled)
        fetch([server.url("/a")], str(tmp_path / "a"), manifest=manifest, readers=readers)
        assert len(server.requests) >= 40
    assert content.fault(tmp_path / "a") is None


def test_no_reader_hears_of_a_wrong_chunk(tmp_path: Path, shuffled: list[int]) -> None:
    content, manifest = published(tmp_path, 64 * UNIT)
    readers = Readers(shuffled)
    with Server({"/a": content}, [Flip(at=9 * UNIT)]) as sick, Server({"/a": content}) as well:
        urls = [sick.url("/a"), well.url("/a")]
        fetch(urls, str(tmp_path / "a"), manifest=manifest, readers=readers)
    assert sorted(readers.came) == list(range(64))
    assert content.fault(tmp_path / "a") is None


def test_a_long_path_is_filled_by_small_requests(tmp_path: Path) -> None:
    """1 MiB each, at random places: within a tenth of one request for all of it, and some slack."""
    unit = 1 << 20
    content, manifest = published(tmp_path, 40 * unit, unit)
    order = list(range(40))
    random.Random(2).shuffle(order)
    seconds = [math.inf, math.inf]
    with Server({"/a": content}) as server, WidePath(server.address, rate=20e6) as path:
        url = path.url(server.url("/a"))
        for _ in range(6):  # the quickest of some turns, as a busy machine makes each longer
            for at, readers in enumerate((None, Readers(order, unit))):
                begin = time.monotonic()
                fetch([url], str(tmp_path / "a"), manifest=manifest, readers=readers)
                seconds[at] = min(seconds[at], time.monotonic() - begin)
            if seconds[1] < 1.1 * seconds[0] + 0.3:
                break
    assert seconds[1] < 1.1 * seconds[0] + 0.3, seconds


class OneByOne:
    """A server that takes the next request only when it has answered the last one."""

    def __init__(self, content: Content, *, closes: bool) -> None:
        self.content, self._closes = content, closes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/a"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                served = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads.append(served)
                self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while request := connection.recv(65536):
                first, _, last = _range(request)
                head = (
                    f"HTTP/1.1 206 Partial Content\r\nContent-Length: {last + 1 - first}\r\n"
                    f"Content-Range: bytes {first}-{last}/{self.content.size}\r\n\r\n"
                )
                answer = head.encode() + self.content.read(first, last + 1 - first)
                connection.sendall(answer[:-1])
                while select.select([connection], [], [], 0.01)[0]:  # what came early is forgotten
                    if not connection.recv(65536):
                        return
                connection.sendall(answer[-1:])
                if self._closes:
                    return

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)


def _range(request: bytes) -> tuple[int, str, int]:
    value = request.lower().partition(b"range: bytes=")[2].partition(b"\r\n")[0].decode()
    first, dash, last = value.partition("-")
    return int(first), dash, int(last)


@contextlib.contextmanager
def one_by_one(content: Content, *, closes: bool) -> Iterator[OneByOne]:
    server = OneByOne(content, closes=closes)
    try:
        yield server
    finally:
        server.close()


@pytest.mark.parametrize("closes", [False, True])
def test_a_server_that_takes_one_request_at_a_time(
    tmp_path: Path, shuffled: list[int], closes: bool
) -> None:
    content, manifest = published(tmp_path, 64 * UNIT)
    with one_by_one(content, closes=closes) as server:
        begin = time.monotonic()
        readers = Readers(shuffled)
        fetch([server.url], str(tmp_path / "a"), manifest=manifest, readers=readers)
        assert time.monotonic() - begin < 12
    assert content.fault(tmp_path / "a") is None
