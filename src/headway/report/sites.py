"""Sites side by side: what each made of the jobs and attempts that it got."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from headway.report.accounts import Accounts
from headway.report.groups import By, groups
from headway.report.totals import moved
from headway.report.values import Spread, read_spread, rounded, share, spread_of
from headway.report.words import Outcome


@dataclass(frozen=True)
class SiteFigures:
    """The figures of one site; None: the log does not tell which site it was."""

    site: str | None
    jobs: int  # whose last attempt was here
    ended: int  # of these, all but the unfinished
    succeeded: int
    success_rate: float | None  # of the ended ones
    attempts: int
    attempts_executed: int
    failures: int  # attempts that ended without success
    stalls: int
    holds: int
    evictions: int
    slot_s: float
    transfer_s: float
    compute_s: float
    good_compute_s: float
    good_s: float
    bad_s: float
    compute_share: float | None
    goodput: float | None
    compute: Spread  # of the results of jobs that succeeded here
    transfer: Spread  # of the input transfers that arrived
    received: float | None
    transfer_rate: float | None

    def as_dict(self) -> dict[str, Any]:
        """As JSON types."""
        return asdict(self)


def sites(accounts: Accounts, most: int | None = None) -> list[SiteFigures]:
    """The figures of each site.

    Args:
        accounts: The accounts.
        most: How many are wanted at most; None: all.

    Returns:
        One row a site, the one with the most slot time first, the unknown one last.
    """
    wanted = groups(accounts, By.SITE, most)
    names = pl.Series([group.key for group in wanted], dtype=pl.String)
    ran = accounts.jobs.select("site", "attempts", "outcome", "good_compute_s")
    jobs = _by_site(ran.filter(pl.col("attempts") > 0), names, _of_jobs())
    attempts = _by_site(accounts.attempts, names, _of_attempts())
    found = []
    for group in wanted:
        job, attempt = jobs.get(group.key, {}), attempts.get(group.key, {})
        ended = int(job.get("ended", 0))
        found.append(
            SiteFigures(
                site=group.key,
                jobs=group.jobs,
                ended=ended,
                succeeded=group.succeeded,
                success_rate=share(group.succeeded, ended),
                attempts=group.attempts,
                attempts_executed=group.attempts_executed,
                failures=int(attempt.get("failures", 0)),
                stalls=group.stalls,
                holds=group.holds,
                evictions=group.evictions,
                slot_s=group.slot_s,
                transfer_s=group.transfer_s,
                compute_s=group.compute_s,
                good_compute_s=group.good_compute_s,
                good_s=group.good_s,
                bad_s=group.bad_s,
                compute_share=group.compute_share,
                goodput=group.goodput,
                compute=read_spread(job, "compute"),
                transfer=read_spread(attempt, "transfer"),
                received=group.received,
                transfer_rate=group.transfer_rate,
            )
        )
    return found


def _of_jobs() -> list[pl.Expr]:
    good = pl.col("outcome") == Outcome.SUCCESS.value
    return [
        (pl.col("outcome") != Outcome.UNFINISHED.value).sum().alias("ended"),
        *spread_of(pl.col("good_compute_s").filter(good), "compute"),
    ]


def _of_attempts() -> list[pl.Expr]:
    return [
        (~pl.col("ending").is_in(["success", "open"])).sum().alias("failures"),
        *spread_of(pl.col("transfer_in_s").filter(moved()), "transfer"),
    ]


def _by_site(
    frame: pl.DataFrame, names: pl.Series, figures: list[pl.Expr]
) -> dict[str | None, dict[str, Any]]:
    here = frame.lazy().with_columns(pl.col("site").cast(pl.String))
    here = here.filter(pl.col("site").is_in(names.implode(), nulls_equal=True))
    table = rounded(here.group_by("site").agg(figures).collect())
    return {row["site"]: row for row in table.iter_rows(named=True)}
