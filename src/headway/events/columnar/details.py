"""What the bodies of events say, straight from their bytes; `columns.row_of` says what is right.

Only shapes that HTCondor itself writes are read here. A body of any other shape gives None, and has
to be read by way of an `Event`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from headway.events.columnar.columns import NONE, Measured, Row, Strings, machine, owner, row_of
from headway.events.event import TRANSFER_CODES, Event, Kind
from headway.events.format import (
    AD_SITE,
    CODES,
    EVICTED_CODES,
    EVICTION_REASON,
    EXECUTING,
    NO_REASON,
    NORMAL_END,
    RECEIVED,
    REMOTE_ERROR,
    REQUEUED,
    RUN_USAGE,
    SENT,
    SIGNAL_END,
    SITE,
    SLOT,
    TABLE,
    TABLE_COLUMNS,
    TO_HOST,
)
from headway.events.opening import decoded
from headway.node.classad import parse_value

_MEMORY = 1 << 14
_BLANKS = b" \t\r\f\v"
_NAN = math.nan

_CODES = re.compile(CODES.exact() + rb"\Z")
_EVICTED = re.compile(EVICTED_CODES.exact() + rb"\Z")
_ENDING = re.compile(b"(?:%b|%b)\\Z" % (NORMAL_END.exact(), SIGNAL_END.exact()))
_USAGE = re.compile(RUN_USAGE.exact() + rb"\Z")
_ATTRIBUTE = rb"\n[ \t\r\f\v]*(%b)[ \t\r\f\v]*=([^\n]*)"
_SITE = re.compile(_ATTRIBUTE % SITE.encode())
_AD = re.compile(_ATTRIBUTE % f"RemoteHost|SlotName|{AD_SITE}|Owner|User".encode())
_REQUEUED = REQUEUED.texts[0].strip()
_AFTER_USAGE, _AFTER_SENT, _AFTER_RECEIVED = (x.raw[1] for x in (RUN_USAGE, SENT, RECEIVED))
_SLOT, _TO_HOST, _EVICTION_REASON = (b"\n" + x.raw[0] for x in (SLOT, TO_HOST, EVICTION_REASON))
_HOST_AT = EXECUTING.texts[0].rpartition(" on ")[2]
_ERROR_AT = REMOTE_ERROR.texts[1]
_NO_CODES = (NONE, NONE)
_NAME = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_TABLE = f"\n{TABLE}".encode()

Made = TypeVar("Made")


class Memory(dict[bytes, Made]):
    """What a function made of texts; forgets everything when it is full."""

    def __init__(self, function: Callable[[bytes], Made]) -> None:
        super().__init__()
        self._function = function

    def __missing__(self, key: bytes) -> Made:
        if len(self) >= _MEMORY:
            self.clear()
        found = self[key] = self._function(key)
        return found


def by_event(number: int, rest: bytes) -> Row:
    """What an event says beside its header, given what follows the header, whatever that is."""
    lines = decoded(rest).split("\n")
    return row_of(Event(number, 0, 0, 0, 0.0, lines[0], tuple(lines[1:])))


class Ending(NamedTuple):
    """How a 004 or a 005 says that an attempt ended; `measured` is as `Measured`."""

    kind: int
    code: int
    subcode: int
    value: int
    signal: int
    text: int
    measured: list[float]


class Details:
    """Reads bodies; texts become numbers of `strings`.

    All bytes are those behind the header, of a chunk that is one plain event in UTF-8.
    """

    def __init__(self, strings: Strings) -> None:
        self.strings = strings
        place = strings.place
        self._line = Memory(lambda raw: place(raw.decode().strip()))
        self._reason = Memory(lambda raw: place(_reason(raw.decode().strip())))
        self._quoted = Memory(lambda raw: place(raw.decode().strip().strip('"')))
        #: The machine of a 001's first line.
        self._host = Memory(lambda raw: place(_host(raw.decode())))
        #: Machines by any address, and by names; -1 for what is not just a name.
        self.machines = Memory(lambda raw: place(machine(raw.decode().strip())))
        self.names = Memory(lambda raw: place(raw.decode()) if _NAME.match(raw) else -1)
        self._error_slot = Memory(lambda raw: place(_error_slot(raw.decode())))
        self._site = Memory(lambda raw: place(_text(raw)))
        self._codes: Memory[tuple[int, int] | None] = Memory(_pair(_CODES))
        self.requeued = Memory(lambda raw: raw.decode().strip().startswith(_REQUEUED))
        self.evicted_codes: Memory[tuple[int, int] | None] = Memory(_evicted_codes)
        #: Where the columns `Usage` and `Request` of a table end, by its first line.
        self.titles = Memory(_titles)
        self.endings: Memory[tuple[int, int] | None] = Memory(_pair(_ENDING))
        self._cpu_seconds = Memory(_cpu_seconds)
        self._tables = Memory(_table)
        self._place = place

    def execute(self, rest: bytes) -> tuple[int, int, int]:
        """Host, slot and site of a 001."""
        first = rest.find(b"\n")
        host = self._host[rest if first < 0 else rest[:first]]
        if first < 0:
            return host, -1, -1
        slot = site = -1
        found = _behind(rest, _SLOT, first)
        if found is not None:
            slot = self._quoted[found]
        if rest.find(SITE.encode(), first) >= 0:
            for _, raw in _SITE.findall(rest, first):
                site = self._site[raw] if raw.strip(_BLANKS) else site
        return host, slot, site

    def transfer(self, rest: bytes) -> tuple[int]:
        """The host of a 040."""
        found = _behind(rest, _TO_HOST)
        return (-1 if found is None else self.machines[found],)

    def ad(self, rest: bytes) -> tuple[int, int, int]:
        """Site, slot and user of a 028."""
        found: dict[bytes, bytes] = {}
        for name, raw in _AD.findall(rest):
            if raw.strip(_BLANKS):
                found[name] = raw
        if not found:
            return -1, -1, -1
        site = found.get(AD_SITE.encode(), b"")
        slot = found.get(b"RemoteHost") or found.get(b"SlotName")
        names = [_value(found[name]) if name in found else None for name in (b"Owner", b"User")]
        return (
            self._site[site],
            self._place(str(_value(slot))) if slot else -1,
            self._place(owner(*names)),
        )

    def held(self, rest: bytes) -> tuple[int, int, int] | None:
        """Code, subcode and reason of a 012."""
        lines = rest.split(b"\n")
        codes = self._codes[lines[-1]] if len(lines) > 2 else None
        if codes:
            del lines[-1]
        elif len(lines) < 2 or (len(lines) > 2 and b"Code" in lines[-1]):
            return None
        if len(lines) == 2:
            return (*(codes or _NO_CODES), self._reason[lines[1]])
        reason = "|".join(line.decode().strip() for line in lines[1:])
        return (*(codes or _NO_CODES), self._place(_reason(reason)))

    def remote_error(self, rest: bytes) -> tuple[int, int, int, int] | None:
        """Code, subcode, reason and slot of a 021."""
        held = self.held(rest)
        return (*held, self._error_slot[rest[: rest.find(b"\n")]]) if held else None

    def evicted(self, rest: bytes) -> Ending | None:
        """What a 004 says."""
        first = rest.find(b"\n")
        codes = self.evicted_codes[rest[:first]] if first > 0 else None
        if not codes:
            return None
        if rest.find(_REQUEUED.encode(), first) >= 0:
            return self._requeued(rest, first, codes)
        reason = _behind(rest, _EVICTION_REASON, first)
        text = -1 if reason is None else self._line[reason]
        measured = self._measured(rest, first)
        kind = Kind.TRANSFER_FAILED if codes[0] in TRANSFER_CODES else Kind.EVICTED
        return Ending(kind, *codes, NONE, NONE, text, measured) if measured else None

    def _requeued(self, rest: bytes, first: int, codes: tuple[int, int]) -> Ending | None:
        lines = rest.split(b"\n")
        if not self.requeued[lines[1]] or len(lines) < 7:
            return None
        ending, measured = self.endings[lines[6]], self._measured(rest, first)
        if not ending or not measured:
            return None
        at = 8 if ending[1] != NONE else 7
        line = lines[at].decode().strip() if len(lines) > at else ""
        reason = "" if line.startswith(TABLE.strip()) else line
        text = self._place(reason.removeprefix("Reason: "))
        return Ending(Kind.REQUEUED, *codes, *ending, text, measured)

    def terminated(self, rest: bytes) -> Ending | None:
        """What a 005 says."""
        first = rest.find(b"\n")
        second = rest.find(b"\n", first + 1)
        ending = self.endings[rest[first + 1 : second]] if 0 < first < second else None
        measured = self._measured(rest, first) if ending else None
        if not ending or not measured:
            return None
        kind = Kind.SUCCEEDED if ending[0] == 0 else Kind.FAILED
        return Ending(kind, NONE, NONE, *ending, -1, measured)

    def _measured(self, rest: bytes, first: int) -> list[float] | None:
        found = [_NAN] * _WIDTH
        at = rest.find(_AFTER_USAGE, first)
        if at >= 0:
            begin, end = rest.rfind(b"\n", first, at) + 1, at + len(_AFTER_USAGE)
            found[7] = self._cpu_seconds[rest[begin:end]]
            if found[7] < 0:
                return None
        for place, after in ((8, _AFTER_SENT), (9, _AFTER_RECEIVED)):
            at = rest.find(after, first)
            if at >= 0:
                digits = rest[rest.rfind(b"\n", first, at) + 1 : at].lstrip(_BLANKS)
                if not digits.isdigit() or len(digits) > 18:
                    return None
                found[place] = float(digits)
        at = rest.find(_TABLE, first)
        if at >= 0:
            header, *lines = rest[at + 1 :].split(b"\n")
            table = self._tables[header]
            for line in lines:
                cells = table[line]
                if cells is None:
                    break
                if cells:
                    place, used, asked = cells
                    found[place] = used
                    if asked is not None:
                        found[place + 1] = asked
        return found


_WIDTH = len(Measured._fields)


def _behind(rest: bytes, text: bytes, first: int = 0) -> bytes | None:
    """The rest of the first line that begins like this, if there is one."""
    at = rest.find(text, first)
    if at < 0:
        return None
    begin = at + len(text)
    end = rest.find(b"\n", begin)
    return rest[begin:end] if end >= 0 else rest[begin:]


def _reason(line: str) -> str:
    return "" if line == NO_REASON else line


def _host(text: str) -> str:
    return machine(text.partition(_HOST_AT)[2].strip())


def _error_slot(text: str) -> str:
    return text.partition(_ERROR_AT)[2].rstrip(":").strip()


def _value(raw: bytes) -> object:
    return parse_value(raw.strip(_BLANKS).decode())


def _text(raw: bytes) -> str:
    value = _value(raw)
    return value if type(value) is str else ""


def _pair(pattern: re.Pattern[bytes]) -> Callable[[bytes], tuple[int, int] | None]:
    def find(raw: bytes) -> tuple[int, int] | None:
        match = pattern.match(raw)
        if not match:
            return None
        one, two = match.groups()
        return NONE if one is None else int(one), NONE if two is None else int(two)

    return find


def _cpu_seconds(line: bytes) -> float:
    match = _USAGE.match(line)
    if not match:
        return -1.0
    n = [int(group) for group in match.groups()]
    days, hours, minutes = n[0] + n[4], n[1] + n[5], n[2] + n[6]
    return float(((days * 24 + hours) * 60 + minutes) * 60 + n[3] + n[7])


def _evicted_codes(text: bytes) -> tuple[int, int] | None:
    # Before HTCondor 10 there were none.
    return _pair(_EVICTED)(text) if b"Code" in text else _NO_CODES


def _titles(header: bytes) -> tuple[int, int]:
    used, asked = (title.encode() for title in TABLE_COLUMNS[:2])
    found = header.find(used), header.find(asked)
    return (found[0] + len(used), found[1] + len(asked)) if min(found) >= 0 else (0, 0)


Cells = tuple[int, float, "float | None"] | tuple[()] | None


def _table(header: bytes) -> Memory[Cells]:
    """The reader of a resource table with this header; see `event._table`."""
    title = header.decode()
    colon = title.find(":")
    ends = [title.find(word) + len(word) for word in TABLE_COLUMNS[:2]]

    def cells(raw: bytes) -> Cells:
        line = raw.decode()
        name = line[:colon].strip().partition(" ")[0]
        if line[colon : colon + 1] != ":" or not name:
            return None  # the table ends here
        used, asked = _number(line[colon + 1 : ends[0]]), _number(line[ends[0] : ends[1]])
        if name == "GPUs":
            return _PLACES[name], asked, None
        if name in ("TimeExecute", "TimeSlotBusy"):
            return _PLACES[name], used, None
        return (_PLACES[name], used, asked) if name in _PLACES else ()

    return Memory(cells)


def _number(cell: str) -> float:
    text = cell.strip()
    if not text:
        return _NAN
    try:
        return float(int(text))
    except OverflowError:
        return math.inf
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return _NAN


#: Where the cells of a resource's line belong in `Measured`.
_PLACES: dict[str, int] = {
    "Memory": 0,
    "Disk": 2,
    "Cpus": 4,
    "GPUs": 6,
    "TimeExecute": 10,
    "TimeSlotBusy": 11,
}

Reader = tuple[Callable[[Details, bytes], Any], tuple[str, ...]]
#: The columns that each reader fills, by the numbers of its events.
READERS: dict[int, Reader] = {
    1: (Details.execute, ("host", "slot", "site")),
    4: (Details.evicted, Ending._fields[:-1]),
    5: (Details.terminated, Ending._fields[:-1]),
    12: (Details.held, ("code", "subcode", "text")),
    21: (Details.remote_error, ("code", "subcode", "text", "slot")),
    28: (Details.ad, ("site", "slot", "user")),
    40: (Details.transfer, ("host",)),
}
