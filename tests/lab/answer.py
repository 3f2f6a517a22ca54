"""Requests, and the answers that faults shape before they are sent."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from http.client import responses
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .content import Content

# whose bytes a limit counts; with "object" it is a place in the object, whoever asks for it
Scope = Literal["answer", "connection", "server", "object"]
End = Literal["silent", "close", "reset"]


@dataclass
class Request:
    """One request as the server saw it; the server's list of them is what tests look at."""

    number: int  # per server, from 1
    connection: int  # per server, from 1
    seconds: float  # since the server's first connection
    method: str
    target: str  # with its query
    headers: dict[str, str]  # names in lower case
    status: int = 0  # of the answer; 0 when there was none
    sent: int = 0  # body bytes
    sending: float = 0.0  # seconds that it took to send them

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]

    @property
    def range(self) -> str | None:
        return self.headers.get("range")

    def asks(self, header: str, word: str) -> bool:
        return word in self.headers.get(header, "").lower()


@dataclass
class Case:
    """What a fault may know when it decides: the request and the counters of that moment."""

    request: Request | None
    connection: int
    seconds: float
    server_sent: int
    open_connections: int
    shared: dict[Any, Any]  # what faults keep for the server
    own: dict[Any, Any]  # and for the connection


class Bucket:
    """A rate in bytes per second that its users share, first come, first served."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._free = 0.0
        self._lock = threading.Lock()

    def take(self, count: int) -> float:
        """Seconds to wait before these bytes may go."""
        with self._lock:
            now = time.monotonic()
            begin = max(self._free, now)
            self._free = begin + count / self.rate
            return begin - now

    @property
    def portion(self) -> int:
        """Bytes of a twentieth of a second, so that a slow stream is smooth."""
        return max(1, int(self.rate / 20))


@dataclass(frozen=True)
class Limit:
    """After so many body bytes of the scope the answer ends in this way."""

    after: int
    scope: Scope
    end: End


@dataclass
class Answer:
    """One answer: what is said, which bytes follow, and how they are sent."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    content: Content | None = None
    start: int = 0  # the part of the content that is the body
    stop: int = 0
    length: int | None = 0  # as announced; None: chunked, unless `unsized`
    total: int = 0  # the object's size as announced in Content-Range
    bodiless: bool = False  # the answer to HEAD
    trailers: dict[str, str] = field(default_factory=dict)
    # how it is sent
    raw: bytes | None = None  # instead of everything
    end: End | None = None  # how the connection ends after it
    hang: bool = False
    delay: float = 0.0
    header_rate: float | None = None
    version: str = "1.1"
    unsized: bool = False  # neither a length nor chunks: the connection's end is the body's
    chunk: int | None = None  # bytes in each chunk, where it is chunked
    line_end: str = "\r\n"  # of the header lines
    folded: bool = False  # each header's value goes on a line of its own
    buckets: list[Bucket] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)
    flips: dict[int, int] = field(default_factory=dict)
    swap: tuple[int, Content] | None = None  # bytes of the server, and what comes then

    def set(self, name: str, value: str | None) -> None:
        """Set a header line in place of any other of that name; None removes it."""
        for other in [key for key in self.headers if key.lower() == name.lower()]:
            del self.headers[other]
        if value is not None:
            self.headers[name] = value

    def body(self, content: Content, start: int, stop: int) -> None:
        self.content, self.start, self.stop = content, start, stop
        self.length, self.total = stop - start, content.size

    def say(self, status: int, body: bytes) -> None:
        """Another status with a short body; nothing of the object is left."""
        from .content import Held

        self.status, self.trailers, self.flips, self.swap = status, {}, {}, None
        self.limits, self.headers, self.unsized = [], {}, False
        self.body(Held(body), 0, len(body))
        self.set("Content-Type", "text/plain")

    def say_range(self) -> None:
        if self.status == 206:
            self.set("Content-Range", f"bytes {self.start}-{self.stop - 1}/{self.total}")

    def forget_range(self) -> bool:
        if self.status != 206 or self.content is None:
            return False
        self.status = 200
        self.set("Content-Range", None)
        chunked = self.length is None
        self.body(self.content, 0, self.content.size)
        if chunked:
            self.length = None
        return True

    def pretend_size(self, size: int) -> bool:
        if self.content is None or self.status not in (200, 206):
            return False
        if self.start >= size > 0 and self.status == 206:
            self.say(416, b"")
            self.set("Content-Range", f"bytes */{size}")
            return True
        self.total = min(size, self.total)
        self.stop = min(self.stop, size)
        if self.length is not None:
            self.length = self.stop - self.start
        self.say_range()
        return True

    def shift_range(self, shift: int, *, lie: bool, header_only: bool) -> bool:
        if self.status != 206 or self.content is None:
            return False
        asked = self.start, self.stop
        room = self.content.size - (self.stop - self.start)
        start = max(0, min(self.start + shift, room))
        if start == self.start:  # no room on that side
            start = max(0, min(self.start - shift, room))
        self.start, self.stop = start, start + self.stop - self.start
        if not lie:
            self.say_range()
        if header_only:
            self.start, self.stop = asked
        return True

    def replace_content(self, content: Content, *, keep_etag: bool) -> bool:
        """The same request, answered from another version."""
        if self.content is None or self.status not in (200, 206):
            return False
        chunked = self.length is None
        whole = self.status == 200
        stop = content.size if whole else min(self.stop, content.size)
        self.body(content, min(self.start, stop), stop)
        if chunked:
            self.length = None
        self.say_range()
        if not keep_etag:
            self.set("ETag", content.etag)
            self.set("Last-Modified", "Thu, 02 Jan 2025 03:04:05 GMT")
            self.set("Digest", None)  # it would be that of the old version
            self.set("Repr-Digest", None)
        return True

    def fail_in_trailer(self, after: int, words: str) -> bool:
        if self.content is None or self.status not in (200, 206):
            return False
        self.length = None
        self.stop = min(self.stop, self.start + after)
        self.trailers["X-Transfer-Status"] = words
        return True

    @property
    def chunked(self) -> bool:
        return self.length is None and not self.unsized

    def forget_size(self) -> bool:
        """Say nowhere how long the object is, and end it by closing the connection."""
        if self.content is None or self.status not in (200, 206):
            return False
        self.forget_range()
        self.length, self.unsized = None, True
        self.set("Accept-Ranges", None)
        return True

    def head(self) -> bytes:
        """The status line and header lines as they go over the wire."""
        lines = [f"HTTP/{self.version} {self.status} {responses.get(self.status, 'Strange')}"]
        if self.chunked:
            self.set("Transfer-Encoding", "chunked")
            if self.trailers:
                self.set("Trailer", ", ".join(self.trailers))
        elif self.status not in (204, 304) and self.status >= 200 and not self.unsized:
            self.set("Content-Length", str(self.length))
        gap = f"{self.line_end}\t" if self.folded else ""
        lines += [f"{name}:{gap} {value}" for name, value in self.headers.items()]
        return self.line_end.join([*lines, "", ""]).encode("latin-1")
