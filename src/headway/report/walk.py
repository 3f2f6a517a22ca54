"""The walk: the events sorted by job, and the life of each job after each of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from headway.events.columns import Columns, Longs
from headway.events.event import EventType
from headway.events.kind import AGENT_KINDS, Kind
from headway.events.life import Life
from headway.report.codes import OVER, PHASE, STATUS
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
    ) -> None:
        self.rows, self.first, self.job = found.rows, found.first, found.job
        self.last = np.append(self.first[1:], len(self.rows)) - 1
        if not len(self.first):
            self.last = self.first
        self.kind = columns.kind[self.rows].copy()
        self._distrust(columns)
        self._check_outputs(columns, outputs)
        self.time = self._forward(columns.time[self.rows])
        newest = int(self.time.max(initial=0))
        self.until = newest if until is None else max(newest, int(until * 1e6))
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
        #: An output came home and the command, which never stopped, may go on.
        self.saved = np.array([life.saved and not _ended(life) for life in lives], bool)[place]
        self.status = np.array([STATUS[life.status] for life in lives], np.uint8)[place]
        self.length = self._lengths()

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

    def _distrust(self, columns: Columns) -> None:
        """Only the first nonce after a 001 is the agent's; others are the command's own words."""
        agent = np.isin(self.kind, [int(kind) for kind in AGENT_KINDS])
        agent |= (columns.number[self.rows] == EventType.GENERIC) & (self.kind == Kind.ALIVE)
        if not agent.any():
            return
        nonce = columns.text[self.rows]
        begins = np.isin(self.kind, [Kind.EXECUTING, Kind.INPUT_QUEUED, Kind.INPUT_STARTED])
        places = np.flatnonzero(agent | begins)
        told = (self.job, begins, nonce, self.kind)
        seen = job = trusted = -1
        for at, *values in zip(
            places.tolist(), *(each[places].tolist() for each in told), strict=True
        ):
            job, begin, name, kind = values
            if job != seen or begin:
                seen, trusted = job, -1
            if begin:
                continue
            trusted = name if trusted < 0 else trusted
            if name != trusted:
                self.kind[at] = Kind.OTHER
            elif kind == Kind.DONE_CHECKPOINT:
                trusted = -1  # HTCondor saves the checkpoint and starts a new agent

    def _check_outputs(self, columns: Columns, outputs: Mapping[tuple[int, int], bool]) -> None:
        missing = {key for key, there in outputs.items() if not there}
        if not missing:
            return
        for at in np.flatnonzero(self.kind == Kind.SUCCEEDED):
            row = self.rows[at]
            if (int(columns.cluster[row]), int(columns.proc[row])) in missing:
                self.kind[at] = Kind.FAILED


def _ended(life: Life) -> bool:
    """The agent is done, and must be started again before anything goes on."""
    return life.stage in (Kind.DONE, Kind.DONE_CHECKPOINT)
