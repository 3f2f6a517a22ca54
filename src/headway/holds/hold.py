"""A hold: as an event log has it, and as the queue has it."""

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
    """A position in the order of events: a moment, the number of a log, a place in the log.

    Without log and place it is before all events of its moment.
    """

    moment: float
    log: int = -1
    place: int = -1


#: Before all events: a hold there has no evidence.
BEFORE_ALL = Cut(0.0)


class JobId(NamedTuple):
    """A job of a log: two logs may both have a job 1.0."""

    log: str
    cluster: int
    proc: int

    def __str__(self) -> str:
        return f"{self.cluster}.{self.proc}"

    @property
    def batch(self) -> tuple[str, int]:
        """What the jobs of a cluster share: each may write a log of its own, in one folder."""
        return os.path.dirname(self.log), self.cluster


@dataclass(frozen=True, slots=True)
class Hold:
    """One hold of one job.

    `reason` is untrusted text of the log; `template` and `values` are made of it (see
    `headway.holds.reason`). `code` is 0 if the log has none.
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
    #: The position of the hold in the order of events, where evidence ends; see `history`.
    at: Cut = BEFORE_ALL

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
        """The log that has the hold; empty if only the queue has it."""
        return self.job.log

    def knowing(self, ad: Mapping[str, object]) -> Hold:
        """The same hold with what the job's ad in the queue says.

        For what the job used, the log counts if it says so: it is about the attempt that was held,
        and HTCondor rounds the values in the queue. For what the job asks for, the queue counts: it
        may have been changed since the hold.
        """
        said = {
            # Event logs spell it so.
            "RequestGpus" if name == "RequestGPUs" else name: value
            for name, value in ad.items()
            if value is not None and name not in (*_ASKED, *_USED)
        }
        numbers = {
            name: value
            for name, value in measured(ad).items()
            if name not in _USED or _number(self.facts.get(name)) is None
        }
        then = {f"{HELD}{name}": self.facts[name] for name in _ASKED if name in self.facts}
        then |= {name: value for name, value in self.facts.items() if name.startswith(HELD)}
        return replace(self, facts={**self.facts, **said, **numbers, **then})


#: A prefix of requests: what the job asked for when it was held, by its log.
HELD = "Held"
_ASKED = ("RequestMemory", "RequestDisk")
_USED = ("MemoryUsage", "DiskUsage")


def measured(ad: Mapping[str, object]) -> dict[str, float]:
    """What a job's ad says of its requests and its use: memory in MB, disk in KB.

    A value that is an expression, such as `(ResidentSetSize + 1023) / 1024` for MemoryUsage, is not
    known. HTCondor rounds ResidentSetSize and DiskUsage up by as much as a quarter, and has the
    exact figure under the same name with `_RAW`.

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
    """A number above zero, or None."""
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
    facts: Mapping[str, object] | None = None,
    **known: Any,
) -> Hold:
    """A hold that is in no log, such as one from the queue; `known`: other fields of `Hold`."""
    parsed = parse(reason)
    known["slot"] = known.get("slot") or parsed.values.get("slot", "")
    known |= {"template": parsed.template, "values": parsed.values, "at": Cut(time)}
    return Hold(job, time, code, subcode, reason, **known).knowing(facts or {})


# A hold in the queue, as the job's ad has it.


HELD_STATUS = 5  # of JobStatus
HEAL = "HeadwayHeal"  # false: no heal may touch the job
HEALS = "HeadwayHeals"  # how often heal has released the job
CLAIM = "HeadwayHealClaim"  # the decision that is being carried out
FIRST = "HeadwayFirst"  # a prefix of requests: what the user asked for at first
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
    #: Seconds by which its pool may release it later than its own rule says: HTCondor evaluates
    #: periodic expressions once a minute, and less often when it is busy.
    lag: float = 1800.0
    #: The job's ad and that of its cluster. Where they differ, the job was edited after the submit.
    facts: Mapping[str, Any] = field(default_factory=dict)
    original: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_ad(cls, ad: Mapping[str, Any], original: Mapping[str, Any] | None = None) -> QueuedHold:
        """The hold by the ad of a job and, if it is known, that of its cluster."""
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

    def as_hold(self, logged: Sequence[Hold] = ()) -> Hold:
        """The newest logged hold that the queue agrees with, or one by the queue alone."""
        for hold in reversed(logged):
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
        """The decision that some heal carries out or has carried out."""
        claim = self.facts.get(CLAIM)
        return claim if isinstance(claim, str) and PLAIN.match(claim) else ""

    @property
    def starts(self) -> int:
        """Starts, including those that ended in the input transfer."""
        return max(whole(self.facts.get(name)) for name in ("NumShadowStarts", "NumJobStarts"))

    @property
    def holds_by_reason(self) -> dict[str, int]:
        """How often it was held for what; empty if the schedd does not count this."""
        found = self.facts.get("NumHoldsByReason")
        return {name: int(n) for name, n in _COUNT.findall(str(found or ""))}

    @property
    def wanted_holds(self) -> int:
        """Holds that somebody wanted: they are not failures."""
        counts = self.holds_by_reason
        return sum(counts.get(name, 0) for name in ("UserRequest", "SubmittedOnHold"))

    def is_edited(self, attribute: str) -> bool:
        """Whether an attribute was changed after the submit."""
        return bool(self.original) and self.facts.get(attribute) != self.original.get(attribute)


def log_of(ad: Mapping[str, Any]) -> str:
    """The event log that a job writes; empty: none."""
    log = ad.get("UserLog")
    return os.path.join(str(ad.get("Iwd") or "/"), log) if isinstance(log, str) and log else ""


def whole(value: object, *, signed: bool = False) -> int:
    """An integer of an ad, which anybody may have edited; 0 if it is not one."""
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if signed else max(0, value)
