"""A real HTCondor pool."""

from __future__ import annotations

import logging
import re
import shutil
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.errors import PoolError, PoolUnreachable, RunError
from headway.events import EventType, read_log
from headway.node.classad import quoted
from headway.node.files import write_atomically
from headway.node.store.sandboxes import SandboxError
from headway.pool.base import Action, ActionResult, Limits, Pool
from headway.pool.deliveries import QUEUE_NAMES, SLOT_NAMES, PoolFacts
from headway.pool.folder import RunFolder
from headway.pool.htcondor.dag import PROGRAM as DAGMAN
from headway.pool.htcondor.dag import settings_text
from headway.pool.htcondor.pairs import news, write_files
from headway.pool.htcondor.schedd import Schedd, patience, run_scope
from headway.pool.htcondor.submit import (
    MOST_IDLE,
    NOTHING,
    CommonInput,
    check_paths,
    courier_description,
    dag,
    destinations,
    holders_term,
    row_lines,
    submit_description,
    with_courier,
    worth_sharing,
)
from headway.pool.lint.case import PreflightCase
from headway.pool.match import Match, job_attributes, needs_of
from headway.pool.policy import JOB
from headway.spec import Job

_log = logging.getLogger(__name__)

_MEGABYTE = 2**20
_OSPOOL = re.compile(r"(?:^|[.@])ospool\.osg-htc\.org\Z", re.I)  # its collectors' domain
_RUNNING, _REMOVED, _COMPLETED, _HELD, _SUSPENDED = 2, 3, 4, 5, 7
_TAIL = 2**20  # bytes of a running job's output, the newest
_TAIL_PATIENCE, _TAIL_PAUSE = 20.0, 2.0  # seconds
_ACTIONS = {
    Action.HOLD: "Hold",
    Action.RELEASE: "Release",
    Action.REMOVE: "Remove",
    Action.EVICT: "Vacate",
}


