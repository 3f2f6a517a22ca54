"""Slots that computed nothing, by what they have in common: the node, the job, or neither.

Whether an attempt computed is known from its CPU time (`report.idle`). A cluster that computes
nowhere has itself to blame: it hangs, its wrapper fails, or it waits for something. Where the same
clusters compute elsewhere, places on which nothing ever computed are to blame, and they are told
of by site or domain. What is left hung now and then.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from headway.report.accounts import Accounts
from headway.report.findings.alike import (
    against_mates,
    clearly_worse,
    idle_flags,
    neighbourhood,
)
from headway.report.findings.finding import (
    Finding,
    Step,
    Table,
    avoid,
    avoid_domains,
    avoid_machines,
    do,
    is_address,
    shell,
    shown,
    submit,
)
from headway.report.findings.scope import Scope, listed, scope, sited, slot_time
from headway.report.idle import LONG
from headway.report.numbers import count, percent, span
from headway.report.words import CAUSE_WORDS, Cause
from headway.text import many

#: Less than this in all is nobody's worry.
LOST_AT_LEAST = 3600.0
#: A cluster computes nowhere when this share of its jobs never computed.
NOWHERE = 0.9
#: A place on which nothing ever computed has at least this share of idle attempts, ...
NEVER = 0.95
#: ... so many times as often as the same clusters elsewhere, ...
FACTOR = 2.0
#: ... of at least so many attempts, here and there.
ATTEMPTS_AT_LEAST = 5
#: How many groups a table shows.
ROWS = 8


def idle(accounts: Accounts) -> list[Finding]:
    """A finding for each kind of slot time without CPU time: at most five."""
    rows = sited(accounts).hstack(idle_flags(accounts)).filter(pl.col("ending") != "open")
    # Those that were long enough to compute, and of which the log says whether they did.
    known = pl.col("cpu_s").is_not_null() & (pl.col("compute_s") >= LONG) & ~pl.col("mute")
    tried = rows.filter(pl.col("idle") | known)
    still = tried.filter(pl.col("idle"))
    if not still.height or float(still.get_column("bad_s").sum()) < LOST_AT_LEAST:
        return []
    nodes = _dead(tried.filter((~pl.col("idle")).any().over("mates")))
    # What ran only where nothing else computes either is not to blame itself.
    there = rows.filter(pl.col("idle") | pl.col("faint")).join(nodes, on="machine", how="semi")
    jobs, own = pl.col("job").n_unique().over("mates"), pl.col("job").filter(~pl.col("idle"))
    mute = own.n_unique().over("mates") <= (1 - NOWHERE) * jobs
    elsewhere = tried.with_columns(own=mute).filter("idle").join(nodes, on="machine", how="anti")
    mine, rest = elsewhere.filter("own"), elsewhere.filter(~pl.col("own"))
    found = [
        _of_jobs(accounts, kind, mine.filter(_by(kind)))
        for kind in _KINDS
        if mine.filter(_by(kind)).height
    ]
    if there.height:
        found.append(_of_nodes(accounts, tried, there, nodes))
    if rest.height:
        found.append(_sometimes(accounts, tried, rest))
    return [one for one in found if (one.cost_s or 0.0) >= LOST_AT_LEAST]


def _dead(tried: pl.DataFrame) -> pl.DataFrame:
    """The machines on which nothing ever computed, though their clusters compute elsewhere."""
    tried = tried.filter(pl.col("machine").is_not_null() & (pl.col("machine") != ""))
    names = (
        tried.select("machine")
        .unique()
        .with_columns(domain=pl.col("machine").map_elements(neighbourhood, return_dtype=pl.String))
    )
    tried = tried.join(names, on="machine", how="left")
    groups = tried.with_columns(group=pl.coalesce(_named("site"), "domain"))
    found = [_where(groups, "group"), _where(groups, "machine")]
    return pl.concat(found).unique("machine").sort("group", "machine")


def _where(tried: pl.DataFrame, unit: str) -> pl.DataFrame:
    """The machines of the units on which nothing computed, and the group that each belongs to."""
    computes = pl.col("idle").mean().over(unit) < NEVER
    rows = against_mates(
        tried.with_columns(computes=computes), unit, "idle", yardstick=pl.col("computes")
    )
    never = pl.col("hits") >= NEVER * pl.col("of")
    dead = clearly_worse(rows, FACTOR, ATTEMPTS_AT_LEAST).filter(never)
    inside = tried.join(dead, on=unit, how="semi")
    # A node of such a place that did compute is none of them.
    alive = inside.filter(~pl.col("idle")).select("machine").unique()
    return inside.join(alive, on="machine", how="anti").select("machine", "group").unique()


def _named(column: str) -> pl.Expr:
    return pl.when(pl.col(column) != pl.col("machine")).then(pl.col(column))


@dataclass(frozen=True)
class _Kind:
    """A way in which a cluster computes nowhere."""

    key: str
    endings: tuple[str, ...]
    did: str  # in the title: "4 jobs …"
    why: str


_KINDS = (
    _Kind(
        "wrapper",
        (Cause.FAILED.value,),
        "failed after a long time in which they computed nothing",
        "The attempt held its slot, used no CPU time and then returned an error: what was started "
        "is a wrapper that waits in vain (for a mount, a download, a licence, a container) before "
        "the program itself begins.",
    ),
    _Kind(
        "waits",
        (Cause.REMOVED.value,),
        "computed nothing until somebody removed them",
        "A job that waits for something (an interactive session, a server, a coordinator of other "
        "jobs) holds its slot all the while, and nobody else can use it.",
    ),
    _Kind(
        "hang",
        (),  # all others
        "computed nothing, wherever they ran",
        "The command starts and then stands still: it waits for input, for a lock, a host or a "
        "licence that it cannot reach. No checkpoint helps, for there is nothing to save.",
    ),
)


def _by(kind: _Kind) -> pl.Expr:
    others = [ending for each in _KINDS for ending in each.endings]
    is_one = pl.col("ending").is_in(kind.endings or others)
    return is_one if kind.endings else ~is_one


def _of_jobs(accounts: Accounts, kind: _Kind, still: pl.DataFrame) -> Finding:
    about = scope(accounts, still)
    clusters = (
        still.join(accounts.jobs.select("job", "cluster"), on="job", how="left")
        .group_by("mates")
        .agg(
            pl.col("cluster").min(),
            attempts=pl.len(),
            machines=pl.col("machine").n_unique(),
            seconds=pl.col("slot_s").sum(),
            cpu=pl.col("cpu_s").sum(),
        )
        .sort("seconds", "cluster", descending=[True, False])
    )
    table = Table(
        ("cluster", "attempts", "machines", "held a slot", "CPU time"),
        tuple(
            (
                str(row["cluster"]),
                count(row["attempts"]),
                count(row["machines"]),
                span(row["seconds"]),
                span(row["cpu"]),
            )
            for row in clusters.head(ROWS).iter_rows(named=True)
        ),
    )
    return _finding(
        about,
        still,
        key=f"idle:{kind.key}",
        title=f"{many(about.jobs.len(), 'job')} of {many(clusters.height, 'cluster')} {kind.did}",
        why=kind.why,
        evidence=(("machines on which they did", count(still.get_column("machine").n_unique())),),
        table=table,
        advice=_about_job(kind.key, about),
    )


def _of_nodes(
    accounts: Accounts, tried: pl.DataFrame, still: pl.DataFrame, nodes: pl.DataFrame
) -> Finding:
    about = scope(accounts, still)
    mates = still.select("mates").unique()
    elsewhere = tried.join(mates, on="mates", how="semi").join(nodes, on="machine", how="anti")
    groups = (
        still.join(nodes, on="machine")
        .group_by("group")
        .agg(
            machines=pl.col("machine").n_unique(),
            attempts=pl.len(),
            seconds=pl.col("slot_s").sum(),
            cpu=pl.col("cpu_s").sum(),
        )
        .sort("seconds", "group", descending=[True, False])
    )
    word = "site or domain" if accounts.site_names else "domain"
    used, held = (float(elsewhere.get_column(name).sum()) for name in ("cpu_s", "compute_s"))
    names = groups.get_column("group").to_list()
    computed = elsewhere.filter(~pl.col("idle")).height
    where = shown(names[0], 60) + (
        f" and {many(len(names) - 1, 'other place')}" if names[1:] else ""
    )
    return _finding(
        about,
        still,
        key="idle:nodes",
        title=f"Nothing ever computed on {many(nodes.height, 'machine')} of {where} "
        f"({many(still.height, 'attempt')})",
        why="The same clusters compute elsewhere, so the fault is in these machines: a file "
        "system, a network or a container runtime that hangs. A slot there takes one job after "
        "the other.",
        evidence=(
            (
                "attempts of the same clusters elsewhere that computed",
                f"{computed:,} of {elsewhere.height:,}",
            ),
            (
                "CPU time of those, of their time in the command",
                percent(used / held if held else None),
            ),
        ),
        table=Table(
            (word, "machines", "attempts", "held a slot", "CPU time"),
            tuple(
                (
                    shown(row["group"], 60),
                    count(row["machines"]),
                    count(row["attempts"]),
                    span(row["seconds"]),
                    span(row["cpu"]),
                )
                for row in groups.head(ROWS).iter_rows(named=True)
            ),
        ),
        advice=_about_nodes(accounts, nodes, names),
    )


def _sometimes(accounts: Accounts, tried: pl.DataFrame, still: pl.DataFrame) -> Finding:
    about = scope(accounts, still)
    mates = still.select("mates").unique()
    of = tried.join(mates, on="mates", how="semi").height
    sites = still.get_column("site").drop_nulls().unique().sort().to_list()
    return _finding(
        about,
        still,
        key="idle:sometimes",
        title=f"{many(still.height, 'attempt')} of {many(about.jobs.len(), 'job')} held a slot and "
        "computed nothing, where others of the same clusters computed",
        why="The command stood still from its start on, on nodes where others compute: it waited "
        "for something that is not always there (a server, a lock, a share of the network).",
        evidence=(
            (
                "of the attempts of these clusters that took 10 minutes or longer",
                percent(still.height / of),
            ),
            ("where", listed(sites) or "not told"),
        ),
        table=None,
        advice=_about_job("hang", about),
    )


def _finding(
    about: Scope,
    still: pl.DataFrame,
    *,
    key: str,
    title: str,
    why: str,
    evidence: tuple[tuple[str, str], ...],
    table: Table | None,
    advice: tuple[Step, ...],
) -> Finding:
    cpu, held = (float(still.get_column(name).sum()) for name in ("cpu_s", "compute_s"))
    return Finding(
        key=key,
        title=f"{title}: {slot_time(about.cost_s, about.gpu)} lost",
        why=why,
        cost_s=about.cost_s,
        jobs=about.jobs.len(),
        attempts=still.height,
        lost_jobs=about.lost.len(),
        named=about.named,
        evidence=(
            ("CPU time that these attempts used", f"{span(cpu)} in {span(held)}"),
            *evidence,
            ("how they ended", _endings(still)),
        ),
        table=table,
        advice=advice,
        claim=about.claim,
        lost=about.lost,
    )


def _endings(still: pl.DataFrame) -> str:
    counts = still.get_column("ending").value_counts().sort("count", "ending", descending=True)
    words = {cause.value: text for cause, text in CAUSE_WORDS.items()}
    return "; ".join(
        f"{number:,}: {words.get(ending, ending)}" for ending, number in counts.head(4).iter_rows()
    )


_WATCH = submit(
    "Stop such an attempt after half an hour instead of leaving it its slot, and look at it.",
    "periodic_hold = JobStatus == 2 && (time() - JobCurrentStartExecutingDate) > 1800 && "
    "(RemoteUserCpu + RemoteSysCpu) < 5",
    'periodic_hold_reason = "used no CPU time for half an hour"',
)


def _about_job(kind: str, about: Scope) -> tuple[Step, ...]:
    if kind == "wrapper":
        return (
            do(f"Read what the wrapper wrote last: the error file of {about.first_two}."),
            do(
                "Give each step before the program a time-out of its own, as in `timeout 600 STEP`."
            ),
            _WATCH,
        )
    if kind == "waits":
        return (
            submit(
                "What only waits or directs others needs no slot: let it run on the access point, "
                "if its owner allows that.",
                "universe = local",
            ),
            _WATCH,
        )
    job = about.named[0] if about.named else "JOB"
    return (
        shell(
            "Look inside one that runs: what does it wait for?",
            f"condor_ssh_to_job {job}",
        ),
        do("Give each step that may wait a time-out, as in `timeout 600 STEP`, and have it fail."),
        _WATCH,
    )


def _about_nodes(accounts: Accounts, nodes: pl.DataFrame, groups: list[str]) -> tuple[Step, ...]:
    machines = [name for name in nodes.get_column("machine").to_list() if not is_address(name)]
    sites = accounts.site_names
    steps: tuple[Step, ...] = ()
    if len(nodes) <= 3:
        steps = avoid_machines(machines)
    elif all(name in sites for name in groups[:3]):
        steps = avoid(groups[:3])
    elif not sites.intersection(groups):
        steps = avoid_domains([name for name in groups[:3] if not name.endswith("*")])
    return (
        *steps,
        do(f"Tell the owners of {listed(groups)}: nothing computes there, and jobs are drawn in."),
        _WATCH,
    )
