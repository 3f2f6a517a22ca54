"""Advice on a hold: from what is known of it to what to do about it. Nothing is read or asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from headway.holds.advice import CONDOR, Act, Advice, Change, Commands, look, raised, raised_time
from headway.holds.checks import CheckResults
from headway.holds.evidence import (
    MINUTES,
    Estimate,
    Evidence,
    by_counting,
    gather,
    interval,
    sentences,
    span,
)
from headway.holds.history import History
from headway.holds.hold import Hold, meaning_of
from headway.holds.reason import Reason
from headway.holds.table import (
    BEFORE_START,
    NEVER,
    PERMANENT,
    TRANSIENT,
    Advisable,
    HoldMeaning,
    filled,
    words_of,
)

#: From here on a release is worth its try; below the second figure it is not.
_LIKELY, _UNLIKELY = 0.5, 0.2
#: Holds for one reason in 15 minutes that make a storm, if nobody gets past meanwhile.
_STORM = 5
#: Own releases that came back, after which a hold that passes is no longer believed to.
_ENOUGH = 3
_PAUSE, _LONGEST_PAUSE = 300.0, 3600.0
#: How likely a release succeeds once the change is made, and how many cases that guess is worth.
_AFTER, _AFTER_WORTH = 0.75, 4.0
_AFTER_CHECK, _AFTER_QUIET, _CHECK_WORTH = 0.9, 0.75, 8.0
_NO_CASES = "The logs at hand show no other case, so the chance is that of the table of holds."
_CATEGORY, _MEDIUM_LIMIT = "JobDurationCategory", "20:00:00"
_SECONDS_A_DAY = 86400.0
#: So much later than announced a job may be released by itself.
_LATE = 120.0


@dataclass(frozen=True)
class _Choice:
    act: Act
    estimate: Estimate | None
    until: float | None = None
    until_words: str = ""
    changes: tuple[Change, ...] = ()
    because: tuple[str, ...] = ()
    next_check: float = MINUTES


def make_advice(
    hold: Hold,
    entry: HoldMeaning,
    evidence: Evidence,
    estimate: Estimate,
    *,
    checks: CheckResults | None = None,
    now: float | None = None,
    commands: Commands = CONDOR,
) -> Advice:
    """The advice; the same arguments give the same advice."""
    now = hold.at.moment if now is None else now
    if entry.kind == NEVER:
        decision = _Choice(Act.LEAVE, None, next_check=_SECONDS_A_DAY)
    else:
        decision = _act(hold, entry, evidence, estimate, checks, now)
    words = _words(hold)
    reasons = [filled(entry.why, words)]
    if entry.kind != NEVER:
        reasons += list(sentences(hold, evidence, entry)) or [_NO_CASES]
        reasons += checks.words if checks else ()
        reasons += decision.because
        reasons += _patience(hold, now)
    if decision.act is Act.UNKNOWN and _came_back(evidence) >= _ENOUGH:
        reasons.append("Find out what stops it before it is released again.")
    else:
        reasons.append(_do(entry, decision.act, words, checked=_decided(checks)))
    found = decision.estimate
    lost, forgone, unit = _costs(hold, entry, evidence, estimate)
    return Advice(
        hold=hold,
        act=decision.act,
        cause=entry.id,
        kind=entry.kind,
        probability=found.probability if found else None,
        low=found.low if found else None,
        high=found.high if found else None,
        cases=found.cases if found else 0,
        thin=found.thin if found else False,
        headline=filled(entry.headline, words),
        reasons=tuple(reasons),
        changes=decision.changes,
        until=decision.until,
        until_words=decision.until_words,
        avoid_site=_avoids(hold, entry, evidence, checks),
        cost_release=None if entry.kind == NEVER else lost,
        cost_remove=None if entry.kind == NEVER else forgone,
        cost_unit=unit,
        command=_command(hold, decision, commands),
        next_check=decision.next_check,
    )


def _do(entry: HoldMeaning, act: Act, words: dict[str, str], *, checked: bool) -> str:
    """What to do, in a sentence; the table's own where it says the same as the advice."""
    own = filled(entry.do, words)
    if act is Act.RELEASE:
        return own if own.startswith("Release") and not checked else "Release it."
    if act is Act.WAIT:
        if entry.wait == "own":
            return "Leave it: it is released by itself. Or release it when the input is there."
        return "Release it when the wait is over."
    if act is Act.CHANGE:
        return own if entry.kind == PERMANENT else "Make the change, then release it."
    if act is Act.REMOVE and entry.act != Act.REMOVE.value:
        return "Remove it, mend what stops it, and submit it again."
    return own


def _decided(checks: CheckResults | None) -> bool:
    """Whether a look at the thing itself speaks for a release."""
    return bool(checks and (checks.object_there or checks.file_there or checks.request_enough))


