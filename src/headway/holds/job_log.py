"""What a job's event log tells heal: its holds so far, and how a release ended. Pure."""

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
_KEPT = 400  # events of a job; a release is about the last few
_SLACK = 2.0  # seconds between what the queue and the log say of the same moment
_BY_USER = 1
_UNBORN = Life()
#: The command's own words and its growing memory say nothing about holds.
_IGNORED = frozenset({EventType.GENERIC, EventType.IMAGE_SIZE})
_ENDS = frozenset({Kind.SUCCEEDED, Kind.FAILED, Kind.REMOVED, Kind.HELD})
_STEPS = _ENDS | {
    Kind.EXECUTING, Kind.RELEASED, Kind.EVICTED, Kind.TRANSFER_FAILED, Kind.REQUEUED
}  # fmt: skip


class JobStep(NamedTuple):
    """What one event says of how a job goes on."""

    kind: Kind
    time: float
    code: int | None = None
    subcode: int | None = None
    return_value: int | None = None
    reason: str = ""


@dataclass(slots=True)
class LoggedJob:
    """One job, as its log tells it so far."""

    life: Life = _UNBORN
    whole: bool = False  # the log has it from its submit on
    held: bool = False
    holds: int = 0  # a 012 of a job that is held already counts no more than once
    unwanted: int = 0  # holds that no person made
    releases: int = 0  # of those
    code: int = 0
    subcode: int = 0
    reason: str = ""
    time: float = 0.0
    #: Its last steps; of a job that was never held, and most never are, none are kept.
    steps: deque[JobStep] | None = None

    def take(self, event: Event) -> bool:
        """Take in one event; tells whether it says how a job that was held goes on."""
        if event.number in _IGNORED:
            return False
        kind = kind_of(event)
        if kind is Kind.SUBMITTED:
            # A cluster's number can come again, when a schedd begins anew.
            self.life, self.held, self.whole, self.steps = _UNBORN, False, True, None
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
            self.steps = deque(maxlen=_KEPT)
        reason = event.reason if kind in (Kind.HELD, Kind.RELEASED) else ""
        value = event.return_value if kind in (Kind.SUCCEEDED, Kind.FAILED) else None
        self.steps.append(
            JobStep(kind, event.time, event.code, event.subcode, value, reason[:_COMPARED])
        )
        return True


def news_of(
    entry: HealAction, steps: Sequence[JobStep], now: float, rules: Rules
) -> list[dict[str, Any]]:
    """The lines of the audit that the steps of its job add to an act."""
    intent = entry.intent
    after = _after(intent, steps)
    lines: list[dict[str, Any]] = []
    started = next((step.time for step in after if step.kind is Kind.EXECUTING), None)
    end = next((step for step in after if step.kind in _ENDS), None)
    if started is not None and not entry.passed and entry.is_release:
        until = end.time if end else now
        if intent.early or until - started >= rules.settled:
            lines.append({"kind": "passed", "id": intent.id})
    if end is not None:
        lines.append({"kind": "outcome", "id": intent.id, **_ending(intent, end)})
    return lines


def _after(intent: Intent, steps: Sequence[JobStep]) -> Sequence[JobStep]:
    """What came after the release of this hold, a removal while it was held included."""
    ours = [
        n
        for n, step in enumerate(steps)
        if step.kind is Kind.RELEASED and intent.claim and intent.claim in step.reason
    ]
    if ours:
        return steps[ours[0] + 1 :]
    # The queue says that it was done, and the log has it under another name.
    holds = [
        n
        for n, step in enumerate(steps)
        if step.kind is Kind.HELD and abs(step.time - intent.since) <= _SLACK
    ]
    rest = steps[holds[-1] + 1 :] if holds else ()
    for n, step in enumerate(rest):
        if step.kind is Kind.REMOVED:
            return (step,)
        if step.kind is Kind.RELEASED:
            return rest[n + 1 :]
    return ()


def is_same_cause(intent: Intent, code: int, subcode: int, reason: str) -> bool:
    """Whether a later hold has the cause that the job was released from.

    A job that was out of memory and now runs into its time limit is past what had held it, although
    a hold is a hold. The causes of one input transfer count as one: a cache that is sick answers
    now with one error and now with another.
    """
    now = classify(code, subcode, reason)
    before = next((entry for entry in table() if entry.id == intent.cause), None)
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
        return {
            "how": (ReleaseEnding.HELD if same else ReleaseEnding.OTHER).value,
            "same": same,
            **facts,
        }
    how = ReleaseEnding.SUCCESS if step.kind is Kind.SUCCEEDED else ReleaseEnding.FAILED
    return {"how": how.value, "return_value": step.return_value, **facts}
