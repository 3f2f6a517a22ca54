"""Where the log says what a finding tells of: the events behind its costliest attempts."""

from __future__ import annotations

import polars as pl

from headway.report.accounts import Accounts
from headway.report.findings.finding import Finding, Spot, shown

#: How many places are cited; the tables of `--csv` have them all.
MOST = 3


def places(accounts: Accounts, finding: Finding) -> tuple[Spot, ...]:
    """The events that ended the attempts behind a finding.

    Args:
        accounts: The accounts.
        finding: What a detector saw.

    Returns:
        A few, those that cost most first; of a finding that cost nothing, those of the jobs that
        it names. A job that never had an attempt is cited by its log alone.
    """
    costly = finding.claim.group_by("attempt").agg(pl.col("seconds").sum())
    costly = costly.sort("seconds", "attempt", descending=[True, False]).head(MOST)
    jobs = accounts.jobs.select("job", "id", pl.col("log").cast(pl.String))
    ends = accounts.attempts.select(
        "attempt", "job", "number", pl.col("file").cast(pl.String), "offset"
    )
    if costly.height:
        rows = costly.join(ends, on="attempt", maintain_order="left")
        rows = rows.join(jobs, on="job", maintain_order="left")
    else:
        wanted = jobs.filter(pl.col("id").is_in(list(finding.named))).head(MOST)
        last = ends.join(wanted, on="job", how="semi").sort("job", "number")
        last = last.unique("job", keep="last", maintain_order=True).drop("number")
        rows = wanted.join(last, on="job", how="left", maintain_order="left")
    return tuple(
        Spot(shown(row["id"], 60), shown(row["file"] or row["log"] or "", 200), row["offset"])
        for row in rows.iter_rows(named=True)
    )
