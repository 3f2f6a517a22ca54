"""The cause of a loss: what ended an attempt without a result, by code, reason and place."""

from __future__ import annotations

from typing import NamedTuple

from headway.events.columnar.columns import NONE
from headway.events.kind import Kind
from headway.node.exits import Exit
from headway.report.words import Cause

#: A transfer that was cut off or stalled, as a pattern that Python and Polars both take.
CUT = r"(?is)stalled for \d+ seconds|lack of progress|transfer.{0,80}(stalled|timed out|time-?out)"
#: Kinds of ends whose reason, by the table of holds, tells the cause.
TELLING = (Kind.HELD, Kind.EVICTED, Kind.TRANSFER_FAILED, Kind.SHADOW_EXCEPTION)


class End(NamedTuple):
    """The end of an attempt, as far as its cause depends on it."""

    kind: int
    code: int = NONE
    subcode: int = NONE
    value: int = NONE
    executed: bool = True  # it got as far as 001
    agent: bool = False  # its exit codes are those of the agent
    cut: bool = False  # its reason says that a transfer was cut off
    entry: str = ""  # of the table of holds, which its reason belongs to


_PLUGIN_TIME_OUT = 62
_STARTER_GAVE_UP = 1007
_RECONNECT_FAILED = 1008

#: What entries of the table of holds mean for an attempt that they ended.
_BY_ENTRY = {
    "over-time": Cause.OVER_TIME,
    "over-time-by-policy": Cause.OVER_TIME,
    "own-rule-time": Cause.OVER_TIME,
    "output-file-missing": Cause.FAILED,
    "output-unreadable": Cause.FAILED,
    "command-failed": Cause.FAILED,
    "command-crashed": Cause.FAILED,
    "contact-lost": Cause.DISCONNECT,
    "wrapper-failed": Cause.BAD_NODE,
    "container-node": Cause.BAD_NODE,
    "node-failed": Cause.BAD_NODE,
    "site-fault": Cause.BAD_NODE,
}
_TRANSFERS = ("input-", "output-", "transfer-", "headway-input")

_AGENT = {
    int(Exit.BAD_NODE): Cause.BAD_NODE,
    int(Exit.INPUT_RETRYABLE): Cause.TRANSFER_FAILED,
    int(Exit.INPUT_FAILED): Cause.TRANSFER_FAILED,
    int(Exit.OUT_OF_TIME): Cause.OVER_TIME,
    int(Exit.AGENT_ERROR): Cause.SYSTEM,
}


def cause_of(end: End) -> Cause:
    """Why an attempt that ended like this has no result."""
    if end.kind in (Kind.FAILED, Kind.REQUEUED):
        found = _AGENT.get(end.value) if end.agent else None
        return found or Cause.FAILED
    if end.kind == Kind.REMOVED:
        return Cause.REMOVED
    if end.kind == Kind.RECONNECT_FAILED:
        return Cause.DISCONNECT
    if end.kind in TELLING:
        return _told(end)
    return Cause.UNKNOWN


def _told(end: End) -> Cause:
    """By what the reason says; where it says nothing of use, by the kind of event."""
    evicted = end.kind in (Kind.EVICTED, Kind.TRANSFER_FAILED)
    if evicted and end.code == _RECONNECT_FAILED:
        return Cause.DISCONNECT
    if end.entry in _BY_ENTRY:
        return _BY_ENTRY[end.entry]
    if end.entry.startswith(_TRANSFERS):
        cut = end.cut or end.subcode == _PLUGIN_TIME_OUT or end.entry == "input-too-slow"
        return Cause.TRANSFER_CUT if cut else Cause.TRANSFER_FAILED
    if end.cut and (evicted or not end.executed):
        return Cause.TRANSFER_CUT
    if not evicted:
        return Cause.HOLD if end.kind == Kind.HELD else Cause.SYSTEM
    gave_up = end.code == _STARTER_GAVE_UP and not end.executed
    return Cause.TRANSFER_CUT if gave_up else Cause.EVICTION
