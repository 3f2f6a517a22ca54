"""Strands: which rows of the columns are about the same job, and in which order they came."""

from __future__ import annotations

import os
from dataclasses import dataclass

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


def _told_apart(
    columns: Columns, rows: Longs, starts: NDArray[np.bool_], odd: NDArray[np.bool_]
) -> tuple[Longs, NDArray[np.bool_]]:
    """Sorts out the ids that have more than one 000 or come from more than one log."""
    first = np.flatnonzero(starts)
    ends = np.append(first[1:], len(rows))
    which = np.unique(np.searchsorted(first, np.flatnonzero(odd) + 1, side="right") - 1)
    pieces, marks, done = [], [], 0
    for place in which:
        begin, end = first[place], ends[place]
        pieces.append(rows[done:begin])
        marks.append(starts[done:begin])
        for job in _jobs(columns, rows[begin:end]):
            mark = np.zeros(len(job), bool)
            mark[0] = True
            pieces.append(job)
            marks.append(mark)
        done = end
    pieces.append(rows[done:])
    marks.append(starts[done:])
    return np.concatenate(pieces), np.concatenate(marks)


def _jobs(columns: Columns, rows: Longs) -> list[Longs]:
    """The jobs among the rows of one cluster and proc."""
    parts: list[tuple[int | None, list[int]]] = []  # submit second, rows
    for log in dict.fromkeys(columns.log[rows].tolist()):
        mine = rows[columns.log[rows] == log].tolist()
        now: tuple[int | None, list[int]] | None = None
        for row in mine:
            if columns.kind[row] == Kind.SUBMITTED:
                at = int(columns.time[row]) // _SECOND
                if now is None or now[0] != at:
                    now = (at, [])
                    parts.append(now)
            elif now is None:
                now = (None, [])
                parts.append(now)
            now[1].append(row)
    jobs: dict[tuple[int, str], list[list[int]]] = {}  # without a submit second: the folder
    for submitted, part in sorted(parts, key=lambda p: (p[0] is None, p[0] or 0)):
        key = (submitted, "") if submitted is not None else _home(columns, part, jobs)
        jobs.setdefault(key, []).append(part)
    return [_merged(columns, parts) for parts in jobs.values()]


def _home(
    columns: Columns, part: list[int], jobs: dict[tuple[int, str], list[list[int]]]
) -> tuple[int, str]:
    """The job that events without a 000 are of."""
    begin, folder = int(columns.time[part[0]]) // _SECOND, _folder(columns, part)
    told = _told(columns, part)
    for key in sorted((key for key in jobs if _NEVER < key[0] <= begin), reverse=True):
        near = any(_folder(columns, other) == folder for other in jobs[key])
        if near or any(told & _told(columns, other) for other in jobs[key]):
            return key
    return _NEVER, folder


_NEVER = -(2**62)


def _folder(columns: Columns, part: list[int]) -> str:
    return os.path.dirname(columns.logs[int(columns.log[part[0]])])


def _told(columns: Columns, part: list[int]) -> set[tuple[int, int]]:
    return {(int(columns.number[row]), int(columns.time[row]) // _SECOND) for row in part}


def _merged(columns: Columns, parts: list[list[int]]) -> Longs:
    """The rows of one job from several logs; what two logs both tell counts once."""
    if len(parts) == 1:
        return np.asarray(parts[0], np.int64)
    kept: list[int] = []
    counts: dict[tuple[int, ...], int] = {}
    for part in parts:
        mine: dict[tuple[int, ...], int] = {}
        for row in part:
            key = (
                int(columns.number[row]),
                int(columns.time[row]) // _SECOND,
                int(columns.kind[row]),
                int(columns.text[row]),
            )
            mine[key] = mine.get(key, 0) + 1
            if mine[key] > counts.get(key, 0):
                counts[key] = mine[key]
                kept.append(row)
    kept_rows = np.asarray(kept, np.int64)
    return kept_rows[np.argsort(columns.time[kept_rows], kind="stable")]
