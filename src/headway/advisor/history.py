"""History: what the logs at hand tell about holds, releases and starts, in the order they came.

The *moment* of an event is the latest time that its log has shown up to it, so that a clock which
jumps back does not put an event before one that it follows; a time that lies in the future when
the log is read is not believed. Events are ordered by their moments and, where these are the same,
by log and by place in the log. What is known at a hold is what lies before it in this order:
nothing that follows the hold in its own log, and nothing with a later moment anywhere.

A start proves that a job got past what comes before it, unless the attempt ends in a hold for just
that: HTCondor writes the 001 before it knows that the command could not be executed. So a start
counts some seconds after it, and one that was none is taken back.

A release has succeeded when its job got past the step at which it was held, unless the job is held
for the same cause or fails after that; a job that somebody removes is censored, not failed.
"""

from __future__ import annotations

import gc
import os
import time as clock
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain

from headway.advisor.hold import Hold, JobId, entry_of
from headway.advisor.series import Cut, Series
from headway.advisor.told import Told, read_told, told_by
from headway.events.event import Event
from headway.events.kind import Kind
from headway.events.life import Effect, Life, step
from headway.events.status import TERMINAL, Status
from headway.holds.reason import parse, says_nothing
from headway.holds.table import BEFORE_START, NEVER, Entry, find

SUCCESS, AGAIN, FAILED, CENSORED = range(4)
#: Hours that no attempt takes: a log that says so has a broken clock.
_LONGEST_ATTEMPT = 24.0 * 30
_FAR_PAST = 0.0
_OPENED, _CLOSED = int(Effect.OPENED), int(Effect.CLOSED)
_MOST_MARKS = 1000
#: Seconds: from when on a start counts, and within which the events of one end follow each other.
_SETTLES, _TOGETHER = 30.0, 5.0
_NOWHERE = Cut(0.0)

Key = tuple[object, ...]


@dataclass(slots=True)
class _Release:
    """A release whose end is not known yet, and what has been counted for it so far."""

    entry: Entry
    keys: tuple[Key, ...]
    counted: int | None = None
    at: Cut = _NOWHERE  # where that was counted


@dataclass(slots=True)
class _Job:
    id: JobId
    submitted: float | None = None
    life: Life = field(default_factory=Life)
    holds: int = 0
    starts: int = 0
    user: str = ""
    site: str = ""
    slot: str = ""
    hold: Hold | None = None
    release: _Release | None = None
    begun: float | None = None  # when the attempt under way began
    last_cost: float | None = None  # hours of the last attempt
    spent: float = 0.0  # hours of all attempts
    past: int = 0  # starts of its command
    started: Cut | None = None  # where the start of the last attempt was counted
    closed: float = 0.0  # when that attempt ended
    said: tuple[float, str] = (0.0, "")  # its last exception, and when
    facts: dict[str, object] = field(default_factory=dict)
    marks: set[tuple[Kind, float]] = field(default_factory=set)
    cluster: tuple[str, int] = ("", 0)


