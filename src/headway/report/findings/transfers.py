"""Findings about transfers: cut off, queued, sick sources, GPUs that wait for input."""

from __future__ import annotations

import polars as pl

from headway.report.accounts import Accounts
from headway.report.enums import Cause, Phase, Worth
from headway.report.findings.affected import (
    affected,
    example,
    failed,
    listed,
    median,
    quantile,
    sited,
    sorted_names,
    tell_owners,
)
from headway.report.findings.clusters import against_mates, clearly_worse, wilson, with_cluster
from headway.report.findings.finding import (
    NO_JOBS,
    Finding,
    Step,
    Table,
    both,
    config,
    do,
    job_toml,
    short_name,
    shown,
    submit,
)
from headway.report.findings.reasons import OBJECT_AT_FAULT, STALLED, source
from headway.report.numbers import UNKNOWN, count, hours, limit, percent, rate, size, span
from headway.text import many

#: Where the log itself names the limit there is nothing to infer; fewer are not worth a line.
NAMED_AT_LEAST = 3
#: When 10 of 10 transfers past a limit fail, at most 28 % of such transfers arrive (Wilson, 95 %).
INFERRED_AT_LEAST = 10
#: What people set limits to, in seconds.
ROUND = tuple(60 * minutes for minutes in (1, 2, 5, 10, 15, 20, 30, 45, 60, 90)) + tuple(
    3600 * hours for hours in (2, 3, 4, 6, 8, 10, 12, 16, 20, 24)
)
#: A cut comes within this share above its limit, for the starter looks only now and then; ...
TIGHT = 1.1
#: ... but a log without the 040 for queueing adds the queue to the transfer.
LOOSE = 1.5
#: The share of the long failures that must lie there.
PILE = 0.6
#: Below the limit failures must be rare: else they are not caused by it.
BELOW = 0.1

_STARTER = "STARTER_FILE_XFER_STALL_TIMEOUT"


def transfer_cut(accounts: Accounts) -> list[Finding]:
    """One finding for each limit that transfers were cut off at."""
    moving, arrives = pl.col("transfer_in_s") > 0, pl.col("arrived").fill_null(False)
    ended = failed(accounts, "attempt", "ending", "arrived", "transfer_in_s", "reason")
    ended = ended.filter(moving & ~arrives)
    if not ended.height:
        return []
    ended = ended.with_columns(said=pl.col("reason").str.extract(STALLED, 1).cast(pl.Float64))
    arrived = sited(accounts).select("arrived", "agent_transfer", "transfer_in_s", "received")
    arrived = arrived.filter(moving & arrives & ~pl.col("agent_transfer").fill_null(False))
    named = ended.filter(pl.col("said") > 0).with_columns(limit=_rounded(pl.col("said")))
    found = [
        _cut_finding(accounts, float(at), part, arrived, named=True)
        for (at,), part in named.sort("limit").group_by("limit", maintain_order=True)
        if part.height >= NAMED_AT_LEAST and isinstance(at, float)
    ]
    rest = ended.filter(pl.col("said").is_null())
    inferred = inferred_limit(arrived.get_column("transfer_in_s"), rest.get_column("transfer_in_s"))
    if inferred is not None:
        past = rest.filter(pl.col("transfer_in_s") >= inferred)
        cut = past.filter(pl.col("ending") == Cause.TRANSFER_CUT.value)
        # A log that tells cuts from other ends is believed; one that cannot has cuts among them.
        past = cut if 2 * cut.height >= past.height else past
        found.append(_cut_finding(accounts, inferred, past, arrived, named=False))
    return found


def inferred_limit(arrived: pl.Series, ended: pl.Series) -> float | None:
    """The round limit that failed transfers pile up at and no arrived one is longer than."""
    longest = _most(arrived)
    over = ended.filter(ended > longest)
    low = quantile(over, 0.05)
    if over.len() < INFERRED_AT_LEAST or low is None:
        return None
    at = max((value for value in ROUND if longest <= value <= low), default=None)
    if at is None:
        return None
    # With arrivals close below the limit, the gap itself is evidence; else only a tight pile is.
    reach = LOOSE if longest >= at / 2 else TIGHT
    piled = over.is_between(at, at * reach).sum()
    below = ended.is_between(at / 2, at, closed="left").sum()
    if piled < PILE * over.len() or below > BELOW * over.len():
        return None
    return float(at)


def _most(values: pl.Series) -> float:
    value = values.drop_nulls().max()
    return float(value) if isinstance(value, (int, float)) else 0.0


def _rounded(said: pl.Expr) -> pl.Expr:
    """The limit behind "stalled for 3607 seconds": the round number just below, if there is one."""
    close = [
        pl.when(said.is_between(value, value * 1.05 + 5)).then(pl.lit(float(value)))
        for value in reversed(ROUND)
    ]
    return pl.coalesce([*close, said])


