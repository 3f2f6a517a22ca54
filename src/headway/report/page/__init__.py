"""The page: the whole report as one HTML file that needs nothing else."""

from headway.report.page.render import render

__all__ = ["render"]
