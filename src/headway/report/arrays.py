"""The arrays of the accounting: one entry a job, an attempt, a piece."""

from __future__ import annotations

from dataclasses import dataclass

from headway.events.columnar.columns import Longs
from headway.report.codes import Codes, Flags


@dataclass
class Jobs:
    """One entry a job; `submitted`, `held` and `ended` are places of events, -1 for none."""

    outcome: Codes
    begin_us: Longs
    end_us: Longs
    submitted: Longs
    held: Longs
    ended: Longs
    holds: Longs
    requeues: Longs
    checkpoints: Longs


@dataclass
class Attempts:
    """One entry an attempt; `teller` is the event that says why it ended, -1 for none."""

    job: Longs
    begin_us: Longs
    end_us: Longs
    open: Flags
    executed: Flags
    teller: Longs
    success: Flags
    cause: Codes
    evicted: Flags
    checkpoints: Longs
    entry: Longs  # of the table of holds that their reason belongs to, -1 for none
    template: Longs  # place in `templates`, -1 for none
    templates: list[str]  # of reasons


@dataclass
class Pieces:
    """One entry an event: what the time after it was spent with, and worth."""

    job: Longs
    attempt: Longs
    phase: Codes
    verdict: Codes
    cause: Codes
    begin_us: Longs
    length_us: Longs


@dataclass
class Holds:
    """One entry a 012; both are places of events, -1 where nothing ended the hold."""

    held: Longs
    ended: Longs
