"""A cache or origin that fails far more often than the others, by the agent's own records.

Logs name a source only when it fails. Records name each one that took part in a transfer, the good
ones too, so that there is a rate to compare; and a transfer that other sources brought to its end
costs no badput, but waits for the sick one first.
"""

from __future__ import annotations

import polars as pl

from headway.report.accounts import Accounts
from headway.report.findings.alike import against_mates, clearly_worse, with_cluster
from headway.report.findings.finding import Finding, Table, shown
from headway.report.findings.scope import listed, scope, sited, tell_owners
from headway.report.numbers import UNKNOWN, count, percent
from headway.text import many

FAILURES_AT_LEAST = 8
JOBS_AT_LEAST = 3
#: It must fail this many times as often as all others together, for the same clusters.
FACTOR = 3.0


def source_faulty(accounts: Accounts) -> list[Finding]:
    """At most one finding: the source with the most failures among those that are far worse."""
    served = accounts.sources.filter((pl.col("bytes") > 0) | pl.col("failed"))
    served = with_cluster(accounts, served)
    counts = (
        served.group_by("source")
        .agg(
            transfers=pl.len(),
            failures=pl.col("failed").sum(),
            jobs=pl.col("job").filter(pl.col("failed")).n_unique(),
            wasted=pl.col("wasted").sum(),
        )
        .sort("failures", "source", descending=[True, False])
    )
    enough = (pl.col("failures") >= FAILURES_AT_LEAST) & (pl.col("jobs") >= JOBS_AT_LEAST)
    rows = clearly_worse(against_mates(served, "source", "failed"), FACTOR, FAILURES_AT_LEAST)
    worst = counts.join(rows, on="source", how="semi", maintain_order="left").filter(enough)
    return [_finding(accounts, served, counts, row) for row in worst.head(1).iter_rows(named=True)]


def _finding(
    accounts: Accounts, served: pl.DataFrame, counts: pl.DataFrame, row: dict[str, int]
) -> Finding:
    mine = served.filter((pl.col("source") == row["source"]) & pl.col("failed"))
    attempts = accounts.attempts_at(mine.get_column("attempt"))
    about = scope(accounts, attempts)
    sites = sited(accounts).get_column("site").gather(mine.get_column("attempt"))
    name = shown(str(row["source"]), 80)
    faults = mine.get_column("fault").drop_nulls()
    return Finding(
        key=f"source-faulty:{name}",
        title=f"{name} failed in {percent(row['failures'] / row['transfers'])} of the "
        f"{many(row['transfers'], 'transfer')} that it took part in",
        why="The agent's records name every source of a transfer. This one is set aside far "
        "more often than the others, which then bring the data; each time that costs seconds.",
        jobs=about.jobs.len(),
        attempts=attempts.height,
        named=about.named,
        evidence=(
            (
                f"{accounts.place}s that it served",
                listed(sites.drop_nulls().unique().sort()) or UNKNOWN,
            ),
            ("what was wrong", shown(faults.item(0)) if faults.len() else UNKNOWN),
        ),
        table=Table(
            ("source", "transfers", "failed"),
            tuple(
                (shown(each["source"], 80), count(each["transfers"]), count(each["failures"]))
                for each in counts.head(6).iter_rows(named=True)
            ),
        ),
        advice=(tell_owners(accounts, name),),
        echo=True,
    )
