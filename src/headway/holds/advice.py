"""What to do about a hold: the advice, larger requests, the commands to type."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from headway.events import inert
from headway.holds.hold import HELD, Hold, JobId
from headway.pool.policy import MORE, enough_for
from headway.spec.units import exact_size
from headway.text import printable

# Advice: what to do about one hold, how sure that is, and why.


class Act(str, Enum):
    """What to do about a held job."""

    RELEASE = "release"
    CHANGE = "change"  # and release then
    REMOVE = "remove"
    WAIT = "wait"  # until what `Advice.until_words` says, and release then
    UNKNOWN = "cannot tell"
    LEAVE = "leave"  # somebody holds it on purpose: no advice


@dataclass(frozen=True)
class Change:
    """One thing to change before the job is released.

    `attribute` is the job's, and `new` a ClassAd expression for it, as for `Pool.edit`; both are
    empty where only a person can make the change. `line` is what to write into job.toml or the
    submit file, for the jobs to come.
    """

    words: str
    attribute: str = ""
    old: str = ""
    new: str = ""
    line: str = ""

    def as_json(self) -> dict[str, str]:
        """In types that JSON knows."""
        return {
            "words": self.words,
            "attribute": self.attribute,
            "old": self.old,
            "new": self.new,
            "line": self.line,
        }


@dataclass(frozen=True)
class Advice:
    """What to do about one hold.

    `probability` is that of a release succeeding, after the change where one is advised; None
    where nobody should ask (`leave`). `low` and `high` are its 90 % interval, `cases` how many
    releases and starts of others stand behind it, `thin` that they are too few to overrule the
    table of holds.
    """

    hold: Hold
    act: Act
    cause: str  # the id of the table's entry
    kind: str  # transient, permanent, depends, never
    probability: float | None
    low: float | None
    high: float | None
    cases: int
    thin: bool
    headline: str
    reasons: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    until: float | None = None  # seconds since the epoch, where the wait has a known end
    until_words: str = ""
    #: Whether the next start had better be at another site.
    avoid_site: bool = False
    #: Expected hours lost, in `cost_unit`; None: not known.
    cost_release: float | None = None
    cost_remove: float | None = None
    cost_unit: str = "GPU hours"
    command: str = ""
    #: Seconds to wait before it is worth asking again.
    next_check: float = 900.0

    def as_json(self) -> dict[str, Any]:
        """In types that JSON knows; text of the log is made harmless."""
        hold = self.hold
        return {
            "job": str(hold.job),
            "log": hold.log,
            "act": self.act.value,
            "cause": self.cause,
            "kind": self.kind,
            "probability": _rounded(self.probability),
            "low": _rounded(self.low),
            "high": _rounded(self.high),
            "cases": self.cases,
            "thin": self.thin,
            "headline": self.headline,
            "reasons": list(self.reasons),
            "changes": [change.as_json() for change in self.changes],
            "until": self.until,
            "until_words": self.until_words,
            "avoid_site": self.avoid_site,
            "cost_release": _rounded(self.cost_release),
            "cost_remove": _rounded(self.cost_remove),
            "cost_unit": self.cost_unit,
            "command": self.command,
            "next_check": self.next_check,
            "hold": {
                "time": hold.time,
                "code": hold.code,
                "subcode": hold.subcode,
                "reason": inert(hold.reason),
                "template": hold.template,
                "values": {name: inert(value) for name, value in hold.values.items()},
                "site": inert(hold.site),
                "slot": inert(hold.slot),
                "number": hold.holds,
                "starts": hold.starts,
                "user": inert(hold.user),
            },
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


# Raising a request: to what, after a job used more than it asked for.
#
# Every face gives this one answer: `advise` with a log, a run or the queue, `heal` and `report`.
# For held jobs `Hold.knowing` takes the facts from the queue's ad and the log.


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


# The command to type, which is made of numbers and of the table's words alone.


_LONGEST_URL = 1000


class Commands(Protocol):
    """How one acts on jobs."""

    def release(self, jobs: Sequence[JobId]) -> str:
        """Let them go on."""

    def remove(self, jobs: Sequence[JobId]) -> str:
        """Take them out of the queue."""

    def edit(self, jobs: Sequence[JobId], attribute: str, value: str) -> str:
        """Set an attribute."""


class Condor:
    """HTCondor's own tools."""

    def release(self, jobs: Sequence[JobId]) -> str:
        """`condor_release` with the jobs' numbers."""
        return f"condor_release {_named(jobs)}"

    def remove(self, jobs: Sequence[JobId]) -> str:
        """`condor_rm` with the jobs' numbers."""
        return f"condor_rm {_named(jobs)}"

    def edit(self, jobs: Sequence[JobId], attribute: str, value: str) -> str:
        """`condor_qedit` takes one job, one cluster or a constraint."""
        if len(jobs) == 1:
            return f"condor_qedit {jobs[0]} {attribute} {shlex.quote(value)}"
        return f"condor_qedit -constraint {shlex.quote(constraint(jobs))} {attribute} " + (
            shlex.quote(value)
        )


