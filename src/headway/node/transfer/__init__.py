"""The transfer engine: `fetch` one file from one of its sources, `put` one file to its destination.

The face is this module; what lies behind it may change. Messages never show a query or user
information of a URL: use `shown`. A full disk is a NodeError, a wish to stop is Stopped, every
other failure is a TransferError that says whether another try may help.
"""

from __future__ import annotations

import os
import random
import time

from headway.node.errors import NodeError, Stopped, TransferError
from headway.node.transfer.checksum import Checksum, prove
from headway.node.transfer.source import Fault, Sink, Source, open_source
from headway.node.transfer.urls import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Fetched", "Sent", "fetch", "prove", "put", "shown"]

ROUNDS = 4  # times that each source is tried without any progress
_TRIES = 100  # in all, however much progress each makes
_PROGRESS = 1 << 20  # bytes that make a try worth another one
_BAD_COPIES = 2  # whole files with a wrong checksum that one source may give


class Fetched:
    """A file that has arrived and is proven as far as `size` and `checksum` allow."""

    def __init__(self, path: str, size: int, seconds: float, url: str, verified: bool) -> None:
        self.path, self.bytes, self.seconds = path, size, seconds
        self.url = url  # the source that gave the last byte
        self.verified = verified  # a checksum was declared and is right


class Sent:
    """A file that has been handed over."""

    def __init__(self, size: int, seconds: float) -> None:
        self.bytes, self.seconds = size, seconds


def fetch(
    urls: Sequence[str],
    path: str,
    *,
    size: int | None = None,
    checksum: str | None = None,
    progress: Callable[[int, int | None], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    rounds: int = ROUNDS,
) -> Fetched:
    """Bring one object to `path`, from whichever of its sources gives it whole.

    `progress(bytes, total)` is called at most twice a second. The bytes gather in `PATH.part`.
    """
    begin = time.monotonic()
    sources = [open_source(url) for url in urls]
    sink = Sink(f"{path}.part", size, Checksum(checksum) if checksum else None)
    sink.watch(progress, should_stop)
    try:
        url = _gather(sources, sink, rounds, should_stop)
        sink.finish(path)
    except OSError as error:
        raise sink.full(error) from None
    finally:
        sink.close()
    return Fetched(path, sink.have, time.monotonic() - begin, url, checksum is not None)


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
    target = open_source(url)
    size = os.path.getsize(path)
    fault: Fault | None = None
    for number in range(rounds):
        _pause(number, fault, should_stop)
        try:
            target.put(path, size, overwrite, number > 0, progress, should_stop)
            return Sent(size, time.monotonic() - begin)
        except Fault as error:
            fault = error
            if not error.retryable:
                break
    words = fault.words if fault else "nothing was tried"
    raise TransferError(
        f"{os.path.basename(path)} could not be sent to {shown(url)}: {words}",
        retryable=bool(fault and fault.retryable),
        remedy=fault.remedy if fault else "",
    )


def _gather(sources: list[Source], sink: Sink, rounds: int, should_stop: Callable[[], bool]) -> str:
    """Ask one source after the other until the sink holds the whole, proven object."""
    faults: dict[str, Fault] = {}
    bad_copies = dict.fromkeys([source.url for source in sources], 0)
    tries = number = 0
    while number < rounds and tries < _TRIES and min(bad_copies.values(), default=0) < _BAD_COPIES:
        worst = max(faults.values(), key=lambda fault: fault.after, default=None)
        _pause(number, worst, should_stop)
        moved = False
        for source in sources:
            if bad_copies[source.url] >= _BAD_COPIES:
                continue
            if should_stop():
                raise Stopped("the transfer was stopped")
            had = sink.have
            tries += 1
            try:
                source.fetch(sink)
                sink.prove()
                return source.url
            except Fault as fault:
                faults[source.url] = fault
                moved = moved or sink.have - had >= _PROGRESS
                if fault.bad_copy:
                    bad_copies[source.url] += 1
                    sink.restart()
        number = 1 if moved else number + 1
    raise _failure(sources, faults, sink)


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


def _failure(sources: list[Source], faults: dict[str, Fault], sink: Sink) -> Exception:
    """The error that sums up what each source said last."""
    if not sources:
        return TransferError(f"{sink.name} has no source", retryable=False)
    said = "; ".join(f"{shown(url)}: {fault.words}" for url, fault in faults.items())
    last = list(faults.values())
    remedy = next((fault.remedy for fault in last if fault.remedy), "")
    message = f"{sink.name} did not arrive: {said}"
    if last and all(fault.node for fault in last):
        return NodeError(message, remedy=remedy)
    return TransferError(message, retryable=any(f.retryable for f in last), remedy=remedy)
