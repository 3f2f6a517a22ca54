"""What one event brings to the columns, as its object says: the reference for the quick reader."""

from __future__ import annotations

import math
from typing import NamedTuple

from headway.events.columnar.columns import NONE
from headway.events.event import Event, EventType, Resource
from headway.events.kind import kind_of

_NAN = math.nan

#: Events whose reason is kept.
WITH_REASON = frozenset({2, 4, 7, 9, 12, 13, 21, 22, 24, 46})


class Measured(NamedTuple):
    """What a 004, a 005 or an agent's line measured; NaN where it does not say."""

    memory_used: float = _NAN
    memory_asked: float = _NAN
    disk_used: float = _NAN
    disk_asked: float = _NAN
    cpus_used: float = _NAN
    cpus_asked: float = _NAN
    gpus_asked: float = _NAN
    cpu_seconds: float = _NAN
    sent: float = _NAN
    received: float = _NAN
    execute: float = _NAN
    busy: float = _NAN
    staged: float = _NAN


NOTHING = Measured()


def is_nothing(measured: Measured) -> bool:
    """Whether nothing was measured."""
    return measured is NOTHING or all(value != value for value in measured)


class Row(NamedTuple):
    """What an event says beside its header."""

    kind: int
    code: int
    subcode: int
    value: int
    signal: int
    site: str
    slot: str
    host: str
    user: str
    text: str
    measured: Measured


def row_of(event: Event) -> Row:
    """What an event says beside its header."""
    codes = event.codes
    agent = event.agent or {}
    nonce = agent.get("nonce", "")
    number = event.number
    return Row(
        kind=int(kind_of(event)),
        code=clipped(codes[0] if codes else None),
        subcode=clipped(codes[1] if codes else None),
        value=clipped(event.return_value),
        signal=clipped(event.signal),
        site=event.site,
        slot=event.slot,
        host=machine(event.host) if number in (EventType.EXECUTE, EventType.FILE_TRANSFER) else "",
        user=_user(event),
        text=event.reason if number in WITH_REASON else nonce,
        measured=_measured(event) if number in (4, 5) else staged(agent) if nonce else NOTHING,
    )


def clipped(number: int | None) -> int:
    """The number as 32 bits hold it."""
    return NONE if number is None else min(max(number, NONE + 1), -NONE - 1)


def machine(host: str) -> str:
    """The name of the machine in an address like `<[::1]:9618?addrs=…&alias=name>`, or its IP."""
    inner = host.strip("<>")
    address, _, query = inner.partition("?")
    for part in query.split("&"):
        if part.startswith("alias=") and len(part) > 6:
            return part[6:]
    if address.startswith("["):
        return address[1:].partition("]")[0]
    name, colon, port = address.rpartition(":")
    return name if colon and ":" not in name and port.isdigit() else address


def owner(user: object, full: object) -> str:
    """The name of the user by the attributes `Owner` and `User` of a job."""
    if type(user) is str and user:
        return user
    return full.partition("@")[0] if type(full) is str else ""


def staged(agent: dict[str, str]) -> Measured:
    """The bytes that the agent staged in by itself, where its line says so."""
    size = agent.get("bytes", "")
    if agent.get("phase") != "stage-in" or agent.get("state") != "end":
        return NOTHING
    known = size.isascii() and size.isdigit() and len(size) <= 18
    return NOTHING._replace(staged=float(size)) if known else NOTHING


def _user(event: Event) -> str:
    if event.number != EventType.AD_INFORMATION:
        return ""
    found = event.attributes
    return owner(found.get("Owner"), found.get("User"))


_EMPTY = Resource()


def _measured(event: Event) -> Measured:
    table, usage = event.resources, event.usage
    memory, disk = table.get("Memory", _EMPTY), table.get("Disk", _EMPTY)
    cpus = table.get("Cpus", _EMPTY)
    return Measured(
        _float(memory.usage),
        _float(memory.request),
        _float(disk.usage),
        _float(disk.request),
        _float(cpus.usage),
        _float(cpus.request),
        _float(table.get("GPUs", _EMPTY).request),
        _float(usage.user + usage.system if usage else None),
        _float(event.sent),
        _float(event.received),
        _float(table.get("TimeExecute", _EMPTY).usage),
        _float(table.get("TimeSlotBusy", _EMPTY).usage),
    )


def _float(number: float | None) -> float:
    if number is None:
        return _NAN
    try:
        return float(number)
    except OverflowError:
        return math.inf
