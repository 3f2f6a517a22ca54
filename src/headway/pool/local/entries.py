"""The jobs of a local run as their event log has them; reading it again gives the same."""

from __future__ import annotations

import heapq
import re
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headway.events import Event, EventType
from headway.node.exits import TIME_LIMIT, Exit
from headway.pool.local.machine import Request, Site
from headway.pool.policy import HISTORY, backoff, blames_place, node_avoidance, releases
from headway.spec import Job

HELD_BY_USER = 1
HELD_BY_POLICY = 3
HELD_AT_START = 6
HELD_AT_OUTPUT = 12
_EDIT = re.compile(r"Setting job attribute ([A-Z]\w+) to ([0-9]{1,15})\Z", re.ASCII)
_BEGINS = " phase=check state=begin "
REQUESTS = {
    "RequestCpus": ("cpus", 1),
    "RequestMemory": ("memory", 2**20),
    "RequestDisk": ("disk", 2**10),
    "RequestGPUs": ("gpus", 1),
    TIME_LIMIT: ("time_limit", 1),
}


@dataclass
class Entry:
    """One job of the queue, as its events tell."""

    index: int
    status: str = "new"  # new, idle, running, held, over
    since: float = 0.0  # the time of day of the event that brought it there
    moved: float = 0.0  # the same by the monotonic clock: the time of day may be set back
    starts: int = 0
    ends: int = 0  # attempts that ended by themselves, those that led to a hold apart
    holds: int = 0
    input_holds: int = 0
    user_holds: int = 0
    hold: tuple[int, int] = (0, 0)
    sites: list[str] = field(default_factory=list)  # where it has been, newest first
    edits: dict[str, int] = field(default_factory=dict)
    attempt: str = ""  # the id of the attempt under way, where its agent has told it

    @property
    def blames_place(self) -> bool:
        holds = self.holds - self.user_holds
        return blames_place(ends=self.ends, holds=holds, hold=self.hold)

    @property
    def plain(self) -> bool:
        """Whether it asks for just what the others ask for, wherever that is."""
        return not self.edits and not self.blames_place


