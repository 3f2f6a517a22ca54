"""Slots that computed nothing: attempts that held one for long and used next to no CPU time.

An event says how much CPU time its attempt used. A zero is believed only where other attempts of
the same log have CPU time: some platforms (grid, VM, old containers) write zeros for everything.
And in a cluster whose own successes use no CPU time, its absence is a sign of nothing.
"""

from __future__ import annotations

import numpy as np

from headway.events.columnar.columns import Columns, Floats
from headway.events.status import Phase
from headway.report.arrays import Attempts, Pieces
from headway.report.codes import CAUSE, PHASE, VERDICT, Flags
from headway.report.walk import Walk
from headway.report.words import Cause, Verdict

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


def mark_idle(
    columns: Columns, walk: Walk, attempts: Attempts, pieces: Pieces, cpu_s: Floats
) -> Flags:
    """Finds the attempts that computed nothing, and makes that the cause of what they lost.

    Args:
        columns: The events.
        walk: The same, by job.
        attempts: One entry an attempt.
        pieces: What became of each piece of time; the cause of lost ones changes in place.
        cpu_s: The CPU time of each attempt, of `cpu_time`.

    Returns:
        A flag for each attempt.
    """
    count, compute_s = len(attempts.job), _computing(pieces, len(attempts.job))
    known, used_s = ~np.isnan(cpu_s), np.nan_to_num(cpu_s)
    still = known & (used_s <= START + SHARE * compute_s)
    still &= compute_s >= np.where(np.isin(attempts.cause, _LOST), LONG_IF_LOST, LONG)
    first = walk.rows[walk.first[attempts.job]]
    log = columns.log[first].astype(np.int64)
    alive = np.bincount(log, used_s > 0) > 0
    cluster = np.unique(columns.cluster[first], return_inverse=True)[1] * len(alive) + log
    needless = np.isin(cluster, cluster[still & attempts.success])
    idle = still & ~attempts.success & ~attempts.open & (attempts.checkpoints == 0)
    idle &= ~np.isin(attempts.cause, _KNOWN) & ~needless
    if count:
        idle &= alive[log]
    lost = (pieces.attempt >= 0) & (pieces.verdict == VERDICT[Verdict.BAD])
    lost &= (pieces.cause != CAUSE[Cause.SUSPENDED]) & np.append(idle, False)[pieces.attempt]
    pieces.cause[lost] = CAUSE[Cause.IDLE]
    return np.asarray(idle)
