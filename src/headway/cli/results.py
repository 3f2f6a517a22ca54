"""Results in words: what `--only-missing` keeps and runs, and where the outputs of a run are."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.show import near, paint, print_json, print_table, printable
from headway.pool.results import BUSY, KEPT, MISSING, WAITS, Result, Survey, read_kept
from headway.text import RowWords, many

if TYPE_CHECKING:
    from headway.api import Run
    from headway.pool.folder import RunFolder, Runs
    from headway.spec import Job

MOST = 20  # jobs that get a line of their own
_STYLES = {KEPT: "green", BUSY: "cyan", WAITS: "yellow", MISSING: "red"}


def tell(found: Survey, job: Job, runs: Runs, *, as_json: bool, dry: bool) -> None:
    """Say what is kept and what is run, before anything is submitted."""
    from headway.api import newest_of

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
    for place, each in enumerate(chosen[:MOST]):
        name = f"job {each.row['job']}"
        row = f" ({words(place)})" if words(place) else ""
        line = f"  {paint(f'{name}{row} {what}', 'bold', sys.stderr)}: {printable(each.why)}"
        print(line, file=sys.stderr)
    if len(chosen) > MOST:
        print(f"  … and {len(chosen) - MOST:,} more; --json has all", file=sys.stderr)


def _short(where: str) -> str:
    return where if "://" in where else near(Path(where))
