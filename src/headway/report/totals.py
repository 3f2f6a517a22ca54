"""The totals: what the jobs came to, what they cost, and the two shares, never mixed."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import polars as pl

from headway.report.accounts import Accounts
from headway.report.deliveries import Deliveries, delivery_figures
from headway.report.enums import OFF_SLOT, SLOT_PHASES, Cause, JobOutcome, Phase, column_of
from headway.report.numbers import JsonFigures, finite, share, total

#: Codes of holds for a file transfer: it failed (12, 13), or was too large (32, 33).
TRANSFER_HOLDS = (12, 13, 32, 33)
#: Codes of holds for a job, or its execution, that took longer than it may.
DURATION_HOLDS = (46, 47)


@dataclass(frozen=True)
class Totals(JsonFigures):
    """Every figure of the whole report; lengths in seconds, shares of 1, None: nothing to tell."""

    jobs: int
    succeeded: int
    failed: int
    held: int  # still held; the three that follow say for what
    held_transfer: int
    held_duration: int
    held_other: int
    removed: int
    unfinished: int

    attempts: int
    attempts_executed: int
    stalls: int
    stalls_of_successes: int
    stalled_successes: int  # successful jobs with a stall
    stalled_jobs: int
    evictions: int
    evicted_jobs: int
    holds: int
    requeues: int
    checkpoints: int

    slot_s: float
    queued_s: float
    held_s: float
    phases: dict[str, float]  # seconds by `Phase`
    compute_s: float
    idle_s: float  # of attempts that computed nothing
    cpu_s: float | None  # CPU time that attempts used, as far as events say
    transfer_s: float  # all input transfers
    good_compute_s: float  # compute of verified results
    good_s: float
    bad_s: float
    open_s: float

    # of successful jobs
    last_transfer_s: float
    retried_transfer_s: float
    evicted_compute_s: float  # compute that their results do not hold; here and below without idle
    # of held jobs
    held_compute_s: float
    held_transfer_s: float
    # of failed jobs
    wrong_compute_s: float
    wrong_transfer_s: float
    wrong_last_transfer_s: float

    compute_share: float | None  # good_compute_s / slot_s
    goodput: float | None  # good_s / slot_s
    #: Of jobs that did not succeed only the last transfer counts: how the study counted.
    slot_last_transfers_s: float
    compute_share_last_transfers: float | None

    result_mean_s: float | None  # successful jobs: good compute and all input transfers
    result_median_s: float | None
    wall_mean_s: float | None  # successful jobs: from the first match to the end
    wall_median_s: float | None
    longest_arrived_transfer_s: float | None
    shortest_cut_transfer_s: float | None
    #: Of the jobs that ended without success, by what became of them.
    failure_shares: dict[str, float]
    received: float | None  # bytes
    transfer_rate: float | None  # bytes per second of the transfers that arrived
    #: Transfers of files that HTCondor brought to a node once for several jobs, their time, and
    #: the jobs that were given them, as far as the log says.
    common_transfers: int
    common_transfer_s: float
    common_jobs: int
    deliveries: Deliveries | None  # of outputs that couriers bring home; None: there were none

    def as_dict(self) -> dict[str, Any]:
        """As JSON types; without deliveries where there were none."""
        found: dict[str, Any] = super().as_dict()
        return found if self.deliveries else {k: v for k, v in found.items() if k != "deliveries"}


def totals(accounts: Accounts) -> Totals:
    """What all jobs together came to and cost."""
    job = accounts.jobs.select(_of_jobs()).row(0, named=True)
    attempt = accounts.attempts.select(_of_attempts()).row(0, named=True)
    idle = _idle(accounts)
    count = {key: int(value or 0) for key, value in job.items() if not key.endswith("_s")}
    time = {key: total(value) for key, value in job.items() if key.endswith("_s")}
    endings = ("held-transfer", "failed", "held-duration", "held-other", "removed")
    ended = {name: count[name.replace("-", "_")] for name in endings}
    without = sum(ended.values())
    last = total(time["slot_s"] - time["needless_transfer_s"])
    own = {
        "jobs": accounts.jobs.height,
        "attempts": accounts.attempts.height,
        "attempts_executed": int(attempt["executed"] or 0),
        "phases": {
            phase.value: time[column_of(phase)]
            if phase in OFF_SLOT
            else total(attempt[phase.value])
            for phase in Phase
            if phase not in _DELIVERIES or accounts.deliveries.height
        },
        "idle_s": total(accounts.pieces.filter(_IS_IDLE).get_column("seconds").sum()),
        "cpu_s": finite(attempt["cpu_s"]),
        "evicted_compute_s": total(time["evicted_compute_s"] - idle.get("success", 0.0)),
        "held_compute_s": total(time["held_compute_s"] - idle.get("held", 0.0)),
        "wrong_compute_s": total(time["wrong_compute_s"] - idle.get("failed", 0.0)),
        "compute_share": share(time["good_compute_s"], time["slot_s"]),
        "goodput": share(time["good_s"], time["slot_s"]),
        "slot_last_transfers_s": last,
        "compute_share_last_transfers": share(time["good_compute_s"], last),
        **{name: finite(job[name]) for name in _AVERAGES},
        "longest_arrived_transfer_s": finite(attempt["longest"]),
        "shortest_cut_transfer_s": finite(attempt["shortest"]),
        "failure_shares": {key: number / without for key, number in ended.items() if number},
        "received": finite(attempt["received"]),
        "transfer_rate": share(finite(attempt["rated_bytes"]), finite(attempt["rated_s"])),
        "common_transfers": accounts.common.height,
        "common_transfer_s": total((accounts.common["end"] - accounts.common["begin"]).sum()),
        "common_jobs": accounts.common_jobs,
        "deliveries": delivery_figures(accounts),
    }
    found: dict[str, Any] = count | time | own
    return Totals(**{field.name: found[field.name] for field in fields(Totals)})


#: Phases that only jobs have whose outputs were left in a store.
_DELIVERIES = (Phase.STORED, Phase.DELIVERY)
_IS_IDLE = pl.col("cause") == Cause.IDLE.value


def _idle(accounts: Accounts) -> dict[str, float]:
    """Seconds in which attempts should have computed and did not, by the outcome of their job."""
    still = accounts.attempts.filter(_IS_IDLE).select("job", "compute_s")
    jobs = accounts.jobs.select("job", pl.col("outcome").cast(pl.String))
    sums = still.join(jobs, on="job").group_by("outcome").agg(pl.col("compute_s").sum())
    return dict(sums.iter_rows())


def _of_jobs() -> list[pl.Expr]:
    outcome, code = pl.col("outcome"), pl.col("hold_code")
    good = outcome == JobOutcome.SUCCESS.value
    held = outcome == JobOutcome.HELD.value
    wrong = outcome == JobOutcome.FAILED.value
    transfer, last = pl.col("transfer_s").fill_null(0), pl.col("last_transfer_s").fill_null(0)
    retried = transfer - last
    lost = pl.col("compute_s") - pl.col("good_compute_s")
    result = (pl.col("good_compute_s") + transfer).filter(good)
    wall = (pl.col("end") - pl.col("matched")).filter(good)
    stalled, evicted = pl.col("stalls") > 0, pl.col("evictions") > 0
    in_transfer = code.is_in(TRANSFER_HOLDS).fill_null(False)
    in_duration = code.is_in(DURATION_HOLDS).fill_null(False)
    found = {
        "succeeded": good.sum(),
        "failed": wrong.sum(),
        "held": held.sum(),
        "held_transfer": (held & in_transfer).sum(),
        "held_duration": (held & in_duration).sum(),
        "held_other": (held & ~in_transfer & ~in_duration).sum(),
        "removed": (outcome == JobOutcome.REMOVED.value).sum(),
        "unfinished": (outcome == JobOutcome.UNFINISHED.value).sum(),
        "stalls_of_successes": pl.col("stalls").cast(pl.Int64).filter(good).sum(),
        "stalled_successes": (good & stalled).sum(),
        "stalled_jobs": stalled.sum(),
        "evicted_jobs": evicted.sum(),
        "last_transfer_s": last.filter(good).sum(),
        "retried_transfer_s": retried.filter(good).sum(),
        "evicted_compute_s": lost.filter(good).sum(),
        "held_compute_s": pl.col("compute_s").filter(held).sum(),
        "held_transfer_s": transfer.filter(held).sum(),
        "wrong_compute_s": pl.col("compute_s").filter(wrong).sum(),
        "wrong_transfer_s": transfer.filter(wrong).sum(),
        "wrong_last_transfer_s": last.filter(wrong).sum(),
        "needless_transfer_s": retried.filter(~good).sum(),
        "result_mean_s": result.mean(),
        "result_median_s": result.median(),
        "wall_mean_s": wall.mean(),
        "wall_median_s": wall.median(),
    }
    # A column of 32 bits would wrap around when it is added up.
    plain = [pl.col(name).cast(pl.Int64) for name in _COUNTS] + [pl.col(name) for name in _LENGTHS]
    return [column.sum() for column in plain] + [value.alias(key) for key, value in found.items()]


_AVERAGES = ("result_mean_s", "result_median_s", "wall_mean_s", "wall_median_s")
_COUNTS = ("stalls", "evictions", "holds", "requeues", "checkpoints")
_LENGTHS = (
    *("slot_s", "queued_s", "held_s", "prefetch_s", "stored_s", "delivery_s"),
    *("compute_s", "transfer_s"),
    *("good_compute_s", "good_s", "bad_s", "open_s"),
)


def moved() -> pl.Expr:
    """Of attempts: the input arrived, and there was some."""
    some = (pl.col("transfer_in_s") > 0) | (pl.col("received").fill_null(0) > 0)
    return pl.col("arrived") & some


def rated() -> pl.Expr:
    """Of attempts: the input arrived, and both its bytes and its time are known."""
    # HTCondor writes 0 for bytes that it did not count itself.
    known = (pl.col("received").fill_null(0) > 0) & (pl.col("transfer_in_s") > 0)
    return pl.col("arrived") & known


def cut() -> pl.Expr:
    """Of attempts: the input transfer was cut off or stalled."""
    return ~pl.col("arrived") & (pl.col("cause") == Cause.TRANSFER_CUT.value)


def _of_attempts() -> list[pl.Expr]:
    transfer, received = pl.col("transfer_in_s"), pl.col("received")
    found = {
        "executed": pl.col("executed").sum(),
        "cpu_s": pl.when(pl.col("cpu_s").count() > 0).then(pl.col("cpu_s").sum()),
        "longest": transfer.filter(moved()).max(),
        # A log without 040 events does not know how long a transfer took.
        "shortest": transfer.filter(cut() & (transfer > 0)).min(),
        "received": pl.when(received.count() > 0).then(received.sum()),
        "rated_bytes": received.filter(rated()).sum(),
        "rated_s": transfer.filter(rated()).sum(),
    }
    found |= {phase.value: pl.col(column_of(phase)).sum() for phase in SLOT_PHASES}
    return [value.alias(key) for key, value in found.items()]


#: Widths that people read without thinking; each up to an hour divides an hour.
_WIDTHS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800, 3600)


@dataclass(frozen=True)
class Completion(JsonFigures):
    """How many jobs had ended, and how many of them well, at each of `times` (since the epoch)."""

    jobs: int
    times: tuple[float, ...]
    ended: tuple[int, ...]  # a hold that nobody has released counts as an end
    succeeded: tuple[int, ...]


@dataclass(frozen=True)
class Histogram(JsonFigures):
    """Input transfers by length: bin i has those from edges[i] on and below edges[i + 1].

    The last bin has no upper edge: it also holds all that are longer.
    """

    edges: tuple[float, ...]
    arrived: tuple[int, ...]
    cut: tuple[int, ...]  # cut off or stalled
    failed: tuple[int, ...]
    other: tuple[int, ...]  # ended by what was not the transfer's fault: eviction, removal, …


def completion(accounts: Accounts, points: int = 400) -> Completion:
    """The completion curve; where there are more ends than `points`, at evenly spaced times."""
    ended = accounts.jobs.filter(
        (pl.col("outcome") != JobOutcome.UNFINISHED.value) & pl.col("end").is_finite()
    )
    held = pl.col("outcome") == JobOutcome.HELD.value
    # Of a job that is still held the last event may be the report's end; the hold was its own.
    last = accounts.holds.group_by("job").agg(pl.col("time").max().alias("held_at"))
    ends = ended.join(last, on="job", how="left").select(
        pl.when(held).then(pl.col("held_at")).otherwise(None).fill_null(pl.col("end")).alias("at"),
        (pl.col("outcome") == JobOutcome.SUCCESS.value).alias("good"),
    )
    every = np.sort(ends.get_column("at").to_numpy())
    good = np.sort(ends.filter("good").get_column("at").to_numpy())
    times = np.unique(every)
    if len(times) > points:
        times = np.linspace(times[0], times[-1], points)
    return Completion(
        accounts.jobs.height,
        tuple(times.tolist()),
        tuple(np.searchsorted(every, times, side="right").tolist()),
        tuple(np.searchsorted(good, times, side="right").tolist()),
    )


def transfer_lengths(accounts: Accounts, bins: int = 48) -> Histogram:
    """The histogram of input transfers, in at most about `bins` bins of a round width."""
    moving = accounts.attempts.filter(pl.col("transfer_in_s") > 0).select(
        pl.col("transfer_in_s").alias("s"),
        moved().alias("arrived"),
        cut().alias("cut"),
        (~pl.col("arrived") & (pl.col("cause") == Cause.TRANSFER_FAILED.value)).alias("failed"),
        (pl.col("ending") == "open").alias("open"),
    )
    # A transfer that still goes on has no length yet.
    moving = moving.filter(pl.col("arrived") | ~pl.col("open"))
    lengths = moving.get_column("s")
    reach = finite(lengths.quantile(0.99)) if moving.height else None
    if reach is None:
        return Histogram((), (), (), (), ())
    # One transfer of days must not squeeze all others into a single bin.
    width = _width(reach / bins)
    count = int(reach // width) + 1
    place = np.clip(lengths.to_numpy() // width, 0, count - 1).astype(np.int64)
    flags = moving.select(pl.col("arrived", "cut", "failed").fill_null(False))
    kinds = [flag.to_numpy() for flag in flags]
    kinds.append(~np.logical_or.reduce(kinds))
    columns = (tuple(np.bincount(place[kind], minlength=count).tolist()) for kind in kinds)
    return Histogram(tuple(float(at * width) for at in range(count)), *columns)


def _width(least: float) -> int:
    hours = int(-(-least // 3600)) * 3600
    return next((width for width in _WIDTHS if width >= least), hours)
