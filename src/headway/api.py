"""A run from Python: start it, watch it, act on it, find what came home."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from headway.errors import HeadwayError, PoolError, RunError
from headway.events import Event, EventType, Follower, Jobs, JobState, Outcome, Status
from headway.pool import Action, ActionResult, Pool, RunFolder, Runs, open_pool, pool_of
from headway.pool.owners import own_name
from headway.pool.policy import releases
from headway.pool.preflight import Finding, preflight, raise_errors
from headway.pool.prepare import job_digest, prepare
from headway.pool.results import (
    KEPT,
    MISSING,
    Result,
    Seen,
    Survey,
    all_results,
    kept_text,
    survey,
)
from headway.spec import Job, load_job

_POOL_LOOK = 2.0  # seconds between looks whether somebody still runs the jobs

__all__ = ["Run", "prepare_run", "run"]


class Run:
    """One run; what it says of its jobs is read from their event log."""

    def __init__(self, folder: RunFolder, pool: Pool | None = None) -> None:
        self.folder = folder
        #: Told of a job after each event about it, which is cheaper than to look through all jobs.
        self.saw: Callable[[JobState], None] | None = None
        #: What preflight warned of, where `run` has started it.
        self.findings: tuple[Finding, ...] = ()
        self._pool = pool
        self._follower = Follower(folder.events)
        self._jobs = Jobs()

    def __repr__(self) -> str:
        """The label, the pool and how many jobs are in which state; never an error."""
        try:
            kind, words = self.folder.facts.pool.get("kind", "?"), _count_words(self)
        except HeadwayError as error:
            return f"<Run {self.label}: {error.message}>"
        return f"<Run {self.label} on {kind}: {words}>"

    @classmethod
    def find(cls, label: str | None = None, *, start: str | Path | None = None) -> Run:
        """A run by its label (NAME-N) or name, or the newest one, below the nearest `.headway`.

        Raises:
            RunError: there is none.
        """
        return cls(Runs.here(_folder(start)).find(label))

    @property
    def label(self) -> str:
        return self.folder.label

    @property
    def pool(self) -> Pool:
        """Where it runs; looked for when first needed, since a log can be read without its pool."""
        if self._pool is None:
            try:
                self._pool = pool_of(self.folder.facts.pool)
            except (KeyError, TypeError, ValueError) as error:
                raise RunError(
                    f"run.json of {self.label} does not say where its jobs run: {error!r}",
                    remedy="the run folder is damaged: start a new run",
                ) from error
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

    @property
    def submitted(self) -> bool:
        """Whether its jobs ever got into a queue; a pool may have refused them."""
        return self.folder.facts.cluster is not None or bool(self.jobs)

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
        """The folder with the declared outputs of a job that succeeded.

        Args:
            job: its number in the run.

        Raises:
            RunError: the run has no such job.
        """
        self._check([job])
        return self.folder.job_folder(job) / "outputs"

    def results(self) -> list[Result]:
        """What there is of every job of the description, those kept from other runs included.

        Each has the number and the `row` of the job, the `run` that has it and its `index` there,
        a `state` (`kept`: succeeded and its outputs are there; `busy`; `waits`; `missing`), `why`,
        and `outputs`, each with its `path` and `where` it is.

        Raises:
            RunError: the run folder is damaged.
        """
        return all_results(look(self.folder))

    def stream(self, job: int = 0, name: str = "stdout") -> Path | None:
        """The newest attempt's stdout, stderr or agent.log that is here, if any.

        Args:
            job: its number in the run.
            name: `stdout`, `stderr` or `agent.log`.

        Raises:
            RunError: the run has no such job.
        """
        self._check([job])
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
        reason = f"via headway {action.value} (by user {own_name()})"
        return self.pool.act(self.folder, action, chosen, reason)

    def edit(self, jobs: Iterable[int], attribute: str, value: str | int) -> list[ActionResult]:
        """Change what jobs in the queue ask for; it counts from their next attempt on.

        Args:
            jobs: their numbers in the run.
            attribute: as HTCondor's job ads have it: RequestMemory (in MiB), RequestDisk (in KiB),
                RequestCpus, RequestGPUs; on HTCondor any other attribute, too.
            value: a number, or a ClassAd expression.

        Returns:
            One result a job; its `error` is empty where the change took effect.

        Raises:
            RunError: the run has no such job.
            PoolError: the pool cannot be asked.
        """
        chosen = list(jobs)
        self._check(chosen)
        return self.pool.edit(self.folder, chosen, attribute, str(value))

    def _check(self, jobs: Iterable[int]) -> None:
        size = self.folder.job.size
        for job in jobs:
            if not isinstance(job, int) or not 0 <= job < size:
                raise RunError(
                    f"{self.label} has no job {job!r}",
                    remedy=f"its jobs are {self.label}.0 to {self.label}.{size - 1}",
                )


def look(folder: RunFolder) -> Seen:
    """A run as it is now, for what looks through its results."""
    run = Run(folder)
    return Seen(folder, run.jobs, bool(run.lost()))


def find_missing(job: Job, base: Path, runs: Runs) -> Survey:
    """Which jobs of a description have verified outputs in the runs of its name, and which not."""
    return survey(job, base, runs, look)


def prepare_run(
    job: Job, base: Path, pool: Pool, *, runs: Runs, again: bool = False, kept: str = ""
) -> Run:
    """The run of this very job that has not ended yet, unless `again`; otherwise a new one.

    So a `headway run` that was interrupted can be asked again without doubling its jobs.
    """
    runs.check_own()
    digest = job_digest(job, base, pool.name)
    with runs.alone(digest):
        left = None if again else runs.same(digest)
        if left is not None:
            run = Run(left, pool)
            if not run.settled():
                return run
        return Run(prepare(job, base, runs, pool.facts(), digest, kept), pool)


def run(
    job: str | os.PathLike[str] | Job,
    *,
    pool: str | Pool = "local",
    overrides: Sequence[str] = (),
    resources: Sequence[str] = (),
    base: str | Path | None = None,
    start: str | Path | None = None,
    again: bool = False,
    only_missing: bool = False,
    strict: bool | None = None,
    wait: bool = True,
    on_change: Callable[[Run], None] | None = None,
) -> Run:
    """Run a job.toml (or a Job) and, unless told otherwise, wait until it is over.

    Args:
        job: the path of a job.toml, or a Job.
        pool: as `--pool` has it, or a pool.
        overrides: changes to a job.toml, as `--set` has them.
        resources: the same as `--resource` has them.
        base: where a Job's `files` lie; default: the current folder.
        start: where to look for the `.headway` folder; default: the current folder.
        again: a new run, even if one of the same job has not ended.
        only_missing: run only the jobs that have no verified output yet, and keep the others'.
        strict: True refuses what no slot of an HTCondor pool could run today, False submits it all
            the same; None refuses it only where no other slots can come.
        wait: whether to wait until nothing more happens by itself.
        on_change: called with the run whenever its event log has grown.

    Returns:
        The run. With `only_missing`, where nothing is left to run, it is the newest run that has
        results of the job, and nothing is waited for.

    Raises:
        SpecError: the description is wrong.
        PreflightError: the job would fail on this pool.
        PoolError: the pool refused, failed or did not answer.
        RunError: the run folder cannot be written.
    """
    if isinstance(job, Job):
        base = (_folder(base) or Path.cwd()).absolute()
    else:
        path = Path(job)
        base = path.absolute().parent
        job = load_job(path, overrides=overrides, resources=resources)
    runs = Runs.here(_folder(start))
    place = open_pool(pool, runs.root.parent) if isinstance(pool, str) else pool
    kept = ""
    if only_missing:
        found = find_missing(job, base, runs)
        if not found.of(MISSING):
            return Run(newest_of(found, runs))
        found.check_places(job, base)
        job, kept = found.missing_part(job), kept_text(found.of(KEPT))
    match = place.match(job)
    findings = preflight(job, base, place.limits(), pool=place.kind, match=match, strict=strict)
    raise_errors(findings)
    started = prepare_run(job, base, place, runs=runs, again=again, kept=kept)
    started.findings = tuple(findings)
    place.submit(started.folder)
    if wait:
        started.wait(on_change=on_change)
    return started


def newest_of(found: Survey, runs: Runs) -> RunFolder:
    """The newest run that has some of the results, or works on them."""
    labels = {each.run for each in found.results}
    return next(folder for folder in reversed(list(runs)) if folder.label in labels)


def _folder(given: str | Path | None) -> Path | None:
    """A folder that somebody named, if it is there."""
    if given is None:
        return None
    folder = Path(given)
    if not os.path.isdir(folder):
        raise RunError(f"there is no folder {str(folder)!r}", remedy="name one that is there")
    return folder


def _count_words(run: Run) -> str:
    """`3 succeeded, 1 running`, of all jobs of the run."""
    if not run.submitted:
        return "not submitted"
    names = {Outcome.SUCCESS: "succeeded", Outcome.FAILURE: "failed", Outcome.REMOVED: "removed"}
    states = run.jobs.values()
    counts = Counter(names[s.outcome] if s.outcome else s.status.value for s in states)
    counts["idle"] += max(0, run.folder.job.size - len(states))
    return ", ".join(f"{count:,} {word}" for word, count in counts.items() if count)
