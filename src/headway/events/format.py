"""HTCondor's event log format: the one description of what each event says, line by line.

A line is a text with fields. The fields are named like the attributes that the same event has as a
ClassAd. `event_lines` writes an event by this description, both those that come from XML and JSON
logs and those of Headway's own pool. `event.Event` and the columnar reader find the fields by the
same lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum, IntEnum
from typing import NamedTuple, Union

from headway.node.classad import Expr, format_lines, format_value, old_quoted

Value = str | int | float | bool | Expr
AdValue = Union[None, str, int, float, "list[AdValue]", "dict[str, AdValue]"]
Ad = dict[str, AdValue]

_LARGEST = 10**18

# HTCondor itself writes a reason's newline as "|" and its carriage return as a space.
_CONTROLS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029], " ")
_CONTROLS[0x0A] = "|"


def inert(text: str, limit: int = 8000) -> str:
    """A text as one line without control characters: it cannot forge an event.

    Args:
        text: Anybody's words.
        limit: How many bytes the line may have.

    Returns:
        The text without blanks around it. What is longer ends with an ellipsis.

    Example:
        >>> inert("no space left\\n...\\n005 (001.000.000)")
        'no space left|...|005 (001.000.000)'
    """
    text = text.strip()
    if not text.isprintable():
        text = text.translate(_CONTROLS).encode("utf-8", "replace").decode("utf-8").strip()
    if len(text) * 4 > limit:
        raw = text.encode("utf-8")
        if len(raw) > limit:
            text = raw[: limit - 3].decode("utf-8", "ignore").rstrip() + "…"
    return text


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


class CommonStage(str, Enum):
    """How far HTCondor has come with files that jobs on a node have in common, in its own words."""

    QUEUED = "TransferQueued"
    STARTED = "TransferStarted"
    FINISHED = "TransferFinished"
    WAITING = "WaitStarted"  # for the transfer that another job has begun
    WAITED = "WaitFinished"


#: What a 047 event says of each stage.
COMMON_TEXTS = {
    CommonStage.QUEUED: "Entered queue to transfer common files",
    CommonStage.STARTED: "Started transferring common files",
    CommonStage.FINISHED: "Finished transferring common files",
    CommonStage.WAITING: "Started waiting for previous job to transfer common files",
    CommonStage.WAITED: "Finished waitiing for previous job to transfer common files",
}


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

    def __str__(self) -> str:
        return f"Usr {_clock(self.user)}, Sys {_clock(self.system)}"


def _clock(seconds: int) -> str:
    minutes, second = divmod(max(0, int(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"{day} {hour:02d}:{minute:02d}:{second:02d}"


# The attributes of an event.


def text_of(ad: Mapping[str, AdValue], name: str) -> str:
    """The attribute as text; empty if it is not there."""
    value = ad.get(name)
    if isinstance(value, str):
        return value
    return "" if value is None else format_value(value, old_quoted)


def integer_of(ad: Mapping[str, AdValue], name: str, default: int = 0) -> int:
    """The attribute if it is a whole number that a log can hold."""
    value = ad.get(name)
    return int(value) if isinstance(value, int) and abs(value) < _LARGEST else default


def _bytes_of(ad: Mapping[str, AdValue], name: str) -> str:
    value = ad.get(name)
    return f"{value:.0f}" if isinstance(value, (int, float)) and 0 <= value < 1e18 else "0"


class _FieldType(NamedTuple):
    """A type of field: how an attribute is written, and what a log is searched for."""

    written: Callable[[Mapping[str, AdValue], str], object]
    pattern: str


_NAMED = r"(\d{1,9}) (\d\d):(\d\d):(\d\d)"
_FIELD_TYPES = {
    "text": _FieldType(text_of, "(.*)"),
    "known": _FieldType(lambda ad, name: text_of(ad, name) or "UNKNOWN", "(.*)"),
    "reason": _FieldType(lambda ad, name: text_of(ad, name) or NO_REASON, "(.*)"),
    "word": _FieldType(text_of, r"(\w+)"),
    "int": _FieldType(integer_of, r"(-?\d{1,18})"),
    "code": _FieldType(lambda ad, name: integer_of(ad, name, -1), r"(-?\d{1,18})"),
    "size": _FieldType(integer_of, r"(\d{1,18})"),
    "bytes": _FieldType(_bytes_of, r"(\d{1,18})(?:\.\d+)?"),
    "usage": _FieldType(
        lambda ad, name: text_of(ad, name) or Usage(), rf"Usr {_NAMED}, Sys {_NAMED}"
    ),
}
_FIELD = re.compile(r"\{(\w+)(?::(\w+))?\}")


class Line:
    """A line of an event, like `"\\tCode {HoldReasonCode:int} Subcode {HoldReasonSubCode:int}"`.

    `{Name}` is a field with text; `_FIELD_TYPES` has the other types. With `optional`, the line
    is written only where its first field has a value.
    """

    def __init__(self, template: str, *, optional: bool = False) -> None:
        parts = _FIELD.split(template)
        #: The texts before, between and behind the fields, and the same as bytes.
        self.texts = parts[::3]
        self.raw = [text.encode() for text in self.texts]
        self._fields = [
            (name, _FIELD_TYPES[kind or "text"])
            for name, kind in zip(parts[1::3], parts[2::3], strict=True)
        ]
        self._optional = optional

    def __call__(self, ad: Mapping[str, AdValue]) -> list[str]:
        """The line with the attributes of an event, or none."""
        if self._optional and ad.get(self._fields[0][0]) in (None, ""):
            return []
        made = [self.texts[0]]
        for (name, kind), text in zip(self._fields, self.texts[1:], strict=True):
            made += [str(kind.written(ad, name)), text]
        return ["".join(made)]

    def pattern(self, end: str = "") -> re.Pattern[str]:
        """A pattern for the fields in a line, however it is indented."""
        return re.compile(r"\A\s*" + self._source().lstrip("\t") + end, re.ASCII)

    def exact(self) -> bytes:
        """The source of a pattern for them in the bytes of a line that is written exactly so.

        Numbers are short enough for 32 bits.
        """
        return self._source().replace(r"-?\d{1,18}", r"-?\d{1,9}").encode()

    def _source(self) -> str:
        texts = [re.escape(text).replace("\\\t", "\t").replace("\\ ", " ") for text in self.texts]
        kinds = [kind.pattern for _, kind in self._fields]
        return texts[0] + "".join(k + t for k, t in zip(kinds, texts[1:], strict=True))


# Lines that the readers need too.

SUBMITTED = Line("Job submitted from host: {SubmitHost}")
EXECUTING = Line("Job executing on host: {ExecuteHost}")
SLOT = Line("\tSlotName: {SlotName}", optional=True)
EVICTED_CODES = Line("Job was evicted. Code {ReasonCode:int} Subcode {ReasonSubCode:int}")
REQUEUED = Line("\t(0) Job terminated and was requeued")
EVICTION_REASON = Line("\tReason: {Reason}", optional=True)
NORMAL_END = Line("\t(1) Normal termination (return value {ReturnValue:code})")
SIGNAL_END = Line("\t(0) Abnormal termination (signal {TerminatedBySignal:code})")
OWN_ACCORD = Line("\tJob terminated of its own accord at {When} with {How}.")
RUN_USAGE = Line("\t\t{RunRemoteUsage:usage}  -  Run Remote Usage")
SENT = Line("\t{SentBytes:bytes}  -  Run Bytes Sent By Job")
RECEIVED = Line("\t{ReceivedBytes:bytes}  -  Run Bytes Received By Job")
IMAGE_SIZE = Line("Image size of job updated: {Size:int}")
MEASURED_SIZE = Line("\t{Value:size}  -  {Name:word} of job")
CODES = Line("\tCode {HoldReasonCode:int} Subcode {HoldReasonSubCode:int}")
REMOTE_ERROR = Line("Error from {Daemon} on {ExecuteHost}:")
ATTRIBUTE_UPDATE = Line("Setting job attribute {Attribute} to {Value}")
TO_HOST = Line("\tTransferring to host: {Host}", optional=True)
COMMON_FILES = Line("Common files event: {Type}")
#: What a 028 event has once a job has been given files that were on its node already.
COMMON_MAPPED = "CommonFilesMappedTime"
NO_REASON = "Reason unspecified"
#: The first line of the table of resources, and the units of some of its rows.
TABLE = "\tPartitionable Resources"
TABLE_COLUMNS = ("Usage", "Request", "Allocated", "Assigned")
_UNITS = {"Memory": "MB", "Disk": "KB", "TimeExecute": "s", "TimeSlotBusy": "s"}
#: What names the site: attributes of a 001 and of a 028 event.
SITE = "GLIDEIN_ResourceName"
AD_SITE = f"MachineAttr{SITE}0"

#: Events whose first line below the header is a reason.
FIRST_LINE_IS_REASON = frozenset(
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

_Part = str | Callable[[Ad], list[str]]


def event_lines(ad: Ad, number: int) -> list[str]:
    """The rest of an event's header line, then the lines below it."""
    lines: list[str] = []
    for part in FORMATS.get(number, (_unknown,)):
        lines += [part] if isinstance(part, str) else part(ad)
    return lines


