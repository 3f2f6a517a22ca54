"""Deliveries: outputs that an attempt left in a node's store, and what became of them.

A courier brings them home, on a transfer slot. It computes nothing, so it is no attempt in the
accounts: its time is the job's delivery. What the attempt was worth that made the outputs depends
on whether they came home.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from headway.events.columnar.columns import Columns, Floats, Longs
from headway.events.event import Kind, Phase
from headway.report.accounts import DELIVERIES, Accounts
from headway.report.enums import Delivery, JobOutcome
from headway.report.numbers import JsonFigures, count, finite, size, span, total
from headway.report.timeline import OUTCOME, PHASE, Codes, Timeline
from headway.text import many

_SECOND = 1e6  # in the unit of times, microseconds

#: The number that stands for each `Delivery` in an array.
DELIVERY = {delivery: number for number, delivery in enumerate(Delivery)}
#: What became of outputs that were not made again, by the outcome of their job.
_BY_OUTCOME = {
    JobOutcome.SUCCESS: Delivery.HOME,
    JobOutcome.FAILED: Delivery.FAILED,
    JobOutcome.REMOVED: Delivery.REMOVED,
    JobOutcome.HELD: Delivery.WAITING,
    JobOutcome.UNFINISHED: Delivery.WAITING,
}


def deliveries(timeline: Timeline, outcome: Codes) -> Codes:
    """What became of the outputs of each attempt in `timeline.handed`, as a number of `DELIVERY`.

    Args:
        timeline: The events of jobs.
        outcome: How each job stands.
    """
    job = timeline.job[timeline.spans.opened]
    again = np.append(job[1:] == job[:-1], False)[timeline.handed]
    words = np.zeros(len(OUTCOME), np.uint8)
    for each, delivery in _BY_OUTCOME.items():
        words[OUTCOME[each]] = DELIVERY[delivery]
    return np.where(again, DELIVERY[Delivery.LOST], words[outcome[job[timeline.handed]]])


def delivery_frame(
    columns: Columns, timeline: Timeline, outcome: Codes, jobs: int, attempts: int
) -> pl.DataFrame:
    """The table of deliveries.

    Args:
        columns: The events.
        timeline: The same by job.
        outcome: How each job stands.
        jobs: How many jobs come before.
        attempts: How many attempts come before.

    Returns:
        A row for each attempt that left its outputs.
    """
    if not timeline.handed.any():
        return pl.DataFrame(schema=DELIVERIES)
    attempt = np.flatnonzero(timeline.handed)
    count, of = len(attempt), timeline.job[timeline.spans.opened]
    job = of[attempt]
    newest = np.maximum.accumulate(timeline.attempt)  # -1 while the newest is a courier
    row = np.full(len(of) + 1, -1)
    row[attempt] = np.arange(count)
    row = np.where(np.append(of, -1)[newest] == timeline.job, row[newest], -1)
    became = deliveries(timeline, outcome)
    home = became == DELIVERY[Delivery.HOME]
    # The courier that brought them home is the last of its job.
    last = timeline.courier[timeline.ended][timeline.job]
    brings = timeline.open & (timeline.courier >= 0) & (timeline.courier == last)

    def spent(chosen: np.ndarray) -> Floats:
        at = np.flatnonzero(chosen & (row >= 0))
        return np.asarray(np.bincount(row[at], timeline.length[at], count) / _SECOND)

    ended = np.where(home, np.append(timeline.time, 0)[timeline.ended[job]], -1)
    begun = row[timeline.couriers.opened]
    made = {
        "job": job + jobs,
        "attempt": attempt + attempts,
        "became": pl.Series([each.value for each in Delivery])[became.astype(np.uint32)],
        "left": timeline.time[timeline.spans.end[attempt]] / _SECOND,
        "home": pl.Series(ended / _SECOND).set(pl.Series(~home), None),
        "couriers": np.bincount(begun[begun >= 0], minlength=count),
        "bytes": pl.Series(_bytes(columns, timeline, row, home, count), nan_to_null=True),
        "stored_s": spent(timeline.phase == PHASE[Phase.STORED]),
        "delivery_s": spent(timeline.phase == PHASE[Phase.DELIVERY]),
        "transfer_out_s": np.where(
            home, spent(brings & (timeline.plain == PHASE[Phase.TRANSFER_OUT])), 0.0
        ),
    }
    return pl.DataFrame(made, schema=DELIVERIES)


def _bytes(
    columns: Columns, timeline: Timeline, row: Longs, home: np.ndarray, count: int
) -> Floats:
    """As the agent said when it left them; else as HTCondor counted what came home with the job."""
    place = np.full(len(columns), -1)
    place[timeline.rows] = np.arange(len(timeline.rows))
    at, usage = place[columns.usage.row], columns.usage
    found = np.full(count, np.nan)
    ends = (at >= 0) & (timeline.ended[timeline.job[at]] == at)
    tells = (at >= 0) & (timeline.kind[at] == Kind.DONE_LATER) & (timeline.attempt[at] >= 0)
    for values, chosen in ((usage.sent, ends), (usage.left, tells)):
        some = np.flatnonzero(chosen & ~np.isnan(values) & (row[at] >= 0))
        found[row[at[some]]] = values[some]
    return np.where(home | ~np.isnan(found), found, np.nan)


@dataclass(frozen=True)
class Deliveries(JsonFigures):
    """The figures of all deliveries; lengths in seconds, None: not known."""

    left: int  # attempts that left their outputs in a node's store
    home: int
    waiting: int
    lost: int  # the job computed them again
    failed: int  # the job failed, or was removed, without them
    couriers: int
    bytes: float | None  # that came home, as far as the log says
    stored_s: float
    delivery_s: float  # of transfer slots
    home_mean_s: float | None  # from the attempt's end to the job's
    #: An estimate: what the couriers that brought outputs home spent with sending them. Without
    #: couriers, the jobs would have held their own slots for that.
    saved_s: float | None


def delivery_figures(accounts: Accounts) -> Deliveries | None:
    """The figures of all deliveries; None where there was none."""
    table, jobs = accounts.deliveries, accounts.jobs
    if table.is_empty():
        return None
    became = dict(table.group_by("became").len().iter_rows())
    home = table.filter(pl.col("became") == Delivery.HOME.value)
    saved = total(home["transfer_out_s"].sum())
    return Deliveries(
        left=table.height,
        home=home.height,
        waiting=became.get(Delivery.WAITING.value, 0),
        lost=became.get(Delivery.LOST.value, 0),
        failed=sum(became.get(each.value, 0) for each in (Delivery.FAILED, Delivery.REMOVED)),
        couriers=int(table["couriers"].sum()),
        bytes=finite(home["bytes"].sum()) if home["bytes"].count() else None,
        stored_s=total(jobs["stored_s"].sum()),
        delivery_s=total(jobs["delivery_s"].sum()),
        home_mean_s=finite((home["home"] - home["left"]).mean()),
        saved_s=saved or None,
    )


def delivery_rows(deliveries: Deliveries) -> list[tuple[str, str]]:
    """What couriers brought home, in words: what and how much."""
    d = deliveries
    known = f", {size(d.bytes)}" if d.bytes is not None else ""
    rows: list[tuple[str, str, object]] = [
        ("outputs that couriers brought home", f"{d.home:,} of {d.left:,}{known}", True),
        ("outputs still on their way", count(d.waiting), d.waiting),
        ("outputs lost, and computed again", count(d.lost), d.lost),
        ("outputs of jobs that then failed", count(d.failed), d.failed),
        ("time in the stores of nodes", span(d.stored_s), True),
        ("time on transfer slots", f"{span(d.delivery_s)}, {many(d.couriers, 'courier')}", True),
        ("from hand-over to home", f"{span(d.home_mean_s)} mean", d.home_mean_s),
        ("slot time saved, estimated", span(d.saved_s), d.saved_s),
    ]
    return [(words, value) for words, value, shown in rows if shown]


SLOTS = "outputs that went home on transfer slots, whose time is no job's slot time"
#: How the slot time that couriers saved is estimated.
SAVED = (
    "Slot time saved is how long these couriers took to send the outputs: without couriers, the"
    " jobs would have held their slots for that."
)
