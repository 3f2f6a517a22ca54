"""Findings in words: what cost most, why, and the lines to change.

Each detector is a pure function of the accounts, with its thresholds beside it. It says nothing
where the evidence is thin.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain

from headway.report.accounts import Accounts
from headway.report.findings.black_hole import black_hole
from headway.report.findings.duration import duration
from headway.report.findings.exit_code import exit_code
from headway.report.findings.finding import Finding, Place, Step, Table, places
from headway.report.findings.gpu_input import gpu_input
from headway.report.findings.hold_burst import hold_burst
from headway.report.findings.idle import idle
from headway.report.findings.ledger import Entry, Ledger
from headway.report.findings.resources import over_asked, under_asked
from headway.report.findings.restart import restart
from headway.report.findings.retry_loop import retry_loop
from headway.report.findings.scope import listed
from headway.report.findings.site_worse import site_worse
from headway.report.findings.source_faulty import source_faulty
from headway.report.findings.source_worse import source_worse
from headway.report.findings.transfer_cut import transfer_cut
from headway.report.findings.transfer_queue import transfer_queue
from headway.report.findings.unnamed import unnamed
from headway.report.findings.unreleased import unreleased
from headway.report.numbers import span

Detector = Callable[[Accounts], list[Finding]]

#: Those that name a mechanism first: where two claim the same seconds, they are the better answer.
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
    """What all detectors see, most expensive first; none claims what is claimed without saying."""
    ledger = Ledger(accounts)
    found: dict[str, Finding] = {}
    # Each has its own tables for a while: many attempts are looked at by one after the other.
    workers = 3 if accounts.attempts.height <= _MANY else 1
    with ThreadPoolExecutor(workers) as pool:
        seen = list(pool.map(lambda detector: detector(accounts), DETECTORS))
    for finding in chain.from_iterable(seen):
        entry = ledger.enter(finding)
        if entry is not None:
            found[finding.key] = _entered(finding, entry, found)
    floor_s = FLOOR * float(accounts.jobs.get_column("slot_s").sum())
    few = JOBS_FLOOR * accounts.jobs.height
    worth = [one for one in found.values() if one.weight_s >= floor_s or one.jobs >= few]
    order = sorted(worth, key=lambda one: (-one.weight_s, -(one.cost_s or 0.0), -one.jobs))
    return [replace(one, places=places(accounts, one)) for one in order]


def _entered(finding: Finding, entry: Entry, before: dict[str, Finding]) -> Finding:
    evidence = finding.evidence
    if entry.shared_s >= 1:
        titles = [before[key].title for key in entry.shared_with if key in before]
        told = f"{span(entry.shared_s)}: {listed(titles, 2, '; ')}"
        evidence += (("of the loss, also counted in another finding", told),)
    return replace(
        finding,
        evidence=evidence,
        shared_s=entry.shared_s,
        shared_with=entry.shared_with,
        missing_s=entry.missing_s,
        weight_s=entry.weight_s,
    )


__all__ = ["DETECTORS", "Detector", "Finding", "Place", "Step", "Table", "find"]
