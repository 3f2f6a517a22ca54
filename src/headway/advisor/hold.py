"""A hold: what stopped a job, as the log and the queue tell it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headway.advisor.series import Cut
from headway.holds.reason import Reason, parse
from headway.holds.table import Entry, find

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


def entry_of(hold: Hold) -> Entry:
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
