"""Loading: from the events of logs to accounts, with what a run's folder adds."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from headway.errors import HeadwayError, ReportError
from headway.events import inert
from headway.events.kind import Kind
from headway.pool.folder import RunFolder
from headway.report.accounting import account_parts
from headway.report.accounts import Accounts
from headway.report.logs import name_of
from headway.report.records import RECORDS, filled, matched, read_records, served
from headway.report.told import with_phases
from headway.report.words import Outcome
from headway.text import RowWords, many

if TYPE_CHECKING:
    from headway.events.columnar.thin import Thin

_MACRO = re.compile(r"\$\(\s*([A-Za-z_]\w*)\s*\)")
_CLUSTER, _PROC = ("cluster", "clusterid"), ("process", "procid", "proc")
_GOES_ON = (Outcome.UNFINISHED.value, Outcome.HELD.value)


@dataclass(frozen=True)
class Loaded:
    """Accounts with what they were made from; `notes` is what a reader should know about them."""

    name: str
    accounts: Accounts
    records: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=RECORDS))
    notes: tuple[str, ...] = ()


def load(
    found: Sequence[Path | RunFolder],
    events: Thin,
    *,
    outputs: Sequence[str] = (),
    since: float | None = None,
) -> Loaded:
    """The accounts of logs, folders of logs, and runs.

    Args:
        found: What `locate` found.
        events: What `read_logs` read there.
        outputs: Where each job's results must be, with $(Cluster) and $(Process), for its 0 to
            count as a success.
        since: Jobs whose last event is earlier are left out.

    Returns:
        The accounts, and what a reader should know about them.

    Raises:
        ReportError: No job is left, or a pattern has a macro that a log does not hold.
    """
    notes: list[str] = []
    rows = [row for folder in _folders(events) for row in read_records(folder)]
    proof = _proof(events, outputs, notes) if outputs else None
    alive = _alive(found)
    accounts = _accounted(events, rows, since, proof, None, forget=not alive)
    going = accounts.jobs.filter(pl.col("outcome").is_in(_GOES_ON))
    if alive:
        if going.height:
            accounts = _accounted(events, rows, since, proof, time.time())
    else:
        notes += _not_over(going)
    notes += _without_year(events)
    if since is not None:
        notes += _left_out(events, accounts, since)
    folders = _folders(events)
    del events  # its memory is better used by what is worked out from here on
    records = matched(accounts, rows)
    name = ", ".join(map(name_of, found[:3])) + (f" and {len(found) - 3} more" if found[3:] else "")
    accounts = replace(filled(accounts, records), sources=served(records, rows))
    accounts = _with_rows(accounts, folders)
    return Loaded(name, accounts, records, tuple(notes))


def _accounted(
    events: Thin,
    records: Sequence[Mapping[str, Any]],
    since: float | None,
    proof: Mapping[tuple[int, int], bool] | None,
    until: float | None,
    *,
    forget: bool = False,
) -> Accounts:
    """The accounts of all jobs; those of a log alone, which may be large, some at a time."""
    parts = [with_phases(events.columns(), records)] if records else events.some_jobs(forget=forget)
    made = account_parts(
        parts, events.last_events(), until=until, since=since, outputs=proof, events=events.events
    )
    return replace(made, left_out=made.left_out + events.left_out)


def declared(pattern: str) -> Callable[[int, int], str]:
    """The name of a job's output, from a pattern with the macros of a submit file."""
    for macro in _MACRO.findall(pattern):
        if macro.lower() not in _CLUSTER + _PROC:
            raise ReportError(
                f"$({inert(macro, 40)}) in {inert(pattern, 80)!r} is not known here",
                remedy="$(Cluster) and $(Process) are; a log does not hold the others",
            )

    def name(cluster: int, proc: int) -> str:
        return _MACRO.sub(lambda m: str(cluster if m[1].lower() in _CLUSTER else proc), pattern)

    return name


