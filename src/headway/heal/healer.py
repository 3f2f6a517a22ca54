"""A healer: one queue, its logs and one audit, put together. Each look is a whole round."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from headway.advisor import advise
from headway.advisor.checks import Seen, check, see
from headway.errors import PoolError, PoolUnreachable
from headway.events import EventType
from headway.heal.audit import Audit, read
from headway.heal.decide import Case, Decision, Verb, claim_of, decide, decision_id
from headway.heal.held import Held, Key
from headway.heal.logs import Logs
from headway.heal.objections import objection, spent
from headway.heal.outcome import is_same_cause, news_of
from headway.heal.queue import Queue, Result
from headway.heal.rules import Rules
from headway.heal.state import Done, Ending, Intent, State

_AT_ONCE = 100  # jobs in one question to the schedd
_LOGS_AGAIN = 300.0  # seconds between two looks for logs of new jobs
_LONGEST_WAIT = 300.0
_LOOK_AGAIN = 60.0
_SOON = 1.0
_BEHIND = 10.0  # so long the queue may lag behind the log
_HELD = 5


class Clock:
    """The time of day, which never goes back here.

    A clock that is set back must not make heal wait until it has caught up.
    """

    def __init__(self) -> None:
        self._last, self._then = time.time(), time.monotonic()

    def now(self) -> float:
        """Seconds since the epoch, and never less than before."""
        then = time.monotonic()
        self._last = max(time.time(), self._last + then - self._then)
        self._then = then
        return self._last


class Healer:
    """Looks after the jobs of one queue; without `do` it only says what it would do."""

    def __init__(self, queue: Queue, audit: Path, rules: Rules, *, do: bool) -> None:
        self.queue = queue
        self.rules = rules
        self.logs = Logs()
        #: When the next look may bring something new, by the monotonic clock.
        self.due = 0.0
        self._clock = Clock()
        self.decisions: list[Decision] = []
        self._audit = Audit(audit) if do else None
        records = self._audit.records if self._audit else list(read(audit))
        # What an audit says of the future was written before the clock was set back.
        self.state = State.of(records, rules, latest=self._clock.now())
        self._logs_due = 0.0
        self._missing: set[Key] = set()
        self._patience = _SOON
        self._refusals = 0
        self._seen: dict[str, tuple[float, Seen]] = {}
        #: When each hold was first seen, by the monotonic clock, and how old it was.
        self._first: dict[str, tuple[float, float]] = {}

    def close(self) -> None:
        """Let go of the audit and the logs."""
        if self._audit:
            self._audit.close()
        self.logs.close()

    def has_news(self) -> bool:
        """Whether the logs tell something that a look should follow; costs a stat a log."""
        touched = self.logs.poll()
        if not touched:
            return False
        followed = {entry.intent.key for entry in self.state.open}
        return any(n == EventType.HELD or key in followed for key, n in touched.items())

    @property
    def busy(self) -> bool:
        """Whether heal may still do something by itself about jobs that are held now."""
        behind = bool(self._missing) and self._patience < _BEHIND
        return (
            behind
            or bool(self.state.pending)
            or any(decision.verb is not Verb.LEAVE for decision in self.decisions)
        )

    def look(self) -> list[Decision]:
        """One round: what became of the last acts, what is held, what to do about it, doing it."""
        begin, now = time.monotonic(), self._clock.now()
        if begin >= self._logs_due:
            self.logs.follow(self.queue.logs())
            self._logs_due = begin + _LOGS_AGAIN
        self.logs.poll()
        held = self._aged(self.queue.held())
        self.logs.follow({job.log for job in held if job.log})
        self.logs.poll()
        if self._audit:
            self._settle()
            self._conclude()
        cases = self._cases(held, now)
        now = self._clock.now()
        self.decisions = decide(self.state, cases, now, self.rules)
        if self._audit:
            self._note_left()
            self._act([d for d in self.decisions if d.intent is not None])
        rests = [max(d.due - now, _SOON) for d in self.decisions if d.verb is not Verb.LEAVE]
        rest = min([_LONGEST_WAIT, *rests, self._catching_up(held)])
        self.due = time.monotonic() + rest
        return self.decisions

    def _aged(self, held: Sequence[Held]) -> list[Held]:
        """The jobs, each at least as old as heal itself has seen it: the queue's clock may jump."""
        now = time.monotonic()
        ids = [decision_id("", job) for job in held]
        self._first = {
            id: self._first.get(id, (now, job.age)) for id, job in zip(ids, held, strict=True)
        }
        return [
            replace(job, age=max(job.age, self._first[id][1] + now - self._first[id][0]))
            for id, job in zip(ids, held, strict=True)
        ]

    def _catching_up(self, held: Sequence[Held]) -> float:
        """How soon to look again because a log tells of a hold that the queue does not have yet.

        A log may also tell it wrongly, for ever: so less and less soon.
        """
        missing = self.logs.held() - {job.key for job in held}
        new = missing - self._missing
        self._missing = missing
        self._patience = _SOON if new else min(_LONGEST_WAIT, self._patience * 2)
        return self._patience if missing else _LONGEST_WAIT

    def _cases(self, held: Sequence[Held], now: float) -> list[Case]:
        """All that is known of each job; the world is asked only about those heal may act on."""
        known = self.logs.holds_now()
        holds = [self.logs.hold(job, known) for job in held]
        told = [self.logs.told(job) for job in held]
        asked = [
            number
            for number, job in enumerate(held)
            if not objection(job, told[number], self.rules)
            and spent(job, told[number], self.state) < self.rules.most_per_job
        ]
        found = check(
            [holds[number] for number in asked],
            self.logs.history,
            now=now,
            here=self.queue.is_here,
            look=self._looks,
        )
        findings = dict(zip(asked, found, strict=True))
        return [
            Case(
                job,
                advise(
                    hold,
                    self.logs.history,
                    findings.get(number),
                    now,
                    commands=self.queue.commands,
                ),
                told[number],
            )
            for number, (job, hold) in enumerate(zip(held, holds, strict=True))
        ]

    def _looks(self, url: str) -> Seen:
        """What an object's sources answer, which is not asked more often than it can change."""
        then, seen = self._seen.get(url, (0.0, (None, "")))
        now = time.monotonic()
        if not then or now - then > min(_LOOK_AGAIN, self.rules.backoff):
            seen = see(url)
            self._seen[url] = (now, seen)
        return seen

    def _write(self, *records: dict[str, Any]) -> None:
        assert self._audit is not None
        now = round(self._clock.now(), 3)
        for record in self._audit.write(*({"time": now, **record} for record in records)):
            self.state.take(record)

    def _settle(self) -> None:
        """Find out what became of acts that were begun when heal, or the pool, went away."""
        pending = self.state.pending
        for some in _pieces(pending):
            self._carry_out(some)

    def _act(self, decisions: Sequence[Decision]) -> None:
        for some in _pieces(decisions):
            intents: list[Intent] = []
            lines: list[dict[str, Any]] = []
            claim = claim_of(self.state.id, some[0].case.held, self.state.lines)
            for decision in some:
                assert decision.intent is not None
                intent = replace(decision.intent, claim=claim)
                intents.append(intent)
                facts = decision.as_json()
                lines.append({"kind": "intent", "intent": intent.as_json(), "decision": facts})
            self._write(*lines)
            self._carry_out(intents)

    def _carry_out(self, intents: Sequence[Intent]) -> None:
        try:
            results = self.queue.carry_out(intents)
        except PoolUnreachable:
            raise  # what was intended is settled with a later look
        except PoolError as error:
            self._refusals += 1
            if self._refusals < self.rules.most_tries:
                raise
            results = {intent.id: Result(False, error.message) for intent in intents}
        self._refusals = 0
        if any(result.done is None for result in results.values()):
            self.logs.poll()
        self._write(*(self._result(intent, results[intent.id]) for intent in intents))

    def _result(self, intent: Intent, result: Result) -> dict[str, Any]:
        done, words = result
        if done is None:
            # Its 013 tells by whom it was released; without a log it counts as heal's own.
            trail = self.logs.trail(intent.log, intent.key)
            done = trail is None or any(intent.claim in step.reason for step in trail.steps)
            words = words if done else "somebody else was first, and it has left the queue"
        return {"kind": "result", "id": intent.id, "done": done, "words": words}

    def _note_left(self) -> None:
        """Write down, once, what is left alone and why: it is evidence too."""
        lines = [
            {"kind": "left", "id": d.id, "why": d.why, "decision": d.as_json()}
            for d in self.decisions
            if d.verb is Verb.LEAVE and self.state.said.get(d.id) != d.why
        ]
        if lines:
            self._write(*lines)

    def _conclude(self) -> None:
        """Write down how earlier acts went on."""
        now = self._clock.now()
        lines: list[dict[str, Any]] = []
        untold: list[Done] = []
        for entry in self.state.open:
            trail = self.logs.trail(entry.intent.log, entry.intent.key)
            if trail is not None and trail.steps:
                lines += news_of(entry, list(trail.steps), now, self.rules)
            else:
                untold.append(entry)
        where = self.queue.where([entry.intent.key for entry in untold]) if untold else {}
        for entry in untold:
            intent = entry.intent
            found = where.get(intent.key)
            told = {"kind": "outcome", "id": intent.id, "at": now}
            if found is None or not found.status:
                how = Ending.GONE if entry.is_release else Ending.REMOVED
                lines.append({**told, "how": how.value})
            elif found.holds > intent.holds and found.status == _HELD:
                same = is_same_cause(intent, found.code, found.subcode, found.reason)
                how = Ending.HELD if same else Ending.OTHER
                lines.append({**told, "how": how.value, "same": same})
        if lines:
            self._write(*lines)


def _pieces(items: Sequence[Any]) -> list[list[Any]]:
    """Few enough at a time for one question."""
    rest = iter(items)
    return list(iter(lambda: list(islice(rest, _AT_ONCE)), []))
