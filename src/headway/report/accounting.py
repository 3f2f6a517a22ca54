"""Accounting: from events as columns to where every second of every job went.

The time between two events of a job is one piece, and the automaton of `events.life` says what it
was spent with. So the pieces of a job lie end to end and add up to its time, whatever the log says.
What a piece was worth is only known at the end: by how its attempt ended, by how the job ended, and
by the last checkpoint between.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headway.events.columnar.columns import NONE, Columns, Longs
from headway.events.columnar.thin import MANY
from headway.events.event import AGENT_KINDS, Kind, Phase, Status
from headway.events.life import Effect
from headway.holds import classify, table
from headway.node.errors import Exit
from headway.report.accounts import Accounts
from headway.report.deliveries import DELIVERY, deliveries
from headway.report.enums import Cause, Delivery, JobOutcome, Worth
from headway.report.tables import (
    AccountedJobs,
    AttemptArrays,
    JobArrays,
    PieceArrays,
    TableBuilder,
    distinct,
)
from headway.report.timeline import (
    CAUSE,
    OUTCOME,
    PHASE,
    STATUS,
    VERDICT,
    Codes,
    Flags,
    JobEvents,
    Timeline,
    any_between,
    group_by_job,
    last_events,
)

#: A transfer that was cut off or stalled, as a pattern that Python and Polars both take.
CUT = r"(?is)stalled for \d+ seconds|lack of progress|transfer.{0,80}(stalled|timed out|time-?out)"
#: Kinds of ends whose reason, by the table of holds, tells the cause.
WITH_REASON = (Kind.HELD, Kind.EVICTED, Kind.TRANSFER_FAILED, Kind.SHADOW_EXCEPTION)


class End(NamedTuple):
    """The end of an attempt, as far as its cause depends on it."""

    kind: int
    code: int = NONE
    subcode: int = NONE
    value: int = NONE
    executed: bool = True  # it got as far as 001
    agent: bool = False  # its exit codes are those of the agent
    cut: bool = False  # its reason says that a transfer was cut off
    entry: str = ""  # of the table of holds, which its reason belongs to


_PLUGIN_TIME_OUT = 62
_STARTER_GAVE_UP = 1007
_RECONNECT_FAILED = 1008

#: What entries of the table of holds mean for an attempt that they ended.
_BY_ENTRY = {
    "over-time": Cause.OVER_TIME,
    "over-time-by-policy": Cause.OVER_TIME,
    "own-rule-time": Cause.OVER_TIME,
    "output-file-missing": Cause.FAILED,
    "output-unreadable": Cause.FAILED,
    "command-failed": Cause.FAILED,
    "command-crashed": Cause.FAILED,
    "contact-lost": Cause.DISCONNECT,
    "wrapper-failed": Cause.BAD_NODE,
    "container-node": Cause.BAD_NODE,
    "node-failed": Cause.BAD_NODE,
    "site-fault": Cause.BAD_NODE,
}
_TRANSFER_ENTRIES = ("input-", "output-", "transfer-", "headway-input", "headway-delivery")

_AGENT = {
    int(Exit.BAD_NODE): Cause.BAD_NODE,
    int(Exit.INPUT_RETRYABLE): Cause.TRANSFER_FAILED,
    int(Exit.INPUT_FAILED): Cause.TRANSFER_FAILED,
    int(Exit.OUT_OF_TIME): Cause.OVER_TIME,
    int(Exit.AGENT_ERROR): Cause.SYSTEM,
}


def cause_of(end: End) -> Cause:
    """Why an attempt that ended like this has no result."""
    if end.kind in (Kind.FAILED, Kind.REQUEUED):
        found = _AGENT.get(end.value) if end.agent else None
        return found or Cause.FAILED
    if end.kind == Kind.REMOVED:
        return Cause.REMOVED
    if end.kind == Kind.RECONNECT_FAILED:
        return Cause.DISCONNECT
    if end.kind in WITH_REASON:
        return _by_reason(end)
    return Cause.UNKNOWN


def _by_reason(end: End) -> Cause:
    """By what the reason says; where it says nothing of use, by the kind of event."""
    evicted = end.kind in (Kind.EVICTED, Kind.TRANSFER_FAILED)
    if evicted and end.code == _RECONNECT_FAILED:
        return Cause.DISCONNECT
    if end.entry in _BY_ENTRY:
        return _BY_ENTRY[end.entry]
    if end.entry.startswith(_TRANSFER_ENTRIES):
        cut = end.cut or end.subcode == _PLUGIN_TIME_OUT or end.entry == "input-too-slow"
        return Cause.TRANSFER_CUT if cut else Cause.TRANSFER_FAILED
    if end.cut and (evicted or not end.executed):
        return Cause.TRANSFER_CUT
    if not evicted:
        return Cause.HOLD if end.kind == Kind.HELD else Cause.SYSTEM
    gave_up = end.code == _STARTER_GAVE_UP and not end.executed
    return Cause.TRANSFER_CUT if gave_up else Cause.EVICTION


#: A reason's kind shows in its beginning; one line of a hostile log may be megabytes.
LONGEST = 600

# In this order: what stays readable first, then what differs from job to job.
_MASKS = (
    # Nor is one error of the system another one.
    (r"(?i)\b(errno)[ :=]+(\d{1,3})\b", "${1}_$2"),
    # A 404 is another thing than a 503: the digits of an HTTP status stay.
    (r"(?i)\b(returned|status|http/\S+|code|error)([ :=]+)([45]\d\d)\b", "$1 HTTP_$3"),
    (
        r"(?i)\b([45]\d\d)\b(:? (?:page|not|no|forbidden|bad|internal|service|gateway|too)\b)",
        "HTTP_$1$2",
    ),
    (r"<[0-9a-fA-F.:\[\]]+(?::\d+)?[^>\s]*>", "HOST"),
    (r"\b[A-Za-z][A-Za-z0-9+.-]*://[^\s,;|)'\"]*", "URL"),
    (r"\b[\w.-]+@[\w.@-]+", "SLOT"),
    (r"(^|[\s'\"(=:])/[^\s,;|)'\"]+", "${1}PATH"),
    (r"\b(?:[A-Za-z0-9][\w-]*\.){2,}[A-Za-z]{2,}(?::\d+)?\b", "HOST"),
    (r"\b[0-9a-fA-F]{8,}\b", "N"),
    (r"\b\d[\w.:+-]*", "N"),
)


def masked(reason: pl.Expr) -> pl.Expr:
    """The reason without what differs from job to job: numbers, hosts, paths, ids."""
    text = reason.fill_null("").str.slice(0, LONGEST)
    for pattern, put in _MASKS:
        text = text.str.replace_all(pattern, put)
    # Not a lone space, which stays as it is: that takes ten times as long.
    return text.str.replace_all(r"\s{2,}|[^\S ]", " ").str.strip_chars(" |.")


def with_template(frame: pl.DataFrame) -> pl.DataFrame:
    """Adds `template` to a frame with a `reason`; each different reason is looked at once.

    Args:
        frame: Rows with a reason each, or null.

    Returns:
        The rows in their order; a reason that was null is empty.
    """
    frame = frame.with_columns(pl.col("reason").cast(pl.String).fill_null(""))
    kinds, template = frame.select("reason").unique(), masked(pl.col("reason"))
    half = kinds.height // 2
    # Two halves, which polars works on at the same time.
    parts = (each.lazy().with_columns(template=template) for each in (kinds[:half], kinds[half:]))
    kinds = pl.concat(pl.collect_all(list(parts)))
    return frame.join(kinds, on="reason", how="left", maintain_order="left")


_KIND = ["code", "subcode", "template"]


def with_cause(frame: pl.DataFrame) -> pl.DataFrame:
    """Adds `template` and `cause`, the id of the table's entry, to a frame with codes and reasons.

    Args:
        frame: Rows with `code`, `subcode` and `reason`.

    Returns:
        The rows in their order. One reason of each kind is classified, however many rows there are.
    """
    frame = with_template(frame)
    # The same one, in whatever order they come.
    kinds = frame.group_by(_KIND, maintain_order=True).agg(pl.col("reason").min())
    causes = [
        classify(code, subcode, reason).id
        for code, subcode, reason in kinds.select("code", "subcode", "reason").iter_rows()
    ]
    kinds = kinds.select(_KIND).with_columns(cause=pl.Series(causes, dtype=pl.String))
    return frame.join(kinds, on=_KIND, how="left", nulls_equal=True, maintain_order="left")


#: Of an attempt without a checkpoint.
_NONE = -1
_TRANSFERS = [CAUSE[cause] for cause in (Cause.TRANSFER_CUT, Cause.TRANSFER_FAILED)]
#: What a checkpoint can hold. The transfers before it have to be made again all the same.
_WORK = [PHASE[phase] for phase in (Phase.COMPUTE, Phase.CHECKPOINT, Phase.DISCONNECTED)]
_PAUSES = (PHASE[Phase.DISCONNECTED], PHASE[Phase.SUSPENDED])


def pieces_of(timeline: Timeline, attempts: AttemptArrays, jobs: JobArrays) -> PieceArrays:
    """What the time after each event was spent with, and worth."""
    phase = timeline.phase.copy()
    held = _checkpoints(timeline, phase)
    owner = np.where(timeline.open, timeline.attempt, -1)
    # HTCondor says "finished" of an input transfer that failed, too.
    failed = ~attempts.executed & np.isin(attempts.cause, _TRANSFERS)
    phase[(phase == PHASE[Phase.STARTING]) & np.append(failed, False)[owner]] = PHASE[
        Phase.TRANSFER_IN
    ]
    verdict, cause = _goodput(phase, owner, attempts)
    pieces = PieceArrays(timeline.job, owner, phase, verdict, cause, timeline.time, timeline.length)
    if len(held):
        saved = timeline.attempt[(timeline.effect & Effect.SAVED) > 0]
        last = np.full(len(attempts.job), _NONE, np.int64)
        last[saved] = held
        _keep(pieces, last, attempts, jobs)
    return pieces


def _checkpoints(timeline: Timeline, phase: Codes) -> Longs:
    """Calls the outputs that came home in mid-attempt by their name.

    Gives for each the last piece before it was home: it holds the work up to there.
    """
    out, waiting = PHASE[Phase.TRANSFER_OUT], PHASE[Phase.WAITING]
    compute, checkpoint = PHASE[Phase.COMPUTE], PHASE[Phase.CHECKPOINT]
    # An attribute of an enumeration costs a microsecond, an element of an array a tenth of one.
    opened = int(Effect.OPENED)
    home, stopped, effect = timeline.saved, timeline.stopped, timeline.effect
    found = []
    for after in np.flatnonzero(effect & Effect.SAVED).tolist():
        at = after - 1
        while home[at]:
            # A command that never stopped went on; an agent that was done was started again.
            if phase[at] == out:
                phase[at] = checkpoint if stopped[at] else compute
            at -= 1
        found.append(at)
        while phase[at] in (out, waiting, *_PAUSES):
            if phase[at] not in _PAUSES:
                phase[at] = checkpoint
            if effect[at] & opened:
                break
            at -= 1
    return np.array(found, np.int64)


def _goodput(phase: Codes, owner: Longs, attempts: AttemptArrays) -> tuple[Codes, Codes]:
    """The verdict on each piece, and the cause of its loss, by the end of its attempt."""
    verdict = np.zeros(len(phase), np.uint8)
    cause = np.zeros(len(phase), np.uint8)
    mine = np.flatnonzero(owner >= 0)
    attempt = owner[mine]
    good = attempts.success[attempt]
    open_ = attempts.open[attempt]
    suspended = phase[mine] == PHASE[Phase.SUSPENDED]
    verdict[mine] = np.where(
        open_, VERDICT[Worth.OPEN], np.where(good, VERDICT[Worth.GOOD], VERDICT[Worth.BAD])
    )
    cause[mine] = np.where(good | open_, 0, attempts.cause[attempt])
    verdict[mine[suspended]] = VERDICT[Worth.BAD]
    cause[mine[suspended]] = CAUSE[Cause.SUSPENDED]
    return verdict, cause


def _keep(pieces: PieceArrays, last: Longs, attempts: AttemptArrays, jobs: JobArrays) -> None:
    """What a checkpoint holds is as good as its job; what came after it was done again.

    `last` is of each attempt the last piece that its last checkpoint holds.
    """
    bad = (pieces.attempt >= 0) & (pieces.verdict == VERDICT[Worth.BAD])
    at = np.flatnonzero(bad & np.isin(pieces.phase, _WORK))
    attempt, phase = pieces.attempt[at], pieces.phase[at]
    saves = last != _NONE
    held = (at <= last[attempt]) | (phase == PHASE[Phase.CHECKPOINT])
    outcome = jobs.outcome[pieces.job[at]]
    done = at[held & (outcome == OUTCOME[JobOutcome.SUCCESS])]
    pieces.verdict[done], pieces.cause[done] = VERDICT[Worth.GOOD], 0
    waits = at[held & np.isin(outcome, [OUTCOME[JobOutcome.UNFINISHED], OUTCOME[JobOutcome.HELD]])]
    pieces.verdict[waits], pieces.cause[waits] = VERDICT[Worth.OPEN], 0
    removed = at[held & (outcome == OUTCOME[JobOutcome.REMOVED])]
    pieces.cause[removed] = CAUSE[Cause.REMOVED]
    # What cost the job its result cost it the work that it had saved, too.
    wrong = at[held & (outcome == OUTCOME[JobOutcome.FAILED])]
    final = np.searchsorted(attempts.job, pieces.job[wrong], side="right") - 1
    pieces.cause[wrong] = attempts.cause[final]
    # An attempt that began from a checkpoint of an earlier one had saved something too.
    again = ~held & (saves | _resumed(attempts, saves))[attempt]
    again &= (phase == PHASE[Phase.COMPUTE]) & (pieces.cause[at] == CAUSE[Cause.EVICTION])
    pieces.cause[at[again]] = CAUSE[Cause.REDONE]


def _resumed(attempts: AttemptArrays, saves: Flags) -> Flags:
    """Whether an earlier attempt of the same job left a checkpoint."""
    before: Longs = np.cumsum(saves) - saves
    first = np.searchsorted(attempts.job, attempts.job)
    return np.asarray(before > before[first])


def account(
    columns: Columns,
    *,
    until: float | None = None,
    since: float | None = None,
    outputs: Mapping[tuple[int, int], bool] | None = None,
) -> Accounts:
    """The accounts of all jobs in the columns.

    Args:
        columns: The events.
        until: Jobs that go on are accounted up to then; by default, up to the last event of their
            own log: nobody knows what came after it.
        since: Jobs whose last event is earlier are left out.
        outputs: Of jobs, whether their declared outputs are there; one that is not makes a failed
            job of one that ended with 0.

    Returns:
        The accounts.
    """
    tables = TableBuilder()
    made, left_out = _accounted(columns, last_events(columns), until, since, outputs)
    tables.add(made)
    return tables.accounts(None, left_out)


def account_parts(
    parts: Iterable[Columns],
    ends: Longs,
    *,
    until: float | None = None,
    since: float | None = None,
    outputs: Mapping[tuple[int, int], bool] | None = None,
    events: int,
) -> Accounts:
    """The accounts of logs whose jobs come some after the other, each of them as a whole.

    Args:
        parts: The columns of some jobs each; at least one.
        ends: The time of the last event of each log.
        until: As for `account`.
        since: As for `account`.
        outputs: As for `account`.
        events: How many events there are; the columns need not have all of them.

    Returns:
        The accounts of all jobs.
    """
    tables, left_out = TableBuilder(), 0
    waiting = (_accounted(columns, ends, until, since, outputs) for columns in parts)
    # The next jobs are accounted while the tables of these are made, if there is room for both.
    room = events <= MANY
    with ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(next, waiting, None)
        while (part := coming.result()) is not None:
            if room:
                coming = ahead.submit(next, waiting, None)
            made, left = part
            left_out += left
            tables.add(made)
            del part, made  # before the next ones are made
            if not room:
                coming = ahead.submit(next, waiting, None)
    return tables.accounts(events, left_out)


def _accounted(
    columns: Columns,
    ends: Longs,
    until: float | None,
    since: float | None,
    outputs: Mapping[tuple[int, int], bool] | None,
) -> tuple[AccountedJobs, int]:
    """The accounts of these jobs as arrays, and how many jobs were left out."""
    found = every = group_by_job(columns)
    if since is not None:
        found = _recent(columns, every, int(since * 1e6))
    timeline = Timeline(columns, found, outputs or {}, until, ends)
    attempts = _attempts(columns, timeline)
    jobs = _jobs(timeline, attempts)
    _judge_handed(timeline, attempts, jobs)
    pieces = pieces_of(timeline, attempts, jobs)
    made = AccountedJobs(columns, timeline, jobs, attempts, pieces)
    return made, len(every.first) - len(found.first)


#: Why the slot time of attempts was lost that left their outputs in a node's store.
_LOST = {
    Delivery.LOST: Cause.LOST_SANDBOX,
    Delivery.FAILED: Cause.FAILED,
    Delivery.REMOVED: Cause.REMOVED,
}


def _judge_handed(timeline: Timeline, attempts: AttemptArrays, jobs: JobArrays) -> None:
    """How an attempt ended that left its outputs in a store is how they came home."""
    at = np.flatnonzero(attempts.handed)
    if not len(at):
        return
    became = deliveries(timeline, jobs.outcome)
    attempts.success[at] = became == DELIVERY[Delivery.HOME]
    attempts.open[at] = became == DELIVERY[Delivery.WAITING]
    attempts.cause[at] = 0
    for delivery, cause in _LOST.items():
        attempts.cause[at[became == DELIVERY[delivery]]] = CAUSE[cause]
    attempts.entry[at] = attempts.template[at] = -1


def _recent(columns: Columns, found: JobEvents, since: int) -> JobEvents:
    if not len(found.first):
        return found
    newest = np.maximum.reduceat(columns.time[found.rows], found.first)
    job = found.job
    keep = (newest >= since)[job]
    rows, job = found.rows[keep], job[keep]
    starts = np.append(True, job[1:] != job[:-1]) if len(rows) else np.zeros(0, bool)
    return JobEvents(rows, np.flatnonzero(starts))


#: Seconds between a 004 and the 012 or 009 that explains it.
_SAME_CAUSE = 2_000_000
_LOSSES = (Kind.EVICTED, Kind.TRANSFER_FAILED, Kind.SHADOW_EXCEPTION, Kind.RECONNECT_FAILED)
_SUCCESSES = (Kind.SUCCEEDED, Kind.SKIPPED)
_BY_THEMSELVES = (Kind.SUCCEEDED, Kind.FAILED, Kind.REQUEUED)
_AGENT_KINDS = [int(kind) for kind in AGENT_KINDS]


def _attempts(columns: Columns, timeline: Timeline) -> AttemptArrays:
    """One entry an attempt that computes."""
    spans = timeline.spans
    opened, end, ended, overtaken = spans
    job, over = timeline.job[opened], ended | overtaken
    end_event = np.full(len(job), -1, np.int64)
    end_event[ended] = _end_events(timeline, end[ended])
    executed = any_between(timeline.executed, spans)
    executed |= ended & np.isin(timeline.kind[end_event], _BY_THEMSELVES)  # the log lost their 001
    agent = any_between(np.isin(timeline.kind, _AGENT_KINDS), spans)
    success = ended & np.isin(timeline.kind[end_event], _SUCCESSES)
    cause = np.zeros(len(job), np.uint8)
    cause[overtaken] = CAUSE[Cause.UNKNOWN]
    lost = np.flatnonzero(ended & ~success)
    said = _read_reasons(columns, timeline, end_event[lost])
    cause[lost] = _causes(columns, timeline, end_event[lost], executed[lost], agent[lost], said)
    entry, template = (np.full(len(job), -1, np.int64) for _ in range(2))
    entry[lost], template[lost] = said.entry, said.template
    saved = timeline.attempt[(timeline.effect & Effect.SAVED) > 0]
    return AttemptArrays(
        job=job,
        begin_us=timeline.time[opened],
        end_us=np.where(over, np.append(timeline.time, 0)[end], timeline.until[job]),
        open=~over,
        executed=executed,
        end_event=end_event,
        success=success,
        cause=cause,
        evicted=ended & (end_event == end) & np.isin(timeline.kind[end_event], _LOSSES),
        checkpoints=np.bincount(saved, minlength=len(job)),
        entry=entry,
        template=template,
        templates=said.templates,
        handed=timeline.handed,
    )


def _end_events(timeline: Timeline, close: Longs) -> Longs:
    """The events that say why attempts ended: a 012 or 009 explains the 004 just before it."""
    explains = np.flatnonzero(np.isin(timeline.kind, (Kind.HELD, Kind.REMOVED)))
    opened = np.flatnonzero(timeline.effect & Effect.OPENED)
    never = len(timeline.rows)
    better = np.append(explains, never)[np.searchsorted(explains, close, side="right")]
    begins = np.append(opened, never)[np.searchsorted(opened, close, side="right")]
    found = np.isin(timeline.kind[close], _LOSSES)
    found &= (better < begins) & (better <= timeline.last[timeline.job[close]])
    found &= np.append(timeline.time, 0)[better] - timeline.time[close] <= _SAME_CAUSE
    return np.where(found, better, close)


def _causes(
    columns: Columns,
    timeline: Timeline,
    end_event: Longs,
    executed: Flags,
    agent: Flags,
    said: _Reasons,
) -> NDArray[np.uint8]:
    """The causes of these ends, which come in few kinds: each kind is judged once."""
    rows, kind = timeline.rows[end_event], timeline.kind[end_event]
    code, subcode, value = (each[rows] for each in (columns.code, columns.subcode, columns.value))
    ends: list[NDArray[Any]] = [kind, code, subcode, value, executed, agent, said.cut, said.entry]
    key, room = np.zeros(len(end_event), np.int64), 1
    for part in ends:
        place = np.where(part == NONE, -1, part).astype(np.int64)
        place -= place.min(initial=0)
        span = int(place.max(initial=0)) + 1
        if room * span >= 2**62:  # only then is the sorting worth its time
            place = np.unique(place, return_inverse=True)[1]
            key = np.unique(key, return_inverse=True)[1]
            room, span = int(key.max(initial=0)) + 1, int(place.max(initial=0)) + 1
        key, room = key * span + place, room * span
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    kinds = [part[first].tolist() for part in ends[:-1]]
    names = [*(each.id for each in table()), ""]
    kinds.append([names[place] for place in said.entry[first].tolist()])
    causes = [CAUSE[cause_of(End(*kind))] for kind in zip(*kinds, strict=True)]
    return np.array(causes, np.uint8)[which]


class _Reasons(NamedTuple):
    """What the reasons of ends say."""

    cut: Flags  # that a transfer was cut off
    entry: Longs  # of the table of holds, -1 for none
    template: Longs  # place in `templates`, -1 for none
    templates: list[str]


def _read_reasons(columns: Columns, timeline: Timeline, end_event: Longs) -> _Reasons:
    rows, kind = timeline.rows[end_event], timeline.kind[end_event]
    cut = np.zeros(len(kind), bool)
    entry, template = (np.full(len(kind), -1, np.int64) for _ in range(2))
    at = np.flatnonzero(np.isin(kind, WITH_REASON))
    if not len(at):
        return _Reasons(cut, entry, template, [])
    rows = rows[at]
    used, place = distinct(columns.text[rows])
    words = [columns.strings[each] if each >= 0 else "" for each in used.tolist()]
    reasons = pl.Series("reason", words, dtype=pl.String)
    cut[at] = reasons.str.contains(CUT).to_numpy()[place]
    frame = pl.DataFrame(
        {"code": columns.code[rows], "subcode": columns.subcode[rows], "place": place}
    )
    kinds = frame.unique(maintain_order=True)
    asked = kinds.select(pl.col("code", "subcode").replace(NONE, None)).with_columns(
        reasons.gather(kinds.get_column("place"))
    )
    found = with_cause(asked)
    entries = {each.id: number for number, each in enumerate(table())}
    templates = found.get_column("template").unique(maintain_order=True).to_list()
    numbers = {text: number for number, text in enumerate(templates)}
    kinds = kinds.with_columns(
        entry=found.get_column("cause").replace_strict(entries, return_dtype=pl.Int64),
        template=found.get_column("template").replace_strict(numbers, return_dtype=pl.Int64),
    )
    joined = frame.join(kinds, on=frame.columns, how="left", maintain_order="left")
    entry[at] = joined.get_column("entry").to_numpy()
    template[at] = joined.get_column("template").to_numpy()
    return _Reasons(cut, entry, template, templates)


def _jobs(timeline: Timeline, attempts: AttemptArrays) -> JobArrays:
    count = len(timeline.first)
    status = timeline.status[timeline.last] if count else np.zeros(0, np.uint8)
    outcome = np.full(count, OUTCOME[JobOutcome.UNFINISHED], np.uint8)
    outcome[status == STATUS[Status.HELD]] = OUTCOME[JobOutcome.HELD]
    outcome[status == STATUS[Status.REMOVED]] = OUTCOME[JobOutcome.REMOVED]
    outcome[status == STATUS[Status.COMPLETED]] = OUTCOME[JobOutcome.FAILED]
    over = timeline.ended >= 0
    good = np.flatnonzero(over)
    good = good[np.isin(timeline.kind[timeline.ended[good]], _SUCCESSES)]
    outcome[good] = OUTCOME[JobOutcome.SUCCESS]
    return JobArrays(
        outcome=outcome,
        begin_us=timeline.time[timeline.first],
        end_us=np.where(over, np.append(timeline.time, 0)[timeline.ended], timeline.until),
        submitted=timeline.first_of(timeline.kind == Kind.SUBMITTED),
        held=timeline.last_of(timeline.kind == Kind.HELD),
        ended=timeline.ended,
        holds=np.bincount(timeline.job[timeline.kind == Kind.HELD], minlength=count),
        requeues=np.bincount(timeline.job[_requeues(timeline)], minlength=count),
        checkpoints=np.bincount(attempts.job, attempts.checkpoints, minlength=count).astype(
            np.int64
        ),
    )


def _requeues(timeline: Timeline) -> Flags:
    """Attempts that were put back; not those that left their outputs, nor couriers."""
    found = timeline.kind == Kind.REQUEUED
    if timeline.delivers:
        found &= ((timeline.effect & Effect.LEFT) == 0) & (timeline.courier < 0)
    return np.asarray(found)
