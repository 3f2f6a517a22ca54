"""Attempt records: what the agent knows of an attempt and the event log cannot.

Records are evidence. They fill in what the log left open and never overrule it; as a job's command
can write into the folder that they come home in, nothing in them is taken on trust.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from headway.events import inert
from headway.events.columnar.columns import NONE, Columns, Longs, column_names
from headway.events.event import AGENT_KINDS, Kind, agent_kind
from headway.events.format import EventType
from headway.pool.folder import RunFolder, read_record
from headway.report.accounts import SOURCES, Accounts

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
    """The columns with the phases of those attempts of which only a record knows them.

    The agent's lines travel by chirp, which a pool may not offer. Then the log knows of an
    attempt's execution as a whole, and its record says which part of it was stage-in. Such phases
    are put among the events of the attempt, never before its 001 and never after its end, whatever
    the node's clock showed. Where the log has a line of the agent, the log counts.
    """
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


#: One row a record that came home; `job` and `attempt` are rows of the accounts.
RECORDS = {
    "job": pl.UInt32,
    "attempt": pl.UInt32,  # null: the log has no such attempt
    "record": pl.String,  # the name of its folder in jobs/N/attempts/
    "site": pl.String,
    "host": pl.String,
    "begin": pl.Float64,
    "end": pl.Float64,
    "exit": pl.Int32,  # null: the agent was cut off
    "reason": pl.String,
    "segments": pl.UInt32,  # one more than the checkpoints that the agent itself took
    "staged": pl.Float64,  # bytes of the inputs, wherever they came from
    "staged_s": pl.Float64,
    "fetched": pl.Float64,  # bytes that the agent fetched before the command started
    "streamed": pl.Float64,  # bytes that came while it ran
    "waited_s": pl.Float64,  # seconds that its readers waited for those, all of them together
    "sources": pl.String,  # where from
    "proven": pl.UInt32,  # inputs whose checksum was proven
    "outputs": pl.UInt32,  # declared outputs that were there
    "output_bytes": pl.Float64,
    "command_s": pl.Float64,  # of all segments
    "cpu_s": pl.Float64,
    "max_rss": pl.Float64,  # bytes
    "problems": pl.UInt32,
}


def read_records(folder: RunFolder) -> list[dict[str, Any]]:
    """What came home of a run, one row a record, with its log and job; oldest first."""
    found = []
    log = os.path.abspath(folder.events)
    cluster = _first_cluster(folder) if folder.dag.exists() else None
    for path in folder.jobs.glob("*/attempts/*/record.json"):
        proc = path.parents[2].name
        if not (proc.isascii() and proc.isdigit() and len(proc) < 10):
            continue
        raw = read_record(path.parent)
        if raw and not _of_courier(raw):
            where = _where(raw)
            own = where[0] if where else None
            key = {"log": log, "cluster": cluster or own, "proc": int(proc)}
            found.append({**key, "record": path.parent.name, **row_of(raw)})
    return sorted(found, key=lambda row: (row["proc"], str(row["record"])))


def _first_cluster(folder: RunFolder) -> int | None:
    """What all jobs of a DAG have as their cluster: see `events.state.Pairs`."""
    try:
        with folder.events.open("rb") as file:
            match = re.match(rb"000 \((\d{1,18})\.", file.read(32))
    except OSError:
        return None
    return int(match[1]) if match else None


def _of_courier(raw: Mapping[str, Any]) -> bool:
    """Whether it tells of a courier, which is no attempt of its own."""
    return any(phase.get("name") == "deliver" for phase in _dicts(raw.get("phases")))


def row_of(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of one record, each of the type that RECORDS says, or null; and its phases."""
    segments, inputs = _dicts(raw.get("segments")), _dicts(raw.get("inputs"))
    staged = [phase for phase in _dicts(raw.get("phases")) if phase.get("name") == "stage-in"]
    # Later segments find the inputs of the first in place, and count them once more.
    first = staged[:1]
    streams = [each for each in inputs if each.get("mode") == "stream"]
    fetched = [each for each in inputs if each.get("fetched") is True and each not in streams]
    again = len(segments) > 1 and not fetched
    begins = _numbers(segment.get("begin") for segment in segments)
    ends = _numbers(segment.get("end") for segment in segments)
    outputs = _dicts(raw.get("outputs"))
    problems = raw.get("problems")
    every = [s for each in (*fetched, *streams) for s in _dicts(each.get("sources"))]
    gave = (source for source in every if any(_numbers([source.get("bytes")])))
    sources = sorted({_text(source.get("host")) for source in gave} - {""})
    if not sources:  # an agent of before said only who gave the last byte
        sources = sorted({_text(each.get("source")) for each in fetched} - {""})
    return {
        "site": _text(raw.get("site")) or None,
        "host": _text(raw.get("host")) or None,
        "begin": min(begins, default=None),
        "end": max(ends, default=None),
        "exit": _whole(raw.get("exit")),
        "reason": _text(raw.get("reason")) or None,
        "segments": len(segments),
        "staged": _total(phase.get("bytes") for phase in first),
        "staged_s": _total(_length(phase) for phase in first),
        "fetched": None if again else _total(each.get("bytes") for each in fetched),
        "streamed": _total(_brought(each) for each in streams),
        "waited_s": _total(each.get("waited") for each in streams),
        "sources": ", ".join(sources) or None,
        "proven": sum(each.get("verified") is True for each in inputs),
        "outputs": len(outputs),
        "output_bytes": _total(each.get("bytes") for each in outputs),
        "command_s": _total(segment.get("seconds") for segment in segments),
        "cpu_s": _total(s.get(key) for s in segments for key in ("cpu_user", "cpu_system")),
        "max_rss": max(_numbers(segment.get("max_rss") for segment in segments), default=None),
        "problems": len(problems) if isinstance(problems, list) else 0,
        "served": [source for each in inputs for source in _dicts(each.get("sources"))],
        "phases": list(_phases(raw, segments)),
    }


