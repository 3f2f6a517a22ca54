"""The whole of it with real processes: whatever is killed, the jobs end once and nothing stays."""

from __future__ import annotations

import os
import random
import re
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

from headway.api import Run
from headway.events import EventType, Outcome, read_log
from headway.pool.local.supervisor import LOCK

from .house import SMALL, House, check_log, processes, supervisor_of, wait

# Each execution leaves a line outside of its scratch folder.
MARKING = (
    'name = "marking"\nshell = true\ncount = 12\noutputs = ["out.txt"]\n'
    'command = """echo {{job}} >> {folder}/marks; sleep 0.2; echo {{job}} > out.txt"""\n' + SMALL
)


def terminated(run: Run) -> set[int]:
    events = read_log(run.folder.events).events
    return {event.proc for event in events if event.number == EventType.TERMINATED}


def check_nothing_is_left(house: House, run: Run) -> None:
    wait(lambda: not run.folder.is_locked(LOCK))
    assert not list(processes(f"HEADWAY_SCRATCH={house.folder}"))
    assert not list((run.folder.path / "scratch").glob("*"))
    assert not list((run.folder.path / "spool").glob("*"))


@pytest.mark.parametrize("seed", range(6))
def test_a_supervisor_killed_at_any_moment_loses_and_repeats_nothing(
    house: House, seed: int
) -> None:
    chance = random.Random(seed)
    marks = house.folder / "marks"
    house.pool = "local:cpus=6"
    run = house.start(MARKING.format(folder=house.folder))
    finished: dict[int, int] = {}  # job -> how often it had been executed when the log had its end
    for _ in range(2):
        time.sleep(chance.uniform(0.0, 0.6))
        pid = supervisor_of(run)
        if pid is None:
            break
        os.kill(pid, signal.SIGKILL)
        wait(lambda: not run.folder.is_locked(LOCK))
        lines = marks.read_text().split() if marks.exists() else []
        for job in terminated(run) - finished.keys():
            finished[job] = lines.count(str(job))
        house.headway("run", "--resume", run.label, "--detach")
    house.headway("run", "--resume", run.label)
    assert run.succeeded()
    assert len(terminated(run)) == 12
    executions = marks.read_text().split()
    assert {executions.count(str(job)) >= 1 for job in range(12)} == {True}
    for job, count in finished.items():
        assert executions.count(str(job)) == count, f"job {job} ran again after its 005"
    for job in range(12):
        assert (run.outputs(job) / "out.txt").read_text() == f"{job}\n"
    check_log(run)
    check_nothing_is_left(house, run)


COUNTER = """#!/bin/sh
mkdir -p ckpt
n=$(cat ckpt/n 2>/dev/null || echo 0)
echo "from $n" >> ckpt/history
trap 'echo $n > ckpt/n; exit 85' TERM
: > {folder}/started
while [ "$n" -lt 30 ]; do sleep 0.1 & wait $!; n=$((n + 1)); done
cp ckpt/history history.txt
"""
COUNTING = (
    'name = "counting"\ncommand = "./counter.sh"\nfiles = ["counter.sh"]\n'
    'outputs = ["history.txt"]\ngrace = "5 s"\n[checkpoint]\npaths = ["ckpt"]\n' + SMALL
)


def test_ctrl_c_saves_the_checkpoint_and_resume_goes_on_from_it(house: House) -> None:
    house.write(COUNTER.format(folder=house.folder), "counter.sh", mode=0o755)
    house.write(COUNTING)
    process = house.popen("run", "job.toml", "--pool", house.pool)
    wait((house.folder / "started").exists)
    time.sleep(0.8)
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    _, err = process.communicate(timeout=20)
    assert time.monotonic() - begin < 5, "it was not the grace that ended it"
    assert process.returncode == 130 and "--resume counting-1" in err
    run = house.newest()
    assert not run.folder.is_locked(LOCK)
    assert not list(processes(f"HEADWAY_SCRATCH={house.folder}"))
    saved = int((run.folder.path / "spool/0/headway-out/checkpoint/ckpt/n").read_text())
    assert saved > 0
    house.headway("run", "--resume", run.label)
    assert (run.outputs() / "history.txt").read_text().split("\n")[:2] == ["from 0", f"from {saved}"]
    assert run.succeeded()
    check_log(run)
    check_nothing_is_left(house, run)


