"""The pool of benchmarks/stageout.py, the jobs on it, and what their event log says of them."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.pool.harness import Pool

from headway.cli.wrap import write_plugin
from headway.events import Event, EventType, Follower, read_log
from headway.events.format import Direction, Stage
from headway.events.state import Pairs
from headway.pool.htcondor.node_config import NodeSettings, node_config

HERE = Path(__file__).parent
RATE = 1_000_000  # bytes per second of each connection on the way home
TRANSFER_SLOTS = 4
LOG = "events.log"
COMPUTING, TRANSFERRING, PREPARING = "computing", "transferring", "preparing"

# What the tests' pool makes quick (tests/pool/conf/base.conf); empty, each has HTCondor's default.
_INTERVALS = """\
NEGOTIATOR_INTERVAL NEGOTIATOR_MIN_INTERVAL NEGOTIATOR_CYCLE_DELAY SCHEDD_INTERVAL
SCHEDD_MIN_INTERVAL PERIODIC_EXPR_INTERVAL MAX_PERIODIC_EXPR_INTERVAL PERIODIC_EXPR_TIMESLICE
UPDATE_INTERVAL MASTER_UPDATE_INTERVAL POLLING_INTERVAL STARTER_UPDATE_INTERVAL
STARTER_INITIAL_UPDATE_INTERVAL SHADOW_QUEUE_UPDATE_INTERVAL JOB_START_COUNT JOB_START_DELAY
JOB_STOP_COUNT JOB_STOP_DELAY ALIVE_INTERVAL JOB_DEFAULT_LEASE_DURATION
DAGMAN_USER_LOG_SCAN_INTERVAL
"""

_SENT = (Direction.OUTPUT, Stage.FINISHED)
_WORK = """#!/bin/sh
# Computes for $1 seconds, and in that time writes an output of $2 bytes.
sleep "$1" &
head -c "$2" /dev/urandom > out.bin
sha256sum < out.bin > digest
wait
"""


@dataclass(frozen=True)
class Load:
    """What each job does.

    Attributes:
        jobs: How many there are.
        work: The seconds that one computes.
        upload: The seconds that its output takes to go home.
    """

    jobs: int
    work: int
    upload: int

    @property
    def size(self) -> int:
        """The bytes of an output."""
        return RATE * self.upload

    @property
    def ideal(self) -> float:
        """The seconds from the first start to the last end if nothing but the last output waits."""
        return float(self.jobs * self.work + self.upload)


class Span(NamedTuple):
    """What went on in a slot; times are seconds since the first job's start."""

    job: int
    slot: str
    what: str
    begin: float
    end: float


class Measured(NamedTuple):
    seconds: float  # from the first start to the last end
    spans: list[Span]


class Stopped(Exception):
    """The benchmark was told to stop."""


