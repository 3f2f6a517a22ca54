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
MEGABYTES = 8


def run(script: str, *arguments: str) -> str:
    command = [sys.executable, str(BENCHMARKS / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def read(reader: str, log: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("event_readers.py", reader, str(log)))
    return found


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("speed") / "pool.log"
    run("made_logs.py", str(path), "--size", str(MEGABYTES))
    return path


def test_the_accounting_takes_a_sixth_of_the_cpu_time_of_htcondors_reader(log: Path) -> None:
    pytest.importorskip("htcondor2")
    theirs = read("joblog", log)
    ours = [read("headway", log) for _ in range(3)]
    assert ours[0]["events"] == theirs["events"]
    assert theirs["work_cpu_s"] / min(found["work_cpu_s"] for found in ours) >= 6


def test_the_accounting_holds_a_few_times_the_log_in_memory(log: Path) -> None:
    found = read("headway", log)
    assert found["work_memory"] / log.stat().st_size < 10
