"""A model of a queue in which heal works: what a schedd does, step by step, with kills between."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headway.holds.advice import Act
from headway.holds.audit import HealState, Intent
from headway.holds.decisions import Decision, HeldJob, claim_of, decide
from headway.holds.hold import CLAIM, HEAL, HEALS, Key, QueuedHold
from headway.holds.rules import NEVER, Rules

from . import held_made as made


class Killed(Exception):
    """`kill -9`, at this very step."""


@dataclass
class Job:
    number: int
    cause: int = 0
    status: str = "held"
    holds: int = 1
    wanted: int = 0
    since: float = made.NOW
    code: int = 13
    releases: int = 0  # of holds that nobody wanted, whoever made them
    healed: list[str] = field(default_factory=list)  # the claim of each release by a heal
    facts: dict[str, Any] = field(default_factory=dict)


class World:
    """Some jobs, a clock, and the promises that nothing may break."""

    def __init__(self, jobs: int, rules: Rules) -> None:
        self.now = made.NOW
        self.rules = rules
        self.jobs = [Job(n, cause=n % 3) for n in range(jobs)]
        self.released: list[float] = []

    def held(self) -> list[QueuedHold]:
        return [self._held(job) for job in self.jobs if job.status == "held"]

    def _held(self, job: Job) -> QueuedHold:
        age = self.now - job.since
        counts = f"UserRequest = {job.wanted}; TransferInputError = {job.holds - job.wanted}"
        made_up = made.held(
            job.number, code=job.code, holds=job.holds, age=age, NumHoldsByReason=counts,
            **job.facts,
        )  # fmt: skip
        return replace(made_up, since=job.since, age=age)

    def case(self, job: QueuedHold) -> HeldJob:
        source = f"cache{self.jobs[job.key.proc].cause}.example.org"
        reason = made.REASON.replace("cache.example.org", source)
        return HeldJob(job, made.advice(replace(job, reason=reason), Act.RELEASE))

    def hold(self, job: Job, code: int = 13) -> None:
        if job.status in ("idle", "running"):
            job.status, job.code, job.since = "held", code, self.now
            job.holds += 1
            job.wanted += code == 1

    def release(self, job: Job, claim: str = "") -> None:
        if job.status == "held":
            job.status = "idle"
            job.releases += job.code != 1
            if claim:
                assert job.code not in NEVER, "somebody wanted it to be held"
                assert job.facts.get(HEAL) is not False, "it asked to be left alone"
                job.healed.append(claim)
                self.released.append(self.now)

    def is_same(self, intent: Intent) -> bool:
        job = self.jobs[intent.key.proc]
        return (
            job.status == "held"
            and (job.holds, job.since, job.code) == (intent.holds, intent.since, intent.code)
            and job.facts.get(HEAL) is not False
        )


class Mind:
    """One heal: its audit survives a kill, nothing else does."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.records: list[dict[str, Any]] = [{"kind": "audit", "id": name, "time": world.now}]
        self.fuse = -1  # steps until it is killed
        self.decisions: list[Decision] = []

    def look(self, fuse: int = -1) -> None:
        self.fuse = fuse
        with contextlib.suppress(Killed):
            self._look()

    def _look(self) -> None:
        world, rules = self.world, self.world.rules
        seen = [world.case(job) for job in world.held()]
        state = HealState.of(self.records, rules)
        self._step()
        if state.pending:
            self._carry_out(state.pending, state)
        self._conclude(state)
        self.decisions = decide(state, seen, world.now, rules)
        chosen = [d for d in self.decisions if d.intent is not None]
        if not chosen:
            return
        claim = claim_of(state.id, chosen[0].case.held, state.lines)
        intents = [replace(d.intent, claim=claim) for d in chosen if d.intent is not None]
        self._step()
        for intent in intents:
            self._write(state, {"kind": "intent", "intent": intent.as_json()})
        self._check(state)
        self._carry_out(intents, state)

    def _carry_out(self, intents: Sequence[Intent], state: HealState) -> None:
        """As `executor.Executor` does it: each step guarded, each step may be the last."""
        jobs = self.world.jobs
        for intent in intents:
            facts = jobs[intent.key.proc].facts
            if self.world.is_same(intent) and facts.get(CLAIM, "") in (intent.before, intent.claim):
                facts[CLAIM] = intent.claim
        self._step()
        for intent in intents:
            facts = jobs[intent.key.proc].facts
            ours = self.world.is_same(intent) and facts.get(CLAIM) == intent.claim
            if ours and facts.get(HEALS, 0) == intent.heals:
                facts[HEALS] = intent.heals + 1
        self._step()
        for intent in intents:
            job = jobs[intent.key.proc]
            ours = self.world.is_same(intent) and job.facts.get(CLAIM) == intent.claim
            if ours and job.facts.get(HEALS) == intent.heals + 1:
                self.world.release(job, intent.claim)
        self._step()
        for intent in intents:
            job = jobs[intent.key.proc]
            done = not self.world.is_same(intent) and job.facts.get(CLAIM) == intent.claim
            if job.status in ("success", "failed", "removed"):  # the log tells who released it
                done = intent.claim in job.healed
            self._write(state, {"kind": "result", "id": intent.id, "done": done})
            self._step()

    def _conclude(self, state: HealState) -> None:
        for entry in state.open:
            job, intent = self.world.jobs[entry.intent.key.proc], entry.intent
            line = {"kind": "outcome", "id": intent.id}
            if job.status == "held" and job.holds > intent.holds:
                self._write(state, {**line, "how": "held again", "same": job.code == intent.code})
            elif job.status in ("success", "failed", "removed"):
                self._write(state, {**line, "how": job.status})

    def _write(self, state: HealState, record: dict[str, Any]) -> None:
        stamped = {"time": self.world.now, **record}
        self.records.append(stamped)
        state.take(stamped)

    def _step(self) -> None:
        if self.fuse == 0:
            raise Killed
        self.fuse -= 1

    def _check(self, state: HealState) -> None:
        """What must hold when it has just been decided to release something."""
        now, rules = self.world.now, self.world.rules
        for breaker in state.breakers.values():
            under_way = breaker.under_way(now, rules)
            if breaker.is_open(rules):
                assert under_way <= 1, f"more than a canary through {breaker}"
            assert under_way <= max(breaker.window, 1)
        assert state.in_last_hour(now).total() <= rules.most_per_hour

    def intents(self) -> dict[tuple[Key, int], set[str]]:
        """The claims of all decisions, by job and hold."""
        found: dict[tuple[Key, int], set[str]] = {}
        for record in self.records:
            if record["kind"] == "intent":
                intent = Intent.of(record["intent"])
                found.setdefault((intent.key, intent.holds), set()).add(intent.claim)
        return found
