"""What a job's event log says: its holds so far, and how a release ended. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headway.events import Event, EventType, Status
from headway.events.event import Kind, kind_of
from headway.events.life import Life
from headway.events.life import step as advance
from headway.holds.audit import HealAction, Intent, ReleaseEnding
from headway.holds.rules import Rules
from headway.holds.table import INPUT, classify, table

_SAID = 300  # characters of a reason in the audit
_COMPARED = 2000  # and of one by which a cause is known
_MOST_STEPS = 400  # of a job; a release is about the last few
_SLACK = 2.0  # seconds by which queue and log may differ about the time of an event
_BY_USER = 1
_UNBORN = Life()
#: The job's own messages and its memory use say nothing about holds.
_IGNORED = frozenset({EventType.GENERIC, EventType.IMAGE_SIZE})
_ENDS = frozenset({Kind.SUCCEEDED, Kind.FAILED, Kind.REMOVED, Kind.HELD})
_STEPS = _ENDS | {
    Kind.EXECUTING, Kind.RELEASED, Kind.EVICTED, Kind.TRANSFER_FAILED, Kind.REQUEUED
}  # fmt: skip


class JobStep(NamedTuple):
    """An event that says how a job goes on."""

    kind: Kind
    time: float
    code: int | None = None
    subcode: int | None = None
    return_value: int | None = None
    reason: str = ""


@dataclass(slots=True)
class LoggedJob:
    """One job, as its log shows it so far."""

    life: Life = _UNBORN
    complete: bool = False  # the log has it from its submit on
    held: bool = False
    holds: int = 0  # a second 012 while it is held does not count
    unwanted: int = 0  # holds that no person made
    releases: int = 0  # of those
    code: int = 0
    subcode: int = 0
    reason: str = ""
    time: float = 0.0
    #: Its last steps; None for a job that was never held, as most are.
    steps: deque[JobStep] | None = None

    def take(self, event: Event) -> bool:
        """Apply one event; returns whether it says how a job that was held goes on."""
        if event.number in _IGNORED:
            return False
        kind = kind_of(event)
        if kind is Kind.SUBMITTED:
            # A schedd that was set up again counts clusters from 1.
            self.life, self.held, self.complete, self.steps = _UNBORN, False, True, None
            self.holds = self.unwanted = self.releases = 0
        was_held = self.held
        self.life, _ = advance(self.life, kind)
        self.held = self.life.status is Status.HELD
        if kind is Kind.HELD and self.held:
            self.code, self.subcode = event.codes or (0, 0)
            self.holds += not was_held
            self.unwanted += not was_held and self.code != _BY_USER
            self.reason, self.time = event.reason, event.time
        elif kind is Kind.RELEASED:
            self.releases += was_held and self.code != _BY_USER
        return kind in _STEPS and self._keep(kind, event)

    def _keep(self, kind: Kind, event: Event) -> bool:
        if self.steps is None:
            if kind is not Kind.HELD:
                return False
            self.steps = deque(maxlen=_MOST_STEPS)
        reason = event.reason if kind in (Kind.HELD, Kind.RELEASED) else ""
        value = event.return_value if kind in (Kind.SUCCEEDED, Kind.FAILED) else None
        self.steps.append(
            JobStep(kind, event.time, event.code, event.subcode, value, reason[:_COMPARED])
        )
        return True


def news_of(
    action: HealAction, steps: Sequence[JobStep], now: float, rules: Rules
) -> list[dict[str, Any]]:
    """The records that the audit gets about an action, by the steps of its job."""
    intent = action.intent
    after = _after(intent, steps)
    lines: list[dict[str, Any]] = []
    started = next((step.time for step in after if step.kind is Kind.EXECUTING), None)
    end = next((step for step in after if step.kind in _ENDS), None)
    if started is not None and not action.passed and action.is_release:
        until = end.time if end else now
        if intent.early or until - started >= rules.settled:
            lines.append({"kind": "passed", "id": intent.id})
    if end is not None:
        lines.append({"kind": "outcome", "id": intent.id, **_ending(intent, end)})
    return lines


def _after(intent: Intent, steps: Sequence[JobStep]) -> Sequence[JobStep]:
    """What came after the release of this hold, or the removal that ended the hold."""
    after_hold: Sequence[JobStep] = ()
    for n, step in enumerate(steps, 1):
        if step.kind is Kind.RELEASED and intent.claim and intent.claim in step.reason:
            return steps[n:]
        if step.kind is Kind.HELD and abs(step.time - intent.since) <= _SLACK:
            after_hold = steps[n:]
    # The queue says that it was done, but the log does not say by whom.
    for n, step in enumerate(after_hold, 1):
        if step.kind is Kind.REMOVED:
            return (step,)
        if step.kind is Kind.RELEASED:
            return after_hold[n:]
    return ()


def is_same_cause(intent: Intent, code: int, subcode: int, reason: str) -> bool:
    """Whether a later hold has the cause that the job was released from.

    A job that was out of memory and now exceeds its time limit is past what had held it. All causes
    of failed input transfers count as one, because a faulty cache answers with different errors.
    """
    now = classify(code, subcode, reason)
    before = next((meaning for meaning in table() if meaning.id == intent.cause), None)
    if before is None:
        return code == intent.code
    both_inputs = before.step == now.step == INPUT
    return before is now or both_inputs or (bool(now.raises) and before.raises == now.raises)


def _ending(intent: Intent, step: JobStep) -> dict[str, Any]:
    facts: dict[str, Any] = {"at": step.time}
    if step.kind is Kind.REMOVED:
        return {"how": ReleaseEnding.REMOVED.value, **facts}
    if step.kind is Kind.HELD:
        facts |= {"code": step.code, "subcode": step.subcode, "reason": step.reason[:_SAID]}
        same = is_same_cause(intent, step.code or 0, step.subcode or 0, step.reason)
        how = ReleaseEnding.HELD if same else ReleaseEnding.OTHER
        return {"how": how.value, "same": same, **facts}
    how = ReleaseEnding.SUCCESS if step.kind is Kind.SUCCEEDED else ReleaseEnding.FAILED
    return {"how": how.value, "return_value": step.return_value, **facts}
