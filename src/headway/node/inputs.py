"""Inputs: every declared input is in place and proven before the command starts."""

from __future__ import annotations

import os
import time

from headway.node.errors import NodeError, TransferError
from headway.node.transfer import fetch, prove
from headway.node.transfer.urls import host_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.node.attempt import Attempt
    from headway.node.plan import Input
    from headway.node.progress import Progress


def total_size(inputs: list[Input]) -> int | None:
    """The bytes of all inputs; None as soon as one of them is not declared."""
    sizes = [each.size for each in inputs if each.size is not None]
    return sum(sizes) if len(sizes) == len(inputs) else None


def missing(inputs: list[Input], attempt: Attempt) -> list[Input]:
    """The inputs that are to be fetched, as far as a glance can tell (sizes, not checksums)."""
    return [
        each
        for each in inputs
        if each.urls and not _unchanged(each, attempt) and not _plausible(each)
    ]


def stage_in(
    inputs: list[Input],
    attempt: Attempt,
    progress: Progress,
    should_stop: Callable[[], bool],
    note: Callable[[str], None],
) -> list[dict[str, object]]:
    """Bring each input to its path and prove it; returns what the record says of them."""
    told = []
    for each in inputs:
        begin = time.monotonic()
        progress.file = each.path
        source, how = _bring(each, attempt, progress, should_stop)
        status = os.stat(each.path)
        attempt.proven[each.path] = _mark(status)
        progress.finished(status.st_size)
        seconds = round(time.monotonic() - begin, 3)
        note(f"{each.path}: {status.st_size} bytes {how} in {seconds} s")
        told.append(
            {
                "path": each.path,
                "source": source,
                "bytes": status.st_size,
                "seconds": seconds,
                "verified": each.checksum is not None,
                "fetched": how == "fetched",
            }
        )
    return told


def _bring(
    each: Input, attempt: Attempt, progress: Progress, should_stop: Callable[[], bool]
) -> tuple[str, str]:
    """Returns the source's host and how the input came to be there."""
    if _unchanged(each, attempt):
        return "", "unchanged since the last segment"
    if not each.urls:
        _take_brought(each)
        wrong = prove(each.path, size=each.size, checksum=each.checksum, should_stop=should_stop)
        if wrong is not None:
            raise TransferError(
                f"{each.path} was brought by HTCondor, but {wrong}",
                retryable=True,
                remedy="another try may get a good copy; if not, check size and checksum",
            )
        return "", "brought by HTCondor"
    if _plausible(each):
        wrong = prove(each.path, size=each.size, checksum=each.checksum, should_stop=should_stop)
        if wrong is None:
            return "", "already there"
    if os.path.isdir(each.path):
        raise TransferError(
            f"the input {each.path} cannot be placed: a folder of that name is in the way",
            retryable=False,
            remedy="give the input another path",
        )
    _stay_inside(each.path)
    got = fetch(
        each.urls,
        each.path,
        size=each.size,
        checksum=each.checksum,
        progress=progress.moved,
        should_stop=should_stop,
    )
    return host_of(got.url), "fetched"


def _plausible(each: Input) -> bool:
    """Whether a file of the right size is there; without size and checksum nothing is provable."""
    if each.size is None and each.checksum is None:
        return False
    try:
        status = os.stat(each.path)
    except OSError:
        return False
    return each.size is None or status.st_size == each.size


def _unchanged(each: Input, attempt: Attempt) -> bool:
    """Whether an earlier segment of this attempt has proven the very file that is here."""
    try:
        return attempt.proven.get(each.path) == _mark(os.stat(each.path))
    except OSError:
        return False


def _mark(status: os.stat_result) -> list[int]:
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def _take_brought(each: Input) -> None:
    """HTCondor puts a file under the name in its URL; the command wants it at its path."""
    name = each.arrives_as
    if os.path.exists(each.path):
        return
    if not os.path.exists(name):
        raise TransferError(
            f"{name} is not in the job's folder; HTCondor did not bring it",
            retryable=False,
            remedy="look at the transfer events of the job and at its URL",
        )
    _stay_inside(each.path)
    try:
        os.makedirs(os.path.dirname(each.path) or os.curdir, exist_ok=True)
        os.rename(name, each.path)
    except OSError as error:
        raise NodeError(f"{name} cannot be moved to {each.path}: {error.strerror}") from None


def _stay_inside(path: str) -> None:
    """A link that came with the payload must not lead an input out of the job's folder."""
    root = os.path.realpath(os.curdir)
    folder = os.path.realpath(os.path.dirname(path) or os.curdir)
    if os.path.commonpath([root, folder]) != root:
        raise TransferError(
            f"the input {path} would be written outside the job's folder, through a link",
            retryable=False,
        )
