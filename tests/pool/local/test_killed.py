"""A log that takes no more, a watcher that dies, two who resume at once: the run can go on."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest
from tests.loaded import finished

from headway.pool.local.scratch import move_into_place
from headway.pool.local.supervisor import LOCK

from .house import SMALL, House, check_log, processes, supervisor_of, wait

# Counts in steps of 0.1 s until the test says that it is enough; on SIGTERM saves where it is and
# asks to be started again.
COUNTER = """#!/bin/sh
mkdir -p ckpt
n=$(cat ckpt/n 2>/dev/null || echo 0)
echo "from $n" >> ckpt/history
trap 'echo $n > ckpt/n; exit 85' TERM
until [ -e {folder}/enough-$1 ]; do
  sleep 0.1 & wait $!; n=$((n + 1)); : > {folder}/counted-$1
done
cp ckpt/history history.txt
"""
COUNTING = (
    'name = "counting"\ncommand = ["./counter.sh", "{{job}}"]\ncount = {count}\n'
    'files = ["counter.sh"]\n'
    'outputs = ["history.txt"]\ngrace = "5 s"\n[checkpoint]\npaths = ["ckpt"]\n' + SMALL
)


def test_a_log_that_takes_no_more_ends_the_run_so_that_it_can_be_resumed(house: House) -> None:
    house.write(COUNTER.format(folder=house.folder), "counter.sh", mode=0o755)
    house.write(COUNTING.format(count=2))
    process = house.popen("run", "job.toml", "--pool", house.pool)
    wait(lambda: len(list(house.folder.glob("counted-*"))) == 2)
    run = house.newest()
    wait(lambda: all(run.jobs[job].phase == "run" for job in range(2)))
    pid = supervisor_of(run)
    assert pid is not None
    # As on a full disk; what is said in supervisor.log is shorter and still finds room.
    size = run.folder.events.stat().st_size
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size + 10, size + 10))
    (house.folder / "enough-0").touch()  # its end is what cannot be written
    done = finished(process)
    err = done.stderr
    assert done.returncode not in (0, 130), done.stdout
    assert "Traceback" not in err
    assert "events.log cannot be written" in err and "headway run --resume counting-1" in err
    said = (run.folder.path / "supervisor.log").read_text()
    assert "events.log cannot be written" in said and "Traceback" not in said
    assert not run.folder.is_locked(LOCK)
    assert not list(processes(f"HEADWAY_SCRATCH={house.folder}"))
    check_log(run)
    (house.folder / "enough-1").touch()
    house.headway("run", "--resume", run.label)
    assert run.succeeded()
    history = [(run.outputs(job) / "history.txt").read_text().split("\n") for job in range(2)]
    assert history[0] == ["from 0", ""], "job 0 had ended and ran again"
    assert history[1][0] == "from 0" and int(history[1][1].split()[1]) > 0
    check_log(run)


def test_a_watcher_that_is_killed_takes_its_jobs_with_it(house: House) -> None:
    house.write(COUNTER.format(folder=house.folder), "counter.sh", mode=0o755)
    house.write(COUNTING.format(count=1))
    process = house.popen("run", "job.toml", "--pool", house.pool)
    wait((house.folder / "counted-0").exists)
    process.kill()
    finished(process)
    run = house.newest()
    wait(lambda: not run.folder.is_locked(LOCK))
    assert not list(processes(f"HEADWAY_SCRATCH={house.folder}"))
    assert run.jobs[0].evictions == 1
    (house.folder / "enough-0").touch()
    house.headway("run", "--resume", run.label)
    assert run.succeeded()


def test_an_output_on_its_way_to_its_place_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = tmp_path / "jobs/0/outputs/model", tmp_path / "results/model"
    source.parent.mkdir(parents=True)
    source.write_text("precious")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "replace", killed)
        move_into_place(source, target, "tag")
    # The next supervisor tries again only where the source still is.
    assert source.exists() or target.exists()


def test_resumed_twice_at_once_it_runs_once(house: House) -> None:
    marks = house.folder / "marks"
    # Longer than one of the two waits for the other, so that both find it under way.
    command = f"echo {{job}} >> {marks}; sleep 2"
    run = house.start(f'name = "twice"\nshell = true\ncount = 2\ncommand = "{command}"\n' + SMALL)
    pid = supervisor_of(run)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    # Agents notice within a second that they are alone, and may start their command before.
    wait(lambda: not list(processes(f"HEADWAY_SCRATCH={house.folder}")))
    before = marks.read_text().split() if marks.exists() else []
    both = [house.popen("run", "--resume", run.label) for _ in range(2)]
    for process in both:
        done = finished(process)
        assert done.returncode == 0, done.stderr
    executions = marks.read_text().split()
    assert [executions.count(job) - before.count(job) for job in "01"] == [1, 1]
    assert run.succeeded()
    check_log(run)
