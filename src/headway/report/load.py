"""Loading: from events to accounts, with what runs themselves have recorded."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from headway.errors import HeadwayError, ReportError
from headway.events import inert
from headway.events.columnar.thin import MANY, Thin
from headway.events.columnar.workers import trim_memory
from headway.events.event import Kind
from headway.pool.folder import RunFolder
from headway.report.accounting import account_parts
from headway.report.accounts import Accounts
from headway.report.enums import JobOutcome
from headway.report.reading import names_of
from headway.report.records import RECORDS, filled, matched, read_records, served, with_phases
from headway.text import RowWords, many

logger = logging.getLogger(__name__)

_GOES_ON = (JobOutcome.UNFINISHED.value, JobOutcome.HELD.value)


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
    begin = time.perf_counter()
    notes: list[str] = []
    folders = _folders(events)
    rows = [row for folder in folders for row in read_records(folder)]
    proof = _proof(events, outputs, notes) if outputs else None
    alive = _alive(found)
    newest = 0.0 if since is None else int(events.last_events().max(initial=0)) / 1e6
    accounts = _accounted(events, rows, since, proof, None, forget=not alive)
    going = accounts.jobs.filter(pl.col("outcome").is_in(_GOES_ON))
    if alive:
        if going.height:
            accounts = _accounted(events, rows, since, proof, time.time())
    else:
        notes += _not_over(going)
    notes += _without_year(events)
    if since is not None:
        notes += _left_out(newest, accounts, since)
    large = events.events > MANY
    del events
    if large:
        trim_memory()  # it is better used by what is worked out from here on
    records = matched(accounts, rows)
    name = names_of(found) + (f" and {len(found) - 3} more" if found[3:] else "")
    accounts = replace(filled(accounts, records), sources=served(records, rows))
    accounts = _with_rows(accounts, folders)
    seconds = time.perf_counter() - begin
    logger.info(
        "accounted %d jobs, %d attempts and %d records in %.2f s",
        *(table.height for table in (accounts.jobs, accounts.attempts, records)),
        seconds,
    )
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


_MACRO = re.compile(r"\$\(\s*([A-Za-z_]\w*)\s*\)")
_CLUSTER, _PROC = ("cluster", "clusterid"), ("process", "procid", "proc")


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
    jobs = (cluster[ended], proc[ended], events.log[ended])
    for *job, log in zip(*(column.tolist() for column in jobs), strict=True):
        found[job[0], job[1]] = all(_is_there(name(*job), folders[log]) for name in names)
    if found and not any(found.values()):
        example = names[0](*next(iter(found)))
        notes.append(
            f"no job's declared output was found, such as {inert(example, 200)}:"
            " is the pattern of --output right, and are the results still there?"
        )
    return found


def _is_there(name: str, beside: Path) -> bool:
    for path in (name, beside / name):
        with contextlib.suppress(OSError, ValueError):
            if any(os.scandir(path)) if os.path.isdir(path) else os.stat(path).st_size > 0:
                return True
    return False


def _alive(found: Sequence[Path | RunFolder]) -> bool:
    """Whether all of these go on: a plain log may have been left years ago."""
    return all(isinstance(each, RunFolder) and _goes_on(each) for each in found)


def _goes_on(run: RunFolder) -> bool:
    if run.facts.pool.get("kind") != "local":
        return True
    with contextlib.suppress(HeadwayError):
        return run.is_locked("supervisor")
    return False


def _not_over(going: pl.DataFrame) -> list[str]:
    """Says of jobs that have no end in their logs from when on nothing is known of them.

    Of those that are held the report speaks elsewhere.
    """
    going = going.filter(pl.col("outcome") == JobOutcome.UNFINISHED.value)
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


def _left_out(newest: float, accounts: Accounts, since: float) -> list[str]:
    when = _minute(since)
    if accounts.jobs.is_empty():
        raise ReportError(
            f"no job has an event since {when}; the last event is of {_minute(newest)}",
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
    none, jobs = RowWords(None), accounts.jobs
    logs = {log: words.get(os.path.abspath(log or ""), none) for log in jobs["log"].unique()}
    rows = [logs[log](proc) or None for log, proc in jobs.select("log", "proc").iter_rows()]
    return replace(accounts, jobs=jobs.with_columns(pl.Series("row", rows, dtype=pl.String)))


def _folders(events: Thin) -> list[RunFolder]:
    """The run folders among the places where the logs lie."""
    places = dict.fromkeys(Path(log).absolute().parent for log in events.logs)
    return [RunFolder(place) for place in places if (place / "run.json").is_file()]
