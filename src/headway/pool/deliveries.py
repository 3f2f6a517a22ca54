"""Deliveries: outputs that wait in nodes' stores, or are on their way home, and what for.

What waits where is in the run folder and its event log. Why it waits is known to the queue and to
the collector, if they can be asked.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any

from headway.events import JobState, Outcome, Status
from headway.node.host import SINCE, TRANSFER_SLOT
from headway.node.store.sandboxes import SandboxError
from headway.pool.arrivals import ticket_of
from headway.pool.folder import RunFolder
from headway.pool.policy import backoff, releases
from headway.spec import Job, format_duration

_HELD, _IDLE = 5, 1
_LATE = 600.0  # seconds after which a startd should have told the collector something
_SOON = 120.0  # seconds in which HTCondor looks at a courier, by its default intervals
_BY_ITSELF = re.compile(r"; released by itself after \d+ s\Z")
_PLAIN_START = "computed; "
#: What is asked of the queue, and of the collector.
QUEUE_NAMES = ("JobStatus", "QDate", "HoldReason", "EnteredCurrentStatus", SINCE)
SLOT_NAMES = ("Name", "State", "LastHeardFrom", TRANSFER_SLOT)


class DeliveryLines:
    """The outputs that wait in the stores of nodes, and how fast earlier ones were brought home."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[int, float]] = {}  # by node: since when each job's wait
        self._node: dict[int, str] = {}  # of a job whose outputs wait
        self._brought: dict[str, dict[int, tuple[int, float]]] = {}  # by node: bytes and seconds

    def take(self, key: int, state: JobState) -> None:
        """Take in a job's new state."""
        if not state.sandbox:
            return
        node = state.sandbox_at if is_in_line(state) else ""
        before = self._node.pop(key, "")
        if before and before != node:
            self._waiting[before].pop(key, None)
        if node:
            self._node[key] = node
            self._waiting.setdefault(node, {})[key] = state.sandbox_since or 0.0
        seconds = delivery_seconds(state)
        if seconds and state.sandbox_bytes:
            brought = self._brought.setdefault(state.sandbox_at, {})
            brought[key] = state.sandbox_bytes, seconds

    def place(self, state: JobState) -> int:
        """The place of a job's outputs among those that wait at the same node; 0: none."""
        if not is_in_line(state):
            return 0
        own = state.sandbox_since or 0.0, state.proc
        waiting = self._waiting.get(state.sandbox_at, {})
        return 1 + sum((since, key) < own for key, since in waiting.items())

    def rate(self, node: str) -> float | None:
        """The bytes a second at which a courier has brought outputs from this node, if any has."""
        brought = self._brought.get(node)
        if not brought:
            return None
        return sum(size for size, _ in brought.values()) / sum(s for _, s in brought.values())


def is_in_line(state: JobState) -> bool:
    """Whether a job's outputs wait for a courier, and for nothing else."""
    return state.stored and state.courier_since is None and state.status is not Status.HELD


def delivery_seconds(state: JobState) -> float | None:
    """How long the courier took that brought a job's outputs home; None: too short, or unknown."""
    if state.delivered is None or state.courier_since is None:
        return None
    seconds = state.delivered - state.courier_since
    return seconds if seconds >= 1.0 else None  # most logs have whole seconds


def upload_rate(state: JobState) -> float | None:
    """The bytes a second at which a courier uploads, as far as its agent tells."""
    since, at = state.phase_since, state.progress_at
    if state.phase != "deliver" or not state.progress_bytes or since is None or at is None:
        return None
    return state.progress_bytes / (at - since) if at > since else None


class Stage(str, Enum):
    """How far a delivery is; those that need a person first."""

    FAILED = "failed"  # there is no courier any more
    DAMAGED = "damaged"  # what came home is not what its ticket says
    HELD = "held"
    WAITS = "waits"
    COMING = "coming"  # a courier is at work
    AGAIN = "again"  # the job computes its outputs again


