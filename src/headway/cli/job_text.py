"""A job's state in words: what it is doing, since when, why, and what to do next."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, compress, islice
from typing import Any

from headway.api import Run
from headway.cli.terminal import amount, moment, print_table
from headway.events import JobState, Outcome, Status
from headway.node.errors import Exit
from headway.pool.deliveries import DeliveryLines, delivery_seconds, upload_rate
from headway.spec import format_duration, format_size
from headway.text import RowWords, many, ordinal, printable

#: The groups of jobs, those that need attention first.
GROUPS = ("failed", "held", "running", "delivering", "idle", "removed", "succeeded")
STYLES = {
    "failed": "red",
    "held": "yellow",
    "running": "cyan",
    "delivering": "magenta",
    "idle": "dim",
    "removed": "dim",
    "succeeded": "green",
}
_CODES = re.compile(r" \((?:code \d+, subcode \d+|Headway's own exit code 8\d)\)\Z")
_HELD_BY_USER = 1
_COMPUTED = "computed; "  # a hand-over, which the words for a delivery say more of
_ENDS = {Outcome.SUCCESS: "succeeded", Outcome.FAILURE: "failed", Outcome.REMOVED: "removed"}
_AFTER_FAILURE: dict[Exit | None, str] = {
    None: "see why: headway logs {} --stderr",
    Exit.COMMAND_FAILED: "see why: headway logs {} --stderr",
    Exit.OUTPUT_MISSING: "see what it wrote: headway logs {}; is the path in [[outputs]] right?",
    Exit.INPUT_FAILED: "check its url and checksum in job.toml; more: headway logs {} --agent",
    Exit.OUT_OF_TIME: "raise time_limit, or let the command checkpoint ([checkpoint])",
}
_PLAIN = {Status.TRANSFERRING_IN: "transfer in", Status.TRANSFERRING_OUT: "transfer out"}


def group_of(state: JobState) -> str:
    """Which of GROUPS a job belongs to."""
    if state.outcome is not None:
        return _ENDS[state.outcome]
    if state.status in (Status.HELD, Status.IDLE, Status.DELIVERING):
        return str(state.status.value)
    return "running"


def state_word(state: JobState) -> str:
    """The state as the tables have it."""
    if group_of(state) != "running":
        return group_of(state)
    return _PLAIN.get(state.status) or str(state.status.value)


def elapsed_words(state: JobState, now: float) -> str:
    """The time since the job first ran, or since it was submitted if it never has.

    It ends when the command has: the outputs may take longer to come home.
    """
    begin = state.started if state.started is not None else state.submitted
    end = state.computed if state.computed is not None else now
    return "" if begin is None else format_duration(int(max(0.0, end - begin)))


def progress_words(state: JobState) -> str:
    """Bytes moved, of how many: `1.2 / 4 GB`."""
    if state.progress_bytes is None:
        return ""
    return amount(state.progress_bytes, state.progress_total)


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
        text += f" from {many(state.progress_sources, 'source')}"
    return text


def stored_at(state: JobState) -> str:
    """Where a job's outputs wait: the site, or the node where no site is known."""
    return printable(state.sandbox_site or state.sandbox_at) or "a node"


def stored_bytes(state: JobState) -> str:
    """How much waits there, in words."""
    return "its outputs" if state.sandbox_bytes is None else format_size(state.sandbox_bytes)


def delivery_words(state: JobState, lines: DeliveryLines, now: float) -> str:
    """Where a job's outputs are and what they wait for: `20 MB at NODE-A, 2nd in line`.

    HTCondor tells nothing of its own transfer while it goes on; then it is what couriers reached
    before.
    """
    if not state.stored:
        return ""
    size, site = stored_bytes(state), stored_at(state)
    if place := lines.place(state):
        return f"{size} at {site}, {ordinal(place)} in line"
    if state.courier_since is None:
        return f"{size} wait at {site}"
    text = f"{size} from {site}, courier since {moment(state.courier_since, now)}"
    if rate := upload_rate(state):
        return f"{text}, sends {printable(state.progress_file)} at {format_size(int(rate))}/s"
    if before := lines.rate(state.sandbox_at):
        text += f", earlier ones came at {format_size(int(before))}/s"
    return text


def delivered_words(state: JobState) -> str:
    """How outputs came home that had waited in a store: `20 MB from NODE-A in 17 s, 1.2 MB/s`."""
    if state.delivered is None:
        return ""
    text, seconds = f"{stored_bytes(state)} from {stored_at(state)}", delivery_seconds(state)
    if seconds is None:
        return text
    text += f" in {format_duration(round(seconds))}"
    size = state.sandbox_bytes
    return text if size is None else f"{text}, {format_size(round(size / seconds))}/s"


def count_words(counts: Mapping[str, int]) -> str:
    """`3 running, 2 idle`, without empty groups."""
    return ", ".join(f"{counts[group]:,} {group}" for group in GROUPS if counts.get(group))


