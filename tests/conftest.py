"""Property tests try the same examples each time; --hypothesis-profile=explore tries others."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("steady", derandomize=True)
settings.register_profile("explore", print_blob=True)
settings.load_profile("steady")


@pytest.fixture
def quick_torch() -> str:
    """Lines for a job.toml whose command has a torch optimizer: it starts in half the time."""
    folder = Path(__file__).parent / "lab" / "quick_torch"
    return f'[environment]\nPYTHONPATH = "{folder}"\n'
