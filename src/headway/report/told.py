"""Phases that only a record tells: where no line of the agent got through to the event log.

The agent's lines travel by chirp, which a pool may not offer. Then the log knows of an attempt's
execution as a whole, and its record says which part of it was stage-in. Such phases are put among
the events of the attempt, never before its 001 and never after its end, whatever the node's
clock showed; where the log has a line of the agent it has the word.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from headway.events.columnar.columns import NONE, Columns, Longs, column_names
from headway.events.event import EventType
from headway.events.kind import AGENT_KINDS, Kind

#: Seconds that a node's clock may be off.
SLACK = 300.0

_OPENING = frozenset({Kind.EXECUTING, Kind.INPUT_QUEUED, Kind.INPUT_STARTED})
_ENDING = frozenset(
    {
        Kind.EVICTED,
        Kind.REQUEUED,
        Kind.SUCCEEDED,
        Kind.FAILED,
        Kind.HELD,
        Kind.REMOVED,
        Kind.RECONNECT_FAILED,
        Kind.SHADOW_EXCEPTION,
    }
)
_WHOLE = frozenset({"number", "cluster", "proc", "subproc", "time", "kind", "log", "file", "text"})
_CODES = frozenset({"code", "subcode", "value", "signal"})


class Execution(NamedTuple):
    """The rows of one execution: its 001, and where the next event that is not of it stands."""

    first: int
    after: int
    silent: bool  # no line of the agent


def with_phases(columns: Columns, records: Sequence[Mapping[str, Any]]) -> Columns:
    """The columns with the phases of those attempts of which only a record knows them."""
    missing = [record for record in records if record.get("phases") and record.get("begin")]
    if not missing:
        return columns
    logs = {os.path.abspath(log): place for place, log in enumerate(columns.logs)}
    wanted = {(logs.get(r["log"], -1), r["cluster"], r["proc"]) for r in missing}
    silent = _silent(columns, wanted)
    places: list[int] = []
    made: list[tuple[int, int, int, str]] = []  # the 001's row, kind, time, nonce
    for record in missing:
        left = silent.get((logs.get(record["log"], -1), record["cluster"], record["proc"]), [])
        found = _of(columns, record, left)
        if found is not None:
            left.remove(found)
            for at, kind, time in _placed(columns, record, found):
                places.append(at)
                made.append((found.first, int(kind), time, f"record {record['record']}"))
    return _inserted(columns, places, made) if places else columns


def _silent(
    columns: Columns, wanted: set[tuple[int, int, int]]
) -> dict[tuple[int, int, int], list[Execution]]:
    """The executions of these jobs of which the agent told nothing."""
    telling = [int(kind) for kind in _OPENING | _ENDING | AGENT_KINDS]
    found: dict[tuple[int, int, int], list[Execution]] = {}
    now: dict[tuple[int, int, int], Execution] = {}
    for row in np.flatnonzero(np.isin(columns.kind, telling)).tolist():
        key = (int(columns.log[row]), int(columns.cluster[row]), int(columns.proc[row]))
        if key not in wanted:
            continue
        kind = Kind(int(columns.kind[row]))
        if kind in AGENT_KINDS:
            now.pop(key, None)
            continue
        open_one = now.pop(key, None)
        if open_one is not None:
            found.setdefault(key, []).append(open_one._replace(after=row))
        if kind is Kind.EXECUTING:
            now[key] = Execution(row, len(columns), True)
    for key, open_one in now.items():
        found.setdefault(key, []).append(open_one)
    return found


def _of(columns: Columns, record: Mapping[str, Any], left: Sequence[Execution]) -> Execution | None:
    """The execution that the record is of: the one that lies nearest in time."""

    def apart(each: Execution) -> float:
        begin, end = _bounds(columns, each)
        return float(max(begin - record["begin"], record["begin"] - end))

    best = min(left, key=apart, default=None)
    return best if best is not None and apart(best) < SLACK else None


def _bounds(columns: Columns, each: Execution) -> tuple[float, float]:
    end = columns.time[each.after] if each.after < len(columns) else np.iinfo(np.int64).max
    return int(columns.time[each.first]) / 1e6, int(end) / 1e6


def _placed(
    columns: Columns, record: Mapping[str, Any], each: Execution
) -> list[tuple[int, Kind, int]]:
    """Each phase with the row before which it belongs."""
    key = (columns.cluster[each.first], columns.proc[each.first])
    span = np.arange(each.first, min(each.after, len(columns)))
    mine = span[(columns.cluster[span] == key[0]) & (columns.proc[span] == key[1])]
    times = columns.time[mine]
    # Most logs know whole seconds only, rounded down; so then must these.
    step = 1_000_000 if not (times % 1_000_000).any() else 1
    begin, end = _bounds(columns, each)
    shift = max(0.0, begin - record["begin"])
    last = max(time for _, time in record["phases"]) + shift
    shift -= max(0.0, last - max(begin, end) - step / 1e6)
    found, place = [], 1  # never before the 001
    for kind, time in sorted(record["phases"], key=lambda phase: phase[1]):
        at = int(min(max(time + shift, begin), end) * 1e6) // step * step
        place = max(place, int(np.searchsorted(times, at)))
        if kind is Kind.CHECK:
            # Within a second: a segment begins after the output of the one before has left.
            later = int(np.searchsorted(times, at, "right"))
            left = np.flatnonzero(columns.kind[mine[place:later]] == Kind.OUTPUT_FINISHED)
            place += int(left[0]) + 1 if len(left) else 0
        row = int(mine[place]) if place < len(mine) else each.after
        found.append((row, kind, at))
    return found


def _inserted(
    columns: Columns, places: Sequence[int], made: Sequence[tuple[int, int, int, str]]
) -> Columns:
    order = np.argsort(np.array(places), kind="stable")
    at: Longs = np.array(places, np.int64)[order]
    rows = [made[place] for place in order]
    near = np.array([row[0] for row in rows])
    strings = [*columns.strings]
    texts: dict[str, int] = {}
    for row in rows:
        if row[3] not in texts:
            texts[row[3]] = len(strings)
            strings.append(row[3])
    values: dict[str, Any] = {
        "number": np.full(len(rows), int(EventType.GENERIC)),
        "kind": np.array([row[1] for row in rows]),
        "time": np.array([row[2] for row in rows]),
        "text": np.array([texts[row[3]] for row in rows]),
    }
    changes: dict[str, Any] = {}
    for name in column_names():
        column = getattr(columns, name)
        if name in values:
            added = values[name]
        elif name in _WHOLE or name == "offset":
            added = column[near]
        else:
            added = np.full(len(rows), NONE if name in _CODES else -1)
        changes[name] = np.insert(column, at, added.astype(column.dtype))
    shifted = columns.usage.row + np.searchsorted(at, columns.usage.row, side="right")
    usage = replace(columns.usage, row=shifted.astype(columns.usage.row.dtype))
    return replace(columns, **changes, usage=usage, strings=strings)
