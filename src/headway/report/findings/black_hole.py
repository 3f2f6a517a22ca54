"""Black holes: machines where jobs fail within minutes, while their clusters succeed elsewhere."""

from __future__ import annotations

import polars as pl

from headway.report.accounts import Accounts
from headway.report.findings.alike import against_mates, clearly_worse, with_cluster
from headway.report.findings.finding import (
    Finding,
    Step,
    Table,
    avoid,
    avoid_machines,
    do,
    is_address,
    job_toml,
    shown,
)
from headway.report.findings.reasons import what
from headway.report.findings.scope import ended, listed, median, scope
from headway.report.findings.stats import wilson
from headway.report.numbers import count, percent, span
from headway.report.words import EVICTIONS, Cause
from headway.text import many

#: An attempt that fails within this time, and within this share of what a successful one takes,
#: frees the slot so soon that the next job falls into the same hole.
SHORT_S = 1200.0
SHORT_SHARE = 0.2
#: Failures on one machine, and of how many jobs: one bad job that comes back is not a bad machine.
FAILURES_AT_LEAST = 5
JOBS_AT_LEAST = 3
#: Most attempts there fail so; ...
MOSTLY = 0.5
#: ... and this many times as often as elsewhere.
FACTOR = 3.0
#: Attempts, here and of the same clusters elsewhere, without which nothing can be compared.
ATTEMPTS_AT_LEAST = 5
_TAKEN_BACK = tuple(cause.value for cause in EVICTIONS)
_ARE = {
    (False, False): " is a black hole",
    (False, True): " are black holes",
    (True, False): " gives jobs back within minutes",
    (True, True): " give jobs back within minutes",
}
_WHY = {
    False: "A machine that fails a job at once is free again at once, so it draws the next job of "
    "the queue, and the next, while good machines are busy.",
    True: "A machine whose owner is at work, or whose slots others may take, evicts a job soon "
    "after it has begun, and draws the next one. What was computed until then is lost each time.",
}
#: Ends that are neither the machine's nor the command's doing.
_NOT_THESE = (Cause.SYSTEM.value, Cause.UNKNOWN.value, Cause.OVER_TIME.value)


def black_hole(accounts: Accounts) -> list[Finding]:
    """One finding for all machines of a site that swallow jobs."""
    tried = ended(accounts).filter(~pl.col("ending").is_in(_NOT_THESE))
    tried = tried.filter(pl.col("machine").is_not_null() & (pl.col("machine") != ""))
    tried = with_cluster(accounts, tried).with_columns(good=pl.col("ending") == "success")
    # What is short, only a success of the same cluster tells; one without any fails by itself.
    usual = pl.col("slot_s").filter(pl.col("good")).median().over("mates")
    tried = tried.with_columns(short=(SHORT_SHARE * usual).clip(upper_bound=SHORT_S))
    tried = tried.filter(pl.col("short").is_not_null())
    tried = tried.with_columns(fell=~pl.col("good") & (pl.col("slot_s") <= pl.col("short")))
    machines = tried.group_by("machine").agg(
        site=pl.col("site").drop_nulls().first(),
        attempts=pl.len(),
        fell=pl.col("fell").sum(),
        jobs=pl.col("job").filter(pl.col("fell")).n_unique(),
        good=pl.col("good").sum(),
    )
    suspects = machines.filter(
        (pl.col("fell") >= FAILURES_AT_LEAST) & (pl.col("jobs") >= JOBS_AT_LEAST)
    )
    if not suspects.height:
        return []
    # Bad machines are not compared with each other: a site full of holes would hide each of them.
    often = pl.col("fell") >= FAILURES_AT_LEAST
    bad = machines.filter(often & (pl.col("fell") > MOSTLY * pl.col("attempts")))
    fine = ~pl.col("machine").is_in(bad.get_column("machine").implode())
    rows = against_mates(tried.with_columns(fine=fine), "machine", "fell", yardstick=pl.col("fine"))
    rows = clearly_worse(rows, FACTOR, ATTEMPTS_AT_LEAST)
    holes = suspects.join(rows.select("machine", "others", "usual"), on="machine")
    mostly = [wilson(f, of)[0] > MOSTLY for f, of in holes.select("fell", "attempts").iter_rows()]
    holes = holes.filter(pl.Series(mostly, dtype=pl.Boolean))
    # Machines without a site are told of together: their own names would make each a site.
    if accounts.place == "machine":
        holes = holes.with_columns(site=pl.lit("", pl.String))
    parts = holes.sort("site", "machine", nulls_last=True).group_by("site", maintain_order=True)
    return [_finding(accounts, str(site or ""), part, tried) for (site,), part in parts]


