"""Scales: round marks for axes, and times as people write them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600, 43200)
_DAY = 86_400


def count_marks(top: float, about: int = 4) -> list[float]:
    """Round numbers from 0 up to `top`, the last one at or above it."""
    if top <= 0:
        return [0.0, 1.0]
    raw = top / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * unit for unit in (1, 2, 2.5, 5, 10) if power * unit >= raw)
    step = max(step, 1.0)
    return [step * at for at in range(math.ceil(top / step - 1e-9) + 1)]


def length_marks(top: float, about: int = 6) -> list[float]:
    """Round lengths of time from 0 on, none above `top`."""
    step = _step(max(top, 1e-6), about)
    return [step * at for at in range(math.floor(top / step + 1e-9) + 1)]


def time_marks(begin: float, end: float, zone: timezone, about: int = 6) -> list[float]:
    """Round times of day, or midnights, between two times."""
    step = _step(max(end - begin, 1.0), about)
    shift = zone.utcoffset(None).total_seconds()
    first = math.ceil((begin + shift) / step) * step - shift
    return [first + step * at for at in range(math.floor((end - first) / step) + 1)]


def _step(length: float, about: int) -> float:
    raw = length / about
    if raw < 1:
        power = 10.0 ** math.floor(math.log10(raw))
        return next(power * unit for unit in (1, 2, 5, 10) if power * unit >= raw * 0.999)
    for step in _STEPS:
        if step >= raw:
            return float(step)
    days = raw / _DAY
    power = 10.0 ** math.floor(math.log10(days))
    rounded = next((power * unit for unit in (1, 2, 5, 10) if power * unit >= days), power * 10)
    return math.ceil(rounded) * _DAY


def length_words(seconds: float, marks: Sequence[float]) -> str:
    """The label of one mark of a length, in the one unit that suits them all."""
    top = max(marks, default=0)
    if seconds == 0:
        return "0"
    unit, name = (3600, "h") if top >= 2 * 3600 else (60, "min") if top >= 180 else (1, "s")
    return f"{seconds / unit:,.4g} {name}"


def moment(seconds: float, zone: timezone) -> str:
    """A time to the minute: "17 Nov 2023 09:41"."""
    try:
        at = datetime.fromtimestamp(seconds, zone)
    except (OverflowError, ValueError, OSError):
        return "–"
    return f"{at.day} {at:%b %Y %H:%M}"


def mark_words(seconds: float, step: float, zone: timezone) -> str:
    """The label of one mark of the clock: the day at midnight, else the time."""
    try:
        at = datetime.fromtimestamp(seconds, zone)
    except (OverflowError, ValueError, OSError):
        return ""
    if step >= _DAY or at.hour == at.minute == at.second == 0:
        return f"{at.day} {at:%b}"
    return f"{at:%H:%M}" if at.second == 0 and step >= 60 else f"{at:%H:%M:%S}"


def zone_words(zone: timezone) -> str:
    """ "UTC", or "UTC−06:00"."""
    shift = zone.utcoffset(None)
    if not shift:
        return "UTC"
    sign = "−" if shift < timedelta(0) else "+"
    minutes = abs(int(shift.total_seconds())) // 60
    return f"UTC{sign}{minutes // 60:02d}:{minutes % 60:02d}"
