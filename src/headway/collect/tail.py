"""Following one log through its rotations, from where its cursors are."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import Any, NamedTuple

from headway.events.clock import Clock, ad_time, utc_hint
from headway.events.event import Event
from headway.events.files import back_in_time, rotations
from headway.events.opening import (
    END,
    EVENT_LIMIT,
    HEAD_SIZE,
    Format,
    LogReader,
    Skips,
    blank,
    cut_lines,
    decoded,
    end_of_hole,
    find_header,
    is_zeros,
    sniff,
    split,
)
from headway.events.read import parser_for


@dataclass
class Cursor:
    """How far one file of a log has been stored, and how to recognise the file.

    `number` counts the files that the log has had. Whatever its name, and compressed or not, a file
    is the same if it begins with the same bytes (`sign`) and has the same bytes before `offset`
    (`mark`). Device and inode only make the search short.
    """

    number: int
    device: int = 0
    inode: int = 0
    offset: int = 0  # all before it is stored, or skipped
    size: int = 0  # as it was when it was last read
    modified: float = 0.0
    sign: str = ""
    sign_size: int = 0
    sequence: int = 0  # HTCondor's number for a file of the pool-wide log; 0: not known
    body: int = 0  # the end of the header that HTCondor rewrites at a rotation
    mark: str = ""
    mark_size: int = 0
    zone: str = ""  # see `zone_text`
    last: float | None = None  # the time of the last event
    #: Whether earlier events were stored before the zone or the year was known.
    retell: bool = False
    #: Whether there was a newer file when its end was read.
    closed: bool = False
    gone: bool = False
    events: int = 0
    skipped: int = 0  # bytes that are part of no event
    days: list[int] = field(default_factory=list)


@dataclass
class StoredLog:
    """A log in the store, with all the files that it has had."""

    id: int
    name: str  # its path, or a pseudonym
    owner: str = ""
    files: list[Cursor] = field(default_factory=list)
    next: int = 0  # the number of the next file
    sequence: int = 0  # HTCondor's last number for a file of the pool-wide log

    @property
    def newest(self) -> Cursor | None:
        """The file that the log was in at the last poll."""
        live = (one for one in self.files if not one.gone)
        return max(live, key=lambda one: one.number, default=None)


@dataclass(frozen=True)
class Gap:
    """Events that were, or may have been, lost before they could be stored."""

    source: str
    noticed: float
    why: str
    since: float | None = None  # the time of the last event that was stored before


_BLANK = asdict(Cursor(-1))


def log_as_json(log: StoredLog) -> dict[str, Any]:
    """A log as the ledger has it, without files that are gone, unless a reader needs them."""
    files = [
        {name: value for name, value in vars(cursor).items() if value != _BLANK[name]}
        for cursor in log.files
        if not cursor.gone or cursor.retell
    ]
    return {**vars(log), "files": files}


def log_from_json(facts: dict[str, Any]) -> StoredLog:
    """The log that `log_as_json` wrote."""
    files = [Cursor(**{k: v for k, v in one.items() if k in _BLANK}) for one in facts["files"]]
    names = ("id", "name", "owner", "next", "sequence")
    return StoredLog(**{name: facts[name] for name in names}, files=files)


def zone_text(zone: tzinfo | None) -> str:
    """A zone as text: empty for this machine's own."""
    if zone is None:
        return ""
    name = getattr(zone, "key", None)
    if name:
        return str(name)
    offset = zone.utcoffset(None)
    return f"{int(offset.total_seconds()) if offset else 0:+d}"


def zone_of(text: str) -> tzinfo | None:
    """The zone that `zone_text` wrote."""
    if not text:
        return None
    if text[0] in "+-":
        return timezone(timedelta(seconds=int(text)))
    from zoneinfo import ZoneInfo

    return ZoneInfo(text)


# Slicing: the bytes of a log into rows, one for each event, with its text unchanged.


_TERMINATED, _AD = b"005", b"028"
#: What would end an event when its text is read again.
_MARKS = re.compile(r"\n(?=\.\.\.\r*(?:\n|\Z))")
_HEADERS = re.compile(r"([\n\0])(?=\d\d\d \()")


