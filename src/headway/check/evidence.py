"""The evidence: the starts that were made, and what can be said of them at a glance."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field

from headway.check.curve import Row, from_text, from_trace
from headway.check.results import differing
from headway.check.saves import State
from headway.check.start import Start
from headway.node.exits import Exit

Life = list[Start]


@dataclass
class Evidence:
    """All starts that were made, by trial."""

    whole: Life = field(default_factory=list)
    twin: Life = field(default_factory=list)  # another whole run, if something differed
    evicted: Life = field(default_factory=list)  # SIGTERM, again or the interval, kill -9, the end
    used: Life = field(default_factory=list)  # kill -9, and another start in the same folder
    torn: list[tuple[State, Life]] = field(default_factory=list)
    saving: Start | None = None  # the start whose save was taken apart
    interval: float | None = None  # seconds, that the second start of `evicted` was given
    quick: bool = False  # evictions only
    over: bool = False  # the time was over before all was tried

    def rows(self, life: Sequence[Start]) -> list[list[Row]]:
        """The rows of each start, from what the whole run gives them by."""
        if self.traced:
            return [from_trace(start.trace) for start in life]
        return [from_text(start.lines) for start in life]

    @property
    def traced(self) -> bool:
        return any(from_trace(start.trace) for start in self.whole)

    @property
    def curve(self) -> list[Row]:
        return self.flat(self.whole)

    def flat(self, life: Sequence[Start]) -> list[Row]:
        """The rows of all starts as one."""
        return [row for rows in self.rows(life) for row in rows]

    @property
    def training(self) -> float:
        """The seconds of the whole run in which steps were made; all of them if none was told."""
        span = sum(start.span for start in self.whole)
        return span or sum(start.seconds for start in self.whole)

    @property
    def lives(self) -> list[Life]:
        """All that were interrupted."""
        return [self.evicted, self.used, *(life for _, life in self.torn)]


def succeeded(life: Life) -> bool:
    return bool(life) and life[-1].code == Exit.OK


def failed(start: Start) -> bool:
    """Whether the command failed by itself."""
    if start.interrupted and not start.hung:
        return False
    return start.code not in (Exit.OK, Exit.CHECKPOINT, Exit.OUTPUT_MISSING)


def reacted(start: Start) -> bool:
    """Whether SIGTERM made it save: a lone program that died of it did not, whatever it wrote."""
    return start.late and not (start.signal == signal.SIGTERM and len(start.programs) <= 1)


def failure(who: str, start: Start) -> list[str]:
    """How a start failed, with the last line of its stderr."""
    lines = [line for line in start.stderr.splitlines() if line.strip()]
    told = start.words() if start.status or start.signal or start.hung else start.reason
    return [f"{who}: {told}", *(f"its stderr: {line}" for line in lines[-1:])]


def too_quick(start: Start | None) -> str:
    if start is None:
        return "it did not come to that"
    return f"the command {start.words()} before it could be interrupted: take a larger slice"


def other_results(found: Evidence) -> list[str]:
    if not found.whole:
        return []
    whole = found.whole[-1].outputs
    lives = [life for life in (found.evicted, found.used) if succeeded(life)]
    return sorted({name for life in lives for name in differing(whole, life[-1].outputs)})


def unlike_twins(found: Evidence) -> list[str]:
    if not succeeded(found.twin):
        return []
    return differing(found.whole[-1].outputs, found.twin[-1].outputs)
