"""Reading: what a job does for those who read its object while it arrives.

Functions of a job; those that readers call take its lock, the others expect it to be held.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from headway.node.transfer.crew import Lane
    from headway.node.transfer.job import Job
    from headway.node.transfer.ledger import Stretch

_EARLIER = -1  # the source of bytes that an earlier process has brought

# -- for readers


def turn(job: Job, order: Sequence[Stretch], passed: int = 0) -> None:
    """Bring the object in this order; what comes before `passed` was read already."""
    with job.changed:
        if job.route is not None:
            job.route.turn(order, passed)
            job.prover.prefer(order[passed:])
            job.changed.notify_all()


def wish(job: Job, stretches: list[Stretch]) -> None:
    """Somebody waits for these: they come first."""
    with job.changed:
        if job.route is not None and job.route.wishes != stretches:
            job.route.wishes = stretches
            job.prover.prefer(stretches)
            job.changed.notify_all()


def passed(job: Job, count: int) -> None:
    """The first stretches of the order were read."""
    with job.changed:
        if job.route is not None:
            job.route.passed(count)


def give_back(job: Job, begin: int, end: int) -> None:
    """What was read leaves the disk, and may be wanted again later."""
    with job.changed:
        if job.readers is not None and not job.over:
            job.readers.lost(begin, end)
            job.ledger.forget(begin, end, blame=False)
            job.prover.forgotten(begin, end)
            job.lower()
            job.part.punch(begin, end)
            job.changed.notify_all()


# -- with the lock held


def begin(job: Job) -> None:
    """Let readers know how long the object is, as soon as that is known."""
    if job.readers is None or job.ledger.size is None or job.being_read:
        return
    job.being_read = True
    for first, end in job.readers.begins(job.ledger.size):
        job.ledger.restore([(first, end, _EARLIER)])
        job.prover.known(first, end)
    for first, end, _ in job.ledger.written():
        came(job, first, end)


def note_version(job: Job) -> None:
    """Have the journal know of which version readers will be told, before they are told of any."""
    about = job.identity_for_journal()
    if job.being_read and job.manifest is None and about is not None and not job.ledger.bytes:
        job.journal.begin(job.part.file, about[0].size or 0, *about, [])


def came(job: Job, begin: int, end: int) -> None:
    """Bytes are on disk; without a manifest that is all that readers can be told."""
    job.prover.came(begin, end)
    size = job.ledger.size
    if job.readers is None or job.manifest is not None or size is None or not job.being_read:
        return
    unit = job.readers.unit
    for first in range(begin // unit * unit, end, unit):
        if job.ledger.on_disk(first, min(first + unit, size)):
            job.readers.proven(first, min(first + unit, size))


def paused(job: Job) -> bool:
    """Whether nothing is to be fetched just now, although there is more."""
    if job.route is None or not job.route.room or job.ledger.leases():
        return False
    return job.route.next(job.ledger, _EARLIER, 1) is None


def holds_back(job: Job, lane: Lane) -> bool:
    """Whether a lane is kept for when there is room again: to open another costs time."""
    if job.route is None or not job.route.full(job.ledger):
        return False
    return not job.over and not lane.verdict and lane.source.ready(time.monotonic())
