"""Scanning a text log: bytes in, columns out, with no object for an event in between.

`read.Parser` says what is right; a chunk that is not one plain event goes through the same rules.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.events.clock import ad_time, utc_hint
from headway.events.columnar.bodies import BODIES, Bodies, Endings, transfer_kinds
from headway.events.columnar.columns import (
    Part,
    Strings,
    blank_columns,
    is_nothing,
    joined,
    kept,
    measurements,
    no_events,
    put_rows,
)
from headway.events.columnar.details import READERS, Details, by_event
from headway.events.columnar.headers import (
    PAD,
    YEARLESS,
    ZONE,
    Chunks,
    Floats,
    Longs,
    View,
    find_chunks,
    read_headers,
    without_carriages,
)
from headway.events.event import BY_NUMBER, TRANSFER_CODES, Kind
from headway.events.format import REQUEUED
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
    look,
)

_KINDS = np.zeros(1000, np.uint8)
for _number, _kind in BY_NUMBER.items():
    _KINDS[_number] = _kind

_EVICTED, _TERMINATED, _GENERIC, _AD, _TRANSFER = 4, 5, 8, 28, 40
_ENDINGS = (_EVICTED, _TERMINATED)
_RETURN = 0x0D
_REQUEUED = REQUEUED.raw[0]


class Scanner:
    """Turns the bytes of a log, in pieces of any size, into parts."""

    def __init__(self, offset: int = 0) -> None:
        #: The end of the last complete event.
        self.offset = offset
        self._tail = b""
        self._strings = Strings()
        self._details = Details(self._strings)
        self._parts: list[Part] = []
        #: What lies between the blocks of events.
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
            part = _Block(data, size, self.offset, chunks, self._details, origin).part()
            self._parts.append(part)
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
        """Let go of the first bytes behind the last complete event."""
        if not blank(self._tail[:count]):
            self._skipped.add(self.offset, count, NO_END)
        self._tail = self._tail[count:]
        self.offset += count

    def close(self) -> None:
        """The file ends here; an editor may have taken its last newline away."""
        if self._tail.endswith(END[:-1]):
            self.feed(b"\n")

    @property
    def pending(self) -> bytes:
        """What lies behind the last complete event."""
        return self._tail

    def part(self) -> Part:
        """All that was found, as events of one file."""
        part = joined(self._parts) if self._parts else no_events()
        part.strings = self._strings.all
        part.sizes = [len(part)]
        part.skipped = bounded([*part.skipped, *((0, skip) for skip in self._skipped)])
        return part


class Origin(NamedTuple):
    """A block as it was before its carriage returns were removed, those before a newline."""

    data: bytes
    removed: Longs  # the newlines that had one, as places in the block without

    def at(self, places: Longs) -> Longs:
        """Where these places of the block without carriage returns were."""
        if not self.removed.size:
            return places
        return places + np.searchsorted(self.removed, places, "right")

    def behind(self, places: Longs) -> Longs:
        """Where these places, each of them behind a newline or at the start, were."""
        return np.where(places > 0, self.at(places - 1) + 1, 0)


class _Block:
    """The complete chunks of some bytes on their way to a part."""

    def __init__(
        self,
        data: bytes,
        size: int,
        offset: int,
        chunks: Chunks,
        details: Details,
        origin: Origin,
    ) -> None:
        self._data, self._offset, self._chunks = data, offset, chunks
        self._origin = origin
        self._view = View(data)
        self._details, self._strings = details, details.strings
        self._skipped = Skips()
        self._usage: list[tuple[Longs, Floats]] = []
        self._hints: list[tuple[Longs, Floats]] = []
        self._headers = read_headers(data, chunks.starts)
        self._plain = self._find_plain(size)
        self._columns = blank_columns(len(chunks.starts))

    def part(self) -> Part:
        """The events of these chunks."""
        chunks, headers, columns = self._chunks, self._headers, self._columns
        columns["number"][:] = headers.number
        columns["cluster"][:] = headers.cluster
        columns["proc"][:] = headers.proc
        columns["subproc"][:] = headers.subproc
        columns["minute"][:] = headers.minute
        columns["second"][:] = headers.second
        if headers.fraction is not None:
            columns["fraction"][:] = headers.fraction
        starts = self._origin.behind(chunks.starts)
        columns["offset"][:] = starts + self._offset
        columns["length"][:] = self._origin.at(chunks.ends) - starts
        columns["kind"][:] = _KINDS[headers.number % 1000]
        for number in (*BODIES, *_ENDINGS):
            rows = np.flatnonzero(self._plain & (headers.number == number))
            if rows.size:
                (self._read_endings if number in _ENDINGS else self._read_bodies)(number, rows)
        self._read_agents(np.flatnonzero(self._plain & (headers.number == _GENERIC)))
        keep = self._plain
        for row in np.flatnonzero(~self._plain).tolist():
            keep[row] = self._recover(row)
        return self._finished(keep)

    def _find_plain(self, size: int) -> NDArray[np.bool_]:
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

    def _leave_out_latin_1(self, plain: NDArray[np.bool_]) -> None:
        data, chunks = memoryview(self._data)[: self._chunks.tail], self._chunks
        try:
            str(data, "utf-8")
        except UnicodeDecodeError:
            found = np.flatnonzero(np.frombuffer(data, np.uint8) > 0x7F)
            plain[np.searchsorted(chunks.starts, found, "right") - 1] = False

    def _bodies(self, rows: Longs) -> Bodies:
        chunks = self._chunks
        first, last = chunks.first[rows], chunks.last[rows]
        return Bodies(
            self._view, self._details, self._headers.text[rows], chunks.newlines, first, last
        )

    def _read_bodies(self, number: int, rows: Longs) -> None:
        """Read the bodies of events of one number, those that are of the usual shape."""
        columns, chunks = self._columns, self._chunks
        if number == _TRANSFER:
            texts, ends = self._headers.text[rows], chunks.newlines[chunks.first[rows]]
            columns["kind"][rows] = transfer_kinds(self._view, texts, ends)
            rows = rows[ends < chunks.ends[rows]]
        found, odd = BODIES[number](self._bodies(rows))
        for name, values in found.items():
            columns[name][rows] = values
        if number == _AD:
            bare = rows[self._headers.minute[rows] % ZONE >= YEARLESS]
            self._note_ads(bare, self._rests(bare))
        self._read_odd(number, rows[odd])

    def _read_odd(self, number: int, rows: Longs) -> None:
        """Read bodies one by one."""
        if not rows.size:
            return
        columns = self._columns
        read, names = READERS[number]
        rests = self._rests(rows)
        found = [read(self._details, rest) for rest in rests]
        if number == _TERMINATED:
            self._note_hints(rows, rests)
        if None in found:
            odd = [at for at, made in enumerate(found) if made is None]
            self._put(number, {int(rows[at]): rests[at] for at in odd})
            rows = np.delete(rows, odd)
            found = [made for made in found if made is not None]
        for name, values in zip(names, zip(*found, strict=True), strict=False):
            columns[name][rows] = values
        if number in _ENDINGS:
            self._usage.append((rows, measurements([made.measured for made in found])))

    def _read_endings(self, number: int, rows: Longs) -> None:
        """Read the bodies of 004 or 005 events line by line, those that are of the usual shape."""
        columns, chunks, details = self._columns, self._chunks, self._details
        if number == _EVICTED:
            # Those that were requeued have lines of their own.
            again = self._view.says(chunks.newlines[chunks.first[rows]] + 1, _REQUEUED)
            self._read_odd(number, rows[again])
            rows = rows[~again]
        endings = Endings(self._bodies(rows))
        firsts = self._view.slices(*endings.first_lines())
        if number == _TERMINATED:
            found = [details.endings[line] for line in firsts]
        else:
            texts = self._view.slices(self._headers.text[rows], chunks.newlines[chunks.first[rows]])
            found = [
                None if details.requeued[line] else details.evicted_codes[text]
                for line, text in zip(firsts, texts, strict=True)
            ]
        if None in found:
            endings.odd |= [pair is None for pair in found]
        usual = np.flatnonzero(~endings.odd)
        mine = rows[usual]
        one, two = np.array([found[at] for at in usual.tolist()], np.int32).reshape(-1, 2).T
        if number == _TERMINATED:
            columns["value"][mine], columns["signal"][mine] = one, two
            columns["kind"][mine] = np.where(one == 0, Kind.SUCCEEDED, Kind.FAILED)
            self._hints.append((mine, endings.utc[usual]))
            unclear = mine[endings.unclear[usual]]
            self._note_hints(unclear, self._rests(unclear))
        else:
            columns["code"][mine], columns["subcode"][mine] = one, two
            failed = np.isin(one, list(TRANSFER_CODES))
            columns["kind"][mine] = np.where(failed, Kind.TRANSFER_FAILED, Kind.EVICTED)
            given = usual[endings.reason[usual] >= 0]
            starts, ends = endings.line(endings.reason[given])
            reasons = self._view.texts(starts + len(b"\tReason: "), ends)
            columns["text"][rows[given]] = self._strings.place_all(reasons)
        self._usage.append((mine, endings.measured[usual]))
        self._read_odd(number, rows[endings.odd])

    def _rests(self, rows: Longs) -> list[bytes]:
        return self._view.slices(self._headers.text[rows], self._chunks.ends[rows])

    def _read_agents(self, rows: Longs) -> None:
        """Lines of the agent among events that anybody can write."""
        rests = zip(rows.tolist(), self._rests(rows), strict=True)
        self._put(_GENERIC, {row: rest for row, rest in rests if b"headway" in rest})

    def _put(self, number: int, rests: dict[int, bytes]) -> None:
        """Write what events of any shape say into their places."""
        rows = {row: by_event(number, rest) for row, rest in rests.items()}
        put_rows(self._columns, list(rows), list(rows.values()), self._strings)
        measured = {row: made.measured for row, made in rows.items()}
        measured = {row: made for row, made in measured.items() if not is_nothing(made)}
        self._usage.append((np.array(list(measured), np.int64), measurements([*measured.values()])))

    def _note_hints(self, rows: Longs, rests: list[bytes]) -> None:
        found = [utc_hint(rest) for rest in rests]
        utc = [np.nan if hint is None else hint for hint in found]
        self._hints.append((rows, np.array(utc, np.float64)))

    def _note_ads(self, rows: Longs, rests: list[bytes]) -> None:
        found = [ad_time(rest) for rest in rests]
        told = [np.nan if time is None else -time for time in found]
        self._hints.append((rows, np.array(told, np.float64)))

    def _recover(self, row: int) -> bool:
        """Read a chunk that is not plain, whatever it is; whether it holds an event."""
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
        found = look(chunk)
        self._skip(start, chunk[: found.lost], found.why)
        if not found.header:
            return False
        number, cluster, proc, subproc, minute, second, fraction, zone = found.header.groups()
        columns["number"][row] = int(number)
        columns["cluster"][row] = int(cluster)
        columns["proc"][row] = int(proc)
        columns["subproc"][row] = int(subproc)
        columns["minute"][row] = _minute_key(minute, zone)
        columns["second"][row] = int(second)
        columns["fraction"][row] = float(fraction or 0)
        columns["offset"][row] = self._offset + start + found.header.start()
        columns["length"][row] = len(chunk) - found.header.start()
        at = self._offset + start + found.header.end()
        rest = cut_lines(chunk[found.header.end() :], at, self._skipped)
        self._put(int(number), {row: rest})
        if int(number) == _TERMINATED:
            self._note_hints(np.array([row]), [rest])
        elif int(number) == _AD and minute[2] == 0x2F:
            self._note_ads(np.array([row]), [rest])
        return True

    def _skip(self, start: int, lost: bytes, why: str) -> None:
        if not blank(lost):
            self._skipped.add(self._offset + start, len(lost), why)

    def _finished(self, keep: NDArray[np.bool_]) -> Part:
        usage_row, usage = _in_order(self._usage)
        measured = ~np.isnan(usage).all(axis=1)
        usage_row, usage = usage_row[measured], usage[measured]
        hint_row = np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in self._hints)])
        hint = np.concatenate([np.empty(0), *(utc for _, utc in self._hints)])
        told = np.flatnonzero(~np.isnan(hint))
        told = told[np.argsort(hint_row[told], kind="stable")]
        hint_row, hint = hint_row[told], hint[told]
        part = Part(
            self._columns,
            usage_row,
            usage,
            hint_row,
            hint,
            self._strings.all,
            [(0, skip) for skip in self._skipped],
        )
        return part if keep.all() else kept(part, keep)


def _in_order(found: list[tuple[Longs, Floats]]) -> tuple[Longs, Floats]:
    rows = np.concatenate([np.empty(0, np.int64), *(row for row, _ in found)])
    order = np.argsort(rows)
    return rows[order], np.concatenate([measurements([]), *(table for _, table in found)])[order]


def _minute_key(minute: bytes, zone: bytes | None) -> int:
    digits = int(bytes(byte for byte in minute if 0x30 <= byte <= 0x39))
    key = digits + YEARLESS if minute[2] == 0x2F else digits
    if zone is None:
        return key
    if zone == b"Z":
        return key + ZONE
    west = 10000 if zone[:1] == b"-" else 0
    return key + (2 + west + int(zone[1:3]) * 100 + int(zone[-2:])) * ZONE
