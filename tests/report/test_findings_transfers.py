"""Findings about transfers: cut off at a limit, a bad source, GPUs and slots that wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from tests.report.made import accounts_of

from headway.report.accounting import masked
from headway.report.accounts import SOURCES, Accounts
from headway.report.findings.finding import Destination
from headway.report.findings.holds import duration
from headway.report.findings.reasons import allowed_duration, source
from headway.report.findings.transfers import (
    gpu_input,
    inferred_limit,
    source_faulty,
    source_worse,
    transfer_cut,
    transfer_queue,
)

STALLED = "Error from slot1_1@gpu.test: Input File transfer stalled for {} seconds"


def good(transfer_s: float, compute_s: float = 9000, **row: Any) -> dict[str, Any]:
    return {"parts": {"transfer-in": transfer_s, "compute": compute_s}} | row


def cut(transfer_s: float, said: int | None = None, **row: Any) -> dict[str, Any]:
    reason = STALLED.format(said) if said else None
    parts = {"transfer-in": transfer_s}
    return {"ending": "transfer-cut", "code": 1007, "parts": parts, "reason": reason} | row


def test_a_named_limit_is_told_with_what_it_cost() -> None:
    jobs = [{"gpus": 1, "tries": [cut(3660, 3607), cut(3650, 3601), good(3400)]} for _ in range(4)]
    [found] = transfer_cut(accounts_of(jobs))
    assert found.title == "8 input transfers were cut off at 1 hour: 8.1 GPU hours lost"
    assert found.cost_s == 4 * (3660 + 3650)
    assert (found.jobs, found.attempts, found.lost_jobs) == (4, 8, 0)
    assert "STARTER_FILE_XFER_STALL_TIMEOUT" in found.why
    assert "No input that took longer than 1 hour has ever arrived" in found.why
    places = {step.place: step.lines for step in found.advice}
    assert places[Destination.JOB][0] == "[[inputs]]"
    assert places[Destination.CONFIG] == ("STARTER_FILE_XFER_STALL_TIMEOUT = 14400",)


def test_two_sites_with_limits_of_their_own_are_two_findings() -> None:
    tries = [cut(3660, 3601)] * 3 + [cut(7300, 7201)] * 3
    found = transfer_cut(accounts_of([{"tries": [*tries, good(100)]}]))
    assert [one.key for one in found] == ["transfer-cut:3600", "transfer-cut:7200"]


def test_an_odd_limit_stays_as_it_is_named() -> None:
    [found] = transfer_cut(accounts_of([{"tries": [cut(1010, 1000)] * 3 + [good(900)]}]))
    assert "at 1,000 seconds" in found.title


def test_that_nothing_longer_arrived_is_only_said_when_true() -> None:
    [found] = transfer_cut(accounts_of([{"tries": [cut(3660, 3601)] * 3 + [good(5000)]}]))
    assert "has ever arrived" not in found.why


def test_two_named_cuts_are_not_worth_a_line() -> None:
    assert transfer_cut(accounts_of([{"tries": [cut(3660, 3601)] * 2 + [good(3000)]}])) == []


def test_the_agents_own_transfers_are_under_no_limit() -> None:
    """An agent's two-hour transfer arrives, and does not hide the limit of HTCondor's own."""
    jobs = [{"tries": [cut(3700)] * 3 + [good(3300)]} for _ in range(5)]
    jobs.append({"tries": [good(7000, agent_transfer=True)]})
    [found] = transfer_cut(accounts_of(jobs))
    assert found.key == "transfer-cut:3600"


@pytest.mark.parametrize("limit", [600, 900, 1200, 1800, 3600, 7200, 10800])
def test_a_masked_limit_is_inferred_from_the_pile(limit: int) -> None:
    arrived = pl.Series([limit * share for share in (0.2, 0.5, 0.8, 0.93)])
    ended = pl.Series([float(limit + n) for n in range(3, 33, 2)] + [1.0, 2.0])
    assert inferred_limit(arrived, ended) == limit


def test_failures_of_any_length_have_no_limit() -> None:
    arrived = pl.Series([300.0, 900.0, 2500.0, 3300.0])
    spread = pl.Series([3700.0 + 1900 * n for n in range(20)])
    assert inferred_limit(arrived, spread) is None


def test_an_arrival_past_the_limit_clears_it() -> None:
    ended = pl.Series([3600.0 + n for n in range(20)])
    assert inferred_limit(pl.Series([3000.0, 5000.0]), ended) is None
    assert inferred_limit(pl.Series([3000.0, 3500.0]), ended) == 3600


def test_failures_below_the_limit_as_often_as_above_clear_it() -> None:
    ended = pl.Series([3600.0 + n for n in range(20)] + [2000.0 + 70 * n for n in range(20)])
    assert inferred_limit(pl.Series([1900.0]), ended) is None


def test_nine_unnamed_cuts_are_too_few() -> None:
    arrived, ended = pl.Series([3000.0]), pl.Series([3600.0 + n for n in range(9)])
    assert inferred_limit(arrived, ended) is None
    assert inferred_limit(arrived, ended.append(pl.Series([3620.0]))) == 3600


def failed_from(host: str, answer: str = "transfer too slow", **row: Any) -> dict[str, Any]:
    reason = (
        "Transfer input files failure at execution point slot1_6@a.b.edu using protocol osdf. "
        f"Details: Pelican Client Error: Attempt #1: from {host}:8443: {answer} (9.6s since start) "
        "(Version: 7.19.3) ( URL file = osdf:///data/x )|"
    )
    parts = {"transfer-in": 600.0}
    return {"ending": "transfer-failed", "code": 13, "reason": reason, "parts": parts} | row


def test_a_cache_that_most_failures_name() -> None:
    jobs = [{"tries": [failed_from("bad.cache.edu"), good(60)]} for _ in range(12)]
    jobs += [{"tries": [failed_from(f"c{n}.cache.edu"), good(60)]} for n in range(3)]
    [found] = source_worse(accounts_of(jobs))
    assert found.title == (
        "12 transfers from bad.cache.edu failed, 80.0 % of all that name a source: "
        "2.0 slot hours lost"
    )
    assert found.cost_s == 12 * 600
    assert found.table is not None and found.table.rows[0] == ("bad.cache.edu", "12", "12")


def test_caches_that_fail_alike_are_no_finding() -> None:
    jobs = [{"tries": [failed_from(f"c{n % 3}.cache.edu"), good(60)]} for n in range(30)]
    assert source_worse(accounts_of(jobs)) == []


def test_a_missing_object_is_not_the_caches_fault() -> None:
    jobs = [{"tries": [failed_from("bad.cache.edu", "HTTP status 404"), good(60)]}] * 12
    jobs += [{"tries": [failed_from("other.cache.edu"), good(60)]}]
    assert source_worse(accounts_of(jobs)) == []


@pytest.mark.parametrize(
    ("reason", "host"),
    [
        ("Pelican Client Error: from stashcache.psu.edu:8443: download", "stashcache.psu.edu"),
        ("|Error: Attempt #3: from osdf-uw-cache.svc.org:8443: x; Attempt #2: from b.org:8443: y",
         "osdf-uw-cache.svc.org"),
        ('Get "https://osdf-director.osg-htc.org/x": timeout', "osdf-director.osg-htc.org"),
        ("could not resolve host: data.example.org", "data.example.org"),
        ("failed ( URL file = https://DATA.example.org/a.tar )|", "data.example.org"),
        ("failed ( URL file = osdf:///data/a.tar )|", None),
        ("Transfer input files failure at execution point slot1@a.b.edu", None),
    ],
)  # fmt: skip
def test_sources_in_real_reasons(reason: str, host: str | None) -> None:
    assert pl.DataFrame({"r": [reason]}).select(source(pl.col("r"))).item() == host


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("at execution point slot1_1@glidein_3@a.test using protocol osdf. Details: server "
         "returned 404 Not Found ( URL file = osdf:///data/1 )|",
         "at execution point slot1_4@glidein_9@b.test using protocol osdf. Details: server "
         "returned 404 Not Found ( URL file = osdf:///data/fail-1 )|", True),
        ("server returned 404 Not Found", "server returned 503 Service Unavailable", False),
        ("request failed (HTTP status 404): x", "request failed (HTTP status 500): x", False),
        ("reading from file /a/b/c.txt: (errno 2)", "reading from file /d.txt: (errno 2)", True),
        ("send to <127.0.0.1:3577>: id 5f3a9c21bb", "send to <10.1.2.3:99>: id 00aa99ff11", True),
        ("received size 8388608b (9.6s since start)", "received size 77b (1.2s since start)", True),
    ],
)  # fmt: skip
def test_masks_hide_what_differs_from_job_to_job(one: str, other: str, same: bool) -> None:
    left, right = pl.DataFrame({"r": [one, other]}).select(masked(pl.col("r"))).to_series()
    assert (left == right) is same


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("20:00:00", 72000), ("00:05", 5), ("1+16:00:00", 144000), ("forever", None)],
)
def test_allowed_durations(text: str, seconds: float | None) -> None:
    found = allowed_duration(f"The job exceeded allowed execute duration of {text}")
    assert (found and found[1]) == seconds


def served(*hosts: tuple[str, int, int]) -> Accounts:
    """One job a transfer; of each host, its transfers and how many of them failed."""
    rows = [(name, number < failures) for name, of, failures in hosts for number in range(of)]
    accounts = accounts_of([{"tries": [good(100, site="A")]} for _ in rows])
    sources = [
        (n, n, name, 0.0 if bad else 5e6, 0.0, bad, "it is silent (body)" if bad else None)
        for n, (name, bad) in enumerate(rows)
    ]
    return replace(accounts, sources=pl.DataFrame(sources, schema=SOURCES, orient="row"))


def test_a_source_that_records_show_to_be_far_worse() -> None:
    accounts = served(("good.cache", 40, 1), ("bad.cache:8443", 12, 10), ("fine.cache", 30, 0))
    [found] = source_faulty(accounts)
    assert found.key == "source-faulty:bad.cache:8443"
    assert "in 83 % of the 12 transfers" in found.title.replace(".3", "")
    assert ("what was wrong", "it is silent (body)") in found.evidence
    assert found.table and found.table.rows[0] == ("bad.cache:8443", "12", "10")
    assert found.attempts == 10


def test_sources_that_are_all_alike_or_few_are_no_finding() -> None:
    assert source_faulty(served(("a", 20, 10), ("b", 20, 9))) == []
    assert source_faulty(served(("a", 5, 5), ("b", 20, 0))) == []
    assert source_faulty(served(("a", 20, 20))) == []  # nothing to compare it with
    assert source_faulty(accounts_of([{"tries": [good(100)]}])) == []


def test_gpus_that_wait_for_input() -> None:
    jobs = [{"gpus": 1, "tries": [cut(3700, 3601), good(2000, 6000)]} for _ in range(6)]
    accounts = accounts_of(jobs)
    [found] = gpu_input(accounts)
    waited, slot = 6 * 5700, 6 * 11700
    assert found.title == (
        f"GPUs stood idle for {waited / 3600:.1f} h while input arrived: "
        f"{waited / slot:.1%} of the time they were claimed".replace("%", " %")
    )
    # What was lost is counted as badput elsewhere.
    assert (found.cost_s, found.waiting_s) == (None, 6 * 2000)


def test_gpus_that_wait_little_or_jobs_without_gpus_are_fine() -> None:
    assert gpu_input(accounts_of([{"gpus": 1, "tries": [good(900, 9000)]}] * 20)) == []
    assert gpu_input(accounts_of([{"gpus": None, "tries": [good(9000, 100)]}] * 20)) == []
    assert gpu_input(accounts_of([{"gpus": 1, "tries": [good(9000, 100)]}] * 4)) == []


def test_gpus_are_known_from_cluster_mates() -> None:
    jobs = [{"gpus": None if n else 1, "tries": [good(2000, 6000)]} for n in range(6)]
    assert gpu_input(accounts_of(jobs))[0].jobs == 6


def test_slots_that_wait_for_the_access_point() -> None:
    parts = {"waiting": 1800.0, "transfer-in": 60.0, "compute": 6000.0}
    accounts = accounts_of([{"tries": [{"parts": parts}]} for _ in range(12)])
    [found] = transfer_queue(accounts)
    assert found.title.startswith(
        "Slots waited 6.0 h for a transfer slot at the access point: 22.9 %"
    )
    assert (found.cost_s, found.waiting_s, found.attempts) == (None, 12 * 1800, 12)
    assert any("MAX_CONCURRENT_UPLOADS" in line for s in found.advice for line in s.lines)


def test_a_short_queue_is_no_finding() -> None:
    parts = {"waiting": 20.0, "transfer-in": 60.0, "compute": 6000.0}
    assert transfer_queue(accounts_of([{"tries": [{"parts": parts}]} for _ in range(500)])) == []
    parts = {"waiting": 1800.0, "compute": 600.0}
    assert transfer_queue(accounts_of([{"tries": [{"parts": parts}]} for _ in range(9)])) == []


def test_the_only_source_of_a_cluster_is_not_blamed_for_its_size() -> None:
    """Cluster 1 has one origin and fails often; what cluster 2 says of others is no comparison."""
    jobs: list[dict[str, Any]] = [
        {"cluster": 1, "tries": [failed_from("origin.lab.edu"), good(60)]} for _ in range(40)
    ]
    jobs += [{"cluster": 2, "tries": [failed_from(f"c{n}.cache.edu"), good(60)]} for n in range(3)]
    assert source_worse(accounts_of(jobs)) == []


def test_sources_are_compared_within_a_cluster() -> None:
    """Cluster 1 asks for what is not there, of whatever source; its own one is not to blame."""
    accounts = served(("a.cache", 30, 28), ("b.cache", 10, 9), ("c.cache", 90, 0))
    cluster = [1] * 40 + [2] * 90
    jobs = accounts.jobs.with_columns(cluster=pl.Series(cluster, dtype=pl.Int64))
    assert [one.key for one in source_faulty(accounts)] == ["source-faulty:a.cache"]
    assert source_faulty(replace(accounts, jobs=jobs)) == []


@pytest.mark.parametrize(("said", "scheme"), [("osdf:///data/x", "osdf:///"), ("x", "https://")])
def test_urls_of_a_federation_only_where_the_log_knows_it(said: str, scheme: str) -> None:
    lost = cut(3660, 3601) | {"reason": f"{STALLED.format(3601)} ( URL file = {said} )"}
    [found] = transfer_cut(accounts_of([{"tries": [lost, lost, lost, good(900)]}]))
    [line] = [
        line for step in found.advice for line in step.lines if "transfer_input_files" in line
    ]
    assert line == f"transfer_input_files = {scheme}…/part-$(Process).tar"
    other = "osdf" if scheme == "https://" else "transfer_input_files = https"
    assert other not in line


def test_a_category_only_where_the_pool_names_its_sites() -> None:
    reason = "The job exceeded allowed execute duration of 20:00:00"
    over = {"ending": "over-time", "code": 47, "reason": reason, "parts": {"compute": 72000.0}}
    here = {"site": "m.test", "machine": "m.test"}
    [found] = duration(accounts_of([{"outcome": "held", "tries": [over | here]}]))
    assert "JobDurationCategory" not in str(found.advice) and "OSPool" not in str(found.advice)
    [found] = duration(accounts_of([{"outcome": "held", "tries": [over | here | {"site": "CE1"}]}]))
    assert "JobDurationCategory" in str(found.advice)