def _avoids(
    hold: Hold, entry: HoldMeaning, evidence: Evidence, checks: CheckResults | None
) -> bool:
    well = evidence.past_site_recent or (checks and checks.site_well)
    return entry.elsewhere and bool(hold.site) and not well


def _patience(hold: Hold, now: float) -> Iterator[str]:
    """What pools do with jobs that wait for too long."""
    days = (now - hold.at.moment) / _SECONDS_A_DAY
    if hold.at.moment > 0 and days >= 10:
        yield f"It has been held for {days:,.0f} days: pools may remove a held job after 14."


def _act(
    hold: Hold,
    entry: HoldMeaning,
    evidence: Evidence,
    estimate: Estimate,
    checks: CheckResults | None,
    now: float,
) -> _Choice:
    if checks:
        checked = _by_checks(hold, entry, evidence, estimate, checks)
        if checked:
            return checked
    p = estimate.probability
    # Others who got past it after a long run had mostly changed something, which no log tells.
    if entry.kind == PERMANENT and (p < _LIKELY or entry.step not in BEFORE_START):
        return _change(hold, entry, estimate)
    back = _came_back(evidence)
    if back >= _ENOUGH and not evidence.released_own.success and p < _LIKELY:
        return _given_up(hold, entry, estimate, back)
    waiting = _wait(hold, entry, evidence, estimate, checks, now)
    if waiting:
        return waiting
    if entry.kind == TRANSIENT or p >= _LIKELY:
        return _Choice(Act.RELEASE, estimate, next_check=60.0)
    if (entry.changes or entry.raises) and (p < _UNLIKELY or not entry.wait):
        return _change(hold, entry, estimate)
    if entry.wait and p >= _UNLIKELY:  # it has waited
        return _Choice(Act.RELEASE, estimate, next_check=60.0)
    return _Choice(Act.UNKNOWN, estimate, next_check=3600.0)


def _by_checks(
    hold: Hold, entry: HoldMeaning, evidence: Evidence, estimate: Estimate, checks: CheckResults
) -> _Choice | None:
    """What a look at the thing itself decides."""
    if _decided(checks):
        return _Choice(Act.RELEASE, _surer(estimate), next_check=60.0)
    if checks.object_there is False:
        known = evidence.mates_past or evidence.own_past
        if known and evidence.shared:
            return _Choice(
                Act.WAIT,
                estimate,
                until_words="until the object answers again: other jobs have had it",
                next_check=_PAUSE,
            )
        return _change(hold, entry, estimate) if entry.changes else None
    if checks.quiet and entry.kind != PERMANENT and _came_back(evidence) < _ENOUGH:
        return _Choice(Act.RELEASE, _surer(estimate, _AFTER_QUIET), next_check=60.0)
    return None


def _came_back(evidence: Evidence) -> int:
    own = evidence.released_own
    return own.again + own.failed


def _change(hold: Hold, entry: HoldMeaning, estimate: Estimate) -> _Choice:
    if entry.act == Act.REMOVE.value:
        return _Choice(Act.REMOVE, estimate, next_check=_SECONDS_A_DAY)
    words = _words(hold)
    changes = [raised(hold, entry.raises)] if entry.raises else []
    longer = raised_time(hold)
    for each in entry.changes:
        # No duration category lifts a limit that the job itself has set.
        if not _is_so(hold, each) and not (longer and each.attribute == _CATEGORY):
            changes.append(_made(hold, each, words))
    changes += [longer] if longer else []
    p = estimate.probability
    because = (f"Released as it is, it would succeed with about {p:.0%}.",)
    low, high = interval(_AFTER, _AFTER_WORTH)
    after = replace(estimate, probability=_AFTER, low=low, high=high, thin=True)
    return _Choice(Act.CHANGE, after, changes=tuple(changes), because=because, next_check=3600.0)


def _is_so(hold: Hold, change: Advisable) -> bool:
    """Whether the job has it like that already."""
    return bool(change.new) and str(hold.facts.get(change.attribute, "")) == change.new.strip('"')


def _made(hold: Hold, change: Advisable, words: dict[str, str]) -> Change:
    attribute, new = change.attribute, change.new
    old = str(hold.facts.get(attribute, "")) if attribute else ""
    if attribute == _CATEGORY and not old and hold.values.get("limit") != _MEDIUM_LIMIT:
        attribute = new = ""  # nothing says that this pool has duration categories
    return Change(filled(change.words, words), attribute, old, new, change.line)


def _given_up(hold: Hold, entry: HoldMeaning, estimate: Estimate, back: int) -> _Choice:
    """Its own releases speak against it, which no other job's events can make them do.

    Nothing is wrong with the job itself, so it is not removed: it can go on when that is mended.
    """
    if entry.changes or entry.raises:
        return _change(hold, entry, estimate)
    said = f"It has come back {back} times: what stops it does not pass by itself."
    return _Choice(Act.UNKNOWN, estimate, because=(said,), next_check=_SECONDS_A_DAY)


