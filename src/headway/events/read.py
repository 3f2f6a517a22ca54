"""Reading event logs in HTCondor's text, XML and JSON formats, whatever has happened to the file.

What is not an event is skipped up to where the next event begins, and counted with its place. An
event that has no end yet is not an event yet.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from headway.errors import EventLogError
from headway.events.clock import Clock, ad_time, utc_hint
from headway.events.event import Event
from headway.events.format import Ad, AdValue, EventType, ended_at, event_lines, integer_of, text_of
from headway.events.opening import (
    ALMOST_END,
    BOM,
    END,
    EVENT_LIMIT,
    HEAD_SIZE,
    LINE_LIMIT,
    LONG_LINE,
    NO_DATE,
    NO_END,
    NO_EVENT,
    ZEROS,
    Format,
    LogReader,
    Skip,
    Skips,
    blank,
    cut_lines,
    decoded,
    find_header,
    sniff,
    split,
)
from headway.node.classad import Expr

_log = logging.getLogger(__name__)
_READ_SIZE = 1 << 20


@dataclass(frozen=True)
class Log:
    """A log as it was when it was read; `offset` is the end of its last complete event."""

    events: list[Event]
    skipped: tuple[Skip, ...]
    offset: int


class LogParser(ABC):
    """Turns the bytes of a log, in pieces of any size, into events."""

    #: How a log ends that lacks only its last newline.
    _last_bytes: ClassVar[bytes]

    def __init__(self, clock: Clock) -> None:
        #: The end of the last complete event.
        self.offset = 0
        self.skipped = Skips()
        self.clock = clock
        self._tail = b""

    @property
    def pending(self) -> int:
        """How many bytes follow the last complete event."""
        return len(self._tail)

    @abstractmethod
    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete."""

    @abstractmethod
    def _is_blank(self, data: bytes) -> bool:
        """Whether these bytes may stand between two events."""

    def feed_blocks(self, blocks: Iterable[bytes | int]) -> list[Event]:
        """The events that these blocks complete; a number stands for as many zeros."""
        events: list[Event] = []
        for block in blocks:
            if isinstance(block, int):
                self.zeros(block)
            else:
                events += self.feed(block)
        return events

    def zeros(self, count: int) -> None:
        """Take so many zeros: they end what lies before them."""
        self.finish()
        self.skipped.add(self.offset, count, ZEROS)
        self.offset += count

    def rewind(self) -> None:
        """Forget what follows the last complete event; the caller feeds it again from `offset`."""
        self._tail = b""

    def close(self) -> list[Event]:
        """The last event, if it lacks only its last newline: an editor may have removed that."""
        return self.feed(b"\n") if self._tail.endswith(self._last_bytes) else []

    def finish(self) -> None:
        """Skip what follows the last complete event: no more bytes will come."""
        self._skip(self.offset, self._tail, NO_END)
        self.offset += len(self._tail)
        self.rewind()

    def _skip(self, offset: int, lost: bytes, why: str) -> None:
        if not self._is_blank(lost):
            self.skipped.add(offset, len(lost), why)


class EventParser(LogParser):
    """Turns the bytes of a text log, in pieces of any size, into events.

    `reference` is the file's mtime (default now): the `clock` needs it for headers like
    `11/15 22:19:56`, which have no year.
    """

    _last_bytes = END[:-1]

    def __init__(self, reference: float | None = None, *, clock: Clock | None = None) -> None:
        super().__init__(clock or Clock(time.time() if reference is None else reference))

    def _is_blank(self, data: bytes) -> bool:
        return blank(data)

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
            if lost:
                self._skip(self.offset, chunk[:lost], why)
            self.offset += len(chunk) + len(END)
            if header:
                event = self._event(header, chunk, self.offset)
                if event:
                    events.append(event)
        self._tail = self._within_limit(self._tail, EVENT_LIMIT + ALMOST_END)
        return events

    def _event(self, match: re.Match[bytes], chunk: bytes, end: int) -> Event | None:
        number, cluster, proc, subproc, minute, second, fraction, zone = match.groups()
        at = self.clock.seconds(minute, zone)
        if at is None:
            start = end - len(END) - len(chunk)
            self._skip(start + match.start(), chunk[match.start() :], NO_DATE)
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
            self.clock.year_hint(at, told)
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


# Event logs that HTCondor writes as ClassAds.


_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d):(\d\d)(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)?\Z", re.ASCII
)


