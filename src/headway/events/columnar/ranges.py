"""Ranges of a text log that can be read apart from each other: each begins where an event ends."""

from __future__ import annotations

import os
import re

from headway.events.skip import end_of_hole, is_zeros

#: An end mark that is one wherever reading began: it shares no newline with a mark before it.
_SURE_END = re.compile(rb"(?<!\n\.\.\.)(?<!\n\.\.\.\r)\n\.\.\.\r?\n")
_BEHIND = 8
_LOOK = 1 << 16


def ranges(descriptor: int, size: int, step: int) -> list[tuple[int, int]]:
    """Ranges of about `step` bytes; where there is no end mark for long, they are longer."""
    starts, at = [0], step
    while at < size:
        found, looked = _next_start(descriptor, at, min(at + step, size))
        if found is not None and starts[-1] < found < size:
            starts.append(found)
        at += step * max(1, (looked - at) // step)
    return list(zip(starts, [*starts[1:], size], strict=True))


def _next_start(descriptor: int, start: int, stop: int) -> tuple[int | None, int]:
    """Where an event ends between these places, if one does, and how far there is none."""
    at = start
    while at < stop:
        data = os.pread(descriptor, _LOOK + 2 * _BEHIND, max(0, at - _BEHIND))
        if len(data) <= _BEHIND:
            return None, stop
        match = _SURE_END.search(data, min(at, _BEHIND))
        if match:
            return max(0, at - _BEHIND) + match.end(), at
        at += _LOOK
        if is_zeros(data):
            at = max(at, end_of_hole(descriptor, at))
    return None, at
