"""GPUs that are claimed and wait for input."""

from __future__ import annotations

import polars as pl

from headway.report.accounts import Accounts
from headway.report.findings.finding import Finding, Step, job_toml, submit
from headway.report.findings.scope import example, median, scope
from headway.report.numbers import hours, percent, rate, size, span
from headway.report.words import Phase, Verdict

#: Below this share of the GPUs' time, input is a fair price.
SHARE = 0.15
#: And below this much time it is not worth a change.
AT_LEAST = 3600.0
ATTEMPTS_AT_LEAST = 5


def gpu_input(accounts: Accounts) -> list[Finding]:
    """At most one finding: the share of GPU time in input transfers."""
    jobs = _on_gpus(accounts.jobs)
    tried = accounts.attempts.join(jobs, on="job", how="semi")
    moved = tried.filter(pl.col("transfer_in_s") > 0)
    waited = float(moved.get_column("transfer_in_s").sum())
    slot_s = max(float(tried.get_column("slot_s").sum()), waited)
    if moved.height < ATTEMPTS_AT_LEAST or waited < max(AT_LEAST, SHARE * slot_s):
        return []
    pieces = accounts.pieces.filter(
        (pl.col("phase") == Phase.TRANSFER_IN.value) & (pl.col("verdict") != Verdict.BAD.value)
    ).join(jobs, on="job", how="semi")
    needed = float(pieces.get_column("seconds").sum())
    about = scope(accounts, moved.head(0), jobs=moved.get_column("job"), lost=pl.Series([]))
    arrived = moved.filter(pl.col("arrived").fill_null(False))
    known = arrived.filter(pl.col("received") > 0)
    evidence = [
        ("GPU time in input transfers", f"{hours(waited)} of {hours(slot_s)}"),
        ("of this, in transfers that were lost", f"{hours(waited - needed)} (badput, see there)"),
        ("of this, in transfers that results needed", hours(needed)),
        ("median transfer that arrived", span(median(arrived.get_column("transfer_in_s")))),
        (
            "median compute after it",
            span(median(arrived.filter(pl.col("compute_s") > 0).get_column("compute_s"))),
        ),
    ]
    if known.height:
        moved_s = float(known.get_column("transfer_in_s").sum())
        speed = float(known.get_column("received").sum()) / moved_s
        bytes_in = size(median(known.get_column("received")))
        evidence.append(("input of one attempt (median), its rate", f"{bytes_in} at {rate(speed)}"))
    return [
        Finding(
            key="gpu-input",
            title=f"GPUs stood idle for {hours(waited)} while input arrived: "
            f"{percent(waited / slot_s)} of the time they were claimed",
            why="The slot, with its GPU, is yours from the first byte of input on; the GPU works "
            "only once the last byte is there.",
            waiting_s=needed,
            waiting="in transfers that results needed",
            jobs=about.jobs.len(),
            attempts=moved.height,
            named=about.named,
            evidence=tuple(evidence),
            advice=_advice(accounts),
        )
    ]


def _on_gpus(jobs: pl.DataFrame) -> pl.DataFrame:
    # A held job's log often has no table of resources; those of its cluster have.
    asked = pl.col("gpus").fill_null(pl.col("gpus").median().over("log", "cluster"))
    return jobs.filter(asked > 0).select("job")


def _advice(accounts: Accounts) -> tuple[Step, ...]:
    return (
        submit(
            "Bring data from a cache near the site rather than from the access point or an origin, "
            "and give each job only the shards that it reads.",
            f"transfer_input_files = {example(accounts, 'shard-$(Process).tar')}",
        ),
        job_toml(
            "Name several sources, so that the agent leaves a slow one and never begins again "
            "from nothing.",
            "[[inputs]]",
            'url = ["https://CACHE/shard-{job}.tar", "https://ORIGIN/shard-{job}.tar"]',
        ),
        Step(
            "Stream: read shards in order, and train on the first while the next ones arrive. "
            "More epochs per job also spread one transfer over more compute; with a checkpoint "
            "this is safe."
        ),
    )