@dataclass(frozen=True)
class Delivery:
    """The outputs of one job that are not home yet.

    Attributes:
        run: The label of the run.
        job: The number of the job in it.
        stage: How far they are.
        why: What they wait for, or what is wrong, in words.
        bytes: How much it is.
        files: How many files.
        node: The name of the startd whose store has them.
        site: Its site.
        since: When they were left there.
        kept_until: How long the store keeps them at least, by the clock of the node.
        deadline: When the job is no courier any more, and computes them again.
        courier_since: Since when a courier is at work.
        place: The place among those of the run that wait at the same node; 0: none.
        rate: The bytes a second of an upload that goes on.
        rate_before: The bytes a second of earlier couriers of the run from the same node.
        released: When a held courier is released by itself; None: not by itself.
        htcondor_id: The id of the courier in HTCondor's queue.
    """

    run: str
    job: int
    stage: Stage
    why: str = ""
    bytes: int | None = None
    files: int | None = None
    node: str = ""
    site: str = ""
    since: float | None = None
    kept_until: float | None = None
    deadline: float | None = None
    courier_since: float | None = None
    place: int = 0
    rate: float | None = None
    rate_before: float | None = None
    released: float | None = None
    htcondor_id: str = ""

    @property
    def name(self) -> str:
        return f"{self.run}.{self.job}"

    @property
    def where(self) -> str:
        """The site, or the node where no site is known."""
        return self.site or self.node or "a node"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "stage": self.stage.value, "place": self.place or None}


@dataclass(frozen=True)
class PoolFacts:
    """What the pool knows of a run's deliveries.

    Attributes:
        jobs: The ads of the run's jobs in the queue, by number.
        dagman: The ad of DAGMan, if the run has one that is in the queue.
        slots: The ads of the slots of each startd that was asked for; None: it is not known.
    """

    jobs: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    dagman: Mapping[str, Any] | None = None
    slots: Mapping[str, Sequence[Mapping[str, Any]]] | None = None


def find_deliveries(
    folder: RunFolder, states: Mapping[int, JobState], damaged: Mapping[int, str], now: float
) -> list[Delivery]:
    """The outputs of a run that were left in stores and are not home, by what is on this machine.

    Args:
        folder: The run folder.
        states: The jobs, as the event log tells.
        damaged: What is wrong with outputs that have come home, by job.
        now: The time.

    Returns:
        A delivery for each job that has one.
    """
    lines = DeliveryLines()
    for number, state in states.items():
        lines.take(number, state)
    return [
        _delivery(folder, state, stage, lines, damaged.get(number, ""), now)
        for number, state in states.items()
        if (stage := _stage(state, number in damaged)) is not None
    ]


def _stage(state: JobState, damaged: bool) -> Stage | None:
    if state.outcome is Outcome.SUCCESS:
        return Stage.DAMAGED if damaged else None
    if state.undelivered:
        return Stage.FAILED
    if not state.stored:
        return Stage.AGAIN if state.sandbox and not state.terminal else None
    if state.status is Status.HELD:
        return Stage.HELD
    return Stage.WAITS if state.courier_since is None else Stage.COMING


def _delivery(
    folder: RunFolder, state: JobState, stage: Stage, lines: DeliveryLines, fault: str, now: float
) -> Delivery:
    job, files, until = folder.job, None, None
    try:
        ticket = ticket_of(folder.job_folder(state.proc))
        if ticket is not None and ticket.sandbox == state.sandbox:
            files, until = len(ticket.files), ticket.until
    except SandboxError as error:
        fault = fault or error.message
    since = state.sandbox_since
    last = "" if state.why.startswith(_PLAIN_START) else state.why
    words = {
        Stage.FAILED: last.removeprefix("failed: "),
        Stage.DAMAGED: fault,
        Stage.HELD: _held_words(state),
        Stage.AGAIN: last,
        Stage.WAITS: last,
    }
    stored = stage in (Stage.WAITS, Stage.HELD, Stage.COMING)
    return Delivery(
        folder.label,
        state.proc,
        stage,
        words.get(stage, ""),
        state.sandbox_bytes,
        files,
        state.sandbox_at,
        state.sandbox_site,
        since,
        until,
        since + job.deliver_within if stored and since is not None else None,
        state.courier_since if stage is Stage.COMING else None,
        lines.place(state),
        upload_rate(state) if stored else None,
        lines.rate(state.sandbox_at) if stored else None,
        _release(state, job) if stage is Stage.HELD else None,
        state.htcondor_id,
    )


