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
import itertools
import logging
import os
import time as clock
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from typing import TYPE_CHECKING, NamedTuple

from headway.events.event import TERMINAL, Event, Kind, Status, kind_of
from headway.events.format import EventType
from headway.events.life import Effect, Life, step
from headway.events.opening import Skip
from headway.holds.hold import Cut, Hold, JobId, meaning_of
from headway.holds.reason import parse, says_nothing
from headway.holds.table import BEFORE_START, NEVER, HoldMeaning, find

if TYPE_CHECKING:
    from headway.events.columnar.columns import Columns, Floats
    from headway.events.files import LogChain


# What a history takes of an event: few enough fields that both readers of logs can give them.


_log = logging.getLogger(__name__)
#: Bytes of logs from which on NumPy, which takes a third of a second to load, is worth it.
_MANY = 2 << 20
#: Events that say nothing about holds: the command's own words and its growing memory.
_IGNORED = frozenset({EventType.GENERIC, EventType.IMAGE_SIZE})
#: Stages of transfers that change nothing about a hold: a failed input has "finished" as well.
_UNTOLD = frozenset(
    {Kind.INPUT_FINISHED, Kind.OUTPUT_QUEUED, Kind.OUTPUT_STARTED, Kind.OUTPUT_FINISHED}
)
#: Events whose reason is read: a hold may leave it to the exception before it.
_SAYING = frozenset({Kind.HELD, Kind.SHADOW_EXCEPTION})
#: The queue's names of what the resource table of a 004 or 005 event tells.
_ASKED = {"Memory": "RequestMemory", "Disk": "RequestDisk", "GPUs": "RequestGpus"}
_USED = {"Memory": "MemoryUsage", "Disk": "DiskUsage"}


class HoldEvent(NamedTuple):
    """One event of one job; `place` is where it stands in its log."""

    log: str
    place: int
    time: float
    number: int
    kind: Kind
    cluster: int
    proc: int
    code: int = 0
    subcode: int = 0
    text: str = ""
    site: str = ""
    slot: str = ""
    user: str = ""
    facts: Mapping[str, float] | None = None


def hold_event(event: Event, log: str, place: int) -> HoldEvent | None:
    """What an event tells, None where it is nothing about holds."""
    number = event.number
    if number in _IGNORED or event.proc < 0 or event.cluster < 0 or number >= 100:
        return None
    kind = kind_of(event)
    site = slot = user = ""
    facts = None
    if number == EventType.AD_INFORMATION:
        found = event.attributes.get("Owner", event.attributes.get("User"))
        user = found if type(found) is str else ""
    elif kind is Kind.OTHER or kind in _UNTOLD:
        return None
    code, subcode = event.codes or (0, 0) if kind is Kind.HELD else (0, 0)
    if number in (EventType.EXECUTE, EventType.AD_INFORMATION, EventType.REMOTE_ERROR):
        site, slot = event.site, event.slot
    elif number in (EventType.EVICTED, EventType.TERMINATED):
        facts = _facts(event)
    text = event.reason if kind in _SAYING else ""
    return HoldEvent(
        log, place, event.time, number, kind, event.cluster, event.proc,
        code, subcode, text, site, slot, user, facts,
    )  # fmt: skip


def _facts(event: Event) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, row in event.resources.items():
        if name in _ASKED and row.request is not None:
            found[_ASKED[name]] = row.request
        if name in _USED and row.usage is not None:
            found[_USED[name]] = row.usage
    return found


def read_hold_events(
    paths: Iterable[str | os.PathLike[str]], unread: list[tuple[str, str]]
) -> list[list[HoldEvent]]:
    """What the events of each log tell; `unread` gets the files that could not be read, and why.

    A folder that `headway collect` has filled is as good as its logs.
    """
    from headway.events.collected import is_collected, read_collected
    from headway.events.files import NO_LOGS, find_logs

    places = list(paths)
    stores = [place for place in places if is_collected(place)]
    kept = [told for store in stores for told in of_columns(read_collected(store))]
    found: list[tuple[str, str]] = []
    chains = find_logs([place for place in places if place not in stores], found)
    unread += [(file, why) for file, why in found if why not in NO_LOGS]
    return kept + _read_logs(chains, unread)


