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
    "scheduler": (
        "RACE WORTH WINDOW SETTLE SILENCE ANSWER ANSWER_ELSEWHERE ANSWER_ALONE SET_ASIDE ALONE "
        "MOST_ALONE THIRST RIVAL"
    ),
    "download": "STEADY",
    "source": "FIRST_PAUSE LONGEST_PAUSE RESTORE",
    "head_requests": "PATIENCE",
    "assembly": "_EVERY",
    "versions": "SECONDS",
    "discovery": "_AGAIN _FIRST_PAUSE _LONGEST_PAUSE _NEED",
}
SIZES = {
    "scheduler": "FIRST_CHUNK LEAST_CHUNK MOST_CHUNK HEDGE_LEAST",
    "download": "LITTLE ENOUGH",
    "head_requests": "_SMALL",
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
