"""Processors: how many of the machine's this process may use."""

from __future__ import annotations

import os


def usable_processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
