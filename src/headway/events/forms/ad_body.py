"""The lines of an event that came as a ClassAd, in the words of HTCondor's text log."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone

from headway.events.event import TRANSFER_TEXTS, EventType, Resource
from headway.events.format import resource_lines
from headway.events.forms.ad import Ad, AdValue, attribute_lines, integer_of, notation, text_of


def body_of(ad: Ad, number: int) -> list[str]:
    """The rest of the header line, then the lines below it."""
    return [_one_line(line) for line in _BODIES.get(number, _other)(ad)]


def ended_at(ad: Ad) -> float | None:
    """When the job's command ended, where an older HTCondor says so."""
    toe = ad.get("ToE")
    when = toe.get("When") if isinstance(toe, dict) else None
    return float(when) if isinstance(when, int) and 0 < when < 2**33 else None


def _one_line(text: str) -> str:
    # As HTCondor itself writes a reason.
    text = text.replace("\n", "|").replace("\r", " ")
    return text.encode("utf-8", "replace").decode()  # JSON can hold halves of characters


def _submit(ad: Ad) -> list[str]:
    noun = "Cluster" if ad.get("EventTypeNumber") == EventType.CLUSTER_SUBMIT else "Job"
    lines = [f"{noun} submitted from host: {text_of(ad, 'SubmitHost')}"]
    notes = ad.get("StructuredNotes", ad.get("LogNotes"))
    lines += [f"    {_note(note)}" for note in (notes, ad.get("UserNotes")) if note]
    if warnings := text_of(ad, "Warnings"):
        said = "Committed job submission into the queue with the following warning(s)"
        lines.append(f"    WARNING: {said}: {warnings}")
    return lines


def _execute(ad: Ad) -> list[str]:
    node = "Node" in ad and ad.get("EventTypeNumber") == EventType.NODE_EXECUTE
    noun = f"Node {integer_of(ad, 'Node')}" if node else "Job"
    lines = [f"{noun} executing on host: {text_of(ad, 'ExecuteHost')}"]
    if slot := text_of(ad, "SlotName"):
        lines.append(f"\tSlotName: {slot}")
    properties = ad.get("ExecuteProps")
    if isinstance(properties, dict):
        lines += attribute_lines(properties, "\t")
    return lines


def _executable_error(ad: Ad) -> list[str]:
    kind = integer_of(ad, "ExecuteErrorType")
    words = {0: "Job file not executable.", 1: "Job not properly linked for Condor."}
    return [f"({kind}) {words.get(kind, '[Bad error number.]')}"]


def _checkpointed(ad: Ad) -> list[str]:
    usages = [f"\t{_usage(ad, f'Run{side}Usage')}  -  Run {side} Usage" for side in _SIDES]
    sent = f"\t{_bytes(ad, 'SentBytes')}  -  Run Bytes Sent By Job For Checkpoint"
    return ["Job was checkpointed.", *usages, sent]


def _evicted(ad: Ad) -> list[str]:
    code, reason = integer_of(ad, "ReasonCode"), text_of(ad, "Reason")
    requeued = bool(ad.get("TerminatedAndRequeued"))
    subcode = integer_of(ad, "ReasonSubCode")
    lines = ["Job was evicted." + (f" Code {code} Subcode {subcode}" if code else "")]
    if requeued:
        lines.append("\t(0) Job terminated and was requeued")
    else:
        lines.append("\t(1) Job was checkpointed." if ad.get("Checkpointed") else "\t(0) CPU times")
    lines += _usages(ad, "Run")
    lines += _transferred(ad, "Run", "Job")
    if requeued:
        lines += _ending(ad)
    if reason:
        lines.append(f"\t{reason}" if requeued else f"\tReason: {reason}")
    return lines


def _terminated(ad: Ad) -> list[str]:
    node = ad.get("EventTypeNumber") == EventType.NODE_TERMINATED
    noun = "Node" if node else "Job"
    lines = [
        f"Node {integer_of(ad, 'Node')} terminated." if node else "Job terminated.",
        *_ending(ad),
    ]
    lines += _usages(ad, "Run") + _usages(ad, "Total")
    lines += _transferred(ad, "Run", noun) + _transferred(ad, "Total", noun)
    lines += resource_lines(_resources(ad))
    ended = ended_at(ad)
    if ended is not None:
        lines += ["", _toe(ad["ToE"], ended)]
    return lines


def _post_script(ad: Ad) -> list[str]:
    node = text_of(ad, "DAGNodeName")
    named = [f"    DAG Node: {node}"] if node else []
    return ["POST Script terminated.", _ending(ad)[0], *named]


def _image_size(ad: Ad) -> list[str]:
    sizes = (("MemoryUsage", "MB"), ("ResidentSetSize", "KB"), ("ProportionalSetSize", "KB"))
    lines = [f"\t{integer_of(ad, n)}  -  {n} of job ({unit})" for n, unit in sizes if n in ad]
    return [f"Image size of job updated: {integer_of(ad, 'Size')}", *lines]


