"""Clients: each brings ranges of one object over one connection, from a web server or from a file.

Another thread may call `abort` at any time.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections import deque
from urllib.parse import unquote, urlsplit

from headway.node.errors import AccessDeniedError
from headway.node.transfer.checksum import said_digests
from headway.node.transfer.heads import REDIRECTS, Redirects
from headway.node.transfer.http import EARLY, HttpConnection, refusal
from headway.node.transfer.source import Fault, Identity, Source
from headway.node.transfer.tokens import bearer
from headway.node.transfer.urls import same_host, scrubbed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Union

    from headway.node.transfer.http import Answer
    from headway.node.transfer.tokens import Secret

    Client = Union["HttpClient", "FileClient"]

WANT = {
    "Want-Repr-Digest": "sha-256=10, md5=3, crc32c=2, adler32=1",
    "Want-Digest": "sha-256;q=1, md5;q=0.3, crc32c;q=0.2, adler32;q=0.1",
}
_REMEMBER = 300.0  # seconds for which the end of a chain of redirects is asked directly
_RANGE = re.compile(r"bytes (?:([0-9]{1,18})-([0-9]{1,18})|\*)/([0-9]{1,18}|\*)\Z")


class Head:
    """What a source says before the bytes."""

    def __init__(self, begin: int, end: int | None, identity: Identity, whole: bool) -> None:
        self.begin, self.end = begin, end  # of the bytes that follow; None: until it ends
        self.identity = identity
        self.whole = whole  # it sends the whole object, whatever it was asked for


def open_client(url: str, token: Secret | None = None) -> Client:
    return FileClient(url) if url.startswith("file:") else HttpClient(url, token)


class HttpClient:
    """Ranges from a web server, over one connection as long as it lasts."""

    def __init__(self, url: str, token: Secret | None = None) -> None:
        self._url, self._token = url, token
        self._final, self._until = url, 0.0  # where redirects ended
        self._connection: HttpConnection | None = None
        self._answer: Answer | None = None
        self._aborted = False
        self._at = url  # what the connection leads to
        self._early: deque[tuple[int, int]] = deque()  # requested, and not answered yet
        self.was_early = False  # whether the present range was requested early
        self.forgets = False  # whether the server did not answer an early request

    @property
    def phase(self) -> str:
        connection = self._connection
        return connection.phase if connection is not None else "connect"

    @property
    def ends_anywhere(self) -> bool:
        """Whether the present answer may have been cut off without a sign."""
        return self._answer is not None and self._answer.ends_anywhere

    @property
    def idle(self) -> bool:
        """Whether the connection is open and nothing is under way on it."""
        connection = self._connection
        usable = connection is not None and connection.usable
        return usable and not self._early and not self._aborted

    def open(self, begin: int, end: int | None) -> Head:
        """Request a range and read the head of the answer; end None: up to the last byte."""
        answer = self._answered_early(begin, end) or self._ask("GET", _asking(begin, end))
        self._answer = answer
        identity = _identity(answer)
        if answer.status == 206:
            total = _shorter_object(answer, begin, end)
            if total is not None:
                return self.open(begin, total or None)
            first, stop, identity.size = _content_range(answer, begin, end)
            return Head(first, stop, identity, whole=False)
        if answer.status == 200:
            identity.size = answer.left
            return Head(0, identity.size, identity, whole=True)
        if answer.status == 416 and begin == 0 and _total(answer) == 0:
            answer.drain()
            identity.size = 0
            return Head(0, 0, identity, whole=True)
        answer.drain()
        raise refusal(answer, passing=(405, 416))

    def ask_early(self, begin: int, end: int) -> bool:
        """Request the range to open next while this one is read; False: that is not possible."""
        connection, answer = self._connection, self._answer
        url = self._final if time.monotonic() < self._until else self._url
        if connection is None or answer is None or not answer.keeps:
            return False
        if url != self._at or self._aborted:
            return False
        headers = {**_asking(begin, end), **bearer(self._token, self._url, url)}
        if not connection.ask_early("GET", headers):
            return False
        self._early.append((begin, end))
        return True

    def drop_early(self) -> None:
        """What was requested early is not wanted any more."""
        if self._early:
            self.close()

    def _answered_early(self, begin: int, end: int | None) -> Answer | None:
        """The answer to a request that was sent early; None: it has to be sent (again)."""
        connection, self.was_early = self._connection, False
        if not self._early:
            return None
        if connection is not None and connection.usable and self._early.popleft() == (begin, end):
            asked = time.monotonic()
            try:
                answer = connection.answer_early("GET")
                if answer.status < 300:
                    self.was_early = True
                    return answer
            except Fault:
                if self._aborted:
                    raise
                # as with any connection that was kept open: only a fresh one tells
                self.forgets = self.forgets or time.monotonic() - asked >= EARLY
        self._early.clear()
        if connection is not None:
            connection.close()  # whatever else arrives on it answers what nobody wants any more
        return None

    def about(self, *, digest: str = "") -> Identity | None:
        """What the server says of the object; `digest`: the algorithm of one to ask for, or "any".

        None: it did not say.
        """
        name = {"sha256": "sha-256"}.get(digest, digest)
        only = {"Want-Repr-Digest": f"{name}=10", "Want-Digest": name}
        wanted = WANT if digest == "any" else only if digest else {}
        answer = self._ask("HEAD", {"Accept-Encoding": "identity", **wanted})
        if answer.status != 200:
            return None
        identity = _identity(answer)
        identity.size = answer.length
        return identity

    def about_by_get(self) -> Identity | None:
        """The same by the head of an answer with bytes, which outweighs an answer to HEAD."""
        answer = self._ask("GET", _asking(0, 1))
        identity = _identity(answer)
        if answer.status in (206, 416):
            identity.size = _total(answer)
            answer.drain()
            return identity if answer.status == 206 or identity.size == 0 else None
        identity.size = answer.left
        self.close()  # else the whole object would follow
        return identity if answer.status == 200 else None

    def read_into(self, view: memoryview) -> int:
        """0 at the proper end of the range; Fault when it ends otherwise."""
        assert self._answer is not None
        return self._answer.read_into(view)

    def finish(self) -> bool:
        """Called when all bytes are here; Fault when the server takes them back.

        Returns whether another range can be requested at no cost.
        """
        answer = self._answer
        if answer is None:
            return True
        # the bytes are here, but the trailer that says whether they are right follows them
        if answer.chunked and answer.drain():
            raise Fault("it sends more bytes than it announced", phase="body")
        if answer.chunked and not answer.done:
            raise Fault("the connection broke off before the end of the answer", phase="body")
        status = next((v for n, v in answer.trailers if n == "x-transfer-status"), "")
        if status and not status.strip().startswith("200"):
            raise Fault(f"the transfer failed at the server: {scrubbed(status, 80)}", phase="body")
        return self._connection is not None and self._connection.usable

    def abort(self) -> None:
        self._aborted = True
        connection = self._connection
        if connection is not None:
            connection.abort()

    def close(self) -> None:
        self._early.clear()
        if self._connection is not None:
            self._connection.close()

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
        every = {**headers, **bearer(self._token, self._url, url)}
        connection = self._connection
        if connection is not None and connection.usable and same_host(self._at, url):
            if url != self._at:
                connection.retarget(url)
                self._at = url
            try:
                return connection.ask(method, every)
            except Fault:
                if self._aborted:
                    raise
                # a server may close a connection that waits; only a fresh one tells
        if connection is not None:
            connection.close()
        self._connection, self._at = HttpConnection(url), url
        if self._aborted:
            raise Fault("given up", phase="connect")
        return self._connection.ask(method, every)


def _asking(begin: int, end: int | None) -> dict[str, str]:
    # the whole object is requested without a range: some servers fail at ranges only
    last = "" if end is None else str(end - 1)
    part = {"Range": f"bytes={begin}-{last}"} if begin or end is not None else {}
    return {"Accept-Encoding": "identity", **part, "TE": "trailers", "X-Transfer-Status": "true"}


def _identity(answer: Answer) -> Identity:
    etag = answer.get("etag")
    return Identity(
        None,
        etag if etag.startswith('"') and len(etag) <= 200 else "",  # strong ones only
        answer.get("last-modified")[:100],
        said_digests(answer.get),
        answer.get("content-type").partition(";")[0].strip().lower(),
    )


def _total(answer: Answer) -> int | None:
    """The size of the object, as Content-Range says it."""
    match = _RANGE.match(answer.get("content-range"))
    return None if match is None or match[3] == "*" else int(match[3])


def _shorter_object(answer: Answer, begin: int, end: int | None) -> int | None:
    """The object's size, where it is less than was requested and the server has not noticed.

    XRootD 5.5 announces the whole of such a range, sends nothing and closes the connection.
    """
    match, total = _RANGE.match(answer.get("content-range")), _total(answer)
    if match is None or match[1] is None or total is None or end is None:
        return None
    known = int(match[1]) == begin and int(match[2]) + 1 == end
    if not known or not (begin < total < end or begin == total == 0):
        return None
    answer.connection.close()
    return total


def _content_range(answer: Answer, begin: int, end: int | None) -> tuple[int, int, int | None]:
    """The range that a 206 holds: it must begin where it was asked to, and not be longer."""
    match, total = _RANGE.match(answer.get("content-range")), _total(answer)
    if match is None or match[1] is None:
        raise _wrong_range(answer, "it sends a part, but does not say which", wrong_part=True)
    first, stop = int(match[1]), int(match[2]) + 1
    if first != begin or stop <= first or (end is not None and stop > end):
        raise _wrong_range(answer, "it sends another part than the requested one", wrong_part=True)
    if total is not None and stop > total:
        raise _wrong_range(answer, "it sends bytes beyond the end of the object")
    if answer.left is not None and answer.left != stop - first:
        raise _wrong_range(answer, "the length of its answer is not that of the part")
    return first, stop, total


def _wrong_range(answer: Answer, words: str, *, wrong_part: bool = False) -> Fault:
    answer.connection.close()
    return Fault(words, phase="first byte", wrong_part=wrong_part)


class FileClient:
    """Ranges of a file of this node, or of a folder that it shares with others."""

    phase = "connect"
    forgets = ends_anywhere = was_early = False

    def __init__(self, url: str) -> None:
        self._path = unquote(urlsplit(url).path)
        self._file: int | None = None
        self._at = self._end = 0

    def open(self, begin: int, end: int | None) -> Head:
        about = self.about()
        assert about.size is not None
        self.phase = "body"
        self._at, self._end = begin, about.size if end is None else min(end, about.size)
        return Head(begin, self._end, about, whole=False)

    def ask_early(self, begin: int, end: int) -> bool:
        return False

    def drop_early(self) -> None:
        pass

    def about(self, *, digest: str = "") -> Identity:
        """As a web server would describe it, so that it can be compared with one."""
        try:
            if self._file is None:
                self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            about = os.fstat(self._file)
        except OSError as error:
            absent = isinstance(error, FileNotFoundError)
            means = AccessDeniedError if isinstance(error, PermissionError) else None
            raise Fault(str(error.strerror), phase="connect", absent=absent, means=means) from None
        if not stat.S_ISREG(about.st_mode):
            raise Fault("it is not a file", retryable=False, phase="connect")
        from email.utils import formatdate

        etag = f'"{about.st_mtime_ns:x}-{about.st_size:x}"'
        return Identity(about.st_size, etag, formatdate(about.st_mtime, usegmt=True))

    about_by_get = about

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


class IdleClients:
    """Clients whose connection has nothing to bring at present, one for each source.

    The last requests of a download reuse them, at a quarter of the cost. A lane begins with one
    that has brought nothing yet; servers may limit how much one brings. The caller holds the lock.
    """

    def __init__(self) -> None:
        self._clients: dict[int, HttpClient] = {}
        self._unused: set[int] = set()  # the sources whose connection has brought nothing

    def keep(self, source: Source, client: Client, *, unused: bool = False) -> bool:
        if not isinstance(client, HttpClient) or not client.idle:
            return False
        if self._clients.setdefault(source.key, client) is not client:
            return False
        if unused:
            self._unused.add(source.key)
        return True

    def unused(self, source: Source) -> HttpClient | None:
        return self._clients[source.key] if source.key in self._unused else None

    def take(self, sources: list[Source]) -> dict[int, HttpClient]:
        """The clients of these sources; the others are closed."""
        taken = {each.key: self._clients[each.key] for each in sources if each.key in self._clients}
        self.close(but=list(taken.values()))
        return taken

    def close(self, *, but: Sequence[Client] = ()) -> None:
        for client in self._clients.values():
            if client not in but:
                client.close()
        self._clients, self._unused = {}, set()