def _read_logs(chains: Sequence[LogChain], unread: list[tuple[str, str]]) -> list[list[HoldEvent]]:
    for chain in chains:
        _log.info("reading %s (%d files)", chain.name, len(chain.files))
    if sum(file.size for chain in chains for file in chain.files) >= _MANY:
        from headway.events.columnar.bulk import read_columns

        columns = read_columns([file.path for chain in chains for file in chain.files])
        unread += columns.unread + list(_ended(columns.skipped))
        return list(of_columns(columns))
    from headway.errors import EventLogError
    from headway.events.read import read_log

    logs: list[list[HoldEvent]] = []
    for chain in chains:
        rows: list[HoldEvent] = []
        place = 0
        for file in chain.files:
            try:
                log = read_log(file.path)
            except EventLogError as error:
                unread.append((str(file.path), str(error)))
                continue
            unread += _ended((str(file.path), skip) for skip in log.skipped)
            for event in log.events:
                made = hold_event(event, chain.name, place)
                place += 1
                if made:
                    rows.append(made)
        logs.append(rows)
    return logs


def _ended(skipped: Iterable[tuple[str, Skip]]) -> Iterator[tuple[str, str]]:
    """The files that could not be read to their end."""
    for file, skip in skipped:
        if not skip.length:
            yield file, f"was read up to byte {skip.offset:,}: {skip.why}"


def of_columns(columns: Columns) -> Iterator[list[HoldEvent]]:
    """What the rows tell, log by log."""
    import numpy as np

    number, kind = columns.number, columns.kind
    about = (columns.proc >= 0) & (columns.cluster >= 0) & (number < 100)
    about &= ~np.isin(number, list(_IGNORED)) & ~np.isin(kind, list(_UNTOLD))
    about &= (kind != Kind.OTHER) | (number == EventType.AD_INFORMATION)
    facts = _facts_of(columns)
    kinds = list(Kind)
    strings = [*columns.strings, ""]  # -1: none
    places_of = np.isin(
        number, (EventType.EXECUTE, EventType.AD_INFORMATION, EventType.REMOTE_ERROR)
    )
    held = kind == Kind.HELD
    saying = np.isin(kind, list(_SAYING))
    coded = held & (columns.code != _none())
    for log, name in enumerate(columns.logs):
        rows = np.flatnonzero(about & (columns.log == log))
        yield [
            HoldEvent(name, row, time / 1e6, num, kinds[k], cluster, proc, code, subcode,
                 strings[text], strings[site], strings[slot], strings[user], facts.get(row))
            for row, time, num, k, cluster, proc, code, subcode, text, site, slot, user in zip(
                rows.tolist(),
                columns.time[rows].tolist(),
                number[rows].tolist(),
                kind[rows].tolist(),
                columns.cluster[rows].tolist(),
                columns.proc[rows].tolist(),
                np.where(coded, columns.code, 0)[rows].tolist(),
                np.where(coded, columns.subcode, 0)[rows].tolist(),
                np.where(saying, columns.text, -1)[rows].tolist(),
                np.where(places_of, columns.site, -1)[rows].tolist(),
                np.where(places_of, columns.slot, -1)[rows].tolist(),
                np.where(number == EventType.AD_INFORMATION, columns.user, -1)[rows].tolist(),
                strict=True,
            )
        ]  # fmt: skip


def _none() -> int:
    from headway.events.columnar.columns import NONE

    return NONE


def _facts_of(columns: Columns) -> dict[int, dict[str, float]]:
    usage = columns.usage
    amounts: dict[str, Floats] = {
        "RequestMemory": usage.memory_asked,
        "MemoryUsage": usage.memory_used,
        "RequestDisk": usage.disk_asked,
        "DiskUsage": usage.disk_used,
        "RequestGpus": usage.gpus_asked,
    }
    rows = zip(*(amount.tolist() for amount in amounts.values()), strict=True)
    return {
        row: {name: value for name, value in zip(amounts, values, strict=True) if value == value}
        for row, values in zip(usage.row.tolist(), rows, strict=True)
    }


# A series: how much of something there was, in order, asked for as of any moment.


