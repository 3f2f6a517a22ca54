"""The root of the error tree; `headway.errors` draws the rest of it."""

from __future__ import annotations

import errno
from enum import IntEnum


class HeadwayError(Exception):
    """Says what happened, to what, and in `remedy` what to do next."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        #: The same in one short line, for a hold's reason; empty: the message is short enough.
        self.brief = ""

    def __str__(self) -> str:
        return f"{self.message}\n  {self.remedy}" if self.remedy else self.message


class NodeError(HeadwayError):
    """The node is not fit for the job."""


class DiskError(NodeError):
    """The disk of this node is full, or fails."""


class NoSpaceError(DiskError):
    """The disk of this node is full."""


class TransferError(HeadwayError):
    """A file could not be moved; `retryable` says whether another try may help.

    Where all sources failed in one way, it is the class below that says which; else this one.
    """

    def __init__(self, message: str, *, retryable: bool, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.retryable = retryable


class NotFoundError(TransferError):
    """There is no such file, or every source says so."""


class AccessDeniedError(TransferError):
    """The server refuses it to this user, or a token is missing or has expired."""


class StalledError(TransferError):
    """Nothing came for longer than the patience."""


class CorruptError(TransferError):
    """It is not what was declared: its size, its checksum or its chunks are others."""


class ManifestError(CorruptError):
    """A manifest is damaged, forged, of another object or from a newer Headway."""

    def __init__(self, message: str, *, retryable: bool = False, remedy: str = "") -> None:
        super().__init__(message, retryable=retryable, remedy=remedy)


class Stopped(HeadwayError):
    """The pool wants the attempt to end: an eviction, or the pool itself is gone."""


# Exit codes of the agent, and which error ends an attempt with which.


#: In the job's ad: the number of a start, and why that attempt ended, for the reason of a hold.
REASON = "HeadwayReason"
LONGEST_REASON = 450  # characters
#: In the job's ad: seconds that `headway set` gives the command, in place of the plan's.
TIME_LIMIT = "HeadwayTimeLimit"


class Exit(IntEnum):
    """One code per failure class; the submit description retries by these alone."""

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
    """The attempt ends here with this exit code."""

    def __init__(self, code: Exit, message: str, *, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.code = code


def code_of(error: Exception) -> int | None:
    """The exit code that an error stands for; None: a fault of the agent itself."""
    if isinstance(error, Failed):
        return error.code
    if isinstance(error, Stopped):
        return ENDED_BY_POOL
    if isinstance(error, TransferError):
        return Exit.INPUT_RETRYABLE if error.retryable else Exit.INPUT_FAILED
    if isinstance(error, NodeError):
        return Exit.BAD_NODE
    if isinstance(error, HeadwayError):
        return Exit.AGENT_ERROR
    if isinstance(error, OSError) and error.errno in _NODE:
        return Exit.BAD_NODE
    return None


def words_of(error: BaseException) -> str:
    """What an exception says, on one line and without its remedy."""
    if isinstance(error, OSError) and error.errno in FULL:
        return "the node's disk is full"
    text = getattr(error, "message", "") or str(error) or type(error).__name__
    return " ".join(str(text).split())
