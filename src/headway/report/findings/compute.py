"""Findings about computing: slots without CPU time, compute lost in evictions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from headway.report.accounts import Accounts
from headway.report.enums import CAUSE_WORDS, Cause, Phase
from headway.report.findings.affected import (
    Affected,
    affected,
    listed,
    sited,
    slot_time,
    sorted_names,
)
from headway.report.findings.clusters import (
    CAUSES,
    against_mates,
    clearly_worse,
    idle_flags,
    neighbourhood,
    young,
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
    job_toml,
    shell,
    short_name,
    submit,
)
from headway.report.numbers import count, limit, percent, span
from headway.report.tables import LONG
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
    """A finding for each kind of slot time without CPU time: at most five.

    A cluster that computes nowhere has itself to blame: it hangs, its wrapper fails, or it waits
    for something. Where the same clusters compute elsewhere, places on which nothing ever computed
    are to blame, and the finding groups them by site or domain. What is left hung now and then.
    """
    asked = ("attempt", "job", "site", "machine", "ending", "cpu_s", "compute_s", "slot_s", "bad_s")
    rows = sited(accounts).select(asked).hstack(idle_flags(accounts))
    rows = rows.filter(pl.col("ending") != "open")
    # Those that were long enough to compute, and of which the log says whether they did.
    known = pl.col("cpu_s").is_not_null() & (pl.col("compute_s") >= LONG) & ~pl.col("unreported")
    tried = rows.filter(pl.col("idle") | known)
    still = tried.filter(pl.col("idle"))
    if not still.height or float(still.get_column("bad_s").sum()) < LOST_AT_LEAST:
        return []
    nodes = _dead(tried.filter((~pl.col("idle")).any().over("mates")))
    # What ran only where nothing else computes either is not to blame itself.
    there = rows.filter(pl.col("idle") | pl.col("too_soon")).join(nodes, on="machine", how="semi")
    jobs, own = pl.col("job").n_unique().over("mates"), pl.col("job").filter(~pl.col("idle"))
    nowhere = own.n_unique().over("mates") <= (1 - NOWHERE) * jobs
    elsewhere = tried.with_columns(own=nowhere).filter("idle").join(nodes, on="machine", how="anti")
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
    named = pl.when(pl.col("site") != pl.col("machine")).then(pl.col("site"))
    unnamed = tried.filter(named.is_null()).get_column("machine").unique()
    domains = {machine: neighbourhood(machine) for machine in unnamed}
    domain = pl.col("machine").replace_strict(domains, default=None, return_dtype=pl.String)
    groups = tried.with_columns(group=pl.coalesce(named, domain))
    found = [_where(groups, "group"), _where(groups, "machine")]
    return pl.concat(found).unique("machine").sort("group", "machine")


def _where(tried: pl.DataFrame, unit: str) -> pl.DataFrame:
    """The machines of the units on which nothing computed, and the group that each belongs to."""
    computes = pl.col("idle").mean().over(unit) < NEVER
    rows = against_mates(tried.with_columns(computes=computes), unit, "idle", "computes")
    never = pl.col("hits") >= NEVER * pl.col("of")
    dead = clearly_worse(rows, FACTOR, ATTEMPTS_AT_LEAST).filter(never)
    inside = tried.join(dead, on=unit, how="semi")
    # A node of such a place that did compute is none of them.
    alive = inside.filter(~pl.col("idle")).select("machine").unique()
    return inside.join(alive, on="machine", how="anti").select("machine", "group").unique()


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
    about = affected(accounts, still)
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
    return _finding(
        about,
        still,
        key=f"idle:{kind.key}",
        title=f"{many(about.jobs, 'job')} of {many(clusters.height, 'cluster')} {kind.did}",
        why=kind.why,
        evidence=(("machines on which they did", count(still.get_column("machine").n_unique())),),
        table=Table.of(
            clusters,
            ROWS,
            cluster=("cluster", str),
            attempts=("attempts", count),
            machines=("machines", count),
            seconds=("held a slot", span),
            cpu=("CPU time", span),
        ),
        advice=_about_job(kind.key, about),
    )


def _of_nodes(
    accounts: Accounts, tried: pl.DataFrame, still: pl.DataFrame, nodes: pl.DataFrame
) -> Finding:
    about = affected(accounts, still)
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
    used, held = (float(elsewhere.get_column(name).sum()) for name in ("cpu_s", "compute_s"))
    names = groups.get_column("group").to_list()
    computed = elsewhere.filter(~pl.col("idle")).height
    where = short_name(names[0]) + (
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
        table=Table.of(
            groups,
            ROWS,
            group=("site or domain" if accounts.site_names else "domain", short_name),
            machines=("machines", count),
            attempts=("attempts", count),
            seconds=("held a slot", span),
            cpu=("CPU time", span),
        ),
        advice=_about_nodes(accounts, nodes, names),
    )


def _sometimes(accounts: Accounts, tried: pl.DataFrame, still: pl.DataFrame) -> Finding:
    about = affected(accounts, still)
    mates = still.select("mates").unique()
    of = tried.join(mates, on="mates", how="semi").height
    sites = sorted_names(still.get_column("site"))
    return _finding(
        about,
        still,
        key="idle:sometimes",
        title=f"{many(still.height, 'attempt')} of {many(about.jobs, 'job')} held a slot and "
        "computed nothing, where others of the same clusters computed",
        why="The command stood still from its start on, on nodes where others compute: it waited "
        "for something that is not always there (a server, a lock, a share of the network).",
        evidence=(
            (
                "of the attempts of these clusters that took 10 minutes or longer",
                percent(still.height / of),
            ),
            ("where", listed(sites) or "not in the log"),
        ),
        table=None,
        advice=_about_job("hang", about),
    )


def _finding(
    about: Affected,
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
    return about.finding(
        key=key,
        title=f"{title}: {about.cost}",
        why=why,
        evidence=(
            ("CPU time that these attempts used", f"{span(cpu)} in {span(held)}"),
            *evidence,
            ("how they ended", _endings(still)),
        ),
        table=table,
        advice=advice,
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


def _about_job(kind: str, about: Affected) -> tuple[Step, ...]:
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
        shell("Look inside one that runs: what does it wait for?", f"condor_ssh_to_job {job}"),
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


#: The mean time between fewer evictions than this is a guess.
EVICTIONS_AT_LEAST = 3
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
    asked = ("attempt", "ending", "checkpoints", "compute_s", "checkpoint_s", "slot_s", "bad_s")
    rows = sited(accounts).select(*asked, "cpu_s", "evicted").hstack(idle_flags(accounts))
    ended = rows.filter(
        # An attempt that used no CPU time had nothing to save.
        pl.col("ending").is_in([cause.value for cause in CAUSES])
        & ~(pl.col("idle") | pl.col("too_soon"))
    )
    return [
        *_computed(accounts, rows, ended.filter(~pl.col("unreported"))),
        *_unreported(accounts, ended),
    ]


def _computed(accounts: Accounts, rows: pl.DataFrame, ended: pl.DataFrame) -> list[Finding]:
    evicted = ended.filter(pl.col("compute_s") > 0)
    about = affected(accounts, evicted, phases=(Phase.COMPUTE, Phase.CHECKPOINT), causes=CAUSES)
    if ended.height < EVICTIONS_AT_LEAST or about.cost_s < LOST_AT_LEAST:
        return []
    first = np.unique(about.seconds.attempt, return_index=True)[1]
    lost = np.add.reduceat(about.seconds.seconds, first)
    ran = rows.filter(~pl.col("idle") & ~pl.col("unreported"))
    ran = ran.join(ended.select("mates").unique(), on="mates", how="semi")
    compute_s = float(ran.get_column("compute_s").sum())
    # An eviction asks not what the slot does: those in mid-transfer tell of the pool as well.
    between = float(ran.get_column("slot_s").sum()) / max(ended.height, 1)
    saved = int(ran.get_column("checkpoints").sum())
    cost = float(ran.get_column("checkpoint_s").sum()) / saved if saved else CHECKPOINT_S
    best = young(between, max(cost, 1.0))
    interval = min(INTERVALS, key=lambda seconds: abs(math.log(seconds / max(best, 1.0))))
    # With checkpoints an eviction loses half an interval; all compute pays for writing them.
    gain = float((lost - interval / 2).clip(0).sum())
    price = cost * compute_s / interval
    net = gain - price
    losses = _counted(accounts, evicted)
    evidence = [
        ("attempts that lost compute", losses),
        ("CPU time of these attempts", _cpu_time(evicted)),
        ("mean slot time between two", span(between)),
        ("largest single loss", span(float(lost.max()))),
        ("checkpoints in these clusters", count(saved)),
        ("one checkpoint takes", span(cost) if saved else f"not known, {span(cost)} assumed"),
        ("interval that loses least (Young's rule)", span(best)),
    ]
    at = _age(evicted)
    if at is not None:
        number = _at_age(evicted, at)
        evidence.insert(1, ("evicted at the same age", f"{number:,} of them, at {limit(at)}"))
    if net > 0:
        saving = f"{slot_time(gain, about.gpu)}, for {slot_time(price, about.gpu)} of writing them"
        evidence.append((f"a checkpoint every {limit(interval)} would have saved", saving))
    where = "since the last checkpoint" if saved else "because there was no checkpoint"
    if net < HELPS * about.cost_s:
        where += ", most of them too soon for one to help"
    return [
        about.finding(
            key="restart",
            title=f"{slot_time(about.cost_s, about.gpu)} of compute were lost in {losses} {where}",
            why="An eviction or a lost node is the pool's normal life; what a job has not saved by "
            "then is computed again from the start."
            if at is None
            else f"The pool takes the slot back after {limit(at)}, whatever the job does: one that "
            "needs longer, and does not save what it has, never ends.",
            evidence=evidence,
            advice=_advice(interval),
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
        return "not in the log"
    used, whole = (float(said.get_column(name).sum()) for name in ("cpu_s", "compute_s"))
    return f"{span(used)} in {span(whole)}"


def _unreported(accounts: Accounts, ended: pl.DataFrame) -> list[Finding]:
    """What was lost in attempts whose log has 0 s of CPU time for everything."""
    silent = ended.filter("unreported")
    about = affected(accounts, silent)
    if silent.height < EVICTIONS_AT_LEAST or about.cost_s < LOST_AT_LEAST:
        return []
    job = about.named[0] if about.named else "JOB"
    return [
        about.finding(
            key="restart:no-cpu-time",
            title=f"{slot_time(about.cost_s, about.gpu)} were lost in "
            f"{_counted(accounts, silent)}, and the log shows no CPU time for them",
            why="Either these attempts computed nothing, and something hangs, or the pool does not "
            "report CPU time: nothing else of the same clusters has any. If they computed, "
            "checkpoints would have saved it.",
            evidence=(
                ("attempts of 10 minutes or longer, with 0 s of CPU time", count(silent.height)),
                ("largest single loss", span(_most(silent.get_column("bad_s")))),
            ),
            advice=(
                shell(
                    "See whether a job computes while it runs, before you change anything.",
                    f"condor_q {job} -af:j RemoteUserCpu RemoteSysCpu RemoteWallClockTime",
                    f"condor_ssh_to_job {job}",
                ),
                *_advice(INTERVALS[5]),
            ),
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
            "The same in job.toml; the command also gets SIGTERM before an eviction.",
            "[checkpoint]",
            'paths = ["checkpoint.pt"]',
            f'interval = "{toml}"',
        ),
    )


def _most(values: pl.Series) -> float | None:
    value = values.max()
    return float(value) if isinstance(value, (int, float)) else None
