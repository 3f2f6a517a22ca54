"""Following one log through its rotations, from where its cursors stand."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from headway.collect.cursor import Cursor, Gap, Source
from headway.collect.rotated import LogFile, opened
from headway.collect.slicing import Row, Sliced, row_of, sliced
from headway.events.chunk import END
from headway.events.clock import Clock
from headway.events.forms.files import rotations
from headway.events.forms.sniffing import Format, sniff
from headway.events.read import parser_for
from headway.events.skip import EVENT_LIMIT, is_zeros

_BLOCK = 4 << 20
#: After so many seconds nobody will write the newline that is missing behind a last event.
_SETTLED = 60


class Sink(Protocol):
    """Where events go, and what was lost."""

    def add(self, source: Source, cursor: Cursor, rows: list[Row], size: int) -> None:
        """Take the events; the cursor stands behind them already."""

    def lost(self, gap: Gap) -> None:
        """Note what was lost."""


class Tail:
    """Gives each complete event of a log once, as the log grows and is rotated."""

    def __init__(self, path: Path, source: Source, key: bytes, sink: Sink) -> None:
        self.path = path
        self.source = source
        self._key, self._sink = key, sink
        self._seen: tuple[int, int, int, int] | None = None
        # The newest file: it can be read to its end even if it has lost all its names.
        self._held: LogFile | None = None
        # How many more times to look at all files: writers may be late for a rotation.
        self._full = 2

    @property
    def holds(self) -> bool:
        """Whether a file is kept open."""
        return self._held is not None

    def release(self) -> None:
        """Give the open file back."""
        if self._held:
            self._held.close()
            self._held = None

    def poll(self, *, rotated: bool, hold: bool) -> None:
        """Pass on what has become complete; one stat if nothing moved.

        `rotated`: whether there are files beside the log that may be its rotations; `hold`:
        whether to keep the newest one open.
        """
        try:
            now = os.stat(self.path)
            seen = (now.st_dev, now.st_ino, now.st_size, now.st_mtime_ns)
        except OSError:
            seen = None
        if seen == self._seen and not self._full:
            return
        newest = self.source.newest
        moved = newest is None or seen is None or seen[:2] != (newest.device, newest.inode)
        self._full = max(self._full - 1, 0)
        if moved and self._seen != seen:
            self._full = 2
        every = rotated and (moved or self._full > 0)
        before = _rotations(self.path) if every else None
        files = list(opened(self.path, self._key, rotations=every))
        if newest and not every and not (files and files[0].is_of(newest)):
            # Emptied in place: what it had been may be in a copy.
            every, self._full = True, 2
            for file in files:
                file.close()
            before = _rotations(self.path)
            files = list(opened(self.path, self._key, rotations=True))
        try:
            self._take(files, before, whole=every or moved)
            if hold and files and files[0].path == self.path:
                self.release()
                self._held = files[0]
        finally:
            for file in files:
                if file is not self._held:
                    file.close()
        self._seen = seen

    def _take(self, files: list[LogFile], before: _Rotations | None, *, whole: bool) -> None:
        """Read these files, of which the newest is the first, from where they were left.

        `before`: the rotations as they were before the first of these files was opened. If the log
        has been rotated since, it waits for the next time: an older file, which must be stored
        first, may not be among these.
        """
        pairs = [(file, self._cursor_of(file)) for file in files]
        found = {cursor.number for _, cursor in pairs if cursor}
        newest = self.source.newest
        if not whole and newest and newest.number not in found:
            whole = True  # emptied, and filled anew
        if whole:
            # Of a file that was emptied before its first event was whole, the new copy tells all.
            copied = any(cursor is None and file.path != self.path for file, cursor in pairs)
            for one in [one for one in self.source.files if not one.gone]:
                if one.number in found:
                    continue
                if copied and not one.offset:
                    one.gone = True
                else:
                    self._missing(one, bool(files) or os.path.exists(self.path))
        for place in range(len(pairs) - 1, -1, -1):
            file, cursor = pairs[place]
            # A copy that had not been met either may just have been read.
            cursor = cursor or self._cursor_of(file)
            if cursor is None:
                if any(file.is_short_of(one) for one in self.source.files if one.offset):
                    continue
                if place == 0 and before is not None and _rotations(self.path) != before:
                    self._full = 2
                    return
                cursor = self._begin(file)
            older = place > 0 or file.path != self.path
            self._drain(file, cursor, final=older)
            cursor.closed = cursor.closed or place > 0

    def _cursor_of(self, file: LogFile) -> Cursor | None:
        known = [one for one in self.source.files if not one.gone]
        known.sort(key=lambda one: ((one.device, one.inode) != file.ident, -one.number))
        return next((one for one in known if file.is_of(one)), None)

    def _begin(self, file: LogFile) -> Cursor:
        source = self.source
        cursor = Cursor(source.next)
        file.sign(cursor)
        source.next += 1
        source.files.append(cursor)
        if cursor.sequence:
            gone = cursor.sequence - source.sequence - 1
            if source.sequence and gone > 0:
                files = "a rotated file is" if gone == 1 else f"{gone} rotated files are"
                self._gap(f"{files} gone that nobody had read")
            source.sequence = max(source.sequence, cursor.sequence)
        return cursor

    def _missing(self, cursor: Cursor, followed: bool) -> None:
        """Look for a file that has none of the log's names any more; note what was lost."""
        file = self._held
        if file and file.ident == (cursor.device, cursor.inode):
            file.refresh()
            if file.known and file.is_of(cursor):
                self._drain(file, cursor, final=True)
                cursor.closed = True
                if file.stat.st_nlink == 0:
                    cursor.gone = True
                    self._unfinished(cursor)
                return
        file = self._elsewhere(cursor)
        if file:
            try:
                self._drain(file, cursor, final=True)
                cursor.closed = cursor.closed or followed
            finally:
                file.close()
            return
        cursor.gone = True
        if not cursor.closed and followed:
            self._gap(
                f"a file was rotated away or emptied before its end was read: what followed its"
                f" first {cursor.offset} bytes may be lost",
                cursor.last,
            )
        else:
            self._unfinished(cursor)

    def _unfinished(self, cursor: Cursor) -> None:
        if cursor.size > cursor.offset:
            count = cursor.size - cursor.offset
            self._gap(f"a file is gone whose last {count} bytes were no whole event", cursor.last)

    def _elsewhere(self, cursor: Cursor) -> LogFile | None:
        """The file under any name in the log's folder."""
        with suppress(OSError), os.scandir(self.path.parent) as entries:
            for entry in entries:
                if entry.inode() != cursor.inode:
                    continue
                with suppress(OSError):
                    file = LogFile(Path(entry.path), self._key)
                    if file.known and file.ident[0] == cursor.device and file.is_of(cursor):
                        return file
                    file.close()
        return None

    def _drain(self, file: LogFile, cursor: Cursor, *, final: bool) -> None:
        """Pass on all complete events behind the cursor; `final`: nobody is expected to write."""
        if file.is_done(cursor):
            return
        file.refresh()
        if not cursor.offset:
            file.sign(cursor)  # it may have been short when it was met
        cursor.device, cursor.inode = file.ident
        cursor.modified = file.stat.st_mtime
        final = final or file.packed or time.time() - cursor.modified > _SETTLED
        before = cursor.size
        is_text = sniff(file.head) in (Format.TEXT, Format.NONE)
        block = _BLOCK
        while True:
            data = file.read(cursor.offset, block)
            if not file.begins_like(cursor):
                self._full = 2  # emptied since it was opened: its copy tells what it had been
                return
            at_end = len(data) < block
            if not at_end and is_zeros(data):
                count = len(data) + file.hole(cursor.offset + len(data))
                found = Sliced([], count, count)
            elif is_text:
                found = _read_text(data, cursor, at_end and final)
            else:
                found = _read_ads(file.head, data, cursor, at_end and final)
            if not found.used and not at_end:
                if block <= EVENT_LIMIT:
                    block *= 2
                    continue
                found = Sliced([], EVENT_LIMIT, EVENT_LIMIT)  # no event is that long
            if found.used:
                cursor.offset += found.used
                cursor.events += len(found.rows)
                cursor.skipped += found.skipped
                file.mark(cursor)
                block = _BLOCK
            cursor.size = max(file.stat.st_size if not file.packed else 0, cursor.offset)
            if found.used or cursor.size != before:
                # Half an event must be known of, too: it may be gone before it is whole.
                self._sink.add(self.source, cursor, found.rows, found.used)
                before = cursor.size
            if at_end:
                return

    def _gap(self, why: str, since: float | None = None) -> None:
        self._sink.lost(Gap(self.source.name, time.time(), why, since))


