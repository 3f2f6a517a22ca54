"""A circuit breaker: how many releases of one kind may be under way at a time.

It begins with one, the canary. Each release that gets past what had held the job makes room for one
more, so that the number doubles from round to round; each one that ends in the same hold brings it
back to one and makes the next wait; after `trip` of them in a row the breaker is open, and lets
through one canary after each pause.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from headway.heal.rules import Rules

CLOSED, OPEN, HALF_OPEN = "closed", "open", "half-open"
_JITTER = 0.25


@dataclass
class Breaker:
    """One kind of releases; `wide`: of all sites and sources, which have breakers of their own."""

    name: str
    wide: bool = False
    window: int = 0
    failures: int = 0  # in a row
    failed: float = 0.0  # when the last one did
    flying: dict[str, float] = field(default_factory=dict)  # releases under way, by decision

    def __post_init__(self) -> None:
        self.window = self.window or self.first

    @property
    def first(self) -> int:
        """How many at once before anything is known."""
        return 8 if self.wide else 1

    def released(self, decision: str, now: float) -> None:
        """A job was released, or is about to be."""
        self.flying[decision] = now

    def passed(self, decision: str, rules: Rules) -> None:
        """The job got past what had held it."""
        if self.flying.pop(decision, None) is not None:
            self.failures = 0
            self.window = min(rules.widest, self.window + 1)

    def fell(self, decision: str, now: float) -> None:
        """The job is held again for the same."""
        if self.flying.pop(decision, None) is not None:
            self.failures += 1
            self.failed = now
            self.window = self.first

    def dropped(self, decision: str) -> None:
        """The release tells nothing: it was not made, or the job ended for another cause."""
        self.flying.pop(decision, None)

    def under_way(self, now: float, rules: Rules) -> int:
        """Releases that may still tell something; one from the future tells that a clock jumped."""
        return sum(0 <= now - then < rules.patience for then in self.flying.values())

    def state(self, now: float, rules: Rules) -> str:
        """Closed, open, or half-open: the next release is a canary."""
        if self.failures < self._trip(rules):
            return CLOSED
        return OPEN if self.opens_at(rules) > now >= self.failed else HALF_OPEN

    def opens_at(self, rules: Rules) -> float:
        """When the next release may come after the last one that failed."""
        if not self.failures:
            return 0.0
        over = self.failures - self._trip(rules)
        if over < 0:
            pause = 0.0 if self.wide else rules.backoff * 2.0 ** min(self.failures - 1, 40)
        else:
            pause = rules.pause * 2.0 ** min(over, 40)
        return self.failed + min(rules.longest_pause, pause) * self._jitter()

    def room(self, now: float, rules: Rules) -> int:
        """How many more may be released now."""
        if self.failures and self.failed <= now < self.opens_at(rules):
            return 0
        most = 1 if self.failures >= self._trip(rules) else self.window
        return max(0, most - self.under_way(now, rules))

    def next_due(self, now: float, rules: Rules) -> float:
        """When there may be room again by itself."""
        ends = [then + rules.patience for then in self.flying.values() if then <= now]
        opens = self.opens_at(rules)
        return max(opens, min(ends, default=0.0)) if self.failed <= now else min(ends, default=now)

    def words(self, now: float, rules: Rules) -> str:
        """Why there is no room."""
        if self.failures and self.opens_at(rules) > now:
            times = "once" if self.failures == 1 else f"{self.failures} times in a row"
            return f"{self.name}: releases were held again {times}; the next one comes later"
        count = self.under_way(now, rules)
        if count == 1:
            return f"{self.name}: one canary is under way; the others follow if it gets through"
        return f"{self.name}: {count} releases are under way; the others follow"

    def _trip(self, rules: Rules) -> int:
        return max(rules.trip, self.first) if self.wide else rules.trip

    def _jitter(self) -> float:
        """Between 1 and 1.25; the same after a restart, another for each breaker and failure."""
        digest = hashlib.sha256(f"{self.name} {self.failures}".encode()).digest()
        return 1.0 + _JITTER * digest[0] / 255