def _shadow_exception(ad: Ad) -> list[str]:
    message = f"\t{text_of(ad, 'Message')}"
    return ["Shadow exception!", message, *_transferred(ad, "Run", "Job")]


def _held(ad: Ad) -> list[str]:
    reason = text_of(ad, "HoldReason") or "Reason unspecified"
    codes = (
        f"\tCode {integer_of(ad, 'HoldReasonCode')} Subcode {integer_of(ad, 'HoldReasonSubCode')}"
    )
    return ["Job was held.", f"\t{reason}", codes]


def _remote_error(ad: Ad) -> list[str]:
    noun = "Error" if ad.get("CriticalError", 1) else "Message"
    lines = [f"{noun} from {text_of(ad, 'Daemon')} on {text_of(ad, 'ExecuteHost')}:"]
    message = text_of(ad, "ErrorMsg").removesuffix("\n")
    lines += [f"\t{line}" for line in message.split("\n")] if message else []
    if code := integer_of(ad, "HoldReasonCode"):
        lines.append(f"\tCode {code} Subcode {integer_of(ad, 'HoldReasonSubCode')}")
    return lines


def _disconnected(ad: Ad) -> list[str]:
    return [
        "Job disconnected, attempting to reconnect",
        f"    {text_of(ad, 'DisconnectReason')}",
        f"    Trying to reconnect to {text_of(ad, 'StartdName')} {text_of(ad, 'StartdAddr')}",
    ]


def _reconnected(ad: Ad) -> list[str]:
    return [
        f"Job reconnected to {text_of(ad, 'StartdName')}",
        f"    startd address: {text_of(ad, 'StartdAddr')}",
        f"    starter address: {text_of(ad, 'StarterAddr')}",
    ]


def _reconnect_failed(ad: Ad) -> list[str]:
    return [
        "Job reconnection failed",
        f"    {text_of(ad, 'Reason')}",
        f"    Can not reconnect to {text_of(ad, 'StartdName')}, rescheduling job",
    ]


def _grid(title: str, *labels: str) -> Callable[[Ad], list[str]]:
    return lambda ad: [title, *(f"    {n}: {text_of(ad, n) or 'UNKNOWN'}" for n in labels)]


def _ad_information(ad: Ad) -> list[str]:
    # A text log names the type of the event that triggered this one.
    trigger = _TYPES.get(integer_of(ad, "TriggerEventTypeNumber", -1))
    shown = ad | {"MyType": trigger} if trigger else ad
    return ["Job ad information event triggered.", *attribute_lines(shown)]


def _update(ad: Ad) -> list[str]:
    return [f"Setting job attribute {text_of(ad, 'Attribute')} to {text_of(ad, 'Value')}"]


def _transfer(ad: Ad) -> list[str]:
    texts = list(TRANSFER_TEXTS.values())
    kind = integer_of(ad, "Type")
    lines = [texts[kind - 1] if 1 <= kind <= len(texts) else "NONE"]
    if "QueueingDelay" in ad:
        lines.append(f"\tSeconds spent in queue: {integer_of(ad, 'QueueingDelay')}")
    if host := text_of(ad, "Host"):
        lines.append(f"\tTransferring to host: {host}")
    return lines


def _cluster_removed(ad: Ad) -> list[str]:
    done = integer_of(ad, "Completion")
    word = f"Error {done}" if done < 0 else {0: "Incomplete", 1: "Complete"}.get(done, "Paused")
    jobs, items = integer_of(ad, "NextProcId"), integer_of(ad, "NextRow")
    notes = text_of(ad, "Notes")
    made = f"\tMaterialized {jobs} jobs from {items} items.\t{word}"
    return ["Cluster removed", made, *([f"\t{notes}"] if notes else [])]


def _with_reason(title: str, *codes: str) -> Callable[[Ad], list[str]]:
    def lines(ad: Ad) -> list[str]:
        reason = text_of(ad, "Reason")
        given = [f"\t{name} {integer_of(ad, name)}" for name in codes if ad.get(name)]
        return [title, *([f"\t{reason}"] if reason or given else []), *given]

    return lines


def _other(ad: Ad) -> list[str]:
    # Events of an execution point, and those that HTCondor itself does not know.
    rest = {name: value for name, value in ad.items() if name not in _COMMON}
    indent = "  " if integer_of(ad, "EventTypeNumber") >= 100 else ""
    return [text_of(ad, "EventHead"), *attribute_lines(rest, indent)]


def _titled(title: str) -> Callable[[Ad], list[str]]:
    return lambda ad: [title]