@contextmanager
def one_slot_pool(quick: bool) -> Iterator[Pool]:
    """A pool whose only node has one slot, some transfer slots and a slow way home."""
    with tempfile.TemporaryDirectory(prefix="hw-stageout-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        program = folder / "headway-node.pyz"
        write_plugin(program)
        # the startd hands it on to its starters, and these not to jobs
        slow = f'STARTD_ENVIRONMENT = "LD_PRELOAD={_slow_way(folder)}"'
        settings = NodeSettings(
            program=str(program), keep_free=10**6, transfer_slots=TRANSFER_SLOTS
        )
        lines = [slow, node_config(settings)]
        intervals = [] if quick else [f"{name} =" for name in _INTERVALS.split()]
        pool = Pool(
            {
                "POOL_SITES": "NODE|1|2048||",
                "POOL_EXTRA_CM": "\n".join(
                    ["DEFAULT_USERLOG_FORMAT_OPTIONS = SUB_SECOND", *intervals]
                ),
                "POOL_EXTRA_SITES": "\n".join([*lines, *intervals]),
            }
        )
        pool.start()
        try:
            yield pool
        finally:
            pool.stop()


def _slow_way(folder: Path) -> Path:
    """What makes each connection of a program no faster than RATE."""
    library = folder / "slow_way.so"
    if not shutil.which("cc"):
        raise SystemExit("needs a C compiler: on Debian, apt-get install gcc libc6-dev")
    compiler = ["cc", "-O2", "-shared", "-fPIC", f"-DRATE={RATE}"]
    subprocess.run([*compiler, "-o", library, HERE / "slow_way.c"], check=True)
    return library


def run_stock(pool: Pool, load: Load, stop: threading.Event) -> Measured:
    """The jobs from a submit file, as anybody would write it."""
    folder = _folder(pool)
    (folder / "job.sub").write_text(submit_file(load))
    pool.give(folder)
    _succeed(pool, ["condor_submit", "job.sub"], folder)
    taken = _watch(folder / LOG, load, stop)
    _check([(folder / f"{n}.bin", folder / f"{n}.digest") for n in range(load.jobs)], load)
    return taken


def run_headway(pool: Pool, load: Load, stop: threading.Event) -> Measured:
    """The same jobs from a job.toml."""
    folder = _folder(pool)
    (folder / "job.toml").write_text(job_toml(load))
    pool.give(folder)
    command = ["python", "-m", "headway", "run", "job.toml", "--pool", "htcondor", "--detach"]
    _succeed(pool, command, folder)
    (run,) = folder.glob(".headway/runs/*")
    taken = _watch(run / LOG, load, stop, run / "run.dag.nodes.log")
    outputs = [run / "jobs" / str(n) / "outputs" for n in range(load.jobs)]
    _check([(each / "out.bin", each / "digest") for each in outputs], load)
    return taken


def submit_file(load: Load) -> str:
    """What is submitted without Headway."""
    return f"""\
executable = work.sh
arguments = {load.work} {load.size}
should_transfer_files = YES
transfer_output_files = out.bin, digest
transfer_output_remaps = "out.bin = $(Process).bin; digest = $(Process).digest"
request_cpus = 1
request_memory = 64 MB
request_disk = {2 * load.size // 1024} KB
log = {LOG}
queue {load.jobs}
"""


def job_toml(load: Load) -> str:
    """The same job as Headway takes it."""
    return f"""\
name = "stageout"
command = "sh work.sh {load.work} {load.size}"
files = ["work.sh"]
count = {load.jobs}

[outputs]
files = ["out.bin", "digest"]
deliver = "later"

[resources]
cpus = 1
memory = "64 MB"
disk = "{2 * load.size} B"
"""


def _folder(pool: Pool) -> Path:
    folder = pool.user_dir()
    (folder / "work.sh").write_text(_WORK)
    (folder / "work.sh").chmod(0o755)
    return folder


def _succeed(pool: Pool, command: list[str], folder: Path) -> None:
    done = pool.run_as_user(command, cwd=folder)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")


def _watch(log: Path, load: Load, stop: threading.Event, dag: Path | None = None) -> Measured:
    """Wait until all jobs have ended, and return what the log tells.

    With `dag`, DAGMan's log, a job has ended when its outputs have been compared with its ticket.
    """
    ended, follower = 0, Follower(dag or log)
    ending = EventType.POST_SCRIPT_TERMINATED if dag else EventType.TERMINATED
    deadline = time.monotonic() + 3 * load.jobs * (load.work + load.upload) + 600
    while ended < load.jobs:
        if stop.wait(1):
            raise Stopped
        if time.monotonic() > deadline:
            raise RuntimeError(f"the jobs did not end:\n{log.read_text()[-3000:]}")
        for event in follower.poll():
            if event.number in (EventType.HELD, EventType.ABORTED):
                raise RuntimeError(f"a job did not succeed: {event.text} {event.body}")
            ended += event.number == ending
    events = list(read_log(log).events)
    if dag:  # it has no transfers, and the other one no scripts
        events += [event for event in read_log(dag).events if event.number == ending]
    return timeline(events)


def timeline(events: Iterable[Event]) -> Measured:
    """The seconds from the first start to the last end, and what each slot did when.

    The end of a job with a courier is that of its POST script, which compares its outputs.
    """
    begun: dict[tuple[int, int], tuple[int, str, str, float]] = {}
    spans: list[Span] = []
    first, last, pairs = 0.0, 0.0, Pairs()
    for event in sorted(events, key=lambda event: event.time):
        job, number = (event.cluster, event.proc), pairs.job_of(event)[1]
        slot, what = "", ""
        if event.number == EventType.EXECUTE:
            slot = event.slot.partition("@")[0]
            what = COMPUTING if slot.startswith("slot1_") else PREPARING
            first = first or event.time
        elif event.transfer == (Direction.OUTPUT, Stage.STARTED) and job in begun:
            slot, what = begun[job][1], TRANSFERRING
        elif event.number in (EventType.TERMINATED, EventType.POST_SCRIPT_TERMINATED):
            last = event.time
        elif event.number != EventType.EVICTED and event.transfer != _SENT:
            continue
        if job in begun:
            spans.append(Span(*begun.pop(job), event.time))
        if what:
            begun[job] = number, slot, what, event.time
    moved = [
        span._replace(begin=round(span.begin - first, 2), end=round(span.end - first, 2))
        for span in spans
    ]
    return Measured(round(last - first, 2), moved)


def _check(made: list[tuple[Path, Path]], load: Load) -> None:
    """That each job's output is whole and is the one that the job has made."""
    for output, digest in made:
        found = hashlib.sha256(output.read_bytes())
        right = found.hexdigest() == digest.read_text().split()[0]
        if not right or output.stat().st_size != load.size:
            raise RuntimeError(f"{output.name} is not what its job made")
