"""Two reports side by side."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.report.made import Row, made
from tests.report.many import many_jobs

from headway.report.accounts import Accounts
from headway.report.beside import beside
from headway.report.changes import gap, is_told, titles, told
from headway.report.compare import Change, Comparison, Unit, compare
from headway.report.compare import Row as Figure
from headway.report.layout import plain


def side(
    number: int,
    good: int,
    *,
    compute: float = 1000,
    lost: float = 0,
    site: str = "A",
    seed: int = 1,
) -> Accounts:
    """So many jobs, the first of them good, each with its compute and what it lost before that."""
    chance = random.Random(seed)
    jobs: list[Row] = []
    attempts: list[Row] = []
    pieces: list[Row] = []
    for job in range(number):
        done = job < good
        took = compute * chance.uniform(0.95, 1.05)
        jobs.append(
            {
                "outcome": "success" if done else "wrong-output",
                "site": site,
                "matched": 0.0,
                "begin": 0.0,
                "end": took + lost,
                "attempts": 1,
                "slot_s": took + lost,
                "compute_s": took,
                "good_compute_s": took if done else 0.0,
                "good_s": took if done else 0.0,
                "bad_s": lost if done else took + lost,
            }
        )
        attempts.append(
            {
                "job": job,
                "site": site,
                "ending": "success" if done else "wrong-output",
                "arrived": True,
                "executed": True,
                "received": 1e9,
                "transfer_in_s": 10.0,
                "slot_s": took + lost,
            }
        )
        if lost:
            pieces.append(
                {
                    "job": job,
                    "attempt": job,
                    "phase": "transfer-in",
                    "verdict": "bad",
                    "cause": "transfer-cut",
                    "begin": 0.0,
                    "seconds": lost,
                }
            )
    return made(jobs, attempts, pieces)


def named(rows: Sequence[Figure], name: str) -> Figure:
    return next(row for row in rows if row.name == name)


def test_what_got_better_and_by_how_much() -> None:
    found = compare(side(100, 79, lost=1000), side(100, 99, seed=2), ("before", "after"))
    success = named(found.figures, "success, of jobs that ended")
    assert (success.a, success.b, success.change) == (0.79, 0.99, Change.BETTER)
    share = named(found.figures, "compute share")
    assert share.a == pytest.approx(0.395, abs=0.02)
    assert share.b == pytest.approx(0.99, abs=0.02)
    assert share.change is Change.BETTER
    lost = named(found.losses, "transfer cut off or stalled")
    assert lost.a == pytest.approx(0.5, abs=0.02)
    assert (lost.b, lost.change) == (0.0, Change.BETTER)
    assert named(found.figures, "time to result, mean").change is Change.BETTER
    assert named(found.figures, "jobs").change is Change.NONE
    assert found.few == ()
    back = compare(side(100, 99, seed=2), side(100, 79, lost=1000))
    assert named(back.figures, "compute share").change is Change.WORSE


def test_few_jobs_tell_little() -> None:
    found = compare(side(4, 2), side(4, 4, seed=2), ("three", "four"))
    assert named(found.figures, "success, of jobs that ended").change is Change.CHANCE
    assert found.few == ("three", "four")
    text = plain(beside(found))
    assert "Few jobs have ended in three and four" in text
    assert "No figure differs by more than chance may do." in text
    one = compare(side(1, 1), side(1, 1, compute=9000))
    assert named(one.figures, "time to result, mean").noise is None
    assert named(one.figures, "time to result, mean").change is Change.CHANCE


def test_the_same_jobs_differ_in_nothing() -> None:
    accounts = many_jobs(50)
    found = compare(accounts, accounts)
    assert {row.change for row in (*found.figures, *found.losses)} <= {Change.SAME, Change.NONE}


def test_chance_is_called_chance() -> None:
    """Two draws from the same pool are seldom called different."""
    told = 0
    total = 0
    for seed in range(20):
        found = compare(many_jobs(60, seed=seed), many_jobs(60, seed=seed + 1000))
        told += sum(row.change in (Change.BETTER, Change.WORSE) for row in found.figures)
        total += sum(row.better != 0 for row in found.figures)
    assert told / total < 0.05


def test_nothing_to_compare_is_no_number() -> None:
    found = compare(made(), made([{"outcome": "unfinished", "attempts": 0}]))
    assert all(row.a is None or row.a == 0 for row in found.figures)
    assert json.loads(json.dumps(found.as_dict(), allow_nan=False))["losses"] == []
    assert "compute share" not in plain(beside(found))


def test_sites_of_either_side() -> None:
    found = compare(side(20, 20, site="A"), side(20, 10, site="B"))
    assert set(found.sites) == {"A", "B"}
    assert [row.a for row in found.sites["B"]] == [0, None, None, None]
    both = compare(side(60, 20, site="A"), side(60, 60, site="A", seed=2))
    assert both.sites["A"][1].change is Change.BETTER
    assert "33.3 → 100.0 %" in plain(beside(both))


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("before.log", "after.log"), ("before", "after")),
        (("runs/stock-2024/train.log", "runs/headway/train.log"), ("stock-2024", "headway")),
        (("a/imagenet-794569.log", "a/imagenet-794570.log"), ("…net-794569", "…net-794570")),
        (("one-very-long-name", "two-very-long-name"), ("A", "B")),
        (("x/same.log", "x/same.log"), ("x/same", "x/same")),
        (("cifar10-1", "cifar10-1/events.log"), ("cifar10-1", "…0-1/events")),
    ],
)
def test_columns_have_short_names_that_tell_the_sides_apart(
    names: tuple[str, str], said: tuple[str, str]
) -> None:
    assert titles(compare(made(), made(), names)) == said


def test_what_nobody_can_see_is_not_told() -> None:
    # 4.1 h and 4.1 h, to the second and without any doubt.
    found = compare(side(100, 100, compute=14800), side(100, 100, compute=14810))
    row = Figure("compute, mean", Unit.SECONDS, 14800.0, 14810.0, -1, noise=1.0)
    assert row.change is Change.WORSE and not is_told(row)
    shown = replace(found, figures=(*found.figures, row))
    assert row not in told(shown)
    line = next(line for line in plain(beside(shown)).splitlines() if "compute, mean" in line)
    assert line.endswith("same")


def test_it_fits_where_it_is_shown() -> None:
    found = compare(many_jobs(100), many_jobs(80, seed=3), ("a/long/way/first.log", "b/second.log"))
    for width in (60, 80, 120):
        lines = plain(beside(found, width=width)).splitlines()
        assert max(map(len, lines)) <= width
    text = plain(beside(found))
    assert "chance?" in text and "…" in text


def test_hostile_names_are_inert() -> None:
    found = Comparison("\x1b[2Ja", "b\x07", (), (), {"\x1b]0;x": _site()}, (), ("\x1b[31m",))
    text = plain(beside(found))
    assert not [char for char in text if ord(char) < 32 and char != "\n"]


def _site() -> tuple[Figure, ...]:
    return tuple(Figure(name, Unit.COUNT, 1, 2) for name in ("a", "b", "c", "d"))


@pytest.mark.parametrize(
    ("unit", "a", "b", "words"),
    [
        (Unit.SHARE, 0.433, 0.881, "+44.8 points"),
        (Unit.SECONDS, 3600.0, 1800.0, "-50 %"),
        (Unit.SECONDS, 100.0, 350.0, "3.5 times"),
        (Unit.COUNT, 100.0, 30.0, "-70"),
        (Unit.NUMBER, 0.0, 0.5, "+0.50"),
        (Unit.SHARE, 0.5, 0.5, ""),
    ],
)
def test_differences_in_words(unit: Unit, a: float, b: float, words: str) -> None:
    assert gap(Figure("x", unit, a, b)) == words
