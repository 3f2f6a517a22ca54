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
from headway.spec import Job

# The jobs of a local run as their event log has them; reading it again gives the same.


HELD_BY_USER = 1
HELD_BY_POLICY = 3
HELD_AT_START = 6
HELD_AT_OUTPUT = 12
_EDIT = re.compile(r"Setting job attribute ([A-Z]\w+) to ([0-9]{1,15})\Z", re.ASCII)
_BEGINS = " phase=check state=begin "
#: Where a job is in the queue, by what its events say; every other status is a running one.
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
class Entry:
    """One job of the queue, as its events tell."""

    index: int
    status: str = "new"  # new, idle, running, held, over
    since: float = 0.0  # the time of day of the event that brought it there
    moved: float = 0.0  # the same by the monotonic clock: the time of day may be set back
    starts: int = 0
    ends: int = 0  # attempts that ended by themselves, those that led to a hold apart
    holds: int = 0
    input_holds: int = 0
    user_holds: int = 0
    hold: tuple[int, int] = (0, 0)
    sites: list[str] = field(default_factory=list)  # where it has been, newest first
    edits: dict[str, int] = field(default_factory=dict)
    attempt: str = ""  # the id of the attempt under way, where its agent has told it
    life: Life = field(default=Life(), repr=False)

    @property
    def blames_place(self) -> bool:
        holds = self.holds - self.user_holds
        return blames_place(ends=self.ends, holds=holds, hold=self.hold)

    @property
    def plain(self) -> bool:
        """Whether it asks for just what the others ask for, wherever that is."""
        return not self.edits and not self.blames_place


