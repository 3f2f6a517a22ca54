"""The state of jobs as their events tell it, with words for people; no input or output."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields

from headway.events.event import (
    BY_TRANSFER,
    COMPUTING_KINDS,
    TERMINAL,
    Event,
    Kind,
    Outcome,
    Status,
    ending_words,
    failure_class,
    kind_of,
    pair_named,
    reason_words,
)
from headway.events.format import EventType, inert
from headway.events.life import Effect, Life, resumed, step
from headway.node.errors import Exit

__all__ = ["TERMINAL", "JobState", "Jobs", "Outcome", "Status", "fold"]


#: Seconds between a 004 and the 012 or 009 that explains it.
_SAME_CAUSE = 2.0


@dataclass
class JobState:
    """One job, as its events so far tell; times are seconds since the epoch."""

    cluster: int
    proc: int
    #: The id by which `condor_q` knows it now; a courier in a DAG has another one than its job.
    htcondor_id: str = ""
    status: Status = Status.IDLE
    #: When `status` last changed.
    since: float | None = None
    submitted: float | None = None
    #: When it, or the last one of its couriers, was put into the queue.
    queued: float | None = None
    #: The first 001: when the command, or the agent, first ran.
    started: float | None = None
    ended: float | None = None
    #: Of the attempt under way, or of the last one.
    site: str = ""
    slot: str = ""
    host: str = ""
    #: The agent's phase in the attempt under way: check, stage-in, run, stage-out, deliver, done.
    phase: str = ""
    phase_since: float | None = None
    progress_bytes: int | None = None
    progress_total: int | None = None
    #: When the agent last said so.
    progress_at: float | None = None
    #: The file that is being moved, as far as the agent's last line tells.
    progress_file: str = ""
    progress_file_bytes: int | None = None
    progress_file_size: int | None = None
    progress_rate: int | None = None
    #: How many sources the agent downloads from.
    progress_sources: int | None = None
    #: Starts, those that never got further than the input transfer included, and couriers not.
    attempts: int = 0
    #: Starts of couriers, which bring outputs home from a node's store.
    couriers: int = 0
    #: Starts that only brought the job's inputs to a node where it was to run next.
    prefetches: int = 0
    holds: int = 0
    #: Evictions that sent the job back to idle; not those that a hold or a removal brought.
    evictions: int = 0
    #: Attempts that ended by themselves and were put back by the job's policy.
    requeues: int = 0
    #: Outputs that were transferred back in the middle of an attempt.
    checkpoints: int = 0
    #: Outputs in a node's store: the sandbox, its bytes, its startd and site, and since when.
    sandbox: str = ""
    sandbox_bytes: int | None = None
    sandbox_at: str = ""
    sandbox_site: str = ""
    sandbox_since: float | None = None
    #: Since when a courier is at work, or was when it brought them; and when they were home.
    courier_since: float | None = None
    delivered: float | None = None
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
    _life: Life = field(default=Life(), repr=False)
    #: Holds and starts before HTCondor knew the job by its present id.
    _earlier: tuple[int, int] = field(default=(0, 0), repr=False)
    #: The agent's name in the attempt under way.
    _nonce: str | None = field(default=None, repr=False)
    _evicted: float | None = field(default=None, repr=False)
    #: The newest start is a courier, which brings outputs home and computes nothing.
    _courier: bool = field(default=False, repr=False)
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
    def stored(self) -> bool:
        """Whether its outputs are in a node's store, or on their way home from there."""
        return self._life.left and not self.terminal

    @property
    def undelivered(self) -> bool:
        """Whether it has failed because its outputs did not come home from a node's store."""
        return self._life.left and self.outcome is Outcome.FAILURE

    @property
    def computed(self) -> float | None:
        """When its command had ended for good: before its outputs were home, if they waited."""
        return self.sandbox_since if self._life.left and self.sandbox else self.ended

    @property
    def queue_counts(self) -> tuple[int, int]:
        """Holds and starts as HTCondor counts them, which begins anew with a courier in a DAG."""
        holds, starts = self._earlier
        return self.holds - holds, self._starts - starts

    @property
    def _starts(self) -> int:
        return self.attempts + self.couriers + self.prefetches

    @property
    def failure(self) -> Exit | None:
        """The failure class by the agent's exit code, of the last attempt that ended by itself."""
        return failure_class(self.return_value)

    def as_dict(self) -> dict[str, object]:
        """The public fields, in types that JSON has."""
        found: dict[str, object] = {
            f.name: getattr(self, f.name) for f in fields(self) if not f.name.startswith("_")
        }
        found["status"] = self.status.value
        found["stored"] = self.stored
        found["outcome"] = self.outcome.value if self.outcome else None
        found["failure"] = self.failure.name.lower() if self.failure else None
        return found

    def update(self, event: Event) -> None:
        """Take in one event of this job, whatever it is and whenever it comes."""
        self.events += 1
        if self.terminal:
            self._on_another_courier(event)
            return
        line = event.agent
        kind = kind_of(event) if line is None else self._agent_kind(event, line)
        before = self._life
        self._life, effect = step(before, kind)
        if effect & Effect.OPENED:
            self._open(event.time)
        if effect & Effect.AHEAD:
            self._tell_prefetch()
        self._tell_courier(kind, event.time)
        if effect & Effect.SAVED and not self._courier:
            self.checkpoints += 1
        if effect & Effect.EVICTED and not self._courier:
            self.evictions += 1
            self._evicted = event.time
        if self.since is None or self._life.shown is not before.shown:
            self.status, self.since = self._life.shown, event.time
        if line is not None and kind is not Kind.OTHER:
            self._on_agent(event, line)
        elif event.number == EventType.AD_INFORMATION and self._life.open:
            self._place(event)
        elif effect & Effect.LEFT:
            self.why = f"computed; its outputs wait at {self.sandbox_site or 'a node'}"
        elif before.ahead and kind in _LOST:
            self.why = inert(self._said[1] or "its inputs did not come")
        elif kind in _DETAILS:
            _DETAILS[kind](self, event)
        if effect & Effect.CLOSED:
            self._clear_phase()
            if self.outcome is Outcome.SUCCESS and self._life.left:
                self.delivered = event.time
            else:
                self.courier_since = None

    def renamed(self, name: str) -> None:
        """HTCondor knows the job by another id from now on."""
        if self.htcondor_id not in ("", name):
            self._earlier = self.holds, self._starts
        self.htcondor_id = name

    def _on_another_courier(self, event: Event) -> None:
        """DAGMan, or a user, has the outputs brought once more: the job is not over."""
        pair = pair_named(event.node)
        if pair is not None and pair[0] == "courier" and self.status is Status.COMPLETED:
            self._life = resumed()
            self.status, self.since = self._life.shown, event.time
            self.queued = event.time
            self.ended = self.return_value = self.signal = None
            self.courier_since = self.delivered = None
            self.why = "another courier is to bring its outputs"

    def _open(self, begin: float) -> None:
        """A new attempt begins: forget the place and the end of the last one."""
        self._courier = self._life.left
        self.attempts += not self._courier
        self.couriers += self._courier
        self.courier_since = begin if self._courier else None
        self.site = self.slot = self.host = ""
        self.return_value = self.signal = None
        self.hold_reason, self.hold_code, self.hold_subcode = "", None, None
        self._clear_phase()
        self._nonce = self._evicted = None
        self._said = ("", "")

    def _tell_prefetch(self) -> None:
        """The attempt under way is none: the job still waits."""
        self.attempts, self.prefetches = self.attempts - 1, self.prefetches + 1
        self.started = self.started if self.attempts else None

    def _tell_courier(self, kind: Kind, now: float) -> None:
        """A courier says so, or starts while outputs wait and never says that it computes."""
        courier = self._courier and kind not in COMPUTING_KINDS
        courier |= kind in (Kind.DELIVER, Kind.LOST)
        if courier is not self._courier:
            change = 1 if courier else -1
            self.attempts, self.couriers = self.attempts - change, self.couriers + change
            self._courier, self.courier_since = courier, now if courier else None

    def _clear_phase(self) -> None:
        self.phase, self.phase_since = "", None
        self.progress_bytes = self.progress_total = self.progress_at = None
        self._clear_file()

    def _clear_file(self) -> None:
        self.progress_file = ""
        self.progress_file_bytes = self.progress_file_size = None
        self.progress_rate = self.progress_sources = None

    def _on_submit(self, event: Event) -> None:
        self.queued = event.time
        if self.submitted is None:
            self.submitted = event.time

    def _on_transfer(self, event: Event) -> None:
        self.host = event.host or self.host
        if self.status in (Status.TRANSFERRING_IN, Status.TRANSFERRING_OUT, Status.RUNNING):
            self.why = ""

    def _on_execute(self, event: Event) -> None:
        self._nonce = None
        if self.started is None:
            self.started = event.time
        self.host = event.host or self.host
        self._place(event)
        self.why = ""

    def _place(self, event: Event) -> None:
        self.slot = inert(event.slot) or self.slot
        machine = self.slot.rpartition("@")[2]
        # A glidein's name is better than the machine's, whichever comes first.
        self.site = inert(event.site) or self.site or machine

    def _agent_kind(self, event: Event, line: dict[str, str]) -> Kind:
        """Only the first name after a 001 is the agent's; others are the command's own words."""
        nonce = line.get("nonce")
        if not self._life.open or not nonce or self._nonce not in (None, nonce):
            self.foreign += 1
            return Kind.OTHER
        self._nonce = nonce
        return kind_of(event)

    def _on_agent(self, event: Event, line: dict[str, str]) -> None:
        phase = line.get("phase", "")
        if phase == "done":
            self._said = (line.get("exit", ""), line.get("reason", ""))
            if kind_of(event) is Kind.DONE_CHECKPOINT:
                self._nonce = None  # HTCondor saves the checkpoint and starts a new agent
        if kind_of(event) is Kind.PREFETCH:
            self.why = f"prefetching at {self.site}"
        if kind_of(event) is Kind.DONE_LATER:
            self.sandbox, self.sandbox_at = inert(line["sandbox"]), inert(line.get("at", ""))
            self.sandbox_bytes = _count(line.get("size"), None)
            self.sandbox_site, self.sandbox_since = self.site, event.time
        if phase and phase != self.phase:
            self._clear_phase()
            self.phase, self.phase_since = phase[:40], event.time
        self.progress_bytes = _count(line.get("bytes"), self.progress_bytes)
        self.progress_total = _count(line.get("total"), self.progress_total)
        self._clear_file()
        if line.get("state") == "progress":
            self.progress_at = event.time
            self.progress_file = inert(line.get("file", ""))
            self.progress_file_bytes = _count(line.get("done"), None)
            self.progress_file_size = _count(line.get("size"), None)
            self.progress_rate = _count(line.get("rate"), None)
            sources = line.get("from", "").split("+")
            active = sum(source.split("/")[1:2] == ["active"] for source in sources)
            self.progress_sources = active or None

    def _on_remote_error(self, event: Event) -> None:
        if self._life.open:
            self._place(event)
        self.why = inert(f"{event.text.rstrip(':')}: {event.reason}")

    def _on_evicted(self, event: Event) -> None:
        self.why = inert(f"evicted: {reason_words(event)}")

    def _on_requeued(self, event: Event) -> None:
        self.requeues += not self._courier
        words = f"put back to try again: {self._end(event)}"
        # The agent's exit code says why; the event's reason would only repeat it.
        if event.reason and failure_class(event.return_value) is None:
            words += f" ({event.reason})"
        self.why = inert(words)

    def _on_lost(self, event: Event) -> None:
        if self.status is not Status.HELD:
            shadow = event.number == EventType.SHADOW_EXCEPTION
            word = "shadow exception" if shadow else "node lost"
            self.why = inert(f"{word}: {event.reason or 'no reason given'}")

    def _on_held(self, event: Event) -> None:
        self._uncount_eviction(event)
        self.holds += 1
        self.hold_reason = inert(event.reason)
        self.hold_code, self.hold_subcode = event.codes or (None, None)
        self.why = inert(f"held: {reason_words(event)}")

    def _on_released(self, event: Event) -> None:
        if self.hold_reason or self.hold_code is not None or self.why.startswith("held: "):
            self.why = inert(f"released: {event.reason}" if event.reason else "released")
        self.hold_reason, self.hold_code, self.hold_subcode = "", None, None

    def _uncount_eviction(self, event: Event) -> None:
        # HTCondor writes a 004 just before the 012 or 009 that took the job off its slot.
        if self._evicted is not None and abs(event.time - self._evicted) <= _SAME_CAUSE:
            self.evictions -= 1
        self._evicted = None

    def _on_aborted(self, event: Event) -> None:
        self._uncount_eviction(event)
        self.ended = event.time
        self.why = inert(f"removed: {event.reason}" if event.reason else "removed")

    def _on_terminated(self, event: Event) -> None:
        self.ended = event.time
        self.why = inert(self._end(event))

    def _end(self, event: Event) -> str:
        self.return_value, self.signal = event.return_value, event.signal
        code, reason = self._said
        return ending_words(
            self.return_value, self.signal, reason if code == str(self.return_value) else ""
        )

    def _on_skipped(self, event: Event) -> None:
        self.ended, self.return_value = event.time, 0
        self.why = "skipped: its outputs are newer than its inputs"

    def _on_pause(self, event: Event) -> None:
        suspended = event.number == EventType.SUSPENDED
        self.why = "suspended" if suspended else inert(f"disconnected: {event.reason}")

    def _on_resume(self, _event: Event) -> None:
        self.why = ""


