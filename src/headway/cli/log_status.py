"""The jobs of event logs that belong to no run, in the same words."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.cli.board import Groups
from headway.cli.show import near, paint, printable
from headway.cli.states import print_states
from headway.cli.words import STYLES, count_words, group_of, why
from headway.events import Jobs, JobState, Skip, read_log
from headway.events.forms.files import NO_LOGS, LogFile, find_logs
from headway.events.forms.opening import open_log
from headway.events.forms.sniffing import Format
from headway.pool.folder import Runs

BIG = 16 << 20  # bytes of logs beyond which not every event is looked at
_MOST_WORDS = 10  # jobs whose reason gets a line of its own
_NUMBER = re.compile(r"[0-9]*(\.[0-9]+)?\Z", re.ASCII)


def are_logs(words: Sequence[str]) -> bool:
    """Whether these words name logs; a run's own name, and a job's number, go before a path."""
    if not words:
        return False
    if len(words) > 1:
        return True
    text = words[0]
    try:
        there = os.path.exists(text)
        path = Path(text).resolve()
        # A folder that this one lies in holds whatever there is, and no one asks for that.
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
    return not named and not (runs and _NUMBER.match(text))


@dataclass
class LogJobs:
    """What is known of the jobs in some logs; `last` is the time of the last event."""

    paths: list[str]
    total: int = 0
    logs: list[str] = field(default_factory=list)
    jobs: list[JobState] = field(default_factory=list)
    last: float = 0.0
    skipped: list[tuple[str, Skip]] = field(default_factory=list)
    unread: list[tuple[str, str]] = field(default_factory=list)

    #: Of all jobs, where only some of them are in `jobs`.
    counts: dict[str, int] = field(default_factory=dict)

    def groups(self) -> Groups:
        """The jobs, sorted by what they are doing."""
        found = Groups(len(self.jobs))
        for key, state in enumerate(self.jobs):
            found.put(key, state)
        return found


def read_jobs(paths: Sequence[str], most: int | None = None) -> LogJobs:
    """Read logs, with their rotations; two logs may both have a job 1.0.

    Of big logs, and if `most` jobs are to be shown at most, only so many of each kind are read.
    """
    found = LogJobs(list(paths))
    chains = find_logs(paths, found.unread)
    found.logs = [chain.name for chain in chains]
    files = [file for chain in chains for file in chain.files]
    if most is not None and sum(file.size for file in files) >= BIG and all(map(_is_plain, files)):
        return _read_big(found, most)
    for chain in chains:
        jobs = Jobs()
        for file in chain.files:
            log = read_log(file.path)
            for event in log.events:
                jobs.update(event)
            found.last = max([found.last, *(event.time for event in log.events)])
            found.skipped += [(str(file.path), skip) for skip in log.skipped]
        found.jobs += jobs.by_id.values()
    found.total = len(found.jobs)
    found.counts = found.groups().counts
    return found


def _read_big(found: LogJobs, most: int) -> LogJobs:
    from headway.report.glance import glance

    seen = glance(found.paths, most)
    found.jobs, found.counts, found.last = seen.jobs, seen.counts, seen.last
    found.total = sum(seen.counts.values())
    found.skipped = seen.skipped
    return found


def _is_plain(file: LogFile) -> bool:
    """Whether an event can be read where it lies."""
    if file.format is not Format.TEXT:
        return False
    with open_log(file.path) as opened:
        return not opened.compression


def document(found: LogJobs) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "logs": found.logs,
        "jobs": found.total,
        "counts": found.counts,
        "last": found.last or None,
        "skipped": [
            {"file": file, "offset": skip.offset, "bytes": skip.length, "why": skip.why}
            for file, skip in found.skipped
        ],
        "unread": [
            {"file": file, "why": said} for file, said in found.unread if said not in NO_LOGS
        ],
        "states": [{"job": _id(state), **state.as_dict()} for state in found.jobs],
    }


def print_jobs(found: LogJobs, most: int | None) -> None:
    """A table of the jobs, at most so many, and why those that need attention do."""
    groups = found.groups()
    names = [printable(near(Path(path))) for path in found.paths]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")
    print(f"{paint(shown, 'bold')}: {count_words(found.counts) or 'no jobs'}")
    states = groups.first(len(found.jobs) if most is None else most)
    if states:
        print_states(states, _id, found.last)
    if found.total > len(states):
        print(f"… and {found.total - len(states):,} more; --all shows them")
    _print_trouble(states, found.counts.get("held", 0), " ".join(map(shlex.quote, names[:3])))
    skipped = sum(skip.length for _, skip in found.skipped)
    if skipped:
        print(f"skipped {skipped:,} bytes that are part of no event; --json says where")
    for file, skip in found.skipped:
        if not skip.length:  # reading ended there
            where = f"{printable(near(Path(file)))} was read up to byte {skip.offset:,}"
            print(f"{where}: {printable(skip.why)}")
    if found.jobs:
        print(f"where the time went: headway report {' '.join(names[:3])}")


def _print_trouble(states: Sequence[JobState], number: int, logs: str) -> None:
    held = [state for state in states if group_of(state) == "held"]
    for state in held[:_MOST_WORDS]:
        print(f"  {paint(f'{_id(state)} held', STYLES['held'])}: {printable(why(state))}")
        print(f"    what to do about it: headway advise {logs} {_id(state)}")
    if number > len(held[:_MOST_WORDS]):
        print(f"  … and {number - len(held[:_MOST_WORDS]):,} more that are held")


def _id(state: JobState) -> str:
    return f"{state.cluster}.{state.proc}"
