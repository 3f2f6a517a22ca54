"""Following event logs while they grow."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from headway.errors import EventLogError
from headway.events.event import Event
from headway.events.read import Parser, Skip

_READ_SIZE = 1 << 20
_MARK_SIZE = 64
_SHORTEST = 0.1


class Follower:
    """Gives each complete event of a log once, as the log grows.

    The log may not be there yet, be rotated, be cut back by a writer that mends a torn event, or be
    emptied and filled anew. Rotated away twice between two polls, the file in the middle is missed.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        #: What was skipped; offsets count from the start of the file as it was then.
        self.skipped: list[Skip] = []
        self._fd = -1
        self._file: tuple[int, int] | None = None
        self._seen: tuple[int, int, int, int] | None = None
        self._parser = Parser()
        # The bytes before the parser's offset: they tell whether this is still the same log.
        self._mark = b""

    def close(self) -> None:
        """Give the file back; a later poll would begin anew."""
        self._forget()
        self._seen = None

    def poll(self) -> list[Event]:
        """The events that have become complete since the last poll; one stat if nothing moved."""
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
            now = self.path.stat()
        except FileNotFoundError:
            # Between the two steps of a rotation the old file may still have got something.
            return self._drain() if self._fd >= 0 else []
        seen = (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns)
        if seen == self._seen:
            return []
        events: list[Event] = []
        if self._fd >= 0 and self._file != seen[:2]:
            events += self._drain()
            self._forget()
        if self._fd < 0:
            try:
                self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return events
            opened = os.fstat(self._fd)
            self._file = (opened.st_dev, opened.st_ino)
            self._parser = Parser(opened.st_mtime)
        events += self._drain()
        self._seen = seen
        return events

    def _drain(self) -> list[Event]:
        parser = self._parser
        start = parser.offset - len(self._mark)
        if os.pread(self._fd, len(self._mark), start) != self._mark:
            self.skipped += parser.skipped
            parser = self._parser = Parser(os.fstat(self._fd).st_mtime)
        # What had no end at the last poll may have been cut off and replaced since.
        parser.rewind()
        at = parser.offset
        events: list[Event] = []
        while block := os.pread(self._fd, _READ_SIZE, at):
            at += len(block)
            events += parser.feed(block)
        begin = max(0, parser.offset - _MARK_SIZE)
        self._mark = os.pread(self._fd, parser.offset - begin, begin)
        self.skipped += parser.skipped
        parser.skipped.clear()
        return events

    def _forget(self) -> None:
        self._parser.finish()
        self.skipped += self._parser.skipped
        self._parser = Parser()
        self._mark = b""
        self._file = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def follow(
    path: str | os.PathLike[str], interval: float = 1.0, *, stop: threading.Event | None = None
) -> Iterator[Event]:
    """Events as they come, for ever or until `stop` is set and what is there has been given.

    Looks every 0.1 s while events come and less and less often, down to every `interval`
    seconds, while none do.
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
