"""The clock of a log: years and zones that nobody wrote down."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.events import EventParser, Follower, read_log
from headway.events.clock import Clock, Hint, judge, utc_hint

CHICAGO = ZoneInfo("America/Chicago")
KOLKATA = ZoneInfo("Asia/Kolkata")
ZULU = "%Y-%m-%dT%H:%M:%SZ"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Puts this machine somewhere."""

    def put(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield put
    monkeypatch.undo()
    time.tzset()


def utc(*moment: int) -> float:
    return datetime(*moment, tzinfo=timezone.utc).timestamp()  # type: ignore[misc,arg-type]


def ended(
    at: float, zone: tzinfo, *, late: float = 1, style: str = "%Y-%m-%d", proc: int = 0
) -> str:
    """A 005 event that an access point of a zone wrote of a command that ended at a moment."""
    local = datetime.fromtimestamp(at + late, zone).strftime(f"{style} %H:%M:%S")
    said = datetime.fromtimestamp(at, timezone.utc).strftime(ZULU)
    return (
        f"005 (001.{proc:03d}.000) {local} Job terminated.\n"
        "\t(1) Normal termination (return value 0)\n\n"
        f"\tJob terminated of its own accord at {said} with exit-code 0.\n...\n"
    )


def submitted(at: float, zone: tzinfo, style: str = "%Y-%m-%d") -> str:
    local = datetime.fromtimestamp(at, zone).strftime(f"{style} %H:%M:%S")
    return f"000 (001.000.000) {local} Job submitted from host: <a>\n...\n"


def times(path: Path, text: str, mtime: float | None = None) -> list[float]:
    path.write_text(text)
    if mtime is not None:
        os.utime(path, (mtime, mtime))
    return [event.time for event in read_log(path).events]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("of its own accord at 2026-11-15T22:20:22Z.", utc(2026, 11, 15, 22, 20, 22)),
        ("of its own accord at 2026-11-15T22:20:22Z with signal 9.", utc(2026, 11, 15, 22, 20, 22)),
        (
            "by the startd at 2026-11-15T22:20:22Z (using method 1: X).",
            utc(2026, 11, 15, 22, 20, 22),
        ),
        ("of its own accord at 2026-13-15T22:20:22Z.", None),
        ("of its own accord at noon", None),
    ],
)
def test_hints(line: str, expected: float | None) -> None:
    assert utc_hint(f"005 (1.0.0) x\n\t(1) Normal\n\tJob terminated {line}".encode()) == expected


@pytest.mark.parametrize("zone", [CHICAGO, KOLKATA, timezone.utc])
@pytest.mark.parametrize("style", ["%Y-%m-%d", "%m/%d"])
@pytest.mark.parametrize("machine", ["Europe/Berlin", "UTC", "Asia/Tokyo"])
def test_a_log_from_elsewhere(
    zone: tzinfo, style: str, machine: str, here: Callable[[str], None], tmp_path: Path
) -> None:
    here(machine)
    start = utc(2026, 7, 1, 12, 0, 0)
    text = submitted(start, zone, style) + ended(start + 500, zone, style=style)
    assert times(tmp_path / "log", text, start + 600) == [start, start + 501]


def test_the_machine_s_own_zone_stays_when_transfers_are_slow(
    here: Callable[[str], None], tmp_path: Path
) -> None:
    here("America/Chicago")
    start = utc(2026, 7, 1, 12, 0, 0)
    text = ended(start, CHICAGO, late=1234) + ended(start, CHICAGO, late=5000)
    assert times(tmp_path / "log", text) == [start + 1234, start + 5000]


def test_a_slow_transfer_elsewhere(here: Callable[[str], None], tmp_path: Path) -> None:
    here("Europe/Berlin")
    start = utc(2026, 7, 1, 12, 0, 0)
    assert times(tmp_path / "log", ended(start, CHICAGO, late=1000)) == [start + 1000]


def test_a_node_whose_clock_is_wrong(here: Callable[[str], None], tmp_path: Path) -> None:
    here("America/Chicago")
    days = [utc(2026, 7, day, 12, 0, 0) for day in range(1, 6)]
    text = "".join(ended(day, CHICAGO, late=-7200 if day == days[2] else 3) for day in days)
    assert times(tmp_path / "log", text)[-1] == days[-1] + 3


@pytest.mark.parametrize("machine", ["America/Chicago", "Europe/Berlin", "UTC"])
def test_daylight_saving_time_within_a_log(
    machine: str, here: Callable[[str], None], tmp_path: Path
) -> None:
    here(machine)
    days = [utc(2026, 10, 20, 12, 0, 0) + n * 86400 for n in range(20)]  # changes on 1 November
    text = "".join(ended(day, CHICAGO) for day in days)
    assert times(tmp_path / "log", text) == [day + 1 for day in days]


