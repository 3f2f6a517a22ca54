"""Accounts of as many jobs as one likes, shaped like the study's, made quickly and all at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from headway.events.opening import Skip
from headway.report.accounts import ATTEMPTS, HOLDS, JOBS, PIECES, Accounts
from headway.report.enums import Cause, JobOutcome, Phase

BEGIN = 1_700_000_000.0
SITES = ["CHTC-Spark-CE1", "PDX-Coeus-CE1", "GP-ARGO-ksu-backfill", "SDSC-PRP", "UConn-HPC"]
COMPUTE = np.array([11_222, 14_824, 17_608, 9_000, 20_000])
REASONS = [
    "Transfer input files failure at execution point slot1_3@node using protocol osdf. "
    "HTTP status 404 (<- 128.104.103.1) for osdf:///ospool/ap40/data/imagenet.tar",
    "The job exceeded allowed execute duration of 20:00:00",
]

Array = npt.NDArray[Any]


def many_jobs(
    number: int,
    *,
    seed: int = 7,
    sites: list[str] | None = None,
    users: list[str] | None = None,
    reasons: list[str] | None = None,
    files: list[str] | None = None,
) -> Accounts:
    """`number` jobs; the lists replace the names that would come from a log."""
    random = np.random.default_rng(seed)
    sites, users = sites or SITES, users or ["ada", "grace"]
    reasons, files = reasons or REASONS, files or ["training.log"]

    outcome = random.choice(
        [o.value for o in JobOutcome], size=number, p=[0.79, 0.03, 0.16, 0.01, 0.01]
    )
    tries = np.minimum(random.geometric(0.6, size=number), 12)
    begin = BEGIN + np.sort(random.integers(0, max(3600, number * 20), size=number))
    queue = random.integers(5, 1800, size=number)
    job = np.repeat(np.arange(number), tries)
    total = len(job)
    first = np.r_[True, job[1:] != job[:-1]]
    last = np.r_[job[1:] != job[:-1], True]
    place = random.integers(0, len(sites), size=total)
    ends = outcome[job]
    ended = last & (ends != JobOutcome.UNFINISHED.value)
    good = last & (ends == JobOutcome.SUCCESS.value)
    cut = ~last & (random.random(total) < 0.8)
    held = last & (ends == JobOutcome.HELD.value)
    late = held & (random.random(total) < 0.1)
    cause = np.full(total, Cause.EVICTION.value, dtype=object)
    cause[cut] = Cause.TRANSFER_CUT.value
    cause[held] = Cause.TRANSFER_FAILED.value
    cause[late] = Cause.OVER_TIME.value
    cause[last & (ends == JobOutcome.FAILED.value)] = Cause.FAILED.value
    cause[last & (ends == JobOutcome.REMOVED.value)] = Cause.REMOVED.value
    cause[good | ~ended & last] = Cause.NONE.value

    transfer = random.integers(1900, 3441, size=total)
    transfer[cut] = 3600 + random.integers(0, 200, size=int(cut.sum()))
    transfer[held & ~late] = random.integers(1, 4, size=int((held & ~late).sum()))
    compute = (COMPUTE[place % len(COMPUTE)] * random.normal(1, 0.06, size=total)).astype(int)
    compute[cut | held & ~late] = 0
    compute[late] = 72_000
    leaving = np.where(good, random.integers(2, 30, size=total), 0)
    between = np.where(first, queue[job], random.integers(30, 900, size=total))
    slot = transfer + compute + leaving

    step = between + slot
    until = np.cumsum(step)
    offset = (until - step)[first][job]
    attempt_begin = begin[job] + (until - slot - offset)
    attempt_end = attempt_begin + slot
    waiting = np.where(held & last, random.integers(60, 90_000, size=total), 0)

    nothing = np.full(total, None, dtype=object)
    code = np.where(late, 47, np.where(held, 13, nothing))
    reason = np.where(held, np.array(reasons, dtype=object)[(job + late) % len(reasons)], None)
    bad = np.where(good | ~ended & last, 0, slot)
    still = np.where(last & ~ended, slot, 0)
    attempts = frame(
        ATTEMPTS,
        total,
        attempt=np.arange(total),
        job=job,
        number=np.arange(total) - np.flatnonzero(first)[job] + 1,
        site=np.array(sites, dtype=object)[place],
        machine=[f"slot1_{n % 8}@node{n % 97}" for n in range(min(total, 5000))]
        * (total // 5000 + 1),
        begin=attempt_begin,
        end=attempt_end,
        executed=compute > 0,
        arrived=compute > 0,
        ending=np.where(good, "success", np.where(last & ~ended, "open", cause)),
        cause=cause,
        code=code,
        reason=reason,
        return_value=np.where(good, 0, nothing),
        transfer_in_s=transfer,
        compute_s=compute,
        transfer_out_s=leaving,
        slot_s=slot,
        good_compute_s=np.where(good, compute, 0),
        good_s=np.where(good, slot, 0),
        bad_s=bad,
        open_s=still,
        received=np.where(compute > 0, 150e9, 0),
        evicted=cause == Cause.EVICTION.value,
    )

    verdict = np.where(good, "good", np.where(last & ~ended, "open", "bad"))
    none = np.full(total, "none", dtype=object)
    index = np.arange(total)
    parts = []
    for order, phase, start, seconds, owner, worth, why in (
        (0, Phase.QUEUED, attempt_begin - between, between, None, none, none),
        (1, Phase.TRANSFER_IN, attempt_begin, transfer, index, verdict, cause),
        (2, Phase.COMPUTE, attempt_begin + transfer, compute, index, verdict, cause),
        (3, Phase.TRANSFER_OUT, attempt_end - leaving, leaving, index, verdict, cause),
        (4, Phase.HELD, attempt_end, waiting, None, none, none),
    ):
        part = frame(
            PIECES,
            total,
            job=job,
            attempt=owner,
            phase=[phase.value] * total,
            verdict=worth,
            cause=why,
            begin=start,
            seconds=seconds,
        ).with_columns(order=pl.lit(order), at=pl.Series(index))
        parts.append(part.filter(pl.col("seconds") > 0))
    pieces = pl.concat(parts).sort("at", "order").drop("at", "order")

    def by_job(values: Array) -> Array:
        return np.bincount(job, weights=values, minlength=number)

    is_last = np.flatnonzero(last)
    lost = by_job(bad)
    jobs = frame(
        JOBS,
        number,
        job=np.arange(number),
        id=[f"{794569 + n // 100_000}.{n % 100_000}" for n in range(number)],
        cluster=794569 + np.arange(number) // 100_000,
        proc=np.arange(number) % 100_000,
        log=[files[0]] * number,
        user=np.array(users, dtype=object)[np.arange(number) % len(users)],
        site=attempts["site"].gather(is_last),
        outcome=outcome,
        begin=begin,
        submitted=begin,
        matched=attempt_begin[first],
        end=attempt_end[is_last] + waiting[is_last],
        return_value=np.where(good, 0, nothing)[is_last],
        hold_code=code[is_last],
        hold_reason=reason[is_last],
        attempts=tries,
        stalls=by_job(cut),
        evictions=by_job(cause == Cause.EVICTION.value),
        holds=by_job(held),
        requeues=np.zeros(number),
        checkpoints=np.zeros(number),
        total_s=by_job(step + waiting),
        queued_s=by_job(between),
        held_s=by_job(waiting),
        slot_s=by_job(slot),
        compute_s=by_job(compute),
        good_compute_s=by_job(np.where(good, compute, 0)),
        good_s=by_job(np.where(good, slot, 0)),
        bad_s=lost,
        open_s=by_job(still),
        transfer_s=by_job(transfer),
        last_transfer_s=transfer[is_last],
    )
    holding = attempts.filter(pl.Series(held))
    holds = frame(
        HOLDS,
        len(holding),
        job=holding["job"],
        attempt=holding["attempt"],
        time=holding["end"],
        code=holding["code"],
        reason=holding["reason"],
        held_s=waiting[held],
    )
    return Accounts(
        jobs,
        attempts,
        pieces,
        holds,
        begin=float(begin.min()),
        end=float((attempt_end + waiting).max()),
        events=total * 5,
        files=files,
        skipped=[(files[0], Skip(4096, 512, "NUL bytes"))],
        unread=[("broken.log.gz", "the end of the file is missing")],
    )


def frame(schema: dict[str, Any], rows: int, **columns: Any) -> pl.DataFrame:
    """A frame of a schema; columns that are not given are null, or 0 where they are lengths."""
    made = {}
    for name, kind in schema.items():
        values = columns.get(name)
        if values is None:
            empty = 0.0 if name.endswith("_s") and name != "cpu_s" else None
            made[name] = pl.repeat(
                empty, rows, dtype=pl.Float64 if empty == 0.0 else kind, eager=True
            )
        elif isinstance(values, pl.Series):
            made[name] = values.cast(kind)
        else:
            values = values[:rows] if isinstance(values, list) else values.tolist()
            series = pl.Series(name, values, strict=False)
            if kind == pl.UInt32 or kind == pl.Int32:
                made[name] = series.cast(pl.Float64).cast(kind)
            elif kind == pl.Categorical or isinstance(kind, pl.Enum):
                made[name] = series.cast(pl.String).cast(kind)
            else:
                made[name] = series.cast(kind)
    return pl.DataFrame(made, schema=schema)
