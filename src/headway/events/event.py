"""An event: what happened to one job, as one entry of an event log says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum, IntEnum
from typing import NamedTuple

from headway.events.classad import Value, parse_lines


class EventType(IntEnum):
    """The numbers that HTCondor gives to events; a log may hold others."""

    SUBMIT = 0
    EXECUTE = 1
    EXECUTABLE_ERROR = 2
    CHECKPOINTED = 3
    EVICTED = 4
    TERMINATED = 5
    IMAGE_SIZE = 6
    SHADOW_EXCEPTION = 7
    GENERIC = 8
    ABORTED = 9
    SUSPENDED = 10
    UNSUSPENDED = 11
    HELD = 12
    RELEASED = 13
    NODE_EXECUTE = 14
    NODE_TERMINATED = 15
    POST_SCRIPT_TERMINATED = 16
    REMOTE_ERROR = 21
    DISCONNECTED = 22
    RECONNECTED = 23
    RECONNECT_FAILED = 24
    GRID_RESOURCE_UP = 25
    GRID_RESOURCE_DOWN = 26
    GRID_SUBMIT = 27
    AD_INFORMATION = 28
    STATUS_UNKNOWN = 29
    STATUS_KNOWN = 30
    STAGE_IN = 31
    STAGE_OUT = 32
    ATTRIBUTE_UPDATE = 33
    PRE_SKIP = 34
    CLUSTER_SUBMIT = 35
    CLUSTER_REMOVE = 36
    FACTORY_PAUSED = 37
    FACTORY_RESUMED = 38
    FILE_TRANSFER = 40
    RESERVE_SPACE = 41
    RELEASE_SPACE = 42
    FILE_COMPLETE = 43
    FILE_USED = 44
    FILE_REMOVED = 45
    DATAFLOW_SKIPPED = 46
    COMMON_FILES = 47


class Direction(str, Enum):
    """Which way HTCondor's own file transfer moves."""

    INPUT = "input"
    OUTPUT = "output"


class Stage(str, Enum):
    """How far HTCondor's own file transfer has come."""

    QUEUED = "queued"
    STARTED = "started"
    FINISHED = "finished"


class Transfer(NamedTuple):
    """What a 040 event tells."""

    direction: Direction
    stage: Stage


#: The words of a 040 event, in the order of HTCondor's own numbers 1 to 6.
TRANSFER_TEXTS = {
    Transfer(Direction.INPUT, Stage.QUEUED): "Entered queue to transfer input files",
    Transfer(Direction.INPUT, Stage.STARTED): "Started transferring input files",
    Transfer(Direction.INPUT, Stage.FINISHED): "Finished transferring input files",
    Transfer(Direction.OUTPUT, Stage.QUEUED): "Entered queue to transfer output files",
    Transfer(Direction.OUTPUT, Stage.STARTED): "Started transferring output files",
    Transfer(Direction.OUTPUT, Stage.FINISHED): "Finished transferring output files",
}
_TRANSFERS = {text: transfer for transfer, text in TRANSFER_TEXTS.items()}


@dataclass(frozen=True)
class Resource:
    """One row of the resource table of a 004 or 005 event; None: the cell is empty."""

    usage: float | None = None
    request: float | None = None
    allocated: float | None = None
    assigned: tuple[str, ...] = ()


@dataclass(frozen=True)
class Usage:
    """Processor seconds that the job used on the node."""

    user: int = 0
    system: int = 0


