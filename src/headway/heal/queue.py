"""Where held jobs are: a schedd, or the embedded pool's run. What heal knows comes from here."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from headway.advisor.commands import CONDOR, Commands, RunCommands
from headway.errors import PoolError, RunError
from headway.events import Follower, Jobs, JobState, Status
from headway.heal.hand import Schedds, carry_out_locally
from headway.heal.held import CLAIM, FIRST, HEAL, HEALS, Held, Key, whole
from headway.heal.state import Intent
from headway.node.ads import quoted
from headway.pool import Pool, RunFolder
from headway.pool.owners import own_name
from headway.pool.policy import AVOID, release_expression
from headway.pool.schedd import Schedd, run_scope

_SEEN = ("ClusterId", "ProcId", "Owner", "JobStatus", "ServerTime", "UserLog", "Iwd")
_HOLD = (
    "EnteredCurrentStatus", "HoldReason", "HoldReasonCode", "HoldReasonSubCode",
    "NumHolds", "NumHoldsByReason", "NumShadowStarts", "NumJobStarts",
)  # fmt: skip
_POLICY = ("HeadwayRun", "PeriodicRelease", "PeriodicHold", "Requirements", "JobDurationCategory")
_NEEDS = (
    "RequestCpus", "RequestMemory", "RequestDisk", "RequestGPUs", "MemoryUsage",
    "ResidentSetSize", "ResidentSetSize_RAW", "DiskUsage", "DiskUsage_RAW", "ImageSize", "Cmd",
    "TransferInput",
    "MachineAttrGLIDEIN_ResourceName0", "LastRemoteHost",
)  # fmt: skip
_OURS = (HEAL, HEALS, CLAIM, AVOID, f"{FIRST}RequestMemory", f"{FIRST}RequestDisk")
_ATTRIBUTES = (*_SEEN, *_HOLD, *_POLICY, *_NEEDS, *_OURS)
_HELD = 5
_PROMPT = 10.0  # seconds; the embedded pool releases jobs as soon as their pause is over


class Where(NamedTuple):
    """Where a job is in the queue, and what it was last held for."""

    status: int
    holds: int
    code: int = 0
    subcode: int = 0
    reason: str = ""


class Result(NamedTuple):
    """What became of an intent; `done` is None where only the log can tell."""

    done: bool | None
    words: str


class Queue(Protocol):
    """What heal needs of a place where jobs are."""

    name: str
    is_here: bool  # whether this machine is the jobs' access point
    commands: Commands  # how a person acts on these jobs

    def held(self) -> list[Held]:
        """The jobs that are held now."""

    def logs(self) -> list[str]:
        """The event logs of all of its jobs, also of those that are not held."""

    def where(self, keys: Sequence[Key]) -> Mapping[Key, Where]:
        """Those that are still in the queue."""

    def is_empty(self) -> bool:
        """Whether no job is left in it."""

    def carry_out(self, intents: Sequence[Intent]) -> Mapping[str, Result]:
        """Do what is intended, however far an earlier try of it has come."""


class CondorQueue:
    """A part of a schedd's queue; `scope` is a constraint."""

    def __init__(self, schedd: Schedd, scope: str, name: str) -> None:
        self.name = name
        self.commands: Commands = CONDOR
        self.is_here = schedd.name is None
        self._schedd = schedd
        self._scope = f"({scope})"
        self._hands = Schedds(schedd, scope)

    @classmethod
    def of_run(cls, folder: RunFolder) -> CondorQueue:
        facts = folder.facts
        if facts.cluster is None:
            raise RunError(
                f"{folder.label} was never submitted",
                remedy=f"submit it with `headway run --resume {folder.label}`",
            )
        schedd = Schedd(facts.pool.get("schedd"), facts.pool.get("collector"))
        made = cls(schedd, run_scope(facts.cluster, facts.id), folder.label)
        made.commands = RunCommands(folder.label, local=False)
        return made

    def held(self) -> list[Held]:
        # The ads of clusters too: what a job has and its cluster has not was edited.
        both = f"{self._scope} && (JobStatus == {_HELD} || ProcId is undefined)"
        ads = self._schedd.query(both, _ATTRIBUTES, clusters=True)
        clusters = {ad["ClusterId"]: ad for ad in ads if not _is_job(ad)}
        return [
            _held(ad, clusters.get(ad["ClusterId"], {}))
            for ad in ads
            if _is_job(ad) and ad["JobStatus"] == _HELD
        ]

    def logs(self) -> list[str]:
        ads = self._schedd.query(self._scope, ["UserLog", "Iwd"])
        return sorted({log for ad in ads if (log := _log(ad))})

    def where(self, keys: Sequence[Key]) -> Mapping[Key, Where]:
        return {
            key: Where(
                whole(ad["JobStatus"]),
                whole(ad["NumHolds"]),
                _signed(ad.get("HoldReasonCode")),
                _signed(ad.get("HoldReasonSubCode")),
                str(ad.get("HoldReason") or ""),
            )
            for key, ad in self._hands.ads(keys).items()
        }

    def is_empty(self) -> bool:
        return not self._schedd.query(self._scope, ["ProcId"])

    def carry_out(self, intents: Sequence[Intent]) -> Mapping[str, Result]:
        return {id: Result(*told) for id, told in self._hands.carry_out(intents).items()}


def _is_job(ad: Mapping[str, Any]) -> bool:
    return isinstance(ad.get("ProcId"), int) and ad["ProcId"] >= 0


