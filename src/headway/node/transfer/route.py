"""The route: which bytes of an object are wanted first by those who read it while it arrives.

Pure, and used with the job's lock held. What readers wait for comes before what they will need
next, and that before the rest of the object. Stretches that are here are passed over for good, so
that a request costs little however long the order is.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Protocol

    from headway.node.transfer.job import Job
    from headway.node.transfer.ledger import Ledger, Stretch

    class Readers(Protocol):
        """Those who read an object while it arrives, as the engine knows them."""

        unit: int  # bytes that are told of together; with a manifest, its chunks
        room: int  # bytes of the disk that the object may take; 0: as many as it has

        def begins(self, size: int) -> Sequence[Stretch]:
            """How long it is; returns what is on disk and proven already."""
            ...

        def proven(self, begin: int, end: int) -> None:
            """These bytes are on disk and, where there is a manifest, right."""
            ...

        def lost(self, begin: int, end: int) -> None:
            """These are about to be taken back, and it is not known which of them were there."""
            ...

        def look(self, job: Job) -> None:
            """Called a few times a second without any lock, to tell the job of wishes."""
            ...


class Route:
    """What comes next; everything is fetched in the end unless there is no room for it."""

    def __init__(self, *, room: int = 0) -> None:
        self.room = room
        self.wishes: list[Stretch] = []
        self._order: list[Stretch] = []
        self._begin = 0  # what comes before it has been read
        self._at = 0  # and what comes before this is here

    def turn(self, order: Iterable[Stretch], passed: int = 0) -> None:
        """From now on in this order, from this place in it on."""
        self._order = list(order)
        self._begin = self._at = passed

    def passed(self, count: int) -> None:
        """So many stretches of the order are not needed any more."""
        self._begin = max(self._begin, count)
        self._at = max(self._at, self._begin)

    def lost(self) -> None:
        """Bytes that were here are not."""
        self._at = self._begin

    def first(self, ledger: Ledger, most: int) -> Stretch | None:
        """What all sources are asked for before any has answered, whoever else was asked."""
        self._skip(ledger)
        for begin, end in [*self.wishes, *self._order[self._at : self._at + 1]]:
            for a, b in ledger.gaps(begin, end):
                return a, min(b, a + most)
        return None

    def next(self, ledger: Ledger, source: int, most: int) -> Stretch | None:
        """What a source shall bring next; None: there is nothing, or no room."""
        for begin, end in self.wishes:
            for a, b in ledger.free(begin, end, source):
                return a, min(b, a + most)
        if self.full(ledger):
            return None
        self._skip(ledger)
        for number in range(self._at, len(self._order)):
            for a, b in ledger.free(*self._order[number], source):
                return a, self._reach(ledger, source, number, b, a + most)
        if self.room:
            return None
        for a, b in ledger.wanted(source):
            return a, min(b, a + most)
        return None

    def full(self, ledger: Ledger) -> bool:
        """Whether what is here, and what is on its way, takes all the room."""
        if not self.room:
            return False
        coming = sum(lease.left or 0 for lease in ledger.leases())
        return ledger.bytes + coming + ledger.grain > self.room

    def _skip(self, ledger: Ledger) -> None:
        while self._at < len(self._order) and not ledger.gaps(*self._order[self._at]):
            self._at += 1

    def _reach(self, ledger: Ledger, source: int, number: int, end: int, most: int) -> int:
        """The end of a request that begins in one stretch and takes those right behind it along."""
        if end < self._order[number][1]:
            return min(end, most)
        for begin, stop in self._order[number + 1 :]:
            if (
                end >= most
                or begin != end
                or ledger.free(begin, stop, source)[:1] != [(begin, stop)]
            ):
                break
            end = stop
        return min(end, most)
