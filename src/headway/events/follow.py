"""Following event logs while they grow."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import tzinfo
from pathlib import Path

from headway.errors import EventLogError
from headway.events.clock import Clock
from headway.events.event import Event
from headway.events.files import back_in_time
from headway.events.opening import HEAD_SIZE, LogReader, Skip, file_blocks
from headway.events.read import EventParser, LogParser, parser_for

_READ_SIZE = 1 << 20
_MARK_SIZE = 64
#: The first bytes of a file, by which it is known again under another name, or compressed.
_SIGN_SIZE = 100
#: Less than this is no event, and not enough to know a file by.
_HEADER_SIZE = 30
#: What the pool-wide log has there instead: HTCondor rewrites the rest when it rotates the file.
_POOL_SIGN = re.compile(rb"Global JobLog: (ctime=\d+ id=\S+ )sequence=(\d{1,9}) ")
_SHORTEST = 0.1


class Follower:
    """Gives each complete event of a log once, as the log grows.

    The log may not be there yet, be rotated, also several times between two polls, be cut back by
    a writer that mends a torn event, or be emptied and filled anew. What had been rotated away
    before the first poll is not read. Times follow the UTC hints of the log from where
    they appear (see `Clock`): what was given before stays as it was.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        #: What was skipped; offsets count from the start of the file as it was then.
        self.skipped: list[Skip] = []
        self._fd = -1
        self._file: tuple[int, int] | None = None
        self._seen: tuple[int, int, int, int] | None = None
        self._drained: tuple[int, int] | None = None
        self._parser: LogParser = EventParser()
        # The bytes before the parser's offset: they tell whether this is still the same log.
        self._mark = b""
        # The log's zone, as hints have shown it.
        self._zone: tzinfo | None = None
        # The signatures of rotated files that are older than what is to come.
        self._known: set[bytes] | None = None
        # When the folder had last changed while the log had no file.
        self._folder: int | None = None

    def close(self) -> None:
        """Close the file; a later poll starts from its beginning."""
        self._forget()
        self._seen = None
        self._known = None
        self._folder = None

    def poll(self) -> list[Event]:
        """The events that were completed since the last poll; costs one stat if nothing changed."""
        try:
            return self._poll()
        except OSError as error:
            self.close()
            raise EventLogError(
                f"the event log {self.path} cannot be followed: {error.strerror}",
                remedy="Check that you may read it and that its file system answers.",
            ) from error

    def _poll(self) -> list[Event]:
        try:
            now = os.stat(self.path)
        except FileNotFoundError:
            return self._without()
        seen = (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns)
        if seen == self._seen:
            return []
        events: list[Event] = []
        if self._file != seen[:2]:
            try:
                # a pipe that nobody writes to would not be opened without O_NONBLOCK
                fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except FileNotFoundError:
                return self._without()
            events += self._move(fd)
        events += self._drain()
        self._seen = seen
        return events

    def _without(self) -> list[Event]:
        """The events that came while there is no file with the log's own name."""
        events = self._drain() if self._fd >= 0 else []
        try:
            changed = os.stat(self.path.parent).st_mtime_ns
        except FileNotFoundError:
            return events
        if changed == self._folder:
            return events
        with ExitStack() as stack:
            if self._known is None:
                self._known = {sign for sign, _ in self._rotated(stack)}
            sign, newest = next(self._rotated(stack), (b"", None))
            if newest and not newest.compression and not self._is_old(sign, newest):
                events += self._move(os.dup(newest.fileno()))
                events += self._drain()
        self._folder = changed
        return events

    def _move(self, fd: int) -> list[Event]:
        """Move on to a newer file; the last events of the old one, and of all between them."""
        try:
            events = self._drain() if self._fd >= 0 else []
            events += self._between(fd)
        except BaseException:
            os.close(fd)
            raise
        self._forget()
        self._fd = fd
        opened = os.fstat(fd)
        self._file = (opened.st_dev, opened.st_ino)
        return events

    def _drain(self) -> list[Event]:
        now = os.fstat(self._fd)
        if self._drained == (now.st_size, now.st_mtime_ns):
            return []
        parser = self._parser
        start = parser.offset - len(self._mark)
        if parser.offset and os.pread(self._fd, len(self._mark), start) != self._mark:
            self.skipped += parser.skipped
            parser = self._parser = EventParser(now.st_mtime)
        if parser.offset == 0:
            clock = Clock(now.st_mtime, self._zone)
            parser = self._parser = parser_for(os.pread(self._fd, HEAD_SIZE, 0), clock)
        # What had no end at the last poll may have been cut off and replaced since.
        parser.rewind()
        events = parser.feed_blocks(file_blocks(self._fd, parser.offset, None, _READ_SIZE))
        parser.clock = parser.clock.onward()
        self._zone = parser.clock.zone
        begin = max(0, parser.offset - _MARK_SIZE)
        self._mark = os.pread(self._fd, parser.offset - begin, begin)
        self.skipped += parser.skipped
        parser.skipped.clear()
        self._drained = (now.st_size, now.st_mtime_ns)
        return events

    def _between(self, fd: int) -> list[Event]:
        """The events of files that came and went between the file we were in and `fd`."""
        opened = os.fstat(fd)
        come, sequence = _sign(os.pread(fd, HEAD_SIZE, 0))
        left, before = _sign(os.pread(self._fd, HEAD_SIZE, 0) if self._fd >= 0 else b"")
        missed: dict[bytes, LogReader] = {}
        with ExitStack() as stack:
            for sign, file in self._rotated(stack):
                ident = (file.stat.st_dev, file.stat.st_ino)
                if ident == (opened.st_dev, opened.st_ino) or sign == come:
                    missed.clear()  # rotated away already: what we have met is newer
                elif self._is_old(sign, file) or (left and sign.startswith(left)):
                    break
                else:
                    missed.setdefault(sign, file)
            if self._known is None:
                # What was rotated before the first poll is not read.
                self._known = set(missed)
                return []
            self._known.update(missed, [left] if left else [])
            gone = sequence - before - 1 - len(missed) if sequence and before else 0
            if gone > 0:
                why = f"{gone} rotated files are gone that nobody had read"
                self.skipped.append(Skip(0, 0, why))
            return [event for file in reversed(missed.values()) for event in self._whole(file)]

    def _is_old(self, sign: bytes, file: LogReader) -> bool:
        # A file that was short when we first saw it may have grown since.
        known = sign.startswith(tuple(self._known or ()))
        return known or (file.stat.st_dev, file.stat.st_ino) == self._file

    def _rotated(self, stack: ExitStack) -> Iterator[tuple[bytes, LogReader]]:
        """The rotated files, open, the newest first."""
        for path in back_in_time(self.path):
            with suppress(OSError):  # gone, or not ours to read
                file = stack.enter_context(LogReader(path))
                sign, _ = _sign(file.head(HEAD_SIZE))
                if sign:
                    yield sign, file

    def _whole(self, file: LogReader) -> list[Event]:
        file.rewind()
        head = file.head(HEAD_SIZE)
        parser = parser_for(head, Clock(file.stat.st_mtime, self._zone))
        events = parser.feed(head) + parser.feed_blocks(file.blocks(_READ_SIZE))
        parser.finish()
        self.skipped += parser.skipped
        self.skipped += [file.damage] if file.damage else []
        return events

    def _forget(self) -> None:
        self._parser.finish()
        self.skipped += self._parser.skipped
        self._parser = EventParser()
        self._mark = b""
        self._file = None
        self._drained = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _sign(head: bytes) -> tuple[bytes, int]:
    """The signature of a file, and its place in a sequence of files if it has one."""
    match = _POOL_SIGN.search(head, 0, 400)
    if match:
        return match[1], int(match[2])
    return (head[:_SIGN_SIZE] if len(head) >= _HEADER_SIZE else b""), 0


def follow(
    path: str | os.PathLike[str], interval: float = 1.0, *, stop: threading.Event | None = None
) -> Iterator[Event]:
    """Events as they come, forever or until `stop` is set.

    Args:
        path: The log; it need not be there yet.
        interval: The longest pause between two looks, in seconds. While events come, the pauses
            are 0.1 s; while none do, they grow.
        stop: Once it is set, the events that are there are yielded, and the iteration ends.

    Yields:
        Each complete event once.

    Raises:
        EventLogError: The file cannot be read.

    Example:
        >>> with EventWriter("growing.log") as writer:
        ...     _ = writer.submitted(7, 0, "<192.0.2.10:9618>")
        >>> next(follow("growing.log")).number
        0
    """
    follower = Follower(path)
    delay = shortest = min(_SHORTEST, interval)
    try:
        while True:
            stopping = stop is not None and stop.is_set()
            events = follower.poll()
            yield from events
            if stopping:
                return
            delay = shortest if events else min(delay * 1.5, interval)
            if stop is None:
                time.sleep(delay)
            else:
                stop.wait(delay)
    finally:
        follower.close()
