"""Why a held job is not heal's to touch, and what it has left of its budget."""

from __future__ import annotations

import re

from headway.events import inert
from headway.heal.held import HEAL, Held, Told, whole
from headway.heal.rules import NEVER, Rules
from headway.heal.state import State
from headway.holds.table import CODE_NAMES
from headway.pool.policy import backoff, release_expression, releases
from headway.spec import Retries

_COMPARED = 300  # characters of a reason
_MARKS = re.compile(r"\W+")
_OWN = re.compile(
    r"ifThenElse\(+(?P<backoff>[0-9.eE+-]+) ?\* ?pow.*"
    r"HoldReasonSubCode ?== ?81 ?&& ?NumHolds ?<= ?(?P<input>\d{1,6}).*?"
    r"NumHolds ?<= ?(?P<holds>\d{1,6})",
    re.DOTALL,
)
_NUMBER = re.compile(r"(?<![\w.])\d{2,7}(?![\w.])", re.ASCII)
_REAL = re.compile(r"(?<!\d)\d+\.\d+(?:[eE][+-]\d+)?", re.ASCII)
_LONGEST_OWN_PAUSE = 7 * 86400
#: Characters: what Headway writes itself has some hundreds.
_LONGEST_OWN = 8000
_UNKNOWN_PAUSE = 300.0


def objection(held: Held, told: Told | None, rules: Rules) -> str:
    """Why nobody but a person should act on this job; empty: nothing speaks against it."""
    return _wish(held) or _limit(held, rules) or _edit(held) or _disagreement(held, told)


def _wish(held: Held) -> str:
    if held.code in NEVER:
        return "somebody holds it on purpose"
    if held.facts.get(HEAL) is False:
        return f"its {HEAL} is false: it asks to be left alone"
    return ""


def _limit(held: Held, rules: Rules) -> str:
    if held.age > rules.held_limit:
        days = rules.held_limit / 86400
        return f"it has been held for more than {days:.0f} days: a person has to decide"
    if held.starts > rules.most_starts:
        return f"it has been started {held.starts} times, more than {rules.most_starts}"
    return ""


def _edit(held: Held) -> str:
    """What somebody has changed in the queue to keep the job from being released."""
    release = held.facts.get("PeriodicRelease")
    ours = "HeadwayRun" in held.facts
    if release is False and held.is_edited("PeriodicRelease"):
        return "its PeriodicRelease was set to false after it was submitted"
    if ours and release in (None, False) and held.facts.get("HeadwayRun") is not None:
        return "the periodic_release that headway wrote for it was taken away"
    if held.is_edited("PeriodicHold"):
        return "its PeriodicHold was edited after it was submitted"
    counts = held.holds_by_reason
    if counts and sum(counts.values()) != held.holds:
        return "its NumHolds was edited: it is not the sum of NumHoldsByReason"
    return ""


def _disagreement(held: Held, told: Told | None) -> str:
    """Where the queue and the log do not tell the same story."""
    if told is None or not told.holds:
        name = CODE_NAMES.get(held.code)
        if name and held.holds_by_reason and name not in held.holds_by_reason:
            return f"it was never held with code {held.code}: somebody edited it"
        return ""
    if not told.held:
        return "its log does not say, or not yet, that it is held"
    if (held.code, held.subcode) != (told.code, told.subcode):
        return (
            f"the queue says it is held with code {held.code}/{held.subcode}, its log says"
            f" {told.code}/{told.subcode}: somebody edited it, or the log is not its own"
        )
    if _text(held.reason) != _text(told.reason):
        return "the queue gives another reason for the hold than the log: somebody edited it"
    # HTCondor may count one hold as several, but never several as one.
    if told.whole and told.holds > held.holds:
        return (
            f"its log tells of {told.holds} holds and the queue of {held.holds}: somebody edited"
            " it, or the log is not its own"
        )
    return ""


def _text(reason: str) -> str:
    """A reason without what the queue and the log write differently."""
    return _MARKS.sub("", inert(reason, 4 * _COMPARED))[:_COMPARED]


def spent(held: Held, told: Told | None, state: State) -> int:
    """Releases that count against the job's budget: the most that anything shows.

    Every hold before this one that nobody wanted was released by somebody: by heal, by the job's
    own periodic_release or by a person. HTCondor counts some holds three times, so the queue's
    count is only taken where the log does not have the whole story.
    """
    if told is not None and told.whole:
        shown = max(told.releases, told.unwanted - 1)
    else:
        shown = held.holds - 1 - held.wanted_holds
    return max(0, shown, held.heals, state.releases(held.key))


def own_release(held: Held) -> tuple[float, str] | None:
    """Until which age the job's own periodic_release may still act, and in words; None: it won't.

    Headway's own expression is known by heart. Of any other one only its numbers are, the
    longest of which may be a pause.
    """
    expression = held.facts.get("PeriodicRelease")
    if expression is None or expression is False:
        return None
    text = str(expression)
    ours = _ours(text)
    if ours is not None:
        shadow_starts = whole(held.facts.get("NumShadowStarts"))
        if not releases(
            held.code, held.subcode, holds=held.holds, starts=shadow_starts, retries=ours
        ):
            return None
        until = backoff(held.holds, ours) + held.lag
        return until, "its own periodic_release will release it"
    numbers = [int(number) for number in _NUMBER.findall(text)]
    pause = max((n for n in numbers if n <= _LONGEST_OWN_PAUSE), default=0)
    return pause + _UNKNOWN_PAUSE, "its own periodic_release may release it"


def _ours(text: str) -> Retries | None:
    """The retries that Headway wrote this expression for, if it did and nobody edited it."""
    match = _OWN.search(text) if len(text) <= _LONGEST_OWN else None
    if not match:
        return None
    try:
        retries = Retries(
            backoff=float(match["backoff"]),
            input=int(match["input"]),
            holds=int(match["holds"]),
        )
    except ValueError:
        return None
    return retries if _plain(release_expression(retries)) == _plain(text) else None


def _plain(expression: str) -> str:
    """An expression without what the schedd may write differently."""
    text = _REAL.sub(lambda match: f"{float(match[0]):g}", expression)
    return re.sub(r"[\s()]", "", text)
