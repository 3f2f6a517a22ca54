"""Values that JSON can hold: finite numbers or None, and the shares and spreads made of them."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl


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
