"""A job's state in words: what it is doing, since when, why, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Mapping

from headway.events import JobState, Outcome, Status
from headway.node.exits import Exit
from headway.spec import format_duration, format_size

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