def ulog_name(number: EventType) -> str:
    """What HTCondor's own code calls the event."""
    job = _MY_TYPES.get(number, "").startswith("Job") and number != EventType.IMAGE_SIZE
    return f"ULOG_JOB_{number.name}" if job else f"ULOG_{number.name}"


def ended_at(ad: Ad) -> float | None:
    """When the job's command ended, where an older HTCondor says so."""
    toe = ad.get("ToE")
    when = toe.get("When") if isinstance(toe, dict) else None
    return float(when) if isinstance(when, int) and 0 < when < 2**33 else None


# The parts of events that are more than a line with fields.


def _note(ad: Ad) -> list[str]:
    note = "StructuredNotes" if "StructuredNotes" in ad else "LogNotes"
    return [f"    {text_of(ad, note)}"] if ad.get(note) else []


def _node_executing(ad: Ad) -> list[str]:
    return (_NODE_EXECUTING if "Node" in ad else EXECUTING)(ad)


_NODE_EXECUTING = Line("Node {Node:int} executing on host: {ExecuteHost}")


def _attributes(ad: Ad) -> list[str]:
    found = ad.get("ExecuteProps")
    return format_lines(found, "\t") if isinstance(found, dict) else []


def _executable_error(ad: Ad) -> list[str]:
    kind = integer_of(ad, "ExecuteErrorType")
    words = {0: "Job file not executable.", 1: "Job not properly linked for Condor."}
    return [f"({kind}) {words.get(kind, '[Bad error number.]')}"]


