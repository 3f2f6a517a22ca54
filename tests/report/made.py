"""Accounts made by hand: rows with the columns that matter, all others empty."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import polars as pl

from headway.report.accounts import ATTEMPTS, HOLDS, JOBS, PIECES, Accounts
from headway.report.enums import SLOT_PHASES

Row = dict[str, Any]


def made(
    jobs: Sequence[Row] = (),
    attempts: Sequence[Row] = (),
    pieces: Sequence[Row] = (),
    holds: Sequence[Row] = (),
    **more: Any,
) -> Accounts:
    """Accounts of these rows; `job` and `attempt` of the first two tables are their places."""
    jobs = [{"job": at, "id": f"1.{at}", "cluster": 1, "proc": at} | r for at, r in enumerate(jobs)]
    attempts = [{"attempt": at, "cause": "none"} | row for at, row in enumerate(attempts)]
    ends = [row["end"] for row in jobs if row.get("end") is not None]
    begins = [row["begin"] for row in jobs if row.get("begin") is not None]
    bounds: Row = {"begin": min(begins, default=0.0), "end": max(ends, default=0.0)}
    return Accounts(
        table(jobs, JOBS),
        table(attempts, ATTEMPTS),
        table(pieces, PIECES),
        table(holds, HOLDS),
        **(bounds | more),
    )


def table(rows: Sequence[Row], schema: dict[str, Any]) -> pl.DataFrame:
    """A table of a schema; what a row does not say is 0 for lengths and counts, else null."""
    counts = {"attempts", "stalls", "evictions", "holds", "requeues", "checkpoints"}
    empty = {
        name: 0
        if (name.endswith("_s") and name != "cpu_s") or name in counts
        else False
        if kind == pl.Boolean
        else None
        for name, kind in schema.items()
    }
    for row in rows:
        assert row.keys() <= schema.keys(), row.keys() - schema.keys()
    return pl.DataFrame([empty | row for row in rows], schema=schema)


#: Columns of an attempt, by phase.
_SECONDS = {phase.value: f"{phase.value.replace('-', '_')}_s" for phase in SLOT_PHASES}


def accounts_of(jobs: Iterable[Row], **more: Any) -> Accounts:
    """Accounts of jobs that are told by their tries, with all tables in step.

    A job is a row of `Accounts.jobs` with `tries`, each a row of `Accounts.attempts` with `parts`:
    seconds by phase. What a try that does not end well spent is badput, by its ending. `held` lists
    holds that no try ended with: (code, subcode, reason, seconds). A try that ends with a `code`
    below 1000 and `held_s` is followed by a hold, of which `released` says whether it ended.
    """
    tables: dict[str, list[Row]] = {"jobs": [], "attempts": [], "pieces": [], "holds": []}
    for place, told_job in enumerate(jobs):
        _tell(tables, place, dict(told_job))
    return made(**tables, **more)


def _tell(tables: dict[str, list[Row]], place: int, job: Row) -> None:
    tries = job.pop("tries", [])
    now = begin = float(job.pop("begin", 1_000_000.0 + 10 * place))
    outcome = job.setdefault("outcome", "success")
    waits = {"queued_s": 0.0, "held_s": 0.0}
    first = {name: len(rows) for name, rows in tables.items()}

    def piece(phase: str, seconds: float, **row: Any) -> None:
        nonlocal now
        worth = {"verdict": "none", "cause": "none", "attempt": None} | row
        tables["pieces"].append(
            {"job": place, "phase": phase, "begin": now, "seconds": seconds} | worth
        )
        now += seconds

    def hold(
        code: int | None, subcode: int | None, reason: str, seconds: float, **row: Any
    ) -> None:
        at = now
        piece("held", seconds)
        waits["held_s"] += seconds
        released = row.pop("released", False)
        tables["holds"].append(
            {"job": place, "attempt": None, "time": at, "code": code, "subcode": subcode}
            | {"reason": reason, "held_s": seconds, "released": now if released else None}
            | row
        )

    for number, told_try in enumerate(tries, 1):
        queued = float(told_try.get("queued_s", 0.0))
        if queued:
            piece("queued", queued)
            waits["queued_s"] += queued
        spent = sum(row["seconds"] for row in tables["pieces"][first["pieces"] :])
        _try(tables, place, number, dict(told_try), outcome, spent, piece, hold)
    for code, subcode, reason, seconds in job.pop("held", []):
        hold(code, subcode, reason, seconds)
    mine = tables["attempts"][first["attempts"] :]
    sums = {
        name: sum(float(row.get(name, 0.0)) for row in mine)
        for name in ("slot_s", "compute_s", "good_compute_s", "good_s", "bad_s", "open_s")
    }
    held = tables["holds"][first["holds"] :]
    last = {f"hold_{key}": held[-1][key] for key in ("code", "subcode", "reason")} if held else {}
    tables["jobs"].append(
        {"begin": begin, "submitted": begin, "end": now, "total_s": now - begin, "log": "log"}
        | {"site": mine[-1].get("site") if mine else None}
        | {"attempts": len(mine), "holds": len(held)}
        | {"stalls": sum(row["ending"] == "transfer-cut" for row in mine)}
        | {"evictions": sum(row["ending"] in ("eviction", "disconnect") for row in mine)}
        | {"transfer_s": sum(float(row.get("transfer_in_s", 0.0)) for row in mine)}
        | waits
        | sums
        | last
        | job
    )


def _try(
    tables: dict[str, list[Row]],
    place: int,
    number: int,
    row: Row,
    outcome: str,
    begin: float,
    piece: Callable[..., None],
    hold: Callable[..., None],
) -> None:
    row.pop("queued_s", None)
    held_s, released = row.pop("held_s", None), row.pop("released", False)
    parts: dict[str, float] = row.pop("parts", {})
    ending = row.setdefault("ending", "success")
    attempt = len(tables["attempts"])
    verdict = {"success": "good", "open": "open"}.get(ending, "bad")
    if ending == "success" and outcome != "success":
        verdict = "bad"
    cause = ending if ending not in ("success", "open") else "none"
    if verdict == "bad" and cause == "none":
        cause = "failed"
    for phase, seconds in parts.items():
        piece(phase, seconds, attempt=attempt, verdict=verdict, cause=cause)
    whole = sum(parts.values())
    executed = "compute" in parts
    code = row.get("code")
    tables["attempts"].append(
        {"attempt": attempt, "job": place, "number": number, "cause": cause}
        | {"begin": begin, "end": begin + whole, "executed": executed, "arrived": executed}
        | {_SECONDS[phase]: seconds for phase, seconds in parts.items()}
        | {"slot_s": whole, f"{verdict}_s": whole}
        | ({"good_compute_s": parts.get("compute", 0.0)} if verdict == "good" else {})
        | {"evicted": ending in ("eviction", "disconnect")}
        | row
    )
    if held_s is not None:
        told_hold = {"attempt": attempt, "released": released}
        hold(code, row.get("subcode"), row.get("reason", ""), float(held_s), **told_hold)