def _held_words(state: JobState) -> str:
    """Why a courier is held."""
    return _BY_ITSELF.sub("", state.hold_reason).removeprefix("Headway: ") or "no reason given"


def _release(state: JobState, job: Job) -> float | None:
    """When a held courier is released by itself; None: never."""
    holds, starts = state.queue_counts
    codes = state.hold_code or 0, state.hold_subcode or 0
    if state.since is None or not releases(*codes, holds=holds, starts=starts, retries=job.retries):
        return None
    return state.since + backoff(holds, job.retries)


def explained(one: Delivery, facts: PoolFacts, now: float) -> Delivery:
    """A delivery with what the pool knows of it: why it waits."""
    ad = facts.jobs.get(one.job)
    if one.stage not in (Stage.WAITS, Stage.HELD, Stage.COMING):
        return one
    if ad is None:
        return _without_courier(one, facts.dagman)
    since = ad.get(SINCE)
    if isinstance(since, int) and one.deadline is not None and one.since is not None:
        one = replace(one, deadline=since + one.deadline - one.since)
    elif one.stage is Stage.WAITS and since is None:
        return replace(one, stage=Stage.AGAIN, why="it waits for a slot, to compute them again")
    if one.stage is not Stage.WAITS or ad.get("JobStatus") != _IDLE:
        return one
    if one.deadline is not None and now >= one.deadline:
        return replace(one, stage=Stage.AGAIN, why="too late for a courier; it waits for a slot")
    if facts.slots is None:
        return one
    waited = now - float(ad.get("EnteredCurrentStatus") or ad.get("QDate") or now)
    reason = slot_words(one, facts.slots.get(one.node, ()), waited, now)
    return replace(one, why="; ".join(filter(None, (reason, one.why))))


def _without_courier(one: Delivery, dagman: Mapping[str, Any] | None) -> Delivery:
    """A delivery whose job is not in the queue."""
    if dagman is None:
        why = "no courier is in the queue, and nobody sends one"
        return replace(one, stage=Stage.FAILED, why=why, place=0)
    if dagman.get("JobStatus") == _HELD:
        return replace(one, why=f"DAGMan is held: {dagman.get('HoldReason')}", place=0)
    return replace(one, why="DAGMan is about to send its courier")


def slot_words(one: Delivery, slots: Sequence[Mapping[str, Any]], waited: float, now: float) -> str:
    """Why no transfer slot of a node has taken a courier that has waited for so long."""
    where, transfer = one.where, [slot for slot in slots if slot.get(TRANSFER_SLOT) is True]
    if not slots:
        return f"{where} is not in the pool now"
    heard = max(float(slot.get("LastHeardFrom") or 0.0) for slot in slots)
    if now - heard > _LATE:
        return f"{where} was last heard of {format_duration(int(now - heard))} ago"
    if not transfer:
        return f"{where} has no transfer slot now"
    free = sum(slot.get("State") == "Unclaimed" for slot in transfer)
    closed = sum(slot.get("State") in ("Owner", "Drained") for slot in transfer)
    if not free and closed == len(transfer):
        return f"{where} takes no couriers now: its START says no"
    if not free:
        number = len(transfer) - closed
        taken = "the transfer slot" if number == 1 else f"all {number} transfer slots"
        return f"{taken} of {where} {'is' if number == 1 else 'are'} taken"
    if waited <= _SOON:
        return f"a transfer slot of {where} is free"
    asked = f"`condor_q -better-analyze {one.htcondor_id}`"
    return f"a transfer slot of {where} is free and has not taken it: {asked} says more"


def in_order(found: Collection[Delivery]) -> list[Delivery]:
    """Deliveries, those that need a person first, then the longest wait."""
    order = list(Stage)
    return sorted(found, key=lambda each: (order.index(each.stage), each.since or 0.0, each.name))


def nodes_of(found: Collection[Delivery]) -> Iterator[str]:
    """The startds for which outputs wait."""
    yield from sorted({each.node for each in found if each.stage is Stage.WAITS and each.node})