def _evicted(ad: Ad) -> list[str]:
    if integer_of(ad, "ReasonCode"):
        return EVICTED_CODES(ad)
    return [EVICTED_CODES.texts[0].removesuffix(" Code ")]


def _eviction(ad: Ad) -> list[str]:
    if ad.get("TerminatedAndRequeued"):
        return REQUEUED(ad)
    return ["\t(1) Job was checkpointed." if ad.get("Checkpointed") else "\t(0) CPU times"]


def _eviction_reason(ad: Ad) -> list[str]:
    if not ad.get("TerminatedAndRequeued"):
        return EVICTION_REASON(ad)
    reason = text_of(ad, "Reason")
    return [*_ending(ad), *([f"\t{reason}"] if reason else [])]


def _ending(ad: Ad) -> list[str]:
    if ad.get("TerminatedNormally"):
        return NORMAL_END(ad)
    core = text_of(ad, "CoreFile")
    return [*SIGNAL_END(ad), f"\t(1) Corefile in: {core}" if core else "\t(0) No core file"]


def _terminated(noun: str) -> tuple[_Part, ...]:
    return (
        _ending,
        *_usages("Run"),
        *_usages("Total"),
        *_transferred("Run", noun),
        *_transferred("Total", noun),
        lambda ad: resource_lines(_resources(ad)),
        _when_ended,
    )


def _usages(span: str, indent: str = "\t\t") -> tuple[Line, ...]:
    return tuple(
        Line(f"{indent}{{{span}{side}Usage:usage}}  -  {span} {side} Usage")
        for side in ("Remote", "Local")
    )


def _transferred(span: str, noun: str = "Job") -> tuple[Line, ...]:
    prefix = "" if span == "Run" else span
    return tuple(
        Line(f"\t{{{prefix}{way}Bytes:bytes}}  -  {span} Bytes {way} By {noun}")
        for way in ("Sent", "Received")
    )


