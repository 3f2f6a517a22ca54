"""The walk: the events sorted by job, and the life of each job after each of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from headway.events.columnar.columns import Columns, Longs
from headway.events.event import EventType
from headway.events.kind import AGENT_KINDS, Kind
from headway.events.life import Effect
from headway.report.codes import OVER, PHASE, STATUS, Flags
from headway.report.lives import Lives
from headway.report.strand import Strands


class Walk:
    """The events sorted by job, and the life of each job after each of them."""

    def __init__(
        self,
        columns: Columns,
        found: Strands,
        outputs: Mapping[tuple[int, int], bool],
        until: float | None,
        ends: Longs | None = None,
    ) -> None:
        """Walk through all jobs.

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
        self._check_outputs(columns, outputs)
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
        self.attempt = self._attempts()
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
        walker = Lives()
        cells = walker.walk(self.kind, self.first)
        lives = walker.met
        place = cells >> 8
        self.effect = (cells & 0xFF).astype(np.uint8)
        self.phase = np.array(
            [OVER if life.phase is None else PHASE[life.phase] for life in lives], np.uint8
        )[place]
        self.open = np.array([life.open for life in lives], bool)[place]
        self.executed = np.array([life.executed for life in lives], bool)[place]
        #: An output came home, which may have been a checkpoint.
        self.saved = np.array([life.saved for life in lives], bool)[place]
        #: The agent is done, and must be started again before anything goes on.
        self.stopped = np.array([life.stage in _STOPPED for life in lives], bool)[place]
        self.status = np.array([STATUS[life.status] for life in lives], np.uint8)[place]

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

    def _attempts(self) -> Longs:
        """After each event the newest attempt of its job, open or not; -1 before the first."""
        opened = (self.effect & Effect.OPENED) > 0
        count = np.cumsum(opened)
        of_others: Longs = (count[self.first] - opened[self.first])[self.job]
        return np.where(count > of_others, count - 1, -1)

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
        told = (at, line[at], begins[at], self.open[at], nonce, self.kind[at])
        trusted, foreign = -1, []
        for place, is_line, begin, is_open, name, kind in zip(
            *(each.tolist() for each in told), strict=True
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
        for at in np.flatnonzero(self.kind == Kind.SUCCEEDED):
            row = self.rows[at]
            if (int(columns.cluster[row]), int(columns.proc[row])) in missing:
                self.kind[at] = Kind.FAILED


def last_events(columns: Columns) -> Longs:
    """The time of the last event of each log."""
    found = np.zeros(int(columns.log.max(initial=-1)) + 1, np.int64)
    if len(columns):
        # A log's rows lie together, so that there are few stretches.
        starts = np.flatnonzero(np.append(True, columns.log[1:] != columns.log[:-1]))
        np.maximum.at(found, columns.log[starts], np.maximum.reduceat(columns.time, starts))
    return found


_STOPPED = (Kind.DONE, Kind.DONE_CHECKPOINT)
