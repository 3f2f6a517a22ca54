"""Why outputs wait, by the ads of the queue and the collector; and how a courier is sent again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headway.pool.deliveries import Delivery, PoolFacts, Stage, explained, in_order, slot_words
from headway.pool.folder import RunFolder
from headway.pool.htcondor.submit import courier_description, submit_description, with_courier
from headway.spec import build_job

NOW = 10_000.0
ONE = Delivery("tale-1", 3, Stage.WAITS, node="n", site="A", since=9_000.0, deadline=12_000.0)
AD = {"JobStatus": 1, "HeadwayDeliverSince": 9_100, "EnteredCurrentStatus": 9_100}


def slot(state: str, *, transfer: bool = True, heard: float = NOW) -> dict[str, Any]:
    return {"State": state, "HeadwayTransferSlot": transfer, "LastHeardFrom": heard}


@pytest.mark.parametrize(
    ("slots", "waited", "words"),
    [
        ([], 5, "A is not in the pool now"),
        ([slot("Claimed", heard=NOW - 720)], 5, "A was last heard of 12 min ago"),
        ([slot("Unclaimed", transfer=False)], 5, "A has no transfer slot now"),
        ([slot("Owner"), slot("Drained")], 5, "A takes no couriers now: its START says no"),
        ([slot("Claimed")], 5, "the transfer slot of A is taken"),
        ([slot("Claimed"), slot("Claimed")], 5, "all 2 transfer slots of A are taken"),
        ([slot("Claimed"), slot("Unclaimed")], 5, "a transfer slot of A is free"),
        ([slot("Unclaimed")], 500, "a transfer slot of A is free and has not taken it: "),
    ],
)
def test_what_the_slots_of_a_node_say(
    slots: Sequence[dict[str, Any]], waited: float, words: str
) -> None:
    assert slot_words(ONE, slots, waited, NOW).startswith(words)


@pytest.mark.parametrize(
    ("facts", "stage", "words"),
    [
        (PoolFacts({3: AD}, None, {"n": [slot("Claimed")]}), Stage.WAITS, "the transfer slot of"),
        (PoolFacts({3: AD}, None, None), Stage.WAITS, ""),
        (PoolFacts({3: {**AD, "JobStatus": 2}}, None, {}), Stage.WAITS, ""),
        (PoolFacts({3: {"JobStatus": 1}}), Stage.AGAIN, "it waits for a slot, to compute them"),
        (PoolFacts({3: {**AD, "HeadwayDeliverSince": 6_900}}), Stage.AGAIN, "too late for a"),
        (PoolFacts({}, {"JobStatus": 2}), Stage.WAITS, "DAGMan is about to send its courier"),
        (PoolFacts({}, {"JobStatus": 5, "HoldReason": "x"}), Stage.WAITS, "DAGMan is held: x"),
        (PoolFacts(), Stage.FAILED, "no courier is in the queue, and nobody sends one"),
    ],
)
def test_what_the_queue_says(facts: PoolFacts, stage: Stage, words: str) -> None:
    found = explained(ONE, facts, NOW)
    assert found.stage is stage and found.why.startswith(words)
    assert bool(words) or not found.why


def test_the_deadline_is_that_of_the_queue() -> None:
    found = explained(ONE, PoolFacts({3: AD}), NOW)
    assert found.deadline == 12_100
    over = Delivery("tale-1", 0, Stage.DAMAGED, "x is not what the job made")
    assert explained(over, PoolFacts(), NOW) == over
    assert in_order([found, over]) == [over, found]


def test_the_courier_of_one_job_is_submitted_as_dagman_would(tmp_path: Path) -> None:
    raw = {"name": "tale", "command": "true", "count": 2, "deliver": "later", "outputs": ["a.pt"]}
    job = build_job(raw, folder=tmp_path)
    folder = RunFolder(tmp_path / "tale-1")
    run_id = "0badcafe" * 4
    text = submit_description(job, folder, run_id, tmp_path, paired=True)
    told = 'MY.HeadwaySandbox = "s"\n'
    found = courier_description(job, text, run_id, tmp_path, 1, told, 77)
    assert "\nnumber = 1\n" in found and "paired = false\n" in found
    assert "include" not in found and found.endswith("queue\n")
    for line in (
        'MY.HeadwaySandbox = "s"',
        "MY.DAGManJobId = 77",
        'MY.DAGNodeName = "courier-0badcafe-1"',
        "submit_event_notes = DAG Node: courier-0badcafe-1",
    ):
        assert f"\n{line}\n" in found


def test_a_new_request_is_not_one_of_the_courier(tmp_path: Path) -> None:
    raw = {"name": "tale", "command": "true", "deliver": "later", "outputs": ["a.pt"]}
    job = build_job(raw, folder=tmp_path)
    asked = with_courier(job, "RequestMemory", "2048")
    assert asked == "ifThenElse(HeadwayCourier =?= true, 100, 2048)"
    asked = with_courier(job, "RequestCpus", "2")
    assert asked == "ifThenElse(HeadwayCourier =?= true, 0, 2)"
    assert with_courier(job, "HeadwayTimeLimit", "60") == "60"
    now = build_job({**raw, "deliver": "now"}, folder=tmp_path)
    assert with_courier(now, "RequestMemory", "2048") == "2048"
