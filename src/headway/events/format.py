"""The bytes of an event, as HTCondor itself would write them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from functools import lru_cache

from headway.events.classad import inert
from headway.events.event import Resource, Usage

# HTCondor reads a header line into 1,024 bytes and loses the rest.
_HEADER_LIMIT = 1020
_UNITS = {"Memory": "MB", "Disk": "KB", "TimeExecute": "s", "TimeSlotBusy": "s"}


def event_bytes(
    number: int, cluster: int, proc: int, at: float | None, text: str, body: Iterable[str] = ()
) -> bytes:
    """A whole event with its end mark; `text` may be a user's, `body` must have been made inert."""
    head = f"{number:03d} ({cluster:03d}.{proc:03d}.000) {stamp(at)} "
    return "\n".join((head + inert(text, _HEADER_LIMIT - len(head)), *body, "...\n")).encode()


def stamp(at: float | None) -> str:
    """A moment, or now, in local time to the second."""
    return _stamp(math.floor(time.time() if at is None else at))


@lru_cache(maxsize=8)
def _stamp(seconds: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def ending_lines(return_value: int | None, signal: int | None) -> list[str]:
    """How a command ended; exactly one of the two must be given."""
    if (return_value is None) == (signal is None):
        raise ValueError("a command ends with either a return value or a signal")
    if signal is None:
        return [f"\t(1) Normal termination (return value {return_value})"]
    return [f"\t(0) Abnormal termination (signal {signal})", "\t(0) No core file"]


def usage_lines(usage: Usage, *, total: bool) -> list[str]:
    """Processor times; the access point's own are not measured and read as zero."""
    remote, local = _rusage(usage), _rusage(Usage())
    lines = [f"{remote}  -  Run Remote Usage", f"{local}  -  Run Local Usage"]
    if total:
        lines += [f"{remote}  -  Total Remote Usage", f"{local}  -  Total Local Usage"]
    return lines


def _rusage(usage: Usage) -> str:
    return f"\t\tUsr {_clock(usage.user)}, Sys {_clock(usage.system)}"


def _clock(seconds: int) -> str:
    minutes, second = divmod(max(0, int(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    return f"{day} {hour:02d}:{minute:02d}:{second:02d}"


def transfer_lines(sent: int, received: int, *, total: bool) -> list[str]:
    """Bytes that HTCondor's own file transfer moved."""
    return [
        f"\t{count}  -  {span} Bytes {way} By Job"
        for span in (("Run", "Total") if total else ("Run",))
        for way, count in (("Sent", sent), ("Received", received))
    ]


def resource_lines(resources: Mapping[str, Resource]) -> list[str]:
    """The resource table, with the column widths that HTCondor's reader expects."""
    if not resources:
        return []
    rows = [(name, resources[name]) for name in sorted(resources, key=str.lower)]
    columns = [
        _column([getattr(row, cell) for _, row in rows])
        for cell in ("usage", "request", "allocated")
    ]
    assigned = [f'"{inert(",".join(row.assigned))}"' if row.assigned else "" for _, row in rows]
    widths = [max(least, *map(len, c)) for least, c in zip((8, 8, 9), columns, strict=True)]
    titles = ("Usage", "Request", "Allocated" if any(columns[2]) else "")
    lines = [
        _row("\tPartitionable Resources", titles, widths, "Assigned" if any(assigned) else ""),
    ]
    for at, (name, _) in enumerate(rows):
        label = f"{name} ({_UNITS[name]})" if name in _UNITS else name
        cells = [column[at] for column in columns]
        lines.append(_row(f"\t   {label:<20}", cells, widths, assigned[at]))
    return lines


def _row(label: str, cells: Iterable[str], widths: Iterable[int], assigned: str) -> str:
    padded = " ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return f"{label} : {padded} {assigned}"


def _column(values: list[float | None]) -> list[str]:
    cells = ["" if v is None else f"{v:.2f}" if v % 1 else f"{int(v)}" for v in values]
    if any("." in cell for cell in cells):
        return [f"{cell}   " if cell.isdigit() else cell for cell in cells]
    return cells
