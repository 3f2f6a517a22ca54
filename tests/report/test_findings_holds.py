"""Findings about holds and limits: bursts, time limits, memory and disk, holds left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from tests.report.made import Row, accounts_of

from headway.report.findings.holds import duration, hold_burst, longest_run, unreleased
from headway.report.findings.jobs import over_asked, under_asked, unnamed

DAY = 86400.0
GIB = 1024  # MB


def success(**row: Any) -> Row:
    return {"parts": {"transfer-in": 600.0, "compute": 14000.0}} | row


def not_found(slot: str = "slot1_1@a.test", **row: Any) -> Row:
    reason = (
        f"Transfer input files failure at execution point {slot} using protocol osdf. "
        "Details: server returned 404 Not Found ( URL file = osdf:///data/x.tar )|"
    )
    held: Row = {"ending": "transfer-failed", "code": 13, "subcode": 256, "reason": reason}
    return held | {"parts": {"transfer-in": 1.0}, "held_s": 5000.0} | row


def burst(number: int, apart: float = 2.0, **job: Any) -> list[Row]:
    tries = [[not_found(f"slot1_{n}@m{n}.test")] for n in range(number)]
    return [
        {"outcome": "held", "begin": 2e6 + apart * n, "tries": tries[n]} | job
        for n in range(number)
    ]


def test_a_burst_of_404s_over_consecutive_jobs() -> None:
    accounts = accounts_of([{"tries": [success()]}] * 10 + burst(15))
    [found] = hold_burst(accounts)
    assert found.title == (
        "15 jobs were held for the same reason: the data server answered that osdf:///data/x.tar "
        "is not there (404); 15 of them consecutive (1.10 to 1.24) within 28 s"
    )
    assert (found.jobs, found.lost_jobs, found.cost_s) == (15, 15, 15.0)
    assert "The object is there" in found.why
    lines = [line for step in found.advice for line in step.lines]
    assert lines[0] == (
        "condor_release -constraint "
        "'HoldReasonCode == 13 && HoldReasonSubCode == 256 && (ClusterId == 1)'"
    )
    assert "input = 5" in lines


def test_the_same_holds_over_a_day_are_no_burst() -> None:
    assert hold_burst(accounts_of(burst(15, apart=3600))) == []


def test_four_are_no_burst() -> None:
    assert hold_burst(accounts_of(burst(4))) == []


def test_different_reasons_are_no_burst() -> None:
    jobs = burst(12)
    for number, job in enumerate(jobs):
        letters = "abcdefghijkl"[number]
        job["tries"] = [not_found(reason=f"failed by {letters}")]
    assert hold_burst(accounts_of(jobs)) == []


def test_where_nothing_ever_arrived_nobody_is_told_to_release() -> None:
    [found] = hold_burst(accounts_of(burst(15)))
    assert "No input of these clusters ever arrived" in found.why
    assert not any("condor_release" in line for s in found.advice for line in s.lines)


def test_jobs_that_got_over_it_are_not_lost() -> None:
    jobs = burst(8, outcome="success")
    for job in jobs:
        job["tries"] = [*job["tries"], success()]
        job["tries"][0] |= {"released": True, "held_s": 60.0}
    [found] = hold_burst(accounts_of(jobs))
    assert (found.jobs, found.lost_jobs) == (8, 0)


def test_a_users_own_holds_are_no_burst() -> None:
    held = [(1, 0, "via condor_hold (by user ada)", 500.0)]
    jobs = [{"outcome": "held", "begin": 2e6, "held": held} for _ in range(20)]
    assert hold_burst(accounts_of(jobs)) == []


def test_runs_do_not_cross_clusters() -> None:
    jobs = [{"cluster": 1 + n // 4, "proc": n, "id": f"{1 + n // 4}.{n}"} for n in range(10)]
    assert longest_run(accounts_of(jobs).jobs) == ("1.0", "1.3", 4)


def over_time(code: int | None = 47, reason: str = "", **row: Any) -> Row:
    reason = reason or "The job exceeded allowed execute duration of 20:00:00"
    parts = {"transfer-in": 800.0, "compute": 72000.0}
    held: Row = {"ending": "over-time", "code": code, "subcode": 0, "reason": reason}
    return held | {"parts": parts, "held_s": 10.0} | row


def test_the_time_limit_is_named() -> None:
    jobs: list[Row] = [{"gpus": 1, "tries": [success()]} for _ in range(20)]
    jobs += [{"gpus": None, "outcome": "held", "tries": [over_time(site="Slow")]} for _ in range(2)]
    [found] = duration(accounts_of(jobs))
    assert found.title == "2 jobs were stopped at the time limit of 20 hours: 40.4 GPU hours lost"
    assert (found.cost_s, found.lost_jobs) == (2 * 72800, 2)
    assert "slow node" in found.why
    lines = [line for step in found.advice for line in step.lines]
    assert "checkpoint_exit_code = 85" in lines
    assert 'interval = "1 h"' in lines
    # More time helps no job that met a slow node, and unmodified it must not be released.
    assert "condor_rm 1.20" in lines
    assert not any("condor_release" in line for line in lines)


def test_a_longer_category_is_a_longer_limit_too() -> None:
    long = {"parts": {"compute": 60000.0}}
    jobs: list[Row] = [{"tries": [long]} for _ in range(9)]
    [found] = duration(accounts_of([*jobs, {"outcome": "held", "tries": [over_time(site="S")]}]))
    # HTCondor looks at the limit alone, which the access point has set from the category.
    assert found.advice[-1].lines == (
        "condor_qedit 1.9 JobDurationCategory '\"Long\"' AllowedExecuteDuration 144000",
        "condor_release 1.9",
    )


def test_only_the_limit_on_execution_counts_from_the_last_checkpoint() -> None:
    execute, whole = (
        duration(accounts_of([{"outcome": "held", "tries": [over_time(code)]}]))[0]
        for code in (47, 46)
    )
    assert "counts from the last checkpoint" in execute.advice[0].text
    assert "counts from the last checkpoint" not in whole.advice[0].text
    assert "goes on from there" in whole.advice[0].text


def test_jobs_too_long_for_the_category_are_told_of_the_longer_one() -> None:
    long = {"parts": {"compute": 60000.0}}
    jobs: list[Row] = [{"tries": [long]} for _ in range(9)]
    [found] = duration(accounts_of([*jobs, {"outcome": "held", "tries": [over_time(site="S")]}]))
    assert any('+JobDurationCategory = "Long"' in step.lines for step in found.advice)


def test_a_policy_in_words_counts_and_others_do_not() -> None:
    ran = over_time(3, "ran too long", ending="hold")
    [found] = duration(accounts_of([{"outcome": "held", "tries": [ran]}]))
    assert found.title.startswith("1 job was stopped at the time limit: ")
    # What a rule names is not what it met.
    rule = "The job attribute PeriodicHold expression 'RemoteWallClockTime > 9 || NumHolds > 2'"
    either = over_time(3, f"{rule} evaluated to TRUE", ending="hold")
    assert duration(accounts_of([{"outcome": "held", "tries": [either]}])) == []
    other = over_time(3, "bad exit", ending="hold")
    assert duration(accounts_of([{"outcome": "held", "tries": [other]}])) == []
    assert duration(accounts_of([{"tries": [success()]}] * 50)) == []


def test_a_site_where_it_happens_far_more_often_is_named() -> None:
    jobs: list[Row] = [{"tries": [success(site="Fast")]} for _ in range(60)]
    jobs += [{"outcome": "held", "tries": [over_time(site="Slow")]} for _ in range(9)]
    [found] = duration(accounts_of(jobs))
    assert any('avoid = ["Slow"]' in step.lines for step in found.advice)


@pytest.mark.parametrize(
    ("code", "subcode", "reason", "name"),
    [
        (34, 102, "Job has gone over cgroup memory limit", "memory"),
        (21, 102, "memory usage exceeded request_memory", "memory"),
        (21, 1001, "over", "memory"),
        (26, 0, "SYSTEM_PERIODIC_HOLD: used too much memory", "memory"),
        (34, 104, "disk usage exceeded", "disk"),
        (21, 103, "over", "disk"),
    ],
)
def test_too_little_asked(code: int, subcode: int, reason: str, name: str) -> None:
    tried: Row = {"ending": "hold", "code": code, "subcode": subcode, "reason": reason}
    tried |= {"parts": {"compute": 7200.0}, "held_s": 100.0}
    tried |= {"memory_asked": 4 * GIB, "memory_used": 6 * GIB}
    job = {"outcome": "held", "tries": [tried]}
    [found] = under_asked(accounts_of([job, {"tries": [success()]}]))
    assert found.key == f"under-asked:{name}"
    assert (found.cost_s, found.lost_jobs) == (7200, 1)
    if name == "memory":
        assert found.title.startswith("1 job used more memory than the 4 GiB asked for and was")
        assert found.advice[0].lines == ("request_memory = 9 GB", "retry_request_memory = 18 GB")
        assert found.advice[2].lines[0] == "condor_qedit 1.0 RequestMemory 9216"


def test_the_request_is_that_of_the_attempt_that_was_stopped() -> None:
    # An edit has raised it since, and the job went on with that.
    tried: Row = {"ending": "hold", "code": 34, "subcode": 102, "reason": "over", "held_s": 9.0}
    tried |= {"parts": {"compute": 60.0}, "memory_asked": 0.5 * GIB, "memory_used": 0.9 * GIB}
    after = success() | {"memory_asked": 8 * GIB, "memory_used": 1.2 * GIB}
    job = {"memory_asked": 8 * GIB, "memory_used": 1.2 * GIB, "tries": [tried, after]}
    [found] = under_asked(accounts_of([job]))
    assert found.title.startswith("1 job used more memory than the 512 MiB asked for")
    assert dict(found.evidence)["used when last looked at (most)"] == "921.6 MiB"
    assert found.advice[0].lines[0] == "request_memory = 1408 MB"  # as `headway advise` says


def test_a_hold_for_something_else_is_not_about_memory() -> None:
    tried: Row = {"ending": "hold", "code": 26, "subcode": 0, "reason": "too many starts"}
    assert under_asked(accounts_of([{"outcome": "held", "tries": [tried | {"held_s": 1.0}]}])) == []


def asked(memory_gib: float, used_gib: float, **row: Any) -> Row:
    memory = {"memory_asked": memory_gib * GIB, "memory_used": used_gib * GIB}
    return {"tries": [success()], "user": "ada"} | memory | row


def test_far_too_much_memory() -> None:
    [found] = over_asked(accounts_of([asked(64, 5 + n / 20) for n in range(40)]))
    assert found.title == (
        "40 jobs asked for 64 GiB of memory, and 95 of 100 used less than 6.9 GiB (10.7 %)"
    )
    assert found.cost_s is None
    assert found.advice[0].lines == ("request_memory = 9 GB",)
    assert found.advice[1].lines == ("[resources]", 'memory = "9 GiB"')


def test_far_too_much_disk() -> None:
    disk = {"disk_asked": 400.0 * 2**20, "disk_used": 30.0 * 2**20}
    [found] = over_asked(accounts_of([{"tries": [success()]} | disk for _ in range(30)]))
    assert found.key == "over-asked:disk"
    assert found.advice[0].lines == ("request_disk = 38 GB",)


@pytest.mark.parametrize(
    "jobs",
    [
        [asked(64, 40)] * 40,  # well used
        [asked(2, 0.1)] * 40,  # small
        [asked(64, 5)] * 19,  # few
        [asked(64, 5)] * 39 + [asked(64, 60)],  # one needed it
        [asked(64, 5, outcome="failed")] * 40,  # failed before they needed it
    ],
)
def test_requests_that_may_stay(jobs: list[Row]) -> None:
    assert over_asked(accounts_of(jobs)) == []


def test_holds_that_nobody_released() -> None:
    jobs = [{"outcome": "held", "held": [(13, 256, "x", n * DAY)]} for n in (1, 2, 5, 16)]
    jobs.append({"outcome": "held", "held": [(1, 0, "by the user", 30 * DAY)]})
    [found] = unreleased(accounts_of(jobs))
    assert found.title == (
        "2 jobs have been held for more than 3 days (the longest for 16.0 days), and nobody has "
        "released or removed them"
    )
    assert (found.cost_s, found.waiting_s) == (None, 21 * DAY)
    assert "OSPool" not in str(found)  # nothing in the log is of it

    jobs[0]["held"] = [(13, 256, "osdf:///ospool/x.tar: gone", DAY)]
    [found] = unreleased(accounts_of(jobs))
    assert "14 days" in found.why
    assert ("more than 14 days: the OSPool may remove them", "1") in found.evidence


def test_released_or_fresh_holds_are_no_neglect() -> None:
    jobs: list[Row] = [{"outcome": "held", "held": [(13, 256, "x", DAY)]}]
    jobs.append({"tries": [not_found(held_s=9 * DAY, released=True), success()]})
    assert unreleased(accounts_of(jobs)) == []


def same(number: int, code: int, subcode: int, reason: str, **row: Any) -> list[Row]:
    """Jobs that are held for one reason within seconds, each after an hour of work."""
    tried: Row = {"ending": "hold", "code": code, "subcode": subcode, "reason": reason}
    tried |= {"parts": {"compute": 3600.0}, "held_s": 500.0} | row
    return [{"outcome": "held", "begin": 2e6 + n, "tries": [tried]} for n in range(number)]


def commands(found: Any) -> list[str]:
    return [line for step in found.advice for line in step.lines]


AT_NODE = (
    "Error from slot1@n: STARTER at 10.0.0.1 failed to send file(s) to <192.0.2.1:9618>: error "
    "reading from /var/lib/condor/execute/dir_1/model.pt: (errno 2) No such file or directory; "
    "SHADOW failed to receive file(s) from <10.0.0.1:2>"
)
AT_ACCESS_POINT = (
    "Transfer output files failure at access point ap1 while receiving files from execution point "
    "slot1@n. Details: writing to file /eos/user/a/out.txt: (errno 2) No such file or directory"
)


@pytest.mark.parametrize(
    ("code", "subcode", "reason", "said"),
    [
        # A 13 that is an output, which was called an object that is there.
        (13, 2, AT_NODE, "ended without writing a file that it should: model.pt"),
        (12, 2, AT_ACCESS_POINT, "could not write the results to /eos/user/a/out.txt"),
        (12, 256, "Transfer output files failure at execution point slot1@n using protocol osdf. "
         "Details: 404: No namespace found for path ( URL file = osdf:///a/b )|",
         "no such place for the results: osdf:///a/b"),
        (3, 0, "The job attribute OnExitHold expression 'ExitCode =!= 0' evaluated to TRUE",
         "ended with an error"),
        (26, 102, "Excessive CPU usage", "more processor cores"),
    ],
)  # fmt: skip
def test_what_would_compute_all_of_it_again_is_not_released(
    code: int, subcode: int, reason: str, said: str
) -> None:
    accounts = accounts_of([{"tries": [success()]}] * 10 + same(12, code, subcode, reason))
    [found] = hold_burst(accounts)
    assert said in found.title and found.jobs == 12
    assert not any("release" in line for line in commands(found))
    assert "The object is there" not in found.why and found.advice


def test_a_file_of_the_access_point_is_not_called_a_url() -> None:
    reason = (
        "Transfer input files failure at access point ap1 while sending files to execution point "
        "slot1@n. Details: reading from file /home/a/in.dat: (errno 2) No such file or directory"
    )
    [found] = hold_burst(accounts_of([{"tries": [success()]}] * 10 + same(8, 13, 2, reason)))
    assert "/home/a/in.dat" in found.title
    assert "URL" not in found.why + " ".join(step.text for step in found.advice)
    assert not any("release" in line for line in commands(found))


def test_a_long_reason_is_not_cut_before_its_cause() -> None:
    path = "/var/lib/condor/execute/dir_1/" + "deep/" * 60 + "x"
    told_reason = f"Error from slot1@n: cannot do what it should with {path}: gone for ever"
    [found] = hold_burst(accounts_of(same(8, 999, 0, told_reason)))
    assert "gone for ever" in found.title and len(found.title) < 300


def test_only_holds_of_this_kind_are_released() -> None:
    """Two kinds with one code in one cluster: the command names the jobs."""
    other = (
        "Transfer input files failure at execution point slot1@n using protocol osdf. Details: "
        "server returned 403 Forbidden ( URL file = osdf:///b )|"
    )
    jobs = [{"tries": [success()]}] * 10 + burst(6) + same(1, 13, 256, other)
    [found] = hold_burst(accounts_of(jobs))
    assert commands(found)[0] == "condor_release 1.10 1.11 1.12 1.13 1.14 1.15"


def test_a_hold_without_a_reason_has_that_of_its_attempt() -> None:
    jobs = same(8, 0, 0, "Error from slot1@n: Docker job has gone over memory limit of 8055 Mb")
    accounts = accounts_of(jobs)
    silent = accounts.holds.with_columns(reason=pl.lit("Reason unspecified"))
    [found] = under_asked(replace(accounts, holds=silent))
    assert found.key == "under-asked:memory" and found.jobs == 8


def test_what_is_held_for_days_is_told_by_its_cause() -> None:
    held = [(12, 2, AT_ACCESS_POINT, 9 * DAY)]
    jobs = [
        {"outcome": "held", "held": held},
        {"outcome": "held", "held": [(13, 2, AT_NODE, DAY * 8)]},
    ]
    [found] = unreleased(accounts_of(jobs))
    assert found.table is not None
    rows = {row[0]: row for row in found.table.rows}
    assert "could not write the results" in rows["12/2"][3] and "mkdir" in rows["12/2"][4]
    assert "ended without writing a file" in rows["13/2"][3]


@pytest.mark.parametrize(
    ("code", "reason", "said"),
    [
        (None, "Error from slot1@n: The job wrapper failed to execute the job: no singularity",
         "the site's own wrapper could not start the command"),
        (None, "Error from slot1@n: Failed to execute '/x/condor_exec.exe': (errno=8: 'Exec format"
         " error')", "the job's executable is no program for it"),
        (1008, "Job disconnected too long: JobLeaseDuration (2400 seconds) expired",
         "the access point lost contact with the node"),
        (1019, "Preempted for a Priority user", "the node was wanted for somebody else"),
    ],
)  # fmt: skip
def test_exceptions_and_evictions_are_known_by_their_words(
    code: int | None, reason: str, said: str
) -> None:
    lost: Row = {"ending": "system", "code": code, "reason": reason, "parts": {"compute": 9e3}}
    [found] = unnamed(accounts_of([{"tries": [lost, success()]} for _ in range(4)]))
    assert said in found.title and found.advice[0].text and "No pattern" not in found.why
