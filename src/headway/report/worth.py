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

#: Of an attempt without a checkpoint.
_NONE = -1
_TRANSFERS = [CAUSE[cause] for cause in (Cause.TRANSFER_CUT, Cause.TRANSFER_FAILED)]
#: What a checkpoint can hold. The transfers before it have to be made again all the same.
_WORK = [PHASE[phase] for phase in (Phase.COMPUTE, Phase.CHECKPOINT, Phase.DISCONNECTED)]
_PAUSES = (PHASE[Phase.DISCONNECTED], PHASE[Phase.SUSPENDED])


def pieces_of(walk: Walk, attempts: Attempts, jobs: Jobs) -> Pieces:
    """What the time after each event was spent with, and worth."""
    phase = walk.phase.copy()
    held = _checkpoints(walk, phase)
    owner = np.where(walk.open, walk.attempt, -1)
    # HTCondor says "finished" of an input transfer that failed, too.
    failed = ~attempts.executed & np.isin(attempts.cause, _TRANSFERS)
    phase[(phase == PHASE[Phase.STARTING]) & np.append(failed, False)[owner]] = PHASE[
        Phase.TRANSFER_IN
    ]
    verdict, cause = _worth(phase, owner, attempts)
    pieces = Pieces(walk.job, owner, phase, verdict, cause, walk.time, walk.length)
    if len(held):
        saved = walk.attempt[(walk.effect & Effect.SAVED) > 0]
        last = np.full(len(attempts.job), _NONE, np.int64)
        last[saved] = held
        _keep(pieces, last, attempts, jobs)
    return pieces


def _checkpoints(walk: Walk, phase: Codes) -> Longs:
    """Calls the outputs that came home in mid-attempt by their name.

    Gives for each the last piece before it was home: it holds the work up to there.
    """
    out, waiting = PHASE[Phase.TRANSFER_OUT], PHASE[Phase.WAITING]
    compute, checkpoint = PHASE[Phase.COMPUTE], PHASE[Phase.CHECKPOINT]
    # An attribute of an enumeration costs a microsecond, an element of an array a tenth of one.
    opened = int(Effect.OPENED)
    home, stopped, effect = walk.saved, walk.stopped, walk.effect
    found = []
    for after in np.flatnonzero(effect & Effect.SAVED).tolist():
        at = after - 1
        while home[at]:
            # A command that never stopped went on; an agent that was done was started again.
            if phase[at] == out:
                phase[at] = checkpoint if stopped[at] else compute
            at -= 1
        found.append(at)
        while phase[at] in (out, waiting, *_PAUSES):
            if phase[at] not in _PAUSES:
                phase[at] = checkpoint
            if effect[at] & opened:
                break
            at -= 1
    return np.array(found, np.int64)


def _worth(phase: Codes, owner: Longs, attempts: Attempts) -> tuple[Codes, Codes]:
    """The verdict on each piece, and the cause of its loss, by the end of its attempt."""
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
    return verdict, cause


def _keep(pieces: Pieces, last: Longs, attempts: Attempts, jobs: Jobs) -> None:
    """What a checkpoint holds is as good as its job; what came after it was done again.

    `last` is of each attempt the last piece that its last checkpoint holds.
    """
    bad = (pieces.attempt >= 0) & (pieces.verdict == VERDICT[Verdict.BAD])
    at = np.flatnonzero(bad & np.isin(pieces.phase, _WORK))
    attempt, phase = pieces.attempt[at], pieces.phase[at]
    saves = last != _NONE
    held = (at <= last[attempt]) | (phase == PHASE[Phase.CHECKPOINT])
    outcome = jobs.outcome[pieces.job[at]]
    done = at[held & (outcome == OUTCOME[Outcome.SUCCESS])]
    pieces.verdict[done], pieces.cause[done] = VERDICT[Verdict.GOOD], 0
    waits = at[held & np.isin(outcome, [OUTCOME[Outcome.UNFINISHED], OUTCOME[Outcome.HELD]])]
    pieces.verdict[waits], pieces.cause[waits] = VERDICT[Verdict.OPEN], 0
    removed = at[held & (outcome == OUTCOME[Outcome.REMOVED])]
    pieces.cause[removed] = CAUSE[Cause.REMOVED]
    # What cost the job its result cost it the work that it had saved, too.
    wrong = at[held & (outcome == OUTCOME[Outcome.FAILED])]
    final = np.searchsorted(attempts.job, pieces.job[wrong], side="right") - 1
    pieces.cause[wrong] = attempts.cause[final]
    # An attempt that began from a checkpoint of an earlier one had saved something too.
    again = ~held & (saves | _resumed(attempts, saves))[attempt]
    again &= (phase == PHASE[Phase.COMPUTE]) & (pieces.cause[at] == CAUSE[Cause.EVICTION])
    pieces.cause[at[again]] = CAUSE[Cause.REDONE]


def _resumed(attempts: Attempts, saves: Flags) -> Flags:
    """Whether an earlier attempt of the same job left a checkpoint."""
    before: Longs = np.cumsum(saves) - saves
    first = np.searchsorted(attempts.job, attempts.job)
    return np.asarray(before > before[first])
