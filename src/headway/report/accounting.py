"""Accounting: from events as columns to where every second of every job went.

The time between two events of a job is one piece, and the automaton of `events.life` says what it
was spent with. So the pieces of a job lie end to end and add up to its time, whatever the log says.
What a piece was worth is only known at the end: by how its attempt ended, by how the job ended, and
by the last checkpoint between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headway.events.columnar.columns import NONE, Columns, Longs
from headway.events.columnar.thin import MANY
from headway.events.kind import AGENT_KINDS, Kind
from headway.events.life import Effect
from headway.events.status import Phase, Status
from headway.holds import table
from headway.report.accounts import Accounts
from headway.report.arrays import Attempts, Holds, Jobs, Pieces
from headway.report.cause import CUT, TELLING, End, cause_of
from headway.report.codes import CAUSE, OUTCOME, PHASE, STATUS, Flags
from headway.report.evidence import distinct
from headway.report.frames import Frames
from headway.report.reasons import with_cause
from headway.report.strand import Strands, strands
from headway.report.walk import Walk, last_events
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

    Jobs that go on are accounted up to `until`; unless told, up to the last event of their own log:
    nobody knows what came after it. Jobs whose last event is before `since` are left out. `outputs`
    says of jobs whether their declared outputs are there; one that is not makes a failed job of one
    that ended with 0.
    """
    ends = last_events(columns)
    return account_parts([columns], ends, until=until, since=since, outputs=outputs)


def account_parts(
    parts: Iterable[Columns],
    ends: Longs,
    *,
    until: float | None = None,
    since: float | None = None,
    outputs: Mapping[tuple[int, int], bool] | None = None,
    events: int | None = None,
) -> Accounts:
    """The accounts of logs whose jobs come some after the other, each of them as a whole.

    Args:
        parts: The columns of some jobs each; at least one.
        ends: The time of the last event of each log.
        until: As for `account`.
        since: As for `account`.
        outputs: As for `account`.
        events: How many events there are, where the columns do not have all of them.

    Returns:
        The accounts of all jobs.
    """
    frames, left_out = Frames(), 0
    waiting = iter(parts)

    def next_part() -> _Part | None:
        columns = next(waiting, None)
        if columns is None:
            return None
        found = every = strands(columns)
        if since is not None:
            found = _recent(columns, every, int(since * 1e6))
        left = len(every.first) - len(found.first)
        walk = Walk(columns, found, outputs or {}, until, ends)
        attempts = _attempts(columns, walk)
        jobs = _jobs(walk, attempts)
        pieces = pieces_of(walk, attempts, jobs)
        return _Part(columns, walk, jobs, attempts, pieces, _holds(walk), left)

    # The next jobs are accounted while the tables of these are made, if there is room for both.
    room = events is None or events <= MANY
    with ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(next_part)
        while (part := coming.result()) is not None:
            if room:
                coming = ahead.submit(next_part)
            left_out += part.left_out
            frames.add(*part[:-1])
            del part  # before the next ones are made
            if not room:
                coming = ahead.submit(next_part)
    return frames.accounts(events, left_out)


