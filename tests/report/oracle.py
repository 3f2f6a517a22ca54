"""The oracle: the accounts of one job at a time, in plain Python, slow and naive on purpose.

It says what the accounting must say, in as few words as it can; it shares with the accounting only
the automaton (`events.life.step`), the words, and `cause_of`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from headway.events.columnar.columns import NONE, Columns, column_names
from headway.events.event import AGENT_KINDS, Kind, Phase, Status
from headway.events.format import EventType
from headway.events.life import Effect, Life, step
from headway.holds import classify
from headway.report.accounting import CUT, WITH_REASON, End, cause_of
from headway.report.enums import Cause, Delivery, JobOutcome, Worth

SECOND = 1_000_000
Piece = tuple[str, str, str, int]  # phase, verdict, cause, microseconds

#: What a checkpoint can hold. The transfers before it have to be made again all the same.
WORK = (Phase.COMPUTE, Phase.CHECKPOINT, Phase.DISCONNECTED)
PAUSES = (Phase.DISCONNECTED, Phase.SUSPENDED)
TRANSFERS = (Cause.TRANSFER_CUT, Cause.TRANSFER_FAILED)
COMPUTES = AGENT_KINDS - {Kind.DONE, Kind.DELIVER, Kind.LOST, Kind.PREFETCH}
LOSSES = (Kind.EVICTED, Kind.TRANSFER_FAILED, Kind.SHADOW_EXCEPTION, Kind.RECONNECT_FAILED)


@dataclass
class Row:
    """One event, as a row of the columns says it."""

    number: int
    cluster: int
    proc: int
    time: int
    kind: Kind
    code: int
    subcode: int
    value: int
    text: str
    site: str
    slot: str
    host: str
    log: int


@dataclass
class Stretch:
    """The time from one event of a job to the next."""

    begin: int
    phase: Phase
    attempt: int | None  # its place in the job
    newest: int  # the attempt before, or under way; -1 for none
    stopped: bool  # the agent is done, and must be started again before anything goes on
    end: int = 0
    saved: bool = False  # a checkpoint holds this work


@dataclass
class Attempt:
    """One try on one slot."""

    begin: int
    end: int | None = None
    success: bool = False
    cause: Cause = Cause.NONE
    executed: bool = False
    evicted: bool = False
    teller: Row | None = None
    named: str = ""  # the site that an event names
    site: str = ""
    slot: str = ""
    host: str = ""
    checkpoints: int = 0
    agent: bool = False
    waits: bool = False  # it left outputs in a store, and the job is not over
    handed: bool = False
    became: Delivery = Delivery.WAITING  # of what it left
    couriers: int = 0
    stored: int = 0
    delivery: int = 0
    computes: bool = False  # its agent says so
    delivers: bool = False  # it began while outputs waited, or its agent says that it brings them
    says_delivers: bool = False
    ahead: bool = False  # it only brought inputs to a node
    staging: bool = False
    ran: bool = False

    @property
    def machine(self) -> str:
        """What stands behind the last @ of the slot, or the host."""
        name = (self.slot or self.host).rpartition("@")[2]
        return name if name != "MPI_job" else ""

    @property
    def courier(self) -> bool:
        """Whether it brings outputs home, and computes nothing."""
        return self.ahead or self.says_delivers or (self.delivers and not self.computes)

    @property
    def ending(self) -> str:
        """As the accounts name it."""
        if self.end is None or self.waits:
            return "open"
        return "success" if self.success else self.cause.value


@dataclass
class Hold:
    """One 012."""

    row: Row
    attempt: int | None
    begin: int
    end: int | None = None
    released: bool = False


@dataclass
class Job:
    """What the oracle says of one job; the end of what goes on is None, then `until`."""

    key: tuple[int, int]
    begin: int
    until: int
    end: int | None = None
    outcome: JobOutcome = JobOutcome.UNFINISHED
    requeues: int = 0
    attempts: list[Attempt] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    stretches: list[Stretch] = field(default_factory=list)

    @property
    def pieces(self) -> list[Piece]:
        """Neighbours of the same kind as one, and none of no length."""
        found: list[tuple[int | None, Piece]] = []
        for stretch in self.stretches:
            length = stretch.end - stretch.begin
            if not length:
                continue
            words = (stretch.phase.value, *(word.value for word in self._worth(stretch)))
            if found and found[-1][0] == stretch.attempt and found[-1][1][:3] == words:
                length += found.pop()[1][3]
            found.append((stretch.attempt, (*words, length)))
        return [piece for _, piece in found]

    def _worth(self, stretch: Stretch) -> tuple[Worth, Cause]:
        """What became of the attempt, of the job, and of the last checkpoint between them."""
        if stretch.attempt is None:
            return Worth.NONE, Cause.NONE
        attempt = self.attempts[stretch.attempt]
        if stretch.phase is Phase.SUSPENDED:
            return Worth.BAD, Cause.SUSPENDED
        if attempt.end is None or attempt.waits:
            return Worth.OPEN, Cause.NONE
        if attempt.success:
            return Worth.GOOD, Cause.NONE
        if stretch.saved and stretch.phase in WORK:
            return self._worth_of_saved()
        saves = any(each.checkpoints for each in self.attempts[: stretch.attempt + 1])
        if saves and attempt.cause is Cause.EVICTION and stretch.phase is Phase.COMPUTE:
            return Worth.BAD, Cause.REDONE
        return Worth.BAD, attempt.cause

    def _worth_of_saved(self) -> tuple[Worth, Cause]:
        """Work that a checkpoint holds is worth what its job is worth."""
        if self.outcome is JobOutcome.SUCCESS:
            return Worth.GOOD, Cause.NONE
        if self.outcome is JobOutcome.REMOVED:
            return Worth.BAD, Cause.REMOVED
        if self.outcome is JobOutcome.FAILED:
            return Worth.BAD, self.attempts[-1].cause
        return Worth.OPEN, Cause.NONE


def oracle(
    columns: Columns,
    until: float | None = None,
    outputs: Mapping[tuple[int, int], bool] | None = None,
) -> list[Job]:
    """All jobs of the columns, in the order of the accounts."""
    jobs = jobs_of(rows_of(columns))
    newest: dict[int, int] = {}
    for log, time in zip(columns.log.tolist(), columns.time.tolist(), strict=True):
        newest[log] = max(newest.get(log, 0), time)

    def end(rows: list[Row]) -> int:
        known = max(newest[row.log] for row in rows)
        return known if until is None else max(known, int(until * SECOND))

    return _with_sites([_job(rows, end(rows), outputs or {}) for rows in jobs])


def rows_of(columns: Columns) -> list[Row]:
    """The events that are about a job."""
    values = {name: getattr(columns, name).tolist() for name in column_names()}

    def text(at: int) -> str:
        return columns.strings[at] if at >= 0 else ""

    found = []
    for at in range(len(columns)):
        row = {name: column[at] for name, column in values.items()}
        if row["proc"] < 0 or row["cluster"] < 0 or row["number"] >= 100:
            continue
        found.append(
            Row(
                row["number"],
                row["cluster"],
                row["proc"],
                row["time"],
                Kind(row["kind"]),
                row["code"],
                row["subcode"],
                row["value"],
                text(row["text"]),
                text(row["site"]),
                text(row["slot"]),
                text(row["host"]),
                row["log"],
            )
        )
    return found


# Which events are about the same job.


def jobs_of(rows: list[Row]) -> list[list[Row]]:
    """The events of each job, in order."""
    found: list[list[Row]] = []
    for key in sorted({(row.cluster, row.proc) for row in rows}):
        mine = [row for row in rows if (row.cluster, row.proc) == key]
        found.extend(_told_apart(mine))
    return found


def _told_apart(rows: list[Row]) -> list[list[Row]]:
    """A 000 of another second is another job; what comes before the first 000 of its log belongs
    to the newest job that was there by then, and two logs that tell the same tell it once."""
    parts: list[tuple[int | None, list[Row]]] = []
    for log in dict.fromkeys(row.log for row in rows):
        submitted: int | None = None
        part: list[Row] = []
        for row in (row for row in rows if row.log == log):
            second = row.time // SECOND
            if row.kind is Kind.SUBMITTED and second != submitted:
                submitted, part = second, []
            if not part:
                parts.append((submitted, part))
            part.append(row)
    jobs: dict[int | None, list[list[Row]]] = {
        submitted: [] for submitted in sorted(at for at, _ in parts if at is not None)
    }
    for submitted, part in sorted(parts, key=lambda each: each[0] is None):
        home = submitted
        if home is None:
            before = [at for at in jobs if at is not None and at <= part[0].time // SECOND]
            home = max(before, default=None)
        jobs.setdefault(home, []).append(part)
    return [_merged(parts) for parts in jobs.values()]


def _merged(parts: list[list[Row]]) -> list[Row]:
    if len(parts) == 1:
        return parts[0]
    kept: list[Row] = []
    told: Counter[tuple[object, ...]] = Counter()
    for part in parts:
        mine: Counter[tuple[object, ...]] = Counter()
        for row in part:
            key = (row.number, row.time // SECOND, row.kind, row.text)
            mine[key] += 1
            if mine[key] > told[key]:
                told[key] += 1
                kept.append(row)
    return sorted(kept, key=lambda row: row.time)


# One job.


def _job(rows: list[Row], until: int, outputs: Mapping[tuple[int, int], bool]) -> Job:
    key = (rows[0].cluster, rows[0].proc)
    job = Job(key, rows[0].time, until)
    life, nonce, now, home = Life(), "", rows[0].time, 0
    requeued: list[int] = []
    for at, row in enumerate(rows):
        now = max(now, row.time)  # a clock that went back is waited for
        if job.end is not None:  # nothing that follows changes it; 028 may still say where it was
            _place(job, row)
            continue
        if job.stretches:
            job.stretches[-1].end = now
        kind = row.kind
        if _is_line(row) and not ((life.open or life.fresh) and nonce in ("", row.text)):
            kind = Kind.OTHER  # the command's own words, or the last attempt's
        before = life
        life, effect = step(before, kind)
        if kind is Kind.SUCCEEDED and life.phase is None and not outputs.get(key, True):
            kind = Kind.FAILED
        if effect & Effect.OVERTAKEN:
            job.attempts[-1].end, job.attempts[-1].cause = now, Cause.UNKNOWN
        if effect & Effect.OPENED:
            if job.attempts and effect & Effect.OVERTAKEN:
                job.attempts[-1].handed |= life.left
            job.attempts.append(Attempt(now, delivers=life.left))
        if effect & Effect.OPENED or kind is Kind.EXECUTING:
            nonce = ""
        if _is_line(row) and kind is not Kind.OTHER:
            # HTCondor saves a checkpoint and starts a new agent.
            nonce = "" if kind is Kind.DONE_CHECKPOINT else row.text
        if effect & Effect.SAVED:
            _save(job, home)
        if life.saved and not before.saved:
            home = len(job.stretches)
        _place(job, row)
        if job.attempts:
            _describe(job.attempts[-1], kind, life)
        if effect & Effect.CLOSED:
            _close(job, rows[at:], kind, now, life)
            job.attempts[-1].handed |= life.left and life.phase is not None
        _hold(job, row, kind, now, before.status, life.status)
        if kind is Kind.REQUEUED and not effect & Effect.LEFT:
            requeued.append(len(job.attempts) - 1)
        if life.phase is None:
            job.end = now
            job.outcome = _outcome(life.status, kind)
        else:
            newest = len(job.attempts) - 1
            attempt = newest if life.open else None
            # What a courier spends its time with is told when it is known to be one.
            phase = (life._replace(left=False) if life.open else life).phase or life.phase
            job.stretches.append(Stretch(now, phase, attempt, newest, _stopped(life), until))
    if job.end is None and life.status is Status.HELD:
        job.outcome = JobOutcome.HELD
    job.requeues = sum(at < 0 or not job.attempts[at].courier for at in requeued)
    _deliver(job)
    return job


def _deliver(job: Job) -> None:
    """Couriers are no attempts; what they bring decides on the attempt before them."""
    for before, after in pairwise(job.attempts):
        before.handed |= after.courier and not after.ahead
    every, left = job.attempts, [each for each in job.attempts if not each.courier]
    sandbox: Attempt | None = None
    sandboxes: list[Attempt | None] = []  # what each attempt left, or came for
    for attempt in every:
        sandbox = sandbox if attempt.courier else attempt if attempt.handed else None
        sandboxes.append(sandbox)
        if sandbox and attempt.courier:
            sandbox.couriers += 1
    for stretch in job.stretches:
        if stretch.attempt is not None:
            attempt = every[stretch.attempt]
            if attempt.courier:
                stretch.phase = Phase.PREFETCH if attempt.ahead else Phase.DELIVERY
                stretch.attempt = None
            else:
                stretch.attempt = left.index(attempt)
        sandbox = sandboxes[stretch.newest] if stretch.newest >= 0 else None
        if sandbox and stretch.phase is Phase.STORED:
            sandbox.stored += stretch.end - stretch.begin
        if sandbox and stretch.phase is Phase.DELIVERY:
            sandbox.delivery += stretch.end - stretch.begin
    for hold in job.holds:
        if hold.attempt is not None:
            attempt = every[hold.attempt]
            hold.attempt = None if attempt.courier else left.index(attempt)
    for attempt in left:
        if attempt.handed:
            _judge(attempt, job.outcome, lost=attempt is not left[-1])
    job.attempts = left


def _judge(attempt: Attempt, outcome: JobOutcome, *, lost: bool) -> None:
    """What an attempt was worth that left its outputs in a store."""
    attempt.success = attempt.waits = False
    if lost:
        attempt.became, attempt.cause = Delivery.LOST, Cause.LOST_SANDBOX
    elif outcome is JobOutcome.FAILED:
        attempt.became, attempt.cause = Delivery.FAILED, Cause.FAILED
    elif outcome is JobOutcome.REMOVED:
        attempt.became, attempt.cause = Delivery.REMOVED, Cause.REMOVED
    elif outcome is JobOutcome.SUCCESS:
        attempt.became, attempt.cause, attempt.success = Delivery.HOME, Cause.NONE, True
    else:
        attempt.cause, attempt.waits = Cause.NONE, True


def _is_line(row: Row) -> bool:
    """Whether the event is a line that claims to be the agent's."""
    return row.kind in AGENT_KINDS or (row.number == EventType.GENERIC and row.kind is Kind.ALIVE)


