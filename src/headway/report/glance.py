"""A glance at logs too big to look at event by event: how many jobs are where, and a few of them.

The same automaton walks over the columns that accounts are made from; only of the jobs that
are shown are the events themselves read again, from where they lie in their files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headway.events import Event, JobState, Parser, Skip, Status, read_columns
from headway.events.columnar.columns import Columns, Longs
from headway.events.kind import Kind
from headway.events.skip import EVENT_LIMIT
from headway.report.codes import STATUS
from headway.report.strand import strands
from headway.report.walk import Walk

_SUCCESS = (Kind.SUCCEEDED, Kind.SKIPPED)
_MOST = EVENT_LIMIT + 4096  # bytes of one event, with its header and end mark


@dataclass(frozen=True)
class Glance:
    """What there is, and the jobs that were asked for, each with its whole state."""

    counts: dict[str, int]
    jobs: list[JobState]
    last: float
    skipped: list[tuple[str, Skip]]


def glance(paths: Sequence[str], most: int) -> Glance:
    """How many jobs are in each state, and the states of the first and last `most` of each."""
    columns = read_columns(paths)
    found = strands(columns)
    walk = Walk(columns, found, {}, None)
    groups = _groups(walk)
    ends = np.append(found.first[1:], len(found.rows))
    shown: list[Longs] = []
    for members in groups.values():
        # Of what needs attention the newest are shown, of what goes on the first.
        chosen = np.unique(np.concatenate([members[:most], members[-most:]]))
        shown += [found.rows[found.first[job] : ends[job]] for job in chosen.tolist()]
    return Glance(
        counts={group: len(members) for group, members in groups.items()},
        jobs=list(_states(columns, shown)),
        last=int(columns.time.max(initial=0)) / 1e6,
        skipped=columns.skipped,
    )


def _groups(walk: Walk) -> dict[str, NDArray[np.int64]]:
    """The jobs of each group that a status knows, in the order of the log."""
    if not len(walk.first):
        return {}
    status = walk.status[walk.last]
    over = np.flatnonzero(walk.status == STATUS[Status.COMPLETED])
    ended = np.full(len(walk.first), -1, np.int64)
    ended[walk.job[over][::-1]] = over[::-1]  # the first event after which it was over
    good = np.isin(walk.kind[ended], _SUCCESS) & (ended >= 0)
    done = status == STATUS[Status.COMPLETED]
    plain = {
        "held": status == STATUS[Status.HELD],
        "idle": status == STATUS[Status.IDLE],
        "removed": status == STATUS[Status.REMOVED],
        "succeeded": done & good,
        "failed": done & ~good,
    }
    rest = ~np.logical_or.reduce(list(plain.values()))
    return {name: np.flatnonzero(flags) for name, flags in {**plain, "running": rest}.items()}


def _states(columns: Columns, jobs: Sequence[Longs]) -> Iterator[JobState]:
    events = _events(columns, np.concatenate(jobs) if jobs else np.zeros(0, np.int64))
    for rows in jobs:
        first = rows[0]
        state = JobState(int(columns.cluster[first]), int(columns.proc[first]))
        for row in rows.tolist():
            if row in events:
                state.update(events[row])
        yield state


def _events(columns: Columns, rows: Longs) -> dict[int, Event]:
    """These events, read where they lie; their times are those of the columns, year and all."""
    found: dict[int, Event] = {}
    for place in np.unique(columns.file[rows]).tolist():
        mine = rows[columns.file[rows] == place]
        starts = np.sort(columns.offset[columns.file == place])
        with open(columns.files[place], "rb") as file:
            for row in mine[np.argsort(columns.offset[mine])].tolist():
                begin = int(columns.offset[row])
                after = int(np.searchsorted(starts, begin, side="right"))
                size = int(starts[after]) - begin if after < len(starts) else _MOST
                file.seek(begin)
                for event in _first(file.read(min(size, _MOST))):
                    found[row] = replace(event, time=int(columns.time[row]) / 1e6)
    return found


def _first(data: bytes) -> Iterable[Event]:
    return Parser().feed(data + b"\n")[:1]
