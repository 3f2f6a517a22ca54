"""The local pool's queue: what becomes of each job, written to the event log as it happens."""

from __future__ import annotations

import heapq
import os
import re
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headway.events import Direction, Event, EventType, EventWriter, Stage, Status, Value
from headway.events.event import Kind, kind_of
from headway.events.life import Life, step
from headway.node.errors import TIME_LIMIT, Exit
from headway.pool.base import Action
from headway.pool.local.attempt import ResourceUsage, RunningAttempt
from headway.pool.local.job import LocalJob
from headway.pool.local.machine import ResourceRequest, Site
from headway.pool.policy import (
    HISTORY,
    AfterExit,
    after_exit,
    backoff,
    blames_place,
    hold_reason,
    node_avoidance,
    releases,
)

HELD_BY_USER = 1
HELD_BY_POLICY = 3
HELD_AT_START = 6
HELD_AT_OUTPUT = 12
EVICTED = 1022
_EDIT = re.compile(r"Setting job attribute ([A-Z]\w+) to ([0-9]{1,15})\Z", re.ASCII)
_BEGINS = " phase=check state=begin "
# The status of an entry by that of its job's life; every other one means running.
_IN_QUEUE = {
    Status.IDLE: "idle",
    Status.TRANSFERRING_IN: "idle",  # the 001 is written together with it
    Status.HELD: "held",
    Status.COMPLETED: "over",
    Status.REMOVED: "over",
}
REQUESTS = {
    "RequestCpus": ("cpus", 1),
    "RequestMemory": ("memory", 2**20),
    "RequestDisk": ("disk", 2**10),
    "RequestGPUs": ("gpus", 1),
    TIME_LIMIT: ("time_limit", 1),
}


@dataclass
class QueueEntry:
    """One job of the queue, as its events have it."""

    index: int
    status: str = "new"  # new, idle, running, held, over
    since: float = 0.0  # the time of day at which it got this status
    moved: float = 0.0  # the same by the monotonic clock: the time of day may be set back
    starts: int = 0
    ends: int = 0  # attempts that ended by themselves, without those that led to a hold
    holds: int = 0
    input_holds: int = 0
    user_holds: int = 0
    hold: tuple[int, int] = (0, 0)
    sites: list[str] = field(default_factory=list)  # where it has been, newest first
    edits: dict[str, int] = field(default_factory=dict)
    attempt: str = ""  # the id of the running attempt, once its agent has reported it
    life: Life = field(default=Life(), repr=False)

    @property
    def blames_place(self) -> bool:
        holds = self.holds - self.user_holds
        return blames_place(ends=self.ends, holds=holds, hold=self.hold)

    @property
    def plain(self) -> bool:
        """Whether it asks for the same as the others, and may run on any site."""
        return not self.edits and not self.blames_place


