"""Healing: rounds of looking at a queue and its logs, deciding and acting, with an audit."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import merge
from pathlib import Path
from typing import Any, TypeVar

from headway.errors import EventLogError, HeadwayError, PoolError, PoolUnreachable
from headway.events import Event, EventType, Follower
from headway.holds.advise import advise
from headway.holds.audit import (
    Audit,
    HealAction,
    HealState,
    Intent,
    ReleaseEnding,
    audit_of_run,
    read_audit,
)
from headway.holds.checks import LookResult, check, see
from headway.holds.decisions import Decision, HeldJob, Verb, claim_of, decide, decision_id
from headway.holds.executor import ActResult
from headway.holds.guards import objection, spent
from headway.holds.history import History
from headway.holds.hold import HELD_STATUS, Hold, JobId, Key, QueuedHold
from headway.holds.job_log import JobStep, LoggedJob, is_same_cause, news_of
from headway.holds.queue import JobQueue, QueuedJob, queue_of_run
from headway.holds.rules import Rules, rules_of_run
from headway.pool import Pool, RunFolder

_log = logging.getLogger(__name__)
_Item = TypeVar("_Item")


class FollowedLogs:
    """The event logs of the jobs: the history for advice, and each job's own events."""

    def __init__(self) -> None:
        self.history = History()
        self.unread: dict[str, str] = {}
        self._followers: dict[str, Follower] = {}
        self._jobs: defaultdict[tuple[str, Key], LoggedJob] = defaultdict(LoggedJob)

    def follow(self, paths: Iterable[str]) -> None:
        """Follow these logs, too; a log with two names is followed once."""
        for path in paths:
            place = os.path.realpath(path)
            # Somebody may have named a pipe as a log, which would never be read to its end.
            is_log = os.path.isfile(place) or not os.path.exists(place)
            if is_log and place not in self._followers:
                _log.info("following %s", place)
                self._followers[place] = Follower(place)

    def poll(self) -> dict[Key, int]:
        """Read what is new; returns the jobs that it concerns, with their last event's number."""
        touched: dict[Key, int] = {}
        for _, place, event in merge(*self._new(), key=lambda new: new[0]):
            self.history.add(event, place)
            if event.proc < 0 or event.cluster < 0 or event.number >= 100:
                continue
            key = Key(event.cluster, event.proc)
            if self._jobs[place, key].take(event):
                touched[key] = event.number
        return touched

    def _new(self) -> Iterator[list[tuple[float, str, Event]]]:
        """The new events of each log, with the latest time it has shown so far."""
        now = time.time()
        for place, follower in self._followers.items():
            try:
                events = follower.poll()
            except EventLogError as error:
                self.unread[place] = error.message
                continue
            self.unread.pop(place, None)
            latest, timed = 0.0, []
            for event in events:
                latest = max(latest, event.time) if event.time <= now else latest
                timed.append((latest, place, event))
            yield timed

    def job(self, log: str, key: Key) -> LoggedJob | None:
        """What the job's own log says of it; None: there is no log, or it says nothing."""
        return self._jobs.get((os.path.realpath(log), key)) if log else None

    def hold(self, held: QueuedHold, known: Mapping[JobId, Hold]) -> Hold:
        """The hold as the log has it, or else the queue; with what the queue knows of the job."""
        log = os.path.realpath(held.log) if held.log else ""
        logged = known.get(JobId(log, *held.key))
        return replace(held, log=log).as_hold([logged] if logged else [])

    def holds_now(self) -> dict[JobId, Hold]:
        """The holds of the jobs that are held, as far as the logs say."""
        return {hold.job: hold for hold in self.history.held()}

    def close(self) -> None:
        """Close all files."""
        for follower in self._followers.values():
            follower.close()


_AT_ONCE = 100  # jobs in one request to the schedd
# Seconds:
_LOGS_AGAIN = 300.0  # until heal looks for the logs of new jobs again
_LONGEST_WAIT = 300.0
_LOOK_AGAIN = 60.0
_SOON = 1.0
_BEHIND = 10.0  # by which the queue may lag behind the log