_CODES = re.compile(r"\s*Code (-?\d{1,18}) Subcode (-?\d{1,18})\s*\Z", re.ASCII)
_EVICTED = re.compile(r"Job was evicted\. Code (-?\d{1,18}) Subcode (-?\d{1,18})", re.ASCII)
_NORMAL = re.compile(r"\s*\(1\) Normal termination \(return value (-?\d{1,18})\)", re.ASCII)
_SIGNAL = re.compile(r"\s*\(0\) Abnormal termination \(signal (-?\d{1,18})\)", re.ASCII)
_USAGE = re.compile(
    r"\s*Usr (\d{1,9}) (\d\d):(\d\d):(\d\d), Sys (\d{1,9}) (\d\d):(\d\d):(\d\d)  -  "
    r"Run Remote Usage",
    re.ASCII,
)
_BYTES = re.compile(r"\s*(\d{1,18})(?:\.\d+)?  -  Run Bytes (Sent|Received) By Job", re.ASCII)
_SIZE = re.compile(r"\s*(\d{1,18})  -  (\w+) of job", re.ASCII)
_WHOLE = re.compile(r"\d{1,18}\Z", re.ASCII)
_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")
_TABLE = "Partitionable Resources"


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
            and self.body[0].strip().startswith("(0) Job terminated and was requeued")
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
            return "" if reason == "Reason unspecified" else reason
        return body[0].strip() if body and number in _FIRST_LINE_IS_REASON else ""

    def _eviction_reason(self) -> str:
        if not self.requeued:
            found = (line for line in self.body if line.startswith("\tReason: "))
            return next(found, "").partition("Reason: ")[2].strip()
        at = 7 if self.signal is not None else 6
        line = self.body[at].strip() if len(self.body) > at else ""
        return "" if line.startswith(_TABLE) else line.removeprefix("Reason: ")

    @property
    def attributes(self) -> dict[str, Value]:
        """The attributes that a 001 or 028 event brings."""
        if self.number in (EventType.EXECUTE, EventType.AD_INFORMATION):
            return parse_lines(line for line in self.body if not line.startswith("\tSlotName:"))
        return {}

    @property
    def host(self) -> str:
        """The address: of the access point (000), of the node (001, 040)."""
        if self.number in (EventType.SUBMIT, EventType.EXECUTE):
            return self.text.partition("host: ")[2].strip()
        return self._after("\tTransferring to host: ")

    @property
    def slot(self) -> str:
        """The name of the slot: 001, 021, and 028 where the job ad knows it."""
        if self.number == EventType.EXECUTE:
            return self._after("\tSlotName: ").strip('"')
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
            value = self.attributes.get("GLIDEIN_ResourceName")
        elif self.number == EventType.AD_INFORMATION:
            value = self.attributes.get("MachineAttrGLIDEIN_ResourceName0")
        else:
            value = None
        return value if type(value) is str else ""

    @property
    def transfer(self) -> Transfer | None:
        """Direction and stage of a 040 event."""
        return _TRANSFERS.get(self.text) if self.number == EventType.FILE_TRANSFER else None

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
        return Usage(
            n[0] * 86400 + n[1] * 3600 + n[2] * 60 + n[3],
            n[4] * 86400 + n[5] * 3600 + n[6] * 60 + n[7],
        )

    @property
    def sent(self) -> int | None:
        """Bytes that left the node with this attempt: 004 and 005."""
        return self._bytes("Sent")

    @property
    def received(self) -> int | None:
        """Bytes that reached the node with this attempt: 004 and 005."""
        return self._bytes("Received")

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
        header = next((line for line in lines if line.startswith("\t" + _TABLE)), None)
        return dict(_table(header, lines)) if header else {}

    def _after(self, prefix: str) -> str:
        return next((x[len(prefix) :].strip() for x in self.body if x.startswith(prefix)), "")

    def _matches(self, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
        return (match for match in map(pattern.match, self.body) if match)

    def _bytes(self, way: str) -> int | None:
        if self.number not in (EventType.EVICTED, EventType.TERMINATED):
            return None
        return next((int(m[1]) for m in self._matches(_BYTES) if m[2] == way), None)


_FIRST_LINE_IS_REASON = frozenset(
    {
        EventType.EXECUTABLE_ERROR,
        EventType.SHADOW_EXCEPTION,
        EventType.ABORTED,
        EventType.RELEASED,
        EventType.DISCONNECTED,
        EventType.RECONNECT_FAILED,
        EventType.DATAFLOW_SKIPPED,
    }
)


def _percent_decoded(value: str) -> str:
    if "%" not in value:
        return value
    raw = _PERCENT.sub(lambda m: bytes((int(m[1], 16),)), value.encode("utf-8", "replace"))
    return raw.decode("utf-8", "replace")


def _table(header: str, lines: Iterator[str]) -> Iterator[tuple[str, Resource]]:
    # Cells may be empty, so only the columns of the header tell which number is which.
    colon = header.find(":")
    ends = [header.find(title) + len(title) for title in ("Usage", "Request", "Allocated")]
    assigned_at = header.find("Assigned")
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
