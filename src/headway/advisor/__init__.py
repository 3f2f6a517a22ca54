"""The advisor: what to do about held jobs, from what logs tell and what can be looked at now."""

from __future__ import annotations

from headway.advisor.advice import Act, Advice, Change
from headway.advisor.checks import Findings
from headway.advisor.commands import CONDOR, Commands
from headway.advisor.evidence import Evidence, gather
from headway.advisor.history import History
from headway.advisor.hold import Hold, JobId, entry_of, hold_of
from headway.advisor.judge import Estimate, Judge, by_counting
from headway.advisor.verdict import decide

__all__ = [
    "Act",
    "Advice",
    "Change",
    "Estimate",
    "Evidence",
    "Findings",
    "History",
    "Hold",
    "JobId",
    "Judge",
    "advise",
    "held",
    "hold_of",
]


def advise(
    hold: Hold,
    history: History,
    checks: Findings | None = None,
    now: float | None = None,
    *,
    judge: Judge = by_counting,
    commands: Commands = CONDOR,
) -> Advice:
    """What to do about a hold, by all that was known before it and what `checks` found since.

    `now` (default: when the job was held) ends waits. Nothing is read or asked here.
    """
    entry = entry_of(hold)
    evidence = gather(hold, history, entry)
    estimate = judge(hold, evidence, entry)
    return decide(hold, entry, evidence, estimate, checks=checks, now=now, commands=commands)


def held(history: History) -> list[Hold]:
    """The holds that last, in the order in which they began."""
    return history.held()
