"""What a killed supervisor left lying is brought to the end that its record tells of."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headway.events import EventWriter, JobState, Outcome, Status, fold, read_log
from headway.node.errors import Exit
from headway.pool.folder import RunFolder, Runs
from headway.pool.local.job import LocalJob
from headway.pool.local.main import recover
from headway.pool.local.pool import LocalPool
from headway.pool.local.supervisor import Supervisor
from headway.pool.prepare import prepare
from headway.spec import build_job

ID = "20260101T000000Z-abcdef"
OLD = "20251231T000000Z-abcdef"
Crash = Callable[..., JobState]


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    raw = {
        "name": "r",
        "command": "true",
        "outputs": [{"path": "model", "to": "results/model"}],
        "checkpoint": {"paths": ["ckpt"]},
        "retries": {"command": 1},
    }
    pool = LocalPool.parse("cpus=1", tmp_path)
    job = build_job(raw, folder=tmp_path)
    return prepare(job, tmp_path, Runs(tmp_path / ".headway"), pool.facts(), "d")


def attempt(place: Path, name: str, code: int | None) -> None:
    (place / "attempts" / name).mkdir(parents=True)
    now = time.time()
    segment = {"begin": now, "end": now + 2, "cpu_user": 1.5, "max_rss": 2**20}
    record = {"exit": code, "segments": [segment]}
    (place / "attempts" / name / "record.json").write_text(json.dumps(record))


@pytest.fixture
def crash(folder: RunFolder) -> Crash:
    """The state after recovery from a log that says: it runs."""

    def act(*, told: bool = True) -> JobState:
        with EventWriter(folder.events) as writer:
            writer.submitted(1, 0, "<a>")
            writer.executing(1, 0, "<a>")
            if told:
                line = f"headway nonce=1 phase=check state=begin t=1.0 attempt={ID} segment=1"
                writer.generic(1, 0, line)
        with closing(Supervisor(folder, LocalJob.read(folder))) as supervisor:
            recover(supervisor)
        assert not list((folder.path / "scratch").glob("*"))
        with closing(Supervisor(folder, LocalJob.read(folder))) as supervisor:
            before = folder.events.read_bytes()
            recover(supervisor)  # again: nothing is left to do
            assert folder.events.read_bytes() == before
        return fold(read_log(folder.events).events)[0]

    return act


@pytest.fixture
def out(folder: RunFolder) -> Path:
    place = folder.path / "scratch/0.1/headway-out"
    place.mkdir(parents=True)
    return place


def test_success_is_success(folder: RunFolder, out: Path, crash: Crash, tmp_path: Path) -> None:
    attempt(out, ID, 0)
    (out / "outputs").mkdir()
    (out / "outputs/model").write_text("weights")
    assert crash().outcome is Outcome.SUCCESS
    assert (tmp_path / "results/model").read_text() == "weights"


def test_success_that_had_come_home_already(
    folder: RunFolder, crash: Crash, tmp_path: Path
) -> None:
    home = folder.job_folder(0)
    attempt(home, ID, 0)
    (home / "outputs").mkdir()
    (home / "outputs/model").write_text("weights")
    assert crash().outcome is Outcome.SUCCESS
    assert (tmp_path / "results/model").read_text() == "weights"


def test_a_failure_is_a_failure(out: Path, crash: Crash) -> None:
    attempt(out, ID, int(Exit.INPUT_FAILED))
    state = crash()
    assert state.outcome is Outcome.FAILURE and state.failure is Exit.INPUT_FAILED


def test_a_failure_that_may_be_tried_again(out: Path, crash: Crash) -> None:
    attempt(out, ID, int(Exit.COMMAND_FAILED))
    state = crash()
    assert state.status is Status.IDLE and state.requeues == 1


def test_an_input_that_did_not_arrive(out: Path, crash: Crash) -> None:
    attempt(out, ID, int(Exit.INPUT_RETRYABLE))
    state = crash()
    assert state.status is Status.HELD and state.hold_subcode == Exit.INPUT_RETRYABLE


@pytest.mark.parametrize("code", [None, 143])
def test_an_attempt_that_did_not_end_is_evicted(out: Path, crash: Crash, code: int | None) -> None:
    attempt(out, ID, code)
    state = crash()
    assert state.status is Status.IDLE and state.evictions == 1


def test_the_record_of_an_earlier_attempt_says_nothing(out: Path, crash: Crash) -> None:
    attempt(out, OLD, int(Exit.COMMAND_FAILED))
    attempt(out, ID, None)
    state = crash()
    assert state.evictions == 1 and state.requeues == 0


def test_success_is_found_though_the_log_does_not_know_the_attempt(out: Path, crash: Crash) -> None:
    attempt(out, ID, 0)
    assert crash(told=False).outcome is Outcome.SUCCESS


def test_a_failure_that_nobody_can_place_is_tried_again(out: Path, crash: Crash) -> None:
    attempt(out, ID, int(Exit.INPUT_FAILED))
    assert crash(told=False).evictions == 1


@pytest.mark.parametrize("code", [None, int(Exit.CHECKPOINT), 143])
def test_a_checkpoint_is_saved(
    folder: RunFolder, out: Path, crash: Crash, code: int | None
) -> None:
    attempt(out, ID, code)
    (out / "checkpoint").mkdir()
    (out / "checkpoint/ckpt").write_text("7")
    assert crash().status is Status.IDLE
    kept = folder.path / "spool/0/headway-out/checkpoint/ckpt"
    assert kept.read_text() == "7"
    assert not (folder.job_folder(0) / "checkpoint").exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"exit": "0"}',
        '{"exit": true}',
        '{"exit": 0, "segments": 3}',
        '{"exit": 0, "segments": [3, {"begin": 1e999}]}',
    ],
)
def test_a_damaged_record_is_none(out: Path, crash: Crash, text: str) -> None:
    attempt(out, ID, 0)
    (out / "attempts" / ID / "record.json").write_text(text)
    state = crash()
    assert state.evictions + (state.outcome is Outcome.SUCCESS) == 1


def test_a_request_without_sense_is_answered(folder: RunFolder) -> None:
    bodies: list[Any] = [{}, {"jobs": [0]}, {"jobs": 3}, {"jobs": [0], "action": "x", "reason": ""}]
    with closing(Supervisor(folder, LocalJob.read(folder))) as supervisor:
        recover(supervisor)
        for body in bodies:
            (result,) = supervisor.answer(body)
            assert "makes no sense" in result["error"]
        (result,) = supervisor.answer({"jobs": [5], "action": "hold", "reason": ""})
        assert result["error"] == "there is no such job"
