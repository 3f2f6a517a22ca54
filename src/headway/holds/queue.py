"""The queue of held jobs, at a schedd or of a run on the local pool, and how to act on them."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from headway.errors import PoolError, RunError
from headway.events import Follower, Jobs, JobState, Status
from headway.holds.advice import CONDOR, Commands
from headway.holds.audit import Intent
from headway.holds.executor import ActResult, Executor, carry_out_locally
from headway.holds.history import History
from headway.holds.hold import (
    CLAIM,
    FIRST,
    HEAL,
    HEALS,
    HELD_STATUS,
    Hold,
    Key,
    QueuedHold,
    log_of,
    whole,
)
from headway.node.classad import quoted
from headway.pool import Pool, RunFolder
from headway.pool.folder import own_name
from headway.pool.htcondor.pool import HTCondorPool
from headway.pool.htcondor.schedd import Schedd, run_scope
from headway.pool.policy import AVOID, release_expression

#: Of held jobs: their ids, their hold, their own policy, their requests, and what heal has set.
_ATTRIBUTES = (
    "ClusterId", "ProcId", "Owner", "JobStatus", "ServerTime", "UserLog", "Iwd",
    "EnteredCurrentStatus", "HoldReason", "HoldReasonCode", "HoldReasonSubCode",
    "NumHolds", "NumHoldsByReason", "NumShadowStarts", "NumJobStarts",
    "MachineAttrGLIDEIN_ResourceName0",
    "HeadwayRun", "PeriodicRelease", "PeriodicHold", "Requirements", "JobDurationCategory",
    "AllowedJobDuration", "AllowedExecuteDuration",
    "RequestMemory", "MemoryProvisioned", "MemoryUsage", "ResidentSetSize", "ResidentSetSize_RAW",
    "RequestDisk", "DiskProvisioned", "DiskUsage", "DiskUsage_RAW", "RequestGPUs", "Cmd",
    HEAL, HEALS, CLAIM, AVOID, f"{FIRST}RequestMemory", f"{FIRST}RequestDisk",
)  # fmt: skip
_log = logging.getLogger(__name__)
_PROMPT = 10.0  # seconds; the local pool releases jobs as soon as their pause is over


class QueuedJob(NamedTuple):
    """The state of a job in the queue, and what it was last held for."""

    status: int
    holds: int
    code: int = 0
    subcode: int = 0
    reason: str = ""


class JobQueue(Protocol):
    """What heal needs of a queue."""

    name: str
    is_here: bool  # whether this machine is the jobs' access point
    commands: Commands  # how a person acts on these jobs

    def held(self) -> list[QueuedHold]:
        """The jobs that are held now."""

    def logs(self) -> list[str]:
        """The event logs of all of its jobs, including those that are not held."""

    def where(self, keys: Sequence[Key]) -> Mapping[Key, QueuedJob]:
        """Those that are still in the queue."""

    def is_empty(self) -> bool:
        """Whether no job is left in it."""

    def carry_out(self, intents: Sequence[Intent]) -> Mapping[str, ActResult]:
        """Carry out the intents; it does not matter how far an earlier try has come."""


class CondorQueue:
    """A part of a schedd's queue; `scope` is a constraint."""

    def __init__(self, schedd: Schedd, scope: str, name: str, commands: Commands = CONDOR) -> None:
        self.name = name
        self.commands = commands
        self.is_here = schedd.name is None
        self._schedd = schedd
        self._scope = f"({scope})"
        self._executor = Executor(schedd, scope)

    @classmethod
    def of_run(cls, folder: RunFolder) -> CondorQueue:
        facts = folder.facts
        if facts.cluster is None:
            raise RunError(
                f"{folder.label} was never submitted",
                remedy=f"submit it with `headway run --resume {folder.label}`",
            )
        schedd = Schedd(facts.pool.get("schedd"), facts.pool.get("collector"))
        dag = folder.dag.exists()
        scope = run_scope(facts.cluster, facts.id, dag=dag)
        return cls(schedd, scope, folder.label, CONDOR if dag else Commands(folder.label))

    def held(self, *, edits: bool = True) -> list[QueuedHold]:
        """The jobs that are held; `edits`: with the ads of clusters, which show what was edited."""
        held = f"JobStatus == {HELD_STATUS}"
        which = f"({held} || ProcId is undefined)" if edits else held
        constraint = f"{self._scope} && {which}"
        _log.debug("asking %s for jobs with %s", self.name, constraint)
        ads = self._schedd.query(constraint, _ATTRIBUTES, clusters=edits)
        clusters = {ad["ClusterId"]: ad for ad in ads if not _is_job(ad)}
        jobs = [QueuedHold.of_ad(ad, clusters.get(ad["ClusterId"])) for ad in ads if _is_job(ad)]
        _log.info("%s: %d jobs are held", self.name, len(jobs))
        return jobs

    def logs(self) -> list[str]:
        ads = self._schedd.query(self._scope, ["UserLog", "Iwd"])
        return sorted({log for ad in ads if (log := log_of(ad))})

    def where(self, keys: Sequence[Key]) -> Mapping[Key, QueuedJob]:
        return {
            key: QueuedJob(
                whole(ad["JobStatus"]),
                whole(ad["NumHolds"]),
                whole(ad.get("HoldReasonCode"), signed=True),
                whole(ad.get("HoldReasonSubCode"), signed=True),
                str(ad.get("HoldReason") or ""),
            )
            for key, ad in self._executor.ads(keys).items()
        }

    def is_empty(self) -> bool:
        return not self._schedd.query(self._scope, ["ProcId"])

    def carry_out(self, intents: Sequence[Intent]) -> Mapping[str, ActResult]:
        return self._executor.carry_out(intents)


