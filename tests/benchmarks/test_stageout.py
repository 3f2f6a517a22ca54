"""benchmarks/stageout.py: its plan, what it keeps, what it reads from a log, and how it judges."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from stageout import LIMITS, ONCE, REPEATS, WORK, Cell, Results, Row, plan, rows, table
from stageout_figure import draw, slot_rows
from stageout_pool import COMPUTING, PREPARING, TRANSFERRING, Load, Measured, Span, timeline

from headway.events import read_log

LOG = """\
000 (007.000.000) 2026-11-19 03:00:00.100 Job submitted from host: <127.0.0.1:1>
    DAG Node: job-0123abcd-0
...
001 (007.000.000) 2026-11-19 03:00:00.500 Job executing on host: <127.0.0.1:1>
\tSlotName: slot1_1@node
...
040 (007.000.000) 2026-11-19 03:00:30.500 Started transferring output files
...
040 (007.000.000) 2026-11-19 03:00:30.600 Finished transferring output files
...
005 (007.000.000) 2026-11-19 03:00:30.700 Job terminated.
\t(1) Normal termination (return value 0)
...
000 (008.000.000) 2026-11-19 03:00:30.800 Job submitted from host: <127.0.0.1:1>
    DAG Node: courier-0123abcd-0
...
001 (008.000.000) 2026-11-19 03:00:31.500 Job executing on host: <127.0.0.1:1>
\tSlotName: slot2@node
...
040 (008.000.000) 2026-11-19 03:00:32.500 Started transferring output files
...
040 (008.000.000) 2026-11-19 03:01:32.500 Finished transferring output files
...
005 (008.000.000) 2026-11-19 03:01:33.000 Job terminated.
\t(1) Normal termination (return value 0)
...
016 (008.000.000) 2026-11-19 03:01:33.700 POST Script terminated.
\t(1) Normal termination (return value 0)
    DAG Node: courier-0123abcd-0
...
"""
FOUND = Measured(100.5, [Span(0, "slot1_1", COMPUTING, 0.0, 30.0)])


def row(setting: str = "quick", jobs: int = 8, **seconds: list[float]) -> Row:
    return Row(setting, jobs, Load(jobs, 30, 60).ideal, seconds)


def test_the_log_tells_what_each_slot_did(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    seconds, spans = timeline(read_log(tmp_path / "log").events)
    assert seconds == 93.2
    assert spans == [
        Span(0, "slot1_1", COMPUTING, 0.0, 30.0),
        Span(0, "slot1_1", TRANSFERRING, 30.0, 30.1),
        Span(0, "slot2", PREPARING, 31.0, 32.0),
        Span(0, "slot2", TRANSFERRING, 32.0, 92.0),
    ]


def test_the_plan_has_every_cell_once() -> None:
    cells = plan(["quick", "default"], ["stock", "headway"], [4, 8, 16])
    assert len(set(cells)) == len(cells) == 2 * (2 * REPEATS + 1) + (2 * REPEATS + 1) + 1
    assert [cell.repeat for cell in cells if cell.jobs == ONCE] == [1, 1, 1]
    assert [str(cell) for cell in cells[:2]] == [
        "quick, stock, 4 jobs, run 1",
        "quick, headway, 4 jobs, run 1",
    ]


def test_a_finished_cell_is_kept(tmp_path: Path) -> None:
    path, cell = tmp_path / "found.json", Cell("quick", "headway", 8, 1)
    results = Results(path, WORK)
    assert not results.has(cell)
    results.add(cell, FOUND, "25.14")
    results.add(Cell("quick", "stock", 8, 1), FOUND, "25.14")
    again = Results(path, WORK)
    assert again.has(cell) and not again.has(Cell("quick", "headway", 8, 2))
    assert [raw["way"] for raw in again.kept["cells"]] == ["stock", "headway"]
    assert again.kept == json.loads(path.read_text())
    with pytest.raises(SystemExit, match="of jobs of 30 s"):
        Results(path, 5)


def test_the_ideal_waits_for_the_last_output_only() -> None:
    assert [Load(n, 30, 60).ideal for n in (4, 8, 16)] == [180, 300, 540]
    assert Load(1, 30, 60).size == 60_000_000


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (row(headway=[315.0], stock=[720.0]), []),
        (row(headway=[300.0, 400.0, 310.0], stock=[720.0]), []),  # the median counts
        (row(headway=[316.0], stock=[720.0]), ["1.053, not at most 1.05 of the ideal"]),
        (row(headway=[310.0], stock=[650.0]), ["2.10, not at least 2.2 times as fast"]),
        (row(jobs=4, headway=[180.0], stock=[361.0]), []),  # stock is the measure at eight
        (row("default", headway=[375.0]), []),
        (row("default", jobs=4, headway=[240.0]), ["1.333, not at most 1.25 of the ideal"]),
        (row("default", headway=[376.0]), ["1.253, not at most 1.25 of the ideal"]),
        (row(stock=[720.0]), []),
    ],
)
def test_limits(found: Row, said: list[str]) -> None:
    complaints = list(found.complaints())
    assert len(complaints) == len(said)
    assert all(words in told for words, told in zip(said, complaints, strict=True))
    assert set(LIMITS) == {"quick", "default"}


def test_the_table_has_what_is_known() -> None:
    raw = {**asdict(Cell("quick", "stock", 8, 1)), **FOUND._asdict(), "seconds": 720.0}
    known = {"work": 30, "cells": [raw, {**raw, "way": "headway", "seconds": 310.0}]}
    assert table(rows(known))[1] == ["quick", "8", "300 s", "720 s", "310 s", "1.033", "2.32"]
    assert table([row(stock=[720.0, 730.0, 725.0])])[1][3:] == ["725 s (720–730)", "", "", ""]


def test_the_picture_has_a_row_for_each_slot() -> None:
    spans = [
        Span(0, "slot1_1", COMPUTING, 0.0, 30.0),
        Span(0, "slot2", PREPARING, 30.0, 31.0),
        Span(0, "slot2", TRANSFERRING, 31.0, 91.0),
    ]
    shown = list(slot_rows(spans))
    assert [(name, len(bars)) for name, bars in shown] == [("slot", 1), ("transfer slot 1", 1)]
    assert shown[1][1][0][1] == "1", "a transfer has the number of its job"
    raw = {**asdict(Cell("quick", "stock", 8, 1)), "seconds": 91.0, "spans": spans}
    known = {"work": 30, "cells": [raw, {**raw, "way": "headway"}]}
    assert "Headway 91 s</title>" in draw(known)
