"""Findings about sites and machines: far worse ones, slow ones, black holes."""

from __future__ import annotations

import importlib
import random
from typing import Any

import polars as pl
import pytest
from tests.report.made import Row, accounts_of

from headway.report.findings.clusters import against_mates, clearly_worse
from headway.report.findings.sites import black_hole, site_worse


def ran(site: str, compute_s: float = 9000.0, **row: Any) -> Row:
    parts = {"transfer-in": 600.0, "compute": compute_s}
    return {"parts": parts, "site": site, "machine": f"m.{site.lower()}.test"} | row


def cut(at: str, **row: Any) -> Row:
    parts = {"transfer-in": 3660.0}
    return ran(at) | {"ending": "transfer-cut", "parts": parts} | row


def jobs_at(site: str, number: int, *before: Row, compute_s: float = 9000.0) -> list[Row]:
    return [{"tries": [*before, ran(site, compute_s + n)]} for n in range(number)]


@pytest.mark.parametrize(("number", "worse"), [(3, []), (30, ["Bad"])])
def test_few_attempts_show_nothing_however_clear(number: int, worse: list[str]) -> None:
    """3 of 3 against 0 of 3 can be chance; 30 of 30 against 0 of 30 cannot."""
    rows = [(site, 0, site == "Bad") for site in ("Good", "Bad") for _ in range(number)]
    tried = pl.DataFrame(rows, ["site", "mates", "fell"], orient="row")
    found = clearly_worse(against_mates(tried, "site", "fell"), 2.0, 1)
    assert found.get_column("site").to_list() == worse


def test_a_site_that_cuts_far_more_transfers() -> None:
    jobs = jobs_at("Good", 40) + jobs_at("Bad", 12, cut("Bad"), cut("Bad"))
    [found] = site_worse(accounts_of(jobs))
    assert found.key == "site-worse:Bad"
    assert found.title.startswith(
        "Bad is far worse than the other sites (attempts that failed 66.7 %, elsewhere 0.0 %): "
    )
    # Nothing is lost elsewhere, so all of its loss is its own.
    assert found.cost_s == 12 * 2 * 3660
    assert any('avoid = ["Bad"]' in step.lines for step in found.advice)
    assert found.table is not None and found.table.rows[0][:4] == ("Bad", "36", "33.3 %", "24")


def test_what_is_usual_is_not_a_sites_own_loss() -> None:
    jobs = jobs_at("Good", 40) + jobs_at("Good", 10, cut("Good"))
    jobs += jobs_at("Bad", 12, cut("Bad"), cut("Bad"))
    [found] = site_worse(accounts_of(jobs))
    assert found.cost_s is not None and 0 < found.cost_s < 12 * 2 * 3660


def test_sites_alike_few_attempts_or_one_site_alone() -> None:
    alike = jobs_at("A", 30, cut("A")) + jobs_at("B", 30, cut("B"))
    assert site_worse(accounts_of(alike)) == []
    few = jobs_at("Good", 40) + jobs_at("Bad", 2, cut("Bad"), cut("Bad"))
    assert site_worse(accounts_of(few)) == []
    assert site_worse(accounts_of(jobs_at("Only", 30, cut("Only")))) == []


def test_a_slow_site_is_told_by_cluster_mates() -> None:
    jobs = jobs_at("Fast", 30) + jobs_at("Slow", 12, compute_s=18000)
    [found] = site_worse(accounts_of(jobs))
    assert found.title.startswith("Slow is far slower than the other sites: compute time (median) ")
    assert found.cost_s is None
    assert found.waiting_s is not None and abs(found.waiting_s - 12 * 9000) < 1000
    assert any('prefer = ["Fast"]' in step.lines for step in found.advice)


def test_a_site_with_a_long_tail_is_slow() -> None:
    jobs = jobs_at("Fast", 40) + jobs_at("Tail", 7) + jobs_at("Tail", 6, compute_s=30000)
    [found] = site_worse(accounts_of(jobs))
    assert "6 of its 13 jobs computed longer than 9 of 10 jobs elsewhere" in found.title


def test_longer_work_is_not_a_slower_site() -> None:
    """Each site has a cluster of its own: there is nothing to compare."""
    jobs = [job | {"cluster": 1} for job in jobs_at("Fast", 30)]
    jobs += [job | {"cluster": 2} for job in jobs_at("Slow", 12, compute_s=18000)]
    assert site_worse(accounts_of(jobs)) == []


def test_machines_of_no_known_site_are_not_taken_for_sites() -> None:
    lost = cut("Good", site="elsewhere.test", machine="elsewhere.test")
    assert site_worse(accounts_of(jobs_at("Good", 40, lost) + jobs_at("Fine", 40))) == []


def test_a_sites_name_cannot_smuggle_lines() -> None:
    name = 'Bad"\nqueue 1000 $ENV(HOME)'
    jobs = jobs_at("Good", 40) + jobs_at(name, 12, cut(name), cut(name))
    [found] = site_worse(accounts_of(jobs))
    assert found.title.isprintable()
    assert not any("Bad" in line for step in found.advice for line in step.lines)


