"""The ledger of a store: one file that names all parts and cursors, and is replaced as a whole.

What the ledger does not name does not count. So a part and the cursors after its events count from
the same moment on, and a process that is killed before that has done nothing.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headway.collect.tail import EventRow, Gap, StoredLog, log_as_json, log_from_json
from headway.errors import CollectError
from headway.events.collected import FORMAT, LEDGER
from headway.node.files import lock, sync_folder, write_atomically

if TYPE_CHECKING:
    import polars as pl


_LOCK = "lock"
_MOST_GAPS = 1000  # the ledger lists so many; more are counted


@dataclass(frozen=True)
class StorePart:
    """One Parquet file of a day."""

    day: str  # YYYY-MM-DD, or "unknown"
    name: str
    rows: int
    bytes: int
    first: int  # microseconds since the epoch
    last: int

    @property
    def path(self) -> str:
        """Its path in the store's folder."""
        return f"events/day={self.day}/{self.name}"


@dataclass
class StoreLedger:
    """What a store has."""

    folder: Path
    anonymised: bool = False
    check: str = ""  # what the key makes of a known text
    number: int = 0  # of commits
    sources: list[StoredLog] = field(default_factory=list)
    parts: list[StorePart] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    gap_count: int = 0

    @classmethod
    def read(cls, folder: Path) -> StoreLedger | None:
        """The ledger of a store; None: there is no store yet."""
        try:
            found = json.loads((folder / LEDGER).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise _damaged(folder, str(error)) from error
        try:
            if found["format"] != FORMAT:
                raise CollectError(
                    f"{folder} was written by another version of headway"
                    f" (format {str(found['format'])[:20]}, this one knows {FORMAT})",
                    remedy="collect into another folder, or use that version",
                )
            return cls(
                folder,
                found["anonymised"],
                found["check"],
                found["number"],
                [log_from_json(one) for one in found["sources"]],
                [StorePart(**one) for one in found["parts"]],
                [Gap(**one) for one in found["gaps"]],
                found["gap_count"],
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise _damaged(folder, f"{type(error).__name__}: {error}") from error

    def add_gap(self, gap: Gap) -> None:
        """Record a gap."""
        self.gap_count += 1
        if len(self.gaps) < _MOST_GAPS:
            self.gaps.append(gap)

    def commit(self) -> None:
        """Write the ledger; from now on it counts."""
        self.number += 1
        document = {
            "format": FORMAT,
            "anonymised": self.anonymised,
            "check": self.check,
            "number": self.number,
            "sources": [log_as_json(one) for one in self.sources],
            "parts": [vars(one) for one in self.parts],
            "gaps": [vars(one) for one in self.gaps],
            "gap_count": self.gap_count,
        }
        put(self.folder / LEDGER, json.dumps(document, separators=(",", ":")).encode())

    def clean(self) -> None:
        """Delete what a process that was killed had begun."""
        named = {part.path for part in self.parts}
        for path in self.folder.glob("events/day=*/*part-*"):
            if path.relative_to(self.folder).as_posix() not in named:
                with contextlib.suppress(OSError):
                    path.unlink()
        with contextlib.suppress(OSError):
            (self.folder / _temporary(LEDGER)).unlink()
        for folder in self.folder.glob("events/day=*"):
            with contextlib.suppress(OSError):
                folder.rmdir()  # if it is empty


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the store, so that no other process collects into it."""
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            stack.callback(os.close, descriptor)
            stack.callback(lock(descriptor).release)
        except BlockingIOError:
            owner = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
            who = f" (process {owner})" if owner.isdigit() else ""
            raise CollectError(
                f"another `headway collect` writes into {folder}{who}",
                remedy="let it go on, or end it first; one can follow many logs",
            ) from None
        except OSError as error:
            raise cannot_write(folder, error) from error
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        yield


def put(path: Path, data: bytes) -> None:
    """Write a file so that all of it is there, even after a power failure, or nothing."""
    try:
        write_atomically(path, data, mode=None, temporary=_temporary(path.name))
    except OSError as error:
        raise cannot_write(path, error) from error


def cannot_write(path: Path, error: OSError) -> CollectError:
    """The error for a disk that is full, or a folder that may not be written."""
    return CollectError(
        f"{path} cannot be written: {error.strerror or error}",
        remedy="make room or change the permissions, and start again: what was stored is intact,"
        " and the rest follows if the logs are still there",
    )


def _temporary(name: str) -> str:
    return f".{name}.new"


def _damaged(folder: Path, why: str) -> CollectError:
    return CollectError(
        f"{folder / LEDGER} cannot be read: {why[:200]}",
        remedy="only `headway collect` writes it; restore it from a backup, or collect into"
        " another folder",
    )


# The parts of a store: Parquet files by day. Many small ones are merged into one.


UNKNOWN = "unknown"
#: A part with so many rows is not merged.
_LARGE = 250_000
#: A day that is not over may have so many small parts.
_SMALL_PARTS = 32


@dataclass
class RowBatch:
    """Rows that are committed together."""

    source: list[int] = field(default_factory=list)
    file: list[int] = field(default_factory=list)
    day: list[int] = field(default_factory=list)
    rows: list[EventRow] = field(default_factory=list)
    size: int = 0  # of the logs' bytes

    def __len__(self) -> int:
        return len(self.rows)


def write_batch(folder: Path, batch: RowBatch, number: int) -> list[StorePart]:
    """Write the parts of a batch; they count once a ledger names them."""
    import polars as pl

    types = {
        "source": pl.Int32, "file": pl.Int32, "offset": pl.Int64, "number": pl.Int16,
        "cluster": pl.Int64, "proc": pl.Int64, "subproc": pl.Int64, "time": pl.Float64,
        "date": pl.String, "text": pl.String, "day": pl.Int32,
    }  # fmt: skip
    columns = (batch.source, batch.file, *zip(*batch.rows, strict=True), batch.day)
    table = pl.DataFrame(dict(zip(types, columns, strict=True)), schema=types).with_columns(
        (pl.col("time") * 1e6).round().cast(pl.Int64).cast(pl.Datetime("us", "UTC"))
    )
    days = table.partition_by("day", as_dict=True, include_key=False, maintain_order=True)
    return [
        _write(folder, day_name(day), f"part-{number:08d}.parquet", rows)
        for (day,), rows in days.items()
    ]


def compactable(parts: Sequence[StorePart], today: str) -> list[list[StorePart]]:
    """Groups of small parts of one day to merge: of a day that is over, or if they are too many."""
    days: dict[str, list[StorePart]] = defaultdict(list)
    for part in parts:
        if part.rows < _LARGE:
            days[part.day].append(part)
    found = []
    for day, small in sorted(days.items()):
        over = day != UNKNOWN and day < today
        if len(small) > (1 if over else _SMALL_PARTS):
            group: list[StorePart] = []
            for part in small:
                if group and sum(one.rows for one in group) + part.rows > 2 * _LARGE:
                    found.append(group)
                    group = []
                group.append(part)
            found.append(group)
    return [group for group in found if len(group) > 1]


def merged(folder: Path, parts: Sequence[StorePart], number: int) -> StorePart:
    """One part with the rows of several of the same day."""
    import polars as pl

    table = pl.concat([pl.read_parquet(folder / part.path) for part in parts])
    table = table.sort("source", "file", "offset", maintain_order=True)
    return _write(folder, parts[0].day, f"part-{number:08d}-whole.parquet", table)


def day_name(day: int) -> str:
    """The date of a day since the epoch; "unknown" for a negative one."""
    from datetime import date

    return UNKNOWN if day < 0 else date.fromordinal(719163 + day).isoformat()


def _write(folder: Path, day: str, name: str, rows: pl.DataFrame) -> StorePart:
    # Into memory first: polars does not say so when a disk is full.
    buffer = io.BytesIO()
    rows.write_parquet(buffer, compression="zstd", compression_level=6)
    data = buffer.getvalue()
    place = folder / "events" / f"day={day}"
    try:
        if not place.is_dir():
            place.mkdir(parents=True, exist_ok=True)
            sync_folder(str(place.parent), strict=True)
            sync_folder(str(folder), strict=True)
    except OSError as error:
        raise cannot_write(place, error) from error
    put(place / name, data)
    times = rows["time"].cast(int)
    return StorePart(day, name, rows.height, len(data), int(times.min()), int(times.max()))  # type: ignore[arg-type]
