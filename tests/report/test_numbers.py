"""Numbers for people."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.report import numbers
from headway.text import many

NUMBERS = [numbers.hours, numbers.span, numbers.days, numbers.percent, numbers.count, numbers.size]
NUMBERS += [numbers.binary, numbers.rate]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (99.4, "99 s"),
        (99.5, "2 min"),
        (2940, "49 min"),
        (5969, "99 min"),
        (5970, "1.7 h"),
        (1_088_004, "302.2 h"),
        (36e6, "10,000.0 h"),
        (None, "–"),
        (math.nan, "–"),
    ],
)
def test_span_has_the_unit_that_a_person_would_use(seconds: float | None, text: str) -> None:
    assert numbers.span(seconds) == text


def test_days_begin_at_two() -> None:
    assert numbers.days(86400) == "24.0 h"
    assert numbers.days(14 * 86400) == "14.0 days"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1, "1 second"),
        (20, "20 seconds"),
        (3600, "1 hour"),
        (5400, "90 minutes"),
        (72000, "20 hours"),
        (3700, "3,700 seconds"),
    ],
)
def test_limit_is_exact(seconds: float, text: str) -> None:
    assert numbers.limit(seconds) == text


@pytest.mark.parametrize(
    ("value", "decimal", "binary"),
    [
        (0, "0 B", "0 B"),
        (999, "999 B", "999 B"),
        (1024, "1.0 kB", "1 KiB"),
        (999_960, "1.0 MB", "976.5 KiB"),
        (147_897_477_120, "147.9 GB", "137.7 GiB"),
        (64 * 2**30, "68.7 GB", "64 GiB"),
        (math.inf, "–", "–"),
    ],
)
def test_sizes(value: float, decimal: str, binary: str) -> None:
    assert numbers.size(value) == decimal
    assert numbers.binary(value) == binary


def test_shares_counts_rates() -> None:
    assert numbers.percent(0.4333) == "43.3 %"
    assert numbers.count(1_196_137.0) == "1,196,137"
    assert many(1, "job") == "1 job"
    assert many(1234, "job") == "1,234 jobs"
    assert many(2, "entry", "entries") == "2 entries"
    assert numbers.rate(39.8e6) == "39.8 MB/s"


@given(st.none() | st.floats())
def test_any_number_can_be_told(value: float | None) -> None:
    for tell in NUMBERS:
        text = tell(value)
        assert text.isprintable()
        assert "nan" not in text and "inf" not in text
