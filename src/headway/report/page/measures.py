"""What only the page shows: time by phase and verdict, jobs in each phase over time, points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from headway.report.accounts import Accounts
from headway.report.totals import moved
from headway.report.words import Outcome, Phase, Verdict

#: A site with more cases than this is drawn as a box alone: points would only make a smear.
MOST_POINTS = 150


@dataclass(frozen=True)
class Occupancy:
    """How many jobs were in each phase, on average, in equal steps from `begin` to `end`."""

    begin: float
    end: float
    phases: Mapping[Phase, tuple[float, ...]]


def phase_seconds(accounts: Accounts) -> dict[tuple[Phase, Verdict], float]:
    """Seconds by phase and verdict, without the pairs that never came up."""
    table = accounts.pieces.group_by("phase", "verdict").agg(pl.col("seconds").sum())
    return {
        (Phase(row["phase"]), Verdict(row["verdict"])): float(row["seconds"])
        for row in table.iter_rows(named=True)
        if row["seconds"] > 0
    }


def occupancy(accounts: Accounts, bins: int = 180) -> Occupancy:
    """Every piece of every job counts for exactly as long as it lasts."""
    begin, end = accounts.begin, accounts.end
    if not end > begin:
        return Occupancy(begin, begin, {})
    width = (end - begin) / bins
    found = {}
    for phase in Phase:
        pieces = accounts.pieces.filter(pl.col("phase") == phase.value)
        if not len(pieces):
            continue
        starts = pieces["begin"].to_numpy() - begin
        ends = starts + pieces["seconds"].to_numpy()
        spent = _until(starts, width, bins) - _until(ends, width, bins)
        found[phase] = tuple(np.maximum(np.diff(spent) / width, 0.0).round(3).tolist())
    return Occupancy(begin, end, found)


def _until(times: npt.NDArray[np.float64], width: float, bins: int) -> npt.NDArray[np.float64]:
    """For each edge of the bins, the time gone by since `times`, added up over those before it."""
    place = np.clip(times // width, 0, bins - 1).astype(np.int64)
    number = np.bincount(place, minlength=bins).cumsum()
    added = np.bincount(place, weights=times, minlength=bins).cumsum()
    edges = np.arange(1, bins + 1) * width
    gone: npt.NDArray[np.float64] = np.concatenate([[0.0], number * edges - added])
    return gone


def site_points(accounts: Accounts) -> dict[str, dict[str | None, list[float]]]:
    """The single cases behind the spreads of each site, where they are few enough to be seen."""
    good = accounts.jobs.filter(
        (pl.col("outcome") == Outcome.SUCCESS.value) & (pl.col("attempts") > 0)
    )
    arrived = accounts.attempts.filter(moved())
    return {
        "compute": _points(good, "good_compute_s"),
        "transfer": _points(arrived, "transfer_in_s"),
    }


def _points(frame: pl.DataFrame, column: str) -> dict[str | None, list[float]]:
    grouped = (
        frame.select(pl.col("site").cast(pl.String), pl.col(column).alias("value"))
        .filter(pl.len().over("site") <= MOST_POINTS)
        .group_by("site")
        .agg(pl.col("value").drop_nulls())
    )
    return {row["site"]: row["value"] for row in grouped.iter_rows(named=True)}
