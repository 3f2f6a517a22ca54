"""A real HTCondor pool, through its own Python bindings."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from headway.errors import PoolError, PoolUnreachable
from headway.events import EventType, read_log
from headway.pool.base import Action, ActionResult, Limits, Pool
from headway.pool.folder import RunFolder, write_atomically
from headway.pool.submit import check_paths, submit_description
from headway.spec import Job

T = TypeVar("T")

_PAUSES = (1.0, 2.0, 4.0)
_MEGABYTE = 2**20
# What the OSPool asks of a job; other pools get the same advice as warnings, never as errors.
_GUIDELINE_INPUT = 10 * 10**9
_GUIDELINE_GPUS = 1
_RESULTS = {
    "TotalNotFound": "it is not in the queue",
    "TotalBadStatus": "it is not in a state for that",
    "TotalAlreadyDone": "that was already done",
    "TotalPermissionDenied": "it is not yours",
    "TotalError": "HTCondor refused",
}


class HTCondorPool(Pool):
    """Submits to one schedd and asks it; the jobs need nobody to watch them."""

    kind = "htcondor"

    def __init__(self, schedd: str | None = None, collector: str | None = None) -> None:
        self.schedd_name = schedd
        self.collector_name = collector
        self.name = ":".join(["htcondor", *self._options()])
        self._schedd: Any = None

    def _options(self) -> list[str]:
        given = {"schedd": self.schedd_name, "collector": self.collector_name}
        text = ",".join(f"{key}={value}" for key, value in given.items() if value)
        return [text] if text else []

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
        return {"kind": self.kind, "schedd": self.schedd_name, "collector": self.collector_name}

    def limits(self) -> Limits:
        megabytes = _bindings().param.get("MAX_TRANSFER_INPUT_MB", -1)
        with contextlib.suppress(TypeError, ValueError):
            megabytes = int(megabytes)
        known = isinstance(megabytes, int) and megabytes > 0
        return Limits(
            transfer_input_bytes=megabytes * _MEGABYTE if known else None,
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
            self._act(action, str(cluster), reason)
            return []
        result = self._act(action, [f"{cluster}.{job}" for job in jobs], reason)
        if result["TotalSuccess"] == len(jobs):
            return [ActionResult(job) for job in jobs]
        # Some were refused, or all had been done before: only one by one does HTCondor say which.
        return [self._act_on_one(cluster, job, action, reason) for job in jobs]

    def edit(
        self, folder: RunFolder, jobs: Sequence[int], attribute: str, value: str
    ) -> list[ActionResult]:
        cluster = self._cluster(folder)

        def edit(job: int) -> ActionResult:
            try:
                self._ask("edit jobs", lambda s: s.edit([f"{cluster}.{job}"], attribute, value))
            except PoolUnreachable:
                raise
            except PoolError as refusal:
                return ActionResult(job, refusal.message)
            return ActionResult(job)

        return [edit(job) for job in jobs]

    def query(self, folder: RunFolder) -> Mapping[int, Mapping[str, object]]:
        constraint = f"ClusterId == {self._cluster(folder)}"
        ads = self._ask("answer", lambda schedd: schedd.query(constraint=constraint))
        return {int(ad["ProcId"]): {key: ad.get(key) for key in ad} for ad in ads}

    def leave(self, folder: RunFolder) -> str:
        return f"{folder.label} goes on without you; `headway status {folder.label}` looks at it"

    def tail(self, folder: RunFolder, job: int, name: str, *, follow: bool) -> Iterator[bytes] | None:
        """What a running job has written so far, by condor_tail; None where that is not to be had."""
        tool = shutil.which("condor_tail")
        if tool is None:
            return None
        flags = ["-f"] if follow else ["-maxbytes", str(2**20)]
        named = ["-pool", self.collector_name] if self.collector_name else []
        named += ["-name", self.schedd_name] if self.schedd_name else []
        return _output([tool, *named, *flags, f"{self._cluster(folder)}.{job}", name])

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
        ads = self._ask(
            "answer",
            lambda s: s.query(constraint=constraint, projection=["ClusterId"], limit=1),
        )
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
        write_atomically(folder.submit_file, text.encode())
        htcondor2 = _bindings()
        try:
            description = htcondor2.Submit(text)
        except (ValueError, RuntimeError, htcondor2.HTCondorException) as error:
            raise PoolError(
                f"HTCondor cannot read the submit description of {folder.label}: {error}",
                remedy=f"see {folder.submit_file}; a line under [submit] may be the cause",
            ) from error
        try:
            return int(self._ask("take the jobs", lambda s: s.submit(description).cluster(), tries=1))
        except PoolUnreachable:
            # The answer was lost, not necessarily the jobs.
            found = self._find(folder, run_id)
            if found is None:
                raise
            return found

    def _act(self, action: Action, jobs: str | list[str], reason: str) -> Mapping[str, int]:
        wanted = getattr(_bindings().JobAction, _JOB_ACTIONS[action])
        result = self._ask("act on jobs", lambda s: s.act(wanted, jobs, reason=(reason, 0)))
        return dict(result)

    def _act_on_one(self, cluster: int, job: int, action: Action, reason: str) -> ActionResult:
        result = self._act(action, [f"{cluster}.{job}"], reason)
        said = next((words for key, words in _RESULTS.items() if result.get(key)), "")
        done = result.get("TotalSuccess") or result.get("TotalAlreadyDone")
        return ActionResult(job, "" if done else said or "HTCondor refused")

    def _ask(self, what: str, question: Callable[[Any], T], *, tries: int = len(_PAUSES)) -> T:
        """Ask the schedd; where it does not answer, ask again a few times and then say so."""
        htcondor2 = _bindings()
        for left in reversed(range(tries)):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    return question(self._connected())
            except (htcondor2.HTCondorException, RuntimeError, OSError) as error:
                self._schedd = None
                if not _did_not_answer(error):
                    raise PoolError(f"the schedd did not {what}: {_first_line(error)}") from error
                if not left:
                    raise PoolUnreachable(
                        f"the schedd {self.schedd_name or 'of this machine'} did not {what}: "
                        f"{_first_line(error)}",
                        remedy="asking again is safe; `condor_q` and your pool's status page"
                        " tell whether it is up",
                    ) from error
                time.sleep(_PAUSES[tries - 1 - left])
        raise AssertionError("unreachable")

    def _connected(self) -> Any:
        if self._schedd is None:
            htcondor2 = _bindings()
            if self.schedd_name or self.collector_name:
                collector = htcondor2.Collector(self.collector_name)
                place = collector.locate(htcondor2.DaemonType.Schedd, self.schedd_name)
                if place is None:
                    raise PoolError(
                        f"the pool knows no schedd {self.schedd_name!r}",
                        remedy="`condor_status -schedd` lists their names",
                    )
                self._schedd = htcondor2.Schedd(place)
            else:
                self._schedd = htcondor2.Schedd()
        return self._schedd


_JOB_ACTIONS = {
    Action.HOLD: "Hold",
    Action.RELEASE: "Release",
    Action.REMOVE: "Remove",
    Action.EVICT: "Vacate",
}


def _bindings() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import htcondor2
    except ImportError as error:
        raise PoolError(
            f"HTCondor's Python bindings cannot be used here: {error}",
            remedy="`pip install htcondor` on Linux; --pool local needs none",
        ) from error
    return htcondor2


def _did_not_answer(error: Exception) -> bool:
    """Whether asking again can help; HTCondor tells only in words."""
    words = str(error).lower()
    signs = ("connect", "timed out", "timeout", "communicat", "locate", "no such file", "reach")
    return any(sign in words for sign in signs)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _output(command: list[str]) -> Iterator[bytes]:
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            while block := process.stdout.read1(65536):  # type: ignore[attr-defined]
                yield block
        finally:
            process.terminate()