def _is_job(ad: Mapping[str, Any]) -> bool:
    return isinstance(ad.get("ProcId"), int) and ad["ProcId"] >= 0


class LocalQueue:
    """One run on the local pool: its event log is its queue."""

    is_here = True

    def __init__(self, folder: RunFolder, pool: Pool) -> None:
        self.name = folder.label
        self.commands = Commands(folder.label, local=True)
        self._folder = folder
        self._pool = pool
        self._follower = Follower(folder.events)
        self._jobs = Jobs()
        self._user_holds: Counter[int] = Counter()
        self._user = own_name()

    def held(self) -> list[QueuedHold]:
        held = [state for state in self._states().values() if state.status is Status.HELD]
        ads = self._pool.query(self._folder) if held else {}
        return [self._held(state, ads.get(state.proc, {})) for state in held]

    def logs(self) -> list[str]:
        return [str(self._folder.events)]

    def where(self, keys: Sequence[Key]) -> Mapping[Key, QueuedJob]:
        states = self._states()
        numbers = {Status.HELD: HELD_STATUS, Status.IDLE: 1}
        return {
            key: QueuedJob(
                numbers.get(state.status, 2),
                state.holds,
                state.hold_code or 0,
                state.hold_subcode or 0,
                state.hold_reason,
            )
            for key in keys
            if (state := states.get(key.proc)) is not None and not state.terminal
        }

    def is_empty(self) -> bool:
        states = self._states().values()
        return len(states) >= self._folder.job.size and all(state.terminal for state in states)

    def carry_out(self, intents: Sequence[Intent]) -> Mapping[str, ActResult]:
        return {intent.id: self._carry_out(intent) for intent in intents}

    def _carry_out(self, intent: Intent) -> ActResult:
        state = self._states().get(intent.key.proc)
        if state is not None and (state.holds, state.status) != (intent.holds, Status.HELD):
            return True, "it had been done before"
        if state is None or state.hold_code != intent.code:
            return False, "it is held for something else now"
        return carry_out_locally(self._pool, self._folder, intent)

    def _states(self) -> Mapping[int, JobState]:
        for event in self._follower.poll():
            state = self._jobs.update(event)
            if state is not None and event.number == 12 and event.code == 1:
                self._user_holds[state.proc] += 1
        cluster = self._folder.facts.cluster
        return self._jobs.cluster(cluster) if self._jobs.by_id else {}

    def _held(self, state: JobState, ad: Mapping[str, object]) -> QueuedHold:
        since = state.since or 0.0
        asked = self._folder.job.resources
        wanted = self._user_holds[state.proc]
        facts = {
            **ad,
            f"{FIRST}RequestMemory": -(-asked.memory // 2**20),
            f"{FIRST}RequestDisk": -(-asked.disk // 2**10),
            "NumHoldsByReason": f"UserRequest = {wanted}; Others = {state.holds - wanted}",
            "PeriodicRelease": release_expression(self._folder.job.retries),
        }
        return QueuedHold(
            key=Key(state.cluster, state.proc),
            user=self._user,
            holds=state.holds,
            since=since,
            age=max(0.0, time.time() - since),
            code=state.hold_code or 0,
            subcode=state.hold_subcode or 0,
            reason=state.hold_reason,
            site=state.site,
            log=str(self._folder.events),
            lag=_PROMPT,
            facts=facts,
        )


def queue_of_run(folder: RunFolder, pool: Pool) -> JobQueue:
    """The queue of a run's jobs."""
    return LocalQueue(folder, pool) if pool.kind == "local" else CondorQueue.of_run(folder)


def queue_of_pool(
    name: str,
    *,
    user: str | None = None,
    job: tuple[int, int] | None = None,
    logs: Sequence[Path] = (),
) -> CondorQueue:
    """The queue of jobs at a schedd.

    Args:
        name: `htcondor` or `htcondor:schedd=NAME`.
        user: The owner of the jobs; None: you, empty: all users.
        job: Only this job, by its cluster and number, whoever owns it.
        logs: Only the jobs that write these logs.

    Raises:
        PoolError: There is no such queue, or it cannot be asked for these jobs.
    """
    kind, _, options = name.partition(":")
    if kind != "htcondor":
        raise PoolError(
            f"there is no queue of jobs in {name!r}",
            remedy="--pool htcondor is the schedd of this machine; a local run goes by its label",
        )
    facts = HTCondorPool.parse(options).facts()
    scope = "true" if user == "" else f"Owner == {quoted(user or own_name())}"
    if job:
        scope = f"ClusterId == {job[0]:d} && ProcId == {job[1]:d}"
    if logs:
        names = dict.fromkeys(name for log in logs for name in (log.absolute(), log.resolve()))
        scope = f"{scope} && member(UserLog, {{{', '.join(map(_string, names))}}})"
    return CondorQueue(Schedd(facts["schedd"], facts["collector"]), scope, name)


def _string(path: Path) -> str:
    text = str(path)
    if '"' in text or "\\" in text or not text.isprintable():
        raise PoolError(
            f"HTCondor cannot be asked for jobs whose log is {path}",
            remedy="name the pool instead: `headway heal --pool htcondor`",
        )
    return f'"{text}"'


def logs_of(held: Sequence[QueuedHold]) -> list[str]:
    """The event logs that the jobs write, if they can be read here."""
    logs = dict.fromkeys(job.log for job in held if job.log)
    return [log for log in logs if os.access(log, os.R_OK) and os.path.isfile(log)]


def holds_of(held: Sequence[QueuedHold], history: History) -> list[Hold]:
    """The hold of each job: as its log has it, if the queue agrees, with the queue's facts."""
    logged: dict[Key, list[Hold]] = {}
    for hold in history.held():
        logged.setdefault(Key(hold.cluster, hold.proc), []).append(hold)
    return [job.as_hold(logged.get(job.key, ())) for job in held]