class QueueState:
    """The jobs of one run as the event log has them; reading the log again gives the same."""

    def __init__(self, cluster: int, job: LocalJob) -> None:
        self._cluster = cluster
        self._job = job
        self._request = job.request
        self._entries = [QueueEntry(index) for index in range(job.size)]
        self._by_status: dict[str, OrderedDict[int, QueueEntry]] = {
            status: OrderedDict() for status in ("new", "idle", "running", "held", "over")
        }
        self._by_status["new"].update((entry.index, entry) for entry in self._entries)
        self._plain: OrderedDict[int, QueueEntry] = OrderedDict()  # of the idle ones
        self._odd: OrderedDict[int, QueueEntry] = OrderedDict()
        self._due: list[tuple[float, int]] = []  # a heap: when held jobs are released

    def __getitem__(self, index: int) -> QueueEntry:
        return self._entries[index]

    def get(self, index: int) -> QueueEntry | None:
        return self._entries[index] if 0 <= index < len(self._entries) else None

    def in_status(self, status: str) -> list[QueueEntry]:
        return list(self._by_status[status].values())

    def first_plain(self) -> QueueEntry | None:
        """The idle job that has waited longest among those that all ask for the same."""
        return next(iter(self._plain.values()), None)

    def odd(self) -> list[QueueEntry]:
        """The idle jobs that were edited, or that have sites to avoid."""
        return list(self._odd.values())

    def has_work(self) -> bool:
        """Whether any job is running or idle, or will be released automatically."""
        return bool(self._by_status["idle"] or self._by_status["running"]) or any(
            self._will_release(entry) for entry in self._by_status["held"].values()
        )

    def request(self, entry: QueueEntry) -> ResourceRequest:
        """What a job asks for, with the edits made since it was submitted."""
        return replace(self._request, **entry.edits) if entry.edits else self._request

    def sites_for(self, entry: QueueEntry, sites: Iterable[Site]) -> list[Site]:
        """The sites where a job may run now, preferred ones first."""
        allowed, avoided = self.allowed(sites), self.avoided(entry)
        # A job waits for a site that is merely busy, as it would in HTCondor. It does not wait when
        # all allowed sites are to be avoided: no others will ever join this machine.
        elsewhere = [site for site in allowed if site.name not in avoided] or allowed
        return sorted(elsewhere, key=lambda site: site.name not in self._job.prefer)

    def avoided(self, entry: QueueEntry) -> Sequence[str]:
        """The sites where a job has failed, and to which it does not go back yet."""
        waited = time.monotonic() - entry.moved
        recently = waited <= node_avoidance(entry.ends, self._job.retries)  # a site is one node
        return entry.sites if entry.blames_place and recently else ()

    def allowed(self, sites: Iterable[Site]) -> list[Site]:
        """The sites that the job description allows at all."""
        only, avoid = self._job.only, self._job.avoid
        named = (site for site in sites if site.name in only or not only)
        return [site for site in named if site.name not in avoid]

    def _will_release(self, entry: QueueEntry) -> bool:
        """Whether a held job is released automatically, now or later."""
        retries = self._job.retries
        return releases(*entry.hold, holds=entry.holds, starts=entry.starts, retries=retries)

    def ads(self) -> Mapping[int, Mapping[str, object]]:
        """The jobs still in the queue, in the words of HTCondor's job ads."""
        numbers = {"idle": 1, "running": 2, "held": 5}
        return {
            entry.index: {
                "JobStatus": numbers[entry.status],
                "NumShadowStarts": entry.starts,
                "NumHolds": entry.holds,
                "NumJobCompletions": entry.ends + entry.input_holds,
                "RequestCpus": self.request(entry).cpus,
                "RequestMemory": self.request(entry).memory // 2**20,
                "RequestDisk": self.request(entry).disk // 2**10,
            }
            for entry in self._entries
            if entry.status in numbers
        }

    def replay(self, events: Iterable[Event]) -> None:
        """Bring all entries to the state that the log describes."""
        for event in events:
            entry = self.get(event.proc) if event.cluster == self._cluster else None
            if entry is not None:
                self._apply(entry, event)

    def _apply(self, entry: QueueEntry, event: Event) -> None:
        if entry.status == "over":
            return
        if event.number == EventType.GENERIC:
            # Before the command starts, only the agent can have written this.
            if entry.status == "running" and not entry.attempt and _BEGINS in event.text:
                words = dict(word.partition("=")[::2] for word in event.text.split())
                entry.attempt = words.get("attempt", "")
            return
        if event.number == EventType.ATTRIBUTE_UPDATE:
            match = _EDIT.match(event.text)
            if match and match[1] in REQUESTS:
                name, scale = REQUESTS[match[1]]
                entry.edits[name] = int(match[2]) * scale
                self._sort(entry)
        kind = kind_of(event)
        if kind is Kind.OTHER:
            return
        entry.life, _ = step(entry.life, kind)
        status = _IN_QUEUE.get(entry.life.status, "running")
        if kind is Kind.EXECUTING:
            entry.starts += 1
            entry.attempt = ""
            # HTCondor keeps HISTORY sites, one of which is that of the running attempt.
            entry.sites = [event.site, *entry.sites][: HISTORY - 1]
        elif kind is Kind.REQUEUED:
            entry.ends += 1
        elif kind is Kind.HELD:
            entry.hold = (event.code or 0, event.subcode or 0)
            entry.holds += 1
            entry.user_holds += event.code == HELD_BY_USER
            entry.input_holds += entry.hold == (HELD_BY_POLICY, Exit.INPUT_RETRYABLE)
        if status != entry.status or kind in (Kind.EXECUTING, Kind.HELD):
            self._move(entry, status, event.time)

    def _move(self, entry: QueueEntry, status: str, when: float) -> None:
        self._by_status[entry.status].pop(entry.index, None)
        self._by_status[status][entry.index] = entry
        entry.status, entry.since = status, when
        # An event of the future was written before the clock was set back: it counts as new.
        entry.moved = time.monotonic() - max(0.0, time.time() - when)
        self._sort(entry)
        if status == "held" and self._will_release(entry):
            pause = backoff(entry.holds, self._job.retries)
            heapq.heappush(self._due, (entry.moved + pause, entry.index))

    def _sort(self, entry: QueueEntry) -> None:
        self._plain.pop(entry.index, None)
        self._odd.pop(entry.index, None)
        if entry.status == "idle":
            (self._plain if entry.plain else self._odd)[entry.index] = entry


