"""The local pool: jobs as processes on this machine, with the same event log as HTCondor's."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.errors import PoolError, RunError
from headway.events import read_log
from headway.pool.base import Action, ActionResult, Limits, Pool
from headway.pool.folder import RunFolder, open_own, read_plain
from headway.pool.local.job import LocalJob
from headway.pool.local.machine import Site, find_apptainer, parse_sites, sites_of
from headway.pool.local.main import LOG, SupervisorProcess, recover
from headway.pool.local.queue import QueueState
from headway.pool.local.supervisor import LOCK, Supervisor, ask
from headway.text import many

if TYPE_CHECKING:
    from headway.spec import Job

_log = logging.getLogger(__name__)

_ROOM_FOR_LOG = 4096  # bytes that a line of supervisor.log needs at most
_MAX_LOG = 2**24  # bytes of supervisor.log


class LocalPool(Pool):
    """Starts one supervisor for each run; it ends with this process unless detached."""

    kind = "local"

    def __init__(
        self, sites: Sequence[Site], *, name: str = "local", detached: bool = False
    ) -> None:
        self.name = name
        self.sites = tuple(sites)
        self.detached = detached
        self._loading: SupervisorProcess | None = None  # until it has a run
        self._supervisor: SupervisorProcess | None = None  # of the run that this process watches

    @classmethod
    def parse(cls, options: str, folder: Path) -> LocalPool:
        """The pool for the options after `local:`, e.g. `cpus=4,simulate-gpus=2`."""
        return cls(parse_sites(options, folder), name=f"local:{options}" if options else "local")

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> LocalPool:
        return cls(sites_of(facts), name=facts.get("name", "local"))

    def facts(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": self.name, "sites": [*map(asdict, self.sites)]}

    def limits(self) -> Limits:
        most = {key: max(getattr(s, key) for s in self.sites) for key in ("cpus", "memory", "disk")}
        gpus = max(len(site.gpus) for site in self.sites)
        return Limits(**most, gpus=gpus, containers=find_apptainer() is not None)

    def describe(self, job: Job, folder: RunFolder, base: Path) -> str:
        from headway.pool.prepare import by_agent, plan

        shares = "\n".join(
            f"# site {site.name}: {site.cpus} cpus, {site.memory // 2**20} MiB memory,"
            f" {len(site.gpus)} GPUs"
            for site in self.sites
        )
        text = json.dumps(plan(by_agent(job), "<made at submit>"), indent=1, ensure_ascii=False)
        jobs = many(job.size, "job")
        return f"# {jobs} on the local pool, each with this plan\n{shares}\n{text}\n"

    @contextlib.contextmanager
    def beginning(self) -> Iterator[None]:
        with contextlib.suppress(OSError):  # `submit` will say so
            self._loading = SupervisorProcess()
        try:
            yield
        finally:
            self._drop()

    def _drop(self) -> None:
        """End the supervisor that is loading, if no run needs it."""
        loading, self._loading = self._loading, None
        if loading is not None:
            loading.drop()

    def submit(self, folder: RunFolder) -> None:
        try:
            self._submit(folder)
        except BaseException:  # Ctrl-C, for one; jobs may run already
            self._end_supervisor()
            raise

    def _submit(self, folder: RunFolder) -> None:
        folder.check_own()
        self.joined = folder.is_locked(LOCK)
        if not self.joined:
            try:
                self._start_supervisor(folder)
            except PoolError:
                self.joined = folder.is_locked(LOCK)  # another one was quicker
                if not self.joined:
                    raise
        self._drop()
        facts = folder.facts
        if facts.cluster is None:
            folder.update(cluster=facts.number, submitted=time.time())

    def act(
        self, folder: RunFolder, action: Action, jobs: Sequence[int] | None, reason: str
    ) -> list[ActionResult]:
        chosen = list(self.query(folder)) if jobs is None else list(jobs)
        return self._ask(folder, {"action": action.value, "jobs": chosen, "reason": reason})

    def edit(
        self, folder: RunFolder, jobs: Sequence[int], attribute: str, value: str
    ) -> list[ActionResult]:
        return self._ask(folder, {"edit": [attribute, value], "jobs": list(jobs)})

    def query(self, folder: RunFolder) -> Mapping[int, Mapping[str, object]]:
        entries = QueueState(folder.facts.number, LocalJob.read(folder))
        if folder.events.exists():
            entries.replay(read_log(folder.events).events)
        return entries.ads()

    def leave(self, folder: RunFolder) -> str:
        if self._supervisor is None:
            return f"{folder.label} goes on in the background: see `headway status {folder.label}`"
        if self._end_supervisor() != 0:
            raise PoolError(
                f"the local pool of {folder.label} did not end properly: {last_words(folder)}",
                remedy=f"go on with `headway run --resume {folder.label}`",
            )
        return f"its jobs were stopped; go on with `headway run --resume {folder.label}`"

    def abandoned(self, folder: RunFolder) -> str:
        try:
            return "" if folder.is_locked(LOCK) else last_words(folder)
        except (OSError, RunError):
            return ""  # nobody can tell without write permission

    def _ask(self, folder: RunFolder, body: Mapping[str, Any]) -> list[ActionResult]:
        """Have the supervisor do it or, where none runs, do it in its place."""
        folder.check_own()
        answer = None
        while answer is None:
            if folder.is_locked(LOCK):
                answer = ask(folder, body, alive=lambda: folder.is_locked(LOCK))
            else:
                answer = self._answer(folder, body)
        return [ActionResult(result["job"], result["error"]) for result in answer]

    def _answer(self, folder: RunFolder, body: Mapping[str, Any]) -> list[dict[str, Any]] | None:
        """Do what is asked without a supervisor; None if one has just started."""
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(folder.locked(LOCK))
            except RunError:
                if folder.is_locked(LOCK):
                    return None
                raise
            job = LocalJob.read(folder)
            supervisor = stack.enter_context(contextlib.closing(Supervisor(folder, job)))
            recover(supervisor)
            answer = supervisor.answer(body)
            goes_on = body.get("action") == Action.RELEASE.value and supervisor.queue.has_work()
        if goes_on:
            LocalPool(self.sites, name=self.name, detached=True).submit(folder)
        return answer

    def _start_supervisor(self, folder: RunFolder) -> None:
        """Have it read the log before this returns, so that an error is reported now."""
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            with open(open_own(folder.path / LOG, flags, 0o644), "ab") as log:
                log.truncate(0)  # the messages of an earlier supervisor would mislead
            process, self._loading = self._loading or SupervisorProcess(), None
            self._supervisor = None if self.detached else process
            begun = process.begin(folder, detached=self.detached)
        except OSError as error:
            raise PoolError(
                f"the local pool of {folder.label} cannot be started: {error.strerror}",
                remedy=f"is there space and permission in {folder.path}?",
            ) from error
        if not begun:
            self._supervisor = None
            raise PoolError(
                f"the local pool of {folder.label} did not start: {last_words(folder)}",
                remedy=f"see {LOG} in {folder.path}",
            )
        _log.info("the local pool of %s runs as process %d", folder.label, process.pid)

    def _end_supervisor(self) -> int:
        """End the jobs that this process watches, with their grace; returns the exit code."""
        supervisor, self._supervisor = self._supervisor, None
        return 0 if supervisor is None else supervisor.end()


def last_words(folder: RunFolder) -> str:
    """The last line of supervisor.log: why the supervisor of this run has ended."""
    with contextlib.suppress(RunError, OSError):
        log = read_plain(folder.path / LOG, _MAX_LOG).decode(errors="replace")
        if log.strip():
            return log.strip().splitlines()[-1]
    full = shutil.disk_usage(folder.path).free < _ROOM_FOR_LOG
    return f"the disk of {folder.path} is full" if full else "it said nothing"
