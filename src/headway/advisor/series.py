"""A series: how much of something there was, in order, asked for as of any moment."""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple


class Cut(NamedTuple):
    """A place in the order of events: its moment, the number of its log, its place in the log.

    Without log and place it lies before all events of its moment.
    """

    moment: float
    log: int = -1
    place: int = -1


class Series:
    """Amounts at places in the order of events; each question costs two searches."""

    __slots__ = ("_cuts", "_late", "_moments", "_sums", "_width")

    def __init__(self, width: int = 1) -> None:
        self._width = width
        self._cuts: list[Cut] = []
        self._moments: list[float] = []  # numbers are found faster than places
        self._sums: list[tuple[float, ...]] = []
        #: Those that came out of order; put in place when somebody asks.
        self._late: list[tuple[Cut, tuple[float, ...]]] = []

    def add(self, at: Cut, amounts: tuple[float, ...]) -> None:
        """One more."""
        if self._cuts and at < self._cuts[-1]:
            self._late.append((at, amounts))
            return
        self._sums.append(_plus(self._sums[-1], amounts) if self._sums else amounts)
        self._cuts.append(at)
        self._moments.append(at.moment)

    def total(self, cut: Cut, since: float = float("-inf")) -> tuple[float, ...]:
        """The sums of all that came before the cut and not before `since`."""
        end = self._end(cut)
        begin = bisect_left(self._moments, since, 0, end)
        if begin >= end:
            return (0.0,) * self._width
        if not begin:
            return self._sums[end - 1]
        return _minus(self._sums[end - 1], self._sums[begin - 1])

    def last(self, cut: Cut) -> float | None:
        """The moment of the last one before the cut."""
        end = self._end(cut)
        return self._moments[end - 1] if end else None

    def _end(self, cut: Cut) -> int:
        if self._late:
            self._settle()
        end = bisect_left(self._moments, cut.moment)
        if end < len(self._moments) and self._moments[end] == cut.moment:
            return bisect_left(self._cuts, cut, end)
        return end

    def _settle(self) -> None:
        nothing = (0.0,) * self._width
        before = [nothing, *self._sums]
        known = [
            (cut, _minus(after, sums))
            for cut, sums, after in zip(self._cuts, before, self._sums, strict=False)
        ]
        whole = sorted([*known, *self._late], key=lambda each: each[0])
        self._late = []
        self._cuts = [cut for cut, _ in whole]
        self._moments = [cut.moment for cut in self._cuts]
        self._sums = []
        sums = nothing
        for _, amounts in whole:
            sums = _plus(sums, amounts)
            self._sums.append(sums)


def _plus(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, ...]:
    if len(a) == 1:
        return (a[0] + b[0],)
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _minus(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, ...]:
    if len(a) == 1:
        return (a[0] - b[0],)
    return tuple(x - y for x, y in zip(a, b, strict=True))
