"""Event logs: reading, following and writing them, and what they say about jobs."""

from headway.events.classad import Expr, Value, inert
from headway.events.event import (
    Direction,
    Event,
    EventType,
    Resource,
    Stage,
    Transfer,
    Usage,
)
from headway.events.follow import Follower, follow
from headway.events.read import Log, Parser, Skip, read_log
from headway.events.state import Jobs, JobState, fold
from headway.events.status import TERMINAL, Outcome, Status
from headway.events.write import EventWriter

__all__ = [
    "TERMINAL",
    "Direction",
    "Event",
    "EventType",
    "EventWriter",
    "Expr",
    "Follower",
    "JobState",
    "Jobs",
    "Log",
    "Outcome",
    "Parser",
    "Resource",
    "Skip",
    "Stage",
    "Status",
    "Transfer",
    "Usage",
    "Value",
    "fold",
    "follow",
    "inert",
    "read_log",
]
