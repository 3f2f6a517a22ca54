"""The page of benchmarks shows the raw figures that are kept, and nothing else."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts/benchmark_figures.py"
TEXT = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
FIGURES = ("transfer", "wide", "crowd", "transfer_faults", "streaming", "events", "stageout")


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_figures", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_up_to_date() -> None:
    command = [sys.executable, str(SCRIPT), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_table_is_made(figures: ModuleType) -> None:
    outside = figures.replaced(TEXT, "benchmark", lambda name: "")
    assert not [line for line in outside.splitlines() if line.startswith("|")]
    made = figures.names(TEXT, "benchmark") + figures.names(README, "benchmark")
    assert sorted(made) == sorted(figures.BLOCKS)


@pytest.mark.parametrize("name", FIGURES)
def test_another_raw_figure_is_another_page(
    name: str, figures: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(figures.RESULTS, tmp_path / "results")
    monkeypatch.setattr(figures, "RESULTS", tmp_path / "results")
    assert figures.updated(TEXT) == TEXT
    path = tmp_path / "results" / f"{name}.json"
    path.write_text(json.dumps(_slower(json.loads(path.read_text()))))
    assert figures.updated(TEXT) != TEXT


def _slower(raw: object) -> object:
    """The same figures, with all times doubled."""
    if isinstance(raw, dict):
        times = ("seconds", "first", "wall")
        return {
            key: 2 * value + 1 if key in times else _slower(value) for key, value in raw.items()
        }
    return [_slower(each) for each in raw] if isinstance(raw, list) else raw


def test_no_path_of_a_machine_is_kept(figures: ModuleType) -> None:
    for path in figures.RESULTS.glob("*.json"):
        kept = path.read_text()
        assert not [place for place in ("/tmp/", "/home/", "/root/", "/var/") if place in kept]


def test_a_block_is_replaced_and_the_rest_stays(figures: ModuleType) -> None:
    text = "a\n<!-- kind: one -->\nold\n<!-- end of kind -->\nb\n<!-- other: one -->\n"
    new = figures.replaced(text, "kind", str.upper)
    assert new == text.replace("old", "ONE")
    assert figures.names(text, "kind") == ["one"] and figures.names(text, "none") == []