class EventRow(NamedTuple):
    """One event: its place in the file, its time, its date as written, and the text after it."""

    offset: int
    number: int
    cluster: int
    proc: int
    subproc: int
    time: float
    date: str
    text: str


class Sliced(NamedTuple):
    """The complete events in some bytes, where the last one ends, and how many bytes are none."""

    rows: list[EventRow]
    used: int
    skipped: int


#: An event's offset, its header, and what follows.
_Cut = tuple[int, re.Match[bytes], bytes]


def sliced(data: bytes, offset: int, cursor: Cursor, reference: float) -> Sliced:
    """The complete events in the bytes of a text log; `reference` is the file's mtime.

    The cursor keeps what is known of the log's clock.
    """
    cuts, used, skipped = _cut(data, offset)
    clock = _clock(cursor, reference, zone_of(cursor.zone))
    rows, lost = _rows(cuts, clock)
    if not cursor.events:
        # Nothing has been stored yet, so begin again like a reader of the whole file.
        while following := clock.again():
            clock = following
            rows, lost = _rows(cuts, clock)
    elif (following := clock.onward()) is not clock:
        cursor.retell = True
        clock = _clock(cursor, reference, following.zone)
        rows, lost = _rows(cuts, clock)
    cursor.zone = zone_text(clock.zone)
    if rows:
        cursor.last = rows[-1].time
    if clock.yearless and cursor.last is not None and cursor.last > reference + 86400:
        cursor.retell = True  # only now it shows that the year of the first date was too late
    return Sliced(rows, used, skipped + lost)


def row_of(event: Event, offset: int) -> EventRow:
    """The row of an event that was not read from a text log."""
    at = datetime.fromtimestamp(event.time, timezone.utc)
    text = _HEADERS.sub(r"\1 ", "\n".join((event.text.replace("\n", " "), *event.body)))
    date = f"{at.year:04d}-{at:%m-%d %H:%M:%S.%f}Z"
    ids = event.number, event.cluster, event.proc, event.subproc
    return EventRow(offset, *ids, event.time, date, _harmless(text))


def _clock(cursor: Cursor, reference: float, zone: tzinfo | None) -> Clock:
    clock = Clock(reference, zone)
    if cursor.last is not None:
        # Dates without a year continue from here.
        at = datetime.fromtimestamp(cursor.last, timezone.utc)
        clock.seconds(f"{at.year:04d}-{at:%m-%d %H:%M}".encode(), b"Z")
    return clock


def _cut(data: bytes, offset: int) -> tuple[list[_Cut], int, int]:
    """The chunks with events, how many bytes the complete ones take, and how many are lost."""
    chunks = split(data)
    chunks.pop()
    nuls = b"\0" in data
    cuts: list[_Cut] = []
    long = Skips()
    at = skipped = 0
    for chunk in chunks:
        while len(chunk) > EVENT_LIMIT:
            skipped += EVENT_LIMIT
            at += EVENT_LIMIT
            chunk = chunk[EVENT_LIMIT:]
        found = find_header(chunk, nuls)
        if found.lost and not blank(chunk[: found.lost]):
            skipped += found.lost
        header = found.header
        if header:
            rest = cut_lines(chunk[header.end() :], offset + at + header.end(), long)
            cuts.append((offset + at + header.start(), header, rest))
        at += len(chunk) + len(END)
    return cuts, at, skipped + sum(skip.length for skip in long)


def _rows(cuts: Iterable[_Cut], clock: Clock) -> tuple[list[EventRow], int]:
    rows: list[EventRow] = []
    lost = 0
    known: tuple[bytes, bytes | None] | None = None
    begin: float | None = None
    for offset, header, rest in cuts:
        number, cluster, proc, subproc, minute, second, fraction, zone = header.groups()
        if known != (minute, zone):
            known, begin = (minute, zone), clock.seconds(minute, zone)
        if begin is None:
            lost += header.end() - header.start() + len(rest)
            continue
        at = begin + int(second)
        if fraction:
            at += float(fraction)
        if number == _TERMINATED and (utc := utc_hint(rest)) is not None:
            clock.hint(at, utc)
        if number == _AD and minute[2] == 0x2F and (told := ad_time(rest)) is not None:
            clock.year_hint(at, told)
        text = decoded(rest)
        if "\n..." in text:
            text = _harmless(text)
        date = header.string[header.start(5) : header.end()].decode("ascii").rstrip()
        rows.append(
            EventRow(offset, int(number), int(cluster), int(proc), int(subproc), at, date, text)
        )
    return rows, lost


