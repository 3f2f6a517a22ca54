"""Real logs of a real pool, made into one of several days, and what a store must equal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from headway.collect import Collector, Poll, read_collected
from headway.events import Columns, read_columns
from headway.events.columnar.columns import column_names
from headway.report.accounting import account

LOGS = Path(__file__).parents[1] / "events" / "logs"
TEXTS = ("site", "slot", "host", "user", "text")


def events_of(data: bytes) -> list[bytes]:
    """The events of a log, each with its end mark."""
    return [event + b"...\n" for event in data.split(b"...\n") if event.strip()]


def long_log(days: int = 4) -> list[bytes]:
    """The real logs as one, in order of time, again and again, each time a day and jobs later."""
    found: list[bytes] = []
    for day in range(days):
        for number, path in enumerate(sorted(LOGS.glob("*.log"))):
            cluster = 1000 + day * 100 + number
            text = re.sub(rb"(?m)^(\d{3}) \(\d+\.", rb"\1 (%d." % cluster, path.read_bytes())
            text = re.sub(rb"2026-11-1(\d) (?=\d\d:)", rb"2026-10-%02d " % (day + 11), text)
            found += events_of(text)
    return sorted(found, key=lambda event: event[event.index(b")") : event.index(b")") + 21])


def tables_of(columns: Columns) -> dict[str, Any]:
    """The columns as values that can be compared, with texts instead of places."""
    found: dict[str, Any] = {}
    for name in column_names():
        values = getattr(columns, name).tolist()
        if name in TEXTS:
            values = [columns.strings[place] if place >= 0 else None for place in values]
        elif name == "log":
            values = [columns.logs[place] for place in values]
        found[name] = values
    for name, value in vars(columns.usage).items():
        found[f"usage.{name}"] = np.nan_to_num(value, nan=-1.0).tolist()
    return found


def same_accounts(left: Columns, right: Columns) -> None:
    """All four tables of the accounts are the same, but for the names of a log's files."""
    one, two = account(left), account(right)
    for name in ("jobs", "attempts", "pieces", "holds"):
        a, b = (getattr(each, name) for each in (one, two))
        assert isinstance(a, pl.DataFrame)
        a, b = (each.drop("file", strict=False) for each in (a, b))
        assert a.equals(b), name


def same_events(store: Path, logs: Sequence[Path], leave: Sequence[str] = ("file",)) -> Columns:
    """A store holds exactly the events of the logs, in their order, and gives the same accounts."""
    found, expected = read_collected(store), read_columns(logs)
    assert len(found) == len(expected)
    left, right = tables_of(found), tables_of(expected)
    for name in left:
        if name not in leave:
            assert left[name] == right[name], name
    same_accounts(found, expected)
    return found


def collect(store: Path, *places: Path, anonymise: bool = False) -> Poll:
    """Collects once, in a collector of its own."""
    with Collector(places, store, anonymise=anonymise) as collector:
        return collector.poll()
