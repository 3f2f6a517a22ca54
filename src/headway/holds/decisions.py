"""What to do about each held job now, and why. Pure: the caller gives the time and the queue.

A job is released only if nothing speaks against it, the advice is to release it, its own policy
will not release it, its pause is over, the budgets are not spent, and the breakers of its cause,
site and source let it through.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from headway.events import inert
from headway.holds.advice import Act, Advice
from headway.holds.audit import WIDE, HealState, Intent
from headway.holds.guards import objection, own_release, permitted, sites_to_avoid, spent
from headway.holds.hold import QueuedHold, meaning_of
from headway.holds.job_log import LoggedJob
from headway.holds.rules import Rules
from headway.holds.table import BEFORE_START

_AGAIN = 900.0  # seconds until heal looks again at a job that it left alone
_SAME_HOLD = 3600.0  # seconds by which queue and log may differ about the time of one hold
_SKEW = 60.0  # seconds between two readings of the queue's clock
_REFUSED = 300.0  # seconds of pause after the pool refused an action


class Verb(str, Enum):
    """What heal does about a held job."""

    RELEASE = "release"
    REMOVE = "remove"
    WAIT = "wait"
    LEAVE = "leave"


@dataclass(frozen=True)
class HeldJob:
    """All that is known of one held job."""

    held: QueuedHold
    advice: Advice
    logged: LoggedJob | None = None  # None: no log of it can be read


@dataclass(frozen=True)
class Decision:
    """What to do about one held job now, why, and when to ask again."""

    case: HeldJob
    verb: Verb
    why: str
    due: float  # seconds since the epoch; for a wait, when it may be over
    intent: Intent | None = None  # for what is to be done
    spent: int = 0

    @property
    def id(self) -> str:
        """Stays the same as long as the hold lasts."""
        return decision_id("", self.case.held)

    def as_json(self) -> dict[str, Any]:
        """The decision in types that JSON has."""
        held = self.case.held
        edits, avoid = (self.intent.edits, self.intent.avoid) if self.intent else ((), ())
        return {
            "job": str(held.key),
            "user": inert(held.user),
            "verb": self.verb.value,
            "why": self.why,
            "due": self.due,
            "code": held.code,
            "subcode": held.subcode,
            "reason": inert(held.reason),
            "holds": held.holds,
            "held": round(held.age, 1),
            "releases": self.spent,
            "changes": [f"{edit.attribute} = {edit.new}" for edit in edits],
            "avoid": list(avoid),
            "advice": self.case.advice.as_json(),
        }


def decision_id(audit: str, held: QueuedHold) -> str:
    """The id of the decision about a hold; another try is the same decision."""
    return f"{audit}/{held.key}/{held.holds}@{held.since:.0f}"


def decide(state: HealState, cases: Sequence[HeldJob], now: float, rules: Rules) -> list[Decision]:
    """The decision for each job, in the order of the cases."""
    made = [_alone(state, case, now, rules) for case in cases]
    # The jobs with the fewest releases go first, so that no job is always the canary.
    order = sorted(
        (n for n, decision in enumerate(made) if decision.intent is not None),
        key=lambda n: (made[n].spent, made[n].case.held.since, made[n].case.held.key),
    )
    taken: Counter[str] = Counter()
    for user, count in state.in_last_hour(now).items():
        taken[f"user {user}"] = count
        taken["all"] += count
    for n in order:
        made[n] = _together(state, made[n], taken, now, rules)
    return made


def _alone(state: HealState, case: HeldJob, now: float, rules: Rules) -> Decision:
    """The decision as if there were no other jobs."""
    held, advice = case.held, case.advice
    so_far = spent(held, case.logged, state)

    def leave(why: str) -> Decision:
        return Decision(case, Verb.LEAVE, why, now + _AGAIN, spent=so_far)

    def wait(why: str, seconds: float) -> Decision:
        return Decision(case, Verb.WAIT, why, now + max(1.0, seconds), spent=so_far)

    if why := objection(held, case.logged, rules):
        return leave(why)
    before = state.by_id.get(decision_id(state.id, held))
    if before is not None and before.done is None:
        return wait("it is being decided what became of the last try", 1.0)
    if before is not None and before.done and before.is_release:
        # The queue still shows the same hold, because it lags behind.
        return wait("it was released a moment ago", 5.0)
    if before is not None and before.tries >= rules.most_tries:
        return leave(f"the pool refused {before.tries} times: {before.words}")
    if before is not None and now - before.tried < _REFUSED:
        return wait(f"the pool refused: {before.words}", _REFUSED)
    theirs = _claimed_by_another(state, held)
    if theirs is not None and theirs < rules.takeover:
        return wait("another heal has it in hand", rules.takeover - theirs)
    if advice.act is Act.REMOVE:
        if not rules.remove:
            return leave(f"no release helps: {advice.headline}")
        if not _log_agrees(case):
            return leave(
                "it would be removed, but no log of it agrees with what the queue says of the hold"
            )
        if held.age < rules.remove_after:
            why = f"it will be removed, unless somebody looks after it before: {advice.headline}"
            return wait(why, rules.remove_after - held.age)
        intent = _intent(state, case, now, Verb.REMOVE)
        return Decision(case, Verb.REMOVE, advice.headline, now, intent, so_far)
    if advice.act not in (Act.RELEASE, Act.CHANGE, Act.WAIT):
        return leave(advice.headline or f"the advice is: {advice.act.value}")
    own = own_release(held)
    if own is not None and held.age < own[0]:
        return wait(own[1], own[0] - held.age)
    if so_far >= rules.most_per_job:
        return leave(f"it was released {so_far} times, and its budget is {rules.most_per_job}")
    edits = permitted(advice, held, rules) if advice.act is Act.CHANGE else None
    if edits is not None and edits.objection:
        return leave(edits.objection)
    if advice.act is Act.WAIT:
        # The canary, not the clock, protects the other jobs, so every wait ends.
        rest = rules.most_wait - held.age
        if advice.until is not None:
            rest = min(rest, advice.until - now)
        if rest > 0:
            return wait(advice.until_words or advice.headline, min(rest, advice.next_check))
    rest = rules.pause_after(held.holds) - held.age
    if rest > 0:
        return wait("the pause after its hold is not over", rest)
    intent = replace(
        _intent(state, case, now, Verb.RELEASE),
        breakers=breakers_of(advice),
        edits=edits.edits if edits else (),
        avoid=sites_to_avoid(advice, held),
    )
    return Decision(case, Verb.RELEASE, advice.headline, now, intent, so_far)


def _log_agrees(case: HeldJob) -> bool:
    """Whether the hold is permanent, and the job's complete log says the same of it."""
    held, logged = case.held, case.logged
    return (
        logged is not None
        and logged.held
        and logged.complete
        and case.advice.kind == "permanent"
        and (logged.code, logged.subcode) == (held.code, held.subcode)
        and bool(logged.reason)
        and abs(logged.time - held.since) < _SAME_HOLD
    )