class Series:
    """Amounts at places in the order of events; each question costs two searches."""

    __slots__ = ("_cuts", "_late", "_moments", "_sums", "_width")

    def __init__(self, width: int = 1) -> None:
        self._width = width
        self._cuts: list[Cut] = []
        self._moments: list[float] = []  # numbers are found faster than places
        self._sums: list[tuple[float, ...]] = []
        #: Those that came out of order; put in place when somebody asks.
        self._late: list[tuple[Cut, tuple[float, ...]]] = []

    def add(self, at: Cut, amounts: tuple[float, ...]) -> None:
        """One more."""
        if self._cuts and at < self._cuts[-1]:
            self._late.append((at, amounts))
            return
        self._sums.append(_plus(self._sums[-1], amounts) if self._sums else amounts)
        self._cuts.append(at)
        self._moments.append(at.moment)

    def total(self, cut: Cut, since: float = float("-inf")) -> tuple[float, ...]:
        """The sums of all that came before the cut and not before `since`."""
        end = self._end(cut)
        begin = bisect_left(self._moments, since, 0, end)
        if begin >= end:
            return (0.0,) * self._width
        if not begin:
            return self._sums[end - 1]
        return _minus(self._sums[end - 1], self._sums[begin - 1])

    def last(self, cut: Cut) -> float | None:
        """The moment of the last one before the cut."""
        end = self._end(cut)
        return self._moments[end - 1] if end else None

    def _end(self, cut: Cut) -> int:
        if self._late:
            self._settle()
        end = bisect_left(self._moments, cut.moment)
        if end < len(self._moments) and self._moments[end] == cut.moment:
            return bisect_left(self._cuts, cut, end)
        return end

    def _settle(self) -> None:
        nothing = (0.0,) * self._width
        before = [nothing, *self._sums]
        known = [
            (cut, _minus(after, sums))
            for cut, sums, after in zip(self._cuts, before, self._sums, strict=False)
        ]
        whole = sorted([*known, *self._late], key=lambda each: each[0])
        self._late = []
        self._cuts = [cut for cut, _ in whole]
        self._moments = [cut.moment for cut in self._cuts]
        self._sums = []
        sums = nothing
        for _, amounts in whole:
            sums = _plus(sums, amounts)
            self._sums.append(sums)


def _plus(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, ...]:
    if len(a) == 1:
        return (a[0] + b[0],)
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _minus(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, ...]:
    if len(a) == 1:
        return (a[0] - b[0],)
    return tuple(x - y for x, y in zip(a, b, strict=True))


# The history: jobs, their holds and releases, counted into series.


SUCCESS, AGAIN, FAILED, CENSORED = range(4)
#: Hours that no attempt takes: a log that says so has a broken clock.
_LONGEST_ATTEMPT = 24.0 * 30
_FAR_PAST = 0.0
_OPENED, _CLOSED = int(Effect.OPENED), int(Effect.CLOSED)
_MOST_MARKS = 1000
#: Seconds: from when on a start counts, and within which the events of one end follow each other.
_SETTLES, _TOGETHER = 30.0, 5.0
_NOWHERE = Cut(0.0)

SeriesKey = tuple[object, ...]


