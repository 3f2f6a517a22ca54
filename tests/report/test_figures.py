"""Figures of accounts that are small enough to add up in the head."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
from tests.report.made import Row, made
from tests.report.many import many_jobs

from headway.report.accounts import Accounts
from headway.report.figures import (
    By,
    Histogram,
    completion,
    groups,
    losses,
    sites,
    totals,
    transfer_lengths,
)
from headway.report.numbers import finite, share

HOUR = 1_725_267_600.0  # 2024-09-02T09:00Z


def attempt(job: int, site: str, begin: float, ending: str, **lengths: Any) -> Row:
    """A row of attempts; what it lost or won follows from its ending."""
    slot = sum(value for name, value in lengths.items() if name.endswith("_s"))
    good, still = ending == "success", ending == "open"
    arrived = lengths.get("compute_s", 0) > 0
    return {
        "job": job,
        "site": site,
        "begin": HOUR + begin,
        "end": HOUR + begin + slot,
        "executed": arrived,
        "arrived": arrived,
        "ending": ending,
        "evicted": ending == "eviction",
        "cause": "none" if good or still else ending,
        "slot_s": slot,
        "good_compute_s": lengths.get("compute_s", 0) if good else 0,
        "good_s": slot if good else 0,
        "open_s": slot if still else 0,
        "bad_s": 0 if good or still else slot,
        **lengths,
    }


ATTEMPTS = [
    attempt(0, "A", 50, "transfer-cut", transfer_in_s=4000, code=1007, reason="stalled"),
    attempt(0, "B", 4090, "success", transfer_in_s=100, compute_s=1000, transfer_out_s=10)
    | {"received": 1000, "return_value": 0},
    attempt(1, "A", 100, "eviction", transfer_in_s=200, compute_s=500, code=1022, subcode=0),
    attempt(1, "A", 1000, "success", transfer_in_s=300, compute_s=2000)
    | {"received": 6000, "return_value": 0},
    attempt(2, "A", 10, "transfer-failed", transfer_in_s=1, code=13, subcode=256, reason="404"),
    attempt(3, "B", 20, "over-time", transfer_in_s=150, compute_s=7200, code=47, subcode=0),
    attempt(4, "B", 30, "transfer-cut", transfer_in_s=5000, code=1007, reason="stalled"),
    attempt(4, "B", 5100, "failed", transfer_in_s=100, compute_s=50)
    | {"received": 0, "return_value": 1},
    attempt(6, "A", 7000, "open", transfer_in_s=70),
    attempt(7, "A", 40, "hold", transfer_in_s=20, compute_s=30, code=34, subcode=102),
]
PHASES = {"transfer_in_s": "transfer-in", "compute_s": "compute", "transfer_out_s": "transfer-out"}


def job(place: int, outcome: str, end: float, **more: Any) -> Row:
    """A row of jobs, with the sums of its attempts."""
    mine = [row for row in ATTEMPTS if row["job"] == place]

    def total(name: str) -> float:
        return float(sum(row.get(name, 0) for row in mine))

    return {
        "outcome": outcome,
        "user": "ada" if place < 4 else None,
        "site": mine[-1]["site"] if mine else None,
        "begin": HOUR,
        "matched": mine[0]["begin"] if mine else None,
        "end": HOUR + end,
        "attempts": len(mine),
        "stalls": sum(row["ending"] == "transfer-cut" for row in mine),
        "evictions": sum(row["ending"] == "eviction" for row in mine),
        "transfer_s": total("transfer_in_s"),
        "last_transfer_s": mine[-1]["transfer_in_s"] if mine else 0,
        **{name: total(name) for name in ("compute_s", "slot_s", "good_compute_s", "good_s")},
        **{name: total(name) for name in ("bad_s", "open_s")},
        **more,
    }


@pytest.fixture
def accounts() -> Accounts:
    jobs = [
        job(0, "success", 5200, queued_s=90),
        job(1, "success", 3300, queued_s=300, checkpoints=2),
        job(2, "held", 8000, holds=1, hold_code=13, hold_subcode=256, held_s=7989),
        job(3, "held", 8000, holds=1, hold_code=47, hold_subcode=0, held_s=630),
        job(4, "failed", 5250, return_value=1, requeues=1),
        job(5, "removed", 60, queued_s=60),
        job(6, "unfinished", 7070, queued_s=7000),
        job(7, "held", 8000, holds=2, hold_code=34, hold_subcode=102, held_s=7920),
    ]
    pieces = [
        {
            "job": row["job"],
            "attempt": place,
            "phase": phase,
            "verdict": {"success": "good", "open": "open"}.get(row["ending"], "bad"),
            "cause": row["cause"],
            "seconds": row[column],
        }
        for place, row in enumerate(ATTEMPTS)
        for column, phase in PHASES.items()
        if row.get(column)
    ]
    holds = [
        {"job": 2, "attempt": 4, "time": HOUR + 11, "code": 13, "subcode": 256, "held_s": 7989},
        {"job": 3, "attempt": 5, "time": HOUR + 7370, "code": 47, "subcode": 0, "held_s": 630},
        {"job": 7, "time": HOUR + 5, "code": 1, "subcode": 0, "held_s": 10},
        {"job": 7, "attempt": 9, "time": HOUR + 90, "code": 34, "subcode": 102, "held_s": 7910},
    ]
    return made(jobs, ATTEMPTS, pieces, holds)


def test_totals_count_what_became_of_the_jobs(accounts: Accounts) -> None:
    found = totals(accounts)
    assert (found.jobs, found.succeeded, found.failed, found.held) == (8, 2, 1, 3)
    assert (found.held_transfer, found.held_duration, found.held_other) == (1, 1, 1)
    assert (found.removed, found.unfinished) == (1, 1)
    assert found.failure_shares == {
        "held-transfer": 0.2,
        "failed": 0.2,
        "held-duration": 0.2,
        "held-other": 0.2,
        "removed": 0.2,
    }


def test_totals_count_what_happened_to_them(accounts: Accounts) -> None:
    found = totals(accounts)
    assert (found.attempts, found.attempts_executed) == (10, 6)
    assert (found.stalls, found.stalls_of_successes) == (2, 1)
    assert (found.stalled_successes, found.stalled_jobs) == (1, 2)
    assert (found.evictions, found.evicted_jobs) == (1, 1)
    assert (found.holds, found.requeues, found.checkpoints) == (4, 1, 2)


def test_totals_add_the_seconds_up(accounts: Accounts) -> None:
    found = totals(accounts)
    assert found.slot_s == 5110 + 3000 + 1 + 7350 + 5150 + 70 + 50 == 20731
    assert (found.good_s, found.bad_s, found.open_s) == (3410, 17251, 70)
    assert (found.good_compute_s, found.compute_s, found.transfer_s) == (3000, 10780, 9941)
    assert (found.queued_s, found.held_s) == (7450, 16539)
    assert sum(found.phases.values()) == found.slot_s + found.queued_s + found.held_s
    assert found.phases["transfer-out"] == 10
    assert (found.last_transfer_s, found.retried_transfer_s) == (400, 4200)
    assert found.evicted_compute_s == 500
    assert (found.held_compute_s, found.held_transfer_s) == (7230, 171)
    assert found.wrong_compute_s == 50
    assert (found.wrong_transfer_s, found.wrong_last_transfer_s) == (5100, 100)


def test_the_two_shares_are_never_mixed(accounts: Accounts) -> None:
    found = totals(accounts)
    assert found.compute_share == 3000 / 20731
    assert found.goodput == 3410 / 20731
    # The one stalled transfer of the wrong output is left out.
    assert found.slot_last_transfers_s == 15731
    assert found.compute_share_last_transfers == 3000 / 15731


def test_totals_of_results_and_transfers(accounts: Accounts) -> None:
    found = totals(accounts)
    assert found.result_mean_s == (1000 + 4100 + 2000 + 500) / 2
    assert found.result_median_s == 3800
    assert found.wall_mean_s == found.wall_median_s == (5150 + 3200) / 2
    assert (found.longest_arrived_transfer_s, found.shortest_cut_transfer_s) == (300, 4000)
    # Neither the 0 that HTCondor writes for what it did not count, nor what is not known.
    assert (found.received, found.transfer_rate) == (7000, 7000 / 400)


def test_an_output_that_stalls_is_no_cut_input(accounts: Accounts) -> None:
    late = attempt(0, "A", 0, "transfer-cut", transfer_in_s=9, compute_s=5, transfer_out_s=3600)
    assert shortest_with(accounts, late) == 4000


def test_a_cut_of_unknown_length_is_not_the_shortest(accounts: Accounts) -> None:
    assert shortest_with(accounts, attempt(0, "A", 0, "transfer-cut", transfer_in_s=0)) == 4000


def shortest_with(accounts: Accounts, more: Row) -> float | None:
    found = totals(
        dataclasses.replace(accounts, attempts=made(attempts=[*ATTEMPTS, more]).attempts)
    )
    return found.shortest_cut_transfer_s


def test_losses_have_a_cause_and_add_up_to_the_badput(accounts: Accounts) -> None:
    found = losses(accounts)
    assert [(loss.cause, loss.seconds, loss.attempts, loss.jobs) for loss in found] == [
        ("transfer-cut", 9000, 2, 2),
        ("over-time", 7350, 1, 1),
        ("eviction", 700, 1, 1),
        ("failed", 150, 1, 1),
        ("hold", 50, 1, 1),
        ("transfer-failed", 1, 1, 1),
    ]
    assert sum(loss.seconds for loss in found) == totals(accounts).bad_s
    cut, over = found[0], found[1]
    assert (cut.words, cut.reason) == ("transfer cut off or stalled", "stalled")
    assert cut.share == 9000 / 20731
    assert (cut.transfer_s, cut.compute_s) == (9000, 0)
    assert (over.transfer_s, over.compute_s) == (150, 7200)
    assert over.phases == {"transfer-in": 150, "compute": 7200}
    assert [(c.code, c.subcode, c.seconds) for c in over.codes] == [(47, 0, 7350)]


def test_an_attempt_can_lose_time_to_two_causes() -> None:
    row = attempt(0, "A", 0, "eviction", compute_s=100, suspended_s=40, code=1022, subcode=0)
    base: Row = {"job": 0, "attempt": 0, "verdict": "bad", "phase": "compute"}
    pieces = [
        base | {"cause": "eviction", "seconds": 60},
        base | {"cause": "redone", "seconds": 40},
        base | {"phase": "suspended", "cause": "suspended", "seconds": 40},
    ]
    found = {loss.cause: loss for loss in losses(made([{"slot_s": 140}], [row], pieces))}
    assert {cause: loss.seconds for cause, loss in found.items()} == {
        "eviction": 60,
        "redone": 40,
        "suspended": 40,
    }
    # The code of the eviction says nothing about the suspension.
    assert {cause: loss.codes[0].code for cause, loss in found.items()} == {
        "eviction": 1022,
        "redone": 1022,
        "suspended": None,
    }


def test_losses_by_code_name_the_most_frequent_reason() -> None:
    rows = [
        attempt(n, "A", 0, "transfer-failed", transfer_in_s=10, code=13, subcode=sub, reason=why)
        for n, (sub, why) in enumerate([(256, "404"), (256, "reset"), (256, "404"), (2, "no file")])
    ]
    pieces = [
        {"job": n, "attempt": n, "phase": "transfer-in", "verdict": "bad"}
        | {"cause": "transfer-failed", "seconds": 10}
        for n in range(4)
    ]
    (loss,) = losses(made([{"slot_s": 10}] * 4, rows, pieces))
    assert [(c.code, c.subcode, c.seconds, c.jobs, c.reason) for c in loss.codes] == [
        (13, 256, 30, 3, "404"),
        (13, 2, 10, 1, "no file"),
    ]


def test_sites_side_by_side(accounts: Accounts) -> None:
    b, a = sites(accounts)
    assert (a.site, b.site) == ("A", "B")
    assert (a.jobs, a.ended, a.succeeded, a.success_rate) == (4, 3, 1, 1 / 3)
    assert (b.jobs, b.ended, b.succeeded, b.success_rate) == (3, 3, 1, 1 / 3)
    assert (a.attempts, b.attempts) == (6, 4)
    assert (a.slot_s, b.slot_s) == (7121, 13610)
    assert (a.compute_share, b.compute_share) == (2000 / 7121, 1000 / 13610)
    assert (a.stalls, a.holds, a.evictions, a.failures) == (1, 2, 1, 4)
    assert (b.stalls, b.holds, b.evictions, b.failures) == (1, 1, 0, 3)
    assert (a.compute.count, a.compute.mean, a.compute.median) == (1, 2000, 2000)
    assert (a.transfer.count, a.transfer.median, a.transfer.most) == (3, 200, 300)
    assert a.transfer.p95 == pytest.approx(290)
    assert (a.transfer_rate, b.transfer_rate) == (20, 10)


@pytest.mark.parametrize("by", list(By))
def test_every_group_adds_up_to_the_totals(accounts: Accounts, by: By) -> None:
    found, whole = groups(accounts, by), totals(accounts)
    assert sum(group.attempts for group in found) == whole.attempts
    assert sum(group.stalls for group in found) == whole.stalls
    assert sum(group.evictions for group in found) == whole.evictions
    assert sum(group.slot_s for group in found) == whole.slot_s
    assert sum(group.bad_s for group in found) == whole.bad_s
    assert sum(group.succeeded for group in found) == whole.succeeded
    assert sum(group.slot_share or 0 for group in found) == pytest.approx(1)


def test_groups_have_keys_that_people_know(accounts: Accounts) -> None:
    keys = {by: [group.key for group in groups(accounts, by)] for by in By}
    assert keys == {
        By.SITE: ["B", "A"],
        By.USER: ["ada", None],
        By.CLUSTER: ["1"],
        By.CODE: ["47/0", "34/102", "13/256", "1/0", None],
        By.HOUR: ["2024-09-02T09:00Z", "2024-09-02T10:00Z"],
    }


def test_groups_by_code_tell_how_the_held_jobs_went_on(accounts: Accounts) -> None:
    found = {group.key: group for group in groups(accounts, "code")}
    assert (found["13/256"].holds, found["13/256"].jobs, found["13/256"].held_s) == (1, 1, 7989)
    assert (found["1/0"].holds, found["1/0"].attempts) == (1, 0)
    assert (found[None].jobs, found[None].succeeded, found[None].holds) == (5, 2, 0)


def test_groups_by_user_count_jobs_that_never_got_a_slot(accounts: Accounts) -> None:
    ada, nobody = groups(accounts, By.USER)
    assert (ada.jobs, nobody.jobs) == (4, 4)
    assert (ada.holds, nobody.holds) == (2, 2)


def test_the_completion_curve(accounts: Accounts) -> None:
    found = completion(accounts)
    # A hold that lasts ends a job when it begins, not when the report ends.
    assert [at - HOUR for at in found.times] == [11, 60, 90, 3300, 5200, 5250, 7370]
    assert found.ended == (1, 2, 3, 4, 5, 6, 7)
    assert found.succeeded == (0, 0, 0, 1, 2, 2, 2)
    short = completion(accounts, points=2)
    assert (short.ended, short.succeeded) == ((1, 7), (0, 2))


def test_the_histogram_of_transfers(accounts: Accounts) -> None:
    found = transfer_lengths(accounts)
    width = found.edges[1] - found.edges[0]
    assert 3600 % width == 0
    assert sum(found.arrived) == 6
    assert sum(found.cut) == 2
    assert sum(found.failed) == 1
    assert sum(found.other) == 0  # one goes on and has no length yet
    assert found.cut[int(4000 // width)] == 1
    assert found.cut[-1] == 1


def test_one_endless_transfer_does_not_hide_the_others() -> None:
    rows = [attempt(0, "A", 0, "success", transfer_in_s=n, compute_s=1) for n in range(1, 1000)]
    rows.append(attempt(0, "A", 0, "eviction", transfer_in_s=1_000_000))
    found = transfer_lengths(made(attempts=rows))
    assert len(found.edges) > 20
    assert found.other[-1] == 1
    assert sum(found.arrived) == 999


NOTHING = {
    "no job": made(),
    "a job that waits": made([{"outcome": "unfinished", "begin": 0, "end": 9, "queued_s": 9}]),
    "an attempt of no length": made(
        [{"outcome": "unfinished", "begin": 0, "end": 0, "attempts": 1}],
        [{"job": 0, "ending": "open", "begin": 0, "end": 0}],
    ),
    "all that is unknown": made(
        [{"outcome": "held", "last_transfer_s": None, "attempts": 1}],
        [{"job": 0, "ending": "hold", "cause": "hold", "begin": 0, "received": math.nan}],
        [],
        [{"job": 0, "attempt": 0, "time": 3}],
    ),
}


@pytest.mark.parametrize("name", NOTHING)
def test_nothing_gives_no_share_and_no_error(name: str) -> None:
    accounts = NOTHING[name]
    found = totals(accounts)
    assert found.slot_s == 0
    assert (found.compute_share, found.goodput, found.transfer_rate) == (None, None, None)
    assert losses(accounts) == []
    assert transfer_lengths(accounts) == Histogram((), (), (), (), ())
    in_json(accounts)


def test_all_figures_are_json(accounts: Accounts) -> None:
    in_json(accounts)


def in_json(accounts: Accounts) -> None:
    found: list[Any] = [totals(accounts), *losses(accounts), *sites(accounts)]
    found += [group for by in By for group in groups(accounts, by)]
    found += [completion(accounts), transfer_lengths(accounts)]
    for figure in found:
        shown = figure.as_dict()
        assert json.loads(json.dumps(shown, allow_nan=False)) == shown
        every = {field.name for field in dataclasses.fields(figure)}
        assert shown.keys() == every - ({"deliveries"} - shown.keys()), "only where some are"


def test_large_accounts_add_up_too() -> None:
    accounts = many_jobs(3000)
    whole = totals(accounts)
    assert sum(loss.seconds for loss in losses(accounts)) == whole.bad_s
    assert sum(code.seconds for loss in losses(accounts) for code in loss.codes) == whole.bad_s
    assert sum(site.slot_s for site in sites(accounts)) == whole.slot_s
    assert sum(site.succeeded for site in sites(accounts)) == whole.succeeded
    for by in By:
        assert sum(group.slot_s for group in groups(accounts, by)) == whole.slot_s
    curve = completion(accounts)
    assert (curve.ended[-1], curve.succeeded[-1]) == (3000 - whole.unfinished, whole.succeeded)
    assert len(curve.times) == 400


def test_a_number_that_is_none_stays_out() -> None:
    assert [finite(value) for value in (None, math.nan, math.inf)] == [None, None, None]
    assert finite(0.1 + 0.2) == 0.3
    assert str(finite(-1e-12)) == "0.0"
    assert [share(1, 0), share(None, 1), share(1, 4)] == [None, None, 0.25]
