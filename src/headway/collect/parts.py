"""The parts of a store: rows as Parquet files by day, and many small ones made into one."""

from __future__ import annotations

import contextlib
import io
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headway.collect.ledger import Part, cannot_write, put, sync
from headway.collect.slicing import Row

if TYPE_CHECKING:
    import polars as pl

UNKNOWN = "unknown"
#: A part with at least so many rows is left as it is.
_LARGE = 250_000
#: A day that still grows may have so many small parts.
_SMALL_PARTS = 32


@dataclass
class Batch:
    """Rows that will be committed together."""

    source: list[int] = field(default_factory=list)
    file: list[int] = field(default_factory=list)
    day: list[int] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    size: int = 0  # of the logs' bytes

    def __len__(self) -> int:
        return len(self.rows)


def write_batch(folder: Path, batch: Batch, number: int) -> list[Part]:
    """The parts of a batch, on the disk; they exist once a ledger names them."""
    import polars as pl

    columns = list(zip(*batch.rows, strict=True))
    table = pl.DataFrame(
        {
            "source": pl.Series(batch.source, dtype=pl.Int32),
            "file": pl.Series(batch.file, dtype=pl.Int32),
            "offset": pl.Series(columns[0], dtype=pl.Int64),
            "number": pl.Series(columns[1], dtype=pl.Int16),
            "cluster": pl.Series(columns[2], dtype=pl.Int64),
            "proc": pl.Series(columns[3], dtype=pl.Int64),
            "subproc": pl.Series(columns[4], dtype=pl.Int64),
            "time": (pl.Series(columns[5], dtype=pl.Float64) * 1e6)
            .round()
            .cast(pl.Int64)
            .cast(pl.Datetime("us", "UTC")),
            "date": pl.Series(columns[6], dtype=pl.String),
            "text": pl.Series(columns[7], dtype=pl.String),
            "day": pl.Series(batch.day, dtype=pl.Int32),
        }
    )
    return [
        _write(folder, day_name(day), f"part-{number:08d}.parquet", rows)
        for (day,), rows in table.partition_by(
            "day", as_dict=True, include_key=False, maintain_order=True
        ).items()
    ]


def compactable(parts: Sequence[Part], today: str) -> list[list[Part]]:
    """Small parts that can be made one, by day: all of a day that is over, or too many of one."""
    days: dict[str, list[Part]] = defaultdict(list)
    for part in parts:
        if part.rows < _LARGE:
            days[part.day].append(part)
    found = []
    for day, small in sorted(days.items()):
        over = day != UNKNOWN and day < today
        if len(small) > (1 if over else _SMALL_PARTS):
            group: list[Part] = []
            for part in small:
                if group and sum(one.rows for one in group) + part.rows > 2 * _LARGE:
                    found.append(group)
                    group = []
                group.append(part)
            found.append(group)
    return [group for group in found if len(group) > 1]


def merged(folder: Path, parts: Sequence[Part], number: int) -> Part:
    """One part with the rows of several of the same day."""
    import polars as pl

    table = pl.concat([pl.read_parquet(folder / part.path) for part in parts])
    table = table.sort("source", "file", "offset", maintain_order=True)
    return _write(folder, parts[0].day, f"part-{number:08d}-whole.parquet", table)


def forget(folder: Path, parts: Sequence[Part]) -> None:
    """Take away parts that no ledger names any more."""
    for part in parts:
        with contextlib.suppress(OSError):
            (folder / part.path).unlink()


def day_name(day: int) -> str:
    """The name of a day, counted from the epoch; a negative one is unknown."""
    from datetime import date

    return UNKNOWN if day < 0 else date.fromordinal(719163 + day).isoformat()


def _write(folder: Path, day: str, name: str, rows: pl.DataFrame) -> Part:
    # Into memory first: polars has no words for a full disk.
    whole = io.BytesIO()
    rows.write_parquet(whole, compression="zstd", compression_level=6)
    data = whole.getvalue()
    place = folder / "events" / f"day={day}"
    try:
        if not place.is_dir():
            place.mkdir(parents=True, exist_ok=True)
            sync(place.parent)
            sync(folder)
    except OSError as error:
        raise cannot_write(place, error) from error
    put(place / name, data)
    times = rows["time"].cast(int)
    return Part(day, name, rows.height, len(data), int(times.min()), int(times.max()))  # type: ignore[arg-type]
