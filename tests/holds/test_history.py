"""What a history makes of events: releases and how they ended, starts, times, twins."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from tests.report.study import write

from headway.events import Event, read_columns
from headway.holds.advice import Act
from headway.holds.advise import advise
from headway.holds.evidence import Ends, gather
from headway.holds.history import History, SeriesKey, of_columns, read_hold_events
from headway.holds.hold import Cut, Hold, meaning_of

from . import logs_made as made
from .logs_made import BEGIN, RESET, history_of, submitted

LOGS = Path(__file__).parents[1] / "events" / "logs"
ALL: SeriesKey = ("releases", "input-network")


def ends(history: History, key: SeriesKey = ALL) -> Ends:
    return Ends(*(round(n) for n in history.total(key, Cut(float("inf")))))


@pytest.mark.parametrize(
    ("after", "wanted"),
    [
        (made.went(0, 100), Ends(success=1)),
        (made.tried(0, 100), Ends(again=1)),
        ([made.transferring(0, 100), made.executing(0, 110)], Ends(success=1)),
        ([made.executing(0, 110), made.ended(0, 200, 1)], Ends(failed=1)),
        # It got past the step, and is held again for the same cause all the same.
        ([made.executing(0, 110), made.held(0, 200)], Ends(again=1)),
        # For another cause, after it had got past: the release itself did what it should.
        ([made.executing(0, 110), made.held(0, 200, "over", 34, 102)], Ends(success=1)),
        ([made.transferring(0, 110), made.held(0, 200, "over", 34, 102)], Ends(again=1)),
        ([made.removed(0, 150)], Ends(censored=1)),
        ([made.held(0, 150, "via condor_hold (by user ml)", 1, 0)], Ends(censored=1)),
        ([made.executing(0, 110), made.removed(0, 150)], Ends(success=1)),
        ([], Ends()),
    ],
)  # fmt: skip
def test_how_a_release_ended(after: list[Event], wanted: Ends) -> None:
    before = [submitted(0), *made.tried(0, 1), made.released(0, 50)]
    assert ends(history_of([*before, *after])) == wanted


def test_a_success_that_turns_out_to_be_none_is_taken_back_from_then_on() -> None:
    history = history_of(
        [submitted(0), *made.tried(0, 1), made.released(0, 50), made.executing(0, 60),
         made.ended(0, 100, 1)]
    )  # fmt: skip
    between = Cut(BEGIN + 95)
    assert Ends(*map(round, history.total(ALL, between))) == Ends(success=1)
    assert ends(history) == Ends(failed=1)


def test_holds_are_counted_and_the_last_one_lasts() -> None:
    history = history_of(
        [submitted(0), *made.tried(0, 1), made.released(0, 50), *made.tried(0, 60), submitted(1)]
    )
    assert {hold.proc for hold in history.held()} == {0}
    (hold,) = history.held()
    assert (hold.cluster, hold.proc, hold.holds, hold.starts) == (1, 0, 2, 2)
    assert hold.time == BEGIN + 70 and hold.reason == RESET and hold.code == 13
    assert hold.attempt == pytest.approx(10 / 3600) and hold.spent == pytest.approx(20 / 3600)
    assert [(str(each.job), each.holds) for each in history.every_hold()] == [
        ("1.0", 1),
        ("1.0", 2),
    ]
    assert history.knows(1, 1) and not history.knows(2)


def test_the_site_is_known_by_the_machine_once_a_start_has_told() -> None:
    remote = made.event(21, 1, 30, "Error from starter on slot1_1@g@site.edu:", ["\tFailed"])
    history = history_of(
        [submitted(0), made.executing(0, 5), submitted(1), made.transferring(1, 20), remote,
         made.held(1, 31)]
    )  # fmt: skip
    assert [(hold.proc, hold.site) for hold in history.held()] == [(1, "Site")]


def test_usage_becomes_facts() -> None:
    history = history_of(
        [submitted(0), made.executing(0, 5), made.evicted(0, 100, 9000, 8192),
         made.held(0, 100, "memory", 34, 102)]
    )  # fmt: skip
    (hold,) = history.held()
    assert hold.facts == {"RequestMemory": 8192, "MemoryUsage": 9000, "RequestGpus": 1}


def jobs(history: History, folder: Path) -> float:
    """How many jobs of cluster 1 the logs in the folder have."""
    return history.total(("jobs", str(folder), 1), Cut(math.inf))[0]


def test_a_log_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    events = made.in_order(*(made.released_and(n, n * 7, n % 2 == 0) for n in range(6)))
    one = made.written(tmp_path / "a.log", events)
    two = made.written(tmp_path / "b.log", events)
    both = History.from_logs([one, two])
    once = History.from_logs([one])
    assert ends(both) == ends(once) == Ends(success=3, again=3)
    assert jobs(both, tmp_path) == jobs(once, tmp_path) == 6 and len(both.held()) == 3
    # The same file twice over: every event is there again, after the first time.
    three = tmp_path / "c.log"
    three.write_bytes(one.read_bytes() * 2)
    assert ends(History.from_logs([three])) == ends(once)
    assert [hold.holds for hold in History.from_logs([three]).held()] == [2, 2, 2]


def test_cluster_mates_may_write_a_log_each(tmp_path: Path) -> None:
    for proc in range(1, 9):
        made.written(tmp_path / f"{proc}.log", [submitted(proc), *made.went(proc, proc)])
    made.written(tmp_path / "0.log", [submitted(0), *made.tried(0, 100)])
    history = History.from_logs([tmp_path])
    (hold,) = history.held()
    evidence = gather(hold, history, meaning_of(hold))
    assert (evidence.mates, evidence.mates_past, evidence.others_past) == (8, 8, 8)


def test_two_access_points_may_both_have_a_job_1_0(tmp_path: Path) -> None:
    one = made.written(tmp_path / "a.log", [submitted(0), *made.tried(0, 1)])
    two = made.written(tmp_path / "b.log", [submitted(0, 5), *made.went(0, 6)])
    history = History.from_logs([one, two])
    assert jobs(history, tmp_path) == 2 and [hold.log for hold in history.held()] == [str(one)]


def test_a_number_that_is_used_again_is_another_job() -> None:
    events = [submitted(0), *made.tried(0, 1), made.removed(0, 20)]
    history = history_of([*events, submitted(0, 100), *made.tried(0, 101)])
    (hold,) = history.held()
    assert (hold.holds, hold.starts) == (1, 1)


def test_times_in_the_future_are_not_believed() -> None:
    """One forged date does not make all that follows it look recent, or come after it."""
    future = made.executing(7, 10**8)
    usual = [submitted(0), *made.tried(0, 1), made.released(0, 50), *made.tried(0, 4000)]
    plain, forged = History(), History()
    for history, events in ((plain, usual), (forged, [submitted(7), future, *usual])):
        for event in events:
            history.add(event, "a.log", now=BEGIN + 5000)
    assert forged.held()[0].at.moment == plain.held()[0].at.moment
    hold = forged.held()[0]
    assert gather(hold, forged, meaning_of(hold)).alike_recent == 0


def test_a_clock_that_jumps_back_does_not_reorder_a_log() -> None:
    events = [submitted(0, 1000), *made.tried(0, 1001), submitted(1, 0), *made.tried(1, 1)]
    history = history_of(events)
    first, second = history.held()
    assert (first.proc, second.proc) == (0, 1) and first.at < second.at
    assert gather(second, history, meaning_of(second)).alike_recent == 1
    assert gather(first, history, meaning_of(first)).alike_recent == 0


def answers(history: History, holds: list[Hold]) -> list[object]:
    return [advise(hold, history).as_json() for hold in holds]


def test_both_readers_of_logs_tell_the_same(tmp_path: Path) -> None:
    paths = [*write(tmp_path), *sorted(LOGS.glob("*.log"))]
    plain = read_hold_events(paths, [])
    bulk = list(of_columns(read_columns(paths)))
    assert [len(rows) for rows in plain] == [len(rows) for rows in bulk]
    for mine, its in zip(plain, bulk, strict=True):
        for one, other in zip(mine, its, strict=True):
            # What has no number in the table is left out there and None here.
            facts = {**(one.facts or {})} == {**(other.facts or {})}
            assert (
                one._replace(place=0, facts=None) == other._replace(place=0, facts=None) and facts
            )


def test_following_a_log_is_as_good_as_reading_it(tmp_path: Path) -> None:
    from headway.events import read_log

    paths = write(tmp_path)
    read = History.from_logs(paths)
    followed = History()
    for path in reversed(paths):  # whichever log is looked at first
        for event in read_log(path).events:
            followed.add(event, str(path))
    mine = sorted(read.every_hold(), key=lambda hold: (hold.job, hold.time))
    theirs = sorted(followed.every_hold(), key=lambda hold: (hold.job, hold.time))
    assert answers(read, mine) == answers(followed, theirs)


def test_a_store_tells_what_its_logs_tell(tmp_path: Path) -> None:
    from headway.collect import Collector
    from headway.holds.history import read_hold_events

    logs = Path(__file__).parents[1] / "events" / "logs"
    with Collector([logs], tmp_path / "kept") as collector:
        collector.poll()
    unread: list[tuple[str, str]] = []

    def told(place: Path) -> list[tuple[object, ...]]:
        rows = [row for log in read_hold_events([place], unread) for row in log]
        facts = [sorted((row.facts or {}).items()) for row in rows]
        plain = [row._replace(log="", place=0, facts=None) for row in rows]
        return sorted(zip(plain, facts, strict=True), key=repr)

    assert told(tmp_path / "kept") == told(logs)


EXEC = (
    "Error from slot1_1@n: Failed to execute '/x/dir_1/condor_exec.exe': (errno=13: 'Permission"
    " denied')"
)


def failed_exec(proc: int, at: float) -> list[Event]:
    """A start whose command could not be executed: HTCondor writes the 001 all the same."""
    return [
        submitted(proc),
        made.transferring(proc, at),
        made.executing(proc, at + 1),
        made.event(7, proc, at + 1, "Shadow exception!", [f"\t{EXEC}"]),
        made.held(proc, at + 1, EXEC, 6, 13),
    ]


@pytest.mark.parametrize("apart", [0.0, 1.0, 40.0])
def test_an_attempt_that_ends_in_the_hold_itself_proves_nothing(apart: float) -> None:
    history = history_of(made.in_order(*(failed_exec(n, 10 + n * apart) for n in range(10))))
    for hold in history.held():
        evidence = gather(hold, history, meaning_of(hold))
        assert (evidence.mates_past, evidence.others_past, evidence.own_past) == (0, 0, 0)
        assert (evidence.past_recent, hold.past) == (0, 0)
        advice = advise(hold, history)
        assert advice.act is Act.CHANGE
        assert not any("started" in said and not said.startswith("None") for said in advice.reasons)


def test_a_start_that_lasts_is_proof() -> None:
    lasting = [[submitted(n), *made.went(n, 10)] for n in range(1, 9)]
    history = history_of(made.in_order(*lasting, failed_exec(0, 100)))
    (hold,) = history.held()
    assert gather(hold, history, meaning_of(hold)).mates_past == 8


def test_a_release_that_ends_in_the_same_hold_has_not_succeeded_for_a_moment() -> None:
    again = [made.released(0, 50), *failed_exec(0, 60)[1:]]
    history = history_of([*failed_exec(0, 10), *again])
    for at in (61.5, 70, 95, 1000):
        key = ("releases", "executable-denied")
        assert Ends(*map(round, history.total(key, Cut(BEGIN + at)))) == Ends(again=1)


@pytest.mark.parametrize("columns", [False, True])
def test_a_hold_without_a_reason_takes_that_of_the_exception_before_it(
    columns: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = (
        "Error from slot1_24@e2551: FILETRANSFER:1:non-zero exit (1) from /usr/lib/stash_plugin."
        " |Error: failed to get namespace information for remote URL osdf:///a/b: 404: No namespace"
        " found for path. Either it doesn't exist, or the Director is experiencing problems"
    )
    body = [f"\t{said}", "\t0  -  Run Bytes Sent By Job", "\t182  -  Run Bytes Received By Job"]
    log = made.written(
        tmp_path / "a.log",
        [
            submitted(0),
            made.transferring(0, 5),
            made.event(7, 0, 9, "Shadow exception!", body),
            made.held(0, 9, "Reason unspecified", 0, 0),
            submitted(1),
            made.held(1, 500, "Reason unspecified", 0, 0),
        ],
    )
    if columns:
        monkeypatch.setattr("headway.holds.history._MANY", 0)
    explained, silent = History.from_logs([log]).held()
    assert meaning_of(explained).id == "input-object-not-found" and explained.reason == said
    assert explained.values["url"] == "osdf:///a/b"
    assert meaning_of(silent).id == "unknown"
