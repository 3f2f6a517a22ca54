"""Jobs sorted by what they are doing; kept up to date from changes alone."""

from __future__ import annotations

from itertools import islice
from typing import Any

from headway.api import Run
from headway.cli.words import GROUPS, group_of
from headway.events import JobState
from headway.text import RowWords


class Groups:
    """What the views show: a change costs the same for one job and for a hundred thousand."""

    def __init__(self, size: int = 0) -> None:
        self.size = size
        self.groups: dict[str, dict[int, JobState]] = {group: {} for group in GROUPS}
        self._group: dict[int, str] = {}

    def put(self, key: int, state: JobState) -> None:
        """Put a job where it belongs now."""
        group = group_of(state)
        before = self._group.get(key)
        if before != group:
            if before is not None:
                del self.groups[before][key]
            self.groups[group][key] = state
            self._group[key] = group

    @property
    def counts(self) -> dict[str, int]:
        """How many jobs are in each group; those that the log does not know yet are idle."""
        counts = {group: len(jobs) for group, jobs in self.groups.items()}
        counts["idle"] += max(0, self.size - len(self._group))
        return counts

    @property
    def busy(self) -> bool:
        """Whether some job runs or waits to run."""
        counts = self.counts
        return counts["running"] + counts["idle"] > 0

    def first(self, room: int) -> list[JobState]:
        """The jobs most worth a line, at most `room` of them, in the order of GROUPS."""
        failed, held = self._newest("failed", room), self._newest("held", room)
        running = list(islice(self.groups["running"].values(), room))
        # One trouble must not push another out of sight, nor what runs, nor the other way round.
        attention = failed[: max(room // 2, room - len(held))]
        attention += held[: room - len(attention)]
        attention = attention[: max(room // 2, room - len(running))]
        shown = [*attention, *running[: room - len(attention)]]
        shown += islice(self.groups["idle"].values(), room - len(shown))
        for group in ("removed", "succeeded"):
            shown += self._newest(group, room - len(shown))
        order = {group: place for place, group in enumerate(GROUPS)}
        return sorted(shown, key=lambda job: (order[group_of(job)], job.cluster, job.proc))

    def _newest(self, group: str, most: int) -> list[JobState]:
        return list(islice(reversed(self.groups[group].values()), max(0, most)))


class Board(Groups):
    """The jobs of a run; `row` tells in words what a job's row of the table is."""

    def __init__(self, run: Run) -> None:
        super().__init__(run.folder.job.size)
        self.run = run
        self.label = run.label
        self.row = RowWords(run.folder.job.rows)
        self._cluster: int | None = None
        self._submitted = False  # or not known to be
        for state in run.jobs.values():
            self.take(state)
        run.saw = self.take

    @property
    def counts(self) -> dict[str, int]:
        """As of all groups; a run that was never submitted has no job that waits."""
        counts = super().counts
        if counts["idle"] and not self._submitted:
            self._submitted = self.run.submitted
        return counts if self._submitted else {**counts, "idle": len(self.groups["idle"])}

    def name(self, job: int) -> str:
        """A job with its row, in plain text: `scan-1.3 (lr=0.3)`."""
        row = self.row(job)
        return f"{self.label}.{job} ({row})" if row else f"{self.label}.{job}"

    def document(self, state: JobState) -> dict[str, Any]:
        """A job for programs."""
        rows = self.run.folder.job.rows
        row = dict(rows[state.proc]) if rows is not None and state.proc < len(rows) else None
        return {"job": state.proc, "row": row, **state.as_dict()}

    def take(self, state: JobState) -> None:
        """Take in what has become of a job."""
        if state.cluster != self._cluster:
            self._cluster = state.cluster
            self._group.clear()
            for jobs in self.groups.values():
                jobs.clear()
        self.put(state.proc, state)