class History:
    """All that is known of holds; build it once from logs, and add what is followed."""

    def __init__(self) -> None:
        self.unread: list[tuple[str, str]] = []
        self._numbers: dict[str, int] = {}
        self._places: dict[str, int] = {}
        self._moments: dict[str, float] = {}
        self._jobs: dict[JobId, _Job] = {}
        self._twins: dict[tuple[int, int, float], JobId] = {}
        self._alias: dict[JobId, JobId] = {}
        self._series: dict[Key, Series] = {}
        self._machines: dict[str, str] = {}  # the site of a machine, where a 001 has told
        self._objects: dict[Key, str] = {}
        self._holds: dict[JobId, list[Hold]] = {}

    @classmethod
    def from_logs(
        cls, paths: Iterable[str | os.PathLike[str]], *, now: float | None = None
    ) -> History:
        """The history of these logs, with their rotations; folders of logs are read whole."""
        made = cls()
        now = clock.time() if now is None else now
        logs = read_told(paths, made.unread)
        ordered = [made._with_moments(rows, now) for rows in logs if rows]
        collecting = gc.isenabled()
        gc.disable()  # all that is made here stays, and has no cycles
        try:
            for at, told in merge(*ordered) if len(ordered) > 1 else chain(*ordered):
                made._take(told, at)
        finally:
            if collecting:
                gc.enable()
        return made

    def add(self, event: Event, log: str = "", *, now: float | None = None) -> None:
        """Take in an event that a followed log has brought."""
        place = self._places.get(log, -1) + 1
        self._places[log] = place
        told = told_by(event, log, place)
        if told:
            now = clock.time() if now is None else now
            for at, _ in self._with_moments([told], now):
                self._take(told, at)

    def held(self) -> list[Hold]:
        """The holds that last, in the order in which they began."""
        found = [job.hold for job in self._jobs.values() if job.hold]
        return sorted(found, key=lambda hold: hold.at)

    def holds(self, cluster: int, proc: int) -> list[Hold]:
        """All holds of a job so far, in whatever log."""
        found = (h for job, h in self._holds.items() if (job.cluster, job.proc) == (cluster, proc))
        return sorted((hold for holds in found for hold in holds), key=lambda hold: hold.at)

    def every_hold(self) -> Iterator[Hold]:
        """All holds of all jobs, also those that ended."""
        for holds in self._holds.values():
            yield from holds

    def hold(self, cluster: int, proc: int) -> Hold | None:
        """The hold that a job is in now."""
        found = [h for h in self.held() if (h.cluster, h.proc) == (cluster, proc)]
        return found[-1] if found else None

    def knows(self, cluster: int, proc: int | None = None) -> bool:
        """Whether the logs tell of this job, or of a job of this cluster."""
        return any(
            job.cluster == cluster and (proc is None or job.proc == proc) for job in self._jobs
        )

    def total(self, key: Key, cut: Cut, since: float = float("-inf")) -> tuple[float, ...]:
        """The sums of a series before the cut; see `evidence` for the keys."""
        series = self._series.get(key)
        return series.total(cut, since) if series else (0.0,) * _WIDTH[key[0]]

    def last(self, key: Key, cut: Cut) -> float | None:
        """When something last happened before the cut."""
        series = self._series.get(key)
        return series.last(cut) if series else None

    def __len__(self) -> int:
        return len(self._jobs)

    def _number(self, log: str) -> int:
        return self._numbers.setdefault(log, len(self._numbers))

    def _with_moments(self, rows: list[Told], now: float) -> Iterator[tuple[Cut, Told]]:
        log = rows[0].log
        number = self._number(log)
        moment = self._moments.get(log, _FAR_PAST)
        for told in rows:
            if moment < told.time <= now:
                moment = told.time
            yield Cut(moment, number, told.place), told
        self._moments[log] = moment
        self._places[log] = rows[-1].place

    @property
    def logs(self) -> list[str]:
        """The logs that told something."""
        return list(self._numbers)

    def _take(self, told: Told, at: Cut) -> None:
        job = self._job(told, at)
        kind = told.kind
        if kind in _MARKED:
            mark = (kind, told.time)
            if mark in job.marks:
                return  # the log has it twice
            if len(job.marks) >= _MOST_MARKS:
                job.marks.clear()
            job.marks.add(mark)
        if told.slot or told.site or told.user:
            self._place(job, told)
        if told.facts:
            job.facts.update(told.facts)
        before = job.life.status
        if before in TERMINAL or kind is Kind.OTHER:
            return
        job.life, effect = step(job.life, kind)
        if effect:  # and what it is costs more to ask
            flags = int(effect)
            if flags & _OPENED:
                self._opened(job, told)
            if flags & _CLOSED:
                self._closed(job, told)
        if job.hold and job.life.status is not Status.HELD:
            self._released(job, job.hold)
        act = _ACTS.get(kind)
        if act:
            act(self, job, told, at)
        if job.life.status in TERMINAL:
            job.marks.clear()  # nothing changes it any more

    def _job(self, told: Told, at: Cut) -> _Job:
        key = JobId(told.log, told.cluster, told.proc)
        if self._alias:
            key = self._alias.get(key, key)
        job = self._jobs.get(key)
        if told.kind is Kind.SUBMITTED:
            twin = self._twins.setdefault((told.cluster, told.proc, told.time), key)
            if twin != key:  # the same job, told by another log
                self._alias[key] = twin
                return self._jobs[twin]
            if job and job.submitted != told.time and job.life.status in TERMINAL:
                job = None  # the access point counts from 1 again
        if job is None:
            job = self._jobs[key] = _Job(key, cluster=key.batch)
            self._count(("jobs", *job.cluster), at)
        if told.kind is Kind.SUBMITTED:
            job.submitted = told.time
        return job

    def _place(self, job: _Job, told: Told) -> None:
        job.user = told.user or job.user
        job.slot = told.slot or job.slot
        machine = job.slot.rpartition("@")[2]
        if told.site and machine and len(self._machines) < 1_000_000:
            self._machines[machine] = told.site
        # A glidein's name is better than the machine's, whichever comes first.
        job.site = told.site or self._machines.get(machine, "") or job.site or machine

    def _opened(self, job: _Job, told: Told) -> None:
        job.starts += 1
        job.begun, job.started = told.time, None
        if told.kind is not Kind.EXECUTING:
            job.site = job.slot = ""

    def _closed(self, job: _Job, told: Told) -> None:
        if job.begun is not None:
            job.last_cost = min(max(0.0, told.time - job.begun) / 3600, _LONGEST_ATTEMPT)
            job.spent += job.last_cost
        job.begun, job.closed = None, told.time

    def _on_executing(self, job: _Job, told: Told, at: Cut) -> None:
        if job.begun is not None:
            waited = min(max(0.0, told.time - job.begun) / 3600, _LONGEST_ATTEMPT)
            self._count(("start hours", *job.cluster), at, waited, 1)
        job.past += 1
        job.started = Cut(at.moment + _SETTLES, at.log, at.place)
        self._count_start(job, job.started, 1.0)
        if job.release and job.release.entry.step in BEFORE_START:
            self._ended(job, SUCCESS, job.started)

    def _count_start(self, job: _Job, at: Cut, amount: float) -> None:
        if job.past == 1:
            self._count(("mates past start", *job.cluster), at, amount)
            self._count(("jobs past start",), at, amount)
        self._count(("past start", job.site), at, amount)
        self._count(("past start",), at, amount)

    def _on_exception(self, job: _Job, told: Told, at: Cut) -> None:
        job.said = told.time, told.text

    def _on_held(self, job: _Job, told: Told, at: Cut) -> None:
        text = told.text
        if says_nothing(text) and told.time - job.said[0] <= _TOGETHER:
            text = job.said[1] or text
        parsed = parse(text)
        values = parsed.values
        entry = find(told.code, told.subcode, parsed)
        if job.started and entry.step in BEFORE_START and told.time - job.closed <= _TOGETHER:
            self._count_start(job, max(job.started, at), -1.0)
            job.past -= 1
        job.started = None
        machine = values.get("slot", "").rpartition("@")[2]
        said = values.get("site") or self._machines.get(machine, "") or machine
        job.holds += job.hold is None  # else it is held anew before anybody released it
        hold = Hold(
            job.id, told.time, told.code, told.subcode, text, job.site or said,
            job.slot or values.get("slot", ""), parsed.template, values, job.holds, job.starts,
            job.user, dict(job.facts), job.past, job.last_cost, job.spent, at,
        )  # fmt: skip
        if job.release:
            # Whoever holds it on purpose, or removes it, says nothing about the release.
            same = job.release.entry is entry
            if same or entry.kind != NEVER:
                got_past = job.release.counted == SUCCESS
                if same or not got_past:
                    self._ended(job, AGAIN, at)
            elif job.release.counted is None:
                self._ended(job, CENSORED, at)
            job.release = None
        if entry.kind != NEVER:
            self._count_hold(job, hold, entry, at)
        job.hold = hold
        self._holds.setdefault(job.id, []).append(hold)

    def _count_hold(self, job: _Job, hold: Hold, entry: Entry, at: Cut) -> None:
        thing = object_of(hold)
        self._count(("holds", hold.template), at)
        self._count(("holds", hold.template, hold.site), at)
        self._count(("holds of", thing, hold.template), at)
        mates: Key = ("mates held", *job.cluster, hold.template)
        self._count(mates, at)
        first = self._objects.setdefault(mates, thing)
        if first != thing:
            self._count(("objects differ", *job.cluster, hold.template), at)
        if job.last_cost is not None:
            self._count(("hold hours", entry.id, *job.cluster), at, job.last_cost, 1)

    def _released(self, job: _Job, hold: Hold) -> None:
        entry = entry_of(hold)
        if entry.kind != NEVER:
            keys: tuple[Key, ...] = (
                ("releases", entry.id),
                ("releases", entry.id, hold.template),
                ("releases", entry.id, hold.template, object_of(hold)),
                ("mates released", entry.id, *job.cluster),
                ("own released", entry.id, job.id),
            )
            job.release = _Release(entry, keys)
        job.hold = None

    def _ended(self, job: _Job, outcome: int, at: Cut) -> None:
        """Note how a release went; what was counted for it before is taken back."""
        release = job.release
        if release is None or release.counted == outcome:
            return
        for key in release.keys:
            self._count(key, at, *_one(outcome, 1.0))
            if release.counted is not None:
                self._count(key, max(at, release.at), *_one(release.counted, -1.0))
        release.counted, release.at = outcome, at

    def _on_success(self, job: _Job, told: Told, at: Cut) -> None:
        self._ended(job, SUCCESS, at)
        self._count(("mates past end", *job.cluster), at)
        self._count(("jobs past end",), at)
        self._count(("past end", job.site), at)
        self._count(("past end",), at)
        job.release = None

    def _on_failure(self, job: _Job, told: Told, at: Cut) -> None:
        self._ended(job, FAILED, at)
        job.release = None

    def _on_removed(self, job: _Job, told: Told, at: Cut) -> None:
        if job.release and job.release.counted is None:
            self._ended(job, CENSORED, at)
        job.release = None

    def _count(self, key: Key, at: Cut, *amounts: float) -> None:
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = Series(_WIDTH[key[0]])
        series.add(at, amounts or (1.0,))