def _cut_finding(
    accounts: Accounts, at: float, cut: pl.DataFrame, arrived: pl.DataFrame, *, named: bool
) -> Finding:
    about = affected(accounts, cut)
    length = cut.get_column("transfer_in_s")
    # The agent's transfers are not under this limit, and HTCondor writes 0 for bytes unknown.
    bytes_in = median(arrived.filter(pl.col("received") > 0).get_column("received"))
    evidence = [
        ("transfers cut off", f"{count(cut.height)} in {many(about.jobs, 'job')}"),
        ("shortest / median that was cut", f"{_exact(length.min())} / {_exact(length.median())}"),
        ("transfers that arrived", count(arrived.height)),
    ]
    if arrived.height:
        most = _most(arrived.get_column("transfer_in_s"))
        evidence.append(("longest that arrived", _exact(most)))
    if bytes_in:
        needed = f"{rate(bytes_in / at)} for {size(bytes_in)}"
        evidence.append(("rate that an input needs to arrive in time", needed))
    sites = sited(accounts).get_column("site").gather(cut.get_column("attempt")).drop_nulls()
    if sites.len():
        top = sites.value_counts(sort=True).sort("count", "site", descending=[True, False]).row(0)
        evidence.append(("most often at", f"{short_name(top[0])}: {top[1]:,} of {cut.height:,}"))
    evidence.append(("the limit is known from", _known_from(named)))
    return about.finding(
        key=f"transfer-cut:{at:.0f}",
        title=f"{many(cut.height, 'input transfer')} {'was' if cut.height == 1 else 'were'} "
        f"cut off at {limit(at)}: {about.cost}",
        why=_why(at, _most(arrived.get_column("transfer_in_s")) if arrived.height else None),
        evidence=evidence,
        advice=_cut_advice(accounts, at),
    )


def _why(at: float, longest: float | None) -> str:
    if longest is None:
        never = "No input has arrived at all. "
    elif longest <= at:
        never = f"No input that took longer than {limit(at)} has ever arrived. "
    else:
        never = ""  # HTCondor's own transfers show progress, and may take longer
    return (
        f"{never}HTCondor's starter cuts a transfer plugin off at that age ({_STARTER}, 1 hour "
        "unless set; before version 25.2.1 even while bytes flow), puts the job back into the "
        "queue and begins again from byte 0. It is called a stall, but trying again at the same "
        "rate ends the same way."
    )


def _known_from(named: bool) -> str:
    if named:
        return 'the log: "Input File transfer stalled for … seconds"'
    return "the lengths: failures pile up at it, and nothing longer arrived"


def _exact(seconds: object) -> str:
    known = float(seconds) if isinstance(seconds, (int, float)) else None
    return f"{span(known)} ({count(known)} s)"


def _cut_advice(accounts: Accounts, at: float) -> tuple[Step, ...]:
    return (
        job_toml(
            "Let the agent stage the data in, after the job has started: no cut-off applies, and a "
            "transfer that stalls goes on elsewhere from its last byte. Take the URL out of "
            "transfer_input_files and declare it as an input.",
            "[[inputs]]",
            'url = ["https://CACHE/DATA.tar", "https://ORIGIN/DATA.tar"]',
            'path = "DATA.tar"',
        ),
        submit(
            f"Or split the data so that each file arrives well within {limit(at)}, and let each "
            "job fetch only its own part.",
            f"transfer_input_files = {example(accounts, 'part-$(Process).tar')}",
        ),
        config(
            "The owner of the pool can raise the limit on the execution points.",
            f"{_STARTER} = {int(max(4 * at, 14400))}",
        ),
        do("Do not release or resubmit these jobs as they are: each try costs the same again."),
    )


#: Below this share of all slot time, and this many seconds, the queue does its work.
QUEUED_SHARE = 0.02
AT_LEAST = 3600.0
#: A wait that a person would notice, and how many attempts must have had it.
NOTICED = 300.0
QUEUED_AT_LEAST = 10


