"""benchmarks/transfer.py and transfer_faults.py run, in small; the figures are theirs to tell."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from transfer import Cost, Costs, _show

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
OURS = ["headway", "headway sha256", "headway manifest"]


@pytest.fixture
def tools() -> list[str]:
    return [*OURS, *filter(shutil.which, ["curl"])]


def ran(name: str, *arguments: str, folder: Path) -> tuple[int, list[str]]:
    """A benchmark's exit code, and what it printed; it must have come to its end."""
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / name), *arguments],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    wrong = [line for line in done.stderr.splitlines() if not line.startswith("without ")]
    assert not wrong and done.returncode in (0, 1), done.stderr
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize("way", ["http", "wide-https"])
def test_every_tool_has_its_row(way: str, tools: list[str], tmp_path: Path) -> None:
    words = ["--size", "1", "--runs", "1", "--ways", way, "--connections", "2"]
    where = ["--tools", ",".join(tools), "--folder", str(tmp_path)]
    _, lines = ran("transfer.py", *words, *where, folder=tmp_path)
    assert f"{way}, 2 connections" in lines
    table = lines[lines.index(f"{way}, 2 connections") + 2 :][: len(tools)]
    assert {line[:17].rstrip() for line in table} == set(tools)
    for line in table:
        figures = line[17:].replace("(", " ").split()
        # its memory is looked at now and then: of one that ends at once little may have been seen
        assert float(figures[0]) > 0 and float(figures[2]) > 0 and 0 < float(figures[3]) < 80


def test_what_proves_is_shown_and_not_judged(capsys: pytest.CaptureFixture[str]) -> None:
    right, dear = Costs([Cost(2e9, 1.0, 3e7)]), Costs([Cost(1e6, 99.0, 9e7)])
    taken = {"headway": right, "curl": right, "headway sha256": dear, "headway manifest": dear}
    assert _show("http", 1, taken) == []
    shown = capsys.readouterr().out
    assert all(name in shown for name in taken)
    assert len(_show("http", 1, {**taken, "headway": dear})) == 3


def test_a_crowd(tools: list[str], tmp_path: Path) -> None:
    words = ["--clients", "3", "--size", "1", "--tools", ",".join(tools)]
    _, lines = ran("transfer.py", "--crowd", *words, "--folder", str(tmp_path), folder=tmp_path)
    assert lines[0] == "3 clients, 1 MiB each"
    wanted = ["headway, 1 connection", "headway, as it comes"] * 2
    wanted += ["curl, 1 connection"] if "curl" in tools else []
    assert sorted(line[:28].rstrip() for line in lines[1:] if " s (ideal " in line) == sorted(
        wanted
    )
    assert not any("failed" in line for line in lines)


def test_faults(tools: list[str], tmp_path: Path) -> None:
    faults = ["none", "404 for 2 s", "flipped byte", "no Range"]
    words = ["--size", "2", "--limit", "10", "--tools", ",".join(tools)]
    more = ["--faults", ",".join(faults), "--json", str(tmp_path / "cells")]
    code, lines = ran("transfer_faults.py", *words, *more, folder=tmp_path)
    assert code == 0, lines
    cells = json.loads((tmp_path / "cells").read_text())
    found = {(cell["tool"], cell["fault"]): cell["outcome"] for cell in cells}
    assert len(found) == len(cells) == len(faults) * (3 if "curl" in tools else 2)
    assert all(found["headway +1", fault] == "ok" for fault in faults)
    if "curl" in tools:
        assert found["curl", "flipped byte"] == "silent"
