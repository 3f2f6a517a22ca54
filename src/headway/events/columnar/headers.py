"""The headers of a block of a text log, read all at once with eight bytes in a word."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.events.columnar.columns import Bytes, Flags, Floats, Longs

Words = NDArray[np.uint64]

#: Bytes that must follow a block, so that words can be read at its end too.
PAD = 128

#: A date without a year, in a minute's key.
YEARLESS = 10**12
#: The zone's place in a minute's key: 0 none, 1 UTC, else 2 + 10000 if west + hours and minutes.
ZONE = 10**13
#: The year's place.
YEAR = 10**8
#: The days of the months.
DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


class Dates(NamedTuple):
    """The parts of minutes' keys, and which of them are dates of every year."""

    month: Longs
    day: Longs
    hour: Longs
    minute: Longs
    good: Flags

    @staticmethod
    def of(keys: Longs) -> Dates:
        """Take keys apart."""
        month, day, hour, minute = (keys // 100**n % 100 for n in (3, 2, 1, 0))
        good = (month >= 1) & (month <= 12) & (day >= 1) & (hour < 24) & (minute < 60)
        good &= day <= DAYS[np.where(good, month, 0)]
        return Dates(month, day, hour, minute, good)


def u64(number: int) -> np.uint64:
    """A constant for arithmetic with words, which keeps their type."""
    return np.uint64(number)


def word(text: bytes) -> np.uint64:
    """The word that stands for up to eight bytes."""
    return np.uint64(int.from_bytes(text, "little"))


def mask(text: bytes) -> np.uint64:
    """The bits of a word that a text takes up."""
    return np.uint64(256 ** len(text) - 1)


def words(data: bytes) -> Words:
    """The word at each byte."""
    return np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))


class Template:
    """Eight bytes of which some are fixed, and some, written as 0, are digits."""

    def __init__(self, text: bytes) -> None:
        digits = b"".join(b"\xff" if byte == 0x30 else b"\0" for byte in text)
        fixed = b"".join(b"\0" if byte in b"0?" else b"\xff" for byte in text)
        self._digits, self._fixed = word(digits), word(fixed)
        self._text = word(text.replace(b"?", b"\0"))

    def fits(self, found: Words) -> Flags:
        """Which words look like this."""
        plain = ((found ^ self._text) & self._fixed) == 0
        digits = self._values(found)
        # Adding 0x76 lifts all above 9 over 0x7f.
        beyond = ((digits + _OVER_9) | digits) & _HIGH & self._digits
        return np.asarray(plain & (beyond == 0))

    def pairs(self, found: Words) -> Words:
        """In each byte its digit times ten, plus the digit behind it."""
        digits = self._values(found)
        return digits * _TEN + (digits >> _BYTE)

    def _values(self, found: Words) -> Words:
        return (found ^ _ZEROS) & self._digits


_ZEROS, _OVER_9, _HIGH = (u64(int(byte * 8, 16)) for byte in ("30", "76", "80"))
_TEN, _BYTE, _ALL = u64(10), u64(8), u64(0xFF)

_NUMBER = Template(b"000 (???")
_DAY_OF_YEAR, _MINUTE_OF_DAY, _SECOND = (
    Template(text) for text in (b"0000-00-", b"00?00:00", b":00?????")
)
_OFFSET, _OFFSET_PLAIN = Template(b"?00:00??"), Template(b"?0000???")
#: Digits that a cluster, a proc and a subproc have at most.
_ID = 10
_YEARLESS_HOUR, _YEARLESS_SECOND = Template(b"00/00 00"), Template(b":00:00??")


def two(pairs: Words, place: int) -> Longs:
    """The number of two digits at this byte."""
    return ((pairs >> u64(8 * place)) & _ALL).astype(np.int64)


def integers(at_words: Words) -> tuple[Longs, Longs]:
    """The numbers of up to eight digits that begin these words, and how many digits they have."""
    digits = at_words ^ _ZEROS
    bad = ((digits + _OVER_9) | digits) & _HIGH
    width = np.bitwise_count((bad & (~bad + u64(1))) - u64(1)).astype(np.uint64) >> u64(3)
    value = digits << ((_BYTE - width) << u64(3))
    for ten, shift, keep in _HALVES:
        value = (value * ten + (value >> shift)) & keep
    return value.astype(np.int64), width.astype(np.int64)


