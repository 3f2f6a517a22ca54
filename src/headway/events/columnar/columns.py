"""Events as columns: what accounts of millions of events are made from."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.events.event import Event, Kind, kind_of
from headway.events.format import FIRST_LINE_IS_REASON, EventType, Resource, inert
from headway.events.opening import Skip

if TYPE_CHECKING:
    import polars as pl


#: A whole number that the event does not have.
NONE = -(2**31)

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]


@dataclass
class Usage:
    """What 004, 005 and the agent's lines measured; NaN: not said. `row` is the event's row."""

    row: Longs
    memory_used: Floats  # MB
    memory_asked: Floats
    disk_used: Floats  # KB
    disk_asked: Floats
    cpus_used: Floats
    cpus_asked: Floats
    gpus_asked: Floats
    cpu_seconds: Floats  # user and system, of this attempt
    sent: Floats  # bytes of this attempt
    received: Floats
    execute: Floats  # HTCondor's TimeExecute, seconds
    busy: Floats  # HTCondor's TimeSlotBusy, seconds
    staged: Floats  # bytes that the agent staged in by itself


@dataclass
class Columns:
    """One row an event, in the order of the logs; see `Event` for what the words mean.

    Text columns hold places in `strings`, -1 for none. Events about no job (a negative proc, an
    execution point's own numbers) have rows too.
    """

    number: NDArray[np.int16]
    cluster: Longs
    proc: Longs
    subproc: Longs
    time: Longs  # microseconds since the epoch
    kind: Bytes  # `Kind`
    code: Ints  # of 004, 012, 021; NONE
    subcode: Ints
    value: Ints  # the return value: 005, 004 of a requeued job; NONE
    signal: Ints
    site: Ints  # GLIDEIN_ResourceName, as 001 and 028 name it
    slot: Ints  # the slot's name: 001, 021, 028
    host: Ints  # the machine's name or address: 001, 040
    user: Ints  # 028's Owner or User
    text: Ints  # the reason; the nonce of an agent's line
    log: Ints  # place in `logs`
    file: Ints  # place in `files`
    offset: Longs  # of the event in its (decompressed) file
    usage: Usage
    strings: list[str] = field(default_factory=list)
    #: The files that were read, in order; `logs` names each chain of rotated files by its newest.
    files: list[str] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)  # of each log: who owns the file, or ""
    skipped: list[tuple[str, Skip]] = field(default_factory=list)  # file, what
    unread: list[tuple[str, str]] = field(default_factory=list)  # file, why
    #: What lies behind the last complete event of a file: an event that is still being written.
    unfinished: list[tuple[str, Skip]] = field(default_factory=list)
    #: Files whose dates have no year, where nothing tells for sure which one is meant.
    yearless: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.number)


def column_names() -> list[str]:
    """The names of the per-event columns."""
    return [f.name for f in fields(Columns) if f.name not in _REST]


_REST = {
    "usage",
    "strings",
    "files",
    "logs",
    "owners",
    "skipped",
    "unread",
    "unfinished",
    "yearless",
}


# Strings of many events: each kept once, and made inert.


_LIMIT = 2000  # bytes


class Packed(Sequence[str]):
    """Texts without newlines, as the bytes that they are."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self._data = data
        self._count = int(np.count_nonzero(data == 0x0A)) + 1 if data.size else 0

    @staticmethod
    def of(texts: Sequence[str]) -> Packed:
        """These texts; none of them has a newline."""
        if isinstance(texts, Packed):
            return texts
        return Packed(np.frombuffer("\n".join(texts).encode(), np.uint8))

    @property
    def data(self) -> NDArray[np.uint8]:
        """All of them, with a newline between two."""
        return self._data

    def all(self) -> list[str]:
        """The texts, one by one."""
        return self._data.tobytes().decode().split("\n") if self._count else []

    def at(self, places: NDArray[np.int64]) -> list[str]:
        """The texts at these places."""
        if len(places) * 4 > self._count:
            every = self.all()
            return [every[place] for place in places.tolist()]
        ends = np.append(np.flatnonzero(self._data == 0x0A), self._data.size)
        data, begins = self._data.tobytes(), np.append(0, ends[:-1] + 1)
        bounds = zip(begins[places].tolist(), ends[places].tolist(), strict=True)
        return [data[begin:end].decode() for begin, end in bounds]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        return iter(self.all())

    def __getitem__(self, place: Any) -> Any:
        return self.all()[place]


class Strings:
    """Texts by number, each once, made inert."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._places: dict[str, int] = {"": -1}

    def place(self, text: str) -> int:
        """The number of a text; -1 for none."""
        found = self._places.get(text)
        if found is not None:
            return found
        made = inert(text, _LIMIT)
        found = self._places.get(made)
        if found is None:
            found = self._places[made] = len(self.all)
            self.all.append(made)
        if len(text) <= _LIMIT:  # a giant is not worth remembering as it was
            self._places[text] = found
        return found

    def place_all(self, texts: list[str]) -> list[int]:
        """The numbers of texts that have no blanks around them."""
        places = self._places
        new = [text for text in texts if text not in places]
        if new:
            joined = "".join(new)
            if joined.isascii() and joined.isprintable() and len(max(new, key=len)) <= _LIMIT:
                # All of them are inert already.
                start = len(self.all)
                self.all += dict.fromkeys(new)
                places.update(zip(self.all[start:], range(start, len(self.all)), strict=True))
            else:
                return [self.place(text) for text in texts]
        return [places[text] for text in texts]


# What one event brings to the columns, as its object says: the reference for the quick reader.


_NAN = math.nan

#: Events whose reason is kept.
WITH_REASON = FIRST_LINE_IS_REASON | {EventType.EVICTED, EventType.HELD, EventType.REMOTE_ERROR}


class Measured(NamedTuple):
    """What a 004, a 005 or an agent's line measured; NaN where it does not say."""

    memory_used: float = _NAN
    memory_asked: float = _NAN
    disk_used: float = _NAN
    disk_asked: float = _NAN
    cpus_used: float = _NAN
    cpus_asked: float = _NAN
    gpus_asked: float = _NAN
    cpu_seconds: float = _NAN
    sent: float = _NAN
    received: float = _NAN
    execute: float = _NAN
    busy: float = _NAN
    staged: float = _NAN


NOTHING = Measured()


def is_nothing(measured: Measured) -> bool:
    """Whether nothing was measured."""
    return measured is NOTHING or all(value != value for value in measured)


class Row(NamedTuple):
    """What an event says beside its header."""

    kind: int
    code: int
    subcode: int
    value: int
    signal: int
    site: str
    slot: str
    host: str
    user: str
    text: str
    measured: Measured


def row_of(event: Event) -> Row:
    """What an event says beside its header."""
    codes = event.codes
    agent = event.agent or {}
    nonce = agent.get("nonce", "")
    number = event.number
    return Row(
        kind=int(kind_of(event)),
        code=clipped(codes[0] if codes else None),
        subcode=clipped(codes[1] if codes else None),
        value=clipped(event.return_value),
        signal=clipped(event.signal),
        site=event.site,
        slot=event.slot,
        host=machine(event.host) if number in (EventType.EXECUTE, EventType.FILE_TRANSFER) else "",
        user=_user(event),
        text=event.reason if number in WITH_REASON else nonce,
        measured=_measured(event) if number in (4, 5) else staged(agent) if nonce else NOTHING,
    )


def clipped(number: int | None) -> int:
    """The number as 32 bits hold it."""
    return NONE if number is None else min(max(number, NONE + 1), -NONE - 1)


def machine(host: str) -> str:
    """The name of the machine in an address like `<[::1]:9618?addrs=…&alias=name>`, or its IP."""
    inner = host.strip("<>")
    address, _, query = inner.partition("?")
    for part in query.split("&"):
        if part.startswith("alias=") and len(part) > 6:
            return part[6:]
    if address.startswith("["):
        return address[1:].partition("]")[0]
    name, colon, port = address.rpartition(":")
    return name if colon and ":" not in name and port.isdigit() else address


def owner(user: object, full: object) -> str:
    """The name of the user by the attributes `Owner` and `User` of a job."""
    if type(user) is str and user:
        return user
    return full.partition("@")[0] if type(full) is str else ""


def staged(agent: dict[str, str]) -> Measured:
    """The bytes that the agent staged in by itself, where its line says so."""
    size = agent.get("bytes", "")
    if agent.get("phase") != "stage-in" or agent.get("state") != "end":
        return NOTHING
    known = size.isascii() and size.isdigit() and len(size) <= 18
    return NOTHING._replace(staged=float(size)) if known else NOTHING


def _user(event: Event) -> str:
    if event.number != EventType.AD_INFORMATION:
        return ""
    found = event.attributes
    return owner(found.get("Owner"), found.get("User"))


_EMPTY = Resource()


def _measured(event: Event) -> Measured:
    table, usage = event.resources, event.usage
    memory, disk = table.get("Memory", _EMPTY), table.get("Disk", _EMPTY)
    cpus = table.get("Cpus", _EMPTY)
    return Measured(
        _float(memory.usage),
        _float(memory.request),
        _float(disk.usage),
        _float(disk.request),
        _float(cpus.usage),
        _float(cpus.request),
        _float(table.get("GPUs", _EMPTY).request),
        _float(usage.user + usage.system if usage else None),
        _float(event.sent),
        _float(event.received),
        _float(table.get("TimeExecute", _EMPTY).usage),
        _float(table.get("TimeSlotBusy", _EMPTY).usage),
    )


def _float(number: float | None) -> float:
    if number is None:
        return _NAN
    try:
        return float(number)
    except OverflowError:
        return math.inf


# A part: the events of a stretch of a log as arrays, before its clock has been read.


#: The columns that a part has, beside those of its clock.
TYPES: dict[str, str] = {
    "number": "<i2",
    "cluster": "<i8",
    "proc": "<i8",
    "subproc": "<i8",
    "kind": "|u1",
    "code": "<i4",
    "subcode": "<i4",
    "value": "<i4",
    "signal": "<i4",
    "site": "<i4",
    "slot": "<i4",
    "host": "<i4",
    "user": "<i4",
    "text": "<i4",
    "offset": "<i8",
    "length": "<i4",
    "minute": "<i8",
    "second": "|u1",
    "fraction": "<f8",
}
TEXTS = ("site", "slot", "host", "user", "text")
NUMBERS = ("code", "subcode", "value", "signal")
_WIDTH = len(Measured._fields)

Array = NDArray[Any]


@dataclass
class Part:
    """The events of a range of a file, or of several small files, and what was skipped there."""

    columns: dict[str, Array]
    usage_row: NDArray[np.int64]
    usage: NDArray[np.float64]  # a row as `Measured`
    hint_row: NDArray[np.int64]  # events that tell a time in UTC, or in their ad
    hint: NDArray[np.float64]  # see `Clock`; below zero: the time in an ad
    strings: Sequence[str]
    skipped: list[tuple[int, Skip]] = field(default_factory=list)  # with the file
    files: list[int] = field(default_factory=lambda: [0])  # places among the files that are read
    sizes: list[int] = field(default_factory=lambda: [0])  # how many events each file has here
    time: NDArray[np.float64] | None = None  # once it is known
    count: int = 0  # of all its events, where only those are here that tell something

    def __len__(self) -> int:
        return len(self.columns["number"])


def blank_columns(size: int) -> dict[str, Array]:
    """Columns of events that say nothing."""
    columns: dict[str, Array] = {name: np.zeros(size, kind) for name, kind in TYPES.items()}
    for name in TEXTS:
        columns[name].fill(-1)
    for name in NUMBERS:
        columns[name].fill(NONE)
    return columns


def put_rows(
    columns: dict[str, Array], at: Array | list[int] | slice, rows: Sequence[Row], strings: Strings
) -> None:
    """Write what events say into their places."""
    place = strings.place
    for name, values in zip(Row._fields, zip(*rows, strict=True), strict=False):
        if name in TEXTS:
            columns[name][at] = [place(value) for value in values]
        elif name != "measured":
            columns[name][at] = values


def measurements(rows: Sequence[Measured]) -> NDArray[np.float64]:
    """Measurements as an array."""
    return np.array(rows, np.float64).reshape(len(rows), _WIDTH)


def no_events() -> Part:
    """An empty part."""
    none = np.empty(0, np.int64)
    return Part(blank_columns(0), none, measurements([]), none, np.empty(0), [])


def kept(part: Part, keep: NDArray[np.bool_]) -> Part:
    """The part with these of its events only."""
    place = np.concatenate([[0], np.cumsum(keep)])
    usage, hint = keep[part.usage_row], keep[part.hint_row]
    bounds = np.cumsum([0, *part.sizes])
    return replace(
        part,
        columns={name: column[keep] for name, column in part.columns.items()},
        usage_row=place[part.usage_row[usage]],
        usage=part.usage[usage],
        hint_row=place[part.hint_row[hint]],
        hint=part.hint[hint],
        sizes=np.diff(place[np.minimum(bounds, len(keep))]).tolist(),
        time=None if part.time is None else part.time[keep],
    )


def placed(part: Part, files: Sequence[int], starts: Sequence[int]) -> Part:
    """The part with its events and skips put into these files, which began at these offsets."""
    offset = part.columns["offset"]
    bounds = [*np.searchsorted(offset, starts).tolist(), len(part)]
    part.files, part.sizes = list(files), np.diff(bounds).tolist()
    part.columns["offset"] = offset - np.repeat(np.array(starts, np.int64), part.sizes)
    places = [bisect_right(starts, skip.offset) - 1 for _, skip in part.skipped]
    part.skipped = [
        (files[place], Skip(skip.offset - starts[place], skip.length, skip.why))
        for place, (_, skip) in zip(places, part.skipped, strict=True)
    ]
    return part


def joined(parts: Sequence[Part]) -> Part:
    """Parts that follow each other as one; their strings must be the same list."""
    if len(parts) == 1:
        return parts[0]
    starts = np.cumsum([0, *(len(part) for part in parts)])
    return Part(
        {
            name: np.concatenate([np.empty(0, kind), *(part.columns[name] for part in parts)])
            for name, kind in TYPES.items()
        },
        np.concatenate(
            [np.empty(0, np.int64), *(p.usage_row + s for p, s in zip(parts, starts, strict=False))]
        ),
        np.concatenate([np.empty((0, _WIDTH)), *(part.usage for part in parts)]),
        np.concatenate(
            [np.empty(0, np.int64), *(p.hint_row + s for p, s in zip(parts, starts, strict=False))]
        ),
        np.concatenate([np.empty(0), *(part.hint for part in parts)]),
        parts[0].strings if parts else [],
        [skip for part in parts for skip in part.skipped],
    )


# Events as a data frame, for those who want to ask their own questions.


def frame(columns: Columns) -> pl.DataFrame:
    """Events as a data frame, for your own questions.

    Args:
        columns: The events; see `read_columns`.

    Returns:
        A row for each event. What an event does not have is null; `file` is its file's name.
    """
    import polars as pl

    strings = pl.Series(columns.strings, dtype=pl.String)
    kinds = pl.Series([kind.name.lower() for kind in Kind], dtype=pl.String)
    files = pl.Series(columns.files, dtype=pl.String)

    def number(values: Ints) -> pl.Series:
        return pl.Series(values).replace(NONE, None)

    def text(places: Ints) -> pl.Series:
        # The last place, -1, is for no text.
        return strings.extend_constant(None, 1).gather(
            np.where(places < 0, len(columns.strings), places)
        )

    return pl.DataFrame(
        {
            "number": columns.number,
            "cluster": columns.cluster,
            "proc": columns.proc,
            "subproc": columns.subproc,
            "time": pl.Series(columns.time).cast(pl.Datetime("us", "UTC")),
            "kind": kinds.gather(columns.kind),
            "code": number(columns.code),
            "subcode": number(columns.subcode),
            "return_value": number(columns.value),
            "signal": number(columns.signal),
            "site": text(columns.site),
            "slot": text(columns.slot),
            "host": text(columns.host),
            "user": text(columns.user),
            "text": text(columns.text),
            "file": files.gather(columns.file),
            "offset": columns.offset,
        }
    )
