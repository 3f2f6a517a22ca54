"""How a release ended, by the log that real pools wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.cli.heal import decisions_as_json, print_decisions
from headway.events import Event
from headway.holds.audit import HealAction, HealState, ReleaseEnding
from headway.holds.decisions import decide
from headway.holds.heal import Healer
from headway.holds.job_log import LoggedJob, news_of
from headway.holds.queue import queue_of_pool
from headway.holds.rules import Rules

from .held_made import NOW, case, held

RULES = Rules()


def entry(**changes: Any) -> HealAction:
    job = held(age=10_000.0)
    (decision,) = decide(HealState(RULES, id="me"), [case(job)], NOW, RULES)
    assert decision.intent is not None
    return HealAction(replace(decision.intent, since=NOW - 100.0, **changes), done=True)


def event(number: int, seconds: float, *body: str) -> Event:
    return Event(number, 8123, 0, 0, NOW + seconds, "", body)


HELD = ("\tAgain", "\tCode 13 Subcode 256")
OTHER = ("\tSomething else", "\tCode 34 Subcode 102")
GOOD = ("\t(1) Normal termination (return value 0)",)
BAD = ("\t(1) Normal termination (return value 3)",)


def told(found: HealAction, *events: Event, now: float = NOW + 5000.0) -> list[tuple[str, Any]]:
    trail = LoggedJob()
    for each in events:
        trail.take(each)
    lines = news_of(found, list(trail.steps or ()), now, RULES)
    return [(line["kind"], line.get("how")) for line in lines]


BEFORE = (event(12, -500.0, *HELD), event(13, -400.0), event(1, -300.0), event(12, -100.0, *HELD))


@pytest.mark.parametrize(
    ("after", "news"),
    [
        ((), []),
        ((event(13, 0.0),), []),
        ((event(13, 0.0), event(1, 1.0)), [("passed", None)]),
        (
            (event(13, 0.0), event(1, 1.0), event(5, 9.0, *GOOD)),
            [("passed", None), ("outcome", "success")],
        ),
        (
            (event(13, 0.0), event(1, 1.0), event(5, 9.0, *BAD)),
            [("passed", None), ("outcome", "failed")],
        ),
        ((event(13, 0.0), event(12, 9.0, *HELD)), [("outcome", "held again")]),
        ((event(13, 0.0), event(9, 9.0)), [("outcome", "removed")]),
        ((event(9, 9.0),), [("outcome", "removed")]),
        # what comes after the end is another story
        (
            (event(13, 0.0), event(12, 9.0, *HELD), event(13, 20.0), event(5, 30.0, *GOOD)),
            [("outcome", "held again")],
        ),
        # forged, or of another hold: before it was held
        ((event(5, -200.0, *GOOD),), []),
    ],
)
def test_of_a_job_that_was_held_before_it_started(
    after: tuple[Event, ...], news: list[tuple[str, Any]]
) -> None:
    assert told(entry(early=True), *BEFORE, *after) == news


def test_of_a_job_that_was_held_later_a_start_is_not_enough() -> None:
    late = entry(early=False)
    started = (*BEFORE, event(13, 0.0), event(1, 1.0))
    assert told(late, *started, now=NOW + 60.0) == []
    assert told(late, *started, now=NOW + 700.0) == [("passed", None)]
    assert told(late, *started, event(12, 50.0, *HELD)) == [("outcome", "held again")]


def test_another_hold_is_not_the_same() -> None:
    trail = LoggedJob()
    for each in (*BEFORE, event(13, 0.0), event(12, 9.0, *OTHER)):
        trail.take(each)
    (line,) = news_of(entry(early=True), list(trail.steps or ()), NOW, RULES)
    assert line["how"] == "held for another cause" and line["same"] is False
    assert line["code"] == 34
    # The same code with another reason is another cause, too, and the other way round.
    over = ("\tmemory usage exceeded request_memory", "\tCode 21 Subcode 102")
    late = ("\tit ran for longer than the time limit", "\tCode 21 Subcode 9")
    memory = entry(cause="over-memory", code=21)
    after = (*BEFORE, event(13, 0.0))
    assert told(memory, *after, event(12, 9.0, *over)) == [("outcome", "held again")]
    assert told(memory, *after, event(12, 9.0, *OTHER)) == [("outcome", "held again")]
    assert told(memory, *after, event(12, 9.0, *late)) == [("outcome", "held for another cause")]


def test_an_earlier_audit_is_read_in_today_s_words() -> None:
    job = entry()
    state = HealState(RULES)
    state.take({"kind": "intent", "intent": job.intent.as_json()})
    state.take({"kind": "result", "id": job.intent.id, "done": True})
    state.take({"kind": "outcome", "id": job.intent.id, "how": "held again", "same": False})
    assert state.by_id[job.intent.id].ending is ReleaseEnding.OTHER


def test_a_log_without_end_keeps_few_steps() -> None:
    trail = LoggedJob()
    for n in range(5000):
        trail.take(event(12 + n % 2, float(n), *HELD))
    assert trail.steps is not None and len(trail.steps) == 400


def test_what_the_queue_refused_is_not_told_as_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    decisions = decide(HealState(RULES, id="me"), [case(held(age=10_000.0))], NOW, RULES)
    assert decisions[0].intent is not None
    refused = HealAction(decisions[0].intent, done=False, words="you are not a queue super user")
    healer = Healer(queue_of_pool("htcondor", logs=[]), tmp_path / "audit", RULES, do=False)
    healer.decisions = decisions
    healer.state.by_id[refused.intent.id] = refused
    print_decisions(healer, did=True)
    assert "8123.0 was not released: you are not a queue super user" in capsys.readouterr().out
    (said,) = decisions_as_json(healer)["decisions"]
    assert said["refused"] == "you are not a queue super user"


def test_an_eviction_that_is_told_after_the_hold_leaves_the_job_held() -> None:
    job, seen = LoggedJob(), []
    for each in (
        *(event(0, -9.0), event(1, -8.0), event(12, -7.0, *HELD)),
        *(event(4, -6.0), event(12, -5.0, *HELD), event(13, -4.0)),
    ):
        job.take(each)
        seen.append((job.held, job.holds, job.unwanted))
    assert seen == [(False, 0, 0), (False, 0, 0), *[(True, 1, 1)] * 3, (False, 1, 1)]
    assert job.releases == 1
