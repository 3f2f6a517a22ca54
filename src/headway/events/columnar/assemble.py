"""Joining the arrays of all files that were read into one table of columns."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from headway.events.clock import Clock
from headway.events.columnar.columns import (
    TEXTS,
    TYPES,
    Array,
    Bytes,
    Columns,
    EventArrays,
    Floats,
    Longs,
    Strings,
    UsageColumns,
    blank_columns,
    joined_usage,
    put_events,
    selected,
)
from headway.events.columnar.headers import DAYS, YEAR, YEARLESS, ZONE, Dates
from headway.events.columnar.pairs import join_pairs
from headway.events.event import Event
from headway.events.opening import NO_DATE, Skip, bounded

# The years of files whose dates have none.
#
# A file's own evidence comes first (see `Clock.sure`): dates with a year, times in UTC in its
# events, or a modification time close to its last event. A copy, a clone or an archive has lost the
# last of these. Then the other files of its folder count, then those of the folders around it.


_DAY = 86400
_MEAN_YEAR = 365.2425 * _DAY
_YEAR_AT_MOST = 300 * _DAY
#: Spans that lie closer than this count as one.
_CLOSE = 30 * _DAY


class Span(NamedTuple):
    """The time from the first event to the last, in seconds since the epoch."""

    begin: float
    end: float

    def with_(self, other: Span) -> Span:
        """The span of both."""
        return Span(min(self.begin, other.begin), max(self.end, other.end))


def years_to_shift(
    names: Sequence[str], known: Mapping[int, Span], unsure: Mapping[int, tuple[Span, float]]
) -> tuple[dict[int, int], list[int]]:
    """How many years earlier files are than assumed, and the files whose year stays uncertain.

    Args:
        names: The paths of all files; the other arguments go by their places here.
        known: The files whose years are known.
        unsure: The others, put as late as possible, and when they were last written to.

    Returns:
        The years to go back, where that is not 0, and the files about which nothing in their own
        folder says more.
    """
    folders = _known_by_folder(names, known)
    back: dict[int, int] = {}
    doubtful: list[int] = []
    alone: dict[str, list[int]] = {}
    for file, (span, _) in unsure.items():
        home = os.path.dirname(names[file])
        near = next((folder for folder in _upwards(home) if folder in folders), None)
        if near is None:
            alone.setdefault(home, []).append(file)
        else:
            back[file] = _years_back(span, folders[near])
        if near != home:
            doubtful.append(file)
    for files in alone.values():
        back |= _together({file: unsure[file] for file in files})
    return {file: years for file, years in back.items() if years}, doubtful


def years_earlier(span: Span, years: int) -> float | None:
    """What to add to the times of a file to move it so many years back.

    None where it is not the same for all of them: a leap day or another offset from UTC lies
    between.
    """
    if time.daylight or span.end - span.begin > _YEAR_AT_MOST:
        return None
    found = set()
    for at in span:
        then = datetime.fromtimestamp(at)
        try:
            found.add(then.replace(year=then.year - years).timestamp() - at)
        except ValueError:  # 29 February
            return None
    return found.pop() if len(found) == 1 else None


def _known_by_folder(names: Sequence[str], known: Mapping[int, Span]) -> dict[str, list[Span]]:
    """The known spans of each folder and of all folders in it; spans that are close are one."""
    found: dict[str, list[Span]] = {}
    if not known:
        return found
    top = os.path.commonpath([os.path.dirname(os.path.abspath(name)) for name in names])
    for file, span in known.items():
        for folder in _upwards(os.path.dirname(names[file])):
            found.setdefault(folder, []).append(span)
            if os.path.abspath(folder) == top:
                break
    return {folder: _merged(spans) for folder, spans in found.items()}


def _upwards(folder: str) -> list[str]:
    found = [folder]
    while os.path.dirname(found[-1]) != found[-1]:
        found.append(os.path.dirname(found[-1]))
    return found


def _merged(spans: list[Span]) -> list[Span]:
    spans.sort()
    found = spans[:1]
    for span in spans[1:]:
        if span.begin <= found[-1].end + _CLOSE:
            found[-1] = found[-1].with_(span)
        else:
            found.append(span)
    return found


def _years_back(span: Span, known: Sequence[Span]) -> int:
    """How many years back a file is closest to the known spans."""

    def apart(years: int) -> float:
        begin, end = span.begin - years * _MEAN_YEAR, span.end - years * _MEAN_YEAR
        return min(max(0.0, other.begin - end, begin - other.end) for other in known)

    tries = {0}
    for other in known:
        nearest = int((span.begin + span.end - other.begin - other.end) / 2 / _MEAN_YEAR)
        tries |= {max(0, nearest + more) for more in (-1, 0, 1)}
    return min(sorted(tries), key=apart)


def _together(files: Mapping[int, tuple[Span, float]]) -> dict[int, int]:
    """The years to go back of files that were all written at once, such as a copied folder.

    Together they cover less than a year: those after the widest gap belong to the year before.
    """
    times = [modified for _, modified in files.values()]
    if max(times) - min(times) > _DAY:
        return {}
    order = sorted(files, key=lambda file: files[file][0].end)
    ends = [files[file][0].end for file in order]
    gaps = [later - earlier for earlier, later in pairwise(ends)]
    widest = max(range(len(gaps)), key=gaps.__getitem__, default=0)
    if not gaps or gaps[widest] <= _MEAN_YEAR - (ends[-1] - ends[0]):
        return {}
    return dict.fromkeys(order[widest + 1 :], 1)


# The times of a log's events: its clock is asked once for each hour, where that is enough.


_WEEK, _YEAR = 7 * _DAY, 365 * _DAY
#: Fewer minutes than this are faster one by one.
_MANY = 200
#: What a leap day and zones can add to the time between two dates.
_DOUBT = 2 * _DAY
#: The days of a year before each month.
_BEFORE = np.cumsum(DAYS) - DAYS


def event_times(
    minute: Longs, second: Bytes, fraction: Floats, hint_row: Longs, hint: Floats, clock: Clock
) -> tuple[Floats, Clock]:
    """Seconds since the epoch of the events of one log in order; NaN where there is no such date.

    The second value is the clock that gave them in the end.
    """
    if not len(minute):
        return np.empty(0), clock
    starts = np.flatnonzero(np.concatenate([[True], minute[1:] != minute[:-1]]))
    keys, lengths = minute[starts], np.diff(np.append(starts, len(minute)))
    following: Clock | None = clock
    while following:
        clock = following
        found = np.repeat(_epochs(keys, clock), lengths)
        found += second
        found += fraction
        _give_hints(clock, found[hint_row], hint)
        following = clock.again()
    return found, clock


def all_with_year(keys: Longs) -> bool:
    """Whether all of these minutes have a year."""
    return not (keys % ZONE >= YEARLESS).any()


def _epochs(keys: Longs, clock: Clock) -> Floats:
    if all_with_year(keys):
        return _dated(keys, clock)
    with_year = _with_years(keys, clock) if len(keys) >= _MANY else None
    if with_year is None:
        return np.array([_epoch(key, clock) for key in keys.tolist()], np.float64)
    found = _dated(with_year, clock)
    dated = np.flatnonzero(keys % ZONE < YEARLESS)
    turn = int(dated[0]) if len(dated) else 0
    both = (float(found[turn - 1]), float(found[turn])) if turn else None
    clock.passed(float(found[-1]), len(dated) > 0, both)
    return found


def _with_years(keys: Longs, clock: Clock) -> Longs | None:
    """The same minutes with the years that the clock would find; None where that is not certain.

    A date that lies more than a week before the one that precedes it is of the next year.
    """
    zone, date = keys // ZONE, keys % ZONE
    bare = date >= YEARLESS
    month, day, hour, minute, known = Dates.of(date)
    if not known.all() or zone[bare].any():
        return None
    at = ((_BEFORE[month] + day) * 24 + hour) * 3600 + minute * 60
    later = np.diff(at, prepend=at[:1])
    if ((np.abs(later + _WEEK) < _DOUBT) | (np.abs(later - _YEAR + _WEEK) < _DOUBT)).any():
        return None
    turns = np.cumsum((later < -_WEEK).astype(np.int64) - (later > _YEAR - _WEEK))
    # Each date counts from the last one before it that has a year, or from the first of all.
    base = np.maximum.accumulate(np.where(bare, 0, np.arange(len(keys))))
    years = date // YEAR
    if bare[0]:
        years[0] = clock.year(_minute(int(date[0])))
    clock.yearless = True
    found = np.where(bare, years[base] + turns - turns[base], years)
    if int(found.min()) < 1971 or int(found.max()) > 9998:
        return None
    return np.asarray(zone * ZONE + found * YEAR + date % YEAR)


def _dated(keys: Longs, clock: Clock) -> Floats:
    hours, place = np.unique(keys // 100, return_inverse=True)
    minutes = keys % 100
    first = np.array([_epoch(hour * 100, clock) for hour in hours.tolist()])
    last = np.array([_epoch(hour * 100 + 59, clock) for hour in hours.tolist()])
    found: Floats = first[place] + minutes * 60
    # Daylight saving time may begin or end within an hour, and a minute may not exist.
    odd = np.flatnonzero((last - first != 59 * 60)[place] | (minutes > 59))
    for at in odd.tolist():
        found[at] = _epoch(int(keys[at]), clock)
    return found


def _epoch(key: int, clock: Clock) -> float:
    zone, date = divmod(key, ZONE)
    found = clock.seconds(_minute(date), _zone(zone))
    return np.nan if found is None else found


def _minute(date: int) -> bytes:
    """The minute as the header has it."""
    numbers = [date // 100**n % 100 for n in (3, 2, 1, 0)]
    if date >= YEARLESS:
        return b"%02d/%02d %02d:%02d" % tuple(numbers)
    return b"%04d-%02d-%02d %02d:%02d" % (date // YEAR, *numbers)


def _zone(code: int) -> bytes | None:
    if code < 2:
        return b"Z" if code else None
    west, offset = divmod(code - 2, 10000)
    return b"%b%04d" % (b"-" if west else b"+", offset)


def _give_hints(clock: Clock, at: Floats, utc: Floats) -> None:
    # Of each day only the hint with the smallest difference counts.
    known = ~np.isnan(at)
    ads = np.flatnonzero(known & (utc < 0))[:1]
    for row in ads.tolist():
        clock.year_hint(float(at[row]), -float(utc[row]))
    known = np.flatnonzero(known & (utc >= 0))
    at, utc = at[known], utc[known]
    day = utc // _DAY
    order = np.lexsort((at - utc, day))
    days = day[order]
    firsts = order[np.concatenate([[True], days[1:] != days[:-1]])] if len(order) else order
    for row in np.sort(firsts).tolist():
        clock.hint(float(at[row]), float(utc[row]))


_LONG, _SHORT = np.iinfo(np.int64), np.iinfo(np.int16)
#: Columns that are not needed once the times are known.
_CLOCK = ("minute", "second", "fraction", "length")


@dataclass
class File:
    """A file that was read."""

    name: str
    log: int = 0  # place among the logs
    modified: float = 0.0
    unfinished: Skip | None = None
    unread: str = ""  # why


def arrays_of(events: Iterable[Event], offsets: Sequence[int] | None = None) -> EventArrays:
    """The arrays of events of one file, which know their times."""
    events = list(events)
    columns = blank_columns(len(events))
    columns["number"][:] = [_within(event.number, _SHORT) for event in events]
    for name in ("cluster", "proc", "subproc"):
        columns[name][:] = [_within(getattr(event, name), _LONG) for event in events]
    columns["offset"][:] = -1 if offsets is None else offsets
    strings = Strings()
    usage_row, usage = put_events(columns, dict(enumerate(events)), strings)
    return EventArrays(
        columns,
        usage_row,
        usage,
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
    """The columns of some events of one file.

    Args:
        events: The events in their order.
        file: The name of the file.
        offsets: Where they are in the file; None if nobody knows.
        skipped: What could not be read there.

    Returns:
        The events, one row each.

    Example:
        >>> columns_of([Event(8, 7, 0, 0, 1.5, "hello")]).number.tolist()
        [8]
    """
    part = arrays_of(events, offsets)
    part.skipped = [(0, skip) for skip in skipped]
    return assemble([part], [File(file)], [file], [""])


def assemble(
    parts: Iterable[EventArrays], files: Sequence[File], logs: Sequence[str], owners: Sequence[str]
) -> Columns:
    """The columns of all parts, which come in the order of the files; empties the parts."""
    pool: defaultdict[str, int] = defaultdict()
    pool.default_factory = pool.__len__
    # One part at a time, as it comes: other processes may still be reading the rest.
    parts = [_pooled(part, pool) for part in parts]
    texts = list(pool)
    log_of = np.array([one.log for one in files], np.int64)
    join_pairs(parts, log_of, lambda _part, places: [texts[place] for place in places.tolist()])
    doubtful = set_times(parts, files)
    sizes = [size for part in parts for size in part.sizes]
    file = np.repeat(np.array([f for part in parts for f in part.files], np.int32), sizes)
    usage_row, usage = joined_usage(parts)
    return Columns(
        **{name: _joined(parts, name) for name in TYPES if name not in _CLOCK},
        time=np.concatenate([np.empty(0, np.int64), *map(microseconds, parts)]),
        file=file,
        log=np.array([one.log for one in files], np.int32)[file],
        usage=UsageColumns(usage_row, *map(np.ascontiguousarray, usage.T)),
        strings=texts,
        files=[one.name for one in files],
        logs=list(logs),
        owners=list(owners),
        skipped=[(files[place].name, skip) for part in parts for place, skip in part.skipped],
        unread=[(one.name, one.unread) for one in files if one.unread],
        unfinished=[(one.name, one.unfinished) for one in files if one.unfinished],
        yearless=[files[place].name for place in doubtful],
    )


def _pooled(part: EventArrays, pool: defaultdict[str, int]) -> EventArrays:
    """The part with its texts as places in the pool."""
    # The place -1 is the last one.
    places = np.array([*map(pool.__getitem__, part.strings), -1], np.int32)
    part.strings = []
    for name in TEXTS:
        part.columns[name] = places[part.columns[name]]
    return part


def _joined(parts: Sequence[EventArrays], name: str) -> Array:
    # Column by column, so that there are never two copies of everything in memory.
    pieces = [part.columns.pop(name) for part in parts]
    return np.concatenate([np.empty(0, TYPES[name]), *pieces])


def microseconds(part: EventArrays) -> Longs:
    """The times of a part's events, which are taken from it."""
    assert part.time is not None
    found = np.rint(part.time * 1e6).astype(np.int64)
    part.time = None
    return found


