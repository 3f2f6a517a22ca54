"""The queue's held jobs: what the schedd knows of them, and which logs tell of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from headway.advisor.history import History
from headway.advisor.hold import Hold, JobId, hold_of
from headway.node.ads import quoted

_HELD = "JobStatus == 5"
_FACTS = (
    "RequestMemory", "MemoryUsage", "ResidentSetSize", "ResidentSetSize_RAW", "RequestDisk",
    "DiskUsage", "DiskUsage_RAW", "RequestGPUs", "NumHolds",
    "NumJobStarts", "NumShadowStarts", "JobDurationCategory", "AllowedJobDuration",
    "AllowedExecuteDuration", "MemoryProvisioned", "DiskProvisioned", "Cmd", "HeadwayHeal",
    "HeadwayRun",
)  # fmt: skip
ATTRIBUTES = (
    "ClusterId", "ProcId", "Owner", "HoldReason", "HoldReasonCode", "HoldReasonSubCode",
    "EnteredCurrentStatus", "UserLog", "Iwd", *_FACTS,
)  # fmt: skip


class Queue(Protocol):
    """What is asked for the jobs; `headway.pool.schedd.Schedd` is one."""

    def query(self, constraint: str, attributes: Sequence[str]) -> list[dict[str, Any]]:
        """The ads of the jobs that match."""


def held_ads(
    queue: Queue,
    *,
    user: str = "",
    job: tuple[int, int] | None = None,
    scope: str = "",
) -> list[dict[str, Any]]:
    """The ads of the held jobs: of one user, one job, those that meet `scope`, or all."""
    parts = [_HELD]
    if user:
        parts.append(f"Owner == {quoted(user)}")
    if job:
        parts.append(f"ClusterId == {job[0]:d} && ProcId == {job[1]:d}")
    if scope:
        parts.append(f"({scope})")
    return queue.query(" && ".join(parts), ATTRIBUTES)


def logs_of(ads: Sequence[Mapping[str, Any]]) -> list[str]:
    """The event logs that the jobs write, as far as they are here to be read."""
    found: dict[str, None] = {}
    for ad in ads:
        path = _log(ad)
        if path and os.access(path, os.R_OK) and os.path.isfile(path):
            found[path] = None
    return list(found)


def holds_of(ads: Sequence[Mapping[str, Any]], history: History) -> list[Hold]:
    """Each job's hold as its log tells it, if the queue agrees, with what the queue knows."""
    known: dict[tuple[int, int], list[Hold]] = {}
    for hold in history.held():
        known.setdefault((hold.cluster, hold.proc), []).append(hold)
    return [_hold(ad, known) for ad in ads]


def _hold(ad: Mapping[str, Any], known: Mapping[tuple[int, int], Sequence[Hold]]) -> Hold:
    cluster, proc = int(ad["ClusterId"]), int(ad["ProcId"])
    code, subcode = _whole(ad.get("HoldReasonCode")), _whole(ad.get("HoldReasonSubCode"))
    facts = {name: ad.get(name) for name in _FACTS}
    facts["RequestGpus"] = facts.pop("RequestGPUs")
    for hold in reversed(known.get((cluster, proc), ())):
        # Another access point may have a job of the same number.
        if hold.code == code and hold.subcode == subcode:
            return hold.knowing(facts)
    starts = max(_whole(ad.get("NumJobStarts")), _whole(ad.get("NumShadowStarts")))
    return hold_of(
        JobId(_log(ad), cluster, proc),
        float(_whole(ad.get("EnteredCurrentStatus"))),
        code,
        subcode,
        str(ad.get("HoldReason") or ""),
        holds=max(1, _whole(ad.get("NumHolds"))),
        starts=starts,
        user=str(ad.get("Owner") or ""),
        facts=facts,
    )


def _log(ad: Mapping[str, Any]) -> str:
    log, iwd = ad.get("UserLog"), ad.get("Iwd")
    if not isinstance(log, str) or not log:
        return ""
    return os.path.join(iwd, log) if isinstance(iwd, str) else log


def _whole(value: object) -> int:
    return int(value) if isinstance(value, (int, float)) else 0
