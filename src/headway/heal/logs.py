"""The event logs of the jobs that heal looks after: followed, each event once."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from heapq import merge

from headway.advisor.history import History
from headway.advisor.hold import Hold, JobId, hold_of
from headway.errors import EventLogError
from headway.events import Event, EventType, Follower
from headway.heal.held import Held, Key, Told
from headway.heal.outcome import Trail


class Logs:
    """What the logs tell: the history for advice, each job's own story, and what is new."""

    def __init__(self) -> None:
        self.history = History()
        self.unread: dict[str, str] = {}
        self._followers: dict[str, Follower] = {}
        self._told: defaultdict[tuple[str, Key], Told] = defaultdict(Told)
        self._trails: defaultdict[tuple[str, Key], Trail] = defaultdict(Trail)

    def follow(self, paths: Iterable[str]) -> None:
        """Follow these logs too; one that two names lead to is followed once."""
        for path in paths:
            place = os.path.realpath(path)
            # A pipe, which somebody may have named as a log, would never be read to its end.
            if place not in self._followers and (
                os.path.isfile(place) or not os.path.exists(place)
            ):
                self._followers[place] = Follower(place)

    def poll(self) -> dict[Key, int]:
        """Take in what is new; the jobs that it concerns, with the number of their last event."""
        touched: dict[Key, int] = {}
        for _, place, event in merge(*self._new(), key=lambda told: told[0]):
            key = self._take(place, event)
            if key is not None:
                touched[key] = event.number
        return touched

    def _new(self) -> Iterator[list[tuple[float, str, Event]]]:
        """The new events of each log with the latest time that it has shown up to them.

        Merged by that, logs that are read one after another tell one story.
        """
        now = time.time()
        for place, follower in self._followers.items():
            try:
                events = follower.poll()
            except EventLogError as error:
                self.unread[place] = error.message
                continue
            self.unread.pop(place, None)
            latest, told = 0.0, []
            for event in events:
                latest = max(latest, event.time) if event.time <= now else latest
                told.append((latest, place, event))
            yield told

    def held(self) -> set[Key]:
        """The jobs that are held, as far as the logs say."""
        return {Key(hold.cluster, hold.proc) for hold in self.history.held()}

    def told(self, held: Held) -> Told | None:
        """What the job's own log says of it; None: there is none, or it says nothing."""
        return self._told.get((os.path.realpath(held.log), held.key)) if held.log else None

    def trail(self, log: str, key: Key) -> Trail | None:
        """The last steps of a job."""
        return self._trails.get((os.path.realpath(log), key)) if log else None

    def hold(self, held: Held, known: dict[JobId, Hold]) -> Hold:
        """The hold as the history has it, or as the queue alone does; with the queue's facts."""
        job = JobId(os.path.realpath(held.log) if held.log else "", *held.key)
        hold = known.get(job)
        if hold is None or (hold.code, hold.subcode) != (held.code, held.subcode):
            hold = hold_of(
                job,
                held.since,
                held.code,
                held.subcode,
                held.reason,
                site=held.site,
                holds=held.holds,
                starts=held.starts,
                user=held.user,
            )
        return hold.knowing(held.facts)

    def holds_now(self) -> dict[JobId, Hold]:
        """The holds that last, by job."""
        return {hold.job: hold for hold in self.history.held()}

    def close(self) -> None:
        """Let go of all files."""
        for follower in self._followers.values():
            follower.close()

    def _take(self, place: str, event: Event) -> Key | None:
        self.history.add(event, place)
        if event.proc < 0 or event.cluster < 0 or event.number >= 100:
            return None
        key = Key(event.cluster, event.proc)
        if event.number == EventType.SUBMIT:
            self._trails.pop((place, key), None)
        self._told[place, key].take(event)
        # Most jobs are never held: nothing is kept of their steps.
        if event.number != EventType.HELD and (place, key) not in self._trails:
            return None
        return key if self._trails[place, key].take(event) else None