def why(state: JobState) -> str:
    """The last thing that the log says of a job, without repeating its state."""
    text = state.why
    for lead in ("held: ", "failed: ", "removed: ", "succeeded"):
        text = text.removeprefix(lead)
    return text


def short_why(state: JobState) -> str:
    """The same without the codes, for a narrow column."""
    return _CODES.sub("", why(state))


def next_step(label: str, state: JobState) -> str:
    """What to do about a job that is held or has failed; empty for other jobs."""
    text = ""
    if state.stored and state.status is Status.HELD:
        text = "to let a courier bring its outputs: headway deliveries --retry {}"
    elif state.undelivered:
        text = "its outputs were computed and did not come home: headway deliveries {}"
    elif state.status is Status.HELD and state.hold_code == _HELD_BY_USER:
        text = "to let it run again: headway release {}; more: headway advise {}"
    elif state.status is Status.HELD:
        text = "what to do about it: headway advise {}"
    elif group_of(state) == "failed":
        text = _AFTER_FAILURE.get(
            state.failure, "see what the agent logged: headway logs {} --agent"
        )
    return text.replace("{}", f"{label}.{state.proc}")


def nobody_runs(label: str) -> str:
    """The local pool of a run has ended before its jobs."""
    return f"nobody runs these jobs now; go on with `headway run --resume {label}`"


COLUMNS = ("job", "row", "state", "phase", "site", "progress", "elapsed", "attempts", "message")


def job_cells(state: JobState, name: str, row: str, now: float, lines: DeliveryLines) -> list[str]:
    """The cells of COLUMNS for one job; `lines`: the outputs that wait with its own."""
    return [
        name,
        row,
        state_word(state),
        printable(phase_word(state)),
        printable(state.site or (state.sandbox_site if state.stored else "")),
        progress_words(state),
        elapsed_words(state, now),
        str(state.attempts or ""),
        message(state, lines, now),
    ]


def phase_word(state: JobState) -> str:
    """The agent's phase; a courier's is not done before HTCondor has brought the outputs."""
    return "deliver" if state.stored and state.phase == "done" else state.phase


def message(state: JobState, lines: DeliveryLines, now: float) -> str:
    """The last thing that people should know of a job, for a narrow column."""
    words, told = delivery_words(state, lines, now), printable(short_why(state))
    if not words:
        return told or printable(fetching_words(state))
    if not told or told.startswith(_COMPUTED):
        return words
    return f"{told}; {words}" if state.status is Status.HELD else f"{words}; {told}"


def print_states(
    states: Sequence[JobState],
    name: Callable[[JobState], str],
    now: float,
    lines: DeliveryLines,
    *,
    row: Callable[[int, int], str] = lambda job, width: "",
) -> None:
    """Print a table of jobs, without the columns that are empty for all of them."""
    room = max(16, shutil.get_terminal_size().columns // 3)
    rows = [job_cells(state, name(state), row(state.proc, room), now, lines) for state in states]
    used = [any(row[n] for row in rows) for n in range(len(COLUMNS))]
    print_table(
        list(compress(COLUMNS, used)),
        [list(compress(row, used)) for row in rows],
        [STYLES[group_of(state)] for state in states],
    )


class JobGroups:
    """Jobs by what they are doing; a change costs the same for one job and for 100,000."""

    def __init__(self, size: int = 0) -> None:
        self.size = size
        self.groups: dict[str, dict[int, JobState]] = {group: {} for group in GROUPS}
        self.lines = DeliveryLines()
        self._group: dict[int, str] = {}

    def put(self, key: int, state: JobState) -> None:
        """Put a job where it belongs now."""
        group = group_of(state)
        self.lines.take(key, state)
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
        """Whether some job runs, waits to run, or has outputs that are to come home."""
        counts = self.counts
        return counts["running"] + counts["delivering"] + counts["idle"] > 0

    def first(self, room: int) -> list[JobState]:
        """The jobs most worth a line, at most `room` of them, in the order of GROUPS."""
        failed, held = self._newest("failed", room), self._newest("held", room)
        under_way = chain(self.groups["running"].values(), self.groups["delivering"].values())
        running = list(islice(under_way, room))
        # Failed, held and running jobs must not push one another out of sight.
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
    """The jobs of a run; `row` gives a job's row of the table in words."""

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
        """As for all groups; a run that was never submitted has no idle jobs."""
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
        told = {"job": state.proc, "row": row, **state.as_dict()}
        if state.stored:
            rate, before = upload_rate(state), self.lines.rate(state.sandbox_at)
            told["in_line"] = self.lines.place(state) or None
            told["rate"] = None if rate is None else round(rate)
            told["rate_before"] = None if before is None else round(before)
        return told

    def take(self, state: JobState) -> None:
        """Take in a job's new state."""
        if state.cluster != self._cluster:
            self._cluster = state.cluster
            self._group.clear()
            self.lines = DeliveryLines()
            for jobs in self.groups.values():
                jobs.clear()
        self.put(state.proc, state)