_HALVES = (
    (u64(10), u64(8), u64(0x00FF00FF00FF00FF)),
    (u64(100), u64(16), u64(0x0000FFFF0000FFFF)),
    (u64(10000), u64(32), u64(0x00000000FFFFFFFF)),
)


#: Powers of ten; as whole numbers, and exact as floats too.
TENS = np.array([10**n for n in range(9)])


def long_integers(at_word: Words, at: Longs) -> tuple[Longs, Longs]:
    """The numbers of up to sixteen digits at these places, and how many digits they have."""
    value, width = integers(at_word[at])
    long = np.flatnonzero(width == 8)
    if long.size:
        more, wider = integers(at_word[at[long] + 8])
        value[long] = value[long] * TENS[wider] + more
        width[long] += wider
    return value, width


@dataclass
class Headers:
    """What the headers say; where `ok` is not set, the other values mean nothing."""

    ok: Flags
    number: Longs
    cluster: Longs
    proc: Longs
    subproc: Longs
    minute: Longs  # YYYYMMDDhhmm, see YEARLESS and ZONE
    second: Longs
    fraction: Floats | None  # None: all are 0
    text: Longs  # where the text begins


def read_headers(data: bytes, starts: Longs) -> Headers:
    """The headers that begin at these places of a padded block."""
    at_byte = np.frombuffer(data, np.uint8)
    at_word = words(data)
    first = at_word[starts]
    ok = _NUMBER.fits(first)
    pairs = _NUMBER.pairs(first)
    number = two(pairs, 0) * 10 + two(pairs, 2) // 10
    at = starts + 5
    ids = []
    for stop in b"..)":
        minus = at_byte[at] == 0x2D  # of events about a cluster, or about no job
        value, width = long_integers(at_word, at + minus)
        if minus.any():
            value = np.where(minus, -value, value)
        at = at + width + minus
        ok &= (width > 0) & (width <= _ID) & (at_byte[at] == stop)
        at += 1
        ids.append(value)
    ok &= at_byte[at] == 0x20
    at += 1
    day, hour = at_word[at], at_word[at + 8]
    yearful, minute, second = dates_with_year(at_word, at)
    yearful &= (at_byte[at + 10] == 0x20) | (at_byte[at + 10] == 0x54)
    at += 19
    if not yearful.all():
        yearless = _YEARLESS_HOUR.fits(day) & _YEARLESS_SECOND.fits(hour)
        minute_of, second_of = _without_year(day, hour)
        minute, second = (
            np.where(yearless, minute_of, minute),
            np.where(yearless, second_of, second),
        )
        at -= np.where(yearless, 5, 0)
        ok &= yearful | yearless
    at, fraction = _fractions(at_byte, at_word, at)
    utc = at_byte[at] == 0x5A
    if utc.any():
        minute = minute + ZONE * utc
        at = at + utc
    east = at_byte[at] == 0x2B
    signed = np.flatnonzero(east | (at_byte[at] == 0x2D))
    if signed.size:
        zone, width = _offsets(at_word[at[signed]], east[signed])
        minute, at = minute.copy(), at.copy()
        minute[signed] += ZONE * zone
        at[signed] += width
    behind = at_byte[at]
    space = behind == 0x20
    ok &= space | (behind == 0x0A)
    return Headers(ok, number, ids[0], ids[1], ids[2], minute, second, fraction, at + space)


def _offsets(signs: Words, east: Flags) -> tuple[Longs, Longs]:
    """The zones `+hh:mm` or `+hhmm` that begin these words, and how long they are; 0: none."""
    colon, plain = _OFFSET.fits(signs), _OFFSET_PLAIN.fits(signs)
    pairs = _OFFSET.pairs(signs)
    minutes = np.where(colon, two(pairs, 4), two(_OFFSET_PLAIN.pairs(signs), 3))
    zone = 2 + np.where(east, 0, 10000) + two(pairs, 1) * 100 + minutes
    return np.where(colon | plain, zone, 0), np.where(colon, 6, np.where(plain, 5, 0))


