"""Findings in words: what cost most, why, and the lines to change.

Each detector is a pure function of the accounts, with its thresholds beside it. It says nothing
where the evidence is thin.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain

from headway.report.accounts import Accounts
from headway.report.findings.affected import Counted, Remainder, cited_events, listed
from headway.report.findings.compute import idle, restart
from headway.report.findings.finding import Destination, Finding, Step, Table
from headway.report.findings.holds import duration, hold_burst, retry_loop, unreleased
from headway.report.findings.jobs import exit_code, over_asked, under_asked, unnamed
from headway.report.findings.sites import black_hole, site_worse
from headway.report.findings.transfers import (
    gpu_input,
    source_faulty,
    source_worse,
    transfer_cut,
    transfer_queue,
)
from headway.report.numbers import span

logger = logging.getLogger(__name__)

Detector = Callable[[Accounts], list[Finding]]

#: Those that name a mechanism first: where two count the same seconds, they are the better answer.
DETECTORS: tuple[Detector, ...] = (
    transfer_cut,
    duration,
    under_asked,
    hold_burst,
    idle,
    black_hole,
    restart,
    exit_code,
    source_worse,
    source_faulty,
    site_worse,
    retry_loop,
    gpu_input,
    transfer_queue,
    over_asked,
    unreleased,
    unnamed,
)


#: What costs less than this share of all slot time, and concerns less than this share of the jobs,
#: is true but nobody's first worry.
FLOOR = 0.001
JOBS_FLOOR = 0.01
_MANY = 500_000


def find(accounts: Accounts) -> list[Finding]:
    """What all detectors see in the accounts.

    Args:
        accounts: The accounts of a report.

    Returns:
        The findings, the most expensive first. Each says how much of its loss others count, too.
    """
    counted = Counted(accounts)
    found: dict[str, Finding] = {}
    # Each has its own tables for a while: many attempts are looked at by one after the other.
    workers = 3 if accounts.attempts.height <= _MANY else 1
    with ThreadPoolExecutor(workers) as pool:
        seen = list(pool.map(lambda detector: _detected(detector, accounts), DETECTORS))
    for finding in chain.from_iterable(seen):
        left = counted.enter(finding)
        if left is not None:
            found[finding.key] = _entered(finding, left, found)
    floor_s = FLOOR * float(accounts.jobs.get_column("slot_s").sum())
    few = JOBS_FLOOR * accounts.jobs.height
    worth = [one for one in found.values() if one.weight_s >= floor_s or one.jobs >= few]
    order = sorted(worth, key=lambda one: (-one.weight_s, -(one.cost_s or 0.0), -one.jobs))
    return [replace(one, places=cited_events(accounts, one)) for one in order]


def _detected(detector: Detector, accounts: Accounts) -> list[Finding]:
    begin = time.perf_counter()
    found = detector(accounts)
    seconds = time.perf_counter() - begin
    logger.debug("%s: %d findings in %.3f s", detector.__name__, len(found), seconds)
    return found


def _entered(finding: Finding, left: Remainder, before: dict[str, Finding]) -> Finding:
    evidence = finding.evidence
    if left.shared_s >= 1:
        titles = [before[key].title for key in left.shared_with if key in before]
        which = f"{span(left.shared_s)}: {listed(titles, 2, '; ')}"
        evidence += (("also counted in another finding", which),)
    return replace(finding, evidence=evidence, **left._asdict())


__all__ = ["DETECTORS", "Destination", "Detector", "Finding", "Step", "Table", "find"]