def _stopped(life: Life) -> bool:
    return life.stage in (Kind.DONE, Kind.DONE_CHECKPOINT)


def _place(job: Job, row: Row) -> None:
    """Where the attempt under way is, or the last one was."""
    if job.attempts:
        attempt = job.attempts[-1]
        attempt.named = row.site or attempt.named
        attempt.slot = row.slot or attempt.slot
        attempt.host = row.host or attempt.host


def _describe(attempt: Attempt, kind: Kind, life: Life) -> None:
    attempt.executed |= life.open and life.executed
    attempt.agent |= kind in AGENT_KINDS
    if life.open:
        attempt.ahead |= kind is Kind.PREFETCH
        attempt.computes |= kind in COMPUTES
        attempt.says_delivers |= kind in (Kind.DELIVER, Kind.LOST)
    attempt.staging |= kind is Kind.STAGE_IN
    attempt.ran |= kind is Kind.RUN


def _save(job: Job, home: int) -> None:
    """The output that was home from stretch `home` on was a checkpoint.

    It holds the work of its attempt before. A command that never stopped went on computing from
    there; where an agent was done, nothing went on until it was started again.
    """
    attempt = len(job.attempts) - 1
    job.attempts[attempt].checkpoints += 1
    for stretch in job.stretches[home:]:
        if stretch.phase is Phase.TRANSFER_OUT:
            stretch.phase = Phase.CHECKPOINT if stretch.stopped else Phase.COMPUTE
            stretch.saved = stretch.stopped
    before = [stretch for stretch in job.stretches[:home] if stretch.attempt == attempt]
    for stretch in before:
        stretch.saved = True
    for stretch in reversed(before):
        if stretch.phase in (Phase.TRANSFER_OUT, Phase.WAITING):
            stretch.phase = Phase.CHECKPOINT
        elif stretch.phase not in PAUSES:
            break


