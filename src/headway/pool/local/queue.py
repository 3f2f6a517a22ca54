"""The local pool's queue: what becomes of each job, written to the event log as it happens."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headway.events import Direction, Event, EventType, EventWriter, Stage, Value
from headway.node.exits import Exit
from headway.pool.base import Action
from headway.pool.local.attempt import Attempt, Used
from headway.pool.local.machine import Request, Site
from headway.pool.policy import AVOID_SECONDS, HISTORY, Verdict, backoff, releases, verdict
from headway.spec import Job

HELD_BY_USER = 1
HELD_BY_POLICY = 3
HELD_AT_START = 6
EVICTED = 1022
_EDIT = re.compile(r"Setting job attribute (Request\w+) to ([0-9]+)\Z")
REQUESTS = {
    "RequestCpus": ("cpus", 1),
    "RequestMemory": ("memory", 2**20),
    "RequestDisk": ("disk", 2**10),
    "RequestGPUs": ("gpus", 1),
}


@dataclass
class Entry:
    """One job of the queue, as its events tell."""

    index: int
    status: str = "new"  # new, idle, running, held, over
    since: float = 0.0
    starts: int = 0
    completions: int = 0
    holds: int = 0
    hold: tuple[int, int] = (0, 0)
    sites: list[str] = field(default_factory=list)  # where it has been, newest first
    edits: dict[str, int] = field(default_factory=dict)


class Entries:
    """The jobs of one run, as the event log has them."""

    def __init__(self, cluster: int, job: Job) -> None:
        self._cluster = cluster
        self._job = job
        self._request = Request.of(job)
        self._entries = [Entry(index) for index in range(job.size)]
        self._by_status: dict[str, dict[int, Entry]] = {
            status: {} for status in ("idle", "running", "held", "over")
        }
        self._by_status["new"] = {entry.index: entry for entry in self._entries}

    def __getitem__(self, index: int) -> Entry:
        return self._entries[index]

    def get(self, index: int) -> Entry | None:
        return self._entries[index] if 0 <= index < len(self._entries) else None

    def in_status(self, status: str) -> list[Entry]:
        return list(self._by_status[status].values())

    def has_work(self) -> bool:
        """Whether any job runs, waits, or will be released by itself."""
        return bool(self._by_status["idle"] or self._by_status["running"]) or any(
            self._will_release(entry) for entry in self._by_status["held"].values()
        )

    def request(self, entry: Entry) -> Request:
        """What a job asks for, with the edits made since it was submitted."""
        return replace(self._request, **entry.edits) if entry.edits else self._request

    def sites_for(self, entry: Entry, sites: Iterable[Site]) -> list[Site]:
        """The sites where a job may run now, preferred ones first."""
        wanted = self._job.sites
        failed = entry.completions + entry.holds > 0
        avoided = entry.sites if failed and time.time() - entry.since <= AVOID_SECONDS else []
        allowed = [
            site
            for site in sites
            if site.name not in wanted.avoid
            if not wanted.only or site.name in wanted.only
        ]
        # No other site will ever come to this machine: where all are bad, waiting helps nobody.
        elsewhere = [site for site in allowed if site.name not in avoided] or allowed
        return sorted(elsewhere, key=lambda site: site.name not in wanted.prefer)

    def _will_release(self, entry: Entry) -> bool:
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
                "NumJobCompletions": entry.completions,
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
        kind = event.number
        if kind == EventType.SUBMIT:
            self._move(entry, "idle", event.time)
        elif kind == EventType.EXECUTE:
            self._started_at(entry, event.site or "")
            self._move(entry, "running", event.time)
        elif kind == EventType.EVICTED:
            entry.completions += event.requeued
            self._move(entry, "idle", event.time)
        elif kind == EventType.HELD:
            self._held_with(entry, event.code or 0, event.subcode or 0)
            self._move(entry, "held", event.time)
        elif kind == EventType.RELEASED:
            self._move(entry, "idle", event.time)
        elif kind in (EventType.TERMINATED, EventType.ABORTED):
            self._move(entry, "over", event.time)
        elif kind == EventType.ATTRIBUTE_UPDATE:
            match = _EDIT.match(event.text)
            if match:
                self._edited(entry, match[1], match[2])

    def _move(self, entry: Entry, status: str, when: float | None = None) -> None:
        self._by_status[entry.status].pop(entry.index, None)
        self._by_status[status][entry.index] = entry
        entry.status = status
        entry.since = time.time() if when is None else when

    def _started_at(self, entry: Entry, site: str) -> None:
        entry.starts += 1
        entry.sites = [site, *entry.sites][:HISTORY]

    def _held_with(self, entry: Entry, code: int, subcode: int) -> None:
        entry.holds += 1
        entry.hold = (code, subcode)
        entry.completions += entry.hold == (HELD_BY_POLICY, Exit.INPUT_RETRYABLE)

    def _edited(self, entry: Entry, attribute: str, value: str) -> None:
        name, scale = REQUESTS[attribute]
        entry.edits[name] = int(value) * scale


class Queue(Entries):
    """Each change of a job is an event first; the entry only follows the event."""

    def __init__(self, writer: EventWriter, cluster: int, job: Job) -> None:
        super().__init__(cluster, job)
        self._writer = writer

    def close(self) -> None:
        self._writer.close()

    def submit_missing(self, host: str) -> None:
        """Write the submit event of each job that has none."""
        with self._writer.group():
            for entry in self.in_status("new"):
                self._writer.submitted(self._cluster, entry.index, host)
                self._move(entry, "idle")

    def started(self, entry: Entry, attempt: Attempt) -> None:
        """An attempt runs; its files went in the way HTCondor would have sent them."""
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
                self._writer.transfer(*job, Direction.INPUT, stage, host=host)
                self._writer.ad_information(*job, EventType.FILE_TRANSFER, where)
            self._writer.executing(
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
        self._started_at(entry, site.name)
        self._move(entry, "running")

    def start_failed(self, entry: Entry, error: Exception) -> None:
        """The pool itself could not start the agent: held, for people to look at."""
        reason = f"the job could not be started on this machine: {error}".replace("\n", " ")
        self.hold(entry, reason, HELD_AT_START, getattr(error, "errno", 0) or 0)

    def said(self, index: int, line: str) -> None:
        """A line that the agent, or the command, sent by chirp."""
        self._writer.generic(self._cluster, index, line)

    def checkpointed(self, entry: Entry) -> None:
        """A checkpoint was saved; the log shows it as HTCondor does, as a pair of 040."""
        with self._writer.group():
            self._transferred_out(entry)

    def exited(self, entry: Entry, status: int, used: Used) -> None:
        """The agent ended by itself: the job ends, goes back into the queue, or is held."""
        outcome = verdict(
            status, completions=entry.completions, holds=entry.holds, retries=self._job.retries
        )
        job = (self._cluster, entry.index)
        ending: dict[str, Any] = {**_ending(status), **used.in_log(self.request(entry))}
        with self._writer.group():
            self._transferred_out(entry)
            if outcome is Verdict.END:
                self._writer.terminated(*job, **ending)
            elif outcome is Verdict.RETRY:
                self._writer.evicted(
                    *job,
                    f"the attempt ended with {_in_words(status)}; trying again",
                    requeued=True,
                    **ending,
                )
            else:
                pause = backoff(entry.holds + 1, self._job.retries)
                self.hold(
                    entry,
                    f"Headway: an input did not arrive; released by itself after {pause:.0f} s",
                    HELD_BY_POLICY,
                    int(Exit.INPUT_RETRYABLE),
                )
        if outcome is Verdict.END:
            self._move(entry, "over")
        elif outcome is Verdict.RETRY:
            entry.completions += 1
            self._move(entry, "idle")

    def evicted(self, entry: Entry, used: Used, reason: str, *, checkpointed: bool = False) -> None:
        """The attempt was ended from outside; the job waits for another."""
        self._writer.evicted(
            self._cluster,
            entry.index,
            reason,
            EVICTED,
            checkpointed=checkpointed,
            **used.in_log(self.request(entry)),
        )
        self._move(entry, "idle")

    def hold(self, entry: Entry, reason: str, code: int = HELD_BY_USER, subcode: int = 0) -> None:
        self._writer.held(self._cluster, entry.index, reason, code, subcode)
        self._held_with(entry, code, subcode)
        self._move(entry, "held")

    def release(self, entry: Entry, reason: str) -> None:
        self._writer.released(self._cluster, entry.index, reason)
        self._move(entry, "idle")

    def release_due(self) -> None:
        """Release what a passing fault held, once its pause is over."""
        for entry in self.in_status("held"):
            if self._will_release(entry):
                pause = backoff(entry.holds, self._job.retries)
                if time.time() - entry.since > pause:
                    self.release(entry, f"the pause of {pause:.0f} s after a passing fault is over")

    def remove(self, entry: Entry, reason: str) -> None:
        self._writer.aborted(self._cluster, entry.index, reason)
        self._move(entry, "over")

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
        if attribute not in REQUESTS:
            return f"the local pool can edit {', '.join(REQUESTS)}, not {attribute}"
        if not value.isdigit() or int(value) < 1:
            return f"{attribute} must be a whole number, not {value!r}"
        self._writer.attribute_update(self._cluster, entry.index, attribute, value)
        self._edited(entry, attribute, value)
        return ""

    def _transferred_out(self, entry: Entry) -> None:
        for stage in (Stage.STARTED, Stage.FINISHED):
            self._writer.transfer(self._cluster, entry.index, Direction.OUTPUT, stage)


def _ending(status: int) -> dict[str, int]:
    return {"return_value": status} if status >= 0 else {"signal": -status}


def _in_words(status: int) -> str:
    return f"exit code {status}" if status >= 0 else f"signal {-status}"
