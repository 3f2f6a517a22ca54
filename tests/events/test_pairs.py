"""A job and its courier in a DAG of Headway's are one job, for whoever reads their log."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.events import Event, Jobs, Outcome, Status, columns_of, read_columns, read_log
from headway.events.event import Kind, pair_named

#: Of a real pool, HTCondor 25.14: two jobs, each with its courier.
LOG = Path(__file__).parent / "dag" / "pairs.log"


def test_the_real_log() -> None:
    log = read_log(LOG)
    jobs = Jobs(log.events)
    base = min(event.cluster for event in log.events)
    assert sorted(jobs.by_id) == [(base, 0), (base, 1)]
    for job in jobs.by_id.values():
        assert job.outcome is Outcome.SUCCESS
        assert job.attempts == 1, "a courier computes nothing"
        assert job.sandbox_bytes == 20_000_000 and job.sandbox_at
        assert job.htcondor_id not in ("", f"{job.cluster}.{job.proc}")
    for columns in (read_columns([LOG]), columns_of(log.events)):
        assert set(zip(columns.cluster.tolist(), columns.proc.tolist(), strict=True)) == {
            (base, 0),
            (base, 1),
        }
        assert columns.kind.tolist().count(Kind.SUBMITTED) == 2
        names = [columns.strings[place] for place in columns.text[columns.number == 0].tolist()]
        assert [pair_named(name) for name in names] == [
            (role, names[0][4:12], job) for role in ("job", "courier") for job in (0, 1)
        ]


def test_between_job_and_courier_it_is_delivering() -> None:
    jobs = Jobs()
    seen: list[Status] = []
    for event in read_log(LOG).events:
        state = jobs.update(event)
        if state is not None and state.proc == 0 and seen[-1:] != [state.status]:
            seen.append(state.status)
    assert seen == [
        Status.IDLE,
        Status.TRANSFERRING_IN,
        Status.RUNNING,
        Status.TRANSFERRING_OUT,
        Status.RUNNING,
        Status.DELIVERING,
        Status.COMPLETED,
    ]


@pytest.mark.parametrize(
    ("line", "node"),
    [
        ('    [ DAGNodeName = "courier-0a1b2c3d-17"; JobBatchName = "x" ]', "courier-0a1b2c3d-17"),
        ("    DAG Node: job-0a1b2c3d-3", "job-0a1b2c3d-3"),
        ("    DAG Node: B", "B"),
        ('    [ JobBatchName = "x" ]', ""),
        ("    a note with DAG Node: B", ""),
    ],
)
def test_the_node_of_a_dag(line: str, node: str) -> None:
    event = Event(0, 7, 0, 0, 1.0, "Job submitted from host: <127.0.0.1>", (line,))
    assert event.node == node
    assert (pair_named(node) is None) == (not node or node == "B")


def test_other_dags_stay_as_they_are() -> None:
    events = [
        Event(0, cluster, 0, 0, 1.0, "Job submitted from host: <h>", (f"    DAG Node: {name}",))
        for cluster, name in ((3, "A"), (4, "job-xyz-1"), (5, "courier-0a1b2c3d-"))
    ]
    assert sorted(Jobs(events).by_id) == [(3, 0), (4, 0), (5, 0)]
    assert columns_of(events).cluster.tolist() == [3, 4, 5]