def event_from_ad(ad: Ad, clock: Clock) -> Event | str:
    """The event as a text log would have it, or why it is not one.

    What HTCondor leaves out of the ClassAd is missing: the resource table of a 004 event.
    Where a text log has whole seconds, these have milliseconds.
    """
    number = integer_of(ad, "EventTypeNumber", -1)
    if not 0 <= number <= 999:
        return "a ClassAd that is not an event"
    match = _TIME.match(text_of(ad, "EventTime"))
    if not match:
        return NO_DATE
    minute, second, fraction, zone = match.groups()
    at = clock.seconds(minute.encode(), zone.encode() if zone else None)
    if at is None:
        return NO_DATE
    at += int(second) + float(fraction or 0)
    # Events of an execution point have the numbers of a slot in place of a job's.
    names = ("SlotId", "DSlotId", "") if number >= 100 else ("Cluster", "Proc", "Subproc")
    none = 0 if number >= 100 else -1
    cluster, proc, subproc = (integer_of(ad, name, none) for name in names)
    if number == EventType.TERMINATED and (ended := ended_at(ad)) is not None:
        clock.hint(at, ended)
    lines = [_one_line(line) for line in event_lines(ad, number)]
    return Event(number, cluster, proc, subproc, at, lines[0], tuple(lines[1:]))


def _one_line(text: str) -> str:
    # As HTCondor itself writes a reason.
    text = text.replace("\n", "|").replace("\r", " ")
    return text.encode("utf-8", "replace").decode()  # JSON can hold halves of characters


class AdParser(LogParser):
    """Reads ClassAds: from a line that begins one up to the next line that ends one."""

    #: How an event begins, at the beginning of a line, and the whole line that ends it.
    _opening: ClassVar[bytes]
    _last_line: ClassVar[re.Pattern[bytes]]
    #: A newline and that line: a regular expression that begins with a letter is the fastest.
    _end: ClassVar[re.Pattern[bytes]]
    #: What may stand between events.
    _between: ClassVar[re.Pattern[bytes]]

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._searched = 0

    def rewind(self) -> None:
        """Forget what follows the last complete event; the caller feeds it again from `offset`."""
        super().rewind()
        self._searched = 0

    def _is_blank(self, data: bytes) -> bool:
        return self._between.fullmatch(data) is not None

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
            self._skip(offset, frame, NO_EVENT)
            return None
        if at:
            torn = self._beginning(frame, at) >= 0
            self._skip(offset, frame[:at], NO_END if torn else NO_EVENT)
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
        """The event with its lines cut at `LINE_LIMIT`."""
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
        first = len(BOM) if frame.startswith(BOM) else 0
        return first if first < end and frame.startswith(opening, first) else -1


# Event logs that HTCondor writes as JSON: one object per event, one after the other.


_EXPRESSION = re.compile(r"/Expr\((.*)\)/\Z", re.DOTALL)

_LAST_JSON_LINE = rb"(?:\}|\{[^\n]*\})[ \t\r,]*\n"


class JsonParser(AdParser):
    """Reads objects that begin and end at the beginning of a line, or fill one line each."""

    _last_bytes = b"}"
    _opening = b"{"
    _last_line = re.compile(_LAST_JSON_LINE)
    _end = re.compile(rb"\n" + _LAST_JSON_LINE)
    _between = re.compile(rb"(?:\A\xef\xbb\xbf)?[ \t\r\n,]*(?:(?:\[|\])[ \t\r\n,]*)?")

    def _ad(self, frame: bytes) -> Ad | None:
        text = decoded(frame).rstrip(" \t\r\n,")
        try:
            ad = json.loads(text, object_hook=_hook)
        except ValueError:
            return None
        return ad if isinstance(ad, dict) else None


def _hook(ad: dict[str, Any]) -> dict[str, AdValue]:
    for name, value in ad.items():
        if type(value) is list or (type(value) is str and value[:6] == "/Expr("):
            ad[name] = _json_value(value)
    return ad


def _json_value(value: Any) -> AdValue:
    if type(value) is list:
        return [_json_value(inner) for inner in value]
    if type(value) is str and (match := _EXPRESSION.match(value)):
        return Expr(match[1])
    return value  # type: ignore[no-any-return]


# Event logs that HTCondor writes as XML: one `<c>` per event, one after the other.
#
# Only the few elements of a ClassAd are known. There are no entities but XML's own five, no
# document type and no other document that this one could refer to.


