"""What a history takes of an event: few enough fields that both readers of logs can give them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headway.events.event import Event, EventType
from headway.events.kind import Kind, kind_of
from headway.events.skip import Skip

if TYPE_CHECKING:
    from headway.events.columnar.columns import Columns, Floats
    from headway.events.forms.files import LogChain

#: Bytes of logs from which on NumPy, which takes a third of a second to load, is worth it.
_MANY = 2 << 20
#: Events that say nothing about holds: the command's own words and its growing memory.
_IGNORED = frozenset({EventType.GENERIC, EventType.IMAGE_SIZE})
#: Stages of transfers that change nothing about a hold: a failed input has "finished" as well.
_UNTOLD = frozenset(
    {Kind.INPUT_FINISHED, Kind.OUTPUT_QUEUED, Kind.OUTPUT_STARTED, Kind.OUTPUT_FINISHED}
)
#: Events whose reason is read: a hold may leave it to the exception before it.
_SAYING = frozenset({Kind.HELD, Kind.SHADOW_EXCEPTION})
#: The queue's names of what the resource table of a 004 or 005 event tells.
_ASKED = {"Memory": "RequestMemory", "Disk": "RequestDisk", "GPUs": "RequestGpus"}
_USED = {"Memory": "MemoryUsage", "Disk": "DiskUsage"}


class Told(NamedTuple):
    """One event of one job; `place` is where it stands in its log."""

    log: str
    place: int
    time: float
    number: int
    kind: Kind
    cluster: int
    proc: int
    code: int = 0
    subcode: int = 0
    text: str = ""
    site: str = ""
    slot: str = ""
    user: str = ""
    facts: Mapping[str, float] | None = None


def told_by(event: Event, log: str, place: int) -> Told | None:
    """What an event tells, None where it is nothing about holds."""
    number = event.number
    if number in _IGNORED or event.proc < 0 or event.cluster < 0 or number >= 100:
        return None
    kind = kind_of(event)
    site = slot = user = ""
    facts = None
    if number == EventType.AD_INFORMATION:
        found = event.attributes.get("Owner", event.attributes.get("User"))
        user = found if type(found) is str else ""
    elif kind is Kind.OTHER or kind in _UNTOLD:
        return None
    code, subcode = event.codes or (0, 0) if kind is Kind.HELD else (0, 0)
    if number in (EventType.EXECUTE, EventType.AD_INFORMATION, EventType.REMOTE_ERROR):
        site, slot = event.site, event.slot
    elif number in (EventType.EVICTED, EventType.TERMINATED):
        facts = _facts(event)
    text = event.reason if kind in _SAYING else ""
    return Told(
        log, place, event.time, number, kind, event.cluster, event.proc,
        code, subcode, text, site, slot, user, facts,
    )  # fmt: skip


def _facts(event: Event) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, row in event.resources.items():
        if name in _ASKED and row.request is not None:
            found[_ASKED[name]] = row.request
        if name in _USED and row.usage is not None:
            found[_USED[name]] = row.usage
    return found


def read_told(
    paths: Iterable[str | os.PathLike[str]], unread: list[tuple[str, str]]
) -> list[list[Told]]:
    """What the events of each log tell; `unread` gets the files that could not be read, and why.

    A folder that `headway collect` has filled is as good as its logs.
    """
    from headway.events.collected import is_collected, read_collected
    from headway.events.forms.files import NO_LOGS, find_logs

    places = list(paths)
    stores = [place for place in places if is_collected(place)]
    kept = [told for store in stores for told in of_columns(read_collected(store))]
    found: list[tuple[str, str]] = []
    chains = find_logs([place for place in places if place not in stores], found)
    unread += [(file, why) for file, why in found if why not in NO_LOGS]
    return kept + _read_logs(chains, unread)


def _read_logs(chains: Sequence[LogChain], unread: list[tuple[str, str]]) -> list[list[Told]]:
    if sum(file.size for chain in chains for file in chain.files) >= _MANY:
        from headway.events.columnar.bulk import read_columns

        columns = read_columns([file.path for chain in chains for file in chain.files])
        unread += columns.unread + list(_ended(columns.skipped))
        return list(of_columns(columns))
    from headway.errors import EventLogError
    from headway.events.read import read_log

    logs: list[list[Told]] = []
    for chain in chains:
        rows: list[Told] = []
        place = 0
        for file in chain.files:
            try:
                log = read_log(file.path)
            except EventLogError as error:
                unread.append((str(file.path), str(error)))
                continue
            unread += _ended((str(file.path), skip) for skip in log.skipped)
            for event in log.events:
                made = told_by(event, chain.name, place)
                place += 1
                if made:
                    rows.append(made)
        logs.append(rows)
    return logs


def _ended(skipped: Iterable[tuple[str, Skip]]) -> Iterator[tuple[str, str]]:
    """The files that could not be read to their end."""
    for file, skip in skipped:
        if not skip.length:
            yield file, f"was read up to byte {skip.offset:,}: {skip.why}"


def of_columns(columns: Columns) -> Iterator[list[Told]]:
    """What the rows tell, log by log."""
    import numpy as np

    number, kind = columns.number, columns.kind
    about = (columns.proc >= 0) & (columns.cluster >= 0) & (number < 100)
    about &= ~np.isin(number, list(_IGNORED)) & ~np.isin(kind, list(_UNTOLD))
    about &= (kind != Kind.OTHER) | (number == EventType.AD_INFORMATION)
    facts = _facts_of(columns)
    kinds = list(Kind)
    strings = [*columns.strings, ""]  # -1: none
    places_of = np.isin(
        number, (EventType.EXECUTE, EventType.AD_INFORMATION, EventType.REMOTE_ERROR)
    )
    held = kind == Kind.HELD
    saying = np.isin(kind, list(_SAYING))
    coded = held & (columns.code != _none())
    for log, name in enumerate(columns.logs):
        rows = np.flatnonzero(about & (columns.log == log))
        yield [
            Told(name, row, time / 1e6, num, kinds[k], cluster, proc, code, subcode,
                 strings[text], strings[site], strings[slot], strings[user], facts.get(row))
            for row, time, num, k, cluster, proc, code, subcode, text, site, slot, user in zip(
                rows.tolist(),
                columns.time[rows].tolist(),
                number[rows].tolist(),
                kind[rows].tolist(),
                columns.cluster[rows].tolist(),
                columns.proc[rows].tolist(),
                np.where(coded, columns.code, 0)[rows].tolist(),
                np.where(coded, columns.subcode, 0)[rows].tolist(),
                np.where(saying, columns.text, -1)[rows].tolist(),
                np.where(places_of, columns.site, -1)[rows].tolist(),
                np.where(places_of, columns.slot, -1)[rows].tolist(),
                np.where(number == EventType.AD_INFORMATION, columns.user, -1)[rows].tolist(),
                strict=True,
            )
        ]  # fmt: skip


def _none() -> int:
    from headway.events.columnar.columns import NONE

    return NONE


def _facts_of(columns: Columns) -> dict[int, dict[str, float]]:
    usage = columns.usage
    amounts: dict[str, Floats] = {
        "RequestMemory": usage.memory_asked,
        "MemoryUsage": usage.memory_used,
        "RequestDisk": usage.disk_asked,
        "DiskUsage": usage.disk_used,
        "RequestGpus": usage.gpus_asked,
    }
    rows = zip(*(amount.tolist() for amount in amounts.values()), strict=True)
    return {
        row: {name: value for name, value in zip(amounts, values, strict=True) if value == value}
        for row, values in zip(usage.row.tolist(), rows, strict=True)
    }