_BODIES: dict[int, Callable[[Ad], list[str]]] = {
    EventType.SUBMIT: _submit,
    EventType.EXECUTE: _execute,
    EventType.EXECUTABLE_ERROR: _executable_error,
    EventType.CHECKPOINTED: _checkpointed,
    EventType.EVICTED: _evicted,
    EventType.TERMINATED: _terminated,
    EventType.IMAGE_SIZE: _image_size,
    EventType.SHADOW_EXCEPTION: _shadow_exception,
    EventType.GENERIC: lambda ad: [text_of(ad, "Info")],
    EventType.ABORTED: _with_reason("Job was aborted."),
    EventType.SUSPENDED: lambda ad: [
        "Job was suspended.",
        f"\tNumber of processes actually suspended: {integer_of(ad, 'NumberOfPIDs')}",
    ],
    EventType.UNSUSPENDED: _titled("Job was unsuspended."),
    EventType.HELD: _held,
    EventType.RELEASED: _with_reason("Job was released."),
    EventType.NODE_EXECUTE: _execute,
    EventType.NODE_TERMINATED: _terminated,
    EventType.POST_SCRIPT_TERMINATED: _post_script,
    EventType.REMOTE_ERROR: _remote_error,
    EventType.DISCONNECTED: _disconnected,
    EventType.RECONNECTED: _reconnected,
    EventType.RECONNECT_FAILED: _reconnect_failed,
    EventType.GRID_RESOURCE_UP: _grid("Grid Resource Back Up", "GridResource"),
    EventType.GRID_RESOURCE_DOWN: _grid("Detected Down Grid Resource", "GridResource"),
    EventType.GRID_SUBMIT: _grid("Job submitted to grid resource", "GridResource", "GridJobId"),
    EventType.AD_INFORMATION: _ad_information,
    EventType.STATUS_UNKNOWN: _titled("The job's remote status is unknown"),
    EventType.STATUS_KNOWN: _titled("The job's remote status is known again"),
    EventType.STAGE_IN: _titled("Job is performing stage-in of input files"),
    EventType.STAGE_OUT: _titled("Job is performing stage-out of output files"),
    EventType.ATTRIBUTE_UPDATE: _update,
    EventType.CLUSTER_SUBMIT: _submit,
    EventType.CLUSTER_REMOVE: _cluster_removed,
    EventType.FACTORY_PAUSED: _with_reason("Job Materialization Paused", "PauseCode", "HoldCode"),
    EventType.FACTORY_RESUMED: _with_reason("Job Materialization Resumed"),
    EventType.FILE_TRANSFER: _transfer,
    EventType.DATAFLOW_SKIPPED: _with_reason("Dataflow job was skipped."),
}


_SIDES = ("Remote", "Local")


def _usages(ad: Ad, span: str) -> list[str]:
    return [f"\t\t{_usage(ad, f'{span}{side}Usage')}  -  {span} {side} Usage" for side in _SIDES]


def _usage(ad: Ad, name: str) -> str:
    return text_of(ad, name) or "Usr 0 00:00:00, Sys 0 00:00:00"


def _transferred(ad: Ad, span: str, noun: str) -> list[str]:
    prefix = "" if span == "Run" else span
    return [
        f"\t{_bytes(ad, f'{prefix}{way}Bytes')}  -  {span} Bytes {way} By {noun}"
        for way in ("Sent", "Received")
    ]


def _bytes(ad: Ad, name: str) -> str:
    value = ad.get(name)
    return f"{value:.0f}" if isinstance(value, (int, float)) and 0 <= value < 1e18 else "0"


def _ending(ad: Ad) -> list[str]:
    if ad.get("TerminatedNormally"):
        return [f"\t(1) Normal termination (return value {integer_of(ad, 'ReturnValue', -1)})"]
    core = text_of(ad, "CoreFile")
    return [
        f"\t(0) Abnormal termination (signal {integer_of(ad, 'TerminatedBySignal', -1)})",
        f"\t(1) Corefile in: {core}" if core else "\t(0) No core file",
    ]


def _note(value: AdValue) -> str:
    return value if isinstance(value, str) else notation(value)


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


def _toe(toe: AdValue, ended: float) -> str:
    when = datetime.fromtimestamp(ended, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    tag = toe if isinstance(toe, dict) else {}
    if integer_of(tag, "HowCode") == 0:
        signalled = tag.get("ExitBySignal") is True
        code = f"signal {integer_of(tag, 'ExitSignal')}" if signalled else ""
        code = code or f"exit-code {integer_of(tag, 'ExitCode')}"
        return f"\tJob terminated of its own accord at {when} with {code}."
    how = f"(using method {integer_of(tag, 'HowCode')}: {text_of(tag, 'How')})"
    return f"\tJob terminated by {text_of(tag, 'Who')} at {when} {how}."


_COMMON = frozenset(
    {"MyType", "EventTypeNumber", "EventTime", "EventHead", "Cluster", "Proc", "Subproc"}
    | {"SlotId", "DSlotId"}
)
_OF_TERMINATED = frozenset(
    {f"{span}{side}Usage" for span in ("Run", "Total") for side in _SIDES}
    | {f"{span}{way}Bytes" for span in ("", "Total") for way in ("Sent", "Received")}
    | {"TerminatedNormally", "ReturnValue", "TerminatedBySignal", "CoreFile", "Node", "ToE"}
)
#: The types of events, which a 028 event of a text log names.
_TYPES: dict[int, str] = {
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
}