#: Name, device, inode and size of each.
_Rotations = list[tuple[str, int, int, int]]


def _rotations(path: Path) -> _Rotations:
    """The rotations of a log as they are now; one that is being copied grows."""
    found = []
    for name in rotations(path):
        with suppress(OSError):
            about = os.stat(name)
            found.append((name.name, about.st_dev, about.st_ino, about.st_size))
    return found


def _read_text(data: bytes, cursor: Cursor, final: bool) -> Sliced:
    # An editor, or a rotation, may have taken the last newline away.
    whole = data + b"\n" if final and data.endswith(END[:-1]) else data
    found = sliced(whole, cursor.offset, cursor, cursor.modified)
    return found._replace(used=min(found.used, len(data)))


def _read_ads(head: bytes, data: bytes, cursor: Cursor, final: bool) -> Sliced:
    """Events of a log that is written as XML or JSON."""
    parser = parser_for(head, Clock(cursor.modified))
    events = parser.feed(data)
    if final and parser.ends_with(data[-4:]):
        events += parser.feed(b"\n")
    # Where each begins is not told; but no two are at the same place.
    rows = [row_of(event, cursor.offset + place) for place, event in enumerate(events)]
    used = min(parser.offset, len(data)) if events or parser.skipped else 0
    return Sliced(rows, used, sum(skip.length for skip in parser.skipped))
