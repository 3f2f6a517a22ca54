"""Evidence: what the logs showed when a job was held, of this job, its cluster and all others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from headway.holds.history import History, object_of
from headway.holds.hold import Cut, Hold
from headway.holds.table import BEFORE_START, OUTPUT, TRANSIENT, HoldMeaning, wilson
from headway.text import many

MINUTES = 15 * 60.0
DAYS = 3 * 86400.0
WEEKS = 14 * 86400.0


class Ends(NamedTuple):
    """How releases ended; a censored one, whose job was removed, says nothing."""

    success: int = 0
    again: int = 0
    failed: int = 0
    censored: int = 0

    @property
    def cases(self) -> int:
        """Those that were not censored."""
        return self.success + self.again + self.failed


_NUMBERS = re.compile(r"[0-9]{1,200}", re.ASCII)


@dataclass(frozen=True)
class Evidence:
    """What happened before the hold; `recent` is in the 15 minutes before it.

    `mates` are the other jobs of its cluster.
    """

    #: Releases from holds of the same cause: of all jobs in 14 days, for the same reason and of
    #: the same object in 3 days, of the cluster, and of this job.
    released: Ends
    released_alike: Ends
    released_object: Ends
    released_mates: Ends
    released_own: Ends
    #: How often this job has got past the step earlier.
    own_past: int
    #: How many they are, and how many of them got past the step in 3 days.
    mates: int
    mates_past: int
    mates_past_recent: int
    #: Seconds from the last of them to the hold.
    mates_last: float | None
    mates_held: int
    #: Whether the mates seem to need the same object.
    shared: bool
    #: Other holds for the same reason, recently and in 3 days; at this site; for the same object.
    alike_recent: int
    alike_days: int
    alike_site_recent: int
    alike_object_recent: int
    #: All other jobs that got past the step in 3 days; starts that did so recently, and those of
    #: them at this site.
    others_past: int
    others_last: float | None
    past_recent: int
    past_site_recent: int
    #: Mean slot hours of attempts of the cluster that ended like this, and that a start takes.
    attempt_hours: float | None
    start_hours: float | None


def gather(hold: Hold, history: History, meaning: HoldMeaning) -> Evidence:
    """What was known when the job was held; each figure costs two searches."""
    cut, moment = hold.at, hold.at.moment
    cluster = hold.job.batch
    recent, days, weeks = moment - MINUTES, moment - DAYS, moment - WEEKS
    thing = object_of(hold)
    step = "start" if meaning.step in BEFORE_START else "end"

    def ends(*key: object, since: float) -> Ends:
        return Ends(*(max(0, round(n)) for n in history.total(key, cut, since)))

    def count(*key: object, since: float = float("-inf")) -> int:
        return round(history.total(key, cut, since)[0])

    def mean(*key: object) -> float | None:
        hours, number = history.total(key, cut)
        return hours / number if number else None

    # That the last release came back is known by this very hold.
    with_it = Cut(moment, cut.log, cut.place + 1)
    own_ends = Ends(*map(round, history.total(("own released", meaning.id, hold.job), with_it)))
    own_past = hold.past if step == "start" else 0
    own = 1 if own_past else 0
    last = history.last((f"mates past {step}", *cluster), cut)
    anybody = history.last((f"jobs past {step}",), cut)
    return Evidence(
        released=ends("releases", meaning.id, since=weeks),
        released_alike=ends("releases", meaning.id, hold.template, since=days),
        released_object=ends("releases", meaning.id, hold.template, thing, since=days),
        released_mates=ends("mates released", meaning.id, *cluster, since=weeks),
        released_own=own_ends,
        own_past=own_past,
        mates=max(0, count("jobs", *cluster) - 1),
        mates_past=max(0, count(f"mates past {step}", *cluster, since=days) - own),
        mates_past_recent=count(f"mates past {step}", *cluster, since=recent),
        mates_last=None if last is None else max(0.0, moment - last),
        mates_held=count("mates held", *cluster, hold.template),
        shared=not count("objects differ", *cluster, hold.template) and not _own_name(hold, thing),
        alike_recent=count("holds", hold.template, since=recent),
        alike_days=count("holds", hold.template, since=days),
        alike_site_recent=count("holds", hold.template, hold.site, since=recent),
        alike_object_recent=count("holds of", thing, hold.template, since=recent),
        others_past=max(0, count(f"jobs past {step}", since=days) - own),
        others_last=None if anybody is None else max(0.0, moment - anybody),
        past_recent=count(f"past {step}", since=recent),
        past_site_recent=count(f"past {step}", hold.site, since=recent),
        attempt_hours=mean("hold hours", meaning.id, *cluster),
        start_hours=mean("start hours", *cluster),
    )


def _own_name(hold: Hold, thing: str) -> bool:
    """Whether the object's name has the job's number in it, as names of a job's own inputs do."""
    numbers = _NUMBERS.findall(thing[-200:].rpartition("/")[2])
    return any(int(number) == hold.proc for number in numbers)


