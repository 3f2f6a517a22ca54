"""Reading event logs in HTCondor's text format, whatever has happened to the file.

An event is a header line, body lines and a line `...`. What does not fit is skipped up to the next
header and counted, with where it was. An event that has no end yet is not an event yet.
"""

from __future__ import annotations

import logging
import os
import re
import time
from dataclasses import dataclass

from headway.errors import EventLogError
from headway.events.ads import AdParser, JsonParser, XmlParser
from headway.events.clock import Clock, ad_time, utc_hint
from headway.events.event import Event
from headway.events.opening import (
    ALMOST_END,
    END,
    EVENT_LIMIT,
    HEAD_SIZE,
    NO_END,
    ZEROS,
    Format,
    Skip,
    Skips,
    blank,
    cut_lines,
    decoded,
    find_header,
    open_log,
    sniff,
    split,
)

_log = logging.getLogger(__name__)
_READ_SIZE = 1 << 20


@dataclass(frozen=True)
class Log:
    """A log as it was when it was read; `offset` is the end of its last complete event."""

    events: list[Event]
    skipped: tuple[Skip, ...]
    offset: int


class Parser:
    """Turns the bytes of a log, in pieces of any size, into events.

    `reference` is the file's mtime (default now): the `clock` needs it for headers like
    `11/15 22:19:56`, which have no year.
    """

    def __init__(self, reference: float | None = None, *, clock: Clock | None = None) -> None:
        self.offset = 0
        self.skipped = Skips()
        self.clock = clock or Clock(time.time() if reference is None else reference)
        self._tail = b""

    @property
    def yearless(self) -> bool:
        """Whether a header without a year has been seen."""
        return self.clock.yearless

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete."""
        searched = max(0, len(self._tail) - ALMOST_END)
        data = self._tail + data if self._tail else data
        chunks = split(data) if data.find(END[:-1], searched) >= 0 else [data]
        self._tail = chunks.pop()
        nuls = b"\0" in data
        events: list[Event] = []
        for chunk in chunks:
            chunk = self._within_limit(chunk, EVENT_LIMIT)
            header, lost, why = find_header(chunk, nuls)
            self._skip(self.offset, chunk[:lost], why)
            self.offset += len(chunk) + len(END)
            if header:
                event = self._event(header, chunk, self.offset)
                if event:
                    events.append(event)
        self._tail = self._within_limit(self._tail, EVENT_LIMIT + ALMOST_END)
        return events

    def zeros(self, count: int) -> None:
        """Take so many zeros: they end what lies before them."""
        self.finish()
        self.skipped.add(self.offset, count, ZEROS)
        self.offset += count

    @property
    def pending(self) -> int:
        """Bytes behind the last complete event."""
        return len(self._tail)

    def rewind(self) -> None:
        """Forget what lies behind the last complete event; feed again from `offset`."""
        self._tail = b""

    @staticmethod
    def ends_with(last: bytes) -> bool:
        """Whether only a newline is missing behind these last bytes of a log."""
        return last.endswith(END[:-1])

    def finish(self) -> None:
        """No more will come: what lies behind the last complete event is lost."""
        self._skip(self.offset, self._tail, NO_END)
        self.offset += len(self._tail)
        self._tail = b""

    def _event(self, match: re.Match[bytes], chunk: bytes, end: int) -> Event | None:
        number, cluster, proc, subproc, minute, second, fraction, zone = match.groups()
        at = self.clock.seconds(minute, zone)
        if at is None:
            start = end - len(END) - len(chunk)
            self._skip(start + match.start(), chunk[match.start() :], "a date that is none")
            return None
        at += int(second)
        if fraction:
            at += float(fraction)
        rest = cut_lines(
            chunk[match.end() :], end - len(END) - len(chunk) + match.end(), self.skipped
        )
        if number == b"005" and (utc := utc_hint(rest)) is not None:
            self.clock.hint(at, utc)
        if number == b"028" and minute[2] == 0x2F and (told := ad_time(rest)) is not None:
            self.clock.told(at, told)
        lines = decoded(rest).split("\n")
        return Event(
            int(number), int(cluster), int(proc), int(subproc), at, lines[0], tuple(lines[1:])
        )

    def _within_limit(self, chunk: bytes, limit: int) -> bytes:
        while len(chunk) > limit:
            self._skip(self.offset, chunk[:EVENT_LIMIT], NO_END)
            self.offset += EVENT_LIMIT
            chunk = chunk[EVENT_LIMIT:]
        return chunk

    def _skip(self, offset: int, lost: bytes, why: str) -> None:
        if not blank(lost):
            self.skipped.add(offset, len(lost), why)


def parser_for(head: bytes, clock: Clock) -> Parser | AdParser:
    """The parser for a log that begins like this: text, XML or JSON."""
    found = sniff(head)
    if found is Format.XML:
        return XmlParser(clock)
    if found is Format.JSON:
        return JsonParser(clock)
    return Parser(clock=clock)


def read_log(path: str | os.PathLike[str]) -> Log:
    """All complete events of a log, and what had to be skipped.

    Args:
        path: The log: text, XML or JSON, plain or compressed by gzip, xz, bzip2 or zstd.

    Returns:
        The events in the order of the log. Offsets are those of the decompressed bytes.

    Raises:
        EventLogError: The file cannot be read.

    Example:
        >>> with EventWriter("events.log") as writer:
        ...     _ = writer.submitted(7, 0, "<192.0.2.10:9618>")
        >>> [event.text for event in read_log("events.log").events]
        ['Job submitted from host: <192.0.2.10:9618>']
    """
    try:
        with open_log(path) as file:
            clock: Clock | None = Clock(file.stat.st_mtime)
            while clock:
                file.rewind()
                head = file.head(HEAD_SIZE)
                parser = parser_for(head, clock)
                events = parser.feed(head)
                last = head[-4:]
                for block in file.blocks(_READ_SIZE):
                    if isinstance(block, int):
                        parser.zeros(block)
                        last = b""
                    else:
                        events += parser.feed(block)
                        last = (last + block)[-4:]
                if parser.ends_with(last):  # an editor took the last newline away
                    events += parser.feed(b"\n")
                clock = clock.again()
            damage = (file.damage,) if file.damage else ()
    except OSError as error:
        raise EventLogError(
            f"the event log {os.fspath(path)} cannot be read: {error.strerror}",
            remedy="Check the path, and that you may read the file.",
        ) from error
    skipped = (*parser.skipped, *damage)
    _log.debug("read %d events of %s; skipped %d places", len(events), path, len(skipped))
    return Log(events, skipped, parser.offset)


__all__ = ["Log", "Parser", "Skip", "parser_for", "read_log"]
