"""Reports side by side."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace

import polars as pl
import pytest
from tests.report.made import Row, made
from tests.report.made import accounts_of as accounts_of_jobs
from tests.report.many import many_jobs

from headway.report.accounts import Accounts
from headway.report.compare import Comparison, Figure, Trend, Unit, compare, letters
from headway.report.compare import Difference as Pair
from headway.report.compare_text import (
    by_how_much,
    clear_changes,
    comparison_text,
    is_clear,
    labelled,
    titles,
)
from headway.report.export import comparison_table
from headway.report.terminal import plain


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
                "outcome": "success" if done else "failed",
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
                "ending": "success" if done else "failed",
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


def named(figures: Sequence[Figure], name: str, run: int = 1) -> Pair:
    """A figure of a run against that of the first."""
    return next(figure.rows[run - 1] for figure in figures if figure.name == name)


def test_what_got_better_and_by_how_much() -> None:
    found = compare(side(100, 79, lost=1000), side(100, 99, seed=2), names=("before", "after"))
    success = named(found.figures, "success, of jobs that ended")
    assert (success.a, success.b, success.change) == (0.79, 0.99, Trend.BETTER)
    share = named(found.figures, "compute share")
    assert share.a == pytest.approx(0.395, abs=0.02)
    assert share.b == pytest.approx(0.99, abs=0.02)
    assert share.change is Trend.BETTER
    lost = named(found.losses, "transfer cut off or stalled")
    assert lost.a == pytest.approx(0.5, abs=0.02)
    assert (lost.b, lost.change) == (0.0, Trend.BETTER)
    assert named(found.figures, "time to result, mean").change is Trend.BETTER
    assert named(found.figures, "jobs").change is Trend.NONE
    assert found.few == ()
    back = compare(side(100, 99, seed=2), side(100, 79, lost=1000))
    assert named(back.figures, "compute share").change is Trend.WORSE


def test_each_other_run_is_held_against_the_first() -> None:
    runs = side(100, 79, lost=1000), side(100, 79, lost=1000, seed=2), side(100, 99, site="B")
    found = compare(*runs, names=("stock", "again", "ours"))
    first, again, ours = next(f.values for f in found.figures if f.name == "compute share")
    assert (first, again, ours) == pytest.approx((0.395, 0.395, 0.99), abs=0.02)
    assert named(found.figures, "compute share", 1).change is Trend.CHANCE
    assert named(found.figures, "compute share", 2).change is Trend.BETTER
    # A pair of several is what the two of them alone are.
    alone = compare(runs[0], runs[2], names=("stock", "ours"))
    assert found.pairs[1] == alone.pairs[0]
    document = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert document["runs"] == ["stock", "again", "ours"]
    (lost,) = document["losses"]
    assert "change" not in lost["runs"][0]
    assert [run["change"] for run in lost["runs"][1:]] == ["may be chance", "better"]
    assert set(found.pairs[0].sites) == {"A"} and list(found.sites) == ["A", "B"]


def test_the_sites_of_both_stand_before_those_of_one() -> None:
    runs = [side(20, 20, site=site) for site in ("A", "B", "B")]
    both = made(
        [{"outcome": "success", "site": site, "attempts": 1} for site in "AB"],
        [{"job": job, "site": site} for job, site in enumerate("AB")],
    )
    found = compare(runs[0], both, *runs[1:])
    assert list(found.sites) == ["B", "A"]
    assert list(found.pairs[0].sites) == ["A", "B"]


def test_several_runs_stand_in_columns_on_a_terminal() -> None:
    names = ("r/stock-2024", "r/stock-2026", "r/headway", "r/headway-stream")
    runs = [side(100, 79, lost=1000 // (n + 1), seed=n) for n in range(4)]
    text = plain(comparison_text(compare(*runs, names=names)))
    assert text.startswith("r/stock-2024 → r/stock-2026, r/headway, r/headway-stream\n")
    head = next(line for line in text.splitlines() if line.split()[:1] == ["figure"])
    assert head.split() == ["figure", "stock-2024", "stock-2026", "headway", "…way-stream"]
    assert text.count("r/stock-2024 → r/headway\n") == 2  # its changes, and its sites
    wide = plain(comparison_text(compare(*runs[:3], names=names[:3]), width=120))
    head = next(line for line in wide.splitlines() if line.split()[:1] == ["figure"])
    assert head.split() == ["figure", "stock-2024", "stock-2026", "change", "headway", "change"]


def test_no_run_is_left_out_for_want_of_room() -> None:
    runs = [side(20, 15, seed=n) for n in range(9)]
    found = compare(*runs, names=[f"run-number-{n}" for n in range(9)])
    for width in (60, 80, 120):
        lines = plain(comparison_text(found, width=width)).splitlines()
        assert max(map(len, lines)) <= width
        heads = [line for line in lines if line.split()[:1] == ["figure"]]
        shown = [word for head in heads for word in head.split() if word.startswith("…")]
        assert len(set(shown)) == 9 and shown.count(shown[0]) == len(heads)


def test_few_jobs_tell_little() -> None:
    found = compare(side(4, 2), side(4, 4, seed=2), names=("three", "four"))
    assert named(found.figures, "success, of jobs that ended").change is Trend.CHANCE
    assert found.few == ("three", "four")
    text = plain(comparison_text(found))
    assert "Few jobs have ended in three and four" in text
    assert "No figure differs by more than chance may do." in text
    one = compare(side(1, 1), side(1, 1, compute=9000))
    assert named(one.figures, "time to result, mean").noise is None
    assert named(one.figures, "time to result, mean").change is Trend.CHANCE


def test_the_same_jobs_differ_in_nothing() -> None:
    accounts = many_jobs(50)
    found = compare(accounts, accounts)
    assert {figure.rows[0].change for figure in (*found.figures, *found.losses)} <= {
        Trend.SAME,
        Trend.NONE,
    }


def test_chance_is_called_chance() -> None:
    """Two draws from the same pool are seldom called different."""
    told = 0
    total = 0
    for seed in range(20):
        found = compare(many_jobs(60, seed=seed), many_jobs(60, seed=seed + 1000))
        told += sum(
            figure.rows[0].change in (Trend.BETTER, Trend.WORSE) for figure in found.figures
        )
        total += sum(figure.better != 0 for figure in found.figures)
    assert told / total < 0.05


def test_nothing_to_compare_is_no_number() -> None:
    found = compare(made(), made([{"outcome": "unfinished", "attempts": 0}]))
    assert all(not figure.values[0] for figure in found.figures)
    assert json.loads(json.dumps(found.as_dict(), allow_nan=False))["losses"] == []
    assert "compute share" not in plain(comparison_text(found))


def test_sites_of_either_side() -> None:
    found = compare(side(20, 20, site="A"), side(20, 10, site="B"))
    assert set(found.sites) == {"A", "B"}
    assert [figure.values[0] for figure in found.sites["B"]] == [0, None, None, None]
    both = compare(side(60, 20, site="A"), side(60, 60, site="A", seed=2))
    assert both.sites["A"][1].rows[0].change is Trend.BETTER
    assert "33.3 → 100.0 %" in plain(comparison_text(both))


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("before.log", "after.log"), ("before", "after")),
        (("runs/stock-2024/train.log", "runs/headway/train.log"), ("stock-2024", "headway")),
        (("a/imagenet-794569.log", "a/imagenet-794570.log"), ("…net-794569", "…net-794570")),
        (("one-very-long-name", "two-very-long-name"), ("A", "B")),
        (("x/same.log", "x/same.log"), ("A", "B")),
        (("cifar10-1", "cifar10-1/events.log"), ("cifar10-1", "…0-1/events")),
        (("r/a/e.log", "r/b/e.log", "r/c/e.log"), ("a", "b", "c")),
        (("r/a/e.log", "r/b/e.log", "s/b/e.log"), ("r/a", "r/b", "s/b")),
        (("one-very-long-name", "short", "two-very-long-name"), ("A", "B", "C")),
    ],
)
def test_columns_have_short_names_that_tell_the_runs_apart(
    names: tuple[str, ...], said: tuple[str, ...]
) -> None:
    assert titles(names, 11) == said


def test_a_letter_that_stands_for_a_name_is_told() -> None:
    long = ("one-very-long-name", "two-very-long-name", "x")
    assert labelled(long, 11) == ["A: one-very-long-name", "B: two-very-long-name", "C: x"]
    assert labelled(long, 24) == list(long)
    assert labelled(("A", "B"), 11) == ["A", "B"]
    assert letters(28)[25:] == ("Z", "AA", "AB")


def test_what_nobody_can_see_is_not_told() -> None:
    # 4.1 h and 4.1 h, to the second and without any doubt.
    found = compare(side(100, 100, compute=14800), side(100, 100, compute=14810))
    figure = Figure("compute, mean", Unit.SECONDS, (14800.0, 14810.0), -1, noises=(1.0,))
    (row,) = figure.rows
    assert row.change is Trend.WORSE and not is_clear(row)
    shown = replace(found, figures=(*found.figures, figure))
    assert row not in clear_changes(shown.pairs[0])
    line = next(
        line for line in plain(comparison_text(shown)).splitlines() if "compute, mean" in line
    )
    assert line.endswith("same")


def test_it_fits_where_it_is_shown() -> None:
    found = compare(
        many_jobs(100), many_jobs(80, seed=3), names=("a/long/way/first.log", "b/second.log")
    )
    for width in (60, 80, 120):
        lines = plain(comparison_text(found, width=width)).splitlines()
        assert max(map(len, lines)) <= width
    text = plain(comparison_text(found))
    assert "chance?" in text and "…" in text


def test_a_table_has_a_column_for_each_run() -> None:
    runs = [side(30, 20, seed=n) for n in range(3)]
    table = comparison_table(compare(*runs, names=("r/a.log", "r/=b", "r/c, d")))
    assert table.columns[4:8] == ["a", "'=b", "c, d", "'=b: difference"]
    assert table.columns[-1] == "c, d: change"
    share = table.row(by_predicate=pl.col("name") == "success, of jobs that ended", named=True)
    assert share["a"] == share["c, d"] == pytest.approx(2 / 3)
    assert share["c, d: difference"] == 0 and share["c, d: change"] == "same"
    for names in (("x", "x", "y"), ("x", "site", "y"), ("x", "y: noise", "y")):
        assert comparison_table(compare(*runs, names=names)).columns[4:7] == ["A", "B", "C"]


def test_hostile_names_are_inert() -> None:
    found = Comparison(
        ("\x1b[2Ja", "b\x07", "\x1b[2Jc"), (), (), {"\x1b]0;x": _site()}, (), ("\x1b[31m",)
    )
    text = plain(comparison_text(found))
    assert not [char for char in text if ord(char) < 32 and char != "\n"]


def _site() -> tuple[Figure, ...]:
    return tuple(Figure(name, Unit.COUNT, (1, 2, 3)) for name in ("a", "b", "c", "d"))


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
    assert by_how_much(Pair("x", unit, a, b)) == words


def test_a_comparison_says_nothing_of_transfers_and_sites_that_no_log_has() -> None:
    tried = {"parts": {"compute": 600.0}, "site": "10.0.0.1", "machine": "10.0.0.1"}
    accounts = accounts_of_jobs([{"tries": [tried]}] * 12)
    found = compare(accounts, accounts)
    names = [figure.name for figure in found.figures if figure.known]
    assert not any(word in name for name in names for word in ("stalls", "bytes", "transfer"))
    text = plain(comparison_text(found))
    assert "Machines" in text and "site" not in text.lower()
