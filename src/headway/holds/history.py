"""History: holds, releases and starts in the logs at hand, in the order in which they came.

The *moment* of an event is the latest time that its log has shown so far, so an event never comes
before an earlier one of its log because a clock jumped back. A time in the future is ignored.
Events are ordered by their moments, and those of the same moment by log and place in the log. What
is known at a hold is what comes before it in this order.

A start proves that a job got past the earlier steps, unless the attempt ends in a hold for one of
them: HTCondor writes the 001 before it knows whether the command could be executed. So a start
counts only some seconds later, and one that was none is taken back.

A release has succeeded when its job gets past the step at which it was held, unless the job is then
held for the same cause or fails. If somebody removes the job, the release is censored, not failed.
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
from operator import add, itemgetter, sub
from typing import TYPE_CHECKING, NamedTuple

from headway.events.event import TERMINAL, Event, Kind, Status, kind_of
from headway.events.format import EventType
from headway.events.life import Effect, Life, step
from headway.events.opening import Skip
from headway.holds.hold import BEFORE_ALL, Cut, Hold, JobId, meaning_of
from headway.holds.reason import parse, says_nothing
from headway.holds.table import BEFORE_START, NEVER, HoldMeaning, find

if TYPE_CHECKING:
    from headway.events.columnar.columns import Columns, Floats
    from headway.events.files import LogChain


_log = logging.getLogger(__name__)
#: From so many bytes of logs on, NumPy is worth the third of a second that it takes to load.
_MANY = 2 << 20
#: Events that say nothing about holds: the job's own messages and its memory use.
_IGNORED = frozenset({EventType.GENERIC, EventType.IMAGE_SIZE})
#: Stages of transfers that say nothing about a hold: a failed input is "finished", too.
_IGNORED_KINDS = frozenset(
    {Kind.INPUT_FINISHED, Kind.OUTPUT_QUEUED, Kind.OUTPUT_STARTED, Kind.OUTPUT_FINISHED}
)
#: Events whose reason is read: that of a hold may be in the exception before it.
_WITH_REASON = frozenset({Kind.HELD, Kind.SHADOW_EXCEPTION})
#: The queue's names for the resource table of a 004 or 005 event.
_ASKED = {"Memory": "RequestMemory", "Disk": "RequestDisk", "GPUs": "RequestGpus"}
_USED = {"Memory": "MemoryUsage", "Disk": "DiskUsage"}


class HoldEvent(NamedTuple):
    """What a history needs of an event; `place` is its number in its log."""

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
    """The event for a history; None: it says nothing about holds."""
    number = event.number
    if number in _IGNORED or event.proc < 0 or event.cluster < 0 or number >= 100:
        return None
    kind = kind_of(event)
    site = slot = user = ""
    facts = None
    if number == EventType.AD_INFORMATION:
        owner = event.attributes.get("Owner", event.attributes.get("User"))
        user = owner if type(owner) is str else ""
    elif kind is Kind.OTHER or kind in _IGNORED_KINDS:
        return None
    code, subcode = event.codes or (0, 0) if kind is Kind.HELD else (0, 0)
    if number in (EventType.EXECUTE, EventType.AD_INFORMATION, EventType.REMOTE_ERROR):
        site, slot = event.site, event.slot
    elif number in (EventType.EVICTED, EventType.TERMINATED):
        facts = _facts(event)
    text = event.reason if kind in _WITH_REASON else ""
    return HoldEvent(
        log, place, event.time, number, kind, event.cluster, event.proc,
        code, subcode, text, site, slot, user, facts,
    )  # fmt: skip


def _facts(event: Event) -> dict[str, float]:
    facts: dict[str, float] = {}
    for name, row in event.resources.items():
        if name in _ASKED and row.request is not None:
            facts[_ASKED[name]] = row.request
        if name in _USED and row.usage is not None:
            facts[_USED[name]] = row.usage
    return facts


def read_hold_events(
    paths: Iterable[str | os.PathLike[str]], unread: list[tuple[str, str]]
) -> list[list[HoldEvent]]:
    """The events of each log, or store of `headway collect`; `unread` gets what cannot be read."""
    from headway.events.collected import is_collected, read_collected
    from headway.events.files import NO_LOGS, find_logs

    places = list(paths)
    stores = [place for place in places if is_collected(place)]
    stored = [rows for store in stores for rows in of_columns(read_collected(store))]
    problems: list[tuple[str, str]] = []
    chains = find_logs([place for place in places if place not in stores], problems)
    unread += [(file, why) for file, why in problems if why not in NO_LOGS]
    return stored + _read_logs(chains, unread)


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
            events = (hold_event(e, chain.name, n) for n, e in enumerate(log.events, place))
            rows += filter(None, events)
            place += len(log.events)
        logs.append(rows)
    return logs


def _ended(skipped: Iterable[tuple[str, Skip]]) -> Iterator[tuple[str, str]]:
    """The files that could not be read to their end."""
    for file, skip in skipped:
        if not skip.length:
            yield file, f"was read up to byte {skip.offset:,}: {skip.why}"


def of_columns(columns: Columns) -> Iterator[list[HoldEvent]]:
    """The rows as events, log by log."""
    import numpy as np

    from headway.events.columnar.columns import NONE

    number, kind = columns.number, columns.kind
    about = (columns.proc >= 0) & (columns.cluster >= 0) & (number < 100)
    about &= ~np.isin(number, list(_IGNORED)) & ~np.isin(kind, list(_IGNORED_KINDS))
    about &= (kind != Kind.OTHER) | (number == EventType.AD_INFORMATION)
    facts = _facts_of(columns)
    kinds = list(Kind)
    strings = [*columns.strings, ""]  # -1: none
    places_of = np.isin(
        number, (EventType.EXECUTE, EventType.AD_INFORMATION, EventType.REMOTE_ERROR)
    )
    held = kind == Kind.HELD
    saying = np.isin(kind, list(_WITH_REASON))
    coded = held & (columns.code != NONE)
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


class Series:
    """Sums of amounts over the order of events; each question costs two searches."""

    __slots__ = ("_cuts", "_late", "_moments", "_sums", "_width")

    def __init__(self, width: int = 1) -> None:
        self._width = width
        self._cuts: list[Cut] = []
        self._moments: list[float] = []  # a search for numbers is faster than for cuts
        self._sums: list[tuple[float, ...]] = []
        #: Those that came out of order; they are sorted in when somebody asks.
        self._late: list[tuple[Cut, tuple[float, ...]]] = []

    def add(self, at: Cut, amounts: tuple[float, ...]) -> None:
        """Add amounts at a position."""
        if self._cuts and at < self._cuts[-1]:
            self._late.append((at, amounts))
            return
        self._sums.append(_plus(self._sums[-1], amounts) if self._sums else amounts)
        self._cuts.append(at)
        self._moments.append(at.moment)

    def total(self, cut: Cut, since: float = float("-inf")) -> tuple[float, ...]:
        """The sums of all amounts before the cut and not before `since`."""
        end = self._end(cut)
        begin = bisect_left(self._moments, since, 0, end)
        if begin >= end:
            return (0.0,) * self._width
        if not begin:
            return self._sums[end - 1]
        return _minus(self._sums[end - 1], self._sums[begin - 1])

    def last(self, cut: Cut) -> float | None:
        """The moment of the last amounts before the cut."""
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
        before = [(0.0,) * self._width, *self._sums[:-1]]
        amounts = map(_minus, self._sums, before)
        ordered = sorted([*zip(self._cuts, amounts, strict=True), *self._late], key=itemgetter(0))
        self._cuts, self._moments, self._sums, self._late = [], [], [], []
        for each in ordered:
            self.add(*each)


def _plus(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, ...]:
    return (a[0] + b[0],) if len(a) == 1 else tuple(map(add, a, b))


def _minus(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, ...]:
    return (a[0] - b[0],) if len(a) == 1 else tuple(map(sub, a, b))


SUCCESS, AGAIN, FAILED, CENSORED = range(4)
_ONE = tuple(tuple(float(n == outcome) for n in range(4)) for outcome in range(4))
#: Hours; an attempt that seems longer comes from a clock that is wrong.
_LONGEST_ATTEMPT = 24.0 * 30
_OPENED, _CLOSED = int(Effect.OPENED), int(Effect.CLOSED)
_MOST_MARKS = 1000
#: Seconds after which a start counts, and within which the events of one end follow each other.
_SETTLES, _TOGETHER = 30.0, 5.0

SeriesKey = tuple[object, ...]


@dataclass(slots=True)
class _Release:
    """A release that has not ended for good, and what has been counted for it so far."""

    meaning: HoldMeaning
    keys: tuple[SeriesKey, ...]
    counted: int | None = None
    at: Cut = BEFORE_ALL  # where that was counted


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
    exception: tuple[float, str] = (0.0, "")  # the time and the text of the last one
    facts: dict[str, object] = field(default_factory=dict)
    marks: set[tuple[Kind, float]] = field(default_factory=set)
    cluster: tuple[str, int] = ("", 0)


class History:
    """All that the logs show of holds; made from logs, or event by event as logs grow."""

    def __init__(self) -> None:
        self.unread: list[tuple[str, str]] = []
        self._numbers: dict[str, int] = {}
        self._places: dict[str, int] = {}
        self._moments: dict[str, float] = {}
        self._jobs: dict[JobId, _Job] = {}
        self._twins: dict[tuple[int, int, float], JobId] = {}
        self._alias: dict[JobId, JobId] = {}
        self._series: dict[SeriesKey, Series] = {}
        self._machines: dict[str, str] = {}  # the site of a machine, by its 001 events
        self._objects: dict[SeriesKey, str] = {}
        self._holds: dict[JobId, list[Hold]] = {}

    @classmethod
    def from_logs(
        cls, paths: Iterable[str | os.PathLike[str]], *, now: float | None = None
    ) -> History:
        """The history of these logs, their rotations, and the logs in these folders."""
        made = cls()
        now = clock.time() if now is None else now
        logs = read_hold_events(paths, made.unread)
        ordered = [made._with_moments(rows, now) for rows in logs if rows]
        collecting = gc.isenabled()
        gc.disable()  # all that is made here stays and has no cycles
        try:
            for at, event in merge(*ordered) if len(ordered) > 1 else itertools.chain(*ordered):
                made._take(event, at)
        finally:
            if collecting:
                gc.enable()
        return made

    def add(self, event: Event, log: str = "", *, now: float | None = None) -> None:
        """Add an event of a log that is followed."""
        place = self._places.get(log, -1) + 1
        self._places[log] = place
        row = hold_event(event, log, place)
        if row:
            now = clock.time() if now is None else now
            for at, _ in self._with_moments([row], now):
                self._take(row, at)

    def held(self) -> list[Hold]:
        """The holds of jobs that are held now, in the order in which they began."""
        holds = (job.hold for job in self._jobs.values() if job.hold)
        return sorted(holds, key=lambda hold: hold.at)

    def every_hold(self) -> Iterator[Hold]:
        """All holds of all jobs, including those that ended."""
        return itertools.chain.from_iterable(self._holds.values())

    def knows(self, cluster: int, proc: int | None = None) -> bool:
        """Whether the logs have this job, or any job of this cluster."""
        return any(
            job.cluster == cluster and (proc is None or job.proc == proc) for job in self._jobs
        )

    def total(self, key: SeriesKey, cut: Cut, since: float = float("-inf")) -> tuple[float, ...]:
        """The sums of a series before the cut; see `evidence` for the keys."""
        series = self._series.get(key)
        return series.total(cut, since) if series else (0.0,) * _WIDTH.get(key[0], 1)

    def last(self, key: SeriesKey, cut: Cut) -> float | None:
        """When something last happened before the cut."""
        series = self._series.get(key)
        return series.last(cut) if series else None

    def _with_moments(self, rows: list[HoldEvent], now: float) -> Iterator[tuple[Cut, HoldEvent]]:
        log = rows[0].log
        number = self._numbers.setdefault(log, len(self._numbers))
        moment = self._moments.get(log, 0.0)
        for event in rows:
            if moment < event.time <= now:
                moment = event.time
            yield Cut(moment, number, event.place), event
        self._moments[log] = moment
        self._places[log] = rows[-1].place

    @property
    def logs(self) -> list[str]:
        """The logs with events that count."""
        return list(self._numbers)

    def _take(self, event: HoldEvent, at: Cut) -> None:
        job = self._job(event, at)
        kind = event.kind
        if kind in _MARKED:
            mark = (kind, event.time)
            if mark in job.marks:
                return  # the log has this event twice
            if len(job.marks) >= _MOST_MARKS:
                job.marks.clear()
            job.marks.add(mark)
        if event.slot or event.site or event.user:
            self._place(job, event)
        if event.facts:
            job.facts.update(event.facts)
        if job.life.status in TERMINAL or kind is Kind.OTHER:
            return
        job.life, effect = step(job.life, kind)
        if effect:  # what it is costs more to ask
            flags = int(effect)
            if flags & _OPENED:
                self._opened(job, event)
            if flags & _CLOSED:
                self._closed(job, event)
        if job.hold and job.life.status is not Status.HELD:
            self._released(job, job.hold)
        if act := _ACTS.get(kind):
            act(self, job, event, at)
        if job.life.status in TERMINAL:
            job.marks.clear()  # nothing changes it any more

    def _job(self, event: HoldEvent, at: Cut) -> _Job:
        key = JobId(event.log, event.cluster, event.proc)
        if self._alias:
            key = self._alias.get(key, key)
        job = self._jobs.get(key)
        if event.kind is Kind.SUBMITTED:
            twin = self._twins.setdefault((event.cluster, event.proc, event.time), key)
            if twin != key:  # the same job in another log
                self._alias[key] = twin
                return self._jobs[twin]
            if job and job.submitted != event.time and job.life.status in TERMINAL:
                job = None  # the access point counts from 1 again
        if job is None:
            job = self._jobs[key] = _Job(key, cluster=key.batch)
            self._count(("jobs", *job.cluster), at)
        if event.kind is Kind.SUBMITTED:
            job.submitted = event.time
        return job

    def _place(self, job: _Job, event: HoldEvent) -> None:
        job.user = event.user or job.user
        job.slot = event.slot or job.slot
        machine = job.slot.rpartition("@")[2]
        if event.site and machine and len(self._machines) < 1_000_000:
            self._machines[machine] = event.site
        # A glidein's name is better than the machine's, whichever came first.
        job.site = event.site or self._machines.get(machine, "") or job.site or machine

    def _opened(self, job: _Job, event: HoldEvent) -> None:
        job.starts += 1
        job.begun, job.started = event.time, None
        if event.kind is not Kind.EXECUTING:
            job.site = job.slot = ""

    def _closed(self, job: _Job, event: HoldEvent) -> None:
        if job.begun is not None:
            job.last_cost = min(max(0.0, event.time - job.begun) / 3600, _LONGEST_ATTEMPT)
            job.spent += job.last_cost
        job.begun, job.closed = None, event.time

    def _on_executing(self, job: _Job, event: HoldEvent, at: Cut) -> None:
        if job.begun is not None:
            waited = min(max(0.0, event.time - job.begun) / 3600, _LONGEST_ATTEMPT)
            self._count(("start hours", *job.cluster), at, waited, 1)
        job.past += 1
        job.started = Cut(at.moment + _SETTLES, at.log, at.place)
        self._count_start(job, job.started, 1.0)
        if job.release and job.release.meaning.step in BEFORE_START:
            self._ended(job, SUCCESS, job.started)

    def _count_start(self, job: _Job, at: Cut, amount: float) -> None:
        if job.past == 1:
            self._count(("mates past start", *job.cluster), at, amount)
            self._count(("jobs past start",), at, amount)
        self._count(("past start", job.site), at, amount)
        self._count(("past start",), at, amount)

    def _on_exception(self, job: _Job, event: HoldEvent, at: Cut) -> None:
        job.exception = event.time, event.text

    def _on_held(self, job: _Job, event: HoldEvent, at: Cut) -> None:
        text = event.text
        if says_nothing(text) and event.time - job.exception[0] <= _TOGETHER:
            text = job.exception[1] or text
        parsed = parse(text)
        values = parsed.values
        meaning = find(event.code, event.subcode, parsed)
        if job.started and meaning.step in BEFORE_START and event.time - job.closed <= _TOGETHER:
            self._count_start(job, max(job.started, at), -1.0)
            job.past -= 1
        job.started = None
        machine = values.get("slot", "").rpartition("@")[2]
        said = values.get("site") or self._machines.get(machine, "") or machine
        job.holds += job.hold is None  # else it is held again before anybody released it
        hold = Hold(
            job.id, event.time, event.code, event.subcode, text, job.site or said,
            job.slot or values.get("slot", ""), parsed.template, values, job.holds, job.starts,
            job.user, dict(job.facts), job.past, job.last_cost, job.spent, at,
        )  # fmt: skip
        if job.release:
            # A hold on purpose says nothing about the release.
            same = job.release.meaning is meaning
            if same or meaning.kind != NEVER:
                got_past = job.release.counted == SUCCESS
                if same or not got_past:
                    self._ended(job, AGAIN, at)
            elif job.release.counted is None:
                self._ended(job, CENSORED, at)
            job.release = None
        if meaning.kind != NEVER:
            self._count_hold(job, hold, meaning, at)
        job.hold = hold
        self._holds.setdefault(job.id, []).append(hold)

    def _count_hold(self, job: _Job, hold: Hold, meaning: HoldMeaning, at: Cut) -> None:
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
            self._count(("hold hours", meaning.id, *job.cluster), at, job.last_cost, 1)

    def _released(self, job: _Job, hold: Hold) -> None:
        meaning = meaning_of(hold)
        if meaning.kind != NEVER:
            keys: tuple[SeriesKey, ...] = (
                ("releases", meaning.id),
                ("releases", meaning.id, hold.template),
                ("releases", meaning.id, hold.template, object_of(hold)),
                ("mates released", meaning.id, *job.cluster),
                ("own released", meaning.id, job.id),
            )
            job.release = _Release(meaning, keys)
        job.hold = None

    def _ended(self, job: _Job, outcome: int, at: Cut) -> None:
        """Count how a release ended; what was counted for it before is taken back."""
        release = job.release
        if release is None or release.counted == outcome:
            return
        for key in release.keys:
            self._count(key, at, *_ONE[outcome])
            if release.counted is not None:
                self._count(key, max(at, release.at), *(-n for n in _ONE[release.counted]))
        release.counted, release.at = outcome, at

    def _on_success(self, job: _Job, event: HoldEvent, at: Cut) -> None:
        self._ended(job, SUCCESS, at)
        self._count(("mates past end", *job.cluster), at)
        self._count(("jobs past end",), at)
        self._count(("past end", job.site), at)
        self._count(("past end",), at)
        job.release = None

    def _on_failure(self, job: _Job, event: HoldEvent, at: Cut) -> None:
        self._ended(job, FAILED, at)
        job.release = None

    def _on_removed(self, job: _Job, event: HoldEvent, at: Cut) -> None:
        if job.release and job.release.counted is None:
            self._ended(job, CENSORED, at)
        job.release = None

    def _count(self, key: SeriesKey, at: Cut, *amounts: float) -> None:
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = Series(_WIDTH.get(key[0], 1))
        series.add(at, amounts or (1.0,))


def object_of(hold: Hold) -> str:
    """What could not be moved or started: a URL, a path, or empty if the reason names none."""
    return hold.values.get("url") or hold.values.get("path") or ""


#: How many sums a series has, if not one: by outcome, or hours and their number.
_WIDTH: dict[object, int] = {
    "start hours": 2, "hold hours": 2, "releases": 4, "mates released": 4, "own released": 4
}  # fmt: skip
#: Events that change the state of a job, or are counted; they may be in the logs twice.
_MARKED = frozenset(
    {
        Kind.INPUT_QUEUED, Kind.INPUT_STARTED, Kind.EXECUTING, Kind.HELD, Kind.RELEASED,
        Kind.EVICTED, Kind.TRANSFER_FAILED, Kind.REQUEUED, Kind.SHADOW_EXCEPTION,
        Kind.RECONNECT_FAILED,
    }
)  # fmt: skip
_ACTS = {
    Kind.EXECUTING: History._on_executing,
    Kind.HELD: History._on_held,
    Kind.SHADOW_EXCEPTION: History._on_exception,
    Kind.SUCCEEDED: History._on_success,
    Kind.FAILED: History._on_failure,
    Kind.REMOVED: History._on_removed,
}