def _harmless(text: str) -> str:
    # With an extra carriage return a line becomes an end mark once that is removed.
    return _MARKS.sub("\n ", text)


# The open files of a log, which are recognised by their content, whatever their names are.


#: How many of its first bytes identify a file.
_SIGN_SIZE = 100
#: Less than this is no event, and not enough to recognise a file.
_HEADER_SIZE = 30
_MARK_SIZE = 4096
#: The beginning of the pool-wide log; HTCondor rewrites the rest when it rotates the file.
_POOL_SIGN = re.compile(rb"Global JobLog: (ctime=\d+ id=\S+ )sequence=(\d{1,9}) ")
#: It is within so many bytes.
_HEAD_OF_POOL = 400
_STEP = 1 << 20


class OpenLog:
    """One open file of a log, which is decompressed if necessary."""

    def __init__(self, path: Path, key: bytes) -> None:
        self.path = path
        self._key = key
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise FileNotFoundError(f"{path} is not a regular file")  # a pipe would never end
        self._reader = LogReader(path)
        self.packed = bool(self._reader.compression)  # it will not grow
        #: The bytes before the reader's place in a compressed file, which cannot go back.
        self._buffer = b""
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
    def known(self) -> bool:
        """Whether the file is long enough to be recognised."""
        return len(self.head) >= _HEADER_SIZE

    def read(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes of the log at this offset; fewer only at the end."""
        if not self.packed:
            pieces = []
            while size and (piece := os.pread(self._reader.fileno(), min(size, _STEP), offset)):
                pieces.append(piece)
                offset += len(piece)
                size -= len(piece)
            return b"".join(pieces)
        if self._reader.offset - len(self._buffer) > offset:
            self._reader.rewind()
            self._buffer = b""
        while self._reader.offset < offset:
            self._buffer = self._reader.read(min(_STEP, offset - self._reader.offset))
            if not self._buffer:
                return b""
        start = len(self._buffer) - (self._reader.offset - offset)
        before, data = self._buffer[max(0, start - _MARK_SIZE) : start], self._buffer[start:]
        data += self._reader.head(size - len(data)) if len(data) < size else b""
        self._buffer = before + data
        return data[:size]

    def hole(self, offset: int) -> int:
        """How many bytes from this offset on nobody has written."""
        return 0 if self.packed else max(0, end_of_hole(self._reader.fileno(), offset) - offset)

    def refresh(self) -> None:
        """Read its size and its beginning again: it may have been emptied."""
        self.stat = os.fstat(self._reader.fileno())
        if not self.packed:
            self.head = self.read(0, HEAD_SIZE)

    def sign(self, cursor: Cursor) -> None:
        """Store in the cursor what identifies the file."""
        match = _POOL_SIGN.search(self.head, 0, _HEAD_OF_POOL)
        cursor.device, cursor.inode = self.ident
        if match:
            cursor.sign, cursor.sign_size = self._digest(match[1]), 0
            cursor.sequence = int(match[2])
            cursor.body = self.head.find(END) + len(END) if END in self.head else HEAD_SIZE
        else:
            beginning = self.head[:_SIGN_SIZE]
            cursor.sign, cursor.sign_size = self._digest(beginning), len(beginning)

    def mark(self, cursor: Cursor, data: bytes) -> None:
        """Store in the cursor a digest of the bytes before its offset, with which `data` ends."""
        cursor.mark_size = max(0, min(_MARK_SIZE, cursor.offset - cursor.body))
        cursor.mark = self._digest(data[len(data) - cursor.mark_size :])

    def is_of(self, cursor: Cursor) -> bool:
        """Whether the cursor is about this file."""
        if not self._begins_like(cursor, self.head):
            return False
        if not cursor.mark_size or self.is_done(cursor):
            return True
        data = self.read(cursor.offset - cursor.mark_size, cursor.mark_size)
        return self._digest(data) == cursor.mark

    def is_done(self, cursor: Cursor) -> bool:
        """Whether this is a compressed file that was read to its end."""
        seen = (cursor.device, cursor.inode, cursor.modified)
        return self.packed and cursor.closed and seen == (*self.ident, self.stat.st_mtime)

    def is_short_of(self, cursor: Cursor) -> bool:
        """Whether this is an unfinished copy of the cursor's file."""
        return self._begins_like(cursor, self.head) and not self.read(cursor.offset - 1, 1)

    def begins_like(self, cursor: Cursor) -> bool:
        """Whether the file still begins like the cursor's file."""
        return self.packed or self._begins_like(cursor, self.read(0, _HEAD_OF_POOL))

    def _begins_like(self, cursor: Cursor, head: bytes) -> bool:
        match = _POOL_SIGN.search(head, 0, _HEAD_OF_POOL)
        beginning = match[1] if match else head[: cursor.sign_size]
        return bool(match) != bool(cursor.sign_size) and self._digest(beginning) == cursor.sign

    def close(self) -> None:
        """Close the file."""
        self._reader.close()

    def _digest(self, data: bytes) -> str:
        return hmac.new(self._key, data, hashlib.sha256).hexdigest()[:32]


def opened(path: Path, key: bytes, *, rotations: bool) -> Iterator[OpenLog]:
    """The files of a log, each once, the newest first.

    A rotation only ever gives files older names. So reading from the newest name to the oldest
    finds every file, even if the log is rotated in the meantime.
    """
    seen: set[tuple[int, int]] = set()
    for name in (path, *(back_in_time(path) if rotations else ())):
        with suppress(OSError):  # gone, or not readable
            file = OpenLog(name, key)
            if file.known and file.ident not in seen:
                seen.add(file.ident)
                yield file
            else:
                file.close()


_BLOCK = 4 << 20
#: Seconds after which nobody will write the missing newline after a last event.
_SETTLED = 60


#: Takes some events of a log, the cursor after them, and how many of the log's bytes they are.
AddRows = Callable[[StoredLog, Cursor, list[EventRow], int], None]


class Tail:
    """Passes on each complete event of a log once, as the log grows and is rotated."""

    def __init__(
        self, path: Path, source: StoredLog, key: bytes, add: AddRows, lost: Callable[[Gap], None]
    ) -> None:
        self.path = path
        self.source = source
        self._key, self._add, self._lost = key, add, lost
        self._seen: tuple[int, int, int, int] | None = None
        #: The newest file, if it stays open: it can be read to its end even after it was deleted.
        self.file: OpenLog | None = None
        # How many more times to look at all files: writers may notice a rotation late.
        self._full = 2

    def release(self) -> None:
        """Close the open file."""
        if self.file:
            self.file.close()
            self.file = None

    def poll(self, *, rotated: bool, keep_open: bool) -> None:
        """Pass on events that have become complete; costs one stat if nothing has changed.

        `rotated`: other files may be rotations of the log; `keep_open`: the newest file stays open.
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
            # Emptied in place: its old content may be in a copy.
            every, self._full = True, 2
            for file in files:
                file.close()
            before = _rotations(self.path)
            files = list(opened(self.path, self._key, rotations=True))
        try:
            self._take(files, before, whole=every or moved)
            if keep_open and files and files[0].path == self.path:
                self.release()
                self.file = files[0]
        finally:
            for file in files:
                if file is not self.file:
                    file.close()
        self._seen = seen

    def _take(self, files: list[OpenLog], before: _Rotations | None, *, whole: bool) -> None:
        """Read these files, the newest first in the list, from where their cursors are.

        `before`: the rotations before the first of these files was opened. If the log has been
        rotated since then, the newest file is left for the next poll: an older file, which must be
        stored first, may not be among these.
        """
        pairs = [(file, self._cursor_of(file)) for file in files]
        found = {cursor.number for _, cursor in pairs if cursor}
        newest = self.source.newest
        if not whole and newest and newest.number not in found:
            whole = True  # emptied, and filled anew
        if whole:
            # If a file was emptied before its first event was complete, the new copy has it all.
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
            # A copy of it, also new, may just have been read.
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

    def _cursor_of(self, file: OpenLog) -> Cursor | None:
        known = [one for one in self.source.files if not one.gone]
        known.sort(key=lambda one: ((one.device, one.inode) != file.ident, -one.number))
        return next((one for one in known if file.is_of(one)), None)

    def _begin(self, file: OpenLog) -> Cursor:
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
        """Look for a file that has none of the log's names any more; record what was lost."""
        file = self.file
        if file and file.ident == (cursor.device, cursor.inode):
            file.refresh()
            if file.known and file.is_of(cursor):
                self._drain(file, cursor, final=True)
                cursor.closed = True
                if file.stat.st_nlink == 0:
                    cursor.gone = True
                    self._unfinished(cursor)
                return
        if renamed := self._renamed(cursor):
            with closing(renamed):
                self._drain(renamed, cursor, final=True)
                cursor.closed = cursor.closed or followed
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

    def _renamed(self, cursor: Cursor) -> OpenLog | None:
        """The cursor's file under any name in the log's folder."""
        with suppress(OSError), os.scandir(self.path.parent) as entries:
            for entry in entries:
                if entry.inode() != cursor.inode:
                    continue
                with suppress(OSError):
                    file = OpenLog(Path(entry.path), self._key)
                    if file.known and file.ident[0] == cursor.device and file.is_of(cursor):
                        return file
                    file.close()
        return None

    def _drain(self, file: OpenLog, cursor: Cursor, *, final: bool) -> None:
        """Pass on all complete events after the cursor; `final`: nobody writes to it any more."""
        if file.is_done(cursor):
            return
        file.refresh()
        if not cursor.offset:
            file.sign(cursor)  # it may have been short when it was found
        cursor.device, cursor.inode = file.ident
        cursor.modified = file.stat.st_mtime
        final = final or file.packed or time.time() - cursor.modified > _SETTLED
        before = cursor.size
        is_text = sniff(file.head) in (Format.TEXT, Format.NONE)
        block = _BLOCK
        while True:
            start = max(0, cursor.offset - _MARK_SIZE)
            stored = file.read(start, cursor.offset - start)
            data = file.read(cursor.offset, block)
            # No bytes are read after this, because the file may be emptied at any time.
            if not file.begins_like(cursor):
                self._full = 2  # emptied since it was opened: a copy has its old content
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
                hole = found.used > len(data)
                end = data[max(0, found.used - _MARK_SIZE) : found.used]
                file.mark(cursor, bytes(_MARK_SIZE) if hole else stored + end)
                block = _BLOCK
            cursor.size = max(file.stat.st_size if not file.packed else 0, cursor.offset)
            if found.used or cursor.size != before:
                # Half an event counts, too: it may be gone before it is complete.
                self._add(self.source, cursor, found.rows, found.used)
                before = cursor.size
            if at_end:
                return

    def _gap(self, why: str, since: float | None = None) -> None:
        self._lost(Gap(self.source.name, time.time(), why, since))


#: Name, device, inode and size of each.
_Rotations = list[tuple[str, int, int, int]]


def _rotations(path: Path) -> _Rotations:
    """The rotations of a log now; one that is being copied grows."""
    files = []
    for name in rotations(path):
        with suppress(OSError):
            about = os.stat(name)
            files.append((name.name, about.st_dev, about.st_ino, about.st_size))
    return files


def _read_text(data: bytes, cursor: Cursor, final: bool) -> Sliced:
    # An editor or a rotation may have removed the last newline.
    whole = data + b"\n" if final and data.endswith(END[:-1]) else data
    found = sliced(whole, cursor.offset, cursor, cursor.modified)
    return found._replace(used=min(found.used, len(data)))


def _read_ads(head: bytes, data: bytes, cursor: Cursor, final: bool) -> Sliced:
    """Events of a log that is written as XML or JSON."""
    parser = parser_for(head, Clock(cursor.modified))
    events = parser.feed(data)
    if final:
        events += parser.close()
    # The parser does not say where each begins, but no two are at the same place.
    rows = [row_of(event, cursor.offset + place) for place, event in enumerate(events)]
    used = min(parser.offset, len(data)) if events or parser.skipped else 0
    return Sliced(rows, used, sum(skip.length for skip in parser.skipped))
