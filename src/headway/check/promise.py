"""A promise of the checkpoint contract: is it kept, by what evidence, and how to mend it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Verdict = Literal["kept", "broken", "not tried"]

#: What is promised, in the order in which it is told.
TITLES = {
    "runs": "an uninterrupted run succeeds",
    "outputs": "the declared outputs appear, after an interruption too",
    "sigterm": "SIGTERM leaves a checkpoint within the grace",
    "exit-code": "the exit code says that a checkpoint was written",
    "interval": "the command saves and leaves at the interval",
    "resume": "a second start goes on from the checkpoint",
    "curve": "the loss curve is that of an uninterrupted run",
    "order": "the samples come in the order of an uninterrupted run",
    "results": "the outputs are those of an uninterrupted run",
    "atomic": "a kill while saving leaves a checkpoint to go on from",
    "used-folder": "a start in a used folder works",
    "cost": "a checkpoint is quick and small enough",
}


@dataclass(frozen=True)
class Promise:
    """One promise and what was found of it."""

    name: str
    verdict: Verdict
    evidence: tuple[str, ...]
    mend: str = ""  # what to do, with the lines to write; only of a broken one

    @property
    def title(self) -> str:
        return TITLES[self.name]

    def as_dict(self) -> dict[str, Any]:
        return {"title": self.title, **asdict(self)}


@dataclass(frozen=True)
class Checked:
    """What `headway check` found."""

    promises: tuple[Promise, ...]
    compared: str  # what the interrupted runs were compared by, in words
    notes: tuple[str, ...]
    runs: int
    seconds: float

    @property
    def broken(self) -> list[Promise]:
        return [each for each in self.promises if each.verdict == "broken"]

    def as_dict(self) -> dict[str, Any]:
        return {
            "promises": [each.as_dict() for each in self.promises],
            "compared": self.compared,
            "notes": list(self.notes),
            "runs": self.runs,
            "seconds": round(self.seconds, 1),
        }
