"""Find the run, or the job of a run, that a word on the command line names.

cifar10-3       the run of that label
cifar10         the newest run of that name
(nothing)       the newest run
cifar10-3.0     job 0 of that run; cifar10.0: of the newest run of that name
.0 or 0         job 0 of the newest run
8123.0 or 8123  as HTCondor numbers them, where a run here has that cluster
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.errors import RunError
from headway.pool.folder import RunFolder, Runs

_log = logging.getLogger(__name__)
_JOB = re.compile(r"(?P<run>.*)\.(?P<job>[0-9]{1,9})\Z", re.ASCII | re.DOTALL)
_NUMBER = re.compile(r"[0-9]{1,9}\Z", re.ASCII)
_LIKE_A_JOB = re.compile(r"[0-9]*(\.[0-9]+)?\Z", re.ASCII)


@dataclass(frozen=True)
class Address:
    """A run, or one of its jobs."""

    folder: RunFolder
    job: int | None = None

    def __str__(self) -> str:
        return self.folder.label if self.job is None else f"{self.folder.label}.{self.job}"


def find(text: str | None, runs: Runs | None = None) -> Address:
    """What `text` names; the name of a run goes before every other meaning."""
    found = _find(text, runs or Runs.here())
    _log.info("%s is in %s", found, found.folder.path)
    return found


def _find(text: str | None, runs: Runs) -> Address:
    known = list(runs)
    if not text or not known:
        return Address(runs.find(text or None))
    if run := _named(text, known):
        return Address(run)
    if match := _JOB.match(text):
        name, job = match["run"], int(match["job"])
        if not name:
            return _job_of(known[-1], job)
        return _job_of(_named(name, known) or _by_cluster(name, known) or _other(name, runs), job)
    if _NUMBER.match(text):  # a job of the newest run or, beyond its jobs, a cluster
        if int(text) >= known[-1].job.size and (run := _by_cluster(text, known)):
            return Address(run)
        return _job_of(known[-1], int(text))
    return Address(_other(text, runs))


def find_run(text: str | None, runs: Runs | None = None) -> RunFolder:
    """The run that `text` names, for commands that work on whole runs."""
    address = find(text, runs)
    if address.job is not None:
        raise RunError(
            f"{address} is one job; this works on whole runs",
            remedy=f"name the run: {address.folder.label}",
        )
    return address.folder


def are_logs(words: Sequence[str]) -> bool:
    """Whether these words name logs; the name of a run and a job's number go before a path."""
    if len(words) != 1:
        return len(words) > 1
    text = words[0]
    try:
        there = os.path.exists(text)
        path = Path(text).resolve()
        # The current folder and those above it are never meant as folders of logs.
        if (path / "run.json").is_file() or path == Path.cwd() or path in Path.cwd().parents:
            return False
    except (OSError, ValueError):
        return False
    if os.sep in text or text.endswith(".log"):
        return True
    if not there:
        return False
    runs = list(Runs.here())
    named = any(text in (run.label, run.facts.name) for run in runs)
    return not named and not (runs and _LIKE_A_JOB.match(text))


def _named(text: str, known: list[RunFolder]) -> RunFolder | None:
    labels = [run for run in known if run.label == text]
    names = [run for run in known if run.facts.name == text]
    return next(reversed(labels or names), None)


def _other(text: str, runs: Runs) -> RunFolder:
    """A path, or the error that says what is here instead."""
    try:
        return runs.find(text)
    except OSError:  # too long for any path
        raise RunError(
            f"there is no run {text[:20]!r}…", remedy="`headway list` shows the runs that are here"
        ) from None


def _by_cluster(text: str, known: list[RunFolder]) -> RunFolder | None:
    """The run with this cluster; HTCondor's clusters go before those of the local pool."""
    if not _NUMBER.match(text):
        return None
    having = [run for run in known if run.facts.cluster == int(text)]
    found = [run for run in having if run.facts.pool.get("kind") != "local"] or having
    if len(found) > 1:
        labels = ", ".join(run.label for run in found[-3:])
        raise RunError(
            f"several runs have the cluster {text}", remedy=f"name the run itself: {labels}"
        )
    return found[0] if found else None


def _job_of(folder: RunFolder, job: int) -> Address:
    size = folder.job.size
    if job < size:
        return Address(folder, job)
    label = folder.label
    jobs = f"only {label}.0" if size == 1 else f"{label}.0 to {label}.{size - 1}"
    raise RunError(f"{label} has no job {job}", remedy=f"it has {jobs}")
