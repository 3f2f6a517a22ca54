"""Faults: small values that say what a server does wrong, and when.

Every fault is immutable and holds for ever, unless it is narrowed:

    Status(404).for_seconds(2)            from the server's first connection on
    Flip(1_000_000).once()                the first answer that covers this byte
    Silent(after=10 << 20).connections(1) the first connection only
    Rate(1000).after_seconds(1).on("/a")  one path, later

A server takes a list of them; all that hold at a request shape its answer, in their order.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from typing import TYPE_CHECKING, Literal, TypeVar

from .answer import Bucket, Limit, Scope
from .content import Gzipped, Patched

if TYPE_CHECKING:
    from .answer import Answer, Case
    from .content import Content

F = TypeVar("F", bound="Fault")


@dataclass(frozen=True)
class When:
    """When a fault holds; seconds, requests, connections and bytes are counted per server."""

    since: float = 0.0  # seconds since the first connection
    until: float = math.inf
    requests: tuple[int, float] = (1, math.inf)  # first and last number
    connections: tuple[int, float] = (1, math.inf)
    sent: tuple[int, float] = (0, math.inf)  # body bytes that the server had sent before
    times: float = math.inf  # answers that it may shape in all
    paths: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()

    def holds(self, case: Case, used: int) -> bool:
        if not (self.since <= case.seconds < self.until and used < self.times):
            return False
        if not self.connections[0] <= case.connection <= self.connections[1]:
            return False
        if not self.sent[0] <= case.server_sent < self.sent[1]:
            return False
        request = case.request
        if request is None:  # a connection without a request yet
            return True
        if not self.requests[0] <= request.number <= self.requests[1]:
            return False
        if self.paths and request.path not in self.paths:
            return False
        return not self.methods or request.method in self.methods


@dataclass(frozen=True)
class Fault:
    """What a server does wrong; subclasses say what."""

    when: When = field(default=When(), kw_only=True)

    @property
    def at_accept(self) -> bool:
        """Whether it strikes a connection before TLS and the first request."""
        return False

    def shape(self, case: Case, answer: Answer) -> bool:
        """Change the answer; False when there was nothing to change."""
        raise NotImplementedError

    def for_seconds(self: F, seconds: float) -> F:
        return replace(self, when=replace(self.when, until=self.when.since + seconds))

    def after_seconds(self: F, seconds: float) -> F:
        return replace(self, when=replace(self.when, since=seconds))

    def requests(self: F, first: int, last: float | None = None) -> F:
        """Only requests from `first` to `last`; without `last` that one alone."""
        return replace(self, when=replace(self.when, requests=(first, last or first)))

    def connections(self: F, first: int, last: float | None = None) -> F:
        return replace(self, when=replace(self.when, connections=(first, last or first)))

    def bytes(self: F, first: int, last: float = math.inf) -> F:
        """Only requests that come when the server has sent so many body bytes."""
        return replace(self, when=replace(self.when, sent=(first, last)))

    def times(self: F, number: int) -> F:
        return replace(self, when=replace(self.when, times=number))

    def once(self: F) -> F:
        return self.times(1)

    def on(self: F, *paths: str) -> F:
        return replace(self, when=replace(self.when, paths=paths))

    def methods(self: F, *methods: str) -> F:
        return replace(self, when=replace(self.when, methods=methods))


@dataclass(frozen=True)
class Hang(Fault):
    """Accept the connection, or read the request, and never answer."""

    at: Literal["accept", "request"] = "accept"

    @property
    def at_accept(self) -> bool:
        return self.at == "accept"

    def shape(self, case: Case, answer: Answer) -> bool:
        answer.hang = True
        return True


@dataclass(frozen=True)
class Drop(Fault):
    """Close the connection instead of an answer, with a reset or in order."""

    at: Literal["accept", "request"] = "accept"
    reset: bool = True

    @property
    def at_accept(self) -> bool:
        return self.at == "accept"

    def shape(self, case: Case, answer: Answer) -> bool:
        answer.raw, answer.end = b"", "reset" if self.reset else "close"
        return True


@dataclass(frozen=True)
class Silent(Fault):
    """Send no more after so many body bytes, and keep the connection open.

    The scope says whose bytes count: with "connection" each new one gives `after` bytes more, with
    "server" the source is silent for ever.
    """

    after: int = 0
    scope: Scope = "connection"

    def shape(self, case: Case, answer: Answer) -> bool:
        answer.limits.append(Limit(self.after, self.scope, "silent"))
        return True


@dataclass(frozen=True)
class Reset(Fault):
    """Reset every connection after so many body bytes, sent or received."""

    every: int
    scope: Scope = "connection"

    def shape(self, case: Case, answer: Answer) -> bool:
        answer.limits.append(Limit(self.every, self.scope, "reset"))
        return True


@dataclass(frozen=True)
class Truncate(Fault):
    """Close in order after so many body bytes; the length that was announced is right.

    With the scope "object" the source holds no byte beyond `after`, however often it is asked.
    """

    after: int
    scope: Scope = "answer"

    def shape(self, case: Case, answer: Answer) -> bool:
        answer.limits.append(Limit(self.after, self.scope, "close"))
        return True


@dataclass(frozen=True)
class Shorter(Fault):
    """Pretend in every way that the object ends after `size` bytes."""

    size: int

    def shape(self, case: Case, answer: Answer) -> bool:
        return answer.pretend_size(self.size)


@dataclass(frozen=True)
class WrongLength(Fault):
    """Announce a Content-Length that is off by `by`; the body stays as it is."""

    by: int

    def shape(self, case: Case, answer: Answer) -> bool:
        if answer.length is None:
            return False
        answer.length = max(0, answer.length + self.by)
        return True


@dataclass(frozen=True)
class Rate(Fault):
    """Bytes per second, for each connection or for all of them together."""

    rate: float
    scope: Literal["connection", "server"] = "connection"

    def shape(self, case: Case, answer: Answer) -> bool:
        states = case.shared if self.scope == "server" else case.own
        answer.buckets.append(states.setdefault(self, Bucket(self.rate)))
        return True


@dataclass(frozen=True)
class Strained(Fault):
    """A rate for all connections together that falls as more than `crowd` of them are open."""

    rate: float
    crowd: int

    def shape(self, case: Case, answer: Answer) -> bool:
        bucket = case.shared.setdefault(self, Bucket(self.rate))
        bucket.rate = self.rate * min(1.0, self.crowd / case.open_connections)
        answer.buckets.append(bucket)
        return True


@dataclass(frozen=True)
class Delay(Fault):
    """Wait before the answer's first byte."""

    seconds: float

    def shape(self, case: Case, answer: Answer) -> bool:
        answer.delay += self.seconds
        return True


