"""The moments of a log's events: its minutes go through its clock, each hour once if it can be."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headway.events.clock import Clock
from headway.events.columnar.headers import YEARLESS, ZONE

Longs = NDArray[np.int64]
Floats = NDArray[np.float64]

_DAY = 86400


def tell(
    minute: Longs,
    second: NDArray[np.uint8],
    fraction: Floats,
    hint_row: Longs,
    hint: Floats,
    reference: float,
) -> Floats:
    """Seconds since the epoch of the events of one log in order; NaN for a date that is none."""
    if not len(minute):
        return np.empty(0)
    starts = np.flatnonzero(np.concatenate([[True], minute[1:] != minute[:-1]]))
    keys, lengths = minute[starts], np.diff(np.append(starts, len(minute)))
    clock: Clock | None = Clock(reference)
    while clock:
        found = np.repeat(_epochs(keys, clock), lengths)
        found += second
        found += fraction
        _give_hints(clock, found[hint_row], hint)
        clock = clock.again()
    return found


def all_with_year(keys: Longs) -> bool:
    """Whether all of these minutes have a year."""
    return not (keys % ZONE >= YEARLESS).any()


def _epochs(keys: Longs, clock: Clock) -> Floats:
    if not all_with_year(keys):
        # Which year is meant depends on all that came before.
        return np.array([_epoch(key, clock) for key in keys.tolist()], np.float64)
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
    known = np.flatnonzero(~np.isnan(at))
    at, utc = at[known], utc[known]
    day = utc // _DAY
    order = np.lexsort((at - utc, day))
    days = day[order]
    firsts = order[np.concatenate([[True], days[1:] != days[:-1]])] if len(order) else order
    for row in np.sort(firsts).tolist():
        clock.hint(float(at[row]), float(utc[row]))
