"""The pages quote what the runs left, and the limits can be missed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from study.runs import WAYS

from study import limits, result

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/study_figures.py"


def test_pages_are_up_to_date() -> None:
    command = [sys.executable, str(SCRIPT), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_folder_without_runs_changes_nothing(tmp_path: Path) -> None:
    before = (ROOT / "benchmarks/study/results.json").read_bytes()
    command = [sys.executable, str(SCRIPT), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "nothing was changed" in done.stderr
    assert (ROOT / "benchmarks/study/results.json").read_bytes() == before


def test_every_limit_is_of_a_run_and_of_a_figure_that_is_there() -> None:
    found = json.loads((ROOT / "benchmarks/study/results.json").read_text())["runs"]
    findings = limits.judge(found)
    assert [finding.limit for finding in findings] == list(limits.LIMITS)
    assert {way.name for way in WAYS} == set(found)


@pytest.mark.parametrize(
    ("values", "each", "holds"),
    [((0.9, 1.0), False, True), ((0.9, 1.0), True, False), ((0.5,), False, False)],
)
def test_a_limit_is_of_the_mean_or_of_every_seed(
    values: tuple[float, ...], each: bool, holds: bool
) -> None:
    limit = limits.Limit("headway", "share", "share", least=0.94, each=each)
    assert limits.Finding(limit, values).holds is holds
    assert limits.rows([limits.Finding(limit, values)])[1][-1] == ("yes" if holds else "**no**")


def test_the_headline_is_of_the_seeds_that_all_runs_have() -> None:
    found = json.loads((ROOT / "benchmarks/study/results.json").read_text())["runs"]
    common = set.intersection(*({row["seed"] for row in rows} for rows in found.values()))
    assert f"{len(common)} seed" in result.headline(found)