class Entries:
    """The jobs of one run, as the event log has them."""

    def __init__(self, cluster: int, job: Job) -> None:
        self._cluster = cluster
        self._job = job
        self._request = ResourceRequest.of(job)
        self._entries = [Entry(index) for index in range(job.size)]
        self._by_status: dict[str, OrderedDict[int, Entry]] = {
            status: OrderedDict() for status in ("new", "idle", "running", "held", "over")
        }
        self._by_status["new"].update((entry.index, entry) for entry in self._entries)
        self._plain: OrderedDict[int, Entry] = OrderedDict()  # of the idle ones
        self._odd: OrderedDict[int, Entry] = OrderedDict()
        self._due: list[tuple[float, int]] = []  # a heap: when held jobs are released

    def __getitem__(self, index: int) -> Entry:
        return self._entries[index]

    def get(self, index: int) -> Entry | None:
        return self._entries[index] if 0 <= index < len(self._entries) else None

    def in_status(self, status: str) -> list[Entry]:
        return list(self._by_status[status].values())

    def first_plain(self) -> Entry | None:
        """The idle job that has waited longest among those that all ask for the same."""
        return next(iter(self._plain.values()), None)

    def odd(self) -> list[Entry]:
        """The idle jobs that were edited, or that have sites to avoid."""
        return list(self._odd.values())

    def has_work(self) -> bool:
        """Whether any job runs, waits, or will be released by itself."""
        return bool(self._by_status["idle"] or self._by_status["running"]) or any(
            self._will_release(entry) for entry in self._by_status["held"].values()
        )

    def request(self, entry: Entry) -> ResourceRequest:
        """What a job asks for, with the edits made since it was submitted."""
        return replace(self._request, **entry.edits) if entry.edits else self._request

    def sites_for(self, entry: Entry, sites: Iterable[Site]) -> list[Site]:
        """The sites where a job may run now, preferred ones first."""
        allowed = self.allowed(sites)
        avoided = self.avoided(entry)
        # While another site is merely busy, a job waits for it as it would in HTCondor. Where all
        # allowed sites are bad ones it does not: in a pool others may join meanwhile,
        # but never on this machine, and somebody sits in front of it and wants to know.
        elsewhere = [site for site in allowed if site.name not in avoided] or allowed
        return sorted(elsewhere, key=lambda site: site.name not in self._job.sites.prefer)

    def avoided(self, entry: Entry) -> Sequence[str]:
        """The sites of a job's past to which it does not go back yet."""
        # here a site is one node
        waited = time.monotonic() - entry.moved
        recently = waited <= node_avoidance(entry.ends, self._job.retries)
        return entry.sites if entry.blames_place and recently else ()

    def allowed(self, sites: Iterable[Site]) -> list[Site]:
        """The sites that the job description allows at all."""
        wanted = self._job.sites
        return [
            site
            for site in sites
            if site.name not in wanted.avoid
            if not wanted.only or site.name in wanted.only
        ]

    def _will_release(self, entry: Entry) -> bool:
        """Whether a held job is released by itself, now or later."""
        code, subcode = entry.hold
        return releases(
            code, subcode, holds=entry.holds, starts=entry.starts, retries=self._job.retries
        )

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
        """Bring all entries to where the log says they are."""
        for event in events:
            entry = self.get(event.proc) if event.cluster == self._cluster else None
            if entry is not None:
                self._take_in(entry, event)

    def _take_in(self, entry: Entry, event: Event) -> None:
        if entry.status == "over":
            return
        if event.number == EventType.GENERIC:
            self._said(entry, event.text)  # which moves no job
            return
        if event.number == EventType.ATTRIBUTE_UPDATE:
            match = _EDIT.match(event.text)
            if match and match[1] in REQUESTS:
                self._edited(entry, match[1], match[2])
        kind = kind_of(event)
        if kind is Kind.OTHER:
            return
        entry.life, _ = step(entry.life, kind)
        status = _IN_QUEUE.get(entry.life.status, "running")
        if kind is Kind.EXECUTING:
            self._started_at(entry, event.site)
        elif kind is Kind.REQUEUED:
            entry.ends += 1
        elif kind is Kind.HELD:
            self._held_with(entry, event.code or 0, event.subcode or 0)
        if status != entry.status or kind in (Kind.EXECUTING, Kind.HELD):
            self._move(entry, status, event.time)

    def _move(self, entry: Entry, status: str, when: float | None = None) -> None:
        self._by_status[entry.status].pop(entry.index, None)
        self._by_status[status][entry.index] = entry
        entry.status = status
        now = time.time()
        entry.since = now if when is None else when
        # An event of the future was written before the clock was set back: it counts as new.
        entry.moved = time.monotonic() - max(0.0, now - entry.since)
        self._sort(entry)
        if status == "held" and self._will_release(entry):
            pause = backoff(entry.holds, self._job.retries)
            heapq.heappush(self._due, (entry.moved + pause, entry.index))

    def _sort(self, entry: Entry) -> None:
        self._plain.pop(entry.index, None)
        self._odd.pop(entry.index, None)
        if entry.status == "idle":
            (self._plain if entry.plain else self._odd)[entry.index] = entry

    def _said(self, entry: Entry, line: str) -> None:
        # Before the command starts, only the agent can have said this.
        if entry.status == "running" and not entry.attempt and _BEGINS in line:
            words = dict(word.partition("=")[::2] for word in line.split())
            entry.attempt = words.get("attempt", "")

    def _started_at(self, entry: Entry, site: str) -> None:
        entry.starts += 1
        entry.attempt = ""
        # HTCondor keeps HISTORY sites, one of which is that of the attempt under way.
        entry.sites = [site, *entry.sites][: HISTORY - 1]

    def _held_with(self, entry: Entry, code: int, subcode: int) -> None:
        entry.holds += 1
        entry.user_holds += code == HELD_BY_USER
        entry.hold = (code, subcode)
        entry.input_holds += entry.hold == (HELD_BY_POLICY, Exit.INPUT_RETRYABLE)

    def _edited(self, entry: Entry, attribute: str, value: str) -> None:
        name, scale = REQUESTS[attribute]
        entry.edits[name] = int(value) * scale
        self._sort(entry)


EVICTED = 1022


@dataclass(frozen=True)
class Hold:
    """Why a job is held, in words and in HTCondor's codes."""

    reason: str
    code: int = HELD_BY_USER
    subcode: int = 0


