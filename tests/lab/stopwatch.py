"""Seconds for those who count them on a machine that others use, too."""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path

_SHARE = 0.75  # of the seconds in which programs wait for a processor that a busy machine may add


class Stopwatch:
    """Runs from its making on; most of the time in which programs wait for a processor is not
    counted, where the kernel tells of it. On a machine that is not busy it is a plain one."""

    def __init__(self) -> None:
        self._begin, self._waits = time.monotonic(), _waits()

    @property
    def seconds(self) -> float:
        passed = time.monotonic() - self._begin
        return passed - _SHARE * min(passed, _waits() - self._waits)


def _waits() -> float:
    """Seconds so far in which at least one program had to wait for a processor."""
    with contextlib.suppress(OSError):
        told = Path("/proc/pressure/cpu").read_text()
        if found := re.search(r"^some .*total=(\d+)$", told, re.MULTILINE):
            return int(found[1]) / 1e6
    return 0.0
