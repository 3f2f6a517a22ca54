"""A hold: as an event log tells it, and as the queue tells it."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from headway.holds.reason import Reason, parse
from headway.holds.table import HoldMeaning, find


class Cut(NamedTuple):
    """A place in the order of events: its moment, the number of its log, its place in the log.

    Without log and place it lies before all events of its moment.
    """

    moment: float
    log: int = -1
    place: int = -1


#: Before everything: a hold that is put nowhere has no evidence.
_NOWHERE = Cut(0.0)


class JobId(NamedTuple):
    """Two logs may both have a job 1.0, so a job is named with the log that tells of it."""

    log: str
    cluster: int
    proc: int

    def __str__(self) -> str:
        return f"{self.cluster}.{self.proc}"

    @property
    def batch(self) -> tuple[str, int]:
        """What its cluster-mates have in common: each may write a log of its own, in one folder."""
        return os.path.dirname(self.log), self.cluster


@dataclass(frozen=True, slots=True)
class Hold:
    """One hold of one job.

    `reason` is the log's own text and hostile; `template`, and what `values` hold (see
    `headway.holds.reason`), are made of it. `code` is 0 where the log says none.
    """

    job: JobId
    time: float  # seconds since the epoch, as the log has it
    code: int
    subcode: int
    reason: str
    site: str = ""
    slot: str = ""
    template: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    holds: int = 1  # its number among the job's holds
    starts: int = 0  # of the job so far, those that ended in the input transfer included
    user: str = ""
    #: What the queue knows of the job (RequestMemory, MemoryUsage, RequestDisk, DiskUsage,
    #: RequestGpus, NumHolds, JobDurationCategory, …); a log alone knows some of it.
    facts: Mapping[str, object] = field(default_factory=dict)
    #: How often the job's command had started.
    past: int = 0
    #: Hours on slots: of the attempt that ended in this hold (None: not known), and of all so far.
    attempt: float | None = None
    spent: float = 0.0
    #: The place of the hold in the order of events, which is where evidence ends; see `history`.
    at: Cut = _NOWHERE

    @property
    def cluster(self) -> int:
        """The job's cluster."""
        return self.job.cluster

    @property
    def proc(self) -> int:
        """The job's number in its cluster."""
        return self.job.proc

    @property
    def log(self) -> str:
        """The log that tells of the hold; empty where only the queue does."""
        return self.job.log

    def knowing(self, ad: Mapping[str, object]) -> Hold:
        """The same hold, with what the job's ad in the queue says; an absent value says nothing.

        What the job used is the log's word where it has one: it is of the attempt that was held,
        and HTCondor rounds what stands in the queue. What the job asks for is the queue's word: it
        may have been changed since the hold.
        """
        told = {key: value for key, value in ad.items() if value is not None}
        if "RequestGPUs" in told:
            told["RequestGpus"] = told.pop("RequestGPUs")  # as event logs spell it
        for name in _NUMBERS:
            told.pop(name, None)
        found = {
            name: value
            for name, value in measured(ad).items()
            if name not in _USED or _number(self.facts.get(name)) is None
        }
        then = {f"{HELD}{name}": self.facts[name] for name in _ASKED if name in self.facts} | {
            name: value for name, value in self.facts.items() if name.startswith(HELD)
        }
        return replace(self, facts={**self.facts, **told, **found, **then})


#: Before the name of a request: what the job asked for when it was held, by its log.
HELD = "Held"
_ASKED = ("RequestMemory", "RequestDisk")
_USED = ("MemoryUsage", "DiskUsage")
_NUMBERS = (*_ASKED, *_USED)


def measured(ad: Mapping[str, object]) -> dict[str, float]:
    """What a job's ad says of its requests and its use, in the units of an event log.

    Memory is in MB and disk in KB. In an ad a value may be an expression, such as
    `(ResidentSetSize + 1023) / 1024` for MemoryUsage, and an expression says nothing here.
    HTCondor rounds ResidentSetSize and DiskUsage up by as much as a quarter, and keeps the exact
    figure under the same name with `_RAW`.

    Args:
        ad: The job's ad, as the queue gives it.

    Returns:
        Those of RequestMemory, RequestDisk, MemoryUsage and DiskUsage that are known as numbers.
    """
    found = {name: _number(ad.get(name)) for name in ("RequestMemory", "RequestDisk")}
    exact, rounded = _number(ad.get("ResidentSetSize_RAW")), _number(ad.get("ResidentSetSize"))
    size = exact or (None if _number(ad.get("MemoryUsage")) else rounded)
    found["MemoryUsage"] = math.ceil(size / 1024) if size else _number(ad.get("MemoryUsage"))
    found["DiskUsage"] = _number(ad.get("DiskUsage_RAW")) or _number(ad.get("DiskUsage"))
    return {name: value for name, value in found.items() if value is not None}


