"""The bodies of 004 and 005 events, all lines of a block at once.

A body with any line that HTCondor does not write just so is left to `details`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headway.events.columnar.bodies import Bodies, Lines
from headway.events.columnar.headers import (
    TENS,
    Flags,
    Longs,
    Template,
    Words,
    integers,
    long_integers,
    two,
    u64,
    word,
)
from headway.events.columnar.rows import Measured
from headway.events.columnar.view import begins

_WIDTH = len(Measured._fields)
_HEADER = b"\tPartitionable Resources :"
_COLON = _HEADER.index(b":")
#: How far a table may reach, and how wide its cells may be.
_REACH, _CELL = 64, 16
_SPACES, _HIGH = word(b" " * 8), word(b"\x80" * 8)
_USED, _ASKED = 0, 1
_ACCORD = b"\tJob terminated of its own accord at "
_DAY, _HOUR, _SECOND = Template(b"0000-00-"), Template(b"00T00:00"), Template(b":00Z????")

#: The beginning of a resource's line, what follows it, and which cells belong where in `Measured`;
#: -1: nowhere.
_RESOURCES = (
    (b"\t   Memo", b"ry ", (_USED, 0), (_ASKED, 1)),
    (b"\t   Disk", b" ", (_USED, 2), (_ASKED, 3)),
    (b"\t   Cpus", b" ", (_USED, 4), (_ASKED, 5)),
    (b"\t   GPUs", b" ", (_USED, -1), (_ASKED, 6)),
    (b"\t   Time", b"Execute ", (_USED, 10), (_ASKED, -1)),
    (b"\t   Time", b"SlotBusy", (_USED, 11), (_ASKED, -1)),
)
_TIME = b"\t   Time"
_CPU, _SENT, _RECEIVED = 7, 8, 9
_CLOCK = Template(b" 00:00:0")


class Endings:
    """What the lines of some bodies say."""

    def __init__(self, bodies: Bodies) -> None:
        self._view, self._lines = bodies.view, Lines(bodies)
        self._word, self._byte = bodies.view.word, bodies.view.byte
        self._owner = self._lines.owner
        self._start, self._end = self._lines.start, self._lines.end
        count = len(bodies.first)
        #: Bodies that have to be read in another way.
        self.odd = bodies.last == bodies.first
        self.measured = np.full((count, _WIDTH), np.nan)
        #: The lines with a reason, by body; -1 for none.
        self.reason = np.full(count, -1)
        #: The times in UTC that bodies tell, and where they might, but not in the usual words.
        self.utc = np.full(count, np.nan)
        self.unclear = np.zeros(count, np.bool_)
        self._titles = bodies.details.titles
        self._read()

    def line(self, lines: Longs) -> tuple[Longs, Longs]:
        """Where lines begin and end."""
        return self._start[lines], self._end[lines]

    def first_lines(self) -> tuple[Longs, Longs]:
        """Where the first line of each body begins and ends; of an odd one perhaps nowhere."""
        firsts = self._lines.begins
        at = np.minimum(firsts, max(len(self._start) - 1, 0))
        return self.line(at) if len(self._start) else (firsts, firsts)

    def _read(self) -> None:
        begin = self._lines.word
        known = self._start == self._end
        known |= begins(begin, b"\t(0)") | begins(begin, b"\t(1)")
        told = begins(begin, b"\tJob ter")
        self._moments(np.flatnonzero(told))
        known |= told
        known |= self._reasons(begin)
        known |= self._cpu_times(begins(begin, b"\t\tUsr "))
        known |= self._transferred(begin)
        known |= self._table(begin)
        self.odd[self._owner[~known]] = True

    def _once(self, lines: Longs) -> Longs:
        return self._lines.once(lines, self.odd)

    def _moments(self, lines: Longs) -> None:
        """Read when jobs ended of their own accord."""
        owners, at = self._owner[lines], self._start[lines]
        good = self._view.says(at, _ACCORD)
        at = at + len(_ACCORD)
        day, hour, second = self._word[at], self._word[at + 8], self._word[at + 16]
        good &= _DAY.fits(day)
        # The day of the month stands in the third byte behind the dash.
        good &= _HOUR.fits(hour) & _SECOND.fits(second)
        date, clock = _DAY.pairs(day), _HOUR.pairs(hour)
        year = two(date, 0) * 100 + two(date, 2)
        month, of_month = two(date, 5), two(clock, 0)
        hours, minutes, seconds = two(clock, 3), two(clock, 6), two(_SECOND.pairs(second), 1)
        good &= (year > 1970) & (month >= 1) & (month <= 12) & (of_month >= 1) & (of_month <= 28)
        good &= (hours < 24) & (minutes < 60) & (seconds < 60)
        months = (year - 1970) * 12 + month - 1
        days = np.where(good, months, 0).astype("datetime64[M]").astype("datetime64[D]")
        whole = days.astype(np.int64) + of_month - 1
        self.utc[owners] = np.where(
            good, ((whole * 24 + hours) * 60 + minutes) * 60 + seconds, np.nan
        )
        several = owners[1:][owners[1:] == owners[:-1]]
        self.unclear[owners[~good]] = True
        self.unclear[several] = True
        self.utc[self.unclear] = np.nan

    def _reasons(self, begin: Words) -> Flags:
        found: Flags = begins(begin, b"\tReason:") & (self._byte[self._start + 8] == 0x20)
        lines = np.flatnonzero(found)
        self.reason[self._once(lines)] = lines
        return found

    def _cpu_times(self, candidates: Flags) -> Flags:
        lines = np.flatnonzero(candidates)
        at = self._start[lines] + 6
        good = np.ones(len(lines), np.bool_)
        seconds = np.zeros(len(lines), np.int64)
        for after in (b", Sys ", b""):
            days, width = integers(self._word[at])
            at = at + width
            clock, rest = self._word[at], self._word[at + 8]
            good &= (width > 0) & _CLOCK.fits(clock) & (_digit(self._byte[at + 8]))
            good &= begins(rest >> u64(8), after)
            pairs = _CLOCK.pairs(clock)
            last = two(pairs, 7) + self._byte[at + 8] - 0x30
            seconds += ((days * 24 + two(pairs, 1)) * 60 + two(pairs, 4)) * 60 + last
            at = at + 9 + len(after)
        run = self._view.says(at, b"  -  Run Remote Usage")
        mine = lines[run & good]
        self.measured[self._once(mine), _CPU] = seconds[run & good]
        candidates[lines[~good]] = False
        return candidates

    def _transferred(self, begin: Words) -> Flags:
        found: Flags = ((begin & u64(0xFF)) == 0x09) & _digit((begin >> u64(8)) & u64(0xFF))
        lines = np.flatnonzero(found)
        at = self._start[lines] + 1
        value, width = long_integers(self._word, at)
        at = at + width
        good = self._view.says(at, b"  -  Total ")
        for text, place in (
            (b"  -  Run Bytes Sent By Job", _SENT),
            (b"  -  Run Bytes Received By Job", _RECEIVED),
        ):
            here = self._view.says(at, text)
            self.measured[self._once(lines[here]), place] = value[here]
            good |= here
        found[lines[~good]] = False
        return found

    def _table(self, begin: Words) -> Flags:
        header = begins(begin, _HEADER[:8])
        lines = np.flatnonzero(header)
        good = self._view.says(self._start[lines], _HEADER)
        titles = self._view.slices(self._start[lines], self._end[lines])
        ends = np.array([self._titles[title] for title in titles], np.int64).reshape(-1, 2)
        good &= (ends[:, 0] > _COLON) & (ends[:, 1] > ends[:, 0]) & (ends[:, 1] <= _REACH)
        self._stops = np.zeros((len(self.odd), 2), np.int64)
        self._stops[self._once(lines)] = ends
        header[lines[~good]] = False
        row = begins(begin, b"\t   ") & (self._end - self._start > _COLON)
        row &= self._byte[self._start + _COLON] == 0x3A
        row &= self._byte[self._start + 4] > 0x20
        if not self._view.ascii:  # the columns are characters, not bytes
            for column in range(0, _REACH, 8):
                row &= (self._word[self._start + column] & _HIGH) == 0
        # A table ends with the first line that is not of it.
        inside = header | row
        alone = row.copy()
        alone[1:] &= ~(inside[:-1] & (self._owner[1:] == self._owner[:-1]))
        row &= ~alone
        lines = np.flatnonzero(row)
        names, follows = begin[lines], self._word[self._start[lines] + 8]
        good = np.ones(len(lines), np.bool_)
        cells: list[tuple[Longs, int, int]] = []
        for text, after, used, asked in _RESOURCES:
            mine = begins(names, text)
            exact = mine & begins(follows, after)
            good &= ~mine | exact | (text == _TIME)
            cells += [
                (lines[exact], column, place) for column, place in (used, asked) if place >= 0
            ]
        self._cells(cells)
        row[lines[~good]] = False
        self._check_times(lines[begins(names, _TIME)])
        return np.asarray(header | row)

    def _check_times(self, lines: Longs) -> None:
        at = self._start[lines] + 8
        good = self._view.says(at, b"Execute ") | self._view.says(at, b"SlotBusy ")
        self.odd[self._owner[lines[~good]]] = True

    def _cells(self, cells: list[tuple[Longs, int, int]]) -> None:
        """Read these cells of these lines into their places.

        A number stands anywhere in its cell, with nothing but blanks around it.
        """
        lines = np.concatenate([lines for lines, _, _ in cells])
        sizes = [len(lines) for lines, _, _ in cells]
        place = np.repeat([place for _, _, place in cells], sizes)
        column = np.repeat([column for _, column, _ in cells], sizes)
        owner, start = self._owner[lines], self._start[lines]
        stops = self._stops[owner]
        at = start + np.where(column == _USED, _COLON + 1, stops[:, 0])
        stop = np.minimum(
            start + np.where(column == _USED, stops[:, 0], stops[:, 1]), self._end[lines]
        )
        size = np.maximum(stop - at, 0)
        low, high = self._word[at], self._word[at + 8]
        # What is behind the cell becomes zero, which counts as blank.
        low &= _KEEP[np.minimum(size, 8)]
        high &= _KEEP[np.clip(size - 8, 0, 8)]
        lead = _zero_bytes(low ^ _SPACES)
        low, high = _shifted(low, high, lead)
        more = np.flatnonzero(lead == 8)
        if more.size:
            low[more], high[more] = _shifted(
                low[more], high[more], _zero_bytes(low[more] ^ _SPACES)
            )
        value, width = integers(low)
        found = value.astype(np.float64)
        long = np.flatnonzero(width == 8)
        if long.size:
            digits, wider = integers(high[long])
            found[long] = value[long] * TENS[wider] + digits
            width[long] += wider
        rest = width.astype(np.uint64)
        point = np.flatnonzero(
            (_at(low, np.minimum(rest, u64(7))) == 0x2E) & (width > 0) & (width < 7)
        )
        if point.size:
            digits, places = integers(low[point] >> ((rest[point] + u64(1)) << u64(3)))
            power = TENS[places]
            found[point] = (value[point] * power + digits) / power
            rest[point] += (places + 1).astype(np.uint64)
        low, high = _shifted(low, high, np.minimum(rest, u64(8)))
        long = np.flatnonzero(rest > 8)
        if long.size:
            low[long], high[long] = _shifted(low[long], high[long], rest[long] - u64(8))
        empty = width == 0
        found[empty] = np.nan
        good = (size <= _CELL) & (((low | high) & ~_SPACES) == 0)
        self.odd[owner[~good]] = True
        self.measured[owner, place] = found


#: The bits of the first bytes of a word, by how many.
_KEEP = np.array([256**n - 1 for n in range(9)], np.uint64)


def _shifted(low: Words, high: Words, count: Words) -> tuple[Words, Words]:
    """Two words as one of sixteen bytes, without its first ones, which are 8 at most."""
    bits = count << u64(3)
    # A shift by all 64 bits does nothing in C.
    whole = count == 8
    back = np.where(count == 0, u64(0), high << (u64(64) - np.maximum(bits, u64(1))))
    made = np.where(whole, high, (low >> np.where(whole, u64(0), bits)) | back)
    return made, np.where(whole, u64(0), high >> np.where(whole, u64(0), bits))


def _digit(byte: NDArray[np.unsignedinteger]) -> Flags:
    return np.asarray((byte >= 0x30) & (byte <= 0x39))


def _zero_bytes(found: Words) -> Words:
    """How many of the first bytes are zero; 8 where all are."""
    low = found & (~found + u64(1))
    return np.bitwise_count(low - u64(1)).astype(np.uint64) >> u64(3)


def _at(found: Words, place: Words) -> Words:
    return (found >> (place << u64(3))) & u64(0xFF)
