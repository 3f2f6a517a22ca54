"""The study's 100 jobs: every figure of its table, and every one that it charted, from event logs.

`data/README.md` has the figures from the table beside those that the study printed, and why some of
them differ.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.report import study

from headway.events import read_columns
from headway.report.accounting import account
from headway.report.accounts import Accounts
from headway.report.figures import (
    By,
    SiteFigures,
    Totals,
    completion,
    groups,
    losses,
    sites,
    totals,
    transfer_lengths,
)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return study.write(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def accounts(logs: list[Path]) -> Accounts:
    columns = read_columns(logs)
    assert not columns.skipped
    assert not columns.unread
    return account(columns)


@pytest.fixture(scope="module")
def whole(accounts: Accounts) -> Totals:
    return totals(accounts)


@pytest.fixture(scope="module")
def by_site(accounts: Accounts) -> dict[str | None, SiteFigures]:
    return {site.site: site for site in sites(accounts)}


def rounded(value: float | None, digits: int = 0) -> float:
    assert value is not None
    return round(value, digits)


def hours(seconds: float) -> float:
    return rounded(seconds / 3600, 1)


def percent(part: float | None) -> float:
    return rounded((part or 0) * 100, 1)


#: What it is: how it is read, and what it is by the table.
FIGURES: dict[str, tuple[Callable[[Totals], Any], Any]] = {
    "jobs": (lambda t: t.jobs, 100),
    "successes": (lambda t: t.succeeded, 79),
    "held on transfer": (lambda t: t.held_transfer, 16),
    "held on duration": (lambda t: t.held_duration, 2),
    "held": (lambda t: (t.held, t.held_other), (18, 0)),
    "wrong output": (lambda t: t.failed, 3),
    "neither removed nor unfinished": (lambda t: (t.removed, t.unfinished), (0, 0)),
    "compute of successful jobs": (lambda t: t.good_compute_s, 1_196_137),
    "the same in hours": (lambda t: hours(t.good_compute_s), 332.3),
    "last transfer of successful jobs": (lambda t: t.last_transfer_s, 165_029),
    "retried transfers of successful jobs": (lambda t: t.retried_transfer_s, 1_088_004),
    "the same in hours ": (lambda t: hours(t.retried_transfer_s), 302.2),
    "compute of held jobs": (lambda t: t.held_compute_s, 144_089),
    "the same in hours  ": (lambda t: hours(t.held_compute_s), 40.0),
    "compute of wrong outputs": (lambda t: t.wrong_compute_s, 1_988),
    "last transfer of wrong outputs": (lambda t: t.wrong_last_transfer_s, 7_808),
    "evicted compute of a job that later succeeded": (lambda t: t.evicted_compute_s, 19_746),
    "mean from first transfer to end": (lambda t: rounded(t.result_mean_s), 31_002),
    "median from first transfer to end": (lambda t: t.result_median_s, 17_840),
    "the same mean in hours": (lambda t: hours(t.result_mean_s or 0), 8.6),
    "stalls of successful jobs": (lambda t: t.stalls_of_successes, 213),
    "successful jobs with stalls": (lambda t: t.stalled_successes, 26),
    "stalls of all jobs": (lambda t: t.stalls, 232),
    "evictions": (lambda t: t.evictions, 5),
    "jobs with evictions": (lambda t: t.evicted_jobs, 4),
    "longest transfer that succeeded": (lambda t: t.longest_arrived_transfer_s, 3_441),
    "cheapest stall": (lambda t: t.shortest_cut_transfer_s, 3_729),
    "slot hours": (lambda t: hours(t.slot_s), 766.7),
    "compute share": (lambda t: percent(t.compute_share), 43.3),
    "slot hours as the study counts": (lambda t: hours(t.slot_last_transfers_s), 729.2),
    "compute share as it counts": (lambda t: percent(t.compute_share_last_transfers), 45.6),
    "failure shares": (
        lambda t: {key: percent(part) for key, part in t.failure_shares.items()},
        {"held-transfer": 76.2, "failed": 14.3, "held-duration": 9.5},
    ),
}


@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_of_the_table(whole: Totals, figure: str) -> None:
    read, wanted = FIGURES[figure]
    assert read(whole) == wanted


@pytest.mark.parametrize(
    ("site", "jobs", "mean", "median"),
    [
        ("CHTC-Spark-CE1", 24, 11_222, 11_237),
        ("PDX-Coeus-CE1", 42, 14_824, 14_846),
        ("GP-ARGO-ksu-backfill", 13, 23_400, 17_608),
    ],
)
def test_the_compute_of_each_site(
    by_site: dict[str | None, SiteFigures], site: str, jobs: int, mean: int, median: int
) -> None:
    found = by_site[site]
    assert (found.succeeded, found.compute.count) == (jobs, jobs)
    assert (rounded(found.compute.mean), found.compute.median) == (mean, median)


def test_each_job_is_as_in_the_table(accounts: Accounts) -> None:
    found = {(row["cluster"], row["proc"]): row for row in accounts.jobs.iter_rows(named=True)}
    outcomes = {
        "success": "success",
        "wrong_output": "failed",
        "held_transfer_404": "held",
        "held_execute_duration": "held",
    }
    table = study.rows()
    assert len(found) == len(table) == 100
    for row in table:
        job = found[row.cluster, row.proc]
        assert job["outcome"] == outcomes[row.outcome], job["id"]
        assert (job["stalls"], job["holds"], job["evictions"]) == (
            row.stalls,
            row.holds,
            row.evictions,
        ), job["id"]
        assert (job["transfer_s"], job["last_transfer_s"]) == (row.transfer, row.last), job["id"]
        assert job["compute_s"] == (row.execute or 0) + row.wasted, job["id"]
        good = row.execute if row.outcome == "success" else 0
        assert job["good_compute_s"] == good, job["id"]
        if row.execute is not None:
            assert job["site"] == row.sites[-1], job["id"]
        assert (job["hold_code"], job["hold_subcode"]) == {
            "held_transfer_404": (13, 256),
            "held_execute_duration": (47, 0),
        }.get(row.outcome, (13, 256) if row.holds else (None, None)), job["id"]


def test_the_pieces_of_each_job_add_up(accounts: Accounts) -> None:
    jobs = accounts.jobs
    of_job = accounts.pieces.group_by("job").agg(pl.col("seconds").sum())
    both = jobs.join(of_job, on="job", how="left")
    assert (both["seconds"] == both["total_s"]).all()
    assert (jobs["total_s"] == jobs["end"] - jobs["begin"]).all()
    assert (jobs["total_s"] == jobs["queued_s"] + jobs["held_s"] + jobs["slot_s"]).all()
    assert (jobs["slot_s"] == jobs["good_s"] + jobs["bad_s"] + jobs["open_s"]).all()


def test_the_losses_add_up_and_name_the_cut_off_first(accounts: Accounts, whole: Totals) -> None:
    found = losses(accounts)
    assert sum(loss.seconds for loss in found) == whole.bad_s == whole.slot_s - whole.good_s
    cut = found[0]
    assert (cut.cause, cut.attempts, cut.jobs) == ("transfer-cut", 232, 29)
    assert cut.reason is not None
    assert "stalled for 3600 seconds" in cut.reason
    transfer = {loss.cause: loss.transfer_s for loss in found}
    compute = {loss.cause: loss.compute_s for loss in found}
    assert (transfer["over-time"], transfer["failed"]) == (2_333, 7_808)
    assert (compute["over-time"], compute["failed"]) == (144_089, 1_988)
    assert compute["eviction"] == 19_746


def test_the_held_jobs_by_code(accounts: Accounts) -> None:
    found = {group.key: group for group in groups(accounts, By.CODE)}
    assert (found["13/256"].jobs, found["13/256"].holds) == (22, 23)
    assert found["13/256"].succeeded == 5  # that were held for a while
    assert (found["47/0"].jobs, found["47/0"].holds, found["47/0"].succeeded) == (2, 2, 0)


def test_each_cluster_is_a_group(accounts: Accounts) -> None:
    found = {group.key: (group.jobs, group.succeeded) for group in groups(accounts, By.CLUSTER)}
    assert found == {"794569": (50, 44), "794570": (50, 35)}


def test_the_cut_off_stands_out_in_the_histogram(accounts: Accounts) -> None:
    found = transfer_lengths(accounts)
    hour = found.edges.index(3600)
    assert sum(found.arrived[:hour]) == 85
    assert sum(found.arrived[hour:]) == 0
    assert sum(found.cut[:hour]) == 0
    assert sum(found.cut[hour:]) == 232


def test_all_ends_are_on_the_curve(accounts: Accounts) -> None:
    found = completion(accounts)
    assert (found.ended[-1], found.succeeded[-1]) == (100, 79)
    # The study took about a week.
    assert 6 * 86400 < found.times[-1] - accounts.begin < 8 * 86400


def test_the_logs_are_such_as_htcondor_reads(logs: list[Path]) -> None:
    htcondor2 = pytest.importorskip("htcondor2")
    for path in logs:
        with htcondor2.JobEventLog(str(path)) as log:
            count = sum(1 for _ in log.events(stop_after=0))
        assert count == path.read_bytes().count(b"\n...\n")


def test_the_404s_came_in_a_burst(accounts: Accounts) -> None:
    found = accounts.holds.join(accounts.jobs.select("job", "cluster", "proc"), on="job").filter(
        (pl.col("cluster") == 794570) & pl.col("reason").cast(pl.String).str.contains("404")
    )
    assert found["proc"].sort().to_list() == list(range(13, 28))
    times = found["time"].to_list()
    assert max(times) - min(times) < 300


def test_no_attempts_overlap_on_a_job(accounts: Accounts) -> None:
    after = accounts.attempts.sort("job", "number").with_columns(
        pl.col("begin").shift(-1).over("job").alias("next")
    )
    assert after.filter(pl.col("next") < pl.col("end")).is_empty()
