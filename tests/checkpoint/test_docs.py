"""The examples of docs/checkpoint.md run, are interrupted, and go on."""

from __future__ import annotations

import doctest
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import headway.checkpoint

ROOT = Path(__file__).parents[2]
PYTHONPATH = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests/lab/quick_torch")])
PAGE = (ROOT / "docs/checkpoint.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"<!-- example: (\w+) -->\n```python\n(.*?)```", PAGE, re.DOTALL))


def run(name: str, folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", EXAMPLES[name], *words],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": PYTHONPATH, **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_all_examples_are_tried() -> None:
    assert set(EXAMPLES) == {"trains", "torch"}


def test_a_training_in_two_parts_is_one_in_one(tmp_path: Path) -> None:
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    whole = run("trains", tmp_path / "whole", "30")
    assert whole.returncode == 0, whole.stderr
    assert run("trains", tmp_path / "parts", "10").returncode == 0
    # at an interval that is over at once it leaves after each step
    left = run("trains", tmp_path / "parts", "30", HEADWAY_CHECKPOINT_INTERVAL="0.000001")
    assert left.returncode == 85 and left.stdout == ""
    assert run("trains", tmp_path / "parts", "30").stdout == whole.stdout


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs PyTorch")
def test_torch_goes_on_at_the_next_step(tmp_path: Path) -> None:
    traced = {"HEADWAY_TRACE": str(tmp_path / "trace")}
    first = run("torch", tmp_path, HEADWAY_CHECKPOINT_INTERVAL="0.000001", **traced)
    assert first.returncode == 85, first.stderr
    assert run("torch", tmp_path, **traced).stdout == "20\n"
    steps = re.findall(r'"step": (\d+)', (tmp_path / "trace").read_text())
    assert steps == [str(number) for number in range(1, 21)]


def test_the_face_is_documented() -> None:
    for name in ("load", "tick", "should_stop", "due", "save", "leave"):
        assert f"`{name}(" in PAGE and callable(getattr(headway.checkpoint.Checkpoint, name))
    for name in headway.checkpoint.__all__:
        assert name in PAGE
    keeper = (ROOT / "src/headway/checkpoint.py").read_text(encoding="utf-8")
    for variable in re.findall(r"HEADWAY_\w+", keeper):
        assert f"`{variable}`" in PAGE


def test_the_examples_of_docstrings_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = doctest.testmod(headway.checkpoint)
    assert found.attempted and not found.failed
