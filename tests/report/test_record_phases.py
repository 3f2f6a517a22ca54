"""Phases that only a record tells, put among the events of its attempt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.report.written import BEGIN, HOST, write_log

from headway.events import EventWriter, read_columns
from headway.events.columnar.columns import column_names
from headway.events.event import Kind
from headway.report.accounting import account
from headway.report.records import with_phases

START = BEGIN + 110  # of the 001 in `write_log`
PHASES = [
    (Kind.CHECK, START + 1.5),
    (Kind.STAGE_IN, START + 2.5),
    (Kind.RUN, START + 302.5),
    (Kind.STAGE_OUT, START + 990.5),
    (Kind.DONE, START + 999.5),
]


def record(log: Path, proc: int = 0, shift: float = 0, **more: Any) -> dict[str, Any]:
    phases = [(kind, time + shift) for kind, time in PHASES]
    found = {"log": str(log), "cluster": 1, "proc": proc, "record": f"r{proc}"}
    return {**found, "begin": START + 1 + shift, "phases": phases, **more}


@pytest.mark.parametrize("shift", [0, -60, 60, 0.4, -0.4])
def test_the_execution_is_cut_as_the_agent_would_have_told(tmp_path: Path, shift: float) -> None:
    log = write_log(tmp_path / "x.log", [0, 0])
    columns = read_columns([log])
    told = with_phases(columns, [record(log, 1, shift)])
    assert len(told) == len(columns) + len(PHASES)
    assert len(columns) == len(read_columns([log]))  # which is left as it was
    first, second = account(told).attempts.iter_rows(named=True)
    assert first["compute_s"] == 1000 and not first["agent_transfer"]
    assert second["agent_transfer"]
    assert second["slot_s"] == first["slot_s"] == 1100
    assert second["transfer_in_s"] == pytest.approx(400, abs=2)  # HTCondor's 100 s, and 300 s
    # Where the clock of the node was off, what cannot be true is cut at the bounds.
    assert second["compute_s"] == pytest.approx(688, abs=4)


def test_every_column_keeps_its_rows_in_step(tmp_path: Path) -> None:
    log = write_log(tmp_path / "x.log", [0, 3, 0])
    columns = read_columns([log])
    told = with_phases(columns, [record(log, 0), record(log, 2)])
    kept = [row for row in range(len(told)) if told.number[row] != 8]
    for name in column_names():
        before, after = getattr(columns, name), getattr(told, name)
        assert after.dtype == before.dtype
        assert after[kept].tolist() == before.tolist(), name
    ended = [row for row in range(len(told)) if told.number[row] == 5]
    assert told.usage.row.tolist() == ended
    assert columns.strings == told.strings[: len(columns.strings)]


def test_the_log_has_the_word(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    with EventWriter(log) as writer:
        writer.submitted(1, 0, HOST, time=BEGIN)
        writer.executing(1, 0, HOST, time=START)
        writer.generic(1, 0, "headway nonce=ab phase=run state=begin t=1", time=START + 5)
        writer.terminated(1, 0, return_value=0, time=START + 1000)
    columns = read_columns([log])
    assert with_phases(columns, [record(log)]) is columns


@pytest.mark.parametrize(
    "more",
    [
        {"phases": []},
        {"begin": None},
        {"begin": START - 5000},
        {"begin": START + 5000},
        {"cluster": 2},
        {"proc": 7},
        {"log": "/elsewhere.log"},
    ],
)
def test_a_record_of_no_attempt_here_changes_nothing(tmp_path: Path, more: Any) -> None:
    log = write_log(tmp_path / "x.log", [0])
    columns = read_columns([log])
    assert with_phases(columns, [{**record(log), **more}]) is columns


def test_an_attempt_that_goes_on(tmp_path: Path) -> None:
    log = write_log(tmp_path / "x.log", [None])
    told = with_phases(read_columns([log]), [record(log, phases=PHASES[:3])])
    attempt = account(told, until=START + 500).attempts.row(0, named=True)
    assert attempt["transfer_in_s"] == 400
    assert attempt["compute_s"] == pytest.approx(198, abs=1)
