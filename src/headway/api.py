"""A run from Python: start it, watch it, act on it, find what came home."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from headway.errors import PoolError, RunError
from headway.events import Event, EventType, Follower, Jobs, JobState, Outcome, Status
from headway.pool import Action, ActionResult, Pool, RunFolder, Runs, open_pool, pool_of
from headway.pool.policy import releases
from headway.pool.preflight import check
from headway.pool.prepare import job_digest, prepare
from headway.spec import Job, load_job

_POOL_LOOK = 2.0  # seconds between looks whether somebody still runs the jobs

__all__ = ["Run", "prepare_run", "run"]


class Run:
    """One run; what it says of its jobs is read from their event log."""

    def __init__(self, folder: RunFolder, pool: Pool | None = None) -> None:
        self.folder = folder
        #: Told of a job after each event about it, which is cheaper than to look through all jobs.
        self.saw: Callable[[JobState], None] | None = None
        self._pool = pool
        self._follower = Follower(folder.events)
        self._jobs = Jobs()

    @classmethod
    def find(cls, label: str | None = None, *, start: Path | None = None) -> Run:
        """A run by its label (NAME-N) or name, or the newest one, below the nearest `.headway`."""
        return cls(Runs.here(start).find(label))

    @property
    def label(self) -> str:
        return self.folder.label

    @property
    def pool(self) -> Pool:
        """Where it runs; looked for when first needed, since a log can be read without its pool."""
        if self._pool is None:
            self._pool = pool_of(self.folder.facts.pool)
        return self._pool

    def refresh(self) -> bool:
        """Take in what the event log has got since; tells whether there was anything."""
        events = self._follower.poll()
        for event in chain.from_iterable(map(self._told, events)):
            state = self._jobs.update(event)
            if state is not None and self.saw is not None:
                self.saw(state)
        return bool(events)

    def _told(self, event: Event) -> Iterable[Event]:
        """The event and, where a cluster is removed that HTCondor had not made all jobs of, theirs:
        they get none of their own.
        """
        if event.number != EventType.CLUSTER_REMOVE:
            return (event,)
        known = self._jobs.cluster(event.cluster)
        rest = (job for job in range(self.folder.job.size) if job not in known)
        gone = replace(event, number=int(EventType.ABORTED), body=("\tbefore it was in the queue",))
        return (event, *(replace(gone, proc=job) for job in rest))

    @property
    def jobs(self) -> Mapping[int, JobState]:
        """The state of every job that the log knows, by its number."""
        self.refresh()
        return self._jobs.cluster()

    def settled(self) -> bool:
        """Whether nothing more will happen by itself: all jobs are over, or held for good."""
        jobs = self.jobs
        return len(jobs) >= self.folder.job.size and all(
            self._settled(state) for state in jobs.values()
        )

    def _settled(self, state: JobState) -> bool:
        if state.terminal:
            return True
        return state.status is Status.HELD and not releases(
            state.hold_code or 0,
            state.hold_subcode or 0,
            holds=state.holds,
            starts=state.attempts,
            retries=self.folder.job.retries,
        )

    def succeeded(self) -> bool:
        """Whether every job ended with its outputs verified."""
        jobs = self.jobs
        return len(jobs) >= self.folder.job.size and all(
            state.outcome is Outcome.SUCCESS for state in jobs.values()
        )

    def wait(
        self,
        timeout: float | None = None,
        *,
        interval: float = 0.1,
        on_change: Callable[[Run], None] | None = None,
    ) -> bool:
        """Wait until nothing more happens by itself; False when `timeout` seconds came first."""
        deadline = None if timeout is None else time.monotonic() + timeout
        look = time.monotonic() + _POOL_LOOK
        while not self.settled():
            while not self.refresh():
                if deadline is not None and time.monotonic() > deadline:
                    return False
                if time.monotonic() > look:
                    self.check_pool()
                    look = time.monotonic() + _POOL_LOOK
                time.sleep(interval)
            if on_change is not None:
                on_change(self)
        return True

    def lost(self) -> str:
        """Why jobs that have not ended never will by themselves, in words; empty: nothing is lost.

        The local pool can be killed; then nobody would ever write the end into the log.
        """
        words = "" if self.settled() else self.pool.abandoned(self.folder)
        return words if words and not self.settled() else ""

    def check_pool(self) -> None:
        """Raise PoolError if nobody runs the jobs any more."""
        words = self.lost()
        if words:
            raise PoolError(
                f"the local pool of {self.label} ended before its jobs did",
                remedy=f"its last words: {words}; go on with `headway run --resume {self.label}`",
            )

    def outputs(self, job: int = 0) -> Path:
        """The folder with the declared outputs of a job that succeeded."""
        return self.folder.job_folder(job) / "outputs"

    def stream(self, job: int = 0, name: str = "stdout") -> Path | None:
        """The newest attempt's stdout, stderr or agent.log that is here, if any."""
        for attempt in reversed(self.folder.attempts(job)):
            if (attempt / name).is_file():
                return attempt / name
        return None

    def hold(self, jobs: Iterable[int] | None = None) -> list[ActionResult]:
        return self.act(Action.HOLD, jobs)

    def release(self, jobs: Iterable[int] | None = None) -> list[ActionResult]:
        return self.act(Action.RELEASE, jobs)

    def remove(self, jobs: Iterable[int] | None = None) -> list[ActionResult]:
        return self.act(Action.REMOVE, jobs)

    def evict(self, jobs: Iterable[int] | None = None) -> list[ActionResult]:
        return self.act(Action.EVICT, jobs)

    def act(self, action: Action, jobs: Iterable[int] | None = None) -> list[ActionResult]:
        """Do something to some jobs, or to all of the run that are still in the queue."""
        chosen = None if jobs is None else list(jobs)
        if chosen is not None:
            self._check(chosen)
        reason = f"via headway {action.value} (by user {_user()})"
        return self.pool.act(self.folder, action, chosen, reason)

    def edit(self, jobs: Sequence[int], attribute: str, value: str) -> list[ActionResult]:
        """Change an attribute of jobs in the queue, e.g. RequestMemory."""
        self._check(jobs)
        return self.pool.edit(self.folder, jobs, attribute, value)

    def _check(self, jobs: Iterable[int]) -> None:
        size = self.folder.job.size
        for job in jobs:
            if not 0 <= job < size:
                raise RunError(
                    f"{self.label} has no job {job}",
                    remedy=f"its jobs are {self.label}.0 to {self.label}.{size - 1}",
                )