class Queue(Entries):
    """Each change of a job is an event first; the entry only follows the event."""

    def __init__(self, writer: EventWriter, cluster: int, job: Job) -> None:
        super().__init__(cluster, job)
        self._writer = writer
        self._unsynced = False

    def close(self) -> None:
        self._writer.close()

    def sync(self) -> None:
        """Have what was written of ended and held jobs on the disk, not only in the system."""
        if self._unsynced:
            self._unsynced = False
            descriptor = os.open(self._writer.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def submit_missing(self, host: str) -> None:
        """Write the submit event of each job that has none."""
        with self._writer.group():
            for entry in self.in_status("new"):
                self._take_in(entry, self._writer.submitted(self._cluster, entry.index, host))

    def started(self, entry: Entry, attempt: RunningAttempt) -> None:
        """An attempt runs; its files went in the way HTCondor would have sent them."""
        site, claim = attempt.site, attempt.claim
        where: dict[str, Value] = {
            "MachineAttrGLIDEIN_ResourceName0": site.name,
            "RemoteHost": attempt.slot,
            "NumShadowStarts": attempt.number,
        }
        job = (self._cluster, entry.index)
        events = []
        with self._writer.group():
            for stage in (Stage.STARTED, Stage.FINISHED):
                host = attempt.host if stage is Stage.STARTED else ""
                events.append(self._writer.transfer(*job, Direction.INPUT, stage, host=host))
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
        for event in (*events, executing):
            self._take_in(entry, event)

    def start_failed(self, entry: Entry, error: Exception) -> None:
        """The pool itself could not start the agent: held, for people to look at."""
        reason = f"the job could not be started on this machine: {error}".replace("\n", " ")
        self.hold(entry, reason, HELD_AT_START, getattr(error, "errno", 0) or 0)

    def said(self, index: int, line: str) -> None:
        """A line that the agent, or the command, sent by chirp."""
        if line.strip():
            self._take_in(self[index], self._writer.generic(self._cluster, index, line))

    def checkpointed(self, entry: Entry) -> None:
        """A checkpoint was saved; the log shows it as HTCondor does, as a pair of 040."""
        with self._writer.group():
            self._transferred_out(entry)

    def exited(self, entry: Entry, status: int, used: ResourceUsage, said: str = "") -> None:
        """The agent ended by itself: the job ends, goes back into the queue, or is held.

        `said` is the agent's own reason, for that of a hold.
        """
        outcome = after_exit(status, ends=entry.ends, holds=entry.holds, retries=self._job.retries)
        job = (self._cluster, entry.index)
        ending: dict[str, Any] = {**_ending(status), **used.in_log(self.request(entry))}
        with self._writer.group():
            self._transferred_out(entry)
            if outcome is AfterExit.END:
                event = self._writer.terminated(*job, **ending)
            elif outcome is AfterExit.RETRY:
                event = self._writer.evicted(
                    *job,
                    f"the attempt ended with {_in_words(status)}; trying again",
                    requeued=True,
                    **ending,
                )
            else:
                reason = hold_reason(said, holds=entry.holds, retries=self._job.retries)
                event = self._writer.held(*job, reason, HELD_BY_POLICY, int(Exit.INPUT_RETRYABLE))
        self._take_in(entry, event)

    def evicted(
        self,
        entry: Entry,
        used: ResourceUsage,
        reason: str,
        *,
        checkpointed: bool = False,
        held: Hold | None = None,
    ) -> None:
        """The attempt was ended from outside; the job waits for another, or is `held` at once."""
        with self._writer.group():  # a crash must not come between: a held job would run again
            event = self._writer.evicted(
                self._cluster,
                entry.index,
                reason,
                EVICTED,
                checkpointed=checkpointed,
                **used.in_log(self.request(entry)),
            )
            self._take_in(entry, event)
            if held is not None:
                self.hold(entry, held.reason, held.code, held.subcode)

    def hold(self, entry: Entry, reason: str, code: int = HELD_BY_USER, subcode: int = 0) -> None:
        event = self._writer.held(self._cluster, entry.index, reason, code, subcode)
        self._take_in(entry, event)

    def _move(self, entry: Entry, status: str, when: float | None = None) -> None:
        super()._move(entry, status, when)
        self._unsynced = self._unsynced or status in ("held", "over")

    def release(self, entry: Entry, reason: str) -> None:
        self._take_in(entry, self._writer.released(self._cluster, entry.index, reason))

    def release_due(self) -> bool:
        """Release what a passing fault held, once its pause is over; tells whether any was."""
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

    def remove(self, entry: Entry, reason: str) -> None:
        self._take_in(entry, self._writer.aborted(self._cluster, entry.index, reason))

    def act(self, entry: Entry, action: Action, reason: str) -> str:
        """Carry out what a user asks of a job that is not running; returns why not, or nothing."""
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

    def edit(self, entry: Entry, attribute: str, value: str) -> str:
        """Change what a job asks for; returns why not, or nothing."""
        if entry.status == "over":
            return "it has already left the queue"
        if attribute not in REQUESTS:
            return f"the local pool can edit {', '.join(REQUESTS)}, not {attribute}"
        least = 0 if attribute == "RequestGPUs" else 1
        if not re.fullmatch(r"0*[0-9]{1,12}", value, re.ASCII) or int(value) < least:
            return f"{attribute} must be a whole number from {least} up, not {value!r}"
        event = self._writer.attribute_update(self._cluster, entry.index, attribute, value)
        self._take_in(entry, event)
        return ""

    def _transferred_out(self, entry: Entry) -> None:
        for stage in (Stage.STARTED, Stage.FINISHED):
            event = self._writer.transfer(self._cluster, entry.index, Direction.OUTPUT, stage)
            self._take_in(entry, event)


def _ending(status: int) -> dict[str, int]:
    return {"return_value": status} if status >= 0 else {"signal": -status}


def _in_words(status: int) -> str:
    return f"exit code {status}" if status >= 0 else f"signal {-status}"
