"""What heal may do, as figures; all of them bounds, none of them goals."""

from __future__ import annotations

from dataclasses import dataclass

from headway.pool.policy import HELD_LIMIT, LONGEST_BACKOFF, MOST_STARTS

#: Held by the user, submitted on hold, waiting for its files: somebody wants these to be held.
NEVER = frozenset({1, 15, 16})
HOUR = 3600.0


@dataclass(frozen=True)
class Rules:
    """The bounds of heal; times are in seconds."""

    # Releases of one job in its life, whoever made them; those after a person's hold do not count.
    most_per_job: int = 5
    most_per_user: int = 500  # releases in an hour
    most_per_hour: int = 1000
    # The pause after a job's first hold; doubles with each hold.
    backoff: float = 60.0
    longest_backoff: float = float(LONGEST_BACKOFF)
    # However long the advice is to wait, after so long a canary is tried.
    most_wait: float = HOUR
    # How many releases of one kind in a row end in the same hold before they stop …
    trip: int = 3
    # … for this long, which doubles with each canary that ends so too.
    pause: float = 300.0
    longest_pause: float = 6 * HOUR
    # At most so many releases of one kind are under way at a time, however well they go.
    widest: int = 64
    # A release that has told nothing for so long (the pool is busy) holds nobody up any more.
    patience: float = 1800.0
    # A job that has run for so long after a release is past what had held it.
    settled: float = 600.0
    # Requests grow to at most so many times what the user asked for, and never beyond the caps.
    factor: float = 4.0
    most_memory: int = 128 * 1024  # MB, the unit of RequestMemory
    most_disk: int = 500 * 10**6  # KB, the unit of RequestDisk
    duration: bool = False  # whether the duration category may be changed
    remove: bool = False
    # So long a job is held before it is removed: time for a person to look.
    remove_after: float = HOUR
    # A decision of another heal that nobody carried out is taken over after so long.
    takeover: float = 900.0
    held_limit: float = float(HELD_LIMIT)
    most_starts: int = MOST_STARTS
    most_tries: int = 3  # of an act that the pool refuses

    def pause_after(self, holds: int) -> float:
        """How long a job rests after its `holds`-th hold."""
        doublings = min(max(holds, 1) - 1, 40)
        return min(self.longest_backoff, self.backoff * 2.0**doublings)
