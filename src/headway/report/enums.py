"""The words of the report: phases, verdicts, causes, outcomes, and how people are told of them."""

from __future__ import annotations

from enum import Enum

from headway.events.event import Phase

__all__ = [
    "CAUSE_WORDS",
    "EVICTIONS",
    "OFF_SLOT",
    "OUTCOME_WORDS",
    "PHASE_WORDS",
    "SLOT_PHASES",
    "Cause",
    "Delivery",
    "JobOutcome",
    "Phase",
    "Worth",
]

#: Phases in which the job holds no slot, or only a transfer slot, which takes no other job's place.
OFF_SLOT = (Phase.QUEUED, Phase.PREFETCH, Phase.STORED, Phase.DELIVERY, Phase.HELD)
#: Phases in which the job holds a slot.
SLOT_PHASES = tuple(p for p in Phase if p not in OFF_SLOT)


def column_of(phase: Phase) -> str:
    """The column of attempts that holds the seconds of a phase."""
    return f"{phase.value.replace('-', '_')}_s"


PHASE_WORDS = {
    Phase.QUEUED: "queued",
    Phase.PREFETCH: "bringing inputs ahead",
    Phase.WAITING: "waiting for a transfer slot",
    Phase.TRANSFER_IN: "transferring in",
    Phase.STARTING: "starting",
    Phase.COMPUTE: "computing",
    Phase.CHECKPOINT: "checkpointing",
    Phase.TRANSFER_OUT: "transferring out",
    Phase.STORED: "waiting for a courier",
    Phase.DELIVERY: "being delivered",
    Phase.DISCONNECTED: "disconnected",
    Phase.SUSPENDED: "suspended",
    Phase.HELD: "held",
}


class Worth(str, Enum):
    """What a piece of time was worth: the column `verdict` of pieces."""

    NONE = "none"  # no slot was held: queued or held
    GOOD = "good"  # goodput: part of a verified result
    BAD = "bad"  # badput: has a cause
    OPEN = "open"  # not decided yet: the attempt, or the job, goes on


class Cause(str, Enum):
    """Why slot time was lost."""

    NONE = "none"
    TRANSFER_CUT = "transfer-cut"
    TRANSFER_FAILED = "transfer-failed"
    EVICTION = "eviction"
    REDONE = "redone"
    LOST_SANDBOX = "lost-sandbox"
    IDLE = "idle"
    DISCONNECT = "disconnect"
    HOLD = "hold"
    OVER_TIME = "over-time"
    FAILED = "failed"
    BAD_NODE = "bad-node"
    REMOVED = "removed"
    SUSPENDED = "suspended"
    SYSTEM = "system"
    UNKNOWN = "unknown"


CAUSE_WORDS = {
    Cause.NONE: "",
    Cause.TRANSFER_CUT: "transfer cut off or stalled",
    Cause.TRANSFER_FAILED: "transfer failed",
    Cause.EVICTION: "evicted",
    Cause.REDONE: "work redone since the last checkpoint",
    Cause.LOST_SANDBOX: "outputs lost on their way home",
    Cause.IDLE: "the slot computed nothing (no CPU time)",
    Cause.DISCONNECT: "node lost (disconnected)",
    Cause.HOLD: "held",
    Cause.OVER_TIME: "over the time limit",
    Cause.FAILED: "the command failed, or its result is missing",
    Cause.BAD_NODE: "node not fit for the job",
    Cause.REMOVED: "removed",
    Cause.SUSPENDED: "suspended by the machine's owner",
    Cause.SYSTEM: "HTCondor's own failure (shadow, schedd)",
    Cause.UNKNOWN: "the log lost the end",
}


#: Causes that count as an eviction.
EVICTIONS = (Cause.EVICTION, Cause.DISCONNECT)


class JobOutcome(str, Enum):
    """How a job stands at the end of the report."""

    SUCCESS = "success"  # ended with 0, and its declared outputs are there
    FAILED = "failed"  # ended otherwise, or a declared output is missing
    HELD = "held"  # still held
    REMOVED = "removed"
    UNFINISHED = "unfinished"  # queued or on a slot


class Delivery(str, Enum):
    """What became of outputs that were left in a node's store."""

    HOME = "home"
    WAITING = "waiting"  # in the store, or on their way
    LOST = "lost"  # the job computed them again
    FAILED = "failed"  # the job failed without them
    REMOVED = "removed"  # with the job


OUTCOME_WORDS = {
    JobOutcome.SUCCESS: "succeeded",
    JobOutcome.FAILED: "failed",
    JobOutcome.HELD: "held",
    JobOutcome.REMOVED: "removed",
    JobOutcome.UNFINISHED: "not finished",
}
