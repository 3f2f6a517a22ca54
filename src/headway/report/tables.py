"""The tables of the accounts: made from the arrays of the accounting, some jobs at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headway.events.columnar.columns import NONE, Columns, Floats, Ints, Longs
from headway.events.event import Kind, Phase
from headway.events.files import NO_LOGS
from headway.events.format import EventType
from headway.holds import table
from headway.report.accounts import ATTEMPTS, ENDS, HOLDS, JOBS, PIECES, Accounts, Schema
from headway.report.common import common_transfers, jobs_with_common_files, joined_transfers
from headway.report.deliveries import delivery_frame
from headway.report.enums import EVICTIONS, SLOT_PHASES, Cause, JobOutcome, Worth, column_of
from headway.report.timeline import CAUSE, PHASE, VERDICT, Codes, Flags, Timeline

Frame = dict[str, Any]

_SECOND = 1e6  # in the unit of arrays, microseconds


@dataclass
class JobArrays:
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
class AttemptArrays:
    """One entry an attempt; `end_event` is the event that says why it ended, -1 for none."""

    job: Longs
    begin_us: Longs
    end_us: Longs
    open: Flags
    executed: Flags
    end_event: Longs
    success: Flags
    cause: Codes
    evicted: Flags
    checkpoints: Longs
    entry: Longs  # of the table of holds that their reason belongs to, -1 for none
    template: Longs  # place in `templates`, -1 for none
    templates: list[str]  # of reasons
    handed: Flags  # its outputs stayed in a node's store


@dataclass
class PieceArrays:
    """One entry an event: what the time after it was spent with, and worth."""

    job: Longs
    attempt: Longs
    phase: Codes
    verdict: Codes
    cause: Codes
    begin_us: Longs
    length_us: Longs


class AccountedJobs(NamedTuple):
    """The accounts of some jobs as arrays, and the events that they were made from."""

    columns: Columns
    timeline: Timeline
    jobs: JobArrays
    attempts: AttemptArrays
    pieces: PieceArrays


class Texts:
    """The strings of the columns that tables use: each is in memory once, and no others are."""

    def __init__(self, columns: Columns, *used: Ints | Longs) -> None:
        """Take the strings at these places; -1 is none."""
        self.strings = columns.strings
        wanted = np.zeros(len(self.strings) + 1, bool)
        for places in used:
            wanted[places] = True
        wanted[-1] = True  # for none
        chosen = np.flatnonzero(wanted[:-1]).tolist()
        place = np.where(wanted, np.cumsum(wanted) - 1, len(chosen))
        self._place = place.astype(np.uint32)
        self._column = pl.Series([*(self.strings[at] for at in chosen), None], dtype=pl.String)

    def of(self, places: Ints | Longs) -> pl.Series:
        """The texts at these places; -1, or one that was not taken, is null."""
        return taken(self._column, self._place[places])


class AttemptFacts:
    """What events say about their attempt: where it was, and what it used."""

    def __init__(self, columns: Columns, timeline: Timeline) -> None:
        rows, count = timeline.rows, int(timeline.attempt.max(initial=-1)) + 1
        self._attempt = timeline.attempt
        self.site = self._last(columns.site[rows], count)
        self.slot = self._last(columns.slot[rows], count)
        self.host = self._last(columns.host[rows], count)
        self.user = np.full(len(timeline.first), -1, np.int64)
        user = columns.user[rows]
        named = np.flatnonzero(user >= 0)
        self.user[timeline.job[named]] = user[named]
        self._usage(columns, timeline, count)

    def _last(self, values: Ints, count: int) -> Longs:
        found = np.full(count, -1, np.int64)
        said = np.flatnonzero(values >= 0)
        said = said[self._attempt[said] >= 0]
        found[self._attempt[said]] = values[said]
        return found

    def _usage(self, columns: Columns, timeline: Timeline, count: int) -> None:
        attempt = np.full(len(columns), -1, np.int64)
        attempt[timeline.rows] = timeline.attempt
        # The bytes of a line that is not the agent's own count for nothing.
        others = timeline.rows[timeline.kind == Kind.OTHER]
        attempt[others[columns.number[others] == EventType.GENERIC]] = -1
        owner = attempt[columns.usage.row]
        mine = owner >= 0
        self._of, usage = owner[mine], columns.usage

        again = np.bincount(self._of, minlength=count) > 1
        repeats = again[self._of]

        def largest(values: Floats) -> Floats:
            found = np.full(count, np.nan)
            found[self._of] = values[mine]
            # Slow, so only where an attempt has been measured more than once.
            np.fmax.at(found, self._of[repeats], values[mine][repeats])
            return found

        self.memory_used = largest(usage.memory_used)
        self.memory_asked = largest(usage.memory_asked)
        self.disk_used, self.disk_asked = largest(usage.disk_used), largest(usage.disk_asked)
        self.gpus = largest(usage.gpus_asked)
        self.cpu_s, self.cpus = largest(usage.cpu_seconds), largest(usage.cpus_used)
        self.sent = largest(usage.sent)
        staged = largest(usage.staged)
        self.staged = ~np.isnan(staged)
        self.received = np.fmax(largest(usage.received), 0) + np.where(self.staged, staged, 0)
        self.received[np.isnan(largest(usage.received)) & ~self.staged] = np.nan


#: What the 001 of a parallel universe job says, which is on several machines.
_SEVERAL = "MPI_job"


class SiteNames:
    """The sites and machines of attempts, of some after the other.

    The machine is what stands behind the last @ of its slot, or its host. Where no event names the
    site, it is the only one that the machine is ever at, or the machine itself.
    """

    def __init__(self) -> None:
        self._machines: defaultdict[str | None, int] = defaultdict()
        self._sites: defaultdict[str, int] = defaultdict()
        for names in (self._machines, self._sites):
            names.default_factory = names.__len__
        self._machine: list[Ints] = []
        self._site: list[Ints] = []

    def add(self, texts: Texts, about: AttemptFacts) -> None:
        """Note where these attempts were."""
        used, place = distinct(np.where(about.slot >= 0, about.slot, about.host))
        slots = [texts.strings[at] if at >= 0 else _SEVERAL for at in used.tolist()]
        names = [None if slot == _SEVERAL else slot.rpartition("@")[2] for slot in slots]
        self._machine.append(np.array([self._machines[name] for name in names], np.int32)[place])
        used, place = distinct(about.site)
        sites = [self._sites[texts.strings[at]] if at >= 0 else -1 for at in used.tolist()]
        self._site.append(np.array(sites, np.int32)[place])

    def columns(self) -> tuple[pl.Series, pl.Series]:
        """Site and machine of each attempt that was noted."""
        machine = np.concatenate([np.empty(0, np.int32), *self._machine])
        site = np.concatenate([np.empty(0, np.int32), *self._site])
        known = site >= 0
        only = np.full(len(self._machines), -1, np.int32)
        only[machine[known]] = site[known]
        moves = known & (only[machine] != site)
        only[machine[moves]] = -1
        if None in self._machines:
            only[self._machines[None]] = -1
        # A machine without a site is its own: it stands behind the sites.
        names = [*self._sites, *self._machines]
        own = machine + len(self._sites)
        found = np.where(known, site, only[machine])
        found = np.where(found < 0, own, found)
        return _named(names, found).cast(pl.Categorical), _named(names, own)


def _named(names: Sequence[str | None], places: Longs | Ints) -> pl.Series:
    return taken(pl.Series(names, dtype=pl.String), places)


def taken(values: pl.Series, places: NDArray[np.integer[Any]]) -> pl.Series:
    """The values at these places; `gather` would make a query of it, which takes longer."""
    return values[pl.Series(places.astype(np.uint32, copy=False))]


def distinct(places: Ints | Longs) -> tuple[Longs, Longs]:
    """The places that occur, -1 among them, and for each which of these it is."""
    # As np.unique says, but without sorting: places are small numbers.
    occurs = np.zeros(int(places.max(initial=-1)) + 2, bool)
    occurs[places + 1] = True
    return np.flatnonzero(occurs) - 1, np.cumsum(occurs)[places + 1] - 1


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


def cpu_time(pieces: PieceArrays, cpu_s: Floats, cpus: Floats) -> Floats:
    """The CPU time of each attempt, in seconds.

    Args:
        pieces: What became of each piece of time.
        cpu_s: The seconds that its events say; NaN where none does.
        cpus: How many cores it used on average, by the table of resources; NaN likewise.

    Returns:
        The larger of the two figures, for one may be missing or 0; NaN where there is none.
    """
    return np.asarray(np.fmax(cpu_s, cpus * _computing(pieces, len(cpu_s))))


def _computing(pieces: PieceArrays, count: int) -> Floats:
    mine = np.flatnonzero((pieces.attempt >= 0) & (pieces.phase == PHASE[Phase.COMPUTE]))
    return np.asarray(np.bincount(pieces.attempt[mine], pieces.length_us[mine], count) / 1e6)


class IdleAttempts:
    """Finds the attempts that held a slot for long and used next to no CPU time.

    A zero is believed only where other attempts of the same log have CPU time: some platforms
    (grid, VM, old containers) write zeros for everything. In a cluster whose own successes use no
    CPU time, its absence is a sign of nothing. So the answer is known when all jobs were seen.
    """

    def __init__(self) -> None:
        self._parts: list[_IdleEvidence] = []

    def add(self, made: AccountedJobs, cpu_s: Floats) -> None:
        """Take the attempts of these jobs in; `cpu_s` is their CPU time, of `cpu_time`."""
        columns, timeline, attempts = made.columns, made.timeline, made.attempts
        compute_s = _computing(made.pieces, len(attempts.job))
        known, used_s = ~np.isnan(cpu_s), np.nan_to_num(cpu_s)
        still = known & (used_s <= START + SHARE * compute_s)
        still &= compute_s >= np.where(np.isin(attempts.cause, _LOST), LONG_IF_LOST, LONG)
        open_ = attempts.open | (attempts.checkpoints > 0)
        first = timeline.rows[timeline.first[attempts.job]]
        self._parts.append(
            _IdleEvidence(
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


class _IdleEvidence(NamedTuple):
    """Of each attempt: its log and cluster, whether it used CPU time, succeeded without, lost."""

    log: Ints
    cluster: Longs
    computed: Flags
    needless: Flags
    idle: Flags


class TableBuilder:
    """The tables of the accounts, made from the arrays of some jobs after the other."""

    def __init__(self) -> None:
        self._parts: defaultdict[str, list[pl.DataFrame]] = defaultdict(list)
        self._sites = SiteNames()
        self._idle = IdleAttempts()
        self._last: list[Ints] = []  # attempt of each job, -1 for none
        self._count = Counts(0, 0)
        self._events = self._common_jobs = 0
        self._begin, self._until = 2**62, 0
        self._read: dict[str, Any] = {}

    def add(self, made: AccountedJobs) -> None:
        """Take these jobs in."""
        columns, timeline, jobs, attempts, pieces = made
        before, about = self._count, AttemptFacts(columns, timeline)
        with_reason = (attempts.end_event[attempts.end_event >= 0], timeline.kind == Kind.HELD)
        reasons = (columns.text[timeline.rows[events]] for events in with_reason)
        texts = Texts(columns, *reasons, about.user)
        about.cpu_s = cpu_time(pieces, about.cpu_s, about.cpus)
        self._idle.add(made, about.cpu_s)
        self._sites.add(texts, about)
        last = np.full(len(jobs.outcome), -1, np.int32)
        last[attempts.job] = np.arange(len(attempts.job))
        attempt_frame = _attempt_frame(made, about, texts, before)
        job_frame = _job_frame(made, about, texts, attempt_frame, last, before)
        for name, frame, schema in (
            ("jobs", job_frame, _without(JOBS, "site")),
            ("attempts", attempt_frame, _without(ATTEMPTS, "site", "machine")),
            ("pieces", _piece_frame(pieces, before), PIECES),
            ("holds", _hold_frame(made, texts, before), HOLDS),
            ("ends", _end_frame(attempts), ENDS),
        ):
            self._parts[name].append(pl.DataFrame(frame, schema=schema))
        self._parts["deliveries"].append(delivery_frame(columns, timeline, jobs.outcome, *before))
        self._parts["common"].append(common_transfers(columns))
        self._common_jobs += jobs_with_common_files(columns, timeline)
        self._last.append(np.where(last < 0, -1, last + before.attempts).astype(np.int32))
        self._count = Counts(before.jobs + len(last), before.attempts + len(attempts.job))
        self._events += len(columns)
        self._until = max(self._until, int(timeline.until.max(initial=0)))
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
            left_out: How many jobs the columns had that were not taken in.

        Returns:
            The accounts; there is nothing left here.
        """
        site, machine = self._sites.columns()
        sites = pl.concat([site, pl.Series([None], dtype=pl.Categorical)])
        last = np.concatenate([np.empty(0, np.int32), *self._last])
        of_last = np.where(last < 0, len(site), last)
        jobs = _joined(self._parts["jobs"]).with_columns(site=taken(sites, of_last))
        idle = pl.Series(self._idle.flags())
        attempts = _joined(self._parts["attempts"]).with_columns(
            site=site, machine=machine, cause=_idle_if(idle)
        )
        return Accounts(
            jobs=jobs.select(list(JOBS)),
            attempts=attempts.select(list(ATTEMPTS)),
            pieces=_with_idle(_joined(self._parts["pieces"]), idle),
            holds=_joined(self._parts["holds"]),
            ends=_joined(self._parts["ends"]),
            deliveries=_joined(self._parts["deliveries"]),
            common=joined_transfers(self._parts["common"], jobs.get_column("cluster")),
            common_jobs=self._common_jobs,
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
    owner = pieces.get_column("attempt").fill_null(len(idle))
    mine = taken(idle.append(pl.Series([False])), owner.to_numpy())
    lost = pieces.get_column("verdict") == Worth.BAD.value
    lost &= pieces.get_column("cause") != Cause.SUSPENDED.value
    return pieces.with_columns(cause=_idle_if(mine & lost))


def _without(schema: Schema, *names: str) -> Schema:
    return {name: kind for name, kind in schema.items() if name not in names}


def _joined(tables: list[pl.DataFrame]) -> pl.DataFrame:
    """The tables as one, in whose favour they are given up, column by column."""
    found = [
        pl.concat([table.drop_in_place(name) for table in tables], rechunk=True)
        for name in tables[0].columns
    ]
    tables.clear()
    return pl.DataFrame(found)


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


def _measured(values: Floats) -> pl.Series:
    """Null where a value is NaN."""
    return pl.Series(values, nan_to_null=True)


def _moments(times: Longs) -> pl.Series:
    return pl.Series(_seconds(times)).set(pl.Series(times < 0), None)


#: What is known of an attempt only where its events measured it.
_MEASURED = (
    *("received", "sent", "cpu_s"),
    *("memory_used", "memory_asked", "disk_used", "disk_asked"),
)


def _attempt_frame(made: AccountedJobs, about: AttemptFacts, texts: Texts, before: Counts) -> Frame:
    columns, timeline, _, attempts, pieces = made
    count = len(attempts.job)
    mine = np.flatnonzero(pieces.attempt >= 0)
    owner, length = pieces.attempt[mine], pieces.length_us[mine]
    phase, verdict = pieces.phase[mine], pieces.verdict[mine]
    in_phase = _sums(owner, phase, length, count, len(Phase))
    result = (verdict == VERDICT[Worth.GOOD]) & (phase == PHASE[Phase.COMPUTE])
    worth = _sums(owner, np.where(result, len(Worth), verdict), length, count, len(Worth) + 1)
    good = worth[VERDICT[Worth.GOOD]] + worth[len(Worth)]
    end_event = _at(timeline.rows, attempts.end_event, -1)
    # How an attempt ended that left its outputs is no reason for what became of them.
    reason = np.where(attempts.handed, -1, end_event)
    ending = attempts.cause.astype(np.uint32)
    ending[attempts.success], ending[attempts.open] = len(Cause), len(Cause) + 1
    endings = pl.Series([*(cause.value for cause in Cause), "success", "open"])
    first = np.searchsorted(attempts.job, attempts.job)

    def says(kind: Kind) -> Flags:
        found = np.zeros(count + 1, bool)  # the last one is for what no attempt says
        found[timeline.attempt[timeline.kind == kind]] = True
        return found[:-1]

    staging, ran = says(Kind.STAGE_IN), says(Kind.RUN)
    return {
        "attempt": np.arange(before.attempts, before.attempts + count),
        "job": attempts.job + before.jobs,
        "number": np.arange(count) - first + 1,
        "begin": _seconds(attempts.begin_us),
        "end": _seconds(attempts.end_us),
        "executed": attempts.executed,
        "arrived": attempts.executed & (ran | ~staging),
        "ending": taken(endings, ending),
        "cause": _enum(attempts.cause, Cause),
        "code": _optional(_at(columns.code, reason, NONE)),
        "subcode": _optional(_at(columns.subcode, reason, NONE)),
        "reason": texts.of(_at(columns.text, reason, -1)),
        "return_value": _optional(_at(columns.value, end_event, NONE)),
        "checkpoints": attempts.checkpoints,
        **{column_of(phase): _seconds(in_phase[PHASE[phase]]) for phase in SLOT_PHASES},
        "slot_s": _seconds(in_phase.sum(axis=0)),
        "good_compute_s": _seconds(worth[len(Worth)]),
        "good_s": _seconds(good),
        "bad_s": _seconds(worth[VERDICT[Worth.BAD]]),
        "open_s": _seconds(worth[VERDICT[Worth.OPEN]]),
        "agent_transfer": staging,
        **{name: _measured(getattr(about, name)) for name in _MEASURED},
        "evicted": attempts.evicted & np.isin(attempts.cause, _EVICTIONS),
        "file": taken(
            pl.Series([*columns.files, None], dtype=pl.Categorical),
            _at(columns.file, end_event, len(columns.files)),
        ),
        "offset": _optional(_at(columns.offset, end_event, -1), -1),
    }


def _end_frame(attempts: AttemptArrays) -> Frame:
    """What the reasons of ends mean."""

    def named(names: list[str], places: Longs) -> pl.Series:
        return _named([*names, None], np.where(places < 0, len(names), places))

    entries = [entry.id for entry in table()]
    return {
        "template": named(attempts.templates, attempts.template),
        "entry": named(entries, attempts.entry),
    }


def _enum(
    codes: Codes, words: type[Cause] | type[Phase] | type[Worth] | type[JobOutcome]
) -> pl.Series:
    names = [word.value for word in words]
    return taken(pl.Series(names, dtype=pl.Enum(names)), codes)


#: Columns of a job that are the sums of its attempts.
_ADDED_UP = ("slot_s", "compute_s", "good_compute_s", "good_s", "bad_s", "open_s")
_EVICTIONS = [CAUSE[cause] for cause in EVICTIONS]


def _job_frame(
    made: AccountedJobs,
    about: AttemptFacts,
    texts: Texts,
    attempt_frame: Frame,
    last: Ints,
    before: Counts,
) -> Frame:
    columns, timeline, jobs, attempts, pieces = made
    count = len(jobs.outcome)
    row = timeline.rows[timeline.first]
    ended = _at(timeline.rows, jobs.ended, -1)
    held = _at(timeline.rows, jobs.held, -1)
    matched = np.full(count, -1, np.int64)
    matched[attempts.job[::-1]] = attempts.begin_us[::-1]
    of_last = np.where(last < 0, len(attempts.job), last)

    def total(name: str) -> Floats:
        microseconds = np.rint(np.asarray(attempt_frame[name]) * _SECOND)
        return _seconds(np.bincount(attempts.job, microseconds, count))

    def largest(values: Floats) -> pl.Series:
        found = np.full(count, np.nan)
        np.fmax.at(found, attempts.job, values)
        return _measured(found)

    def newest(values: Floats) -> pl.Series:
        found = np.full(count, np.nan)
        said = np.flatnonzero(~np.isnan(values))  # in the order of attempts: the last one stays
        found[attempts.job[said]] = values[said]
        return _measured(found)

    def per_job(flags: Flags) -> Longs:
        return np.bincount(attempts.job[flags], minlength=count)

    def spent(phase: Phase) -> Floats:
        chosen = pieces.phase == PHASE[phase]
        return _seconds(np.bincount(pieces.job[chosen], pieces.length_us[chosen], count))

    cluster, proc = columns.cluster[row], columns.proc[row]
    log = columns.log[row]
    owner = pl.Series([*(name or None for name in columns.owners), None], dtype=pl.String)
    user = texts.of(about.user)
    owners = taken(owner, np.where(log < len(columns.owners), log, len(owner) - 1))
    in_transfer = pl.Series(attempt_frame["transfer_in_s"], dtype=pl.Float64)
    return {
        "job": np.arange(before.jobs, before.jobs + count),
        "id": pl.select(pl.format("{}.{}", pl.Series(cluster), pl.Series(proc))).to_series(),
        "cluster": cluster,
        "proc": proc,
        "log": taken(pl.Series(columns.logs or [""], dtype=pl.Categorical), log),
        "user": user.zip_with(user.is_not_null(), owners).cast(pl.Categorical),
        "outcome": _enum(jobs.outcome, JobOutcome),
        "begin": _seconds(jobs.begin_us),
        "submitted": _moments(_at(timeline.time, jobs.submitted, -1)),
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
        "prefetch_s": spent(Phase.PREFETCH),
        "stored_s": spent(Phase.STORED),
        "delivery_s": spent(Phase.DELIVERY),
        **{name: total(name) for name in _ADDED_UP},
        "transfer_s": total("transfer_in_s"),
        "last_transfer_s": taken(in_transfer.append(pl.Series([0.0])), of_last),
    }


def _piece_frame(pieces: PieceArrays, before: Counts) -> Frame:
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
        "verdict": _enum(verdict, Worth),
        "cause": _enum(cause, Cause),
        "begin": _seconds(pieces.begin_us[at]),
        "seconds": _seconds(length),
    }


