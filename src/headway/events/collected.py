"""Reading a store that `headway collect` made, as if it were the logs that went into it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headway.errors import EventLogError

if TYPE_CHECKING:
    import polars as pl

    from headway.events.columnar.assemble import File
    from headway.events.columnar.columns import Columns, EventArrays
    from headway.events.columnar.thin import Thin

    _Parts = tuple[list[EventArrays], list[File], list[str], list[str]]

#: The file that says what a store holds; what it does not name is not there.
LEDGER = "collected.json"
FORMAT = 1
_TRIES = 5
#: Events that are written as text and scanned at a time.
_STEP = 50_000
#: Events of several writers get out of order by less than this.
_SLACK = timedelta(seconds=60)
_DAY = 86_400
#: The columns that identify a job.
_JOB = ["cluster", "proc"]


def is_collected(folder: str | os.PathLike[str]) -> bool:
    """Whether this is the folder of a store."""
    return Path(folder, LEDGER).is_file()


def read_collected(
    folder: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None
) -> Columns:
    """All events of a store, as `read_columns` gives those of the logs that it was made from.

    Also while it is written to: then it is as it was at one commit. `progress` is told how many
    bytes of how many are read.
    """
    from headway.events.columnar.assemble import assemble

    (parts, files, logs, owners), _ = _read(Path(folder), None, progress)
    return assemble(parts, files, logs, owners)


def read_collected_thin(
    folder: str | os.PathLike[str],
    *,
    since: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Thin:
    """What accounts need of a store's events, in little memory; see `read_collected`.

    Args:
        folder: Where the store is.
        since: Only the jobs that have an event since then are wanted. Of the days before, only
            the parts that have such a job are read, and only the events of such jobs are kept.
        progress: Is told how many bytes of how many are read.

    Returns:
        The events; those of other jobs may be among them. Where none is, of all days.
    """
    from headway.events.columnar.thin import thin_of, thinned

    (parts, files, logs, owners), unwanted = _read(Path(folder), since, progress)
    thin = thin_of([thinned(part) for part in parts], files, logs, owners)
    thin.events += unwanted.events
    thin.left_out = unwanted.jobs
    return thin


def _read(
    place: Path, since: float | None, progress: Callable[[int, int], None] | None
) -> tuple[_Parts, _Unwanted]:
    for _ in range(_TRIES):
        ledger = _ledger(place)
        try:
            table, unwanted = _table(place, ledger["parts"], since, progress)
            return _parts(place, ledger, table), unwanted
        except FileNotFoundError:
            continue  # small parts have become a large one meanwhile
        except OSError as error:
            raise _unreadable(place, error.strerror or str(error)) from error
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise _unreadable(place, f"{LEDGER} is damaged: {error}"[:200]) from error
    raise _unreadable(place, "is being rewritten again and again")


def _ledger(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / LEDGER).read_bytes())
        if found["format"] != FORMAT:
            raise _unreadable(folder, f"has format {str(found['format'])[:20]}, not {FORMAT}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unreadable(folder, f"{LEDGER}: {error}"[:200]) from error
    return found


class _Unwanted(NamedTuple):
    """What was not read of a store."""

    events: int = 0
    jobs: int = 0


def _table(
    folder: Path,
    parts: Sequence[Mapping[str, Any]],
    since: float | None,
    progress: Callable[[int, int], None] | None,
) -> tuple[pl.DataFrame, _Unwanted]:
    import polars as pl

    total, done = sum(part["bytes"] for part in parts), 0
    # The zone of a log may have become known late: its times are off by a day at most.
    first = float("-inf") if since is None else (since - _DAY) * 1e6
    recent = [part for part in parts if part["last"] >= first]
    before = [part for part in parts if part["last"] < first]
    tables = []

    def read(part: Mapping[str, Any], columns: list[str] | None = None) -> pl.DataFrame:
        # A name in the ledger must not lead out of the folder.
        names = (f"day={part['day']}", str(part["name"]))
        path = Path(folder, "events", *(os.path.basename(name) for name in names))
        try:
            # Opened once: it may be unlinked meanwhile.
            with path.open("rb") as file:
                return pl.read_parquet(file, columns=columns)
        except pl.exceptions.PolarsError as error:
            raise _unreadable(folder, f"{path.name} is damaged: {error}"[:200]) from error

    def note(part: Mapping[str, Any]) -> None:
        nonlocal done
        done += part["bytes"]
        if progress:
            progress(done, total)

    for part in recent:
        tables.append(read(part))
        note(part)
    jobs = pl.concat(tables).select(_JOB).unique() if tables else pl.DataFrame()
    if since is not None and before and jobs.is_empty():
        return _table(folder, parts, None, progress)
    events, others = 0, []
    for part in before:
        ids = read(part, _JOB)
        others.append(ids.join(jobs, on=_JOB, how="anti").unique())
        events += ids.height
        if others[-1].height < ids.n_unique():
            tables.append(read(part).join(jobs, on=_JOB, how="semi", maintain_order="left"))
            events -= tables[-1].height
        note(part)
    unwanted = _Unwanted(events, pl.concat(others).n_unique() if others else 0)
    return pl.concat(tables) if tables else pl.DataFrame(), unwanted


def _parts(folder: Path, ledger: Mapping[str, Any], table: pl.DataFrame) -> _Parts:
    import numpy as np

    from headway.events.columnar.assemble import File
    from headway.events.columnar.columns import placed
    from headway.events.columnar.scan import Scanner

    if table.is_empty():
        return [], [], [], []
    sources = {one["id"]: one for one in ledger["sources"]}
    # A pseudonym is not a path: below the folder, nobody takes it for one of this machine.
    prefix = f"{folder}{os.sep}" if ledger["anonymised"] else ""
    names = {place: f"{prefix}{one['name']}" for place, one in sources.items()}
    known = {(s["id"], f["number"]): f for s in ledger["sources"] for f in s["files"]}
    files = _in_order(table, names)
    logs = {one: place for place, one in enumerate(dict.fromkeys(file[0] for file in files))}
    table = _sorted(table, files, {key for key, file in known.items() if file.get("retell")})
    scanner = Scanner()
    lengths = [np.zeros(1, np.int64)]
    for texts in _texts(table):
        scanner.feed("".join(texts.to_list()).encode())
        lengths.append(texts.str.len_bytes().to_numpy())
    begin = np.cumsum(np.concatenate(lengths), dtype=np.int64)
    rows = np.cumsum([0, *(count for _, _, count in files)])[:-1]
    part = placed(scanner.arrays(), list(range(len(files))), begin[rows].tolist())
    if len(part) != table.height:
        raise _unreadable(folder, f"{table.height - len(part)} of its events are none")
    part.columns["offset"] = table["offset"].to_numpy().copy()
    return (
        [part],
        [
            File(names[source], logs[source], known.get((source, file), {}).get("modified", 0.0))
            for source, file, _ in files
        ],
        [names[source] for source in logs],
        [str(sources[source]["owner"]) for source in logs],
    )


def _in_order(table: pl.DataFrame, names: Mapping[int, str]) -> list[tuple[int, int, int]]:
    """The files as log, number and count of events: by name, and those of a log by age."""
    import polars as pl

    first = pl.col("time").sort_by("offset").first()
    found = table.group_by("source", "file").agg(pl.len(), first).rows()
    logs: dict[int, list[tuple[datetime, int, int]]] = {}
    for source, file, count, first in found:
        logs.setdefault(source, []).append((first, file, count))
    order: list[tuple[int, int, int]] = []
    for source in sorted(logs, key=lambda source: (names[source], source)):
        files = sorted(logs[source], key=lambda one: one[1])
        if any(earlier[0] > later[0] + _SLACK for earlier, later in pairwise(files)):
            files.sort()  # an older file was found after a newer one
        order += [(source, file, count) for _, file, count in files]
    return order


def _sorted(
    table: pl.DataFrame, files: Sequence[tuple[int, int, int]], retell: set[tuple[int, int]]
) -> pl.DataFrame:
    import polars as pl

    order = pl.DataFrame(
        {
            "source": pl.Series([one[0] for one in files], dtype=pl.Int32),
            "file": pl.Series([one[1] for one in files], dtype=pl.Int32),
            "rank": pl.Series(range(len(files)), dtype=pl.Int32),
            "retell": pl.Series([one[:2] in retell for one in files], dtype=pl.Boolean),
        }
    )
    return table.join(order, on=["source", "file"]).sort("rank", "offset", maintain_order=True)


def _texts(table: pl.DataFrame) -> Iterator[pl.Series]:
    """The events as a log has them, some at a time.

    They say their time in UTC, as it was known when they were stored; where the zone of a
    log was found out too late, their dates stand as they were written, to be told again.
    """
    import polars as pl

    date = (
        pl.when("retell")
        .then("date")
        .otherwise(pl.col("time").dt.strftime("%Y-%m-%d %H:%M:%S%.6fZ"))
    )
    number = pl.col("number").cast(pl.String).str.zfill(3)
    text = pl.format(
        "{} ({}.{}.{}) {} {}\n...\n", number, "cluster", "proc", "subproc", date, "text"
    )
    for start in range(0, table.height, _STEP):
        yield table.slice(start, _STEP).select(text.alias("event"))["event"]


def _unreadable(folder: Path, why: str) -> EventLogError:
    return EventLogError(
        f"the collected logs in {folder} cannot be read: {why}",
        remedy="Is this a folder that `headway collect --into` made, and may you read it?",
    )
