"""A real HTCondor pool."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from headway.errors import PoolError, PoolUnreachable
from headway.events import EventType, read_log
from headway.pool.base import Action, ActionResult, Limits, Pool
from headway.pool.folder import RunFolder, write_atomically
from headway.pool.schedd import Schedd
from headway.pool.submit import check_paths, row_lines, submit_description
from headway.spec import Job

T = TypeVar("T")

_PAUSES = (1.0, 3.0)
_MEGABYTE = 2**20
# What the OSPool asks of a job; other pools get the same advice as warnings, never as errors.
_GUIDELINE_INPUT = 10 * 10**9
_GUIDELINE_GPUS = 1
_IDLE, _RUNNING, _HELD = 1, 2, 5
_ACTIONS = {
    Action.HOLD: "Hold",
    Action.RELEASE: "Release",
    Action.REMOVE: "Remove",
    Action.EVICT: "Vacate",
}


class HTCondorPool(Pool):
    """Submits to one schedd and asks it; the jobs need nobody to watch them."""

    kind = "htcondor"

    def __init__(self, schedd: str | None = None, collector: str | None = None) -> None:
        self._given = {"schedd": schedd, "collector": collector}
        self._schedd = Schedd(schedd, collector)
        options = ",".join(f"{key}={value}" for key, value in self._given.items() if value)
        self.name = f"htcondor:{options}" if options else "htcondor"

    @classmethod
    def parse(cls, options: str) -> HTCondorPool:
        """From what stands behind `htcondor:`, e.g. `schedd=ap40.example.org`."""
        values = dict(pair.partition("=")[::2] for pair in options.split(",") if pair)
        unknown = sorted(set(values) - {"schedd", "collector"})
        if unknown:
            raise PoolError(
                f"--pool htcondor:{options}: unknown key {unknown[0]!r}",
                remedy="for example htcondor:schedd=ap40.example.org,collector=cm.example.org",
            )
        return cls(values.get("schedd"), values.get("collector"))

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> HTCondorPool:
        return cls(facts.get("schedd"), facts.get("collector"))

    def facts(self) -> dict[str, Any]:
        return {"kind": self.kind, **self._given}

    def limits(self) -> Limits:
        megabytes = self._schedd.parameter("MAX_TRANSFER_INPUT_MB") or ""
        return Limits(
            transfer_input_bytes=int(megabytes) * _MEGABYTE if megabytes.isdigit() else None,
            input_guideline_bytes=_GUIDELINE_INPUT,
            gpus_guideline=_GUIDELINE_GPUS,
        )

    def describe(self, job: Job, folder: RunFolder) -> str:
        return submit_description(job, folder, "<made at submit>")

    def submit(self, folder: RunFolder) -> None:
        with folder.locked(wait=True):
            facts = folder.facts
            if facts.cluster is not None:
                return
            cluster = self._find(folder, facts.id)
            if cluster is None:
                cluster = self._submit(folder, facts.id)
            folder.update(cluster=cluster, submitted=time.time())

    def act(
        self, folder: RunFolder, action: Action, jobs: Sequence[int] | None, reason: str
    ) -> list[ActionResult]:
        cluster = self._cluster(folder)
        if jobs is None:
            # Also those that are not in the queue yet: HTCondor makes large clusters bit by bit.
            self._act(action, f"ClusterId == {cluster}", reason)
            return []
        status = self._status(cluster)
        errors = {job: _objection(action, status.get(job)) for job in jobs}
        chosen = [str(job) for job in jobs if not errors[job]]
        if chosen:
            procs = ",".join(chosen)
            self._act(action, f"ClusterId == {cluster} && member(ProcId, {{{procs}}})", reason)
        return [ActionResult(job, errors[job]) for job in jobs]

    def edit(
        self, folder: RunFolder, jobs: Sequence[int], attribute: str, value: str
    ) -> list[ActionResult]:
        cluster = self._cluster(folder)
        status = self._status(cluster)

        def edit(job: int) -> ActionResult:
            if job not in status:
                return ActionResult(job, "it is not in the queue")
            constraint = f"ClusterId == {cluster} && ProcId == {job}"
            try:
                _patiently(lambda: self._schedd.edit(constraint, attribute, value))
            except PoolUnreachable:
                raise
            except PoolError as refusal:
                return ActionResult(job, refusal.message)
            return ActionResult(job)

        return [edit(job) for job in jobs]

    def query(self, folder: RunFolder) -> Mapping[int, Mapping[str, object]]:
        constraint = f"ClusterId == {self._cluster(folder)}"
        ads = _patiently(lambda: self._schedd.query(constraint, ()))
        return {int(ad["ProcId"]): ad for ad in ads}

    def leave(self, folder: RunFolder) -> str:
        return f"{folder.label} goes on without you; `headway status {folder.label}` looks at it"

    def tail(
        self, folder: RunFolder, job: int, name: str, *, follow: bool
    ) -> Iterator[bytes] | None:
        """What a running job has written so far, by condor_tail; None where there is none."""
        tool = shutil.which("condor_tail")
        if tool is None or name not in ("stdout", "stderr"):
            return None
        flags = [f"-{name}", *(["-f"] if follow else []), "-maxbytes", str(2**20)]
        if self._given["collector"]:
            flags += ["-pool", self._given["collector"]]
        if self._given["schedd"]:
            flags += ["-name", self._given["schedd"]]
        return _output([tool, *flags, f"{self._cluster(folder)}.{job}"])

    def _cluster(self, folder: RunFolder) -> int:
        cluster = folder.facts.cluster
        if cluster is None:
            cluster = self._find(folder, folder.facts.id)
        if cluster is None:
            raise PoolError(
                f"{folder.label} was never submitted",
                remedy=f"submit it with `headway run --resume {folder.label}`",
            )
        return cluster

    def _find(self, folder: RunFolder, run_id: str) -> int | None:
        """The cluster of this run, if an earlier try got it into the queue.

        A job that has left the queue again has left its events in the log, so there is no need
        to search the history.
        """
        constraint = f'HeadwayRun == "{run_id}"'
        ads = _patiently(lambda: self._schedd.query(constraint, ["ClusterId"]))
        if ads:
            return int(ads[0]["ClusterId"])
        if folder.events.exists():
            for event in read_log(folder.events).events:
                if event.number in (EventType.SUBMIT, EventType.CLUSTER_SUBMIT):
                    return event.cluster
        return None

    def _submit(self, folder: RunFolder, run_id: str) -> int:
        check_paths(folder)
        for job in range(folder.job.size):
            folder.job_folder(job).mkdir(exist_ok=True)
        text = submit_description(folder.job, folder, run_id)
        rows = row_lines(folder.job, Path(folder.facts.base))
        write_atomically(folder.submit_file, text.encode())
        write_atomically(folder.submit_rows, "".join(f"{row}\n" for row in rows).encode())
        try:
            return self._schedd.submit(text)
        except PoolUnreachable:
            # The answer was lost, not necessarily the jobs.
            found = self._find(folder, run_id)
            if found is None:
                raise
            return found
        except PoolError as error:
            raise PoolError(
                f"{folder.label} was not submitted: {error.message}",
                remedy=f"see {folder.submit_file}; a line under [submit] may be the cause",
            ) from error

    def _act(self, action: Action, constraint: str, reason: str) -> None:
        _patiently(lambda: self._schedd.act(_ACTIONS[action], constraint, reason))

    def _status(self, cluster: int) -> dict[int, int]:
        constraint = f"ClusterId == {cluster}"
        ads = _patiently(lambda: self._schedd.query(constraint, ["ProcId", "JobStatus"]))
        return {int(ad["ProcId"]): int(ad["JobStatus"]) for ad in ads}


def _objection(action: Action, status: int | None) -> str:
    if status is None:
        return "it is not in the queue"
    if action is Action.HOLD and status == _HELD:
        return "it is already held"
    if action is Action.RELEASE and status != _HELD:
        return "it is not held"
    if action is Action.EVICT and status != _RUNNING:
        return "it is not running"
    return ""


def _patiently(question: Callable[[], T]) -> T:
    """Ask, and where there is no answer ask again a few times."""
    for pause in _PAUSES:
        try:
            return question()
        except PoolUnreachable:
            time.sleep(pause)
    return question()


def _output(command: list[str]) -> Iterator[bytes]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            while block := process.stdout.read1(65536):  # type: ignore[attr-defined]
                yield block
        finally:
            process.terminate()
