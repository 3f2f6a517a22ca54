"""Fixtures: a house for each test, in which nothing is left running."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from .house import House, processes


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    yield House(tmp_path)
    for pid in [*processes("headway", str(tmp_path)), *processes(f"HEADWAY_SCRATCH={tmp_path}")]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
