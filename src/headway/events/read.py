"""Reading event logs in HTCondor's text format, whatever has happened to the file.

An event is a header line, body lines and a line `...`. What does not fit is skipped up to the next
header and counted, with where it was. An event that has no end yet is not an event yet.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from headway.errors import EventLogError
from headway.events.event import Event

_DAY = 86400.0
_READ_SIZE = 1 << 20
#: More than this without an end mark is not an event.
_EVENT_LIMIT = 16 << 20

_END = b"\n...\n"
_ANY_END = re.compile(rb"\n\.\.\.\r?\n")
_HEADER_PATTERN = (
    rb"(\d{3}) \((-?\d{1,10})\.(-?\d{1,10})\.(-?\d{1,10})\) "
    rb"((?:\d\d/\d\d|\d{4}-\d\d-\d\d)[ T]\d\d:\d\d):(\d\d)(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)?"
    rb"(?: |(?=\r?\n)|\Z)"
)
_HEADER = re.compile(_HEADER_PATTERN)
_RESYNC = re.compile(rb"(?:\A|(?<=[\n\0])|(?<=\xef\xbb\xbf))" + _HEADER_PATTERN)
_NESTED = re.compile(rb"\n\d\d\d \(")
_NESTED_AMONG_NULS = re.compile(rb"[\n\0]\d\d\d \(")  # five times slower
_BLANK = b"\xef\xbb\xbf \t\r\n"


@dataclass(frozen=True)
class Skip:
    """Bytes of a log that are part of no event, and what they look like."""

    offset: int
    length: int
    why: str


@dataclass(frozen=True)
class Log:
    """A log as it was when it was read; `offset` is the end of its last complete event."""

    events: list[Event]
    skipped: tuple[Skip, ...]
    offset: int


class Parser:
    """Turns the bytes of a log, in pieces of any size, into events.

    Headers like `11/15 22:19:56` have no year: the first one is put as late as possible before
    `reference` (the file's mtime; default now), and time goes forward from there.
    """

    def __init__(self, reference: float | None = None) -> None:
        self.offset = 0
        self.skipped: list[Skip] = []
        #: Whether a header without a year has been seen.
        self.yearless = False
        self._clock = _Clock(time.time() if reference is None else reference)
        self._tail = b""

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete."""
        searched = max(0, len(self._tail) - len(_END))
        data = self._tail + data if self._tail else data
        if b"\r" in data:
            chunks = _chunks(data)
        elif data.find(_END, searched) >= 0:
            chunks = data.split(_END)
        else:
            chunks = [data]
        self._tail = chunks.pop()
        if len(self._tail) > _EVENT_LIMIT and not chunks:
            self.finish()
        nested = (_NESTED_AMONG_NULS if b"\0" in data else _NESTED).search
        events: list[Event] = []
        offset = self.offset
        for chunk in chunks:
            match = _HEADER.match(chunk)
            if not match or nested(chunk, match.end()):
                match = self._recover(chunk, offset)
            offset += len(chunk) + len(_END)
            if match:
                event = self._event(match, chunk, offset)
                if event:
                    events.append(event)
        self.offset = offset
        self.yearless = self._clock.yearless
        return events

    @property
    def pending(self) -> int:
        """Bytes behind the last complete event."""
        return len(self._tail)

    def rewind(self) -> None:
        """Forget what lies behind the last complete event; feed again from `offset`."""
        self._tail = b""

    def finish(self) -> None:
        """No more will come: what lies behind the last complete event is lost."""
        self._skip(self.offset, self._tail, "an event without an end")
        self.offset += len(self._tail)
        self._tail = b""

    def _event(self, match: re.Match[bytes], chunk: bytes, end: int) -> Event | None:
        number, cluster, proc, subproc, minute, second, fraction, zone = match.groups()
        at = self._clock.seconds(minute, zone)
        if at is None:
            start = end - len(_END) - len(chunk)
            self._skip(start + match.start(), chunk[match.start() :], "a date that is none")
            return None
        at += int(second)
        if fraction:
            at += float(fraction)
        self._clock.last = at
        rest = chunk[match.end() :]
        try:
            text = rest.decode()
        except UnicodeDecodeError:
            text = rest.decode("latin-1")
        if "\r" in text:
            text = text.replace("\r\n", "\n").removesuffix("\r")
        lines = text.split("\n")
        return Event(
            int(number), int(cluster), int(proc), int(subproc), at, lines[0], tuple(lines[1:])
        )

    def _recover(self, chunk: bytes, offset: int) -> re.Match[bytes] | None:
        # The last header is the one that the end mark belongs to: a writer that crashed left
        # the one before it, or two writers got in each other's way.
        matches = list(_RESYNC.finditer(chunk))
        match = matches[-1] if matches else None
        lost = chunk[: match.start()] if match else chunk
        torn = _HEADER.match(lost.lstrip(_BLANK + b"\0"))
        self._skip(offset, lost, "an event without an end" if torn else "no event")
        return match

    def _skip(self, offset: int, lost: bytes, why: str) -> None:
        if lost.strip(_BLANK):
            self.skipped.append(Skip(offset, len(lost), why))


def read_log(path: str | os.PathLike[str]) -> Log:
    """All complete events of a log, and what had to be skipped."""
    try:
        with Path(path).open("rb") as file:
            mtime = os.fstat(file.fileno()).st_mtime
            for years in range(6):
                parser = Parser(mtime - years * 366 * _DAY)
                file.seek(0)
                events, last = [], b""
                while block := file.read(_READ_SIZE):
                    events += parser.feed(block)
                    last = (last + block)[-4:]
                if last == _END[:-1]:  # an editor took the last newline away
                    events += parser.feed(b"\n")
                # Without a year the first date was a guess; the last one shows if it was too late.
                if not (parser.yearless and events and events[-1].time > mtime + _DAY):
                    break
    except OSError as error:
        raise EventLogError(
            f"the event log {os.fspath(path)} cannot be read: {error.strerror}",
            remedy="Check the path, and that you may read the file.",
        ) from error
    return Log(events, tuple(parser.skipped), parser.offset)


def _chunks(data: bytes) -> list[bytes]:
    # Keeps the "\r" of an end mark with the chunk, so that the lengths still add up.
    chunks, start = [], 0
    for match in _ANY_END.finditer(data):
        carriage = match.end() - match.start() - len(_END)
        chunks.append(data[start : match.start()] + b"\r" * carriage)
        start = match.end()
    return [*chunks, data[start:]]


class _Clock:
    """Seconds since the epoch of `date hour:minute`; remembers minutes, because most recur."""

    def __init__(self, reference: float) -> None:
        self.last: float | None = None
        self.yearless = False
        self._reference = reference
        self._known: dict[tuple[bytes, bytes | None], float] = {}

    def seconds(self, minute: bytes, zone: bytes | None) -> float | None:
        key = (minute, zone)
        known = self._known.get(key)
        if known is not None and not (minute[2] == 0x2F and self._too_early(known)):
            return known
        try:
            text = minute.decode()
            offset = _zone(zone)
            found = self._yearless(text, offset) if text[2] == "/" else _epoch(text, offset)
        except (ValueError, OverflowError, OSError):
            return None
        if len(self._known) > 4096:
            self._known.clear()
        self._known[key] = found
        return found

    def _too_early(self, at: float) -> bool:
        # Writers get out of order by seconds; a week back can only be another year.
        return self.last is not None and at < self.last - 7 * _DAY

    def _yearless(self, text: str, zone: timezone | None) -> float:
        self.yearless = True
        year = datetime.fromtimestamp(
            self._reference if self.last is None else self.last, timezone.utc
        ).year
        # Nine years always hold a 29 February.
        if self.last is None:
            latest = self._reference + _DAY
            return next(
                at for at in _years(text, range(year + 1, year - 9, -1), zone) if at <= latest
            )
        later = _years(text, range(year - 1, year + 9), zone)
        return next(at for at in later if not self._too_early(at))


def _years(text: str, years: range, zone: timezone | None) -> Iterator[float]:
    for year in years:
        try:
            yield _epoch(f"{year:04d}-{text[:2]}-{text[3:]}", zone)
        except ValueError:
            continue
    raise ValueError("no year has this date")


def _epoch(text: str, zone: timezone | None) -> float:
    return datetime(  # naive where the log names no zone: local time, as HTCondor writes it
        int(text[:4]),
        int(text[5:7]),
        int(text[8:10]),
        int(text[11:13]),
        int(text[14:16]),
        tzinfo=zone,
    ).timestamp()


def _zone(text: bytes | None) -> timezone | None:
    if text is None:
        return None
    if text == b"Z":
        return timezone.utc
    minutes = int(text[1:3]) * 60 + int(text[-2:])
    return timezone(timedelta(minutes=-minutes if text[:1] == b"-" else minutes))