class Entries:
    """The jobs of one run, as the event log has them."""

    def __init__(self, cluster: int, job: Job) -> None:
        self._cluster = cluster
        self._job = job
        self._request = Request.of(job)
        self._entries = [Entry(index) for index in range(job.size)]
        self._by_status: dict[str, OrderedDict[int, Entry]] = {
            status: OrderedDict() for status in ("new", "idle", "running", "held", "over")
        }
        self._by_status["new"].update((entry.index, entry) for entry in self._entries)
        self._plain: OrderedDict[int, Entry] = OrderedDict()  # of the idle ones
        self._odd: OrderedDict[int, Entry] = OrderedDict()
        self._due: list[tuple[float, int]] = []  # a heap: when held jobs are released

    def __getitem__(self, index: int) -> Entry:
        return self._entries[index]

    def get(self, index: int) -> Entry | None:
        return self._entries[index] if 0 <= index < len(self._entries) else None

    def in_status(self, status: str) -> list[Entry]:
        return list(self._by_status[status].values())

    def first_plain(self) -> Entry | None:
        """The idle job that has waited longest among those that all ask for the same."""
        return next(iter(self._plain.values()), None)

    def odd(self) -> list[Entry]:
        """The idle jobs that were edited, or that have sites to avoid."""
        return list(self._odd.values())

    def has_work(self) -> bool:
        """Whether any job runs, waits, or will be released by itself."""
        return bool(self._by_status["idle"] or self._by_status["running"]) or any(
            self._will_release(entry) for entry in self._by_status["held"].values()
        )

    def request(self, entry: Entry) -> Request:
        """What a job asks for, with the edits made since it was submitted."""
        return replace(self._request, **entry.edits) if entry.edits else self._request

    def sites_for(self, entry: Entry, sites: Iterable[Site]) -> list[Site]:
        """The sites where a job may run now, preferred ones first."""
        allowed = self.allowed(sites)
        avoided = self.avoided(entry)
        # While another site is merely busy, a job waits for it as it would in HTCondor. Where all
        # allowed sites are bad ones it does not: in a pool others may join meanwhile,
        # but never on this machine, and somebody sits in front of it and wants to know.
        elsewhere = [site for site in allowed if site.name not in avoided] or allowed
        return sorted(elsewhere, key=lambda site: site.name not in self._job.sites.prefer)

    def avoided(self, entry: Entry) -> Sequence[str]:
        """The sites of a job's past to which it does not go back yet."""
        # here a site is one node
        waited = time.monotonic() - entry.moved
        recently = waited <= node_avoidance(entry.ends, self._job.retries)
        return entry.sites if entry.blames_place and recently else ()

    def allowed(self, sites: Iterable[Site]) -> list[Site]:
        """The sites that the job description allows at all."""
        wanted = self._job.sites
        return [
            site
            for site in sites
            if site.name not in wanted.avoid
            if not wanted.only or site.name in wanted.only
        ]

    def _will_release(self, entry: Entry) -> bool:
        """Whether a held job is released by itself, now or later."""
        code, subcode = entry.hold
        return releases(
            code, subcode, holds=entry.holds, starts=entry.starts, retries=self._job.retries
        )

    def ads(self) -> Mapping[int, Mapping[str, object]]:
        """The jobs still in the queue, in the words of HTCondor's job ads."""
        numbers = {"idle": 1, "running": 2, "held": 5}
        return {
            entry.index: {
                "JobStatus": numbers[entry.status],
                "NumShadowStarts": entry.starts,
                "NumHolds": entry.holds,
                "NumJobCompletions": entry.ends + entry.input_holds,
                "RequestCpus": self.request(entry).cpus,
                "RequestMemory": self.request(entry).memory // 2**20,
                "RequestDisk": self.request(entry).disk // 2**10,
            }
            for entry in self._entries
            if entry.status in numbers
        }

    def replay(self, events: Iterable[Event]) -> None:
        """Bring all entries to where the log says they are."""
        for event in events:
            entry = self.get(event.proc) if event.cluster == self._cluster else None
            if entry is not None:
                self._take_in(entry, event)

    def _take_in(self, entry: Entry, event: Event) -> None:
        kind = event.number
        if entry.status == "over":
            return
        if kind == EventType.SUBMIT:
            self._move(entry, "idle", event.time)
        elif kind == EventType.GENERIC:
            self._said(entry, event.text)
        elif kind == EventType.EXECUTE:
            self._started_at(entry, event.site or "")
            self._move(entry, "running", event.time)
        elif kind == EventType.EVICTED:
            entry.ends += event.requeued
            self._move(entry, "idle", event.time)
        elif kind == EventType.HELD:
            self._held_with(entry, event.code or 0, event.subcode or 0)
            self._move(entry, "held", event.time)
        elif kind == EventType.RELEASED:
            self._move(entry, "idle", event.time)
        elif kind in (EventType.TERMINATED, EventType.ABORTED):
            self._move(entry, "over", event.time)
        elif kind == EventType.ATTRIBUTE_UPDATE:
            match = _EDIT.match(event.text)
            if match and match[1] in REQUESTS:
                self._edited(entry, match[1], match[2])

    def _move(self, entry: Entry, status: str, when: float | None = None) -> None:
        self._by_status[entry.status].pop(entry.index, None)
        self._by_status[status][entry.index] = entry
        entry.status = status
        now = time.time()
        entry.since = now if when is None else when
        # An event of the future was written before the clock was set back: it counts as new.
        entry.moved = time.monotonic() - max(0.0, now - entry.since)
        self._sort(entry)
        if status == "held" and self._will_release(entry):
            pause = backoff(entry.holds, self._job.retries)
            heapq.heappush(self._due, (entry.moved + pause, entry.index))

    def _sort(self, entry: Entry) -> None:
        self._plain.pop(entry.index, None)
        self._odd.pop(entry.index, None)
        if entry.status == "idle":
            (self._plain if entry.plain else self._odd)[entry.index] = entry

    def _said(self, entry: Entry, line: str) -> None:
        # Before the command starts, only the agent can have said this.
        if entry.status == "running" and not entry.attempt and _BEGINS in line:
            words = dict(word.partition("=")[::2] for word in line.split())
            entry.attempt = words.get("attempt", "")

    def _started_at(self, entry: Entry, site: str) -> None:
        entry.starts += 1
        entry.attempt = ""
        # HTCondor keeps HISTORY sites, one of which is that of the attempt under way.
        entry.sites = [site, *entry.sites][: HISTORY - 1]

    def _held_with(self, entry: Entry, code: int, subcode: int) -> None:
        entry.holds += 1
        entry.user_holds += code == HELD_BY_USER
        entry.hold = (code, subcode)
        entry.input_holds += entry.hold == (HELD_BY_POLICY, Exit.INPUT_RETRYABLE)

    def _edited(self, entry: Entry, attribute: str, value: str) -> None:
        name, scale = REQUESTS[attribute]
        entry.edits[name] = int(value) * scale
        self._sort(entry)
