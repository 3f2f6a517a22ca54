"""Scanning a text log: bytes in, columns out, with no object for an event in between.

`read.Parser` says what is right; a chunk that is not one plain event goes through the same rules.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headway.events.clock import ad_time, utc_hint
from headway.events.columnar.bodies import (
    BODIES,
    ENDING_LINE,
    STAGES,
    Bodies,
    Caches,
    Endings,
    columns_of_pairs,
    stage_kinds,
)
from headway.events.columnar.columns import (
    MEASURED,
    EventArrays,
    Flags,
    Floats,
    Longs,
    Strings,
    blank_columns,
    joined,
    no_events,
    put_events,
    selected,
)
from headway.events.columnar.headers import (
    PAD,
    YEARLESS,
    ZONE,
    ChunkPlaces,
    TextBlock,
    find_chunks,
    read_headers,
    without_carriages,
)
from headway.events.event import BY_NUMBER, TRANSFER_CODES, Event, Kind
from headway.events.format import REQUEUED, EventType
from headway.events.opening import (
    ALMOST_END,
    END,
    EVENT_LIMIT,
    LINE_LIMIT,
    NO_END,
    ZEROS,
    Skips,
    blank,
    bounded,
    cut_lines,
    decoded,
    find_header,
)

_KINDS = np.zeros(1000, np.uint8)
_KINDS[list(BY_NUMBER)] = list(BY_NUMBER.values())

_ENDINGS = (EventType.EVICTED, EventType.TERMINATED)
_RETURN = 0x0D
_REQUEUED = REQUEUED.raw[0]


class Scanner:
    """Turns the bytes of a log, in pieces of any size, into arrays."""

    def __init__(self, offset: int = 0) -> None:
        #: The end of the last complete event.
        self.offset = offset
        self._tail = b""
        self._strings = Strings()
        self._caches = Caches(self._strings)
        self._blocks: list[EventArrays] = []
        #: What was skipped between the blocks of events.
        self._skipped = Skips()

    def feed(self, data: bytes) -> None:
        """Take in the bytes that follow."""
        data = b"".join((self._tail, data, bytes(PAD)))
        size = len(data) - PAD
        origin = Origin(data, np.empty(0, np.int64))
        if b"\r" in data and b"\r\n" in data:  # the first question is ten times quicker
            data, size, removed = without_carriages(data, size)
            origin = Origin(origin.data, removed)
        chunks = find_chunks(data, size)
        if len(chunks.starts):
            block = _BlockReader(data, size, self.offset, chunks, self._caches, origin)
            self._blocks.append(block.arrays())
        tail = int(origin.behind(np.array([chunks.tail]))[0])
        self._tail = origin.data[tail : len(origin.data) - PAD]
        self.offset += tail
        while len(self._tail) > EVENT_LIMIT + ALMOST_END:
            self._lose(EVENT_LIMIT)

    def zeros(self, count: int) -> None:
        """Take so many zeros: they end what lies before them."""
        self._lose(len(self._tail))
        self._skipped.add(self.offset, count, ZEROS)
        self.offset += count

    def _lose(self, count: int) -> None:
        """Skip the first bytes that follow the last complete event."""
        if not blank(self._tail[:count]):
            self._skipped.add(self.offset, count, NO_END)
        self._tail = self._tail[count:]
        self.offset += count

    def close(self) -> None:
        """Take the end of the file; an editor may have removed its last newline."""
        if self._tail.endswith(END[:-1]):
            self.feed(b"\n")

    @property
    def pending(self) -> bytes:
        """What follows the last complete event."""
        return self._tail

    def arrays(self) -> EventArrays:
        """All events so far, as those of one file."""
        part = joined(self._blocks) if self._blocks else no_events()
        part.strings = self._strings.all
        part.sizes = [len(part)]
        part.skipped = bounded([*part.skipped, *((0, skip) for skip in self._skipped)])
        return part


class Origin(NamedTuple):
    """A block as it was before the carriage returns before its newlines were removed."""

    data: bytes
    removed: Longs  # the newlines that had one, as places in the block without

    def at(self, places: Longs) -> Longs:
        """Where these places of the block without carriage returns were."""
        if not self.removed.size:
            return places
        return places + np.searchsorted(self.removed, places, "right")

    def behind(self, places: Longs) -> Longs:
        """Where these places were; each follows a newline or is the start."""
        return np.where(places > 0, self.at(places - 1) + 1, 0)


class _BlockReader:
    """Turns the complete chunks of some bytes into arrays."""

    def __init__(
        self,
        data: bytes,
        size: int,
        offset: int,
        chunks: ChunkPlaces,
        caches: Caches,
        origin: Origin,
    ) -> None:
        self._data, self._offset, self._chunks = data, offset, chunks
        self._origin = origin
        self._block = TextBlock(data)
        self._caches, self._strings = caches, caches.strings
        self._skipped = Skips()
        self._usage: list[tuple[Longs, Floats]] = []
        self._hints: list[tuple[Longs, Floats]] = []
        self._headers = read_headers(data, chunks.starts)
        self._plain = self._find_plain(size)
        self._columns = blank_columns(len(chunks.starts))

    def arrays(self) -> EventArrays:
        """The events of these chunks."""
        chunks, headers, columns = self._chunks, self._headers, self._columns
        for name in ("number", "cluster", "proc", "subproc", "minute", "second"):
            columns[name][:] = getattr(headers, name)
        if headers.fraction is not None:
            columns["fraction"][:] = headers.fraction
        starts = self._origin.behind(chunks.starts)
        columns["offset"][:] = starts + self._offset
        columns["length"][:] = self._origin.at(chunks.ends) - starts
        columns["kind"][:] = _KINDS[headers.number % 1000]
        for number in STAGES:
            self._read_stages(number, np.flatnonzero(self._plain & (headers.number == number)))
        for number in (*BODIES, *_ENDINGS):
            rows = np.flatnonzero(self._plain & (headers.number == number))
            if rows.size:
                (self._read_endings if number in _ENDINGS else self._read_bodies)(number, rows)
        self._read_agents(np.flatnonzero(self._plain & (headers.number == EventType.GENERIC)))
        keep = self._plain
        for row in np.flatnonzero(~self._plain).tolist():
            keep[row] = self._recover(row)
        return self._finished(keep)

    def _find_plain(self, size: int) -> Flags:
        data, chunks = self._data, self._chunks
        plain = self._headers.ok & (chunks.ends - chunks.starts <= min(LINE_LIMIT, EVENT_LIMIT))
        plain[chunks.suspects] = False
        for byte in (b"\0", b"\r"):
            if data.find(byte, 0, size) >= 0:
                found = np.flatnonzero(np.frombuffer(data, np.uint8, chunks.tail) == byte[0])
                plain[np.searchsorted(chunks.starts, found, "right") - 1] = False
        if not data.isascii():
            self._leave_out_latin_1(plain)
        return plain

    def _leave_out_latin_1(self, plain: Flags) -> None:
        data, chunks = memoryview(self._data)[: self._chunks.tail], self._chunks
        try:
            str(data, "utf-8")
        except UnicodeDecodeError:
            found = np.flatnonzero(np.frombuffer(data, np.uint8) > 0x7F)
            plain[np.searchsorted(chunks.starts, found, "right") - 1] = False

    def _bodies(self, rows: Longs) -> Bodies:
        chunks = self._chunks
        first, last = chunks.first[rows], chunks.last[rows]
        text = self._headers.text[rows]
        return Bodies(self._block, self._caches, text, chunks.newlines, first, last)

    def _read_stages(self, number: int, rows: Longs) -> None:
        """Read the kinds of events of one number from their headers."""
        chunks, texts = self._chunks, self._headers.text[rows]
        ends = chunks.newlines[chunks.first[rows]]
        self._columns["kind"][rows] = stage_kinds(self._block, number, texts, ends)

    def _read_bodies(self, number: int, rows: Longs) -> None:
        """Read the bodies of events of one number, those of unusual form one by one."""
        columns, chunks = self._columns, self._chunks
        if number == EventType.FILE_TRANSFER:  # most have no body
            rows = rows[chunks.newlines[chunks.first[rows]] < chunks.ends[rows]]
        found, odd = BODIES[number](self._bodies(rows))
        for name, values in found.items():
            columns[name][rows] = values
        if number == EventType.AD_INFORMATION:
            bare = rows[self._headers.minute[rows] % ZONE >= YEARLESS]
            self._note_hints(number, bare, self._rests(bare))
        self._read_odd(number, rows[odd])

    def _read_odd(self, number: int, rows: Longs) -> None:
        """Read bodies of any form, one by one."""
        if not rows.size:
            return
        rests = self._rests(rows)
        self._put(number, dict(zip(rows.tolist(), rests, strict=True)))
        if number == EventType.TERMINATED:
            self._note_hints(number, rows, rests)

    def _read_endings(self, number: int, rows: Longs) -> None:
        """Read the bodies of 004 or 005 events line by line."""
        read = self._read_evicted if number == EventType.EVICTED else self._read_terminated
        endings = read(rows, self._bodies(rows))
        usual = ~endings.odd
        self._usage.append((rows[usual], endings.measured[usual]))
        self._read_odd(number, rows[endings.odd])

    def _read_terminated(self, rows: Longs, bodies: Bodies) -> Endings:
        columns, endings = self._columns, Endings(bodies, np.zeros(len(rows), np.bool_))
        pairs = [self._caches.endings[line] for line in endings.lines(0)]
        if None in pairs:
            endings.odd |= [pair is None for pair in pairs]
        columns["value"][rows], columns["signal"][rows] = value, _ = columns_of_pairs(pairs)
        columns["kind"][rows] = np.where(value == 0, Kind.SUCCEEDED, Kind.FAILED)
        usual = ~endings.odd
        self._hints.append((rows[usual], endings.utc[usual]))
        unclear = rows[usual & endings.unclear]
        self._note_hints(EventType.TERMINATED, unclear, self._rests(unclear))
        return endings

    def _read_evicted(self, rows: Longs, bodies: Bodies) -> Endings:
        columns, caches, header_ends = self._columns, self._caches, bodies.newlines[bodies.first]
        requeued = self._block.says(header_ends + 1, _REQUEUED)
        endings = Endings(bodies, requeued)
        texts = self._block.slices(bodies.text, header_ends)
        pairs = [caches.evicted_codes[text] for text in texts]
        if None in pairs:
            endings.odd |= [pair is None for pair in pairs]
        columns["code"][rows], columns["subcode"][rows] = code, _ = columns_of_pairs(pairs)
        kinds = np.where(np.isin(code, list(TRANSFER_CODES)), Kind.TRANSFER_FAILED, Kind.EVICTED)
        columns["kind"][rows] = np.where(requeued, Kind.REQUEUED, kinds)
        again = np.flatnonzero(requeued & ~endings.odd)
        if again.size:
            pairs = [caches.endings[line] for line in endings.lines(ENDING_LINE, again)]
            endings.odd[again] = [pair is None for pair in pairs]
            mine = rows[again]
            columns["value"][mine], columns["signal"][mine] = columns_of_pairs(pairs)
        given = np.flatnonzero((endings.reason >= 0) & ~endings.odd)
        reasons = endings.reasons(given, requeued)
        columns["text"][rows[given]] = self._strings.place_all(reasons)
        return endings

    def _rests(self, rows: Longs) -> list[bytes]:
        return self._block.slices(self._headers.text[rows], self._chunks.ends[rows])

    def _read_agents(self, rows: Longs) -> None:
        """Read the agent's lines among the 008 events, which anybody can write."""
        rests = zip(rows.tolist(), self._rests(rows), strict=True)
        self._put(EventType.GENERIC, {row: rest for row, rest in rests if b"headway" in rest})

    def _put(self, number: int, rests: dict[int, bytes]) -> None:
        """Write what events of any form say into their rows, given what follows their headers."""
        lines = {row: decoded(rest).split("\n") for row, rest in rests.items()}
        events = {
            row: Event(number, 0, 0, 0, 0.0, text, tuple(body))
            for row, (text, *body) in lines.items()
        }
        self._usage.append(put_events(self._columns, events, self._strings))

    def _note_hints(self, number: int, rows: Longs, rests: list[bytes]) -> None:
        """Note the times in UTC, or below zero those of ads, that these events tell."""
        ads = number == EventType.AD_INFORMATION
        times = [ad_time(rest) if ads else utc_hint(rest) for rest in rests]
        found = np.array([np.nan if time is None else time for time in times], np.float64)
        self._hints.append((rows, -found if ads else found))

    def _recover(self, row: int) -> bool:
        """Read a chunk that may be damaged; whether it holds an event."""
        chunks, columns = self._chunks, self._columns
        one = slice(row, row + 1)
        start = int(self._origin.behind(chunks.begins[one])[0])
        end = int(self._origin.at(chunks.ends[one])[0])
        chunk = self._origin.data[start:end]
        if self._origin.data[end + len(END) - 1] == _RETURN:
            chunk += b"\r"
        while len(chunk) > EVENT_LIMIT:
            self._skip(start, chunk[:EVENT_LIMIT], NO_END)
            chunk = chunk[EVENT_LIMIT:]
            start += EVENT_LIMIT
        header, lost, why = find_header(chunk)
        self._skip(start, chunk[:lost], why)
        if not header:
            return False
        digits, cluster, proc, subproc, minute, second, fraction, zone = header.groups()
        number = int(digits)
        columns["number"][row] = number
        columns["cluster"][row] = int(cluster)
        columns["proc"][row] = int(proc)
        columns["subproc"][row] = int(subproc)
        columns["minute"][row] = _minute_key(minute, zone)
        columns["second"][row] = int(second)
        columns["fraction"][row] = float(fraction or 0)
        columns["offset"][row] = self._offset + start + header.start()
        columns["length"][row] = len(chunk) - header.start()
        at = self._offset + start + header.end()
        rest = cut_lines(chunk[header.end() :], at, self._skipped)
        self._put(number, {row: rest})
        bare = number == EventType.AD_INFORMATION and minute[2] == 0x2F
        if number == EventType.TERMINATED or bare:
            self._note_hints(number, np.array([row]), [rest])
        return True

    def _skip(self, start: int, lost: bytes, why: str) -> None:
        if not blank(lost):
            self._skipped.add(self._offset + start, len(lost), why)

    def _finished(self, keep: Flags) -> EventArrays:
        usage_row, usage = _in_order(self._usage, np.empty((0, len(MEASURED))))
        hint_row, hint = _in_order(self._hints, np.empty(0))
        measured, hinted = ~np.isnan(usage).all(axis=1), ~np.isnan(hint)
        part = EventArrays(
            self._columns,
            usage_row[measured],
            usage[measured],
            hint_row[hinted],
            hint[hinted],
            self._strings.all,
            [(0, skip) for skip in self._skipped],
        )
        return part if keep.all() else selected(part, keep)


def _in_order(found: list[tuple[Longs, Floats]], none: Floats) -> tuple[Longs, Floats]:
    rows = np.concatenate([np.empty(0, np.int64), *(row for row, _ in found)])
    order = np.argsort(rows, kind="stable")
    return rows[order], np.concatenate([none, *(table for _, table in found)])[order]


def _minute_key(minute: bytes, zone: bytes | None) -> int:
    digits = int(bytes(byte for byte in minute if 0x30 <= byte <= 0x39))
    key = digits + YEARLESS if minute[2] == 0x2F else digits
    if zone is None:
        return key
    if zone == b"Z":
        return key + ZONE
    west = 10000 if zone[:1] == b"-" else 0
    return key + (2 + west + int(zone[1:3]) * 100 + int(zone[-2:])) * ZONE
