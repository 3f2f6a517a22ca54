"""What heal must not do: jobs it may not touch, changes it may not make, spent budgets. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from headway.events import inert
from headway.holds.advice import Advice, Change
from headway.holds.audit import CATEGORIES, SITE, WHOLE, Edit, HealState
from headway.holds.hold import FIRST, HEAL, QueuedHold, whole
from headway.holds.job_log import LoggedJob
from headway.holds.rules import NEVER, Rules
from headway.holds.table import CODE_NAMES
from headway.pool.policy import AVOID, AVOIDED, backoff, release_expression, releases
from headway.spec import Retries

# What heal may change before it releases a job: requests, within limits, and the sites to avoid.


_LISTED = re.compile(r"['\"]([A-Za-z0-9_.-]{1,100})['\"]", re.ASCII)
_MOST_SITES = 3
#: If its requirements, or an attribute that they name, contain this, the job avoids its past sites
#: by itself.
_AVOIDS_ITSELF = "MachineAttrGLIDEIN_ResourceName1"


class Permitted(NamedTuple):
    """The edits that make a change, or why heal may not make it."""

    edits: tuple[Edit, ...] = ()
    objection: str = ""


def permitted(advice: Advice, held: QueuedHold, rules: Rules) -> Permitted:
    """The edits that the advice asks for: all of them or none."""
    if not advice.changes:
        return Permitted(objection="what to change is not known")
    parts = [_permitted(change, held, rules) for change in advice.changes]
    if refused := next((part.objection for part in parts if part.objection), ""):
        by_hand = f"; by hand: {advice.command}" if advice.command else ""
        return Permitted(objection=refused + by_hand)
    return Permitted(tuple(edit for part in parts for edit in part.edits))


def _permitted(change: Change, held: QueuedHold, rules: Rules) -> Permitted:
    caps = {"RequestMemory": (rules.most_memory, "MiB"), "RequestDisk": (rules.most_disk, "KiB")}
    if change.attribute in caps:
        return _request(change, held, rules, *caps[change.attribute])
    if change.attribute == "JobDurationCategory" and rules.duration:
        if change.new not in CATEGORIES:
            return Permitted(objection=f"there is no duration category {change.new}")
        return Permitted((Edit(change.attribute, change.new),))
    if not change.attribute:
        return Permitted(objection=f"only a person can change it: {change.words}")
    return Permitted(objection=f"{change.attribute} is not changed unasked: {change.words}")


def _request(change: Change, held: QueuedHold, rules: Rules, cap: int, unit: str) -> Permitted:
    name = change.attribute
    now = held.facts.get(name)
    if not WHOLE.match(change.new):
        return Permitted(objection=f"{name} would become an expression")
    if not isinstance(now, int) or isinstance(now, bool) or now <= 0:
        return Permitted(objection=f"its {name} is an expression, which heal does not change")
    new = int(change.new)
    if new <= now:
        return Permitted()  # somebody has raised it already
    said = held.facts.get(f"{FIRST}{name}")
    first = said if isinstance(said, int) and 0 < said <= now else now
    limit = int(min(cap, rules.factor * first))
    if new > limit:
        return Permitted(
            objection=f"it needs {name} = {new:,} {unit}, and heal may go up to {limit:,} {unit}"
        )
    note_first = () if said == first else (Edit(f"{FIRST}{name}", str(first)),)
    return Permitted((*note_first, Edit(name, str(new), str(now))))


def sites_to_avoid(advice: Advice, held: QueuedHold) -> tuple[str, ...]:
    """The sites that an edit must make the job avoid; none: no edit is needed."""
    site = held.site or advice.hold.site
    requirements = held.facts.get("Requirements")
    if not advice.avoid_site or not SITE.match(site) or not isinstance(requirements, str):
        return ()
    avoids = str(held.facts.get(AVOID) or "")
    if _AVOIDS_ITSELF in requirements or (AVOIDED in requirements and _AVOIDS_ITSELF in avoids):
        return ()
    known = [name for name in _LISTED.findall(avoids) if name != site]
    return (*known[1 - _MOST_SITES :], site)


# Why heal leaves a held job alone, and how much of its budget the job has used.


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
#: Characters; an expression of Headway has some hundreds.
_LONGEST_OWN = 8000
_UNKNOWN_PAUSE = 300.0


def objection(held: QueuedHold, logged: LoggedJob | None, rules: Rules) -> str:
    """Why only a person should act on this job; empty: nothing speaks against it."""
    return next(_objections(held, logged, rules), "")


def _objections(held: QueuedHold, logged: LoggedJob | None, rules: Rules) -> Iterator[str]:
    if held.code in NEVER:
        yield "somebody holds it on purpose"
    if held.facts.get(HEAL) is False:
        yield f"its {HEAL} is false: it asks to be left alone"
    if held.age > rules.held_limit:
        days = rules.held_limit / 86400
        yield f"it has been held for more than {days:.0f} days: a person has to decide"
    if held.starts > rules.most_starts:
        yield f"it has been started {held.starts} times, more than {rules.most_starts}"
    # What somebody has changed in the queue to keep the job from being released.
    release = held.facts.get("PeriodicRelease")
    if release is False and held.is_edited("PeriodicRelease"):
        yield "its PeriodicRelease was set to false after it was submitted"
    if release in (None, False) and held.facts.get("HeadwayRun") is not None:
        yield "the periodic_release that headway wrote for it was taken away"
    if held.is_edited("PeriodicHold"):
        yield "its PeriodicHold was edited after it was submitted"
    counts = held.holds_by_reason
    if counts and sum(counts.values()) != held.holds:
        yield "its NumHolds was edited: it is not the sum of NumHoldsByReason"
    if logged is not None and logged.holds:
        yield from _disagreements(held, logged)
        return
    name = CODE_NAMES.get(held.code)
    if name and counts and name not in counts:
        yield f"it was never held with code {held.code}: somebody edited it"


def _disagreements(held: QueuedHold, logged: LoggedJob) -> Iterator[str]:
    """Where the queue and the log differ."""
    if not logged.held:
        yield "its log does not say, or not yet, that it is held"
    if (held.code, held.subcode) != (logged.code, logged.subcode):
        yield (
            f"the queue says it is held with code {held.code}/{held.subcode}, its log says"
            f" {logged.code}/{logged.subcode}: somebody edited it, or the log is not its own"
        )
    if _text(held.reason) != _text(logged.reason):
        yield "the queue gives another reason for the hold than the log: somebody edited it"
    # HTCondor may count one hold as several, but never several as one.
    if logged.complete and logged.holds > held.holds:
        yield (
            f"its log tells of {logged.holds} holds and the queue of {held.holds}: somebody edited"
            " it, or the log is not its own"
        )


def _text(reason: str) -> str:
    """A reason without what queue and log write differently."""
    return _MARKS.sub("", inert(reason, 4 * _COMPARED))[:_COMPARED]


def spent(held: QueuedHold, logged: LoggedJob | None, state: HealState) -> int:
    """Releases that count against the job's budget: the largest number that anything shows.

    Each earlier hold that no person made was released by heal, by the job's own periodic_release or
    by a person. HTCondor counts some holds three times, so the queue's count is used only if the
    log is not complete.
    """
    if logged is not None and logged.complete:
        shown = max(logged.releases, logged.unwanted - 1)
    else:
        shown = held.holds - 1 - held.wanted_holds
    return max(0, shown, held.heals, state.releases(held.key))


def own_release(held: QueuedHold) -> tuple[float, str] | None:
    """Until which age of the hold the job's own periodic_release may act; None: it will not.

    Headway knows its own expression. In any other, the largest number may be a pause.
    """
    expression = held.facts.get("PeriodicRelease")
    if expression is None or expression is False:
        return None
    text = str(expression)
    if (ours := _ours(text)) is not None:
        starts = whole(held.facts.get("NumShadowStarts"))
        if not releases(held.code, held.subcode, holds=held.holds, starts=starts, retries=ours):
            return None
        until = backoff(held.holds, ours) + held.lag
        return until, "its own periodic_release will release it"
    numbers = [int(number) for number in _NUMBER.findall(text)]
    pause = max((n for n in numbers if n <= _LONGEST_OWN_PAUSE), default=0)
    return pause + _UNKNOWN_PAUSE, "its own periodic_release may release it"


def _ours(text: str) -> Retries | None:
    """The retries for which Headway wrote this expression; None: it did not, or it was edited."""
    match = _OWN.search(text) if len(text) <= _LONGEST_OWN else None
    if not match:
        return None
    try:
        pause, input, holds = float(match["backoff"]), int(match["input"]), int(match["holds"])
        retries = Retries(backoff=pause, input=input, holds=holds)
    except ValueError:
        return None
    return retries if _plain(release_expression(retries)) == _plain(text) else None


def _plain(expression: str) -> str:
    """An expression without what the schedd may write differently."""
    text = _REAL.sub(lambda match: f"{float(match[0]):g}", expression)
    return re.sub(r"[\s()]", "", text)
