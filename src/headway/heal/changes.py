"""What may be changed of a job before it is released: its requests, within limits, and where."""

from __future__ import annotations

import re
from typing import NamedTuple

from headway.advisor.advice import Advice, Change
from headway.heal.held import FIRST, Held
from headway.heal.rules import Rules
from headway.heal.state import CATEGORIES, SITE, WHOLE, Edit
from headway.pool.policy import AVOID, AVOIDED

_LISTED = re.compile(r"['\"]([A-Za-z0-9_.-]{1,100})['\"]", re.ASCII)
_MOST_SITES = 3
#: A requirement, or an attribute that one names, with this in it keeps the job away from its past
#: sites already.
_AVOIDS_ITSELF = "MachineAttrGLIDEIN_ResourceName1"


class Permitted(NamedTuple):
    """The edits that make a change, or why it is not heal's to make."""

    edits: tuple[Edit, ...] = ()
    objection: str = ""


def permitted(advice: Advice, held: Held, rules: Rules) -> Permitted:
    """The edits that an advice asks for; all of them or none."""
    edits: list[Edit] = []
    for change in advice.changes:
        made = _permitted(change, held, rules)
        if made.objection and advice.command:
            return Permitted(objection=f"{made.objection}; by hand: {advice.command}")
        if made.objection:
            return made
        edits += made.edits
    if not advice.changes:
        return Permitted(objection="what to change is not known")
    return Permitted(tuple(edits))


def _permitted(change: Change, held: Held, rules: Rules) -> Permitted:
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


def _request(change: Change, held: Held, rules: Rules, cap: int, unit: str) -> Permitted:
    name = change.attribute
    now = held.facts.get(name)
    if not WHOLE.match(change.new):
        return Permitted(objection=f"{name} would become an expression")
    if not isinstance(now, int) or isinstance(now, bool) or now <= 0:
        return Permitted(objection=f"its {name} is an expression, which heal does not change")
    new = int(change.new)
    if new <= now:
        return Permitted()  # somebody has raised it since
    said = held.facts.get(f"{FIRST}{name}")
    first = said if isinstance(said, int) and 0 < said <= now else now
    limit = int(min(cap, rules.factor * first))
    if new > limit:
        return Permitted(
            objection=f"it needs {name} = {new:,} {unit}, and heal may go up to {limit:,} {unit}"
        )
    kept = () if said == first else (Edit(f"{FIRST}{name}", str(first)),)
    return Permitted((*kept, Edit(name, str(new), str(now))))


def sites_to_avoid(advice: Advice, held: Held) -> tuple[str, ...]:
    """The sites that a job is to be kept away from by an edit; none: it needs no edit."""
    site = held.site or advice.hold.site
    requirements = held.facts.get("Requirements")
    if not advice.avoid_site or not SITE.match(site) or not isinstance(requirements, str):
        return ()
    avoids = str(held.facts.get(AVOID) or "")
    if _AVOIDS_ITSELF in requirements or (AVOIDED in requirements and _AVOIDS_ITSELF in avoids):
        return ()
    known = [name for name in _LISTED.findall(avoids) if name != site]
    return (*known[1 - _MOST_SITES :], site)
