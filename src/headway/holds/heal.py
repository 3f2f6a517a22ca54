"""A healer: one queue, its logs and one audit, put together. Each look is a whole round."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Any

from headway.errors import EventLogError, HeadwayError, PoolError, PoolUnreachable
from headway.events import Event, EventType, Follower
from headway.holds.advise import advise
from headway.holds.audit import Audit, HealAction, HealState, Intent, ReleaseEnding, read_audit
from headway.holds.checks import LookResult, check, see
from headway.holds.decisions import Decision, HeldJob, Verb, claim_of, decide, decision_id
from headway.holds.executor import ActResult
from headway.holds.guards import objection, spent
from headway.holds.history import History
from headway.holds.hold import HELD_STATUS, Hold, JobId, Key, QueuedHold
from headway.holds.job_log import JobStep, LoggedJob, is_same_cause, news_of
from headway.holds.queue import JobQueue
from headway.holds.rules import Rules
from headway.pool import Pool, RunFolder

_log = logging.getLogger(__name__)

# The event logs of the jobs that heal looks after: followed, each event once.


class FollowedLogs:
    """What the logs tell: the history for advice, each job's own story, and what is new."""

    def __init__(self) -> None:
        self.history = History()
        self.unread: dict[str, str] = {}
        self._followers: dict[str, Follower] = {}
        self._jobs: defaultdict[tuple[str, Key], LoggedJob] = defaultdict(LoggedJob)

    def follow(self, paths: Iterable[str]) -> None:
        """Follow these logs too; one that two names lead to is followed once."""
        for path in paths:
            place = os.path.realpath(path)
            # A pipe, which somebody may have named as a log, would never be read_audit to its end.
            if place not in self._followers and (
                os.path.isfile(place) or not os.path.exists(place)
            ):
                _log.info("following %s", place)
                self._followers[place] = Follower(place)

    def poll(self) -> dict[Key, int]:
        """Take in what is new; the jobs that it concerns, with the number of their last event."""
        touched: dict[Key, int] = {}
        for _, place, event in merge(*self._new(), key=lambda told: told[0]):
            key = self._take(place, event)
            if key is not None:
                touched[key] = event.number
        return touched

    def _new(self) -> Iterator[list[tuple[float, str, Event]]]:
        """The new events of each log with the latest time that it has shown up to them.

        Merged by that, logs that are read_audit one after another tell one story.
        """
        now = time.time()
        for place, follower in self._followers.items():
            try:
                events = follower.poll()
            except EventLogError as error:
                self.unread[place] = error.message
                continue
            self.unread.pop(place, None)
            latest, told = 0.0, []
            for event in events:
                latest = max(latest, event.time) if event.time <= now else latest
                told.append((latest, place, event))
            yield told

    def held(self) -> set[Key]:
        """The jobs that are held, as far as the logs say."""
        return {Key(hold.cluster, hold.proc) for hold in self.history.held()}

    def job(self, log: str, key: Key) -> LoggedJob | None:
        """What the job's own log says of it; None: there is none, or it says nothing."""
        return self._jobs.get((os.path.realpath(log), key)) if log else None

    def hold(self, held: QueuedHold, known: Mapping[JobId, Hold]) -> Hold:
        """The hold as the history has it, or as the queue alone does; with the queue's facts."""
        log = os.path.realpath(held.log) if held.log else ""
        told = known.get(JobId(log, *held.key))
        return replace(held, log=log).as_hold([told] if told else [])

    def holds_now(self) -> dict[JobId, Hold]:
        """The holds that last, by job."""
        return {hold.job: hold for hold in self.history.held()}

    def close(self) -> None:
        """Let go of all files."""
        for follower in self._followers.values():
            follower.close()

    def _take(self, place: str, event: Event) -> Key | None:
        self.history.add(event, place)
        if event.proc < 0 or event.cluster < 0 or event.number >= 100:
            return None
        key = Key(event.cluster, event.proc)
        return key if self._jobs[place, key].take(event) else None


_AT_ONCE = 100  # jobs in one question to the schedd
_LOGS_AGAIN = 300.0  # seconds between two looks for logs of new jobs
_LONGEST_WAIT = 300.0
_LOOK_AGAIN = 60.0
_SOON = 1.0
_BEHIND = 10.0  # so long the queue may lag behind the log


