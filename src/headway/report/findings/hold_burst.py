"""Bursts: the same hold over many jobs within minutes."""

from __future__ import annotations

import re
import zlib

import polars as pl

from headway.holds.table import BEFORE_START, DEPENDS, INPUT, TRANSIENT, Entry
from headway.report.accounts import Accounts, once
from headway.report.findings.finding import Finding, Step, do, job_toml, shell, shown, submit
from headway.report.findings.reasons import (
    OBJECT_AT_FAULT,
    TOO_LONG,
    Told,
    caused_holds,
    on_purpose,
)
from headway.report.findings.resources import DISK, MEMORY
from headway.report.findings.scope import Scope, scope
from headway.report.numbers import span
from headway.report.words import Outcome
from headway.text import many

__all__ = ["hold_burst", "longest_run"]

#: Holds that follow each other within this time have, one may think, the same cause.
GAP = 300.0
#: Fewer jobs than this fail together by chance.
AT_LEAST = 5
#: How many kinds of hold are told; the rest is in the table of holds.
MOST = 5
#: Told better by another detector.
NOT_THESE = ("over-time", *TOO_LONG, *MEMORY.causes, *DISK.causes)
_MOST_CLUSTERS, _MOST_NAMED = 5, 10


def hold_burst(accounts: Accounts) -> list[Finding]:
    """One finding for each kind of hold that came in a burst."""
    if accounts.holds.height < AT_LEAST:
        return []
    told = [*NOT_THESE, *on_purpose()]
    held = caused_holds(accounts).filter(
        ~pl.col("cause").is_in(told) & pl.col("time").is_not_null()
    )
    kind = ["code", "subcode", "template"]
    held = held.sort(*kind, "time", nulls_last=True)
    new = (pl.col("time").diff() > GAP) | pl.any_horizontal(
        pl.col(name).ne_missing(pl.col(name).shift()) for name in kind
    )
    held = held.with_columns(burst=new.fill_null(True).cum_sum())
    sizes = held.group_by("burst").agg(size=pl.col("job").n_unique(), at=pl.col("time").min())
    bursts = sizes.filter(pl.col("size") >= AT_LEAST)
    if not bursts.height:
        return []
    largest = held.join(bursts, on="burst").group_by(kind).agg(pl.col("size").max())
    largest = largest.sort("size", *kind, descending=[True, False, False, False]).head(MOST)
    return [
        _finding(
            accounts,
            held.filter(
                pl.all_horizontal(pl.col(name).eq_missing(pl.lit(row[name])) for name in kind)
            ),
            bursts,
        )
        for row in largest.iter_rows(named=True)
    ]


def _finding(accounts: Accounts, held: pl.DataFrame, bursts: pl.DataFrame) -> Finding:
    inside = held.join(bursts, on="burst")
    burst = inside.sort("size", "burst", descending=[True, False])
    burst = burst.filter(pl.col("burst") == burst.item(0, "burst")).sort("time")
    row = burst.row(0, named=True)
    kind_of = Told(held)
    about = _about(accounts, held)
    first, last, run = longest_run(accounts.jobs_at(burst.get_column("job")))
    length = float(burst.item(-1, "time")) - float(burst.item(0, "time"))
    in_burst, in_all = burst.get_column("job").n_unique(), about.jobs.len()
    arrived = _arrived(accounts, about.jobs) if kind_of.entry.way == INPUT else 0
    evidence = [
        ("the reason", shown(row["reason"])),
        ("code/subcode", kind_of.codes[0]),
        ("held for it in all", many(in_all, "job")),
        ("in the largest burst", f"{many(in_burst, 'job')} within {span(max(length, 1))}"),
    ]
    told = ""
    if run >= AT_LEAST:
        told = f"; {run:,} of them consecutive ({first} to {last}) within {span(max(length, 1))}"
        evidence.append(("consecutive jobs", f"{run:,}: {first} to {last}"))
    evidence.append(("without a result to this day", many(about.lost.len(), "job")))
    if arrived:
        evidence.append(("inputs of jobs of the same clusters that did arrive", f"{arrived:,}"))
    kind = zlib.crc32(str(row["template"]).encode("utf-8", "replace"))
    return Finding(
        key=f"hold-burst:{kind_of.codes[0]}:{kind:08x}",
        title=f"{many(in_all, 'job')} were held for the same reason: {kind_of.headline}{told}",
        why=_why(kind_of, arrived),
        cost_s=about.cost_s,
        jobs=in_all,
        attempts=about.attempts.len(),
        lost_jobs=about.lost.len(),
        named=about.named,
        evidence=tuple(evidence),
        advice=_advice(accounts, about.lost, held, kind_of, arrived),
        claim=about.claim,
        lost=about.lost,
    )


def _about(accounts: Accounts, held: pl.DataFrame) -> Scope:
    ended = held.filter(pl.col("attempt").is_not_null())
    attempts = accounts.attempts_at(ended.get_column("attempt"))
    # A job that was held again for something else is not lost to this.
    last = _last_holds(accounts)
    stuck = (Outcome.HELD.value, Outcome.REMOVED.value)
    mine = accounts.jobs_at(held.join(last, on=["job", "time"], how="semi").get_column("job"))
    lost = mine.filter(pl.col("outcome").is_in(stuck)).get_column("job")
    return scope(accounts, attempts, jobs=held.get_column("job"), lost=lost)


@once
def _last_holds(accounts: Accounts) -> pl.DataFrame:
    """When each job was held last."""
    return accounts.holds.group_by("job").agg(pl.col("time").max())


