"""Like with like: what happens at a place, against the same clusters elsewhere.

Clusters differ in what they do. One that fails everywhere fails wherever it runs, so a place with
many of its attempts looks bad; only the attempts of the same cluster at other places say whether
the place or the job is at fault. A place where only clusters ran that ran nowhere else proves
nothing.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headway.holds.table import wilson as wilson
from headway.report.accounts import Accounts, once
from headway.report.enums import Cause
from headway.report.findings.finding import is_address
from headway.report.tables import LONG, SHARE, START


def young(between_s: float, cost_s: float) -> float:
    """The checkpoint interval that loses least, by Young's rule, at a mean time between losses."""
    return math.sqrt(2 * max(between_s, 0.0) * max(cost_s, 0.0))


def standard_errors(places: int) -> float:
    """How far out the worst of so many places must lie: chance does it once in forty reports."""
    return NormalDist().inv_cdf(1 - 0.025 / max(places, 1))


#: Access points count clusters from 1 each: the same number this many seconds later is another's.
APART = 7 * 86400.0
#: Losses of the slot that neither the command nor its input brought about.
CAUSES = (Cause.EVICTION, Cause.REDONE, Cause.DISCONNECT, Cause.SYSTEM)


def with_cluster(accounts: Accounts, attempts: pl.DataFrame) -> pl.DataFrame:
    """Adds `mates` to attempts: a number for the cluster of their job.

    The logs do not count: often each job of a cluster has a log of its own.

    Args:
        accounts: The accounts.
        attempts: Rows of `Accounts.attempts`.

    Returns:
        The rows in their order, with one more column.
    """
    return attempts.with_columns(mates=_mates(accounts).gather(attempts.get_column("job")))


@once
def _mates(accounts: Accounts) -> pl.Series:
    """A number for the cluster of each job."""
    jobs = accounts.jobs.select("job", "cluster", "begin").sort("cluster", "begin", "job")
    new = pl.col("cluster").ne_missing(pl.col("cluster").shift()) | (
        pl.col("begin").diff().fill_null(0) > APART
    )
    return jobs.select("job", mates=new.fill_null(True).cum_sum()).sort("job").get_column("mates")


@once
def idle_flags(accounts: Accounts) -> pl.DataFrame:
    """What CPU time tells of each attempt, in the order of `Accounts.attempts`.

    Args:
        accounts: The accounts.

    Returns:
        `mates` as `with_cluster` adds it, and three flags. `idle`: the attempt computed nothing, by
        its own log or by what other logs say of the same cluster. `too_soon`: it was evicted too
        soon to tell, without CPU time. `unreported`: its log says 0 s of CPU time for everything,
        so that nobody knows.
    """
    used = pl.col("cpu_s")
    rows = accounts.attempts.select(
        "job",
        still=(used == 0) & (pl.col("compute_s") >= LONG),
        success=pl.col("ending") == "success",
        lost=pl.col("ending").is_in([cause.value for cause in CAUSES])
        & (pl.col("checkpoints") == 0),
        worked=used > 0,
        soon=(used <= START + SHARE * pl.col("compute_s"))
        & (pl.col("compute_s") > 0)
        & (pl.col("ending") == Cause.EVICTION.value),
        known=pl.col("cause") == Cause.IDLE.value,
    )
    rows = with_cluster(accounts, rows)
    mates = rows.get_column("mates").to_numpy()
    flags = {
        name: rows.get_column(name).fill_null(False).to_numpy()
        for name in ("still", "success", "lost", "worked", "soon", "known")
    }
    still, known = flags["still"], flags["known"]
    reported = _any_mate(flags["worked"], mates)
    zero = still & flags["lost"] & ~_any_mate(still & flags["success"], mates)
    return pl.DataFrame(
        {
            "mates": rows.get_column("mates"),
            "idle": known | (zero & reported),
            "too_soon": flags["soon"] & reported & ~still & ~known,
            "unreported": zero & ~reported & ~known,
        }
    )