class Healer:
    """Heals the jobs of one queue; without `do` it only says what it would do."""

    def __init__(self, queue: JobQueue, audit: Path, rules: Rules, *, do: bool) -> None:
        self.queue = queue
        self.rules = rules
        self.logs = FollowedLogs()
        #: When to look again, by the monotonic clock.
        self.due = 0.0
        self._last_now = (time.time(), time.monotonic())
        self.decisions: list[Decision] = []
        self._audit = Audit(audit) if do else None
        records = self._audit.records if self._audit else list(read_audit(audit))
        # Times in the future were written before the clock was set back.
        self.state = HealState.of(records, rules, latest=self._now())
        self._logs_due = 0.0
        self._missing: set[Key] = set()
        self._patience = _SOON
        self._refusals = 0
        self._seen: dict[str, tuple[float, LookResult]] = {}
        #: When each hold began, by the monotonic clock and what the queue first said.
        self._since: dict[str, float] = {}

    def close(self) -> None:
        """Close the audit and the logs."""
        if self._audit:
            self._audit.close()
        self.logs.close()

    def has_news(self) -> bool:
        """Whether the logs have events that are worth a look; costs a stat for each log."""
        touched = self.logs.poll()
        if not touched:
            return False
        followed = {action.intent.key for action in self.state.open}
        return any(n == EventType.HELD or key in followed for key, n in touched.items())

    @property
    def busy(self) -> bool:
        """Whether heal may still act on jobs that are held now."""
        behind = bool(self._missing) and self._patience < _BEHIND
        left = all(decision.verb is Verb.LEAVE for decision in self.decisions)
        return behind or bool(self.state.pending) or not left

    def look(self) -> list[Decision]:
        """One round: see what became of earlier actions and what is held, decide, and act."""
        begin, now = time.monotonic(), self._now()
        if begin >= self._logs_due:
            self.logs.follow(self.queue.logs())
            self._logs_due = begin + _LOGS_AGAIN
        self.logs.poll()
        held = self._aged(self.queue.held())
        self.logs.follow({job.log for job in held if job.log})
        self.logs.poll()
        if self._audit:
            # Find out what became of actions that were begun when heal, or the pool, went away.
            for some in _pieces(self.state.pending):
                self._carry_out(some)
            self._conclude()
        cases = self._cases(held, now)
        now = self._now()
        self.decisions = decide(self.state, cases, now, self.rules)
        for made in self.decisions:
            level = logging.DEBUG if made.intent is None else logging.INFO
            job = made.case.held.key
            _log.log(level, "%s: %s %s: %s", self.queue.name, made.verb.value, job, made.why)
        if self._audit:
            self._note_left()
            self._act()
        rests = [max(d.due - now, _SOON) for d in self.decisions if d.verb is not Verb.LEAVE]
        rest = min([_LONGEST_WAIT, *rests, self._catching_up(held)])
        self.due = time.monotonic() + rest
        return self.decisions

    def _now(self) -> float:
        """Seconds since the epoch; if the clock is set back, heal does not wait for it."""
        (time_before, then), now = self._last_now, time.monotonic()
        self._last_now = (max(time.time(), time_before + now - then), now)
        return self._last_now[0]

    def _aged(self, held: Sequence[QueuedHold]) -> list[QueuedHold]:
        """The jobs, held at least as long as heal has seen them: the queue's clock may jump."""
        now = time.monotonic()
        ids = {decision_id("", job): job for job in held}
        self._since = {id: self._since.get(id, now - job.age) for id, job in ids.items()}
        return [replace(job, age=max(job.age, now - self._since[id])) for id, job in ids.items()]

    def _catching_up(self, held: Sequence[QueuedHold]) -> float:
        """How soon to look again if a log has a hold that the queue does not have, or not yet."""
        logged = {Key(job.cluster, job.proc) for job in self.logs.holds_now()}
        missing = logged - {job.key for job in held}
        new = missing - self._missing
        self._missing = missing
        self._patience = _SOON if new else min(_LONGEST_WAIT, self._patience * 2)
        return self._patience if missing else _LONGEST_WAIT

    def _cases(self, held: Sequence[QueuedHold], now: float) -> list[HeldJob]:
        """All that is known of each job; live checks are made only for those heal may act on."""
        known, history = self.logs.holds_now(), self.logs.history
        jobs = [(job, self.logs.hold(job, known), self.logs.job(job.log, job.key)) for job in held]
        to_check = [
            hold
            for job, hold, logged in jobs
            if not objection(job, logged, self.rules)
            and spent(job, logged, self.state) < self.rules.most_per_job
        ]
        found = check(to_check, history, now=now, here=self.queue.is_here, look=self._look_at)
        checks = {hold.job: result for hold, result in zip(to_check, found, strict=True)}
        commands = self.queue.commands
        return [
            HeldJob(
                job, advise(hold, history, checks.get(hold.job), now, commands=commands), logged
            )
            for job, hold, logged in jobs
        ]

    def _look_at(self, url: str) -> LookResult:
        """What an object's sources answer; asked again only after a while."""
        then, seen = self._seen.get(url, (0.0, (None, "")))
        now = time.monotonic()
        if not then or now - then > min(_LOOK_AGAIN, self.rules.backoff):
            seen = see(url)
            self._seen[url] = (now, seen)
        return seen

    def _write(self, records: Sequence[dict[str, Any]]) -> None:
        assert self._audit is not None
        if records:
            now = round(self._now(), 3)
            for record in self._audit.write(*({"time": now, **record} for record in records)):
                self.state.take(record)

    def _act(self) -> None:
        decided = [(d, d.intent) for d in self.decisions if d.intent is not None]
        for some in _pieces(decided):
            claim = claim_of(self.state.id, some[0][0].case.held, self.state.lines)
            intents = [replace(intent, claim=claim) for _, intent in some]
            self._write(
                [
                    {"kind": "intent", "intent": intent.as_json(), "decision": decision.as_json()}
                    for intent, (decision, _) in zip(intents, some, strict=True)
                ]
            )
            self._carry_out(intents)

    def _carry_out(self, intents: Sequence[Intent]) -> None:
        try:
            results = self.queue.carry_out(intents)
        except PoolUnreachable:
            raise  # a later look finds out what became of them
        except PoolError as error:
            self._refusals += 1
            if self._refusals < self.rules.most_tries:
                raise
            results = {intent.id: (False, error.message) for intent in intents}
        self._refusals = 0
        if any(done is None for done, _ in results.values()):
            self.logs.poll()
        self._write([self._result(intent, results[intent.id]) for intent in intents])

    def _result(self, intent: Intent, answer: ActResult) -> dict[str, Any]:
        done, words = answer
        _log.info("%s %s: done %s %s", intent.act, intent.key, done, words)
        if done is None:
            # Its 013 says who released it; without a log, the release counts as heal's own.
            steps = self._steps(intent)
            done = not steps or any(intent.claim in step.reason for step in steps)
            words = words if done else "somebody else was first, and it has left the queue"
        return {"kind": "result", "id": intent.id, "done": done, "words": words}

    def _steps(self, intent: Intent) -> list[JobStep]:
        """What the log has of the job since it was first held; nothing: there is no log."""
        job = self.logs.job(intent.log, intent.key)
        return list(job.steps or ()) if job else []

    def _note_left(self) -> None:
        """Record, once, which jobs are left alone and why: this is evidence, too."""
        self._write(
            [
                {"kind": "left", "id": d.id, "why": d.why, "decision": d.as_json()}
                for d in self.decisions
                if d.verb is Verb.LEAVE and self.state.said.get(d.id) != d.why
            ]
        )

    def _conclude(self) -> None:
        """Record what became of earlier actions."""
        now = self._now()
        lines: list[dict[str, Any]] = []
        without_log: list[HealAction] = []
        for action in self.state.open:
            if steps := self._steps(action.intent):
                lines += news_of(action, steps, now, self.rules)
            else:
                without_log.append(action)
        queued: dict[Key, QueuedJob] = {}
        for some in _pieces([action.intent.key for action in without_log]):
            queued.update(self.queue.where(some))
        for action in without_log:
            intent = action.intent
            job = queued.get(intent.key)
            line = {"kind": "outcome", "id": intent.id, "at": now}
            if job is None or not job.status:
                how = ReleaseEnding.GONE if action.is_release else ReleaseEnding.REMOVED
                lines.append({**line, "how": how.value})
            elif job.holds > intent.holds and job.status == HELD_STATUS:
                same = is_same_cause(intent, job.code, job.subcode, job.reason)
                how = ReleaseEnding.HELD if same else ReleaseEnding.OTHER
                lines.append({**line, "how": how.value, "same": same})
        self._write(lines)


