"""Bursts: the same hold over many jobs within minutes."""

from __future__ import annotations

import re
import zlib

import polars as pl

from headway.report.accounts import Accounts
from headway.report.findings.duration import CODES as DURATION_CODES
from headway.report.findings.finding import Finding, Step, do, job_toml, shell, shown, submit
from headway.report.findings.reasons import OBJECT_AT_FAULT, TOO_LONG, with_template
from headway.report.findings.resources import CODES as RESOURCE_CODES
from headway.report.findings.scope import Scope, scope
from headway.report.numbers import span
from headway.report.words import Outcome
from headway.text import many

#: Holds that follow each other within this time have, one may think, the same cause.
GAP = 300.0
#: Fewer jobs than this fail together by chance.
AT_LEAST = 5
#: How many kinds of hold are told; the rest is in the table of holds.
MOST = 5
#: Somebody's own doing, or told better by another detector.
NOT_THESE = (1, 15, 16, 34, *DURATION_CODES)
_PREAMBLE = re.compile(
    r"\ATransfer (?:in|out)put files failure at .*?(?:Details:|using protocol \S+)"
    r"\s*(?:Details:)?\s*"
)
#: Hold codes of failed transfers, output and input.
TRANSFERS = (12, 13)


def hold_burst(accounts: Accounts) -> list[Finding]:
    """One finding for each kind of hold that came in a burst."""
    told = pl.col("code").is_in(NOT_THESE) | (
        (pl.col("code") == 21) & pl.col("subcode").is_in(list(RESOURCE_CODES))
    )
    held = accounts.holds.filter(~told.fill_null(False) & pl.col("time").is_not_null())
    held = held.filter(~pl.col("reason").cast(pl.String).str.contains(TOO_LONG).fill_null(False))
    if held.height < AT_LEAST:
        return []
    kind = ["code", "subcode", "template"]
    held = with_template(held).sort(*kind, "time", nulls_last=True)
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
    code, reason = row["code"], str(row["reason"])
    about = _about(accounts, held)
    first, last, run = longest_run(accounts.jobs.join(burst, on="job", how="semi"))
    length = float(burst.item(-1, "time")) - float(burst.item(0, "time"))
    in_burst, in_all = burst.get_column("job").n_unique(), about.jobs.len()
    arrived = _arrived(accounts, about.jobs) if code in TRANSFERS else 0
    number = f"{code if code is not None else '?'}/{row['subcode'] if code is not None else '?'}"
    evidence = [
        ("the reason", shown(reason)),
        ("code/subcode", number),
        ("held for it in all", many(in_all, "job")),
        ("in the largest burst", f"{many(in_burst, 'job')} within {span(max(length, 1))}"),
    ]
    told = ""
    if run >= AT_LEAST:
        told = f", {run:,} of them consecutive ({first} to {last}) within {span(max(length, 1))}"
        evidence.append(("consecutive jobs", f"{run:,}: {first} to {last}"))
    evidence.append(("without a result to this day", many(about.lost.len(), "job")))
    if arrived:
        evidence.append(("inputs of jobs of the same clusters that did arrive", f"{arrived:,}"))
    kind = zlib.crc32(str(row["template"]).encode("utf-8", "replace"))
    return Finding(
        key=f"hold-burst:{number}:{kind:08x}",
        title=f"{many(in_all, 'job')} were held for the same reason{told}: {what(reason)}",
        why=_why(code, reason, arrived),
        cost_s=about.cost_s,
        jobs=in_all,
        attempts=about.attempts.len(),
        lost_jobs=about.lost.len(),
        named=about.named,
        evidence=tuple(evidence),
        advice=_advice(accounts, about.lost, code, row["subcode"], arrived),
        claim=about.claim,
        lost=about.lost,
    )


def _about(accounts: Accounts, held: pl.DataFrame) -> Scope:
    ended = held.filter(pl.col("attempt").is_not_null())
    attempts = accounts.attempts.join(ended.select("attempt"), on="attempt", how="semi")
    # A job that was held again for something else is not lost to this.
    last = accounts.holds.select("job", "time").sort("time").unique("job", keep="last")
    stuck = (Outcome.HELD.value, Outcome.REMOVED.value)
    lost = (
        accounts.jobs.filter(pl.col("outcome").cast(pl.String).is_in(stuck))
        .join(held.join(last, on=["job", "time"], how="semi"), on="job", how="semi")
        .get_column("job")
    )
    return scope(accounts, attempts, jobs=held.get_column("job"), lost=lost)


def _arrived(accounts: Accounts, jobs: pl.Series) -> int:
    """How many inputs of jobs of the same clusters did arrive."""
    clusters = accounts.jobs.join(jobs.to_frame("job"), on="job", how="semi").select("cluster")
    mates = accounts.jobs.join(clusters.unique(), on="cluster", how="semi").select("job")
    moved = pl.col("arrived").fill_null(False) & (pl.col("transfer_in_s") > 0)
    return accounts.attempts.filter(moved).join(mates, on="job", how="semi").height


def what(reason: str) -> str:
    """The heart of a reason: what a transfer's details say, without slot and URL."""
    text = _PREAMBLE.sub("", reason[:2000]).rpartition("|Error: ")[2].partition("( URL file")[0]
    return shown(text.strip(" |") or "no reason given", 120)


def _why(code: int | None, reason: str, arrived: int) -> str:
    if code not in TRANSFERS:
        return (
            "The same words on many jobs within minutes point to one cause outside the jobs, or to "
            "one mistake in all of them."
        )
    if not arrived:
        return (
            "HTCondor holds a job at the first failed transfer that its plugin does not call "
            "retriable. No input of these clusters ever arrived: the URL or the rights are wrong."
        )
    if re.search(OBJECT_AT_FAULT, reason):
        return (
            "The object is there, for other jobs of the same clusters got their input: for a "
            "while the source answered wrongly, and HTCondor holds a job at the first such "
            "answer, without another try."
        )
    return (
        "Other jobs of the same clusters got their input: the source failed for a while, and "
        "HTCondor holds a job at the first failure that its plugin does not call retriable."
    )


def _advice(
    accounts: Accounts, lost: pl.Series, code: int | None, subcode: int | None, arrived: int
) -> tuple[Step, ...]:
    steps: list[Step] = []
    if code in TRANSFERS and not arrived:
        steps.append(do("Check the URL, its spelling and your rights with a fetch by hand."))
    held = accounts.jobs.filter(pl.col("outcome") == Outcome.HELD.value)
    held = held.join(lost.to_frame("job"), on="job", how="semi")
    if held.height and code is not None and (arrived or code not in TRANSFERS):
        clusters = held.get_column("cluster").unique().sort().head(5).to_list()
        where = " || ".join(f"ClusterId == {cluster}" for cluster in clusters)
        text = "Release them: nothing is wrong with the jobs."
        if code not in TRANSFERS:
            text = "Release them when the cause is mended."
        # Of the same code there may be holds that must not be released.
        which = f"HoldReasonCode == {code}"
        which += f" && HoldReasonSubCode == {subcode}" if subcode else ""
        steps.append(shell(text, f"condor_release -constraint '{which} && ({where})'"))
    if code in TRANSFERS:
        steps += [
            submit(
                "Let HTCondor release such holds by itself, within bounds.",
                f"periodic_release = HoldReasonCode == {code} && NumHolds < 5 && "
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
        ]
    return tuple(steps)


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
