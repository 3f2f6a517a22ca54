"""An event: what happened to one job, as one entry of an event log says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum, IntEnum

from headway.events.format import (
    AD_SITE,
    CODES,
    COMMON_FILES,
    COMMON_MAPPED,
    EVICTED_CODES,
    EVICTION_REASON,
    FIRST_LINE_IS_REASON,
    MEASURED_SIZE,
    NO_REASON,
    NORMAL_END,
    RECEIVED,
    REQUEUED,
    RUN_USAGE,
    SENT,
    SIGNAL_END,
    SITE,
    SLOT,
    TABLE,
    TABLE_COLUMNS,
    TO_HOST,
    TRANSFER_TEXTS,
    CommonStage,
    EventType,
    Line,
    Resource,
    Transfer,
    Usage,
    Value,
)
from headway.node.classad import parse_lines
from headway.node.errors import MEANING, Exit

# What a job can be doing, how it can end, and the words for it.


class Status(str, Enum):
    """What a job is doing, as far as the log says."""

    IDLE = "idle"
    TRANSFERRING_IN = "transferring-in"
    RUNNING = "running"
    TRANSFERRING_OUT = "transferring-out"
    SUSPENDED = "suspended"
    DISCONNECTED = "disconnected"
    DELIVERING = "delivering"  # its outputs wait for a courier, or are on their way home
    HELD = "held"
    COMPLETED = "completed"
    REMOVED = "removed"


class Phase(str, Enum):
    """What a job spends its time on, in the order of an attempt."""

    QUEUED = "queued"
    PREFETCH = "prefetch"  # on a transfer slot: its inputs come to a node before the job does
    WAITING = "waiting"
    TRANSFER_IN = "transfer-in"
    STARTING = "starting"
    COMPUTE = "compute"
    CHECKPOINT = "checkpoint"
    TRANSFER_OUT = "transfer-out"
    STORED = "stored"  # in a node's store, on no slot
    DELIVERY = "delivery"  # on a transfer slot
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
    """How a command ended, in the agent's own words if it `said` any."""
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