@dataclass(frozen=True)
class HoldReason:
    """Why a job is held, in words and in HTCondor's codes."""

    reason: str
    code: int = HELD_BY_USER
    subcode: int = 0


class Queue(QueueState):
    """Changes jobs: each change is written to the event log, and then applied to the entry."""

    def __init__(self, writer: EventWriter, cluster: int, job: LocalJob) -> None:
        super().__init__(cluster, job)
        self._writer = writer
        self._unsynced = False

    def close(self) -> None:
        self._writer.close()

    def sync(self) -> None:
        """Flush the events of jobs that have ended or are held to the disk."""
        if self._unsynced:
            self._unsynced = False
            with open(self._writer.path, "rb") as log:
                os.fsync(log)

    def submit_missing(self, host: str) -> None:
        """Write the submit event of each job that has none."""
        with self._writer.group():
            for entry in self.in_status("new"):
                self._apply(entry, self._writer.submitted(self._cluster, entry.index, host))

    def started(self, entry: QueueEntry, attempt: RunningAttempt) -> None:
        """An attempt runs; its input transfer is logged as HTCondor would have done it."""
        site, claim = attempt.site, attempt.claim
        where: dict[str, Value] = {
            "MachineAttrGLIDEIN_ResourceName0": site.name,
            "RemoteHost": attempt.slot,
            "NumShadowStarts": attempt.number,
        }
        job = (self._cluster, entry.index)
        with self._writer.group():
            for stage in (Stage.STARTED, Stage.FINISHED):
                host = attempt.host if stage is Stage.STARTED else ""
                event = self._writer.transfer(*job, Direction.INPUT, stage, host=host)
                self._apply(entry, event)
                self._writer.ad_information(*job, EventType.FILE_TRANSFER, where)
            executing = self._writer.executing(
                *job,
                attempt.host,
                slot=attempt.slot,
                attributes={
                    "CondorScratchDir": str(attempt.scratch),
                    "Cpus": claim.cpus,
                    "Disk": claim.disk // 2**10,
                    "GLIDEIN_ResourceName": site.name,
                    "GPUs": len(claim.gpus),
                    "Memory": claim.memory // 2**20,
                },
            )
        self._apply(entry, executing)

    def start_failed(self, entry: QueueEntry, error: Exception) -> None:
        """The pool itself could not start the agent: the job is held."""
        reason = f"the job could not be started on this machine: {error}".replace("\n", " ")
        self.hold(entry, reason, HELD_AT_START, getattr(error, "errno", 0) or 0)

    def log_line(self, index: int, line: str) -> None:
        """Log a line that the agent, or the command, sent by chirp."""
        if line.strip():
            self._apply(self[index], self._writer.generic(self._cluster, index, line))

    def checkpointed(self, entry: QueueEntry) -> None:
        """A checkpoint was saved; the log shows it as HTCondor does, as a pair of 040."""
        with self._writer.group():
            self._transferred_out(entry)

    def exited(self, entry: QueueEntry, status: int, used: ResourceUsage, reason: str = "") -> None:
        """The agent ended by itself, and gave this reason: the job ends, is retried, or is held."""
        outcome = after_exit(status, ends=entry.ends, holds=entry.holds, retries=self._job.retries)
        job = (self._cluster, entry.index)
        how, code = ("exit code", status) if status >= 0 else ("signal", -status)
        ending: dict[str, Any] = used.in_log(self.request(entry))
        ending["return_value" if status >= 0 else "signal"] = code
        with self._writer.group():
            self._transferred_out(entry)
            if outcome is AfterExit.END:
                event = self._writer.terminated(*job, **ending)
            elif outcome is AfterExit.RETRY:
                reason = f"the attempt ended with {how} {code}; trying again"
                event = self._writer.evicted(*job, reason, requeued=True, **ending)
            else:
                reason = hold_reason(reason, holds=entry.holds, retries=self._job.retries)
                event = self._writer.held(*job, reason, HELD_BY_POLICY, int(Exit.INPUT_RETRYABLE))
        self._apply(entry, event)

    def evicted(
        self,
        entry: QueueEntry,
        used: ResourceUsage,
        reason: str,
        *,
        checkpointed: bool = False,
        held: HoldReason | None = None,
    ) -> None:
        """The attempt was ended from outside; the job waits for another, or is `held` at once."""
        job, ending = (self._cluster, entry.index), used.in_log(self.request(entry))
        with self._writer.group():  # a crash must not come between: a held job would run again
            event = self._writer.evicted(*job, reason, EVICTED, checkpointed=checkpointed, **ending)
            self._apply(entry, event)
            if held is not None:
                self.hold(entry, held.reason, held.code, held.subcode)

    def hold(
        self, entry: QueueEntry, reason: str, code: int = HELD_BY_USER, subcode: int = 0
    ) -> None:
        event = self._writer.held(self._cluster, entry.index, reason, code, subcode)
        self._apply(entry, event)

    def _move(self, entry: QueueEntry, status: str, when: float) -> None:
        super()._move(entry, status, when)
        self._unsynced = self._unsynced or status in ("held", "over")

    def release(self, entry: QueueEntry, reason: str) -> None:
        self._apply(entry, self._writer.released(self._cluster, entry.index, reason))

    def release_due(self) -> bool:
        """Release jobs that a transient fault held, once their pause is over; True if any was."""
        any_released = False
        while self._due and time.monotonic() > self._due[0][0]:
            due, index = heapq.heappop(self._due)
            entry = self[index]
            pause = backoff(entry.holds, self._job.retries)
            # Otherwise somebody has released it since, and it may even be held again.
            if entry.status == "held" and due == entry.moved + pause and self._will_release(entry):
                self.release(entry, f"the pause of {pause:.0f} s after a passing fault is over")
                any_released = True
        return any_released

    def remove(self, entry: QueueEntry, reason: str) -> None:
        self._apply(entry, self._writer.aborted(self._cluster, entry.index, reason))

    def act(self, entry: QueueEntry, action: Action, reason: str) -> str:
        """Do what a user asks of a job that is not running; returns why not, if so."""
        if entry.status == "over":
            return "it has already left the queue"
        if action is Action.HOLD:
            if entry.status == "held":
                return "it is already held"
            self.hold(entry, reason)
        elif action is Action.RELEASE:
            if entry.status != "held":
                return f"it is not held but {entry.status}"
            self.release(entry, reason)
        elif action is Action.REMOVE:
            self.remove(entry, reason)
        else:
            return f"it is not running but {entry.status}"
        return ""

    def edit(self, entry: QueueEntry, attribute: str, value: str) -> str:
        """Change what a job asks for; returns why that cannot be done, if so."""
        if entry.status == "over":
            return "it has already left the queue"
        if attribute not in REQUESTS:
            return f"the local pool can edit {', '.join(REQUESTS)}, not {attribute}"
        least = 0 if attribute == "RequestGPUs" else 1
        if not re.fullmatch(r"0*[0-9]{1,12}", value, re.ASCII) or int(value) < least:
            return f"{attribute} must be a whole number from {least} up, not {value!r}"
        event = self._writer.attribute_update(self._cluster, entry.index, attribute, value)
        self._apply(entry, event)
        return ""

    def _transferred_out(self, entry: QueueEntry) -> None:
        for stage in (Stage.STARTED, Stage.FINISHED):
            event = self._writer.transfer(self._cluster, entry.index, Direction.OUTPUT, stage)
            self._apply(entry, event)