@dataclass(frozen=True)
class SlowHeaders(Fault):
    """Send the header lines at so many bytes per second."""

    rate: float = 10.0

    def shape(self, case: Case, answer: Answer) -> bool:
        answer.header_rate = self.rate
        return True


@dataclass(frozen=True)
class Status(Fault):
    """Answer with this status and a short text instead of the object."""

    code: int
    retry_after: str | None = None  # seconds or a date
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b"the lab says no\n"
    server: str | None = None  # another name in `Server`

    def shape(self, case: Case, answer: Answer) -> bool:
        answer.say(self.code, self.body)
        for name, value in self.headers:
            answer.set(name, value)
        if self.retry_after is not None:
            answer.set("Retry-After", self.retry_after)
        if self.server is not None:
            answer.set("Server", self.server)
        return True


@dataclass(frozen=True)
class Crowded(Fault):
    """Refuse with 503 while more than so many connections are open, as a full cache does."""

    most: int
    retry_after: str | None = "1"

    def shape(self, case: Case, answer: Answer) -> bool:
        if case.open_connections <= self.most:
            return False
        return Status(503, retry_after=self.retry_after).shape(case, answer)


@dataclass(frozen=True)
class Redirect(Fault):
    """Send the client elsewhere; without a URL back to the same path, round and round."""

    to: str | None = None
    code: int = 302

    def shape(self, case: Case, answer: Answer) -> bool:
        assert case.request is not None
        answer.say(self.code, b"")
        answer.set("Location", self.to if self.to is not None else case.request.target)
        return True


