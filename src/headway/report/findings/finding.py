"""A finding: what cost time, why, how one knows, and the lines to change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headway.events import inert
from headway.report.numbers import span

#: Longest piece of a log's own text in a finding, in bytes: a few lines of a terminal.
TEXT = 300

#: How many jobs a finding names; the count says how many there are.
NAMED = 5


class Destination(str, Enum):
    """Where the lines of a step belong."""

    NOWHERE = ""
    SUBMIT = "submit file"
    JOB = "job.toml"
    SHELL = "shell"
    CONFIG = "HTCondor configuration"  # for the owner of the pool or the access point


@dataclass(frozen=True)
class Step:
    """One thing to do, and the lines to put in place for it."""

    text: str
    lines: tuple[str, ...] = ()
    place: Destination = Destination.NOWHERE

    def as_dict(self) -> dict[str, object]:
        """The step for JSON."""
        return {"text": self.text, "lines": list(self.lines), "place": self.place.value}


@dataclass(frozen=True)
class LogPosition:
    """An event that a finding rests on: whose it is, and where it lies."""

    job: str
    file: str
    offset: int | None  # bytes from the beginning of the file; None: the job's events in general

    def __str__(self) -> str:
        at = f" at byte {self.offset:,}" if self.offset is not None else ""
        return f"{self.job} in {self.file}{at}"

    def as_dict(self) -> dict[str, object]:
        """The place for JSON."""
        return {"job": self.job, "file": self.file, "offset": self.offset}


@dataclass(frozen=True)
class Table:
    """A few rows that show it."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @classmethod
    def of(
        cls, rows: pl.DataFrame, most: int, /, **columns: tuple[str, Callable[[Any], str]]
    ) -> Table:
        """The first rows of a frame: of each column its title, and how its values are written."""
        return cls(
            tuple(title for title, _ in columns.values()),
            tuple(
                tuple(written(row[name]) for name, (_, written) in columns.items())
                for row in rows.head(most).iter_rows(named=True)
            ),
        )


Rows = NDArray[np.int64]
NO_JOBS: Rows = np.zeros(0, np.int64)


class LostSeconds(NamedTuple):
    """Bad seconds that a finding accounts for, by attempt and phase (its place in `Phase`).

    `attempt` is sorted.
    """

    attempt: Rows
    phase: NDArray[np.uint8]
    seconds: NDArray[np.float64]

    @property
    def total_s(self) -> float:
        """All of it."""
        return float(pl.Series(self.seconds).sum())

    def scaled(self, share: float) -> LostSeconds:
        """A share of each second."""
        return self._replace(seconds=self.seconds * share) if share > 0 else NOTHING_LOST


NOTHING_LOST = LostSeconds(NO_JOBS, NO_JOBS.astype(np.uint8), np.zeros(0))


@dataclass(frozen=True)
class Finding:
    """What one detector saw.

    `cost_s` is slot time lost, always badput; None where the cost is waiting. `waiting_s` is time
    that was not lost, and `waiting` says in what it went by. Of the cost, `shared_s` is in the
    findings `shared_with` too. `missing_s` is what the results take that are missing because of it.
    `weight_s`, by which findings are sorted, is the cost that is not shared, the slot time that
    waited, and what the missing results take.
    The texts hold words of the log, on one line and without control characters.
    """

    key: str  # of the detector, and what it saw: "transfer-cut", "site-worse:PDX-Coeus-CE1"
    title: str  # one sentence, with the numbers
    why: str  # the mechanism, in one or two sentences
    cost_s: float | None = None
    waiting_s: float | None = None
    waiting: str = "longer than needed"
    jobs: int = 0  # concerned
    attempts: int = 0
    lost_jobs: int = 0  # of these, still without a result because of it
    named: tuple[str, ...] = ()  # the first few jobs
    places: tuple[LogPosition, ...] = ()  # where the log says so: the costliest few
    evidence: tuple[tuple[str, str], ...] = ()  # label, value
    table: Table | None = None
    advice: tuple[Step, ...] = ()
    shared_s: float = 0.0
    shared_with: tuple[str, ...] = ()
    missing_s: float = 0.0
    weight_s: float = 0.0
    # What `find` needs to see who counts what; not for readers.
    seconds: LostSeconds = field(default=NOTHING_LOST, repr=False, compare=False)
    lost: Rows = field(default_factory=NO_JOBS.copy, repr=False, compare=False)
    slot_waiting: bool = field(default=True, repr=False, compare=False)  # waited on a slot
    echo: bool = field(default=False, repr=False, compare=False)  # may say what others say better

    @property
    def price(self) -> str:
        """What it is sorted by, in words, where that is more or less than the loss it names."""
        parts = []
        own = (self.cost_s or 0.0) - self.shared_s
        if self.shared_s >= 1:
            parts.append(f"{span(own)} that no other finding counts" if own >= 1 else "")
        elif self.cost_s:
            parts.append(f"{span(self.cost_s)} lost")
        if self.missing_s >= 1:
            parts.append(f"{span(self.missing_s)} to produce the missing results")
        if self.waiting_s and self.slot_waiting:
            parts.append(f"{span(self.waiting_s)} {self.waiting}")
        named_s = max(self.cost_s or 0.0, self.waiting_s or 0.0)
        if self.shared_s < 1 and self.weight_s <= 1.05 * named_s:
            return ""
        words = ", ".join(filter(None, parts))
        if not words:
            return "Other findings already count all of this loss."
        return f"Costs {span(self.weight_s)} of slot time: {words}."

    def as_dict(self) -> dict[str, object]:
        """The finding for JSON and for the page."""
        table = self.table and {
            "header": list(self.table.header),
            "rows": [list(row) for row in self.table.rows],
        }
        hidden = ("seconds", "lost", "slot_waiting", "echo")
        shown = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in hidden}
        return shown | {
            "waiting": self.waiting if self.waiting_s else None,
            "named": list(self.named),
            "places": [position.as_dict() for position in self.places],
            "evidence": [{"label": label, "value": value} for label, value in self.evidence],
            "table": table,
            "advice": [step.as_dict() for step in self.advice],
            "shared_with": list(self.shared_with),
        }