def _arrived(accounts: Accounts, jobs: pl.Series) -> int:
    """How many inputs of jobs of the same clusters did arrive."""
    clusters = accounts.jobs.get_column("cluster")
    moved = clusters.gather(_arrivals(accounts))
    return int(moved.is_in(clusters.gather(jobs).unique().implode()).sum())


@once
def _arrivals(accounts: Accounts) -> pl.Series:
    """The job of each attempt whose input arrived."""
    moved = pl.col("arrived").fill_null(False) & (pl.col("transfer_in_s") > 0)
    return accounts.attempts.select("job", moved=moved).filter("moved").get_column("job")


def _why(told: Told, arrived: int) -> str:
    entry = told.entry
    if entry.id == "unknown":
        return (
            "The same words on many jobs within minutes point to one cause outside the jobs, or to "
            "one mistake in all of them."
        )
    if not _by_url(entry):
        return told.why
    if not arrived:
        return (
            "HTCondor holds a job at the first failed transfer that its plugin does not call "
            "retriable. No input of these clusters ever arrived: the URL or the rights are wrong."
        )
    there = (
        "Other jobs of the same clusters got their input: the source failed for a while, and "
        "HTCondor holds a job at the first failure that its plugin does not call retriable."
    )
    if re.search(OBJECT_AT_FAULT, told.reason):
        there = (
            "The object is there, for other jobs of the same clusters got their input: for a "
            "while the source answered wrongly, and HTCondor holds a job at the first such "
            "answer, without another try."
        )
    return there


def _by_url(entry: Entry) -> bool:
    """Whether it is about an input that a source gives, not about a file of the access point."""
    return entry.way == INPUT and "file" not in entry.checks


def _may_release(entry: Entry, arrived: int) -> bool:
    """Whether a plain release is worth its try: it is cheap, or what failed passes by itself."""
    if _by_url(entry):
        return bool(arrived)
    return entry.kind == TRANSIENT or (entry.kind == DEPENDS and entry.step in BEFORE_START)


def _advice(
    accounts: Accounts, lost: pl.Series, held: pl.DataFrame, told: Told, arrived: int
) -> tuple[Step, ...]:
    entry = told.entry
    steps: list[Step] = []
    if _by_url(entry) and not arrived:
        steps.append(do("Check the URL, its spelling and your rights with a fetch by hand."))
    elif not _by_url(entry) and entry.id != "unknown":
        steps.append(do(told.do))
    may = _may_release(entry, arrived)
    if may and (line := _release(accounts, lost, held)):
        text = "Release them: nothing is wrong with the jobs."
        if entry.step not in BEFORE_START:
            text = "Release them. Each start does the work again, from its last checkpoint."
        elif not _by_url(entry):
            text = "Release them when the cause is mended."
        steps.append(shell(text, line))
    if may and _by_url(entry):
        steps += _automatic(held)
    return tuple(steps)


def _release(accounts: Accounts, lost: pl.Series, held: pl.DataFrame) -> str:
    """The command that releases those of the jobs that are held now, and no others."""
    stuck = accounts.jobs.filter(pl.col("outcome") == Outcome.HELD.value)
    mine = stuck.join(lost.to_frame("job"), on="job", how="semi")
    code, subcode = held.row(0, named=True)["code"], held.row(0, named=True)["subcode"]
    if not mine.height or code is None:
        return ""
    clusters = mine.get_column("cluster").unique().sort()
    alike = (pl.col("hold_code") == code) & (pl.col("hold_subcode").eq_missing(subcode))
    alike &= pl.col("cluster").is_in(clusters.implode())
    others = stuck.filter(alike).join(mine, on="job", how="anti").height
    if others or clusters.len() > _MOST_CLUSTERS:
        # The same code stands for holds that must not be released.
        names = [str(name) for name in mine.get_column("id").to_list()]
        return f"condor_release {' '.join(names)}" if len(names) <= _MOST_NAMED else ""
    where = " || ".join(f"ClusterId == {cluster}" for cluster in clusters.to_list())
    which = f"HoldReasonCode == {code}" + (f" && HoldReasonSubCode == {subcode}" if subcode else "")
    return f"condor_release -constraint '{which} && ({where})'"


def _automatic(held: pl.DataFrame) -> tuple[Step, ...]:
    """How such holds are released without anybody."""
    row = held.row(0, named=True)
    which = f"HoldReasonCode == {row['code']}"
    which += f" && HoldReasonSubCode == {row['subcode']}" if row["subcode"] else ""
    return (
        submit(
            "Let HTCondor release such holds by itself, within bounds.",
            f"periodic_release = {which} && NumHolds < 5 && "
            "NumShadowStarts < 20 && (time() - EnteredCurrentStatus) > 600",
        ),
        shell(
            "Such lines, with growing pauses, are among those that `headway wrap` adds to a "
            "copy of a submit file.",
            "headway wrap JOB.sub",
        ),
        job_toml(
            "In job.toml the agent tries again within the attempt, and Headway releases the "
            "job after a pause.",
            "[retries]",
            "input = 5",
            'backoff = "60 s"',
        ),
    )


def longest_run(jobs: pl.DataFrame) -> tuple[str, str, int]:
    """First and last of the longest row of consecutive procs of one cluster, and its length."""
    rows = (
        jobs.select("cluster", "proc")
        .unique()
        .sort("cluster", "proc")
        .with_columns(step=pl.col("proc") - pl.int_range(pl.len()).over("cluster"))
        .group_by("cluster", "step")
        .agg(first=pl.col("proc").min(), last=pl.col("proc").max(), run=pl.len())
        .sort("run", "cluster", "first", descending=[True, False, False])
    )
    if not rows.height:
        return "", "", 0
    row = rows.row(0, named=True)
    name = row["cluster"]
    return f"{name}.{row['first']}", f"{name}.{row['last']}", int(row["run"])
