"""Progress: how far a transfer phase is, and when to say so."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol

    from headway.node.transfer.report import Snapshot

    class Lines(Protocol):
        """Who writes into the event log."""

        def progress(self, phase: str, **values: object) -> None: ...
        def arrived(self, phase: str, **values: object) -> None: ...


FIRST = 5.0  # seconds to the first line; the distance then doubles, so that the log stays small
LONGEST = 300.0
_SOURCES = 6  # that a line names at most: a chirp line has a thousand bytes


class Progress:
    """How far a phase is; written by the transferring thread, read by the main thread."""

    def __init__(self, sizes: Mapping[str, int | None]) -> None:
        self._sizes = dict(sizes)  # by path; None: not known yet
        self.file = ""
        self.snapshot: Snapshot | None = None  # of the present file, while sources are at work
        self.arrived: list[dict[str, object]] = []  # what the log is still to be told
        self._finished = 0
        self._current = 0

    @property
    def done(self) -> int:
        return self._finished + self._current

    @property
    def total(self) -> int | None:
        """The bytes of all files, as soon as all are known."""
        known = [size for size in self._sizes.values() if size is not None]
        return sum(known) if len(known) == len(self._sizes) else None

    def begin(self, path: str) -> None:
        """The next file."""
        self.file, self.snapshot = path, None

    def moved(self, count: int, _total: int | None) -> None:
        """The present file has come this far."""
        self._current = count

    def watched(self, snapshot: Snapshot) -> None:
        """The present file and its sources."""
        self.snapshot = snapshot
        self._current = snapshot.bytes
        if snapshot.total is not None:
            self._sizes[self.file] = snapshot.total

    def finished(self, size: int) -> None:
        """The present file is complete."""
        if self.file in self._sizes and self._sizes[self.file] is None:
            self._sizes[self.file] = size
        self.snapshot = None
        self._finished, self._current = self._finished + size, 0

    def values(self) -> dict[str, object]:
        """What a progress line says; the longest last, where a line is cut."""
        said: dict[str, object] = {"bytes": self.done, "total": self.total, "file": self.file}
        now = self.snapshot
        if now is not None:
            said.update(done=now.bytes, size=now.total, rate=int(now.rate), slow=now.slow or None)
            said["from"] = source_words(now) or None
        return said


class Teller:
    """Sends a progress line after 5 s, 10, 20, 40, … and at last every five minutes."""

    def __init__(self, lines: Lines, phase: str, progress: Progress) -> None:
        self._lines, self._phase, self._progress = lines, phase, progress
        self._begin = time.monotonic()
        self._next = FIRST

    def tick(self) -> float:
        """Say how far it is if that is due; returns the seconds until it is to be asked again."""
        now = time.monotonic() - self._begin
        self.tell_arrived()
        if now >= self._next:
            self._lines.progress(self._phase, **self._progress.values())
            self._next = next_after(self._next, now)
        return min(self._next - now, FIRST)

    def tell_arrived(self) -> None:
        """A line for each file that took its time and is there."""
        while self._progress.arrived:
            self._lines.arrived(self._phase, **self._progress.arrived.pop(0))


def next_after(mark: float, now: float) -> float:
    """The first mark of 5, 10, 20, …, 320, 620, 920, … that lies after `now`."""
    while mark <= now:
        mark += min(mark, LONGEST)
    return mark


def source_words(snapshot: Snapshot) -> str:
    """HOST/STATE/BYTES for each source, joined by `+`; those that gave most come first."""
    sources = sorted(snapshot.sources, key=lambda source: -source.bytes)
    return "+".join(f"{each.host}/{each.state}/{each.bytes}" for each in sources[:_SOURCES])
