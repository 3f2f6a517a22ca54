"""The worth of each piece of time: by the end of its attempt, of its job, and its checkpoints."""

from __future__ import annotations

import numpy as np

from headway.events.columnar.columns import Longs
from headway.events.life import Effect
from headway.events.status import Phase
from headway.report.arrays import Attempts, Jobs, Pieces
from headway.report.codes import CAUSE, OUTCOME, PHASE, VERDICT, Codes, Flags
from headway.report.walk import Walk
from headway.report.words import Cause, Outcome, Verdict

#: Of an attempt without a checkpoint; -1 is before the first event of all.
_NONE = -2
_TRANSFERS = [CAUSE[cause] for cause in (Cause.TRANSFER_CUT, Cause.TRANSFER_FAILED)]

#: What became of a job, as the cause of losing even what its checkpoints had saved.
_CAUSE_OF_OUTCOME = {
    Outcome.WRONG_OUTPUT: Cause.WRONG_OUTPUT,
    Outcome.REMOVED: Cause.REMOVED,
}


def pieces_of(walk: Walk, attempts: Attempts, jobs: Jobs) -> Pieces:
    """What the time after each event was spent with, and worth."""
    phase = walk.phase.copy()
    saved_at = _checkpoints(walk, phase)
    owner = np.where(walk.open, attempts.owner, -1)
    # HTCondor says "finished" of an input transfer that failed, too.
    failed = ~attempts.executed & np.isin(attempts.cause, _TRANSFERS)
    phase[(phase == PHASE[Phase.STARTING]) & np.append(failed, False)[owner]] = PHASE[
        Phase.TRANSFER_IN
    ]
    saved = (walk.effect & Effect.SAVED) > 0
    attempts.checkpoints = np.bincount(attempts.owner[saved], minlength=len(attempts.job))
    jobs.checkpoints = np.bincount(attempts.job[attempts.owner[saved]], minlength=len(walk.first))
    verdict, cause = _worth(walk, phase, owner, saved_at, attempts, jobs)
    return Pieces(walk.job, owner, phase, verdict, cause, walk.time, walk.length)


def _checkpoints(walk: Walk, phase: Codes) -> Longs:
    """Calls the outputs that came home in mid-attempt by their name; what was before each one."""
    ways_out = (PHASE[Phase.TRANSFER_OUT], PHASE[Phase.WAITING])
    compute, checkpoint = PHASE[Phase.COMPUTE], PHASE[Phase.CHECKPOINT]
    # An attribute of an enumeration costs a microsecond, an element of an array a tenth of one.
    closed, opened = int(Effect.CLOSED), int(Effect.OPENED)
    saved, effect = walk.saved, walk.effect
    found = []
    for after in np.flatnonzero(effect & Effect.SAVED).tolist():
        at = after - 1
        if saved[at] and not effect[after] & closed:
            phase[at] = compute
            at -= 1
        while phase[at] in ways_out:
            phase[at] = checkpoint
            at -= 1
            if effect[at + 1] & opened:
                break
        found.append(at)
    return np.array(found, np.int64)


def _worth(
    walk: Walk, phase: Codes, owner: Longs, saved_at: Longs, attempts: Attempts, jobs: Jobs
) -> tuple[Codes, Codes]:
    verdict = np.zeros(len(phase), np.uint8)
    cause = np.zeros(len(phase), np.uint8)
    mine = np.flatnonzero(owner >= 0)
    attempt = owner[mine]
    good = attempts.success[attempt]
    open_ = attempts.open[attempt]
    suspended = phase[mine] == PHASE[Phase.SUSPENDED]
    verdict[mine] = np.where(
        open_,
        VERDICT[Verdict.OPEN],
        np.where(good, VERDICT[Verdict.GOOD], VERDICT[Verdict.BAD]),
    )
    cause[mine] = np.where(good | open_, 0, attempts.cause[attempt])
    verdict[mine[suspended]] = VERDICT[Verdict.BAD]
    cause[mine[suspended]] = CAUSE[Cause.SUSPENDED]
    _kept(walk, phase, owner, saved_at, attempts, jobs, verdict, cause)
    return verdict, cause


def _kept(
    walk: Walk,
    phase: Codes,
    owner: Longs,
    saved_at: Longs,
    attempts: Attempts,
    jobs: Jobs,
    verdict: Codes,
    cause: Codes,
) -> None:
    """What a checkpoint saved is as good as its job; what came after it was done again."""
    if not len(saved_at):
        return
    last = np.full(len(attempts.job), _NONE, np.int64)
    last[attempts.owner[walk.effect & Effect.SAVED > 0]] = saved_at
    work = (phase == PHASE[Phase.COMPUTE]) | (phase == PHASE[Phase.CHECKPOINT])
    bad = (owner >= 0) & work & (verdict == VERDICT[Verdict.BAD])
    at = np.flatnonzero(bad)
    has = last[owner[at]] != _NONE
    before = has & ((at <= last[owner[at]]) | (phase[at] == PHASE[Phase.CHECKPOINT]))
    outcome = jobs.outcome[walk.job[at]]
    done = before & (outcome == OUTCOME[Outcome.SUCCESS])
    verdict[at[done]], cause[at[done]] = VERDICT[Verdict.GOOD], 0
    waits = before & np.isin(outcome, [OUTCOME[o] for o in (Outcome.UNFINISHED, Outcome.HELD)])
    verdict[at[waits]], cause[at[waits]] = VERDICT[Verdict.OPEN], 0
    for which, why in _CAUSE_OF_OUTCOME.items():
        cause[at[before & (outcome == OUTCOME[which])]] = CAUSE[why]
    # An attempt that began from a checkpoint of an earlier one had saved something too.
    resumed = _resumed(attempts, last)[owner[at]]
    again = ~before & (has | resumed) & (cause[at] == CAUSE[Cause.EVICTION])
    cause[at[again]] = CAUSE[Cause.REDONE]


def _resumed(attempts: Attempts, last: Longs) -> Flags:
    """Whether an earlier attempt of the same job left a checkpoint."""
    saved = last != _NONE
    before: Longs = np.cumsum(saved) - saved
    first = np.searchsorted(attempts.job, attempts.job)
    return np.asarray(before > before[first])