def transfer_queue(accounts: Accounts) -> list[Finding]:
    """At most one finding: the slot time that waited for the access point."""
    waited = accounts.attempts.select("job", "waiting_s").filter(pl.col("waiting_s") > 0)
    total = float(waited.get_column("waiting_s").sum())
    slot_s = max(float(accounts.attempts.get_column("slot_s").sum()), total)
    long = waited.filter(pl.col("waiting_s") >= NOTICED)
    if long.height < QUEUED_AT_LEAST or total < max(AT_LEAST, QUEUED_SHARE * slot_s):
        return []
    about = affected(accounts, None, jobs=long.get_column("job"))
    # What of this was lost with its attempt is counted where the attempt is.
    kept = accounts.pieces.filter(
        (pl.col("phase") == Phase.WAITING.value) & (pl.col("verdict") != Worth.BAD.value)
    )
    return [
        Finding(
            key="transfer-queue",
            title=f"Slots waited {hours(total)} for a transfer slot at the access point: "
            f"{percent(total / slot_s)} of all slot time",
            why="The access point sends only so many inputs at once; a job that is matched in the "
            "meantime holds its slot and waits.",
            waiting_s=float(kept.get_column("seconds").sum()),
            waiting="of slot time waited",
            jobs=about.jobs,
            attempts=long.height,
            named=about.named,
            evidence=(
                ("attempts that waited 5 min or longer", many(long.height, "attempt")),
                (
                    "median / 95th percentile of those that waited",
                    f"{span(median(waited.get_column('waiting_s')))} / "
                    f"{span(quantile(waited.get_column('waiting_s'), 0.95))}",
                ),
            ),
            advice=(
                *both(
                    "Take large inputs off the access point: a URL is fetched by the node itself.",
                    f"transfer_input_files = {example(accounts, 'DATA.tar')}",
                    "[[inputs]]",
                    'url = "https://CACHE/DATA.tar"',
                ),
                submit("Start fewer jobs at once.", "max_materialize = 50"),
                config(
                    "The owner of the access point can let more transfers run at once, if its disk "
                    "and its network bear it (uploads are inputs, seen from there).",
                    "MAX_CONCURRENT_UPLOADS = 200",
                    "MAX_CONCURRENT_DOWNLOADS = 200",
                ),
            ),
        )
    ]


def _source(name: object) -> str:
    return shown(name, 80)


#: Logs name a source only when it fails, so there is no rate to compare: only a clear majority of
#: the failures, over several jobs, says something about the source rather than about chance.
FAILURES_AT_LEAST = 8
JOBS_AT_LEAST = 3
MAJORITY = 0.5
#: The next one must be named this many times less often.
FACTOR = 3.0
_ENDINGS = (Cause.TRANSFER_CUT.value, Cause.TRANSFER_FAILED.value, Cause.HOLD.value)


def source_worse(accounts: Accounts) -> list[Finding]:
    """At most one finding: the source that fails far more than all others together."""
    tried = failed(accounts, "attempt", "job", "ending", "bad_s", "reason")
    tried = tried.filter(pl.col("ending").is_in(_ENDINGS) & pl.col("reason").is_not_null())
    if tried.height < FAILURES_AT_LEAST:
        return []
    reasons = tried.select("reason").unique()
    # A 404 or 403 is about the object, not about who gave the answer.
    reasons = reasons.filter(~pl.col("reason").str.contains(OBJECT_AT_FAULT)).with_columns(
        source=source(pl.col("reason"))
    )
    named = tried.join(reasons.drop_nulls("source"), on="reason")
    # A cluster that names one source has no other: its failures say nothing about the source.
    named = with_cluster(accounts, named)
    named = named.filter(pl.col("source").n_unique().over("mates") > 1)
    counts = (
        named.group_by("source")
        .agg(failures=pl.len(), jobs=pl.col("job").n_unique(), seconds=pl.col("bad_s").sum())
        .sort("failures", "source", descending=[True, False])
    )
    if counts.height < 2:
        return []  # with one name only, one cannot tell the source from the way to it
    top, second = counts.row(0, named=True), counts.row(1, named=True)
    clear = wilson(top["failures"], named.height)[0] > MAJORITY
    if top["failures"] < FAILURES_AT_LEAST or top["jobs"] < JOBS_AT_LEAST or not clear:
        return []
    if top["failures"] < FACTOR * second["failures"]:
        return []
    mine = named.filter(pl.col("source") == top["source"])
    about = affected(accounts, mine)
    sites = sited(accounts).get_column("site").gather(mine.get_column("attempt"))
    name, share = _source(top["source"]), percent(top["failures"] / named.height)
    return [
        about.finding(
            key=f"source-worse:{name}",
            title=f"{many(top['failures'], 'transfer')} from {name} failed, {share} of all that "
            f"name a source: {about.cost}",
            why="One cache or origin is named far more often than the others: it is overloaded, "
            "out of order, or far away. HTCondor's plugins ask the same one again.",
            evidence=(
                ("failed transfers of clusters that name several sources", count(named.height)),
                (f"{accounts.place}s that it served", listed(sorted_names(sites)) or UNKNOWN),
                ("what it says", shown(mine.item(0, "reason"))),
            ),
            table=Table.of(
                counts,
                6,
                source=("source", _source),
                failures=("failed transfers", count),
                jobs=("jobs", count),
            ),
            advice=(
                job_toml(
                    "Name more than one source: the agent leaves a slow one and goes on with the "
                    "next from the last good byte.",
                    "[[inputs]]",
                    'url = ["https://CACHE/DATA.tar", "https://ANOTHER-CACHE/DATA.tar"]',
                ),
                tell_owners(accounts, name),
            ),
        )
    ]


