"""Collecting: event logs stored by day, each event once, before a rotation deletes them."""

from headway.collect.collector import Collector, Poll, StoreStatus, status
from headway.collect.tail import Gap
from headway.events.collected import is_collected, read_collected

Status = StoreStatus  # its earlier name

__all__ = [
    "Collector", "Gap", "Poll", "Status", "StoreStatus", "is_collected", "read_collected", "status",
]  # fmt: skip
