"""Compute done again after evictions, and what a checkpoint would have saved."""

from __future__ import annotations

import math

import polars as pl

from headway.report.accounts import Accounts
from headway.report.findings.alike import CAUSES, idle_flags
from headway.report.findings.finding import Finding, Step, job_toml, shell, submit
from headway.report.findings.scope import scope, slot_time
from headway.report.findings.stats import young
from headway.report.numbers import count, limit, span
from headway.report.words import Phase
from headway.text import many

#: The mean time between fewer evictions than this is a guess.
EVICTIONS_AT_LEAST = 3
#: Less lost compute than this is not worth a checkpoint's code.
LOST_AT_LEAST = 3600.0
#: With less than this share of the loss to be saved, checkpoints are not the remedy.
HELPS = 0.5
#: What one checkpoint takes where the log has none: a model and its optimiser, written and sent.
CHECKPOINT_S = 60.0
#: What pools limit the life of a slot or a job to, seconds.
AGES = tuple(
    3600.0 * hours for hours in (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 36, 48, 72, 96, 168)
)
#: So many evictions, and this share of all, at one age are no chance.
SAME_AGE_AT_LEAST, SAME_AGE = 5, 0.5
#: What to advise: the rule is no more exact than that, and the OSPool asks for every 1 to 5 hours.
INTERVALS = tuple(60.0 * minutes for minutes in (10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 300))


def restart(accounts: Accounts) -> list[Finding]:
    """How much was computed again, and the interval to save at; and what may have been compute."""
    rows = accounts.attempts.hstack(idle_flags(accounts))
    ended = rows.filter(
        # An attempt that used no CPU time had nothing to save.
        pl.col("ending").is_in([cause.value for cause in CAUSES])
        & ~(pl.col("idle") | pl.col("faint"))
    )
    return [*_computed(accounts, rows, ended.filter(~pl.col("mute"))), *_mute(accounts, ended)]


def _computed(accounts: Accounts, rows: pl.DataFrame, ended: pl.DataFrame) -> list[Finding]:
    evicted = ended.filter(pl.col("compute_s") > 0)
    about = scope(accounts, evicted, phases=(Phase.COMPUTE, Phase.CHECKPOINT), causes=CAUSES)
    lost = about.claim.group_by("attempt").agg(pl.col("seconds").sum()).get_column("seconds")
    if ended.height < EVICTIONS_AT_LEAST or about.cost_s < LOST_AT_LEAST:
        return []
    ran = rows.join(ended.select("mates").unique(), on="mates", how="semi")
    ran = ran.filter(~pl.col("idle") & ~pl.col("mute"))
    compute_s = float(ran.get_column("compute_s").sum())
    # An eviction asks not what the slot does: those in mid-transfer tell of the pool as well.
    between = float(ran.get_column("slot_s").sum()) / max(ended.height, 1)
    saved = int(ran.get_column("checkpoints").sum())
    cost = float(ran.get_column("checkpoint_s").sum()) / saved if saved else CHECKPOINT_S
    best = young(between, max(cost, 1.0))
    interval = min(INTERVALS, key=lambda seconds: abs(math.log(seconds / max(best, 1.0))))
    # With checkpoints an eviction loses half an interval; all compute pays for writing them.
    gain = float((lost - interval / 2).clip(lower_bound=0).sum())
    price = cost * compute_s / interval
    net = gain - price
    losses = _counted(accounts, evicted)
    evidence = [
        ("attempts that lost compute", losses),
        ("CPU time of these attempts", _cpu_time(evicted)),
        ("mean slot time between two", span(between)),
        ("largest single loss", span(_most(lost))),
        ("checkpoints in these clusters", count(saved)),
        (
            "one checkpoint takes",
            span(cost) if saved else f"not known, {span(cost)} assumed",
        ),
        ("interval that loses least (Young's rule)", span(best)),
    ]
    at = _age(evicted)
    if at is not None:
        number = _at_age(evicted, at)
        evidence.insert(1, ("evicted at the same age", f"{number:,} of them, at {limit(at)}"))
    if net > 0:
        told = f"{slot_time(gain, about.gpu)}, for {slot_time(price, about.gpu)} of writing them"
        evidence.append((f"a checkpoint every {limit(interval)} would have saved", told))
    where = "since the last checkpoint" if saved else "for want of a checkpoint"
    if net < HELPS * about.cost_s:
        where += ", most of them too soon for one to help"
    return [
        Finding(
            key="restart",
            title=f"{slot_time(about.cost_s, about.gpu)} of compute were lost in {losses} {where}",
            why="An eviction or a lost node is the pool's normal life; what a job has not saved by "
            "then is computed again from the start."
            if at is None
            else f"The pool takes the slot back after {limit(at)}, whatever the job does: one that "
            "needs longer, and does not save what it has, never ends.",
            cost_s=about.cost_s,
            jobs=about.jobs.len(),
            attempts=evicted.height,
            lost_jobs=about.lost.len(),
            named=about.named,
            evidence=tuple(evidence),
            advice=_advice(interval),
            claim=about.claim,
            lost=about.lost,
        )
    ]