def source_faulty(accounts: Accounts) -> list[Finding]:
    """At most one finding: the source with the most failures among those that are far worse.

    Logs name a source only when it fails. The agent's records name each one that took part in a
    transfer, so that there is a rate to compare; and a transfer that other sources brought to its
    end costs no badput, but waits for the sick one first.
    """
    served = accounts.sources.filter((pl.col("bytes") > 0) | pl.col("failed"))
    if not served.height:
        return []
    served = with_cluster(accounts, served)
    counts = (
        served.group_by("source")
        .agg(
            transfers=pl.len(),
            failures=pl.col("failed").sum(),
            jobs=pl.col("job").filter(pl.col("failed")).n_unique(),
            wasted=pl.col("wasted").sum(),
        )
        .sort("failures", "source", descending=[True, False])
    )
    enough = (pl.col("failures") >= FAILURES_AT_LEAST) & (pl.col("jobs") >= JOBS_AT_LEAST)
    rows = clearly_worse(against_mates(served, "source", "failed"), FACTOR, FAILURES_AT_LEAST)
    worst = counts.join(rows, on="source", how="semi", maintain_order="left").filter(enough)
    return [
        _faulty_finding(accounts, served, counts, row)
        for row in worst.head(1).iter_rows(named=True)
    ]


def _faulty_finding(
    accounts: Accounts, served: pl.DataFrame, counts: pl.DataFrame, row: dict[str, int]
) -> Finding:
    mine = served.filter((pl.col("source") == row["source"]) & pl.col("failed"))
    about = affected(accounts, mine)
    sites = sited(accounts).get_column("site").gather(mine.get_column("attempt"))
    name = _source(row["source"])
    faults = mine.get_column("fault").drop_nulls()
    return Finding(
        key=f"source-faulty:{name}",
        title=f"{name} failed in {percent(row['failures'] / row['transfers'])} of the "
        f"{many(row['transfers'], 'transfer')} that it took part in",
        why="The agent's records name every source of a transfer. This one is set aside far "
        "more often than the others, which then bring the data; each time that costs some seconds.",
        jobs=about.jobs,
        attempts=about.attempts,
        named=about.named,
        evidence=(
            (f"{accounts.place}s that it served", listed(sorted_names(sites)) or UNKNOWN),
            ("what was wrong", shown(faults.item(0)) if faults.len() else UNKNOWN),
        ),
        table=Table.of(
            counts,
            6,
            source=("source", _source),
            transfers=("transfers", count),
            failures=("failed", count),
        ),
        advice=(tell_owners(accounts, name),),
        echo=True,
    )


#: Below this share of the GPUs' time, input is a fair price.
GPU_SHARE = 0.15
#: Fewer attempts with input are no picture.
GPU_ATTEMPTS_AT_LEAST = 5


def gpu_input(accounts: Accounts) -> list[Finding]:
    """At most one finding: the share of GPU time in input transfers."""
    jobs = _gpu_jobs(accounts.jobs)
    if not jobs.height:
        return []
    asked = ("job", "arrived", "transfer_in_s", "slot_s", "compute_s", "received")
    tried = sited(accounts).select(asked).join(jobs, on="job", how="semi")
    moved = tried.filter(pl.col("transfer_in_s") > 0)
    waited = float(moved.get_column("transfer_in_s").sum())
    slot_s = max(float(tried.get_column("slot_s").sum()), waited)
    if moved.height < GPU_ATTEMPTS_AT_LEAST or waited < max(AT_LEAST, GPU_SHARE * slot_s):
        return []
    pieces = accounts.pieces.filter(
        (pl.col("phase") == Phase.TRANSFER_IN.value) & (pl.col("verdict") != Worth.BAD.value)
    ).join(jobs, on="job", how="semi")
    needed = float(pieces.get_column("seconds").sum())
    about = affected(accounts, None, jobs=moved.get_column("job"), lost=NO_JOBS)
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
            jobs=about.jobs,
            attempts=moved.height,
            named=about.named,
            evidence=tuple(evidence),
            advice=_gpu_advice(accounts),
        )
    ]


def _gpu_jobs(jobs: pl.DataFrame) -> pl.DataFrame:
    jobs = jobs.select("job", "log", "cluster", "gpus")
    if not (jobs.get_column("gpus") > 0).any():
        return jobs.clear()
    # A held job's log often has no table of resources; those of its cluster have.
    asked = pl.col("gpus").fill_null(pl.col("gpus").median().over("log", "cluster"))
    return jobs.filter(asked > 0).select("job")


def _gpu_advice(accounts: Accounts) -> tuple[Step, ...]:
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
