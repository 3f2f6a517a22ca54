"""What must hold of the study, and whether it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Limit:
    """A figure of one way to run the jobs, and between what its mean over the seeds must lie.

    `each`: every seed must keep to it, not only their mean.
    """

    way: str
    words: str
    key: str
    least: float = float("-inf")
    most: float = float("inf")
    each: bool = False


# How near stock must come to the study, so that the world is no gentler; and what Headway owes.
LIMITS = (
    Limit("stock-2024", "jobs with the right output", "verified_share", 0.69, 0.89),
    Limit("stock-2024", "compute share", "compute_share", 0.39, 0.55),
    Limit("stock-2024", "retried transfers", "retried_share", 0.34, 0.54),
    Limit("headway", "jobs with the right output", "verified_share", 1.0, each=True),
    Limit("headway", "compute share", "compute_share", 0.84),
    Limit("headway", "bytes of repeated downloads", "retried_bytes", most=0.02),
    Limit("headway", "stretch, 95th percentile", "stretch_p95", most=1.25),
    # With the data set on the nodes; before there were stores, 88 to 89 % was the best possible.
    Limit("headway-again", "jobs with the right output", "verified_share", 1.0, each=True),
    Limit("headway-again", "compute share", "compute_share", 0.93),
    Limit("headway-again", "bytes moved per result", "moved_per_result", most=0.4),
    Limit("headway-again", "stretch, 95th percentile", "stretch_p95", most=1.25),
    Limit("headway-stream", "jobs with the right output", "verified_share", 1.0, each=True),
    Limit("headway-stream", "compute share without waits for data", "net_share", 0.92),
    Limit("headway-stream", "bytes of repeated downloads", "retried_bytes", most=0.02),
    Limit("headway-stream", "stretch, 95th percentile", "stretch_p95", most=1.25),
)


@dataclass(frozen=True)
class Finding:
    limit: Limit
    values: tuple[float, ...]  # one a seed

    @property
    def mean(self) -> float:
        return sum(self.values) / len(self.values)

    @property
    def holds(self) -> bool:
        judged = self.values if self.limit.each else (self.mean,)
        return all(self.limit.least <= value <= self.limit.most for value in judged)


def judge(found: Mapping[str, Sequence[Row]]) -> list[Finding]:
    """Each limit with what was found; a way that has not been run is left out."""
    return [
        Finding(limit, tuple(row[limit.key] for row in found[limit.way]))
        for limit in LIMITS
        if found.get(limit.way)
    ]


_FORMS = {"stretch_p95": "{:.2f}".format, "moved_per_result": "{:.2f} ×".format}


def rows(findings: Sequence[Finding]) -> list[list[str]]:
    """A table as text: head, and a row each."""
    lines = [["run", "figure", "must be", "mean", "each seed", "holds"]]
    for finding in findings:
        limit = finding.limit
        shown = _FORMS.get(limit.key, "{:.1%}".format)
        bounds = [f"at least {shown(limit.least)}"] if limit.least > float("-inf") else []
        bounds += [f"at most {shown(limit.most)}"] if limit.most < float("inf") else []
        lines.append(
            [
                limit.way,
                limit.words,
                ", ".join(bounds),
                shown(finding.mean),
                ", ".join(map(shown, finding.values)),
                "yes" if finding.holds else "**no**",
            ]
        )
    return lines
