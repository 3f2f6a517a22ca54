"""From what is known of a hold to advice on it. Pure: nothing is read, and nobody is asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

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
    HoldMeaning,
    filled,
    words_of,
)

#: A release is worth trying from the first probability on, and not below the second.
_LIKELY, _UNLIKELY = 0.5, 0.2
#: So many holds for one reason in 15 minutes, while no job gets past, are a storm.
_STORM = 5
#: After so many releases that came back, a hold is no longer expected to pass.
_ENOUGH = 3
_PAUSE, _LONGEST_PAUSE = 300.0, 3600.0
#: How likely a release succeeds after the change, and how many cases that guess is worth.
_AFTER, _AFTER_WORTH = 0.75, 4.0
_AFTER_CHECK, _AFTER_QUIET, _CHECK_WORTH = 0.9, 0.75, 8.0
_NO_CASES = "The logs at hand show no other case, so the chance is that of the table of holds."
_CATEGORY, _MEDIUM_LIMIT = "JobDurationCategory", "20:00:00"
_SECONDS_A_DAY = 86400.0
#: HTCondor may release a job so much later than announced.
_LATE = 120.0
_NO_ESTIMATE = {"probability": None, "low": None, "high": None, "cases": 0, "thin": False}


@dataclass(frozen=True)
class _Choice:
    act: Act
    estimate: Estimate | None
    until: float | None = None
    until_words: str = ""
    changes: tuple[Change, ...] = ()
    because: tuple[str, ...] = ()
    next_check: float = MINUTES


@dataclass(frozen=True)
class _Case:
    """All that is known of one hold, and what follows from it."""

    hold: Hold
    meaning: HoldMeaning
    evidence: Evidence
    estimate: Estimate
    checks: CheckResults
    now: float

    @property
    def checked(self) -> bool:
        """Whether a check of the thing itself speaks for a release."""
        checks = self.checks
        return bool(checks.object_there or checks.file_there or checks.request_enough)

    @property
    def came_back(self) -> int:
        """How many releases of this job ended in a hold for the same cause, or in a failure."""
        own = self.evidence.released_own
        return own.again + own.failed

    def choose(self) -> _Choice:
        """The action, with the reasons that the evidence alone does not give."""
        meaning, p = self.meaning, self.estimate.probability
        if meaning.kind == NEVER:
            return _Choice(Act.LEAVE, None, next_check=_SECONDS_A_DAY)
        if choice := self._by_checks():
            return choice
        # Others who got past it after a long run had mostly changed something, which no log tells.
        if meaning.kind == PERMANENT and (p < _LIKELY or meaning.step not in BEFORE_START):
            return self._change()
        if self.came_back >= _ENOUGH and not self.evidence.released_own.success and p < _LIKELY:
            return self._give_up()
        if waiting := self._wait():
            return waiting
        if meaning.kind == TRANSIENT or p >= _LIKELY:
            return _release(self.estimate)
        if (meaning.changes or meaning.raises) and (p < _UNLIKELY or not meaning.wait):
            return self._change()
        if meaning.wait and p >= _UNLIKELY:  # it has waited
            return _release(self.estimate)
        return _Choice(Act.UNKNOWN, self.estimate, next_check=3600.0)

    def _by_checks(self) -> _Choice | None:
        """What a check of the thing itself decides."""
        evidence, checks = self.evidence, self.checks
        if self.checked:
            return _release(_surer(self.estimate, _AFTER_CHECK))
        if checks.object_there is False:
            if evidence.shared and (evidence.mates_past or evidence.own_past):
                words = "until the object answers again: other jobs have had it"
                return _Choice(Act.WAIT, self.estimate, until_words=words, next_check=_PAUSE)
            return self._change() if self.meaning.changes else None
        if checks.quiet and self.meaning.kind != PERMANENT and self.came_back < _ENOUGH:
            return _release(_surer(self.estimate, _AFTER_QUIET))
        return None

    def _change(self) -> _Choice:
        hold, meaning = self.hold, self.meaning
        if meaning.act == Act.REMOVE.value:
            return _Choice(Act.REMOVE, self.estimate, next_check=_SECONDS_A_DAY)
        words = _words(hold)
        changes = [raised(hold, meaning.raises)] if meaning.raises else []
        longer = raised_time(hold)
        changes += [
            _made(hold, each, words)
            for each in meaning.changes
            # No duration category lifts a limit that the job itself has set.
            if not _is_so(hold, each) and not (longer and each.attribute == _CATEGORY)
        ]
        changes += [longer] if longer else []
        low, high = interval(_AFTER, _AFTER_WORTH)
        after = replace(self.estimate, probability=_AFTER, low=low, high=high, thin=True)
        unchanged = (
            f"Released as it is, it would succeed with about {self.estimate.probability:.0%}."
        )
        return _Choice(
            Act.CHANGE, after, changes=tuple(changes), because=(unchanged,), next_check=3600.0
        )

    def _give_up(self) -> _Choice:
        """Its own releases came back. It is not removed: it can go on after a repair."""
        if self.meaning.changes or self.meaning.raises:
            return self._change()
        why = f"It has come back {self.came_back} times: what stops it does not pass by itself."
        return _Choice(Act.UNKNOWN, self.estimate, because=(why,), next_check=_SECONDS_A_DAY)

    def _wait(self) -> _Choice | None:
        """A wait that is not over yet, for what stopped this job, or many, to pass."""
        wait, evidence, held = self.meaning.wait, self.evidence, self.hold.at.moment
        if self.checks.quiet and self.now >= held + MINUTES:
            return None
        if wait == "own":
            return self._wait_for_own_release()
        until, words = 0.0, ""
        if wait and evidence.alike_recent >= _STORM and not evidence.past_recent:
            until = held + MINUTES
            words = "until no such hold has come for 15 minutes: many jobs are held like this now"
        if wait and self.estimate.probability < _LIKELY:
            for_object = wait == "object"
            until = max(until, held + (_PAUSE if for_object else MINUTES))
            words = words or f"until the {'object answers' if for_object else 'cause is gone'}"
        if self.came_back:
            pause = min(_LONGEST_PAUSE, _PAUSE * 2.0 ** min(self.came_back, 10))
            until = max(until, held + pause)
            words = words or f"for {span(pause)}: its last release came back"
        if wait == "object" and "object" not in words and until:
            words = f"until the object answers, or {words.removeprefix('until ')}"
        if self.checks.quiet is False:
            until = max(until, self.now + MINUTES)
            words = words or "until no such hold has come for 15 minutes"
        return self._wait_until(until, words)

    def _wait_for_own_release(self) -> _Choice | None:
        """The job is released by itself after a pause; HTCondor looks for that once a minute."""
        said = self.hold.values.get("pause", "")
        pause = min(_LONGEST_PAUSE, float(said)) if said else _LONGEST_PAUSE
        after = f"{span(pause)} after the hold" if said else "after a pause"
        until = self.hold.at.moment + pause + _LATE
        return self._wait_until(until, f"for the job's own release, {after}")

    def _wait_until(self, until: float, words: str) -> _Choice | None:
        if until <= self.now:
            return None
        again = min(_SECONDS_A_DAY, max(60.0, until - self.now))
        return _Choice(Act.WAIT, self.estimate, until, words, next_check=again)

    def reasons(self, choice: _Choice) -> Iterator[str]:
        """Why, what weighs most first, and last what to do."""
        words = _words(self.hold)
        yield filled(self.meaning.why, words)
        if self.meaning.kind != NEVER:
            yield from list(sentences(self.hold, self.evidence, self.meaning)) or [_NO_CASES]
            yield from self.checks.words
            yield from choice.because
            days = (self.now - self.hold.at.moment) / _SECONDS_A_DAY
            if self.hold.at.moment > 0 and days >= 10:
                yield f"It has been held for {days:,.0f} days: pools may remove held jobs after 14."
        yield self._what_to_do(choice.act, filled(self.meaning.do, words))

    def _what_to_do(self, act: Act, from_table: str) -> str:
        """One sentence: the table's own if it says the same as the advice."""
        if act is Act.UNKNOWN and self.came_back >= _ENOUGH:
            return "Find out what stops it before it is released again."
        if act is Act.RELEASE and (self.checked or not from_table.startswith("Release")):
            return "Release it."
        if act is Act.WAIT and self.meaning.wait == "own":
            return "Leave it: it is released by itself. Or release it when the input is there."
        if act is Act.WAIT:
            return "Release it when the wait is over."
        if act is Act.CHANGE and self.meaning.kind != PERMANENT:
            return "Make the change, then release it."
        if act is Act.REMOVE and self.meaning.act != Act.REMOVE.value:
            return "Remove it, mend what stops it, and submit it again."
        return from_table

    def avoids_site(self) -> bool:
        """Whether the next start should be at another site."""
        well = self.evidence.past_site_recent or self.checks.site_well
        return self.meaning.elsewhere and bool(self.hold.site) and not well

    def costs(self) -> dict[str, Any]:
        """Expected hours lost: by a release that fails, and by removing what would have succeeded.

        A release that fails costs what an attempt like this one took. A removal throws away what
        the job has used so far, and a start, if a release would have succeeded.
        """
        hold, evidence, p = self.hold, self.evidence, self.estimate.probability
        asked = hold.facts.get("RequestGpus")
        gpus = float(asked) if isinstance(asked, (int, float)) else 0.0
        unit = "GPU hours" if gpus > 0 else "slot hours"
        if self.meaning.kind == NEVER:
            return {"cost_unit": unit}
        number = gpus if 0 < gpus < 1024 else 1.0
        known = (hours for hours in (hold.attempt, evidence.attempt_hours) if hours is not None)
        start = evidence.start_hours or 0.0
        return {
            "cost_release": (1 - p) * next(known, self.meaning.cost) * number,
            "cost_remove": p * (hold.spent + start) * number,
            "cost_unit": unit,
        }


