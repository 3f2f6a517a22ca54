"""The pool: where jobs run. There are two, with the same contract."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from headway.pool.folder import RunFolder

if TYPE_CHECKING:
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
    """The result of an action on one job; `error` is empty if it succeeded."""

    job: int
    error: str = ""


@dataclass(frozen=True)
class Limits:
    """What a pool accepts, as far as is known before submit; None: no limit is known."""

    transfer_input_bytes: int | None = None
    ospool: bool = False  # whether the OSPool's rules apply
    cpus: int | None = None
    memory: int | None = None
    disk: int | None = None
    gpus: int | None = None
    containers: bool = True


class Pool(ABC):
    """A place that runs the jobs of a run folder and writes its event log.

    `submit`, `act` and `edit` refuse a run folder that is not the user's own.
    """

    kind: ClassVar[str]
    name: str  # as in --pool
    joined = False  # `submit` found the jobs run by another command, and with it they may end

    @abstractmethod
    def limits(self) -> Limits:
        """What this pool accepts; never blocks for long."""

    def match(self, job: Job) -> Match | None:
        """How the pool's slots match a job; None if `limits` is all that is known."""
        return None

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What run.json keeps, to find this pool again."""

    @abstractmethod
    def describe(self, job: Job, folder: RunFolder, base: Path) -> str:
        """A text that shows exactly what `submit` would submit; `base`: the folder of job.toml."""

    def beginning(self) -> AbstractContextManager[None]:
        """Begin within it what every submit needs, while the job is still being read."""
        return contextlib.nullcontext()

    @abstractmethod
    def submit(self, folder: RunFolder) -> None:
        """Put the run's jobs into the queue exactly once; another call changes nothing."""

    @abstractmethod
    def act(
        self, folder: RunFolder, action: Action, jobs: Sequence[int] | None, reason: str
    ) -> list[ActionResult]:
        """Hold, release, remove or evict jobs (None: all in the queue); a result for each."""

    @abstractmethod
    def edit(
        self, folder: RunFolder, jobs: Sequence[int], attribute: str, value: str
    ) -> list[ActionResult]:
        """Set an attribute of queued jobs, e.g. RequestMemory, to a ClassAd expression."""

    @abstractmethod
    def query(self, folder: RunFolder) -> Mapping[int, Mapping[str, object]]:
        """The jobs that are still in the queue, with the attributes of each."""

    @abstractmethod
    def leave(self, folder: RunFolder) -> str:
        """The user stops watching (Ctrl-C); returns a sentence on what happens to the jobs."""

    def abandoned(self, folder: RunFolder) -> str:
        """Why the jobs of this run are no longer run, if so; else empty."""
        return ""
