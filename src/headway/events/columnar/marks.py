"""The end marks of a block of a text log, and the chunks between them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headway.events.columnar.headers import (
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
#: Blank lines before a header that are passed over; what has more is read with care.
_BLANK_LINES = 4


class Chunks(NamedTuple):
    """Where the complete chunks of a block are."""

    begins: Longs
    starts: Longs  # behind blank lines
    ends: Longs
    newlines: Longs
    first: Longs  # the newline that ends the line at `starts`, among them
    last: Longs  # the newline before the end mark, among them
    suspects: Longs  # chunks with more than one header
    tail: int  # where the last chunk's end mark ends


def find_chunks(data: bytes, size: int) -> Chunks:
    """The chunks of a padded block, whose own bytes are the first `size`."""
    newlines = np.flatnonzero(np.frombuffer(data, np.uint8, size) == 0x0A)
    lines = words(data)[newlines + 1]
    ends = np.flatnonzero((lines & mask(_MARK)) == word(_MARK))
    ends = _without_overlaps(ends)
    if not ends.size:
        return Chunks(ends, ends, ends, newlines, ends, ends, ends, 0)
    stops = newlines[ends + 1] + 1
    begins = np.concatenate([[0], stops[:-1]])
    first = np.concatenate([[0], ends[:-1] + 2])
    starts = begins
    at_byte = np.frombuffer(data, np.uint8)
    for _ in range(_BLANK_LINES):
        blank = (at_byte[starts] == 0x0A) & (first < ends)
        if not blank.any():
            break
        starts, first = starts + blank, first + blank
    suspects = _nested(newlines, lines, starts, int(stops[-1]))
    tail = int(stops[-1])
    return Chunks(begins, starts, newlines[ends], newlines, first, ends, suspects, tail)


def without_carriages(data: bytes, size: int) -> tuple[bytes, int, Longs]:
    """The block with plain newlines, its size, and the newlines that had a carriage return."""
    byte = np.frombuffer(data, np.uint8, size)
    found = np.flatnonzero(byte == 0x0D)
    found = found[found + 1 < size]
    found = found[byte[found + 1] == 0x0A]
    clean = data[:size].replace(b"\r\n", b"\n")
    return clean + data[size:], len(clean), found - np.arange(len(found))


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
