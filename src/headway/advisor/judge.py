"""The judge: how likely a release is to succeed, by counting and a prior that rules until then."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from headway.advisor.evidence import Ends, Evidence
from headway.advisor.hold import Hold
from headway.holds.table import BEFORE_START, OUTPUT, TRANSIENT, Entry

#: Cases that a wider circle counts for against a narrower one.
_SHRINK = 4.0
#: Of one job's own releases each counts for so many of others'.
_OWN = 2.0
#: Fewer cases than this do not overrule the table.
_THIN = 8.0
_Z = 1.645  # of a 90 % interval
#: Mates that got past the same step speak for the object, and those held for the same reason while
#: nobody gets past speak against it; neither is a release, so each counts for less than one.
_MATE_PAST, _MOST_PAST = 0.5, 6.0
_OTHER_PAST, _MOST_OTHER = 0.1, 1.5  # of other clusters, which may want other objects
_HELD_TOO, _MOST_HELD = 0.25, 3.0
_NOT_SHARED = 0.25


@dataclass(frozen=True)
class Estimate:
    """The probability that a release succeeds with nothing changed, with its 90 % interval."""

    probability: float
    low: float
    high: float
    cases: int
    thin: bool


class Judge(Protocol):
    """Whoever can say how likely a release succeeds; a learned model takes this place."""

    def __call__(self, hold: Hold, evidence: Evidence, entry: Entry) -> Estimate:
        """Pure: the same arguments give the same answer."""


def by_counting(hold: Hold, evidence: Evidence, entry: Entry) -> Estimate:
    """From the widest circle to the narrowest, each shrunk towards the one before it.

    Releases for the same cause of everybody, for the same reason, of the same object, of the
    cluster, of the job itself: a circle without cases changes nothing, three cases move the
    estimate by less than half, and the table's prior is where it begins.
    """
    p, weight = entry.prior, max(entry.worth, 0.5)
    circles = (
        (evidence.released, 1.0),
        (evidence.released_alike, 1.0),
        (evidence.released_object, 1.0),
        (evidence.released_mates, 1.0),
        (evidence.released_own, _OWN),
    )
    for ends, worth in circles:
        if ends.cases:
            p, weight = _shrunk(p, weight, ends, worth)
    past, held = _mates(evidence) if _tells_of_others(entry) else (0.0, 0.0)
    p = (p * weight + past) / (weight + past + held)
    weight += past + held
    counted = evidence.released.cases + evidence.released_own.cases * (_OWN - 1)
    low, high = interval(p, weight)
    cases = evidence.released.cases + (evidence.others_past if past else 0)
    return Estimate(p, low, high, cases, counted + past + held < _THIN)


def _shrunk(p: float, weight: float, ends: Ends, worth: float) -> tuple[float, float]:
    strength = min(weight, max(_SHRINK, weight if weight > 2 * _SHRINK else 0.0))
    number = ends.cases * worth
    return (p * strength + ends.success * worth) / (strength + number), strength + number


def _tells_of_others(entry: Entry) -> bool:
    """Whether getting past the step is a matter of files and sites, not of what the job does."""
    # What holds up the results of one job (a full quota, a wrong place) says nothing of others':
    # only a fault that passes does, for each start costs the whole computation.
    return entry.step in BEFORE_START or (entry.step == OUTPUT and entry.kind == TRANSIENT)


def _mates(evidence: Evidence) -> tuple[float, float]:
    share = 1.0 if evidence.shared else _NOT_SHARED
    past = min(_MOST_PAST, _MATE_PAST * evidence.mates_past) * share
    past += min(_MOST_OTHER, _OTHER_PAST * max(0, evidence.others_past - evidence.mates_past))
    if evidence.own_past:
        past = max(past, min(_MOST_PAST, _OWN * evidence.own_past))
    if past and evidence.mates_past_recent:
        return past, 0.0
    # Those who are held for the same reason, and nobody of the cluster got past meanwhile.
    alike = evidence.alike_object_recent if evidence.mates_past else evidence.mates_held
    return past, min(_MOST_HELD, _HELD_TOO * alike)


def interval(p: float, weight: float) -> tuple[float, float]:
    """Wilson's interval of a share that so many cases stand behind."""
    z2 = _Z * _Z
    middle = (p + z2 / (2 * weight)) / (1 + z2 / weight)
    half = _Z / (1 + z2 / weight) * math.sqrt(p * (1 - p) / weight + z2 / (4 * weight * weight))
    return max(0.0, min(p, middle - half)), min(1.0, max(p, middle + half))
