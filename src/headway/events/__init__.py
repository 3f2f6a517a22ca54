"""Event logs: reading, following and writing them, and what they say about jobs."""

from typing import TYPE_CHECKING, Any

from headway.events.event import TERMINAL, Event, Outcome, Status
from headway.events.follow import Follower, follow
from headway.events.format import (
    Direction,
    EventType,
    Resource,
    Stage,
    Transfer,
    Usage,
    Value,
    inert,
)
from headway.events.opening import Skip
from headway.events.read import EventParser, Log, read_log
from headway.events.state import Jobs, JobState, fold
from headway.events.write import EventWriter
from headway.node.classad import Expr

if TYPE_CHECKING:
    from headway.events.columnar.assemble import columns_of
    from headway.events.columnar.bulk import read_columns
    from headway.events.columnar.columns import Columns, frame

__all__ = [
    "TERMINAL",
    "Columns",
    "Direction",
    "Event",
    "EventParser",
    "EventType",
    "EventWriter",
    "Expr",
    "Follower",
    "JobState",
    "Jobs",
    "Log",
    "Outcome",
    "Resource",
    "Skip",
    "Stage",
    "Status",
    "Transfer",
    "Usage",
    "Value",
    "columns_of",
    "fold",
    "follow",
    "frame",
    "inert",
    "read_columns",
    "read_log",
]

_WITH_NUMPY = {
    "Columns": "headway.events.columnar.columns",
    "columns_of": "headway.events.columnar.assemble",
    "frame": "headway.events.columnar.columns",
    "read_columns": "headway.events.columnar.bulk",
}


def __getattr__(name: str) -> Any:
    # Whoever only follows a log does not wait for NumPy.
    if name in _WITH_NUMPY:
        from importlib import import_module

        return getattr(import_module(_WITH_NUMPY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
