"""Files that HTCondor brought to a node once for several jobs: what 047 events tell.

These events are about no job: their proc is below zero, or missing. They do not say how many bytes
there were.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from headway.events.columnar.columns import Columns
from headway.events.event import Kind
from headway.report.accounts import COMMON
from headway.report.timeline import Timeline

_SECOND = 1e6  # in the unit of times, microseconds


def common_transfers(columns: Columns) -> pl.DataFrame:
    """The transfers that these events tell of, those that ended as well as those that did not.

    Args:
        columns: The events.

    Returns:
        A row a transfer, with its log.
    """
    rows = np.flatnonzero(np.isin(columns.kind, (Kind.COMMON_STARTED, Kind.COMMON_FINISHED)))
    keys = (columns.proc[rows], columns.cluster[rows], columns.log[rows])
    rows = rows[np.lexsort((columns.time[rows], *keys))]
    finished = columns.kind[rows] == Kind.COMMON_FINISHED
    ends = np.append(finished[1:], False)
    for key in (columns.log[rows], columns.cluster[rows], columns.proc[rows]):
        ends &= np.append(key[1:] == key[:-1], False)
    begin = columns.time[rows] / _SECOND
    end = np.where(ends, np.append(begin[1:], 0.0), np.nan)
    mine = rows[~finished]
    made = {
        "log": columns.log[mine],
        "cluster": columns.cluster[mine],
        "proc": columns.proc[mine],
        "begin": begin[~finished],
        "end": pl.Series(end[~finished], nan_to_null=True),
    }
    return pl.DataFrame(made, schema={"log": pl.Int32, "proc": pl.Int64, **COMMON})


def jobs_with_common_files(columns: Columns, timeline: Timeline) -> int:
    """How many jobs of the timeline were given such files, as far as 028 events say."""
    mapped = columns.kind[timeline.rows] == Kind.COMMON_MAPPED
    return len(np.unique(timeline.job[mapped]))


def joined_transfers(parts: list[pl.DataFrame], clusters: pl.Series) -> pl.DataFrame:
    """The transfers for these clusters; one that two logs tell of counts once.

    XML and JSON logs leave out a proc below zero: they count only where no text log tells more.
    """
    one = ["cluster", "proc", "second"]
    named = (pl.col("proc") < -1).any().over("cluster")
    return (
        pl.concat(parts)
        .filter(pl.col("cluster").is_in(clusters.unique().implode()))
        .filter((pl.col("proc") < -1) | ~named)
        .sort("begin", "end")
        .with_columns(second=pl.col("begin").floor())
        .with_columns(nth=pl.int_range(pl.len()).over("log", *one))
        .unique([*one, "nth"], keep="first", maintain_order=True)
        .select(list(COMMON))
    )
