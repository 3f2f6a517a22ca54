"""The summary of a run: counts, why jobs failed and where to look, and where the results are."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headway.api import Run, Submission, newest_of
from headway.cli.job_text import STYLES, RunJobs, count_words, group_of, next_step, why
from headway.cli.logs import record_of
from headway.cli.terminal import near, paint, print_json, print_stderr, print_table
from headway.events import JobState
from headway.pool.folder import RunFolder
from headway.pool.results import BUSY, KEPT, MISSING, WAITS, Result, Results, read_kept
from headway.spec import format_duration
from headway.text import RowWords, many, printable

MOST = 10  # failed or held jobs that get their own lines
TAIL = 15  # lines of stderr for a single failure
MOST_RESULTS = 20  # jobs that get a line of their own
_STYLES = {KEPT: "green", BUSY: "cyan", WAITS: "yellow", MISSING: "red"}


def print_missing(found: Results, planned: Submission, *, as_json: bool, dry: bool) -> None:
    """Print which results are kept and which jobs run, before anything is submitted."""
    if as_json:
        if not dry or not found.of(MISSING):
            print_json({"type": "only-missing", **missing_document(found)})
        return
    print_stderr(f"{planned.job.name} has {many(len(found.results), 'job')}: {found.words()}")
    for note in found.notes:
        print_stderr(printable(note))
    if dry:
        _print_jobs(found.of(MISSING), "would run")
    _print_jobs(found.of(WAITS), "is not run again")
    for label in sorted({each.run for each in found.of(WAITS)}):
        print_stderr(
            f"go on with {label}: headway run --resume {label}, or headway release {label};"
            f" to give its jobs up: headway remove {label}"
        )
    if not found.of(MISSING):
        rest = "the jobs without outputs are in the queue of another run"
        done = rest if found.of(BUSY, WAITS) else "all jobs have their outputs"
        label = newest_of(found, planned.runs).label
        print(f"nothing to run: {done}; `headway status {label} --results` shows where")


def missing_document(found: Results) -> dict[str, Any]:
    """What `--only-missing --json` prints."""
    states = {"kept": KEPT, "busy": BUSY, "waits": WAITS, "run": MISSING}
    lists = {name: [each.as_dict() for each in found.of(state)] for name, state in states.items()}
    return {"jobs": len(found.results), **lists, "notes": list(found.notes)}


def print_kept(run: Run) -> None:
    """Print where the other results of a run with --only-missing are."""
    counts = Counter(each.run for each in read_kept(run.folder))
    if counts:
        words = ", ".join(f"{count:,} from {label}" for label, count in sorted(counts.items()))
        print(f"kept: {printable(words)}; `headway status {run.label} --results` shows all results")


def print_results(folder: RunFolder, found: Sequence[Result], *, as_json: bool) -> None:
    """Print where each job's outputs are, a line for each job."""
    if as_json:
        print_json({"run": folder.label, "results": [each.as_dict() for each in found]})
        return
    row = RowWords([each.row for each in found])
    lines = []
    for place, each in enumerate(found):
        state, where = each.state, each.why
        if state == KEPT:
            places = (one.where for one in each.outputs)
            shown = (where if "://" in where else near(Path(where)) for where in places)
            state, where = "succeeded", ", ".join(shown)
        lines.append((each.name, row(place), state, printable(where or each.why)))
    print_table(("job", "row", "state", "outputs"), lines, [_STYLES[each.state] for each in found])


def _print_jobs(chosen: Sequence[Result], what: str) -> None:
    row = RowWords([each.row for each in chosen])
    for place, each in enumerate(chosen[:MOST_RESULTS]):
        words = f" ({row(place)})" if row(place) else ""
        print_stderr(f"  job {each.row['job']}{words} {what}: {printable(each.why)}")
    if len(chosen) > MOST_RESULTS:
        print_stderr(f"  … and {len(chosen) - MOST_RESULTS:,} more; --json has all")


