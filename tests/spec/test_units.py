from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.spec import format_duration, format_size, parse_duration, parse_size
from headway.spec.units import MAX_DURATION, MAX_SIZE


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8 GB", 8 * 10**9),
        ("8GiB", 8 * 2**30),
        ("512MB", 512 * 10**6),
        ("1.5 TB", 1_500_000_000_000),
        (".5 kB", 500),
        ("10 kib", 10240),
        ("100 bytes", 100),
        ("7 B", 7),
        ("8gb", 8 * 10**9),
        (" 8\u00a0GB ", 8 * 10**9),
        ("0 MB", 0),
        ("0.1 GiB", 107374182),
        ("1000 PB", 10**18),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (8, "8 MB or 8 GB?"),
        ("8", "8 MB or 8 GB?"),
        (8.5, "8.5 MB or 8.5 GB?"),
        (8_000_000_000, "8000000000 B or 8000000000 kB?"),
        ("8 G", "8 GB or 8 GiB?"),
        ("8k", "8 KB or 8 KiB?"),
        ("8 Gb", "bits"),
        ("-8 GB", "negative"),
        (-8, "negative"),
        (math.nan, "not a size"),
        ("nan GB", "not a size"),
        (math.inf, "not a size"),
        ("inf", "not a size"),
        ("1001 PB", "more than any machine"),
        ("9" * 50 + " GB", "more than any machine"),
        ("9" * 500 + " GB", "not a size"),
        ("0.0001 B", "less than a byte"),
        ("8 XB", "not a unit"),
        ("1,5 GB", "not a size"),
        ("GB", "not a size"),
        ("٨ GB", "not a size"),
        ("", "empty"),
        (True, "not true"),
        ([], "not a list"),
        ({}, "not a table"),
        (None, "not None"),
        pytest.param(16**5000, "not a size", id="huge"),
    ],
)
def test_refused_sizes(value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("?", r"\?")):
        parse_size(value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90 s", 90),
        ("1 h", 3600),
        ("20 min", 1200),
        ("1 h 30 min", 5400),
        ("1h30m", 5400),
        ("2 days", 172800),
        ("1 day, 2 hours and 3 seconds", 86400 + 7200 + 3),
        ("0.5 s", 0.5),
        ("1 week", 604800),
        ("0 s", 0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (1, "1 min or 1 h?"),
        ("90", "90 s or 90 min?"),
        (90.5, "90.5 s or 90.5 min?"),
        ("-1 h", "negative"),
        (math.nan, "not a duration"),
        ("inf", "not a duration"),
        ("400 days", "longer than a year"),
        ("30 min 1 h", "largest first"),
        ("1 h 1 h", "largest first"),
        ("5 ms", "not a unit of time"),
        ("1 h 30", "not a duration"),
        ("01:30:00", "1 h 30 min 0 s"),
        ("1:30", "1 h 30 min"),
        ("", "empty"),
        (False, "not false"),
        ([], "not a list"),
    ],
)
def test_refused_durations(value: object, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace("?", r"\?")):
        parse_duration(value)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (1536, "1.54 kB"),
        (999_600, "1 MB"),
        (8 * 10**9, "8 GB"),
        (-8 * 10**9, "-8 GB"),
        (10**18, "1000 PB"),
        (math.nan, "?"),
    ],
)
def test_format_size(size: float, text: str) -> None:
    assert format_size(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.25, "0.25 s"),
        (12.34, "12.3 s"),
        (59.99, "1 min"),
        (90, "1 min 30 s"),
        (3599.7, "1 h"),
        (5400, "1 h 30 min"),
        (86399.9, "1 d"),
        (86385, "1 d"),
        (200_000, "2 d 8 h"),
        (-90, "-1 min 30 s"),
        (math.inf, "?"),
    ],
)
def test_format_duration(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(0, MAX_SIZE))
def test_size_round_trip(size: int) -> None:
    assert parse_size(format_size(size)) == pytest.approx(size, rel=0.006)


@given(st.integers(0, 10**6), st.sampled_from(["B", "kB", "MB", "GB", "KiB", "MiB", "GiB"]))
def test_whole_sizes_are_exact(number: int, unit: str) -> None:
    assert parse_size(f"{number} {unit}") == number * parse_size(f"1 {unit}")


@given(st.floats(0.01, MAX_DURATION - 86400))
def test_duration_round_trip(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=0.025)


@given(st.text() | st.floats() | st.integers() | st.none() | st.booleans())
def test_anything_is_taken_or_refused_in_words(value: object) -> None:
    for parse in (parse_size, parse_duration):
        try:
            assert parse(value) >= 0
        except ValueError as error:
            assert str(error)