_LOST = (Kind.REQUEUED, Kind.EVICTED, Kind.TRANSFER_FAILED)
_DETAILS: dict[Kind, Callable[[JobState, Event], None]] = {
    Kind.SUBMITTED: JobState._on_submit,
    **dict.fromkeys(BY_TRANSFER.values(), JobState._on_transfer),
    Kind.EXECUTING: JobState._on_execute,
    **dict.fromkeys((Kind.SUSPENDED, Kind.DISCONNECTED), JobState._on_pause),
    **dict.fromkeys((Kind.UNSUSPENDED, Kind.RECONNECTED), JobState._on_resume),
    Kind.REMOTE_ERROR: JobState._on_remote_error,
    **dict.fromkeys((Kind.SHADOW_EXCEPTION, Kind.RECONNECT_FAILED), JobState._on_lost),
    **dict.fromkeys((Kind.EVICTED, Kind.TRANSFER_FAILED), JobState._on_evicted),
    Kind.REQUEUED: JobState._on_requeued,
    **dict.fromkeys((Kind.SUCCEEDED, Kind.FAILED), JobState._on_terminated),
    Kind.HELD: JobState._on_held,
    Kind.RELEASED: JobState._on_released,
    Kind.REMOVED: JobState._on_aborted,
    Kind.SKIPPED: JobState._on_skipped,
}


