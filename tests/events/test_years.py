"""Dates without a year: told many at once as one by one, and in agreement with the files beside."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.events import read_columns, read_log
from headway.events.clock import Clock
from headway.events.columnar import assemble
from headway.events.columnar.headers import YEARLESS
from headway.report import report

CLONED = datetime(2026, 11, 17, tzinfo=timezone.utc).timestamp()


def event(date: str, number: str = "001", cluster: int = 1, more: str = "") -> str:
    text = {"000": "Job submitted from host: <1.2.3.4:5>", "005": "Job terminated."}.get(
        number, "Job executing on host: <1.2.3.4:5>"
    )
    return f"{number} ({cluster:03d}.000.000) {date} {text}\n{more}...\n"


def write(path: Path, *events: str, modified: float = CLONED) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(events))
    os.utime(path, (modified, modified))
    return path


def years(*paths: Path) -> list[int]:
    found = read_columns(paths)
    return [datetime.fromtimestamp(at / 1e6, timezone.utc).year for at in found.time.tolist()]


ENDED = "\t(1) Normal termination (return value 0)\n\tJob terminated of its own accord at {}Z.\n"
MINUTES = st.tuples(
    st.integers(1, 12), st.integers(1, 31), st.integers(0, 23), st.integers(0, 60), st.booleans()
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.one_of(MINUTES, st.just((12, 30, 5, 0, False))), min_size=1, max_size=30),
    st.lists(st.integers(-12, 400), max_size=60),
    st.integers(2001, 2030),
)
def test_many_at_once_as_one_by_one(
    odd: list[tuple[int, int, int, int, bool]], days: list[int], year: int
) -> None:
    reference = datetime(year, 6, 1, tzinfo=timezone.utc).timestamp()
    keys = [
        ((month * 100 + day) * 100 + hour) * 100 + minute + (YEARLESS if bare else 2015 * 10**8)
        for month, day, hour, minute, bare in odd
    ]
    at = datetime(2011, 1, 1, tzinfo=timezone.utc).timestamp()
    for step in days:  # mostly onward, as logs go
        at += step * 86400
        when = datetime.fromtimestamp(at, timezone.utc)
        keys.append(((when.month * 100 + when.day) * 100 + when.hour) * 100 + YEARLESS)
    clocks = Clock(reference), Clock(reference)
    one_by_one = np.array([assemble._epoch(key, clocks[0]) for key in keys])
    before, assemble._MANY = assemble._MANY, 1
    try:
        at_once = assemble._epochs(np.array(keys, np.int64), clocks[1])
    finally:
        assemble._MANY = before
    assert np.array_equal(one_by_one, at_once, equal_nan=True)
    assert clocks[0].yearless == clocks[1].yearless
    assert clocks[0].sure == clocks[1].sure
    again = [clock.again() for clock in clocks]
    assert len({clock and clock._latest for clock in again}) == 1


def test_dates_with_a_year_end_those_without(tmp_path: Path) -> None:
    """HTCondor was updated: its new version writes the year."""
    path = write(
        tmp_path / "job.log",
        event("11/20 10:00:00", "000"),
        event("12/31 10:00:00"),
        event("2014-01-02 10:00:00", "005"),
        event("2014-02-02 10:00:00", "000", 2),
    )
    assert years(path) == [2013, 2013, 2014, 2014]
    assert [event.when.year for event in read_log(path).events] == [2013, 2013, 2014, 2014]


def test_an_ad_tells_the_year(tmp_path: Path) -> None:
    ad = 'Job ad information event triggered.\nProc = 0\nEventTime = "2013-12-31T10:00:00"\n'
    path = write(
        tmp_path / "job.log",
        event("12/30 10:00:00", "000"),
        f"028 (001.000.000) 12/31 10:00:00 {ad}...\n",
        event("01/02 10:00:00"),
    )
    assert years(path) == [2013, 2013, 2014]
    assert [event.when.year for event in read_log(path).events] == [2013, 2013, 2014]
    assert read_columns([path]).yearless == []


def test_a_file_takes_its_year_from_the_files_beside_it(tmp_path: Path) -> None:
    write(
        tmp_path / "a.log", event("03/01 10:00:00", "005", 1, ENDED.format("2014-03-01T10:00:00"))
    )
    write(tmp_path / "b.log", event("12/20 10:00:00", "000", 2))
    write(tmp_path / "c.log", event("2013-11-05 10:00:00", "000", 3))
    write(tmp_path / "d.log", event("05/05 10:00:00", "000", 4))
    assert years(tmp_path) == [2014, 2013, 2013, 2014]
    assert read_columns([tmp_path]).yearless == []


def test_a_file_that_was_written_to_just_then_knows_its_year(tmp_path: Path) -> None:
    write(tmp_path / "a.log", event("2020-11-05 10:00:00", "000", 3))
    write(tmp_path / "b.log", event("11/16 23:00:00", "000", 2))
    assert years(tmp_path) == [2020, 2026]
    assert read_columns([tmp_path]).yearless == []


@pytest.mark.parametrize("beside", ["run1", "run2"])
def test_where_only_a_folder_around_tells_it_is_said(tmp_path: Path, beside: str) -> None:
    write(tmp_path / beside / "a.log", event("2013-11-05 10:00:00", "000", 3))
    path = write(tmp_path / "run1" / "b.log", event("12/20 10:00:00", "000", 2))
    assert sorted(years(tmp_path)) == [2013, 2013]
    assert read_columns([tmp_path]).yearless == ([] if beside == "run1" else [str(path)])


def test_copies_without_any_other_evidence_stay_together(tmp_path: Path) -> None:
    for name, date in zip("abcd", ("10/05", "11/20", "12/15", "02/01"), strict=True):
        write(tmp_path / f"{name}.log", event(f"{date} 10:00:00", "000", ord(name)))
    assert years(tmp_path) == [2025, 2025, 2025, 2026]
    assert len(read_columns([tmp_path]).yearless) == 4
    (note,) = (note for note in report(tmp_path).notes if "year" in note)
    assert note.startswith("4 logs without a year in the dates, such as ")
