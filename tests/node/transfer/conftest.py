"""Transfers in tests: nothing of this machine's proxies, and the same decisions in less time."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from .scale import scaled


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture
def quick() -> Iterator[float]:
    """Every wait of the engine takes a quarter of its time."""
    with scaled(seconds=0.25):
        yield 0.25
