"""The logs of a real pool, one per scenario: what they say in the end, and how we read them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway.events import Outcome, Status, fold, read_log
from headway.events.format import CommonStage

MACHINE = "127-0-0-1.pool.test"
DONE = {"status": Status.COMPLETED, "outcome": Outcome.SUCCESS, "why": "succeeded"}
GONE = {"status": Status.REMOVED, "outcome": Outcome.REMOVED}


def done(**more: object) -> dict[str, object]:
    return DONE | {"attempts": 1, "holds": 0, "evictions": 0, "return_value": 0} | more


def gone(code: int | None, subcode: int | None, **more: object) -> dict[str, object]:
    held = 0 if code is None else 1
    base = {"hold_code": code, "hold_subcode": subcode, "holds": held, "attempts": 1}
    return GONE | base | {"evictions": 0} | more


FINAL: dict[str, dict[str, object]] = {
    "bad_exec": gone(6, 2),
    "chirp_008_phases": done(site="CHTC-Spark-CE1", foreign=1),
    "command_failed_then_output_hold": gone(12, 2, site="GP-ARGO-ksu-backfill", checkpoints=0),
    "container": done(),
    "curl_plugin_cut_while_progressing": gone(None, None, attempts=4, evictions=3, started=None),
    "detach": done(),
    "disk": gone(21, 104),
    "eviction_loses_record": gone(None, None, attempts=2, evictions=1, site="ONE-SLOT"),
    "exec_duration": gone(47, 0),
    "fail_404": done(attempts=2, holds=1, hold_code=None),
    "gpu": done(site=MACHINE),
    "job_duration": gone(46, 0),
    "jobplugin": done(),
    "memory": gone(21, 102),
    "missing_input": gone(13, 2, started=None, site=MACHINE, checkpoints=0),
    "missing_output": gone(12, 2, checkpoints=0),
    "ok_transfer": done(slot=f"slot1_1@glidein_1@{MACHINE}"),
    "out_remap": done(),
    "periodic_hold": gone(3, 42),
    "periodic_release_bounded": gone(13, 256, attempts=3, holds=3),
    "periodic_release_unbounded": gone(None, None, attempts=13, holds=12),
    "plugin_cut_while_progressing": gone(None, None, attempts=3, evictions=2),
    "retriable": gone(None, None, evictions=1),
    "retriable_cooldown": done(attempts=3, evictions=2),
    "schedd_kill_reconnect": done(),
    "second_startd": done(),
    "selfckpt": done(checkpoints=3),
    "shadow_kill": done(attempts=2),
    "site_crash": gone(None, None, evictions=1),
    "site_down_fast": gone(None, None, evictions=1),
    "stageout_baseline": done(),
    "stageout_handover": done(),
    "stall_plugin_lifetime": gone(13, 62),
    "stall_xfer_stall_timeout": gone(None, None, attempts=7, evictions=6),
    "starter_kill": done(attempts=2, evictions=1),
    "transfer_with_028_sites": done(site="ONE-SLOT"),
    "upload_fail": gone(12, 256),
    "vacate": done(attempts=2, evictions=1),
    "wall_exit_nonzero": gone(3, 7),
}


def test_every_log_has_its_ending_here(logs: Path) -> None:
    assert sorted(path.stem for path in logs.glob("*.log")) == sorted(FINAL)


#: Six jobs each, for which HTCondor brought files once; a proc below zero is HTCondor's own. A node
#: with GUIDANCE_MUMS_THE_WORD runs that one instead, and the jobs that wait for it never start.
COMMON = {
    "six_jobs": dict.fromkeys(range(6), Outcome.SUCCESS),
    "without_guidance": dict.fromkeys((0, 1, 3, 5), Outcome.SUCCESS)
    | dict.fromkeys((2, 4), Outcome.REMOVED),
}


@pytest.mark.parametrize("name", COMMON)
def test_common_files_are_no_job(name: str, logs: Path) -> None:
    events = read_log(logs.parent / "common" / f"{name}.log").events
    strange = [event for event in events if event.proc < 0]
    assert {4, 47} < {event.number for event in strange}
    stages = [event.common for event in strange if event.number == 47]
    assert stages == [CommonStage.STARTED, CommonStage.FINISHED]
    jobs = fold(events)
    assert {proc: job.outcome for proc, job in jobs.items()} == COMMON[name]
    assert all(job.attempts == (job.outcome is Outcome.SUCCESS) for job in jobs.values())


@pytest.mark.parametrize("name", sorted(FINAL))
def test_final_state(name: str, logs: Path) -> None:
    jobs = fold(read_log(logs / f"{name}.log").events)
    assert len(jobs) == (4 if name.startswith("stageout") else 1)
    for job in jobs.values():
        assert {key: getattr(job, key) for key in FINAL[name]} == FINAL[name]
        assert job.submitted is not None
        assert job.ended is not None
        assert job.submitted <= (job.started or job.ended) <= job.ended == job.since


@pytest.mark.parametrize("name", sorted(FINAL))
def test_read_like_htcondor_does(
    name: str, logs: Path, judge: Callable[[Path], list[dict[str, Any]]]
) -> None:
    path = logs / f"{name}.log"
    log = read_log(path)
    assert log.skipped == ()
    assert log.offset == path.stat().st_size
    theirs = judge(path)
    assert [event.number for event in log.events] == [event["type"] for event in theirs]
    for ours, their in zip(log.events, theirs, strict=True):
        assert (ours.cluster, ours.proc) == (their["Cluster"], their["Proc"])
        if "ReturnValue" in their and ours.number == 5:
            assert ours.return_value == their["ReturnValue"]
        assert ours.slot == their.get("SlotName", ours.slot)
        if ours.number == 12:
            assert ours.reason == their["HoldReason"]
            assert ours.codes == (their["HoldReasonCode"], their["HoldReasonSubCode"])
        if ours.number == 4:
            assert ours.reason == their["Reason"]
            assert ours.code == their["ReasonCode"]
        if ours.number in (9, 13):
            assert ours.reason == their.get("Reason", "")


def test_words_for_people_while_a_job_is_held(logs: Path) -> None:
    events = read_log(logs / "fail_404.log").events
    held = next(at for at, event in enumerate(events) if event.number == 12)
    job = fold(events[: held + 1])[0]
    assert job.status is Status.HELD
    assert job.why.startswith("held: Transfer input files failure at execution point slot1_3@")
    assert job.why.endswith("(code 13, subcode 256)")
    assert "404 Not Found" in job.hold_reason
    job.update(events[held + 1])
    assert (job.status, job.why, job.hold_code) == (Status.IDLE, "released", None)


def test_statuses_on_the_way(logs: Path) -> None:
    jobs = [fold(read_log(logs / "shadow_kill.log").events[:n])[1] for n in range(1, 14)]
    assert [job.status.value for job in jobs] == [
        "idle",
        "transferring-in",
        "transferring-in",
        "running",
        "running",
        "transferring-in",  # the shadow was killed: a new attempt without an eviction
        "transferring-in",
        "disconnected",
        "transferring-in",
        "running",
        "running",
        "running",
        "completed",
    ]
