"""What heal has done so far: a fold over the lines of its audit, and nothing else."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf, isfinite
from typing import Any

from headway.heal.breaker import Breaker
from headway.heal.held import FIRST, PLAIN, Key
from headway.heal.rules import HOUR, Rules

WHOLE = re.compile(r"[0-9]{1,15}\Z", re.ASCII)
SITE = re.compile(r"[A-Za-z0-9_.-]{1,100}\Z", re.ASCII)
CATEGORIES = ('"Medium"', '"Long"')
WIDE = "cause "  # what the name of a breaker begins with that is over all sites and sources


class Ending(str, Enum):
    """How a released job went on, as its event log tells."""

    SUCCESS = "success"
    HELD = "held again"  # for the same cause
    OTHER = "held for another cause"
    FAILED = "failed"
    REMOVED = "removed"  # which tells nothing of whether the release was right
    GONE = "gone"  # out of the queue, and no log tells how


@dataclass(frozen=True)
class Edit:
    """An attribute to set before a release; `old`: what it must be, as an expression."""

    attribute: str
    new: str
    old: str = ""

    def is_sound(self) -> bool:
        """Whether it is one that heal makes: a request's new number, or a category."""
        if self.attribute == "JobDurationCategory":
            return self.new in CATEGORIES and self.old == ""
        requests = ("RequestMemory", "RequestDisk")
        return (
            self.attribute in (*requests, *(f"{FIRST}{name}" for name in requests))
            and isinstance(self.new, str)
            and isinstance(self.old, str)
            and bool(WHOLE.match(self.new))
            and (self.old == "" or bool(WHOLE.match(self.old)))
        )


@dataclass(frozen=True)
class Intent:
    """What heal has decided to do to one hold of one job; written down before it is done."""

    id: str
    time: float
    act: str  # release or remove
    key: Key
    user: str
    holds: int
    since: float
    code: int
    subcode: int
    cause: str = ""
    early: bool = False  # whether it was held before its command started
    log: str = ""
    breakers: tuple[str, ...] = ()
    claim: str = ""
    before: str = ""  # the claim that the job had
    heals: int = 0
    edits: tuple[Edit, ...] = ()
    avoid: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """In types that JSON knows."""
        edits = [{"attribute": e.attribute, "new": e.new, "old": e.old} for e in self.edits]
        facts = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**facts, "key": list(self.key), "edits": edits}

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Intent:
        """From a line of the audit.

        Raises:
            KeyError, TypeError, ValueError: The line is not one that heal writes.
        """
        known = {name: facts[name] for name in cls.__dataclass_fields__ if name in facts}
        intent = cls(
            **{
                **known,
                "key": Key(*facts["key"]),
                "breakers": tuple(facts.get("breakers", ())),
                "avoid": tuple(facts.get("avoid", ())),
                "edits": tuple(Edit(**edit) for edit in facts.get("edits", ())),
            }
        )
        intent._check()
        return intent

    def _check(self) -> None:
        """ValueError unless each value is of the kind that heal writes: they become constraints."""
        counts = (*self.key, self.holds, self.heals)
        codes = (self.code, self.subcode)
        texts = (self.id, self.user, self.cause, self.log, *self.breakers)
        sound = (
            self.act in ("release", "remove")
            and all(type(number) is int for number in (*counts, *codes))
            and all(number >= 0 for number in counts)
            and all(type(at) in (int, float) and isfinite(at) for at in (self.time, self.since))
            and all(isinstance(text, str) for text in texts)
            and all(
                isinstance(text, str) and PLAIN.match(text) for text in (self.claim, self.before)
            )
            and all(isinstance(site, str) and SITE.match(site) for site in self.avoid)
            and all(edit.is_sound() for edit in self.edits)
        )
        if not sound:
            raise ValueError("not an intent of heal's")


@dataclass
class Done:
    """An intent and what became of it."""

    intent: Intent
    done: bool | None = None  # None: not known yet
    words: str = ""
    passed: bool = False
    ending: Ending | None = None
    ended: float = 0.0
    tries: int = 0
    tried: float = 0.0

    @property
    def is_release(self) -> bool:
        return self.intent.act == "release"

    @property
    def counts(self) -> bool:
        """Whether it is, or may be, a release that was made."""
        return self.is_release and self.done is not False