CONDOR = Condor()
#: What `headway set` calls an attribute of a job's ad; `headway.spec.override` reads it.
_SETS = {
    "RequestMemory": "memory={}MiB",
    "RequestDisk": "disk={}KiB",
    "RequestCpus": "cpus={}",
    "RequestGPUs": "gpus={}",
    "JobDurationCategory": "duration={}",
}
_MOST_NAMED = 10


class RunCommands:
    """How one acts on the jobs of a run."""

    def __init__(self, label: str, local: bool) -> None:
        self._label = label
        self._local = local

    def release(self, jobs: Sequence[JobId]) -> str:
        """`headway release`, or for very many jobs HTCondor's own tool, which takes a rule."""
        return f"headway release {self._names(jobs)}" if self._few(jobs) else CONDOR.release(jobs)

    def remove(self, jobs: Sequence[JobId]) -> str:
        """As `release`."""
        return f"headway remove {self._names(jobs)}" if self._few(jobs) else CONDOR.remove(jobs)

    def edit(self, jobs: Sequence[JobId], attribute: str, value: str) -> str:
        """`headway set`; of attributes that it does not know, HTCondor's own tool."""
        words = set_words(attribute, value)
        if words and self._few(jobs):
            return f"headway set {self._names(jobs)} {words}"
        return "" if self._local else CONDOR.edit(jobs, attribute, value)

    def _few(self, jobs: Sequence[JobId]) -> bool:
        return self._local or len(jobs) <= _MOST_NAMED

    def _names(self, jobs: Sequence[JobId]) -> str:
        return " ".join(f"{self._label}.{job.proc}" for job in jobs)


def set_words(attribute: str, value: str) -> str:
    """A change as `headway set` takes it, such as memory=2048MiB; empty: it takes no such one."""
    value = value.strip('"')
    if attribute == "RequestDisk" and value.isdigit() and int(value) % 1024 == 0:
        return f"disk={int(value) // 1024}MiB"
    return _SETS[attribute].format(value) if attribute in _SETS and value.isalnum() else ""


def look(url: str) -> str:
    """How one asks whether an object answers."""
    return f"headway sources {shlex.quote(printable(url[:_LONGEST_URL]))}"


def constraint(jobs: Sequence[JobId]) -> str:
    """The ClassAd expression that is true for these jobs."""
    clusters: dict[int, list[int]] = {}
    for job in jobs:
        clusters.setdefault(job.cluster, []).append(job.proc)
    return " || ".join(_of_cluster(cluster, procs) for cluster, procs in sorted(clusters.items()))


def _of_cluster(cluster: int, procs: Sequence[int]) -> str:
    parts = []
    for first, last in _ranges(procs):
        if first == last:
            parts.append(f"ProcId == {first}")
        else:
            parts.append(f"(ProcId >= {first} && ProcId <= {last})")
    return f"(ClusterId == {cluster} && ({' || '.join(parts)}))"


def _ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def _named(jobs: Sequence[JobId]) -> str:
    """A few numbers as they are, more as a constraint that is shorter."""
    plain = " ".join(str(job) for job in jobs)
    if len(jobs) <= 5:
        return plain
    return f"-constraint {shlex.quote(constraint(jobs))}"
