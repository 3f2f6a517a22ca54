"""The totals: what the jobs came to, what they cost, and the two shares, never mixed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from headway.report.accounts import Accounts
from headway.report.values import finite, share, total
from headway.report.words import SLOT_PHASES, Cause, Outcome, Phase

#: Codes of holds for a file transfer: it failed (12, 13), or was too large (32, 33).
TRANSFER_HOLDS = (12, 13, 32, 33)
#: Codes of holds for a job, or its execution, that took longer than it may.
DURATION_HOLDS = (46, 47)


@dataclass(frozen=True)
class Totals:
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

    def as_dict(self) -> dict[str, Any]:
        """As JSON types."""
        return asdict(self)


def totals(accounts: Accounts) -> Totals:
    """What all jobs together came to and cost."""
    job = accounts.jobs.select(_of_jobs()).row(0, named=True)
    attempt = accounts.attempts.select(_of_attempts()).row(0, named=True)
    idle = _idle(accounts)
    count = {key: int(value or 0) for key, value in job.items() if not key.endswith("_s")}
    time = {key: total(value) for key, value in job.items() if key.endswith("_s")}
    ended = {
        "held-transfer": count["held_transfer"],
        "failed": count["failed"],
        "held-duration": count["held_duration"],
        "held-other": count["held_other"],
        "removed": count["removed"],
    }
    without = sum(ended.values())
    last = total(time["slot_s"] - time["needless_transfer_s"])
    return Totals(
        jobs=accounts.jobs.height,
        succeeded=count["succeeded"],
        failed=count["failed"],
        held=count["held"],
        held_transfer=count["held_transfer"],
        held_duration=count["held_duration"],
        held_other=count["held_other"],
        removed=count["removed"],
        unfinished=count["unfinished"],
        attempts=accounts.attempts.height,
        attempts_executed=int(attempt["executed"] or 0),
        stalls=count["stalls"],
        stalls_of_successes=count["stalls_of_successes"],
        stalled_successes=count["stalled_successes"],
        stalled_jobs=count["stalled_jobs"],
        evictions=count["evictions"],
        evicted_jobs=count["evicted_jobs"],
        holds=count["holds"],
        requeues=count["requeues"],
        checkpoints=count["checkpoints"],
        slot_s=time["slot_s"],
        queued_s=time["queued_s"],
        held_s=time["held_s"],
        phases={
            phase.value: time[f"{phase.value}_s"]
            if phase in (Phase.QUEUED, Phase.HELD)
            else total(attempt[phase.value])
            for phase in Phase
        },
        compute_s=time["compute_s"],
        idle_s=total(accounts.pieces.filter(_IS_IDLE).get_column("seconds").sum()),
        cpu_s=finite(attempt["cpu_s"]),
        transfer_s=time["transfer_s"],
        good_compute_s=time["good_compute_s"],
        good_s=time["good_s"],
        bad_s=time["bad_s"],
        open_s=time["open_s"],
        last_transfer_s=time["last_transfer_s"],
        retried_transfer_s=time["retried_transfer_s"],
        evicted_compute_s=total(time["evicted_compute_s"] - idle.get("success", 0.0)),
        held_compute_s=total(time["held_compute_s"] - idle.get("held", 0.0)),
        held_transfer_s=time["held_transfer_s"],
        wrong_compute_s=total(time["wrong_compute_s"] - idle.get("failed", 0.0)),
        wrong_transfer_s=time["wrong_transfer_s"],
        wrong_last_transfer_s=time["wrong_last_transfer_s"],
        compute_share=share(time["good_compute_s"], time["slot_s"]),
        goodput=share(time["good_s"], time["slot_s"]),
        slot_last_transfers_s=last,
        compute_share_last_transfers=share(time["good_compute_s"], last),
        result_mean_s=finite(job["result_mean_s"]),
        result_median_s=finite(job["result_median_s"]),
        wall_mean_s=finite(job["wall_mean_s"]),
        wall_median_s=finite(job["wall_median_s"]),
        longest_arrived_transfer_s=finite(attempt["longest"]),
        shortest_cut_transfer_s=finite(attempt["shortest"]),
        failure_shares={key: number / without for key, number in ended.items() if number},
        received=finite(attempt["received"]),
        transfer_rate=share(finite(attempt["rated_bytes"]), finite(attempt["rated_s"])),
    )


_IS_IDLE = pl.col("cause") == Cause.IDLE.value


def _idle(accounts: Accounts) -> dict[str, float]:
    """Seconds in which attempts should have computed and did not, by the outcome of their job."""
    still = accounts.attempts.filter(_IS_IDLE).select("job", "compute_s")
    jobs = accounts.jobs.select("job", pl.col("outcome").cast(pl.String))
    sums = still.join(jobs, on="job").group_by("outcome").agg(pl.col("compute_s").sum())
    return dict(sums.iter_rows())


def _of_jobs() -> list[pl.Expr]:
    outcome, code = pl.col("outcome"), pl.col("hold_code")
    good = outcome == Outcome.SUCCESS.value
    held = outcome == Outcome.HELD.value
    wrong = outcome == Outcome.FAILED.value
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
        "removed": (outcome == Outcome.REMOVED.value).sum(),
        "unfinished": (outcome == Outcome.UNFINISHED.value).sum(),
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


_COUNTS = ("stalls", "evictions", "holds", "requeues", "checkpoints")
_LENGTHS = (
    *("slot_s", "queued_s", "held_s", "compute_s", "transfer_s"),
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


def column_of(phase: Phase) -> str:
    """The column of attempts that holds the seconds of a phase."""
    return f"{phase.value.replace('-', '_')}_s"
