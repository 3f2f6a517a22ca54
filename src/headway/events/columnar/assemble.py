"""Putting parts together: one table of columns out of all the files that were read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.events.clock import Clock
from headway.events.columnar.columns import Columns, Usage
from headway.events.columnar.moments import all_with_year, tell
from headway.events.columnar.part import (
    TEXTS,
    TYPES,
    Array,
    Part,
    blank_columns,
    kept,
    measurements,
    put_rows,
)
from headway.events.columnar.rows import is_nothing, row_of
from headway.events.columnar.strings import Strings
from headway.events.columnar.years import YEAR, Span, agreed, years_earlier
from headway.events.event import Event
from headway.events.skip import Skip, bounded

_LONG, _SHORT = np.iinfo(np.int64), np.iinfo(np.int16)
#: Columns of a part that end with it.
_CLOCK = ("minute", "second", "fraction", "length")


@dataclass
class File:
    """A file that was read."""

    name: str
    log: int = 0  # place among the logs
    modified: float = 0.0
    unfinished: Skip | None = None
    unread: str = ""  # why


def part_of(events: Iterable[Event], offsets: Sequence[int] | None = None) -> Part:
    """The part that these events of one file are; they know their times."""
    events = list(events)
    columns = blank_columns(len(events))
    columns["number"][:] = [_within(event.number, _SHORT) for event in events]
    for name in ("cluster", "proc", "subproc"):
        columns[name][:] = [_within(getattr(event, name), _LONG) for event in events]
    columns["offset"][:] = -1 if offsets is None else offsets
    rows = [row_of(event) for event in events]
    strings = Strings()
    put_rows(columns, slice(None), rows, strings)
    with_usage = [at for at, row in enumerate(rows) if not is_nothing(row.measured)]
    return Part(
        columns,
        np.array(with_usage, np.int64),
        measurements([rows[at].measured for at in with_usage]),
        np.empty(0, np.int64),
        np.empty(0),
        strings.all,
        sizes=[len(events)],
        time=np.array([event.time for event in events], np.float64),
    )


def columns_of(
    events: Iterable[Event],
    *,
    file: str = "",
    offsets: Sequence[int] | None = None,
    skipped: Iterable[Skip] = (),
) -> Columns:
    """The columns of some events of one file; `offsets` are their places there (-1: unknown)."""
    part = part_of(events, offsets)
    part.skipped = [(0, skip) for skip in skipped]
    return assemble([part], [File(file)], [file], [""])


def assemble(
    parts: Iterable[Part], files: Sequence[File], logs: Sequence[str], owners: Sequence[str]
) -> Columns:
    """The columns of all parts, which are in the order of the files; leaves the parts empty."""
    pool: defaultdict[str, int] = defaultdict()
    pool.default_factory = pool.__len__
    # One part after the other, as it comes: others may still be being read.
    parts = [_pooled(part, pool) for part in parts]
    doubtful = tell_times(parts, files)
    sizes = [size for part in parts for size in part.sizes]
    file = np.repeat(np.array([f for part in parts for f in part.files], np.int32), sizes)
    usage = _usage(parts)
    return Columns(
        **{name: _joined(parts, name) for name in TYPES if name not in _CLOCK},
        time=np.concatenate([np.empty(0, np.int64), *map(microseconds, parts)]),
        file=file,
        log=np.array([one.log for one in files], np.int32)[file],
        usage=usage,
        strings=list(pool),
        files=[one.name for one in files],
        logs=list(logs),
        owners=list(owners),
        skipped=[(files[place].name, skip) for part in parts for place, skip in part.skipped],
        unread=[(one.name, one.unread) for one in files if one.unread],
        unfinished=[(one.name, one.unfinished) for one in files if one.unfinished],
        yearless=[files[place].name for place in doubtful],
    )


def _pooled(part: Part, pool: defaultdict[str, int]) -> Part:
    """The part with its texts as places in the pool."""
    # The place -1 is the last one.
    places = np.array([*map(pool.__getitem__, part.strings), -1], np.int32)
    part.strings = []
    for name in TEXTS:
        part.columns[name] = places[part.columns[name]]
    return part


def _joined(parts: Sequence[Part], name: str) -> Array:
    # One column after the other gives its memory back, so that there are never two of all.
    pieces = [part.columns.pop(name) for part in parts]
    return np.concatenate([np.empty(0, TYPES[name]), *pieces])


def _usage(parts: Sequence[Part]) -> Usage:
    starts = np.cumsum([0, *map(len, parts)])[:-1]
    rows = [part.usage_row + start for part, start in zip(parts, starts, strict=True)]
    table = np.concatenate([measurements([]), *(part.usage for part in parts)])
    row = np.concatenate([np.empty(0, np.int64), *rows])
    return Usage(row, *(np.ascontiguousarray(column) for column in table.T))


def microseconds(part: Part) -> NDArray[np.int64]:
    """The times of a part's events, which it loses."""
    assert part.time is not None
    found = np.rint(part.time * 1e6).astype(np.int64)
    part.time = None
    return found