class _Stretch(NamedTuple):
    """The events of one file in a part."""

    part: EventArrays
    file: int
    start: int
    stop: int

    def column(self, name: str) -> Array:
        return self.part.columns[name][self.start : self.stop]


def set_times(parts: list[EventArrays], files: Sequence[File]) -> list[int]:
    """Set the times of the parts, file by file; an event without a date becomes a skip.

    Returns the files whose year is uncertain.
    """
    without_times = [part for part in parts if part.time is None]
    stretches = [stretch for part in without_times for stretch in _stretches(part)]
    for part in without_times:
        part.time = np.empty(len(part))
    unsure: dict[int, list[_Stretch]] = {}
    for file, group in groupby(stretches, key=lambda stretch: stretch.file):
        mine = list(group)
        if not _set_file_times(mine, Clock(files[file].modified)):
            unsure[file] = mine
    doubtful = _agree_on_years(parts, files, unsure) if unsure else []
    for place, part in enumerate(parts):
        if part.time is not None and np.isnan(part.time).any():
            parts[place] = part = _without_dateless(part)
        for name in _CLOCK:
            part.columns.pop(name, None)
    return doubtful


def _agree_on_years(
    parts: Sequence[EventArrays], files: Sequence[File], unsure: Mapping[int, Sequence[_Stretch]]
) -> list[int]:
    """Move files without a year next to files that have one; those whose year is uncertain."""
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
    years, doubtful = years_to_shift(names, known, open_)
    for file, back in years.items():
        shift = years_earlier(spans[file], back)
        if shift is None:
            latest = spans[file].begin - (back - 0.5) * _MEAN_YEAR
            _set_file_times(unsure[file], Clock(files[file].modified, latest=latest))
            continue
        for part, _, start, stop in unsure[file]:
            assert part.time is not None
            part.time[start:stop] += shift
    return doubtful


