"""Runs from Python: start one, wait for it, act on its jobs, find its outputs."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from headway.errors import HeadwayError, PoolError, RunError
from headway.events import Event, EventType, Follower, Jobs, JobState, Outcome, Status
from headway.pool import Action, ActionResult, Pool, RunFolder, Runs, open_pool, pool_of
from headway.pool.folder import own_name
from headway.pool.lint.preflight import preflight
from headway.pool.lint.traps import LintFinding, raise_errors
from headway.pool.policy import releases
from headway.pool.prepare import job_digest, prepare
from headway.pool.results import (
    KEPT,
    MISSING,
    Result,
    Results,
    RunState,
    all_results,
    find_results,
    kept_text,
)
from headway.spec import Job, load_job

_log = logging.getLogger(__name__)
_POOL_LOOK = 2.0  # seconds between looks whether somebody still runs the jobs

__all__ = ["Run", "Submission", "plan_run", "run"]


class Run:
    """One run; the state of its jobs comes from their event log.

    Args:
        folder: the run's folder; `Run.find` finds it by name.
        pool: where it runs; default: the pool that its run.json names.
    """

    def __init__(self, folder: RunFolder, pool: Pool | None = None) -> None:
        self.folder = folder
        #: Called with a job's state after each event, which is cheaper than reading all `jobs`.
        self.saw: Callable[[JobState], None] | None = None
        #: What preflight warned of, if `run` has started it.
        self.findings: tuple[LintFinding, ...] = ()
        self._pool = pool
        _log.debug("%s: reading %s", folder.label, folder.events)
        self._follower = Follower(folder.events)
        self._jobs = Jobs()
        self._dagman = Jobs()  # DAGMan itself, of a run whose jobs and couriers it submits
        self._dagman_follower = Follower(folder.dag_log)

    def __repr__(self) -> str:
        """The label, the pool and how many jobs are in which state; never an error."""
        try:
            kind, words = self.folder.facts.pool.get("kind", "?"), _count_words(self)
        except HeadwayError as error:
            return f"<Run {self.label}: {error.message}>"
        return f"<Run {self.label} on {kind}: {words}>"

    @classmethod
    def find(cls, label: str | None = None, *, start: str | Path | None = None) -> Run:
        """A run below the nearest `.headway` folder.

        Args:
            label: its label (NAME-N), or a name, which means the newest run of it; default: the
                newest run.
            start: where to look for the `.headway` folder; default: the current folder.

        Returns:
            The run.

        Raises:
            RunError: there is none.
        """
        return cls(Runs.here(_folder(start)).find(label))

    @property
    def label(self) -> str:
        """The run's name and number, such as `cifar10-3`."""
        return self.folder.label

    @property
    def pool(self) -> Pool:
        """Where it runs; opened when first needed, since a log can be read without its pool."""
        if self._pool is None:
            try:
                self._pool = pool_of(self.folder.facts.pool)
            except (KeyError, TypeError, ValueError) as error:
                raise RunError(
                    f"run.json of {self.label} does not say where its jobs run: {error!r}",
                    remedy="the run folder is damaged; start a new run",
                ) from error
        return self._pool

    def refresh(self) -> bool:
        """Read what is new in the event log, and in that of DAGMan.

        Returns:
            Whether there was anything.

        Raises:
            EventLogError: the log cannot be read.
        """
        events = self._follower.poll()
        for event in chain.from_iterable(map(self._expanded, events)):
            state = self._jobs.update(event)
            if state is not None and self.saw is not None:
                self.saw(state)
        more = self._dagman_follower.poll()
        for event in more:
            self._dagman.update(event)
        return bool(events or more)

    def _expanded(self, event: Event) -> Iterable[Event]:
        """The event; if a cluster was removed, also one for each job that was not in the queue."""
        if event.number != EventType.CLUSTER_REMOVE:
            return (event,)
        known = self._jobs.cluster(event.cluster)
        rest = (job for job in range(self.folder.job.size) if job not in known)
        gone = replace(event, number=int(EventType.ABORTED), body=("\tbefore it was in the queue",))
        return (event, *(replace(gone, proc=job) for job in rest))

    @property
    def jobs(self) -> Mapping[int, JobState]:
        """The state of every job in the log, by its number; reads what is new in the log."""
        self.refresh()
        return self._jobs.cluster()

    @property
    def submitted(self) -> bool:
        """Whether its jobs ever were in a queue; the pool may have refused them."""
        return self.folder.facts.cluster is not None or bool(self.jobs)

    def settled(self) -> bool:
        """Whether nothing more will happen by itself: all jobs are over, or held for good."""
        jobs = self.jobs
        whole = len(jobs) >= self.folder.job.size or self._dagman_ended is not None
        over = whole and all(map(self._settled, jobs.values()))
        return over and not (self._dagman_goes_on and any(map(_may_come_again, jobs.values())))

    @property
    def _dagman_goes_on(self) -> bool:
        """Whether DAGMan goes on, which compares what came home, and sends further couriers."""
        dagman = self._dagman.cluster().values()
        return any(not (state.terminal or state.status is Status.HELD) for state in dagman)

    @property
    def _dagman_ended(self) -> float | None:
        """When DAGMan ended, after which it submits nothing; None: it has not, or there is none."""
        dagman = self._dagman.cluster().values()
        over = bool(dagman) and all(state.terminal for state in dagman)
        return max((state.ended or 0.0 for state in dagman), default=0.0) if over else None

    def _settled(self, state: JobState) -> bool:
        if state.terminal:
            return True
        ended = self._dagman_ended
        last = max(state.since or 0.0, state.queued or 0.0)
        if ended is not None and state.status is Status.DELIVERING and last <= ended:
            return True  # its courier was never submitted
        holds, starts = state.queue_counts
        return state.status is Status.HELD and not releases(
            state.hold_code or 0,
            state.hold_subcode or 0,
            holds=holds,
            starts=starts,
            retries=self.folder.job.retries,
        )

    def submit(self) -> None:
        """Submit its jobs, or resume those that were stopped; does nothing if all are over.

        Raises:
            PoolError: the pool refused, failed or did not answer.
        """
        if not self.settled():
            _log.info("%s: submitting to %s", self.label, self.pool.name)
            self.pool.submit(self.folder)

    def succeeded(self) -> bool:
        """Whether every job ended with its outputs verified."""
        jobs = self.jobs
        ended = len(jobs) >= self.folder.job.size and all(
            state.outcome is Outcome.SUCCESS for state in jobs.values()
        )
        return ended and not self.damaged()

    def damaged(self) -> Mapping[int, str]:
        """What is wrong with outputs that couriers have brought home.

        Returns:
            For each job whose outputs are not what its ticket says: its number, and what differs.
        """
        if self.folder.job.deliver == "now":
            return {}
        from headway.pool.arrivals import arrival

        done = [job for job, state in self.jobs.items() if state.outcome is Outcome.SUCCESS]
        faults = ((job, arrival(self.folder.path, job)) for job in done)
        return {job: fault for job, fault in faults if fault}

    def wait(
        self,
        timeout: float | None = None,
        *,
        interval: float = 0.1,
        on_change: Callable[[Run], None] | None = None,
    ) -> bool:
        """Wait until nothing more happens by itself.

        Args:
            timeout: seconds to wait at most; default: no limit.
            interval: seconds between two looks at the event log.
            on_change: called with the run whenever its event log has grown.

        Returns:
            True once all jobs are over or held for good; False if `timeout` came first.

        Raises:
            PoolError: the local pool has ended before its jobs.
        """
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
        """Why jobs that have not ended never will, in words; empty if that is not so.

        The local pool can be killed, and then nothing writes the end of its jobs into the log.
        """
        words = "" if self.settled() else self.pool.abandoned(self.folder)
        return words if words and not self.settled() else ""

    def check_pool(self) -> None:
        """Raise PoolError if the local pool has ended before its jobs.

        If another command had started that pool, as a rule one that was interrupted, the jobs go on
        in a pool of this one's own.
        """
        words = self.lost()
        if words and self.pool.joined:
            self.submit()
        elif words:
            raise PoolError(
                f"the local pool of {self.label} ended before its jobs did",
                remedy=f"its last words: {words}; go on with `headway run --resume {self.label}`",
            )

    def outputs(self, job: int = 0) -> Path:
        """The folder with the declared outputs of a job that succeeded.

        Args:
            job: its number in the run.

        Returns:
            The folder; it exists once the job has succeeded.

        Raises:
            RunError: the run has no such job.
        """
        self._check([job])
        return self.folder.job_folder(job) / "outputs"

    def results(self) -> list[Result]:
        """The results of every job of the description, also those kept from other runs.

        Returns:
            For each job its number and `row`, the `run` that has it and its `index` there, a
            `state` (`kept`: succeeded and its outputs are there; `busy`; `waits`; `missing`),
            `why`, and `outputs`, each with its `path` and `where` it is.

        Raises:
            RunError: the run folder is damaged.
        """
        return all_results(look(self.folder))

    def stream(self, job: int = 0, name: str = "stdout") -> Path | None:
        """The newest stdout, stderr or agent.log of a job that is here.

        Args:
            job: its number in the run.
            name: `stdout`, `stderr` or `agent.log`.

        Returns:
            The file; None if no attempt has left one here yet.

        Raises:
            RunError: the run has no such job.
        """
        self._check([job])
        for attempt in reversed(self.folder.attempts(job)):
            if (attempt / name).is_file():
                return attempt / name
        return None

    def hold(self, jobs: Iterable[int] | None = None) -> list[ActionResult]:
        """Stop jobs and keep them in the queue; arguments and results as in `act`."""
        return self.act(Action.HOLD, jobs)

    def release(self, jobs: Iterable[int] | None = None) -> list[ActionResult]:
        """Let held jobs run again; arguments and results as in `act`."""
        return self.act(Action.RELEASE, jobs)

    def remove(self, jobs: Iterable[int] | None = None) -> list[ActionResult]:
        """Take jobs out of the queue for good; arguments and results as in `act`."""
        return self.act(Action.REMOVE, jobs)

    def evict(self, jobs: Iterable[int] | None = None) -> list[ActionResult]:
        """Stop running jobs, which then start again; arguments and results as in `act`."""
        return self.act(Action.EVICT, jobs)

    def act(self, action: Action, jobs: Iterable[int] | None = None) -> list[ActionResult]:
        """Do something to jobs in the queue.

        Args:
            action: what to do.
            jobs: their numbers in the run; default: all jobs that are still in the queue.

        Returns:
            One result for each job; its `error` is empty if the action took effect.

        Raises:
            RunError: the run has no such job, or belongs to another user.
            PoolError: the pool cannot be asked.
        """
        chosen = None if jobs is None else list(jobs)
        if chosen is not None:
            self._check(chosen)
        _log.info("%s: %s %s", self.label, action.value, "all jobs" if jobs is None else chosen)
        reason = f"via headway {action.value} (by user {own_name()})"
        return self.pool.act(self.folder, action, chosen, reason)

    def edit(self, jobs: Iterable[int], attribute: str, value: str | int) -> list[ActionResult]:
        """Change what jobs in the queue request; it takes effect at their next attempt.

        Args:
            jobs: their numbers in the run.
            attribute: an attribute of HTCondor's job ads: RequestMemory (in MiB), RequestDisk (in
                KiB), RequestCpus, RequestGPUs; on HTCondor also any other attribute.
            value: a number, or a ClassAd expression.

        Returns:
            One result for each job; its `error` is empty if the change took effect.

        Raises:
            RunError: the run has no such job.
            PoolError: the pool cannot be asked.
        """
        chosen = list(jobs)
        self._check(chosen)
        _log.info("%s: set %s = %s of %s", self.label, attribute, value, chosen)
        return self.pool.edit(self.folder, chosen, attribute, str(value))

    def _check(self, jobs: Iterable[int]) -> None:
        size = self.folder.job.size
        for job in jobs:
            if not isinstance(job, int) or not 0 <= job < size:
                raise RunError(
                    f"{self.label} has no job {job!r}",
                    remedy=f"its jobs are {self.label}.0 to {self.label}.{size - 1}",
                )


