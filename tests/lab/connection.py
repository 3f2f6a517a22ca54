"""One connection of a server: reads requests, sends answers as faults have shaped them."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import struct
import time
from typing import TYPE_CHECKING, Any

from .answer import Answer, Bucket, Case, End, Request

if TYPE_CHECKING:
    from .content import Content
    from .server import Server

_HEAD = 1 << 16  # bytes that a request's head may have
_PIECE = 1 << 18
_BY_SENDFILE = 1 << 20
_HANG_UP = getattr(select, "POLLRDHUP", select.POLLHUP)


class _Over(Exception):
    """The connection ends here."""


class Connection:
    """A thread's work on one client, until either side has had enough."""

    def __init__(self, server: Server, sock: socket.socket, number: int) -> None:
        self.server, self.sock, self.number = server, sock, number
        self.sent = 0  # body bytes
        self._descriptor, self._over = sock.fileno(), False  # TLS moves it to another socket
        self._own: dict[Any, Any] = {}
        self._buffer = b""

    def run(self) -> None:
        try:
            self._accept()
            while (request := self._read_request()) is not None:
                if not self._handle(request):
                    break
            self._part()
        except (_Over, OSError, ValueError):
            pass  # a client that goes away is part of the test
        finally:
            self._over = True  # before the descriptor can be another connection's
            self.sock.close()

    @property
    def open(self) -> bool:
        """Whether the client is there still, as far as the kernel knows: threads hear it late."""
        poll = select.poll()
        poll.register(self._descriptor, _HANG_UP)
        left = bool(poll.poll(0))
        return not left and not self._over

    def interrupt(self) -> None:
        """Make every blocked call of the thread return."""
        with contextlib.suppress(OSError):
            # of the plain socket: that of TLS would take its state away under the other thread
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)

    def _accept(self) -> None:
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answer = Answer(0)
        self.server.shape(self._case(None), answer, at_accept=True)
        self._strike(answer)
        if self.server.context is not None:
            self.sock = self.server.context.wrap_socket(
                self.sock, server_side=True, do_handshake_on_connect=False
            )
            self.sock.do_handshake()

    def _case(self, request: Request | None) -> Case:
        server = self.server
        return Case(
            request,
            self.number,
            server.seconds,
            server.sent,
            max(1, server.connections_now),  # this one counts, though its client may have left
            server.shared,
            self._own,
        )

    def _strike(self, answer: Answer) -> None:
        """What a fault does in place of an answer."""
        if answer.hang:
            self._wait_for_the_end()
        if answer.raw is not None:
            self.sock.sendall(answer.raw)
            self._end(answer.end or "close")

    def _handle(self, request: Request) -> bool:
        """Answer one request; whether the connection may go on."""
        keep = request.headers.get("connection", "").lower() != "close"
        if request.method == "PUT":
            answer = self._take(request)
        else:
            answer = self.server.answer(request)
            answer.bodiless = request.method == "HEAD"
            self.server.shape(self._case(request), answer)
        if answer.delay and self.server.stopped.wait(answer.delay):
            raise _Over
        self._strike(answer)
        if "Server" not in answer.headers:
            answer.headers["Server"] = self.server.name
        honest = answer.length in (None, answer.stop - answer.start) or answer.bodiless
        keep = keep and honest and not answer.unsized and answer.version == "1.1"
        if not keep:
            answer.set("Connection", "close")
        request.status = answer.status
        self._send_head(answer)
        if not answer.bodiless and answer.status not in (204, 304):
            begin = time.monotonic()
            try:
                self._send_body(answer, request)
            finally:
                request.sending = time.monotonic() - begin
        return keep

    def _read_request(self) -> Request | None:
        while b"\r\n\r\n" not in self._buffer:
            piece = self.sock.recv(_PIECE)
            if not piece or len(self._buffer) > _HEAD:
                return None
            self._buffer += piece
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _version = first.split(" ")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            name, value = name.strip().lower(), value.strip()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        return self.server.note(method, target, headers, self.number)

    # -- sending

    def _send_head(self, answer: Answer) -> None:
        head = answer.head()
        if answer.header_rate is None:
            self.sock.sendall(head)
            return
        begin = time.monotonic()
        for at in range(len(head)):
            self.sock.sendall(head[at : at + 1])
            # A wait that took too long makes the next ones shorter.
            due = begin + (at + 1) / answer.header_rate
            if self.server.stopped.wait(max(0.0, due - time.monotonic())):
                raise _Over

    def _send_body(self, answer: Answer, request: Request) -> None:
        content, offset = answer.content, answer.start
        chunked = answer.chunked
        piece = min([_PIECE, *(bucket.portion for bucket in answer.buckets)])
        if not answer.buckets and not chunked and self.server.context is None:
            piece = _BY_SENDFILE
        while content is not None and offset < answer.stop:
            self._wait(answer.buckets, min(piece, answer.stop - offset))
            count, end, content = self._claim(
                answer, request, offset, min(piece, answer.stop - offset)
            )
            if end is not None:
                self._end(end)
            gone = 0
            try:
                gone = self._send_piece(content, offset, count, answer)
            finally:
                self._unclaim(request, count - gone)
            offset += gone
        if chunked:
            lines = [f"{name}: {value}\r\n" for name, value in answer.trailers.items()]
            self.sock.sendall(("0\r\n" + "".join(lines) + "\r\n").encode("latin-1"))

    def _claim(
        self, answer: Answer, request: Request, offset: int, count: int
    ) -> tuple[int, End | None, Content]:
        """Count bytes before they go, so that a limit for all connections is exact."""
        assert answer.content is not None
        content = answer.content
        with self.server.lock:
            server_sent = self.server.sent
            counts = {
                "answer": request.sent,
                "connection": self.sent,
                "server": server_sent,
                "object": offset,
            }
            for limit in answer.limits:
                if counts[limit.scope] >= limit.after:
                    return 0, limit.end, content
                count = min(count, limit.after - counts[limit.scope])
            if answer.swap is not None:
                if server_sent >= answer.swap[0]:
                    content = answer.swap[1]
                else:
                    count = min(count, answer.swap[0] - server_sent)
            self._unclaim_locked(request, -count)
        return count, None, content

    def _unclaim(self, request: Request, count: int) -> None:
        if count:
            with self.server.lock:
                self._unclaim_locked(request, count)

    def _unclaim_locked(self, request: Request, count: int) -> None:
        self.server.sent -= count
        self.sent -= count
        request.sent -= count

    def _send_piece(self, content: Content, offset: int, count: int, answer: Answer) -> int:
        touched = {at: mask for at, mask in answer.flips.items() if offset <= at < offset + count}
        file = content.descriptor()
        if file is not None and not touched and not answer.chunked and self.server.context is None:
            return os.sendfile(self.sock.fileno(), file, offset, count)
        data = content.read(offset, count)
        if touched:
            changed = bytearray(data)
            for at, mask in touched.items():
                changed[at - offset] ^= mask
            data = bytes(changed)
        # another version may be shorter than what was announced: the rest is nothing but zeros
        data += bytes(count - len(data))
        if answer.chunked:
            self.sock.sendall(_chunks(data, answer.chunk or count))
        else:
            self.sock.sendall(data)
        return count

    def _wait(self, buckets: list[Bucket], count: int) -> None:
        wait = max((bucket.take(count) for bucket in buckets), default=0.0)
        if wait > 0 and self.server.stopped.wait(wait):
            raise _Over

    # -- receiving

    def _take(self, request: Request) -> Answer:
        """Read a put; what faults do in place of an answer happens after it was stored."""
        store = self.server.store
        answer = store.before_put(request) or Answer(0)
        self.server.shape(self._case(request), answer)
        if request.asks("expect", "100-continue"):
            if answer.status:
                request.headers["connection"] = "close"
                return answer
            self.sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        data = bytearray()
        try:
            self._read_body(request, answer, data)
        except BaseException:
            if not answer.status:
                store.put(request, bytes(data), whole=False)
            raise
        if answer.status:
            return answer
        stored = store.put(request, bytes(data), whole=True)
        stored.delay, stored.hang, stored.raw = answer.delay, answer.hang, answer.raw
        stored.end, stored.header_rate = answer.end, answer.header_rate
        return stored

    def _read_body(self, request: Request, answer: Answer, data: bytearray) -> None:
        if request.asks("transfer-encoding", "chunked"):
            while size := int(self._line().partition(b";")[0], 16):
                self._read_into(data, size, answer)
                self._line()
            while self._line():
                pass  # trailers
        else:
            self._read_into(data, int(request.headers.get("content-length", "0")), answer)

    def _read_into(self, data: bytearray, count: int, answer: Answer) -> None:
        end = len(data) + count
        while len(data) < end:
            for limit in answer.limits:
                if len(data) >= limit.after:
                    self._end(limit.end)
            most = min([_PIECE, end - len(data), *(b.portion for b in answer.buckets)])
            most = min([most, *(limit.after - len(data) for limit in answer.limits)])
            self._wait(answer.buckets, most)
            piece = self._buffer[:most] or self.sock.recv(most)
            self._buffer = self._buffer[len(piece) :] if self._buffer else b""
            if not piece:
                raise _Over
            data += piece
            with self.server.lock:
                self.server.received += len(piece)

    def _line(self) -> bytes:
        while b"\r\n" not in self._buffer:
            piece = self.sock.recv(_PIECE)
            if not piece:
                raise _Over
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\r\n")
        return line

    # -- ending

    def _end(self, end: End) -> None:
        if end == "silent":
            self._wait_for_the_end()
        if end == "reset":
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise _Over

    def _wait_for_the_end(self) -> None:
        """Say nothing until the client hangs up or the server stops."""
        poll = select.poll()
        poll.register(self.sock, _HANG_UP)
        poll.register(self.server.wake, select.POLLIN)
        poll.poll()
        raise _Over

    def _part(self) -> None:
        """Close in order: with TLS, a client can then tell this from a cut."""
        if isinstance(self.sock, ssl.SSLSocket):
            self.sock.settimeout(0.2)
            with contextlib.suppress(OSError, ValueError):
                self.sock.unwrap()


def _chunks(data: bytes, size: int) -> bytes:
    """Data in chunks of this size: by place within a chunk if these are fewer than the chunks."""
    number, rest = divmod(len(data), size)
    head = b"%x\r\n" % size
    if number <= size:
        whole = [data[at * size : (at + 1) * size] for at in range(number)]
        made = bytearray(b"".join([part for each in whole for part in (head, each, b"\r\n")]))
    else:
        step = len(head) + size + 2
        made = bytearray((head + bytes(size) + b"\r\n") * number)
        for at in range(size):
            made[len(head) + at :: step] = data[at : number * size : size]
    if rest:
        made += b"%x\r\n%b\r\n" % (rest, data[-rest:])
    return bytes(made)
