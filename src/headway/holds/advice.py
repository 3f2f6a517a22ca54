"""Advice on a hold as a value: what to do, which request to raise and to what, what to type."""

from __future__ import annotations

import math
import re
import shlex
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from headway.events import inert
from headway.holds.hold import HELD, Hold, JobId, Key
from headway.holds.table import Change as Change
from headway.pool.policy import MORE, enough_for
from headway.spec.units import exact_size
from headway.text import printable


class Act(str, Enum):
    """What to do about a held job."""

    RELEASE = "release"
    CHANGE = "change"  # then release
    REMOVE = "remove"
    WAIT = "wait"  # for what `Advice.until_words` says, then release
    UNKNOWN = "cannot tell"
    LEAVE = "leave"  # somebody holds it on purpose: no advice


@dataclass(frozen=True)
class Advice:
    """What to do about one hold.

    `probability` is that a release succeeds, after the change if one is advised; None if the job
    is to be left alone. `low` and `high` are its 90 % interval. `cases` is the number of releases
    and starts of other jobs that it is based on, and `thin` says that they are too few to overrule
    the table of holds.
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
    until: float | None = None  # seconds since the epoch, if the wait has a known end
    until_words: str = ""
    #: Whether the next start should be at another site.
    avoid_site: bool = False
    #: Expected hours lost, in `cost_unit`; None: not known.
    cost_release: float | None = None
    cost_remove: float | None = None
    cost_unit: str = "GPU hours"
    command: str = ""
    #: Seconds until it is worth asking again.
    next_check: float = 900.0

    def as_json(self) -> dict[str, Any]:
        """The advice in types that JSON has, with control characters of the log removed."""
        hold = self.hold
        facts: dict[str, Any] = {"job": str(hold.job), "log": hold.log, **vars(self)}
        for name in ("probability", "low", "high", "cost_release", "cost_remove"):
            if facts[name] is not None:
                facts[name] = round(facts[name], 4)
        return facts | {
            "act": self.act.value,
            "reasons": list(self.reasons),
            "changes": [dict(vars(change)) for change in self.changes],
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


# Raising a request that was too small. `advise`, `heal` and `report` all give this one answer.


_MB_OF = {
    "b": 1e-6, "bytes": 1e-6, "kb": 1e-3, "kib": 1.024e-3, "kilobytes": 1e-3, "mb": 1.0,
    "mib": 1.0, "megabytes": 1.0, "gb": 1024.0, "gib": 1024.0, "gigabytes": 1024.0, "tb": 1048576.0,
    "tib": 1048576.0,
}  # fmt: skip
#: The largest request that a log can make us advise, in MB: no node has more.
_MOST = {"memory": 64 * 1024 * 1024.0, "disk": 1024 * 1024 * 1024.0}


class _Amounts(NamedTuple):
    """Memory or disk of a held job, in MB; None: not known."""

    asked: float | None  # what it asks for now
    used: float | None
    limit: float | None  # where it was stopped


def _amounts(hold: Hold, what: str) -> _Amounts:
    """What the queue, the log and the reason say of the job's memory or disk."""
    name = what.capitalize()
    scale = 1.0 if what == "memory" else 1 / 1024  # RequestDisk is in KB
    unit = _MB_OF.get(hold.values.get("unit", ""), 0.0)

    def fact(key: str) -> float | None:
        return _number(hold.facts.get(key), scale)

    limit, used = (_number(hold.values.get(key), unit) for key in ("limit", "used"))
    return _Amounts(
        fact(f"Request{name}") or limit,
        max(filter(None, (fact(f"{name}Usage"), used)), default=None),
        limit or fact(f"{name}Provisioned") or fact(f"{HELD}Request{name}"),
    )


def raised(hold: Hold, what: str) -> Change:
    """The change of the memory or disk request; `new` is empty if the size is not known."""
    amounts = _amounts(hold, what)
    asked, used, _ = amounts
    known = max(filter(None, amounts), default=0.0)
    attribute = f"Request{what.capitalize()}"
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


def enough_now(hold: Hold, what: str) -> bool | None:
    """Whether the request is now larger than what was used; None: not known.

    The job was stopped at its limit, so it needs at least that, even if less use was measured.
    """
    asked, used, limit = _amounts(hold, what)
    if not asked or not limit:
        return None
    return asked > max(used or 0.0, limit) * 1.1


