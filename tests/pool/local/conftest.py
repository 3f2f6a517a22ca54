"""Fixtures: a house for each test, in which nothing is left running."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .house import House


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.close()
