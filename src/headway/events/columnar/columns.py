"""Events as columns, from which the report is made."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headway.events.event import Event, Kind, agent_kind, kind_of
from headway.events.format import FIRST_LINE_IS_REASON, EventType, Resource, inert
from headway.events.opening import Skip

if TYPE_CHECKING:
    import polars as pl


#: Stands for a number that the event does not have.
NONE = -(2**31)

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]
Flags = NDArray[np.bool_]
Array = NDArray[Any]


@dataclass
class UsageColumns:
    """What 004, 005 and the agent's lines measured; NaN: nothing. `row` is the event's row."""

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
    left: Floats  # bytes that it left in a node's store


#: What can be measured: the columns of a table of measurements.
MEASURED = tuple(field.name for field in fields(UsageColumns))[1:]


@dataclass
class Columns:
    """One row per event, in the order of the logs; see `Event` for what the words mean.

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
    text: Ints  # the reason; the nonce of an agent's line; the node of a DAG (000)
    log: Ints  # place in `logs`
    file: Ints  # place in `files`
    offset: Longs  # of the event in its (decompressed) file
    usage: UsageColumns
    strings: list[str] = field(default_factory=list)
    #: The files that were read, in order; `logs` names each chain of rotated files by its newest.
    files: list[str] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)  # of each log: who owns the file, or ""
    skipped: list[tuple[str, Skip]] = field(default_factory=list)  # file, what
    unread: list[tuple[str, str]] = field(default_factory=list)  # file, why
    #: What follows the last complete event of a file: an event that is still being written.
    unfinished: list[tuple[str, Skip]] = field(default_factory=list)
    #: Files whose dates have no year, and nothing else says for certain which year it is.
    yearless: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.number)


def column_names() -> list[str]:
    """The names of the per-event columns."""
    names = [field.name for field in fields(Columns)]
    return names[: names.index("usage")]


# The strings of many events: each is stored once, without control characters.


_LIMIT = 2000  # bytes


class Packed(Sequence[str]):
    """Texts without newlines, stored as bytes."""

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
    """Texts by number, each once, without control characters (see `inert`)."""

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


# What one event brings to the columns: the reference for the readers of whole blocks.


#: Events whose reason is kept.
_WITH_REASON = FIRST_LINE_IS_REASON | {EventType.EVICTED, EventType.HELD, EventType.REMOTE_ERROR}


def put_events(
    columns: Mapping[str, Array], events: Mapping[int, Event], strings: Strings
) -> tuple[Longs, Floats]:
    """Write what events say into their rows; the rows with measurements, and those."""
    rows, measured = list(events), {}
    for name in (*TEXTS, *NUMBERS):
        columns[name][rows] = USUAL[name]
    for row, event in events.items():
        generic = event.number == EventType.GENERIC
        values, found = _of_agent(event.agent or {}) if generic else _of_htcondor(event)
        for name, value in values.items():
            columns[name][row] = strings.place(value) if isinstance(value, str) else value
        if found:
            measured[row] = [found.get(name, math.nan) for name in MEASURED]
    table = np.array(list(measured.values()), np.float64).reshape(-1, len(MEASURED))
    return np.array(list(measured), np.int64), table


_Values = dict[str, int | str]


def _of_agent(line: dict[str, str]) -> tuple[_Values, dict[str, float]]:
    """What a line of the agent says, by column, and the bytes that it staged in, or left."""
    nonce, kind = line.get("nonce"), agent_kind(line)
    if not nonce:
        return {"kind": int(Kind.OTHER)}, {}
    staged = line.get("phase") == "stage-in" and line.get("state") == "end"
    size = line.get("size" if kind is Kind.DONE_LATER else "bytes", "")
    known = size.isascii() and size.isdigit() and len(size) <= 18
    measured = {}
    if known and (staged or kind is Kind.DONE_LATER):
        measured["staged" if staged else "left"] = float(size)
    return {"kind": int(kind), "text": nonce}, measured


def _of_htcondor(event: Event) -> tuple[_Values, dict[str, float]]:
    """What another event says besides its header, by column, and what it measured."""
    number = event.number
    found: _Values = {"kind": int(kind_of(event))}
    if codes := event.codes:
        found["code"], found["subcode"] = map(_clipped, codes)
    if number in (EventType.EVICTED, EventType.TERMINATED):
        for name, value in (("value", event.return_value), ("signal", event.signal)):
            if value is not None:
                found[name] = _clipped(value)
    if number in _WITH_REASON:
        found["text"] = event.reason
    if number == EventType.SUBMIT:
        found["text"] = event.node
    if number in (EventType.EXECUTE, EventType.REMOTE_ERROR, EventType.AD_INFORMATION):
        found |= {"site": event.site, "slot": event.slot}
    if number in (EventType.EXECUTE, EventType.FILE_TRANSFER):
        found["host"] = machine(event.host)
    if number == EventType.AD_INFORMATION:
        found["user"] = _owner(event.attributes)
    return found, _measured(event)


