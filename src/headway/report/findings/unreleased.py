"""Holds that nobody has released."""

from __future__ import annotations

from typing import Any

import polars as pl

from headway.report.accounts import Accounts
from headway.report.findings.finding import Finding, Step, Table, job_toml, shell
from headway.report.findings.reasons import Told, caused_holds, on_purpose
from headway.report.findings.scope import median, scope
from headway.report.numbers import count, days
from headway.report.words import Outcome
from headway.text import many

_DAY = 86400.0
#: A weekend is not neglect.
LONG = 3 * _DAY
#: The OSPool may remove jobs that have been held for longer.
OSPOOL = 14 * _DAY
_MOST = 6


def unreleased(accounts: Accounts) -> list[Finding]:
    """At most one finding: the jobs that have been held for days."""
    held = accounts.jobs.filter(pl.col("outcome") == Outcome.HELD.value).select("job", "id")
    last = caused_holds(accounts).sort("time").unique("job", keep="last", maintain_order=True)
    stuck = last.join(held, on="job").filter(
        pl.col("released").is_null()
        & ~pl.col("cause").is_in(on_purpose())
        & (pl.col("held_s") >= LONG)
    )
    if not stuck.height:
        return []
    about = scope(accounts, accounts.attempts.head(0), jobs=stuck.get_column("job"))
    longest = float(stuck.get_column("held_s").max() or 0.0)  # type: ignore[arg-type]
    kinds = stuck.group_by("cause").agg(jobs=pl.len(), held_s=pl.col("held_s").max())
    kinds = kinds.sort("jobs", "cause", descending=[True, False]).head(_MOST)
    evidence = [
        ("held for (median / longest)", f"{days(_median(stuck))} / {days(longest)}"),
    ]
    why = "A held job does nothing until somebody releases it."
    if accounts.uses_osdf:
        may = f"more than {OSPOOL / _DAY:.0f} days: the OSPool may remove them"
        evidence.append((may, count(stuck.filter(pl.col("held_s") >= OSPOOL).height)))
        why += " The OSPool may remove jobs that have been held for more than 14 days."
    return [
        Finding(
            key="unreleased",
            title=f"{many(stuck.height, 'job')} {'has' if stuck.height == 1 else 'have'} been held "
            f"for more than {LONG / _DAY:.0f} days (the longest for {days(longest)}), and nobody "
            f"has released or removed {'it' if stuck.height == 1 else 'them'}",
            why=why,
            waiting_s=float(stuck.get_column("held_s").sum()),
            waiting="on hold",
            jobs=stuck.height,
            lost_jobs=about.lost.len(),
            named=about.named,
            evidence=tuple(evidence),
            table=Table(
                ("code", "jobs", "longest", "what it is", "what to do"),
                tuple(_row(stuck, kind) for kind in kinds.iter_rows(named=True)),
            ),
            advice=_advice(),
            lost=about.lost,
            slot_waiting=False,
        )
    ]


def _median(stuck: pl.DataFrame) -> float | None:
    return median(stuck.get_column("held_s"))


def _row(stuck: pl.DataFrame, kind: dict[str, Any]) -> tuple[str, ...]:
    told = Told(stuck.filter(pl.col("cause") == kind["cause"]))
    codes = ", ".join(told.codes)
    return codes, count(kind["jobs"]), days(kind["held_s"]), told.headline, told.do


def _advice() -> tuple[Step, ...]:
    return (
        shell(
            "See why each is held, then mend and release it, or remove it.",
            "condor_q -hold -af:j HoldReasonCode HoldReasonSubCode HoldReason",
            "condor_release JOB",
            "condor_rm JOB",
        ),
        job_toml(
            "In job.toml plainly transient holds are released by themselves, this many times.",
            "[retries]",
            "holds = 5",
        ),
    )