class _Stretch(NamedTuple):
    """The events of one file in a part."""

    part: Part
    file: int
    start: int
    stop: int

    def column(self, name: str) -> Array:
        return self.part.columns[name][self.start : self.stop]


def tell_times(parts: list[Part], files: Sequence[File]) -> list[int]:
    """Give the parts their times, file by file; an event without one becomes a skip.

    The files whose year nothing tells for sure are given back.
    """
    untold = [part for part in parts if part.time is None]
    stretches = [stretch for part in untold for stretch in _stretches(part)]
    for part in untold:
        part.time = np.empty(len(part))
    unsure: dict[int, list[_Stretch]] = {}
    for file, group in groupby(stretches, key=lambda stretch: stretch.file):
        mine = list(group)
        if not _tell_file(mine, Clock(files[file].modified)):
            unsure[file] = mine
    doubtful = _agree(parts, files, unsure) if unsure else []
    for place, part in enumerate(parts):
        if part.time is not None and np.isnan(part.time).any():
            parts[place] = part = _without_dateless(part)
        for name in _CLOCK:
            part.columns.pop(name, None)
    return doubtful


def _agree(
    parts: Sequence[Part], files: Sequence[File], unsure: Mapping[int, Sequence[_Stretch]]
) -> list[int]:
    """Put the files without a year beside others that have one, and tell which are in doubt."""
    spans: dict[int, Span] = {}
    for part in parts:
        assert part.time is not None
        stops = np.cumsum(part.sizes).tolist()
        for file, stop, size in zip(part.files, stops, part.sizes, strict=True):
            times = part.time[stop - size : stop]
            times = times[~np.isnan(times)]
            if len(times):
                mine = Span(float(times.min()), float(times.max()))
                spans[file] = mine.with_(spans[file]) if file in spans else mine
    names = [file.name for file in files]
    known = {file: span for file, span in spans.items() if file not in unsure}
    open_ = {file: (spans[file], files[file].modified) for file in unsure if file in spans}
    years, doubtful = agreed(names, known, open_)
    for file, back in years.items():
        shift = years_earlier(spans[file], back)
        if shift is None:
            latest = spans[file].begin - (back - 0.5) * YEAR
            _tell_file(unsure[file], Clock(files[file].modified, latest=latest))
            continue
        for part, _, start, stop in unsure[file]:
            assert part.time is not None
            part.time[start:stop] += shift
    return doubtful


def _stretches(part: Part) -> Iterator[_Stretch]:
    if len(part.files) > 1 and not len(part.hint) and all_with_year(part.columns["minute"]):
        # Then each date stands for itself, and it does not matter where one file ends.
        yield _Stretch(part, part.files[0], 0, len(part))
        return
    start = 0
    for file, size in zip(part.files, part.sizes, strict=True):
        yield _Stretch(part, file, start, start + size)
        start += size


def _tell_file(stretches: Sequence[_Stretch], clock: Clock) -> bool:
    """Give the events of one file their times; whether their year is sure."""
    minute, second, fraction = (
        np.concatenate([stretch.column(name) for stretch in stretches])
        for name in ("minute", "second", "fraction")
    )
    hint_row, hint = [], []
    begin = 0
    for part, _, start, stop in stretches:
        first, last = np.searchsorted(part.hint_row, (start, stop))
        hint_row.append(part.hint_row[first:last] + (begin - start))
        hint.append(part.hint[first:last])
        begin += stop - start
    hints = np.concatenate(hint_row), np.concatenate(hint)
    told, clock = tell(minute, second, fraction, *hints, clock)
    begin = 0
    for part, _, start, stop in stretches:
        assert part.time is not None
        part.time[start:stop] = told[begin : begin + stop - start]
        begin += stop - start
    return clock.sure


def _without_dateless(part: Part) -> Part:
    assert part.time is not None
    bad = np.isnan(part.time)
    files = np.repeat(part.files, part.sizes)
    for row in np.flatnonzero(bad).tolist():
        offset, length = int(part.columns["offset"][row]), int(part.columns["length"][row])
        part.skipped.append((int(files[row]), Skip(offset, length, "a date that is none")))
    part.skipped = bounded(part.skipped)
    return kept(part, ~bad)


def _within(number: int, limits: np.iinfo[np.int16] | np.iinfo[np.int64]) -> int:
    return min(max(number, int(limits.min)), int(limits.max))
