"""The accounting against the oracle: the same pieces, attempts and holds, whatever the log says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples_of import examples
from tests.report import study
from tests.report.columns import Made, made_columns
from tests.report.oracle import Attempt, Hold, Job, oracle

from headway.events import Jobs, read_columns, read_log
from headway.events.columnar.columns import NONE, Columns
from headway.events.event import AGENT_KINDS, Kind
from headway.report.accounting import account
from headway.report.accounts import Accounts
from headway.report.enums import EVICTIONS, Cause

EVENTS = Path(__file__).parents[1] / "events"
LOGS = [*sorted((EVENTS / "logs").glob("*.log")), EVENTS / "dag" / "pairs.log"]
Told = list[dict[str, Any]]


def us(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e6)


def said(value: int) -> int | None:
    return None if value == NONE else value


def by_oracle(jobs: list[Job]) -> Told:
    def attempt(job: Job, each: Attempt) -> dict[str, Any]:
        row, why = each.teller, None if each.handed else each.teller
        return {
            "begin": each.begin,
            "end": job.until if each.end is None else each.end,
            "ending": each.ending,
            "cause": each.cause.value,
            "executed": each.executed,
            "arrived": each.executed and (each.ran or not each.staging),
            "agent_transfer": each.staging,
            "site": each.site or None,
            "machine": each.machine or None,
            "code": said(why.code) if why else None,
            "subcode": said(why.subcode) if why else None,
            "return_value": said(row.value) if row else None,
            "reason": (why.text or None) if why else None,
            "checkpoints": each.checkpoints,
        }

    def hold(job: Job, each: Hold) -> dict[str, Any]:
        end = job.until if each.end is None else each.end
        return {
            "time": each.begin,
            "released": each.end if each.released else None,
            "held_s": end - each.begin,
            "code": said(each.row.code),
            "reason": each.row.text or None,
            "attempt": each.attempt,
        }

    return [
        {
            "id": job.key,
            "begin": job.begin,
            "end": job.until if job.end is None else job.end,
            "outcome": job.outcome.value,
            "requeues": job.requeues,
            "stalls": sum(each.cause is Cause.TRANSFER_CUT for each in job.attempts),
            "evictions": sum(each.evicted and each.cause in EVICTIONS for each in job.attempts),
            "counted_holds": len(job.holds),
            "hold_code": said(job.holds[-1].row.code) if job.holds else None,
            "pieces": job.pieces,
            "attempts": [attempt(job, each) for each in job.attempts],
            "holds": [hold(job, each) for each in job.holds],
            "deliveries": [
                {
                    "attempt": place,
                    "became": each.became.value,
                    "couriers": each.couriers,
                    "left": each.end,
                    "home": job.end if each.success else None,
                    "stored_s": each.stored,
                    "delivery_s": each.delivery,
                }
                for place, each in enumerate(job.attempts)
                if each.handed
            ],
        }
        for job in jobs
    ]


def by_accounts(accounts: Accounts) -> Told:
    def rows(frame: pl.DataFrame, job: int, names: str) -> Told:
        found = frame.filter(pl.col("job") == job).select(names.split()).rows(named=True)
        times = {"begin", "end", "time", "released", "held_s"}
        times |= {"left", "home", "stored_s", "delivery_s"}
        return [{k: us(v) if k in times else v for k, v in row.items()} for row in found]

    attempts = (
        "begin end ending cause executed arrived agent_transfer site machine code subcode "
        "return_value reason checkpoints"
    )
    found = []
    for job in accounts.jobs.rows(named=True):
        mine = accounts.attempts.filter(pl.col("job") == job["job"])
        first = mine["attempt"][0] if mine.height else 0
        holds = rows(accounts.holds, job["job"], "time released held_s code reason attempt")
        brought = "attempt became couriers left home stored_s delivery_s"
        deliveries = rows(accounts.deliveries, job["job"], brought)
        for each in holds + deliveries:
            each["attempt"] = None if each["attempt"] is None else each["attempt"] - first
        pieces = accounts.pieces.filter(pl.col("job") == job["job"])
        found.append(
            {
                "id": (job["cluster"], job["proc"]),
                "begin": us(job["begin"]),
                "end": us(job["end"]),
                "outcome": job["outcome"],
                "requeues": job["requeues"],
                "stalls": job["stalls"],
                "evictions": job["evictions"],
                "counted_holds": job["holds"],
                "hold_code": job["hold_code"],
                "pieces": [
                    (phase, verdict, cause, us(seconds))
                    for phase, verdict, cause, seconds in pieces.select(
                        "phase", "verdict", "cause", "seconds"
                    ).rows()
                ],
                "attempts": rows(mine, job["job"], attempts),
                "holds": holds,
                "deliveries": deliveries,
            }
        )
    return found


def agrees(
    columns: Columns,
    until: float | None = None,
    outputs: Mapping[tuple[int, int], bool] | None = None,
) -> None:
    told = by_accounts(account(columns, until=until, outputs=outputs))
    expected = by_oracle(oracle(columns, until, outputs))
    assert [job["id"] for job in told] == [job["id"] for job in expected]
    for one, other in zip(told, expected, strict=True):
        assert one == other


STALL = "Transfer input files failure: transfer stalled for 3600 seconds"
#: Whole seconds that are often the same, and moments between them.
TIMES = st.one_of(st.integers(0, 30).map(float), st.integers(0, 30_000_000).map(lambda t: t / 1e6))
LINES = sorted(AGENT_KINDS)
MADE = st.builds(
    Made,
    time=TIMES,
    kind=st.sampled_from(sorted(set(Kind) - AGENT_KINDS)),
    proc=st.integers(0, 1),
    code=st.sampled_from([NONE, 12, 13, 34, 47, 1007, 1008, 1022]),
    subcode=st.sampled_from([NONE, 0, 2, 62]),
    value=st.sampled_from([NONE, 0, 1, 81, 84, 85]),
    text=st.sampled_from(["", "no match", STALL]),
    site=st.sampled_from(["", "A", "B"]),
    slot=st.sampled_from(["", "slot1@m1", "slot2@m2"]),
    host=st.sampled_from(["", "m1", "MPI_job"]),
    log=st.integers(0, 1),
)
LINE = st.builds(
    Made,
    time=TIMES,
    kind=st.sampled_from(LINES),
    proc=st.integers(0, 1),
    text=st.sampled_from(["n1", "n1", "n1", "forged"]),
)
#: What real logs are made of, in the order in which they tell it; anything may stand between.
USUAL = (
    (Kind.INPUT_QUEUED, Kind.INPUT_STARTED, Kind.INPUT_FINISHED, Kind.EXECUTING),
    (Kind.EXECUTING, Kind.CHECK, Kind.STAGE_IN, Kind.RUN),
    (Kind.STAGE_OUT, Kind.DONE_CHECKPOINT),
    (Kind.OUTPUT_QUEUED, Kind.OUTPUT_STARTED, Kind.OUTPUT_FINISHED),
    (Kind.OUTPUT_STARTED, Kind.OUTPUT_FINISHED, Kind.ALIVE),
    (Kind.DISCONNECTED, Kind.RECONNECTED),
    (Kind.DISCONNECTED, Kind.RECONNECT_FAILED, Kind.EVICTED),
    (Kind.SUSPENDED, Kind.UNSUSPENDED),
    (Kind.EVICTED, Kind.OTHER, Kind.HELD),
    (Kind.HELD, Kind.RELEASED),
    (Kind.EVICTED,),
    (Kind.EXECUTING, Kind.RUN, Kind.DONE_LATER, Kind.OUTPUT_STARTED, Kind.REQUEUED),
    (Kind.EXECUTING, Kind.CHECK, Kind.DONE_LATER, Kind.SUCCEEDED),  # its courier is another job
    (Kind.INPUT_STARTED, Kind.INPUT_FINISHED, Kind.EXECUTING, Kind.DELIVER, Kind.DONE),
    (Kind.EXECUTING, Kind.DELIVER, Kind.DONE, Kind.OUTPUT_STARTED, Kind.SUCCEEDED),
    (Kind.EXECUTING, Kind.DELIVER, Kind.OUTPUT_STARTED, Kind.EVICTED),
    (Kind.EXECUTING, Kind.DELIVER, Kind.LOST, Kind.DONE, Kind.REQUEUED),
    (Kind.INPUT_STARTED, Kind.EXECUTING, Kind.PREFETCH, Kind.DONE, Kind.REQUEUED),
    (Kind.EXECUTING, Kind.PREFETCH, Kind.EVICTED),
    (Kind.EXECUTING, Kind.EVICTED),
    (Kind.EXECUTING, Kind.REQUEUED),
    (Kind.SUCCEEDED,),
    (Kind.FAILED,),
    (Kind.REMOVED,),
)


@st.composite
def lives(draw: st.DrawFn) -> list[Made]:
    """The events of one job that hang together, in the order of their times."""
    steps = draw(st.lists(st.sampled_from(USUAL), min_size=1, max_size=8))
    kinds = [Kind.SUBMITTED, *(kind for step in steps for kind in step)]
    time = 0.0
    events = []
    for kind in kinds:
        time += draw(st.sampled_from([0, 1, 2, 3, 10]))
        text = "n1" if kind in AGENT_KINDS else draw(st.sampled_from(["", STALL]))
        code = draw(st.sampled_from([NONE, 13, 34, 47, 1007, 1008]))
        events.append(Made(time, kind, code=code, text=text, slot="slot1@m1"))
    return events


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(st.one_of(MADE, LINE), max_size=40), st.booleans())
def test_any_events(events: list[Made], in_order: bool) -> None:
    if in_order:
        events = sorted(events, key=lambda event: event.time)
    agrees(made_columns(events))


@settings(max_examples=examples(80), deadline=None)
@given(lives(), st.lists(st.one_of(MADE, LINE), max_size=3), st.booleans(), st.booleans())
def test_lives_that_hang_together(
    life: list[Made], strays: list[Made], there: bool, in_order: bool
) -> None:
    events = [*life, *strays]
    if in_order:
        events = sorted(events, key=lambda event: event.time)
    agrees(made_columns(events), until=200, outputs={(1, 0): there})


@settings(max_examples=examples(80), deadline=None)
@given(lives(), lives(), st.integers(0, 40), st.floats(0, 1))
def test_two_logs(mine: list[Made], other: list[Made], gap: int, part: float) -> None:
    """The pool's log tells of the same job again, in part, and of another with the same id."""
    again = [Made(**(vars(e) | {"log": 1})) for e in mine[round(part * len(mine)) :]]
    later = [Made(**(vars(e) | {"log": 1, "time": e.time + gap})) for e in other]
    agrees(made_columns([*mine, *again, *later]))


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_a_log_of_the_real_pool(log: Path) -> None:
    agrees(read_columns([log]))


def test_all_logs_of_the_real_pool_at_once() -> None:
    agrees(read_columns(LOGS))


def test_the_study(tmp_path: Path) -> None:
    agrees(read_columns(study.write(tmp_path)))


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_status_counts_the_same(log: Path) -> None:
    """`headway status` looks at events one by one, the report at all of them at once."""
    states = Jobs(read_log(log).events).by_id
    names = ["attempts", "holds", "requeues", "checkpoints"]
    jobs = account(read_columns([log])).jobs
    told = {(row[0], row[1]): row[2:] for row in jobs.select("cluster", "proc", *names).rows()}
    assert told == {
        key: tuple(getattr(state, name) for name in names) for key, state in states.items()
    }