def fell(machine: str, site: str = "S", seconds: float = 5.0, **row: Any) -> Row:
    tried: Row = {"ending": "failed", "return_value": 1, "machine": machine, "site": site}
    return tried | {"parts": {"compute": seconds}} | row


def test_a_black_hole() -> None:
    jobs: list[Row] = jobs_at("S", 30)
    jobs += [{"tries": [fell("hole.test"), ran("S")]} for _ in range(10)]
    [found] = black_hole(accounts_of(jobs))
    assert found.title.startswith(
        "hole.test is a black hole: 10 attempts of 10 jobs failed there within 20 min, "
    )
    assert found.cost_s == 50
    lines = [line for step in found.advice for line in step.lines]
    assert lines[0] == 'requirements = (TARGET.Machine =!= "hole.test")'
    assert "node = 3" in lines


def test_a_site_full_of_black_holes_is_one_finding() -> None:
    jobs: list[Row] = jobs_at("Good", 30)
    holes = [f"h{n}.test" for n in range(5)]
    jobs += [{"tries": [fell(hole, "Holes"), ran("Good")]} for hole in holes for _ in range(8)]
    [found] = black_hole(accounts_of(jobs))
    assert found.title.startswith("5 machines of Holes are black holes: 40 attempts")
    assert any('avoid = ["Holes"]' in step.lines for step in found.advice)


def test_what_is_no_black_hole() -> None:
    good = jobs_at("S", 30)
    # One bad job that comes back to the same machine.
    one: list[Row] = [{"outcome": "held", "tries": [fell("m.test")] * 12}]
    assert black_hole(accounts_of(good + one)) == []
    # Few failures.
    few: list[Row] = [{"tries": [fell("m.test"), ran("S")]} for _ in range(4)]
    assert black_hole(accounts_of(good + few)) == []
    # A job that fails everywhere at once: the fault is the command's.
    tries = [{"outcome": "failed", "tries": [fell(f"m{n % 7}.test")]} for n in range(70)]
    assert black_hole(accounts_of(tries)) == []
    # Failures after hours.
    late: list[Row] = [{"tries": [fell("m.test", seconds=8000), ran("S")]} for _ in range(10)]
    assert black_hole(accounts_of(good + late)) == []
    # A machine on which most attempts succeed.
    some: list[Row] = [{"tries": [fell("m.s.test"), ran("S")]} for _ in range(8)]
    assert black_hole(accounts_of(good + some)) == []


def of_cluster(cluster: int, jobs: list[Row]) -> list[Row]:
    return [job | {"cluster": cluster} for job in jobs]


def test_a_cluster_that_fails_everywhere_blames_no_place() -> None:
    """Most of what ran at Bad is of a cluster that fails wherever it runs; the rest is fine."""
    broken = [{"outcome": "failed", "tries": [fell("b.test", "Bad")]} for _ in range(40)]
    broken += [{"outcome": "failed", "tries": [fell("g.test", "Good")]} for _ in range(10)]
    fine = jobs_at("Good", 200) + jobs_at("Bad", 12)
    accounts = accounts_of(of_cluster(1, broken) + of_cluster(2, fine))
    assert site_worse(accounts) == []
    assert black_hole(accounts) == []


def test_a_cluster_that_ran_nowhere_else_proves_nothing() -> None:
    here = [fell("b.test", "Bad")] * 3 + [ran("Bad", machine="b.test")]
    alone: list[Row] = [{"tries": here} for _ in range(30)]
    accounts = accounts_of(of_cluster(1, alone) + of_cluster(2, jobs_at("Good", 200)))
    assert site_worse(accounts) == []
    assert black_hole(accounts) == []


def test_the_same_cluster_elsewhere_does_prove_it() -> None:
    """A hole for cluster 1, though cluster 2, which is far larger, succeeds everywhere."""
    fails = [{"tries": [fell("b.test", "Bad"), ran("Good")]} for _ in range(30)]
    accounts = accounts_of(of_cluster(1, fails) + of_cluster(2, jobs_at("Good", 200)))
    [hole] = black_hole(accounts)
    assert ("the same clusters elsewhere", "0.0 % of up to 30 attempts") in hole.evidence
    [worse] = site_worse(accounts)
    assert worse.key == "site-worse:Bad"
    assert ("compared with the same clusters elsewhere", "30 of its 30 attempts") in worse.evidence


def test_each_job_of_a_cluster_may_have_a_log_of_its_own() -> None:
    jobs = [{"tries": [fell("b.test", "Bad"), ran("Good")]} for _ in range(30)]
    accounts = accounts_of(job | {"log": f"{n}.log"} for n, job in enumerate(jobs))
    assert [one.key for one in site_worse(accounts)] == ["site-worse:Bad"]