@dataclass(frozen=True)
class Garbage(Fault):
    """Answer with bytes that are no HTTP, and close."""

    data: bytes = b"\x00\xff\r\n\r\nSSH-2.0-lab\r\n"

    def shape(self, case: Case, answer: Answer) -> bool:
        answer.raw, answer.end = self.data, "close"
        return True


@dataclass(frozen=True)
class Flip(Fault):
    """Flip bits of the object's byte number `at`, whichever range it is sent in."""

    at: int
    mask: int = 0x01

    def shape(self, case: Case, answer: Answer) -> bool:
        if not answer.start <= self.at < answer.stop:
            return False
        answer.flips[self.at] = answer.flips.get(self.at, 0) ^ self.mask
        return True


@dataclass(frozen=True)
class IgnoreRange(Fault):
    """Answer every range with 200 and the whole object."""

    def shape(self, case: Case, answer: Answer) -> bool:
        return answer.forget_range()


@dataclass(frozen=True)
class WrongContentRange(Fault):
    """Give other bytes than asked for and say so, or (`lie`) give them and claim they are right.

    With `lie` false the header tells the truth about bytes nobody asked for; with `header_only` the
    bytes are right and only the header is shifted.
    """

    shift: int = 1
    lie: bool = False
    header_only: bool = False

    def shape(self, case: Case, answer: Answer) -> bool:
        return answer.shift_range(self.shift, lie=self.lie, header_only=self.header_only)


@dataclass(frozen=True)
class Version(Fault):
    """Serve other content under the same path, with its own ETag and date, and without digests.

    With `keep_etag` every header stays that of the true content: only the bytes are others.
    """

    content: Content
    keep_etag: bool = False

    def shape(self, case: Case, answer: Answer) -> bool:
        return answer.replace_content(self.content, keep_etag=self.keep_etag)


@dataclass(frozen=True)
class Change(Fault):
    """Change to other content in the middle of answers, `after` bytes of the server later on.

    Headers of later requests speak of the new version; an answer under way just goes on with its
    bytes.
    """

    content: Content
    after: int

    def shape(self, case: Case, answer: Answer) -> bool:
        if case.server_sent >= self.after:
            return answer.replace_content(self.content, keep_etag=False)
        answer.swap = (self.after, self.content)
        return True


@dataclass(frozen=True)
class Headers(Fault):
    """Set header lines, or remove them with None: no ETag, a lying Digest, an Age."""

    lines: tuple[tuple[str, str | None], ...]

    def shape(self, case: Case, answer: Answer) -> bool:
        for name, value in self.lines:
            answer.set(name, value)
        return True


@dataclass(frozen=True)
class FailedTrailer(Fault):
    """Send a chunked answer, stop after some bytes, and say in X-Transfer-Status that it failed.

    The status line was 200 or 206 and the chunked framing is complete, so only the trailer tells.
    """

    after: int = 0
    words: str = "500: the origin went away"

    def shape(self, case: Case, answer: Answer) -> bool:
        return answer.fail_in_trailer(self.after, self.words)


# -- how an answer is framed


@dataclass(frozen=True)
class Chunked(Fault):
    """Send bodies in chunks of so many bytes, and no Content-Length.

    A range stays one, and its Content-Range tells the size: with `IgnoreRange()` beside it nothing
    does. `Truncate` cuts the body off before its last chunk.
    """

    size: int | None = None  # None: as it comes

    def shape(self, case: Case, answer: Answer) -> bool:
        if answer.content is None or answer.status not in (200, 206):
            return False
        answer.length, answer.chunk = None, self.size
        return True


@dataclass(frozen=True)
class Unsized(Fault):
    """Send the whole object for every range, with neither a length nor chunks.

    The body ends where the connection does: in order, or with `Truncate` too early, which nobody
    can tell apart over http; over https, `Truncate` leaves TLS's own farewell out.
    """

    def shape(self, case: Case, answer: Answer) -> bool:
        return answer.forget_size()


