"""Streams: the bytes of a stretch of an object, from a web server or as another module has it."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections import deque
from email.utils import formatdate
from urllib.parse import unquote, urlsplit

from headway.node.errors import AccessDeniedError
from headway.node.transfer.checksum import said_digests
from headway.node.transfer.heads import REDIRECTS, Redirects, meaning, number, retry_after
from headway.node.transfer.source import Fault, Identity, Source
from headway.node.transfer.urls import scrubbed

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.node.transfer.http import Answer, HttpConnection
    from headway.node.transfer.tokens import Secret


WANT = {
    "Want-Repr-Digest": "sha-256=10, md5=3, crc32c=2, adler32=1",
    "Want-Digest": "sha-256;q=1, md5;q=0.3, crc32c;q=0.2, adler32;q=0.1",
}
_REMEMBER = 300.0  # seconds for which the end of a chain of redirects is asked directly
_RANGE = re.compile(r"bytes (?:([0-9]{1,18})-([0-9]{1,18})|\*)/([0-9]{1,18}|\*)\Z")
# refusals that may pass by themselves: an XCache under load says 404 to what it has
_PASSING = (404, 405, 407, 408, 409, 416, 421, 423, 425, 429)


class Head:
    """What a source says before the bytes."""

    def __init__(self, begin: int, end: int | None, identity: Identity, whole: bool) -> None:
        self.begin, self.end = begin, end  # of the bytes that follow; None: until it ends
        self.identity = identity
        self.whole = whole  # it gives everything, whatever it was asked for


class Stream:
    """Bytes of one object, stretch by stretch; `abort` may be called from another thread."""

    phase = "connect"
    forgets = False  # whether the server has not answered what it was asked early
    ends_anywhere = False  # whether the present stretch may have been cut without a sign

    def open(self, begin: int, end: int | None) -> Head:
        raise NotImplementedError

    def ask_early(self, begin: int, end: int) -> bool:
        """Ask for the stretch that is opened next, while this one is read; False: not possible."""
        return False

    def was_early(self) -> bool:
        """Whether the present stretch was asked for early."""
        return False

    def drop_early(self) -> None:
        """What was asked for early is not wanted any more."""

    def about(self, *, digest: str = "") -> Identity | None:
        """What the server tells of the whole object, and of one digest of it, or of "any"."""
        raise NotImplementedError

    def glimpse(self) -> Identity | None:
        """The same by the head of an answer with bytes, which outweighs an answer to HEAD."""
        raise NotImplementedError

    def read_into(self, view: memoryview) -> int:
        """0 at the proper end of the stretch; Fault when it ends otherwise."""
        raise NotImplementedError

    def finish(self) -> bool:
        """Called when all bytes are here; Fault when the server takes them back.

        Returns whether another stretch can be asked for at no cost.
        """
        raise NotImplementedError

    def abort(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


def open_stream(url: str, token: Secret | None = None) -> Stream:
    """The stream behind a URL, by its scheme."""
    if url.startswith("file:"):
        return FileStream(url)
    return HttpStream(url, token)


class HttpStream(Stream):
    """Ranges from a web server, over one connection as long as it lasts."""

    def __init__(self, url: str, token: Secret | None = None) -> None:
        self._url, self._token = url, token
        self._final, self._until = url, 0.0  # where redirects ended
        self._wire: HttpConnection | None = None
        self._answer: Answer | None = None
        self._aborted = False
        self._at = url  # where the wire leads
        self._early: deque[tuple[int, int]] = deque()  # asked for, and not answered yet
        self._was_early = False

    @property
    def phase(self) -> str:  # type: ignore[override]
        wire = self._wire
        return wire.phase if wire is not None else "connect"

    @property
    def ends_anywhere(self) -> bool:  # type: ignore[override]
        return self._answer is not None and self._answer.ends_anywhere

    def ask_early(self, begin: int, end: int) -> bool:
        wire, answer = self._wire, self._answer
        url = self._final if time.monotonic() < self._until else self._url
        if wire is None or answer is None or not answer.keeps or url != self._at or self._aborted:
            return False
        from headway.node.transfer.tokens import bearer

        headers = {**_asking(begin, end), **bearer(self._token, self._url, url)}
        if not wire.ask_early("GET", headers):
            return False
        self._early.append((begin, end))
        return True

    @property
    def idle(self) -> bool:
        """Whether the connection is open and nothing is under way on it."""
        wire = self._wire
        return wire is not None and wire.usable and not self._early and not self._aborted

    def was_early(self) -> bool:
        return self._was_early

    def drop_early(self) -> None:
        if self._early:
            self.close()

    def _answered_early(self, begin: int, end: int | None) -> Answer | None:
        """The answer to a request that was sent early; None: it has to be sent (again)."""
        from headway.node.transfer.http import EARLY

        wire, self._was_early = self._wire, False
        if not self._early:
            return None
        if wire is not None and wire.usable and self._early.popleft() == (begin, end):
            asked = time.monotonic()
            try:
                answer = wire.answer_early("GET")
                if answer.status < 300:
                    self._was_early = True
                    return answer
            except Fault:
                if self._aborted:
                    raise
                # as with any connection that was kept: only a fresh one tells
                self.forgets = self.forgets or time.monotonic() - asked >= EARLY
        self._early.clear()
        if wire is not None:
            wire.close()  # what else comes by it answers what nobody wants any more
        return None

    def open(self, begin: int, end: int | None) -> Head:
        answer = self._answered_early(begin, end)
        if answer is None:
            answer = self._ask("GET", _asking(begin, end))
        self._answer = answer
        identity = _identity(answer)
        if answer.status == 206:
            total = _cut_at(answer, begin, end)
            if total is not None:
                return self.open(begin, total or None)
            first, stop, identity.size = _content_range(answer, begin, end)
            return Head(first, stop, identity, whole=False)
        if answer.status == 200:
            identity.size = answer.left
            if answer.left == 0 and not answer.chunked:
                identity.size = 0
            return Head(0, identity.size, identity, whole=True)
        if answer.status == 416:
            match = _RANGE.match(answer.get("content-range") or "")
            if begin == 0 and match is not None and match[3] == "0":
                answer.drain()
                identity.size = 0
                return Head(0, 0, identity, whole=True)
        raise self._refused(answer)

    def about(self, *, digest: str = "") -> Identity | None:
        name = {"sha256": "sha-256"}.get(digest, digest)
        only = {"Want-Repr-Digest": f"{name}=10", "Want-Digest": name}
        wanted = WANT if digest == "any" else only if digest else {}
        headers = {"Accept-Encoding": "identity", **wanted}
        answer = self._ask("HEAD", headers)
        if answer.status != 200:
            return None
        identity = _identity(answer)
        length = answer.get("content-length")
        identity.size = number(length) if length is not None else None
        return identity

    def glimpse(self) -> Identity | None:
        answer = self._ask("GET", _asking(0, 1))
        identity = _identity(answer)
        match = _RANGE.match(answer.get("content-range") or "")
        if answer.status in (206, 416):
            identity.size = int(match[3]) if match is not None and match[3] != "*" else None
            answer.drain()
            return identity if answer.status == 206 or identity.size == 0 else None
        identity.size = answer.left
        self.close()  # all of the object would follow
        return identity if answer.status == 200 else None

    def read_into(self, view: memoryview) -> int:
        assert self._answer is not None
        return self._answer.read_into(view)

    def finish(self) -> bool:
        answer = self._answer
        if answer is None:
            return True
        # the bytes are here, but the word on whether they are right comes behind them
        if answer.chunked and answer.drain():
            raise Fault("it gives more bytes than it announced", phase="body")
        if answer.chunked and not answer.done:
            raise Fault("it broke off before its last word", phase="body")
        status = next((v for n, v in answer.trailers if n == "x-transfer-status"), "")
        if status and not status.strip().startswith("200"):
            raise Fault(f"it failed on the way: {scrubbed(status, 80)}", phase="body")
        return self._wire is not None and self._wire.usable

    def abort(self) -> None:
        self._aborted = True
        wire = self._wire
        if wire is not None:
            wire.abort()

    def close(self) -> None:
        self._early.clear()
        if self._wire is not None:
            self._wire.close()

    def _ask(self, method: str, headers: dict[str, str]) -> Answer:
        url = self._final if time.monotonic() < self._until else self._url
        way = Redirects(url)
        while True:
            answer = self._once(method, url, headers)
            if answer.status not in REDIRECTS:
                if url != self._url and answer.status < 300:
                    self._final, self._until = url, max(self._until, time.monotonic() + _REMEMBER)
                elif answer.status >= 400:
                    self._until = 0.0  # next time from the beginning
                return answer
            answer.drain()
            url = way.follow(answer.get("location"))

    def _once(self, method: str, url: str, headers: dict[str, str]) -> Answer:
        from headway.node.transfer.http import HttpConnection
        from headway.node.transfer.tokens import bearer
        from headway.node.transfer.urls import same_host

        every = {**headers, **bearer(self._token, self._url, url)}
        wire = self._wire
        if wire is not None and wire.usable and same_host(self._at, url):
            if url != self._at:
                wire.retarget(url)
                self._at = url
            try:
                return wire.ask(method, every)
            except Fault:
                if self._aborted:
                    raise
                # a server may close a connection that waits; only a fresh one tells
        if wire is not None:
            wire.close()
        wire = HttpConnection(url)
        self._wire, self._at = wire, url
        if self._aborted:
            raise Fault("given up", phase="connect")
        return wire.ask(method, every)

    def _refused(self, answer: Answer) -> Fault:
        answer.drain()
        return refusal(answer)


def _asking(begin: int, end: int | None) -> dict[str, str]:
    # the whole is asked for without a range: some who cannot give parts properly can give that
    last = "" if end is None else str(end - 1)
    part = {"Range": f"bytes={begin}-{last}"} if begin or end is not None else {}
    return {
        "Accept-Encoding": "identity",
        **part,
        "TE": "trailers",
        "X-Transfer-Status": "true",
    }


def refusal(answer: Answer) -> Fault:
    """What a status other than success means."""
    status = answer.status
    remedy = ""
    if status in (401, 403):
        remedy = "check that the job may read and write there, and that its token has not expired"
    elif status in (404, 410):
        remedy = "check that the object exists under this URL"
    return Fault(
        f"HTTP {status} {answer.reason}".strip(),
        retryable=status in _PASSING or not 400 <= status < 500,
        after=retry_after(answer.get("retry-after") or "", answer.get("date") or ""),
        remedy=remedy,
        phase="first byte",
        absent=status == 404,
        strain=status in (429, 503),
        means=meaning(status),
    )


def _identity(answer: Answer) -> Identity:
    return Identity(
        None,
        _strong(answer.get("etag")),
        (answer.get("last-modified") or "")[:100],
        said_digests(lambda field: answer.get(field.lower()) or ""),
        (answer.get("content-type") or "").partition(";")[0].strip().lower(),
    )


def _strong(etag: str | None) -> str:
    return etag if etag is not None and etag.startswith('"') and len(etag) <= 200 else ""


def _cut_at(answer: Answer, begin: int, end: int | None) -> int | None:
    """The object's size, where it is less than was asked for and the server has not noticed.

    XRootD 5.5 announces the whole of such a part, gives nothing of it and closes the connection.
    """
    match = _RANGE.match(answer.get("content-range") or "")
    if match is None or match[1] is None or match[3] == "*" or end is None:
        return None
    total = int(match[3])
    known = int(match[1]) == begin and int(match[2]) + 1 == end
    if not known or not (begin < total < end or begin == total == 0):
        return None
    answer.connection.close()
    return total


def _content_range(answer: Answer, begin: int, end: int | None) -> tuple[int, int, int | None]:
    """The stretch that a 206 holds: it must begin where it was asked to, and not be longer."""
    match = _RANGE.match(answer.get("content-range") or "")
    if match is None or match[1] is None:
        raise _wrong_range(answer, "it gives a part, but does not say which", wrong_part=True)
    first, stop = int(match[1]), int(match[2]) + 1
    total = None if match[3] == "*" else int(match[3])
    if first != begin or stop <= first or (end is not None and stop > end):
        raise _wrong_range(answer, "it gives another part than it was asked for", wrong_part=True)
    if total is not None and stop > total:
        raise _wrong_range(answer, "it gives bytes beyond the end")
    if answer.left is not None and answer.left != stop - first:
        raise _wrong_range(answer, "the length of its answer is not that of the part")
    return first, stop, total


def _wrong_range(answer: Answer, words: str, *, wrong_part: bool = False) -> Fault:
    answer.connection.close()
    return Fault(words, phase="first byte", wrong_part=wrong_part)


# File streams: the bytes of a stretch of a file of this node.


class FileStream(Stream):
    """A file of this node, or of a folder that it shares with others."""

    def __init__(self, url: str) -> None:
        self._path = unquote(urlsplit(url).path)
        self._file: int | None = None
        self._at = self._end = 0
        self.phase = "connect"

    def open(self, begin: int, end: int | None) -> Head:
        about = self._status()
        size = about.st_size
        self.phase = "body"
        self._at, self._end = begin, size if end is None else min(end, size)
        return Head(begin, self._end, _identity_of_file(about), whole=False)

    def about(self, *, digest: str = "") -> Identity:
        return _identity_of_file(self._status())

    def glimpse(self) -> Identity:
        return self.about()

    def _status(self) -> os.stat_result:
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            about = os.fstat(self._file)
        except OSError as error:
            absent = isinstance(error, FileNotFoundError)
            means = AccessDeniedError if isinstance(error, PermissionError) else None
            words = f"{error.strerror}"
            raise Fault(words, phase="connect", absent=absent, means=means) from None
        if not stat.S_ISREG(about.st_mode):
            raise Fault("it is not a file", retryable=False, phase="connect")
        return about

    def read_into(self, view: memoryview) -> int:
        assert self._file is not None
        want = min(len(view), self._end - self._at)
        if want <= 0:
            return 0
        try:
            count = os.preadv(self._file, [view[:want]], self._at)
        except OSError as error:
            raise Fault(f"it cannot be read: {error.strerror}", phase="body") from None
        if count == 0:
            raise Fault("it became shorter while it was read", phase="body")
        self._at += count
        return count

    def finish(self) -> bool:
        return True

    def abort(self) -> None:
        self._end = self._at

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None


def _identity_of_file(about: os.stat_result) -> Identity:
    """As a web server would speak of it, so that it can be compared with one."""
    etag = f'"{about.st_mtime_ns:x}-{about.st_size:x}"'
    return Identity(about.st_size, etag, formatdate(about.st_mtime, usegmt=True))


class IdleStreams:
    """Connections that have nothing to bring just now, one a source.

    The last question is asked over them, at a quarter of the price. A lane begins with one that
    has brought nothing yet; how much one that has will still bring, nobody knows. The download's
    lock is held by who calls.
    """

    def __init__(self) -> None:
        self._streams: dict[int, HttpStream] = {}
        self._unused: set[int] = set()  # the sources whose connection has brought nothing

    def keep(self, source: Source, stream: Stream, *, unused: bool = False) -> bool:
        if not isinstance(stream, HttpStream) or not stream.idle:
            return False
        if self._streams.setdefault(source.key, stream) is not stream:
            return False
        if unused:
            self._unused.add(source.key)
        return True

    def unused(self, source: Source) -> HttpStream | None:
        return self._streams[source.key] if source.key in self._unused else None

    def take(self, sources: list[Source]) -> dict[int, HttpStream]:
        """The connections to these sources; the others are closed."""
        taken = {each.key: self._streams[each.key] for each in sources if each.key in self._streams}
        self.close(but=list(taken.values()))
        return taken

    def close(self, *, but: Sequence[Stream] = ()) -> None:
        for stream in self._streams.values():
            if stream not in but:
                stream.close()
        self._streams, self._unused = {}, set()
