"""How a release ended, as the job's event log tells; pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headway.events import Event, EventType
from headway.heal.rules import Rules
from headway.heal.state import Done, Ending, Intent
from headway.holds.table import INPUT, classify, table

_SAID = 300  # characters of a reason in the audit
_COMPARED = 2000  # and of one by which a cause is known
_KEPT = 400  # events of a job; a release is about the last few
_SLACK = 2.0  # seconds between what the queue and the log say of the same moment
_TOLD = frozenset(
    {
        EventType.EXECUTE,
        EventType.TERMINATED,
        EventType.ABORTED,
        EventType.HELD,
        EventType.RELEASED,
        EventType.EVICTED,
    }
)


class Step(NamedTuple):
    """What one event says of how a job goes on."""

    number: int
    time: float
    code: int | None = None
    subcode: int | None = None
    return_value: int | None = None
    reason: str = ""


@dataclass(slots=True)
class Trail:
    """The last steps of one job, in the order of its log."""

    steps: deque[Step] = field(default_factory=lambda: deque(maxlen=_KEPT))

    def take(self, event: Event) -> bool:
        """Take in an event; tells whether it matters here."""
        if event.number not in _TOLD:
            return False
        reason = event.reason if event.number in (EventType.HELD, EventType.RELEASED) else ""
        self.steps.append(
            Step(
                event.number,
                event.time,
                event.code,
                event.subcode,
                event.return_value if event.number == EventType.TERMINATED else None,
                reason[:_COMPARED],
            )
        )
        return True


def news_of(entry: Done, trail: Sequence[Step], now: float, rules: Rules) -> list[dict[str, Any]]:
    """The lines of the audit that the trail adds to an act."""
    intent = entry.intent
    after = _after(intent, trail)
    lines: list[dict[str, Any]] = []
    started = next((step.time for step in after if step.number == EventType.EXECUTE), None)
    end = next((step for step in after if step.number in _ENDINGS), None)
    if started is not None and not entry.passed and entry.is_release:
        until = end.time if end else now
        if intent.early or until - started >= rules.settled:
            lines.append({"kind": "passed", "id": intent.id})
    if end is not None:
        lines.append({"kind": "outcome", "id": intent.id, **_ending(intent, end)})
    return lines


_ENDINGS = frozenset({EventType.TERMINATED, EventType.ABORTED, EventType.HELD})


def _after(intent: Intent, trail: Sequence[Step]) -> Sequence[Step]:
    """What came after the release of this hold, a removal while it was held included."""
    ours = [
        n
        for n, step in enumerate(trail)
        if step.number == EventType.RELEASED and intent.claim and intent.claim in step.reason
    ]
    if ours:
        return trail[ours[0] + 1 :]
    # The queue says that it was done, and the log has it under another name.
    holds = [
        n
        for n, step in enumerate(trail)
        if step.number == EventType.HELD and abs(step.time - intent.since) <= _SLACK
    ]
    rest = trail[holds[-1] + 1 :] if holds else ()
    for n, step in enumerate(rest):
        if step.number == EventType.ABORTED:
            return (step,)
        if step.number == EventType.RELEASED:
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


def _ending(intent: Intent, step: Step) -> dict[str, Any]:
    facts: dict[str, Any] = {"at": step.time}
    if step.number == EventType.ABORTED:
        return {"how": Ending.REMOVED.value, **facts}
    if step.number == EventType.HELD:
        facts |= {"code": step.code, "subcode": step.subcode, "reason": step.reason[:_SAID]}
        same = is_same_cause(intent, step.code or 0, step.subcode or 0, step.reason)
        return {"how": (Ending.HELD if same else Ending.OTHER).value, "same": same, **facts}
    how = Ending.SUCCESS if step.return_value == 0 else Ending.FAILED
    return {"how": how.value, "return_value": step.return_value, **facts}
