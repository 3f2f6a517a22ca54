"""From what is known of a hold to what to do about it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from headway.events import Event
from headway.holds.advice import CONDOR, Act, constraint
from headway.holds.advise import advise, make_advice
from headway.holds.checks import CheckResults, check
from headway.holds.evidence import Ends, Estimate, gather
from headway.holds.history import History
from headway.holds.hold import Hold, JobId
from headway.holds.table import PERMANENT, HoldMeaning, table

from . import logs_made as made
from .logs_made import BEGIN, NOT_FOUND, RESET, URL, hold, submitted


def asked(events: list[Event]) -> tuple[Hold, History]:
    history = made.history_of(events)
    return history.held()[-1], history


def test_a_passing_fault_is_released() -> None:
    advice = advise(*asked([submitted(0), *made.tried(0, 1)]))
    assert advice.act is Act.RELEASE and advice.thin and advice.command == "condor_release 1.0"
    assert advice.avoid_site and advice.hold.site == "node1.site.edu"


def test_a_storm_is_waited_out_and_then_released() -> None:
    storm = [event for proc in range(1, 7) for event in (submitted(proc), *made.tried(proc, 1))]
    found, history = asked([*storm, submitted(0), *made.tried(0, 60)])
    advice = advise(found, history)
    assert advice.act is Act.WAIT and advice.until == found.time + 900
    assert advise(found, history, now=found.time + 901).act is Act.RELEASE
    # Somebody gets past meanwhile: no storm.
    found, history = asked([*storm, *made.went(9, 1), submitted(0), *made.tried(0, 60)])
    assert advise(found, history).act is Act.RELEASE


def again(times: int, reason: str = RESET) -> list[Event]:
    events = [submitted(0)]
    for number in range(times):
        events += [*made.tried(0, number * 7200, reason), made.released(0, number * 7200 + 7000)]
    return [*events, *made.tried(0, times * 7200, reason)]


def test_a_release_that_came_back_is_followed_by_a_growing_pause() -> None:
    pauses = []
    for times in (1, 2):
        found, history = asked(again(times))
        advice = advise(found, history)
        assert advice.act is Act.WAIT and advice.until is not None
        pauses.append(advice.until - found.time)
    assert pauses == [600, 1200]


def test_after_three_that_came_back_it_is_not_believed_to_pass() -> None:
    found, history = asked(again(3))
    advice = advise(found, history, now=found.time + 10**6)
    assert advice.act is Act.UNKNOWN and "come back 3 times" in " ".join(advice.reasons)
    assert advice.command == "" and "Find out what stops it" in advice.reasons[-1]
    found, history = asked(again(4, NOT_FOUND))
    advice = advise(found, history, now=found.time + 10**6)
    assert advice.act is Act.CHANGE and "correct the name" in advice.changes[0].words


def test_other_jobs_never_get_a_job_removed() -> None:
    """Whatever a poisoned log says about others."""
    others = [event for n in range(1, 200) for event in made.released_and(n, n, False)]
    found, history = asked([*others, submitted(0, 5000), *made.tried(0, 5001)])
    for now in (found.time, found.time + 10**6):
        assert advise(found, history, now=now).act is not Act.REMOVE


def test_memory_is_raised_above_what_was_used() -> None:
    events = [submitted(0), made.executing(0, 5), made.evicted(0, 100, 9000, 8192)]
    found, history = asked([*events, made.held(0, 100, "memory", 34, 102)])
    advice = advise(found, history)
    (change,) = advice.changes
    assert (change.attribute, change.old, change.new) == ("RequestMemory", "8192", "14336")
    assert advice.command == "condor_qedit 1.0 RequestMemory 14336 && condor_release 1.0"
    assert advice.cost_unit == "GPU hours"


@pytest.mark.parametrize(
    ("reason", "facts", "new"),
    [
        ("Job has gone over cgroup memory limit of 1024 megabytes. Last measured usage: 1100"
         " megabytes.", {}, "1664"),
        ("memory", {"RequestMemory": 2048, "MemoryUsage": 2100}, "4096"),
        ("memory", {"RequestMemory": 2048}, "3072"),
        ("memory", {"RequestMemory": "undefined", "MemoryUsage": float("nan")}, ""),
        ("memory", {"MemoryUsage": 1e30}, ""),
        ("memory", {"MemoryUsage": -5, "RequestMemory": 0}, ""),
    ],
)  # fmt: skip
def test_to_how_much(reason: str, facts: dict[str, object], new: str) -> None:
    (change,) = advise(hold(34, 102, reason, facts=facts), History()).changes
    assert change.new == new and change.attribute == "RequestMemory"


def test_disk_is_in_kilobytes() -> None:
    facts = {"RequestDisk": 4 * 1024 * 1024, "DiskUsage": 5 * 1024 * 1024}
    (change,) = advise(hold(21, 104, "", facts=facts), History()).changes
    assert change.new == str(8 * 1024 * 1024) and "from 4 GiB to 8 GiB" in change.words


def test_a_category_that_the_job_has_already_is_not_advised() -> None:
    over = "The job exceeded allowed execute duration of 40:00:00"
    known = advise(hold(47, 0, over, facts={"JobDurationCategory": "Long"}), History())
    assert [change.attribute for change in known.changes] == [""]
    medium = advise(hold(47, 0, over, facts={"JobDurationCategory": "Medium"}), History())
    assert medium.changes[1].old == "Medium" and "condor_qedit" in medium.command
    # A limit that the job itself set is in no category, whether the queue or the log tells it.
    own = "The job exceeded allowed job duration of 02:00:00"
    for facts in ({}, {"AllowedJobDuration": 7200}):
        other = advise(hold(46, 0, own, facts=facts), History())
        assert other.changes[-1].words == "or raise its time limit from 7,200 s to 10,800 s"
        edit = "condor_qedit 1.0 AllowedJobDuration 10800"
        assert other.command == f"{edit} && condor_release 1.0"


def test_one_bad_host_does_not_make_an_executable_missing() -> None:
    missing = "Error from slot1@bad.edu: Failed to execute '/x/run.sh': (errno=2: 'No such file'"
    mates = [event for n in range(1, 20) for event in (submitted(n), *made.went(n, n))]
    alone = asked([submitted(0), made.held(0, 100, missing, 6, 2)])
    assert advise(*alone).act is Act.CHANGE
    advice = advise(*asked([*mates, submitted(0), made.held(0, 100, missing, 6, 2)]))
    assert advice.act is Act.RELEASE and advice.avoid_site


def test_what_is_seen_now_decides() -> None:
    found, history = asked([submitted(0), *made.tried(0, 1, NOT_FOUND)])
    there = advise(found, history, CheckResults(object_there=True, words=("It answers.",)))
    assert there.act is Act.RELEASE and there.probability == pytest.approx(0.9)
    assert "It answers." in there.reasons
    gone = advise(found, history, CheckResults(object_there=False))
    assert gone.act is Act.CHANGE and "correct the name" in gone.changes[0].words
    mates = [event for n in range(1, 20) for event in (submitted(n), *made.went(n, n))]
    found, history = asked([*mates, submitted(0), *made.tried(0, 100, NOT_FOUND)])
    lost = advise(found, history, CheckResults(object_there=False))
    assert lost.act is Act.WAIT and "other jobs have had it" in lost.until_words
    over = hold(34, 102, "")
    assert advise(over, history, CheckResults(request_enough=True)).act is Act.RELEASE
    file = hold(13, 2, "Transfer input files failure: reading from file /x: (errno 2)")
    assert advise(file, history).act is Act.CHANGE
    assert advise(file, history, CheckResults(file_there=True)).act is Act.RELEASE


def test_holds_that_stopped_coming_are_released() -> None:
    events = [event for n in range(7) for event in (submitted(n), *made.tried(n, n, NOT_FOUND))]
    found, history = asked(events)
    assert advise(found, history).act is Act.WAIT
    for event in made.went(9, 600):
        history.add(event, "a.log", now=BEGIN + 10**9)
    (quiet,) = check([found], history, now=found.time + 2000, offline=True)
    assert quiet.quiet and "no such hold came since" in quiet.words[0]
    assert advise(found, history, quiet, found.time + 2000).act is Act.RELEASE
    for event in (submitted(8, 1900), *made.tried(8, 1900, NOT_FOUND)):
        history.add(event, "a.log", now=BEGIN + 10**9)
    (loud,) = check([found], history, now=found.time + 2000, offline=True)
    assert loud.quiet is False
    assert advise(found, history, loud, found.time + 2000).act is Act.WAIT


def test_what_nobody_knows_is_not_guessed() -> None:
    advice = advise(hold(3, 7, "bad exit"), History())
    assert advice.act is Act.UNKNOWN and advice.command == ""
    assert advise(hold(777, 3, "?"), History()).act is Act.UNKNOWN


def test_losses_either_way() -> None:
    found, history = asked([submitted(0), made.transferring(0, 0), made.held(0, 36000)])
    advice = advise(found, history)
    assert advice.probability is not None and advice.cost_unit == "slot hours"
    assert advice.cost_release == pytest.approx((1 - advice.probability) * 10)
    assert advice.cost_remove == pytest.approx(advice.probability * 10)


def test_commands_name_jobs_and_nothing_else() -> None:
    jobs = [JobId("x; rm -rf /", 7, proc) for proc in (0, 1, 2, 5, 6, 9)]
    assert CONDOR.release(jobs[:2]) == "condor_release 7.0 7.1"
    wanted = "(ClusterId == 7 && ((ProcId >= 0 && ProcId <= 2) || (ProcId >= 5 && ProcId <= 6)"
    assert constraint(jobs) == f"{wanted} || ProcId == 9))"
    evil = NOT_FOUND.replace(made.URL, "osdf:///a`id`$(id;x")
    found, history = asked(again(1, evil))
    command = advise(found, history).command
    assert command == "headway sources 'osdf:///a`id`$(id' && condor_release 1.0"


def test_a_site_that_answers_again_is_told() -> None:
    crash = "Error from slot1_1@g@site.edu: Failed to execute '/x': (errno=26: 'Text file busy')"
    events = [submitted(0), made.executing(0, 5), made.held(0, 20, crash, 6, 26)]
    found, history = asked(events)
    (before,) = check([found], history, now=found.time + 60, offline=True)
    assert found.site == "Site" and before.site_well is None
    for event in [submitted(1, 30), *made.went(1, 40)]:
        history.add(event, "a.log", now=BEGIN + 10**9)
    (after,) = check([found], history, now=found.time + 120, offline=True)
    assert after.site_well and "The site answers: 1 job started there" in " ".join(after.words)
    assert any("The site answers" in why for why in advise(found, history, after).reasons)


INPUT = (
    "Headway: the input 'data/d.tar' did not arrive: HTTP 404 Not Found from c1.example.org:8443,"
    " and 2 more sources failed (osdf:///ns/d.tar); released by itself after 120 s"
)


def test_an_input_that_headway_missed_is_named_and_waits_for_its_own_release() -> None:
    found = hold(3, 81, INPUT)
    values = {"url": "osdf:///ns/d.tar", "status": "404", "source": "c1.example.org"}
    assert values.items() <= found.values.items() and found.values["pause"] == "120"
    waits = advise(found, History())
    assert waits.act is Act.WAIT and waits.until == found.time + 240
    assert waits.headline.startswith("data/d.tar did not arrive: HTTP 404 Not Found from c1.exa")
    assert "osdf:///ns/d.tar" in waits.headline
    assert advise(found, History(), now=found.time + 241).act is Act.RELEASE
    assert advise(found, History(), CheckResults(object_there=True)).act is Act.RELEASE
    gone = advise(found, History(), CheckResults(object_there=False))
    assert gone.act is Act.CHANGE and "osdf:///ns/d.tar" in gone.changes[0].words
    plain = hold(3, 81, "Headway: an input did not arrive; released by itself after 60 s")
    assert advise(plain, History()).until == found.time + 180


@pytest.mark.parametrize("entry", table(), ids=lambda entry: entry.id)
def test_no_line_says_other_than_the_advice(entry: HoldMeaning) -> None:
    """Never "release" in one line and "nothing", or "release", in the next."""
    code, subcode = min(entry.codes or {999}), min(entry.subcodes or {0})
    found = replace(hold(code, subcode, ""), values={"url": URL})
    evidence = gather(found, History(), entry)
    again = replace(evidence, released_own=Ends(again=5))
    looks = [None, *(CheckResults(object_there=there) for there in (True, False))]
    looks += [
        CheckResults(quiet=True),
        CheckResults(file_there=True),
        CheckResults(request_enough=True),
    ]
    for known, p, checks, later in product((evidence, again), (0.01, 0.9), looks, (0, 10**6)):
        estimate = Estimate(p, p, p, 50, False)
        now = found.time + later
        advice = make_advice(found, entry, known, estimate, checks=checks, now=now)
        last = advice.reasons[-1].lower()
        if advice.act is Act.RELEASE:
            assert "release" in last and "nothing" not in last, advice
        elif advice.act is Act.WAIT:
            assert "release" in last and last != "release it.", advice
        elif advice.act is Act.REMOVE:
            assert "release it" not in last, advice
        elif advice.act is Act.CHANGE and entry.kind != PERMANENT:
            assert "change" in last, advice


def test_the_node_s_copy_of_an_executable_is_not_what_the_user_is_told_of() -> None:
    said = (
        "Error from slot1@h: Failed to execute '/x/dir_1/condor_exec.exe': (errno=8: 'Exec format"
        " error')"
    )
    alone = advise(made.hold(6, 8, said), History())
    assert "condor_exec.exe" not in " ".join([alone.headline, alone.changes[0].words])
    assert "the job's executable" in alone.headline
    known = advise(made.hold(6, 8, said, facts={"Cmd": "/home/a/train.sh"}), History())
    assert "/home/a/train.sh" in known.headline


def test_others_who_got_past_a_limit_had_changed_something() -> None:
    """Nothing in a log says what they changed: a plain release would repeat it for nothing."""
    said = "Job has gone over cgroup memory limit of 2048 megabytes."

    def over(proc: int, at: float) -> list[Event]:
        return [
            submitted(proc, at),
            made.executing(proc, at + 1),
            made.held(proc, at + 3600, said, 34, 102),
        ]

    good = [
        event
        for n in range(1, 60)
        for event in [*over(n, n), made.released(n, 4000 + n), *made.went(n, 4100 + n)]
    ]
    history = made.history_of(made.in_order(good, over(0, 9000)))
    hold_of_it = history.held()[-1]
    advice = advise(hold_of_it, history)
    assert advice.act is Act.CHANGE and advice.changes[0].attribute == "RequestMemory"