_TRANSFERS = {text: transfer for transfer, text in TRANSFER_TEXTS.items()}
_COMMON = {f"{COMMON_FILES.texts[0]}{stage.value}": stage for stage in CommonStage}
_MAPPED = f"{COMMON_MAPPED} = "
_REQUEUED = REQUEUED.texts[0].strip()
_EVICTED = EVICTED_CODES.pattern()
_CODES = CODES.pattern(end=r"\s*\Z")
_NORMAL, _SIGNAL = NORMAL_END.pattern(), SIGNAL_END.pattern()
_USAGE, _SENT, _RECEIVED = (line.pattern() for line in (RUN_USAGE, SENT, RECEIVED))
_SLOT = SLOT.texts[0].rstrip()
_SIZE = MEASURED_SIZE.pattern()
# DAGMan's name for a job, as HTCondor writes it today, and as it did before 25
_NODE = re.compile(r'\s*(?:\[.*?DAGNodeName = "|DAG Node: )([\w+-]+)(?:"|\s*\Z)', re.ASCII)
_PAIR = re.compile(r"(job|courier)-([0-9a-f]{8})-([0-9]{1,9})\Z", re.ASCII)
_WHOLE = re.compile(r"\d{1,18}\Z", re.ASCII)
_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class Event:
    """One entry of an event log; what its number does not have reads as None or empty.

    `time` is in seconds since the epoch. HTCondor writes local time by default, so a header without
    a zone is read in this machine's zone. `text` is the rest of the header line, `body` the
    lines below it as they stand in the log. Both are the log's words: pass them through
    `inert` before they reach a terminal.
    """

    number: int
    cluster: int
    proc: int
    subproc: int
    time: float
    text: str = ""
    body: tuple[str, ...] = ()

    @property
    def when(self) -> datetime:
        """The time with its zone, in UTC."""
        return datetime.fromtimestamp(self.time, timezone.utc)

    @property
    def return_value(self) -> int | None:
        """What the command returned: 005, and 004 of a job that ended and was requeued."""
        return self._ending(_NORMAL)

    @property
    def signal(self) -> int | None:
        """The signal that killed the command: 005, and 004 of a job that was requeued."""
        return self._ending(_SIGNAL)

    def _ending(self, pattern: re.Pattern[str]) -> int | None:
        if self.number == EventType.TERMINATED:
            at = 0
        elif self.requeued:
            at = 5
        else:
            return None
        match = pattern.match(self.body[at]) if len(self.body) > at else None
        return int(match[1]) if match else None

    @property
    def requeued(self) -> bool:
        """Whether a 004 says that the command ended and the job's policy wants another try."""
        return (
            self.number == EventType.EVICTED
            and bool(self.body)
            and self.body[0].strip().startswith(_REQUEUED)
        )

    @property
    def codes(self) -> tuple[int, int] | None:
        """Code and subcode of a 004, 012 or 021 event."""
        if self.number == EventType.EVICTED:
            match = _EVICTED.match(self.text)
        elif self.number in (EventType.HELD, EventType.REMOTE_ERROR) and len(self.body) > 1:
            # The reason comes first: one that reads "Code 1 Subcode 2" is still a reason.
            match = _CODES.match(self.body[-1])
        else:
            match = None
        return (int(match[1]), int(match[2])) if match else None

    @property
    def code(self) -> int | None:
        """The code of a 004, 012 or 021 event."""
        return self.codes[0] if self.codes else None

    @property
    def subcode(self) -> int | None:
        """The subcode of a 004, 012 or 021 event."""
        return self.codes[1] if self.codes else None

    @property
    def reason(self) -> str:
        """Why, in the log's words; empty where the event does not say."""
        number, body = self.number, self.body
        if number == EventType.EVICTED:
            return self._eviction_reason()
        if number in (EventType.HELD, EventType.REMOTE_ERROR):
            lines = body[:-1] if self.codes else body
            reason = "|".join(line.strip() for line in lines)
            return "" if reason == NO_REASON else reason
        return body[0].strip() if body and number in FIRST_LINE_IS_REASON else ""

    def _eviction_reason(self) -> str:
        if not self.requeued:
            return self._after(EVICTION_REASON)
        at = 7 if self.signal is not None else 6
        line = self.body[at].strip() if len(self.body) > at else ""
        return "" if line.startswith(TABLE.strip()) else line.removeprefix("Reason: ")

    @property
    def attributes(self) -> dict[str, Value]:
        """The attributes that a 001 or 028 event brings."""
        if self.number in (EventType.EXECUTE, EventType.AD_INFORMATION):
            return parse_lines(line for line in self.body if not line.startswith(_SLOT))
        return {}

    @property
    def host(self) -> str:
        """The address: of the access point (000), of the node (001, 040)."""
        if self.number in (EventType.SUBMIT, EventType.EXECUTE):
            return self.text.partition("host: ")[2].strip()
        return self._after(TO_HOST)

    @property
    def slot(self) -> str:
        """The name of the slot: 001, 021, and 028 where the job ad knows it."""
        if self.number == EventType.EXECUTE:
            return self._after(SLOT).strip('"')
        if self.number == EventType.REMOTE_ERROR:
            return self.text.partition(" on ")[2].rstrip(":").strip()
        if self.number == EventType.AD_INFORMATION:
            found = self.attributes
            return str(found.get("RemoteHost", found.get("SlotName", "")))
        return ""

    @property
    def site(self) -> str:
        """`GLIDEIN_ResourceName` where a 001 or 028 event names it."""
        if self.number == EventType.EXECUTE:
            value = self.attributes.get(SITE)
        elif self.number == EventType.AD_INFORMATION:
            value = self.attributes.get(AD_SITE)
        else:
            value = None
        return value if type(value) is str else ""

    @property
    def node(self) -> str:
        """DAGMan's name for the job: 000 of a job that DAGMan submitted."""
        if self.number == EventType.SUBMIT:
            for line in self.body:
                if match := _NODE.match(line):
                    return match[1]
        return ""

    @property
    def transfer(self) -> Transfer | None:
        """Direction and stage of a 040 event."""
        return _TRANSFERS.get(self.text) if self.number == EventType.FILE_TRANSFER else None

    @property
    def common(self) -> CommonStage | None:
        """The stage of a 047 event: HTCondor brings files to a node for several jobs."""
        return _COMMON.get(self.text) if self.number == EventType.COMMON_FILES else None

    @property
    def agent(self) -> dict[str, str] | None:
        """The keys and values of an 008 event that begins with `headway`, else None.

        Anybody in the job can write such a line: `events.state` knows which ones to trust.
        """
        words = self.text.split()
        if self.number != EventType.GENERIC or not words or words[0] != "headway":
            return None
        found: dict[str, str] = {}
        for word in words[1:]:
            key, equals, value = word.partition("=")
            if equals and key:
                found.setdefault(key, _percent_decoded(value))
        return found

    @property
    def usage(self) -> Usage | None:
        """Processor seconds of this attempt: 004 and 005."""
        match = next(self._matches(_USAGE), None)
        if not match:
            return None
        n = [int(group) for group in match.groups()]
        user, system = (((n[i] * 24 + n[i + 1]) * 60 + n[i + 2]) * 60 + n[i + 3] for i in (0, 4))
        return Usage(user, system)

    @property
    def sent(self) -> int | None:
        """Bytes that left the node with this attempt: 004 and 005."""
        return self._bytes(_SENT)

    @property
    def received(self) -> int | None:
        """Bytes that reached the node with this attempt: 004 and 005."""
        return self._bytes(_RECEIVED)

    @property
    def sizes(self) -> dict[str, int]:
        """What a 006 event measured: ImageSize and ResidentSetSize (KB), MemoryUsage (MB)."""
        if self.number != EventType.IMAGE_SIZE:
            return {}
        total = _WHOLE.match(self.text.rpartition(" ")[2])
        sizes = {"ImageSize": int(total[0])} if total else {}
        return sizes | {match[2]: int(match[1]) for match in self._matches(_SIZE)}

    @property
    def resources(self) -> dict[str, Resource]:
        """The resource table of a 004 or 005 event, by name without unit."""
        lines = iter(self.body)
        header = next((line for line in lines if line.startswith(TABLE)), None)
        return dict(_table(header, lines)) if header else {}

    def _after(self, line: Line) -> str:
        prefix = line.texts[0]
        return next((x[len(prefix) :].strip() for x in self.body if x.startswith(prefix)), "")

    def _matches(self, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
        return (match for match in map(pattern.match, self.body) if match)

    def _bytes(self, pattern: re.Pattern[str]) -> int | None:
        if self.number not in (EventType.EVICTED, EventType.TERMINATED):
            return None
        return next((int(match[1]) for match in self._matches(pattern)), None)


def pair_named(node: str) -> tuple[str, str, int] | None:
    """What the name of a node of a DAG says, if Headway gave it to a job or to its courier.

    Which of the two it is (`job`, `courier`), the beginning of the run's id, and the number of the
    job.
    """
    match = _PAIR.match(node)
    return (match[1], match[2], int(match[3])) if match else None


def _percent_decoded(value: str) -> str:
    if "%" not in value:
        return value
    raw = _PERCENT.sub(lambda m: bytes((int(m[1], 16),)), value.encode("utf-8", "replace"))
    return raw.decode("utf-8", "replace")


def _table(header: str, lines: Iterator[str]) -> Iterator[tuple[str, Resource]]:
    # Cells may be empty, so only the columns of the header tell which number is which.
    colon = header.find(":")
    *titles, last = TABLE_COLUMNS
    ends = [header.find(title) + len(title) for title in titles]
    assigned_at = header.find(last)
    for line in lines:
        name = line[:colon].strip().partition(" ")[0]
        if line[colon : colon + 1] != ":" or not name:
            return
        starts = [colon + 1, *ends[:2]]
        cells = [line[start:end].strip() for start, end in zip(starts, ends, strict=True)]
        assigned = line[assigned_at:].strip().strip('"') if assigned_at > 0 else ""
        names = tuple(part.strip() for part in assigned.split(",") if part.strip())
        usage, request, allocated = map(_number, cells)
        yield name, Resource(usage, request, allocated, names)


def _number(cell: str) -> float | None:
    try:
        return int(cell)
    except ValueError:
        pass
    try:
        return float(cell)
    except ValueError:
        return None


# The kind of an event: what it means for the life of its job, whatever words it came in.


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
    COMMON_STARTED = 32  # files for all jobs of a run on a node; about no job of its own
    COMMON_FINISHED = 33
    COMMON_MAPPED = 34  # a 028 of a job that has been given such files
    DONE_LATER = 35  # the agent is done, and a courier will bring the outputs
    DELIVER = 36  # the agent is the courier
    LOST = 37  # the courier did not find the outputs: they will be computed again
    PREFETCH = 38  # the agent only brings the job's inputs to a node, and the job goes on waiting


#: Kinds that only the agent's own lines have.
AGENT_KINDS = frozenset(
    {
        *(Kind.CHECK, Kind.STAGE_IN, Kind.RUN, Kind.STAGE_OUT),
        *(Kind.DONE, Kind.DONE_CHECKPOINT, Kind.DONE_LATER, Kind.DELIVER, Kind.LOST),
        Kind.PREFETCH,
    }
)

#: Those that only an agent has that computes, and none that is a courier.
COMPUTING_KINDS = AGENT_KINDS - {Kind.DONE, Kind.DELIVER, Kind.LOST, Kind.PREFETCH}

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

BY_TRANSFER = {
    transfer: Kind[f"{transfer.direction.name}_{transfer.stage.name}"]
    for transfer in TRANSFER_TEXTS
}

BY_COMMON_STAGE = {
    CommonStage.STARTED: Kind.COMMON_STARTED,
    CommonStage.FINISHED: Kind.COMMON_FINISHED,
}

#: Codes of an eviction because HTCondor's own transfer failed.
TRANSFER_CODES = frozenset({12, 13})

_PHASES = {
    "check": Kind.CHECK,
    "stage-in": Kind.STAGE_IN,
    "run": Kind.RUN,
    "stage-out": Kind.STAGE_OUT,
    "deliver": Kind.DELIVER,
    "prefetch": Kind.PREFETCH,
}


def agent_kind(line: dict[str, str]) -> Kind:
    """The kind of an agent's 008 line; the caller checks that it is the agent's own."""
    phase = line.get("phase", "")
    if phase == "done":
        if line.get("exit") == str(int(Exit.CHECKPOINT)):
            return Kind.DONE_CHECKPOINT
        return Kind.DONE_LATER if line.get("sandbox") else Kind.DONE
    if phase == "deliver" and line.get("state") == "lost":
        return Kind.LOST
    return _PHASES.get(phase, Kind.ALIVE) if line.get("state") == "begin" else Kind.ALIVE


def kind_of(event: Event) -> Kind:
    """What the event says about where its job is."""
    number = event.number
    if number == EventType.FILE_TRANSFER:
        transfer = event.transfer
        return BY_TRANSFER[transfer] if transfer else Kind.OTHER
    if number == EventType.COMMON_FILES:
        stage = event.common
        return BY_COMMON_STAGE.get(stage, Kind.OTHER) if stage else Kind.OTHER
    if number == EventType.AD_INFORMATION:
        mapped = any(line.startswith(_MAPPED) for line in event.body)
        return Kind.COMMON_MAPPED if mapped else Kind.OTHER
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