def _stretches(part: EventArrays) -> Iterator[_Stretch]:
    if len(part.files) > 1 and not len(part.hint) and all_with_year(part.columns["minute"]):
        # Each date is complete, so it does not matter where one file ends.
        yield _Stretch(part, part.files[0], 0, len(part))
        return
    start = 0
    for file, size in zip(part.files, part.sizes, strict=True):
        yield _Stretch(part, file, start, start + size)
        start += size


def _set_file_times(stretches: Sequence[_Stretch], clock: Clock) -> bool:
    """Set the times of the events of one file; whether their year is certain."""
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
    times, clock = event_times(minute, second, fraction, *hints, clock)
    begin = 0
    for part, _, start, stop in stretches:
        assert part.time is not None
        part.time[start:stop] = times[begin : begin + stop - start]
        begin += stop - start
    return clock.sure


def _without_dateless(part: EventArrays) -> EventArrays:
    assert part.time is not None
    bad = np.isnan(part.time)
    files = np.repeat(part.files, part.sizes)
    for row in np.flatnonzero(bad).tolist():
        offset, length = int(part.columns["offset"][row]), int(part.columns["length"][row])
        part.skipped.append((int(files[row]), Skip(offset, length, NO_DATE)))
    part.skipped = bounded(part.skipped)
    return selected(part, ~bad)


def _within(number: int, limits: np.iinfo[np.int16] | np.iinfo[np.int64]) -> int:
    return min(max(number, int(limits.min)), int(limits.max))