def test_a_command_that_will_not_stop_is_killed_after_its_grace(house: House) -> None:
    house.write(
        'name = "deaf"\nshell = true\ngrace = "1 s"\n'
        f'command = "trap : TERM; touch {house.folder}/started; while :; do sleep 0.1; done"\n'
        + SMALL
    )
    process = house.popen("run", "job.toml", "--pool", house.pool)
    wait((house.folder / "started").exists)
    process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    process.communicate(timeout=20)
    assert 0.8 < time.monotonic() - begin < 5
    assert not list(processes(f"HEADWAY_SCRATCH={house.folder}"))
    assert house.newest().jobs[0].evictions == 1


STAMPS = 'echo begin $(date +%s%N) >> {file}; sleep 0.3; echo end $(date +%s%N) >> {file}'


def most_at_once(text: str) -> int:
    """How many intervals overlap, from lines of `begin TIME` and `end TIME`."""
    lines = [line.split() for line in text.splitlines()]
    now = most = 0
    for word, _ in sorted(lines, key=lambda line: (int(line[1]), line[0] == "begin")):
        now += 1 if word == "begin" else -1
        most = max(most, now)
    return most


def test_two_runs_at_once_take_no_more_than_the_machine_has(house: House) -> None:
    house.pool = "local"  # the whole machine
    cpus = len(os.sched_getaffinity(0))
    command = STAMPS.format(file=house.folder / "stamps")
    watchers = []
    for name in ("one", "two"):
        count = 2 * cpus
        text = f'name = "{name}"\nshell = true\ncount = {count}\ncommand = "{command}"\n'
        house.write(text + SMALL, f"{name}.toml")
        watchers.append(house.popen("run", f"{name}.toml", "--pool", house.pool))
    for watcher in watchers:
        _, err = watcher.communicate(timeout=60)
        assert watcher.returncode == 0, err
    text = (house.folder / "stamps").read_text()
    assert text.count("begin") == text.count("end") == 4 * cpus
    assert most_at_once(text) <= cpus


@pytest.mark.parametrize("way", ["marked", "env -i"])
def test_a_process_that_hides_from_its_group_does_not_stay(house: House, way: str) -> None:
    seconds = f"31{os.getpid() % 100_000:05d}"  # to be known again
    clean = "env -i PATH=/usr/bin:/bin " if way == "env -i" else ""
    run = house.run(
        'name = "stray"\nshell = true\n'
        f'command = "({clean}setsid sleep {seconds} > /dev/null 2>&1 &) ; sleep 0.2"\n' + SMALL
    )
    assert run.succeeded()
    wait(lambda: not list(processes(f"sleep\0{seconds}")), 5)
    check_nothing_is_left(house, run)


def test_jobs_never_share_a_gpu(house: House) -> None:
    house.pool = "local:cpus=6,simulate-gpus=2"
    command = "f={0}/$CUDA_VISIBLE_DEVICES; " + STAMPS.format(file="$f")
    run = house.run(
        'name = "gpus"\nshell = true\ncount = 8\n'
        f'command = "{command.format(house.folder)}"\n' + SMALL + "gpus = 1\n"
    )
    assert run.succeeded()
    stamps = sorted(house.folder.glob("GPU-*"))
    assert len(stamps) == 2
    for path in stamps:
        assert most_at_once(path.read_text()) == 1
    assert sum(path.read_text().count("begin") for path in stamps) == 8