def _when_ended(ad: Ad) -> list[str]:
    ended, tag = ended_at(ad), ad.get("ToE")
    if ended is None or not isinstance(tag, dict):
        return []
    when = datetime.fromtimestamp(ended, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    if integer_of(tag, "HowCode") == 0:
        signalled = tag.get("ExitBySignal") is True
        code = f"signal {integer_of(tag, 'ExitSignal')}" if signalled else ""
        how = code or f"exit-code {integer_of(tag, 'ExitCode')}"
        return ["", *OWN_ACCORD({"When": when, "How": how})]
    how = f"(using method {integer_of(tag, 'HowCode')}: {text_of(tag, 'How')})"
    return ["", f"\tJob terminated by {text_of(tag, 'Who')} at {when} {how}."]


def _sizes(ad: Ad) -> list[str]:
    units = {"MemoryUsage": "MB", "ResidentSetSize": "KB", "ProportionalSetSize": "KB"}
    return [
        f"{MEASURED_SIZE({'Value': integer_of(ad, name), 'Name': name})[0]} ({unit})"
        for name, unit in units.items()
        if name in ad
    ]


def _remote_error(ad: Ad) -> list[str]:
    (line,) = REMOTE_ERROR(ad)
    lines = [line if ad.get("CriticalError", 1) else line.replace("Error", "Message", 1)]
    message = text_of(ad, "ErrorMsg").removesuffix("\n")
    lines += [f"\t{line}" for line in message.split("\n")] if message else []
    return lines + (CODES(ad) if integer_of(ad, "HoldReasonCode") else [])


def _ad_information(ad: Ad) -> list[str]:
    # A text log names the type of the event that triggered this one.
    trigger = _MY_TYPES.get(integer_of(ad, "TriggerEventTypeNumber", -1))
    return format_lines(ad | {"MyType": trigger} if trigger else ad)


def _transfer(ad: Ad) -> list[str]:
    texts, kind = list(TRANSFER_TEXTS.values()), integer_of(ad, "Type")
    return [texts[kind - 1] if 1 <= kind <= len(texts) else "NONE"]


def _common_text(ad: Ad) -> list[str]:
    stages = {stage.value: text for stage, text in COMMON_TEXTS.items()}
    text = stages.get(text_of(ad, "Type"))
    return [f"\t{text}"] if text else []


def _materialized(ad: Ad) -> list[str]:
    done = integer_of(ad, "Completion")
    word = f"Error {done}" if done < 0 else {0: "Incomplete", 1: "Complete"}.get(done, "Paused")
    jobs, items = integer_of(ad, "NextProcId"), integer_of(ad, "NextRow")
    return [f"\tMaterialized {jobs} jobs from {items} items.\t{word}"]


def _paused(ad: Ad) -> list[str]:
    given = [f"\t{n} {integer_of(ad, n)}" for n in ("PauseCode", "HoldCode") if ad.get(n)]
    return [*(_REASON(ad) or (["\t"] if given else [])), *given]


def _unknown(ad: Ad) -> list[str]:
    # Events of an execution point, and those that HTCondor itself does not know.
    rest = {name: value for name, value in ad.items() if name not in _COMMON}
    indent = "  " if integer_of(ad, "EventTypeNumber") >= 100 else ""
    return [text_of(ad, "EventHead"), *format_lines(rest, indent)]


# The table of resources.


def resource_lines(resources: Mapping[str, Resource]) -> list[str]:
    """The resource table, with the column widths that HTCondor's reader expects."""
    if not resources:
        return []
    rows = [(name, resources[name]) for name in sorted(resources, key=str.lower)]
    columns = [
        _column([getattr(row, cell) for _, row in rows])
        for cell in ("usage", "request", "allocated")
    ]
    assigned = [f'"{inert(",".join(row.assigned))}"' if row.assigned else "" for _, row in rows]
    widths = [max(least, *map(len, c)) for least, c in zip((8, 8, 9), columns, strict=True)]
    *titles, last = TABLE_COLUMNS
    titles[2] = titles[2] if any(columns[2]) else ""
    lines = [_row(TABLE, titles, widths, last if any(assigned) else "")]
    for at, (name, _) in enumerate(rows):
        label = f"{name} ({_UNITS[name]})" if name in _UNITS else name
        cells = [column[at] for column in columns]
        lines.append(_row(f"\t   {label:<20}", cells, widths, assigned[at]))
    return lines


def _row(label: str, cells: Iterable[str], widths: Iterable[int], assigned: str) -> str:
    padded = " ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return f"{label} : {padded} {assigned}"


def _column(values: list[float | None]) -> list[str]:
    cells = ["" if v is None else f"{v:.2f}" if v % 1 else f"{int(v)}" for v in values]
    if any("." in cell for cell in cells):
        return [f"{cell}   " if cell.isdigit() else cell for cell in cells]
    return cells


def _resources(ad: Ad) -> dict[str, Resource]:
    # What HTCondor's table shows is mixed into the event's own attributes, and their names differ
    # in case: RequestGpus belongs to GPUs.
    rows: dict[str, dict[str, AdValue]] = {}
    names: dict[str, str] = {}
    for name, value in ad.items():
        if name not in _COMMON and name not in _OF_TERMINATED:
            cell, resource = _cell(name)
            rows.setdefault(resource.lower(), {})[cell] = value
            if cell == "allocated" or resource.lower() not in names:
                names[resource.lower()] = resource
    return {names[key]: _resource(cells) for key, cells in rows.items() if key}


def _resource(cells: dict[str, AdValue]) -> Resource:
    numbers = [cells.get(cell) for cell in ("usage", "request", "allocated")]
    usage, request, allocated = (n if isinstance(n, (int, float)) else None for n in numbers)
    assigned = cells.get("assigned")
    parts = assigned.split(",") if isinstance(assigned, str) else []
    return Resource(usage, request, allocated, tuple(p.strip() for p in parts if p.strip()))


def _cell(name: str) -> tuple[str, str]:
    if name.startswith("Request"):
        return "request", name[7:]
    if name.startswith("Assigned"):
        return "assigned", name[8:]
    if name.endswith("AverageUsage"):
        return "usage", name[:-12]
    return ("usage", name[:-5]) if name.endswith("Usage") else ("allocated", name)


_COMMON = frozenset(
    {"MyType", "EventTypeNumber", "EventTime", "EventHead", "Cluster", "Proc", "Subproc"}
    | {"SlotId", "DSlotId"}
)
_OF_TERMINATED = frozenset(
    {f"{span}{side}Usage" for span in ("Run", "Total") for side in ("Remote", "Local")}
    | {f"{span}{way}Bytes" for span in ("", "Total") for way in ("Sent", "Received")}
    | {"TerminatedNormally", "ReturnValue", "TerminatedBySignal", "CoreFile", "Node", "ToE"}
)


# All events.


_REASON = Line("\t{Reason}", optional=True)
_QUEUED = Line("\tSeconds spent in queue: {QueueingDelay:int}", optional=True)
_GRID_RESOURCE = Line("    GridResource: {GridResource:known}")
_GRID_JOB = Line("    GridJobId: {GridJobId:known}")
_SUBMIT: tuple[_Part, ...] = (
    _note,
    Line("    {UserNotes}", optional=True),
    Line(
        "    WARNING: Committed job submission into the queue with the following warning(s): "
        "{Warnings}",
        optional=True,
    ),
)

#: What HTCondor calls events as ClassAds.
_MY_TYPES: dict[int, str] = {
    EventType.SUBMIT: "SubmitEvent",
    EventType.EXECUTE: "ExecuteEvent",
    EventType.EXECUTABLE_ERROR: "ExecutableErrorEvent",
    EventType.CHECKPOINTED: "CheckpointedEvent",
    EventType.EVICTED: "JobEvictedEvent",
    EventType.TERMINATED: "JobTerminatedEvent",
    EventType.IMAGE_SIZE: "JobImageSizeEvent",
    EventType.SHADOW_EXCEPTION: "ShadowExceptionEvent",
    EventType.GENERIC: "GenericEvent",
    EventType.ABORTED: "JobAbortedEvent",
    EventType.SUSPENDED: "JobSuspendedEvent",
    EventType.UNSUSPENDED: "JobUnsuspendedEvent",
    EventType.HELD: "JobHeldEvent",
    EventType.RELEASED: "JobReleaseEvent",
    EventType.REMOTE_ERROR: "RemoteErrorEvent",
    EventType.DISCONNECTED: "JobDisconnectedEvent",
    EventType.RECONNECTED: "JobReconnectedEvent",
    EventType.RECONNECT_FAILED: "JobReconnectFailedEvent",
    EventType.ATTRIBUTE_UPDATE: "AttributeUpdateEvent",
    EventType.FILE_TRANSFER: "FileTransferEvent",
    EventType.COMMON_FILES: "CommonFilesEvent",
}

#: What each event says, part by part, the rest of its header line first.
FORMATS: dict[int, tuple[_Part, ...]] = {
    EventType.SUBMIT: (SUBMITTED, *_SUBMIT),
    EventType.EXECUTE: (EXECUTING, SLOT, _attributes),
    EventType.EXECUTABLE_ERROR: (_executable_error,),
    EventType.CHECKPOINTED: (
        "Job was checkpointed.",
        *_usages("Run", "\t"),
        Line("\t{SentBytes:bytes}  -  Run Bytes Sent By Job For Checkpoint"),
    ),
    EventType.EVICTED: (_evicted, _eviction, *_usages("Run"), SENT, RECEIVED, _eviction_reason),
    EventType.TERMINATED: ("Job terminated.", *_terminated("Job")),
    EventType.IMAGE_SIZE: (IMAGE_SIZE, _sizes),
    EventType.SHADOW_EXCEPTION: ("Shadow exception!", Line("\t{Message}"), SENT, RECEIVED),
    EventType.GENERIC: (Line("{Info}"),),
    EventType.ABORTED: ("Job was aborted.", _REASON),
    EventType.SUSPENDED: (
        "Job was suspended.",
        Line("\tNumber of processes actually suspended: {NumberOfPIDs:int}"),
    ),
    EventType.UNSUSPENDED: ("Job was unsuspended.",),
    EventType.HELD: ("Job was held.", Line("\t{HoldReason:reason}"), CODES),
    EventType.RELEASED: ("Job was released.", _REASON),
    EventType.NODE_EXECUTE: (_node_executing, SLOT, _attributes),
    EventType.NODE_TERMINATED: (Line("Node {Node:int} terminated."), *_terminated("Node")),
    EventType.POST_SCRIPT_TERMINATED: (
        "POST Script terminated.",
        lambda ad: _ending(ad)[:1],
        Line("    DAG Node: {DAGNodeName}", optional=True),
    ),
    EventType.REMOTE_ERROR: (_remote_error,),
    EventType.DISCONNECTED: (
        "Job disconnected, attempting to reconnect",
        Line("    {DisconnectReason}"),
        Line("    Trying to reconnect to {StartdName} {StartdAddr}"),
    ),
    EventType.RECONNECTED: (
        Line("Job reconnected to {StartdName}"),
        Line("    startd address: {StartdAddr}"),
        Line("    starter address: {StarterAddr}"),
    ),
    EventType.RECONNECT_FAILED: (
        "Job reconnection failed",
        Line("    {Reason}"),
        Line("    Can not reconnect to {StartdName}, rescheduling job"),
    ),
    EventType.GRID_RESOURCE_UP: ("Grid Resource Back Up", _GRID_RESOURCE),
    EventType.GRID_RESOURCE_DOWN: ("Detected Down Grid Resource", _GRID_RESOURCE),
    EventType.GRID_SUBMIT: ("Job submitted to grid resource", _GRID_RESOURCE, _GRID_JOB),
    EventType.AD_INFORMATION: ("Job ad information event triggered.", _ad_information),
    EventType.STATUS_UNKNOWN: ("The job's remote status is unknown",),
    EventType.STATUS_KNOWN: ("The job's remote status is known again",),
    EventType.STAGE_IN: ("Job is performing stage-in of input files",),
    EventType.STAGE_OUT: ("Job is performing stage-out of output files",),
    EventType.ATTRIBUTE_UPDATE: (ATTRIBUTE_UPDATE,),
    EventType.CLUSTER_SUBMIT: (Line("Cluster submitted from host: {SubmitHost}"), *_SUBMIT),
    EventType.CLUSTER_REMOVE: ("Cluster removed", _materialized, Line("\t{Notes}", optional=True)),
    EventType.FACTORY_PAUSED: ("Job Materialization Paused", _paused),
    EventType.FACTORY_RESUMED: ("Job Materialization Resumed", _REASON),
    EventType.FILE_TRANSFER: (_transfer, _QUEUED, TO_HOST),
    EventType.DATAFLOW_SKIPPED: ("Dataflow job was skipped.", _REASON),
    EventType.COMMON_FILES: (COMMON_FILES, _common_text),
}
