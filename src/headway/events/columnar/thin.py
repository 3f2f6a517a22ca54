"""Thin columns: only what the accounts of a report need, for logs of any size.

Most events of a large log change nothing: image sizes, attribute updates, copies of the job's ad.
`thinned` leaves out those of them that no account can tell from their neighbours. What is kept of
an event takes some forty bytes, and its texts lie where they were read. `Thin` gives them back as
`Columns`, some jobs at a time, so that memory grows with jobs and attempts and not with the file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from headway.events.columnar.assemble import File, microseconds, set_times
from headway.events.columnar.columns import (
    TEXTS,
    TYPES,
    USUAL,
    Array,
    Columns,
    EventArrays,
    Flags,
    Longs,
    Packed,
    UsageColumns,
    joined_usage,
    selected,
    smallest_type,
)
from headway.events.columnar.headers import YEAR, YEARLESS, ZONE, Dates
from headway.events.columnar.pairs import join_pairs
from headway.events.columnar.workers import trim_memory
from headway.events.event import Kind
from headway.events.format import EventType
from headway.events.opening import Skip

#: Events that become columns at a time.
ROWS = 300_000
#: Above so many events, memory matters more than time.
MANY = 2_000_000
#: Where fewer than one event in so many may change nothing, none is looked for.
_WORTH = 8
_KEPT = tuple(name for name in TYPES if name not in ("length", "minute", "second", "fraction"))


def thinned(part: EventArrays) -> EventArrays:
    """The part without the events that change nothing in accounts; `count` is that of all.

    Between two events that mean something for a job's life, the first and the last of the others
    stay, the first sign of life, and each that names another place or user. All that make time go
    back stay, those of 29 February and of dates that are none, and where dates have no year the
    first event of each day and the first ad that tells it.
    """
    part.count = len(part)
    part = selected(part, _worth_keeping(part)) if len(part) > 2 and part.time is None else part
    if _plain_dates(part).all():  # only where a date is none the length is asked for
        part.columns["length"] = np.zeros(len(part), TYPES["length"])
    return part


def _worth_keeping(part: EventArrays) -> Flags:
    columns, minute = part.columns, part.columns["minute"]
    keep = np.ones(len(part), np.bool_)
    zone, kind = minute // ZONE, columns["kind"]
    few = np.count_nonzero((kind == Kind.OTHER) | (kind == Kind.ALIVE)) * _WORTH < len(kind)
    if few or (zone != zone[0]).any():
        return keep
    order, starts = _by_job(part)
    kind = kind[order]
    alive = (kind == Kind.ALIVE) & (columns["number"][order] != EventType.GENERIC)
    quiet = alive | (kind == Kind.OTHER)
    begins = quiet & (starts | ~np.append(False, quiet[:-1]))
    ends = quiet & ~np.append(quiet[1:] & ~starts[1:], False)
    place = np.arange(len(part))
    run = np.maximum.accumulate(np.where(begins, place, 0))
    signs = np.cumsum(alive)
    first_sign = alive & (signs - (signs - alive)[run] == 1)
    drop = quiet & ~begins & ~ends & ~first_sign & ~_names_others(part, order, run)
    time = (minute % ZONE)[order] * 60 + columns["second"][order] + columns["fraction"][order]
    later = np.append(time[1:], time[-1:]) >= time
    drop &= later & np.append(True, later[:-1]) & _plain_dates(part)[order]
    keep[order[drop]] = False
    if (minute % ZONE >= YEARLESS).any():
        day = minute // 10_000
        keep[1:] |= day[1:] != day[:-1]
        keep[0] = True
        ads = part.hint_row[part.hint < 0]
        _, first = np.unique(
            np.searchsorted(np.cumsum(part.sizes), ads, "right"), return_index=True
        )
        keep[ads[first]] = True
    return keep


def _by_job(part: EventArrays) -> tuple[Longs, Flags]:
    """The events sorted by file, cluster and proc, and which are the first of their job."""
    keys = _job_keys(*(part.columns[name] for name in ("cluster", "proc")))
    if len(part.sizes) > 1:
        keys.append(np.repeat(np.arange(len(part.sizes)), part.sizes))
    order = np.lexsort(keys)
    return order, _starts(keys, order)


def _starts(keys: Sequence[Longs], order: Array) -> Flags:
    """Which rows are the first with their keys."""
    starts = np.zeros(len(order), np.bool_)
    starts[0] = True
    for key in keys:
        values = key[order]
        starts[1:] |= values[1:] != values[:-1]
    return starts


def _job_keys(cluster: Array, proc: Array) -> list[Longs]:
    """Keys of jobs for `np.lexsort`: one number per job where 64 bits can hold it."""
    cluster, proc = cluster.astype(np.int64), proc.astype(np.int64)
    span = int(proc.max()) - int(proc.min()) + 1
    if int(np.abs(cluster).max()) < 2**61 // span:
        return [cluster * span + (proc - proc.min())]
    return [proc, cluster]


def _names_others(part: EventArrays, order: Longs, run: Longs) -> Flags:
    """Which events name a place, a user or a text that the one before them in their run did not."""
    texts = [part.columns[name][order] for name in TEXTS]
    says = np.logical_or.reduce([text >= 0 for text in texts])
    place = np.arange(len(order))
    before = np.maximum.accumulate(np.where(says, place, -1))
    before = np.append(-1, before[:-1])
    same = before >= run
    for text in texts:
        same &= text[before] == text
    return np.asarray(says & ~same)


def _plain_dates(part: EventArrays) -> Flags:
    """Which dates exist in every year."""
    date = part.columns["minute"] % ZONE
    return Dates.of(date).good & (date >= YEAR)


class Column:
    """One number for each of many rows, in as few bytes as they need."""

    def __init__(self, values: Array, usual: int) -> None:
        """Take the values; where most of them are `usual`, only the others are kept."""
        self._count, self.usual = len(values), usual
        self._rows: Array | None = None
        rows = np.flatnonzero(values != usual)
        if len(rows) * 2 < len(values):
            self._rows = rows.astype(np.int32) if len(values) < 2**31 else rows
            values = values[rows]
        self._values = values.astype(smallest_type(*_ends(values)), copy=False)

    def all(self) -> Array:
        """The number of each row, in small numbers where all are kept."""
        if self._rows is None:
            return self._values
        found = np.full(self._count, self.usual, np.result_type(np.int8, smallest_type(self.usual)))
        found = found.astype(np.result_type(found, self._values), copy=False)
        found[self._rows] = self._values
        return found


@dataclass
class _SomeJobs:
    """The events of some jobs."""

    rows: Array  # in `Thin`, until the others have been taken from there
    narrow: dict[str, Column] = field(default_factory=dict)
    usage: list[Array] = field(default_factory=list)
    time: Longs = field(default_factory=lambda: np.empty(0, np.int64))
    file: Array = field(default_factory=lambda: np.empty(0, np.int16))


@dataclass
class Thin:
    """The events of logs, as far as accounts need them; see `Columns` for what the words mean."""

    narrow: dict[str, Column]  # texts are places in all of `texts`
    time: Longs
    file: Array
    usage_row: Longs
    usage: list[Array]  # by the fields of `UsageColumns` behind `row`
    texts: list[Packed]
    files: list[File]
    logs: list[str]
    owners: list[str]
    skipped: list[tuple[str, Skip]]
    yearless: list[str]
    events: int  # those that were left out too
    unread: list[tuple[str, str]] = field(default_factory=list)  # what is no log, and why
    left_out: int = 0  # jobs that were not asked for, and not read

    def __len__(self) -> int:
        return len(self.time)

    @property
    def log(self) -> Array:
        """The log of each event."""
        return np.array([file.log for file in self.files], np.int32)[self.file]

    def columns(self) -> Columns:
        """All of them at once."""
        return next(self.some_jobs(len(self)))

    def last_events(self) -> Longs:
        """The time of the last event of each log."""
        found, log = np.zeros(len(self.logs), np.int64), self.log
        if len(log):
            starts = np.flatnonzero(np.append(True, log[1:] != log[:-1]))
            np.maximum.at(found, log[starts], np.maximum.reduceat(self.time, starts))
        return found

    def some_jobs(self, rows: int = ROWS, *, forget: bool = False) -> Iterator[Columns]:
        """The columns of all events, those of about so many at a time.

        Args:
            rows: How many events to give at a time.
            forget: Give up the events themselves, each with the columns that it is given in.

        Yields:
            Jobs in the order of their clusters and procs, and each of them as a whole; at least
            one set of columns comes.
        """
        large = len(self) > MANY
        bases = np.cumsum([0, *(len(packed) for packed in self.texts)])
        parts = self._parts(rows, forget=forget)
        while parts:
            yield self._columns(parts.pop(), bases)
            if large:
                trim_memory()
        if forget:
            self.texts = []

    def _parts(self, rows: int, *, forget: bool) -> list[_SomeJobs]:
        """The events, those of some jobs together, in the reverse order."""
        order, bounds = self._in_order(rows)
        parts = [_SomeJobs(np.sort(order[begin:end])) for begin, end in pairwise(bounds)]
        del order
        for name in list(self.narrow):
            column = (self.narrow.pop if forget else self.narrow.__getitem__)(name)
            values = column.all()
            for part in parts:
                part.narrow[name] = Column(values[part.rows], column.usual)
        usage_of = np.full(len(self), -1, np.int32 if len(self) < 2**31 else np.int64)
        usage_of[self.usage_row] = np.arange(len(self.usage_row))
        for part in parts:
            measured = usage_of[part.rows]
            mine = np.flatnonzero(measured != -1)
            part.usage = [mine, *(column[measured[mine]] for column in self.usage)]
            part.time, part.file = self.time[part.rows], self.file[part.rows]
            part.rows = part.rows[:0]
        if forget:
            self.time, self.file = self.time[:0], self.file[:0]
            self.usage, self.usage_row = [], self.usage_row[:0]
        parts.reverse()
        return parts

    def _in_order(self, rows: int) -> tuple[Array, list[int]]:
        """The rows by job, and where to cut them so that no job is cut."""
        if len(self) <= rows:
            return np.arange(len(self)), [0, len(self)]
        keys = _job_keys(*(self.narrow[name].all() for name in ("cluster", "proc")))
        # The events of one job may be in any order here: each part is sorted when it is cut.
        order = np.argsort(keys[0]) if len(keys) == 1 else np.lexsort(keys)
        order = order.astype(np.int32) if len(order) < 2**31 else order
        starts = np.flatnonzero(_starts(keys, order))
        wanted = np.arange(rows, len(self), rows)
        cuts = starts[np.minimum(np.searchsorted(starts, wanted), len(starts) - 1)]
        return order, [0, *np.unique(cuts[cuts > 0]).tolist(), len(self)]

    def _columns(self, part: _SomeJobs, bases: Longs) -> Columns:
        found = {name: each.all().astype(TYPES[name]) for name, each in part.narrow.items()}
        strings = self._pool(found, bases)
        mine, *usage = part.usage
        return Columns(
            **found,
            time=part.time,
            file=part.file.astype(np.int32),
            log=np.array([one.log for one in self.files], np.int32)[part.file],
            usage=UsageColumns(mine, *(column.astype(np.float64) for column in usage)),
            strings=strings,
            files=[one.name for one in self.files],
            logs=self.logs,
            owners=self.owners,
            skipped=self.skipped,
            unread=self.unread + [(one.name, one.unread) for one in self.files if one.unread],
            unfinished=[(one.name, one.unfinished) for one in self.files if one.unfinished],
            yearless=self.yearless,
        )

    def _pool(self, found: dict[str, Array], bases: Longs) -> list[str]:
        """The texts that the columns name, each once; the columns then hold their places."""
        places = np.full(int(bases[-1]) + 1, -1, np.int32)  # the last one is for none
        for name in TEXTS:
            places[found[name]] = 0
        used = np.flatnonzero(places[:-1] == 0)
        places[-1] = -1
        pool: defaultdict[str, int] = defaultdict()
        pool.default_factory = pool.__len__
        cuts = np.searchsorted(used, bases)
        for at, packed in enumerate(self.texts):
            if cuts[at] < cuts[at + 1]:
                mine = packed.at(used[cuts[at] : cuts[at + 1]] - bases[at])
                places[used[cuts[at] : cuts[at + 1]]] = [pool[text] for text in mine]
        for name in TEXTS:
            found[name] = places[found[name]]
        return list(pool)


def thin_of(
    parts: Iterable[EventArrays], files: Sequence[File], logs: Sequence[str], owners: Sequence[str]
) -> Thin:
    """All parts as one; they are `thinned` and in the order of the files."""
    held = list(parts)
    # Copies: otherwise the texts would keep all memory of what came from another process.
    texts = [Packed(Packed.of(part.strings).data.copy()) for part in held]
    for part in held:
        part.strings = []
    join_pairs(
        held,
        np.array([one.log for one in files], np.int64),
        lambda part, places: texts[part].at(places),
    )
    events, rows = sum(part.count for part in held), sum(map(len, held))
    yearless = set_times(held, files)
    events -= rows - sum(map(len, held))  # those with an impossible date
    skipped = [(files[place].name, skip) for part in held for place, skip in part.skipped]
    time = np.concatenate([np.empty(0, np.int64), *map(microseconds, held)])
    sizes = [size for part in held for size in part.sizes]
    file = np.repeat(np.array([f for part in held for f in part.files], np.int32), sizes)
    usage_row, usage = joined_usage(held)
    bases = np.cumsum([0, *(len(packed) for packed in texts)])[:-1].tolist()
    columns = {
        name: Column(
            _joined(held, name, bases if name in TEXTS else [0] * len(held)), USUAL.get(name, 0)
        )
        for name in _KEPT
    }
    return Thin(
        columns,
        time,
        file.astype(np.int16) if len(files) < 2**15 else file,
        usage_row,
        [_narrow(column) for column in usage.T],
        texts,
        list(files),
        list(logs),
        list(owners),
        skipped,
        [files[place].name for place in yearless],
        events,
    )


def _joined(parts: Sequence[EventArrays], name: str, bases: Sequence[int]) -> Array:
    """One column of all parts, in small numbers; it is taken from the parts."""
    pieces: list[Array] = []
    for part, base in zip(parts, bases, strict=True):
        column = part.columns.pop(name)
        if base:
            column = np.where(column < 0, -1, column.astype(np.int64) + base).astype(np.int32)
        pieces.append(column)
    kind = smallest_type(*(end for piece in pieces for end in _ends(piece)))
    found = np.empty(sum(map(len, pieces)), kind)
    begin = 0
    for place, piece in enumerate(pieces):
        found[begin : begin + len(piece)] = piece
        begin += len(piece)
        pieces[place] = found[:0]  # gives its memory back
    return found


def _ends(values: Array) -> list[int]:
    return [int(values.min()), int(values.max())] if values.size else []


def _narrow(found: Array) -> Array:
    """Numbers in single precision, where that holds all of them."""
    with np.errstate(over="ignore"):
        small = found.astype(np.float32)
    return small if np.array_equal(small, found, equal_nan=True) else found
