"""Evidence: what the history knew when a job was held, about this job, its mates and everybody."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from headway.advisor.history import History, object_of
from headway.advisor.hold import Hold
from headway.advisor.series import Cut
from headway.holds.table import BEFORE_START, Entry

MINUTES = 15 * 60.0
DAYS = 3 * 86400.0
WEEKS = 14 * 86400.0


class Ends(NamedTuple):
    """How releases ended; a censored one (its job was removed) says nothing."""

    success: int = 0
    again: int = 0
    failed: int = 0
    censored: int = 0

    @property
    def cases(self) -> int:
        """Those that say something."""
        return self.success + self.again + self.failed


_NO_ENDS = Ends()
_NUMBERS = re.compile(r"[0-9]{1,200}", re.ASCII)


@dataclass(frozen=True)
class Evidence:
    """All of it is of before the hold; `recent` is 15 minutes."""

    #: Releases from holds of the same cause: of everybody in 14 days, of the same reason and of
    #: the same object in 3 days, of the cluster, and of this job.
    released: Ends
    released_alike: Ends
    released_object: Ends
    released_mates: Ends
    released_own: Ends
    #: How often this job has got past the step before.
    own_past: int
    #: Jobs of the cluster beside this one, and how many of them got past the step in 3 days.
    mates: int
    mates_past: int
    mates_past_recent: int
    #: Seconds from the last of them to the hold.
    mates_last: float | None
    mates_held: int
    #: Whether the mates want the same object, as far as one can see.
    shared: bool
    #: Other holds for the same reason, recently and in 3 days; at this site; for the same object.
    alike_recent: int
    alike_days: int
    alike_site_recent: int
    alike_object_recent: int
    #: Jobs of anybody else that got past the step in 3 days; starts that did so recently, and
    #: those of them at this site.
    others_past: int
    others_last: float | None
    past_recent: int
    past_site_recent: int
    #: Mean slot hours of attempts of the cluster that ended like this, and that a start takes.
    attempt_hours: float | None
    start_hours: float | None


def gather(hold: Hold, history: History, entry: Entry) -> Evidence:
    """What was known when the job was held: each figure costs two searches, whatever the log."""
    cut, moment = hold.at, hold.at.moment
    cluster = hold.job.batch
    recent, days, weeks = moment - MINUTES, moment - DAYS, moment - WEEKS
    thing = object_of(hold)
    step = "start" if entry.step in BEFORE_START else "end"

    def ends(*key: object, since: float) -> Ends:
        totals = history.total(key, cut, since)
        return Ends(*(max(0, round(n)) for n in totals)) if any(totals) else _NO_ENDS

    def count(*key: object, since: float = float("-inf")) -> int:
        return round(history.total(key, cut, since)[0])

    def mean(*key: object) -> float | None:
        hours, number = history.total(key, cut)
        return hours / number if number else None

    # That the last release came back is known by this very hold.
    with_it = Cut(moment, cut.log, cut.place + 1)
    own_ends = Ends(*map(round, history.total(("own released", entry.id, hold.job), with_it)))
    own_past = hold.past if step == "start" else 0
    own = 1 if own_past else 0
    last = history.last((f"mates past {step}", *cluster), cut)
    anybody = history.last((f"jobs past {step}",), cut)
    return Evidence(
        released=ends("releases", entry.id, since=weeks),
        released_alike=ends("releases", entry.id, hold.template, since=days),
        released_object=ends("releases", entry.id, hold.template, thing, since=days),
        released_mates=ends("mates released", entry.id, *cluster, since=weeks),
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
        attempt_hours=mean("hold hours", entry.id, *cluster),
        start_hours=mean("start hours", *cluster),
    )


def _own_name(hold: Hold, thing: str) -> bool:
    """Whether the object's name has the job's number in it, as names of a job's own inputs do."""
    numbers = _NUMBERS.findall(thing[-200:].rpartition("/")[2])
    return any(int(number) == hold.proc for number in numbers)
