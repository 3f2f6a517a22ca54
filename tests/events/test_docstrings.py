"""The examples in the docstrings of `headway.events`, run as they stand."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path

import pytest

from headway import events

EXAMPLES = ("EventWriter", "columns_of", "fold", "follow", "inert", "read_columns", "read_log")


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_docstring_is_right(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {one: getattr(events, one) for one in events.__all__}
    text = inspect.getdoc(getattr(events, name)) or ""
    test = doctest.DocTestParser().get_doctest(text, names, name, None, None)
    assert test.examples
    found = doctest.DocTestRunner(verbose=False).run(test)
    assert found.failed == 0