def _pieces(items: Sequence[_Item]) -> list[Sequence[_Item]]:
    """The items in groups that are small enough for one request."""
    return [items[start : start + _AT_ONCE] for start in range(0, len(items), _AT_ONCE)]


# Watching: look when a log has a hold or when something is due, and cost nothing in between.


_TICK = 1.0  # seconds between two looks at the logs, a stat each
_GATHER = 0.3  # seconds to wait for more, because holds come in bursts
_TROUBLE = (5.0, 300.0)  # the first and the longest pause after the pool did not answer


def watch(
    healers: Sequence[Healer],
    stop: threading.Event,
    *,
    looked: Callable[[Healer], None],
    trouble: Callable[[Healer, PoolError], None],
    over: Callable[[], bool] | None = None,
) -> None:
    """Heal until `stop` is set, or until `over` is true after a look."""
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
                    return  # Ctrl-C has also reached the request to the schedd
                if not looked_once and not isinstance(error, PoolUnreachable):
                    raise
                trouble(healer, error)
                healer.due = time.monotonic() + pauses[number]
                pauses[number] = min(_TROUBLE[1], pauses[number] * 2)
        if news and over is not None and over():
            return
        rest = min((healer.due for healer in healers), default=0.0) - time.monotonic()
        stop.wait(min(_TICK, max(0.05, rest)))


