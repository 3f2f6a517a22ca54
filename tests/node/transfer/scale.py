"""The engine's constants at another scale, so that its decisions are the same and tests are quick.

Each name is one that the engine reads when it decides; a test that needs no other scale takes the
fixture `quick`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib import import_module

import pytest

SECONDS = {
    "steering": (
        "RACE WORTH WINDOW SETTLE SILENCE ANSWER ANSWER_ELSEWHERE ANSWER_ALONE SET_ASIDE ALONE "
        "MOST_ALONE"
    ),
    "crew": "WINDOW",
    "job": "STEADY",
    "source": "FIRST_PAUSE LONGEST_PAUSE RESTORE",
    "supervisor": "_THIRST _RIVAL",
    "questions": "PATIENCE",
    "keeper": "_EVERY",
    "compare": "SECONDS",
    "roster": "_AGAIN _FIRST_PAUSE _LONGEST_PAUSE _NEED",
}
SIZES = {
    "steering": "FIRST_CHUNK LEAST_CHUNK MOST_CHUNK HEDGE_LEAST",
    "job": "CRUMB ENOUGH",
    "questions": "_SMALL",
}


@contextlib.contextmanager
def scaled(*, seconds: float = 1.0, sizes: float = 1.0) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for names, factor in ((SECONDS, seconds), (SIZES, sizes)):
            for module, words in names.items():
                place = import_module(f"headway.node.transfer.{module}")
                for name in words.split():
                    value = getattr(place, name)
                    patch.setattr(place, name, type(value)(value * factor))
        yield
