"""The ledger: which bytes of an object are here and who gave them, and who is fetching which.

Pure. A lease is a stretch that one lane is fetching. A stretch counts as given from the moment that
a lane is about to write it, so that no two lanes ever write the same byte. All offsets are
half-open: [begin, end).
"""

from __future__ import annotations

from bisect import bisect_left

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    Stretch = tuple[int, int]


class ReadOrder:
    """Which bytes are needed first by readers of an object that is still arriving.

    What readers wait for comes before what they will need next, and that before the rest of the
    object; everything is fetched in the end unless there is no room for it. Stretches that are
    here are passed over for good, so that a request costs little however long the order is.
    """

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
        """What a source is to bring next; None: there is nothing, or no room."""
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


class Lease:
    """A stretch that one source is asked for; `end` may get smaller while it runs."""

    def __init__(
        self,
        key: int,
        source: int,
        begin: int,
        end: int | None,
        hedge: bool = False,
        sample: bool = False,
    ) -> None:
        self.key, self.source = key, source
        self.begin, self.at, self.end = begin, begin, end
        self.reached = begin  # as far as bytes have come, which may not be written yet
        self.hedge = hedge  # somebody else is fetching the same
        self.sample = sample  # it is here already, and only compared
        self.racing = False  # several were asked for it at once; the first to answer brings it
        self.over = False
        self.stolen = False  # its last bytes became somebody else's

    @property
    def left(self) -> int | None:
        """Bytes to come; None: unknown."""
        return None if self.end is None else max(0, self.end - self.at)


