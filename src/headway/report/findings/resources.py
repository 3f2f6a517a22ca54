"""Memory and disk: asked for far too much, or too little."""

from __future__ import annotations

import math
from dataclasses import dataclass

import polars as pl

from headway.pool.policy import enough_for
from headway.report.accounts import Accounts
from headway.report.findings.finding import Finding, Step, Table, do, job_toml, shell, shown, submit
from headway.report.findings.reasons import caused_ends, caused_holds
from headway.report.findings.scope import scope
from headway.report.numbers import binary, percent
from headway.report.words import Outcome
from headway.spec.units import exact_size
from headway.text import many

#: The codes of limits and rules, under which a job is stopped for what it used.
HELD_BY = (3, 21, 26, 34)

#: Below this share of the request, at the 95th percentile, a request is far too large.
FAR_BELOW = 0.5
#: The 95th percentile of fewer jobs than this is the luck of one.
JOBS_AT_LEAST = 20
#: What to leave free above the largest use seen: the next job may need a bit more.
ROOM = 1.25


@dataclass(frozen=True)
class _Resource:
    name: str  # as job.toml and the submit file have it
    unit: int  # bytes of what HTCondor counts in
    small: float  # a request below this many bytes keeps no job from a slot
    step: float  # what to round up to, in bytes
    causes: tuple[str, ...]  # in the table of holds

    @property
    def used(self) -> pl.Expr:
        return pl.col(f"{self.name}_used") * self.unit

    @property
    def asked(self) -> pl.Expr:
        return pl.col(f"{self.name}_asked") * self.unit

    def lines(self, size: float) -> tuple[str, str]:
        return self.exact_lines(max(1, math.ceil(size / 2**30)) * 1024)

    def exact_lines(self, megabytes: int) -> tuple[str, str]:
        size = exact_size(megabytes)
        return f"request_{self.name} = {size.replace('iB', 'B')}", f'{self.name} = "{size}"'


MEMORY = _Resource(
    "memory", 2**20, 4 * 2**30, 2**30, ("over-memory", "over-memory-icecube", "over-resources")
)
DISK = _Resource("disk", 2**10, 20 * 2**30, 2**30, ("over-disk",))


def over_asked(accounts: Accounts) -> list[Finding]:
    """Requests that jobs came nowhere near to, memory and disk."""
    return [found for kind in (MEMORY, DISK) if (found := _over(accounts, kind))]


def _over(accounts: Accounts, kind: _Resource) -> Finding | None:
    used, asked = kind.used.alias("used"), kind.asked.alias("asked")
    jobs = accounts.jobs.filter(pl.col("outcome") == Outcome.SUCCESS.value).select(
        "job", pl.col("user").cast(pl.String), "slot_s", used, asked
    )
    jobs = jobs.filter((pl.col("used") > 0) & (pl.col("asked") >= kind.small))
    groups = (
        jobs.group_by("user", "asked")
        .agg(
            jobs=pl.len(),
            p95=pl.col("used").quantile(0.95, "linear"),
            most=pl.col("used").max(),
            idle=((pl.col("asked") - pl.col("used")) * pl.col("slot_s")).sum(),
        )
        .filter((pl.col("jobs") >= JOBS_AT_LEAST) & (pl.col("p95") < FAR_BELOW * pl.col("asked")))
        # One job that needed it all is enough to keep the request.
        .filter(pl.col("most") * ROOM < pl.col("asked"))
        .sort("idle", "asked", "user", descending=[True, True, False])
    )
    if not groups.height:
        return None
    top = groups.row(0, named=True)
    want = top["most"] * ROOM
    submit_line, toml_line = kind.lines(want)
    concerned = jobs.join(groups, on=["user", "asked"], how="semi", nulls_equal=True)
    about = scope(accounts, accounts.attempts.head(0), jobs=concerned.get_column("job"))
    rows = tuple(
        (
            shown(row["user"], 40) or "–",
            f"{row['jobs']:,}",
            binary(row["asked"]),
            binary(row["p95"]),
            binary(row["most"]),
            kind.lines(row["most"] * ROOM)[0],
        )
        for row in groups.head(5).iter_rows(named=True)
    )
    share = percent(top["p95"] / top["asked"])
    return Finding(
        key=f"over-asked:{kind.name}",
        title=f"{many(top['jobs'], 'job')} asked for {binary(top['asked'])} of {kind.name}, and 95 "
        f"of 100 used less than {binary(top['p95'])} ({share})",
        why=f"A job starts only where all that it asks for is free: with less {kind.name} it fits "
        "more slots and waits less.",
        jobs=about.jobs.len(),
        named=about.named,
        evidence=(
            ("largest use of all", binary(top["most"])),
            ("enough, with a quarter to spare", binary(want)),
        ),
        table=Table(("user", "jobs", "asked", "95th percentile", "largest", "line"), rows),
        advice=(
            submit("Ask for less.", submit_line),
            job_toml("The same in job.toml.", "[resources]", toml_line),
        ),
    )


