"""One client: whatever a server says, it ends in the right bytes or in a Fault."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from headway.node.errors import TransferError
from headway.node.transfer import fetch
from headway.node.transfer.client import HttpClient
from headway.node.transfer.connection import Quiet
from headway.node.transfer.heads import number, parse_fields
from headway.node.transfer.http import HttpConnection
from headway.node.transfer.source import Fault

NAMES = ("Content-Range", "Content-Length", "Transfer-Encoding", "ETag", "Location", "Trailer")


class Script:
    """A server that sends given bytes to whoever connects, whatever is asked."""

    def __init__(self) -> None:
        self.data = b""
        self.pieces = 1
        self.asked: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/x?sig=geheim"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with client:
                self.asked.append(client.recv(65536))
                step = max(1, len(self.data) // self.pieces)
                try:
                    for at in range(0, len(self.data), step):
                        client.sendall(self.data[at : at + step])
                    client.shutdown(socket.SHUT_WR)
                except OSError:
                    continue

    def close(self) -> None:
        self._listener.close()


@pytest.fixture(scope="module")
def script() -> Iterator[Script]:
    server = Script()
    yield server
    server.close()


def ask(script: Script, data: bytes, pieces: int = 1) -> tuple[int, bytes, list[tuple[str, str]]]:
    script.data, script.pieces = data, pieces
    wire = HttpConnection(script.url)
    try:
        answer = wire.ask("GET", {})
        body, view = b"", memoryview(bytearray(1000))
        while True:
            try:
                count = answer.read_into(view)
            except Quiet:
                continue
            if not count:
                return answer.status, body, answer.trailers
            body += view[:count]
    finally:
        wire.close()


@pytest.mark.parametrize("pieces", [1, 7, 1000])
def test_bodies_however_they_are_framed(script: Script, pieces: int) -> None:
    head = b"HTTP/1.1 200 OK\r\n"
    assert ask(script, head + b"Content-Length: 5\r\n\r\nhello", pieces)[1] == b"hello"
    assert ask(script, head + b"\r\nhello", pieces)[1] == b"hello"
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\n"
    assert ask(script, interim + head + b"Content-Length: 1\r\n\r\nx", pieces)[1] == b"x"
    chunked = b"Transfer-Encoding: chunked\r\n\r\n3;a=b\r\nhel\r\n2\r\nlo\r\n0\r\n"
    status, body, trailers = ask(
        script, head + chunked + b"X-Transfer-Status: 200: OK\r\n\r\n", pieces
    )
    assert (status, body) == (200, b"hello")
    assert trailers == [("x-transfer-status", "200: OK")]


def test_heads_as_old_servers_write_them(script: Script) -> None:
    """Folded lines, and lines that end without a carriage return, as curl takes them."""
    loose = b"HTTP/1.0 200 OK\nX-Long: one\n\t two\r\n  three \nContent-Type:\n text/html\n"
    for pieces in (1, 1000):
        script.data, script.pieces = loose + b"Content-Length: 5\n\nhello", pieces
        with HttpConnection(script.url) as connection:
            answer = connection.ask("GET", {})
            assert answer.get("x-long") == "one two three"
            assert answer.get("Content-Type") == "text/html"
            assert answer.read(100) == b"hello"
    chunks = b"HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n3\nhel\n2\nlo\n0\nA: b\n\n"
    assert ask(script, chunks) == (200, b"hello", [("a", "b")])


@pytest.mark.parametrize(("size", "total", "seconds"), [(64, 16 << 20, 3.0), (1, 1 << 20, 1.5)])
def test_small_chunks_cost_little(script: Script, size: int, total: int, seconds: float) -> None:
    """curl needs 0.1 s for them; to copy the rest for every line took minutes.

    Seconds of the processor: others may have work for it, too.
    """
    body = os.urandom(total)
    pieces = (body[at : at + size] for at in range(0, total, size))
    chunks = b"".join(b"%x\r\n%b\r\n" % (size, piece) for piece in pieces)
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    script.data, script.pieces = head + chunks + b"0\r\n\r\n", 1
    got, view = bytearray(), memoryview(bytearray(2 << 20))
    begin = time.process_time()
    with HttpConnection(script.url) as connection:
        answer = connection.ask("GET", {})
        while not answer.done:
            with contextlib.suppress(Quiet):
                got += view[: answer.read_into(view)]
    assert time.process_time() - begin < seconds
    assert got == body


class Pieces(HttpConnection):
    """A connection that receives given bytes in given pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        super().__init__("http://127.0.0.1:1/")
        self._pieces = [piece for piece in pieces if piece]
        self._pipe = self._raw = socket.socket()

    def receive(self, view: memoryview) -> int:
        if self.at < self.end:
            return super().receive(view)
        if not self._pieces:
            return 0
        piece = self._pieces[0][: len(view)]
        view[: len(piece)] = piece
        self._pieces[0] = self._pieces[0][len(piece) :]
        if not self._pieces[0]:
            del self._pieces[0]
        return len(piece)