def _number(value: object) -> float | None:
    """A number above zero, or nothing."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if math.isfinite(value) and value > 0 else None


def meaning_of(hold: Hold) -> HoldMeaning:
    """What the table knows of a hold."""
    return find(hold.code, hold.subcode, Reason(hold.template, hold.values))


def hold_of(
    job: JobId,
    time: float,
    code: int,
    subcode: int,
    reason: str,
    *,
    site: str = "",
    slot: str = "",
    holds: int = 1,
    starts: int = 0,
    user: str = "",
    facts: Mapping[str, object] | None = None,
) -> Hold:
    """A hold that no log has told of, such as one from the queue; its reason is parsed here."""
    parsed = parse(reason)
    return Hold(
        job,
        time,
        code,
        subcode,
        reason,
        site,
        slot or parsed.values.get("slot", ""),
        parsed.template,
        parsed.values,
        holds,
        starts,
        user,
        at=Cut(time),
    ).knowing(facts or {})


# The same in the queue, by which heal acts: the job's ad.


HELD_STATUS = 5  # of JobStatus
HEAL = "HeadwayHeal"  # false: this job is nobody's to heal
HEALS = "HeadwayHeals"  # how often heal has released the job
CLAIM = "HeadwayHealClaim"  # the decision that is being carried out
FIRST = "HeadwayFirst"  # before the name of a request: what the user asked for
PLAIN = re.compile(r"[A-Za-z0-9/_.-]{0,100}\Z", re.ASCII)
_COUNT = re.compile(r"\b(\w+)\s*=\s*(\d{1,9})")


class Key(NamedTuple):
    """A job in its queue."""

    cluster: int
    proc: int

    def __str__(self) -> str:
        return f"{self.cluster}.{self.proc}"


@dataclass(frozen=True, slots=True)
class QueuedHold:
    """What the queue says of a job that is held now."""

    key: Key
    user: str
    holds: int
    since: float  # by the queue's clock
    age: float
    code: int
    subcode: int
    reason: str
    site: str = ""
    log: str = ""
    #: So much later than its rule says its pool may release it by itself: HTCondor looks at
    #: periodic expressions once a minute, and less often when it is busy.
    lag: float = 1800.0
    #: The job's whole ad, and that of its cluster: what is in the first and not in the second was
    #: set or edited since it was submitted.
    facts: Mapping[str, Any] = field(default_factory=dict)
    original: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_ad(cls, ad: Mapping[str, Any], original: Mapping[str, Any] | None = None) -> QueuedHold:
        """From the ad of a held job and, where it is known, that of its cluster."""
        since = float(whole(ad.get("EnteredCurrentStatus")))
        now = float(whole(ad.get("ServerTime"))) or time.time()
        site = ad.get("MachineAttrGLIDEIN_ResourceName0")
        return cls(
            key=Key(int(ad["ClusterId"]), int(ad["ProcId"])),
            user=str(ad.get("Owner") or ""),
            holds=whole(ad.get("NumHolds")),
            since=since,
            age=max(0.0, now - since),
            code=whole(ad.get("HoldReasonCode"), signed=True),
            subcode=whole(ad.get("HoldReasonSubCode"), signed=True),
            reason=str(ad.get("HoldReason") or ""),
            site=site if isinstance(site, str) else "",
            log=log_of(ad),
            facts=ad,
            original=original or {},
        )

    def as_hold(self, told: Sequence[Hold] = ()) -> Hold:
        """The newest hold that logs have told of and the queue agrees with, or one by the queue
        alone; either with what the queue knows of the job.
        """
        for hold in reversed(told):
            # Another access point may have a job of the same number.
            if (hold.code, hold.subcode) == (self.code, self.subcode):
                return hold.knowing(self.facts)
        return hold_of(
            JobId(self.log, *self.key),
            self.since,
            self.code,
            self.subcode,
            self.reason,
            site=self.site,
            holds=max(1, self.holds),
            starts=self.starts,
            user=self.user,
            facts=self.facts,
        )

    @property
    def heals(self) -> int:
        """How often any heal has released it, as the job itself says."""
        return whole(self.facts.get(HEALS))

    @property
    def claim(self) -> str:
        """The decision that some heal carries out, or has carried out last."""
        claim = self.facts.get(CLAIM)
        return claim if isinstance(claim, str) and PLAIN.match(claim) else ""

    @property
    def starts(self) -> int:
        """Starts, those that ended in the input transfer included."""
        return max(whole(self.facts.get(name)) for name in ("NumShadowStarts", "NumJobStarts"))

    @property
    def holds_by_reason(self) -> dict[str, int]:
        """How often it was held for what; empty where the schedd does not count that."""
        found = self.facts.get("NumHoldsByReason")
        return {name: int(n) for name, n in _COUNT.findall(str(found or ""))}

    @property
    def wanted_holds(self) -> int:
        """Holds that somebody wanted: they are no failures, and their releases no healing."""
        counts = self.holds_by_reason
        return sum(counts.get(name, 0) for name in ("UserRequest", "SubmittedOnHold"))

    def is_edited(self, attribute: str) -> bool:
        """Whether an attribute is another than the job was submitted with."""
        return bool(self.original) and self.facts.get(attribute) != self.original.get(attribute)


def log_of(ad: Mapping[str, Any]) -> str:
    """The event log that a job writes; empty: none."""
    log = ad.get("UserLog")
    return os.path.join(str(ad.get("Iwd") or "/"), log) if isinstance(log, str) and log else ""


def whole(value: object, *, signed: bool = False) -> int:
    """A whole number of an ad, which anybody may have edited; 0 where it is none."""
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if signed else max(0, value)
