"""Numbers in words: spans, shares, counts, and the figures that JSON and pages show."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, TypeGuard

import polars as pl

from headway.text import many


def other_files(number: int) -> str:
    """How many files in the folders were not read, and why."""
    are = "is not an event log or has" if number == 1 else "are not event logs or have"
    return f"{many(number, 'other file')} {are} no events."


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


class JsonFigures:
    """Figures, in a dataclass, that can be JSON."""

    def as_dict(self: Any) -> dict[str, Any]:
        """As JSON types."""
        values = asdict(self).items()
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values}


@dataclass(frozen=True)
class Spread(JsonFigures):
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


def spread_of(expression: pl.Expr, name: str) -> list[pl.Expr]:
    """What `read_spread` needs to find in a row, for a `select` or an `agg`."""
    known = expression.drop_nulls()
    figures = {"count": known.len(), "mean": known.mean(), "median": known.median()}
    figures |= {"least": known.min(), "most": known.max()}
    for share in (5, 25, 75, 95):
        figures[f"p{share}"] = known.quantile(share / 100, interpolation="linear")
    return [figure.alias(f"{name}.{key}") for key, figure in figures.items()]


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
    while abs(number) >= (999.95 if power else 999.5) and power < len(_SIZES) - 1:
        number, power = number / 1000, power + 1
    return f"{number:,.1f} {_SIZES[power]}" if power else f"{_whole(number)} B"


def binary(number: float | None) -> str:
    """Bytes as HTCondor counts memory and disk: "64 GiB", "1.5 GiB", "512 MiB"."""
    if not _known(number):
        return UNKNOWN
    power = 0
    while abs(number) >= 1023.5 and power < len(_SIZES) - 1:
        number, power = number / 1024, power + 1
    unit = f"{_SIZES[power][0].upper()}iB"
    return f"{round(number, 1):,g} {unit}" if power else f"{_whole(number)} B"


def rate(per_second: float | None) -> str:
    """Bytes per second: "39.8 MB/s"."""
    return f"{size(per_second)}/s" if _known(per_second) else UNKNOWN


def _known(number: float | None) -> TypeGuard[float]:
    return number is not None and math.isfinite(number)


def _whole(number: float) -> str:
    # Half a second up, as people round, and no "-0".
    return f"{math.floor(number + 0.5):,}"
