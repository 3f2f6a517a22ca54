"""The local pool's queue: what becomes of each job, written to the event log as it happens."""

from __future__ import annotations

import heapq
import os
import re
import time
from dataclasses import dataclass
from typing import Any

from headway.events import Direction, EventType, EventWriter, Stage, Value
from headway.node.exits import Exit
from headway.pool.base import Action
from headway.pool.local.attempt import Attempt
from headway.pool.local.entries import (
    HELD_AT_START,
    HELD_BY_POLICY,
    HELD_BY_USER,
    REQUESTS,
    Entries,
    Entry,
)
from headway.pool.local.used import Used
from headway.pool.policy import Verdict, backoff, hold_reason, verdict
from headway.spec import Job

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
        if line.strip():
            self._writer.generic(self._cluster, index, line)
            self._said(self[index], line)

    def checkpointed(self, entry: Entry) -> None:
        """A checkpoint was saved; the log shows it as HTCondor does, as a pair of 040."""
        with self._writer.group():
            self._transferred_out(entry)

    def exited(self, entry: Entry, status: int, used: Used, said: str = "") -> None:
        """The agent ended by itself: the job ends, goes back into the queue, or is held.

        `said` is the agent's own reason, for that of a hold.
        """
        outcome = verdict(status, ends=entry.ends, holds=entry.holds, retries=self._job.retries)
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
                reason = hold_reason(said, holds=entry.holds, retries=self._job.retries)
                self.hold(entry, reason, HELD_BY_POLICY, int(Exit.INPUT_RETRYABLE))
        if outcome is Verdict.END:
            self._move(entry, "over")
        elif outcome is Verdict.RETRY:
            entry.ends += 1
            self._move(entry, "idle")

    def evicted(
        self,
        entry: Entry,
        used: Used,
        reason: str,
        *,
        checkpointed: bool = False,
        held: Hold | None = None,
    ) -> None:
        """The attempt was ended from outside; the job waits for another, or is `held` at once."""
        with self._writer.group():  # a crash must not come between: a held job would run again
            self._writer.evicted(
                self._cluster,
                entry.index,
                reason,
                EVICTED,
                checkpointed=checkpointed,
                **used.in_log(self.request(entry)),
            )
            self._move(entry, "idle")
            if held is not None:
                self.hold(entry, held.reason, held.code, held.subcode)

    def hold(self, entry: Entry, reason: str, code: int = HELD_BY_USER, subcode: int = 0) -> None:
        self._writer.held(self._cluster, entry.index, reason, code, subcode)
        self._held_with(entry, code, subcode)
        self._move(entry, "held")

    def _move(self, entry: Entry, status: str, when: float | None = None) -> None:
        super()._move(entry, status, when)
        self._unsynced = self._unsynced or status in ("held", "over")

    def release(self, entry: Entry, reason: str) -> None:
        self._writer.released(self._cluster, entry.index, reason)
        self._move(entry, "idle")

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
        if entry.status == "over":
            return "it has already left the queue"
        if attribute not in REQUESTS:
            return f"the local pool can edit {', '.join(REQUESTS)}, not {attribute}"
        least = 0 if attribute == "RequestGPUs" else 1
        if not re.fullmatch(r"0*[0-9]{1,12}", value, re.ASCII) or int(value) < least:
            return f"{attribute} must be a whole number from {least} up, not {value!r}"
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
