"""Like with like: what happens at a place, against the same clusters elsewhere.

Clusters differ in what they do. One that fails everywhere fails wherever it runs, so a place with
many of its attempts looks bad; only the attempts of the same cluster at other places say whether
the place or the job is at fault. A place where only clusters ran that ran nowhere else proves
nothing.
"""

from __future__ import annotations

import re

import polars as pl

from headway.report.accounts import Accounts
from headway.report.findings.stats import CLEAR

#: Access points count clusters from 1 each: the same number this many seconds later is another's.
APART = 7 * 86400.0


def with_cluster(accounts: Accounts, attempts: pl.DataFrame) -> pl.DataFrame:
    """Adds `mates` to attempts: a number for the cluster of their job.

    The logs do not count: often each job of a cluster has a log of its own.

    Args:
        accounts: The accounts.
        attempts: Rows of `Accounts.attempts`.

    Returns:
        The rows in their order, with one more column.
    """
    jobs = accounts.jobs.select("job", "cluster", "begin").sort("cluster", "begin", "job")
    new = pl.col("cluster").ne_missing(pl.col("cluster").shift()) | (
        pl.col("begin").diff().fill_null(0) > APART
    )
    mates = jobs.select("job", mates=new.fill_null(True).cum_sum())
    return attempts.join(mates, on="job", how="left", maintain_order="left")


def against_mates(tried: pl.DataFrame, place: str, hit: str) -> pl.DataFrame:
    """How often something happened at each place, and how often to the same clusters elsewhere.

    Args:
        tried: Attempts with `mates`, the column of places, and the column of flags.
        place: The column of places.
        hit: The column of flags, of what happened.

    Returns:
        One row a place that can be compared: `hits` of `of` attempts here, of clusters that ran
        elsewhere too; `others`, the attempts of these clusters elsewhere; `usual`, the share of
        hits elsewhere, by the mix of clusters here; `apart`, how many standard errors the place
        lies above its clusters (Mantel and Haenszel).
    """
    here, hits = pl.col("n").cast(pl.Float64), pl.col("x").cast(pl.Float64)
    cells = tried.group_by(place, "mates").agg(n=pl.len(), x=pl.col(hit).fill_null(False).sum())
    all_n, all_x = here.sum().over("mates"), hits.sum().over("mates")
    there, wrong = all_n - here, all_x - hits
    return (
        cells.with_columns(
            there=there,
            usual=here * wrong / there,
            mean=here * all_x / all_n,
            spread=here * there * all_x * (all_n - all_x) / (all_n * all_n * (all_n - 1)),
        )
        .filter(pl.col("there") > 0)
        .group_by(place)
        .agg(
            hits=pl.col("x").sum().cast(pl.Int64),
            of=pl.col("n").sum().cast(pl.Int64),
            others=pl.col("there").sum().cast(pl.Int64),
            usual=pl.col("usual").sum() / pl.col("n").sum(),
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


def clearly_worse(factor: float, at_least: int) -> pl.Expr:
    """Of rows of `against_mates`: at least `factor` times as often as elsewhere, not by chance."""
    enough = (pl.col("of") >= at_least) & (pl.col("others") >= at_least)
    far = pl.col("hits") >= factor * pl.col("usual") * pl.col("of")
    return enough & far & (pl.col("apart") >= CLEAR)


_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F]*:[0-9a-fA-F:.]+")


def is_address(name: str) -> bool:
    """Whether a machine is known by its address alone, which no expression can use."""
    return bool(_ADDRESS.fullmatch(name[:60]))


def neighbourhood(machine: str) -> str:
    """What a machine has in common with its neighbours: its domain, network, or first letters."""
    if is_address(machine):
        at = machine.rfind(":" if ":" in machine else ".")
        return f"{machine[: at + 1]}*"
    name, _, domain = machine.partition(".")
    return domain or f"{name.rstrip('0123456789')}*"
