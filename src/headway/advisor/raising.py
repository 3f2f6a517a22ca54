"""Raising a request: to what, after a job used more than it asked for.

Every face gives this one answer: `advise` with a log, a run or the queue, `heal` and `report`. For
held jobs `Hold.knowing` takes the facts from the queue's ad and the log.
"""

from __future__ import annotations

import math
import re

from headway.advisor.advice import Change
from headway.advisor.hold import HELD, Hold
from headway.pool.policy import MORE, enough_for
from headway.spec.units import exact_size

_MB_OF = {
    "b": 1e-6, "bytes": 1e-6, "kb": 1e-3, "kib": 1.024e-3, "kilobytes": 1e-3, "mb": 1.0,
    "mib": 1.0, "megabytes": 1.0, "gb": 1024.0, "gib": 1024.0, "gigabytes": 1024.0, "tb": 1048576.0,
    "tib": 1048576.0,
}  # fmt: skip
#: The largest request that a log may talk us into, in MB: no node has more.
_MOST = {"memory": 64 * 1024 * 1024.0, "disk": 1024 * 1024 * 1024.0}


def raised(hold: Hold, what: str) -> Change:
    """The change of the memory or disk request; `new` is empty where nothing tells how much."""
    asked, used = amounts(hold, what)
    limit = _limit(hold, what)
    attribute = {"memory": "RequestMemory", "disk": "RequestDisk"}[what]
    known = max(used or 0.0, asked or 0.0, limit or 0.0)
    if not known or known > _MOST[what]:
        return Change(
            words=f"raise the {what} request by half",
            attribute=attribute,
            line=f'{what} = "…" in job.toml; request_{what} = … in a submit file',
        )
    megabytes = enough_for(known)
    shown = exact_size(megabytes)
    measured = f" (it used {_shown(used)})" if used else ""
    from_ = f" from {_shown(asked)}" if asked else ""
    return Change(
        words=f"raise the {what} request{from_} to {shown}{measured}",
        attribute=attribute,
        old="" if asked is None else str(round(asked if what == "memory" else asked * 1024)),
        new=str(megabytes if what == "memory" else megabytes * 1024),
        line=f'{what} = "{shown}" in job.toml; request_{what} = {megabytes}MB in a submit file',
    )


def amounts(hold: Hold, what: str) -> tuple[float | None, float | None]:
    """What was asked for and what was used, in MB, by the queue, the log or the reason."""
    scale = 1.0 if what == "memory" else 1 / 1024  # RequestDisk is in KB
    name = {"memory": "Memory", "disk": "Disk"}[what]
    asked = _number(hold.facts.get(f"Request{name}"), scale)
    used = _number(hold.facts.get(f"{name}Usage"), scale)
    unit = _MB_OF.get(hold.values.get("unit", ""))
    if unit is not None:
        said = {key: _number(hold.values.get(key), unit) for key in ("limit", "used")}
        asked = asked or said["limit"]
        used = max(filter(None, (used, said["used"])), default=None)
    return asked, used


def enough_now(hold: Hold, what: str) -> bool | None:
    """Whether the request is by now larger than what was used; None: not known.

    The job was stopped at its limit, however little of that a sample of its use had seen.
    """
    asked, used = amounts(hold, what)
    limit = _limit(hold, what)
    if not asked or not limit:
        return None
    return asked > max(used or 0.0, limit) * 1.1


def _limit(hold: Hold, what: str) -> float | None:
    """Where the job was stopped, in MB: by its reason, or what it had or asked for then."""
    scale = 1.0 if what == "memory" else 1 / 1024
    name = {"memory": "Memory", "disk": "Disk"}[what]
    unit = _MB_OF.get(hold.values.get("unit", ""))
    said = _number(hold.values.get("limit"), unit) if unit is not None else None
    had = (hold.facts.get(key) for key in (f"{name}Provisioned", f"{HELD}Request{name}"))
    return said or next((n for n in (_number(value, scale) for value in had) if n), None)


_TIMES = {46: "AllowedJobDuration", 47: "AllowedExecuteDuration"}
#: The limits of the OSPool's duration categories, which the pool sets and not the job.
_CATEGORY_LIMITS = (20 * 3600.0, 40 * 3600.0)
_CLOCK = re.compile(r"(?:([0-9]{1,5})\+)?(?:([0-9]{1,5}):)?([0-9]{1,2}):([0-9]{2})\Z", re.ASCII)


def raised_time(hold: Hold) -> Change | None:
    """The change of a time limit that the job itself set; None: it set none, or the pool did.

    The job was stopped at the limit, so the limit is also what it used.
    """
    attribute = _TIMES.get(hold.code)
    limit = _number(hold.facts.get(attribute or ""), 1.0) or _seconds(hold.values.get("limit", ""))
    if attribute is None or not limit or limit > 365 * 86400:
        return None
    if hold.facts.get("JobDurationCategory") is not None or limit in _CATEGORY_LIMITS:
        return None
    seconds = math.ceil(limit * MORE / 60) * 60
    key = "allowed_job_duration" if hold.code == 46 else "allowed_execute_duration"
    return Change(
        words=f"or raise its time limit from {limit:,.0f} s to {seconds:,} s",
        attribute=attribute,
        old=str(round(limit)),
        new=str(seconds),
        line=f"{key} = {seconds} in a submit file",
    )


def _seconds(text: str) -> float | None:
    """From HTCondor's clock: "1+16:00:00", "20:00:00", "00:05"."""
    match = _CLOCK.match(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _number(value: object, scale: float) -> float | None:
    try:
        number = float(value) * scale  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and number > 0 else None


def _shown(megabytes: float) -> str:
    if megabytes >= 1024:
        return f"{megabytes / 1024:.3g} GiB"
    return f"{megabytes:.3g} MiB" if megabytes < 1000 else f"{megabytes:.0f} MiB"
