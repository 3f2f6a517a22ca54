"""The kind of an event: what it means for the life of its job, whatever words it came in."""

from __future__ import annotations

from enum import IntEnum

from headway.events.event import Direction, Event, EventType, Stage
from headway.node.exits import Exit


class Kind(IntEnum):
    """What an event says about where its job is."""

    OTHER = 0  # nothing
    SUBMITTED = 1
    INPUT_QUEUED = 2
    INPUT_STARTED = 3
    INPUT_FINISHED = 4
    OUTPUT_QUEUED = 5
    OUTPUT_STARTED = 6
    OUTPUT_FINISHED = 7
    EXECUTING = 8
    ALIVE = 9  # the command goes on: a 006, or an agent's line within a phase
    CHECK = 10  # the agent's phases begin
    STAGE_IN = 11
    RUN = 12
    STAGE_OUT = 13
    DONE = 14
    DONE_CHECKPOINT = 15  # the agent is done with a segment and will be started again
    SUSPENDED = 16
    UNSUSPENDED = 17
    DISCONNECTED = 18
    RECONNECTED = 19
    RECONNECT_FAILED = 20
    REMOTE_ERROR = 21
    SHADOW_EXCEPTION = 22
    EVICTED = 23
    REQUEUED = 24  # the command ended, and the job's policy wants another try
    SUCCEEDED = 25  # the command ended with 0
    FAILED = 26  # with anything else
    HELD = 27
    RELEASED = 28
    REMOVED = 29
    SKIPPED = 30  # DAGMan found the outputs newer than the inputs
    TRANSFER_FAILED = 31  # evicted because HTCondor's own transfer failed: no output was saved


#: Kinds that only the agent's own lines have.
AGENT_KINDS = frozenset(
    {Kind.CHECK, Kind.STAGE_IN, Kind.RUN, Kind.STAGE_OUT, Kind.DONE, Kind.DONE_CHECKPOINT}
)

#: The kind of each event number that has only one.
BY_NUMBER: dict[int, Kind] = {
    EventType.SUBMIT: Kind.SUBMITTED,
    EventType.EXECUTE: Kind.EXECUTING,
    EventType.IMAGE_SIZE: Kind.ALIVE,
    EventType.SHADOW_EXCEPTION: Kind.SHADOW_EXCEPTION,
    EventType.ABORTED: Kind.REMOVED,
    EventType.SUSPENDED: Kind.SUSPENDED,
    EventType.UNSUSPENDED: Kind.UNSUSPENDED,
    EventType.HELD: Kind.HELD,
    EventType.RELEASED: Kind.RELEASED,
    EventType.REMOTE_ERROR: Kind.REMOTE_ERROR,
    EventType.DISCONNECTED: Kind.DISCONNECTED,
    EventType.RECONNECTED: Kind.RECONNECTED,
    EventType.RECONNECT_FAILED: Kind.RECONNECT_FAILED,
    EventType.DATAFLOW_SKIPPED: Kind.SKIPPED,
}

BY_TRANSFER: dict[tuple[Direction, Stage], Kind] = {
    (Direction.INPUT, Stage.QUEUED): Kind.INPUT_QUEUED,
    (Direction.INPUT, Stage.STARTED): Kind.INPUT_STARTED,
    (Direction.INPUT, Stage.FINISHED): Kind.INPUT_FINISHED,
    (Direction.OUTPUT, Stage.QUEUED): Kind.OUTPUT_QUEUED,
    (Direction.OUTPUT, Stage.STARTED): Kind.OUTPUT_STARTED,
    (Direction.OUTPUT, Stage.FINISHED): Kind.OUTPUT_FINISHED,
}

#: Codes of an eviction because HTCondor's own transfer failed.
TRANSFER_CODES = frozenset({12, 13})

_PHASES = {
    "check": Kind.CHECK,
    "stage-in": Kind.STAGE_IN,
    "run": Kind.RUN,
    "stage-out": Kind.STAGE_OUT,
}


def agent_kind(line: dict[str, str]) -> Kind:
    """The kind of an agent's 008 line; whether it is the agent's own is for the fold to know."""
    phase = line.get("phase", "")
    if phase == "done":
        saved = line.get("exit") == str(int(Exit.CHECKPOINT))
        return Kind.DONE_CHECKPOINT if saved else Kind.DONE
    return _PHASES.get(phase, Kind.ALIVE) if line.get("state") == "begin" else Kind.ALIVE


def kind_of(event: Event) -> Kind:
    """What the event says about where its job is."""
    number = event.number
    if number == EventType.FILE_TRANSFER:
        transfer = event.transfer
        return BY_TRANSFER[transfer] if transfer else Kind.OTHER
    if number == EventType.TERMINATED:
        return Kind.SUCCEEDED if event.return_value == 0 else Kind.FAILED
    if number == EventType.EVICTED:
        if event.requeued:
            return Kind.REQUEUED
        return Kind.TRANSFER_FAILED if event.code in TRANSFER_CODES else Kind.EVICTED
    if number == EventType.GENERIC:
        line = event.agent
        return agent_kind(line) if line is not None and line.get("nonce") else Kind.OTHER
    return BY_NUMBER.get(number, Kind.OTHER)
