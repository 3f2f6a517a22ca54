"""The examples of the report's docstrings run."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest
from tests.report.written import write_log

import headway.report


def test_the_examples_of_docstrings_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_log(tmp_path / "train.log", [0, 1])
    monkeypatch.chdir(tmp_path)
    found = doctest.testmod(headway.report)
    assert found.attempted and not found.failed
