"""The limits of healing: how often, how much, and how many releases at a time."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

from headway.pool import RunFolder
from headway.pool.policy import HELD_LIMIT, LONGEST_BACKOFF, MOST_STARTS

#: Held by the user, submitted on hold, waiting for its files: somebody wants these held.
NEVER = frozenset({1, 15, 16})
HOUR = 3600.0


@dataclass(frozen=True)
class Rules:
    """The limits of heal; times are in seconds."""

    # Releases of one job ever, whoever made them, except those after a person's hold.
    most_per_job: int = 5
    most_per_user: int = 500  # releases in an hour
    most_per_hour: int = 1000
    # The pause after a job's first hold; doubles with each hold.
    backoff: float = 60.0
    longest_backoff: float = float(LONGEST_BACKOFF)
    # After so long a canary is tried, even if the advice is to wait longer.
    most_wait: float = HOUR
    # After so many releases of one kind in a row that end in the same hold, they stop …
    trip: int = 3
    # … for so long. The time doubles with each canary that is held again.
    pause: float = 300.0
    longest_pause: float = 6 * HOUR
    # The most releases of one kind under way at a time.
    widest: int = 64
    # A release without news for so long (the pool is busy) delays the others no more.
    patience: float = 1800.0
    # A job that has run for so long after a release is past what held it.
    settled: float = 600.0
    # Requests grow to at most so many times what the user asked for, and never beyond the caps.
    factor: float = 4.0
    most_memory: int = 128 * 1024  # MB, the unit of RequestMemory
    most_disk: int = 500 * 10**6  # KB, the unit of RequestDisk
    duration: bool = False  # whether the duration category may be changed
    remove: bool = False
    # A job is held for so long before it is removed: time for a person to look.
    remove_after: float = HOUR
    # After so long, a decision that another heal has not carried out is taken over.
    takeover: float = 900.0
    held_limit: float = float(HELD_LIMIT)
    most_starts: int = MOST_STARTS
    most_tries: int = 3  # of an action that the pool refuses

    def pause_after(self, holds: int) -> float:
        """The pause after a job's `holds`-th hold."""
        doublings = min(max(holds, 1) - 1, 40)
        return min(self.longest_backoff, self.backoff * 2.0**doublings)


def rules_of_run(folder: RunFolder, rules: Rules, most_per_job: int | None = None) -> Rules:
    """The rules for a run: the retries of its job.toml limit all releases."""
    retries = folder.job.retries
    most = max(retries.holds, retries.input) if most_per_job is None else most_per_job
    if rules.backoff != Rules.backoff:  # the user asked for another one
        return replace(rules, most_per_job=most)
    pause = min(rules.pause, 5 * retries.backoff)
    return replace(rules, most_per_job=most, backoff=retries.backoff, pause=pause)


# A circuit breaker: how many releases of one kind may be under way at a time.
#
# It begins with one, the canary. Each release that gets past what held the job makes room for one
# more, so the number doubles from round to round. Each one that ends in the same hold brings it
# back to one, and the next has to wait. After `trip` of them in a row the breaker is open, and lets
# one canary through after each pause.


_JITTER = 0.25


@dataclass
class Breaker:
    """A breaker for one kind of releases; `wide`: for a cause at all sites and sources."""

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
        """How many at once at first."""
        return 8 if self.wide else 1

    def released(self, decision: str, now: float) -> None:
        """A job was released, or is about to be."""
        self.flying[decision] = now

    def passed(self, decision: str, rules: Rules) -> None:
        """The job got past what held it."""
        if self.flying.pop(decision, None) is not None:
            self.failures = 0
            self.window = min(rules.widest, self.window + 1)

    def fell(self, decision: str, now: float) -> None:
        """The job is held again for the same cause."""
        if self.flying.pop(decision, None) is not None:
            self.failures += 1
            self.failed = now
            self.window = self.first

    def dropped(self, decision: str) -> None:
        """The release says nothing: it was not made, or the job ended for another cause."""
        self.flying.pop(decision, None)

    def under_way(self, now: float, rules: Rules) -> int:
        """Releases that may still say something; if a clock jumped, one is in the future."""
        return sum(0 <= now - then < rules.patience for then in self.flying.values())

    def is_open(self, rules: Rules) -> bool:
        """Whether so many releases have failed that only one canary at a time may go."""
        return self.failures >= self._trip(rules)

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
        return max(0, (1 if self.is_open(rules) else self.window) - self.under_way(now, rules))

    def next_due(self, now: float, rules: Rules) -> float:
        """When there may be room again by itself."""
        ends = [then + rules.patience for then in self.flying.values() if then <= now]
        opens = self.opens_at(rules)
        return max(opens, min(ends, default=0.0)) if self.failed <= now else min(ends, default=now)

    def words(self, now: float, rules: Rules) -> str:
        """Why no job can be released."""
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
        """Between 1 and 1.25, by breaker and failure; the same after a restart."""
        digest = hashlib.sha256(f"{self.name} {self.failures}".encode()).digest()
        return 1.0 + _JITTER * digest[0] / 255
