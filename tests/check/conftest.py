"""The commands that are checked start the Python that runs the tests, in a tenth of the time."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python3` is no script that looks for one, as pyenv's is: the checks start hundreds."""
    first = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{first}{os.pathsep}{os.environ['PATH']}")
