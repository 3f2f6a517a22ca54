"""The job: one object on its way from its sources to its part, as all lanes see it.

Every method that a lane calls takes the lock by itself; those with a leading underscore expect it
to be held. The clock is monotonic throughout.
"""

from __future__ import annotations

import random
import threading
import time

from headway.node.transfer import steering
from headway.node.transfer.crew import Elsewhere, Lane
from headway.node.transfer.dispatch import next_lease
from headway.node.transfer.ledger import Ledger
from headway.node.transfer.proof import Prover
from headway.node.transfer.source import Fault, Identity, Source
from headway.node.transfer.versions import Versions, place_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.node.transfer.journal import Journal, Past
    from headway.node.transfer.ledger import Lease
    from headway.node.transfer.part import Part
    from headway.node.transfer.proof import Chunks
    from headway.node.transfer.stream import Head

MOST_RESTARTS = 5  # versions of one object that are tried before it is given up
CRUMB = 16 << 10
STEADY = 1.0  # seconds
ENOUGH = 1 << 20  # bytes of one answer that make another try at once worth while
_BLAMED_PAUSE = 1.0


class Job:
    """What is known and under way of one object."""

    def __init__(
        self,
        part: Part,
        journal: Journal,
        *,
        size: int | None,
        checksum: str | None,
        manifest: Chunks | None,
        connections: int,
    ) -> None:
        self.changed = threading.Condition()
        self.part, self.journal = part, journal
        self.declared = size
        self.checksum, self.manifest = checksum, manifest
        self._name, _, self._digits = (checksum or "").lower().partition(":")
        self.connections = connections
        self.sources: list[Source] = []
        self.lanes: dict[int, Lane] = {}
        self.ledger = Ledger(size, grain=manifest.chunk_size if manifest is not None else 1)
        self.prover = Prover(part, self.ledger, self.changed, self._bad_chunk, manifest)
        if checksum is not None:
            self.prover.expect(checksum)
        self.versions = Versions(provable=checksum is not None or manifest is not None)
        self.error: BaseException | None = None
        self.over = False
        self.restarts = 0
        self.losses = 0  # times that bytes were taken back
        self.enquired: list[int] = []  # sources at which a connection asks for something else
        self.requests = 0  # that were answered with bytes
        self.hedged = 0
        self.progressed = time.monotonic()  # when the last useful byte came
        self.last_url = ""
        self.best_rates: dict[int, float] = {}
        self.reserved = False
        self._lanes_made = 0

    # -- for the supervisor

    def add(self, source: Source) -> None:
        self.sources.append(source)

    def resume(self, past: Past) -> None:
        """Go on from what an earlier process has left."""
        if self.declared not in (None, past.size):
            return
        self.ledger.size = past.size
        self.ledger.restore(past.stretches)
        self.versions.take_over(past.identity, past.place)
        self.prover.wake()

    def open_lane(self, source: Source) -> bool:
        """Start another connection if there is anything for it to do, the lock being held."""
        from headway.node.transfer.stream import open_stream

        lane = Lane(self._lanes_made + 1, source, open_stream(source.url, source.token), self)
        lane.lease = next_lease(self, lane)
        if lane.lease is None:
            return False
        self._lanes_made += 1
        self.lanes[lane.key] = lane
        lane.start()
        return True

    def source(self, key: int) -> Source | None:
        return next((each for each in self.sources if each.key == key), None)

    # -- for the lanes

    def next_lease(self, lane: Lane) -> Lease | None:
        """What this lane shall bring next; None: there is nothing for it."""
        with self.changed:
            return next_lease(self, lane)

    def opened(self, lane: Lane, lease: Lease, head: Head) -> None:
        """A source has answered: is it the object, and the part of it that was asked for?"""
        with self.changed:
            source, identity = lane.source, head.identity
            if self.over or lease.over:
                raise Elsewhere
            if self.declared is not None and identity.size not in (None, self.declared):
                raise Fault(
                    f"it has {identity.size} bytes there, not {self.declared}",
                    retryable=False,
                    settled=True,
                    phase="first byte",
                    remedy="check the declared size and the object",
                )
            told = identity.digests.get(self._name)
            if told is not None and told != self._digits:
                raise Fault(
                    "it has another version of the object, by its own word",
                    retryable=False,
                    settled=True,
                    phase="verify",
                    remedy="check the declared checksum and the object",
                )
            if lease.rival and not self.versions.open and self._overtaken(lane, lease):
                self.ledger.release(lease)
                lane.lease = None
                raise Elsewhere
            if self._meet(source, identity) and not lane.sampling:
                self.ledger.release(lease)
                lane.lease = None
                raise Elsewhere
            if head.whole and lease.begin == 0 and not lane.sampling:
                self._whole(source, lease, head)
            elif head.whole:
                raise Fault("it gives the whole object only", no_range=True, phase="first byte")
            else:
                source.ranges = True
                if self.ledger.size is None and identity.size is None:
                    raise Fault("it does not say how long the object is", no_range=True)
            if self.ledger.size is None and identity.size is not None:
                self.ledger.size = identity.size
            if not self.reserved and self.ledger.size is not None:
                self.reserved = True
                self.part.reserve(self.ledger.size)
            if lease.end is not None and self.ledger.size is not None:
                lease.end = min(lease.end, self.ledger.size)
            lease.rival = False
            self.requests += 1
            self.changed.notify_all()

    def _meet(self, source: Source, identity: Identity) -> bool:
        """Compare what a source says of its version with what is being gathered.

        Returns whether only its bytes can tell.
        """
        before = source.identity
        if before is not None and before.differs(identity, same_place=True):
            if self.versions.others(source, self.sources) or not self.ledger.bytes:
                if self.ledger.bytes:
                    raise self.versions.rival(source, identity)
            else:
                self.restart(source)
        source.identity = identity
        verdict = self.versions.meet(source, identity, self.ledger)
        if verdict == "rival":
            raise self.versions.rival(source, identity)
        if verdict == "restart":
            self.restart(source)
            self.versions.pin(source, identity)
            if self.ledger.size is None:
                self.ledger.size = identity.size
        return verdict == "sample"

    def restart(self, source: Source) -> None:
        """The object has become another one: nothing of what is here counts any more."""
        self.restarts += bool(self.ledger.bytes)
        if self.restarts > MOST_RESTARTS:
            raise Fault("the object there changes all the time", phase="verify")
        keep = [lane for lane in self.lanes.values() if lane.source is source and lane.got == 0]
        for lane in self.lanes.values():
            if lane not in keep:
                lane.cut(steering.Verdict(lane.key, "the object changed", 0.0, failure=False))
                if lane.lease is not None:
                    self.ledger.release(lane.lease)
        self.ledger.forget_all()
        self.ledger.size = self.declared
        self.versions.reset()
        for each in self.sources:
            each.trusted = False
        self.reserved = False
        self.prover.forgotten(0, 1 << 62)
        self.journal.remove()

    def _whole(self, source: Source, lease: Lease, head: Head) -> None:
        """The source gives everything from the beginning, so this lane goes on to the end."""
        asked = lease.end
        size = head.identity.size
        if asked is None or size is None or size > asked:
            source.ranges = False
            lease.end = size if size is not None else self.ledger.size

    def _overtaken(self, lane: Lane, lease: Lease) -> bool:
        """Whether another of those who were asked for the same is already bringing it."""
        for other in self.lanes.values():
            there = other.lease
            if other is lane or there is None or there.over or there.rival or other.sampling:
                continue
            if there.begin == lease.begin and other.verdict is None:
                return True
        return bool(self.ledger.bytes and not self.ledger.gaps(lease.begin, lease.begin + 1))

    def write(self, lane: Lane, lease: Lease, piece: memoryview) -> None:
        """Bytes for the part; only those that nobody else has brought are written."""
        with self.changed:
            at = lease.at
            stretches = [] if self.over else self.ledger.claim(lease, len(piece))
        try:
            for begin, end in stretches:
                self.part.write(piece[begin - at : end - at], begin)
        finally:
            with self.changed:
                self.ledger.wrote(lease)
        useful = sum(end - begin for begin, end in stretches)
        with self.changed:
            source = lane.source
            source.wasted += len(piece) - useful
            if useful:
                now = time.monotonic()
                # crumbs from answers that break off at once are no progress; a slow flow is
                steady = lane.got >= CRUMB or now - lane.begun > STEADY
                if steady:
                    self.progressed = now
                source.gave(useful, now, steady=steady)
                self.last_url = source.url
                self.prover.wake()
            if self.ledger.complete:
                self.changed.notify_all()
            if lease.over or (not useful and lease.hedge):
                raise Elsewhere  # somebody else was faster

    def sampled(self, lane: Lane, lease: Lease, piece: memoryview) -> None:
        """A source of unknown version has given bytes that are here already."""
        here = memoryview(bytearray(len(piece)))
        count = self.part.read_into([here], lease.begin)
        with self.changed:
            self.ledger.release(lease)
            lane.lease = None
            same = count == len(piece) and here == piece
            lane.source.wasted += len(piece)
            if self.versions.compared(lane.source, same):
                return
            if self.versions.others(lane.source, self.sources):
                assert lane.source.identity is not None
                raise self.versions.rival(lane.source, lane.source.identity)
            # only what an earlier process left stands against it
            if self.manifest is not None:
                lane.source.trusted = True  # each chunk will be looked at in any case
            else:
                self.restart(lane.source)

    def ended(self, lane: Lane, lease: Lease, taken_back: bool) -> None:
        """A request has come to its end; `taken_back`: the server says that it went wrong."""
        with self.changed:
            self.ledger.release(lease)
            lane.lease = None
            if taken_back:
                self._forget(lease.begin, lease.at)
            seconds = time.monotonic() - lane.begun
            if seconds > 0 and lane.got:
                lane.source.measured(lane.got / seconds)
            if lease.end is None and self.ledger.size is None and not taken_back:
                self.ledger.size = lease.at  # it ended properly, so this is its length
            self.changed.notify_all()

    def failed(self, lane: Lane, lease: Lease | None, fault: Fault) -> None:
        """A request has gone wrong."""
        with self.changed:
            now = time.monotonic()
            self._give_back(lane, lease)
            verdict = lane.verdict
            if self.over:
                return
            if verdict is None:
                if lane.got < ENOUGH or fault.strain:
                    lane.source.failed(fault, now, random.random())  # noqa: S311 - no secret
                else:
                    lane.source.bench(fault, 0.1, now)  # it gave much, and will again
            elif verdict.failure:
                lane.source.silences += 1
                fault = Fault(verdict.words, phase=lane.stream.phase)
                lane.source.failed(fault, now, random.random())  # noqa: S311
            elif verdict.bench:
                lane.source.bench(Fault(verdict.words, phase="body"), verdict.bench, now)
            if self.ledger.size is None:
                self.ledger.forget_all()  # without a length nothing can be put together
            self.changed.notify_all()

    def broken(self, lane: Lane, lease: Lease | None, error: BaseException) -> None:
        """The node failed, or the engine itself: no other source can help."""
        with self.changed:
            self._give_back(lane, lease)
            self.error = self.error or error
            self.changed.notify_all()

    def left(self, lane: Lane) -> None:
        with self.changed:
            self._give_back(lane, lane.lease)
            self.lanes.pop(lane.key, None)
            self.changed.notify_all()

    def _give_back(self, lane: Lane, lease: Lease | None) -> None:
        if lease is not None:
            self.ledger.wrote(lease)
            self.ledger.release(lease)
        lane.lease = None

    def start_over(self, source: Source) -> None:
        """The object was changed at the source while it was being fetched, the lock being held."""
        self.restart(source)
        source.identity = None

    def switch(self, rivals: list[Source]) -> None:
        """Begin anew with those who have another version, the lock being held."""
        self.restart(rivals[0])
        self.versions.rivals.clear()
        for source in rivals:
            source.closed, source.benched_until, source.faults = False, 0.0, 0

    # -- wrong bytes

    def _forget(self, begin: int, end: int, *, blame: bool = False) -> set[int]:
        self.losses += 1
        blamed = self.ledger.forget(begin, end, blame=blame)
        self.prover.forgotten(begin, end)
        self.journal.forget(self.ledger.written())
        return blamed

    def _bad_chunk(self, begin: int, end: int) -> None:
        """A chunk is not what the manifest says: it is fetched again, elsewhere if possible."""
        now = time.monotonic()
        for key in self._forget(begin, end, blame=True):
            source = self.source(key)
            if source is None:
                continue
            words = f"the chunk at {begin} is not what the manifest says"
            source.failed(Fault(words, bad_copy=True, retryable=False, phase="verify"), now, 0.5)
            if not any(not each.closed for each in self.sources if each is not source):
                self.ledger.pardon(key)
        self.changed.notify_all()

    def wrong_whole(self, words: str) -> None:
        """The whole is not what was declared: doubt one source's bytes, and only those."""
        now = time.monotonic()
        shares = self.ledger.givers()
        fault = Fault(words, bad_copy=True, retryable=False, phase="verify")
        if len(shares) == 1:
            source = self.source(next(iter(shares)))
            if source is not None:
                source.failed(fault, now, 0.5)  # it alone gave everything, so it is wrong
            self.versions.pardon(self.sources)
            open_ones = [each for each in self.sources if not each.closed]
            for each in open_ones:
                each.benched_until = now
                self.ledger.pardon(each.key)
            self._forget(0, 1 << 62, blame=open_ones != [source])
            self.ledger.size, self.reserved = self.declared, False  # its length may be wrong too
            return
        suspect = min(shares, key=lambda key: (key >= 0, shares[key]))
        source = self.source(suspect)
        if source is not None:
            self.versions.doubt(source)
            source.bench(Fault(words, phase="verify"), _BLAMED_PAUSE, now)
        for begin, end, key in self.ledger.written():
            if key == suspect:
                self._forget(begin, end, blame=True)

    def identity_for_journal(self) -> tuple[Identity, str] | None:
        pinned = self.versions.pinned
        if pinned is None or self.ledger.size is None:
            return None
        about = Identity(self.ledger.size, pinned.etag, pinned.modified, pinned.digests)
        return about, self.versions.place or place_of("")
