"""Slots that computed nothing: attempts that held one for long and used next to no CPU time.

An event says how much CPU time its attempt used. A zero is believed only where other attempts of
the same log have CPU time: some platforms (grid, VM, old containers) write zeros for everything.
And in a cluster whose own successes use no CPU time, its absence is a sign of nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headway.events.columnar.columns import Columns, Floats, Ints, Longs
from headway.events.status import Phase
from headway.report.arrays import Attempts, Pieces
from headway.report.codes import CAUSE, PHASE, Flags
from headway.report.walk import Walk
from headway.report.words import Cause

#: Seconds in the command below which a slow start is not told from a standstill.
LONG = 600.0
#: Where a node is lost at once, the figure is that of its last report; starters report every
#: 5 minutes, old ones every 20.
LONG_IF_LOST = 1800.0
#: CPU seconds that starting a program takes, and the share of the time that waiting takes.
START, SHARE = 1.0, 0.002
#: Losses whose cause is known better.
_KNOWN = [
    CAUSE[cause]
    for cause in (Cause.TRANSFER_CUT, Cause.TRANSFER_FAILED, Cause.BAD_NODE, Cause.UNKNOWN)
]
_LOST = [CAUSE[cause] for cause in (Cause.DISCONNECT, Cause.SYSTEM)]


def cpu_time(pieces: Pieces, cpu_s: Floats, cpus: Floats) -> Floats:
    """The CPU time of each attempt, in seconds.

    Args:
        pieces: What became of each piece of time.
        cpu_s: The seconds that its events say; NaN where none does.
        cpus: How many cores it used on average, by the table of resources; NaN likewise.

    Returns:
        The larger of the two figures, for one may be missing or 0; NaN where there is none.
    """
    return np.asarray(np.fmax(cpu_s, cpus * _computing(pieces, len(cpu_s))))


def _computing(pieces: Pieces, count: int) -> Floats:
    mine = np.flatnonzero((pieces.attempt >= 0) & (pieces.phase == PHASE[Phase.COMPUTE]))
    return np.asarray(np.bincount(pieces.attempt[mine], pieces.length_us[mine], count) / 1e6)


class IdleAttempts:
    """Finds the attempts that computed nothing, among those of some jobs after the other.

    What a zero means is known only when all jobs were seen.
    """

    def __init__(self) -> None:
        self._parts: list[_Part] = []

    def add(
        self, columns: Columns, walk: Walk, attempts: Attempts, pieces: Pieces, cpu_s: Floats
    ) -> None:
        """Take attempts in.

        Args:
            columns: The events.
            walk: The same, by job.
            attempts: One entry an attempt.
            pieces: What became of each piece of time.
            cpu_s: The CPU time of each attempt, of `cpu_time`.
        """
        compute_s = _computing(pieces, len(attempts.job))
        known, used_s = ~np.isnan(cpu_s), np.nan_to_num(cpu_s)
        still = known & (used_s <= START + SHARE * compute_s)
        still &= compute_s >= np.where(np.isin(attempts.cause, _LOST), LONG_IF_LOST, LONG)
        open_ = attempts.open | (attempts.checkpoints > 0)
        first = walk.rows[walk.first[attempts.job]]
        self._parts.append(
            _Part(
                columns.log[first].astype(np.int32),
                columns.cluster[first],
                used_s > 0,
                still & attempts.success,
                still & ~attempts.success & ~open_ & ~np.isin(attempts.cause, _KNOWN),
            )
        )

    def flags(self) -> Flags:
        """Whether each attempt that was taken in computed nothing."""
        if not self._parts:
            return np.zeros(0, bool)
        log, cluster, computed, needless, idle = (
            np.concatenate(each) for each in zip(*self._parts, strict=True)
        )
        alive = np.bincount(log, computed) > 0
        of = np.unique(cluster, return_inverse=True)[1] * len(alive) + log
        idle &= ~np.isin(of, of[needless])
        return np.asarray(idle & alive[log] if len(log) else idle)


class _Part(NamedTuple):
    """Of each attempt: its log and cluster, whether it used CPU time, succeeded without, lost."""

    log: Ints
    cluster: Longs
    computed: Flags
    needless: Flags
    idle: Flags
