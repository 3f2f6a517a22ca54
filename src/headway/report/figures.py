"""The figures of a report: pure functions from accounts to numbers."""

from __future__ import annotations

from headway.report.distributions import Completion, Histogram, completion, transfer_lengths
from headway.report.groups import By, GroupFigures, groups
from headway.report.losses import CodeLoss, Loss, losses
from headway.report.sites import SiteFigures, sites
from headway.report.totals import Totals, totals
from headway.report.values import Spread

__all__ = [
    "By",
    "CodeLoss",
    "Completion",
    "GroupFigures",
    "Histogram",
    "Loss",
    "SiteFigures",
    "Spread",
    "Totals",
    "completion",
    "groups",
    "losses",
    "sites",
    "totals",
    "transfer_lengths",
]