def _wait(
    hold: Hold,
    entry: HoldMeaning,
    evidence: Evidence,
    estimate: Estimate,
    checks: CheckResults | None,
    now: float,
) -> _Choice | None:
    """A wait that is not over yet, for what stopped this job, or many, to pass."""
    if checks and checks.quiet and now >= hold.at.moment + MINUTES:
        return None
    if entry.wait == "own":
        return _wait_for_own(hold, estimate, now)
    back = _came_back(evidence)
    until, words = 0.0, ""
    if entry.wait and evidence.alike_recent >= _STORM and not evidence.past_recent:
        until = hold.at.moment + MINUTES
        words = "until no such hold has come for 15 minutes: many jobs are held like this now"
    if entry.wait and estimate.probability < _LIKELY:
        asked = entry.wait == "object"
        until = max(until, hold.at.moment + (_PAUSE if asked else MINUTES))
        words = words or ("until the object answers" if asked else "until the cause is gone")
    if back:
        pause = min(_LONGEST_PAUSE, _PAUSE * 2.0 ** min(back, 10))
        until = max(until, hold.at.moment + pause)
        words = words or f"for {span(pause)}: its last release came back"
    if entry.wait == "object" and "object" not in words and until:
        words = f"until the object answers, or {words.removeprefix('until ')}"
    if checks and checks.quiet is False:
        until = max(until, now + MINUTES)
        words = words or "until no such hold has come for 15 minutes"
    if until <= now:
        return None
    return _Choice(
        Act.WAIT,
        estimate,
        until=until,
        until_words=words,
        next_check=min(_SECONDS_A_DAY, max(60.0, until - now)),
    )


def _wait_for_own(hold: Hold, estimate: Estimate, now: float) -> _Choice | None:
    """The job is released by itself after a pause; HTCondor looks for that once a minute."""
    said = hold.values.get("pause", "")
    pause = min(_LONGEST_PAUSE, float(said)) if said else _LONGEST_PAUSE
    until = hold.at.moment + pause + _LATE
    if until <= now:
        return None
    after = f"{span(pause)} after the hold" if said else "after a pause"
    return _Choice(
        Act.WAIT,
        estimate,
        until=until,
        until_words=f"for the job's own release, {after}",
        next_check=max(60.0, until - now),
    )


def _surer(estimate: Estimate, p: float = _AFTER_CHECK) -> Estimate:
    low, high = interval(p, _CHECK_WORTH)
    if estimate.probability >= p:
        return estimate
    return replace(estimate, probability=p, low=low, high=high)


def _costs(
    hold: Hold, entry: HoldMeaning, evidence: Evidence, estimate: Estimate
) -> tuple[float, float, str]:
    """Expected hours lost: by a release that fails, and by removing what would have succeeded.

    A release that fails costs what an attempt like this one took. A removal throws away what the
    job has taken so far, and a start, if a release would have succeeded.
    """
    gpus = hold.facts.get("RequestGpus")
    number = float(gpus) if isinstance(gpus, (int, float)) and 0 < gpus < 1024 else 1.0
    unit = "GPU hours" if isinstance(gpus, (int, float)) and gpus > 0 else "slot hours"
    attempt = next(
        (hours for hours in (hold.attempt, evidence.attempt_hours) if hours is not None), entry.cost
    )
    start = evidence.start_hours or 0.0
    p = estimate.probability
    return (1 - p) * attempt * number, p * (hold.spent + start) * number, unit


def _command(hold: Hold, decision: _Choice, commands: Commands) -> str:
    release = commands.release([hold.job])
    if decision.act is Act.RELEASE:
        return release
    if decision.act is Act.REMOVE:
        return commands.remove([hold.job])
    if decision.act is Act.CHANGE:
        edits = [change for change in decision.changes if change.attribute and change.new]
        parts = [commands.edit([hold.job], edit.attribute, edit.new) for edit in edits]
        return " && ".join(part for part in [*parts, release] if part)
    if decision.act is Act.WAIT and (url := hold.values.get("url")):
        return f"{look(url)} && {release}"
    return release if decision.act is Act.WAIT else ""


def _words(hold: Hold) -> dict[str, str]:
    reason = Reason(hold.template, hold.values)
    return words_of(hold.code, hold.subcode, hold.reason, reason, hold.facts)


# The advisor: what to do about held jobs, from what logs tell and what can be looked at now.


def advise(
    hold: Hold,
    history: History,
    checks: CheckResults | None = None,
    now: float | None = None,
    *,
    commands: Commands = CONDOR,
) -> Advice:
    """What to do about a hold, by all that was known before it and what `checks` found since.

    `now` (default: when the job was held) ends waits. Nothing is read or asked here.
    """
    entry = meaning_of(hold)
    evidence = gather(hold, history, entry)
    estimate = by_counting(hold, evidence, entry)
    return make_advice(hold, entry, evidence, estimate, checks=checks, now=now, commands=commands)
