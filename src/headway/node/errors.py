"""The errors of the node half, and the exit code for each; `headway.errors` draws the tree."""

from __future__ import annotations

import errno
from enum import IntEnum


class HeadwayError(Exception):
    """Says what happened and to what, and in `remedy` what to do next."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        #: A short form for a hold's reason; empty if the message is short enough.
        self.brief = ""

    def __str__(self) -> str:
        return f"{self.message}\n  {self.remedy}" if self.remedy else self.message

    def __reduce__(self) -> tuple[object, ...]:
        """Let other processes have it: subclasses differ in what their constructors take."""
        return Exception.__new__, (type(self), self.message), vars(self)


class NodeError(HeadwayError):
    """The job cannot run on this node."""


class DiskError(NodeError):
    """The disk of this node is full or failing."""


class NoSpaceError(DiskError):
    """The disk of this node is full."""


class TransferError(HeadwayError):
    """A file could not be transferred; `retryable` says whether another try may help.

    If all sources failed in the same way, a subclass says how.
    """

    def __init__(self, message: str, *, retryable: bool, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.retryable = retryable


class NotFoundError(TransferError):
    """The file does not exist, or every source says so."""


class AccessDeniedError(TransferError):
    """The server denies access, or a token is missing or has expired."""


class StalledError(TransferError):
    """No data arrived for longer than the patience."""


class CorruptError(TransferError):
    """The file is not what was declared: its size, checksum or chunks differ."""


class ManifestError(CorruptError):
    """A manifest is damaged, forged, for another object, or from a newer Headway."""

    def __init__(self, message: str, *, retryable: bool = False, remedy: str = "") -> None:
        super().__init__(message, retryable=retryable, remedy=remedy)


class Stopped(HeadwayError):
    """The attempt must end: it is evicted, or the pool itself is gone."""


# The agent's exit codes, and the code for each error.

#: In the job's ad: the number of a start, and why that attempt ended, for a hold's reason.
REASON = "HeadwayReason"
LONGEST_REASON = 450  # characters
#: In the job's ad: the time limit in seconds from `headway set`, which replaces the plan's.
TIME_LIMIT = "HeadwayTimeLimit"


class Exit(IntEnum):
    """One code for each kind of failure; the submit description retries by these alone."""

    OK = 0
    BAD_NODE = 80
    INPUT_RETRYABLE = 81
    INPUT_FAILED = 82
    COMMAND_FAILED = 83
    OUTPUT_MISSING = 84
    CHECKPOINT = 85
    OUT_OF_TIME = 86
    AGENT_ERROR = 87


MEANING = {
    Exit.OK: "the command succeeded and its outputs are there",
    Exit.BAD_NODE: "the node is not fit for the job",
    Exit.INPUT_RETRYABLE: "an input did not arrive; another try may succeed",
    Exit.INPUT_FAILED: "an input cannot arrive as declared",
    Exit.COMMAND_FAILED: "the command failed",
    Exit.OUTPUT_MISSING: "the command succeeded but a declared output is missing or too small",
    Exit.CHECKPOINT: "the command wrote a checkpoint and wants to go on from it",
    Exit.OUT_OF_TIME: "the command ran into the job's time limit",
    Exit.AGENT_ERROR: "the agent itself failed",
}


ENDED_BY_POOL = 143  # 128 + SIGTERM: the attempt was evicted, or its pool is gone
FULL = (errno.ENOSPC, errno.EDQUOT)
_NODE = (*FULL, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM, errno.EFBIG)


class Failed(HeadwayError):
    """The attempt ends with this exit code."""

    def __init__(self, code: Exit, message: str, *, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.code = code


def code_of(error: Exception) -> int:
    """The exit code for an error, as a plain number: Python 3.9 prints an IntEnum's name."""
    if isinstance(error, Failed):
        return int(error.code)
    if isinstance(error, Stopped):
        return ENDED_BY_POOL
    if isinstance(error, TransferError):
        return int(Exit.INPUT_RETRYABLE if error.retryable else Exit.INPUT_FAILED)
    if isinstance(error, NodeError) or _is_node_fault(error):
        return int(Exit.BAD_NODE)
    return int(Exit.AGENT_ERROR)


def is_bug(error: Exception) -> bool:
    """Whether an error is a fault in Headway, for which a traceback is needed."""
    return not isinstance(error, HeadwayError) and not _is_node_fault(error)


def _is_node_fault(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in _NODE


def words_of(error: BaseException) -> str:
    """The message of an exception, on one line and without its remedy."""
    if isinstance(error, OSError) and error.errno in FULL:
        return "the node's disk is full"
    text = getattr(error, "message", "") or str(error) or type(error).__name__
    return " ".join(str(text).split())