def _close(job: Job, rest: list[Row], kind: Kind, now: int, after: Life) -> None:
    """The attempt ends with the first of `rest`."""
    attempt, teller = job.attempts[-1], rest[0]
    attempt.end = now
    attempt.executed |= kind in (Kind.SUCCEEDED, Kind.FAILED, Kind.REQUEUED)
    attempt.evicted = kind in LOSSES
    better = _explanation(rest[1:], now, after) if kind in LOSSES else None
    if better:
        teller, kind, attempt.evicted = better, better.kind, False
    attempt.teller = teller
    attempt.success = kind in (Kind.SUCCEEDED, Kind.SKIPPED)
    if attempt.success:
        return
    end = (teller.code, teller.subcode, teller.value, attempt.executed, attempt.agent)
    code, subcode = (None if each == NONE else each for each in (teller.code, teller.subcode))
    entry = classify(code, subcode, teller.text).id if kind in WITH_REASON else ""
    attempt.cause = cause_of(End(kind, *end, bool(re.search(CUT, teller.text)), entry))
    if attempt.cause in TRANSFERS and not attempt.executed:
        # HTCondor says "finished" of an input transfer that failed, too.
        for stretch in job.stretches:
            if stretch.attempt == len(job.attempts) - 1 and stretch.phase is Phase.STARTING:
                stretch.phase = Phase.TRANSFER_IN