class SteadyClock:
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

    def __init__(self, queue: JobQueue, audit: Path, rules: Rules, *, do: bool) -> None:
        self.queue = queue
        self.rules = rules
        self.logs = FollowedLogs()
        #: When the next look may bring something new, by the monotonic clock.
        self.due = 0.0
        self._clock = SteadyClock()
        self.decisions: list[Decision] = []
        self._audit = Audit(audit) if do else None
        records = self._audit.records if self._audit else list(read_audit(audit))
        # What an audit says of the future was written before the clock was set back.
        self.state = HealState.of(records, rules, latest=self._clock.now())
        self._logs_due = 0.0
        self._missing: set[Key] = set()
        self._patience = _SOON
        self._refusals = 0
        self._seen: dict[str, tuple[float, LookResult]] = {}
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
        for made in self.decisions:
            level = logging.DEBUG if made.intent is None else logging.INFO
            job = made.case.held.key
            _log.log(level, "%s: %s %s: %s", self.queue.name, made.verb.value, job, made.why)
        if self._audit:
            self._note_left()
            self._act([d for d in self.decisions if d.intent is not None])
        rests = [max(d.due - now, _SOON) for d in self.decisions if d.verb is not Verb.LEAVE]
        rest = min([_LONGEST_WAIT, *rests, self._catching_up(held)])
        self.due = time.monotonic() + rest
        return self.decisions

    def _aged(self, held: Sequence[QueuedHold]) -> list[QueuedHold]:
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

    def _catching_up(self, held: Sequence[QueuedHold]) -> float:
        """How soon to look again because a log tells of a hold that the queue does not have yet.

        A log may also tell it wrongly, for ever: so less and less soon.
        """
        missing = self.logs.held() - {job.key for job in held}
        new = missing - self._missing
        self._missing = missing
        self._patience = _SOON if new else min(_LONGEST_WAIT, self._patience * 2)
        return self._patience if missing else _LONGEST_WAIT

    def _cases(self, held: Sequence[QueuedHold], now: float) -> list[HeldJob]:
        """All that is known of each job; the world is asked only about those heal may act on."""
        known = self.logs.holds_now()
        holds = [self.logs.hold(job, known) for job in held]
        told = [self.logs.job(job.log, job.key) for job in held]
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
            HeldJob(
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

    def _looks(self, url: str) -> LookResult:
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
            results = {intent.id: (False, error.message) for intent in intents}
        self._refusals = 0
        if any(done is None for done, _ in results.values()):
            self.logs.poll()
        self._write(*(self._result(intent, results[intent.id]) for intent in intents))

    def _result(self, intent: Intent, answer: ActResult) -> dict[str, Any]:
        done, words = answer
        _log.info("%s %s: done %s %s", intent.act, intent.key, done, words)
        if done is None:
            # Its 013 tells by whom it was released; without a log it counts as heal's own.
            steps = self._steps(intent)
            done = not steps or any(intent.claim in step.reason for step in steps)
            words = words if done else "somebody else was first, and it has left the queue"
        return {"kind": "result", "id": intent.id, "done": done, "words": words}

    def _steps(self, intent: Intent) -> list[JobStep]:
        """What the log tells of the job since it was first held; nothing: there is no log."""
        job = self.logs.job(intent.log, intent.key)
        return list(job.steps or ()) if job else []

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
        untold: list[HealAction] = []
        for entry in self.state.open:
            steps = self._steps(entry.intent)
            if steps:
                lines += news_of(entry, steps, now, self.rules)
            else:
                untold.append(entry)
        where = self.queue.where([entry.intent.key for entry in untold]) if untold else {}
        for entry in untold:
            intent = entry.intent
            found = where.get(intent.key)
            told = {"kind": "outcome", "id": intent.id, "at": now}
            if found is None or not found.status:
                how = ReleaseEnding.GONE if entry.is_release else ReleaseEnding.REMOVED
                lines.append({**told, "how": how.value})
            elif found.holds > intent.holds and found.status == HELD_STATUS:
                same = is_same_cause(intent, found.code, found.subcode, found.reason)
                how = ReleaseEnding.HELD if same else ReleaseEnding.OTHER
                lines.append({**told, "how": how.value, "same": same})
        if lines:
            self._write(*lines)


def _pieces(items: Sequence[Any]) -> list[list[Any]]:
    """Few enough at a time for one question."""
    rest = iter(items)
    return list(iter(lambda: list(islice(rest, _AT_ONCE)), []))


# Watching: look when a log tells of a hold or when something is due, and cost nothing between.


_TICK = 1.0  # seconds between two looks at the logs, a stat each
_GATHER = 0.3  # holds come in bursts: one look for all of them
_TROUBLE = (5.0, 300.0)  # the first and the longest pause after the pool did not answer


def watch(
    healers: Sequence[Healer],
    stop: threading.Event,
    *,
    looked: Callable[[Healer], None],
    trouble: Callable[[Healer, PoolError], None],
    over: Callable[[], bool] | None = None,
) -> None:
    """Heal until told to stop, or until it is over, which is asked after each look."""
    pauses = [_TROUBLE[0]] * len(healers)
    looked_once = False
    while not stop.is_set():
        news = False
        for number, healer in enumerate(healers):
            now = time.monotonic()
            if healer.has_news():
                healer.due = min(healer.due, now + _GATHER)
            if now < healer.due:
                continue
            try:
                healer.look()
                pauses[number] = _TROUBLE[0]
                looked(healer)
                news = looked_once = True
            except PoolError as error:
                if stop.is_set():
                    return  # Ctrl-C reached the question to the schedd too
                if not looked_once and not isinstance(error, PoolUnreachable):
                    raise
                trouble(healer, error)
                healer.due = time.monotonic() + pauses[number]
                pauses[number] = min(_TROUBLE[1], pauses[number] * 2)
        if news and over is not None and over():
            return
        rest = min((healer.due for healer in healers), default=0.0) - time.monotonic()
        stop.wait(min(_TICK, max(0.05, rest)))


# Healing a run from within `headway run`: in a thread, which begins when a job is first held.


_RUN_TICK = 0.3
_RUN_PAUSE = 30.0  # seconds after the pool did not answer


class BackgroundHealer:
    """Heals the jobs of one run within their own budget, while somebody watches them."""

    def __init__(self, folder: RunFolder, pool: Pool) -> None:
        #: What it has to say, oldest first; taken out by whoever shows it.
        self.notes: deque[str] = deque()
        self._folder = folder
        self._pool = pool
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._unseen = 0  # holds that no look has seen yet
        self._busy = False
        self._told: dict[str, str] = {}

    def poke(self) -> None:
        """A job of the run was held."""
        with self._lock:
            if self._stop.is_set():
                return
            self._unseen += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="heal", daemon=True)
                self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether a job that looks held for good may yet be released."""
        with self._lock:
            return self._unseen > 0 or self._busy

    def close(self) -> None:
        """End it; an act that is under way is settled by whoever heals this run next."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(0.5)

    def _work(self) -> None:
        try:
            self._heal()
        except HeadwayError as error:
            self.notes.append(f"held jobs are not healed: {error.message}")
        except Exception as error:  # whatever it is, the run goes on
            words = f"{type(error).__name__}: {error}"
            self.notes.append(f"held jobs are not healed, by a bug in headway: {words}")
        finally:
            with self._lock:
                self._stop.set()
                self._unseen, self._busy = 0, False

    def _heal(self) -> None:
        # Loaded only now: most runs never have a job held.
        from headway.holds.audit import audit_of_run
        from headway.holds.queue import queue_of_run
        from headway.holds.rules import Rules, rules_of_run

        self._folder.check_own()
        rules = rules_of_run(self._folder, Rules())
        queue = queue_of_run(self._folder, self._pool)
        healer = Healer(queue, audit_of_run(self._folder), rules, do=True)
        try:
            while not self._stop.is_set():
                seen = self._unseen
                if healer.has_news() or seen or time.monotonic() >= healer.due:
                    self._look(healer, seen)
                self._stop.wait(_RUN_TICK)
        finally:
            healer.close()

    def _look(self, healer: Healer, seen: int) -> None:
        busy = False
        try:
            for decision in healer.look():
                if decision.intent is not None and self._told.get(decision.id) != decision.why:
                    self._told[decision.id] = decision.why
                    job = f"{self._folder.label}.{decision.case.held.key.proc}"
                    self.notes.append(f"heal: {decision.verb.value} {job}: {decision.why}")
            busy = healer.busy
        except PoolError:
            healer.due = time.monotonic() + _RUN_PAUSE
        with self._lock:
            self._unseen -= seen
            self._busy = busy