def shown(text: object, limit: int = TEXT) -> str:
    """A log's own words, made inert and short enough to read."""
    found = inert("" if text is None else str(text), limit)
    # Beyond control characters: what turns the direction of writing, or cannot be seen.
    if found.isprintable():
        return found
    return "".join(letter if letter.isprintable() else "�" for letter in found)


def short_name(text: object) -> str:
    """The name of a site, machine or source, short enough for a title or a table."""
    return shown(text, 60)


def submit(text: str, *lines: str) -> Step:
    return Step(text, lines, Destination.SUBMIT)


def job_toml(text: str, *lines: str) -> Step:
    return Step(text, lines, Destination.JOB)


def shell(text: str, *lines: str) -> Step:
    return Step(text, lines, Destination.SHELL)


def config(text: str, *lines: str) -> Step:
    return Step(text, lines, Destination.CONFIG)


def do(text: str) -> Step:
    return Step(text)


def both(text: str, submit_line: str, *toml_lines: str) -> tuple[Step, Step]:
    """A line of the submit file, and lines of job.toml that say the same."""
    return submit(text, submit_line), job_toml("The same in job.toml.", *toml_lines)


_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F]*:[0-9a-fA-F:.]+")


def is_address(name: str) -> bool:
    """Whether a machine is known by its address alone, which no expression can use."""
    return bool(_ADDRESS.fullmatch(name[:60]))


_AWAY = "Stay away from it for now (join it with && to requirements that you have)."
_PLAIN = re.compile(r"[\w.@:+/ -]{1,100}", re.ASCII)
_DOMAIN = re.compile(r"[A-Za-z0-9.-]{1,100}", re.ASCII)


def _quoted(names: Iterable[str]) -> list[str]:
    # The lines are there to be copied: a name that could mean more than itself is left out.
    return [f'"{name}"' for name in names if _PLAIN.fullmatch(name)]


def avoid(sites: Iterable[str]) -> tuple[Step, ...]:
    """How to stay away from sites."""
    names = _quoted(sites)
    clauses = " && ".join(f"(TARGET.GLIDEIN_ResourceName =!= {name})" for name in names)
    toml = f"avoid = [{', '.join(names)}]"
    return both(_AWAY, f"requirements = {clauses}", "[sites]", toml) if names else ()


def prefer(sites: Iterable[str]) -> tuple[Step, ...]:
    """How to wish for sites."""
    names = _quoted(sites)
    clauses = " || ".join(f"TARGET.GLIDEIN_ResourceName =?= {name}" for name in names)
    text = "Prefer the fastest sites; jobs still run at others."
    toml = f"prefer = [{', '.join(names)}]"
    return both(text, f"rank = {clauses}", "[sites]", toml) if names else ()


def avoid_machines(machines: Iterable[str]) -> tuple[Step, ...]:
    """How to stay away from single machines."""
    return _required([f"(TARGET.Machine =!= {name})" for name in _quoted(machines)])


def avoid_domains(domains: Iterable[str]) -> tuple[Step, ...]:
    """How to stay away from all machines of some domains."""
    # Submit files take a backslash literally and job ads do not: [.] means the same in both.
    names = [name.replace(".", "[.]") for name in domains if _DOMAIN.fullmatch(name)]
    return _required([f'!regexp("[.]{name}$", TARGET.Machine)' for name in names])


def _required(clauses: list[str]) -> tuple[Step, ...]:
    joined = " && ".join(clauses)
    return both(_AWAY, f"requirements = {joined}", f"requirements = '{joined}'") if clauses else ()
