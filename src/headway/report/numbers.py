"""Numbers in words: spans, shares, counts, and the figures that JSON and pages show."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, TypeGuard

import polars as pl

from headway.text import many


def finite(value: Any) -> float | None:
    """A number without the dust of adding floats up; None for what is no number."""
    if value is None or not math.isfinite(value):
        return None
    # Logs know microseconds at best, so what is finer differs only by the order of the adding.
    return round(float(value), 6) + 0.0


def rounded(table: pl.DataFrame) -> pl.DataFrame:
    """All numbers of a table as `finite` has them, many at once."""
    number = pl.col(pl.Float64)
    return table.with_columns(pl.when(number.is_finite()).then(number.round(6) + 0.0))


def total(value: Any) -> float:
    """A sum; of nothing, 0."""
    return finite(value) or 0.0


def share(part: float | None, whole: float | None) -> float | None:
    """The part of the whole; None where there is no whole."""
    if part is None or whole is None or not whole > 0:
        return None
    found = part / whole
    return found if math.isfinite(found) else None


@dataclass(frozen=True)
class Spread:
    """How a length is distributed over `count` cases, in seconds; None where there are none."""

    count: int = 0
    mean: float | None = None
    median: float | None = None
    least: float | None = None
    p5: float | None = None
    p25: float | None = None
    p75: float | None = None
    p95: float | None = None
    most: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """As JSON types."""
        return asdict(self)


def spread_of(expression: pl.Expr, name: str) -> list[pl.Expr]:
    """What `read_spread` needs to find in a row, for a `select` or an `agg`."""
    known = expression.drop_nulls()
    quantiles = [
        known.quantile(at, interpolation="linear").alias(f"{name}.{key}")
        for key, at in (("p5", 0.05), ("p25", 0.25), ("p75", 0.75), ("p95", 0.95))
    ]
    return [
        known.len().alias(f"{name}.count"),
        known.mean().alias(f"{name}.mean"),
        known.median().alias(f"{name}.median"),
        known.min().alias(f"{name}.least"),
        *quantiles,
        known.max().alias(f"{name}.most"),
    ]


def read_spread(row: dict[str, Any], name: str) -> Spread:
    """The spread that `spread_of` worked out, of a `rounded` row."""
    count = row.get(f"{name}.count")
    return Spread(count, *(row[f"{name}.{key}"] for key in _KEYS)) if count else _NOTHING


_KEYS = ("mean", "median", "least", "p5", "p25", "p75", "p95", "most")
_NOTHING = Spread()


#: What stands for a number that nobody knows.
UNKNOWN = "–"

_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
_SIZES = ("B", "kB", "MB", "GB", "TB", "PB", "EB")


def hours(seconds: float | None) -> str:
    """Always in hours, for columns that are compared: "302.2 h"."""
    return f"{seconds / _HOUR:,.1f} h" if _known(seconds) else UNKNOWN


def span(seconds: float | None) -> str:
    """In the unit that a person would use: "12 s", "49 min", "302.2 h"."""
    if not _known(seconds):
        return UNKNOWN
    if abs(seconds) < 99.5:
        return f"{_whole(seconds)} s"
    if abs(seconds) < 99.5 * _MINUTE:
        return f"{_whole(seconds / _MINUTE)} min"
    return hours(seconds)


def days(seconds: float | None) -> str:
    """As `span`, and in days from two days on: "3.5 days"."""
    return (
        f"{seconds / _DAY:,.1f} days" if _known(seconds) and seconds >= 2 * _DAY else span(seconds)
    )


def limit(seconds: float) -> str:
    """A limit that somebody has set, exactly: "1 hour", "90 minutes", "3,700 seconds"."""
    for unit, name in ((_HOUR, "hour"), (_MINUTE, "minute")):
        if seconds >= unit and seconds % unit == 0:
            return many(int(seconds // unit), name)
    return f"{seconds:,g} second{'' if seconds == 1 else 's'}"


def percent(share: float | None) -> str:
    """A share of 1 as a percentage: "43.3 %"."""
    hundredths = share * 100 if share is not None else None
    return f"{hundredths:.1f} %" if _known(hundredths) else UNKNOWN


def count(number: float | None) -> str:
    """A whole number with separators: "1,196,137"."""
    return f"{_whole(number)}" if _known(number) else UNKNOWN


def size(number: float | None) -> str:
    """Bytes in decimal units, as job.toml reads them: "143.2 GB"."""
    if not _known(number):
        return UNKNOWN
    power = 0
    # 999.95 would be written 1000.0: the next unit is due before the rounding shows it.
    while abs(number) >= (999.5 if power == 0 else 999.95) and power < len(_SIZES) - 1:
        number /= 1000
        power += 1
    return f"{_whole(number)} B" if power == 0 else f"{number:,.1f} {_SIZES[power]}"


def binary(number: float | None) -> str:
    """Bytes as HTCondor counts memory and disk: "64 GiB", "1.5 GiB", "512 MiB"."""
    if not _known(number):
        return UNKNOWN
    power = 0
    while abs(number) >= 1023.5 and power < len(_SIZES) - 1:
        number /= 1024
        power += 1
    unit = "B" if power == 0 else f"{_SIZES[power][0].upper()}iB"
    return f"{round(number, 1):,g} {unit}" if power else f"{_whole(number)} B"


def rate(per_second: float | None) -> str:
    """Bytes per second: "39.8 MB/s"."""
    return f"{size(per_second)}/s" if _known(per_second) else UNKNOWN


def times(factor: float | None) -> str:
    """How many times as much: "2.1 times", "14 times"."""
    if not _known(factor):
        return UNKNOWN
    return f"{factor:.1f} times" if abs(factor) < 9.95 else f"{_whole(factor)} times"


def _known(number: float | None) -> TypeGuard[float]:
    return number is not None and math.isfinite(number)


def _whole(number: float) -> str:
    # Half a second up, as people round, and no "-0".
    return f"{math.floor(number + 0.5):,}"
