"""Events that came as ClassAds, which XML and JSON logs hold."""

from __future__ import annotations

import re

from headway.events.clock import Clock
from headway.events.event import Event, EventType
from headway.events.forms.ad import Ad, integer_of, text_of
from headway.events.forms.ad_body import body_of, ended_at

_TIME = re.compile(
    r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d):(\d\d)(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)?\Z", re.ASCII
)


def event_from_ad(ad: Ad, clock: Clock) -> Event | str:
    """The event as a text log would have given it, or why it is none.

    What HTCondor leaves out of the ClassAd is missing: the resource table of a 004 event.
    Where a text log has whole seconds, these have milliseconds.
    """
    number = integer_of(ad, "EventTypeNumber", -1)
    if not 0 <= number <= 999:
        return "a ClassAd that is no event"
    match = _TIME.match(text_of(ad, "EventTime"))
    if not match:
        return "a date that is none"
    minute, second, fraction, zone = match.groups()
    at = clock.seconds(minute.encode(), zone.encode() if zone else None)
    if at is None:
        return "a date that is none"
    at += int(second) + float(fraction or 0)
    # The numbers of a slot stand in the place of a job's with events of an execution point.
    names = ("SlotId", "DSlotId", "") if number >= 100 else ("Cluster", "Proc", "Subproc")
    none = 0 if number >= 100 else -1
    cluster, proc, subproc = (integer_of(ad, name, none) for name in names)
    if number == EventType.TERMINATED and (ended := ended_at(ad)) is not None:
        clock.hint(at, ended)
    lines = body_of(ad, number)
    return Event(number, cluster, proc, subproc, at, lines[0], tuple(lines[1:]))
