"""Attempt records: what the agent knows of an attempt and the event log cannot.

Records are evidence. They fill in what the log left open and never overrule it; as a job's command
can write into the folder that they come home in, nothing in them is taken on trust.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from headway.events import inert
from headway.events.kind import Kind, agent_kind
from headway.pool.folder import RunFolder, read_record
from headway.report.accounts import SOURCES, Accounts
from headway.report.told import SLACK

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
    for path in folder.jobs.glob("*/attempts/*/record.json"):
        proc = path.parents[2].name
        if not (proc.isascii() and proc.isdigit() and len(proc) < 10):
            continue
        raw = read_record(path.parent)
        if raw:
            where = _where(raw)
            key = {"log": log, "cluster": where[0] if where else None, "proc": int(proc)}
            found.append({**key, "record": path.parent.name, **row_of(raw)})
    return sorted(found, key=lambda row: (row["proc"], str(row["record"])))


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
