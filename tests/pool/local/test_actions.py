"""Hold, release, remove, evict and edit, in every state that a job can be in."""

from __future__ import annotations

import os
import signal
import time

import pytest

from headway.api import Run
from headway.events import Outcome, Status
from headway.pool import Action

from .house import SMALL, House, check_log, supervisor_of, wait

LONG = 'name = "long"\ncommand = "sleep 30"\ngrace = "2 s"\ncount = 2\n' + SMALL
ONE_AT_A_TIME = "local:cpus=1"


def act(run: Run, action: Action, *jobs: int) -> list[str]:
    return [result.error for result in run.act(action, jobs or None)]


def status(run: Run, job: int) -> Status:
    return run.jobs[job].status


def test_running_idle_held_and_over(house: House) -> None:
    house.pool = ONE_AT_A_TIME
    run = house.start(LONG)
    house.wait(run, lambda state: state.phase == "run")
    assert status(run, 1) is Status.IDLE
    assert act(run, Action.EVICT, 1) == ["it is not running but idle"]
    assert act(run, Action.RELEASE, 0, 1) == [
        "it is not held but running",
        "it is not held but idle",
    ]
    assert act(run, Action.HOLD, 0, 1) == ["", ""]
    for job in (0, 1):
        house.wait(run, lambda state: state.status is Status.HELD, job)
        assert run.jobs[job].hold_code == 1
    assert act(run, Action.HOLD, 0) == ["it is already held"]
    assert act(run, Action.EVICT, 0) == ["it is not running but held"]
    assert act(run, Action.RELEASE, 1) == [""]
    house.wait(run, lambda state: state.phase == "run", 1)
    assert act(run, Action.EVICT, 1) == [""]
    house.wait(run, lambda state: state.attempts == 2 and state.phase == "run", 1)
    assert run.jobs[1].evictions == 1
    assert act(run, Action.REMOVE, 0, 1) == ["", ""]
    for job in (0, 1):
        house.wait(run, lambda state: state.outcome is Outcome.REMOVED, job)
    for action in Action:
        assert act(run, action, 0) == ["it has already left the queue"]
    wait(lambda: supervisor_of(run) is None)
    assert act(run, Action.HOLD, 1) == ["it has already left the queue"]
    assert run.act(Action.REMOVE) == []
    check_log(run)


def test_a_job_that_is_about_to_be_held_can_be_released(house: House) -> None:
    """As on HTCondor, where a running job is held at once: the release must not be lost."""
    command = """command = "trap 'sleep 1; exit 0' TERM; touch here; sleep 30 & wait"\n"""
    run = house.start(f'name = "long"\nshell = true\n{command}grace = "9 s"\n{SMALL}')
    house.wait(run, lambda state: state.phase == "run")
    assert act(run, Action.HOLD, 0) == [""]
    assert act(run, Action.RELEASE, 0) == [""]
    assert act(run, Action.RELEASE, 0) == ["it is not held but running"]
    house.wait(run, lambda state: state.attempts == 2 and state.phase == "run")
    assert run.jobs[0].holds == 0 and run.jobs[0].evictions == 1
    assert act(run, Action.REMOVE, 0) == [""]
    house.wait(run, lambda state: state.outcome is Outcome.REMOVED)
    check_log(run)


def test_the_stronger_wish_counts_and_the_grace_is_given_once(house: House) -> None:
    run = house.start(
        'name = "deaf"\nshell = true\ncommand = "trap : TERM; while true; do sleep 0.1; done"\n'
        'grace = "8 s"\n' + SMALL
    )
    house.wait(run, lambda state: state.phase == "run")
    assert act(run, Action.HOLD, 0) == [""]
    for _ in range(3):
        time.sleep(1.5)
        assert act(run, Action.EVICT, 0) == [""]
    last = time.monotonic()
    house.wait(run, lambda state: state.status is Status.HELD)
    assert time.monotonic() - last < 7.9  # of the first 8 s more than half were over by then


def test_acting_while_nobody_runs_the_jobs(house: House) -> None:
    run = house.start(LONG)
    house.wait(run, lambda state: state.phase == "run")
    supervisor = supervisor_of(run)
    assert supervisor is not None
    os.kill(supervisor, signal.SIGKILL)
    wait(lambda: supervisor_of(run) is None)
    assert act(run, Action.HOLD, 0, 1) == ["", ""]
    assert {status(run, 0), status(run, 1)} == {Status.HELD}
    assert supervisor_of(run) is None
    assert act(run, Action.RELEASE, 1) == [""]  # which starts the pool again
    house.wait(run, lambda state: state.phase == "run", 1)
    assert status(run, 0) is Status.HELD
    assert act(run, Action.REMOVE, 0, 1) == ["", ""]
    house.settle(run)
    check_log(run)


def test_a_held_job_is_edited_and_released(house: House) -> None:
    house.pool = "local:cpus=1,memory=1GB"
    run = house.start(
        'name = "edit"\nshell = true\ncommand = "grep ^Memory $_CONDOR_MACHINE_AD > m; '
        'test -e ../../go || sleep 30"\noutputs = ["m"]\ngrace = "1 s"\n' + SMALL
    )
    house.wait(run, lambda state: state.phase == "run")
    act(run, Action.HOLD, 0)
    house.wait(run, lambda state: state.status is Status.HELD)
    (run.folder.path / "go").touch()
    assert [result.error for result in run.edit([0], "RequestMemory", "300")] == [""]
    assert run.pool.query(run.folder)[0]["RequestMemory"] == 300
    act(run, Action.RELEASE, 0)
    house.settle(run)
    assert (run.outputs() / "m").read_text() == "Memory = 300\n"
    check_log(run)


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ('[sites]\nonly = ["ELSEWHERE"]\n' + SMALL, "no site of this pool can ever take the job"),
        ('[resources]\nmemory = "20 MB"\ndisk = "10 MB"\ncpus = 2\ngpus = 1\n', "2 cpus, 20 MiB"),
    ],
)
def test_what_no_site_can_ever_take_is_held_and_told(house: House, job: str, words: str) -> None:
    house.pool = "local:site=A,cpus=2;site=B,cpus=1,simulate-gpus=1"
    run = house.run('name = "never"\ncommand = "true"\n' + job, code=1)
    assert run.jobs[0].status is Status.HELD
    assert words in run.jobs[0].hold_reason
    act(run, Action.REMOVE, 0)


def test_an_edit_beyond_the_machine_is_held_and_mended(house: House) -> None:
    house.pool = "local:cpus=1,memory=1GB"
    run = house.start('name = "edit"\ncommand = "sleep 30"\ngrace = "1 s"\n' + SMALL)
    house.wait(run, lambda state: state.phase == "run")
    act(run, Action.HOLD, 0)
    house.wait(run, lambda state: state.status is Status.HELD)
    run.edit([0], "RequestMemory", "5000")
    act(run, Action.RELEASE, 0)
    house.wait(run, lambda state: state.hold_code == 6)
    assert "5000 MiB" in run.jobs[0].hold_reason
    run.edit([0], "RequestMemory", "100")
    act(run, Action.RELEASE, 0)
    house.wait(run, lambda state: state.phase == "run")
    act(run, Action.REMOVE, 0)
    house.settle(run)
