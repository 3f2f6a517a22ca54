"""Findings: what a check saw, how bad it is, and what to do instead."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from headway.errors import PreflightError, Problem


class Severity(str, Enum):
    """How sure it is that this costs an attempt."""

    ERROR = "error"  # will fail
    WARNING = "warning"  # often fails
    HINT = "hint"  # costs time, or fails in a case that may not be yours

    def __str__(self) -> str:
        return self.value


_ORDER = {severity: place for place, severity in enumerate(Severity)}


@dataclass(frozen=True)
class Finding:
    """One thing seen: `what` happens on the pool, and the `remedy`; `line` is the text at fault."""

    severity: Severity
    where: str
    what: str
    remedy: str
    id: str
    line: str = ""

    @property
    def problem(self) -> Problem:
        """The same, as the error tree words it."""
        what = f"{self.what}\n    {self.line.strip()}" if self.line.strip() else self.what
        return Problem(self.where, what, self.remedy)

    def __str__(self) -> str:
        return f"{self.severity}: {self.problem}"


@dataclass(frozen=True)
class Context:
    """What a script's traps depend on: how it is started, and what the job gives it."""

    program: bool = False  # started by itself, by its #! line and its exec bit
    interpreter: str = ""  # what runs it, where its #! line does not say
    checkpointed: bool = False  # the job checkpoints: the script starts again where it stopped
    cpus: int | None = None
    gpus: int | None = None
    provided: frozenset[str] = frozenset()  # names of the job's files and inputs
    arguments: tuple[str, ...] = ()  # the words of the command that starts it
    contained: bool = False  # it runs in a container, which has folders of its own

    @property
    def waits(self) -> str:
        """What a pause costs: a GPU that waits only where there is one."""
        return "the GPU waits" if self.gpus else "nothing is computed"


def error(id: str, where: str, what: str, remedy: str, line: str = "") -> Finding:
    return Finding(Severity.ERROR, where, what, remedy, id, line)


def warning(id: str, where: str, what: str, remedy: str, line: str = "") -> Finding:
    return Finding(Severity.WARNING, where, what, remedy, id, line)


def hint(id: str, where: str, what: str, remedy: str, line: str = "") -> Finding:
    return Finding(Severity.HINT, where, what, remedy, id, line)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Errors, then warnings, then hints; each thing once, otherwise in the order found."""
    return sorted(dict.fromkeys(findings), key=lambda finding: _ORDER[finding.severity])


def errors_of(findings: Iterable[Finding]) -> list[Finding]:
    """Those that will make the job fail."""
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def raise_errors(findings: Iterable[Finding]) -> None:
    """Refuse what will fail: PreflightError if there is any error."""
    fatal = errors_of(findings)
    if fatal:
        raise PreflightError([finding.problem for finding in fatal], remedy="nothing was submitted")
