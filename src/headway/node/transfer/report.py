"""What people are told of a transfer: where it stands, and why it did not come to its end."""

from __future__ import annotations

import time

from headway.node.errors import HeadwayError, NodeError, TransferError
from headway.node.transfer.source import Fault
from headway.node.transfer.steering import shown_rate
from headway.node.transfer.urls import authority, shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from headway.node.transfer.job import Job
    from headway.node.transfer.roster import Roster
    from headway.node.transfer.source import Source

_SLOW_WRITE = 1.0  # seconds of one write that tell of the disk and not of the sources
_SLOW_DISK = 0.5  # of the lanes' time spent in writing
_STEADY = 8.0  # seconds after which a low rate is not a beginning's; a slot's log speaks after ten


class SourceState:
    """One source as a progress bar shows it."""

    def __init__(self, source: Source, state: str, rate: float, lanes: int) -> None:
        self.host = authority(source.url)
        self.url = shown(source.url)
        self.state = state  # new, active, idle, benched or refused
        self.rate = rate  # bytes a second, all its connections together
        self.connections = lanes
        self.bytes, self.wasted = source.bytes, source.wasted
        self.words = source.fault.words if source.fault is not None else ""
        self.phase = source.fault.phase if source.fault is not None else ""

    def as_json(self) -> dict[str, object]:
        return dict(vars(self))


class Snapshot:
    """A transfer at one moment."""

    def __init__(
        self,
        done: int,
        total: int | None,
        rate: float,
        seconds: float,
        sources: list[SourceState],
        slow: str,
    ) -> None:
        self.bytes, self.total, self.rate, self.seconds = done, total, rate, seconds
        self.sources = sources
        self.slow = slow  # what holds it up: "disk", "source", "network" or ""

    @property
    def eta(self) -> float | None:
        """Seconds to the end at the present rate."""
        if self.total is None or self.rate <= 0:
            return None
        return (self.total - self.bytes) / self.rate

    def as_json(self) -> dict[str, object]:
        sources = [source.as_json() for source in self.sources]
        return {**vars(self), "sources": sources}


def snapshot(job: Job, now: float, begin: float) -> Snapshot:
    """The job as it stands, its lock being held."""
    rates: dict[int, float] = {}
    count: dict[int, int] = {}
    for lane in job.lanes.values():
        rates[lane.source.key] = rates.get(lane.source.key, 0.0) + lane.rate(now)
        count[lane.source.key] = count.get(lane.source.key, 0) + 1
    sources = [
        SourceState(
            source,
            source.state(now, count.get(source.key, 0)),
            rates.get(source.key, 0.0),
            count.get(source.key, 0),
        )
        for source in job.sources
    ]
    return Snapshot(
        job.ledger.bytes,
        job.ledger.size,
        sum(rates.values()),
        now - begin,
        sources,
        bottleneck(job, now, begin),
    )


def bottleneck(job: Job, now: float, begin: float) -> str:
    """What a transfer waits for most."""
    busy = (now - begin) * max(1, len(job.lanes))
    if job.part.seconds > _SLOW_DISK * busy and now - begin > 5:
        return "disk"
    rates = sorted(source.rate for source in job.sources if source.rate > 0)
    if len(rates) > 1 and rates[0] < rates[-1] / 4:
        return "source"
    if len(rates) > 1 and rates[-1] < 1e6 and now - begin > _STEADY:
        return "network"  # they are all alike, and all slow
    if len(rates) == 1 and rates[0] < 1e5 and now - begin > _STEADY:
        return "source"
    return ""


def impatience(job: Job, roster: Roster, now: float, patience: float) -> HeadwayError:
    """Nothing has come from anywhere for too long."""
    new = " new" if job.came - job.progressed > 1 else ""
    waited = f"nothing{new} came for {now - job.progressed:.0f} s"
    if any(lane.on_disk and now - lane.last > _SLOW_WRITE for lane in job.lanes.values()):
        return NodeError(
            f"{job.part.name} did not arrive: the node's disk takes no more bytes, {waited}"
        )
    return _error(job, roster, f"; {waited}", retryable=True, remedy="try again, or elsewhere")


def absence(job: Job, final: bool) -> HeadwayError:
    """Every source says that there is no such object."""
    return _error(job, None, "", retryable=not final, remedy="")


def failure(job: Job, roster: Roster) -> HeadwayError:
    """Every source has refused."""
    return _error(job, roster, "", retryable=None, remedy="")


def _error(
    job: Job, roster: Roster | None, tail: str, *, retryable: bool | None, remedy: str
) -> HeadwayError:
    told = [(source.url, source.fault or _doing(job, source)) for source in job.sources]
    told += list(roster.faults()) if roster is not None else []
    faults = [fault for _, fault in told if fault is not None]
    said = "; ".join(f"{shown(url)}: {_words(fault)}" for url, fault in told)
    if job.part.seconds > 5 and job.part.written / job.part.seconds < 5e6:
        rate = shown_rate(job.part.written / job.part.seconds)
        tail += f"; the node's disk is slow ({rate})"
    message = f"{job.part.name} did not arrive: {said or 'no source answered'}{tail}"
    remedy = next((fault.remedy for fault in faults if fault.remedy), remedy)
    error: HeadwayError
    if faults and all(fault.node for fault in faults):
        error = NodeError(message, remedy=remedy)
    else:
        if retryable is None:
            retryable = any(fault.retryable for fault in faults) or not faults
        error = TransferError(message, retryable=retryable, remedy=remedy)
    error.brief = _brief([(authority(url), fault) for url, fault in told if fault is not None])
    return error


def _brief(faults: list[tuple[str, Fault]]) -> str:
    """What the first source said, and how many more failed; for a line that must be short."""
    if not faults:
        return "no source answered"
    host, fault = faults[0]
    others = len({other for other, _ in faults} - {host})
    more = f", and {others} more source{'s' * (others > 1)} failed" if others else ""
    return f"{fault.words} from {host}{more}"


def _doing(job: Job, source: Source) -> Fault | None:
    """What a source that has not failed yet is being waited for."""
    for lane in job.lanes.values():
        if lane.source is source:
            silent = time.monotonic() - lane.last
            return Fault(f"it has said nothing for {silent:.0f} s", phase=lane.stream.phase)
    return None


def _words(fault: Fault | None) -> str:
    if fault is None:
        return "no fault of its own"
    hope = "may pass" if fault.retryable else "will not pass"
    return f"{fault.words} ({fault.phase}, {hope})" if fault.phase else fault.words