def dates_with_year(at_word: Words, at: Longs) -> tuple[Flags, Longs, Longs]:
    """Where there is a date like `2026-11-15 22:19:56`, its minute's key, and its second."""
    day, hour, second = at_word[at], at_word[at + 8], at_word[at + 16]
    good = _DAY_OF_YEAR.fits(day) & _MINUTE_OF_DAY.fits(hour) & _SECOND.fits(second)
    date, time = _DAY_OF_YEAR.pairs(day), _MINUTE_OF_DAY.pairs(hour)
    year = two(date, 0) * 100 + two(date, 2)
    minute = ((year * 100 + two(date, 5)) * 100 + two(time, 0)) * 10000
    return good, minute + two(time, 3) * 100 + two(time, 6), two(_SECOND.pairs(second), 1)


def _without_year(hour: Words, second: Words) -> tuple[Longs, Longs]:
    date, time = _YEARLESS_HOUR.pairs(hour), _YEARLESS_SECOND.pairs(second)
    minute = (two(date, 0) * 100 + two(date, 3)) * 10000 + two(date, 6) * 100 + two(time, 1)
    return minute + YEARLESS, two(time, 4)


def _fractions(at_byte: Bytes, at_word: Words, at: Longs) -> tuple[Longs, Floats | None]:
    rows = np.flatnonzero(at_byte[at] == 0x2E)
    if not rows.size:
        return at, None
    value, width = integers(at_word[at[rows] + 1])
    fraction = np.zeros(len(at))
    fraction[rows] = value / TENS[width]  # both are exact, so the quotient is float's own
    # A point without digits stays where it is, so the header is not one.
    at = at.copy()
    at[rows] += width + (width > 0)
    return at, fraction


# The end marks of a block of a text log, and the chunks between them.


_HEADER = b"000 ("
_MARK = b"...\n"
#: Blank lines before a header that are skipped; a chunk with more is read by itself.
_BLANK_LINES = 4


class ChunkPlaces(NamedTuple):
    """Where the complete chunks of a block are."""

    begins: Longs
    starts: Longs  # behind blank lines
    ends: Longs
    newlines: Longs
    first: Longs  # the newline that ends the line at `starts`, among them
    last: Longs  # the newline before the end mark, among them
    suspects: Longs  # chunks with more than one header
    tail: int  # where the last chunk's end mark ends


def find_chunks(data: bytes, size: int) -> ChunkPlaces:
    """The chunks of a padded block, whose own bytes are the first `size`."""
    newlines = np.flatnonzero(np.frombuffer(data, np.uint8, size) == 0x0A)
    lines = words(data)[newlines + 1]
    ends = np.flatnonzero((lines & mask(_MARK)) == word(_MARK))
    ends = _without_overlaps(ends)
    if not ends.size:
        return ChunkPlaces(ends, ends, ends, newlines, ends, ends, ends, 0)
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
    return ChunkPlaces(begins, starts, newlines[ends], newlines, first, ends, suspects, tail)


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
    headers = newlines[headers[_NUMBER.fits(lines[headers])]] + 1
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


class TextBlock:
    """A padded block of a text log: the same bytes as numbers, as words and as characters."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.byte: Bytes = np.frombuffer(data, np.uint8)
        self.word = words(data)

    @cached_property
    def characters(self) -> str:
        """One for each byte, so that places are the same."""
        return self.data.decode("latin-1")

    @cached_property
    def ascii(self) -> bool:
        """Whether bytes are characters."""
        return self.data.isascii()

    def slices(self, starts: Longs, ends: Longs) -> list[bytes]:
        """The bytes between these places."""
        data = self.data
        return [data[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]

    def texts(self, starts: Longs, ends: Longs) -> list[str]:
        """What is between these places, in UTF-8, without what surrounds it."""
        if not self.ascii:
            return [raw.decode().strip() for raw in self.slices(starts, ends)]
        all_ = self.characters
        return [all_[a:b].strip() for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]

    def says(self, at: Longs, text: bytes) -> Flags:
        """Where this text stands at these places."""
        found = np.ones(len(at), np.bool_)
        for start in range(0, len(text), 8):
            found &= begins(self.word[at + start], text[start : start + 8])
        return found


def begins(at_words: Words, text: bytes) -> Flags:
    """Which of these words begin with a text of up to eight bytes."""
    return np.asarray((at_words & mask(text)) == word(text))
