"""The report is many times quicker than HTCondor's own reader, and stays so.

What is claimed is measured by benchmarks/events.py, on a large log and by the clock on the wall.
Here a small log is read, and CPU time is compared, which a busy machine stretches for both alike.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
#: Few enough to be read by one process, so that nothing depends on the number of cores.
MEGABYTES = 13
#: Measured: 5 to 7 times the CPU, and 5 times the log, most of which the libraries take themselves.
TIMES_AS_FAST = 3
TIMES_THE_LOG = 8


def run(script: str, *arguments: str) -> str:
    command = [sys.executable, str(BENCHMARKS / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def read(reader: str, log: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("event_readers.py", reader, str(log)))
    return found


@pytest.fixture(scope="module", params=["pool", "shapes"])
def log(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A pool's log, and one of the shapes that events have in logs of old and new versions."""
    path = tmp_path_factory.mktemp("speed") / f"{request.param}.log"
    if request.param == "pool":
        run("made_logs.py", str(path), "--size", str(MEGABYTES), "--mix", "pool")
    else:
        run("shapes.py", str(path), "--size", str(MEGABYTES))
    return path


@pytest.fixture(scope="module")
def ours(log: Path) -> list[dict[str, Any]]:
    return [read("headway", log) for _ in range(3)]


def test_the_accounting_takes_a_fraction_of_the_time_that_htcondors_reader_takes(
    log: Path, ours: list[dict[str, Any]]
) -> None:
    pytest.importorskip("htcondor2")
    theirs = read("joblog", log)
    assert {found["events"] for found in ours} == {theirs["events"]}
    least = min(found["work_cpu_s"] for found in ours)
    assert theirs["work_cpu_s"] / least >= TIMES_AS_FAST


def test_the_accounting_holds_a_few_times_the_log_in_memory(
    log: Path, ours: list[dict[str, Any]]
) -> None:
    least = min(found["work_memory"] for found in ours)
    assert least / log.stat().st_size <= TIMES_THE_LOG
