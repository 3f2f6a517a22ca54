"""The local pool: jobs as processes on this machine, with the same event log as HTCondor's."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.errors import PoolError, RunError
from headway.events import read_log
from headway.node.process import isolated
from headway.pool.base import Action, ActionResult, Limits, Pool
from headway.pool.folder import RunFolder, open_own, read_plain
from headway.pool.local.job import LocalJob
from headway.pool.local.machine import Site, find_apptainer, parse_sites, sites_of
from headway.pool.local.main import recover
from headway.pool.local.queue import QueueState
from headway.pool.local.supervisor import LOCK, Supervisor, ask
from headway.pool.prepare import by_agent, plan
from headway.text import many

if TYPE_CHECKING:
    from headway.spec import Job

_log = logging.getLogger(__name__)

_PROGRAM = "from headway.pool.local.main import main; sys.exit(main())"
_START_PATIENCE = 120.0
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
        self._leash: int | None = None
        self._process: subprocess.Popen[bytes] | None = None

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
        shares = "\n".join(
            f"# site {site.name}: {site.cpus} cpus, {site.memory // 2**20} MiB memory,"
            f" {len(site.gpus)} GPUs"
            for site in self.sites
        )
        text = json.dumps(plan(by_agent(job), "<made at submit>"), indent=1, ensure_ascii=False)
        jobs = many(job.size, "job")
        return f"# {jobs} on the local pool, each with this plan\n{shares}\n{text}\n"

    def submit(self, folder: RunFolder) -> None:
        folder.check_own()
        self.joined = folder.is_locked(LOCK)
        if not self.joined:
            try:
                self._start_supervisor(folder)
            except PoolError:
                self.joined = folder.is_locked(LOCK)  # another one was quicker
                if not self.joined:
                    raise
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
        if self.detached or self._leash is None:
            return f"{folder.label} goes on in the background: see `headway status {folder.label}`"
        os.close(self._leash)
        self._leash = None
        if self._process is not None and self._process.wait() != 0:
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
        """Start it and wait until it has read the log, so that an error is reported now."""
        ready, tell_ready = os.pipe()
        held, leash = os.pipe()
        command = [*isolated(_PROGRAM), str(folder.path), "--ready", str(tell_ready)]
        passed = [tell_ready]
        if not self.detached:
            command += ["--leash", str(held)]
            passed.append(held)
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            with open(open_own(folder.path / "supervisor.log", flags, 0o644), "ab") as log:
                log.truncate(0)  # the messages of an earlier supervisor would mislead
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=passed,
                    start_new_session=True,
                )
            os.close(tell_ready)
            tell_ready = -1
            readable, _, _ = select.select([ready], [], [], _START_PATIENCE)
            if not readable or os.read(ready, 5) != b"ready":
                self._process.terminate()
                raise PoolError(
                    f"the local pool of {folder.label} did not start: {last_words(folder)}",
                    remedy=f"see supervisor.log in {folder.path}",
                )
            _log.info("the local pool of %s runs as process %d", folder.label, self._process.pid)
            if self.detached:
                self._process.returncode = 0  # nobody waits for it, and Python should not warn
            else:
                self._leash, leash = leash, -1
        except OSError as error:
            raise PoolError(
                f"the local pool of {folder.label} cannot be started: {error.strerror}",
                remedy=f"is there space and permission in {folder.path}?",
            ) from error
        finally:
            for descriptor in (ready, tell_ready, held, leash):
                if descriptor >= 0:
                    os.close(descriptor)


def last_words(folder: RunFolder) -> str:
    """The last line of supervisor.log: why the supervisor of this run has ended."""
    with contextlib.suppress(RunError, OSError):
        log = read_plain(folder.path / "supervisor.log", _MAX_LOG).decode(errors="replace")
        if log.strip():
            return log.strip().splitlines()[-1]
    full = shutil.disk_usage(folder.path).free < _ROOM_FOR_LOG
    return f"the disk of {folder.path} is full" if full else "it said nothing"
