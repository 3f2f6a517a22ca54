"""Frames: the arrays of the accounting as the tables of the accounts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl

from headway.events.columnar.columns import NONE, Columns, Floats, Ints, Longs
from headway.events.forms.files import NO_LOGS
from headway.events.kind import Kind
from headway.events.status import Phase
from headway.holds import table
from headway.report.accounts import ATTEMPTS, ENDS, HOLDS, JOBS, PIECES, Accounts, Schema
from headway.report.arrays import Attempts, Holds, Jobs, Pieces
from headway.report.codes import CAUSE, PHASE, VERDICT, Codes, Flags
from headway.report.evidence import About, Places, Texts
from headway.report.idle import IdleAttempts, cpu_time
from headway.report.walk import Walk
from headway.report.words import EVICTIONS, SLOT_PHASES, Cause, Outcome, Verdict

Frame = dict[str, Any]

_SECOND = 1e6


class Frames:
    """The tables of the accounts, made from the arrays of some jobs after the other."""

    def __init__(self) -> None:
        self._jobs: list[pl.DataFrame] = []
        self._attempts: list[pl.DataFrame] = []
        self._pieces: list[pl.DataFrame] = []
        self._holds: list[pl.DataFrame] = []
        self._ends: list[pl.DataFrame] = []
        self._places = Places()
        self._idle = IdleAttempts()
        self._last: list[Ints] = []  # attempt of each job, -1 for none
        self._count = Counts(0, 0)
        self._events = 0
        self._begin, self._until = 2**62, 0
        self._read: dict[str, Any] = {}

    def add(
        self,
        columns: Columns,
        walk: Walk,
        jobs: Jobs,
        attempts: Attempts,
        pieces: Pieces,
        holds: Holds,
    ) -> None:
        """Take these jobs in."""
        before, texts, about = self._count, Texts(columns), About(columns, walk)
        about.cpu_s = cpu_time(pieces, about.cpu_s, about.cpus)
        self._idle.add(columns, walk, attempts, pieces, about.cpu_s)
        self._places.add(texts, about)
        last = np.full(len(jobs.outcome), -1, np.int32)
        last[attempts.job] = np.arange(len(attempts.job))
        attempt_frame = _attempt_frame(columns, walk, attempts, pieces, about, texts, before)
        job_frame = _job_frame(
            columns, walk, jobs, attempts, pieces, about, texts, attempt_frame, last, before
        )
        hold_frame = _hold_frame(columns, walk, attempts, holds, texts, before)
        self._jobs.append(pl.DataFrame(job_frame, schema=_without(JOBS, "site")))
        self._attempts.append(
            pl.DataFrame(attempt_frame, schema=_without(ATTEMPTS, "site", "machine"))
        )
        self._pieces.append(pl.DataFrame(_piece_frame(pieces, before), schema=PIECES))
        self._holds.append(pl.DataFrame(hold_frame, schema=HOLDS))
        self._ends.append(_end_frame(attempts))
        self._last.append(np.where(last < 0, -1, last + before.attempts).astype(np.int32))
        self._count = Counts(before.jobs + len(last), before.attempts + len(attempts.job))
        self._events += len(columns)
        self._until = max(self._until, int(walk.until.max(initial=0)))
        self._begin = min(self._begin, int(jobs.begin_us.min(initial=2**62)))
        self._read = {  # the same for all jobs
            "files": list(columns.files),
            "skipped": list(columns.skipped),
            "unfinished": list(columns.unfinished),
            "unread": [(file, why) for file, why in columns.unread if why not in NO_LOGS],
            "others": sum(why in NO_LOGS for _, why in columns.unread),
        }

    def accounts(self, events: int | None, left_out: int) -> Accounts:
        """The accounts of all jobs.

        Args:
            events: How many events there are, where the columns did not have all of them.
            left_out: Jobs that the columns had and that were not taken in.

        Returns:
            The accounts; there is nothing left here.
        """
        site, machine = self._places.columns()
        sites = pl.concat([site, pl.Series([None], dtype=pl.Categorical)])
        last = np.concatenate([np.empty(0, np.int32), *self._last])
        of_last = pl.Series(np.where(last < 0, len(site), last).astype(np.uint32))
        jobs = _joined(self._jobs).with_columns(site=sites.gather(of_last))
        idle = pl.Series(self._idle.flags())
        attempts = _joined(self._attempts).with_columns(
            site=site, machine=machine, cause=_idle_if(idle)
        )
        return Accounts(
            jobs=jobs.select(list(JOBS)),
            attempts=attempts.select(list(ATTEMPTS)),
            pieces=_with_idle(_joined(self._pieces), idle),
            holds=_joined(self._holds),
            ends=_joined(self._ends),
            begin=min(self._begin, self._until) / _SECOND,
            end=self._until / _SECOND,
            events=self._events if events is None else events,
            left_out=left_out,
            **self._read,
        )


class Counts(NamedTuple):
    """How many jobs and attempts come before."""

    jobs: int
    attempts: int


def _idle_if(flag: pl.Series) -> pl.Expr:
    return pl.when(flag).then(pl.lit(Cause.IDLE.value, PIECES["cause"])).otherwise("cause")


def _with_idle(pieces: pl.DataFrame, idle: pl.Series) -> pl.DataFrame:
    """The pieces, with what idle attempts lost put down to that."""
    if not idle.any():
        return pieces
    owner = pieces.get_column("attempt").fill_null(len(idle)).cast(pl.UInt32)
    mine = idle.append(pl.Series([False])).gather(owner)
    lost = pieces.get_column("verdict") == Verdict.BAD.value
    lost &= pieces.get_column("cause") != Cause.SUSPENDED.value
    return pieces.with_columns(cause=_idle_if(mine & lost))


def _without(schema: Schema, *names: str) -> Schema:
    return {name: kind for name, kind in schema.items() if name not in names}


def _joined(tables: list[pl.DataFrame]) -> pl.DataFrame:
    """The tables as one, in whose favour they are given up."""
    found = pl.concat(tables) if len(tables) > 1 else tables[0]
    tables.clear()
    return found


def _seconds(values: Longs | Floats) -> Floats:
    return np.asarray(values / _SECOND, np.float64)


def _sums(where: Longs, kind: Codes, lengths: Longs, count: int, kinds: int) -> Longs:
    """Microseconds by kind and place."""
    # Added up as floats, which hold whole microseconds exactly up to 285 years.
    found = np.bincount(kind * np.int64(count) + where, lengths, count * kinds)
    return found.astype(np.int64).reshape(kinds, count)


def _optional(values: Ints | Longs, missing: int = NONE) -> pl.Series:
    series = pl.Series(values)
    return series.set(pl.Series(values == missing), None)


def _at(values: Longs | Ints | Codes, places: Longs, missing: int) -> Longs:
    """The values at the places; `missing` where a place is -1."""
    if not len(values):
        return np.full(len(places), missing, np.int64)
    return np.where(places < 0, missing, values[np.maximum(places, 0)])


def _moments(times: Longs) -> pl.Series:
    return pl.Series(_seconds(times)).set(pl.Series(times < 0), None)


def _attempt_frame(
    columns: Columns,
    walk: Walk,
    attempts: Attempts,
    pieces: Pieces,
    about: About,
    texts: Texts,
    before: Counts,
) -> Frame:
    count = len(attempts.job)
    mine = np.flatnonzero(pieces.attempt >= 0)
    owner, length = pieces.attempt[mine], pieces.length_us[mine]
    phase, verdict = pieces.phase[mine], pieces.verdict[mine]
    in_phase = _sums(owner, phase, length, count, len(Phase))
    result = (verdict == VERDICT[Verdict.GOOD]) & (phase == PHASE[Phase.COMPUTE])
    worth = _sums(owner, np.where(result, len(Verdict), verdict), length, count, len(Verdict) + 1)
    good = worth[VERDICT[Verdict.GOOD]] + worth[len(Verdict)]
    teller = _at(walk.rows, attempts.teller, -1)
    ending = attempts.cause.astype(np.uint32)
    ending[attempts.success], ending[attempts.open] = len(Cause), len(Cause) + 1
    endings = pl.Series([*(cause.value for cause in Cause), "success", "open"])
    first = np.searchsorted(attempts.job, attempts.job)
    staging, ran = np.zeros(count, bool), np.zeros(count, bool)
    staging[walk.attempt[walk.kind == Kind.STAGE_IN]] = True
    ran[walk.attempt[walk.kind == Kind.RUN]] = True
    return {
        "attempt": np.arange(before.attempts, before.attempts + count),
        "job": attempts.job + before.jobs,
        "number": np.arange(count) - first + 1,
        "begin": _seconds(attempts.begin_us),
        "end": _seconds(attempts.end_us),
        "executed": attempts.executed,
        "arrived": attempts.executed & (ran | ~staging),
        "ending": endings.gather(pl.Series(ending)),
        "cause": _enum(attempts.cause, Cause),
        "code": _optional(_at(columns.code, teller, NONE)),
        "subcode": _optional(_at(columns.subcode, teller, NONE)),
        "reason": texts.of(_at(columns.text, teller, -1)),
        "return_value": _optional(_at(columns.value, teller, NONE)),
        "checkpoints": attempts.checkpoints,
        **{f"{p.value.replace('-', '_')}_s": _seconds(in_phase[PHASE[p]]) for p in SLOT_PHASES},
        "slot_s": _seconds(in_phase.sum(axis=0)),
        "good_compute_s": _seconds(worth[len(Verdict)]),
        "good_s": _seconds(good),
        "bad_s": _seconds(worth[VERDICT[Verdict.BAD]]),
        "open_s": _seconds(worth[VERDICT[Verdict.OPEN]]),
        "received": pl.Series(about.received).fill_nan(None),
        "sent": pl.Series(about.sent).fill_nan(None),
        "agent_transfer": staging,
        "memory_used": pl.Series(about.memory_used).fill_nan(None),
        "memory_asked": pl.Series(about.memory_asked).fill_nan(None),
        "disk_used": pl.Series(about.disk_used).fill_nan(None),
        "disk_asked": pl.Series(about.disk_asked).fill_nan(None),
        "cpu_s": pl.Series(about.cpu_s).fill_nan(None),
        "evicted": attempts.evicted & np.isin(attempts.cause, _EVICTIONS),
        "file": pl.Series([*columns.files, None], dtype=pl.Categorical).gather(
            pl.Series(_at(columns.file, teller, len(columns.files)).astype(np.uint32))
        ),
        "offset": _optional(_at(columns.offset, teller, -1), -1),
    }


def _end_frame(attempts: Attempts) -> pl.DataFrame:
    """What the reasons of ends mean."""

    def named(names: list[str], places: Longs) -> pl.Series:
        found = np.where(places < 0, len(names), places).astype(np.uint32)
        return pl.Series([*names, None], dtype=pl.String).gather(pl.Series(found))

    entries = [entry.id for entry in table()]
    return pl.DataFrame(
        {
            "template": named(attempts.templates, attempts.template),
            "entry": named(entries, attempts.entry),
        },
        schema=ENDS,
    )


def _enum(
    codes: Codes, words: type[Cause] | type[Phase] | type[Verdict] | type[Outcome]
) -> pl.Series:
    names = [word.value for word in words]
    return pl.Series(names, dtype=pl.Enum(names)).gather(pl.Series(codes, dtype=pl.UInt32))


def _job_frame(
    columns: Columns,
    walk: Walk,
    jobs: Jobs,
    attempts: Attempts,
    pieces: Pieces,
    about: About,
    texts: Texts,
    attempt_frame: Frame,
    last: Ints,
    before: Counts,
) -> Frame:
    count = len(jobs.outcome)
    row = walk.rows[walk.first]
    ended = _at(walk.rows, jobs.ended, -1)
    held = _at(walk.rows, jobs.held, -1)
    matched = np.full(count, -1, np.int64)
    matched[attempts.job[::-1]] = attempts.begin_us[::-1]
    of_last = pl.Series(np.where(last < 0, len(attempts.job), last).astype(np.uint32))

    def total(name: str) -> Floats:
        microseconds = np.rint(np.asarray(attempt_frame[name]) * _SECOND)
        return _seconds(np.bincount(attempts.job, microseconds, count))

    def largest(values: Floats) -> pl.Series:
        found = np.full(count, np.nan)
        np.fmax.at(found, attempts.job, values)
        return pl.Series(found).fill_nan(None)

    def newest(values: Floats) -> pl.Series:
        found = np.full(count, np.nan)
        said = np.flatnonzero(~np.isnan(values))  # in the order of attempts: the last one stays
        found[attempts.job[said]] = values[said]
        return pl.Series(found).fill_nan(None)

    def per_job(flags: Flags) -> Longs:
        return np.bincount(attempts.job[flags], minlength=count)

    def spent(phase: Phase) -> Floats:
        chosen = pieces.phase == PHASE[phase]
        return _seconds(np.bincount(pieces.job[chosen], pieces.length_us[chosen], count))

    cluster, proc = columns.cluster[row], columns.proc[row]
    log = columns.log[row]
    owner = pl.Series([*(name or None for name in columns.owners), None], dtype=pl.String)
    user = texts.of(about.user)
    owners = owner.gather(pl.Series(np.where(log < len(columns.owners), log, len(owner) - 1)))
    in_transfer = pl.Series(attempt_frame["transfer_in_s"], dtype=pl.Float64)
    return {
        "job": np.arange(before.jobs, before.jobs + count),
        "id": pl.select(pl.format("{}.{}", pl.Series(cluster), pl.Series(proc))).to_series(),
        "cluster": cluster,
        "proc": proc,
        "log": pl.Series(columns.logs or [""], dtype=pl.Categorical).gather(
            pl.Series(log.astype(np.uint32))
        ),
        "user": user.zip_with(user.is_not_null(), owners).cast(pl.Categorical),
        "outcome": _enum(jobs.outcome, Outcome),
        "begin": _seconds(jobs.begin_us),
        "submitted": _moments(_at(walk.time, jobs.submitted, -1)),
        "matched": _moments(matched),
        "end": _seconds(jobs.end_us),
        "return_value": _optional(_at(columns.value, ended, NONE)),
        "signal": _optional(_at(columns.signal, ended, NONE)),
        "hold_code": _optional(_at(columns.code, held, NONE)),
        "hold_subcode": _optional(_at(columns.subcode, held, NONE)),
        "hold_reason": texts.of(_at(columns.text, held, -1)),
        "attempts": per_job(np.ones(len(attempts.job), bool)),
        "stalls": per_job(attempts.cause == CAUSE[Cause.TRANSFER_CUT]),
        "evictions": per_job(attempts.evicted & np.isin(attempts.cause, _EVICTIONS)),
        "holds": jobs.holds,
        "requeues": jobs.requeues,
        "checkpoints": jobs.checkpoints,
        "memory_used": largest(about.memory_used),
        "memory_asked": newest(about.memory_asked),
        "disk_used": largest(about.disk_used),
        "disk_asked": newest(about.disk_asked),
        "gpus": largest(about.gpus),
        "cpu_s": pl.Series(np.bincount(attempts.job, np.nan_to_num(about.cpu_s), count)).set(
            pl.Series(per_job(~np.isnan(about.cpu_s)) == 0), None
        ),
        "total_s": _seconds(jobs.end_us - jobs.begin_us),
        "queued_s": spent(Phase.QUEUED),
        "held_s": spent(Phase.HELD),
        "slot_s": total("slot_s"),
        "compute_s": total("compute_s"),
        "good_compute_s": total("good_compute_s"),
        "good_s": total("good_s"),
        "bad_s": total("bad_s"),
        "open_s": total("open_s"),
        "transfer_s": total("transfer_in_s"),
        "last_transfer_s": in_transfer.append(pl.Series([0.0])).gather(of_last),
    }


_EVICTIONS = [CAUSE[cause] for cause in EVICTIONS]


def _piece_frame(pieces: Pieces, before: Counts) -> Frame:
    """Without the empty ones, and with neighbours of the same kind as one."""
    at = np.flatnonzero(pieces.length_us > 0)
    job, attempt = pieces.job[at], pieces.attempt[at]
    phase, verdict, cause = pieces.phase[at], pieces.verdict[at], pieces.cause[at]
    length = pieces.length_us[at]
    if len(at):
        new = np.ones(len(at), bool)
        same = job[1:] == job[:-1]
        for values in (attempt, phase, verdict, cause):
            same &= values[1:] == values[:-1]
        new[1:] = ~same
        first = np.flatnonzero(new)
        length = np.add.reduceat(length, first)
        at = at[first]
        job, attempt = job[first], attempt[first]
        phase, verdict, cause = phase[first], verdict[first], cause[first]
    return {
        "job": job + before.jobs,
        "attempt": _optional(np.where(attempt < 0, -1, attempt + before.attempts), -1),
        "phase": _enum(phase, Phase),
        "verdict": _enum(verdict, Verdict),
        "cause": _enum(cause, Cause),
        "begin": _seconds(pieces.begin_us[at]),
        "seconds": _seconds(length),
    }


def _hold_frame(
    columns: Columns, walk: Walk, attempts: Attempts, holds: Holds, texts: Texts, before: Counts
) -> Frame:
    row = walk.rows[holds.held]
    begin = walk.time[holds.held]
    end = _at(walk.time, holds.ended, -1)
    released = ~np.isin(_at(walk.kind, holds.ended, Kind.HELD), (Kind.HELD, Kind.REMOVED))
    told = np.flatnonzero(attempts.teller >= 0)
    attempt = np.full(len(walk.rows), -1, np.int64)
    attempt[attempts.teller[told]] = told + before.attempts
    return {
        "job": walk.job[holds.held] + before.jobs,
        "attempt": _optional(attempt[holds.held], -1),
        "time": _seconds(begin),
        "code": _optional(columns.code[row]),
        "subcode": _optional(columns.subcode[row]),
        "reason": texts.of(columns.text[row]),
        "released": _moments(np.where(released, end, -1)),
        "held_s": _seconds(np.where(end < 0, walk.until[walk.job[holds.held]], end) - begin),
    }
