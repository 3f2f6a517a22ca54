"""Dispatch: what the next request of a lane is for."""

from __future__ import annotations

import time

from headway.node.transfer import steering
from headway.node.transfer.views import views

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
    if job.versions.must_wait(source, ledger):
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
    lanes, _ = views(job, now)
    return _share(job, lane, [view for view in lanes if view.key != lane.key])


def _first(job: Job, source: Source) -> Lease | None:
    """Before anybody has answered, all who are asked at all are asked for the same."""
    for lease in job.ledger.leases():
        if lease.source == source.key or not lease.rival:
            return None
    size = job.ledger.size
    if size == 0:
        return job.ledger.take_whole(source.key)
    count = steering.FIRST_CHUNK
    if size is not None:
        count = max(min(count, size), steering.chunk(size, job.connections, 0.0, 0.0))
        count = size if size <= count else count
    return job.ledger.first(source.key, count)


def _whole_taken(job: Job) -> bool:
    return any(
        lease.begin == 0 and lease.end == job.ledger.size and not lease.over
        for lease in job.ledger.leases()
    )


def _share(job: Job, lane: Lane, others: list[LaneView]) -> Lease | None:
    source, ledger = lane.source, job.ledger
    free = sum(end - begin for begin, end in ledger.wanted(source.key))
    mine = source.rate
    total = mine + sum(view.recent for view in others)
    count = steering.chunk(
        ledger.remaining, max(len(others) + 1, job.connections), mine, total, free=free
    )
    lease = ledger.take(source.key, count)
    if lease is not None:
        return lease
    stolen = steering.steal(others, source.key, mine)
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