@dataclass(slots=True)
class _Release:
    """A release whose end is not known yet, and what has been counted for it so far."""

    entry: HoldMeaning
    keys: tuple[SeriesKey, ...]
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
        self._series: dict[SeriesKey, Series] = {}
        self._machines: dict[str, str] = {}  # the site of a machine, where a 001 has told
        self._objects: dict[SeriesKey, str] = {}
        self._holds: dict[JobId, list[Hold]] = {}

    @classmethod
    def from_logs(
        cls, paths: Iterable[str | os.PathLike[str]], *, now: float | None = None
    ) -> History:
        """The history of these logs, with their rotations; folders of logs are read whole."""
        made = cls()
        now = clock.time() if now is None else now
        logs = read_hold_events(paths, made.unread)
        ordered = [made._with_moments(rows, now) for rows in logs if rows]
        collecting = gc.isenabled()
        gc.disable()  # all that is made here stays, and has no cycles
        try:
            for at, told in merge(*ordered) if len(ordered) > 1 else itertools.chain(*ordered):
                made._take(told, at)
        finally:
            if collecting:
                gc.enable()
        return made

    def add(self, event: Event, log: str = "", *, now: float | None = None) -> None:
        """Take in an event that a followed log has brought."""
        place = self._places.get(log, -1) + 1
        self._places[log] = place
        told = hold_event(event, log, place)
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

    def total(self, key: SeriesKey, cut: Cut, since: float = float("-inf")) -> tuple[float, ...]:
        """The sums of a series before the cut; see `evidence` for the keys."""
        series = self._series.get(key)
        return series.total(cut, since) if series else (0.0,) * _WIDTH[key[0]]

    def last(self, key: SeriesKey, cut: Cut) -> float | None:
        """When something last happened before the cut."""
        series = self._series.get(key)
        return series.last(cut) if series else None

    def __len__(self) -> int:
        return len(self._jobs)

    def _number(self, log: str) -> int:
        return self._numbers.setdefault(log, len(self._numbers))

    def _with_moments(self, rows: list[HoldEvent], now: float) -> Iterator[tuple[Cut, HoldEvent]]:
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

    def _take(self, told: HoldEvent, at: Cut) -> None:
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

    def _job(self, told: HoldEvent, at: Cut) -> _Job:
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

    def _place(self, job: _Job, told: HoldEvent) -> None:
        job.user = told.user or job.user
        job.slot = told.slot or job.slot
        machine = job.slot.rpartition("@")[2]
        if told.site and machine and len(self._machines) < 1_000_000:
            self._machines[machine] = told.site
        # A glidein's name is better than the machine's, whichever comes first.
        job.site = told.site or self._machines.get(machine, "") or job.site or machine

    def _opened(self, job: _Job, told: HoldEvent) -> None:
        job.starts += 1
        job.begun, job.started = told.time, None
        if told.kind is not Kind.EXECUTING:
            job.site = job.slot = ""

    def _closed(self, job: _Job, told: HoldEvent) -> None:
        if job.begun is not None:
            job.last_cost = min(max(0.0, told.time - job.begun) / 3600, _LONGEST_ATTEMPT)
            job.spent += job.last_cost
        job.begun, job.closed = None, told.time

    def _on_executing(self, job: _Job, told: HoldEvent, at: Cut) -> None:
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

    def _on_exception(self, job: _Job, told: HoldEvent, at: Cut) -> None:
        job.said = told.time, told.text

    def _on_held(self, job: _Job, told: HoldEvent, at: Cut) -> None:
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

    def _count_hold(self, job: _Job, hold: Hold, entry: HoldMeaning, at: Cut) -> None:
        thing = object_of(hold)
        self._count(("holds", hold.template), at)
        self._count(("holds", hold.template, hold.site), at)
        self._count(("holds of", thing, hold.template), at)
        mates: SeriesKey = ("mates held", *job.cluster, hold.template)
        self._count(mates, at)
        first = self._objects.setdefault(mates, thing)
        if first != thing:
            self._count(("objects differ", *job.cluster, hold.template), at)
        if job.last_cost is not None:
            self._count(("hold hours", entry.id, *job.cluster), at, job.last_cost, 1)

    def _released(self, job: _Job, hold: Hold) -> None:
        entry = meaning_of(hold)
        if entry.kind != NEVER:
            keys: tuple[SeriesKey, ...] = (
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

    def _on_success(self, job: _Job, told: HoldEvent, at: Cut) -> None:
        self._ended(job, SUCCESS, at)
        self._count(("mates past end", *job.cluster), at)
        self._count(("jobs past end",), at)
        self._count(("past end", job.site), at)
        self._count(("past end",), at)
        job.release = None

    def _on_failure(self, job: _Job, told: HoldEvent, at: Cut) -> None:
        self._ended(job, FAILED, at)
        job.release = None

    def _on_removed(self, job: _Job, told: HoldEvent, at: Cut) -> None:
        if job.release and job.release.counted is None:
            self._ended(job, CENSORED, at)
        job.release = None

    def _count(self, key: SeriesKey, at: Cut, *amounts: float) -> None:
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