def _clipped(number: int) -> int:
    """The number, or the closest one that 32 bits hold."""
    return min(max(number, NONE + 1), -NONE - 1)


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


def _owner(attributes: Mapping[str, object]) -> str:
    owner, user = attributes.get("Owner"), attributes.get("User")
    if type(owner) is str and owner:
        return owner
    return user.partition("@")[0] if type(user) is str else ""


def _measured(event: Event) -> dict[str, float]:
    """What an event measured, by the fields of `UsageColumns`."""
    if event.number not in (EventType.EVICTED, EventType.TERMINATED):
        return {}
    table, usage, none = event.resources, event.usage, Resource()
    memory, disk, cpus = (table.get(name, none) for name in ("Memory", "Disk", "Cpus"))
    found = {
        "memory_used": memory.usage,
        "memory_asked": memory.request,
        "disk_used": disk.usage,
        "disk_asked": disk.request,
        "cpus_used": cpus.usage,
        "cpus_asked": cpus.request,
        "gpus_asked": table.get("GPUs", none).request,
        "cpu_seconds": usage.user + usage.system if usage else None,
        "sent": event.sent,
        "received": event.received,
        "execute": table.get("TimeExecute", none).usage,
        "busy": table.get("TimeSlotBusy", none).usage,
    }
    return {name: _float(n) for name, n in found.items() if n is not None and n == n}


def _float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


# The events of a range of a log as arrays, before their times are known.


#: The columns of `EventArrays`.
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
#: What most events have there.
USUAL = dict.fromkeys(TEXTS, -1) | dict.fromkeys(NUMBERS, NONE)


@dataclass
class EventArrays:
    """The events of a range of a file, or of several small files, and what was skipped there."""

    columns: dict[str, Array]
    usage_row: Longs
    usage: Floats  # a row has what `MEASURED` names
    hint_row: Longs  # events that tell a time in UTC, or in their ad
    hint: Floats  # see `Clock`; below zero: the time in an ad
    strings: Sequence[str]
    skipped: list[tuple[int, Skip]] = field(default_factory=list)  # with the file
    files: list[int] = field(default_factory=lambda: [0])  # places among the files that are read
    sizes: list[int] = field(default_factory=lambda: [0])  # how many events each file has here
    time: Floats | None = None  # once it is known
    count: int = 0  # of all its events, where only those are here that tell something

    def __len__(self) -> int:
        return len(self.columns["number"])


def blank_columns(size: int) -> dict[str, Array]:
    """Columns of events that say nothing."""
    return {name: np.full(size, USUAL.get(name, 0), kind) for name, kind in TYPES.items()}


def smallest_type(*numbers: int) -> np.dtype[Any]:
    """The smallest type of whole numbers that holds these."""
    least, most = min(numbers, default=0), max(numbers, default=0)
    types = (np.int8, np.int16, np.int32, np.int64)
    return np.dtype(next(t for t in types if np.iinfo(t).min <= least and most <= np.iinfo(t).max))


def no_events() -> EventArrays:
    """Arrays without an event."""
    none = np.empty(0, np.int64)
    return EventArrays(blank_columns(0), none, np.empty((0, len(MEASURED))), none, np.empty(0), [])


def selected(part: EventArrays, keep: Flags) -> EventArrays:
    """Only the events where `keep` is set."""
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


def placed(part: EventArrays, files: Sequence[int], starts: Sequence[int]) -> EventArrays:
    """The same events and skips as those of these files, which began at these offsets."""
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


def joined(parts: Sequence[EventArrays]) -> EventArrays:
    """Arrays that follow each other as one; their strings must be the same list."""
    if len(parts) == 1:
        return parts[0]
    return EventArrays(
        {name: np.concatenate([part.columns[name] for part in parts]) for name in TYPES},
        *joined_usage(parts),
        joined_rows(parts, "hint_row"),
        np.concatenate([part.hint for part in parts]),
        parts[0].strings,
        [skip for part in parts for skip in part.skipped],
    )


def joined_rows(parts: Sequence[EventArrays], name: str) -> Longs:
    """Row numbers within each part as row numbers within all of them."""
    starts = np.cumsum([0, *map(len, parts)])
    rows = [getattr(part, name) + start for part, start in zip(parts, starts, strict=False)]
    return np.concatenate([np.empty(0, np.int64), *rows])


def joined_usage(parts: Sequence[EventArrays]) -> tuple[Longs, Floats]:
    """The rows with measurements, and those."""
    tables = [np.empty((0, len(MEASURED))), *(part.usage for part in parts)]
    return joined_rows(parts, "usage_row"), np.concatenate(tables)


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
            **{name: getattr(columns, name) for name in ("number", "cluster", "proc", "subproc")},
            "time": pl.Series(columns.time).cast(pl.Datetime("us", "UTC")),
            "kind": kinds.gather(columns.kind),
            "code": number(columns.code),
            "subcode": number(columns.subcode),
            "return_value": number(columns.value),
            "signal": number(columns.signal),
            **{name: text(getattr(columns, name)) for name in TEXTS},
            "file": files.gather(columns.file),
            "offset": columns.offset,
        }
    )
