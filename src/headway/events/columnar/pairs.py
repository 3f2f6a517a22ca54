"""Jobs and their couriers in columns: in a DAG of Headway's, each pair is one job.

`events.state.Pairs` does the same for one event after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from headway.events.columnar.columns import EventArrays, Longs
from headway.events.event import Kind, pair_named
from headway.events.format import EventType

_MOST = 2**40  # clusters are less
#: The texts at places of a part's text column.
Texts = Callable[[int, Longs], Sequence[str]]


def join_pairs(parts: Sequence[EventArrays], log_of: Longs, texts: Texts) -> None:
    """Give each courier the id of its job, in all parts.

    Args:
        parts: The events, in the order of the logs.
        log_of: The log of each file.
        texts: The texts of a part, by its number; 000 events name their node of a DAG.
    """
    clusters: dict[tuple[int, str], int] = {}  # of a run in a log
    jobs: dict[tuple[int, int, int], tuple[int, int]] = {}
    begun: set[tuple[int, int, int]] = set()
    for number, part in enumerate(parts):
        columns = part.columns
        rows = np.flatnonzero((columns["number"] == EventType.SUBMIT) & (columns["text"] >= 0))
        if not rows.size:
            continue
        logs = _logs(part, log_of)[rows].tolist()
        own = (columns[name][rows].tolist() for name in ("cluster", "proc"))
        columns["kind"] = columns["kind"].copy()  # another process may have made it
        names = texts(number, columns["text"][rows].astype(np.int64))
        for row, log, cluster, proc, name in zip(rows.tolist(), logs, *own, names, strict=True):
            if pair := pair_named(name):
                base = clusters.setdefault((log, pair[1]), cluster)
                jobs[log, cluster, proc] = base, pair[2]
                if (log, base, pair[2]) in begun:  # the job is in the queue once more
                    columns["kind"][row] = Kind.OTHER
                begun.add((log, base, pair[2]))
    if not jobs:
        return
    table = np.array([[*key, *job] for key, job in jobs.items() if key[1] < _MOST], np.int64)
    keys = table[:, 0] * _MOST + table[:, 1]
    order = np.argsort(keys)
    keys, (own, base, number_in_run) = keys[order], table[order, 2:].T
    for part in parts:
        columns = part.columns
        cluster, proc = (columns[name].astype(np.int64) for name in ("cluster", "proc"))
        wanted = _logs(part, log_of).astype(np.int64) * _MOST + cluster
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        rows = np.flatnonzero((keys[at] == wanted) & (own[at] == proc))
        cluster[rows], proc[rows] = base[at[rows]], number_in_run[at[rows]]
        columns["cluster"], columns["proc"] = cluster, proc


def _logs(part: EventArrays, log_of: Longs) -> Longs:
    """The log of each event of a part."""
    return np.repeat(log_of[part.files], part.sizes)
