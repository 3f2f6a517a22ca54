"""What the evidence says, in sentences for people."""

from __future__ import annotations

from collections.abc import Iterator

from headway.advisor.evidence import Ends, Evidence
from headway.advisor.hold import Hold
from headway.holds.table import BEFORE_START, Entry
from headway.text import many

_DONE = {
    "input": "got their input",
    "start": "started",
    "run": "ended well",
    "output": "ended well",
}


def sentences(hold: Hold, evidence: Evidence, entry: Entry) -> Iterator[str]:
    """The evidence, what weighs most first."""
    yield from _own(hold, evidence, entry)
    yield from _mates(evidence, entry)
    yield from _alike(hold, evidence)
    yield from _releases(evidence.released)


def _own(hold: Hold, evidence: Evidence, entry: Entry) -> Iterator[str]:
    own = evidence.released_own
    back = own.again + own.failed
    if back:
        yield (
            f"This job has been released from such a hold {times(own.cases)} before, and it came"
            f" back {times(back) if own.success else 'each time'}."
        )
    if evidence.own_past and entry.step in BEFORE_START:
        yield f"This job itself has got past this step {times(evidence.own_past)} before."


def _mates(evidence: Evidence, entry: Entry) -> Iterator[str]:
    done = _DONE[entry.step]
    before_start = entry.step in BEFORE_START
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
            f"{others:,} {jobs(others)} of other clusters {done} in the 3 days before"
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
        yield f"{holds(recent)} for the same reason in the 15 minutes before{here}."
    elif days:
        yield f"{holds(days)} for the same reason in the 3 days before, none of them just before."


def _releases(ends: Ends) -> Iterator[str]:
    if not ends.cases:
        return
    parts = [f"{ends.success} succeeded"]
    if ends.again:
        parts.append(f"{ends.again} came back")
    if ends.failed:
        parts.append(f"{ends.failed} failed otherwise")
    removed = f" ({ends.censored} removed since, not counted)" if ends.censored else ""
    number = "the one release" if ends.cases == 1 else f"{ends.cases} releases"
    yield f"Of {number} from such holds in the 14 days before: {', '.join(parts)}{removed}."


def jobs(number: int) -> str:
    """ "job" or "jobs"."""
    return "job" if number == 1 else "jobs"


def holds(number: int) -> str:
    """ "1 other hold", "7 other holds"."""
    return many(number, "other hold")


def times(number: int) -> str:
    """ "once", "3 times"."""
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")


def span(seconds: float) -> str:
    """A time as one says it: "40 s", "7 min", "5 h", "3 days"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / 86400:.0f} days"
