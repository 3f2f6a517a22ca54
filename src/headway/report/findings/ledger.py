"""The ledger: which seconds and which jobs findings have claimed already."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headway.report.accounts import Accounts
from headway.report.findings.finding import Finding
from headway.report.findings.scope import median
from headway.report.words import Outcome

#: A finding that may say what others say better is left out when they have this share of it.
ECHO = 0.5


@dataclass(frozen=True)
class Entry:
    """What is left of a finding's claim when those before it have had theirs."""

    shared_s: float
    shared_with: tuple[str, ...]
    missing_s: float  # what the results take that are missing because of it
    weight_s: float


class Ledger:
    """Enters findings one after another; the same second is counted once."""

    def __init__(self, accounts: Accounts) -> None:
        self._attempts = accounts.attempts.height
        self._claimed: dict[int, NDArray[np.float64]] = {}  # by phase: seconds of each attempt
        self._owner: dict[int, NDArray[np.int16]] = {}  # by phase: who claimed first
        self._lost = np.zeros(accounts.jobs.height, bool)
        self._keys: list[str] = []
        good = accounts.jobs.filter(pl.col("outcome") == Outcome.SUCCESS.value)
        #: What a result takes: the slot time of a successful job's own result.
        self._result_s = median(good.get_column("good_s")) or 0.0

    def enter(self, finding: Finding) -> Entry | None:
        """Claims what nobody has claimed, and says what somebody has; None: all is told already."""
        shared, owners = 0.0, set[int]()
        parts = {int(str(p)): part for (p,), part in finding.claim.group_by("phase")}
        for phase, part in parts.items():
            seconds, who = self._shared(phase, part)
            shared += seconds
            owners |= who
        lost = finding.lost.to_numpy()
        new = int((~self._lost[lost]).sum()) if len(lost) else 0
        cost = finding.cost_s or 0.0
        shared = min(shared, cost)
        whole = cost + len(lost) * self._result_s
        left = cost - shared + new * self._result_s
        if finding.echo and whole > 0 and left <= (1 - ECHO) * whole:
            return None
        for phase, part in parts.items():
            self._claim(phase, part, len(self._keys))
        self._lost[lost] = True
        self._keys.append(finding.key)
        waiting = (finding.waiting_s or 0.0) if finding.slot_waiting else 0.0
        return Entry(
            shared_s=shared,
            shared_with=tuple(self._keys[at] for at in sorted(owners)),
            missing_s=new * self._result_s,
            weight_s=cost - shared + waiting + new * self._result_s,
        )

    def _shared(self, phase: int, part: pl.DataFrame) -> tuple[float, set[int]]:
        """Of one attempt's phase, two claims are taken for the same as far as they can be."""
        if phase not in self._claimed:
            return 0.0, set()
        at, seconds = _numbers(part)
        shared = np.minimum(self._claimed[phase][at], seconds)
        return float(shared.sum()), set(np.unique(self._owner[phase][at][shared > 0]).tolist())

    def _claim(self, phase: int, part: pl.DataFrame, me: int) -> None:
        if phase not in self._claimed:
            self._claimed[phase] = np.zeros(self._attempts)
            self._owner[phase] = np.full(self._attempts, -1, np.int16)
        at, seconds = _numbers(part)
        owner, claimed = self._owner[phase], self._claimed[phase]
        owner[at] = np.where(owner[at] < 0, me, owner[at])
        claimed[at] = np.maximum(claimed[at], seconds)


def _numbers(part: pl.DataFrame) -> tuple[NDArray[np.uint32], NDArray[np.float64]]:
    return part.get_column("attempt").to_numpy(), part.get_column("seconds").to_numpy()