def _hold_frame(made: AccountedJobs, texts: Texts, before: Counts) -> Frame:
    columns, timeline, attempts = made.columns, made.timeline, made.attempts
    held = np.flatnonzero(timeline.kind == Kind.HELD)
    # What ended each hold: another 012 holds the job anew.
    ends = np.flatnonzero((timeline.phase != PHASE[Phase.HELD]) | (timeline.kind == Kind.HELD))
    ended = np.append(ends, len(timeline.rows))[np.searchsorted(ends, held, side="right")]
    ended = np.where(ended > timeline.last[timeline.job[held]], -1, ended)
    row = timeline.rows[held]
    begin, until = timeline.time[held], timeline.until[timeline.job[held]]
    end = _at(timeline.time, ended, -1)
    released = ~np.isin(_at(timeline.kind, ended, Kind.HELD), (Kind.HELD, Kind.REMOVED))
    explained = np.flatnonzero(attempts.end_event >= 0)
    attempt = np.full(len(timeline.rows), -1, np.int64)
    attempt[attempts.end_event[explained]] = explained + before.attempts
    return {
        "job": timeline.job[held] + before.jobs,
        "attempt": _optional(attempt[held], -1),
        "time": _seconds(begin),
        "code": _optional(columns.code[row]),
        "subcode": _optional(columns.subcode[row]),
        "reason": texts.of(columns.text[row]),
        "released": _moments(np.where(released, end, -1)),
        "held_s": _seconds(np.where(end < 0, until, end) - begin),
    }
