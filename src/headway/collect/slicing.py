"""Slicing: the bytes of a log into rows, one an event, with the words as they stand there."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timezone, tzinfo
from typing import NamedTuple

from headway.collect.cursor import Cursor, zone_of, zone_text
from headway.events.chunk import END, blank, cut_lines, decoded, look, split
from headway.events.clock import Clock, ad_time, utc_hint
from headway.events.event import Event
from headway.events.skip import EVENT_LIMIT, Skips

_TERMINATED, _AD = b"005", b"028"
#: What would end an event where its words are read again.
_MARKS = re.compile(r"\n(?=\.\.\.\r*(?:\n|\Z))")
_HEADERS = re.compile(r"([\n\0])(?=\d\d\d \()")


class Row(NamedTuple):
    """One event: where it stands, when it was, its date as written, and the words behind it."""

    offset: int
    number: int
    cluster: int
    proc: int
    subproc: int
    time: float
    date: str
    text: str


class Sliced(NamedTuple):
    """The complete events of some bytes, where the last one ends, and how many bytes are none."""

    rows: list[Row]
    used: int
    skipped: int


#: An event's offset, its header, and what follows.
_Cut = tuple[int, re.Match[bytes], bytes]


def sliced(data: bytes, offset: int, cursor: Cursor, reference: float) -> Sliced:
    """The complete events of a text log's bytes at this offset; `reference` is the file's mtime.

    The cursor remembers the log's clock, as far as this has read it.
    """
    cuts, used, skipped = _cut(data, offset)
    clock = _clock(cursor, reference, zone_of(cursor.zone))
    rows, lost = _tell(cuts, clock)
    if not cursor.events:
        # As a reader of the whole file does: nothing has been stored yet.
        while following := clock.again():
            clock = following
            rows, lost = _tell(cuts, clock)
    elif (following := clock.onward()) is not clock:
        cursor.retell = True
        clock = _clock(cursor, reference, following.zone)
        rows, lost = _tell(cuts, clock)
    cursor.zone = zone_text(clock.zone)
    if rows:
        cursor.last = rows[-1].time
    if clock.yearless and cursor.last is not None and cursor.last > reference + 86400:
        cursor.retell = True  # the year of the first date was too late, which shows only now
    return Sliced(rows, used, skipped + lost)


def row_of(event: Event, offset: int) -> Row:
    """The row of an event that was not read from a text log."""
    at = datetime.fromtimestamp(event.time, timezone.utc)
    text = _HEADERS.sub(r"\1 ", "\n".join((event.text.replace("\n", " "), *event.body)))
    date = f"{at.year:04d}-{at:%m-%d %H:%M:%S.%f}Z"
    ids = event.number, event.cluster, event.proc, event.subproc
    return Row(offset, *ids, event.time, date, _harmless(text))


def _clock(cursor: Cursor, reference: float, zone: tzinfo | None) -> Clock:
    clock = Clock(reference, zone)
    if cursor.last is not None:
        # A date without a year goes on from here.
        at = datetime.fromtimestamp(cursor.last, timezone.utc)
        clock.seconds(f"{at.year:04d}-{at:%m-%d %H:%M}".encode(), b"Z")
    return clock


def _cut(data: bytes, offset: int) -> tuple[list[_Cut], int, int]:
    """The chunks that hold events, how many bytes the complete ones take, and what is lost."""
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
        found = look(chunk, nuls)
        if found.lost and not blank(chunk[: found.lost]):
            skipped += found.lost
        header = found.header
        if header:
            rest = cut_lines(chunk[header.end() :], offset + at + header.end(), long)
            cuts.append((offset + at + header.start(), header, rest))
        at += len(chunk) + len(END)
    return cuts, at, skipped + sum(skip.length for skip in long)


def _tell(cuts: Iterable[_Cut], clock: Clock) -> tuple[list[Row], int]:
    rows: list[Row] = []
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
            clock.told(at, told)
        text = decoded(rest)
        if "\n..." in text:
            text = _harmless(text)
        date = header.string[header.start(5) : header.end()].decode("ascii").rstrip()
        rows.append(Row(offset, int(number), int(cluster), int(proc), int(subproc), at, date, text))
    return rows, lost


def _harmless(text: str) -> str:
    # A carriage return more than usual makes a line an end mark once it is taken away.
    return _MARKS.sub("\n ", text)
