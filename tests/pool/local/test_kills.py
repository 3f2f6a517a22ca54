"""Whatever is killed, and whenever: a run goes on, nothing is done twice, nothing stays behind."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.loaded import finished

from headway.api import Run
from headway.events import EventType, Outcome, read_log
from headway.pool.local.pool import LocalPool
from headway.pool.local.supervisor import LOCK

from .house import SMALL, House, check_log, processes, supervisor_of, wait

JOBS = 12


def ended(run: Run) -> Counter[int]:
    """How often each job has ended, by the log."""
    if not run.folder.events.exists():
        return Counter()
    events = read_log(run.folder.events).events
    return Counter(event.proc for event in events if event.number == EventType.TERMINATED)


def executions(marks: Path, job: int) -> int:
    path = marks / str(job)
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.mark.parametrize("seed", range(5))
def test_a_killed_pool_goes_on_where_it_was(house: House, tmp_path: Path, seed: int) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    seconds = random.Random(seed)
    house.write(
        f'name = "killed"\ncount = {JOBS}\noutputs = ["out.txt"]\nshell = true\n'
        f'command = "echo x >> {marks}/{{job}}; sleep 0.05; echo {{job}} > out.txt"\n' + SMALL
    )
    house.pool = "local:cpus=4"
    house.headway("run", "job.toml", "--pool", house.pool, "--detach")
    run = house.newest()
    known: dict[int, int] = {}
    for _ in range(2):
        time.sleep(seconds.uniform(0.0, 0.6))
        supervisor = supervisor_of(run)
        if supervisor is not None:
            os.kill(supervisor, signal.SIGKILL)
            wait(lambda: not run.folder.is_locked(LOCK))
        for job in ended(run):
            known.setdefault(job, executions(marks, job))
        again = LocalPool.from_facts(run.folder.facts.pool)
        again.detached = True
        again.submit(run.folder)
    house.headway("run", "--resume", run.label)
    assert ended(run) == Counter(range(JOBS))
    for job in range(JOBS):
        assert (run.outputs(job) / "out.txt").read_text() == f"{job}\n"
        assert executions(marks, job) >= 1
    for job, count in known.items():
        assert executions(marks, job) == count, f"job {job} had ended and ran again"
    check_log(run)
    assert not (run.folder.path / "scratch").exists() or not any(
        (run.folder.path / "scratch").iterdir()
    )
    wait(lambda: not list(processes(f"HEADWAY_SCRATCH={tmp_path}")))
    wait(lambda: supervisor_of(run) is None)


COUNTER = """
import os, signal, sys, time
at = int(open("ckpt").read()) if os.path.exists("ckpt") else 0
def save(*_):
    open("ckpt", "w").write(str(at))
    sys.exit(85)
signal.signal(signal.SIGTERM, save)
print("from", at, flush=True)
while at < 25:
    time.sleep(0.05)
    at += 1
    if at == 5:
        open(sys.argv[1], "w")
        while True:
            time.sleep(60)
