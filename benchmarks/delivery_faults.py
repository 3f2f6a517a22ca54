"""Outputs that go home later and are too big or too many for the tests: 5 GB, and 10,000 files.

    python benchmarks/delivery_faults.py [--size GB] [--files N] [--several]

Builds the tests' pool (tests/pool/README.md) with one site that has a store and transfer slots. A
job writes one large file, another one many small files. Each leaves them in the store, and a
courier brings them home. What arrived is compared with what the same command writes here. With
--several, also for two jobs in a DAG. Prints how long each step took; exits with 1 if anything
differs, if there is a second copy, or if the sweeper leaves something in the store. Needs room for
three times the size on /tmp.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.pool.delivering import OVERDUE, Jobs, Site
from tests.pool.harness import Pool

from headway.events import Outcome
from headway.pool.arrivals import arrival

LIMIT = 1800.0  # seconds


def digest(folder: Path) -> str:
    """The sha256 of all files below a folder, by their names."""
    whole = hashlib.sha256()
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        whole.update(f"{path.relative_to(folder)}\n".encode())
        with path.open("rb") as file:
            while piece := file.read(1 << 20):
                whole.update(piece)
    return whole.hexdigest()


def expected(pool: Pool, command: str) -> str:
    """The digest of what the command writes here."""
    folder = pool.user_dir()
    environment = {"PATH": "/usr/bin:/bin", "HEADWAY_JOB": "0", "HEADWAY_ATTEMPT": "x"}
    subprocess.run(["/bin/sh", "-c", command], cwd=folder, env=environment, check=True)
    found = digest(folder)
    subprocess.run(["rm", "-rf", str(folder)], check=True)
    return found


def try_it(site: Site, name: str, command: str, count: int, disk: str) -> list[str]:
    """Run the jobs and deliver what they made; what is wrong, in words."""
    right, begin = expected(site.pool, command), time.monotonic()
    jobs = Jobs(site, count, command=command, disk=disk)
    for job in range(count):
        jobs.wait(lambda state: bool(state.sandbox) or state.terminal, job, LIMIT)
    left = time.monotonic() - begin
    jobs.settle(LIMIT)
    home, wrong = time.monotonic() - begin, []
    for job in range(count):
        folder, state = jobs.run.folder.job_folder(job), jobs.run.jobs[job]
        if state.outcome is not Outcome.SUCCESS or not state.sandbox:
            wrong.append(f"job {job}: {state.status}, {state.why}")
        elif digest(folder / "outputs") != right:
            wrong.append(f"job {job}: what arrived is not what it made")
        elif list((folder / "attempts").rglob("out.bin*")):
            wrong.append(f"job {job}: there is a second copy")
        begin = time.monotonic()
        wrong += [fault for fault in [arrival(jobs.run.folder.path, job)] if fault]
    seconds = f"left in the store after {left:.0f} s, home after {home:.0f} s"
    print(f"{name}, {count} at once: {seconds}; {'; '.join(wrong) or 'right'}", flush=True)
    subprocess.run(["rm", "-rf", str(jobs.place.folder)], check=True)
    site.is_empty(OVERDUE)
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=float, default=5.0, help="of the large file, in GB")
    parser.add_argument("--files", type=int, default=10_000, help="how many small files")
    parser.add_argument("--several", action="store_true", help="also two jobs in a DAG")
    arguments = parser.parse_args()
    size = int(arguments.size * 10**9)
    many = (
        f"mkdir out.bin && cd out.bin && yes 0123456789abcdef | head -c {arguments.files * 2000}"
        " | split -a 4 -b 2000 -d - f"
    )
    cases = {
        f"{arguments.files} files": (many, "200 MB"),
        f"one file of {arguments.size:g} GB": (
            f"yes 0123456789abcdef | head -c {size} > out.bin",
            f"{size // 10**6 + 100} MB",
        ),
    }
    pool, wrong = Pool(), []
    try:
        pool.start()
        site = Site(pool, "LARGE")
        for name, (command, disk) in cases.items():
            for count in (1, 2) if arguments.several else (1,):
                wrong += try_it(site, name, command, count, disk)
    finally:
        pool.stop()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