def matched(accounts: Accounts, rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """The records beside the attempts that they are of: those of the same job and time."""
    given = [row for row in rows if row.get("cluster") is not None]
    if not given:
        return pl.DataFrame(schema=RECORDS)
    jobs: dict[tuple[object, ...], int] = {}
    clusters = accounts.jobs.filter(pl.col("cluster").is_in({row["cluster"] for row in given}))
    for job, log, *key in clusters.select("job", "log", "cluster", "proc").iter_rows():
        # A job may be in the pool's log too, and two access points may both have a cluster 1.
        jobs[(os.path.abspath(log or ""), *key)] = jobs[tuple(key)] = job
    of = [jobs.get((row["log"], *_key(row)), jobs.get(_key(row))) for row in given]
    wanted = {job for job in of if job is not None}
    attempts: dict[int, list[tuple[int, float, float]]] = {}
    ours = accounts.attempts.filter(pl.col("job").is_in(list(wanted)) & pl.col("executed"))
    for job, attempt, begin, end in ours.select("job", "attempt", "begin", "end").iter_rows():
        attempts.setdefault(job, []).append((attempt, begin, end))
    found = []
    for row, job in zip(given, of, strict=True):
        if job is None:
            continue
        left = attempts.get(job, [])
        best = max(left, key=lambda each: _overlap(row, each[1], each[2]), default=None)
        if best is not None and _overlap(row, best[1], best[2]) > -SLACK:
            left.remove(best)
            found.append({**row, "job": job, "attempt": best[0]})
        else:
            found.append({**row, "job": job, "attempt": None})
    return pl.DataFrame([{key: row.get(key) for key in RECORDS} for row in found], schema=RECORDS)


def filled(accounts: Accounts, records: pl.DataFrame) -> Accounts:
    """The accounts with what only the records know: bytes, sites and reasons that no log has."""
    known = records.filter(pl.col("attempt").is_not_null())
    if known.is_empty():
        return accounts
    facts = known.select(
        "attempt",
        pl.coalesce("fetched", "staged").alias("_bytes"),
        pl.col("site").alias("_site"),
        pl.col("reason").alias("_reason"),
        pl.col("exit").alias("_exit"),
    ).unique("attempt", keep="last", maintain_order=True)
    before = accounts.attempts
    joined = before.join(facts, on="attempt", how="left", maintain_order="left")
    unsaid = pl.col("received").is_null() | (pl.col("received") == 0)
    failed = pl.col("_exit").is_not_null() & (pl.col("_exit") != 0)
    attempts = joined.with_columns(
        received=pl.when(unsaid & (pl.col("_bytes") > 0))
        .then(pl.col("_bytes"))
        .otherwise(pl.col("received")),
        agent_transfer=pl.col("agent_transfer") | (pl.col("_bytes") > 0).fill_null(False),
        site=pl.coalesce(pl.col("site").cast(pl.String), "_site").cast(pl.Categorical),
        reason=pl.coalesce("reason", pl.when(failed).then(pl.col("_reason"))),
    ).select(before.columns)
    return replace(accounts, attempts=attempts)


def served(records: pl.DataFrame, rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    """What the sources of all inputs did, by the attempt; `records` are those that `matched`."""
    known = records.filter(pl.col("attempt").is_not_null()).select("record", "job", "attempt")
    of = {record: (job, attempt) for record, job, attempt in known.iter_rows()}
    found = []
    for row in rows:
        place = of.get(row["record"])
        if place is None:
            continue
        for source in row.get("served", ()):
            name, fault = _text(source.get("host")), _text(source.get("fault"))
            size, wasted = (_total([source.get(key)]) or 0.0 for key in ("bytes", "wasted"))
            failed = bool(fault) and (not size or source.get("state") in ("benched", "refused"))
            if name:
                found.append((*place, name, size, wasted, failed, fault or None))
    return pl.DataFrame(found, schema=SOURCES, orient="row")


def _brought(stream: Mapping[str, Any]) -> float | None:
    """The bytes of a stream, those that came again with them."""
    return _total([stream.get("bytes"), stream.get("refetched")])


def _key(row: Mapping[str, Any]) -> tuple[object, ...]:
    return row["cluster"], row["proc"]


def _phases(raw: Mapping[str, Any], segments: list[dict[str, Any]]) -> Iterator[tuple[Kind, float]]:
    """What began when, as the agent's lines would have told it."""
    for phase in _dicts(raw.get("phases")):
        kind = agent_kind({"phase": str(phase.get("name")), "state": "begin"})
        for begin in _numbers([phase.get("begin")]):
            if kind is not Kind.ALIVE:
                yield kind, begin
    for segment in segments:
        kind = agent_kind({"phase": "done", "exit": str(segment.get("exit"))})
        for end in _numbers([segment.get("end")]):
            yield kind, end


def _overlap(row: Mapping[str, Any], begin: float, end: float) -> float:
    """Seconds that record and attempt share; negative: how far they lie apart."""
    first, last = row["begin"], row["end"]
    if first is None:
        return -math.inf
    return float(min(end, last if last is not None else first) - max(begin, first))


def _where(raw: Mapping[str, Any]) -> tuple[int, int] | None:
    parts = str(raw.get("cluster_proc", "")).split(".")[:2]
    if len(parts) == 2 and all(p.isascii() and p.isdigit() and len(p) < 10 for p in parts):
        return int(parts[0]), int(parts[1])
    return None


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _numbers(values: Iterable[Any]) -> list[float]:
    return [
        float(value)
        for value in values
        if isinstance(value, (int, float))
        and not isinstance(value, bool)
        and 0 <= value < 1e18  # neither a NaN nor a number that no float holds
    ]


def _total(values: Iterable[Any]) -> float | None:
    found = _numbers(values)
    return sum(found) if found else None


def _length(phase: Mapping[str, Any]) -> float | None:
    both = _numbers([phase.get("begin"), phase.get("end")])
    return max(0.0, both[1] - both[0]) if len(both) == 2 else None


def _whole(value: Any) -> int | None:
    small = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31
    return value if small else None


def _text(value: Any) -> str:
    return inert(value, 300) if isinstance(value, str) else ""
