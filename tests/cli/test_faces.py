"""One answer about a request, whoever is asked: a log, a run, the queue, heal."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway.events import EventWriter
from headway.events.format import Resource
from headway.holds.advice import Advice
from headway.holds.advise import advise
from headway.holds.guards import permitted
from headway.holds.heal import FollowedLogs
from headway.holds.history import History
from headway.holds.hold import QueuedHold
from headway.holds.queue import holds_of
from headway.holds.rules import Rules

from .conftest import Done

#: What a real schedd says of a job that was held for its memory: 879 MiB used, 256 asked for.
#: MemoryUsage is an expression, and ResidentSetSize is rounded up.
AD: dict[str, Any] = {
    "ClusterId": 5,
    "ProcId": 0,
    "Owner": "ann",
    "JobStatus": 5,
    "HoldReason": "Error from slot1@node: memory usage exceeded request_memory",
    "HoldReasonCode": 21,
    "HoldReasonSubCode": 102,
    "EnteredCurrentStatus": 1100,
    "ServerTime": 1200,
    "NumHolds": 1,
    "RequestMemory": 256,
    "MemoryUsage": "( ( ResidentSetSize + 1023 ) / 1024 )",
    "ResidentSetSize": 1000000,
    "ResidentSetSize_RAW": 899600,
    "RequestDisk": 51200,
    "DiskUsage": 125000,
    "DiskUsage_RAW": 102400,
    "Requirements": "true",
}
DISK = {"HoldReason": "disk usage exceeded request_disk", "HoldReasonSubCode": 104}
TIME = {
    "HoldReason": "The job exceeded allowed job duration of 02:00:00",
    "HoldReasonCode": 46,
    "HoldReasonSubCode": 0,
    "AllowedJobDuration": 7200,
}


def write(log: EventWriter, ad: dict[str, Any]) -> None:
    code, subcode = ad["HoldReasonCode"], ad["HoldReasonSubCode"]
    used = {"Memory": Resource(879, 256, 256), "Disk": Resource(102400, 51200, 51200)}
    log.submitted(5, 0, "<127.0.0.1:1>", time=1000.0)
    log.executing(5, 0, "<127.0.0.1:2>", slot="slot1@node", time=1010.0)
    log.evicted(5, 0, ad["HoldReason"], code, subcode=subcode, resources=used, time=1100.0)
    log.held(5, 0, ad["HoldReason"], code, subcode, time=1100.0)


def by_heal(ad: dict[str, Any], log: Path | None) -> Advice:
    logs = FollowedLogs()
    if log is not None:
        logs.follow([str(log)])
        logs.poll()
    found = QueuedHold.of_ad({**ad, "UserLog": str(log) if log else None})
    advice = advise(logs.hold(found, logs.holds_now()), logs.history)
    logs.close()
    refused = permitted(advice, found, Rules(factor=1.0))
    assert not advice.command or f"by hand: {advice.command}" in refused.objection
    # Whatever heal may not do, it names the same figure.
    heal = permitted(advice, found, Rules(factor=100.0))
    assert [edit.new for edit in heal.edits if edit.old][:1] in ([], [advice.changes[-1].new])
    return advice


@pytest.mark.parametrize(
    ("changed", "attribute", "new"),
    [
        ({}, "RequestMemory", "1408"),
        ({"RequestMemory": "ifThenElse(true, 256, 512)"}, "RequestMemory", "1408"),
        (DISK, "RequestDisk", "262144"),
        (TIME, "AllowedJobDuration", "10800"),
    ],
    ids=["memory", "expression", "disk", "time"],
)
def test_all_faces_give_one_answer(
    headway: Callable[..., Done],
    make_run: Callable[..., Any],
    changed: dict[str, Any],
    attribute: str,
    new: str,
) -> None:
    ad = {**AD, **changed}
    run = make_run("train", cluster=5, events=lambda log: write(log, ad))
    log = str(run.events)
    found: dict[str, list[dict[str, str]]] = {}
    for face, word in (("run", "train-1.0"), ("log", log)):
        told = json.loads(headway("advise", word, "--offline", "--json").stdout)
        found[face] = told["advice"][0]["changes"]
        if face == "run" and attribute == "RequestMemory":
            command = "headway set train-1.0 memory=1408MiB && headway release train-1.0"
            assert told["advice"][0]["command"] == command
    for face, history in (("queue and log", History.from_logs([log])), ("queue", History())):
        (hold,) = holds_of([QueuedHold.of_ad(ad)], history)
        found[face] = [vars(change) for change in advise(hold, history).changes]
    for face, path in (("heal", run.events), ("heal without a log", None)):
        found[face] = [vars(change) for change in by_heal(ad, path).changes]
    for face, changes in found.items():
        assert (changes[-1]["attribute"], changes[-1]["new"]) == (attribute, new), (face, changes)


def test_what_the_queue_rounds_is_used_only_where_nothing_else_is_known() -> None:
    """Never below use: an expression in the ad must not hide what the job used."""
    rounded = {**AD, "ResidentSetSize_RAW": None}
    (hold,) = holds_of([QueuedHold.of_ad(rounded)], History())
    assert advise(hold, History()).changes[0].new == "1536"
    evaluated = {**rounded, "MemoryUsage": 879, "ResidentSetSize": None}
    (hold,) = holds_of([QueuedHold.of_ad(evaluated)], History())
    assert advise(hold, History()).changes[0].new == "1408"
