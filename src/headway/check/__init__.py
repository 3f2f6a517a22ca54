"""The checkpoint contract of a job, tested on this machine before it is submitted."""

from __future__ import annotations

import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from headway.check.bench import Bench
from headway.check.judge import TITLES, Checked, ContractJudge, Promise, differs
from headway.check.trials import Trials
from headway.errors import Problem, SpecError
from headway.pool.folder import Runs
from headway.spec import Job, load_job

__all__ = ["LIMIT", "TITLES", "Checked", "Promise", "check"]

LIMIT = 1800.0  # seconds, by default
_FORGOTTEN = 86400.0


def check(
    path: str | Path,
    *,
    extra: str = "",
    row: int = 0,
    overrides: Sequence[str] = (),
    resources: Sequence[str] = (),
    limit: float = LIMIT,
    quick: bool = False,
    say: Callable[[str], None] = lambda words: None,
    start: Path | None = None,
) -> Checked:
    """Run the command of a job.toml with and without interruptions, and compare the runs.

    All processes that it starts end with it.

    Args:
        path: The job.toml.
        extra: Arguments that make the command a small slice of itself.
        row: Which job of several.
        overrides: Settings of the job to change, as `--set` takes them.
        resources: Resources of the job to change.
        limit: Seconds after which it ends with the results so far.
        quick: Try evictions only.
        say: Called with each line that describes the progress.
        start: Where to look for the `.headway` folder; by default the current folder.

    Returns:
        Which promises of the checkpoint contract the job keeps, with the evidence.

    Raises:
        SpecError: The job.toml is wrong, or has no [checkpoint] to check.
    """
    path = Path(path)
    base = path.absolute().parent
    job = load_job(path, overrides=overrides, resources=resources)
    _refuse(job, path.name, row)
    job = sliced(job, extra)
    runs = Runs.here(start)
    runs.check_own()
    runs.root.mkdir(0o755, parents=True, exist_ok=True)
    _remove_forgotten(runs.root)
    root = Path(tempfile.mkdtemp(prefix="check-", dir=runs.root))
    begin = time.monotonic()
    try:
        bench = Bench(job, base, root, row, begin + limit)
        for line in _plan(job, extra, row, limit, quick, bench.notes):
            say(line)
        found = Trials(bench, say).run(differs, quick=quick)
        if found.over:
            bench.notes.append(
                "the time was over before everything was tried: see --limit and --slice"
            )
        judge = ContractJudge(bench.job, found)
        return Checked(
            tuple(judge.promises()),
            judge.compared(),
            tuple(bench.notes),
            bench.starts,
            time.monotonic() - begin,
        )
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _remove_forgotten(root: Path) -> None:
    """Remove the folders of checks that were killed long ago."""
    for left in root.glob("check-*"):
        if time.time() - left.stat().st_mtime > _FORGOTTEN:
            shutil.rmtree(left, ignore_errors=True)


def sliced(job: Job, extra: str) -> Job:
    """The job with further arguments for its command."""
    if not extra.strip():
        return job
    command = (f"{job.command[0]} {extra}",) if job.shell else (*job.command, *shlex.split(extra))
    return job.model_copy(update={"command": command})


def _refuse(job: Job, name: str, row: int) -> None:
    if job.checkpoint is None:
        remedy = 'add these lines, with what the command saves:\n\n[checkpoint]\npaths = ["ckpt"]'
        raise SpecError([Problem(name, "has no [checkpoint]: there is nothing to check", remedy)])
    if not 0 <= row < job.size:
        raise SpecError(
            [Problem(f"--row {row}", f"there are jobs 0 to {job.size - 1}", "choose one of them")]
        )


def _plan(
    job: Job, extra: str, row: int, limit: float, quick: bool, notes: Sequence[str]
) -> list[str]:
    """What the check is about to do."""
    which = f"job {row} of {job.size}" if job.size > 1 else job.name
    return [
        f"{which}: {shlex.join(job.command) if not job.shell else job.command[0]}",
        *([] if extra else ["the whole command: use --slice to give arguments that make it small"]),
        *notes,
        f"a whole run, then about {'twice' if quick else 'five times'} as long with interruptions;"
        f" at most {limit / 60:.0f} min",
    ]