@dataclass
class State:
    """All that decisions depend on beside the queue, the log and the advice."""

    rules: Rules = field(default_factory=Rules)
    #: The audit's own id: two heals never have the same.
    id: str = ""
    lines: int = 0
    by_id: dict[str, Done] = field(default_factory=dict)
    by_job: defaultdict[Key, list[Done]] = field(default_factory=lambda: defaultdict(list))
    breakers: dict[str, Breaker] = field(default_factory=dict)
    #: What was last said of each hold that was left alone.
    said: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, records: Iterable[Mapping[str, Any]], rules: Rules, *, latest: float = inf
    ) -> State:
        """The state after these lines; a time that is later than `latest` counts as `latest`."""
        state = cls(rules)
        for record in records:
            state.take(record, latest)
        return state

    def take(self, record: Mapping[str, Any], latest: float = inf) -> None:
        """Take in one line of the audit; one that makes no sense changes nothing."""
        self.lines += 1
        kind = record.get("kind")
        if kind == "audit":
            self.id = self.id or str(record.get("id", ""))
        elif kind == "intent":
            intent = Intent.of(record["intent"])
            self._intend(replace(intent, time=min(intent.time, latest)))
        elif kind == "left":
            self.said[str(record["id"])] = str(record.get("why", ""))
        else:
            entry = self.by_id.get(str(record.get("id", "")))
            if entry is not None:
                self._follow(entry, str(kind), record, latest)

    @property
    def pending(self) -> list[Intent]:
        """Decisions of which nobody knows whether they were carried out."""
        return [entry.intent for entry in self.by_id.values() if entry.done is None]

    @property
    def open(self) -> list[Done]:
        """Acts that were made and whose ending is not known."""
        return [entry for entry in self.by_id.values() if entry.done and entry.ending is None]

    def breaker(self, name: str) -> Breaker:
        """The breaker of that name; one that nothing is known of is as good as new."""
        return self.breakers.get(name) or Breaker(name, wide=name.startswith(WIDE))

    def releases(self, key: Key) -> int:
        """How often heal has, or may have, released the job."""
        return sum(entry.counts for entry in self.by_job.get(key, ()))

    def in_last_hour(self, now: float) -> Counter[str]:
        """Releases in the last hour by user; one from the future tells that a clock jumped."""
        return Counter(
            entry.intent.user
            for entry in self.by_id.values()
            if abs(now - entry.intent.time) < HOUR and entry.counts
        )

    def _intend(self, intent: Intent) -> None:
        entry = self.by_id.get(intent.id)
        if entry is None:
            entry = self.by_id[intent.id] = Done(intent)
            self.by_job[intent.key].append(entry)
        else:  # tried again, after the pool had refused it
            entry.intent, entry.done, entry.words = intent, None, ""
        for name in intent.breakers:
            breaker = self.breakers.setdefault(name, self.breaker(name))
            breaker.released(intent.id, intent.time)

    def _follow(self, entry: Done, kind: str, record: Mapping[str, Any], latest: float) -> None:
        now = min(float(record.get("time", 0.0)), latest)
        intent = entry.intent
        breakers = [self.breakers[name] for name in intent.breakers]
        if kind == "result":
            entry.done, entry.words = bool(record.get("done")), str(record.get("words", ""))
            entry.tries += 1
            entry.tried = now
            if not entry.done:
                for breaker in breakers:
                    breaker.dropped(intent.id)
        elif kind == "passed":
            entry.passed = True
            for breaker in breakers:
                breaker.passed(intent.id, self.rules)
        elif kind == "outcome" and entry.ending is None:
            entry.ending, entry.ended = Ending(record["how"]), now
            if entry.ending is Ending.HELD and record.get("same") is False:
                entry.ending = Ending.OTHER  # in the words of an earlier Headway
            for breaker in breakers:
                if entry.ending in (Ending.SUCCESS, Ending.FAILED):
                    breaker.passed(intent.id, self.rules)
                elif entry.ending is Ending.HELD:
                    breaker.fell(intent.id, now)
                else:
                    breaker.dropped(intent.id)
