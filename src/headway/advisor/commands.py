"""The command to type, which is made of numbers and of the table's words alone."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Protocol

from headway.advisor.hold import JobId
from headway.text import printable

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
