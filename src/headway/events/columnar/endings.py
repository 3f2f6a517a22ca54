"""The bodies of 004 and 005 events, all lines of a block at once.

A body with any line that HTCondor does not write just so is left to `details`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headway.events.columnar.bodies import Bodies, Lines
from headway.events.columnar.headers import (
    Flags,
    Longs,
    Template,
    Words,
    integers,
    two,
    u64,
    word,
)
from headway.events.columnar.rows import Measured
from headway.events.columnar.view import begins

_WIDTH = len(Measured._fields)
_HEADER = b"\tPartitionable Resources :    Usage  Request"
_COLON = _HEADER.index(b":")
_USED, _ASKED = _COLON + 1, _HEADER.index(b"Usage") + 5
_ROW_LENGTH = len(_HEADER)
_SPACES, _HIGH = word(b" " * 8), word(b"\x80" * 8)

#: The beginning of a resource's line, what follows it, and where its cells are and belong in
#: `Measured`; -1: nowhere.
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
        #: The lines with a reason and with a time in UTC, by body; -1 for none.
        self.reason = np.full(count, -1)
        self.told = np.zeros(count, np.bool_)
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
        self.told[self._owner[told]] = True
        known |= told
        known |= self._reasons(begin)
        known |= self._cpu_times(begins(begin, b"\t\tUsr "))
        known |= self._transferred(begin)
        known |= self._table(begin)
        self.odd[self._owner[~known]] = True

    def _once(self, lines: Longs) -> Longs:
        return self._lines.once(lines, self.odd)

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
        value, width = integers(self._word[at])
        more, wider = integers(self._word[at + 8])
        long = width == 8
        value = np.where(long, value * _TENS[wider] + more, value)
        at = at + width + np.where(long, wider, 0)
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
        self._once(lines)
        header[lines[~good]] = False
        row = begins(begin, b"\t   ") & (self._end - self._start >= _ROW_LENGTH)
        row &= self._byte[self._start + _COLON] == 0x3A
        row &= self._byte[self._start + 4] > 0x20
        if not self._view.ascii:  # the columns are characters, not bytes
            for column in range(0, _ROW_LENGTH, 8):
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
        """Read cells at these columns of these lines into their places."""
        lines = np.concatenate([lines for lines, _, _ in cells])
        sizes = [len(lines) for lines, _, _ in cells]
        place = np.repeat([place for _, _, place in cells], sizes)
        at = self._start[lines] + np.repeat([column for _, column, _ in cells], sizes)
        cell = self._word[at + 1]
        lead = _zero_bytes(cell ^ _SPACES)
        value, width = integers(cell >> (lead << u64(3)))
        rest = lead + width.astype(np.uint64)
        found = value.astype(np.float64)
        point = np.flatnonzero((_at(cell, rest) == 0x2E) & (width > 0))
        if point.size:
            digits, places = integers(cell[point] >> ((rest[point] + u64(1)) << u64(3)))
            power = _TENS[places]
            found[point] = (value[point] * power + digits) / power
            rest[point] += (places + 1).astype(np.uint64)
        empty = cell == _SPACES
        found[empty] = np.nan
        good = (self._byte[at] == 0x20) & (empty | (width > 0))
        good &= (cell >> (rest << u64(3))) == (_SPACES >> (rest << u64(3)))
        self.odd[self._owner[lines[~good]]] = True
        self.measured[self._owner[lines], place] = found


#: Powers of ten; as whole numbers, and exact as floats too.
_TENS = np.array([10**n for n in range(9)])


def _digit(byte: NDArray[np.unsignedinteger]) -> Flags:
    return np.asarray((byte >= 0x30) & (byte <= 0x39))


def _zero_bytes(found: Words) -> Words:
    """How many of the first bytes are zero; 8 where all are."""
    low = found & (~found + u64(1))
    return np.bitwise_count(low - u64(1)).astype(np.uint64) >> u64(3)


def _at(found: Words, place: Words) -> Words:
    return (found >> (place << u64(3))) & u64(0xFF)