def _explanation(rest: list[Row], now: int, life: Life) -> Row | None:
    """The 012 or 009 that follows within two seconds, before anything else begins."""
    for row in rest:
        if row.time - now > 2 * SECOND:
            return None
        life, effect = step(life, Kind.OTHER if _is_line(row) else row.kind)
        if row.kind in (Kind.HELD, Kind.REMOVED):
            return row
        if effect & Effect.OPENED or life.phase is None:
            return None
    return None


def _hold(job: Job, row: Row, kind: Kind, now: int, before: Status, after: Status) -> None:
    if before is Status.HELD and (kind is Kind.HELD or after is not Status.HELD):
        hold = job.holds[-1]
        hold.end, hold.released = now, kind not in (Kind.HELD, Kind.REMOVED)
    if kind is Kind.HELD:
        ended = [n for n, each in enumerate(job.attempts) if each.teller is row]
        job.holds.append(Hold(row, ended[0] if ended else None, now))


def _outcome(status: Status, kind: Kind) -> JobOutcome:
    if status is Status.REMOVED:
        return JobOutcome.REMOVED
    good = kind in (Kind.SUCCEEDED, Kind.SKIPPED)
    return JobOutcome.SUCCESS if good else JobOutcome.FAILED


def _with_sites(jobs: list[Job]) -> list[Job]:
    """Where no event names the site: the only one that the machine is ever at, or the machine."""
    attempts = [attempt for job in jobs for attempt in job.attempts]
    for attempt in attempts:
        there = {a.named for a in attempts if a.named and a.machine == attempt.machine}
        only = there.pop() if attempt.machine and len(there) == 1 else ""
        attempt.site = attempt.named or only or attempt.machine
    return jobs