def test_the_same_number_of_another_access_point_is_another_cluster() -> None:
    month = 30 * 86400.0
    fails = [{"tries": [fell("b.test", "Bad")], "begin": 1e6, "outcome": "failed"}] * 30
    fine = [job | {"begin": 1e6 + month} for job in jobs_at("Good", 60)]
    assert site_worse(accounts_of([*fails, *fine])) == []


def at_machine(name: str, jobs: list[Row]) -> list[Row]:
    """The same jobs in a log that names no site: the machine stands for it."""
    place = {"site": name, "machine": name}
    return [job | {"tries": [each | place for each in job["tries"]]} for job in jobs]


def test_a_machine_is_no_site_and_an_address_no_name() -> None:
    """GLIDEIN_ResourceName does not occur in the log, so no line may use it."""
    good = at_machine("fine.test", jobs_at("x", 40))
    for name, lines in (
        ("slow.test", ['requirements = (TARGET.Machine =!= "slow.test")']),
        ("10.9.8.7", []),
        ("2001:db8::7", []),
    ):
        bad = at_machine(name, jobs_at("x", 12, cut("x"), cut("x")))
        [found] = site_worse(accounts_of(good + bad))
        assert "is far worse than the other machines" in found.title
        assert [
            step.lines[0] for step in found.advice if step.place.value == "submit file"
        ] == lines
        assert "GLIDEIN" not in str(found.advice)
        slow = at_machine(name, jobs_at("x", 12, compute_s=18000))
        [found] = site_worse(accounts_of(good + slow))
        assert "rank" not in str(found.advice) and "GLIDEIN" not in str(found.advice)


def test_holes_known_by_their_address_alone_are_told_to_the_owner() -> None:
    jobs: list[Row] = jobs_at("S", 30)
    jobs += [{"tries": [fell("10.0.0.7", "10.0.0.7"), ran("S")]} for _ in range(10)]
    [found] = black_hole(accounts_of(jobs))
    assert not any("10.0.0.7" in line for step in found.advice for line in step.lines)
    assert any("10.0.0.7" in step.text for step in found.advice)


def test_nobody_is_blamed_by_chance_among_many_sites() -> None:
    """One attempt in four fails, anywhere: the worst of 250 sites is far out by luck alone."""
    luck = random.Random(5)
    jobs: list[Row] = []
    for n in range(3000):
        site = f"S{n % 250}"
        jobs.append(
            {"tries": [fell("m", site, 900.0), ran(site)] if luck.random() < 0.25 else [ran(site)]}
        )
    assert site_worse(accounts_of(jobs)) == []


module = importlib.import_module("headway.report.findings.sites")  # its name is a function's too


def test_only_the_sites_that_are_told_of_are_worked_out_in_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 60 bad sites among 100 a few are told of: the time must not grow with the others."""
    jobs: list[Row] = []
    for n in range(900):
        bad, site = f"Bad-{n % 60}", f"Good-{n % 40}"
        jobs.append({"tries": [cut(bad), cut(bad), ran(site)], "cluster": n // 90})
    seen: list[str] = []
    real = module.affected

    def counted(*args: Any, **kwargs: Any) -> Any:
        seen.append("")
        return real(*args, **kwargs)

    monkeypatch.setattr(module, "affected", counted)
    found = site_worse(accounts_of(jobs))
    assert len(found) == len(seen) == module.MOST


def test_machines_that_evict_at_once_are_not_called_broken() -> None:
    """Desktops whose owners are at work: job after job is given back within a minute."""
    jobs: list[Row] = at_machine("idle.test", jobs_at("x", 30))
    for n in range(24):
        back = [fell(f"desk{n % 4}.test", ending="eviction", return_value=None, seconds=40.0)] * 6
        place = {f"desk{m}.test": {"site": f"desk{m}.test"} for m in range(4)}
        tries = [each | place[each["machine"]] for each in back]
        jobs += [{"tries": [*tries, *at_machine("idle.test", jobs_at("x", 1))[0]["tries"]]}]
    [found] = black_hole(accounts_of(jobs))
    assert found.title.startswith(
        "4 machines give jobs back within minutes: 144 attempts of 24 jobs ended there within 20 "
    )
    assert "owner is at work" in found.why


def test_bad_machines_without_a_site_are_told_of_together() -> None:
    jobs: list[Row] = []
    for n in range(60):
        jobs += at_machine("fine.test", jobs_at("x", 1))
        jobs += at_machine(f"bad{n % 5}.test", [{"tries": [cut("x"), cut("x")], "outcome": "held"}])
    [found] = site_worse(accounts_of(jobs))
    assert found.key == "machines-worse"
    assert found.title.startswith("5 machines are far worse than the others (bad0.test: ")
    assert found.cost_s is not None and 60 * 3660 < found.cost_s <= 60 * 2 * 3660
    assert found.table is not None and found.table.header[0] == "machine"
