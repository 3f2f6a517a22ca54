"""A log's files, open: known again by what is in them, whatever their names have become."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from headway.collect.cursor import Cursor
from headway.events.chunk import END
from headway.events.forms.files import back_in_time
from headway.events.forms.opening import LogReader, open_log
from headway.events.forms.sniffing import HEAD_SIZE
from headway.events.skip import end_of_hole

#: The first bytes of a file, by which it is known again.
_SIGN_SIZE = 100
#: Less than this is no event, and not enough to know a file by.
_HEADER_SIZE = 30
_MARK_SIZE = 4096
#: What the pool-wide log begins with: HTCondor rewrites the rest when it rotates the file.
_POOL_SIGN = re.compile(rb"Global JobLog: (ctime=\d+ id=\S+ )sequence=(\d{1,9}) ")
#: Bytes in which that is found.
_HEAD_OF_POOL = 400
_STEP = 1 << 20


class LogFile:
    """One open file of a log; compressed or not, its bytes are the log's."""

    def __init__(self, path: Path, key: bytes) -> None:
        self.path = path
        self._key = key
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise FileNotFoundError(f"{path} is not a regular file")  # a pipe would keep us waiting
        self._reader: LogReader = open_log(path)
        #: The bytes before the reader's place in a compressed file, which cannot go back.
        self._kept = b""
        try:
            self.head = self._reader.head(HEAD_SIZE)
        except BaseException:
            self._reader.close()
            raise
        self.stat = self._reader.stat

    @property
    def ident(self) -> tuple[int, int]:
        """Device and inode."""
        return self.stat.st_dev, self.stat.st_ino

    @property
    def packed(self) -> bool:
        """Whether the file is compressed: it will not grow."""
        return bool(self._reader.compression)

    @property
    def known(self) -> bool:
        """Whether there is enough in the file to know it by."""
        return len(self.head) >= _HEADER_SIZE

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes of the log at this offset; fewer at the end only."""
        if not self._reader.compression:
            pieces = []
            while size and (piece := os.pread(self._reader.fileno(), min(size, _STEP), offset)):
                pieces.append(piece)
                offset += len(piece)
                size -= len(piece)
            return b"".join(pieces)
        if self._reader.offset - len(self._kept) > offset:
            self._reader.rewind()
            self._kept = b""
        while self._reader.offset < offset:
            self._kept = self._reader.read(min(_STEP, offset - self._reader.offset))
            if not self._kept:
                return b""
        start = len(self._kept) - (self._reader.offset - offset)
        before, data = self._kept[max(0, start - _MARK_SIZE) : start], self._kept[start:]
        data += self._reader.head(size - len(data)) if len(data) < size else b""
        self._kept = before + data
        return data[:size]

    def hole(self, offset: int) -> int:
        """How many bytes from this offset on nobody has written."""
        if self._reader.compression:
            return 0
        return max(0, end_of_hole(self._reader.fileno(), offset) - offset)

    def refresh(self) -> None:
        """Look again how long the file is, and how it begins: it may have been emptied."""
        self.stat = os.fstat(self._reader.fileno())
        if not self.packed:
            self.head = self.read(0, HEAD_SIZE)

    def sign(self, cursor: Cursor) -> None:
        """Note by what the file can be known again."""
        match = _POOL_SIGN.search(self.head, 0, _HEAD_OF_POOL)
        cursor.device, cursor.inode = self.ident
        if match:
            cursor.sign, cursor.sign_size = self._digest(match[1]), 0
            cursor.sequence = int(match[2])
            cursor.body = self.head.find(END) + len(END) if END in self.head else HEAD_SIZE
        else:
            beginning = self.head[:_SIGN_SIZE]
            cursor.sign, cursor.sign_size = self._digest(beginning), len(beginning)

    def mark(self, cursor: Cursor) -> None:
        """Note the bytes before the cursor's offset."""
        start = max(cursor.body, cursor.offset - _MARK_SIZE)
        cursor.mark_size = max(0, cursor.offset - start)
        data = self.read(start, cursor.mark_size) if cursor.mark_size else b""
        cursor.mark = self._digest(data)

    def is_of(self, cursor: Cursor) -> bool:
        """Whether this is the file that the cursor is of."""
        if not self._begins_like(cursor, self.head):
            return False
        if not cursor.mark_size or self.is_done(cursor):
            return True
        data = self.read(cursor.offset - cursor.mark_size, cursor.mark_size)
        return self._digest(data) == cursor.mark

    def is_done(self, cursor: Cursor) -> bool:
        """Whether this is a compressed file that was read to its end: it need not be again."""
        seen = (cursor.device, cursor.inode, cursor.modified)
        return self.packed and cursor.closed and seen == (*self.ident, self.stat.st_mtime)

    def is_short_of(self, cursor: Cursor) -> bool:
        """Whether this begins like the cursor's file and ends too early: a copy in the making."""
        return self._begins_like(cursor, self.head) and not self.read(cursor.offset - 1, 1)

    def begins_like(self, cursor: Cursor) -> bool:
        """Whether this begins like the cursor's file at this very moment."""
        return self.packed or self._begins_like(cursor, self.read(0, _HEAD_OF_POOL))

    def _begins_like(self, cursor: Cursor, head: bytes) -> bool:
        match = _POOL_SIGN.search(head, 0, _HEAD_OF_POOL)
        beginning = match[1] if match else head[: cursor.sign_size]
        return bool(match) != bool(cursor.sign_size) and self._digest(beginning) == cursor.sign

    def close(self) -> None:
        """Give the file back."""
        self._reader.close()

    def _digest(self, data: bytes) -> str:
        return hmac.new(self._key, data, hashlib.sha256).hexdigest()[:32]


def opened(path: Path, key: bytes, *, rotations: bool) -> Iterator[LogFile]:
    """The files of a log, each once, the newest first.

    A file only ever moves to an older name, so whoever walks from the newest name to the
    oldest meets each file at least once, even if the log is rotated meanwhile.
    """
    seen: set[tuple[int, int]] = set()
    for name in (path, *(back_in_time(path) if rotations else ())):
        file = None
        with suppress(OSError):  # gone, or not ours to read
            file = LogFile(name, key)
        if file is None:
            continue
        if file.ident in seen or not file.known:
            file.close()
            continue
        seen.add(file.ident)
        yield file