def _release(estimate: Estimate) -> _Choice:
    return _Choice(Act.RELEASE, estimate, next_check=60.0)


def _surer(estimate: Estimate, p: float) -> Estimate:
    if estimate.probability >= p:
        return estimate
    low, high = interval(p, _CHECK_WORTH)
    return replace(estimate, probability=p, low=low, high=high)


def _is_so(hold: Hold, change: Change) -> bool:
    """Whether the job has it like that already."""
    return bool(change.new) and str(hold.facts.get(change.attribute, "")) == change.new.strip('"')


def _made(hold: Hold, change: Change, words: dict[str, str]) -> Change:
    """The table's change for this job."""
    old = str(hold.facts.get(change.attribute, "")) if change.attribute else ""
    made = replace(change, words=filled(change.words, words), old=old)
    if change.attribute == _CATEGORY and not old and hold.values.get("limit") != _MEDIUM_LIMIT:
        return replace(made, attribute="", new="")  # does this pool have duration categories?
    return made


def _command(hold: Hold, choice: _Choice, commands: Commands) -> str:
    release = commands.release([hold.job])
    if choice.act is Act.RELEASE:
        return release
    if choice.act is Act.REMOVE:
        return commands.remove([hold.job])
    if choice.act is Act.CHANGE:
        edits = [change for change in choice.changes if change.attribute and change.new]
        parts = [commands.edit([hold.job], edit.attribute, edit.new) for edit in edits]
        return " && ".join(part for part in [*parts, release] if part)
    if choice.act is Act.WAIT and (url := hold.values.get("url")):
        return f"{look(url)} && {release}"
    return release if choice.act is Act.WAIT else ""