class _Part(NamedTuple):
    """The accounts of some jobs as arrays, and how many jobs were left out."""

    columns: Columns
    walk: Walk
    jobs: Jobs
    attempts: Attempts
    pieces: Pieces
    holds: Holds
    left_out: int


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
    """One entry an attempt."""
    opened = np.flatnonzero(walk.effect & Effect.OPENED)
    closed = np.flatnonzero(walk.effect & Effect.CLOSED)
    job = walk.job[opened]
    # An attempt ends with the first end at or after its begin, unless another begins before.
    limit = np.append(opened[1:], len(walk.rows))
    limit = np.minimum(limit, walk.last[job] + 1)
    close = np.append(closed, len(walk.rows))[np.searchsorted(closed, opened)]
    ended = close < limit
    overtaken = ~ended & (np.append(job[1:] == job[:-1], False))
    over = ended | overtaken
    end = np.where(ended, close, limit)
    teller = np.full(len(job), -1, np.int64)
    teller[ended] = _tellers(walk, close[ended])
    executed = _any_between(walk.executed, opened, end)
    executed |= ended & np.isin(walk.kind[teller], _BY_THEMSELVES)  # the log lost their 001
    agent = _any_between(np.isin(walk.kind, _AGENT_KINDS), opened, end)
    success = ended & np.isin(walk.kind[teller], _SUCCESSES)
    cause = np.zeros(len(job), np.uint8)
    cause[overtaken] = CAUSE[Cause.UNKNOWN]
    lost = np.flatnonzero(ended & ~success)
    said = _says(columns, walk, teller[lost])
    cause[lost] = _causes(columns, walk, teller[lost], executed[lost], agent[lost], said)
    entry, template = (np.full(len(job), -1, np.int64) for _ in range(2))
    entry[lost], template[lost] = said.entry, said.template
    saved = walk.attempt[(walk.effect & Effect.SAVED) > 0]
    return Attempts(
        job=job,
        begin_us=walk.time[opened],
        end_us=np.where(over, np.append(walk.time, 0)[end], walk.until[job]),
        open=~over,
        executed=executed,
        teller=teller,
        success=success,
        cause=cause,
        evicted=(teller == close) & np.isin(walk.kind[teller], _LOSSES),
        checkpoints=np.bincount(saved, minlength=len(job)),
        entry=entry,
        template=template,
        templates=said.templates,
    )


_LOSSES = (Kind.EVICTED, Kind.TRANSFER_FAILED, Kind.SHADOW_EXCEPTION, Kind.RECONNECT_FAILED)
_SUCCESSES = (Kind.SUCCEEDED, Kind.SKIPPED)
_BY_THEMSELVES = (Kind.SUCCEEDED, Kind.FAILED, Kind.REQUEUED)
_AGENT_KINDS = [int(kind) for kind in AGENT_KINDS]


def _tellers(walk: Walk, close: Longs) -> Longs:
    """The events that say why attempts ended: a 012 or 009 explains the 004 just before it."""
    explains = np.flatnonzero(np.isin(walk.kind, (Kind.HELD, Kind.REMOVED)))
    opened = np.flatnonzero(walk.effect & Effect.OPENED)
    never = len(walk.rows)
    better = np.append(explains, never)[np.searchsorted(explains, close, side="right")]
    begins = np.append(opened, never)[np.searchsorted(opened, close, side="right")]
    found = np.isin(walk.kind[close], _LOSSES)
    found &= (better < begins) & (better <= walk.last[walk.job[close]])
    found &= np.append(walk.time, 0)[better] - walk.time[close] <= _SAME_CAUSE
    return np.where(found, better, close)


def _any_between(flags: Flags, begin: Longs, end: Longs) -> Flags:
    """Whether a flag is set at any place from begin up to, not including, end."""
    total = np.append(0, np.cumsum(flags))
    return np.asarray(total[np.maximum(end, begin)] > total[begin])


def _causes(
    columns: Columns, walk: Walk, teller: Longs, executed: Flags, agent: Flags, said: _Said
) -> NDArray[np.uint8]:
    """The causes of these ends, which come in few kinds: each kind is judged once."""
    rows, kind = walk.rows[teller], walk.kind[teller]
    code, subcode, value = (each[rows] for each in (columns.code, columns.subcode, columns.value))
    ends: list[NDArray[Any]] = [kind, code, subcode, value, executed, agent, said.cut, said.entry]
    key, room = np.zeros(len(teller), np.int64), 1
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
    kinds = [part[first].tolist() for part in ends[:-1]]
    names = [*(each.id for each in table()), ""]
    kinds.append([names[place] for place in said.entry[first].tolist()])
    causes = [CAUSE[cause_of(End(*kind))] for kind in zip(*kinds, strict=True)]
    return np.array(causes, np.uint8)[which]


