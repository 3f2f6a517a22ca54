"""The moments of a log's events: its minutes go through its clock, each hour once if it can be."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headway.events.clock import Clock
from headway.events.columnar.headers import YEARLESS, ZONE

Longs = NDArray[np.int64]
Floats = NDArray[np.float64]

_DAY = 86400
_WEEK, _YEAR = 7 * _DAY, 365 * _DAY
#: Fewer minutes than this are sooner told one by one.
_MANY = 200
#: What a leap day and zones can add to the time between two dates.
_DOUBT = 2 * _DAY
_MONTH_DAY = 10**8  # what is above it in a minute's key is the year
_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_BEFORE = np.cumsum(_DAYS) - _DAYS


def tell(
    minute: Longs,
    second: NDArray[np.uint8],
    fraction: Floats,
    hint_row: Longs,
    hint: Floats,
    clock: Clock,
) -> tuple[Floats, Clock]:
    """Seconds since the epoch of the events of one log in order; NaN for a date that is none.

    The second value is the clock that told them in the end.
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
    """The same minutes with the years that the clock would find; None where that is not plain.

    A date that lies more than a week before the one that precedes it is of the next year.
    """
    zone, date = keys // ZONE, keys % ZONE
    bare = date >= YEARLESS
    of_year = date % _MONTH_DAY
    month, day = of_year // 10**6, of_year // 10**4 % 100
    hour, minute = of_year // 100 % 100, of_year % 100
    known = (month >= 1) & (month <= 12) & (day >= 1) & (hour <= 23) & (minute <= 59)
    known &= day <= _DAYS[np.where(known, month, 0)]
    if not known.all() or zone[bare].any():
        return None
    at = ((_BEFORE[month] + day) * 24 + hour) * 3600 + minute * 60
    later = np.diff(at, prepend=at[:1])
    if ((np.abs(later + _WEEK) < _DOUBT) | (np.abs(later - _YEAR + _WEEK) < _DOUBT)).any():
        return None
    turns = np.cumsum((later < -_WEEK).astype(np.int64) - (later > _YEAR - _WEEK))
    # Each date counts from the last one before it that has a year, or from the first of all.
    base = np.maximum.accumulate(np.where(bare, 0, np.arange(len(keys))))
    years = date // _MONTH_DAY
    if bare[0]:
        digits = b"%08d" % of_year[0]
        years[0] = clock.year(b"%b/%b %b:%b" % (digits[:2], digits[2:4], digits[4:6], digits[6:]))
    clock.yearless = True
    found = np.where(bare, years[base] + turns - turns[base], years)
    if int(found.min()) < 1971 or int(found.max()) > 9998:
        return None
    return np.asarray(zone * ZONE + found * _MONTH_DAY + of_year)


def _dated(keys: Longs, clock: Clock) -> Floats:
    hours, place = np.unique(keys // 100, return_inverse=True)
    minutes = keys % 100
    first = np.array([_epoch(hour * 100, clock) for hour in hours.tolist()])
    last = np.array([_epoch(hour * 100 + 59, clock) for hour in hours.tolist()])
    found: Floats = first[place] + minutes * 60
    # Daylight saving time may begin or end within an hour, and a minute may be none.
    odd = np.flatnonzero((last - first != 59 * 60)[place] | (minutes > 59))
    for at in odd.tolist():
        found[at] = _epoch(int(keys[at]), clock)
    return found


def _epoch(key: int, clock: Clock) -> float:
    zone, date = divmod(key, ZONE)
    if date >= YEARLESS:
        digits = b"%08d" % (date - YEARLESS)
        minute = b"%b/%b %b:%b" % (digits[:2], digits[2:4], digits[4:6], digits[6:])
    else:
        digits = b"%012d" % date
        year, rest = digits[:4], digits[4:]
        minute = b"%b-%b-%b %b:%b" % (year, rest[:2], rest[2:4], rest[4:6], rest[6:])
    found = clock.seconds(minute, _zone(zone))
    return np.nan if found is None else found


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
        clock.told(float(at[row]), -float(utc[row]))
    known = np.flatnonzero(known & (utc >= 0))
    at, utc = at[known], utc[known]
    day = utc // _DAY
    order = np.lexsort((at - utc, day))
    days = day[order]
    firsts = order[np.concatenate([[True], days[1:] != days[:-1]])] if len(order) else order
    for row in np.sort(firsts).tolist():
        clock.hint(float(at[row]), float(utc[row]))
