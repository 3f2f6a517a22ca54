"""The one error tree.

HeadwayError
├── NodeError               the node is not fit for the job         (node half)
│   └── DiskError           its disk is full, or fails
│       └── NoSpaceError    its disk is full
├── TransferError           a file could not be moved               (node half)
│   ├── NotFoundError       there is no such file
│   ├── AccessDeniedError   the server refuses it, or a token is missing
│   ├── StalledError        nothing came for longer than the patience
│   └── CorruptError        it is not what was declared
│       └── ManifestError   the manifest of a file is wrong
├── Stopped                 somebody asked it to end                (node half)
├── SpecError               job.toml or an override is wrong
├── PreflightError          the job would fail on this pool
├── ConversionError         a submit file cannot be written as a job.toml
├── RunError                a run folder is missing, busy or damaged
├── EventLogError           an event log cannot be read or written
├── CollectError            logs cannot be stored, or not here
├── ReportError             there is nothing to report of, or a report cannot be written
└── PoolError               the pool refused or failed
    └── PoolUnreachable     the pool did not answer; asking again is safe
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headway.node.errors import (
    AccessDeniedError,
    CorruptError,
    DiskError,
    HeadwayError,
    ManifestError,
    NodeError,
    NoSpaceError,
    NotFoundError,
    StalledError,
    Stopped,
    TransferError,
)

__all__ = [
    "AccessDeniedError",
    "CollectError",
    "ConversionError",
    "CorruptError",
    "DiskError",
    "EventLogError",
    "HeadwayError",
    "ManifestError",
    "NoSpaceError",
    "NodeError",
    "NotFoundError",
    "PoolError",
    "PoolUnreachable",
    "PreflightError",
    "Problem",
    "ReportError",
    "RunError",
    "SpecError",
    "StalledError",
    "Stopped",
    "TransferError",
]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: where (file, key path or line), what, and the remedy."""

    where: str
    what: str
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}"
        return f"{text}\n  {self.remedy}" if self.remedy else text


class _ProblemsError(HeadwayError):
    def __init__(self, problems: Sequence[Problem], *, remedy: str = "") -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems), remedy=remedy)


class SpecError(_ProblemsError):
    """Everything that is wrong with a job description, all at once."""


class PreflightError(_ProblemsError):
    """Everything that would make the job fail on this pool, all at once."""


class ConversionError(HeadwayError):
    """A submit file cannot be written as a job.toml."""


class RunError(HeadwayError):
    """A run folder is missing, busy or damaged."""


class EventLogError(HeadwayError):
    """An event log cannot be read or written."""


class CollectError(HeadwayError):
    """Logs cannot be stored, or not here."""


class ReportError(HeadwayError):
    """There is nothing to report of, or a report cannot be written."""


class PoolError(HeadwayError):
    """The pool refused or failed."""


class PoolUnreachable(PoolError):
    """The pool did not answer; asking again is safe."""
