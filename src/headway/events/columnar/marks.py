"""The end marks of a block of a text log, and the chunks between them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headway.events.chunk import END
from headway.events.columnar.headers import (
    Flags,
    Longs,
    Words,
    headers_among,
    mask,
    u64,
    word,
    words,
)

_HEADER = b"000 ("
_MARK = b"...\n"
_MARK_WITH_CARRIAGE = b"...\r\n"


class Chunks(NamedTuple):
    """Where the complete chunks of a block are."""

    starts: Longs
    ends: Longs
    newlines: Longs
    first: Longs  # the newline that ends the first line, among them
    last: Longs  # the newline before the end mark, among them
    carriage: Flags | None  # whether the end mark has one
    suspects: Longs  # chunks with more than one header
    tail: int  # where the last chunk's end mark ends


def find_chunks(data: bytes, size: int) -> Chunks:
    """The chunks of a padded block, whose own bytes are the first `size`."""
    newlines = np.flatnonzero(np.frombuffer(data, np.uint8, size) == 0x0A)
    lines = words(data)[newlines + 1]
    marks = (lines & mask(_MARK)) == word(_MARK)
    with_carriage = b"\r" in data
    if with_carriage:
        marks |= (lines & mask(_MARK_WITH_CARRIAGE)) == word(_MARK_WITH_CARRIAGE)
    ends = np.flatnonzero(marks)
    ends = _without_overlaps(ends)
    if not ends.size:
        return Chunks(ends, ends, newlines, ends, ends, None, ends, 0)
    stops = newlines[ends + 1] + 1
    starts = np.concatenate([[0], stops[:-1]])
    first = np.concatenate([[0], ends[:-1] + 2])
    carriage = stops - newlines[ends] > len(END) if with_carriage else None
    suspects = _nested(newlines, lines, starts, int(stops[-1]))
    return Chunks(starts, newlines[ends], newlines, first, ends, carriage, suspects, int(stops[-1]))


def _nested(newlines: Longs, lines: Words, starts: Longs, tail: int) -> Longs:
    """The chunks in which a line below the first looks like a header."""
    headers = np.flatnonzero((lines & mask(_HEADER)) >> u64(24) == word(_HEADER[3:]))
    headers = newlines[headers[headers_among(lines[headers])]] + 1
    headers = headers[headers < tail]
    if np.array_equal(headers, starts[1:]):  # mostly
        return starts[:0]
    chunk = np.searchsorted(starts, headers, "right") - 1
    return np.asarray(chunk[starts[chunk] != headers])


def _without_overlaps(ends: Longs) -> Longs:
    # Of two marks that share a newline the first counts.
    follows = np.diff(ends) == 1
    if not follows.any():
        return ends
    place = np.arange(len(ends))
    run = np.maximum.accumulate(np.where(np.concatenate([[True], ~follows]), place, 0))
    return np.asarray(ends[(place - run) % 2 == 0])