def _together(
    state: HealState, decision: Decision, taken: Counter[str], now: float, rules: Rules
) -> Decision:
    """The decision within the budgets and breakers that all jobs share; `taken` counts it."""
    intent = decision.intent
    if intent is None or decision.verb is not Verb.RELEASE:
        return decision

    def wait(why: str, due: float) -> Decision:
        due = max(now + 1.0, due)
        return replace(decision, verb=Verb.WAIT, why=why, due=due, intent=None)

    user = f"user {intent.user}"
    if taken["all"] >= rules.most_per_hour:
        return wait(f"{rules.most_per_hour} releases in an hour are enough", now + 60.0)
    if taken[user] >= rules.most_per_user:
        why = f"{rules.most_per_user} releases of one user's jobs in an hour are enough"
        return wait(why, now + 60.0)
    for name in intent.breakers:
        breaker = state.breaker(name)
        if breaker.room(now, rules) <= taken[name]:
            why = breaker.words(now, rules)
            if not breaker.under_way(now, rules) and breaker.room(now, rules):
                why = f"{name}: others go first, and it follows if they get through"
            return wait(why, breaker.next_due(now, rules))
    for name in ("all", user, *intent.breakers):
        taken[name] += 1
    return decision


def breakers_of(advice: Advice) -> tuple[str, ...]:
    """The breakers that a release goes through: of its source, its site and its cause.

    If neither source nor site is known, the cause has one that begins with one canary.
    """
    values = advice.hold.values
    source = values.get("source", "")
    if not source and "://" in values.get("url", ""):
        source = values["url"].partition("://")[2].partition("/")[0].rpartition("@")[2]
    narrow = [f"source {source[:200]}"] if source else []
    if advice.avoid_site and advice.hold.site:
        narrow.append(f"site {advice.hold.site}, {advice.cause}")
    return (*narrow, f"{WIDE}{advice.cause}") if narrow else (f"only cause {advice.cause}",)


def _intent(state: HealState, case: HeldJob, now: float, verb: Verb) -> Intent:
    held = case.held
    return Intent(
        id=decision_id(state.id, held),
        time=now,
        act=verb.value,
        key=held.key,
        user=held.user,
        holds=held.holds,
        since=held.since,
        code=held.code,
        subcode=held.subcode,
        cause=case.advice.cause,
        early=meaning_of(case.advice.hold).step in BEFORE_START,
        log=held.log,
        before=held.claim,
        heals=held.heals,
    )


def claim_of(audit: str, held: QueuedHold, number: int) -> str:
    """What marks a job while a decision is carried out: whose it is, and the queue's time."""
    return f"{audit}/{held.since + held.age:.0f}/{number}"


def _claimed_by_another(state: HealState, held: QueuedHold) -> float | None:
    """For how long another heal has worked on this hold; None: none does."""
    audit, _, rest = held.claim.partition("/")
    at = rest.partition("/")[0]
    if audit == state.id or not at.isdigit() or len(at) > 12 or int(at) < held.since:
        return None
    # If a claim is in the future, the queue's clock was set back. It need not be waited for: the
    # schedd lets only one of two heals act.
    ago = held.since + held.age - int(at)
    return ago if ago > -_SKEW else None
