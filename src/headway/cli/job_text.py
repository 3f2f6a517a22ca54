"""A job's state in words: what it is doing, since when, why, and what to do next."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from headway.api import Run
from headway.cli.terminal import print_table, printable
from headway.events import JobState, Outcome, Status
from headway.node.errors import Exit
from headway.spec import format_duration, format_size
from headway.text import RowWords

#: What a job can be for somebody who watches, in the order in which it deserves attention.
GROUPS = ("failed", "held", "running", "idle", "removed", "succeeded")
STYLES = {
    "failed": "red",
    "held": "yellow",
    "running": "cyan",
    "idle": "dim",
    "removed": "dim",
    "succeeded": "green",
}
_CODES = re.compile(r" \((?:code \d+, subcode \d+|Headway's own exit code 8\d)\)\Z")
_HELD_BY_USER = 1
_ENDS = {
    Outcome.SUCCESS: "succeeded",
    Outcome.FAILURE: "failed",
    Outcome.REMOVED: "removed",
}
_PLAIN = {Status.TRANSFERRING_IN: "transfer in", Status.TRANSFERRING_OUT: "transfer out"}


def group_of(state: JobState) -> str:
    """Which of GROUPS a job belongs to."""
    if state.outcome is not None:
        return _ENDS[state.outcome]
    if state.status in (Status.HELD, Status.IDLE):
        return str(state.status.value)
    return "running"


def state_word(state: JobState) -> str:
    """The state as the tables have it."""
    if group_of(state) != "running":
        return group_of(state)
    return _PLAIN.get(state.status) or str(state.status.value)


def elapsed(state: JobState, now: float) -> float | None:
    """Seconds since the job first ran, or since it was submitted if it never has."""
    begin = state.started if state.started is not None else state.submitted
    if begin is None:
        return None
    return max(0.0, (state.ended if state.ended is not None else now) - begin)


def elapsed_words(state: JobState, now: float) -> str:
    seconds = elapsed(state, now)
    return "" if seconds is None else format_duration(int(seconds))


def progress_words(state: JobState) -> str:
    """Bytes moved, of how many: `1.2 / 4 GB`."""
    if state.progress_bytes is None:
        return ""
    done = format_size(state.progress_bytes)
    if not state.progress_total:
        return done
    total = format_size(state.progress_total)
    if done.split()[1:] == total.split()[1:]:
        done = done.split()[0]
    return f"{done} / {total}"


def fetching_words(state: JobState) -> str:
    """The transfer under way: `fetching train.tar 41 %, 38 MB/s from 2 sources`.

    One that the command reads at the same time is `streaming`.
    """
    if not state.progress_file or state.progress_rate is None:
        return ""
    text = f"{'streaming' if state.phase == 'run' else 'fetching'} {state.progress_file}"
    if state.progress_file_size and state.progress_file_bytes is not None:
        text += f" {min(100, 100 * state.progress_file_bytes // state.progress_file_size)} %"
    text += f", {format_size(state.progress_rate)}/s"
    if state.progress_sources:
        text += f" from {state.progress_sources} source{'s' * (state.progress_sources > 1)}"
    return text


def count_words(counts: Mapping[str, int]) -> str:
    """`3 running, 2 idle`; nothing is said of what there is none of."""
    return ", ".join(f"{counts[group]:,} {group}" for group in GROUPS if counts.get(group))


def why(state: JobState) -> str:
    """The last word on a job, without repeating its state."""
    text = state.why
    for lead in ("held: ", "failed: ", "removed: ", "succeeded"):
        text = text.removeprefix(lead)
    return text


def short_why(state: JobState) -> str:
    """The same for a narrow column: the codes are for those who look closer."""
    return _CODES.sub("", why(state))


def next_step(label: str, state: JobState) -> str:
    """What one can do about a job that is held or has failed."""
    name = f"{label}.{state.proc}"
    if state.status is Status.HELD:
        return _held_step(name, state)
    if group_of(state) != "failed":
        return ""
    if state.failure in (Exit.COMMAND_FAILED, None):
        return f"see why: headway logs {name} --stderr"
    if state.failure is Exit.OUTPUT_MISSING:
        return f"see what it wrote: headway logs {name}; is the path in [[outputs]] right?"
    if state.failure is Exit.INPUT_FAILED:
        return f"are its url and checksum in job.toml right? more: headway logs {name} --agent"
    if state.failure is Exit.OUT_OF_TIME:
        return "raise time_limit, or let the command checkpoint ([checkpoint])"
    return f"see what the agent saw: headway logs {name} --agent"


def nobody_runs(label: str) -> str:
    """The local pool of a run has ended before its jobs."""
    return f"nobody runs these jobs now; go on with `headway run --resume {label}`"


def _held_step(name: str, state: JobState) -> str:
    if state.hold_code == _HELD_BY_USER:
        return f"let it go on: headway release {name}; more: headway advise {name}"
    return f"what to do about it: headway advise {name}"


# The table of jobs and their states.


_TITLES = ("job", "row", "state", "phase", "site", "progress", "elapsed", "attempts", "last word")


def print_states(
    states: Sequence[JobState],
    name: Callable[[JobState], str],
    now: float,
    *,
    row: Callable[[int, int], str] = lambda job, width: "",
) -> None:
    """One line a job; what no job has needs no column."""
    room = max(16, shutil.get_terminal_size().columns // 3)
    rows = [
        (
            name(state),
            row(state.proc, room),
            state_word(state),
            printable(state.phase),
            printable(state.site),
            progress_words(state),
            elapsed_words(state, now),
            str(state.attempts),
            printable(short_why(state) or fetching_words(state)),
        )
        for state in states
    ]
    keep = [place for place in range(len(_TITLES)) if any(row[place] for row in rows)]
    print_table(
        [_TITLES[place] for place in keep],
        [[row[place] for place in keep] for row in rows],
        [STYLES[group_of(state)] for state in states],
    )


# Jobs sorted by what they are doing; kept up to date from changes alone.


class JobGroups:
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


class RunJobs(JobGroups):
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
