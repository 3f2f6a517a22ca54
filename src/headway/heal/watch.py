"""Watching: look when a log tells of a hold or when something is due, and cost nothing between."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from headway.errors import PoolError, PoolUnreachable
from headway.heal.healer import Healer

_TICK = 1.0  # seconds between two looks at the logs, a stat each
_GATHER = 0.3  # holds come in bursts: one look for all of them
_TROUBLE = (5.0, 300.0)  # the first and the longest pause after the pool did not answer


def watch(
    healers: Sequence[Healer],
    stop: threading.Event,
    *,
    looked: Callable[[Healer], None],
    trouble: Callable[[Healer, PoolError], None],
    over: Callable[[], bool] | None = None,
) -> None:
    """Heal until told to stop, or until it is over, which is asked after each look."""
    pauses = [_TROUBLE[0]] * len(healers)
    looked_once = False
    while not stop.is_set():
        news = False
        for number, healer in enumerate(healers):
            now = time.monotonic()
            if healer.has_news():
                healer.due = min(healer.due, now + _GATHER)
            if now < healer.due:
                continue
            try:
                healer.look()
                pauses[number] = _TROUBLE[0]
                looked(healer)
                news = looked_once = True
            except PoolError as error:
                if stop.is_set():
                    return  # Ctrl-C reached the question to the schedd too
                if not looked_once and not isinstance(error, PoolUnreachable):
                    raise
                trouble(healer, error)
                healer.due = time.monotonic() + pauses[number]
                pauses[number] = min(_TROUBLE[1], pauses[number] * 2)
        if news and over is not None and over():
            return
        rest = min((healer.due for healer in healers), default=0.0) - time.monotonic()
        stop.wait(min(_TICK, max(0.05, rest)))
