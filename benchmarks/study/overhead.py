"""What HTCondor costs a job on this pool, and what Headway adds, measured with empty jobs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.pool.harness import Pool

from headway.pool.policy import log_lines
from headway.report import report

JOBS = 10


@dataclass(frozen=True)
class Overhead:
    """Seconds of slot time of a job that does nothing; mean of JOBS.

    HTCondor waits a second before a job whose outputs nobody has `named`, as in the study: by the
    clock it tells new files from old ones.
    """

    stock: float
    named: float
    headway: float


def measure(pool: Pool) -> Overhead:
    """In turns, and the first of each does not count: what a pool does once is not a job's."""
    named = 'transfer_output_files = ""\n'
    for _ in ("once", "again"):
        taken = Overhead(_stock(pool), _stock(pool, named), _headway(pool))
    return taken


def _stock(pool: Pool, more: str = "") -> float:
    folder = pool.user_dir()
    (folder / "empty.sh").write_text("#!/bin/sh\n")
    (folder / "empty.sh").chmod(0o755)
    told = "".join(f"{key} = {value}\n" for key, value in log_lines().items())
    (folder / "job.sub").write_text(
        f"executable = empty.sh\nshould_transfer_files = YES\n{more}{told}"
        f"request_memory = 64 MB\nrequest_disk = 1 MB\nlog = events.log\nqueue {JOBS}\n"
    )
    pool.give(folder)
    pool.run_as_user(["condor_submit", "job.sub"], cwd=folder)
    done = pool.run_as_user(["condor_wait", "-wait", "120", "events.log"], cwd=folder, timeout=150)
    if done.returncode:
        raise RuntimeError("empty jobs did not end")
    return _slot_time(folder / "events.log")


def _headway(pool: Pool) -> float:
    folder = pool.user_dir()
    (folder / "job.toml").write_text(
        f'name = "empty"\ncommand = "true"\ncount = {JOBS}\n'
        '[resources]\nmemory = "64 MB"\ndisk = "10 MB"\n'
    )
    pool.give(folder)
    done = pool.headway(["run", "job.toml", "--pool", "htcondor"], cwd=folder, timeout=150)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return _slot_time(next(folder.glob(".headway/runs/*/events.log")))


def _slot_time(log: Path) -> float:
    totals = report(str(log)).totals
    if totals.succeeded != JOBS:
        raise RuntimeError(f"{totals.succeeded} of {JOBS} empty jobs succeeded")
    return totals.slot_s / JOBS
