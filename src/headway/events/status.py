"""What a job can be doing, how it can end, and the words for it."""

from __future__ import annotations

from enum import Enum

from headway.events.event import Event
from headway.node.exits import MEANING, Exit


class Status(str, Enum):
    """What a job is doing, as far as the log says."""

    IDLE = "idle"
    TRANSFERRING_IN = "transferring-in"
    RUNNING = "running"
    TRANSFERRING_OUT = "transferring-out"
    SUSPENDED = "suspended"
    DISCONNECTED = "disconnected"
    HELD = "held"
    COMPLETED = "completed"
    REMOVED = "removed"


class Phase(str, Enum):
    """What a job spends its time with; the order is that of an attempt."""

    QUEUED = "queued"
    WAITING = "waiting"
    TRANSFER_IN = "transfer-in"
    STARTING = "starting"
    COMPUTE = "compute"
    CHECKPOINT = "checkpoint"
    TRANSFER_OUT = "transfer-out"
    DISCONNECTED = "disconnected"
    SUSPENDED = "suspended"
    HELD = "held"


class Outcome(str, Enum):
    """How a job ended."""

    SUCCESS = "success"
    FAILURE = "failure"
    REMOVED = "removed"


TERMINAL = frozenset({Status.COMPLETED, Status.REMOVED})
PAUSED = frozenset({Status.SUSPENDED, Status.DISCONNECTED})


def failure_class(return_value: int | None) -> Exit | None:
    """The failure that the agent means by this exit code; None for 0 and for other programs'."""
    return Exit(return_value) if return_value and return_value in MEANING else None


def ending_words(return_value: int | None, signal: int | None, said: str = "") -> str:
    """How a command ended; what the agent `said` of it is better than what its code means."""
    if return_value == 0:
        return "succeeded"
    if signal is not None:
        return f"failed: killed by signal {signal}"
    if return_value is None:
        return "failed: ended, but the log does not say how"
    if said:  # with the command's own exit code in it, which is the one that counts
        return f"failed: {said}"
    failure = failure_class(return_value)
    if failure:
        return f"failed: {MEANING[failure]} (Headway's own exit code {return_value})"
    return f"failed: exit code {return_value}"


def reason_words(event: Event) -> str:
    """The event's reason with its codes."""
    reason = event.reason or "no reason given"
    return f"{reason} (code {event.code}, subcode {event.subcode})" if event.codes else reason