def under_asked(accounts: Accounts) -> list[Finding]:
    """Jobs held because they used more than they had asked for; the log says so."""
    return [found for kind in (MEMORY, DISK) if (found := _under(accounts, kind))]


def _under(accounts: Accounts, kind: _Resource) -> Finding | None:
    over = pl.col("cause").is_in(kind.causes)
    holds = caused_holds(accounts).filter(over)
    limited = caused_ends(accounts).filter(pl.col("code").is_in(HELD_BY) & over)
    attempts = accounts.attempts_at(limited.get_column("attempt"))
    if not attempts.height and not holds.height:
        return None
    about = scope(accounts, attempts, jobs=holds.get_column("job"))
    # What was asked for when they were stopped: somebody may have raised the request since.
    used, asked = _most(attempts, kind.used), _most(attempts, kind.asked)
    count = about.jobs.len()
    evidence = []
    if asked:
        evidence.append(("asked for (most)", binary(asked)))
    if used:
        evidence.append(("used when last looked at (most)", binary(used)))
    reason = holds.get_column("reason").drop_nulls().cast(pl.String)
    if reason.len():
        evidence.append(("the reason", shown(reason[0])))
    want = enough_for(max(used or 0.0, asked or 0.0) / 2**20)
    for_asked = f" than the {binary(asked)} asked for" if asked else " than asked for"
    return Finding(
        key=f"under-asked:{kind.name}",
        title=f"{many(count, 'job')} used more {kind.name}{for_asked} and "
        f"{'was' if count == 1 else 'were'} stopped: {about.cost}",
        why=f"The pool stops a job that outgrows the {kind.name} it asked for; started again with "
        "the same request it ends the same way.",
        cost_s=about.cost_s,
        jobs=count,
        attempts=attempts.height,
        lost_jobs=about.lost.len(),
        named=about.named,
        evidence=tuple(evidence),
        advice=_more(kind, want, about.held),
        claim=about.claim,
        lost=about.lost,
    )


def _more(kind: _Resource, want: int, held: tuple[str, ...]) -> tuple[Step, ...]:
    """What to do where `want` MB would be enough."""
    if not want:
        return (do(f"Ask for more {kind.name}: request_{kind.name}, or [resources] of job.toml."),)
    submit_line, toml_line = kind.exact_lines(want)
    lines: tuple[str, ...] = (submit_line,)
    if kind is MEMORY:
        lines += (f"retry_{kind.exact_lines(2 * want)[0]}",)
    steps = [
        submit("Ask for more, and for a second try with twice that.", *lines)
        if kind is MEMORY
        else submit("Ask for more.", *lines),
        job_toml("The same in job.toml.", "[resources]", toml_line),
    ]
    if held:
        name = {"memory": "RequestMemory", "disk": "RequestDisk"}[kind.name]
        value = want * 2**20 // kind.unit
        steps.append(
            shell(
                "Jobs that are held can be changed and released.",
                f"condor_qedit {held[0]} {name} {value}",
                f"condor_release {held[0]}",
            )
        )
    return tuple(steps)


def _most(rows: pl.DataFrame, value: pl.Expr) -> float | None:
    found = rows.select(value.max()).item()
    return float(found) if found and math.isfinite(found) else None
