"""Sources and the sink: where the bytes of one object come from, and where they gather."""

from __future__ import annotations

import contextlib
import errno
import os
import time

from headway.node.errors import NodeError, Stopped, TransferError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.node.transfer.checksum import Checksum

    Progress = Callable[[int, int | None], None]

FULL = (errno.ENOSPC, errno.EDQUOT)
_EVERY = 0.5  # seconds between two calls of `progress`


class Fault(Exception):
    """One try with one source failed; the words hold nothing of the URL."""

    def __init__(
        self,
        words: str,
        *,
        retryable: bool = True,
        after: float = 0.0,
        bad_copy: bool = False,
        node: bool = False,
        remedy: str = "",
    ) -> None:
        super().__init__(words)
        self.words = words
        self.retryable = retryable
        self.after = after  # seconds that the server asked to wait
        self.bad_copy = bad_copy  # the whole object came, and it is wrong
        self.node = node  # the fault lies with this node
        self.remedy = remedy


class Source:
    """One place of an object; also the destination of a `put`."""

    def __init__(self, url: str) -> None:
        self.url = url

    def fetch(self, sink: Sink) -> None:
        """Add to the sink what it lacks; Fault when it did not get it all."""
        raise NotImplementedError

    def put(
        self,
        path: str,
        size: int,
        overwrite: bool,
        again: bool,
        progress: Progress | None,
        should_stop: Callable[[], bool],
    ) -> None:
        """Hand the file over; `again`: an earlier try may have got there unnoticed."""
        raise NotImplementedError


def open_source(url: str) -> Source:
    """The source behind a URL, by its scheme."""
    from headway.node.transfer import urls

    try:
        parts = urls.split(url)
    except ValueError as error:
        raise TransferError(str(error), retryable=False, remedy="correct the URL") from None
    if parts.scheme == "file":
        from headway.node.transfer.local import FileSource

        return FileSource(url)
    try:
        from headway.node.transfer.http import HttpSource
    except ImportError as error:
        raise NodeError(f"the node's Python cannot speak https: {error}") from None
    return HttpSource(url)


class Pace:
    """Calls `progress` twice a second at most, and raises Stopped when asked to stop."""

    def __init__(self, progress: Progress | None, should_stop: Callable[[], bool]) -> None:
        self._progress, self._should_stop = progress, should_stop
        self._last = 0.0

    def step(self, done: int, total: int | None) -> None:
        if self._should_stop():
            raise Stopped("the transfer was stopped")
        now = time.monotonic()
        if self._progress is not None and now - self._last >= _EVERY:
            self._last = now
            self._progress(done, total)


class Sink:
    """The file in which the bytes gather, in order; it knows what it lacks."""

    def __init__(self, path: str, size: int | None, checksum: Checksum | None) -> None:
        self.name = os.path.basename(path)[: -len(".part")]
        self.size = size  # as declared
        self.total = size  # as declared or as a source says
        self.have = 0
        self.validator: tuple[str, str] | None = None  # (url, ETag) of what is here
        self._path, self._checksum = path, checksum
        self._pace = Pace(None, lambda: False)
        self._complete = False
        try:
            os.makedirs(os.path.dirname(path) or os.curdir, exist_ok=True)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        except OSError as error:
            raise self.full(error) from None

    def watch(self, progress: Progress | None, should_stop: Callable[[], bool]) -> None:
        self._pace = Pace(progress, should_stop)

    @property
    def mixes(self) -> bool:
        """Whether bytes of several sources may be put together: the result must be provable."""
        return self.size is not None or self._checksum is not None

    def write(self, piece: memoryview) -> None:
        """Take in the next bytes."""
        left = piece
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            raise self.full(error) from None
        if self._checksum is not None:
            self._checksum.feed(piece)
        self.have += len(piece)
        self._pace.step(self.have, self.total)
        if self.size is not None and self.have > self.size:
            raise Fault(f"it is longer than {self.size} bytes", retryable=False, bad_copy=True)

    def restart(self) -> None:
        """Forget everything."""
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)
        self.have, self.total, self.validator = 0, self.size, None
        if self._checksum is not None:
            self._checksum.restart()

    def expect(self, total: int | None) -> None:
        """A source says how long the object is; a wrong length is known before any byte moves."""
        if total is None:
            return
        if self.size is not None and total != self.size:
            raise Fault(f"it has {total} bytes there, not {self.size}", retryable=False)
        self.total = total

    def prove(self) -> None:
        """Fault unless all that was declared is so."""
        if self.total is not None and self.have < self.total:
            raise Fault(f"it broke off after {self.have} of {self.total} bytes")
        wrong = self._checksum.fault() if self._checksum is not None else None
        if wrong is not None:
            raise Fault(wrong, retryable=False, bad_copy=True)

    def finish(self, path: str) -> None:
        """Put the file in place under its own name."""
        try:
            os.fsync(self._file)
            os.replace(self._path, path)
            self._complete = True
        except OSError as error:
            raise self.full(error) from None

    def close(self) -> None:
        """Close; an incomplete file is removed, it would only take room."""
        os.close(self._file)
        if not self._complete:
            with contextlib.suppress(OSError):
                os.unlink(self._path)

    def full(self, error: OSError) -> NodeError:
        """The node's disk failed us."""
        if error.errno in FULL:
            words = f"the node's disk is full: {self.name} has no room beyond {self.have} bytes"
            return NodeError(words, remedy="ask for more disk, or let the job run elsewhere")
        return NodeError(f"the node's disk fails: {self.name}: {error.strerror}")
