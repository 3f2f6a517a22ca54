"""The lab's own tests leave no thread behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    end = time.monotonic() + 5
    while (stayed := set(threading.enumerate()) - before) and time.monotonic() < end:
        time.sleep(0.05)
    assert not stayed
