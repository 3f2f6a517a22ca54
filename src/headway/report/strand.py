"""Strands: which rows of the columns are about the same job, and in which order they came."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.events.columnar.columns import Columns, Longs
from headway.events.kind import Kind

_SECOND = 1_000_000


@dataclass(frozen=True)
class Strands:
    """Rows sorted by job and, within a job, by order; `first` is where each job begins."""

    rows: Longs
    first: Longs

    @property
    def job(self) -> Longs:
        """The job of each sorted row."""
        lengths = np.diff(np.append(self.first, len(self.rows)))
        return np.repeat(np.arange(len(self.first)), lengths)


def strands(columns: Columns) -> Strands:
    """The events of each job together.

    A job is known by its cluster, proc and the time of its 000: access points count clusters from 1
    each, so two logs can name different jobs alike, and a job can be in two logs, its own and the
    pool's, where it must count once. A log that begins in the middle of a job has no 000: it goes
    on with the newest job of that name by then which another log in its folder began, or which
    tells one of the same events.
    """
    about_jobs = (columns.proc >= 0) & (columns.cluster >= 0) & (columns.number < 100)
    rows, key = _by_id(columns, np.flatnonzero(about_jobs))
    log = columns.log[rows]
    same = key[1:] == key[:-1]
    again = (columns.kind[rows] == Kind.SUBMITTED)[1:] & same
    mixed = (log[1:] != log[:-1]) & same
    starts = np.append(True, ~same) if len(rows) else np.zeros(0, bool)
    if again.any() or mixed.any():
        rows, starts = _told_apart(columns, rows, starts, again | mixed)
    return Strands(rows, np.flatnonzero(starts))


def _by_id(columns: Columns, rows: Longs) -> tuple[Longs, Longs]:
    """The rows sorted by cluster and proc, and a number that stands for both."""
    key = _key(columns, rows)
    if int(key.max(initial=0)) < 2**32:
        # NumPy sorts 16 bits in one pass: so first by the lower ones, and then by the upper ones.
        order = np.argsort(key.astype(np.uint16), kind="stable")
        order = order[np.argsort((key >> 16).astype(np.uint16)[order], kind="stable")]
    else:
        order = np.argsort(key, kind="stable")
    return rows[order], key[order]


def _key(columns: Columns, rows: Longs) -> Longs:
    cluster, proc = columns.cluster[rows], columns.proc[rows]
    cluster -= int(cluster.min(initial=2**62))  # a copy
    procs = int(proc.max(initial=0)) + 1
    if int(cluster.max(initial=0)) < 2**62 // procs:
        return cluster * procs + proc
    _, found = np.unique(np.stack([cluster, proc]), axis=1, return_inverse=True)
    return np.asarray(found, np.int64).reshape(-1)


class _Event(NamedTuple):
    """What tells jobs of the same name apart."""

    row: int
    time: int
    number: int
    kind: int
    text: int
    log: int

    @property
    def second(self) -> int:
        return self.time // _SECOND


def _told_apart(
    columns: Columns, rows: Longs, starts: NDArray[np.bool_], odd: NDArray[np.bool_]
) -> tuple[Longs, NDArray[np.bool_]]:
    """Sorts out the ids that have more than one 000 or come from more than one log."""
    first = np.flatnonzero(starts)
    ends = np.append(first[1:], len(rows))
    which = np.unique(np.searchsorted(first, np.flatnonzero(odd) + 1, side="right") - 1)
    folders = [os.path.dirname(log) for log in columns.logs]
    pieces, marks, done = [], [], 0
    for place, events in zip(which, _events(columns, rows, first, ends, which), strict=True):
        begin, end = first[place], ends[place]
        pieces.append(rows[done:begin])
        marks.append(starts[done:begin])
        for job in _jobs(events, folders):
            mark = np.zeros(len(job), bool)
            mark[0] = True
            pieces.append(np.array(job, np.int64))
            marks.append(mark)
        done = end
    pieces.append(rows[done:])
    marks.append(starts[done:])
    return np.concatenate(pieces), np.concatenate(marks)


def _events(
    columns: Columns, rows: Longs, first: Longs, ends: Longs, which: Longs
) -> Iterator[list[_Event]]:
    """The events of each of these ids, taken out of the columns some thousand ids at a time."""
    for begin in range(0, len(which), _AT_ONCE):
        some = which[begin : begin + _AT_ONCE]
        mine = np.concatenate([rows[first[place] : ends[place]] for place in some])
        values = (columns.time, columns.number, columns.kind, columns.text, columns.log)
        found = list(
            map(_Event._make, zip(mine.tolist(), *(v[mine].tolist() for v in values), strict=True))
        )
        at = 0
        for size in (ends[some] - first[some]).tolist():
            yield found[at : at + size]
            at += size


def _jobs(events: list[_Event], folders: Sequence[str]) -> list[list[int]]:
    """The jobs among the events of one cluster and proc, as rows."""
    logs: dict[int, list[_Event]] = {}
    for event in events:
        logs.setdefault(event.log, []).append(event)
    parts: list[tuple[int | None, list[_Event]]] = []  # submit second, events
    for mine in logs.values():
        now: tuple[int | None, list[_Event]] | None = None
        for event in mine:
            if event.kind == Kind.SUBMITTED:
                if now is None or now[0] != event.second:
                    now = (event.second, [])
                    parts.append(now)
            elif now is None:
                now = (None, [])
                parts.append(now)
            now[1].append(event)
    jobs: dict[tuple[int, str], list[list[_Event]]] = {}  # without a submit second: the folder
    for submitted, part in sorted(parts, key=lambda p: (p[0] is None, p[0] or 0)):
        key = (submitted, "") if submitted is not None else _home(part, jobs, folders)
        jobs.setdefault(key, []).append(part)
    return [_merged(parts) for parts in jobs.values()]


def _home(
    part: list[_Event], jobs: dict[tuple[int, str], list[list[_Event]]], folders: Sequence[str]
) -> tuple[int, str]:
    """The job that events without a 000 are of."""
    begin, folder = part[0].second, folders[part[0].log]
    told = {(event.number, event.second) for event in part}
    for key in sorted((key for key in jobs if _NEVER < key[0] <= begin), reverse=True):
        for other in jobs[key]:
            near = folders[other[0].log] == folder
            if near or any((event.number, event.second) in told for event in other):
                return key
    return _NEVER, folder


def _merged(parts: list[list[_Event]]) -> list[int]:
    """The rows of one job from several logs; what two logs both tell counts once."""
    if len(parts) == 1:
        return [event.row for event in parts[0]]
    kept: list[_Event] = []
    counts: dict[tuple[int, ...], int] = {}
    for part in parts:
        mine: dict[tuple[int, ...], int] = {}
        for event in part:
            key = (event.number, event.second, event.kind, event.text)
            mine[key] = mine.get(key, 0) + 1
            if mine[key] > counts.get(key, 0):
                counts[key] = mine[key]
                kept.append(event)
    return [event.row for event in sorted(kept, key=lambda event: event.time)]


_NEVER = -(2**62)
#: Ids whose events are taken out of the columns together.
_AT_ONCE = 5_000