def print_ending(run: Run, run_jobs: RunJobs) -> None:
    """What `headway run` prints at the end."""
    counts = run_jobs.counts
    took = format_duration(int(seconds_of(run)))
    word = "finished" if run.settled() else "left"
    print(f"{paint(run.label, 'bold')} {word} after {took}: {count_words(counts)}")
    print_trouble(run, run_jobs)
    if counts["succeeded"]:
        print(f"results: {results_words(run)}")
    print_kept(run)


def seconds_of(run: Run) -> float:
    """How long a run has taken: until now, or until its last job ended or was held for good."""
    last = time.time()
    if run.settled():
        ends = (state.ended or state.since or 0.0 for state in run.jobs.values())
        last = min(last, max(ends, default=last) + 1.0)  # the log rounds times down
    return max(0.0, last - run.folder.facts.created)


def print_trouble(run: Run, run_jobs: RunJobs) -> None:
    """Failed and held jobs: why, where their stderr is, and what to do next."""
    troubled = [*run_jobs.groups["failed"].values(), *run_jobs.groups["held"].values()]
    for state in sorted(troubled, key=lambda state: state.proc)[:MOST]:
        group = group_of(state)
        name = run_jobs.name(state.proc)
        print(f"  {paint(f'{name} {group}', STYLES[group])}: {printable(cause(run, state))}")
        stderr = run.stream(state.proc, "stderr") if group == "failed" else None
        if stderr is not None:
            print(f"    its stderr: {near(stderr)}")
        if step := next_step(run.label, state):
            print(f"    {step}")
        if stderr is not None and len(troubled) == 1:
            _print_tail(stderr)
    if len(troubled) > MOST:
        more = len(troubled) - MOST
        print(f"  … and {more:,} more; `headway status {run.label}` shows all of them")


def cause(run: Run, state: JobState) -> str:
    """Why a job failed or is held: the agent's own words where they are here, else the log's."""
    record = record_of(run, state.proc) if group_of(state) == "failed" else {}
    if record.get("exit") == state.return_value and record.get("reason"):
        return str(record["reason"])
    return why(state)


def results_words(run: Run) -> str:
    """Where the outputs of the run are."""
    job = run.folder.job
    if not job.outputs:
        return f"no [[outputs]] are declared; what job 0 printed: headway logs {run.label}.0"
    sent = sorted({output.to for output in job.outputs if output.to})
    if all(output.to for output in job.outputs):
        return ", ".join(sent[:3])
    if job.size == 1:
        return near(run.outputs(0))
    return f"{near(run.folder.jobs)}/JOB/outputs"


def summary(run: Run, run_jobs: RunJobs) -> dict[str, Any]:
    """The same for programs."""
    counts, groups, damaged = run_jobs.counts, run_jobs.groups, run.damaged()
    return {
        "type": "end",
        "run": run.label,
        "jobs": run_jobs.size,
        "counts": counts,
        "succeeded": counts["succeeded"] == run_jobs.size and not damaged,
        "seconds": round(seconds_of(run), 3),
        "results": str(run.folder.jobs),
        "failed": [_trouble(run_jobs, state) for state in groups["failed"].values()],
        "held": [_trouble(run_jobs, state) for state in groups["held"].values()],
        "damaged": [{"job": job, "why": fault} for job, fault in damaged.items()],
    }


def _trouble(run_jobs: RunJobs, state: JobState) -> dict[str, Any]:
    """A failed or held job for programs."""
    run = run_jobs.run
    stderr = run.stream(state.proc, "stderr")
    return {
        "job": state.proc,
        "row": run_jobs.document(state)["row"],
        "why": cause(run, state),
        "next": next_step(run.label, state),
        "stderr": str(stderr) if stderr else None,
    }


def _print_tail(path: Path) -> None:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 64 * 1024))
        lines = file.read().decode("utf-8", "replace").splitlines()
    bar = paint("│", "dim")
    for line in lines[-TAIL:]:
        print(f"    {bar} {printable(line)}")