def _words(hold: Hold) -> dict[str, str]:
    reason = Reason(hold.template, hold.values)
    return words_of(hold.code, hold.subcode, hold.reason, reason, hold.facts)


def make_advice(
    hold: Hold,
    meaning: HoldMeaning,
    evidence: Evidence,
    estimate: Estimate,
    *,
    checks: CheckResults | None = None,
    now: float | None = None,
    commands: Commands = CONDOR,
) -> Advice:
    """The advice; the same arguments give the same advice."""
    now = hold.at.moment if now is None else now
    case = _Case(hold, meaning, evidence, estimate, checks or CheckResults(), now)
    choice = case.choose()
    return Advice(
        hold=hold,
        act=choice.act,
        cause=meaning.id,
        kind=meaning.kind,
        headline=filled(meaning.headline, _words(hold)),
        reasons=tuple(case.reasons(choice)),
        changes=choice.changes,
        until=choice.until,
        until_words=choice.until_words,
        avoid_site=case.avoids_site(),
        command=_command(hold, choice, commands),
        next_check=choice.next_check,
        **(vars(choice.estimate) if choice.estimate else _NO_ESTIMATE),
        **case.costs(),
    )


def advise(
    hold: Hold,
    history: History,
    checks: CheckResults | None = None,
    now: float | None = None,
    *,
    commands: Commands = CONDOR,
) -> Advice:
    """What to do about a hold, by all that was known before it and what checks have found since.

    Args:
        hold: The hold.
        history: What the logs at hand show.
        checks: What was found when somebody looked; None: nobody has.
        now: Seconds since the epoch, by which waits end; default: when the job was held.
        commands: How a person acts on the job.
    """
    meaning = meaning_of(hold)
    evidence = gather(hold, history, meaning)
    estimate = by_counting(hold, evidence, meaning)
    return make_advice(hold, meaning, evidence, estimate, checks=checks, now=now, commands=commands)
