"""Doubts: which bytes are fetched again when a whole is wrong and nothing tells where.

A checksum of the whole says only that some byte is wrong. Without a manifest the place can be found
in one way alone: bytes are fetched a second time from somebody else, and the whole is looked at
again. Whatever the order, the wrong byte may lie in what comes last, so the least that can be
promised is the whole once more, and half of it on average for one wrong byte. That is kept by going
through one source's bytes in portions, looking after each. A source that is wrong in many places is
replaced as a whole; where the others' smaller share was doubted first, that comes to the whole and
that share. With a manifest it is one chunk in any case.

Pure. Stretches are (begin, end, source), half-open.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    Stretches = list[tuple[int, int, int]]

PORTIONS = 8  # of one source's bytes; each costs one more look at the whole


class Doubts:
    """The order in which the bytes of one whole are doubted."""

    def __init__(self) -> None:
        self._first: Stretches = []  # who gave what when the whole was first found wrong
        self._found: list[Stretches] = []  # tries for which there is a reason
        self._queue: list[Stretches] = []
        self._suspected: list[int] = []

    @property
    def active(self) -> bool:
        return bool(self._suspected)

    @property
    def begins(self) -> bool:
        """Whether the next portion is the first of another source's."""
        return bool(self._found) or not self._queue

    def clear(self) -> None:
        self._first, self._found, self._queue, self._suspected = [], [], [], []

    def found(self, rounds: Sequence[Stretches]) -> None:
        """Try these stretches first, one round after the other: they differ between sources."""
        self._found = list(rounds)

    def next(self, written: Sequence[tuple[int, int, int]], *, least: int) -> Stretches:
        """The stretches to fetch again now; none: each source's bytes have been replaced in vain.

        `least`: bytes of a portion; no less is worth a request.
        """
        if self._found:
            return self._found.pop(0)
        if not self._suspected:
            self._first = list(written)
        while not self._queue:
            shares: dict[int, int] = {}
            for begin, end, source in written:
                if source not in self._suspected:
                    shares[source] = shares.get(source, 0) + end - begin
            if not shares:
                return []
            # an earlier process's bytes first, then those who gave little: they are soon excluded
            suspect = min(shares, key=lambda key: (key >= 0, shares[key]))
            self._suspected.append(suspect)
            self._queue = self._portions(suspect, written, max(least, shares[suspect] // PORTIONS))
        portion = self._queue.pop(0)
        while self._queue and sum(end - begin for begin, end, _ in portion) < least:
            portion += self._queue.pop(0)  # a request has become dearer than it seemed
        return portion

    def _portions(
        self, suspect: int, written: Sequence[tuple[int, int, int]], size: int
    ) -> list[Stretches]:
        """What the suspect gave, first the bytes that nobody else has given in between."""
        given = [each for each in written if each[2] == suspect]
        own = [each for each in self._first if each[2] == suspect]
        old = _overlap(given, own)
        fresh = given
        for begin, end, _ in old:
            fresh = _without(fresh, begin, end)
        portions: list[Stretches] = []
        room = 0
        for begin, end, source in old + fresh:
            while begin < end:
                if room <= 0:
                    portions.append([])
                    room = size
                stop = min(end, begin + room)
                portions[-1].append((begin, stop, source))
                room -= stop - begin
                begin = stop
        return portions


def _overlap(some: Stretches, others: Stretches) -> Stretches:
    result = []
    for begin, end, source in some:
        for a, b, _ in others:
            if max(a, begin) < min(b, end):
                result.append((max(a, begin), min(b, end), source))
    return result


def _without(some: Stretches, begin: int, end: int) -> Stretches:
    result = []
    for a, b, source in some:
        if a < min(b, begin):
            result.append((a, min(b, begin), source))
        if max(a, end) < b:
            result.append((max(a, end), b, source))
    return result
