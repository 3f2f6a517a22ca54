"""What became of a run: counts, why jobs failed and where to look, and where the results are."""

from __future__ import annotations

import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

from headway.api import Run
from headway.cli.board import Board
from headway.cli.results import print_kept
from headway.cli.show import near, paint, printable
from headway.cli.stream import record_of
from headway.cli.words import STYLES, count_words, group_of, next_step, why
from headway.events import JobState
from headway.spec import format_duration

MOST = 10  # jobs that get their own lines
TAIL = 15  # lines of stderr for a single failure


def print_ending(run: Run, board: Board) -> None:
    """The last words of `headway run`."""
    counts = board.counts
    took = format_duration(int(seconds_of(run)))
    word = "finished" if run.settled() else "left"
    print(f"{paint(run.label, 'bold')} {word} after {took}: {count_words(counts)}")
    print_trouble(run, board)
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


def print_trouble(run: Run, board: Board) -> None:
    """Failed and held jobs: why, where their stderr is, and what to do next."""
    troubled = [*board.groups["failed"].values(), *board.groups["held"].values()]
    for state in sorted(troubled, key=lambda state: state.proc)[:MOST]:
        group = group_of(state)
        name = board.name(state.proc)
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


def summary(run: Run, board: Board) -> dict[str, Any]:
    """The same for programs."""
    return {
        "type": "end",
        "run": run.label,
        "jobs": board.size,
        "counts": board.counts,
        "succeeded": board.counts["succeeded"] == board.size,
        "seconds": round(seconds_of(run), 3),
        "results": str(run.folder.jobs),
        "failed": [trouble(board, state) for state in board.groups["failed"].values()],
        "held": [trouble(board, state) for state in board.groups["held"].values()],
    }


def trouble(board: Board, state: JobState) -> dict[str, Any]:
    """A failed or held job for programs."""
    run = board.run
    stderr = run.stream(state.proc, "stderr")
    return {
        "job": state.proc,
        "row": board.document(state)["row"],
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
