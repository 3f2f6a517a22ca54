"""The state of jobs: a fold over events, without input or output.

`completed` and `removed` are terminal: nothing that follows changes them. From every other status
a job can go on: 004 puts it back to idle, 013 ends a hold, and where the log lost the event
between, an attempt that starts is believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields

from headway.events.classad import inert
from headway.events.event import Direction, Event, EventType, Stage
from headway.events.status import (
    PAUSED,
    TERMINAL,
    Outcome,
    Status,
    ending_words,
    failure_class,
    reason_words,
)
from headway.node.exits import Exit

__all__ = ["TERMINAL", "JobState", "Jobs", "Outcome", "Status", "fold"]


#: Codes of an eviction because HTCondor's own transfer failed: no output was saved.
_TRANSFER_FAILED = frozenset({12, 13})
#: Seconds between a 004 and the 012 or 009 that explains it.
_SAME_CAUSE = 2.0


@dataclass
class _Attempt:
    """What the fold must remember of the attempt under way."""

    queued: bool = False
    transferred: bool = False
    executed: bool = False
    nonce: str | None = None
    saved: bool = False
    failed: bool = False


@dataclass
class JobState:
    """One job, as its events so far tell; times are seconds since the epoch."""

    cluster: int
    proc: int
    status: Status = Status.IDLE
    #: When `status` last changed.
    since: float | None = None
    submitted: float | None = None
    #: The first 001: when the command, or the agent, first ran.
    started: float | None = None
    ended: float | None = None
    #: Of the attempt under way, or of the last one.
    site: str = ""
    slot: str = ""
    host: str = ""
    #: The agent's phase in the attempt under way: check, stage-in, run, stage-out, done.
    phase: str = ""
    phase_since: float | None = None
    progress_bytes: int | None = None
    progress_total: int | None = None
    #: Starts, those that never got further than the input transfer included.
    attempts: int = 0
    holds: int = 0
    #: Evictions that sent the job back to idle; not those that a hold or a removal brought.
    evictions: int = 0
    #: Attempts that ended by themselves and were put back by the job's policy.
    requeues: int = 0
    #: Outputs that came home in mid-attempt.
    checkpoints: int = 0
    return_value: int | None = None
    signal: int | None = None
    hold_reason: str = ""
    hold_code: int | None = None
    hold_subcode: int | None = None
    #: The last thing that people should know, in words, on one line.
    why: str = ""
    #: 008 lines that claim to be the agent's and are not.
    foreign: int = 0
    events: int = 0
    _attempt: _Attempt | None = field(default=None, repr=False)
    _paused_from: Status | None = field(default=None, repr=False)
    _evicted: Event | None = field(default=None, repr=False)
    #: Exit code and reason of the agent's last line.
    _said: tuple[str, str] = field(default=("", ""), repr=False)

    @property
    def terminal(self) -> bool:
        """Whether the job is over for good."""
        return self.status in TERMINAL

    @property
    def outcome(self) -> Outcome | None:
        """How the job ended; None while it has not. Success is a return value of 0, no less."""
        if self.status is Status.REMOVED:
            return Outcome.REMOVED
        if self.status is not Status.COMPLETED:
            return None
        return Outcome.SUCCESS if self.return_value == 0 else Outcome.FAILURE

    @property
    def failure(self) -> Exit | None:
        """The failure class by the agent's exit code, of the last attempt that ended by itself."""
        return failure_class(self.return_value)

    def as_dict(self) -> dict[str, object]:
        """All that is public, in types that JSON knows."""
        found: dict[str, object] = {
            f.name: getattr(self, f.name) for f in fields(self) if not f.name.startswith("_")
        }
        found["status"] = self.status.value
        found["outcome"] = self.outcome.value if self.outcome else None
        found["failure"] = self.failure.name.lower() if self.failure else None
        return found

    def update(self, event: Event) -> None:
        """Take in one event of this job, whatever it is and whenever it comes."""
        self.events += 1
        if self.terminal:
            return
        act = _ACTIONS.get(event.number)
        if act:
            act(self, event)

    def _become(self, status: Status, event: Event, why: str = "") -> None:
        if status is not self.status or self.since is None:
            self.status, self.since = status, event.time
        if status not in PAUSED:
            self._paused_from = None
        self.why = inert(why)

    def _open(self) -> _Attempt:
        """A new attempt begins; what was known of the last one's place and ending is past."""
        self._attempt = _Attempt()
        self.attempts += 1
        self.site = self.slot = self.host = ""
        self.return_value = self.signal = None
        self.hold_reason, self.hold_code, self.hold_subcode = "", None, None
        self._clear_phase()
        self._evicted = None
        self._said = ("", "")
        return self._attempt

    def _close(self) -> None:
        self._attempt = None
        self._clear_phase()

    def _clear_phase(self) -> None:
        self.phase, self.phase_since = "", None
        self.progress_bytes = self.progress_total = None

    def _alive(self) -> None:
        """The attempt went on after an output came home: that output was a checkpoint."""
        if self._attempt and self._attempt.saved:
            self._attempt.saved = False
            self.checkpoints += 1

    def _on_submit(self, event: Event) -> None:
        if self.submitted is None:
            self.submitted = event.time
            if self.since is None:
                self._become(Status.IDLE, event)

    def _on_transfer(self, event: Event) -> None:
        transfer = event.transfer
        if transfer is None:
            return
        if transfer.direction is Direction.INPUT:
            self._on_input(event, transfer.stage)
        else:
            self._on_output(event, transfer.stage)

    def _on_input(self, event: Event, stage: Stage) -> None:
        now = self._attempt
        if stage is Stage.FINISHED:
            # Also written when the transfer failed, and sometimes after the 001: no news.
            if now is None and self.status is Status.IDLE and not self._evicted:
                self._open().transferred = True
                self._become(Status.TRANSFERRING_IN, event)
            return
        again = now is None or now.executed or now.transferred
        if stage is Stage.QUEUED:
            again = again or (now is not None and now.queued)
        attempt = self._open() if again or now is None else now
        if stage is Stage.QUEUED:
            attempt.queued = True
        else:
            attempt.transferred = True
        self.host = event.host or self.host
        self._become(Status.TRANSFERRING_IN, event)

    def _on_output(self, event: Event, stage: Stage) -> None:
        attempt = self._attempt
        if attempt is None or not attempt.executed or self.status in PAUSED:
            return
        if stage is Stage.FINISHED:
            # Until an event says otherwise this was a checkpoint and the command goes on.
            attempt.saved = self.status is Status.TRANSFERRING_OUT
            self._become(Status.RUNNING, event)
        else:
            self._alive()
            self._become(Status.TRANSFERRING_OUT, event)

    def _on_execute(self, event: Event) -> None:
        attempt = self._attempt
        if attempt is None or attempt.executed:
            attempt = self._open()
        attempt.executed = True
        attempt.nonce = None
        if self.started is None:
            self.started = event.time
        self.host = event.host or self.host
        self._place(event)
        self._become(Status.RUNNING, event)

    def _on_information(self, event: Event) -> None:
        if self._attempt:
            self._place(event)

    def _place(self, event: Event) -> None:
        self.slot = inert(event.slot) or self.slot
        machine = self.slot.rpartition("@")[2]
        # A glidein's name is better than the machine's, whichever comes first.
        self.site = inert(event.site) or self.site or machine

    def _on_generic(self, event: Event) -> None:
        line = event.agent
        if line is None:
            return
        attempt = self._attempt
        nonce = line.get("nonce")
        if attempt is None or not nonce or attempt.nonce not in (None, nonce):
            self.foreign += 1
            return
        attempt.nonce = nonce
        phase = line.get("phase", "")
        if phase == "done":
            self._said = (line.get("exit", ""), line.get("reason", ""))
            if line.get("exit") == str(int(Exit.CHECKPOINT)):
                attempt.nonce = None  # HTCondor saves the checkpoint and starts a new agent
        else:
            self._alive()
        if phase and phase != self.phase:
            self._clear_phase()
            self.phase, self.phase_since = phase[:40], event.time
        self.progress_bytes = _count(line.get("bytes"), self.progress_bytes)
        self.progress_total = _count(line.get("total"), self.progress_total)

    def _on_image_size(self, event: Event) -> None:
        self._alive()

    def _on_remote_error(self, event: Event) -> None:
        if self._attempt:
            self._attempt.failed = True
            self._place(event)
        self.why = inert(f"{event.text.rstrip(':')}: {event.reason}")

    def _on_evicted(self, event: Event) -> None:
        attempt = self._attempt
        if event.requeued:
            self.requeues += 1
            why = f"put back to try again: {self._end(event)}"
            if event.reason:
                why += f" ({event.reason})"
        else:
            if attempt and not attempt.failed and event.code not in _TRANSFER_FAILED:
                self._alive()
            self._count_eviction(event)
            why = f"evicted: {reason_words(event)}"
        self._close()
        self._become(Status.IDLE, event, why)

    def _on_lost(self, event: Event) -> None:
        # 007 and 024, where the log does not leave it to a 004.
        if self.status is Status.HELD:
            return
        self._count_eviction(event)
        self._close()
        word = "shadow exception" if event.number == EventType.SHADOW_EXCEPTION else "node lost"
        self._become(Status.IDLE, event, f"{word}: {event.reason or 'no reason given'}")

    def _on_held(self, event: Event) -> None:
        self._uncount_eviction(event)
        self._close()
        self.holds += 1
        self.hold_reason = inert(event.reason)
        self.hold_code, self.hold_subcode = event.codes or (None, None)
        why = f"held: {reason_words(event)}"
        self._become(Status.HELD, event, why)

    def _on_released(self, event: Event) -> None:
        self.hold_reason, self.hold_code, self.hold_subcode = "", None, None
        if self.status is Status.HELD:
            self._become(
                Status.IDLE, event, f"released: {event.reason}" if event.reason else "released"
            )

    def _count_eviction(self, event: Event) -> None:
        # A 024 and the 004 after it are one eviction.
        if self._evicted is None:
            self.evictions += 1
            self._evicted = event

    def _uncount_eviction(self, event: Event) -> None:
        # HTCondor writes a 004 just before the 012 or 009 that took the job off its slot.
        if self._evicted and abs(event.time - self._evicted.time) <= _SAME_CAUSE:
            self.evictions -= 1
        self._evicted = None

    def _on_aborted(self, event: Event) -> None:
        self._uncount_eviction(event)
        self._close()
        self.ended = event.time
        self._become(
            Status.REMOVED, event, f"removed: {event.reason}" if event.reason else "removed"
        )

    def _on_terminated(self, event: Event) -> None:
        self._close()
        self.ended = event.time
        self._become(Status.COMPLETED, event, self._end(event))

    def _end(self, event: Event) -> str:
        self.return_value, self.signal = event.return_value, event.signal
        code, reason = self._said
        return ending_words(
            self.return_value, self.signal, reason if code == str(self.return_value) else ""
        )

    def _on_skipped(self, event: Event) -> None:
        self._close()
        self.ended, self.return_value = event.time, 0
        self._become(Status.COMPLETED, event, "skipped: its outputs are newer than its inputs")

    def _on_pause(self, event: Event) -> None:
        if self.status not in PAUSED:
            self._paused_from = self.status
        if event.number == EventType.SUSPENDED:
            self._become(Status.SUSPENDED, event, "suspended")
        else:
            self._become(Status.DISCONNECTED, event, f"disconnected: {event.reason}")

    def _on_resume(self, event: Event) -> None:
        if self.status in PAUSED:
            self._become(self._paused_from or Status.RUNNING, event)