class Pairs:
    """Which HTCondor jobs are one job of a run: in a DAG its courier has an id of its own.

    All jobs of a run get the cluster that the first of them in the log has, and their numbers.
    """

    def __init__(self) -> None:
        self._clusters: dict[str, int] = {}
        self._jobs: dict[tuple[int, int], tuple[int, int]] = {}

    def job_of(self, event: Event) -> tuple[int, int]:
        """The cluster and the number of the job that an event is about."""
        own = (event.cluster, event.proc)
        pair = pair_named(event.node)
        if pair is not None:
            _, run, number = pair
            self._jobs[own] = (self._clusters.setdefault(run, event.cluster), number)
        return self._jobs.get(own, own) if self._jobs else own


class Jobs:
    """The jobs of a log, by cluster and proc; a job and its courier are one."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.by_id: dict[tuple[int, int], JobState] = {}
        self._pairs = Pairs()
        for event in events:
            self.update(event)

    def update(self, event: Event) -> JobState | None:
        """Take in one event; the job that it is about, or None where it is about no job."""
        if event.proc < 0 or event.cluster < 0 or event.number >= 100:
            return None
        key = self._pairs.job_of(event)
        job = self.by_id.get(key)
        if job is None:
            job = self.by_id[key] = JobState(*key)
        job.renamed(f"{event.cluster}.{event.proc}")
        job.update(event)
        return job

    def cluster(self, cluster: int | None = None) -> dict[int, JobState]:
        """The jobs of one cluster by proc; of the last one in the log unless told which."""
        if cluster is None:
            cluster = next(reversed(self.by_id), (0, 0))[0]
        return {proc: job for (c, proc), job in sorted(self.by_id.items()) if c == cluster}


def fold(events: Iterable[Event], cluster: int | None = None) -> dict[int, JobState]:
    """The present state of each job of one cluster: status, hold, starts and so on.

    Args:
        events: The events of a log, in its order.
        cluster: Which cluster; None is the last one in the log.

    Returns:
        The jobs by proc.

    Example:
        >>> with EventWriter("held.log") as writer:
        ...     _ = writer.submitted(7, 0, "<192.0.2.10:9618>")
        ...     _ = writer.held(7, 0, "no space left", 12, 28)
        >>> job = fold(read_log("held.log").events)[0]
        >>> job.status.value, job.hold_code, job.hold_reason, job.attempts
        ('held', 12, 'no space left', 0)
    """
    return Jobs(events).cluster(cluster)


def _count(text: str | None, known: int | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else known
