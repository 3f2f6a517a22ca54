"""The page: the whole report, or a comparison, as one HTML file that needs nothing else."""

from headway.report.page.render import render
from headway.report.page.versus import Front, versus

__all__ = ["Front", "render", "versus"]
