"""A cache or origin that most failed transfers name."""

from __future__ import annotations

import polars as pl

from headway.report.accounts import Accounts
from headway.report.findings.alike import with_cluster
from headway.report.findings.finding import Finding, Table, job_toml, shown
from headway.report.findings.reasons import OBJECT_AT_FAULT, source
from headway.report.findings.scope import failed, listed, scope, sited, tell_owners
from headway.report.findings.stats import wilson
from headway.report.numbers import UNKNOWN, count, percent
from headway.report.words import Cause
from headway.text import many

#: Logs name a source only when it fails, so there is no rate to compare: only a clear majority of
#: the failures, over several jobs, says something about the source rather than about chance.
FAILURES_AT_LEAST = 8
JOBS_AT_LEAST = 3
MAJORITY = 0.5
#: The next one must be named this many times less often.
FACTOR = 3.0
_ENDINGS = (Cause.TRANSFER_CUT.value, Cause.TRANSFER_FAILED.value, Cause.HOLD.value)


def source_worse(accounts: Accounts) -> list[Finding]:
    """At most one finding: the source that fails far more than all others together."""
    reason = pl.col("reason").cast(pl.String)
    tried = failed(accounts).filter(pl.col("ending").is_in(_ENDINGS) & reason.is_not_null())
    reasons = tried.select(reason.alias("text")).unique()
    # A 404 or 403 is about the object, not about who gave the answer.
    reasons = reasons.filter(~pl.col("text").str.contains(OBJECT_AT_FAULT)).with_columns(
        source=source(pl.col("text"))
    )
    named = tried.with_columns(text=reason).join(reasons.drop_nulls("source"), on="text")
    # A cluster that names one source has no other: its failures say nothing about the source.
    named = with_cluster(accounts, named)
    named = named.filter(pl.col("source").n_unique().over("mates") > 1)
    counts = (
        named.group_by("source")
        .agg(failures=pl.len(), jobs=pl.col("job").n_unique(), seconds=pl.col("bad_s").sum())
        .sort("failures", "source", descending=[True, False])
    )
    if counts.height < 2:
        return []  # with one name only, one cannot tell the source from the way to it
    top, second = counts.row(0, named=True), counts.row(1, named=True)
    clear = wilson(top["failures"], named.height)[0] > MAJORITY
    if top["failures"] < FAILURES_AT_LEAST or top["jobs"] < JOBS_AT_LEAST or not clear:
        return []
    if top["failures"] < FACTOR * second["failures"]:
        return []
    mine = named.filter(pl.col("source") == top["source"])
    about = scope(accounts, accounts.attempts_at(mine.get_column("attempt")))
    sites = sited(accounts).get_column("site").gather(mine.get_column("attempt"))
    sites = sites.drop_nulls().unique().sort()
    name, share = shown(top["source"], 80), percent(top["failures"] / named.height)
    return [
        Finding(
            key=f"source-worse:{name}",
            title=f"{many(top['failures'], 'transfer')} from {name} failed, {share} of all that "
            f"name a source: {about.cost}",
            why="One cache or origin is named far more often than the others: it is overloaded, "
            "out of order, or far away. HTCondor's plugins ask the same one again.",
            cost_s=about.cost_s,
            jobs=about.jobs.len(),
            attempts=mine.height,
            lost_jobs=about.lost.len(),
            named=about.named,
            evidence=(
                ("failed transfers of clusters that name several sources", count(named.height)),
                (f"{accounts.place}s that it served", listed(sites.to_list()) or UNKNOWN),
                ("what it says", shown(mine.item(0, "text"))),
            ),
            table=Table(
                ("source", "failed transfers", "jobs"),
                tuple(
                    (shown(row["source"], 80), count(row["failures"]), count(row["jobs"]))
                    for row in counts.head(6).iter_rows(named=True)
                ),
            ),
            advice=(
                job_toml(
                    "Name more than one source: the agent leaves a slow one and goes on with the "
                    "next from the last good byte.",
                    "[[inputs]]",
                    'url = ["https://CACHE/DATA.tar", "https://ANOTHER-CACHE/DATA.tar"]',
                ),
                tell_owners(accounts, name),
            ),
            claim=about.claim,
            lost=about.lost,
        )
    ]