def _any_mate(flag: NDArray[np.bool_], mates: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Of each attempt, whether the flag is set for any of its cluster."""
    found = np.zeros(int(mates.max(initial=0)) + 1, np.bool_)
    found[mates[flag]] = True
    return found[mates]


def against_mates(
    tried: pl.DataFrame, place: str, hit: str, yardstick: str | None = None
) -> pl.DataFrame:
    """How often something happened at each place, and how often to the same clusters elsewhere.

    Args:
        tried: Attempts with `mates`, the column of places, and the column of flags.
        place: The column of places.
        hit: The column of flags, of what happened.
        yardstick: The column of flags of the attempts that the others are compared with; None:
            all. Suspects that are compared with each other hide each other.

    Returns:
        One row a place that can be compared: `hits` of `of` attempts here, of clusters that ran
        elsewhere too; `others`, the attempts of these clusters elsewhere; `usual`, the share of
        hits elsewhere, by the mix of clusters here; `apart`, how many standard errors the place
        lies above its clusters (Mantel and Haenszel).
    """
    flag = pl.col(hit).fill_null(False)
    cells = tried.group_by(place, "mates").agg(
        n=pl.len(),
        x=flag.sum(),
        known=pl.len() if yardstick is None else pl.col(yardstick).sum(),
        wrong=flag.sum() if yardstick is None else (flag & pl.col(yardstick)).sum(),
    )
    return compare_cells(cells, place)


def compare_cells(cells: pl.DataFrame, place: str) -> pl.DataFrame:
    """The rows of `against_mates`, by figures of the attempts of each cluster at each place.

    Args:
        cells: One row a place and `mates`: `n` attempts there, `x` of them with a hit, and `known`
            and `wrong`, the same two of those that others are compared with.
        place: The column of places.

    Returns:
        As `against_mates` does.
    """
    cells = cells.with_columns(pl.col("n", "x", "known", "wrong").cast(pl.Float64))
    here, hits = pl.col("n"), pl.col("x")
    sums = cells.group_by("mates").agg(pl.col("known", "wrong").sum().name.suffix("_all"))
    cells = cells.join(sums, on="mates", maintain_order="left")
    of, all_hits = here + pl.col("there"), hits + pl.col("wrong")
    return (
        cells.with_columns(
            there=pl.col("known_all") - pl.col("known"), wrong=pl.col("wrong_all") - pl.col("wrong")
        )
        .filter(pl.col("there") > 0)
        .with_columns(
            usual=here * pl.col("wrong") / pl.col("there"),
            mean=here * all_hits / of,
            spread=here * pl.col("there") * all_hits * (of - all_hits) / (of * of * (of - 1)),
        )
        .group_by(place)
        .agg(
            hits=hits.sum().cast(pl.Int64),
            of=here.sum().cast(pl.Int64),
            others=pl.col("there").sum().cast(pl.Int64),
            usual=pl.col("usual").sum() / here.sum(),
            mean=pl.col("mean").sum(),
            spread=pl.col("spread").sum(),
        )
        .with_columns(
            apart=pl.when(pl.col("spread") > 0)
            .then((pl.col("hits") - pl.col("mean") - 0.5) / pl.col("spread").sqrt())
            .otherwise(0.0)
        )
        .drop("mean", "spread")
    )


def clearly_worse(rows: pl.DataFrame, factor: float, at_least: int) -> pl.DataFrame:
    """Of rows of `against_mates` those that are far worse than elsewhere, and not by chance.

    Args:
        rows: Places as `against_mates` gives them.
        factor: It must happen this many times as often as elsewhere.
        at_least: Attempts that there must be, here and elsewhere.

    Returns:
        The rows that are; the more places there are, the further out the worst lies by chance.
    """
    enough = (pl.col("of") >= at_least) & (pl.col("others") >= at_least)
    far = pl.col("hits") >= factor * pl.col("usual") * pl.col("of")
    return rows.filter(enough & far & (pl.col("apart") >= standard_errors(rows.height)))


def neighbourhood(machine: str) -> str:
    """What a machine has in common with its neighbours: its domain, network, or first letters."""
    if is_address(machine):
        at = machine.rfind(":" if ":" in machine else ".")
        return f"{machine[: at + 1]}*"
    name, _, domain = machine.partition(".")
    return domain or f"{name.rstrip('0123456789')}*"