def _may_come_again(state: JobState) -> bool:
    """Whether another courier may bring a job's outputs, if there are any left."""
    return state.delivered is not None or state.undelivered


def look(folder: RunFolder) -> RunState:
    """A run as it is now, for a search through results."""
    run = Run(folder)
    return RunState(folder, run.jobs, bool(run.lost()))


def find_missing(job: Job, base: Path, runs: Runs) -> Results:
    """Which jobs of a description have verified outputs in runs of the same name."""
    return find_results(job, base, runs, look)


@dataclass
class Submission:
    """A run before it is submitted: its jobs, where they will run, and what may go wrong.

    `plan_run` makes it. Nothing is written before `prepare`.
    """

    job: Job
    base: Path
    pool: Pool
    runs: Runs
    #: With `only_missing`: which results there are already.
    results: Results | None = None
    #: What preflight warns of; empty where there is nothing to run.
    findings: tuple[LintFinding, ...] = ()

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to run."""
        return self.results is None or bool(self.results.of(MISSING))

    def prepare(self, *, again: bool = False) -> Run:
        """Make the run and its folder; `Run.submit` submits it.

        So that an interrupted `headway run` can be repeated without submitting its jobs twice,
        this is the run of the very same job if that has not ended yet.

        Args:
            again: make a new run, even if one of the same job has not ended.

        Returns:
            The run.

        Raises:
            PreflightError: the job would fail on this pool.
            RunError: the run folder cannot be written.
        """
        raise_errors(self.findings)
        self.runs.check_own()
        job, base, pool, runs = self.job, self.base, self.pool, self.runs
        digest = job_digest(job, base, pool.name)
        with runs.alone(digest):
            left = None if again else runs.same(digest)
            made = None if left is None else Run(left, pool)
            if made is None or made.settled():
                kept = "" if self.results is None else kept_text(self.results.of(KEPT))
                made = Run(prepare(job, base, runs, pool.facts(), digest, kept), pool)
        made.findings = self.findings
        _log.info("%s is in %s", made.label, made.folder.path)
        return made


def plan_run(
    job: str | os.PathLike[str] | Job,
    *,
    pool: str | Pool = "local",
    overrides: Sequence[str] = (),
    resources: Sequence[str] = (),
    base: str | Path | None = None,
    start: str | Path | None = None,
    only_missing: bool = False,
    strict: bool | None = None,
    step: Callable[[str], AbstractContextManager[None]] = lambda doing: nullcontext(),
    on_results: Callable[[Submission, Results], None] = lambda planned, results: None,
) -> Submission:
    """Do all that comes before a run: read the job, look for its results, check it.

    Args:
        job: this and the others as `run` has them.
        step: entered around each step, with words that say what it does.
        on_results: called with the results that `only_missing` found, before the job is checked.

    Returns:
        What would be submitted.

    Raises:
        SpecError: the description is wrong.
        PoolError: there is no such pool, or it cannot be asked.
        RunError: outputs of the missing jobs would overwrite those that are kept.
    """
    with step("reading the job"):
        if isinstance(job, Job):
            found, folder = job, (_folder(base) or Path.cwd()).absolute()
        else:
            found = load_job(Path(job), overrides=overrides, resources=resources)
            folder = Path(job).absolute().parent
        runs = Runs.here(_folder(start))
        chosen = open_pool(pool, runs.root.parent) if isinstance(pool, str) else pool
    _log.info("%s: jobs %d, pool %s, runs in %s", found.name, found.size, chosen.name, runs.folder)
    made = Submission(found, folder, chosen, runs)
    if only_missing:
        with step("looking for the results that are there"):
            made.results = find_missing(found, folder, runs)
        on_results(made, made.results)
        if not made.is_needed:
            return made
        made.results.check_places(found, folder)
        made.job = made.results.missing_part(found)
    with step("looking for what could go wrong"):
        limits, match = chosen.limits(), chosen.match(made.job)
        made.findings = tuple(
            preflight(made.job, folder, limits, pool=chosen.kind, match=match, strict=strict)
        )
    _log.info("%s: preflight found %d things", found.name, len(made.findings))
    return made


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
    """Run a job.toml (or a Job) and, by default, wait until it is over.

    Args:
        job: the path of a job.toml, or a Job.
        pool: a pool, or its name as for `--pool`.
        overrides: changes to a job.toml, as for `--set`.
        resources: changes to its resources, as for `--resource`.
        base: the folder of a Job's `files`; default: the current folder.
        start: where to look for the `.headway` folder; default: the current folder.
        again: start a new run, even if one of the same job has not ended.
        only_missing: run only the jobs that have no verified output yet, and keep the others'.
        strict: True refuses a job that no slot of an HTCondor pool could run today, False submits
            it anyway; None refuses it only if the pool cannot get other slots.
        wait: whether to wait until all jobs are over or held for good.
        on_change: called with the run whenever its event log has grown.

    Returns:
        The run. With `only_missing` and nothing left to run, this is the newest run that has
        results of the job, and `run` does not wait.

    Raises:
        SpecError: the description is wrong.
        PreflightError: the job would fail on this pool.
        PoolError: the pool refused, failed or did not answer.
        RunError: the run folder cannot be written.
    """
    planned = plan_run(
        job,
        pool=pool,
        overrides=overrides,
        resources=resources,
        base=base,
        start=start,
        only_missing=only_missing,
        strict=strict,
    )
    if planned.results is not None and not planned.is_needed:
        return Run(newest_of(planned.results, planned.runs))
    started = planned.prepare(again=again)
    started.submit()
    if wait:
        started.wait(on_change=on_change)
    return started


def newest_of(found: Results, runs: Runs) -> RunFolder:
    """The newest run that has some of the results, or is working on them."""
    labels = {each.run for each in found.results}
    return next(folder for folder in reversed(list(runs)) if folder.label in labels)


def _folder(given: str | Path | None) -> Path | None:
    """A folder that the caller named; None if none was named."""
    if given is None:
        return None
    folder = Path(given)
    if not os.path.isdir(folder):
        raise RunError(f"there is no folder {str(folder)!r}", remedy="name one that exists")
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