class HTCondorPool(Pool):
    """Submits to one schedd and queries it; the jobs run on without Headway."""

    kind = "htcondor"

    def __init__(self, schedd: str | None = None, collector: str | None = None) -> None:
        self._given = {"schedd": schedd, "collector": collector}
        self._schedd = Schedd(schedd, collector)
        options = ",".join(f"{key}={value}" for key, value in self._given.items() if value)
        self.name = f"htcondor:{options}" if options else "htcondor"

    @classmethod
    def parse(cls, options: str) -> HTCondorPool:
        """The pool for the options after `htcondor:`, e.g. `schedd=ap40.example.org`."""
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
        asked = self._schedd.parameters("MAX_TRANSFER_INPUT_MB", "COLLECTOR_HOST")
        megabytes, collectors = (value or "" for value in asked)
        return Limits(
            transfer_input_bytes=int(megabytes) * _MEGABYTE if megabytes.isdigit() else None,
            ospool=is_ospool(self._given["collector"] or collectors),
        )

    def match(self, job: Job) -> Match:
        return self._schedd.match(job_attributes(job), needs_of(job))

    def describe(self, job: Job, folder: RunFolder, base: Path) -> str:
        check_paths(job, folder, base)
        common, made = self._common(job, folder, base), "<made at submit>"
        paired = self._pairs(job, common)
        text = submit_description(job, folder, made, base, common, paired=paired)
        return f"{text}\n# {folder.dag.name}\n{dag(job, folder, made, base)}" if paired else text

    def submit(self, folder: RunFolder) -> None:
        folder.check_own()
        with folder.locked("submit", patience=patience() + 15.0) as lock:  # no submit takes longer
            facts = folder.facts
            if facts.cluster is not None:
                return
            cluster = self._find(folder, facts.id)
            if cluster is None:
                cluster = self._submit(folder, facts.id, lock.descriptor)
            folder.update(cluster=cluster, submitted=time.time())
            _log.info("%s is cluster %d of %s", folder.label, cluster, self.name)

    def act(
        self, folder: RunFolder, action: Action, jobs: Sequence[int] | None, reason: str
    ) -> list[ActionResult]:
        folder.check_own()
        ours = self._ours(folder)
        queue = self._queue(ours)
        if jobs is None:
            # The whole cluster, which includes the jobs that HTCondor has not made yet.
            chosen = queue.fitting(action, folder.job.size)
            errors: dict[int, str] = {}
            constraint = ours
            if folder.dag.exists() and action is not Action.EVICT:  # DAGMan, too
                constraint = f"{ours} || {run_scope(self._cluster(folder), folder.facts.id)}"
        else:
            errors = {job: queue.objection(action, job) for job in jobs}
            chosen = [job for job in jobs if not errors[job]]
            constraint = f"{ours} && {_is_among(chosen)}"
        if chosen or (jobs is None and folder.dag.exists()):
            reason = reason.partition(" (by user ")[0]  # the schedd itself adds the user's name
            counts = self._schedd.act(_ACTIONS[action], constraint, reason)
            if counts.get("TotalSuccess", 0) < len(queue.status.keys() & set(chosen)):
                # the schedd only counts the jobs to which it did not do it
                denied = counts.get("TotalPermissionDenied")
                why = "it belongs to another user" if denied else "the schedd did not do it"
                now = self._queue(ours).status
                errors |= {job: why for job in chosen if not _is_done(action, now.get(job))}
        return [ActionResult(job, errors.get(job, "")) for job in jobs or chosen]

    def edit(
        self, folder: RunFolder, jobs: Sequence[int], attribute: str, value: str
    ) -> list[ActionResult]:
        folder.check_own()
        ours = self._ours(folder)
        queue = self._queue(ours)
        value = with_courier(folder.job, attribute, value)
        errors = {job: queue.absence(job) for job in jobs if job not in queue.status}
        queued = [job for job in jobs if job in queue.status]
        if queued:
            # One request for all of them, which the schedd grants or refuses as a whole.
            try:
                self._schedd.edit(f"{ours} && {_is_among(queued)}", attribute, value)
            except PoolUnreachable:
                raise
            except PoolError as refusal:
                errors |= dict.fromkeys(queued, refusal.message)
        return [ActionResult(job, errors.get(job, "")) for job in jobs]

    def query(self, folder: RunFolder) -> Mapping[int, Mapping[str, object]]:
        return {_number(ad): ad for ad in self._schedd.query(self._ours(folder), ())}

    def deliveries(self, folder: RunFolder) -> PoolFacts:
        """What the queue knows of a run's deliveries; the slots are not asked for."""
        cluster, run_id, dag = self._cluster(folder), folder.facts.id, folder.dag.exists()
        scopes = {run_scope(cluster, run_id), run_scope(cluster, run_id, dag=dag)}
        wanted = ["ClusterId", "ProcId", JOB, *QUEUE_NAMES]
        ads = self._schedd.query(" || ".join(f"({scope})" for scope in sorted(scopes)), wanted)
        dagman = [ad for ad in ads if dag and ad["ClusterId"] == cluster]
        jobs = {_number(ad): ad for ad in ads if ad not in dagman}
        return PoolFacts(jobs, dagman[0] if dagman else None)

    def slots_of(self, startds: Collection[str]) -> dict[str, list[dict[str, Any]]]:
        """The slots of startds, as the collector knows them."""
        named = ", ".join(map(quoted, startds))
        asked = f"DynamicSlot =!= true && member(splitSlotName(Name)[1], {{{named}}})"
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in startds}
        for ad in self._schedd.slots(asked, SLOT_NAMES) if startds else ():
            found[str(ad["Name"]).partition("@")[2]].append(ad)
        return found

    def send_courier(self, folder: RunFolder, job: int, *, failed: bool) -> str:
        """Submit the courier of a job anew, once DAGMan does not do so any more.

        Args:
            folder: The run folder.
            job: The job's number in it.
            failed: The last courier has failed: then DAGMan sends no other one.

        Returns:
            Its id in HTCondor's queue.

        Raises:
            PoolError: There is nothing to bring, or somebody else brings it.
        """
        folder.check_own()
        with folder.locked("submit", patience=patience() + 15.0) as lock:
            known, facts = self.deliveries(folder), folder.facts
            if job in known.jobs:
                raise PoolError("it is in the queue")
            if known.dagman is not None and not failed:
                raise PoolError("DAGMan is still at work, and sends couriers by itself")
            if not folder.dag.exists():
                raise PoolError("it was its own courier, and has left the queue")
            try:
                lines = news(folder.path, job)
            except SandboxError as error:
                raise PoolError(f"nobody knows where its outputs are: {error.message}") from None
            if not lines:
                raise PoolError("its outputs are home")
            description = folder.submit_file.read_text()
            whose = folder.job, description, facts.id, Path(facts.base)
            text = courier_description(*whose, job, lines, self._cluster(folder))
            return f"{self._schedd.submit(text, lock.descriptor)}.0"

    def leave(self, folder: RunFolder) -> str:
        return f"{folder.label} goes on without you: see `headway status {folder.label}`"

    def tail(
        self, folder: RunFolder, job: int, name: str, *, follow: bool
    ) -> Iterator[bytes] | None:
        """The output of a running job so far, by condor_tail; None where that is not possible.

        condor_tail shows only the job's own stdout, which the agent shares with the command.
        """
        tool = shutil.which("condor_tail")
        if tool is None or name != "stdout":
            return None
        command = [tool, "-maxbytes", str(_TAIL)]
        for option, key in (("-pool", "collector"), ("-name", "schedd")):
            command += [option, given] if (given := self._given[key]) else []
        place = f"{self._cluster(folder)}.{job}"
        if folder.dag.exists():  # each job has a cluster of its own
            wanted = f"{self._ours(folder)} && {_is_among([job])}"
            for ad in self._schedd.query(wanted, ["ClusterId", "ProcId"]):
                place = f"{ad['ClusterId']}.{ad['ProcId']}"
        return _listen([*command, place], follow=follow)

    def _cluster(self, folder: RunFolder) -> int:
        facts = folder.facts
        cluster = self._find(folder, facts.id) if facts.cluster is None else facts.cluster
        if cluster is None:
            raise PoolError(
                f"{folder.label} was never submitted",
                remedy=f"submit it with `headway run --resume {folder.label}`",
            )
        return cluster

    def _ours(self, folder: RunFolder) -> str:
        """The constraint that only the jobs of this run match."""
        return run_scope(self._cluster(folder), folder.facts.id, dag=folder.dag.exists())

    def _find(self, folder: RunFolder, run_id: str) -> int | None:
        """The cluster of this run, or of its DAGMan, if an earlier attempt has submitted it.

        Jobs that have left the queue again are in the event log, so there is no need to search the
        history.
        """
        constraint, log = f"HeadwayRun == {quoted(run_id)}", folder.events
        if folder.dag.exists():
            constraint, log = f"{constraint} && DAGManJobId is undefined", folder.dag_log
        ads = self._schedd.query(constraint, ["ClusterId"], clusters=True)
        if ads:
            return int(ads[0]["ClusterId"])
        events = read_log(log).events if log.exists() else ()
        submits = (EventType.SUBMIT, EventType.CLUSTER_SUBMIT)
        return next((event.cluster for event in events if event.number in submits), None)

    def _submit(self, folder: RunFolder, run_id: str, lock: int) -> int:
        job, base = folder.job, Path(folder.facts.base)
        check_paths(job, folder, base)
        common, first = self._common(job, folder, base), self._is_held_anywhere(holders_term(job))
        paired = self._pairs(job, common)
        text = submit_description(
            job, folder, run_id, base, common, holders_first=first, paired=paired
        )
        try:
            for number in range(job.size):
                folder.job_folder(number).mkdir(0o755, exist_ok=True)
            # HTCondor makes the folders that a file goes into, but not those of a folder.
            for place in {place.parent for place in destinations(job, base)}:
                place.mkdir(parents=True, exist_ok=True)
            write_atomically(folder.submit_file, text.encode())
            if paired:
                write_files(folder.path)
                write_atomically(folder.dag_settings, settings_text(MOST_IDLE).encode())
                write_atomically(folder.dag, dag(job, folder, run_id, base).encode())
            else:
                rows = "".join(f"{row}\n" for row in row_lines(job, base))
                write_atomically(folder.submit_rows, rows.encode())
        except OSError as error:
            raise RunError(
                f"{error.filename or folder.path} cannot be written: {error.strerror}",
                remedy="is there space and permission?",
            ) from error
        try:
            if paired:
                return self._schedd.submit_dag(str(folder.dag), folder.label, run_id, lock)
            return self._schedd.submit(text, lock)
        except PoolUnreachable:
            # The answer was lost, but not necessarily the jobs.
            found = self._find(folder, run_id)
            if found is None:
                raise
            return found
        except PoolError as error:
            cause = "the cause may be `requirements`, a line of [submit] or a limit of the schedd"
            raise PoolError(
                f"{folder.label} was not submitted: {error.message}",
                remedy=error.remedy or f"{cause}; see {folder.submit_file}",
            ) from error

    def _pairs(self, job: Job, common: CommonInput) -> bool:
        """Whether DAGMan is to run each job and its courier: then the slot keeps its claim.

        Without it a job is its own courier. DAGMan must run on this machine, which has the files,
        and makes a cluster of each job, so that there is no common input.
        """
        here = not any(self._given.values()) and shutil.which(DAGMAN) is not None
        return job.deliver == "later" and job.size > 1 and not any(common) and here

    def _is_held_anywhere(self, holders: str) -> bool:
        """Whether the store of any node holds a job's inputs, as far as the collector tells."""
        try:
            term = holders.replace("TARGET.", "")  # the collector compares slots with nothing
            return bool(term) and bool(self._schedd.slots(term, ["Name"]))
        except PoolError as error:
            _log.info("the collector was not asked for stores: %s", error.message)
            return False

    def _common(self, job: Job, folder: RunFolder, base: Path) -> CommonInput:
        """What HTCondor is to bring to each node only once."""
        case = PreflightCase(job, base, Limits(), self.name)
        made = folder.payload.is_file()  # not yet for `describe`
        payload = folder.payload.stat().st_size if made else case.payload_bytes
        common = worth_sharing(job, payload, case.image_bytes)
        return common if any(common) and self._schedd.takes_common_input() else NOTHING

    def _queue(self, ours: str) -> _QueuedJobs:
        wanted = ["ProcId", "JobStatus", "JobMaterializeNextProcId", "JobMaterializePaused", JOB]
        queue = _QueuedJobs()
        for ad in self._schedd.query(ours, wanted, clusters=True):
            if ad["ProcId"] is not None and ad["ProcId"] >= 0:
                queue.status[_number(ad)] = ad["JobStatus"]
            elif ad["JobMaterializeNextProcId"] is not None:
                queue.next_job = ad["JobMaterializeNextProcId"]
                queue.paused = bool(ad["JobMaterializePaused"])
        return queue