_TIMES = {46: "AllowedJobDuration", 47: "AllowedExecuteDuration"}
#: The limits of the OSPool's duration categories, which the pool sets and not the job.
_CATEGORY_LIMITS = (20 * 3600.0, 40 * 3600.0)
_CLOCK = re.compile(r"(?:([0-9]{1,5})\+)?(?:([0-9]{1,5}):)?([0-9]{1,2}):([0-9]{2})\Z", re.ASCII)


def raised_time(hold: Hold) -> Change | None:
    """The change of a time limit that the job itself set; None: it set none, or the pool did."""
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
    """The seconds of a time as HTCondor writes it: "1+16:00:00", "20:00:00", "00:05"."""
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


# The command to type. It is made only of numbers and of the table's own text.


_LONGEST_URL = 1000
_MOST_NAMED = 10  # jobs in a `headway` command
#: What `headway set` calls an attribute of a job's ad; `headway.spec.override` reads it.
_SETS = {
    "RequestMemory": "memory={}MiB",
    "RequestDisk": "disk={}KiB",
    "RequestCpus": "cpus={}",
    "RequestGPUs": "gpus={}",
    "JobDurationCategory": "duration={}",
}


@dataclass(frozen=True)
class Commands:
    """The commands that act on jobs: `headway` for the jobs of a run, else HTCondor's own tools.

    `run` is the label of the run, and `local` says that HTCondor's tools do not know its jobs.
    """

    run: str = ""
    local: bool = False

    def release(self, jobs: Sequence[JobId]) -> str:
        """The command that releases the jobs."""
        return self._headway("release", jobs) or f"condor_release {_named(jobs)}"

    def remove(self, jobs: Sequence[JobId]) -> str:
        """The command that removes the jobs from the queue."""
        return self._headway("remove", jobs) or f"condor_rm {_named(jobs)}"

    def edit(self, jobs: Sequence[JobId], attribute: str, value: str) -> str:
        """The command that sets an attribute of the jobs; empty: there is none."""
        setting = set_words(attribute, value)
        if setting and (command := self._headway("set", jobs)):
            return f"{command} {setting}"
        if self.local:
            return ""
        # condor_qedit takes one job, one cluster or a constraint.
        which = str(jobs[0]) if len(jobs) == 1 else f"-constraint {shlex.quote(constraint(jobs))}"
        return f"condor_qedit {which} {attribute} {shlex.quote(value)}"

    def _headway(self, verb: str, jobs: Sequence[JobId]) -> str:
        """`headway VERB JOB…`; empty: they are not jobs of a run, or too many to name."""
        if not self.run or (len(jobs) > _MOST_NAMED and not self.local):
            return ""
        return f"headway {verb} " + " ".join(f"{self.run}.{job.proc}" for job in jobs)


CONDOR = Commands()


def set_words(attribute: str, value: str) -> str:
    """A change as `headway set` takes it, such as memory=2048MiB; empty: it does not take it."""
    value = value.strip('"')
    if attribute == "RequestDisk" and value.isdigit() and int(value) % 1024 == 0:
        return f"disk={int(value) // 1024}MiB"
    return _SETS[attribute].format(value) if attribute in _SETS and value.isalnum() else ""


def look(url: str) -> str:
    """The command that asks the sources of an object whether they have it."""
    return f"headway sources {shlex.quote(printable(url[:_LONGEST_URL]))}"


def constraint(jobs: Sequence[JobId | Key]) -> str:
    """The ClassAd expression that is true for these jobs."""
    clusters: defaultdict[int, set[int]] = defaultdict(set)
    for job in jobs:
        clusters[job.cluster].add(job.proc)
    return " || ".join(
        f"(ClusterId == {cluster} && ({_any_proc(procs)}))"
        for cluster, procs in sorted(clusters.items())
    )


def _any_proc(procs: set[int]) -> str:
    ranges: list[tuple[int, int]] = []
    for proc in sorted(procs):
        first = ranges.pop()[0] if ranges and proc == ranges[-1][1] + 1 else proc
        ranges.append((first, proc))
    return " || ".join(
        f"ProcId == {first}" if first == last else f"(ProcId >= {first} && ProcId <= {last})"
        for first, last in ranges
    )


def _named(jobs: Sequence[JobId]) -> str:
    """A few jobs by their ids, more by a constraint, which is shorter."""
    if len(jobs) <= 5:
        return " ".join(str(job) for job in jobs)
    return f"-constraint {shlex.quote(constraint(jobs))}"
