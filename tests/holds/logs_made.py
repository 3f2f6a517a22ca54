"""Logs of held jobs, event by event, for tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path

from headway.events import Event
from headway.events.format import Resource, resource_lines
from headway.holds.history import History
from headway.holds.hold import Hold, JobId, hold_of

BEGIN = 1_760_000_000.0
URL = "osdf:///data/train.tar"
NOT_FOUND = (
    "Transfer input files failure at execution point slot1_1@g1@node1.site.edu using protocol osdf."
    f" Details: server returned 404 Not Found ( URL file = {URL} )|"
)
RESET = NOT_FOUND.replace("server returned 404 Not Found", "read: connection reset by peer")


def event(
    number: int, proc: int, at: float, text: str = "", body: Sequence[str] = (), cluster: int = 1
) -> Event:
    """An event `at` seconds after the beginning."""
    return Event(number, cluster, proc, 0, BEGIN + at, text, tuple(body))


def submitted(proc: int, at: float = 0.0, cluster: int = 1) -> Event:
    return event(0, proc, at, "Job submitted from host: <192.0.2.1:9618>", cluster=cluster)


def transferring(proc: int, at: float, cluster: int = 1) -> Event:
    return event(40, proc, at, "Started transferring input files", cluster=cluster)


def executing(proc: int, at: float, site: str = "Site", cluster: int = 1) -> Event:
    body = [f"\tSlotName: slot1_1@g@{site.lower()}.edu", f'\tGLIDEIN_ResourceName = "{site}"']
    return event(1, proc, at, "Job executing on host: <192.0.2.2:9618>", body, cluster)


def held(
    proc: int, at: float, reason: str = RESET, code: int = 13, sub: int = 256, cluster: int = 1
) -> Event:
    body = [f"\t{reason}", f"\tCode {code} Subcode {sub}"]
    return event(12, proc, at, "Job was held.", body, cluster)


def released(proc: int, at: float, cluster: int = 1) -> Event:
    return event(13, proc, at, "Job was released.", cluster=cluster)


def ended(proc: int, at: float, value: int = 0, cluster: int = 1) -> Event:
    body = [f"\t(1) Normal termination (return value {value})"]
    return event(5, proc, at, "Job terminated.", body, cluster)


def removed(proc: int, at: float, cluster: int = 1) -> Event:
    return event(9, proc, at, "Job was aborted.", ["\tvia condor_rm (by user ml)"], cluster)


def evicted(proc: int, at: float, memory: float, asked: float, cluster: int = 1) -> Event:
    table = {"GPUs": Resource(None, 1, 1), "Memory": Resource(memory, asked, asked)}
    text = "Job was evicted. Code 34 Subcode 102"
    body = ["\t(0) CPU times", *resource_lines(table)]
    return event(4, proc, at, text, body, cluster)


def tried(proc: int, at: float, reason: str = RESET, cluster: int = 1) -> list[Event]:
    """A start that ends in a hold ten seconds later."""
    return [transferring(proc, at, cluster), held(proc, at + 10, reason, cluster=cluster)]


def went(proc: int, at: float, cluster: int = 1) -> list[Event]:
    """A job from its start to its good end, within a minute."""
    return [
        transferring(proc, at, cluster),
        executing(proc, at + 10, cluster=cluster),
        ended(proc, at + 60, cluster=cluster),
    ]


def released_and(proc: int, at: float, good: bool, reason: str = RESET) -> list[Event]:
    """A job that is held, released, and then ends well or is held again."""
    after = went(proc, at + 100) if good else tried(proc, at + 100, reason)
    return [submitted(proc, at), *tried(proc, at + 1, reason), released(proc, at + 90), *after]


def history_of(events: Iterable[Event], log: str = "a.log") -> History:
    """The history of events that were followed."""
    made = History()
    for each in events:
        made.add(each, log, now=BEGIN + 10**9)
    return made


def written(path: Path, events: Iterable[Event]) -> Path:
    """The events as a log."""
    from headway.events.write import event_bytes

    with path.open("wb") as file:
        for each in events:
            file.write(
                event_bytes(each.number, each.cluster, each.proc, each.time, each.text, each.body)
            )
    return path


def hold(code: int, subcode: int, reason: str, **more: object) -> Hold:
    """A hold that only the queue knows."""
    return hold_of(JobId("", 1, 0), BEGIN, code, subcode, reason, **more)  # type: ignore[arg-type]


def in_order(*parts: Iterable[Event]) -> list[Event]:
    """The events of several jobs, interleaved as a schedd writes them."""
    return sorted(itertools.chain(*parts), key=lambda each: each.time)