class Ledger:
    """The account of one object."""

    def __init__(
        self, size: int | None = None, *, grain: int = 1, order: ReadOrder | None = None
    ) -> None:
        self.size = size
        self.grain = grain  # leases end at multiples of it where they can
        self._order = order  # what is wanted first; None: in the order of the bytes
        self._given: list[tuple[int, int, int]] = []  # (begin, end, source), sorted, disjoint
        self._avoid: list[tuple[int, int, int]] = []  # what a source gave wrong
        self._leases: dict[int, Lease] = {}
        self._writing: dict[int, Stretch] = {}
        self._next = 0
        self.bytes = 0  # given

    # -- what is here

    @property
    def complete(self) -> bool:
        return self.size is not None and self.bytes == self.size and not self._writing

    @property
    def remaining(self) -> int | None:
        return None if self.size is None else self.size - self.bytes

    def prefix(self) -> int:
        """How far the bytes on disk reach from the beginning without a gap."""
        end = 0
        for begin, stop, _ in self._given:
            if begin > end:
                break
            end = stop
        return min([end, *(begin for begin, _ in self._writing.values())])

    def on_disk(self, begin: int, end: int) -> bool:
        """Whether the whole stretch has been written."""
        if any(a < end and b > begin for a, b in self._writing.values()):
            return False
        return not self.gaps(begin, end)

    def written(self) -> list[tuple[int, int, int]]:
        """What is on disk, with its sources; what is being written just now is left out."""
        result = list(self._given)
        for begin, end in self._writing.values():
            result = without(result, begin, end)
        return result

    def givers(self, begin: int = 0, end: int | None = None) -> dict[int, int]:
        """The bytes that each source gave of a stretch."""
        shares: dict[int, int] = {}
        for a, b, source in self._given:
            count = min(b, b if end is None else end) - max(a, begin)
            if count > 0:
                shares[source] = shares.get(source, 0) + count
        return shares

    def gaps(self, begin: int, end: int) -> list[Stretch]:
        """The parts of a stretch that are not here."""
        result = []
        at = bisect_left(self._given, (begin,))
        at -= bool(at and self._given[at - 1][1] > begin)
        while at < len(self._given) and self._given[at][0] < end:
            a, b, _ = self._given[at]
            if a > begin:
                result.append((begin, a))
            begin = max(begin, b)
            at += 1
        if begin < end:
            result.append((begin, end))
        return result

    def learn_size(self, size: int) -> None:
        """The size of the object is known now."""
        self.size = size
        for lease in self._leases.values():
            lease.end = size if lease.end is None else min(size, lease.end)

    # -- leases

    def leases(self) -> list[Lease]:
        return list(self._leases.values())

    @property
    def whole_taken(self) -> bool:
        """Whether one lane fetches the whole object."""
        leases = self._leases.values()
        return any(x.begin == 0 and x.end == self.size and not x.over for x in leases)

    def wanted(self, source: int | None = None) -> list[Stretch]:
        """What is neither here nor leased, without what this source gave wrong before."""
        return [] if self.size is None else self.free(0, self.size, source)

    def free(self, begin: int, end: int, source: int | None) -> list[Stretch]:
        """What of a stretch is neither here nor leased, nor given wrong by this source before."""
        gaps = self.gaps(begin, end)
        far = self.size if self.size is not None else end
        taken = [(x.at, far if x.end is None else x.end) for x in self._leases.values()]
        taken += [(a, b) for a, b, who in self._avoid if who == source]
        for a, b in taken:
            if a < end and b > begin:
                gaps = _outside(gaps, a, b)
        return gaps

    def take(self, source: int, most: int) -> Lease | None:
        """Lease the first stretch that is wanted, at most so many bytes."""
        if self._order is not None:
            stretch = self._order.next(self, source, max(1, most))
            return None if stretch is None else self._lease(source, *stretch)
        for begin, end in self.wanted(source):
            stop = self._cut_at(begin, min(end, begin + max(1, most)), end)
            return self._lease(source, begin, stop)
        return None

    def wanted_first(self, most: int) -> Stretch:
        """What all sources are asked for before any has answered."""
        stretch = self._order.first(self, most) if self._order is not None else None
        return stretch or (0, min(most, self.size or most))

    def first(self, source: int, begin: int, end: int) -> Lease:
        """Lease a stretch before anything is known, even if somebody else has it too."""
        lease = self._lease(source, begin, end, hedge=False)
        lease.racing = True
        return lease

    def sample(self, source: int, begin: int, end: int) -> Lease:
        """A stretch that is here already, to be compared; it is never written."""
        self._next += 1
        return Lease(self._next, source, begin, end, sample=True)

    def take_whole(self, source: int) -> Lease:
        """Lease everything, for a source that knows no ranges or an object of unknown length."""
        return self._lease(source, 0, self.size, hedge=bool(self._leases))

    def steal(self, victim: Lease, source: int, count: int) -> Lease | None:
        """Take over the last bytes of another lease, which then ends earlier."""
        left = victim.left
        if victim.end is None or left is None or victim.key not in self._leases:
            return None
        here = max(victim.at, victim.reached)
        begin = max(here, victim.end - max(0, count))
        if left - count > 0:
            begin = min(self._cut_at(here, begin, victim.end), victim.end)
        gaps = self.gaps(begin, victim.end)
        if not gaps or self.avoids(source, begin, victim.end):
            return None
        lease = self._lease(source, begin, victim.end)
        victim.end, victim.stolen = begin, True
        return lease

    def hedge(self, other: Lease, source: int) -> Lease | None:
        """Lease the same as another lease has left."""
        if other.end is None or not other.left or self.avoids(source, other.at, other.end):
            return None
        begin = max(other.at, other.reached)
        return self._lease(source, begin, other.end, hedge=True) if begin < other.end else None

    def release(self, lease: Lease) -> None:
        """The lane is done with it, whether it succeeded or not."""
        lease.over = True
        self._leases.pop(lease.key, None)

    def revoke(self) -> None:
        """End all leases: no lane may write any more."""
        for lease in self.leases():
            self.release(lease)

    # -- bytes come in

    def claim(self, lease: Lease, count: int) -> list[Stretch]:
        """The parts of the next `count` bytes that this lane must write; then call `wrote`."""
        begin, end = lease.at, lease.at + count
        if lease.over:
            return []
        if lease.end is not None:
            end = min(end, lease.end)
        if self.size is not None:
            end = min(end, self.size)
        lease.at = max(begin, end)
        gaps = self.gaps(begin, end) if begin < end else []
        for a, b in self._writing.values():  # of one that was cut: it would land upon newer bytes
            gaps = _outside(gaps, a, b)
        for a, b in gaps:
            self._add(a, b, lease.source)
        if gaps:
            self._writing[lease.key] = (gaps[0][0], gaps[-1][1])
        return gaps

    def wrote(self, lease: Lease) -> None:
        """What was claimed is on disk."""
        self._writing.pop(lease.key, None)

    @property
    def writing(self) -> bool:
        return bool(self._writing)

    def restore(self, stretches: Iterable[tuple[int, int, int]]) -> None:
        """Take over what an earlier process has written."""
        for begin, end, source in stretches:
            for a, b in self.gaps(begin, end):
                self._add(a, b, source)

    # -- bytes turn out to be wrong

    def forget(self, begin: int, end: int, *, blame: bool) -> set[int]:
        """A stretch is wrong; returns its sources, which `blame` does not ask for it again."""
        blamed = set(self.givers(begin, end))
        if blame:
            self._avoid += [(begin, end, source) for source in blamed]
        self._given = without(self._given, begin, end)
        self._count()
        return blamed

    def forget_all(self) -> None:
        self._given, self._avoid = [], []
        self._count()

    def pardon(self, source: int) -> None:
        """There is no other source: ask it again for what it gave wrong."""
        self._avoid = [each for each in self._avoid if each[2] != source]

    def avoids(self, source: int, begin: int, end: int) -> bool:
        """Whether a source gave some of a stretch wrong before."""
        return any(who == source and a < end and b > begin for a, b, who in self._avoid)

    def _lease(self, source: int, begin: int, end: int | None, *, hedge: bool = False) -> Lease:
        self._next += 1
        lease = Lease(self._next, source, begin, end, hedge)
        self._leases[lease.key] = lease
        return lease

    def _cut_at(self, begin: int, wish: int, end: int) -> int:
        """The multiple of the grain next to the wish, if there is one in the stretch."""
        if wish >= end or self.grain <= 1:
            return wish
        up = -(-wish // self.grain) * self.grain
        return up if begin < up <= end else wish

    def _add(self, begin: int, end: int, source: int) -> None:
        """Insert a stretch that overlaps none; neighbours of the same source grow together."""
        self.bytes += end - begin
        at = bisect_left(self._given, (begin,))
        if at and self._given[at - 1][1:] == (begin, source):
            at -= 1
            begin = self._given.pop(at)[0]
        if at < len(self._given) and self._given[at][0] == end and self._given[at][2] == source:
            end = self._given.pop(at)[1]
        self._given.insert(at, (begin, end, source))

    def _count(self) -> None:
        self.bytes = sum(end - begin for begin, end, _ in self._given)
        if self._order is not None:
            self._order.lost()


def without(given: list[tuple[int, int, int]], begin: int, end: int) -> list[tuple[int, int, int]]:
    """The list without a stretch."""
    result = []
    for a, b, source in given:
        if b <= begin or a >= end:
            result.append((a, b, source))
            continue
        if a < begin:
            result.append((a, begin, source))
        if b > end:
            result.append((end, b, source))
    return result


def _outside(stretches: list[Stretch], begin: int, end: int) -> list[Stretch]:
    """The parts of some stretches that are before or behind another."""
    return [
        (first, last)
        for a, b in stretches
        for first, last in ((a, min(b, begin)), (max(a, end), b))
        if first < last
    ]


def joined(stretches: Iterable[Stretch]) -> list[Stretch]:
    """The same bytes in as few stretches as possible."""
    result: list[Stretch] = []
    for begin, end in sorted(stretches):
        if result and begin <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((begin, end))
    return result
