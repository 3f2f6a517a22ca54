"""Progress: how far a transfer phase is, and when to say so."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.node.journal import Journal

FIRST = 5.0  # seconds to the first line; the distance then doubles, so that the log stays small
LONGEST = 300.0


class Progress:
    """How far a phase is; written by the transferring thread, read by the main thread."""

    def __init__(self, total: int | None) -> None:
        self.total = total
        self.file = ""
        self._finished = 0
        self._current = 0

    @property
    def done(self) -> int:
        return self._finished + self._current

    def moved(self, count: int, _total: int | None) -> None:
        """The current file has come this far."""
        self._current = count

    def finished(self, size: int) -> None:
        """The current file is complete."""
        self._finished, self._current = self._finished + size, 0


class Teller:
    """Sends a progress line after 5 s, 10, 20, 40, … and at last every five minutes."""

    def __init__(self, journal: Journal, phase: str, progress: Progress) -> None:
        self._journal, self._phase, self._progress = journal, phase, progress
        self._begin = time.monotonic()
        self._next = FIRST

    def tick(self) -> float:
        """Say how far it is if that is due; returns the seconds until it is due again."""
        now = time.monotonic() - self._begin
        if now >= self._next:
            far = self._progress
            self._journal.progress(self._phase, bytes=far.done, total=far.total, file=far.file)
            self._next = next_after(self._next, now)
        return self._next - now


def next_after(mark: float, now: float) -> float:
    """The first mark of 5, 10, 20, …, 320, 620, 920, … that lies after `now`."""
    while mark <= now:
        mark += min(mark, LONGEST)
    return mark