@settings(max_examples=300, deadline=None)
@given(
    runs=st.lists(
        st.tuples(
            st.binary(min_size=1, max_size=70),
            st.integers(1, 60),
            st.sampled_from([b"%x\r\n", b"%X;a=b\r\n", b"00%x\n", b"%x \r\n"]),
            st.sampled_from([b"\r\n", b"\r\n", b"\n"]),
        ),
        max_size=6,
    ),
    cuts=st.lists(st.integers(0, 6000), max_size=12),
    room=st.integers(1, 3000),
)
def test_chunks_are_the_same_bytes_however_they_are_cut(
    runs: list[tuple[bytes, int, bytes, bytes]], cuts: list[int], room: int
) -> None:
    body = b"".join(piece * count for piece, count, _, _ in runs)
    sent = b"".join((line % len(p) + p + end) * count for p, count, line, end in runs)
    data = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + sent + b"0\r\nA: b\r\n\r\n"
    data += b"HTTP/1.1 204 next\r\n\r\n"
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
    with Pieces(pieces) as connection:
        answer = connection.answer("GET")
        got, view = bytearray(), memoryview(bytearray(room))
        while count := answer.read_into(view):
            got += view[:count]
        assert answer.done and answer.trailers == [("a", "b")]
        assert connection.answer("GET").status == 204
    assert got == body


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 200",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 999 x\r\n\r\n",
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5_0\r\n\r\n" + b"x" * 60,
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 500 + b"\r\n",
        b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 5\nContent-Length:\n 6\n\nhello!",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\rX: y\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5" + b"x" * 5000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;" + b"x" * 5000 + b"\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: " + b"x" * 100_000,
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 300 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"x" * 100_000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 50,
        b"HTTP/1.1 101 Switching\r\n\r\n",
    ],
)
def test_answers_that_are_none(script: Script, data: bytes) -> None:
    with pytest.raises(Fault) as caught:
        ask(script, data)
    assert caught.value.phase in ("first byte", "body")
    assert "geheim" not in caught.value.words


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    status=st.sampled_from(
        ["HTTP/1.1 206 P", "HTTP/1.1 200 OK", "HTTP/1.1 416 x", "HTTP/1.0 302 F"]
    ),
    fields=st.lists(
        st.tuples(
            st.sampled_from(NAMES),
            st.one_of(
                st.sampled_from(
                    [
                        *("bytes 0-9/10", "bytes */0", "bytes 5-9/10", "10", "chunked", '"e"'),
                        *("/x", "http://[", "//[x"),
                    ]
                ),
                st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=20),
            ),
        ),
        max_size=5,
    ),
    body=st.one_of(st.just(b"0" * 10), st.binary(max_size=40)),
    pieces=st.integers(1, 50),
)
def test_no_answer_crashes_the_engine_or_leaves_a_wrong_file(
    script: Script,
    tmp_path_factory: pytest.TempPathFactory,
    status: str,
    fields: list[tuple[str, str]],
    body: bytes,
    pieces: int,
) -> None:
    """The object is ten noughts; nothing else may ever lie under its name."""
    folder = tmp_path_factory.mktemp("fuzz")
    lines = [status, *(f"{name}: {value}" for name, value in fields), "", ""]
    script.data, script.pieces = "\r\n".join(lines).encode("latin-1") + body, pieces
    checksum = "md5:f1b708bba17f1ce948dc979f4d7092bc"
    try:
        fetch([script.url], str(folder / "o"), size=10, checksum=checksum, patience=0.05)
    except TransferError as error:
        assert "geheim" not in str(error)
        assert os.listdir(folder) == []
    else:
        assert (folder / "o").read_bytes() == b"0" * 10


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.binary(max_size=200))
def test_no_bytes_crash_the_wire(script: Script, data: bytes) -> None:
    for prefix in (b"", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"):
        with contextlib.suppress(Fault):
            ask(script, prefix + data)


def test_a_reply_that_promises_more_than_it_gives(script: Script, tmp_path: Path) -> None:
    script.data = (
        b"HTTP/1.1 206 P\r\nContent-Range: bytes 0-9/10\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nf\r\n0000000000XXXXX\r\n0\r\n\r\n"
    )
    with pytest.raises(TransferError) as caught:
        fetch([script.url], str(tmp_path / "o"), patience=0.3)
    assert "more bytes than it announced" in caught.value.message
    assert os.listdir(tmp_path) == []


def test_a_line_that_ends_without_a_carriage_return(script: Script) -> None:
    """As XRootD writes it."""
    script.data = (
        b"HTTP/1.1 206 P\r\nContent-Length: 5\r\n"
        b"Content-Range: bytes 0-4/10\nDigest: adler32=ecb8cd15\r\n\r\nhello"
    )
    with contextlib.closing(HttpClient(script.url)) as client:
        head = client.open(0, 5)
    assert (head.begin, head.end, head.identity.size) == (0, 5, 10)
    assert head.identity.digests == {"adler32": "ecb8cd15"}


def test_a_part_beyond_the_end_is_asked_for_as_far_as_there_is_one(script: Script) -> None:
    """XRootD does not cut it off at the end, but tells where that is."""
    script.data = b"HTTP/1.1 206 P\r\nContent-Length: 100\r\nContent-Range: bytes 5-104/10\r\n\r\n"
    script.asked.clear()
    with pytest.raises(Fault, match="another part"):
        HttpClient(script.url).open(5, 105)
    assert [b"bytes=5-104\r\n" in one for one in script.asked] == [True, False]
    assert b"bytes=5-9\r\n" in script.asked[1]


def test_abort_wakes_a_reader() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = HttpClient(f"http://127.0.0.1:{listener.getsockname()[1]}/x")
        threading.Timer(0.2, client.abort).start()
        with pytest.raises(Fault):
            client.open(0, 10)
        client.close()


def test_a_line_break_cannot_be_smuggled_into_a_request(script: Script) -> None:
    wire = HttpConnection(script.url)
    with pytest.raises(Fault):
        wire.ask("GET", {"X": "a\r\nEvil: b"})


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("12", 12), ("", None), ("-1", None), ("+1", None), ("1_0", None), ("٣", None)],
)
def test_numbers(text: str, value: int | None) -> None:
    assert number(text) == value


@pytest.mark.parametrize(
    "line", ["A:" + " \t" * 30_000 + "x\x00", "A" * 60_000, "A:x" + " " * 60_000 + "y"]
)
def test_a_hostile_field_is_read_in_linear_time(line: str) -> None:
    begin = time.process_time()
    with contextlib.suppress(Fault):
        parse_fields(line.encode())
    assert time.process_time() - begin < 1


def test_fields_are_read_without_the_blanks_around_them() -> None:
    assert parse_fields(b"A:\t b c \t\r\nB-c:") == [("a", "b c"), ("b-c", "")]
    assert parse_fields(b"A \t:\t b c \t\nB:") == [("a", "b c"), ("b", "")]