def prepare_run(job: Job, base: Path, pool: Pool, *, runs: Runs, again: bool = False) -> Run:
    """The run of this very job that has not ended yet, unless `again`; otherwise a new one.

    So a `headway run` that was interrupted can be asked again without doubling its jobs.
    """
    digest = job_digest(job, base, pool.name)
    left = None if again else runs.same(digest)
    if left is not None:
        run = Run(left, pool)
        if not run.settled():
            return run
    return Run(prepare(job, base, runs, pool.facts(), digest), pool)


def run(
    job: str | os.PathLike[str] | Job,
    *,
    pool: str | Pool = "local",
    overrides: Sequence[str] = (),
    resources: Sequence[str] = (),
    base: Path | None = None,
    start: Path | None = None,
    again: bool = False,
    wait: bool = True,
    on_change: Callable[[Run], None] | None = None,
) -> Run:
    """Run a job.toml (or a Job) and, unless told otherwise, wait until it is over.

    `base`: where a Job's `files` lie; `start`: where to look for the `.headway` folder.
    """
    if isinstance(job, Job):
        base = (base or Path.cwd()).absolute()
    else:
        path = Path(job)
        base = path.absolute().parent
        job = load_job(path, overrides=overrides, resources=resources)
    runs = Runs.here(start)
    place = open_pool(pool, runs.root.parent) if isinstance(pool, str) else pool
    check(job, base, place.limits(), pool=place.kind)
    started = prepare_run(job, base, place, runs=runs, again=again)
    place.submit(started.folder)
    if wait:
        started.wait(on_change=on_change)
    return started


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())
