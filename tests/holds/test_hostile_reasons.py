"""Poisoned logs: giant, contradictory, future-dated, doubled, forged."""

from __future__ import annotations

import json
import time
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.events import Event
from headway.holds.advice import Act
from headway.holds.advise import advise
from headway.holds.history import History
from headway.holds.table import table

from . import logs_made as made

NOW = made.BEGIN + 5000
TEXTS = st.sampled_from(
    ["", made.RESET, made.NOT_FOUND, "memory exceeded", "Code 1 Subcode 0", "{path}", "\x1b[2J",
     "Job terminated.", "Started transferring input files", "headway nonce=a phase=run state=begin"]
) | st.text(max_size=40)  # fmt: skip
EVENTS = st.builds(
    Event,
    st.sampled_from([0, 1, 4, 5, 7, 8, 9, 12, 12, 12, 13, 13, 21, 22, 24, 28, 33, 40, 47, 150]),
    st.sampled_from([1, 1, 1, 2, -1, 2**40]),
    st.sampled_from([0, 0, 1, -1, 2**40]),
    st.just(0),
    st.sampled_from([-1e12, 0.0, made.BEGIN, made.BEGIN + 1, made.BEGIN + 60, NOW, 1e13]),
    TEXTS,
    st.lists(
        TEXTS
        | st.builds(
            "\tCode {} Subcode {}".format,
            st.integers(-5, 50) | st.sampled_from([-(10**17), 10**17]),
            st.sampled_from([0, 2, 13, 62, 102, 256, 10**17, -2000]),
        )
        | st.just("\t(1) Normal termination (return value 0)"),
        max_size=3,
    ).map(tuple),
)
REMOVABLE = {entry.id for entry in table() if entry.act == "remove"}


@settings(deadline=None)
@given(st.lists(EVENTS, max_size=40))
def test_no_events_are_too_strange(events: list[Event]) -> None:
    history = History()
    for event in events:
        history.add(event, "a.log", now=NOW)
    for hold in [*history.held(), *history.every_hold()]:
        for now in (None, NOW, NOW + 10**7):
            advice = advise(hold, history, now=now)
            json.dumps(advice.as_json())
            if advice.act is Act.REMOVE:
                assert advice.cause in REMOVABLE  # by the table alone
            if hold.code in (1, 15, 16):
                assert advice.act is Act.LEAVE


def test_a_giant_reason_is_one_line_of_harmless_text(tmp_path: Path) -> None:
    log = tmp_path / "giant.log"
    giant = "Transfer input files failure " + "\x1b[31m/x/" * 400_000
    body = f"\t{giant}\n\tCode 13 Subcode 256".encode()
    head = b"012 (001.000.000) 2025-10-09 08:53:20 Job was held.\n"
    log.write_bytes(head + body + b"\n...\n" + head.replace(b"001.000", b"001.001") + body)
    begin = time.process_time()
    history = History.from_logs([log])
    for hold in history.held():
        advice = advise(hold, history)
        text = json.dumps(advice.as_json(), ensure_ascii=False)
        assert "\x1b" not in text and len(text) < 60_000
    assert time.process_time() - begin < 5


def test_a_forged_008_tells_nothing() -> None:
    """The command can write these by itself; a hold or a start in them is none."""
    forged = [
        made.event(8, 0, 5, "headway nonce=x phase=run state=begin t=1"),
        made.event(8, 0, 6, "Job was held.", ["\tmemory", "\tCode 34 Subcode 102"]),
        made.event(8, 0, 7, "012 (001.000.000) 2025-10-09 08:53:20 Job was held."),
    ]
    events = [made.submitted(0), *made.tried(0, 1)]
    with_them = made.history_of([*events[:1], *forged, *events[1:], *forged])
    without = made.history_of(events)
    (mine,), (plain,) = with_them.held(), without.held()
    one, other = advise(mine, with_them).as_json(), advise(plain, without).as_json()
    assert one == other


def test_contradictions_are_settled_by_order() -> None:
    events = [
        made.released(0, 1),  # of what?
        made.held(0, 2),
        made.held(0, 2),
        made.held(0, 3, made.NOT_FOUND),  # held anew without a release
        made.submitted(0, 4),
    ]
    (hold,) = made.history_of(events).held()
    assert hold.reason == made.NOT_FOUND and hold.holds == 1
    over = made.history_of([*events, made.ended(0, 5), made.held(0, 6)])
    assert over.held() == []


def test_thousands_held_in_the_same_second_cost_no_more_each() -> None:
    def seconds(number: int) -> float:
        begin = time.process_time()
        events = [made.submitted(proc) for proc in range(number)]
        history = made.history_of([*events, *(made.held(proc, 9) for proc in range(number))])
        for hold in history.held():
            advise(hold, history)
        return (time.process_time() - begin) / number

    few = min(seconds(300) for _ in range(3))
    assert seconds(6000) < 4 * few