def _one(outcome: int, amount: float) -> list[float]:
    amounts = [0.0] * 4
    amounts[outcome] = amount
    return amounts


def object_of(hold: Hold) -> str:
    """What could not be moved or started: a URL, a path, or nothing that the reason names."""
    return hold.values.get("url") or hold.values.get("path") or ""


#: How many sums each series has.
_WIDTH: dict[object, int] = {
    "jobs": 1,
    "start hours": 2,
    "hold hours": 2,
    "jobs past start": 1,
    "jobs past end": 1,
    "mates past start": 1,
    "mates past end": 1,
    "past start": 1,
    "past end": 1,
    "holds": 1,
    "holds of": 1,
    "mates held": 1,
    "objects differ": 1,
    "releases": 4,
    "mates released": 4,
    "own released": 4,
}
#: Events that change where a job is, or are counted; a log may be there twice.
_MARKED = frozenset(
    {
        Kind.INPUT_QUEUED,
        Kind.INPUT_STARTED,
        Kind.EXECUTING,
        Kind.HELD,
        Kind.RELEASED,
        Kind.EVICTED,
        Kind.TRANSFER_FAILED,
        Kind.REQUEUED,
        Kind.SHADOW_EXCEPTION,
        Kind.RECONNECT_FAILED,
    }
)
_ACTS = {
    Kind.EXECUTING: History._on_executing,
    Kind.HELD: History._on_held,
    Kind.SHADOW_EXCEPTION: History._on_exception,
    Kind.SUCCEEDED: History._on_success,
    Kind.FAILED: History._on_failure,
    Kind.REMOVED: History._on_removed,
}