# How likely a release is to succeed: the table's prior, corrected by counting cases.


#: A wider circle counts for so many cases against a narrower one.
_SHRINK = 4.0
#: Each of the job's own releases counts for so many of others.
_OWN = 2.0
#: Fewer cases than this do not overrule the table.
_THIN = 8.0
_Z = 1.645  # of a 90 % interval
#: Mates that got past the same step speak for a release, and mates held for the same reason while
#: no job gets past speak against it. Neither is a release, so each counts for less than one.
_MATE_PAST, _MOST_PAST = 0.5, 6.0
_OTHER_PAST, _MOST_OTHER = 0.1, 1.5  # of other clusters, which may need other objects
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


def by_counting(hold: Hold, evidence: Evidence, meaning: HoldMeaning) -> Estimate:
    """The estimate from the table's prior and ever narrower circles of cases.

    The circles are releases for the same cause, for the same reason, of the same object, of the
    cluster and of the job itself. Each is shrunk towards the wider one before it, so a circle
    without cases changes nothing, and three cases move the estimate by less than half.
    """
    p, weight = meaning.prior, max(meaning.worth, 0.5)
    circles = (
        (evidence.released, 1.0), (evidence.released_alike, 1.0), (evidence.released_object, 1.0),
        (evidence.released_mates, 1.0), (evidence.released_own, _OWN),
    )  # fmt: skip
    for ends, worth in circles:
        if ends.cases:
            before = weight if weight > 2 * _SHRINK else min(weight, _SHRINK)
            weight = before + ends.cases * worth
            p = (p * before + ends.success * worth) / weight
    past, held = _of_mates(evidence) if _tells_of_others(meaning) else (0.0, 0.0)
    p = (p * weight + past) / (weight + past + held)
    weight += past + held
    counted = evidence.released.cases + evidence.released_own.cases * (_OWN - 1)
    low, high = interval(p, weight)
    cases = evidence.released.cases + (evidence.others_past if past else 0)
    return Estimate(p, low, high, cases, counted + past + held < _THIN)


def _tells_of_others(meaning: HoldMeaning) -> bool:
    """Whether getting past the step depends on files and sites, not on what the job does."""
    # What stops one job's outputs (a full quota, a wrong folder) says nothing of other jobs, unless
    # it is a fault that passes: each further start costs the whole computation.
    return meaning.step in BEFORE_START or (meaning.step == OUTPUT and meaning.kind == TRANSIENT)


def _of_mates(evidence: Evidence) -> tuple[float, float]:
    share = 1.0 if evidence.shared else _NOT_SHARED
    past = min(_MOST_PAST, _MATE_PAST * evidence.mates_past) * share
    past += min(_MOST_OTHER, _OTHER_PAST * max(0, evidence.others_past - evidence.mates_past))
    if evidence.own_past:
        past = max(past, min(_MOST_PAST, _OWN * evidence.own_past))
    if past and evidence.mates_past_recent:
        return past, 0.0
    # Jobs that are held for the same reason while no job of the cluster gets past.
    alike = evidence.alike_object_recent if evidence.mates_past else evidence.mates_held
    return past, min(_MOST_HELD, _HELD_TOO * alike)


