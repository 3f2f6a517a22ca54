"""What a store holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.collect.cursor import Gap
from headway.collect.ledger import Ledger, Part
from headway.errors import CollectError


@dataclass(frozen=True)
class Day:
    """One day of a store."""

    day: str
    events: int
    bytes: int
    parts: int


@dataclass(frozen=True)
class Status:
    """A store as it was at one commit."""

    folder: Path
    anonymised: bool
    events: int
    jobs: int
    logs: int
    bytes: int  # of the parts on the disk
    first: float | None  # time of the earliest and of the last event; those of day=unknown apart
    last: float | None
    skipped: int  # bytes of the logs that are part of no event
    days: tuple[Day, ...]
    gaps: tuple[Gap, ...]
    gap_count: int

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "type": "collected",
            "folder": str(self.folder),
            "anonymised": self.anonymised,
            "events": self.events,
            "jobs": self.jobs,
            "logs": self.logs,
            "bytes": self.bytes,
            "first": self.first,
            "last": self.last,
            "skipped": self.skipped,
            "days": [vars(day) for day in self.days],
            "gaps": [vars(gap) for gap in self.gaps],
            "gap_count": self.gap_count,
        }


def status(folder: Path) -> Status:
    """What is in a store, also while it is written to."""
    for _ in range(5):
        ledger = Ledger.read(folder)
        if ledger is None:
            raise CollectError(
                f"there is no store in {folder}",
                remedy="`headway collect LOG --into FOLDER` makes one",
            )
        try:
            jobs = _jobs(ledger)
        except FileNotFoundError:
            continue  # small parts have become a large one meanwhile
        return _status(ledger, jobs)
    raise CollectError(f"the parts in {folder} are not there", remedy="has somebody moved them?")


def _status(ledger: Ledger, jobs: int) -> Status:
    days: dict[str, list[Part]] = {}
    for part in ledger.parts:
        days.setdefault(part.day, []).append(part)
    dated = [part for part in ledger.parts if part.day != "unknown"]
    return Status(
        ledger.folder,
        ledger.anonymised,
        sum(part.rows for part in ledger.parts),
        jobs,
        sum(source.next > 0 for source in ledger.sources),
        sum(part.bytes for part in ledger.parts),
        min((part.first / 1e6 for part in dated), default=None),
        max((part.last / 1e6 for part in dated), default=None),
        sum(file.skipped for source in ledger.sources for file in source.files),
        tuple(
            Day(day, sum(p.rows for p in parts), sum(p.bytes for p in parts), len(parts))
            for day, parts in sorted(days.items())
        ),
        tuple(ledger.gaps.listed),
        ledger.gaps.count,
    )


def _jobs(ledger: Ledger) -> int:
    import polars as pl

    if not ledger.parts:
        return 0
    paths = [ledger.folder / part.path for part in ledger.parts]
    for path in paths:
        path.stat()  # polars has its own error for a file that is gone
    found = (
        pl.scan_parquet(paths)
        .filter(pl.col("proc") >= 0, pl.col("cluster") >= 0, pl.col("number") < 100)
        .select(pl.struct("cluster", "proc").n_unique())
        .collect()
    )
    return int(found.item())
