"""Dispatch: what the next request of a lane is for."""

from __future__ import annotations

import time

from headway.node.transfer import steering
from headway.node.transfer.views import must_wait, views

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.node.transfer.crew import Lane
    from headway.node.transfer.job import Job
    from headway.node.transfer.ledger import Lease
    from headway.node.transfer.source import Source
    from headway.node.transfer.steering import LaneView


def next_lease(job: Job, lane: Lane) -> Lease | None:
    """What a lane shall bring next; None: there is nothing for it. The lock is held."""
    now = time.monotonic()
    source = lane.source
    if job.over or lane.verdict or not source.ready(now) or job.ledger.complete:
        return None
    busy = sum(x.source is source for x in job.lanes.values() if x is not lane)
    if busy + job.enquired.count(source.key) >= source.allowed:
        return None
    lane.sampling = False
    ledger = job.ledger
    if must_wait(job, source, now):
        return None
    if job.versions.must_compare(source, ledger):
        if source.ranges is not False:
            lane.sampling = True
            return job.versions.next_sample(source, ledger)
        if job.versions.others(source, job.sources):
            return None
        job.restart(source)  # it cannot be compared, only taken instead
    begins = source.ranges is False or ledger.size is None or not job.reserved
    if begins and job.manifest is None and ledger.avoids(source.key, 0, 1):
        return None  # its whole object was wrong; it is asked again when nobody else can help
    if source.ranges is False:
        others = [x for x in job.lanes.values() if x is not lane and x.lease is not None]
        flowing = any(x.source.ranges is not False for x in others)
        return None if flowing or _whole_taken(job) else ledger.take_whole(source.key)
    if ledger.size is None or (not job.reserved and not ledger.bytes):
        return _first(job, source)
    if source.stint is not None and lane.moved + steering.LEAST_CHUNK > source.stint:
        return None  # a fresh connection takes over
    lanes, _ = views(job, now)
    return _share(job, lane, [view for view in lanes if view.key != lane.key])


def next_early(job: Job, lane: Lane) -> Lease | None:
    """What a lane shall ask for before it is done with what it has; only where readers wait."""
    source = lane.source
    if job.route is None or not source.early or job.over or lane.verdict or lane.sampling:
        return None
    if not source.ready(time.monotonic()) or source.stint is not None or source.ranges is not True:
        return None
    if job.versions.must_compare(source, job.ledger):
        return None
    return job.ledger.take(source.key, _for_readers(job, source))


def _first(job: Job, source: Source) -> Lease | None:
    """Before anybody has answered, all who are asked at all are asked for the same."""
    for lease in job.ledger.leases():
        if lease.source == source.key or not lease.rival:
            return None
    size = job.ledger.size
    if size == 0:
        return job.ledger.take_whole(source.key)
    if job.route is not None:
        most = _for_readers(job, source)
        stretch = job.route.first(job.ledger, most)
        return job.ledger.first(source.key, *(stretch or (0, min(most, size or most))))
    count = steering.FIRST_CHUNK
    if size is not None:
        share = steering.chunk(size, _possible(job), 0.0, 0.0, ordered=_ordered(job))
        count = max(min(count, size), share)
        count = size if size <= count else count
    return job.ledger.first(source.key, 0, count)


def _for_readers(job: Job, source: Source) -> int:
    """The bytes of a request when others are waited for: enough that its latency hardly counts."""
    worth = int(source.rate * source.latency / steering.OVERHEAD)
    most = max(steering.LEAST_CHUNK, min(worth, steering.MOST_CHUNK))
    return -(-most // job.ledger.grain) * job.ledger.grain


def _possible(job: Job) -> int:
    """How many lanes there will be while nothing changes."""
    now = time.monotonic()
    allowed = sum(each.allowed for each in job.sources if each.ready(now) and not each.last_resort)
    return max(1, min(job.connections, allowed))


def _ordered(job: Job) -> bool:
    """Whether the bytes are proven from the first to the last, as a digest of the whole is."""
    return job.manifest is None and job.prover.expects


def _whole_taken(job: Job) -> bool:
    return any(
        lease.begin == 0 and lease.end == job.ledger.size and not lease.over
        for lease in job.ledger.leases()
    )


def _share(job: Job, lane: Lane, others: list[LaneView]) -> Lease | None:
    source, ledger = lane.source, job.ledger
    mine = source.rate
    if job.route is not None:
        lease = ledger.take(source.key, _for_readers(job, source))
        return lease or _from_others(job, source, others)
    free = sum(end - begin for begin, end in ledger.wanted(source.key))
    lanes = max(len(others) + 1, _possible(job))
    # those of the same source, and those of whom nothing is known, will do as well as this one
    known = [view.recent for view in others if view.recent and view.source != source.key]
    total = sum(known) + (lanes - len(known)) * mine
    count = steering.chunk(
        ledger.remaining,
        lanes,
        mine,
        total,
        free=free,
        latency=source.latency,
        ordered=_ordered(job),
    )
    if source.stint is not None:
        count = min(count, source.stint - lane.moved)
    lease = ledger.take(source.key, count)
    return lease or _from_others(job, source, others)


def _from_others(job: Job, source: Source, others: list[LaneView]) -> Lease | None:
    """Everything is being fetched: take from somebody, or fetch the same as somebody."""
    ledger, mine = job.ledger, source.rate
    stolen = steering.steal(others, source.key, mine, source.latency)
    if stolen is not None:
        victim = job.lanes[stolen[0]].lease
        lease = ledger.steal(victim, source.key, stolen[1]) if victim is not None else None
        if lease is not None:
            return lease
    budget = steering.hedge_budget(ledger.size, job.hedged)
    key = steering.hedge(others, source.key, mine, budget=budget)
    other = job.lanes[key].lease if key is not None else None
    lease = ledger.hedge(other, source.key) if other is not None else None
    if lease is not None:
        job.hedged += lease.left or 0
    return lease
