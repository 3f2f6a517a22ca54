"""Property tests try the same examples each time; --hypothesis-profile=explore tries others."""

from __future__ import annotations

import gc
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.lab.torch_loaded import TorchLoaded

# How long an example takes depends on what else the machine does, so it is no reason to fail.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", unhurried, derandomize=True)
settings.register_profile("explore", unhurried, print_blob=True)
settings.load_profile("steady")

# What one test has downloaded must not spare another one its download.
os.environ["HEADWAY_CACHE"] = "off"

# Jobs start `python3` a thousand times, and pyenv's is a script that looks for one each time.
os.environ["PATH"] = f"{sys.base_prefix}/bin{os.pathsep}{os.environ['PATH']}"


def pytest_collection_finish() -> None:
    """Leave what was loaded alone: looking for garbage in it takes time, and copies its pages."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


_ended = itertools.count(1)


def pytest_runtest_logfinish() -> None:
    """Look for all garbage now and then: there are files and sockets in it."""
    if next(_ended) % 200 == 0:
        gc.collect()


@pytest.fixture
def quick_torch() -> str:
    """Lines for a job.toml whose command has a torch optimizer: it starts in half the time."""
    folder = Path(__file__).parent / "lab" / "quick_torch"
    return f'[environment]\nPYTHONPATH = "{folder}"\n'


@pytest.fixture(scope="session")
def torch_loaded() -> Iterator[TorchLoaded]:
    """Starts programs with torch in no time."""
    loaded = TorchLoaded()
    yield loaded
    loaded.close()
