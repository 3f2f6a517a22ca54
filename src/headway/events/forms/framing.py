"""Finding the events in a log that is written as ClassAds: XML or JSON."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar

from headway.events.clock import Clock
from headway.events.event import Event
from headway.events.forms.ad import Ad
from headway.events.forms.from_ad import event_from_ad
from headway.events.skip import EVENT_LIMIT, LINE_LIMIT, LONG_LINE, NO_END, ZEROS, Skips

_BOM = b"\xef\xbb\xbf"


class AdParser(ABC):
    """Turns the bytes of a log, in pieces of any size, into events; see `Parser` of text logs.

    An event is what lies between a line that begins one and the next line that ends one. What does
    not fit is skipped up to the next beginning and counted.
    """

    #: How an event begins, at the beginning of a line, and the whole line that ends it.
    _opening: ClassVar[bytes]
    _last_line: ClassVar[re.Pattern[bytes]]
    #: A newline and that line: a regular expression that begins with a letter is the fastest.
    _end: ClassVar[re.Pattern[bytes]]
    #: What may stand between events.
    _between: ClassVar[re.Pattern[bytes]]

    def __init__(self, clock: Clock) -> None:
        self.offset = 0
        self.skipped = Skips()
        self.clock = clock
        self._tail = b""
        self._searched = 0

    @property
    def yearless(self) -> bool:
        """Whether a date without a year has been seen: HTCondor writes none here."""
        return self.clock.yearless

    @property
    def pending(self) -> int:
        """Bytes behind the last complete event."""
        return len(self._tail)

    def rewind(self) -> None:
        """Forget what lies behind the last complete event; feed again from `offset`."""
        self._tail = b""
        self._searched = 0

    def finish(self) -> None:
        """No more will come: what lies behind the last complete event is lost."""
        self._skip(self.offset, self._tail, NO_END)
        self.offset += len(self._tail)
        self.rewind()

    def zeros(self, count: int) -> None:
        """Take so many zeros: they end what lies before them."""
        self.finish()
        self.skipped.add(self.offset, count, ZEROS)
        self.offset += count

    @staticmethod
    @abstractmethod
    def ends_with(last: bytes) -> bool:
        """Whether only a newline is missing behind these last bytes of a log."""

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete."""
        if b"\n" not in data and len(self._tail) + len(data) <= EVENT_LIMIT:
            self._tail += data
            return []
        data = self._tail + data if self._tail else data
        events: list[Event] = []
        start = 0
        while match := (
            self._last_line.match(data, start) or self._end.search(data, max(start, self._searched))
        ):
            event = self._event(data[start : match.end()], self.offset + start)
            if event:
                events.append(event)
            start = match.end()
        self.offset += start
        self._tail = data[start:]
        # The newline before the line that has no end yet is part of what ends an event.
        self._searched = max(0, self._tail.rfind(b"\n"))
        if len(self._tail) > EVENT_LIMIT:
            self.finish()
        return events

    @abstractmethod
    def _ad(self, frame: bytes) -> Ad | None:
        """The ClassAd that an event's bytes are, or None."""

    def _event(self, frame: bytes, offset: int) -> Event | None:
        # The last beginning is the one that the end belongs to: a writer that crashed left
        # the one before it, or two writers got in each other's way.
        at = self._beginning(frame, len(frame))
        if at < 0:
            self._skip(offset, frame, "no event")
            return None
        if at:
            torn = self._beginning(frame, at) >= 0
            self._skip(offset, frame[:at], NO_END if torn else "no event")
        try:
            ad = self._ad(frame[at:])
            found = "no ClassAd" if ad is None else event_from_ad(ad, self.clock)
        except RecursionError:
            found = "a ClassAd that is nested too deeply"
        if isinstance(found, str):
            self._skip(offset + at, frame[at:], found)
            return None
        return found if len(frame) <= LINE_LIMIT else self._cut(found, offset + at)

    def _cut(self, event: Event, offset: int) -> Event:
        """The event with no line that is longer than a line may be."""
        lines = [line[:LINE_LIMIT] for line in (event.text, *event.body)]
        lost = sum(map(len, (event.text, *event.body))) - sum(map(len, lines))
        if lost:
            self.skipped.add(offset, lost, LONG_LINE)
        return replace(event, text=lines[0], body=tuple(lines[1:]))

    def _beginning(self, frame: bytes, end: int) -> int:
        """The last place before `end` where an event begins, or -1."""
        opening = self._opening
        found = max(frame.rfind(before + opening, 0, end) for before in (b"\n", b"\0"))
        if found >= 0:
            return found + 1
        first = len(_BOM) if frame.startswith(_BOM) else 0
        return first if first < end and frame.startswith(opening, first) else -1

    def _skip(self, offset: int, lost: bytes, why: str) -> None:
        if not self._between.fullmatch(lost):
            self.skipped.add(offset, len(lost), why)
