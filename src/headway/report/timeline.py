"""The timeline of each job: its events in order, and what the time between them was spent with."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.events import Event, EventParser, JobState, Skip, read_columns
from headway.events.columnar.columns import Columns, Longs
from headway.events.event import AGENT_KINDS, COMPUTING_KINDS, Kind, Phase, Status
from headway.events.format import EventType
from headway.events.life import Effect, Life, step
from headway.events.opening import EVENT_LIMIT
from headway.report.enums import Cause, JobOutcome, Worth

Flags = NDArray[np.bool_]
Codes = NDArray[np.uint8]

#: The number that stands for each word of the report in an array.
PHASE = {phase: number for number, phase in enumerate(Phase)}
STATUS = {status: number for number, status in enumerate(Status)}
VERDICT = {verdict: number for number, verdict in enumerate(Worth)}
CAUSE = {cause: number for number, cause in enumerate(Cause)}
OUTCOME = {outcome: number for number, outcome in enumerate(JobOutcome)}

#: The phase of a job that has ended.
OVER = len(Phase)

_SECOND = 1_000_000  # in the unit of times, microseconds
_NEVER = -(2**62)
#: Ids whose events are taken out of the columns together.
_AT_ONCE = 5_000


@dataclass(frozen=True)
class JobEvents:
    """Rows sorted by job and, within a job, by order; `first` is where each job begins."""

    rows: Longs
    first: Longs

    @property
    def job(self) -> Longs:
        """The job of each sorted row."""
        lengths = np.diff(np.append(self.first, len(self.rows)))
        return np.repeat(np.arange(len(self.first)), lengths)


def group_by_job(columns: Columns) -> JobEvents:
    """The events of each job together.

    A job is known by its cluster, proc and the time of its 000: access points count clusters from 1
    each, so two logs can name different jobs alike, and a job can be in two logs, its own and the
    pool's, where it must count once. A log that begins in the middle of a job has no 000: it goes
    on with the newest job of that name by then which another log in its folder began, or which
    tells one of the same events.
    """
    about_jobs = (columns.proc >= 0) & (columns.cluster >= 0) & (columns.number < 100)
    rows, key = _by_id(columns, np.flatnonzero(about_jobs))
    log = columns.log[rows]
    same = key[1:] == key[:-1]
    again = (columns.kind[rows] == Kind.SUBMITTED)[1:] & same
    mixed = (log[1:] != log[:-1]) & same
    starts = np.append(True, ~same) if len(rows) else np.zeros(0, bool)
    if again.any() or mixed.any():
        rows, starts = _split_jobs(columns, rows, starts, again | mixed)
    return JobEvents(rows, np.flatnonzero(starts))


def _by_id(columns: Columns, rows: Longs) -> tuple[Longs, Longs]:
    """The rows sorted by cluster and proc, and a number that stands for both."""
    key = _key(columns, rows)
    if int(key.max(initial=0)) < 2**32:
        # NumPy sorts 16 bits in one pass: so first by the lower ones, and then by the upper ones.
        order = np.argsort(key.astype(np.uint16), kind="stable")
        order = order[np.argsort((key >> 16).astype(np.uint16)[order], kind="stable")]
    else:
        order = np.argsort(key, kind="stable")
    return rows[order], key[order]


def _key(columns: Columns, rows: Longs) -> Longs:
    cluster, proc = columns.cluster[rows], columns.proc[rows]
    cluster -= int(cluster.min(initial=2**62))  # a copy
    procs = int(proc.max(initial=0)) + 1
    if int(cluster.max(initial=0)) < 2**62 // procs:
        return cluster * procs + proc
    _, found = np.unique(np.stack([cluster, proc]), axis=1, return_inverse=True)
    return np.asarray(found, np.int64).reshape(-1)


class _Event(NamedTuple):
    """What tells jobs of the same name apart."""

    row: int
    time: int
    number: int
    kind: int
    text: int
    log: int

    @property
    def second(self) -> int:
        return self.time // _SECOND


def _split_jobs(
    columns: Columns, rows: Longs, starts: NDArray[np.bool_], odd: NDArray[np.bool_]
) -> tuple[Longs, NDArray[np.bool_]]:
    """Sorts out the ids that have more than one 000 or come from more than one log."""
    first = np.flatnonzero(starts)
    ends = np.append(first[1:], len(rows))
    which = np.unique(np.searchsorted(first, np.flatnonzero(odd) + 1, side="right") - 1)
    folders = [os.path.dirname(log) for log in columns.logs]
    pieces, marks, done = [], [], 0
    for place, events in zip(which, _events(columns, rows, first, ends, which), strict=True):
        begin, end = first[place], ends[place]
        pieces.append(rows[done:begin])
        marks.append(starts[done:begin])
        for job in _jobs(events, folders):
            mark = np.zeros(len(job), bool)
            mark[0] = True
            pieces.append(np.array(job, np.int64))
            marks.append(mark)
        done = end
    pieces.append(rows[done:])
    marks.append(starts[done:])
    return np.concatenate(pieces), np.concatenate(marks)


def _events(
    columns: Columns, rows: Longs, first: Longs, ends: Longs, which: Longs
) -> Iterator[list[_Event]]:
    """The events of each of these ids, taken out of the columns some thousand ids at a time."""
    for begin in range(0, len(which), _AT_ONCE):
        some = which[begin : begin + _AT_ONCE]
        mine = np.concatenate([rows[first[place] : ends[place]] for place in some])
        values = (columns.time, columns.number, columns.kind, columns.text, columns.log)
        found = list(
            map(_Event._make, zip(mine.tolist(), *(v[mine].tolist() for v in values), strict=True))
        )
        at = 0
        for size in (ends[some] - first[some]).tolist():
            yield found[at : at + size]
            at += size


def _jobs(events: list[_Event], folders: Sequence[str]) -> list[list[int]]:
    """The jobs among the events of one cluster and proc, as rows."""
    logs: dict[int, list[_Event]] = {}
    for event in events:
        logs.setdefault(event.log, []).append(event)
    parts: list[tuple[int | None, list[_Event]]] = []  # submit second, events
    for mine in logs.values():
        now: tuple[int | None, list[_Event]] | None = None
        for event in mine:
            if event.kind == Kind.SUBMITTED:
                if now is None or now[0] != event.second:
                    now = (event.second, [])
                    parts.append(now)
            elif now is None:
                now = (None, [])
                parts.append(now)
            now[1].append(event)
    jobs: dict[tuple[int, str], list[list[_Event]]] = {}  # without a submit second: the folder
    for submitted, part in sorted(parts, key=lambda p: (p[0] is None, p[0] or 0)):
        key = (submitted, "") if submitted is not None else _home(part, jobs, folders)
        jobs.setdefault(key, []).append(part)
    return [_merged(parts) for parts in jobs.values()]


def _home(
    part: list[_Event], jobs: dict[tuple[int, str], list[list[_Event]]], folders: Sequence[str]
) -> tuple[int, str]:
    """The job that events without a 000 are of."""
    begin, folder = part[0].second, folders[part[0].log]
    known = {(event.number, event.second) for event in part}
    for key in sorted((key for key in jobs if _NEVER < key[0] <= begin), reverse=True):
        for other in jobs[key]:
            near = folders[other[0].log] == folder
            if near or any((event.number, event.second) in known for event in other):
                return key
    return _NEVER, folder


def _merged(parts: list[list[_Event]]) -> list[int]:
    """The rows of one job from several logs; what two logs both tell counts once."""
    if len(parts) == 1:
        return [event.row for event in parts[0]]
    kept: list[_Event] = []
    counts: dict[tuple[int, ...], int] = {}
    for part in parts:
        mine: dict[tuple[int, ...], int] = {}
        for event in part:
            key = (event.number, event.second, event.kind, event.text)
            mine[key] = mine.get(key, 0) + 1
            if mine[key] > counts.get(key, 0):
                counts[key] = mine[key]
                kept.append(event)
    return [event.row for event in sorted(kept, key=lambda event: event.time)]


_KINDS = 64
_EFFECTS = 256
#: With fewer jobs left than this, one after the other is quicker.
_FEW = 32
_UNKNOWN = -1


class StateTable:
    """The automaton of `events.life` for many jobs at once: a step made once is looked up."""

    def __init__(self) -> None:
        #: The states that were met; a cell is a place in it times 256 plus the step's effect.
        self.met: list[Life] = [Life()]
        self._places = {self.met[0]: 0}
        self._table = np.full(64 * _KINDS, _UNKNOWN, np.int64)

    def cells(self, kinds: Codes, first: Longs) -> Longs:
        """The cell after each event; the events of a job lie together, and begin at `first`.

        Takes the first event of all jobs, then the second, and so on.
        """
        cells = np.empty(len(kinds), np.int64)
        lengths = np.diff(np.append(first, len(kinds)))
        order = np.argsort(-lengths, kind="stable")
        begin = first[order]
        longer = len(first) - np.searchsorted(
            np.sort(lengths), np.arange(1, lengths.max(initial=0) + 1)
        )
        place = np.zeros(len(first), np.int64)
        for number, jobs in enumerate(longer.tolist()):
            if jobs < _FEW:
                for job in range(jobs):
                    rest = slice(begin[job] + number, begin[job] + lengths[order[job]])
                    cells[rest] = self._one_job(int(place[job]), kinds[rest].tobytes())
                break
            at = begin[:jobs] + number
            found = self._look_up(place[:jobs] * _KINDS + kinds[at])
            cells[at] = found
            place[:jobs] = found // _EFFECTS
        return cells

    def _look_up(self, keys: Longs) -> Longs:
        found = self._table[keys]
        missing = found == _UNKNOWN
        if missing.any():
            for key in np.unique(keys[missing]).tolist():
                self._step(key)
            found = self._table[keys]
        return found

    def _one_job(self, place: int, kinds: bytes) -> list[int]:
        known: dict[int, int] = {}
        found = []
        for kind in kinds:
            key = place * _KINDS + kind
            cell = known.get(key)
            if cell is None:
                cell = int(self._table[key])
                if cell == _UNKNOWN:
                    cell = self._step(key)
                known[key] = cell
            found.append(cell)
            place = cell // _EFFECTS
        return found

    def _step(self, key: int) -> int:
        after, effect = step(self.met[key // _KINDS], Kind(key % _KINDS))
        place = self._places.setdefault(after, len(self.met))
        if place == len(self.met):
            self.met.append(after)
            if len(self.met) * _KINDS > len(self._table):
                more = np.full(len(self._table), _UNKNOWN, np.int64)
                self._table = np.append(self._table, more)
        cell = place * _EFFECTS + int(effect)
        self._table[key] = cell
        return cell


_STOPPED = (Kind.DONE, Kind.DONE_CHECKPOINT)
_COURIERS = (Kind.DELIVER, Kind.LOST, Kind.PREFETCH)
_COMPUTES = [int(kind) for kind in COMPUTING_KINDS]


class Spans(NamedTuple):
    """Attempts: the event that opens each, and the one that ends it or is of another."""

    opened: Longs
    end: Longs
    ended: Flags  # by its end event
    overtaken: Flags  # another attempt of the job begins first

    def only(self, chosen: Flags) -> Spans:
        """Those that are chosen."""
        return Spans(
            self.opened[chosen], self.end[chosen], self.ended[chosen], self.overtaken[chosen]
        )


class Timeline:
    """The events sorted by job, and the life of each job after each of them."""

    def __init__(
        self,
        columns: Columns,
        found: JobEvents,
        outputs: Mapping[tuple[int, int], bool],
        until: float | None,
        ends: Longs | None = None,
    ) -> None:
        """Work out the state of all jobs after each of their events.

        Args:
            columns: The events.
            found: The events of each job together.
            outputs: Of jobs by cluster and proc, whether their declared outputs are there.
            until: When jobs that go on were still there; None: nobody knows.
            ends: The time of the last event of each log; None: it is in the columns.
        """
        self.rows, self.first, self.job = found.rows, found.first, found.job
        self.last = np.append(self.first[1:], len(self.rows)) - 1
        if not len(self.first):
            self.last = self.first
        #: As far as they can be trusted, and while the job was not over: else `Kind.OTHER`.
        self.kind = columns.kind[self.rows].copy()
        self.time = self._forward(columns.time[self.rows])
        #: Per job as far as is known of it, where it is not over.
        self.until = self._until(columns, until, last_events(columns) if ends is None else ends)
        self._live()
        if self._distrust(columns):
            self._live()
        #: Per job the event that ended it, or -1.
        self.ended = self.first_of(self.phase == OVER)
        late = np.arange(len(self.rows)) > self.ended[self.job]
        self.kind[late & (self.ended[self.job] >= 0)] = Kind.OTHER
        self._check_outputs(columns, outputs)
        #: Attempts that compute, those that bring outputs home from a node's store, and which of
        #: the former left their outputs there.
        self.spans, self.couriers, self.handed = self._attempts()
        self.length = self._lengths()

    def _until(self, columns: Columns, until: float | None, ends: Longs) -> Longs:
        """The last event of the log that a job is in, of the longest where it is in several.

        What comes after it nobody knows, unless `until` says that the job is still there.
        """
        if not len(self.first):
            return self.first
        found = np.maximum.reduceat(ends[columns.log[self.rows]], self.first)
        return found if until is None else np.maximum(found, int(until * 1e6))

    def _live(self) -> None:
        """The life of each job after each of its events, and what the event did."""
        table = StateTable()
        cells = table.cells(self.kind, self.first)
        lives = table.met
        place = cells >> 8
        self.effect = (cells & 0xFF).astype(np.uint8)
        self.phase = _phases(lives)[place]
        #: Whether outputs of any job were left in a node's store, or its inputs brought to one.
        self.delivers = any(life.left or life.ahead or life.stage is Kind.LOST for life in lives)
        if self.delivers:
            #: The outputs wait in a node's store, or a courier is on its way.
            self.left = np.array([life.left for life in lives], bool)[place]
            #: The phase as if they did not.
            self.plain = _phases([life._replace(left=False) for life in lives])[place]
        self.open = np.array([life.open for life in lives], bool)[place]
        self.executed = np.array([life.executed for life in lives], bool)[place]
        #: An output came home, which may have been a checkpoint.
        self.saved = np.array([life.saved for life in lives], bool)[place]
        #: The agent is done, and must be started again before anything goes on.
        self.stopped = np.array([life.stage in _STOPPED for life in lives], bool)[place]
        self.status = np.array([STATUS[life.shown] for life in lives], np.uint8)[place]

    def first_of(self, flags: Flags) -> Longs:
        """Per job the first event with this flag, or -1."""
        found = np.full(len(self.first), -1, np.int64)
        at = np.flatnonzero(flags)[::-1]
        found[self.job[at]] = at
        return found

    def last_of(self, flags: Flags) -> Longs:
        """Per job the last event with this flag, or -1."""
        found = np.full(len(self.first), -1, np.int64)
        at = np.flatnonzero(flags)
        found[self.job[at]] = at
        return found

    def _attempts(self) -> tuple[Spans, Spans, Flags]:
        """Tells attempts that compute from couriers, whose time is all delivery.

        After each event `attempt` is the newest attempt of its job, open or not, if it computes,
        and `courier`, where there are any, if it is a courier; else they are -1.
        """
        spans, newest = self._spans(), self._newest()
        if not self.delivers:
            self.attempt = newest
            none = np.zeros(len(spans.opened), bool)
            return spans, spans.only(none), none
        courier = _are_couriers(self, spans)
        place = np.append(np.where(courier, np.cumsum(courier), np.cumsum(~courier)) - 1, -1)
        mine = np.append(courier, False)[newest]  # -1: no attempt yet
        self.attempt = np.where(mine, -1, place[newest])
        self.courier = np.where(mine, place[newest], -1)
        self.phase = np.where(self.open, self.plain, self.phase)
        self.phase[self.open & mine] = PHASE[Phase.DELIVERY]
        ahead = any_between(self.kind == Kind.PREFETCH, spans)  # these bring inputs
        self.phase[self.open & np.append(ahead, False)[newest]] = PHASE[Phase.PREFETCH]
        self.effect[mine] &= np.uint8(0xFF - Effect.SAVED)
        job = self.job[spans.opened]
        after = np.minimum(spans.end, len(self.rows) - 1)
        handed = (spans.ended | spans.overtaken) & self.left[after] & (self.phase[after] != OVER)
        # The log may have lost the agent's line, but not that a courier came.
        brings = courier & ~ahead
        handed |= np.append(brings[1:] & (job[1:] == job[:-1]), False)
        return spans.only(~courier), spans.only(courier), handed[~courier]

    def _newest(self) -> Longs:
        opened = (self.effect & Effect.OPENED) > 0
        count = np.cumsum(opened)
        of_others: Longs = (count[self.first] - opened[self.first])[self.job]
        return np.where(count > of_others, count - 1, -1)

    def _spans(self) -> Spans:
        """All attempts."""
        opened = np.flatnonzero(self.effect & Effect.OPENED)
        closed = np.flatnonzero(self.effect & Effect.CLOSED)
        job, never = self.job[opened], len(self.rows)
        # An attempt ends with the first end at or after its begin, unless another begins before.
        limit = np.minimum(np.append(opened[1:], never), self.last[job] + 1)
        close = np.append(closed, never)[np.searchsorted(closed, opened)]
        ended = close < limit
        overtaken = ~ended & np.append(job[1:] == job[:-1], False)
        return Spans(opened, np.where(ended, close, limit), ended, overtaken)

    def _forward(self, time: Longs) -> Longs:
        """Within a job time never goes back: a clock that did is waited for."""
        back = np.flatnonzero((time[1:] < time[:-1]) & (self.job[1:] == self.job[:-1]))
        if len(back):
            time = time.copy()
            for job in np.unique(self.job[back]):
                part = slice(self.first[job], self.last[job] + 1)
                time[part] = np.maximum.accumulate(time[part])
        return time

    def _lengths(self) -> Longs:
        following = np.append(self.time[1:], 0)
        following[self.last] = self.until
        length = following - self.time
        length[self.phase == OVER] = 0
        return length

    def _distrust(self, columns: Columns) -> bool:
        """Only the first nonce after a 001 is the agent's; others are the command's own words.

        Says whether there were any. No such line begins or ends an attempt, so that the attempts
        are already known.
        """
        line = np.isin(self.kind, [int(kind) for kind in AGENT_KINDS])
        line |= (columns.number[self.rows] == EventType.GENERIC) & (self.kind == Kind.ALIVE)
        if not line.any():
            return False
        begins = (self.effect & Effect.OPENED > 0) | (self.kind == Kind.EXECUTING)
        at = np.flatnonzero(line | begins)
        nonce = columns.text[self.rows[at]]
        lines = (at, line[at], begins[at], self.open[at], nonce, self.kind[at])
        trusted, foreign = -1, []
        for place, is_line, begin, is_open, name, kind in zip(
            *(each.tolist() for each in lines), strict=True
        ):
            if begin:
                trusted = -1
            if not is_line:
                continue
            if not is_open or trusted not in (-1, name):
                foreign.append(place)
            else:
                # HTCondor saves a checkpoint and starts a new agent.
                trusted = -1 if kind == Kind.DONE_CHECKPOINT else name
        self.kind[foreign] = Kind.OTHER
        return bool(foreign)

    def _check_outputs(self, columns: Columns, outputs: Mapping[tuple[int, int], bool]) -> None:
        missing = {key for key, there in outputs.items() if not there}
        if not missing:
            return
        over = self.ended[self.ended >= 0]
        for at in over[self.kind[over] == Kind.SUCCEEDED]:
            row = self.rows[at]
            if (int(columns.cluster[row]), int(columns.proc[row])) in missing:
                self.kind[at] = Kind.FAILED


def _phases(lives: Sequence[Life]) -> Codes:
    return np.array([OVER if life.phase is None else PHASE[life.phase] for life in lives], np.uint8)


def _are_couriers(timeline: Timeline, spans: Spans) -> Flags:
    """Which attempts are couriers: those that say so, and those that begin while outputs wait in a
    store and never say that they compute."""
    says = any_between(np.isin(timeline.kind, _COURIERS), spans)
    computes = any_between(np.isin(timeline.kind, _COMPUTES), spans)
    return np.asarray(says | (timeline.left[spans.opened] & ~computes))


def any_between(flags: Flags, spans: Spans) -> Flags:
    """Whether a flag is set anywhere in each attempt, without the event that ends it."""
    total = np.append(0, np.cumsum(flags))
    return np.asarray(total[np.maximum(spans.end, spans.opened)] > total[spans.opened])


def last_events(columns: Columns) -> Longs:
    """The time of the last event of each log."""
    found = np.zeros(int(columns.log.max(initial=-1)) + 1, np.int64)
    if len(columns):
        # A log's rows lie together, so that there are few stretches.
        starts = np.flatnonzero(np.append(True, columns.log[1:] != columns.log[:-1]))
        np.maximum.at(found, columns.log[starts], np.maximum.reduceat(columns.time, starts))
    return found


_SUCCESS = (Kind.SUCCEEDED, Kind.SKIPPED)
_MOST = EVENT_LIMIT + 4096  # bytes of one event, with its header and end mark


@dataclass(frozen=True)
class LogSummary:
    """How many jobs are in each state, and a few of them in full."""

    counts: dict[str, int]
    jobs: list[JobState]
    last: float
    skipped: list[tuple[str, Skip]]


def summarize(paths: Sequence[str], most: int) -> LogSummary:
    """How many jobs are in each state, and the states of the first and last `most` of each.

    For logs too big to look at event by event: only the events of the jobs that are shown are read
    again, from where they lie in their files.
    """
    columns = read_columns(paths)
    found = group_by_job(columns)
    timeline = Timeline(columns, found, {}, None)
    groups = _groups(timeline)
    ends = np.append(found.first[1:], len(found.rows))
    shown: list[Longs] = []
    for members in groups.values():
        # Of what needs attention the newest are shown, of what goes on the first.
        chosen = np.unique(np.concatenate([members[:most], members[-most:]]))
        shown += [found.rows[found.first[job] : ends[job]] for job in chosen.tolist()]
    return LogSummary(
        counts={group: len(members) for group, members in groups.items()},
        jobs=list(_states(columns, shown)),
        last=int(columns.time.max(initial=0)) / 1e6,
        skipped=columns.skipped,
    )


def _groups(timeline: Timeline) -> dict[str, NDArray[np.int64]]:
    """The jobs of each group that a status knows, in the order of the log."""
    if not len(timeline.first):
        return {}
    status = timeline.status[timeline.last]
    over = np.flatnonzero(timeline.status == STATUS[Status.COMPLETED])
    ended = np.full(len(timeline.first), -1, np.int64)
    ended[timeline.job[over][::-1]] = over[::-1]  # the first event after which it was over
    good = np.isin(timeline.kind[ended], _SUCCESS) & (ended >= 0)
    done = status == STATUS[Status.COMPLETED]
    plain = {
        "held": status == STATUS[Status.HELD],
        "idle": status == STATUS[Status.IDLE],
        "delivering": status == STATUS[Status.DELIVERING],
        "removed": status == STATUS[Status.REMOVED],
        "succeeded": done & good,
        "failed": done & ~good,
    }
    rest = ~np.logical_or.reduce(list(plain.values()))
    return {name: np.flatnonzero(flags) for name, flags in {**plain, "running": rest}.items()}


def _states(columns: Columns, jobs: Sequence[Longs]) -> Iterator[JobState]:
    events = _read_events(columns, np.concatenate(jobs) if jobs else np.zeros(0, np.int64))
    for rows in jobs:
        first = rows[0]
        state = JobState(int(columns.cluster[first]), int(columns.proc[first]))
        for row in rows.tolist():
            if row in events:
                state.update(events[row])
        yield state


def _read_events(columns: Columns, rows: Longs) -> dict[int, Event]:
    """These events, read where they lie; their times are those of the columns, year and all."""
    found: dict[int, Event] = {}
    for place in np.unique(columns.file[rows]).tolist():
        mine = rows[columns.file[rows] == place]
        starts = np.sort(columns.offset[columns.file == place])
        with open(columns.files[place], "rb") as file:
            for row in mine[np.argsort(columns.offset[mine])].tolist():
                begin = int(columns.offset[row])
                after = int(np.searchsorted(starts, begin, side="right"))
                size = int(starts[after]) - begin if after < len(starts) else _MOST
                file.seek(begin)
                for event in _first(file.read(min(size, _MOST))):
                    found[row] = replace(event, time=int(columns.time[row]) / 1e6)
    return found


def _first(data: bytes) -> Iterable[Event]:
    return EventParser().feed(data + b"\n")[:1]
