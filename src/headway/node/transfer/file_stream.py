"""File streams: the bytes of a stretch of a file of this node."""

from __future__ import annotations

import contextlib
import os
import stat
from email.utils import formatdate
from urllib.parse import unquote, urlsplit

from headway.node.transfer.source import Fault, Identity
from headway.node.transfer.stream import Head, Stream


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
            raise Fault(f"{error.strerror}", phase="connect", absent=absent) from None
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