@dataclass(frozen=True)
class Http10(Fault):
    """Answer as a server of HTTP/1.0: without ranges, one answer a connection.

    Without `sized` there is no Content-Length either: the body ends where the connection does.
    """

    sized: bool = False

    def shape(self, case: Case, answer: Answer) -> bool:
        answer.version = "1.0"
        answer.forget_range()
        answer.set("Accept-Ranges", None)
        if not self.sized:
            answer.forget_size()
        return True


@dataclass(frozen=True)
class FoldedHeaders(Fault):
    """Put the value of every header on a line of its own, as old servers fold long lines."""

    def shape(self, case: Case, answer: Answer) -> bool:
        answer.folded = True
        return True


@dataclass(frozen=True)
class LineFeeds(Fault):
    """End header lines with a line feed alone."""

    def shape(self, case: Case, answer: Answer) -> bool:
        answer.line_end = "\n"
        return True


@dataclass(frozen=True)
class Coded(Fault):
    """Send the object compressed with gzip, though nobody asked for it: chunked, without ranges."""

    def shape(self, case: Case, answer: Answer) -> bool:
        if answer.content is None or answer.status not in (200, 206):
            return False
        answer.forget_range()
        coded = Gzipped(answer.content)
        answer.body(coded, 0, coded.size)
        answer.length = None
        answer.set("Content-Encoding", "gzip")
        answer.set("Accept-Ranges", None)
        answer.set("ETag", coded.etag)
        return True


# -- what an answer says of the object


@dataclass(frozen=True)
class LyingHead(Fault):
    """Say something else in answers to HEAD than in those to GET; what is None stays true."""

    length: int | None = None
    etag: str | None = None
    modified: str | None = None

    def shape(self, case: Case, answer: Answer) -> bool:
        if not answer.bodiless:
            return False
        if self.length is not None:
            answer.length = self.length
        if self.etag is not None:
            answer.set("ETag", self.etag)
        if self.modified is not None:
            answer.set("Last-Modified", self.modified)
        return True


@dataclass(frozen=True)
class Validators(Fault):
    """Give another ETag or date with each request, for bytes that stay the same.

    Those given take turns, as back ends behind one name do that each have their own. "new" is one
    that was never seen before, for dates one second later each time. What is None stays as it is.
    """

    etag: tuple[str, ...] | Literal["new"] | None = None
    modified: tuple[str, ...] | Literal["new", "now"] | None = None

    def shape(self, case: Case, answer: Answer) -> bool:
        assert case.request is not None
        number = case.request.number
        if self.etag is not None:
            mine = f'"lab-{number}"' if self.etag == "new" else self.etag[number % len(self.etag)]
            answer.set("ETag", mine)
        if self.modified == "now":
            answer.set("Last-Modified", formatdate(time.time(), usegmt=True))
        elif self.modified == "new":
            answer.set("Last-Modified", formatdate(1735700000 + number, usegmt=True))
        elif self.modified is not None:
            answer.set("Last-Modified", self.modified[number % len(self.modified)])
        return self.etag is not None or self.modified is not None


@dataclass(frozen=True)
class Portal(Fault):
    """Answer everything with 200 and a page, as a captive portal or a careless proxy does.

    `Portal(page).methods("GET")` is an error page behind a HEAD that is right.
    """

    page: bytes = b"<!DOCTYPE html><html><body>Sign in to use this network.</body></html>\n"

    def shape(self, case: Case, answer: Answer) -> bool:
        answer.say(200, self.page)
        answer.set("Content-Type", "text/html; charset=utf-8")
        return True


@dataclass(frozen=True)
class OtherBytes(Fault):
    """Give wrong bytes from the object's byte number `after` on, under headers that are right."""

    after: int = 0

    def shape(self, case: Case, answer: Answer) -> bool:
        if answer.content is None or answer.stop <= self.after:
            return False
        wrong = Patched(answer.content, self.after, answer.content.size)
        return answer.replace_content(wrong, keep_etag=True)
