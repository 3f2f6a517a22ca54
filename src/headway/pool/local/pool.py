"""The embedded pool: jobs as processes on this machine, with HTCondor's event log and manners."""

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
from pathlib import Path
from typing import Any

from headway.errors import PoolError, RunError
from headway.events import read_log
from headway.node.process import isolated
from headway.pool.base import Action, ActionResult, Limits, Pool
from headway.pool.folder import RunFolder, open_own, read_plain
from headway.pool.local.machine import Site, find_apptainer, parse_sites
from headway.pool.local.main import recover
from headway.pool.local.queue import Entries
from headway.pool.local.supervisor import LOCK, Supervisor, ask
from headway.pool.prepare import by_agent, plan
from headway.spec import Job
from headway.text import many

_log = logging.getLogger(__name__)

_PROGRAM = "from headway.pool.local.main import main; sys.exit(main())"
_START_PATIENCE = 120.0
_ROOM_FOR_WORDS = 4096
_MOST_SAID = 2**24  # bytes of supervisor.log


class LocalPool(Pool):
    """Starts one supervisor a run; it ends with this process unless detached."""

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
        """From what stands behind `local:`, e.g. `cpus=4,simulate-gpus=2`."""
        return cls(parse_sites(options, folder), name=f"local:{options}" if options else "local")

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> LocalPool:
        return cls(
            [Site.from_facts(site) for site in facts["sites"]], name=facts.get("name", "local")
        )

    def facts(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "name": self.name,
            "sites": [site.to_facts() for site in self.sites],
        }

    def limits(self) -> Limits:
        return Limits(
            cpus=max(site.cpus for site in self.sites),
            memory=max(site.memory for site in self.sites),
            disk=max(site.disk for site in self.sites),
            gpus=max(len(site.gpus) for site in self.sites),
            containers=find_apptainer() is not None,
        )

    def describe(self, job: Job, folder: RunFolder, base: Path) -> str:
        shares = "\n".join(
            f"# site {site.name}: {site.cpus} cpus, {site.memory // 2**20} MiB memory,"
            f" {len(site.gpus)} GPUs"
            for site in self.sites
        )
        text = json.dumps(plan(by_agent(job), "<made at submit>"), indent=1, ensure_ascii=False)
        return (
            f"# {many(job.size, 'job')} on the local pool, each with this plan\n{shares}\n{text}\n"
        )

    def submit(self, folder: RunFolder) -> None:
        folder.check_own()
        if not folder.is_locked(LOCK):
            try:
                self._start_supervisor(folder)
            except PoolError:
                if not folder.is_locked(LOCK):  # otherwise another was quicker, which will do
                    raise
        facts = folder.facts
        if facts.cluster is None:
            folder.update(cluster=facts.number, submitted=time.time())

    def act(
        self, folder: RunFolder, action: Action, jobs: Sequence[int] | None, reason: str
    ) -> list[ActionResult]:
        folder.check_own()
        chosen = list(self.query(folder)) if jobs is None else list(jobs)
        body = {"action": action.value, "jobs": chosen, "reason": reason}
        return [ActionResult(result["job"], result["error"]) for result in self._ask(folder, body)]

    def edit(
        self, folder: RunFolder, jobs: Sequence[int], attribute: str, value: str
    ) -> list[ActionResult]:
        folder.check_own()
        body = {"edit": [attribute, value], "jobs": list(jobs)}
        return [ActionResult(result["job"], result["error"]) for result in self._ask(folder, body)]

    def query(self, folder: RunFolder) -> Mapping[int, Mapping[str, object]]:
        entries = Entries(folder.facts.number, folder.job)
        if folder.events.exists():
            entries.replay(read_log(folder.events).events)
        return entries.ads()

    def leave(self, folder: RunFolder) -> str:
        if self.detached or self._leash is None:
            return f"{folder.label} goes on in the background; `headway status {folder.label}`"
        os.close(self._leash)
        self._leash = None
        if self._process is not None and self._process.wait() != 0:
            raise PoolError(
                f"the local pool of {folder.label} could not end as it should:"
                f" {last_words(folder)}",
                remedy=f"go on with `headway run --resume {folder.label}`",
            )
        return f"its jobs were stopped; go on with `headway run --resume {folder.label}`"

    def abandoned(self, folder: RunFolder) -> str:
        try:
            return "" if folder.is_locked(LOCK) else last_words(folder)
        except (OSError, RunError):
            return ""  # a folder that may only be read does not tell

    def _ask(self, folder: RunFolder, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        while True:
            if folder.is_locked(LOCK):
                answer = ask(folder, body, alive=lambda: folder.is_locked(LOCK))
                if answer is not None:
                    return list(answer)
            else:
                with contextlib.suppress(_Busy):
                    return self._answer(folder, body)

    def _answer(self, folder: RunFolder, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Nobody runs these jobs: do what is asked in their supervisor's place."""
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(folder.locked(LOCK))
            except RunError:
                if folder.is_locked(LOCK):
                    raise _Busy from None  # a supervisor has started just now
                raise
            supervisor = stack.enter_context(contextlib.closing(Supervisor(folder)))
            recover(supervisor)
            answer = supervisor.answer(body)
            goes_on = body.get("action") == Action.RELEASE.value and supervisor.queue.has_work()
        if goes_on:
            LocalPool(self.sites, name=self.name, detached=True).submit(folder)
        return answer

    def _start_supervisor(self, folder: RunFolder) -> None:
        """Start it and wait until it has read the log, so that what is wrong is told now."""
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
                log.truncate(0)  # what another supervisor said says nothing of this one
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
                self._process.returncode = 0  # nobody waits for it: Python is not to complain
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


class _Busy(Exception):
    """A supervisor has the run's lock."""


def last_words(folder: RunFolder) -> str:
    """The last line of supervisor.log: why the pool of this run is no more."""
    try:
        said = read_plain(folder.path / "supervisor.log", _MOST_SAID)
        lines = said.decode(errors="replace").strip().splitlines()
    except (RunError, OSError):
        lines = []
    if lines:
        return lines[-1]
    full = shutil.disk_usage(folder.path).free < _ROOM_FOR_WORDS
    return f"the disk of {folder.path} is full" if full else "it said nothing"
