"""All findings together: on the study, on nothing, on anything, and never twice the same second."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples_of import examples
from tests.report import study
from tests.report.made import Row, accounts_of, made
from tests.report.many import many_jobs

from headway.events import read_columns
from headway.report.accounting import account
from headway.report.accounts import SOURCES, Accounts
from headway.report.enums import Cause, JobOutcome
from headway.report.findings import Finding, find


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Accounts:
    return account(read_columns(study.write(tmp_path_factory.mktemp("study"))))


def test_the_study_names_the_cut_off_the_404s_and_the_20_hours(accounts: Accounts) -> None:
    found = find(accounts)
    assert [one.title for one in found[:3]] == [
        "232 input transfers were cut off at 1 hour: 322.7 GPU hours lost",
        "16 jobs were held for the same reason: the data server answered that "
        "osdf:///nrp/osdf/ILSVRC2012/ILSVRC2012_img_train.tar is not there (404); 15 of them "
        "consecutive (794570.13 to 794570.27) within 32 s",
        "2 jobs were stopped at the time limit of 20 hours: 40.7 GPU hours lost",
    ]
    cut, burst, limit = found[:3]
    assert cut.cost_s == accounts.attempts.filter(pl.col("ending") == "transfer-cut")["bad_s"].sum()
    assert (cut.jobs, cut.attempts) == (29, 232)
    assert ("longest that arrived", "57 min (3,441 s)") in cut.evidence
    assert (burst.jobs, burst.lost_jobs) == (16, 16)
    assert (limit.jobs, limit.lost_jobs) == (2, 2)


def test_the_study_names_the_cut_off_without_the_words_of_the_log(tmp_path: Path) -> None:
    for path in study.write(tmp_path):
        text = path.read_bytes()
        assert b"stalled for" in text
        path.write_bytes(text.replace(b"Input File transfer stalled for 3600 seconds", b"It ended"))
    top = find(account(read_columns(sorted(tmp_path.glob("*")))))[0]
    assert top.title == "232 input transfers were cut off at 1 hour: 322.7 GPU hours lost"
    assert ("the limit is known from", _INFERRED) in top.evidence


def test_the_study_names_the_cut_off_without_words_and_codes(tmp_path: Path) -> None:
    for path in study.write(tmp_path):
        text = path.read_bytes().replace(b"Input File transfer stalled for 3600 seconds", b"Ended")
        path.write_bytes(text.replace(b"evicted. Code 1007 Subcode 0", b"evicted."))
    top = find(account(read_columns(sorted(tmp_path.glob("*")))))[0]
    assert top.key == "transfer-cut:3600"
    assert 232 <= top.attempts <= 237  # some other long transfers were lost as well


_INFERRED = "the lengths: failures pile up at it, and nothing longer arrived"


def test_the_studys_slow_site_and_its_evictions(accounts: Accounts) -> None:
    rest = {one.key: one for one in find(accounts)[3:]}
    assert rest["site-worse:GP-ARGO-ksu-backfill"].title.startswith(
        "GP-ARGO-ksu-backfill is far slower than the other sites: 8 of its 13 jobs computed longer "
    )
    assert rest["restart"].cost_s == 19746
    assert rest["gpu-input"].waiting_s == 165029
    assert "retry-loop" not in " ".join(rest)  # the cut-off says it better


def test_nothing_says_nothing() -> None:
    assert find(made()) == []
    assert find(made(jobs=[{"outcome": "unfinished"}])) == []


def test_healthy_jobs_say_nothing() -> None:
    parts = {"transfer-in": 300.0, "compute": 9000.0, "transfer-out": 20.0}
    sites = ("A", "B", "C")
    tries = [[{"parts": parts, "site": sites[n % 3], "machine": f"m{n}"}] for n in range(300)]
    jobs: list[Row] = [{"gpus": 1, "memory_asked": 8000, "memory_used": 5000} for _ in tries]
    assert (
        find(accounts_of(job | {"tries": tried} for job, tried in zip(jobs, tries, strict=True)))
        == []
    )


def test_what_two_findings_claim_is_said_and_counted_once() -> None:
    """All cuts are at one site: the limit and the site are both true, of the same hours."""
    cut: Row = {"ending": "transfer-cut", "parts": {"transfer-in": 3660.0}, "site": "Bad"}
    cut |= {"reason": "Input File transfer stalled for 3601 seconds"}
    good: Row = {"parts": {"transfer-in": 900.0, "compute": 9000.0}}
    jobs: list[Row] = [{"tries": [good | {"site": "Good"}]} for _ in range(40)]
    jobs += [{"tries": [cut, cut, good | {"site": "Bad"}]} for _ in range(12)]
    found = {one.key: one for one in find(accounts_of(jobs))}
    first, second = found["transfer-cut:3600"], found["site-worse:Bad"]
    assert first.shared_s == 0
    assert second.shared_s == second.cost_s == 24 * 3660
    assert second.shared_with == ("transfer-cut:3600",)
    assert second.weight_s == 0
    assert second.evidence[-1] == ("also counted in another finding", f"24.4 h: {first.title}")


def test_a_loop_that_another_finding_explains_is_left_out() -> None:
    cut: Row = {"ending": "transfer-cut", "parts": {"transfer-in": 3660.0}}
    cut |= {"reason": "Input File transfer stalled for 3601 seconds"}
    loop = accounts_of([{"outcome": "held", "tries": [cut] * 8}])
    assert [one.key for one in find(loop)] == ["transfer-cut:3600"]
    unnamed = accounts_of([{"outcome": "held", "tries": [cut | {"reason": "no luck"}] * 8}])
    assert [one.key.partition(":")[0] for one in find(unnamed)] == ["retry-loop"]


def test_trifles_are_left_out() -> None:
    good: Row = {"tries": [{"parts": {"compute": 90000.0}}]}
    over: Row = {"ending": "over-time", "code": 47, "parts": {"compute": 5.0}}
    assert find(accounts_of([good] * 3000 + [{"outcome": "removed", "tries": [over]}])) == []


HOSTILE = (
    '<script>alert(1)</script>\x1b[31m=cmd|"/C calc"!A1\u202e\nqueue 1000 $ENV(HOME)' + "x" * 5000
)


def test_hostile_text_is_inert_and_short() -> None:
    def lost(ending: str, **row: Any) -> Row:
        return {"ending": ending, "site": HOSTILE, "machine": HOSTILE, "reason": HOSTILE} | row

    held = lost("transfer-failed", code=13, held_s=9e5, parts={"transfer-in": 1.0})
    over = lost("over-time", code=47, parts={"compute": 90000.0})
    jobs: list[Row] = [{"tries": [{"parts": {"compute": 9e3}, "site": "A", "machine": "a"}]}] * 40
    jobs += [{"outcome": "held", "user": HOSTILE, "tries": [over, held]} for _ in range(20)]
    found = find(accounts_of(jobs))
    assert len(found) >= 3
    for text in _texts([one.as_dict() for one in found]):
        assert text.isprintable()
        assert len(text) < 700
    lines = [line for one in found for step in one.advice for line in step.lines]
    assert not any("script" in line or "ENV" in line for line in lines)


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for part in parts for text in _texts(part)]


def test_findings_go_through_json(accounts: Accounts) -> None:
    for found in find(accounts):
        again = json.loads(json.dumps(found.as_dict(), allow_nan=False))
        assert again == found.as_dict()
        assert re.search(r"\d", found.title)
        assert found.why and found.advice


# Random accounts: few values, so that patterns and thresholds are met again and again.
_ENDINGS = ["success", "open", *(cause.value for cause in Cause if cause is not Cause.NONE)]
_REASONS = st.sampled_from(
    [
        None,
        "",
        "Input File transfer stalled for 3600 seconds",
        "Input File transfer stalled for 0 seconds",
        "The job exceeded allowed execute duration of 20:00:00",
        "Details: server returned 404 Not Found ( URL file = osdf:///x )|",
        "Pelican Client Error: from a.cache.org:8443: too slow",
        "Pelican Client Error: from b.cache.org:8443: too slow",
        "memory usage exceeded",
        HOSTILE,
    ]
)
_LENGTHS = st.sampled_from([0.0, 0.5, 1.0, 60.0, 3599.0, 3600.0, 3700.0, 7300.0, 72000.0, 1e9])
_CODES = st.sampled_from([None, 1, 3, 12, 13, 21, 26, 34, 46, 47, 1007, 1022, -5])
_NAMES = st.sampled_from([None, "", "A", "B", "a.test", HOSTILE])
_PARTS = st.dictionaries(
    st.sampled_from(["waiting", "transfer-in", "starting", "compute", "checkpoint", "suspended"]),
    _LENGTHS,
    max_size=4,
)
_TRIES = st.fixed_dictionaries(
    {"ending": st.sampled_from(_ENDINGS), "parts": _PARTS, "reason": _REASONS, "code": _CODES},
    optional={
        "subcode": st.sampled_from([None, 0, 102, 103, 104, 256, 1001]),
        "site": _NAMES,
        "machine": _NAMES,
        "return_value": st.sampled_from([None, 0, 1, 80, 127, 137]),
        "checkpoints": st.sampled_from([0, 1, 3]),
        "received": st.sampled_from([None, 0.0, 1e9]),
        "agent_transfer": st.booleans(),
        "queued_s": _LENGTHS,
        "held_s": _LENGTHS,
        "released": st.booleans(),
    },
)
_JOBS = st.fixed_dictionaries(
    {
        "outcome": st.sampled_from([o.value for o in JobOutcome]),
        "tries": st.lists(_TRIES, max_size=7),
    },
    optional={
        "begin": st.sampled_from([1e6, 1e6 + 200, 2e6]),
        "return_value": st.sampled_from([None, 0, 1, 137, 300, -1]),
        "signal": st.sampled_from([None, 9, 11]),
        "gpus": st.sampled_from([None, 0.0, 1.0]),
        "cluster": st.sampled_from([1, 2]),
        "user": _NAMES,
        "memory_asked": st.sampled_from([None, 0.0, 65536.0]),
        "memory_used": st.sampled_from([None, 0.0, 10.0, 1e9]),
        "held": st.lists(st.tuples(_CODES, st.none(), st.just("x"), _LENGTHS), max_size=2),
    },
)
_REPEATED = st.tuples(_JOBS, st.sampled_from([1, 1, 3, 12, 40]))


_KINDS = st.lists(_REPEATED, max_size=4)


def random_accounts(kinds: list[tuple[Row, int]]) -> Accounts:
    """Valid accounts of some kinds of jobs, each told once or often."""
    return accounts_of(job for job, times in kinds for job in [job] * times)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(_KINDS)
def test_any_accounts_can_be_looked_at_and_no_second_is_claimed_twice(
    kinds: list[tuple[Row, int]],
) -> None:
    accounts = random_accounts(kinds)
    found = find(accounts)
    bad_s = float(accounts.jobs["bad_s"].sum())
    slot_s = float(accounts.jobs["slot_s"].sum())
    room = 1e-6 * (1 + slot_s)
    for one in found:
        _check(one, bad_s, accounts)
    assert sum((one.cost_s or 0) - one.shared_s for one in found) <= bad_s + room
    assert [one.weight_s for one in found] == sorted((o.weight_s for o in found), reverse=True)
    assert len({one.key for one in found}) == len(found)


def _check(found: Finding, bad_s: float, accounts: Accounts) -> None:
    room = 1e-6 * (1 + bad_s)
    assert found.cost_s is None or 0 <= found.cost_s <= bad_s + room
    assert 0 <= found.shared_s <= (found.cost_s or 0) + room
    assert (
        found.waiting_s is None
        or 0 <= found.waiting_s <= float(accounts.jobs["total_s"].sum()) + room
    )
    assert found.lost_jobs <= accounts.jobs.height
    assert found.jobs <= accounts.jobs.height
    assert found.attempts <= accounts.attempts.height
    assert found.title.isprintable() and found.why and found.title
    json.dumps(found.as_dict(), allow_nan=False)


@pytest.mark.parametrize("name", ["jobs", "attempts", "pieces", "holds"])
def test_no_detector_falls_over_a_column_that_nobody_filled(accounts: Accounts, name: str) -> None:
    """Every column but the keys may be null: logs have gaps."""
    frame: pl.DataFrame = getattr(accounts, name)
    keys = ("job", "attempt", "id", "cluster", "proc", "number")
    for column in frame.columns:
        if column not in keys:
            gone = frame.with_columns(pl.lit(None, frame.schema[column]).alias(column))
            holed: dict[str, Any] = {name: gone}
            find(replace(accounts, **holed))


def test_a_hundred_thousand_jobs_take_seconds() -> None:
    accounts = many_jobs(100_000)
    begin = time.process_time()
    assert find(accounts)
    assert time.process_time() - begin < 15


def test_real_pool_logs_can_be_looked_at() -> None:
    logs = sorted((Path(__file__).parents[1] / "events" / "logs").glob("*.log"))
    found = {one.key for one in find(account(read_columns(logs)))}
    assert "transfer-cut:20" in found
    assert {"over-time:5", "under-asked:memory", "under-asked:disk"} <= found


def held(code: int, subcode: int, reason: str, **row: Any) -> Row:
    tried: Row = {"ending": "hold", "code": code, "subcode": subcode, "reason": reason}
    return {
        "outcome": "held",
        "tries": [tried | {"parts": {"compute": 60.0}, "held_s": 99.0}],
    } | row


def test_no_large_share_of_holds_goes_unnamed() -> None:
    reason = "Error from slot1@n{0}: Transfer output files failure: out/m{0}.pt: No such file"
    # Hours apart, so that no burst explains them.
    jobs = [held(12, 2, reason.format(n), begin=1e6 + 1e4 * n) for n in range(6)]
    [found] = find(accounts_of(jobs))
    assert found.key == "held:output-file-missing"
    assert found.title.startswith("6 jobs of 6 were held: ")
    assert "ended without writing a file that it should" in found.title
    assert "(code 12/2)" in found.title
    assert (found.jobs, found.lost_jobs, found.cost_s) == (6, 6, 360)
    assert "Read the job's stderr" in found.advice[0].text
    assert found.advice[1].lines == ("headway advise log",)
    assert not any("condor_release" in line for step in found.advice for line in step.lines)


def test_a_hold_that_has_a_name_is_named_once() -> None:
    tried = held(34, 102, "memory usage exceeded request_memory")
    assert [one.key for one in find(accounts_of([tried] * 6))] == ["under-asked:memory"]


def test_holds_by_hand_are_named_as_such() -> None:
    [found] = find(accounts_of([held(1, 0, "via condor_hold (by user alice)")] * 3))
    assert found.title == (
        "3 jobs of 3 were held: somebody held them by hand (code 1/0); 3 min of slot time lost"
    )


@pytest.mark.parametrize("ending", sorted({cause.value for cause in Cause} - {"none", "redone"}))
def test_no_large_loss_goes_unnamed(ending: str) -> None:
    outcome = "removed" if ending == "removed" else "success"
    lost: Row = {"ending": ending, "parts": {"compute": 900.0}, "reason": "the words"}
    good: Row = {"parts": {"compute": 100.0}}
    jobs = [{"outcome": outcome, "tries": [lost, good]} for _ in range(2)]
    found = find(accounts_of(jobs))
    assert sum(one.cost_s - one.shared_s for one in found if one.cost_s) >= 1800


def test_a_rule_that_put_a_job_back_is_no_reason_of_its_failure() -> None:
    rule = "The job attribute OnExitRemove expression 'ExitCode =?= 0' evaluated to FALSE"
    tried = {"ending": "failed", "parts": {"compute": 3.0}, "reason": rule}
    jobs = [{"outcome": "running", "tries": [tried | {"return_value": n}]} for n in (1, 3)]
    [found] = find(accounts_of(jobs))
    assert found.title.startswith("2 jobs of 2 failed: return value 1, 3;")
    assert "OnExitRemove" not in str(found.evidence)


def test_a_small_share_may_go_unnamed() -> None:
    good: Row = {"tries": [{"parts": {"compute": 1000.0}}]}
    assert find(accounts_of([good] * 30 + [held(3, 0, "my own rule")])) == []


@pytest.mark.parametrize("few", [1, 2, 3, 4])
def test_a_command_that_failed_is_called_that(few: int) -> None:
    said = {"ending": "failed", "return_value": 83, "reason": "the command exited with 3"}
    bad = {"outcome": "failed", "return_value": 83, "tries": [said | {"parts": {"compute": 5.0}}]}
    [found] = find(accounts_of([bad] * few))
    assert "wrong output" not in str(found)
    assert "83" not in found.title
    assert f"of {few} failed: the command exited with 3" in found.title


EDITED = """\
000 (7.000.000) 2026-01-02 03:00:00 Job submitted from host: <10.0.0.1:9618>
...
001 (7.000.000) 2026-01-02 03:01:00 Job executing on host: <10.0.0.1:9618>
...
004 (7.000.000) 2026-01-02 03:02:00 Job was evicted. Code 34 Subcode 102
\t(0) CPU times
\t\tUsr 0 00:00:00, Sys 0 00:00:00  -  Run Remote Usage
\tPartitionable Resources :    Usage  Request Allocated
\t   Memory (MB)          :      879      256       256
...
012 (7.000.000) 2026-01-02 03:02:00 Job was held.
\tJob has gone over cgroup memory limit of 256 megabytes.
\tCode 34 Subcode 102
...
033 (7.000.000) 2026-01-02 03:03:00 Setting job attribute RequestMemory to 1536
...
013 (7.000.000) 2026-01-02 03:03:00 Job was released.
...
001 (7.000.000) 2026-01-02 03:04:00 Job executing on host: <10.0.0.1:9618>
...
005 (7.000.000) 2026-01-02 04:04:00 Job terminated.
\t(1) Normal termination (return value 0)
\tPartitionable Resources :    Usage  Request Allocated
\t   Memory (MB)          :      900     1536      1536
...
"""


def test_the_request_in_force_is_cited_after_an_edit(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(EDITED)
    accounts = account(read_columns([log]))
    assert accounts.attempts["memory_asked"].to_list() == [256, 1536]
    assert accounts.attempts["memory_used"].to_list() == [879, 900]
    assert accounts.jobs["memory_asked"].to_list() == [1536]
    [found] = [one for one in find(accounts) if one.key == "under-asked:memory"]
    assert "than the 256 MiB asked for" in found.title
    assert ("used when last looked at (most)", "879 MiB") in found.evidence


def test_findings_cite_their_places_in_the_log(tmp_path: Path) -> None:
    study.write(tmp_path)
    accounts = account(read_columns(sorted(tmp_path.glob("*"))))
    for found in find(accounts):
        assert 1 <= len(found.places) <= 3, found.key
        for spot in found.places:
            text = Path(spot.file).read_bytes()
            assert spot.offset is not None
            cluster, proc = spot.job.split(".")
            head = text[spot.offset :].split(b"\n", 1)[0].decode()
            assert re.match(rf"\d{{3}} \(0*{cluster}\.0*{proc}\.", head), head
    top = find(accounts)[0].places[0]
    assert top.offset is not None
    assert b"transfer stalled" in Path(top.file).read_bytes()[top.offset :].split(b"...")[0]
    assert find(accounts)[0].as_dict()["places"][0] == top.as_dict()  # type: ignore[index]


def test_no_text_grows_with_the_log() -> None:
    """Of thousands of sites, machines, sources and values a few are named, the rest counted."""
    jobs: list[Row] = []
    for n in range(3000):
        place: Row = {"site": f"Site-{n % 900}", "machine": f"n{n}.s{n % 900}.example.org"}
        reason = f"Pelican Client Error: from cache{n % 700}.example.org:8443: too slow"
        cut: Row = {"ending": "transfer-failed", "code": 13, "reason": reason}
        cut |= place | {"parts": {"transfer-in": 3700.0 + n}}
        fails: Row = {
            "ending": "failed",
            "return_value": n % 200,
            "parts": {"compute": 5.0},
        } | place
        still: Row = {"ending": "eviction", "cause": "idle", "parts": {"compute": 9000.0}} | place
        good: Row = {"parts": {"compute": 9000.0}} | place
        job: Row = {"cluster": n // 3, "tries": [cut, still, *[fails] * (n % 7), good]}
        jobs.append(job | {"outcome": "failed" if n % 3 else "success", "return_value": n % 200})
    found = find(accounts_of(jobs))
    assert len(found) >= 3
    for one in found:
        for text in _texts(one.as_dict()):
            assert len(text) <= 600, (one.key, text)
        assert one.table is None or len(one.table.rows) <= 8
        assert max((len(step.lines) for step in one.advice), default=0) <= 6


def test_an_echo_is_left_out_when_most_of_it_is_told_and_kept_when_it_is_not() -> None:
    cut: Row = {"ending": "transfer-cut", "parts": {"transfer-in": 3660.0}}
    named = cut | {"reason": "Input File transfer stalled for 3601 seconds"}
    good: Row = {"parts": {"compute": 900.0}}
    jobs: list[Row] = [{"tries": [named, named, good]} for _ in range(10)]
    jobs += [{"outcome": "removed", "tries": [cut]}]
    assert [one.key for one in find(accounts_of(jobs))] == ["transfer-cut:3600"]
    # Of many lengths, so that no limit explains them.
    long = [cut | {"parts": {"transfer-in": 500.0 + 400 * n}} for n in range(40)]
    rest: list[Row] = [{"outcome": "removed", "tries": [one]} for one in long]
    assert "lost:transfer-cut" in [one.key for one in find(accounts_of(jobs + rest))]


def test_a_source_that_fails_is_told_of_though_it_cost_nothing() -> None:
    accounts = accounts_of([{"tries": [{"parts": {"transfer-in": 60.0, "compute": 900.0}}]}] * 52)
    rows = [(n, n, "bad" if n < 12 else "good", 5e6, 0.0, n < 10, "silent") for n in range(52)]
    sources = pl.DataFrame(rows, schema=SOURCES, orient="row")
    assert [one.key for one in find(replace(accounts, sources=sources))] == ["source-faulty:bad"]