_DEPTH = 64
_TOKEN = re.compile(
    r"\s*(?:"
    r'<a n="(?P<name>[^"<>]{1,1024})">\s*'
    r"|<(?P<kind>[sireb]|at|rt)>(?P<value>[^<]*)</(?P=kind)>\s*"
    r'|<b v="(?P<truth>[tf])"\s*/>\s*'
    r"|<(?P<open>[cl])>\s*"
    r"|<(?P<empty>s|e|c|l|un|er)\s*/>\s*"
    r"|</(?P<close>[acl])>\s*"
    r"|<(?P<void>un|er)></(?P=void)>\s*"
    r")"
)
#: A whole attribute, as nearly all of them are.
_ATTRIBUTE = re.compile(r'\s*<a n="([^"<>]{1,1024})"><([sire])>([^<]*)</\2></a>\s*')
_ENTITY = re.compile(r"&(#[0-9]{1,7}|#x[0-9A-Fa-f]{1,6}|lt|gt|amp|quot|apos);")
_ENTITIES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_ESCAPE = re.compile(r"\\([0-7]{1,3}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}

_LAST_XML_LINE = rb"(?:<c>[^\n]*)?</c>[ \t\r]*\n"


class XmlParser(AdParser):
    """Reads elements `<c>` that begin and end at the beginning of a line, or fill one line each."""

    _last_bytes = b"</c>"
    _opening = b"<c>"
    _last_line = re.compile(_LAST_XML_LINE)
    _end = re.compile(rb"\n" + _LAST_XML_LINE)
    _between = re.compile(
        rb"(?:\A\xef\xbb\xbf)?\s*(?:<\?xml[^<>]*\?>\s*)?(?:<!DOCTYPE[^<>\[\]]*>\s*)?"
        rb"(?:</?classads>\s*)*"
    )

    def _ad(self, frame: bytes) -> Ad | None:
        try:
            return _parse(decoded(frame))
        except ValueError:
            return None


def _parse(text: str) -> Ad:
    """The outermost ClassAd of the text; ValueError if it is not well formed."""
    root: list[AdValue] = []
    # Containers that are open, and the name that each waits to give a value to.
    stack: list[tuple[list[AdValue] | Ad, str | None]] = [(root, None)]
    at, end = 0, len(text)
    while at < end:
        holder, name = stack[-1]
        simple = _ATTRIBUTE.match(text, at)
        if simple and name is None and isinstance(holder, dict):
            holder[_unescaped(simple[1])] = _scalar(simple[2], simple[3])
            at = simple.end()
            continue
        match = _TOKEN.match(text, at)
        if not match:
            raise ValueError("no ClassAd")
        at = match.end()
        if match["name"] is not None:
            if not isinstance(holder, dict) or name is not None:
                raise ValueError("an attribute out of place")
            stack[-1] = (holder, _unescaped(match["name"]))
        elif match["close"] == "a":
            # The name went with its value.
            if not isinstance(holder, dict):
                raise ValueError("an end out of place")
            stack[-1] = (holder, None)
        elif match["close"]:
            if len(stack) < 2 or isinstance(holder, dict) != (match["close"] == "c"):
                raise ValueError("an end out of place")
            stack.pop()
        else:
            value = _xml_value(match)
            if isinstance(holder, list):
                holder.append(value)
            elif name is None:
                raise ValueError("a value without a name")
            else:
                holder[name] = value
            if match["open"]:
                if len(stack) > _DEPTH or not isinstance(value, (dict, list)):
                    raise ValueError("nested too deeply")
                stack.append((value, None))
    if len(stack) != 1 or len(root) != 1 or not isinstance(root[0], dict):
        raise ValueError("no ClassAd")
    return root[0]


def _xml_value(match: re.Match[str]) -> AdValue:
    if match["truth"]:
        return match["truth"] == "t"
    kind = match["open"] or match["empty"] or match["void"] or match["kind"]
    if kind == "c":
        return {}
    if kind == "l":
        return []
    if kind == "un":
        return None
    return Expr("error") if kind == "er" else _scalar(kind, match["value"] or "")


def _scalar(kind: str, text: str) -> AdValue:
    text = _unescaped(text)
    if kind == "i":
        return int(text[:20])
    if kind == "r":
        return float(text)
    if kind == "b":
        return text.strip().lower() in ("t", "true")
    if kind == "e":
        return Expr(text)
    return _ESCAPE.sub(_escaped, text) if "\\" in text else text


def _unescaped(text: str) -> str:
    return _ENTITY.sub(_entity, text) if "&" in text else text


def _entity(match: re.Match[str]) -> str:
    name = match[1]
    if name[0] != "#":
        return _ENTITIES[name]
    code = int(name[2:], 16) if name[1] == "x" else int(name[1:])
    return chr(code) if code < 0x110000 else "�"


def _escaped(match: re.Match[str]) -> str:
    escape = match[1]
    if escape[0] in "01234567":
        return chr(int(escape, 8))
    return _ESCAPES.get(escape, escape)


def parser_for(head: bytes, clock: Clock) -> LogParser:
    """The parser for a log that begins like this: text, XML or JSON."""
    makers = {Format.XML: XmlParser, Format.JSON: JsonParser}
    make = makers.get(sniff(head))
    return make(clock) if make else EventParser(clock=clock)


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
        with LogReader(path) as file:
            clock: Clock | None = Clock(file.stat.st_mtime)
            while clock:
                file.rewind()
                head = file.head(HEAD_SIZE)
                parser = parser_for(head, clock)
                events = parser.feed(head)
                events += parser.feed_blocks(file.blocks(_READ_SIZE))
                events += parser.close()
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
