"""Accounting: from events as columns to where every second of every job went.

The time between two events of a job is one piece, and the automaton of `events.life` says what it
was spent with. So the pieces of a job lie end to end and add up to its time, whatever the log says.
What a piece was worth is only known at the end: by how its attempt ended, by how the job ended, and
by the last checkpoint between.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headway.events.columnar.columns import NONE, Columns, Ints, Longs
from headway.events.kind import AGENT_KINDS, Kind
from headway.events.life import Effect
from headway.events.status import Phase, Status
from headway.report.accounts import Accounts
from headway.report.arrays import Attempts, Jobs
from headway.report.cause import PATTERNS, End, cause_of
from headway.report.codes import CAUSE, OUTCOME, OVER, PHASE, STATUS, Flags
from headway.report.frames import frames
from headway.report.strand import Strands, strands
from headway.report.walk import Walk
from headway.report.words import Cause, Outcome
from headway.report.worth import pieces_of

#: Seconds between a 004 and the 012 or 009 that explains it.
_SAME_CAUSE = 2_000_000


def account(
    columns: Columns,
    *,
    until: float | None = None,
    since: float | None = None,
    outputs: Mapping[tuple[int, int], bool] | None = None,
) -> Accounts:
    """The accounts of all jobs in the columns.

    Jobs that go on are accounted up to `until`, unless told up to the last event of all. Jobs whose
    last event is before `since` are left out. `outputs` says of jobs whether their declared outputs
    are there; one that is not makes a wrong output of a job that ended with 0.
    """
    found = strands(columns)
    if since is not None:
        found = _recent(columns, found, int(since * 1e6))
    walk = Walk(columns, found, outputs or {}, until)
    attempts = _attempts(columns, walk)
    jobs = _jobs(walk, attempts)
    pieces = pieces_of(walk, attempts, jobs)
    return frames(columns, walk.rows, jobs, attempts, pieces, _holds(walk), walk.until)


def _recent(columns: Columns, found: Strands, since: int) -> Strands:
    if not len(found.first):
        return found
    newest = np.maximum.reduceat(columns.time[found.rows], found.first)
    job = found.job
    keep = (newest >= since)[job]
    rows, job = found.rows[keep], job[keep]
    starts = np.append(True, job[1:] != job[:-1]) if len(rows) else np.zeros(0, bool)
    return Strands(rows, np.flatnonzero(starts))


def _attempts(columns: Columns, walk: Walk) -> Attempts:
    """One row an attempt."""
    opened = np.flatnonzero(walk.effect & Effect.OPENED)
    closed = np.flatnonzero(walk.effect & Effect.CLOSED)
    job = walk.job[opened]
    # An attempt ends with the first end at or after its begin, unless another begins before.
    limit = np.append(opened[1:], len(walk.rows))
    limit = np.minimum(limit, walk.last[job] + 1)
    where = np.searchsorted(closed, opened)
    close = np.append(closed, len(walk.rows))[where]
    ended = close < limit
    overtaken = ~ended & (np.append(job[1:] == job[:-1], False))
    end = np.where(ended, close, np.where(overtaken, limit, limit - 1))
    teller = _teller(walk, close, ended)
    ending = _endings(columns, walk, opened, end, teller, ended, overtaken)
    executed = _any_between(walk.executed, opened, np.where(ended | overtaken, end, limit))
    over = ended | overtaken
    end_us = np.where(over, np.append(walk.time, 0)[end], walk.until)
    told = np.append(walk.effect, 0)[close] & Effect.EVICTED > 0
    return Attempts(
        job=job,
        begin_us=walk.time[opened],
        end_us=end_us,
        open=~over,
        executed=executed,
        teller=np.where(ended, teller, -1),
        success=ending == _SUCCESS,
        cause=np.where(ending < _SUCCESS, ending, 0).astype(np.uint8),
        evicted=ended & told & (teller == close),
        owner=np.cumsum((walk.effect & Effect.OPENED) > 0) - 1,
        checkpoints=np.zeros(len(job), np.int64),
    )


_LOSSES = (Kind.EVICTED, Kind.TRANSFER_FAILED, Kind.SHADOW_EXCEPTION, Kind.RECONNECT_FAILED)
_SUCCESS = 100
_GOES_ON = 101


def _teller(walk: Walk, close: Longs, ended: Flags) -> Longs:
    """The event that says why each attempt ended: a 012 or 009 explains the 004 before it."""
    teller = close.copy()
    at = close[ended]
    after = np.minimum(at + 1, len(walk.rows) - 1)
    lost = np.isin(walk.kind[at], _LOSSES)
    # Between them may stand the 004 that tells a 024 again, and 028 events about both.
    moved = at.copy()
    candidates = np.flatnonzero(lost)
    for _ in range(4):
        if not len(candidates):
            break
        here = after[candidates]
        near = (walk.job[here] == walk.job[at[candidates]]) & (
            walk.time[here] - walk.time[at[candidates]] <= _SAME_CAUSE
        )
        near &= here > at[candidates]
        candidates, here = candidates[near], here[near]
        explains = np.isin(walk.kind[here], [Kind.HELD, Kind.REMOVED])
        moved[candidates[explains]] = here[explains]
        passes = np.isin(walk.kind[here], [Kind.OTHER, Kind.EVICTED, Kind.TRANSFER_FAILED])
        candidates = candidates[passes & ~explains]
        after[candidates] = np.minimum(after[candidates] + 1, len(walk.rows) - 1)
    teller[ended] = moved
    return teller


def _any_between(flags: Flags, begin: Longs, end: Longs) -> Flags:
    """Whether a flag is set at any place from begin up to, not including, end."""
    total = np.append(0, np.cumsum(flags))
    return np.asarray(total[np.maximum(end, begin)] > total[begin])


def _endings(
    columns: Columns,
    walk: Walk,
    opened: Longs,
    end: Longs,
    teller: Longs,
    ended: Flags,
    overtaken: Flags,
) -> Ints:
    ending = np.full(len(opened), _GOES_ON, np.int32)
    ending[overtaken] = CAUSE[Cause.UNKNOWN]
    at = np.flatnonzero(ended)
    kinds = walk.kind[teller[at]]
    good = np.isin(kinds, [Kind.SUCCEEDED, Kind.SKIPPED])
    ending[at[good]] = _SUCCESS
    at, kinds = at[~good], kinds[~good]
    executed = _any_between(walk.executed, opened[at], end[at])
    agent_rows = np.isin(walk.kind, [int(kind) for kind in AGENT_KINDS])
    agent = _any_between(agent_rows, opened[at], end[at] + 1)
    rows = walk.rows[teller[at]]
    ends: list[NDArray[Any]] = [
        kinds,
        columns.code[rows],
        columns.subcode[rows],
        columns.value[rows],
    ]
    ending[at] = _causes([*ends, executed, agent, *_says(columns, columns.text[rows])])
    return ending


def _says(columns: Columns, text: Ints) -> list[Flags]:
    """Which of the patterns each reason matches; nearly every reason names its own slot."""
    used, place = np.unique(text, return_inverse=True)
    words = [columns.strings[at] if at >= 0 else "" for at in used.tolist()]
    reasons = pl.Series(words, dtype=pl.String)
    return [reasons.str.contains(p).to_numpy()[place] for p in PATTERNS.values()]


def _causes(ends: list[NDArray[Any]]) -> Ints:
    """The causes of these ends, which come in few kinds: each kind is judged once."""
    key, room = np.zeros(len(ends[0]), np.int64), 1
    for part in ends:
        place = np.where(part == NONE, -1, part).astype(np.int64)
        place -= place.min(initial=0)
        span = int(place.max(initial=0)) + 1
        if room * span >= 2**62:  # only then is the sorting worth its time
            place = np.unique(place, return_inverse=True)[1]
            key = np.unique(key, return_inverse=True)[1]
            room, span = int(key.max(initial=0)) + 1, int(place.max(initial=0)) + 1
        key, room = key * span + place, room * span
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    kinds = zip(*(part[first].tolist() for part in ends), strict=True)
    causes = [CAUSE[cause_of(End(*kind))] for kind in kinds]
    return np.array(causes, np.int32)[which]


def _jobs(walk: Walk, attempts: Attempts) -> Jobs:
    status = walk.status[walk.last] if len(walk.first) else np.zeros(0, np.uint8)
    outcome = np.full(len(walk.first), OUTCOME[Outcome.UNFINISHED], np.uint8)
    outcome[status == STATUS[Status.HELD]] = OUTCOME[Outcome.HELD]
    outcome[status == STATUS[Status.REMOVED]] = OUTCOME[Outcome.REMOVED]
    outcome[status == STATUS[Status.COMPLETED]] = OUTCOME[Outcome.WRONG_OUTPUT]
    outcome[attempts.job[attempts.success]] = OUTCOME[Outcome.SUCCESS]
    skipped = np.flatnonzero((walk.kind == Kind.SKIPPED) & (walk.phase == OVER))
    outcome[walk.job[skipped]] = OUTCOME[Outcome.SUCCESS]
    over = np.flatnonzero(walk.phase == OVER)
    end = np.full(len(walk.first), walk.until, np.int64)
    # In reverse, so that the first event after which the job was over counts.
    end[walk.job[over][::-1]] = walk.time[over][::-1]
    return Jobs(
        outcome=outcome,
        begin_us=walk.time[walk.first],
        end_us=end,
        submitted=_first_of(walk, Kind.SUBMITTED),
        held=_last_of(walk, Kind.HELD),
        ended=_ending_rows(walk, over),
        holds=np.bincount(walk.job[walk.kind == Kind.HELD], minlength=len(walk.first)),
        requeues=np.bincount(walk.job[walk.kind == Kind.REQUEUED], minlength=len(walk.first)),
        checkpoints=np.zeros(len(walk.first), np.int64),
    )


def _ending_rows(walk: Walk, over: Longs) -> Longs:
    """Per job the event that ended it, or -1."""
    found = np.full(len(walk.first), -1, np.int64)
    found[walk.job[over][::-1]] = over[::-1]
    return found


def _first_of(walk: Walk, kind: Kind) -> Longs:
    at = np.flatnonzero(walk.kind == kind)[::-1]
    found = np.full(len(walk.first), -1, np.int64)
    found[walk.job[at]] = at
    return found


def _last_of(walk: Walk, kind: Kind) -> Longs:
    at = np.flatnonzero(walk.kind == kind)
    found = np.full(len(walk.first), -1, np.int64)
    found[walk.job[at]] = at
    return found


def _holds(walk: Walk) -> tuple[Longs, Longs]:
    """Each 012, and the event that ended that hold (the length of the log where none did)."""
    held = np.flatnonzero(walk.kind == Kind.HELD)
    held = held[walk.phase[held] == PHASE[Phase.HELD]]
    others = np.append(np.flatnonzero(walk.phase != PHASE[Phase.HELD]), len(walk.rows))
    until = others[np.searchsorted(others, held)]
    gone = until > walk.last[walk.job[held]] if len(held) else np.zeros(0, bool)
    return held, np.where(gone, len(walk.rows), until)
