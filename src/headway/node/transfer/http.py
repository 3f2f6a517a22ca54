"""http:// and https:// sources: one connection, resumed where it broke off."""

from __future__ import annotations

import http.client
import os
from urllib.parse import urljoin

from headway.node.transfer.local import exists
from headway.node.transfer.source import Fault, Pace, Sink, Source
from headway.node.transfer.tls import context, tls_fault
from headway.node.transfer.urls import Route, split
from headway.node.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Union

    from headway.node.transfer.source import Progress

    Headers = dict[str, str]
    Body = Union[Iterator[bytes], None]

CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 30.0
_CHUNK = 1 << 20
_HOPS = 5
# refusals that may pass by themselves: an XCache under load says 404 to what it has
_PASSING = (404, 407, 408, 409, 416, 421, 423, 425, 429)


class HttpSource(Source):
    """An object that a web server gives."""

    def fetch(self, sink: Sink) -> None:
        resume = self._resume(sink)
        with _Exchange(self.url) as exchange:
            answer = exchange.ask("GET", {"Accept-Encoding": "identity", **resume})
            if answer.status == 206:
                _check_range(answer.getheader("Content-Range"), sink)
            elif answer.status == 200:
                if sink.have:
                    sink.restart()
                sink.expect(_length(answer))
            elif answer.status == 416 and sink.have:
                sink.restart()
                raise Fault("it could not go on from where it broke off")
            else:
                raise _refusal(answer)
            etag = answer.getheader("ETag") or ""
            sink.validator = (self.url, etag) if etag.startswith('"') else None
            buffer = memoryview(bytearray(_CHUNK))
            while count := exchange.read_into(buffer):
                sink.write(buffer[:count])

    def put(
        self,
        path: str,
        size: int,
        overwrite: bool,
        again: bool,
        progress: Progress | None,
        should_stop: Callable[[], bool],
    ) -> None:
        headers = {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        if not overwrite:
            headers["If-None-Match"] = "*"
            there = self._length_there()
            if there is not None:
                if again and there == size:  # our own, whose answer was lost
                    return
                raise exists()
        pace = Pace(progress, should_stop)
        with _Exchange(self.url) as exchange:
            answer = exchange.ask("PUT", headers, lambda: _pieces(path, size, pace))
            if answer.status == 412:
                raise exists()
            if answer.status not in (200, 201, 202, 204):
                raise _refusal(answer)
        there = self._length_there()
        if there not in (None, -1, size):
            raise Fault(f"{there} of {size} bytes are there after the upload")

    def _length_there(self) -> int | None:
        """The length of what lies there; None: nothing, or the server does not say; -1: unknown."""
        with _Exchange(self.url) as exchange:
            answer = exchange.ask("HEAD", {"Accept-Encoding": "identity"})
            if answer.status != 200:
                return None
            length = _length(answer)
            return -1 if length is None else length

    def _resume(self, sink: Sink) -> Headers:
        """The headers that ask for the rest; none: everything."""
        if not sink.have:
            return {}
        wanted = {"Range": f"bytes={sink.have}-"}
        if sink.validator is not None and sink.validator[0] == self.url:
            return {**wanted, "If-Range": sink.validator[1]}
        return wanted if sink.mixes else {}


class _Exchange:
    """One request with its redirects; network trouble becomes a Fault."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: http.client.HTTPConnection | None = None
        self._answer: http.client.HTTPResponse | None = None

    def __enter__(self) -> _Exchange:
        return self

    def __exit__(self, *_: object) -> None:
        if self._answer is not None:
            self._answer.close()
        if self._connection is not None:
            self._connection.close()

    def ask(
        self, method: str, headers: Headers, body: Callable[[], Body] = lambda: None
    ) -> http.client.HTTPResponse:
        for _ in range(_HOPS):
            try:
                answer = self._one(method, headers, body())
            except (OSError, http.client.HTTPException) as error:
                raise _network_fault(error, self._url) from None
            if answer.status not in (301, 302, 303, 307, 308):
                return answer
            target = urljoin(self._url, answer.getheader("Location") or "")
            if self._url.startswith("https:") and not target.startswith("https:"):
                raise Fault("it redirects from https to http, which is refused", retryable=False)
            try:
                if split(target).scheme == "file":
                    raise ValueError("it redirects to a file of the node")
            except ValueError as error:
                raise Fault(f"it redirects to nowhere: {error}", retryable=False) from None
            self.__exit__()
            self._url = target
        raise Fault(f"more than {_HOPS} redirects")

    def read_into(self, buffer: memoryview) -> int:
        if self._answer is None:
            return 0
        try:
            return self._answer.readinto(buffer)
        except (OSError, http.client.HTTPException) as error:
            raise _network_fault(error, self._url) from None

    def _one(self, method: str, headers: Headers, body: Body) -> http.client.HTTPResponse:
        route = Route(self._url)
        host, port = route.first_hop
        if route.tls:
            secure = http.client.HTTPSConnection(
                host, port, timeout=CONNECT_TIMEOUT, context=context()
            )
            if route.proxy_host:
                secure.set_tunnel(route.host, route.port, _basic("Proxy-", route.proxy_userinfo))
            connection: http.client.HTTPConnection = secure
        else:
            connection = http.client.HTTPConnection(host, port, timeout=CONNECT_TIMEOUT)
        self._connection = connection
        connection.connect()
        connection.sock.settimeout(READ_TIMEOUT)
        through = route.proxy_host is not None and not route.tls
        every = {
            "Host": route.host_header,
            "User-Agent": f"headway/{VERSION}",
            "Connection": "close",
            **_basic("", route.userinfo),
            **(_basic("Proxy-", route.proxy_userinfo) if through else {}),
        }
        target = route.absolute if through else route.target
        connection.request(method, _ascii(target), body=body, headers={**every, **headers})
        self._answer = connection.getresponse()
        return self._answer


def _pieces(path: str, size: int, pace: Pace) -> Iterator[bytes]:
    done = 0
    with open(path, "rb") as file:
        while done < size:
            piece = file.read(min(_CHUNK, size - done))
            if not piece:
                raise OSError("the file became shorter while it was sent")
            yield piece
            done += len(piece)
            pace.step(done, size)


def _check_range(header: str | None, sink: Sink) -> None:
    """A 206 must begin where the sink ends and belong to an object of the same length."""
    try:
        unit, _, rest = (header or "").partition(" ")
        span, _, total = rest.partition("/")
        first = int(span.partition("-")[0])
        length = None if total == "*" else int(total)
    except ValueError:
        first, length, unit = -1, None, ""
    known = sink.total
    same = length is None or known is None or length == known
    if unit != "bytes" or first != sink.have or not same:
        sink.restart()
        raise Fault("it did not go on from where it broke off")


def _length(answer: http.client.HTTPResponse) -> int | None:
    value = answer.getheader("Content-Length")
    return int(value) if value is not None and value.isascii() and value.isdigit() else None


def _refusal(answer: http.client.HTTPResponse) -> Fault:
    reason = "".join(c for c in answer.reason or "" if c.isprintable())[:60]
    retryable = answer.status in _PASSING or not 400 <= answer.status < 500
    asked = answer.getheader("Retry-After") or ""
    after = float(asked) if asked.isascii() and asked.isdigit() else 0.0
    remedy = ""
    if answer.status in (401, 403):
        remedy = "check that the job may read and write there, and that its token has not expired"
    elif answer.status in (404, 410):
        remedy = "check that the object exists under this URL"
    return Fault(
        f"HTTP {answer.status} {reason}".strip(), retryable=retryable, after=after, remedy=remedy
    )


def _network_fault(error: Exception, url: str) -> Fault:
    import socket
    import ssl

    if isinstance(error, ssl.SSLError):
        return tls_fault(error, Route(url).host)
    if isinstance(error, socket.gaierror):
        return Fault(f"{Route(url).first_hop[0]} is not known to this node's name service")
    if isinstance(error, (TimeoutError, socket.timeout)):
        return Fault("it gave no answer in time")
    if isinstance(error, ConnectionRefusedError):
        host, port = Route(url).first_hop
        return Fault(f"{host}:{port} refuses connections")
    if isinstance(error, http.client.IncompleteRead):
        return Fault("it broke off")
    if isinstance(error, http.client.HTTPException):
        return Fault(f"it does not speak HTTP properly ({type(error).__name__})")
    words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return Fault(f"the connection failed: {words or os.strerror(0)}")


def _basic(prefix: str, userinfo: str | None) -> Headers:
    if userinfo is None:
        return {}
    import base64

    token = base64.b64encode(userinfo.encode()).decode("ascii")
    return {f"{prefix}Authorization": f"Basic {token}"}


def _ascii(target: str) -> str:
    from urllib.parse import quote

    return quote(target, safe="%/:=&?~#+!$,;'@()*[]")
