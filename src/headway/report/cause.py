"""The cause of a loss: what ended an attempt without a result, by code, reason and place."""

from __future__ import annotations

import errno
from typing import NamedTuple

from headway.events.columnar.columns import NONE
from headway.events.kind import Kind
from headway.node.exits import Exit
from headway.report.words import Cause

#: What a reason can say, as patterns that Python and Polars both take.
PATTERNS = {
    "cut": r"(?is)stalled for \d+ seconds|lack of progress"
    r"|transfer.{0,80}(stalled|timed out|time-?out)",
    "transfer": r"(?i)transfer (in|out)put files|failed to transfer|FILETRANSFER"
    r"|failed to (send|receive) file",
    "over_time": r"(?i)exceeded (the )?(allowed|maximum).{0,40}(duration|time)",
}


class End(NamedTuple):
    """The end of an attempt, as far as its cause depends on it."""

    kind: int
    code: int = NONE
    subcode: int = NONE
    value: int = NONE
    executed: bool = True  # it got as far as 001
    agent: bool = False  # its exit codes are those of the agent
    # What its reason says.
    cut: bool = False
    transfer: bool = False
    over_time: bool = False


_OUTPUT = 12
_TRANSFER_CODES = frozenset({11, 12, 13, 18})
_OVER_TIME_CODES = frozenset({46, 47})
_NO_CODES = frozenset({NONE, 0})
_PLUGIN_TIME_OUT = 62
_STARTER_GAVE_UP = 1007
_RECONNECT_FAILED = 1008

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
    if end.kind == Kind.HELD:
        return _held(end)
    if end.kind in (Kind.EVICTED, Kind.TRANSFER_FAILED):
        return _evicted(end)
    if end.kind == Kind.RECONNECT_FAILED:
        return Cause.DISCONNECT
    if end.kind == Kind.SHADOW_EXCEPTION:
        return _transfer(end) if end.transfer else Cause.SYSTEM
    return Cause.UNKNOWN


def _held(end: End) -> Cause:
    if end.code in _OVER_TIME_CODES or end.over_time:
        return Cause.OVER_TIME
    if end.code == _OUTPUT and end.subcode == errno.ENOENT:
        return Cause.FAILED
    if end.code in _TRANSFER_CODES or (not end.executed and end.cut):
        return _transfer(end)
    # Old logs give no code, only words.
    return _transfer(end) if end.code in _NO_CODES and end.transfer else Cause.HOLD


def _evicted(end: End) -> Cause:
    if end.code == _RECONNECT_FAILED:
        return Cause.DISCONNECT
    if end.code in _TRANSFER_CODES or end.transfer:
        return _transfer(end)
    if end.cut or (end.code == _STARTER_GAVE_UP and not end.executed):
        return Cause.TRANSFER_CUT
    return Cause.EVICTION


def _transfer(end: End) -> Cause:
    cut = end.subcode == _PLUGIN_TIME_OUT or end.cut
    return Cause.TRANSFER_CUT if cut else Cause.TRANSFER_FAILED