def _is_among(jobs: Sequence[int]) -> str:
    return f"member({JOB} ?: ProcId, {{{','.join(map(str, jobs))}}})"


def _number(ad: Mapping[str, Any]) -> int:
    """The number of a job in its run."""
    number = ad.get(JOB)
    return int(ad["ProcId"]) if number is None else int(number)


def is_ospool(collectors: str) -> bool:
    """Whether these are the OSPool's collectors: `cm-1.ospool.osg-htc.org:9618, …`."""
    hosts = (word.partition(":")[0] for word in re.split(r"[,\s]+", collectors))
    return any(_OSPOOL.search(host) for host in hosts)


def _is_done(action: Action, status: int | None) -> bool:
    """Whether a job looks as it should after the action; None: it has left the queue."""
    if action is Action.RELEASE:
        return status != _HELD
    if action is Action.EVICT:
        return status != _RUNNING
    return status in (None, _HELD if action is Action.HOLD else _REMOVED)


@dataclass
class _QueuedJobs:
    """The jobs of one run in the schedd's queue."""

    status: dict[int, int] = field(default_factory=dict)  # by job
    next_job: int | None = None  # the first job that HTCondor has not made yet, if any
    paused: bool = False  # whether HTCondor makes no more until they are released

    def absence(self, job: int) -> str:
        """Why a job is not in the queue."""
        if self.next_job is not None and job >= self.next_job:
            return "it is not in the queue yet: only all jobs of the run can be asked for"
        return "it has left the queue"

    def objection(self, action: Action, job: int) -> str:
        """Why the action is not possible for a job; empty if it is."""
        status = self.status.get(job)
        if status is None or status == _COMPLETED:
            return self.absence(job)
        if status == _REMOVED:
            return "it is being removed"
        if action is Action.HOLD and status == _HELD:
            return "it is already held"
        if action is Action.RELEASE and status != _HELD:
            return "it is not held"
        if action is Action.EVICT and status not in (_RUNNING, _SUSPENDED):
            return "it is not running"
        return ""

    def fitting(self, action: Action, size: int) -> list[int]:
        """The jobs for which the action is possible, including those that are not made yet."""
        jobs = [job for job in sorted(self.status) if not self.objection(action, job)]
        later = action is Action.REMOVE or action is (
            Action.RELEASE if self.paused else Action.HOLD
        )
        return [*jobs, *range(self.next_job, size)] if later and self.next_job is not None else jobs


def _listen(command: Sequence[str], *, follow: bool) -> Iterator[bytes]:
    """The output of condor_tail, run again and again: its own -f repeats lines, and may hang."""
    shown = b""
    while True:
        try:
            done = subprocess.run(command, capture_output=True, timeout=_TAIL_PATIENCE)
        except subprocess.TimeoutExpired:
            return
        yield done.stdout[overlap(shown, done.stdout) :]
        if not follow or done.returncode != 0:
            return
        shown = done.stdout or shown
        time.sleep(_TAIL_PAUSE)


def overlap(before: bytes, now: bytes) -> int:
    """How many bytes of `now`, the end of a growing file, were already in `before`."""
    if now.startswith(before):
        return len(before)
    last = before[-4096:]
    place = now.rfind(last)
    return place + len(last) if place >= 0 else 0
