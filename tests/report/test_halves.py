"""Logs that share no job are accounted for themselves: what halves say adds up to what all say."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples_of import examples
from tests.report.columns import Made, made_columns
from tests.report.test_oracle import LINE, LOGS, MADE
from tests.report.written import BEGIN, HOST, write_log

from headway.events import EventWriter, read_columns
from headway.events.event import Kind
from headway.report import report
from headway.report.accounting import account
from headway.report.accounts import Accounts

YEAR = 365 * 86400


def figures(accounts: Accounts) -> Counter[str]:
    """Counts, whole microseconds and bytes; what is not there counts as nothing."""
    found: Counter[str] = Counter(events=accounts.events)
    for name, table in (("jobs", accounts.jobs), ("attempts", accounts.attempts)):
        found[name] = table.height
        for column, kind in table.schema.items():
            if column.endswith("_s"):
                found[f"{name} {column}"] = sum(round((x or 0) * 1e6) for x in table[column])
            elif column in ("received", "sent", "holds", "evictions", "stalls", "requeues"):
                found[f"{name} {column}"] = int(table[column].fill_null(0).sum())
            elif column in ("outcome", "ending"):
                assert kind in (pl.String, accounts.jobs.schema["outcome"])
                found.update(f"{name} {value}" for value in table[column].to_list())
    found["holds"] = accounts.holds.height
    found["held"] = sum(round(x * 1e6) for x in accounts.holds["held_s"].to_list())
    for *piece, seconds in accounts.pieces.select("phase", "verdict", "cause", "seconds").rows():
        found[" ".join(piece)] += round(seconds * 1e6)
    return +found


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.lists(st.one_of(MADE, LINE), max_size=12), max_size=6), st.integers(0, 63))
def test_halves_add_up(logs: list[list[Made]], chosen: int) -> None:
    def accounts(which: list[int]) -> Accounts:
        # The same names, and clusters of their own: no two logs share a job.
        events = [
            Made(
                **(vars(event) | {"log": place, "cluster": 1 + log, "time": event.time + log * 99})
            )
            for place, log in enumerate(which)
            for event in logs[log]
        ]
        return account(made_columns(events))

    every = list(range(len(logs)))
    one = [log for log in every if chosen >> log & 1]
    other = [log for log in every if log not in one]
    assert figures(accounts(one)) + figures(accounts(other)) == figures(accounts(every))
    assert figures(accounts(every[::-1])) == figures(accounts(every))


@settings(max_examples=15, deadline=None)
@given(st.sets(st.sampled_from(LOGS)), st.randoms(use_true_random=False))
def test_halves_of_real_logs_add_up(one: set[Path], order: random.Random) -> None:
    shuffled = list(LOGS)
    order.shuffle(shuffled)
    halves = [path for path in LOGS if path in one], [path for path in LOGS if path not in one]
    parts = [account(read_columns(half)) for half in halves if half]
    together = Counter[str]()
    for part in parts:
        together += figures(part)
    assert together == figures(account(read_columns(shuffled)))


def test_a_log_ends_at_its_own_last_event(tmp_path: Path) -> None:
    """Two logs a year apart: nobody knows what became of the job whose log just stops."""
    old, new = tmp_path / "old.log", tmp_path / "new.log"
    write_log(old, [None])
    with EventWriter(old) as log:
        log.image_size(1, 0, 1000, time=BEGIN + 500)
    write_log(new, [0, None], cluster=2, begin=BEGIN + YEAR)
    both = report([old, new])
    assert both.accounts.jobs.filter(pl.col("cluster") == 1)["slot_s"].to_list() == [490.0]
    parts = [report(log) for log in (old, new)]
    assert both.totals.slot_s == sum(part.totals.slot_s for part in parts)
    (note,) = both.notes
    start = "what became of 2 jobs after the last event of the log (between 2025-09-04 "
    assert note.startswith(start) and note.endswith("is not known, and not counted")


def test_a_pool_s_log_tells_of_a_running_job_up_to_its_end() -> None:
    events = [Made(0, Kind.SUBMITTED), Made(5, Kind.EXECUTING), Made(100, Kind.SUBMITTED, proc=1)]
    assert account(made_columns(events)).jobs["slot_s"].to_list() == [95, 0]


def test_the_middle_of_another_group_s_job_is_not_of_the_job_of_that_name_here() -> None:
    """Access points count clusters from 1 each; a log that was cut has no 000."""
    columns = made_columns(
        [
            Made(0, Kind.SUBMITTED),
            Made(5, Kind.EXECUTING),
            Made(15, Kind.SUCCEEDED),
            Made(1000, Kind.EXECUTING, log=1),
            Made(1010, Kind.FAILED, log=1),
        ]
    )
    columns.logs = ["here/job.log", "there/job.log"]
    assert account(columns).jobs["outcome"].to_list() == ["success", "failed"]
    columns.logs = ["here/job.log", "here/rest.log"]
    assert account(columns).jobs["outcome"].to_list() == ["success"]


def test_a_job_in_two_logs_is_accounted_alike_in_whatever_order_they_are_named(
    tmp_path: Path,
) -> None:
    """Both have its first event, and only one of them says how it ended."""
    whole, part = tmp_path / "b.log", tmp_path / "a.log"
    write_log(whole, [0])
    with EventWriter(part) as log:
        log.submitted(1, 0, HOST, time=BEGIN)
    tables = []
    for order in ([whole, part], [part, whole]):
        jobs = report(order).accounts.jobs
        tables.append(jobs.with_columns(pl.col("log").cast(pl.String)).rows())
    assert tables[0] == tables[1]
