"""What became of a run: counts, why jobs failed and where to look, and where the results are."""

from __future__ import annotations

import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.api import Run, newest_of
from headway.cli.job_text import STYLES, RunJobs, count_words, group_of, next_step, why
from headway.cli.logs import record_of
from headway.cli.terminal import near, paint, print_json, print_table, printable
from headway.events import JobState
from headway.pool.results import BUSY, KEPT, MISSING, WAITS, Result, Survey, read_kept
from headway.spec import Job, format_duration
from headway.text import RowWords, many

if TYPE_CHECKING:
    from headway.pool.folder import RunFolder, Runs


# Results in words: what `--only-missing` keeps and runs, and where the outputs of a run are.


MOST_RESULTS = 20  # jobs that get a line of their own
_STYLES = {KEPT: "green", BUSY: "cyan", WAITS: "yellow", MISSING: "red"}


def tell_missing(found: Survey, job: Job, runs: Runs, *, as_json: bool, dry: bool) -> None:
    """Say what is kept and what is run, before anything is submitted."""

    if as_json:
        if not dry or not found.of(MISSING):
            print_json({"type": "only-missing", **document(found)})
        return
    print(f"{job.name} has {many(job.size, 'job')}: {found.words()}", file=sys.stderr)
    for note in found.notes:
        print(printable(note), file=sys.stderr)
    if dry:
        _print_jobs(found.of(MISSING), "would run")
    _print_jobs(found.of(WAITS), "is not run again")
    for label in sorted({each.run for each in found.of(WAITS)}):
        print(
            f"go on with {label}: headway run --resume {label}, or headway release {label};"
            f" to give its jobs up: headway remove {label}",
            file=sys.stderr,
        )
    if not found.of(MISSING):
        rest = "what has no outputs yet is in the queue of another run"
        done = rest if found.of(BUSY, WAITS) else "all jobs have their outputs"
        label = newest_of(found, runs).label
        print(f"nothing to run: {done}; `headway status {label} --results` shows where")


def document(found: Survey) -> dict[str, Any]:
    """The same for programs."""
    states = {"kept": KEPT, "busy": BUSY, "waits": WAITS, "run": MISSING}
    lists = {name: [each.as_dict() for each in found.of(state)] for name, state in states.items()}
    return {"jobs": len(found.results), **lists, "notes": list(found.notes)}


def print_kept(run: Run) -> None:
    """Of a run of only the missing jobs: where the other results are."""
    counts = Counter(each.run for each in read_kept(run.folder))
    if counts:
        words = ", ".join(f"{count:,} from {label}" for label, count in sorted(counts.items()))
        print(f"kept: {printable(words)}; `headway status {run.label} --results` shows all results")


def print_results(folder: RunFolder, found: Sequence[Result], *, as_json: bool) -> None:
    """Where each job's outputs are, one line a job."""
    if as_json:
        print_json({"run": folder.label, "results": [each.as_dict() for each in found]})
        return
    words = RowWords([each.row for each in found])
    lines = []
    for place, each in enumerate(found):
        where = ", ".join(_short(one.where) for one in each.outputs) if each.state == KEPT else ""
        lines.append(
            (each.name, words(place), "succeeded" if each.state == KEPT else each.state,
             printable(where or each.why))
        )  # fmt: skip
    print_table(("job", "row", "state", "outputs"), lines, [_STYLES[each.state] for each in found])


def _print_jobs(chosen: Sequence[Result], what: str) -> None:
    words = RowWords([each.row for each in chosen])
    for place, each in enumerate(chosen[:MOST_RESULTS]):
        name = f"job {each.row['job']}"
        row = f" ({words(place)})" if words(place) else ""
        line = f"  {paint(f'{name}{row} {what}', 'bold', sys.stderr)}: {printable(each.why)}"
        print(line, file=sys.stderr)
    if len(chosen) > MOST_RESULTS:
        print(f"  … and {len(chosen) - MOST_RESULTS:,} more; --json has all", file=sys.stderr)


def _short(where: str) -> str:
    return where if "://" in where else near(Path(where))


MOST = 10  # jobs that get their own lines
TAIL = 15  # lines of stderr for a single failure


def print_ending(run: Run, run_jobs: RunJobs) -> None:
    """The last words of `headway run`."""
    counts = run_jobs.counts
    took = format_duration(int(seconds_of(run)))
    word = "finished" if run.settled() else "left"
    print(f"{paint(run.label, 'bold')} {word} after {took}: {count_words(counts)}")
    print_trouble(run, run_jobs)
    if counts["succeeded"]:
        print(f"results: {results_words(run)}")
    print_kept(run)


def seconds_of(run: Run) -> float:
    """How long a run has taken: until now or, if nothing more happens by itself, until the last."""
    last = time.time()
    if run.settled():
        moments = (state.ended or state.since or 0.0 for state in run.jobs.values())
        last = min(last, max(moments, default=last) + 1.0)  # the log rounds times down
    return max(0.0, last - run.folder.facts.created)


def print_trouble(run: Run, run_jobs: RunJobs) -> None:
    """Failed and held jobs: why, where their stderr is, and what to do next."""
    troubled = [*run_jobs.groups["failed"].values(), *run_jobs.groups["held"].values()]
    for state in sorted(troubled, key=lambda state: state.proc)[:MOST]:
        group = group_of(state)
        name = run_jobs.name(state.proc)
        print(f"  {paint(f'{name} {group}', STYLES[group])}: {printable(cause(run, state))}")
        stderr = run.stream(state.proc, "stderr")
        if stderr is not None and group == "failed":
            print(f"    its stderr: {near(stderr)}")
        step = next_step(run.label, state)
        if step:
            print(f"    {step}")
        if stderr is not None and group == "failed" and len(troubled) == 1:
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
    """Where what came home is."""
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
    return {
        "type": "end",
        "run": run.label,
        "jobs": run_jobs.size,
        "counts": run_jobs.counts,
        "succeeded": run_jobs.counts["succeeded"] == run_jobs.size,
        "seconds": round(seconds_of(run), 3),
        "results": str(run.folder.jobs),
        "failed": [trouble(run_jobs, state) for state in run_jobs.groups["failed"].values()],
        "held": [trouble(run_jobs, state) for state in run_jobs.groups["held"].values()],
    }


def trouble(run_jobs: RunJobs, state: JobState) -> dict[str, Any]:
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
    lines: deque[str] = deque(maxlen=TAIL)
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 64 * 1024))
        lines.extend(file.read().decode("utf-8", "replace").splitlines())
    bar = paint("│", "dim", sys.stdout)
    for line in lines:
        print(f"    {bar} {printable(line)}")
