"""What the local pool adds to a job: many jobs of /bin/true, against a budget and two peers.

    python benchmarks/local_overhead.py [--jobs N] [--workers N] [--budget MILLISECONDS]

Runs `headway run` as a user would, then as many /bin/true under `xargs -P` and in a
ProcessPoolExecutor, all with the same number of workers. Neither peer keeps a record, a log or a
folder of its own a job. Prints wall-clock and CPU time a job; exits with 1 when the wall clock is
over the budget.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
BUDGET = 80.0  # milliseconds of wall clock a job, on two cores
TRUE = "/bin/true"
_SET_CHILD_SUBREAPER = 36
JOB = """\
name = "true"
command = "{command}"
count = {jobs}
[resources]
memory = "10 MB"
disk = "1 MB"
"""


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure what the local pool adds to a job.")
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--workers", type=int, default=2, help="jobs at a time")
    parser.add_argument("--budget", type=float, default=BUDGET, help="milliseconds")
    arguments = parser.parse_args()
    jobs, workers = arguments.jobs, arguments.workers
    wall, cpu = _cost(lambda: _headway(jobs, workers), jobs)
    _print("headway", wall, cpu)
    peers: dict[str, Callable[[], None]] = {
        f"xargs -P{workers}": lambda: _xargs(jobs, workers),
        "ProcessPoolExecutor": lambda: _executor(jobs, workers),
    }
    for name, peer in peers.items():
        peer_wall, peer_cpu = _cost(peer, jobs)
        ratios = f"   headway: {wall / peer_wall:.1f} × wall, {cpu / peer_cpu:.1f} × CPU"
        _print(name, peer_wall, peer_cpu, ratios)
    cores, load = os.cpu_count(), os.getloadavg()[0]
    print(f"{jobs} jobs, {workers} at a time, {cores} cores, load {load:.1f};", end=" ")
    print(f"budget {arguments.budget:.0f} ms of wall clock a job")
    if wall > arguments.budget:
        print("over the budget")
        return 1
    return 0


def _cost(work: Callable[[], None], jobs: int) -> tuple[float, float]:
    """Milliseconds a job: of the wall clock, and of CPU in all processes below this one."""
    adopt_orphans()
    begin, used = time.perf_counter(), cpu_of_ended()
    work()
    wall = time.perf_counter() - begin
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    return 1000 * wall / jobs, 1000 * (cpu_of_ended() - used) / jobs


def adopt_orphans() -> None:
    """Headway's supervisor outlives `headway run` by a moment; its CPU time is to be counted."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def cpu_of_ended() -> float:
    """CPU seconds of the processes below this one that have ended and were waited for."""
    below = resource.getrusage(resource.RUSAGE_CHILDREN)
    return below.ru_utime + below.ru_stime


def _headway(jobs: int, workers: int) -> None:
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "headway", "run", "job.toml", "--json"]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "job.toml").write_text(JOB.format(command=TRUE, jobs=jobs))
        done = subprocess.run(
            [*command, "--pool", f"local:cpus={workers}"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    last = json.loads(done.stdout.splitlines()[-1])
    if last["type"] != "end" or last["counts"]["succeeded"] != jobs:
        raise SystemExit(f"not all jobs succeeded: {last}")


def _xargs(jobs: int, workers: int) -> None:
    lines = "x\n" * jobs
    subprocess.run(["xargs", f"-P{workers}", "-n1", TRUE], input=lines, text=True, check=True)


def _executor(jobs: int, workers: int) -> None:
    with ProcessPoolExecutor(workers) as executor:
        for done in executor.map(_call, [TRUE] * jobs):
            if done != 0:
                raise SystemExit(f"{TRUE} exited with {done}")


def _call(command: str) -> int:
    return subprocess.run([command], check=False).returncode


def _print(name: str, wall: float, cpu: float, more: str = "") -> None:
    print(f"{name:<20} {wall:7.2f} ms wall {cpu:7.2f} ms CPU a job{more}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
