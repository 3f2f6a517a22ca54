"""Accounts of thin columns, some jobs at a time, are those of all columns at once."""

from __future__ import annotations

import gzip
from dataclasses import fields
from datetime import datetime, timezone
from pathlib import Path

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from tests.events.test_shapes import shapes
from tests.examples_of import examples
from tests.report.test_oracle import LOGS

from headway.events import read_columns
from headway.events.columnar import bulk
from headway.events.columnar.bulk import read_thin
from headway.report.accounting import account, account_parts
from headway.report.accounts import Accounts


def thin_accounts(paths: list[Path], rows: int, since: float | None = None) -> Accounts:
    thin = read_thin(paths, workers=1)
    parts, ends = thin.some_jobs(rows), thin.last_events()
    return account_parts(parts, ends, since=since, events=thin.events)


def assert_same(one: Accounts, other: Accounts) -> None:
    for field in fields(Accounts):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        if isinstance(mine, pl.DataFrame):
            assert_frame_equal(mine, theirs, check_exact=True, categorical_as_str=True)
        else:
            assert mine == theirs, field.name


@pytest.mark.parametrize("rows", [1, 10, 300, 1 << 20])
def test_real_logs(rows: int) -> None:
    assert_same(thin_accounts(LOGS, rows), account(read_columns(LOGS)))


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_each_real_log(path: Path) -> None:
    assert_same(thin_accounts([path], 20), account(read_columns([path])))


#: What changes nothing is the most of a long log.
OFTEN = ["006", "006 new", "033", "028", "006", "008", "029", "035"]
STEP = st.tuples(
    st.sampled_from(OFTEN * 3 + sorted(shapes.SHAPES)),
    st.integers(0, 2),  # proc
    st.sampled_from([0, 0, 1, 60, 3600, 100_000, -30, 20_000_000]),
    st.integers(0, 3),  # host
)


@settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(st.lists(STEP, max_size=40), min_size=1, max_size=3),
    st.sampled_from(["no year", "with a year", "Z"]),
    st.sampled_from([200, 1000, 1 << 20]),
    st.booleans(),
)
def test_any_log(
    tmp_path: Path, logs: list[list[tuple[str, int, int, int]]], header: str, size: int, since: bool
) -> None:
    """Also where a log is read in small ranges."""
    paths = []
    for number, steps in enumerate(logs):
        at = datetime(2019, 3, 1, tzinfo=timezone.utc).timestamp()
        text = ""
        for shape, proc, seconds, host in steps:
            at += seconds
            moment = datetime.fromtimestamp(at, timezone.utc)
            words = {"utc": moment.strftime("%Y-%m-%dT%H:%M:%S"), "site": f"Site-{host}"}
            words |= {"ip": f"10.0.0.{host}", "host": f"node{host}", "slot": "slot1"}
            values = words | {"port": 9618, "number": 100 + host}
            look = shapes.HEADERS[header]
            date = moment.strftime(look.date)
            text += shapes.event(shape, look, 1 + number, proc, date, values)
        paths.append(tmp_path / f"{number}.log")
        paths[-1].write_text(text or "009 (9.0.0) 2019-03-01 10:00:00 Job was aborted.\n...\n")
    asked = datetime(2019, 3, 2, tzinfo=timezone.utc).timestamp() if since else None
    before = bulk._RANGE, bulk._SMALL
    bulk._RANGE, bulk._SMALL = size, 0
    try:
        found = thin_accounts(paths, 7, asked)
        assert_same(found, account(read_columns(paths, workers=1), since=asked))
    finally:
        bulk._RANGE, bulk._SMALL = before


def test_what_changes_nothing_takes_no_memory(tmp_path: Path) -> None:
    """A job that tells its size for a year, and its ad each time, is a few events."""
    path = tmp_path / "job.log"
    hosts = {"ip": "10.0.0.1", "host": "node", "slot": "slot1", "port": 1, "site": "A"}
    look = shapes.HEADERS["with a year"]
    at = datetime(2019, 3, 1, tzinfo=timezone.utc).timestamp()
    lines = [
        shapes.event("001 <ip:port>", look, 1, 0, "2019-02-28 10:00:00", hosts | {"number": 1})
    ]
    for number in range(20_000):
        date = datetime.fromtimestamp(at + number * 300, timezone.utc).strftime(look.date)
        values = hosts | {"number": 5}
        lines += [shapes.event(shape, look, 1, 0, date, values) for shape in ("006 new", "028")]
    path.write_text("".join(lines))
    thin = read_thin([path])
    assert thin.events == 40_001
    assert len(thin) < 20
    assert_same(thin_accounts([path], 100), account(read_columns([path])))


def test_the_year_that_an_ad_tells_is_not_left_out(tmp_path: Path) -> None:
    look, words = shapes.HEADERS["no year"], {"number": 1}
    path = tmp_path / "job.log"
    sizes = [shapes.event("006", look, 1, 0, "03/03 10:00:00", words) for _ in range(9)]
    ad = 'Job ad information event triggered.\nEventTime = "2014-03-03T10:00:00"\n'
    path.write_text("".join([*sizes, f"028 (1.0.0) 03/03 10:00:00 {ad}...\n", *sizes]))
    found = thin_accounts([path], 50)
    assert datetime.fromtimestamp(found.end, timezone.utc).year == 2014
    assert_same(found, account(read_columns([path])))


def test_other_formats_and_compressed_logs(tmp_path: Path) -> None:
    formats = sorted((Path(__file__).parents[1] / "events" / "formats").glob("*.log"))
    packed = tmp_path / "packed.log.gz"
    packed.write_bytes(gzip.compress(b"".join(path.read_bytes() for path in LOGS)))
    for paths in (formats, [packed], [*formats, packed]):
        assert_same(thin_accounts(paths, 50), account(read_columns(paths)))


def test_a_date_that_is_none_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    whole = LOGS[0].read_bytes()
    path.write_bytes(whole + whole[: whole.index(b"\n...\n") + 5].replace(b"-11-", b"-13-", 1))
    found = thin_accounts([path], 50)
    assert [skip.offset for _, skip in found.skipped] == [len(whole)]
    assert_same(found, account(read_columns([path])))
    dates = ["11-30 10:00:00", "11-30 11:00:00", "11-31 10:00:00", "12-01 10:00:00"]
    look, fields_ = shapes.HEADERS["with a year"], {"number": 1}
    sizes = [shapes.event("006", look, 1, 0, f"2019-{date}", fields_) for date in dates * 3]
    path.write_text("".join(sorted(sizes)))
    found = thin_accounts([path], 50)
    assert len(found.skipped) == 3 and found.events == 9
    assert_same(found, account(read_columns([path])))
