"""QueuedHold jobs, advice and audits as tests need them."""

from __future__ import annotations

from typing import Any

from headway.holds.advice import Act, Advice, Change
from headway.holds.decisions import HeldJob
from headway.holds.hold import JobId, Key, QueuedHold, hold_of
from headway.holds.job_log import LoggedJob

NOW = 1_800_000_000.0
REASON = (
    "Transfer input files failure at execution point slot1@node.example.org while receiving files"
    " from access point ap.example.org. Details: reading from file osdf:///ns/data.tar: Fetch from"
    " cache.example.org:8443: server returned 404 Not Found"
)


def held(
    number: int = 0,
    *,
    code: int = 13,
    subcode: int = 256,
    holds: int = 1,
    age: float = 10_000.0,
    reason: str = REASON,
    user: str = "ann",
    site: str = "",
    **facts: Any,
) -> QueuedHold:
    since = NOW - age
    return QueuedHold(
        key=Key(8123, number),
        user=user,
        holds=holds,
        since=since,
        age=age,
        code=code,
        subcode=subcode,
        reason=reason,
        site=site,
        log="/home/ann/train.log",
        facts={"RequestMemory": 2048, "RequestDisk": 10**6, "Requirements": "true", **facts},
        original=facts.pop("original", {}),
    )


def told(job: QueuedHold, **changes: Any) -> LoggedJob:
    facts: dict[str, Any] = {
        "complete": True,
        "held": True,
        "holds": job.holds,
        "unwanted": job.holds,
        "releases": max(0, job.holds - 1),
        "code": job.code,
        "subcode": job.subcode,
        "reason": job.reason,
        "time": job.since,
    }
    return LoggedJob(**{**facts, **changes})


def advice(job: QueuedHold, act: Act = Act.RELEASE, **changes: Any) -> Advice:
    hold = hold_of(
        JobId(job.log, *job.key), job.since, job.code, job.subcode, job.reason, site=job.site
    )
    facts: dict[str, Any] = {
        "hold": hold,
        "act": act,
        "cause": "input-object-not-found",
        "kind": "transient",
        "probability": 0.7,
        "low": 0.5,
        "high": 0.9,
        "cases": 12,
        "thin": False,
        "headline": "The object was not there.",
    }
    return Advice(**{**facts, **changes})


def more(attribute: str, new: int) -> Change:
    return Change("ask for more", attribute, "", str(new))


def case(job: QueuedHold, act: Act = Act.RELEASE, **changes: Any) -> HeldJob:
    return HeldJob(job, advice(job, act, **changes), told(job))
