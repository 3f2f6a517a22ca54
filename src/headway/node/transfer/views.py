"""The views: what steering decides upon, taken from a job whose lock is held."""

from __future__ import annotations

from headway.node.transfer import steering
from headway.node.transfer.steering import LaneView, SourceView

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.node.transfer.crew import Lane
    from headway.node.transfer.job import Job
    from headway.node.transfer.source import Source


def views(job: Job, now: float) -> tuple[list[LaneView], list[SourceView]]:
    """The lanes that are under way, and all sources."""
    going = [lane for lane in job.lanes.values() if lane.verdict is None]
    lanes = [lane.view(now, _left(job, lane)) for lane in going]
    flowing, remaining = sum(view.recent for view in lanes), job.ledger.remaining
    left = remaining / flowing if flowing and remaining is not None else 0.0
    count = dict.fromkeys((source.key for source in job.sources), 0)
    for view in lanes:
        count[view.source] += 1
    for key in job.enquired:
        count[key] += 1
    sources = [
        SourceView(
            key=source.key,
            rank=source.rank,
            ready=source.ready(now) and not must_wait(job, source, now),
            allowed=source.allowed_now(now, left),
            lanes=count[source.key],
            rate=source.rate,
            ranges=source.ranges,
            last_resort=source.last_resort,
            silences=source.silences,
            closed=source.closed,
            answered=source.identity is not None,
            faults=source.faults,
        )
        for source in job.sources
    ]
    return lanes, sources


def must_wait(job: Job, source: Source, now: float) -> bool:
    """One of unknown version cannot begin before there is something to compare it with.

    Unless those who shall give that are silent: then whoever gives first is the first.
    """
    if not job.versions.must_wait(source, job.ledger):
        return False
    return any(lane.lease and now - lane.last < steering.RACE for lane in job.lanes.values())


def _left(job: Job, lane: Lane) -> int | None:
    """What a lane has to bring that nobody else has brought by now."""
    lease = lane.lease
    if lease is None or lease.end is None or lane.sampling:
        return None
    here = max(lease.at, lease.reached)
    return sum(end - begin for begin, end in job.ledger.gaps(here, lease.end))
