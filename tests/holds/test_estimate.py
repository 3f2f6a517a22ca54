"""Counting with shrinkage: few cases move little, many cases rule."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.holds.evidence import Ends, Evidence, by_counting, gather, interval
from headway.holds.history import History
from headway.holds.hold import meaning_of
from headway.holds.table import HoldMeaning, table

from .logs_made import NOT_FOUND, RESET, hold

HOLD = hold(13, 256, RESET)
MISSING = hold(13, 256, NOT_FOUND)


def nothing() -> Evidence:
    return gather(HOLD, History(), meaning_of(HOLD))


def told(ends: Ends, **more: Ends | int | bool) -> Evidence:
    """As everybody's releases, which those of the same reason and object are."""
    return replace(
        nothing(),
        **{"released": ends, "released_alike": ends, "released_object": ends, **more},  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("entry", table(), ids=lambda entry: entry.id)
def test_without_evidence_the_table_rules(entry: HoldMeaning) -> None:
    found = by_counting(HOLD, nothing(), entry)
    assert found.probability == pytest.approx(entry.prior)
    assert found.thin and found.cases == 0


def test_three_cases_do_not_make_a_verdict() -> None:
    for entry in table():
        if entry.kind in ("transient", "permanent"):
            against = Ends(again=3) if entry.prior > 0.5 else Ends(success=3)
            only = replace(nothing(), released=against)
            found = by_counting(HOLD, only, entry)
            assert (found.probability > 0.5) == (entry.prior > 0.5) or found.thin, entry.id


def test_many_cases_rule() -> None:
    entry = meaning_of(MISSING)
    assert by_counting(MISSING, told(Ends(success=40)), entry).probability > 0.9
    found = by_counting(MISSING, told(Ends(again=40)), entry)
    assert found.probability < 0.1 and not found.thin and found.cases == 40


def test_removed_jobs_say_nothing() -> None:
    entry = meaning_of(HOLD)
    assert by_counting(HOLD, told(Ends(censored=50)), entry) == by_counting(HOLD, nothing(), entry)


def test_mates_that_have_had_the_object_speak_for_it() -> None:
    entry = meaning_of(MISSING)
    plain = by_counting(MISSING, nothing(), entry).probability
    past = replace(nothing(), mates=50, mates_past=30, others_past=30)
    shared = by_counting(MISSING, past, entry).probability
    own = by_counting(MISSING, replace(past, shared=False), entry).probability
    assert shared > 0.75 > own > plain


def test_mates_that_all_fail_speak_against_it() -> None:
    entry = meaning_of(MISSING)
    failing = replace(nothing(), mates=50, mates_held=20, alike_recent=20)
    assert by_counting(MISSING, failing, entry).probability < 0.3


def test_mates_say_nothing_about_the_job_s_own_memory() -> None:
    over = hold(34, 102, "")
    past = replace(nothing(), mates=50, mates_past=40, others_past=400)
    assert by_counting(over, past, meaning_of(over)).probability == pytest.approx(0.05)


COUNTS = st.integers(0, 500)


@given(COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
def test_it_is_always_a_probability(a: int, b: int, c: int, d: int, e: int, f: int) -> None:
    evidence = replace(
        told(Ends(a, b, c), released_own=Ends(d, e)), mates_past=f, others_past=f, mates_held=e
    )
    for entry in table():
        found = by_counting(HOLD, evidence, entry)
        assert 0 <= found.low <= found.probability <= found.high <= 1


@given(COUNTS, COUNTS)
def test_one_more_success_never_lowers_it(success: int, again: int) -> None:
    entry = meaning_of(HOLD)
    fewer = by_counting(HOLD, told(Ends(success, again)), entry).probability
    assert by_counting(HOLD, told(Ends(success + 1, again)), entry).probability >= fewer - 1e-9


@given(st.floats(0, 1), st.floats(0.5, 1e6))
def test_the_interval_holds_the_share_and_narrows(p: float, weight: float) -> None:
    low, high = interval(p, weight)
    closer_low, closer_high = interval(p, weight * 10)
    assert 0 <= low <= p <= high <= 1
    assert closer_high - closer_low <= high - low + 1e-9