open("total.txt", "w").write(str(at))
"""
CHECKPOINTED = (
    'name = "counter"\ncommand = "python3 counter.py {there}"\nfiles = ["counter.py"]\n'
    'outputs = ["total.txt"]\n[checkpoint]\npaths = ["ckpt"]\n' + SMALL
)


def starts(run: Run) -> list[int]:
    """Where each attempt began to count."""
    texts = [(path / "stdout").read_text() for path in run.folder.attempts(0)]
    return sorted(int(text.split()[1]) for text in texts if text)


def test_ctrl_c_saves_a_checkpoint_and_resume_goes_on_from_it(house: House) -> None:
    house.write(COUNTER, "counter.py")
    there = house.folder / "there"
    house.write(CHECKPOINTED.replace("{there}", str(there)))
    process = house.popen("run", "job.toml", "--pool", house.pool)
    wait(there.exists)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    done = finished(process)
    assert done.returncode == 130, done.stderr
    assert time.monotonic() - began < 30  # half of the grace
    run = house.newest()
    assert supervisor_of(run) is None
    assert [*run.folder.path.glob("spool/0/headway-out/checkpoint/*/files/ckpt")]
    assert not (run.folder.job_folder(0) / "checkpoint").exists()
    house.headway("run", "--resume", run.label)
    assert (run.outputs() / "total.txt").read_text() == "25"
    assert starts(run) == [0, 5]
    wait(lambda: not (run.folder.path / "spool/0").exists())  # nobody needs it any more
    check_log(run)


def test_a_second_command_goes_on_where_the_first_was_interrupted(house: House) -> None:
    house.write(COUNTER, "counter.py")
    there = house.folder / "there"
    house.write(CHECKPOINTED.replace("{there}", str(there)))
    first = house.popen("run", "job.toml", "--pool", house.pool)
    wait(there.exists)
    run = house.newest()
    second = house.popen("run", "--resume", run.label, "--json")
    assert second.stdout is not None and second.stdout.readline()
    time.sleep(0.2)  # it watches
    first.send_signal(signal.SIGINT)
    assert finished(first).returncode == 130
    assert finished(second).returncode == 0
    assert (run.outputs() / "total.txt").read_text() == "25"
    assert starts(run) == [0, 5]
    check_log(run)


def test_a_command_that_does_not_end_is_killed_when_the_grace_is_over(house: House) -> None:
    house.write(
        'name = "stubborn"\ngrace = "1 s"\nshell = true\n'
        'command = "trap : TERM; while true; do sleep 0.1; done"\n' + SMALL
    )
    process = house.popen("run", "job.toml", "--pool", house.pool)
    assert process.stdout is not None
    for line in process.stdout:
        if "running, run" in line:
            break
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    finished(process)
    assert 0.9 < time.monotonic() - began < 30
    assert not list(processes(f"HEADWAY_SCRATCH={house.folder}"))


def test_an_agent_that_the_machine_ends_is_no_failure(house: House) -> None:
    began = house.folder / "began"  # before that, the command is a fork of its agent
    words = f'["sh", "-c", "touch {began}; exec sleep 1.5"]'
    run = house.start(f'name = "shutdown"\ncommand = {words}\n' + SMALL)
    wait(began.exists)
    agents = list(processes("agent\0plan.json", f"HEADWAY_SCRATCH={house.folder}"))
    for pid in agents:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    house.settle(run)
    state = run.jobs[0]
    assert state.outcome is Outcome.SUCCESS and state.evictions == 1, state.why


def test_whatever_a_job_leaves_behind_ends_with_it(house: House) -> None:
    house.write(
        "import os\n"
        "for marked in (True, False):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        if os.fork() == 0:\n"
        "            env = dict(os.environ) if marked else {'TOLD': os.getcwd()}\n"
        "            os.execve('/bin/sleep', ['sleep', '300'], env)\n"
        "        os._exit(0)\n"
        "    os.wait()\n",
        "daemon.py",
    )
    job = 'name = "d"\ncommand = "python3 daemon.py"\nfiles = ["daemon.py"]\ncount = 3\n' + SMALL
    house.run(job)
    assert not list(processes("sleep", str(house.folder)))


def test_a_supervisor_killed_with_a_daemon_below_it(house: House) -> None:
    run = house.start('name = "d"\nshell = true\ncommand = "setsid sleep 300 & sleep 1"\n' + SMALL)
    house.wait(run, lambda state: state.phase == "run")
    supervisor = supervisor_of(run)
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    wait(lambda: supervisor_of(run) is None)
    house.headway("run", "--resume", run.label)
    assert not list(processes("sleep", f"HEADWAY_SCRATCH={house.folder}"))
    assert run.jobs[0].attempts == 2


BUSY = """
import os, sys, time
begin = time.time()
time.sleep(0.3)
open(os.path.join(sys.argv[1], f"{os.getpid()}-{begin}"), "w").write(f"{begin} {time.time()}")
"""


def test_two_runs_do_not_take_more_than_the_machine_has(house: House, tmp_path: Path) -> None:
    spans = tmp_path / "spans"
    spans.mkdir()
    house.write(BUSY, "busy.py")
    cpus = len(os.sched_getaffinity(0))
    processes_: list[subprocess.Popen[str]] = []
    for name in ("one", "two"):
        house.write(
            f'name = "{name}"\ncommand = "python3 busy.py {spans}"\nfiles = ["busy.py"]\n'
            f"count = {1 + cpus}\n" + SMALL,
            f"{name}.toml",
        )
        processes_.append(house.popen("run", f"{name}.toml"))
    for process in processes_:
        done = finished(process)
        assert done.returncode == 0, done.stdout + done.stderr
    times = [tuple(map(float, path.read_text().split())) for path in spans.iterdir()]
    assert len(times) == 2 * (1 + cpus)
    most = max(sum(begin <= at < end for begin, end in times) for at, _ in times)
    assert most <= cpus


def test_a_gpu_is_never_shared(house: House, tmp_path: Path) -> None:
    spans = tmp_path / "spans"
    spans.mkdir()
    house.pool = "local:cpus=8,simulate-gpus=2"
    house.write(
        "import os, sys, time\nbegin = time.time()\ntime.sleep(0.2)\n"
        "gpus = os.environ['CUDA_VISIBLE_DEVICES']\n"
        "open(f'{sys.argv[1]}/{os.getpid()}', 'w').write(f'{gpus} {begin} {time.time()}')\n",
        "work.py",
    )
    house.run(
        f'name = "gpu"\ncommand = "python3 work.py {spans}"\nfiles = ["work.py"]\ncount = 6\n'
        + SMALL
        + "gpus = 1\n"
    )
    used = [path.read_text().split() for path in spans.iterdir()]
    assert {gpu for gpu, *_ in used} == {f"GPU-{os.uname().nodename}-{n}" for n in (0, 1)}
    for gpu in {gpu for gpu, *_ in used}:
        times = sorted((float(b), float(e)) for g, b, e in used if g == gpu)
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(times))


def test_a_job_without_a_gpu_sees_none(house: House) -> None:
    house.pool = "local:cpus=1,simulate-gpus=1"
    command = '["sh", "-c", "echo got=$CUDA_VISIBLE_DEVICES= > o"]'
    run = house.run(f'name = "none"\ncommand = {command}\noutputs = ["o"]\n' + SMALL)
    assert (run.outputs() / "o").read_text() == "got==\n"


@pytest.mark.parametrize(
    "asks", ['memory = "60 MB"\ndisk = "1 MB"', 'memory = "2 MB"\ndisk = "60 MB"']
)
def test_memory_and_disk_are_admitted_too(house: House, tmp_path: Path, asks: str) -> None:
    house.pool = "local:cpus=8,memory=100MB,disk=100MB"
    spans = tmp_path / "spans"
    spans.mkdir()
    house.write(BUSY, "busy.py")
    house.run(
        f'name = "big"\ncommand = "{sys.executable} busy.py {spans}"\nfiles = ["busy.py"]\n'
        f"count = 3\n[resources]\n{asks}\n"
    )
    times = sorted(tuple(map(float, path.read_text().split())) for path in spans.iterdir())
    assert len(times) == 3
    assert all(times[n][1] <= times[n + 1][0] for n in range(2))
