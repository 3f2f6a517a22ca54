"""Why jobs stop: what the reasons of holds, exceptions and evictions mean, in one table."""

from __future__ import annotations

from headway.holds.reason import Reason, parse
from headway.holds.table import HoldMeaning, classify, filled, find, table

__all__ = ["HoldMeaning", "Reason", "classify", "filled", "find", "parse", "table"]