def _held(ad: Mapping[str, Any], cluster: Mapping[str, Any]) -> Held:
    since = float(whole(ad["EnteredCurrentStatus"]))
    now = float(whole(ad["ServerTime"])) or time.time()
    site = ad.get("MachineAttrGLIDEIN_ResourceName0")
    return Held(
        key=Key(int(ad["ClusterId"]), int(ad["ProcId"])),
        user=str(ad.get("Owner") or ""),
        holds=whole(ad["NumHolds"]),
        since=since,
        age=max(0.0, now - since),
        code=_signed(ad["HoldReasonCode"]),
        subcode=_signed(ad["HoldReasonSubCode"]),
        reason=str(ad.get("HoldReason") or ""),
        site=site if isinstance(site, str) else "",
        log=_log(ad),
        facts=ad,
        original=cluster,
    )


def _signed(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _log(ad: Mapping[str, Any]) -> str:
    log = ad.get("UserLog")
    return os.path.join(str(ad.get("Iwd") or "/"), log) if isinstance(log, str) and log else ""


class LocalQueue:
    """One run of the embedded pool: its event log is its queue."""

    is_here = True

    def __init__(self, folder: RunFolder, pool: Pool) -> None:
        self.name = folder.label
        self.commands: Commands = RunCommands(folder.label, local=True)
        self._folder = folder
        self._pool = pool
        self._follower = Follower(folder.events)
        self._jobs = Jobs()
        self._user_holds: dict[int, int] = {}
        self._user = own_name()

    def held(self) -> list[Held]:
        states = self._states()
        held = [state for state in states.values() if state.status is Status.HELD]
        ads = self._pool.query(self._folder) if held else {}
        return [self._held(state, ads.get(state.proc, {})) for state in held]

    def logs(self) -> list[str]:
        return [str(self._folder.events)]

    def where(self, keys: Sequence[Key]) -> Mapping[Key, Where]:
        states = self._states()
        numbers = {Status.HELD: _HELD, Status.IDLE: 1}
        return {
            key: Where(
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
        states = self._states()
        return len(states) >= self._folder.job.size and all(
            state.terminal for state in states.values()
        )

    def carry_out(self, intents: Sequence[Intent]) -> Mapping[str, Result]:
        found: dict[str, Result] = {}
        for intent in intents:
            state = self._states().get(intent.key.proc)
            same = (
                state is not None
                and state.status is Status.HELD
                and state.holds == intent.holds
                and state.hold_code == intent.code
            )
            if same:
                found[intent.id] = Result(*carry_out_locally(self._pool, self._folder, intent))
            elif state is None or (state.holds, state.status) == (intent.holds, Status.HELD):
                found[intent.id] = Result(False, "it is held for something else now")
            else:
                found[intent.id] = Result(True, "it had been done before")
        return found

    def _states(self) -> Mapping[int, JobState]:
        for event in self._follower.poll():
            state = self._jobs.update(event)
            if state is not None and event.number == 12 and event.code == 1:
                self._user_holds[state.proc] = self._user_holds.get(state.proc, 0) + 1
        cluster = self._folder.facts.cluster
        return self._jobs.cluster(cluster) if self._jobs.by_id else {}

    def _held(self, state: JobState, ad: Mapping[str, object]) -> Held:
        since = state.since or 0.0
        asked = self._folder.job.resources
        wanted = self._user_holds.get(state.proc, 0)
        facts = {
            **ad,
            f"{FIRST}RequestMemory": -(-asked.memory // 2**20),
            f"{FIRST}RequestDisk": -(-asked.disk // 2**10),
            "NumHoldsByReason": f"UserRequest = {wanted}; Others = {state.holds - wanted}",
            "PeriodicRelease": release_expression(self._folder.job.retries),
        }
        return Held(
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


def queue_of_run(folder: RunFolder, pool: Pool) -> Queue:
    """The queue in which a run's jobs are."""
    return LocalQueue(folder, pool) if pool.kind == "local" else CondorQueue.of_run(folder)


def queue_of_pool(name: str, *, logs: Sequence[Path] = (), everybody: bool = False) -> CondorQueue:
    """The user's jobs at a schedd, `htcondor` or `htcondor:schedd=NAME`; of some logs only."""
    kind, _, options = name.partition(":")
    if kind != "htcondor":
        raise PoolError(
            f"there is no queue of jobs in {name!r}",
            remedy="--pool htcondor is the schedd of this machine; a local run goes by its label",
        )
    values = dict(pair.partition("=")[::2] for pair in options.split(",") if pair)
    unknown = sorted(set(values) - {"schedd", "collector"})
    if unknown:
        raise PoolError(
            f"--pool {name}: unknown key {unknown[0]!r}",
            remedy="for example htcondor:schedd=ap40.example.org,collector=cm.example.org",
        )
    schedd = Schedd(values.get("schedd"), values.get("collector"))
    scope = "true" if everybody else f"Owner == {quoted(own_name())}"
    if logs:
        names = dict.fromkeys(name for log in logs for name in (log.absolute(), log.resolve()))
        scope = f"{scope} && member(UserLog, {{{', '.join(map(_string, names))}}})"
    return CondorQueue(schedd, scope, name)


def _string(path: Path) -> str:
    text = str(path)
    if '"' in text or "\\" in text or not text.isprintable():
        raise PoolError(
            f"HTCondor cannot be asked for jobs whose log is {path}",
            remedy="name the pool instead: `headway heal --pool htcondor`",
        )
    return f'"{text}"'
