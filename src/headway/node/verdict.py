"""The verdict: which exit code an error stands for."""

from __future__ import annotations

import errno

from headway.node.errors import HeadwayError, NodeError, Stopped, TransferError
from headway.node.exits import Exit

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