def test_the_year_of_an_old_log_that_was_copied_today(tmp_path: Path) -> None:
    start = utc(2021, 11, 30, 12, 0, 0)
    local = datetime.fromtimestamp(start).astimezone().tzinfo
    assert local
    text = submitted(start, local, "%m/%d")
    text += "".join(ended(start + n * 30 * 86400, local, style="%m/%d") for n in range(1, 4))
    found = times(tmp_path / "log", text, utc(2026, 11, 15, 0, 0, 0))
    assert found == [start, *(start + n * 30 * 86400 + 1 for n in range(1, 4))]


def test_a_leap_day_is_enough_to_know_the_year(tmp_path: Path) -> None:
    start = utc(2020, 2, 29, 12, 0, 0)
    local = datetime.fromtimestamp(start).astimezone().tzinfo
    assert local
    text = submitted(start, local, "%m/%d") + ended(start + 86400, local, style="%m/%d")
    assert times(tmp_path / "log", text, utc(2026, 11, 15, 0, 0, 0)) == [start, start + 86401]


def test_a_zone_in_the_header_needs_no_hint(here: Callable[[str], None], tmp_path: Path) -> None:
    here("Asia/Tokyo")
    start = utc(2026, 7, 1, 12, 0, 0)
    text = ended(start, timezone.utc).replace(" Job terminated.\n", "Z Job terminated.\n", 1)
    assert times(tmp_path / "log", text) == [start + 1]


def test_a_follower_believes_a_hint_from_where_it_is(
    here: Callable[[str], None], tmp_path: Path
) -> None:
    here("Europe/Berlin")
    start = utc(2026, 7, 1, 12, 0, 0)
    path = tmp_path / "log"
    follower = Follower(path)
    path.write_text(submitted(start, CHICAGO))
    assert [event.time for event in follower.poll()] == [start - 7 * 3600]
    with path.open("a") as file:
        file.write(ended(start + 60, CHICAGO))
    follower.poll()
    with path.open("a") as file:
        file.write(submitted(start + 120, CHICAGO))
    assert [event.time for event in follower.poll()] == [start + 120]
    follower.close()


def test_words_of_users_are_no_hints(tmp_path: Path) -> None:
    text = ended(utc(2001, 1, 1, 0, 0, 0), timezone.utc).replace("005 (", "009 (")
    parser = EventParser()
    parser.feed(text.encode())
    assert parser.clock.again() is None


minutes = st.one_of(
    st.dates(datetime(2020, 1, 1).date(), datetime(2027, 1, 1).date()).map(
        lambda day: f"{day:%m/%d} 12:00".encode()
    ),
    st.dates(datetime(2020, 1, 1).date(), datetime(2027, 1, 1).date()).map(
        lambda day: f"{day:%Y-%m-%d} 12:00".encode()
    ),
    st.sampled_from([b"02/29 00:00", b"13/01 00:00", b"00/00 00:00", b"9999-12-31 23:59"]),
)


@given(st.lists(minutes, max_size=30), st.integers(0, 2_000_000_000))
@settings(deadline=None)
def test_minutes_may_be_asked_for_once_or_often(asked: list[bytes], reference: int) -> None:
    once, often = Clock(reference), Clock(reference)
    forgetful = Clock(reference)
    for minute in asked:
        found = once.seconds(minute, None)
        assert [often.seconds(minute, None) for _ in range(3)] == [found] * 3
        forgetful._known.clear()
        assert forgetful.seconds(minute, None) == found


@given(
    st.lists(st.tuples(st.floats(0, 2**33), st.floats(0, 2**33)), min_size=1, max_size=8),
    st.booleans(),
)
@settings(deadline=None)
def test_hints_of_any_kind_give_some_zone(pairs: list[tuple[float, float]], yearless: bool) -> None:
    zone, years = judge([Hint(*pair) for pair in pairs], None, yearless)
    assert zone is None or datetime.now(zone).utcoffset() is not None
    assert years == 0 or yearless


@given(
    st.sampled_from([-36000, -21600, 0, 3600, 19800, 20700, 43200]),
    st.lists(st.tuples(st.integers(1, 300), st.integers(0, 40)), min_size=1, max_size=5),
)
@settings(deadline=None)
def test_the_offset_comes_out(offset: int, ends: list[tuple[int, int]]) -> None:
    hints = []
    for day, late in ends:
        moment = utc(2026, 1, 1, 12, 0, 0) + day * 86400
        local = datetime.fromtimestamp(moment + late, timezone(timedelta(seconds=offset)))
        hints.append(Hint(local.replace(tzinfo=timezone.utc).timestamp(), moment))
    zone, years = judge(hints, timezone.utc, False)
    found = datetime(2026, 6, 1, tzinfo=zone).utcoffset()
    assert (found, years) == (timedelta(seconds=offset), 0)
