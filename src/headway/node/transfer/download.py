"""The download: one object on its way from its sources to its part file.

It owns everything that is known and under way: the sources, the lanes that bring bytes from them,
and the assembly of what has arrived. Every method that a lane calls takes the lock by itself; for
the others the caller holds it. The clock is monotonic throughout.
"""

from __future__ import annotations

import random
import time
from collections import Counter

from headway.node.errors import CorruptError, TransferError
from headway.node.host import usable_processors
from headway.node.transfer import scheduler
from headway.node.transfer.assembly import Assembly
from headway.node.transfer.client import IdleClients, open_client
from headway.node.transfer.lane import Lane, Superseded
from headway.node.transfer.options import Snapshot, SourceState
from headway.node.transfer.source import MANY_BAD, Fault, Identity, Source
from headway.node.transfer.versions import (
    MOST_RESTARTS,
    Repair,
    disagreement,
    own_word,
    page_fault,
    page_instead,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import NoReturn

    from headway.node.transfer.client import Head
    from headway.node.transfer.journal import Journal
    from headway.node.transfer.ledger import Lease
    from headway.node.transfer.options import Options
    from headway.node.transfer.part import Part
    from headway.node.transfer.scheduler import LaneView, SourceView

LITTLE = 16 << 10
STEADY = 1.0  # seconds
MOST_REPEATS = 3  # tries that may bring the same bytes again
ENOUGH = 1 << 20  # bytes of one answer that make another try at once worth while
_MEASURE = 0.25  # seconds between two looks at the rates
_PROCESSORS = usable_processors()


class Download:
    """One download: what is known of the object, and what is under way."""

    def __init__(self, part: Part, journal: Journal, options: Options) -> None:
        self.assembly = Assembly(part, journal, options, self._bad_chunk)
        self.changed, self.part = self.assembly.changed, part
        self.ledger, self.prover = self.assembly.ledger, self.assembly.prover
        self.versions = self.assembly.versions
        self.options = options
        self.sources: list[Source] = []
        self._by_key: dict[int, Source] = {}
        self.lanes: dict[int, Lane] = {}
        self.idle = IdleClients()
        self.error: BaseException | None = None
        self.restarts = 0
        self.requests = 0  # that were answered with bytes
        self.last_url = ""  # of the source that gave the last byte
        self.disputed = False  # sources have two versions, and only they can say which is right
        self.progressed = time.monotonic()  # when the last new byte came
        self.last_useful = self.progressed  # when the last useful byte came
        self._repeats = 0  # tries since then that began at the first byte and came no further
        self._repair = Repair()
        self._vouched = False  # a source of this version says that it is the declared one
        self._asked: list[int] = []  # sources at which a connection asks for something else
        self._hedged = 0
        self._best_rates: dict[int, float] = {}
        self._measured = 0.0
        self._lanes_made = 0

    # -- for the loop that watches it

    @property
    def over(self) -> bool:
        return self.assembly.over

    @property
    def waiting_since(self) -> float:
        """Since when nothing comes; bytes that come again count for a few tries only."""
        return self.last_useful if self._repeats <= MOST_REPEATS else self.progressed

    def add(self, sources: Iterable[Source]) -> None:
        self.sources += sources
        self._by_key = {source.key: source for source in self.sources}

    def note_asked(self, keys: Iterable[int]) -> None:
        """At these sources a connection is busy with a HEAD request."""
        self._asked = list(keys)

    def settle_dispute(self) -> None:
        """No source is left that could say which version is right."""
        self.disputed = False

    def fail(self, error: BaseException | None) -> None:
        """No source can help any more; only the first error counts."""
        self.error = self.error or error

    def pause(self, now: float) -> None:
        """It is no fault of the sources that nothing comes."""
        self.progressed = self.last_useful = now

    def postpone(self, begin: float, seconds: float) -> None:
        """This process was stopped for so long, which must not count against any source."""
        self.progressed += seconds
        self.last_useful += seconds
        for lane in self.lanes.values():
            lane.postpone(begin, seconds)
        for source in self.sources:
            if source.absent_since is not None:
                source.absent_since += seconds

    def wake(self) -> None:
        """Something has ended; this takes the lock by itself."""
        with self.changed:
            self.changed.notify_all()

    def end(self) -> list[Lane]:
        """From now on nothing counts that lanes or servers still say; returns the lanes to cut."""
        self.assembly.end()
        self._repair.end()
        return list(self.lanes.values())

    def snapshot(self, now: float, begin: float) -> Snapshot:
        """The state of the download; `begin`: when it began."""
        count = Counter(lane.source.key for lane in self.lanes.values())
        rates = dict.fromkeys(self._by_key, 0.0)
        for lane in self.lanes.values():
            rates[lane.source.key] += lane.rate(now)
        sources = [
            SourceState(each, each.state(now, count[each.key]), rates[each.key], count[each.key])
            for each in self.sources
        ]
        slow = scheduler.bottleneck(
            [source.rate for source in self.sources if source.rate > 0],
            len(self.lanes),
            seconds=now - begin,
            writing=self.part.seconds,
        )
        ledger = self.ledger
        return Snapshot(ledger.bytes, ledger.size, sum(rates.values()), now - begin, sources, slow)

    # -- lanes are opened and cut

    def views(self, now: float) -> tuple[list[LaneView], list[SourceView]]:
        """What the scheduler needs to know: the lanes that are under way, and all sources."""
        going = [lane for lane in self.lanes.values() if lane.cut_reason is None]
        lanes = [lane.view(now, self._left(lane)) for lane in going]
        flowing, remaining = sum(view.recent for view in lanes), self.ledger.remaining
        left = remaining / flowing if flowing and remaining is not None else 0.0
        count = Counter([*(view.source for view in lanes), *self._asked])
        sources = [
            each.view(now, lanes=count[each.key], left=left, waits=self._must_wait(each, now))
            for each in self.sources
        ]
        return lanes, sources

    def _left(self, lane: Lane) -> int | None:
        """The bytes that a lane still has to bring, without those that others have brought."""
        lease = lane.lease
        if lease is None or lease.end is None or lease.sample:
            return None
        here = max(lease.at, lease.reached)
        return sum(end - begin for begin, end in self.ledger.gaps(here, lease.end))

    def _must_wait(self, source: Source, now: float) -> bool:
        """Whether there is nothing yet to compare a source of unknown version with.

        If the sources that are to give that are silent, it need not wait for them.
        """
        if not self.versions.must_wait(source, self.ledger):
            return False
        lanes = self.lanes.values()
        return any(lane.lease and now - lane.last < scheduler.RACE for lane in lanes)

    def cut_stalled(self, now: float) -> None:
        """Measure the lanes, and cut those that bring too little."""
        lanes, sources = self.views(now)
        if now - self._measured >= _MEASURE:
            self._measured = now
            self._measure(lanes, sources, now)
        for reason in scheduler.stalls(lanes, sources):
            lane = self.lanes.get(reason.lane)
            if lane is not None and not (lane.lease is None and lane.got):
                lane.cut(reason)

    def _measure(self, lanes: list[LaneView], sources: list[SourceView], now: float) -> None:
        for view in lanes:
            if view.phase == "body" and view.age > 0.5 and view.got:
                self._by_key[view.source].measured(view.recent)
        for each in sources:
            best, own = self._best_rates.get(each.key, 0.0), self._by_key[each.key]
            if scheduler.falling(each, lanes, best):
                own.ease(now)
                self._best_rates[each.key] = own.rate
                last = max(view.key for view in lanes if view.source == each.key)
                self.lanes[last].dismiss("one connection less brings as much")
            else:
                self._best_rates[each.key] = max(best, own.rate)

    def open_lanes(self, now: float) -> None:
        """Open the connections that are worth it; if none is, try what was given up before."""
        live, sources = self.views(now)
        known = not self.versions.open and any(s.identity is not None for s in self.sources)
        most = self.options.connections
        picked = scheduler.openings(
            sources,
            live,
            most=most,
            remaining=self.ledger.remaining,
            known=known,
            processors=_PROCESSORS,
        )
        opened = 0
        for key in picked:
            if len(live) + opened + len(self._asked) >= most or (opened and not known):
                break
            opened += self._open_lane(self._by_key[key])
        # a source that fell silent before and has given nothing since does not count
        hope = opened or any(not lane.source.silences for lane in self.lanes.values())
        idle = 0.0 if hope else now - self.progressed
        if idle > scheduler.THIRST:
            self._pardon()  # no other source can help: ask again for what was wrong
        if idle > min(scheduler.RIVAL, self.options.patience / 3):
            self.try_rivals()

    def _open_lane(self, source: Source) -> bool:
        """Start another connection if there is anything for it to do."""
        client = self.idle.unused(source) or open_client(source.url, source.token)
        lane = Lane(self._lanes_made + 1, source, client, self)
        try:
            lease = self._next_lease(lane)
        except Fault as fault:
            self._blame(source, fault)
            return False
        if lease is None:
            return False
        self.idle.close(but=[client])  # no more connections than are allowed
        self._lanes_made += 1
        self.lanes[lane.key] = lane
        lane.start(lease)
        return True

    def has_room(self, source: Source) -> bool:
        """Whether a lane may take over the connection of a HEAD request to this source."""
        _, sources = self.views(time.monotonic())
        room = any(each.key == source.key and each.lanes <= each.allowed for each in sources)
        busy = len(self.lanes) + len(self._asked)
        return room and busy <= self.options.connections and not self.over

    # -- what a lane is asked for

    def next_lease(self, lane: Lane) -> Lease | None:
        """What this lane is to bring next; None: there is nothing for it."""
        with self.changed:
            lease = self._next_lease(lane)
            while lease is None and self._holds_back(lane):
                lane.rest()
                self.changed.wait(1.0)
                lease = self._next_lease(lane)
            return lease

    def _holds_back(self, lane: Lane) -> bool:
        """Whether a lane waits until there is room again, since to open another costs time."""
        if not self.assembly.full or self.over or lane.cut_reason:
            return False
        return lane.source.ready(time.monotonic())

    def next_early(self, lane: Lane) -> Lease | None:
        """What it requests before it is done with its present lease; only where readers wait."""
        with self.changed:
            source = lane.source
            sampling = lane.lease is not None and lane.lease.sample
            if self.options.readers is None or not source.early or sampling:
                return None
            if self.over or lane.cut_reason or not source.ready(time.monotonic()):
                return None
            if source.bytes_per_connection is not None or source.ranges is not True:
                return None
            if self.versions.must_compare(source, self.ledger):
                return None
            return self.ledger.take(source.key, self._chunk_for_readers(source))

    def _next_lease(self, lane: Lane) -> Lease | None:
        now, source, ledger = time.monotonic(), lane.source, self.ledger
        if self.over or lane.cut_reason or not source.ready(now) or ledger.complete:
            return None
        busy = sum(x.source is source for x in self.lanes.values() if x is not lane)
        if busy + self._asked.count(source.key) >= source.allowed or self._must_wait(source, now):
            return None
        if self.versions.must_compare(source, ledger):
            if source.ranges is not False:
                return self.versions.next_sample(source, ledger)
            if self.versions.others(source, self.sources):
                return None
            self._restart(source)  # it cannot be compared, so its version replaces the other
        reserved = self.assembly.reserved
        begins = source.ranges is False or ledger.size is None or not reserved
        if begins and self.options.manifest is None and ledger.avoids(source.key, 0, 1):
            return None  # its whole object was wrong; it is asked again if no other source can help
        if source.ranges is False:
            others = [x for x in self.lanes.values() if x is not lane and x.lease is not None]
            flowing = any(x.source.ranges is not False for x in others)
            return None if flowing or ledger.whole_taken else ledger.take_whole(source.key)
        if ledger.size is None or (not reserved and not ledger.bytes):
            return self._first(source)
        if (
            source.bytes_per_connection is not None
            and lane.moved + scheduler.LEAST_CHUNK > source.bytes_per_connection
        ):
            return None  # a fresh connection takes over
        lanes, _ = self.views(now)
        return self._share(lane, [view for view in lanes if view.key != lane.key], now)

    def _first(self, source: Source) -> Lease | None:
        """Before any source has answered, all that are asked are asked for the same bytes."""
        ledger = self.ledger
        if any(lease.source == source.key or not lease.racing for lease in ledger.leases()):
            return None
        if ledger.size == 0:
            return ledger.take_whole(source.key)
        if self.options.readers is not None:
            stretch = ledger.wanted_first(self._chunk_for_readers(source))
            return ledger.first(source.key, *stretch)
        lanes = self._possible_lanes(time.monotonic())
        count = scheduler.first_chunk(ledger.size, lanes, ordered=self.assembly.ordered)
        return ledger.first(source.key, 0, count)

    def _chunk_for_readers(self, source: Source) -> int:
        return scheduler.chunk_for_readers(source.rate, source.latency, self.ledger.grain)

    def _possible_lanes(self, now: float) -> int:
        """How many lanes there will be while nothing changes."""
        caches = (each for each in self.sources if each.ready(now) and not each.last_resort)
        return max(1, min(self.options.connections, sum(each.allowed for each in caches)))

    def _share(self, lane: Lane, others: list[LaneView], now: float) -> Lease | None:
        source, ledger = lane.source, self.ledger
        if self.options.readers is not None:
            count = self._chunk_for_readers(source)
        else:
            count = scheduler.share(
                others,
                source.key,
                source.rate,
                ledger.remaining,
                lanes=self._possible_lanes(now),
                free=sum(end - begin for begin, end in ledger.wanted(source.key)),
                latency=source.latency,
                ordered=self.assembly.ordered,
            )
            if source.bytes_per_connection is not None:
                count = min(count, source.bytes_per_connection - lane.moved)
        return ledger.take(source.key, count) or self._from_others(source, others)

    def _from_others(self, source: Source, others: list[LaneView]) -> Lease | None:
        """Everything is being fetched: take over from another lane, or fetch the same bytes."""
        ledger, mine = self.ledger, source.rate
        stolen = scheduler.steal(others, source.key, mine, source.latency)
        if stolen is not None:
            victim = self.lanes[stolen[0]].lease
            lease = ledger.steal(victim, source.key, stolen[1]) if victim is not None else None
            if lease is not None:
                return lease
        budget = scheduler.hedge_budget(ledger.size, self._hedged)
        key = scheduler.hedge(others, source.key, mine, budget=budget)
        other = self.lanes[key].lease if key is not None else None
        lease = ledger.hedge(other, source.key) if other is not None else None
        if lease is not None:
            self._hedged += lease.left or 0
        return lease

    # -- for the lanes: how a request goes

    def opened(self, lane: Lane, lease: Lease, head: Head) -> None:
        """A source has answered: check that it sends the object, and the requested part of it."""
        with self.changed:
            if self.over or lease.over:
                raise Superseded
            source, identity, ledger = lane.source, head.identity, self.ledger
            self._check(source, identity)
            overtaken = lease.racing and not self.versions.open and self._overtaken(lane, lease)
            if overtaken or (self._meet(source, identity) and not lease.sample):
                ledger.release(lease)
                lane.done()
                raise Superseded
            if head.whole and lease.begin == 0 and not lease.sample:
                size = identity.size  # the source gives everything, so this lane goes on to the end
                if lease.end is None or size is None or size > lease.end:
                    source.ranges = False
                    lease.end = size if size is not None else ledger.size
            elif head.whole:
                raise Fault("it gives the whole object only", no_range=True, phase="first byte")
            else:
                source.ranges = True
                if ledger.size is None and identity.size is None:
                    raise Fault("it does not say how long the object is", no_range=True)
            self.assembly.learn_size(identity.size)
            self.assembly.reserve()
            if lease.end is not None and ledger.size is not None:
                lease.end = min(lease.end, ledger.size)
            lease.racing = False
            self.requests += 1
            self.changed.notify_all()

    def _check(self, source: Source, identity: Identity) -> None:
        """Refuse what is not the object by what the source says of it."""
        declared = self.options.size
        if declared is not None and identity.size not in (None, declared):
            raise Fault(
                f"it has {identity.size} bytes there, not {declared}",
                settled=True,
                phase="first byte",
                remedy="check the declared size and the object",
                means=CorruptError,
            )
        self.assembly.check_size(identity.size)
        if identity.says(self.options.checksum) is False:
            raise own_word()
        if not self.versions.provable and page_instead(source, identity):
            raise page_fault(identity)

    def _meet(self, source: Source, identity: Identity) -> bool:
        """Compare a source's version with the present one; True: only its bytes can tell."""
        before, versions = source.identity, self.versions
        # with a proof, a source's ETag need not be believed
        told = not versions.provable
        changed = before is not None and before.differs(identity, same_place=told)
        if changed and self.ledger.bytes and not versions.by_chunk:
            self._changed_there(source, identity)
        source.identity = identity
        proven_later = versions.provable or self.prover.expects
        action = versions.meet(source, identity, self.ledger, proven_later=proven_later)
        if action == "rival":
            self._rival(source, identity)
        if action == "restart":
            self._restart(source)
            versions.pin(source, identity)
            self.assembly.learn_size(identity.size)
        return action == "sample"

    def _changed_there(self, source: Source, identity: Identity) -> NoReturn:
        """A source that gave bytes now has another version."""
        if self.versions.others(source, self.sources):
            self._drop(source)
            raise self.versions.rival(source, identity)
        self._restart(source)
        source.identity = None
        self.versions.pardon(self.sources)
        words = "its ETag or date has changed, so only one answer from start to end is whole"
        fault = Fault(words, no_range=True, phase="first byte")
        if any(not each.closed for each in self.sources if each is not source):
            source.bench(fault, scheduler.SET_ASIDE, time.monotonic())
        raise fault

    def _overtaken(self, lane: Lane, lease: Lease) -> bool:
        """Whether another source that was asked for the same bytes is already sending them."""
        for other in self.lanes.values():
            there = other.lease
            if other is lane or there is None or there.over or there.racing or there.sample:
                continue
            if there.begin == lease.begin and other.cut_reason is None:
                return True
        return bool(self.ledger.bytes and not self.ledger.gaps(lease.begin, lease.begin + 1))

    def write(self, lane: Lane, lease: Lease, piece: memoryview) -> None:
        """Bytes for the part; only those that no other lane has brought are written."""
        stretches = self.assembly.write(lease, piece)
        useful = sum(end - begin for begin, end in stretches)
        with self.changed:
            source = lane.source
            source.wasted += len(piece) - useful
            if useful:
                now = time.monotonic()
                # a few bytes of answers that break off at once are no progress; a slow flow is
                steady = lane.got >= LITTLE or now - lane.begun > STEADY
                fresh = self.assembly.note_progress()
                lane.brought(useful if fresh else 0)
                if steady:
                    self.last_useful = now
                if steady and fresh:
                    self.progressed, self._repeats = now, 0
                source.gave(useful, now, steady=steady and fresh)
                self.last_url = source.url
                self.assembly.arrived(stretches[0][0], stretches[-1][1])
                self.prover.wake()
            if self.ledger.complete:
                self.changed.notify_all()
            if lease.over or (not useful and lease.hedge):
                raise Superseded  # somebody else was faster

    def sampled(self, lane: Lane, lease: Lease, piece: memoryview) -> None:
        """A source of unknown version has given bytes that are here already."""
        here = memoryview(bytearray(len(piece)))
        count = self.part.read_into([here], lease.begin)
        with self.changed:
            if self.over:
                raise Superseded
            source = lane.source
            self.ledger.release(lease)
            lane.done()
            source.wasted += len(piece)
            if self.versions.compared(source, count == len(piece) and here == piece):
                return
            if self.versions.others(source, self.sources):
                assert source.identity is not None
                source.gives_others = True
                self._rival(source, source.identity)
            self._restart(source)  # only what an earlier process left stands against it

    def ended(self, lane: Lane, lease: Lease, taken_back: bool) -> None:
        """A request has ended; `taken_back`: the server says that its answer was wrong."""
        with self.changed:
            counts = not lease.over  # else a restart has taken it already, or all is done
            self.ledger.release(lease)
            lane.done(taken_back=taken_back and counts)
            if taken_back and counts:
                self.assembly.take_back(lease.begin, lease.at)
                self._repeats += 1
            seconds = time.monotonic() - lane.begun
            if seconds > 0 and lane.got:
                lane.source.measured(lane.got / seconds)
            if lease.end is None and counts and not taken_back:
                self.assembly.ended_at(lease.at, unsaid=lane.client.ends_anywhere)
            self.changed.notify_all()

    def failed(self, lane: Lane, lease: Lease | None, fault: Fault) -> None:
        """A request has gone wrong."""
        with self.changed:
            self._give_back(lane, lease)
            if self.over:
                return
            self._blame_lane(lane, fault, time.monotonic())
            if self.ledger.size is None:
                self.ledger.forget_all()  # without a length nothing can be put together
            self.changed.notify_all()

    def _blame_lane(self, lane: Lane, fault: Fault, now: float) -> None:
        """What the failure of a lane means for its source."""
        source, reason = lane.source, lane.cut_reason
        if reason is not None and reason.failure:
            source.fell_silent(lane.moved, 4 * scheduler.LEAST_CHUNK)
            self._blame(source, Fault(reason.words, phase=lane.client.phase))
            return
        if reason is not None:
            if reason.bench:
                source.bench(Fault(reason.words, phase="body"), reason.bench, now)
            return
        flowing = sum(each.source is source and each.got > 0 for each in self.lanes.values())
        if fault.strain and not lane.got and flowing:
            source.strained(fault, now, flowing)
        elif lane.fresh < ENOUGH or fault.strain or fault.settled:
            whole = self.ledger.size is None or source.ranges is False
            if whole and lane.got and not lane.fresh:
                words = f"{fault.words}; no try came further, and each begins at the first byte"
                fault = Fault(words, phase=fault.phase, after=fault.after, lasting=True)
                self._repeats += 1
            self._blame(source, fault)
        else:
            source.bench(fault, 0.1, now)  # it gave much, and will again

    def broken(self, lane: Lane, lease: Lease | None, error: BaseException) -> None:
        """The node failed, or the engine itself: no other source can help."""
        with self.changed:
            self._give_back(lane, lease)
            self.fail(error)
            self.changed.notify_all()

    def left(self, lane: Lane) -> None:
        with self.changed:
            self._give_back(lane, lane.lease)
            if self.over or not self.idle.keep(lane.source, lane.client):
                lane.client.close()  # before another connection may take its place
            self.lanes.pop(lane.key, None)
            self.changed.notify_all()

    def _give_back(self, lane: Lane, lease: Lease | None) -> None:
        if lease is not None:
            self.ledger.wrote(lease)
            self.ledger.release(lease)
        for early in lane.let_go():
            self.ledger.release(early)

    # -- the object, or a source's copy of it, becomes another one

    def _restart(self, source: Source) -> None:
        """The object has changed: nothing that is here counts any more."""
        self.restarts += bool(self.ledger.bytes)
        if self.restarts > MOST_RESTARTS:
            raise Fault("the object there changes all the time", phase="verify")
        for lane in self.lanes.values():
            if lane.source is not source or lane.got:
                self._stop(lane)
        self.assembly.restart()
        self._repair.restart()
        self._vouched = False
        self.requests = 0
        for each in self.sources:
            each.trusted = each.gives_others = False
            if each is not source:
                each.identity = each.opinion = None

    def start_over(self, source: Source) -> None:
        """The object was changed at the source while it was being fetched."""
        try:
            self._restart(source)
        except Fault as fault:
            words = f"{self.part.name} did not arrive: {fault.words}"
            self.fail(TransferError(words, retryable=True, remedy="try again"))
        source.identity, source.ranges = None, False  # one answer from start to end is whole

    def _drop(self, source: Source) -> None:
        """One source has another version now: others bring again what it gave."""
        for lane in self.lanes.values():
            if lane.source is source and lane.got:
                self._stop(lane)
        for begin, end, key in self.ledger.written():
            if key == source.key:
                self.assembly.forget(begin, end)

    def _stop(self, lane: Lane) -> None:
        lane.dismiss("the object changed")
        for lease in (lane.lease, *lane.coming):
            if lease is not None:
                self.ledger.release(lease)

    def try_rivals(self) -> bool:
        """No source gives the present version; try another one."""
        return self._switch(self.versions.worth_a_try(self.sources))

    def _switch(self, chosen: list[Source]) -> bool:
        """Start over with sources that have another version; False: that was done too often."""
        if self.restarts >= MOST_RESTARTS or not chosen:
            return False
        self._restart(chosen[0])
        self.versions.rivals.clear()
        self.disputed = False
        first = time.monotonic() + 3 * scheduler.RACE  # so that they give the first bytes
        for source in self.sources:
            source.benched_until = max(source.benched_until, first)
        for source in chosen:
            source.closed, source.benched_until, source.faults = False, 0.0, 0
        return True

    def _rival(self, source: Source, identity: Identity) -> NoReturn:
        """A source has another version, which may be the right one after all."""
        fault = self.versions.rival(source, identity)
        if self._repair.active:  # what is here is wrong, and now it is clear why
            words = "what it gave is not the declared object"
            self._blame_givers(Fault(words, bad_copy=True, retryable=False, phase="verify"))
            if self._switch([source]):
                raise Superseded
        if self.versions.provable and not self._vouched:
            self.disputed = True
            if self._switch(self.versions.outvoted(self.sources)):
                raise Superseded
        raise fault

    def heard(self, source: Source, identity: Identity) -> None:
        """What a source says of itself in a dispute over versions."""
        right = identity.says(self.options.checksum)
        if right is None or self.over or source.bad:
            return
        rival = source.key in self.versions.rivals
        others = [each for each in self.versions.worth_a_try(self.sources) if each is not source]
        if not right:
            self._blame(source, own_word())
            source.bad = MANY_BAD
            if not rival:  # and so have all that agree with it
                self._switch(others)
        elif not rival or self._switch([source, *others]):
            self._vouched = True
        self.changed.notify_all()

    def cut_short(self, identity: Identity) -> None:
        """Check by what a source says whether the object is longer than it seemed."""
        here = self.ledger.size
        unsaid = self.assembly.length_unsaid
        if not unsaid or here is None or identity.size is None or here >= identity.size:
            return
        words = f"it broke off after {here} of {identity.size} bytes"
        fault, now = Fault(words, phase="body", lasting=True), time.monotonic()
        givers = [each for each in self.sources if each.key in self.ledger.givers()]
        for source in givers:
            self._blame(source, fault)
            if any(not each.closed for each in self.sources if each not in givers):
                source.bench(fault, scheduler.SET_ASIDE, now)  # it would begin at the first byte
        self.assembly.lengthen(identity.size)  # samples show whether others have the same

    def disagreement(self) -> TransferError | None:
        """Why the object, which nothing proves, cannot get its name."""
        pinned, size = self.versions.pinned, self.ledger.size
        if pinned is None:
            return None
        # a declared size settles the size
        here = Identity(size if self.options.size is None else None, digests=pinned.digests)
        return disagreement(self.part.name, size, here, self.last_url, self.sources)

    # -- bytes are wrong

    def _bad_chunk(self, begin: int, end: int) -> None:
        """A chunk is not what the manifest says: it is fetched again, elsewhere if possible."""
        certain = self._repair.certain(begin, len(self.ledger.givers(begin, end)))
        for key in self.assembly.forget(begin, end, blame=certain):
            source = self._by_key.get(key)
            if source is None or not certain:
                continue
            words = f"the chunk at {begin} is not what the manifest says"
            self._blame(source, Fault(words, bad_copy=True, retryable=False, phase="verify"))
            if not any(not each.closed for each in self.sources if each is not source):
                self.ledger.pardon(key)
                continue
            for lane in self.lanes.values():  # others bring the rest; it may show itself again
                if lane.source is source:
                    lane.dismiss(words)
        self.changed.notify_all()

    def wrong_whole(self, words: str) -> None:
        """The object is not what was declared: fetch again only what may be wrong."""
        written = self.ledger.written()
        rivals = self.versions.worth_a_try(self.sources)
        usable = [each for each in self.sources if not each.closed]
        if not rivals and not self._repair.compared(self.part, written, usable, self.wake):
            return
        fault = Fault(words, bad_copy=True, retryable=False, phase="verify")
        givers = [source for source in self.sources if source.key in self.ledger.givers()]
        portion = []
        if rivals or not written:  # two versions were seen, and this is not the right one
            self._blame_givers(fault)
            if self.try_rivals():
                return
        else:
            if (
                self._repair.begins
            ):  # sources that were suspected so far replace the next one's bytes
                self._pardon()
            portion = self._repair.portion(written, usable, self.ledger.size or 0)
        if not portion:
            for source in givers:
                source.closed, source.fault = True, fault
            self.versions.pardon(self.sources)
            self._repair.clear()
            self.assembly.forget_all()
        for begin, end, key in portion:
            elsewhere = any(each.key != key for each in usable)
            self.assembly.forget(begin, end, blame=elsewhere)

    def _pardon(self) -> None:
        """Ask every source again for what it gave wrong."""
        for each in self.sources:
            self.ledger.pardon(each.key)

    def _blame(self, source: Source, fault: Fault) -> None:
        source.failed(fault, time.monotonic(), random.random())  # noqa: S311 - no secret

    def _blame_givers(self, fault: Fault) -> None:
        """All sources of what is here gave wrong bytes."""
        for source in self.sources:
            if source.key in self.ledger.givers() or (source.trusted and not self.ledger.bytes):
                self._blame(source, fault)
