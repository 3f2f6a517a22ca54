"""The pool: where jobs run. Two implementations keep one contract."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

from headway.pool.folder import RunFolder
from headway.pool.match import Match
from headway.spec import Job


class Action(str, Enum):
    """What a user can ask of jobs that are in the queue."""

    HOLD = "hold"
    RELEASE = "release"
    REMOVE = "remove"
    EVICT = "evict"


@dataclass(frozen=True)
class ActionResult:
    """What became of an action on one job; `error` is empty where it took effect."""

    job: int
    error: str = ""


@dataclass(frozen=True)
class Limits:
    """What a pool accepts, as far as it can be known before submit; None: no limit known."""

    transfer_input_bytes: int | None = None
    ospool: bool = False  # what the OSPool asks of jobs is asked of these
    cpus: int | None = None
    memory: int | None = None
    disk: int | None = None
    gpus: int | None = None
    containers: bool = True


class Pool(ABC):
    """A place that runs the jobs of a run folder and writes its event log.

    What acts (`submit`, `act`, `edit`) refuses a run folder that is not the user's own.
    """

    kind: ClassVar[str]
    name: str  # as --pool has it

    @abstractmethod
    def limits(self) -> Limits:
        """What this pool accepts; never blocks for long."""

    def match(self, job: Job) -> Match | None:
        """What the pool's slots have for a job; None where `limits` says it all."""
        return None

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What run.json keeps, enough to find this pool again."""

    @abstractmethod
    def describe(self, job: Job, folder: RunFolder, base: Path) -> str:
        """Exactly what `submit` would hand over, for people; `base`: the folder of job.toml."""

    @abstractmethod
    def submit(self, folder: RunFolder) -> None:
        """Put the run's jobs into the queue exactly once; asking again changes nothing."""

    @abstractmethod
    def act(
        self, folder: RunFolder, action: Action, jobs: Sequence[int] | None, reason: str
    ) -> list[ActionResult]:
        """Hold, release, remove or evict jobs, None: all that the queue has; a result per job."""

    @abstractmethod
    def edit(
        self, folder: RunFolder, jobs: Sequence[int], attribute: str, value: str
    ) -> list[ActionResult]:
        """Set an attribute of queued jobs, e.g. RequestMemory, to a ClassAd expression."""

    @abstractmethod
    def query(self, folder: RunFolder) -> Mapping[int, Mapping[str, object]]:
        """The jobs still in the queue, each with the attributes the pool knows."""

    @abstractmethod
    def leave(self, folder: RunFolder) -> str:
        """The watcher goes away (Ctrl-C); returns a sentence on what becomes of the jobs."""

    def abandoned(self, folder: RunFolder) -> str:
        """Why nobody runs this run's jobs any more, in words; empty where somebody may."""
        return ""
