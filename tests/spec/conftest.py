from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headway.errors import Problem, SpecError
from headway.spec import Job, load_job

MINIMAL = 'name = "n"\ncommand = "true"\n'

Load = Callable[..., Job]
Wrong = Callable[..., list[Problem]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load a job.toml; without `whole`, the text is added to a minimal one."""

    def _load(text: str = "", *, whole: bool = False, **options: list[str]) -> Job:
        path = tmp_path / "job.toml"
        path.write_text(text if whole else MINIMAL + text, encoding="utf-8")
        return load_job(path, **options)

    return _load


@pytest.fixture
def wrong(load: Load) -> Wrong:
    """The problems of a job.toml."""

    def _wrong(text: str = "", *, whole: bool = False, **options: list[str]) -> list[Problem]:
        with pytest.raises(SpecError) as caught:
            load(text, whole=whole, **options)
        return list(caught.value.problems)

    return _wrong