_ACTIONS: dict[int, Callable[[JobState, Event], None]] = {
    EventType.SUBMIT: JobState._on_submit,
    EventType.EXECUTE: JobState._on_execute,
    EventType.EVICTED: JobState._on_evicted,
    EventType.TERMINATED: JobState._on_terminated,
    EventType.IMAGE_SIZE: JobState._on_image_size,
    EventType.SHADOW_EXCEPTION: JobState._on_lost,
    EventType.GENERIC: JobState._on_generic,
    EventType.ABORTED: JobState._on_aborted,
    EventType.SUSPENDED: JobState._on_pause,
    EventType.UNSUSPENDED: JobState._on_resume,
    EventType.HELD: JobState._on_held,
    EventType.RELEASED: JobState._on_released,
    EventType.REMOTE_ERROR: JobState._on_remote_error,
    EventType.DISCONNECTED: JobState._on_pause,
    EventType.RECONNECTED: JobState._on_resume,
    EventType.RECONNECT_FAILED: JobState._on_lost,
    EventType.AD_INFORMATION: JobState._on_information,
    EventType.FILE_TRANSFER: JobState._on_transfer,
    EventType.DATAFLOW_SKIPPED: JobState._on_skipped,
}


class Jobs:
    """The jobs of a log, by cluster and proc."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.by_id: dict[tuple[int, int], JobState] = {}
        for event in events:
            self.update(event)

    def update(self, event: Event) -> JobState | None:
        """Take in one event; the job that it is about, or None where it is about no job."""
        if event.proc < 0 or event.cluster < 0 or event.number >= 100:
            return None
        key = (event.cluster, event.proc)
        job = self.by_id.get(key)
        if job is None:
            job = self.by_id[key] = JobState(event.cluster, event.proc)
        job.update(event)
        return job

    def cluster(self, cluster: int | None = None) -> dict[int, JobState]:
        """The jobs of one cluster by proc; of the last one in the log unless told which."""
        if cluster is None:
            cluster = next(reversed(self.by_id), (0, 0))[0]
        return {proc: job for (c, proc), job in sorted(self.by_id.items()) if c == cluster}


def fold(events: Iterable[Event], cluster: int | None = None) -> dict[int, JobState]:
    """The jobs of one cluster by proc, after all these events; see `Jobs.cluster`."""
    return Jobs(events).cluster(cluster)


def _count(text: str | None, known: int | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else known