class _Said(NamedTuple):
    """What the reasons of ends say."""

    cut: Flags  # that a transfer was cut off
    entry: Longs  # of the table of holds, -1 for none
    template: Longs  # place in `templates`, -1 for none
    templates: list[str]


def _says(columns: Columns, walk: Walk, teller: Longs) -> _Said:
    rows, kind = walk.rows[teller], walk.kind[teller]
    cut = np.zeros(len(kind), bool)
    entry, template = (np.full(len(kind), -1, np.int64) for _ in range(2))
    at = np.flatnonzero(np.isin(kind, TELLING))
    if not len(at):
        return _Said(cut, entry, template, [])
    rows = rows[at]
    used, place = distinct(columns.text[rows])
    words = [columns.strings[each] if each >= 0 else "" for each in used.tolist()]
    reasons = pl.Series("reason", words, dtype=pl.String)
    cut[at] = reasons.str.contains(CUT).to_numpy()[place]
    frame = pl.DataFrame(
        {"code": columns.code[rows], "subcode": columns.subcode[rows], "place": place}
    )
    kinds = frame.unique(maintain_order=True)
    asked = kinds.select(pl.col("code", "subcode").replace(NONE, None)).with_columns(
        reasons.gather(kinds.get_column("place"))
    )
    found = with_cause(asked)
    entries = {each.id: number for number, each in enumerate(table())}
    templates = found.get_column("template").unique(maintain_order=True).to_list()
    numbers = {text: number for number, text in enumerate(templates)}
    kinds = kinds.with_columns(
        entry=found.get_column("cause").replace_strict(entries, return_dtype=pl.Int64),
        template=found.get_column("template").replace_strict(numbers, return_dtype=pl.Int64),
    )
    joined = frame.join(kinds, on=frame.columns, how="left", maintain_order="left")
    entry[at] = joined.get_column("entry").to_numpy()
    template[at] = joined.get_column("template").to_numpy()
    return _Said(cut, entry, template, templates)


def _jobs(walk: Walk, attempts: Attempts) -> Jobs:
    count = len(walk.first)
    status = walk.status[walk.last] if count else np.zeros(0, np.uint8)
    outcome = np.full(count, OUTCOME[Outcome.UNFINISHED], np.uint8)
    outcome[status == STATUS[Status.HELD]] = OUTCOME[Outcome.HELD]
    outcome[status == STATUS[Status.REMOVED]] = OUTCOME[Outcome.REMOVED]
    outcome[status == STATUS[Status.COMPLETED]] = OUTCOME[Outcome.FAILED]
    over = walk.ended >= 0
    good = np.flatnonzero(over)
    good = good[np.isin(walk.kind[walk.ended[good]], _SUCCESSES)]
    outcome[good] = OUTCOME[Outcome.SUCCESS]
    return Jobs(
        outcome=outcome,
        begin_us=walk.time[walk.first],
        end_us=np.where(over, np.append(walk.time, 0)[walk.ended], walk.until),
        submitted=walk.first_of(walk.kind == Kind.SUBMITTED),
        held=walk.last_of(walk.kind == Kind.HELD),
        ended=walk.ended,
        holds=np.bincount(walk.job[walk.kind == Kind.HELD], minlength=count),
        requeues=np.bincount(walk.job[walk.kind == Kind.REQUEUED], minlength=count),
        checkpoints=np.bincount(attempts.job, attempts.checkpoints, minlength=count).astype(
            np.int64
        ),
    )


def _holds(walk: Walk) -> Holds:
    """Each 012, and the event that ended that hold: another 012 holds the job anew."""
    held = np.flatnonzero(walk.kind == Kind.HELD)
    ends = np.flatnonzero((walk.phase != PHASE[Phase.HELD]) | (walk.kind == Kind.HELD))
    end = np.append(ends, len(walk.rows))[np.searchsorted(ends, held, side="right")]
    return Holds(held, np.where(end > walk.last[walk.job[held]], -1, end))