def _age(evicted: pl.DataFrame) -> float | None:
    """The round age at which most of these attempts were evicted: a limit of the pool."""
    found = max(AGES, key=lambda age: _at_age(evicted, age))
    number = _at_age(evicted, found)
    return found if number >= max(SAME_AGE_AT_LEAST, SAME_AGE * evicted.height) else None


def _at_age(evicted: pl.DataFrame, age: float) -> int:
    # Counted from the start of the command; the pool looks now and then, and gives some grace.
    ages = evicted.get_column("compute_s")
    return int(ages.is_between(age, 1.01 * age + 60).sum())


def _counted(accounts: Accounts, evicted: pl.DataFrame) -> str:
    """The attempts in words, beside the count of evictions that the whole report has."""
    of = int(accounts.attempts.get_column("evicted").fill_null(False).sum())
    number = int(evicted.get_column("evicted").fill_null(False).sum())
    words = many(number, "eviction") if number == of else f"{number:,} of {many(of, 'eviction')}"
    others = evicted.height - number
    if not others:
        return words
    failures = f"{many(others, 'failure')} of HTCondor itself"
    return f"{words} and {failures}" if number else failures


def _cpu_time(evicted: pl.DataFrame) -> str:
    said = evicted.filter(pl.col("cpu_s").is_not_null())
    if not said.height:
        return "not told"
    used, whole = (float(said.get_column(name).sum()) for name in ("cpu_s", "compute_s"))
    return f"{span(used)} in {span(whole)}"


def _mute(accounts: Accounts, ended: pl.DataFrame) -> list[Finding]:
    """What was lost in attempts whose log tells 0 s of CPU time, for these and all others."""
    mute = ended.filter("mute")
    about = scope(accounts, mute)
    if mute.height < EVICTIONS_AT_LEAST or about.cost_s < LOST_AT_LEAST:
        return []
    job = about.named[0] if about.named else "JOB"
    return [
        Finding(
            key="restart:no-cpu-time",
            title=f"{slot_time(about.cost_s, about.gpu)} were lost in {_counted(accounts, mute)}, "
            "and the log shows no CPU time for them",
            why="Either these attempts computed nothing, and something hangs, or the pool does not "
            "report CPU time: nothing else of the same clusters has any. If they computed, "
            "checkpoints would have saved it.",
            cost_s=about.cost_s,
            jobs=about.jobs.len(),
            attempts=mute.height,
            lost_jobs=about.lost.len(),
            named=about.named,
            evidence=(
                ("attempts of 10 minutes or longer, with 0 s of CPU time", count(mute.height)),
                ("largest single loss", span(_most(mute.get_column("bad_s")))),
            ),
            advice=(
                shell(
                    "See whether a job computes while it runs, before you change anything.",
                    f"condor_q {job} -af:j RemoteUserCpu RemoteSysCpu RemoteWallClockTime",
                    f"condor_ssh_to_job {job}",
                ),
                *_advice(INTERVALS[5]),
            ),
            claim=about.claim,
            lost=about.lost,
        )
    ]


def _advice(every: float) -> tuple[Step, ...]:
    minutes = int(every // 60)
    toml = f"{minutes} min" if minutes % 60 else f"{minutes // 60} h"
    return (
        submit(
            f"Write a checkpoint every {limit(every)} and exit with 85; HTCondor brings it home "
            "and starts the command again, after an eviction elsewhere.",
            "checkpoint_exit_code = 85",
            "transfer_checkpoint_files = checkpoint.pt",
        ),
        job_toml(
            "The same in job.toml; the command is also told by SIGTERM before an eviction.",
            "[checkpoint]",
            'paths = ["checkpoint.pt"]',
            f'interval = "{toml}"',
        ),
    )


def _most(values: pl.Series) -> float | None:
    value = values.max()
    return float(value) if isinstance(value, (int, float)) else None