def _finding(accounts: Accounts, site: str, holes: pl.DataFrame, tried: pl.DataFrame) -> Finding:
    fallen = tried.filter(pl.col("fell")).join(holes, on="machine", how="semi")
    about = scope(accounts, accounts.attempts_at(fallen.get_column("attempt")))
    names = holes.sort("fell", "machine", descending=[True, False]).get_column("machine").to_list()
    attempts = int(holes.get_column("attempts").sum())
    share, others = fallen.height / attempts, int(holes.get_column("others").max() or 0)  # type: ignore[arg-type]
    elsewhere = median(holes.get_column("usual"))
    short = float(fallen.get_column("short").max() or 0.0)  # type: ignore[arg-type]
    reasons = fallen.get_column("reason").drop_nulls().cast(pl.String).value_counts(sort=True)
    gone = int(fallen.get_column("ending").is_in(_TAKEN_BACK).sum())
    evicts = 2 * gone > fallen.height
    group = f" of {shown(site, 60)}" if site in accounts.site_names else ""
    where = shown(names[0], 60) if len(names) == 1 else f"{len(names)} machines{group}"
    where += _ARE[evicts, len(names) > 1]
    evidence = [
        (
            "ended so within " + span(short),
            f"{percent(share)} of {many(attempts, 'attempt')} there",
        ),
        (
            "the same clusters elsewhere",
            f"{percent(elsewhere)} of up to {many(others, 'attempt')}",
        ),
        ("median time until then", span(median(fallen.get_column("slot_s")))),
    ]
    if reasons.height:
        evidence.append(("most frequent reason", what(str(reasons.item(0, "reason")))))
    return Finding(
        key=f"black-hole:{shown(site or names[0], 60)}",
        title=f"{where}: {many(fallen.height, 'attempt')} of {many(about.jobs.len(), 'job')} "
        f"{'ended' if evicts else 'failed'} there within {span(short)}, {about.cost}",
        why=_WHY[evicts],
        cost_s=about.cost_s,
        jobs=about.jobs.len(),
        attempts=fallen.height,
        lost_jobs=about.lost.len(),
        named=about.named,
        evidence=tuple(evidence),
        table=Table(
            ("machine", "attempts", "ended at once", "succeeded"),
            tuple(
                (shown(r["machine"], 60), count(r["attempts"]), count(r["fell"]), count(r["good"]))
                for r in holes.sort("fell", descending=True).head(8).iter_rows(named=True)
            ),
        ),
        advice=_advice(accounts, site, names, evicts=evicts),
        claim=about.claim,
        lost=about.lost,
        echo=evicts,
    )


def _advice(
    accounts: Accounts, site: str, machines: list[str], *, evicts: bool
) -> tuple[Step, ...]:
    named = [machine for machine in machines if not is_address(machine)]
    steps = avoid_machines(named[:3])
    # Beyond a few machines the line gets long, and the whole site is the safer guess.
    if len(machines) > 3 and site in accounts.site_names:
        steps = avoid([site])
    if evicts:
        why = "why they take jobs that they do not keep"
        return (*steps, do(f"Ask the owners of {listed(machines)} {why}."))
    return (
        *steps,
        job_toml(
            "Headway checks a node before data moves and goes elsewhere when it is not fit; this "
            "many times.",
            "[retries]",
            "node = 3",
        ),
        Step(f"Report {listed(machines)} to the owner of the pool."),
    )