def interval(p: float, weight: float) -> tuple[float, float]:
    """The 90 % interval of a share that is based on so many cases."""
    return wilson(p * weight, weight, _Z)


# What the evidence says, in sentences for people.


_DONE = {"input": "got their input", "start": "started"}  # else they "ended well"


def sentences(hold: Hold, evidence: Evidence, meaning: HoldMeaning) -> Iterator[str]:
    """The evidence, what weighs most first."""
    yield from _own(evidence, meaning)
    yield from _mates(evidence, meaning)
    yield from _alike(hold, evidence)
    yield from _releases(evidence.released)


def _own(evidence: Evidence, meaning: HoldMeaning) -> Iterator[str]:
    own = evidence.released_own
    back = own.again + own.failed
    if back:
        yield (
            f"This job has been released from such a hold {_times(own.cases)} before, and it came"
            f" back {_times(back) if own.success else 'each time'}."
        )
    if evidence.own_past and meaning.step in BEFORE_START:
        yield f"This job itself has got past this step {_times(evidence.own_past)} before."


def _mates(evidence: Evidence, meaning: HoldMeaning) -> Iterator[str]:
    done = _DONE.get(meaning.step, "ended well")
    before_start = meaning.step in BEFORE_START
    if evidence.mates_past:
        yield (
            f"{evidence.mates_past:,} of {evidence.mates:,} other jobs of its cluster {done}"
            f" in the 3 days before{_last(evidence.mates_last)}."
        )
        if not evidence.shared:
            yield "But the jobs of this cluster seem to want different objects."
    elif evidence.mates and evidence.mates_held and before_start:
        yield (
            f"None of {evidence.mates:,} other jobs of its cluster {done} in the 3 days before, and"
            f" {evidence.mates_held:,} {'was' if evidence.mates_held == 1 else 'were'} held for the"
            " same reason."
        )
    others = evidence.others_past - evidence.mates_past
    if others > 0 and before_start:
        yield (
            f"{many(others, 'job')} of other clusters {done} in the 3 days before"
            f"{_last(evidence.others_last)}."
        )


def _last(seconds: float | None) -> str:
    return "" if seconds is None else f", the last one {span(seconds)} before this hold"


def _alike(hold: Hold, evidence: Evidence) -> Iterator[str]:
    recent, days = evidence.alike_recent, evidence.alike_days
    if recent:
        here = ""
        if hold.site and evidence.alike_site_recent == recent:
            here = ", all of them at this site"
        elif recent > 1 and hold.site:
            here = f", {evidence.alike_site_recent} of them at this site"
        yield f"{many(recent, 'other hold')} for the same reason in the 15 minutes before{here}."
    elif days:
        others = many(days, "other hold")
        yield f"{others} for the same reason in the 3 days before, none of them just before."


def _releases(ends: Ends) -> Iterator[str]:
    if not ends.cases:
        return
    parts = [f"{ends.success} succeeded"]
    parts += [f"{ends.again} came back"] if ends.again else []
    parts += [f"{ends.failed} failed otherwise"] if ends.failed else []
    removed = f" ({ends.censored} removed since, not counted)" if ends.censored else ""
    number = "the one release" if ends.cases == 1 else f"{ends.cases} releases"
    yield f"Of {number} from such holds in the 14 days before: {', '.join(parts)}{removed}."


def _times(number: int) -> str:
    """ "once", "3 times"."""
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")


def span(seconds: float) -> str:
    """A duration in one unit: "40 s", "7 min", "5 h", "3 days"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / 86400:.0f} days"
