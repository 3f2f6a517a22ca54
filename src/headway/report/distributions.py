"""Distributions: when jobs came to their end, and how long transfers took."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from headway.report.accounts import Accounts
from headway.report.totals import cut, moved
from headway.report.values import finite
from headway.report.words import Cause, Outcome

#: Widths that people read without thinking; each up to an hour divides an hour.
_WIDTHS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600)


@dataclass(frozen=True)
class Completion:
    """How many jobs had ended, and how many of them well, at each of `times` (since the epoch)."""

    jobs: int
    times: tuple[float, ...]
    ended: tuple[int, ...]  # a hold that nobody has released counts as an end
    succeeded: tuple[int, ...]

    def as_dict(self) -> dict[str, Any]:
        """As JSON types."""
        return asdict(self) | {
            name: list(getattr(self, name)) for name in ("times", "ended", "succeeded")
        }


@dataclass(frozen=True)
class Histogram:
    """Input transfers by length: bin i has those from edges[i] on and below edges[i + 1].

    The last bin has no upper edge: it also holds all that are longer.
    """

    edges: tuple[float, ...]
    arrived: tuple[int, ...]
    cut: tuple[int, ...]  # cut off or stalled
    failed: tuple[int, ...]
    other: tuple[int, ...]  # ended by what was not the transfer's fault: eviction, removal, …

    def as_dict(self) -> dict[str, Any]:
        """As JSON types."""
        return {key: list(value) for key, value in asdict(self).items()}


def completion(accounts: Accounts, points: int = 400) -> Completion:
    """The completion curve; where there are more ends than `points`, at evenly spaced times."""
    ended = accounts.jobs.filter(
        (pl.col("outcome") != Outcome.UNFINISHED.value) & pl.col("end").is_finite()
    )
    held = pl.col("outcome") == Outcome.HELD.value
    # Of a job that is still held the last event may be the report's end; the hold was its own.
    last = accounts.holds.group_by("job").agg(pl.col("time").max().alias("held_at"))
    ends = ended.join(last, on="job", how="left").select(
        pl.when(held).then(pl.col("held_at")).otherwise(None).fill_null(pl.col("end")).alias("at"),
        (pl.col("outcome") == Outcome.SUCCESS.value).alias("good"),
    )
    every = np.sort(ends.get_column("at").to_numpy())
    good = np.sort(ends.filter("good").get_column("at").to_numpy())
    times = np.unique(every)
    if len(times) > points:
        times = np.linspace(times[0], times[-1], points)
    return Completion(
        accounts.jobs.height,
        tuple(times.tolist()),
        tuple(np.searchsorted(every, times, side="right").tolist()),
        tuple(np.searchsorted(good, times, side="right").tolist()),
    )


def transfer_lengths(accounts: Accounts, bins: int = 48) -> Histogram:
    """The histogram of input transfers, in at most about `bins` bins of a round width."""
    moving = accounts.attempts.filter(pl.col("transfer_in_s") > 0).select(
        pl.col("transfer_in_s").alias("s"),
        moved().alias("arrived"),
        cut().alias("cut"),
        (~pl.col("arrived") & (pl.col("cause") == Cause.TRANSFER_FAILED.value)).alias("failed"),
        (pl.col("ending") == "open").alias("open"),
    )
    # A transfer that still goes on has no length yet.
    moving = moving.filter(pl.col("arrived") | ~pl.col("open"))
    lengths = moving.get_column("s")
    reach = finite(lengths.quantile(0.99)) if moving.height else None
    if reach is None:
        return Histogram((), (), (), (), ())
    # One transfer of days must not squeeze all others into a single bin.
    width = _width(reach / bins)
    count = int(reach // width) + 1
    place = (pl.col("s") // width).clip(0, count - 1).cast(pl.Int64)
    arrived, was_cut, failed = pl.col("arrived"), pl.col("cut"), pl.col("failed")
    table = (
        moving.group_by(place.alias("bin"))
        .agg(
            arrived.sum(),
            was_cut.sum(),
            failed.sum(),
            (~arrived & ~was_cut & ~failed).sum().alias("other"),
        )
        .join(pl.DataFrame({"bin": np.arange(count)}), on="bin", how="right")
        .fill_null(0)
        .sort("bin")
    )
    columns = {name: tuple(table.get_column(name).to_list()) for name in _KINDS}
    return Histogram(tuple(float(at * width) for at in range(count)), **columns)


_KINDS = ("arrived", "cut", "failed", "other")


def _width(least: float) -> int:
    for width in _WIDTHS:
        if width >= least:
            return width
    return int(-(-least // 3600)) * 3600
