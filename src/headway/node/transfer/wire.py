"""The wire: one HTTP/1.1 connection, kept alive, that receives straight into the caller's buffer.

Everything that a server can get wrong ends in a Fault with the phase in which it happened; what a
server can send before the body is bounded. Another thread may `abort` it at any moment.
"""

from __future__ import annotations

import contextlib
import re
import socket

from headway.node.transfer.answer import MOMENT, Answer, Quiet, fields_of
from headway.node.transfer.request import request, tunnel
from headway.node.transfer.source import Fault
from headway.node.transfer.urls import Route, scrubbed

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence
    from typing import Any, Union

    from headway.node.transfer.pipe import TlsPipe

    Pipe = Union[socket.socket, TlsPipe]
    Headers = dict[str, str]

CONNECT_TIMEOUT = 10.0
SILENCE = 300.0  # a safety net; the crew's supervisor acts long before
EARLY = 4.0  # seconds in which a request that was sent early must be answered
MAX_HEAD = 64 << 10
MAX_INTERIM = 8  # 1xx answers before the real one
_SMALL = 1 << 16
_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: ([^\r\n]*))?\Z")


class Wire:
    """A connection to the host of a URL, through the proxy that the environment names."""

    def __init__(self, url: str) -> None:
        self.route = Route(url)
        self.phase = "resolve"
        self.usable = False  # open, and nothing of an earlier answer in the way
        self._pipe: Pipe | None = None
        self._raw: socket.socket | None = None
        self._aborted = False
        self._early_failed = False
        self._rest = memoryview(b"")  # received behind the head, not yet used

    def abort(self) -> None:
        """Wake whoever waits for this connection; it ends with a Fault."""
        self._aborted = True
        raw = self._raw
        if raw is not None:
            with contextlib.suppress(OSError):
                # not the TLS socket's own method, which would take its state from under the reader
                socket.socket.shutdown(raw, socket.SHUT_RDWR)

    def close(self) -> None:
        self.usable = False
        pipe, raw, self._pipe, self._raw = self._pipe, self._raw, None, None
        for each in (pipe, raw):
            if each is not None:
                with contextlib.suppress(OSError):
                    each.close()

    def connect(self) -> None:
        """Open the connection; Fault when it cannot be."""
        try:
            self._connect()
        except Exception as error:
            self.close()
            raise self._fault(error) from None

    def _connect(self) -> None:
        route = self.route
        host, port = route.first_hop
        self.phase = "resolve"
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        self.phase = "connect"
        raw = self._open(found)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.settimeout(CONNECT_TIMEOUT)
        self._pipe = raw
        if route.tls:
            if route.proxy_host is not None:
                self._tunnel()
            self.phase = "TLS"
            from headway.node.transfer.pipe import TlsPipe
            from headway.node.transfer.tls import context

            self._pipe = TlsPipe(raw, context(), route.host)
        raw.settimeout(SILENCE)
        self.usable = True

    def _open(self, found: Sequence[tuple[Any, ...]]) -> socket.socket:
        """Connect to the first address that answers; each gets its share of the time."""
        last: OSError = OSError("no address")
        for family, kind, protocol, _, address in found:
            raw = socket.socket(family, kind, protocol)
            self._raw = raw
            raw.settimeout(max(2.0, CONNECT_TIMEOUT / len(found)))
            try:
                if self._aborted:
                    raise OSError("given up")
                raw.connect(address)
                return raw
            except OSError as error:
                raw.close()
                last = error
        self._raw = None
        raise last

    def _tunnel(self) -> None:
        route = self.route
        assert self._pipe is not None
        self._pipe.sendall(tunnel(route))
        answer = self._head()
        if answer.status != 200:
            raise Fault(
                f"the proxy {route.proxy_host} refuses the way: HTTP {answer.status}",
                retryable=answer.status not in (403, 407),
                phase="connect",
                remedy="check the proxy that the environment names",
            )
        if self._rest:
            raise Fault(f"the proxy {route.proxy_host} speaks out of turn", phase="connect")

    def retarget(self, url: str) -> None:
        """Another object of the same host is next."""
        self.route = Route(url)

    def ask(self, method: str, headers: Headers) -> Answer:
        """Send a request without a body, and read the answer's head."""
        if self._pipe is None:
            self.connect()
        return self._answer(method, headers)

    def ask_early(self, method: str, headers: Headers) -> bool:
        """Send another request while an answer is still being read; False: it cannot be done.

        Its own answer, by `answer_early`, is what comes next when that one has ended.
        """
        if self._pipe is None:
            return False
        try:
            self._pipe.sendall(request(self.route, method, headers))
        except (OSError, Fault):
            self._early_failed = True  # half of it may be on its way
            return False
        return True

    def answer_early(self, method: str) -> Answer:
        """The head of the answer to the oldest request that was sent early."""
        return self._answer(method, None)

    def _answer(self, method: str, headers: Headers | None) -> Answer:
        """Of a request with these headers; None: of one that was sent before."""
        self.phase = "first byte"
        self.usable = False
        try:
            if self._raw is not None:
                self._raw.settimeout(EARLY if headers is None else SILENCE)
            if self._early_failed:
                raise Fault("the connection failed")
            if headers is not None:
                assert self._pipe is not None
                self._pipe.sendall(request(self.route, method, headers))
            answer = self._head()
            answer.frame(method)
            if self._raw is not None:
                self._raw.settimeout(MOMENT)
        except Exception as error:
            self.close()
            raise self._fault(error) from None
        self.phase = "body"
        return answer

    def _head(self) -> Answer:
        """The next answer that is not an interim one."""
        for _ in range(MAX_INTERIM + 1):
            text = self._until(b"\r\n\r\n", MAX_HEAD)
            first, _, rest = text.partition(b"\r\n")
            match = _STATUS.match(first)
            if match is None:
                raise Fault("it does not speak HTTP properly (status line)")
            status = int(match[2])
            if status >= 200:
                reason = scrubbed((match[3] or b"").decode("latin-1"), 60)
                return Answer(self, status, reason, fields_of(rest), match[1] == b"1")
            if status == 101:
                break
        raise Fault("it does not speak HTTP properly (interim answers)")

    def _until(self, mark: bytes, limit: int) -> bytes:
        """The bytes up to a mark, without it; what follows stays for later."""
        got = bytearray(self._rest)
        at = got.find(mark)
        while at < 0:
            if len(got) > limit:
                raise Fault("it does not speak HTTP properly (too long a head)")
            assert self._pipe is not None
            try:
                piece = self._pipe.recv(_SMALL)
            except (TimeoutError, socket.timeout):
                self._rest = memoryview(bytes(got))
                raise
            if not piece:
                if got:
                    raise Fault("it broke off within the head of its answer")
                raise Fault("it closed the connection without an answer")
            begin = max(0, len(got) - len(mark) + 1)
            got += piece
            at = got.find(mark, begin)
        self._rest = memoryview(bytes(got[at + len(mark) :]))
        if at > limit:
            raise Fault("it does not speak HTTP properly (too long a head)")
        return bytes(got[:at])

    def receive(self, view: memoryview) -> int:
        """Some bytes; 0 at the end of the connection."""
        if self._rest:
            count = min(len(self._rest), len(view))
            view[:count] = self._rest[:count]
            self._rest = self._rest[count:]
            return count
        if self._pipe is None:
            return 0
        try:
            return self._pipe.recv_into(view)
        except (TimeoutError, socket.timeout):
            raise Quiet from None
        except Exception as error:
            self.close()
            raise self._fault(error) from None

    def line(self) -> bytes:
        """One short line of a chunked body."""
        try:
            return self._until(b"\r\n", 4096)
        except (TimeoutError, socket.timeout):
            raise Quiet from None
        except Exception as error:
            self.close()
            raise self._fault(error) from None

    def _fault(self, error: Exception) -> Fault:
        if isinstance(error, Fault):
            error.phase = error.phase or self.phase
            return error
        return network_fault(error, self.route, self.phase)


def network_fault(error: Exception, route: Route, phase: str) -> Fault:
    """What the trouble of a socket means."""
    host, port = route.first_hop
    if type(error).__module__ == "ssl":
        from headway.node.transfer.tls import tls_fault

        fault = tls_fault(_as_tls(error), route.host)
        fault.phase = phase
        return fault
    if isinstance(error, socket.gaierror):
        return Fault(f"{host} is not known to this node's name service", phase=phase)
    if isinstance(error, (TimeoutError, socket.timeout)):
        return Fault("it gave no answer in time", phase=phase)
    if isinstance(error, ConnectionRefusedError):
        return Fault(f"{host}:{port} refuses connections", phase=phase)
    if isinstance(error, (OSError, ValueError, UnicodeError)):
        words = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return Fault(f"the connection failed: {scrubbed(words, 80)}", phase=phase)
    raise error


def _as_tls(error: Exception) -> ssl.SSLError:
    import ssl

    return error if isinstance(error, ssl.SSLError) else ssl.SSLError(str(error))
