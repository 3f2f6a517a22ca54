"""Advice: what to do about one hold, how sure that is, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from headway.advisor.hold import Hold
from headway.events.classad import inert


class Act(str, Enum):
    """What to do about a held job."""

    RELEASE = "release"
    CHANGE = "change"  # and release then
    REMOVE = "remove"
    WAIT = "wait"  # until what `Advice.until_words` says, and release then
    UNKNOWN = "cannot tell"
    LEAVE = "leave"  # somebody holds it on purpose: no advice


@dataclass(frozen=True)
class Change:
    """One thing to change before the job is released.

    `attribute` is the job's, and `new` a ClassAd expression for it, as for `Pool.edit`; both are
    empty where only a person can make the change. `line` is what to write into job.toml or the
    submit file, for the jobs to come.
    """

    words: str
    attribute: str = ""
    old: str = ""
    new: str = ""
    line: str = ""

    def as_json(self) -> dict[str, str]:
        """In types that JSON knows."""
        return {
            "words": self.words,
            "attribute": self.attribute,
            "old": self.old,
            "new": self.new,
            "line": self.line,
        }


@dataclass(frozen=True)
class Advice:
    """What to do about one hold.

    `probability` is that of a release succeeding, after the change where one is advised; None
    where nobody should ask (`leave`). `low` and `high` are its 90 % interval, `cases` how many
    releases and starts of others stand behind it, `thin` that they are too few to overrule the
    table of holds.
    """

    hold: Hold
    act: Act
    cause: str  # the id of the table's entry
    kind: str  # transient, permanent, depends, never
    probability: float | None
    low: float | None
    high: float | None
    cases: int
    thin: bool
    headline: str
    reasons: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    until: float | None = None  # seconds since the epoch, where the wait has a known end
    until_words: str = ""
    #: Whether the next start had better be at another site.
    avoid_site: bool = False
    #: Expected hours lost, in `cost_unit`; None: not known.
    cost_release: float | None = None
    cost_remove: float | None = None
    cost_unit: str = "GPU hours"
    command: str = ""
    #: Seconds to wait before it is worth asking again.
    next_check: float = 900.0

    def as_json(self) -> dict[str, Any]:
        """In types that JSON knows; text of the log is made harmless."""
        hold = self.hold
        return {
            "job": str(hold.job),
            "log": hold.log,
            "act": self.act.value,
            "cause": self.cause,
            "kind": self.kind,
            "probability": _rounded(self.probability),
            "low": _rounded(self.low),
            "high": _rounded(self.high),
            "cases": self.cases,
            "thin": self.thin,
            "headline": self.headline,
            "reasons": list(self.reasons),
            "changes": [change.as_json() for change in self.changes],
            "until": self.until,
            "until_words": self.until_words,
            "avoid_site": self.avoid_site,
            "cost_release": _rounded(self.cost_release),
            "cost_remove": _rounded(self.cost_remove),
            "cost_unit": self.cost_unit,
            "command": self.command,
            "next_check": self.next_check,
            "hold": {
                "time": hold.time,
                "code": hold.code,
                "subcode": hold.subcode,
                "reason": inert(hold.reason),
                "template": hold.template,
                "values": {name: inert(value) for name, value in hold.values.items()},
                "site": inert(hold.site),
                "slot": inert(hold.slot),
                "number": hold.holds,
                "starts": hold.starts,
                "user": inert(hold.user),
            },
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
