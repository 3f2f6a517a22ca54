"""Errors of the node half: what their exit codes are, and that other processes get them intact."""

from __future__ import annotations

import errno
import pickle

import pytest

from headway.node.errors import (
    ENDED_BY_POOL,
    Exit,
    Failed,
    HeadwayError,
    ManifestError,
    NodeError,
    NotFoundError,
    Stopped,
    TransferError,
    code_of,
    is_bug,
)
from headway.node.stream.samples import SampleError

ERRORS = [
    (Failed(Exit.OUT_OF_TIME, "late"), 86),
    (Stopped("evicted"), ENDED_BY_POOL),
    (TransferError("stalled", retryable=True, remedy="wait"), 81),
    (NotFoundError("gone", retryable=False), 82),
    (ManifestError("forged"), 82),
    (NodeError("no disk", remedy="another node"), 80),
    (SampleError("no JPEG", remedy="skip it"), 87),
    (OSError(errno.ENOSPC, "full"), 80),
]


@pytest.mark.parametrize(("error", "code"), ERRORS)
def test_each_error_has_an_exit_code_and_is_no_bug(error: Exception, code: int) -> None:
    assert type(code_of(error)) is int and code_of(error) == code
    assert not is_bug(error)


def test_anything_else_is_a_bug() -> None:
    for error in (ValueError("x"), OSError(errno.ENOENT, "x")):
        assert code_of(error) == Exit.AGENT_ERROR and is_bug(error)


@pytest.mark.parametrize("error", [each for each, _ in ERRORS if isinstance(each, HeadwayError)])
def test_another_process_gets_the_same_error(error: HeadwayError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) and vars(copy) == vars(error) and str(copy) == str(error)