def _proof(
    events: Thin, patterns: Sequence[str], notes: list[str]
) -> Mapping[tuple[int, int], bool]:
    """Of the jobs that ended with 0, whether their declared outputs are there and not empty.

    A name that is not absolute is looked for here and beside the job's log.
    """
    names = [declared(pattern) for pattern in patterns]
    cluster, proc, kind = (events.narrow[name].all() for name in ("cluster", "proc", "kind"))
    ended = np.flatnonzero(kind == Kind.SUCCEEDED)
    folders = [Path(log).parent for log in events.logs]
    found: dict[tuple[int, int], bool] = {}
    for *ids, log in zip(
        cluster[ended].tolist(),
        proc[ended].tolist(),
        events.log[ended].tolist(),
        strict=True,
    ):
        beside = folders[log]
        job = (int(ids[0]), int(ids[1]))
        found[job] = all(_is_there(name(*job), beside) for name in names)
    if found and not any(found.values()):
        example = names[0](*next(iter(found)))
        notes.append(
            f"no job's declared output was found, such as {inert(example, 200)}:"
            " is the pattern of --output right, and are the results still there?"
        )
    return found


def _is_there(name: str, beside: Path) -> bool:
    for path in (name, beside / name):
        try:
            if os.path.isdir(path):
                if next(os.scandir(path), None) is not None:
                    return True
            elif os.stat(path).st_size > 0:
                return True
        except (OSError, ValueError):
            continue
    return False


def _alive(found: Sequence[Path | RunFolder]) -> bool:
    """Whether all that is reported of goes on: a plain log may have been left years ago."""
    for each in found:
        if not isinstance(each, RunFolder):
            return False
        if each.facts.pool.get("kind") == "local" and not _supervised(each):
            return False
    return True


def _supervised(folder: RunFolder) -> bool:
    try:
        return folder.is_locked("supervisor")
    except HeadwayError:
        return False


def _not_over(going: pl.DataFrame) -> list[str]:
    """Says of jobs that have no end in their logs from when on nothing is known of them.

    Of those that are held the report speaks elsewhere.
    """
    going = going.filter(pl.col("outcome") == Outcome.UNFINISHED.value)
    if going.is_empty():
        return []
    ends = sorted({_minute(end) for end in going["end"].unique()})
    since = ends[0] if len(ends) == 1 else f"between {ends[0]} and {ends[-1]}"
    return [
        f"what became of {many(going.height, 'job')} after the last event of the log ({since})"
        " is not known, and not counted"
    ]


def _without_year(events: Thin) -> list[str]:
    """Says of how many files nobody knows for sure which year their dates mean."""
    if not events.yearless:
        return []
    return [
        f"{many(len(events.yearless), 'log')} without a year in the dates, such as"
        f" {inert(events.yearless[0], 200)}: nothing there says which year it was; the latest that"
        " fits the files beside it and its own date is taken"
    ]


def _minute(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def _left_out(events: Thin, accounts: Accounts, since: float) -> list[str]:
    when = _minute(since)
    if accounts.jobs.is_empty():
        last = _minute(int(events.time.max()) / 1e6)
        raise ReportError(
            f"no job has an event since {when}; the last event is of {last}",
            remedy="go further back with --since, or leave it out",
        )
    if not accounts.left_out:
        return []
    return [f"{many(accounts.left_out, 'job')} without an event since {when} left out"]


def _with_rows(accounts: Accounts, folders: Sequence[RunFolder]) -> Accounts:
    """The accounts with each job's row of its run's table, where there is one, in words."""
    words: dict[str, RowWords] = {}
    for folder in folders:
        with contextlib.suppress(HeadwayError):
            if folder.job.rows is not None:
                words[os.path.abspath(folder.events)] = RowWords(folder.job.rows)
    if not words:
        return accounts
    none = RowWords(None)
    logs = {
        log: words.get(os.path.abspath(log or ""), none) for log in accounts.jobs["log"].unique()
    }
    rows = [
        logs[log](proc) or None for log, proc in accounts.jobs.select("log", "proc").iter_rows()
    ]
    return replace(
        accounts, jobs=accounts.jobs.with_columns(pl.Series("row", rows, dtype=pl.String))
    )


def _folders(events: Thin) -> list[RunFolder]:
    """The run folders among the places where the logs lie."""
    places = dict.fromkeys(Path(log).absolute().parent for log in events.logs)
    return [RunFolder(place) for place in places if (place / "run.json").is_file()]
