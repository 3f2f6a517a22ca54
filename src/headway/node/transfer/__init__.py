"""The transfer engine: `fetch` one file from its sources, `put` one file to its destination.

The face is this module; what lies behind it may change. Messages never show a query or user
information of a URL: use `shown`. A full disk is a NodeError, a wish to stop is Stopped, every
other failure is a TransferError that says whether another try may help.
"""

from __future__ import annotations

import os
import random
import stat
import time

from headway.node.errors import Stopped, TransferError
from headway.node.transfer.checksum import prove
from headway.node.transfer.fetch import Fetched, fetch
from headway.node.transfer.report import Snapshot, SourceState
from headway.node.transfer.source import Fault
from headway.node.transfer.target import open_target
from headway.node.transfer.urls import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Fetched", "Sent", "Snapshot", "SourceState", "fetch", "prove", "put", "shown"]

ROUNDS = 4  # times that an upload is tried


class Sent:
    """A file that has been handed over."""

    def __init__(self, size: int, seconds: float, proof: str = "") -> None:
        self.bytes, self.seconds = size, seconds
        self.proof = proof  # "digest" or "size": how it was found to be there; "": it cannot be


def put(
    path: str,
    url: str,
    *,
    overwrite: bool = False,
    progress: Callable[[int, int | None], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    rounds: int = ROUNDS,
) -> Sent:
    """Hand one file over to `url`; what already lies there is only replaced with `overwrite`."""
    begin = time.monotonic()
    target = open_target(url)
    size = _size(path)
    fault: Fault | None = None
    for number in range(rounds):
        _pause(number, fault, should_stop)
        try:
            target.put(path, size, overwrite, number > 0, progress, should_stop)
            return Sent(size, time.monotonic() - begin, target.proof)
        except Fault as error:
            fault = error
            if not error.retryable:
                break
    retryable = fault is not None and fault.retryable
    remedy = "see whether the URL is right, and whether the server takes uploads there"
    if retryable:
        remedy = f"it was tried {rounds} times and may pass: try again; {remedy}"
    raise TransferError(
        f"{os.path.basename(path)} could not be sent to {shown(url)}: "
        f"{fault or 'nothing was tried'}",
        retryable=retryable,
        remedy=fault.remedy if fault and fault.remedy else remedy,
    )


def _size(path: str) -> int:
    try:
        about = os.stat(path)
        wrong = "" if stat.S_ISREG(about.st_mode) else "it is not a file"
    except OSError as error:
        wrong = str(error.strerror)
    if wrong:
        raise TransferError(
            f"{path} cannot be sent: {wrong}",
            retryable=False,
            remedy="see whether the command has written it there",
        )
    return about.st_size


def _pause(number: int, fault: Fault | None, should_stop: Callable[[], bool]) -> None:
    """Back off before another round: 1, 2, 4, … seconds, or what the server asked for."""
    if number == 0:
        return
    # not for secrecy: many nodes must not come back in step
    delay = max(2.0 ** (number - 1) * random.uniform(0.75, 1.25), fault.after if fault else 0.0)  # noqa: S311
    end = time.monotonic() + min(delay, 30.0)
    while time.monotonic() < end:
        if should_stop():
            raise Stopped("the transfer was stopped")
        time.sleep(min(0.1, max(0.0, end - time.monotonic())))
