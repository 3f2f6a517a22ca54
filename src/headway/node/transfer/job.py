"""The job: one object on its way from its sources to its part, as all lanes see it.

Every method that a lane calls takes the lock by itself; those with a leading underscore expect it
to be held. The clock is monotonic throughout.
"""

from __future__ import annotations

import random
import threading
import time
from functools import partial

from headway.node.errors import TransferError
from headway.node.transfer import reading, repair, steering
from headway.node.transfer.crew import Elsewhere, Lane
from headway.node.transfer.dispatch import next_early, next_lease
from headway.node.transfer.doubts import Doubts
from headway.node.transfer.enquiry import Idle
from headway.node.transfer.ledger import Ledger
from headway.node.transfer.proof import Prover
from headway.node.transfer.route import Route
from headway.node.transfer.source import Fault, Identity, Source
from headway.node.transfer.stream import open_stream
from headway.node.transfer.versions import SAMPLE, Versions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.node.transfer.compare import Comparison
    from headway.node.transfer.journal import Journal, Past
    from headway.node.transfer.ledger import Lease
    from headway.node.transfer.part import Part
    from headway.node.transfer.proof import Chunks
    from headway.node.transfer.route import Readers
    from headway.node.transfer.stream import Head

CRUMB = 16 << 10
STEADY = 1.0  # seconds
MOST_VAIN = 3  # tries that may bring the same bytes again
ENOUGH = 1 << 20  # bytes of one answer that make another try at once worth while


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
        readers: Readers | None = None,
    ) -> None:
        lock = threading.RLock()
        self.changed = threading.Condition(lock)
        self.part, self.journal = part, journal
        self.declared = size
        self.most: int | None = None  # bytes that the object may have
        self.checksum, self.manifest = checksum, manifest
        self.digest_name, _, self.digits = (checksum or "").lower().partition(":")
        self.connections = connections
        self.sources: list[Source] = []
        self.lanes: dict[int, Lane] = {}
        self.ledger = Ledger(size, grain=manifest.chunk_size if manifest is not None else 1)
        self.readers = readers
        self.route = None if readers is None else Route(room=readers.room)
        self.ledger.route = self.route
        self.prover = Prover(
            part,
            self.ledger,
            self.changed,
            lock,
            partial(repair.bad_chunk, self),
            manifest,
            None if readers is None else readers.proven,
        )
        if checksum is not None:
            self.prover.expect(checksum)
        provable = checksum is not None or manifest is not None
        self.versions = Versions(provable=provable, by_chunk=manifest is not None)
        self.doubts = Doubts()
        self.comparison: Comparison | None = None  # of what the sources give, once it was wrong
        self.vouched = False  # a source of this version says that it is the declared one
        self.disputed = False  # sources have shown two versions, and only their words can tell more
        self.mixed: dict[int, int] = {}  # chunks of several givers, and how often they were wrong
        self.error: BaseException | None = None
        self.over = False
        self.length_unsaid = False  # it is known only from where a connection ended
        self.restarts = 0
        self.losses = 0  # times that bytes were taken back
        self.enquired: list[int] = []  # sources at which a connection asks for something else
        self.idle = Idle()
        self.requests = 0  # that were answered with bytes
        self.hedged = 0
        self.progressed = time.monotonic()  # when the last byte came that was not here before
        self.came = self.progressed  # when the last useful byte came
        self.vain = 0  # tries since then that began at the first byte and came no further
        self._furthest = 0  # the most bytes that were here; no others are progress
        self.last_url = ""
        self.best_rates: dict[int, float] = {}
        self.reserved = False
        self.being_read = False
        self._lanes_made = 0

    # -- for the supervisor

    def add(self, source: Source) -> None:
        self.sources.append(source)

    def resume(self, past: Past) -> None:
        """Go on from what an earlier process has left."""
        if self.declared not in (None, past.size):
            return
        stretches = past.stretches
        whole = len(stretches) == 1 and stretches[0][:2] == (0, past.size)
        if whole and not self.versions.provable:
            # whole, but perhaps no longer what the sources have: its last bytes are asked for
            stretches = [(0, max(0, past.size - SAMPLE), stretches[0][2])]
        self.ledger.size = past.size
        self.ledger.restore(stretches)
        self.versions.take_over(past.identity, past.place)
        for begin, end, _ in stretches:
            reading.came(self, begin, end)
        self.prover.wake()

    def open_lane(self, source: Source) -> bool:
        """Start another connection if there is anything for it to do, the lock being held."""
        stream = self.idle.unused(source) or open_stream(source.url, source.token)
        lane = Lane(self._lanes_made + 1, source, stream, self)
        try:
            lane.lease = next_lease(self, lane)
        except Fault as fault:
            source.failed(fault, time.monotonic(), random.random())  # noqa: S311 - no secret
        if lane.lease is None:
            return False
        self.idle.close(but=[stream])  # no more connections than are allowed
        self._lanes_made += 1
        self.lanes[lane.key] = lane
        lane.start()
        return True

    def end(self) -> None:
        """Nothing that lanes or servers still say counts any more, the lock being held."""
        self.over = True
        self.ledger.revoke()

    @property
    def waiting_since(self) -> float:
        """Since when nothing comes; bytes that come again count, but not for many tries."""
        return self.came if self.vain <= MOST_VAIN else self.progressed

    def wake(self) -> None:
        """Something has come to its end."""
        with self.changed:
            self.changed.notify_all()

    def source(self, key: int) -> Source | None:
        return next((each for each in self.sources if each.key == key), None)

    # -- for the lanes

    def next_lease(self, lane: Lane) -> Lease | None:
        """What this lane shall bring next; None: there is nothing for it."""
        with self.changed:
            lease = next_lease(self, lane)
            while lease is None and reading.holds_back(self, lane):
                lane.rest()
                self.changed.wait(1.0)
                lease = next_lease(self, lane)
            return lease

    def next_early(self, lane: Lane) -> Lease | None:
        """What it shall bring after that, where requests are many; None: to be seen then."""
        with self.changed:
            return next_early(self, lane)

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
            self._refuse_more_than_allowed(identity.size)
            if repair.word(self, identity) is False:
                raise repair.own_word()
            if repair.page_instead(self, source, identity):
                raise Fault(
                    f"it gives a web page ({identity.media_type}) in place of the object",
                    lasting=True,
                    phase="first byte",
                    remedy="open the URL in a browser: the network or the server may want a login; "
                    "if it is the object after all, declare its checksum",
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
                self.ledger.learn_size(identity.size)
            if not self.reserved and self.ledger.size is not None:
                self.reserved = True
                self.part.reserve(self.ledger.size, self.readers.room if self.readers else 0)
                reading.begin(self)
                reading.note_version(self)
            if lease.end is not None and self.ledger.size is not None:
                lease.end = min(lease.end, self.ledger.size)
            lease.rival = False
            self.requests += 1
            self.changed.notify_all()

    def _refuse_more_than_allowed(self, size: int | None) -> None:
        if self.most is not None and size is not None and size > self.most:
            raise Fault(
                f"it is too large: more than {self.most} bytes",
                retryable=False,
                settled=True,
                phase="body",
            )

    def _meet(self, source: Source, identity: Identity) -> bool:
        """Compare what a source says of its version with what is being gathered.

        Returns whether only its bytes can tell.
        """
        before = source.identity
        # what is declared will tell; else a source may mean by its ETag what it likes
        told = not self.versions.provable
        changed = before is not None and before.differs(identity, same_place=told)
        if changed and self.ledger.bytes and not self.versions.by_chunk:
            if self.versions.others(source, self.sources):
                self._drop(source)
                raise self.versions.rival(source, identity)
            self.restart(source)
            source.identity = None
            self.versions.pardon(self.sources)
            words = "its ETag or date has changed, so only one answer from start to end is whole"
            fault = Fault(words, no_range=True, phase="first byte")
            if any(not each.closed for each in self.sources if each is not source):
                source.bench(fault, steering.SET_ASIDE, time.monotonic())
            raise fault
        source.identity = identity
        proven_later = self.versions.provable or self.prover.expects
        verdict = self.versions.meet(source, identity, self.ledger, proven_later=proven_later)
        if verdict == "rival":
            repair.rival(self, source, identity)
        if verdict == "restart":
            self.restart(source)
            self.versions.pin(source, identity)
            if self.ledger.size is None and identity.size is not None:
                self.ledger.learn_size(identity.size)
        return verdict == "sample"

    def restart(self, source: Source) -> None:
        """The object has become another one: nothing of what is here counts any more."""
        self.restarts += bool(self.ledger.bytes)
        if self.restarts > repair.MOST_RESTARTS:
            raise Fault("the object there changes all the time", phase="verify")
        for lane in self.lanes.values():
            if lane.source is not source or lane.got:
                self._stop(lane)
        if self.readers is not None and self.ledger.size is not None:
            self.readers.lost(0, self.ledger.size)
        self.ledger.forget_all()
        self.lower()
        self.ledger.size = self.declared
        self.versions.reset()
        self.doubts.clear()
        if self.comparison is not None:
            self.comparison.end()
            self.comparison = None
        self.vouched = self.length_unsaid = self.reserved = False
        self.requests = 0
        if self.checksum is None:
            self.prover.expect_nothing()  # a server's digest was that of the other version
        for each in self.sources:
            each.trusted = each.gives_others = False
            if each is not source:
                each.identity = each.opinion = None
        self.prover.forgotten(0, 1 << 62)
        self.journal.remove()

    def _drop(self, source: Source) -> None:
        """One source has become another one: what it gave goes, and others bring it again."""
        for lane in self.lanes.values():
            if lane.source is source and lane.got:
                self._stop(lane)
        for begin, end, key in self.ledger.written():
            if key == source.key:
                self.forget(begin, end)

    def _stop(self, lane: Lane) -> None:
        lane.cut(steering.Verdict(lane.key, "the object changed", 0.0, failure=False))
        for lease in (lane.lease, *lane.coming):
            if lease is not None:
                self.ledger.release(lease)

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
            self._refuse_more_than_allowed(at + len(piece))
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
                fresh = self.ledger.bytes > self._furthest
                self._furthest = max(self._furthest, self.ledger.bytes)
                lane.fresh += useful if fresh else 0
                if steady:
                    self.came = now
                if steady and fresh:
                    self.progressed, self.vain = now, 0
                source.gave(useful, now, steady=steady and fresh)
                self.last_url = source.url
                reading.came(self, stretches[0][0], stretches[-1][1])
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
            if self.over:
                raise Elsewhere
            self.ledger.release(lease)
            lane.lease = None
            same = count == len(piece) and here == piece
            lane.source.wasted += len(piece)
            if self.versions.compared(lane.source, same):
                return
            if self.versions.others(lane.source, self.sources):
                assert lane.source.identity is not None
                lane.source.gives_others = True
                repair.rival(self, lane.source, lane.source.identity)
            self.restart(lane.source)  # only what an earlier process left stands against it

    def ended(self, lane: Lane, lease: Lease, taken_back: bool) -> None:
        """A request has come to its end; `taken_back`: the server says that it went wrong."""
        with self.changed:
            counts = not lease.over  # else a restart has taken it already, or all is done
            self.ledger.release(lease)
            lane.lease = None
            if taken_back and counts:
                self.take_back(lease.begin, lease.at)
                lane.got = 0
            seconds = time.monotonic() - lane.begun
            if seconds > 0 and lane.got:
                lane.source.measured(lane.got / seconds)
            if lease.end is None and self.ledger.size is None and counts and not taken_back:
                self.ledger.size = lease.at  # it ended properly, so this is its length
                self.length_unsaid = lane.stream.ends_anywhere
            self.changed.notify_all()

    def failed(self, lane: Lane, lease: Lease | None, fault: Fault) -> None:
        """A request has gone wrong."""
        with self.changed:
            now = time.monotonic()
            self._give_back(lane, lease)
            verdict = lane.verdict
            if self.over:
                return
            flowing = sum(x.source is lane.source and x.got > 0 for x in self.lanes.values())
            if verdict is None:
                if fault.strain and not lane.got and flowing:
                    lane.source.strained(fault, now, flowing)
                elif lane.fresh < ENOUGH or fault.strain or fault.settled:
                    whole = self.ledger.size is None or lane.source.ranges is False
                    if whole and lane.got and not lane.fresh:
                        fault = _in_vain(fault)
                        self.vain += 1
                    lane.source.failed(fault, now, random.random())  # noqa: S311 - no secret
                else:
                    lane.source.bench(fault, 0.1, now)  # it gave much, and will again
            elif verdict.failure:
                lane.source.fell_silent(lane.moved, 4 * steering.LEAST_CHUNK)
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
            if self.over or not self.idle.keep(lane.source, lane.stream):
                lane.stream.close()  # before its place is free: others may open a connection then
            self.lanes.pop(lane.key, None)
            self.changed.notify_all()

    def _give_back(self, lane: Lane, lease: Lease | None) -> None:
        if lease is not None:
            self.ledger.wrote(lease)
            self.ledger.release(lease)
        while lane.coming:
            self.ledger.release(lane.coming.popleft())
        lane.lease = None

    def start_over(self, source: Source) -> None:
        """The object was changed at the source while it was being fetched, the lock being held."""
        try:
            self.restart(source)
        except Fault as fault:
            words = f"{self.part.name} did not arrive: {fault.words}"
            self.error = self.error or TransferError(words, retryable=True, remedy="try again")
        source.identity, source.ranges = None, False  # one answer from start to end is whole

    # -- wrong bytes

    def take_back(self, begin: int, end: int) -> None:
        """A server says that it went wrong. The lock is held."""
        furthest = self._furthest
        self.forget(begin, end)
        self._furthest = furthest  # nothing bounds how often it happens
        self.vain += 1

    def forget(self, begin: int, end: int, *, blame: bool = False) -> set[int]:
        """Take bytes back; returns who gave them. The lock is held."""
        self.losses += 1
        if self.readers is not None and self.ledger.size is not None:
            self.readers.lost(begin, min(end, self.ledger.size))
        blamed = self.ledger.forget(begin, end, blame=blame)
        self.prover.forgotten(begin, end)
        self.journal.forget(self.ledger.written())
        self.lower()
        return blamed

    def lower(self) -> None:
        """Bytes were given up on purpose: to bring them again is progress. The lock is held."""
        self._furthest = min(self._furthest, self.ledger.bytes)

    def identity_for_journal(self) -> tuple[Identity, str] | None:
        pinned = self.versions.pinned
        if pinned is None or self.ledger.size is None:
            return None
        about = Identity(self.ledger.size, pinned.etag, pinned.modified, pinned.digests)
        return about, self.versions.place


def _in_vain(fault: Fault) -> Fault:
    """An answer that began with the first byte came no further than another one before."""
    words = f"{fault.words}; no try came further, and each begins at the first byte"
    return Fault(words, phase=fault.phase, after=fault.after, lasting=True)