def test_a_held_job_is_edited_and_released(house: House) -> None:
    run = house.start(
        'name = "edited"\nshell = true\noutputs = ["ad.txt"]\n'
        'command = "cp $_CONDOR_JOB_AD ad.txt; '
        f'touch {house.folder}/started; test -e {house.folder}/go || sleep 30"\n' + SMALL
    )
    wait((house.folder / "started").exists)
    assert [result.error for result in run.hold([0])] == [""]
    house.wait(run, lambda state: state.status.value == "held")
    assert [result.error for result in run.edit([0], "RequestMemory", "77")] == [""]
    assert "whole number" in run.edit([0], "RequestMemory", "lots")[0].error
    (house.folder / "go").touch()
    assert [result.error for result in run.release([0])] == [""]
    house.settle(run)
    assert run.jobs[0].outcome is Outcome.SUCCESS and run.jobs[0].holds == 1
    assert "RequestMemory = 77" in (run.outputs() / "ad.txt").read_text()
    check_log(run)
    check_nothing_is_left(house, run)


def test_a_log_that_cannot_be_written_ends_the_run_so_that_it_can_be_resumed(house: House) -> None:
    house.write(COUNTER.format(folder=house.folder), "counter.sh", mode=0o755)
    house.write(COUNTING + "")
    process = house.popen("run", "job.toml", "--pool", house.pool)
    wait((house.folder / "started").exists)
    run = house.newest()
    time.sleep(0.3)
    pid = supervisor_of(run)
    assert pid is not None
    size = run.folder.events.stat().st_size
    assert size > 2000  # what is said in supervisor.log must still find room
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size + 10, size + 10))
    told = house.headway("hold", f"{run.label}.0", code=None)
    assert told.returncode in (0, 1, 2), told.stderr
    out, err = process.communicate(timeout=30)
    assert process.returncode not in (0, 130), out
    assert "Traceback" not in err and "--resume counting-1" in err, err
    assert re.search(r"(?i)event log|too large", err), err
    said = (run.folder.path / "supervisor.log").read_text()
    assert "events.log cannot be written" in said and "Traceback" not in said, said
    assert not run.folder.is_locked(LOCK)
    assert not list(processes(f"HEADWAY_SCRATCH={house.folder}"))
    check_log(run)
    house.headway("run", "--resume", run.label, code=None)
    if not run.settled() or run.jobs[0].status.value == "held":
        house.headway("release", f"{run.label}.0", code=None)
    house.settle(run)
    assert run.succeeded()
    check_log(run)
    history = (run.outputs() / "history.txt").read_text().split("\n")
    assert history[0] == "from 0" and len(history) >= 2


def test_a_watcher_that_is_killed_takes_its_jobs_with_it(house: House) -> None:
    house.write(COUNTER.format(folder=house.folder), "counter.sh", mode=0o755)
    house.write(COUNTING)
    process = house.popen("run", "job.toml", "--pool", house.pool)
    wait((house.folder / "started").exists)
    process.kill()
    process.communicate(timeout=10)
    run = house.newest()
    wait(lambda: not run.folder.is_locked(LOCK), 10)
    assert not list(processes(f"HEADWAY_SCRATCH={house.folder}"))
    assert run.jobs[0].evictions == 1
    house.headway("run", "--resume", run.label)
    assert run.succeeded()


def test_resumed_twice_at_once_it_runs_once(house: House) -> None:
    run = house.start(MARKING.format(folder=house.folder))
    pid = supervisor_of(run)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait(lambda: not run.folder.is_locked(LOCK))
    before = (house.folder / "marks").read_text().split() if _there(house) else []
    both: list[subprocess.Popen[str]] = [
        house.popen("run", "--resume", run.label) for _ in range(2)
    ]
    for process in both:
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    executions = (house.folder / "marks").read_text().split()
    for job in range(12):
        assert executions.count(str(job)) <= 1 + before.count(str(job))
    assert run.succeeded()
    check_log(run)


def _there(house: House) -> bool:
    return Path(house.folder / "marks").exists()
