"""A held job in two words: the queue's, by which heal acts, and the log's, which is evidence."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headway.events import Event, EventType

HEAL = "HeadwayHeal"  # false: this job is nobody's to heal
HEALS = "HeadwayHeals"  # how often heal has released the job
CLAIM = "HeadwayHealClaim"  # the decision that is being carried out
FIRST = "HeadwayFirst"  # before the name of a request: what the user asked for
PLAIN = re.compile(r"[A-Za-z0-9/_.-]{0,100}\Z", re.ASCII)
_COUNT = re.compile(r"\b(\w+)\s*=\s*(\d{1,9})")


class Key(NamedTuple):
    """A job in its queue."""

    cluster: int
    proc: int

    def __str__(self) -> str:
        return f"{self.cluster}.{self.proc}"


@dataclass(frozen=True, slots=True)
class Held:
    """What the queue says of a job that is held now."""

    key: Key
    user: str
    holds: int
    since: float  # by the queue's clock
    age: float
    code: int
    subcode: int
    reason: str
    site: str = ""
    log: str = ""
    #: So much later than its rule says its pool may release it by itself: HTCondor looks at
    #: periodic expressions once a minute, and less often when it is busy.
    lag: float = 1800.0
    #: The job's whole ad, and that of its cluster: what is in the first and not in the second was
    #: set or edited since it was submitted.
    facts: Mapping[str, Any] = field(default_factory=dict)
    original: Mapping[str, Any] = field(default_factory=dict)

    @property
    def heals(self) -> int:
        """How often any heal has released it, as the job itself says."""
        return whole(self.facts.get(HEALS))

    @property
    def claim(self) -> str:
        """The decision that some heal carries out, or has carried out last."""
        claim = self.facts.get(CLAIM)
        return claim if isinstance(claim, str) and PLAIN.match(claim) else ""

    @property
    def starts(self) -> int:
        """Starts, those that ended in the input transfer included."""
        return max(whole(self.facts.get(name)) for name in ("NumShadowStarts", "NumJobStarts"))

    @property
    def holds_by_reason(self) -> dict[str, int]:
        """How often it was held for what; empty where the schedd does not count that."""
        found = self.facts.get("NumHoldsByReason")
        return {name: int(n) for name, n in _COUNT.findall(str(found or ""))}

    @property
    def wanted_holds(self) -> int:
        """Holds that somebody wanted: they are no failures, and their releases no healing."""
        counts = self.holds_by_reason
        return sum(counts.get(name, 0) for name in ("UserRequest", "SubmittedOnHold"))

    def is_edited(self, attribute: str) -> bool:
        """Whether an attribute is another than the job was submitted with."""
        return bool(self.original) and self.facts.get(attribute) != self.original.get(attribute)


@dataclass(slots=True)
class Told:
    """What the log says of a job so far."""

    whole: bool = False  # the log has it from its submit on
    held: bool = False
    holds: int = 0  # a 012 of a job that is held already counts no more than once
    unwanted: int = 0  # holds that no person made
    releases: int = 0  # of those
    code: int = 0
    subcode: int = 0
    reason: str = ""
    time: float = 0.0
    site: str = ""

    def take(self, event: Event) -> None:
        """Take in one event of the job, whatever it is."""
        number = event.number
        if number == EventType.SUBMIT:
            # A cluster's number can come again, when a schedd begins anew.
            self.whole, self.held = True, False
            self.holds = self.unwanted = self.releases = 0
        elif number == EventType.HELD:
            self.code, self.subcode = event.codes or (0, 0)
            self.holds += not self.held
            self.unwanted += not self.held and self.code != 1
            self.held = True
            self.reason, self.time = event.reason, event.time
        elif number == EventType.RELEASED:
            self.releases += self.held and self.code != 1
            self.held = False
        elif number in (EventType.EXECUTE, EventType.FILE_TRANSFER, EventType.TERMINATED):
            self.held = False
        self.site = event.site or self.site


def whole(value: object) -> int:
    """A count in an ad, which anybody may have edited."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