# Healing within `headway run`, in a thread that starts when the first job is held.


_RUN_TICK = 0.3
_RUN_PAUSE = 30.0  # seconds after the pool did not answer


class BackgroundHealer:
    """Heals the jobs of one run within their own budget, while `headway run` watches them."""

    def __init__(self, folder: RunFolder, pool: Pool) -> None:
        #: Messages for the user, oldest first; whoever shows them removes them.
        self.notes: deque[str] = deque()
        self._folder = folder
        self._pool = pool
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._unseen = 0  # holds that no look has seen yet
        self._busy = False
        self._noted: dict[str, str] = {}

    def poke(self) -> None:
        """Say that a job of the run was held."""
        with self._lock:
            if self._stop.is_set():
                return
            self._unseen += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="heal", daemon=True)
                self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether a job that is held may yet be released."""
        with self._lock:
            return self._unseen > 0 or self._busy

    def close(self) -> None:
        """Stop; whoever heals this run next finds out what became of a pending action."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(0.5)

    def _work(self) -> None:
        try:
            self._heal()
        except HeadwayError as error:
            self.notes.append(f"held jobs are not healed: {error.message}")
        except Exception as error:  # the run goes on
            words = f"{type(error).__name__}: {error}"
            self.notes.append(f"held jobs are not healed, by a bug in headway: {words}")
        finally:
            with self._lock:
                self._stop.set()
                self._unseen, self._busy = 0, False

    def _heal(self) -> None:
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
                if decision.intent is not None and self._noted.get(decision.id) != decision.why:
                    self._noted[decision.id] = decision.why
                    key = decision.case.held.key
                    own = f"{self._folder.label}.{key.proc}"
                    job = str(key) if self._folder.dag.exists() else own
                    self.notes.append(f"heal: {decision.verb.value} {job}: {decision.why}")
            busy = healer.busy
        except PoolError:
            healer.due = time.monotonic() + _RUN_PAUSE
        with self._lock:
            self._unseen -= seen
            self._busy = busy
