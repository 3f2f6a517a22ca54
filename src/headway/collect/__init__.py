"""Collecting: event logs kept by day, each event once, before a rotation takes them away."""

from headway.collect.collector import Collector, Poll, Status, status
from headway.collect.tail import Gap
from headway.events.collected import is_collected, read_collected

__all__ = ["Collector", "Gap", "Poll", "Status", "is_collected", "read_collected", "status"]
