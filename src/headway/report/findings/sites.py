"""Findings about places: machines that swallow jobs, sites that are worse than others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from headway.report.accounts import Accounts
from headway.report.enums import EVICTIONS, Cause, JobOutcome
from headway.report.findings.affected import affected, ended, listed, median, slot_time, stay_away
from headway.report.findings.clusters import (
    against_mates,
    clearly_worse,
    compare_cells,
    standard_errors,
    wilson,
    with_cluster,
)
from headway.report.findings.finding import (
    NO_JOBS,
    Finding,
    Step,
    Table,
    avoid,
    avoid_machines,
    do,
    is_address,
    job_toml,
    prefer,
    short_name,
)
from headway.report.findings.reasons import what
from headway.report.numbers import count, percent, span
from headway.text import many

#: An attempt that fails within this time, and within this share of what a successful one takes,
#: frees the slot so soon that the next job falls into the same hole.
SHORT_S = 1200.0
SHORT_SHARE = 0.2
#: Failures on one machine, and of how many jobs: one bad job that comes back is not a bad machine.
FAILURES_AT_LEAST = 5
HOLE_JOBS_AT_LEAST = 3
#: Most attempts there fail so; ...
MOSTLY = 0.5
#: ... and this many times as often as elsewhere.
HOLE_FACTOR = 3.0
#: Attempts, here and of the same clusters elsewhere, without which nothing can be compared.
HOLE_ATTEMPTS_AT_LEAST = 5
_TAKEN_BACK = tuple(cause.value for cause in EVICTIONS)
_ARE = {
    (False, False): " is a black hole",
    (False, True): " are black holes",
    (True, False): " gives jobs back within minutes",
    (True, True): " give jobs back within minutes",
}
_WHY = {
    False: "A machine that fails a job at once is free again at once, so it draws the next job of "
    "the queue, and the next, while good machines are busy.",
    True: "A machine whose owner is at work, or whose slots others may take, evicts a job soon "
    "after it has begun, and draws the next one. What was computed until then is lost each time.",
}
#: Ends that are neither the machine's nor the command's doing.
_NOT_THESE = (Cause.SYSTEM.value, Cause.UNKNOWN.value, Cause.OVER_TIME.value)


def black_hole(accounts: Accounts) -> list[Finding]:
    """One finding for all machines of a site that swallow jobs."""
    asked = ("attempt", "job", "site", "machine", "ending", "reason", "slot_s")
    tried = ended(accounts, *asked).filter(~pl.col("ending").is_in(_NOT_THESE))
    tried = tried.filter(pl.col("machine").is_not_null() & (pl.col("machine") != ""))
    tried = with_cluster(accounts, tried).with_columns(good=pl.col("ending") == "success")
    # What is short, only a success of the same cluster tells; one without any fails by itself.
    usual = (
        tried.filter("good").group_by("mates").agg(short=SHORT_SHARE * pl.col("slot_s").median())
    )
    usual = usual.with_columns(pl.col("short").clip(upper_bound=SHORT_S))
    tried = tried.join(usual, on="mates", maintain_order="left").with_columns(
        fell=~pl.col("good") & (pl.col("slot_s") <= pl.col("short"))
    )
    machines = tried.group_by("machine").agg(
        site=pl.col("site").drop_nulls().first(),
        attempts=pl.len(),
        fell=pl.col("fell").sum(),
        jobs=pl.col("job").filter(pl.col("fell")).n_unique(),
        good=pl.col("good").sum(),
    )
    suspects = machines.filter(
        (pl.col("fell") >= FAILURES_AT_LEAST) & (pl.col("jobs") >= HOLE_JOBS_AT_LEAST)
    )
    if not suspects.height:
        return []
    # Bad machines are not compared with each other: a site full of holes would hide each of them.
    often = pl.col("fell") >= FAILURES_AT_LEAST
    bad = machines.filter(often & (pl.col("fell") > MOSTLY * pl.col("attempts")))
    fine = ~pl.col("machine").is_in(bad.get_column("machine").implode())
    rows = against_mates(tried.with_columns(fine=fine), "machine", "fell", "fine")
    rows = clearly_worse(rows, HOLE_FACTOR, HOLE_ATTEMPTS_AT_LEAST)
    holes = suspects.join(rows.select("machine", "others", "usual"), on="machine")
    mostly = [wilson(f, of)[0] > MOSTLY for f, of in holes.select("fell", "attempts").iter_rows()]
    holes = holes.filter(pl.Series(mostly, dtype=pl.Boolean))
    # Machines without a site are told of together: their own names would make each a site.
    if accounts.place == "machine":
        holes = holes.with_columns(site=pl.lit("", pl.String))
    parts = holes.sort("site", "machine", nulls_last=True).group_by("site", maintain_order=True)
    return [_hole_finding(accounts, str(site or ""), part, tried) for (site,), part in parts]


def _hole_finding(
    accounts: Accounts, site: str, holes: pl.DataFrame, tried: pl.DataFrame
) -> Finding:
    fallen = tried.filter(pl.col("fell")).join(holes, on="machine", how="semi")
    about = affected(accounts, fallen)
    names = holes.sort("fell", "machine", descending=[True, False]).get_column("machine").to_list()
    attempts = int(holes.get_column("attempts").sum())
    share, others = fallen.height / attempts, int(holes.get_column("others").max() or 0)  # type: ignore[arg-type]
    elsewhere = median(holes.get_column("usual"))
    short = float(fallen.get_column("short").max() or 0.0)  # type: ignore[arg-type]
    reasons = fallen.get_column("reason").drop_nulls().cast(pl.String).value_counts(sort=True)
    gone = int(fallen.get_column("ending").is_in(_TAKEN_BACK).sum())
    evicts = 2 * gone > fallen.height
    group = f" of {short_name(site)}" if site in accounts.site_names else ""
    where = short_name(names[0]) if len(names) == 1 else f"{len(names)} machines{group}"
    where += _ARE[evicts, len(names) > 1]
    evidence = [
        (
            "ended so within " + span(short),
            f"{percent(share)} of {many(attempts, 'attempt')} there",
        ),
        ("the same clusters elsewhere", f"{percent(elsewhere)} of up to {many(others, 'attempt')}"),
        ("median time until then", span(median(fallen.get_column("slot_s")))),
    ]
    if reasons.height:
        evidence.append(("most frequent reason", what(str(reasons.item(0, "reason")))))
    return about.finding(
        key=f"black-hole:{short_name(site or names[0])}",
        title=f"{where}: {many(fallen.height, 'attempt')} of {many(about.jobs, 'job')} "
        f"{'ended' if evicts else 'failed'} there within {span(short)}, {about.cost}",
        why=_WHY[evicts],
        evidence=evidence,
        table=Table.of(
            holes.sort("fell", descending=True),
            8,
            machine=("machine", short_name),
            attempts=("attempts", count),
            fell=("ended at once", count),
            good=("succeeded", count),
        ),
        advice=_hole_advice(accounts, site, names, evicts=evicts),
        echo=evicts,
    )


def _hole_advice(
    accounts: Accounts, site: str, machines: list[str], *, evicts: bool
) -> tuple[Step, ...]:
    named = [machine for machine in machines if not is_address(machine)]
    steps = avoid_machines(named[:3])
    # Beyond a few machines the line gets long, and the whole site is the safer guess.
    if len(machines) > 3 and site in accounts.site_names:
        steps = avoid([site])
    if evicts:
        why = "why they take jobs that they do not keep"
        return (*steps, do(f"Ask the owners of {listed(machines)} {why}."))
    return (
        *steps,
        job_toml(
            "Headway checks a node before data moves and goes elsewhere when it is not fit; this "
            "many times.",
            "[retries]",
            "node = 3",
        ),
        Step(f"Report {listed(machines)} to the owner of the pool."),
    )


#: Fewer attempts at a site are no picture of it.
ATTEMPTS_AT_LEAST = 10
#: Attempts that failed there are of at least so many jobs.
FAILED_JOBS_AT_LEAST = 3
#: Fewer successful jobs at a site give no typical compute time.
JOBS_AT_LEAST = 8
#: A rate counts as far worse at this factor, if the intervals of the two rates lie apart as well.
RATE_FACTOR = 2.0
#: A compute time: GPUs of two generations differ by about as much.
TIME_FACTOR = 1.5
#: A compute share: half of what the others get out of a slot hour.
SHARE_FACTOR = 0.5
#: How many sites are told of.
MOST = 5
#: How many sites the table beside it shows.
ROWS = 8
#: How many sites are compared by compute time, those with most jobs first.
COMPARED = 20
#: Elsewhere a cluster needs this many successful jobs to have a typical time.
MATES_AT_LEAST = 5
#: By chance a tenth of a site's jobs take longer than nine of ten elsewhere; this is twice that.
LONG_SHARE = 0.2


@dataclass(frozen=True)
class _Against:
    """One figure of a site beside the others'."""

    label: str
    here: str
    there: str
    slower_s: float = 0.0
    text: str = ""

    def __str__(self) -> str:
        return self.text or f"{self.label} {self.here}, elsewhere {self.there}"


@dataclass(frozen=True)
class _Time:
    """Compute times of a site's successful jobs, against their cluster-mates elsewhere."""

    jobs: int
    median: float
    elsewhere: float
    ratio: float
    upper: float  # ratio at the upper quartile
    long: int  # jobs longer than nine of ten elsewhere
    extra_s: float


def site_worse(accounts: Accounts) -> list[Finding]:
    """One finding for each site that is far worse than the others in one figure or more."""
    asked = ("attempt", "job", "site", "ending", "slot_s", "good_compute_s", "bad_s")
    tried = ended(accounts, *asked).filter(pl.col("site").is_not_null() & (pl.col("site") != ""))
    if tried.get_column("site").n_unique() < 2:
        return []
    tried = with_cluster(accounts, tried).with_columns(
        failed=pl.col("ending") != "success", stalled=pl.col("ending") == Cause.TRANSFER_CUT.value
    )
    cells = _cells(tried)
    sites, taken = _sites(cells), _times(accounts, tried)
    rates = {column: _rates(cells, column) for column in ("failed", "stalls")}
    against: dict[str, list[_Against]] = {}
    for site, one in (
        *_worse_rates(tried.filter("failed"), rates["failed"], "attempts that failed"),
        *_worse_rates(tried.filter("stalled"), rates["stalls"], "transfers cut off"),
        *((site, one) for site, time in taken.items() for one in _slower(time)),
        *_shares(sites, rates["failed"]),
    ):
        against.setdefault(site, []).append(one)
    rows = {
        row["site"]: row for row in sites.filter(pl.col("site").is_in(list(against))).to_dicts()
    }
    worst = sorted(against, key=lambda site: (-_cost(rows[site], against[site]), site))
    if accounts.place == "site":
        groups = [[site] for site in worst[:MOST]]
    else:
        # Machines are many, and have the same faults: they go into one finding, or two.
        lost = [name for name in worst if _excess(rows[name], against[name]) > 0]
        groups = [lost, [name for name in worst if name not in lost]]
    return [
        _site_finding(accounts, tried, sites, taken, [rows[name] for name in names], against)
        for names in groups
        if names
    ]


_SUMS = ("slot_s", "good_compute_s", "bad_s")


def _cells(tried: pl.DataFrame) -> pl.DataFrame:
    """One row a site and cluster: what became of the attempts there."""
    return tried.group_by("site", "mates").agg(
        attempts=pl.len().cast(pl.Int64),
        failed=pl.col("failed").sum().cast(pl.Int64),
        stalls=pl.col("stalled").sum().cast(pl.Int64),
        **{name: pl.col(name).fill_nan(0).fill_null(0).sum() for name in _SUMS},
    )


def _sites(cells: pl.DataFrame) -> pl.DataFrame:
    """One row a site: what became of the attempts there, and of the same clusters elsewhere."""
    sums = cells.group_by("mates").agg(pl.col("attempts", *_SUMS).sum().name.prefix("all_"))
    there = {name: pl.col(f"all_{name}") - pl.col(name) for name in ("attempts", *_SUMS)}
    both = (there["attempts"] > 0) & (there["slot_s"] > 0)

    def if_both(value: pl.Expr) -> pl.Expr:
        return pl.when(both).then(value).otherwise(0)

    def usual(name: str) -> pl.Expr:
        """What the slot time here would have come to elsewhere, cluster by cluster."""
        return if_both(pl.col("slot_s") * there[name] / there["slot_s"])

    return (
        cells.join(sums, on="mates", maintain_order="left")
        .select(
            *("site", "attempts", "failed", "stalls", *_SUMS),
            compared=if_both(pl.col("attempts")),
            others=if_both(there["attempts"]),
            compared_s=if_both(pl.col("slot_s")),
            compared_good_s=if_both(pl.col("good_compute_s")),
            compared_bad_s=if_both(pl.col("bad_s")),
            usual_good_s=usual("good_compute_s"),
            usual_bad_s=usual("bad_s"),
        )
        .group_by("site")
        .agg(pl.col(pl.Int64, pl.Float64).sum())
        .sort("attempts", "site", descending=[True, False])
    )


def _times(accounts: Accounts, tried: pl.DataFrame) -> dict[str, _Time]:
    """Compute times by site. Clusters differ in what they compute: only mates are compared."""
    jobs = accounts.jobs.filter(
        (pl.col("outcome") == JobOutcome.SUCCESS.value) & (pl.col("good_compute_s") > 0)
    ).select("job", seconds=pl.col("good_compute_s"))
    last = tried.filter(~pl.col("failed")).unique("job", keep="last", maintain_order=True)
    jobs = jobs.join(last.select("job", "site", "mates"), on="job")
    counts = jobs.group_by("site").len().filter(pl.col("len") >= JOBS_AT_LEAST)
    names = counts.sort("len", "site", descending=[True, False]).head(COMPARED).get_column("site")
    found = {name: _time(jobs, name) for name in names.to_list()}
    return {name: time for name, time in found.items() if time is not None}


def _time(jobs: pl.DataFrame, site: str) -> _Time | None:
    seconds, here = pl.col("seconds"), pl.col("site") == site
    own = jobs.filter(here)
    mates = (
        jobs.filter(~here)
        .join(own.select("mates").unique(), on="mates", how="semi")
        .group_by("mates")
        .agg(of=pl.len(), typical=seconds.median(), high=seconds.quantile(0.9, "linear"))
        .filter(pl.col("of") >= MATES_AT_LEAST)
    )
    own = own.join(mates, on="mates")
    if own.height < JOBS_AT_LEAST:
        return None
    ratio = seconds / pl.col("typical")
    row = own.select(
        median=seconds.median(),
        elsewhere=pl.col("typical").median(),
        ratio=ratio.median(),
        upper=ratio.quantile(0.75, "linear"),
        long=(seconds > pl.col("high")).sum(),
        extra_s=(seconds - pl.col("typical")).clip(lower_bound=0).sum(),
    ).row(0, named=True)
    return _Time(jobs=own.height, **row)


def _rates(cells: pl.DataFrame, column: str) -> pl.DataFrame:
    """How often it happened at each site, and to the same clusters elsewhere."""
    n, hits = pl.col("attempts"), pl.col(column)
    return compare_cells(cells.select("site", "mates", n=n, x=hits, known=n, wrong=hits), "site")


def _worse_rates(hit: pl.DataFrame, rates: pl.DataFrame, label: str) -> list[tuple[str, _Against]]:
    """The sites where it happened far more often; `hit` are the attempts that it happened to."""
    rows = clearly_worse(rates, RATE_FACTOR, ATTEMPTS_AT_LEAST)
    if not rows.height:
        return []
    # One bad job that comes back again and again is not a bad site.
    jobs = hit.group_by("site").agg(jobs=pl.col("job").n_unique())
    rows = rows.join(jobs, on="site").filter(pl.col("jobs") >= FAILED_JOBS_AT_LEAST)
    return [
        (row["site"], _Against(label, percent(row["hits"] / row["of"]), percent(row["usual"])))
        for row in rows.iter_rows(named=True)
    ]


def _slower(time: _Time) -> list[_Against]:
    if max(time.ratio, time.upper) < TIME_FACTOR:
        return []
    if wilson(time.long, time.jobs)[0] < LONG_SHARE:
        return []
    if time.ratio >= TIME_FACTOR:
        here, there, label = span(time.median), span(time.elsewhere), "compute time (median)"
        return [_Against(label, here, there, time.extra_s)]
    label = "computed longer than 9 of 10 jobs elsewhere"
    text = f"{time.long:,} of its {time.jobs:,} jobs {label}"
    return [_Against(label, percent(time.long / time.jobs), "10.0 %", time.extra_s, text)]


def _shares(sites: pl.DataFrame, rates: pl.DataFrame) -> list[tuple[str, _Against]]:
    # Where few attempts succeed anywhere, ten without success are no sign: the rate must be, too.
    clear = rates.filter(pl.col("apart") >= standard_errors(rates.height)).select("site")
    enough = (pl.col("compared") >= ATTEMPTS_AT_LEAST) & (pl.col("others") >= ATTEMPTS_AT_LEAST)
    far = pl.col("compared_good_s") < SHARE_FACTOR * pl.col("usual_good_s")
    rows = sites.filter(enough & far & (pl.col("compared_s") > 0))
    rows = rows.join(clear, on="site", how="semi", maintain_order="left")
    return [
        (
            row["site"],
            _Against(
                "compute share",
                percent(row["compared_good_s"] / row["compared_s"]),
                percent(row["usual_good_s"] / row["compared_s"]),
            ),
        )
        for row in rows.iter_rows(named=True)
    ]


def _excess(row: dict[str, Any], against: list[_Against]) -> float:
    """Badput beyond what is usual; none where the site is only slower."""
    if all(one.slower_s > 0 for one in against):
        return 0.0
    return max(0.0, float(row["compared_bad_s"] - row["usual_bad_s"]))


def _cost(row: dict[str, Any], against: list[_Against]) -> float:
    return _excess(row, against) + sum(one.slower_s for one in against)


def _site_finding(
    accounts: Accounts,
    tried: pl.DataFrame,
    sites: pl.DataFrame,
    taken: dict[str, _Time],
    rows: list[dict[str, Any]],
    against: dict[str, list[_Against]],
) -> Finding:
    """A site, or several machines in one finding, the worst first."""
    names = [row["site"] for row in rows]
    there = tried.filter(pl.col("site").is_in(names))
    about = affected(accounts, there.filter("failed"), lost=NO_JOBS)
    # Some loss is usual; what is more than with the same clusters elsewhere is this site's own.
    excess = min(sum(_excess(row, against[row["site"]]) for row in rows), about.cost_s)
    slower = sum(one.slower_s for name in names for one in against[name])
    lost = excess > 0
    seconds = about.seconds.scaled(excess / about.cost_s if lost else 0.0)
    worst, first = short_name(names[0]), against[names[0]]
    cost = f"{slot_time(excess, about.gpu)} lost beyond what is usual"
    if len(names) == 1:
        others, key = f"{accounts.place}s", f"site-worse:{worst}"
        title = f"{worst} is far worse than the other {others} ({first[0]}): {cost}"
        if not lost:
            how, more = ("slower", f", {span(slower)} more in all") if slower else ("worse", "")
            title = f"{worst} is far {how} than the other {others}: {first[0]}{more}"
        compared = f"{rows[0]['compared']:,} of its {many(rows[0]['attempts'], 'attempt')}"
        evidence = [(one.label, f"{one.here}, elsewhere {one.there}") for one in first]
        evidence.append(("compared with the same clusters elsewhere", compared))
        advice = (
            *(_prefer(accounts, taken, sites, names[0]) if slower and not lost else ()),
            *stay_away(accounts, names[0]),
            do("Show this table to its owner or to the pool's facilitators."),
        )
    else:
        key = "machines-worse" if lost else "machines-slower"
        how, more = ("worse", cost) if lost else ("slower", f"{span(slower)} more in all")
        title = (
            f"{len(names):,} machines are far {how} than the others ({worst}: {first[0]}): {more}"
        )
        evidence = [
            (f"{short_name(name)}: {one.label}", f"{one.here}, elsewhere {one.there}")
            for name in names[:3]
            for one in against[name][:2]
        ]
        advice = (
            *avoid_machines([name for name in names if not is_address(name)][:3]),
            do(f"Tell the owners of {listed(names)}, with this table."),
        )
    return Finding(
        key=key,
        title=title,
        why=_why(first, lost),
        cost_s=seconds.total_s if lost else None,
        waiting_s=slower or None,
        jobs=there.get_column("job").n_unique(),
        attempts=there.height,
        named=about.named,
        evidence=tuple(evidence),
        table=_table(accounts.place, sites, names, taken),
        advice=advice,
        seconds=seconds,
        echo=accounts.place == "machine",  # what a machine does wrong, others say better
    )


def _prefer(
    accounts: Accounts, taken: dict[str, _Time], sites: pl.DataFrame, slow: str
) -> tuple[Step, ...]:
    """Wishes for sites that take less slot time for a result, losses included; unlike a ban they
    cost no slot."""
    results, known = pl.col("attempts") - pl.col("failed"), accounts.site_names
    price = dict(sites.filter(results > 0).select("site", pl.col("slot_s") / results).iter_rows())
    cheaper = [
        name
        for name in taken
        if name in known and name in price and price[name] < price.get(slow, 0.0)
    ]
    return prefer(sorted(cheaper, key=lambda name: price[name])[:3])


def _why(against: list[_Against], lost: bool) -> str:
    if not lost:
        return (
            "Its nodes are slower or shared: a slot there gives less work in an hour, and brings "
            "jobs closer to their time limit."
        )
    if any(one.label.startswith("transfers") for one in against):
        return "Data gets there more slowly than elsewhere, or from an overloaded cache."
    return "The same clusters fare better elsewhere, so the cause is likely to be there."


def _table(place: str, sites: pl.DataFrame, worst: list[str], taken: dict[str, _Time]) -> Table:
    cuts = bool(sites.get_column("stalls").sum())
    bad = pl.DataFrame({"site": worst[: ROWS - 2]}).join(sites, on="site", maintain_order="left")
    rest = sites.filter(~pl.col("site").is_in(worst)).head(ROWS - bad.height)
    shown_sites = pl.concat([bad.select(sites.columns), rest])
    rows = []
    for row in shown_sites.iter_rows(named=True):
        time = taken.get(row["site"])
        share = row["good_compute_s"] / row["slot_s"] if row["slot_s"] > 0 else None
        rows.append(
            (
                short_name(row["site"]),
                count(row["attempts"]),
                percent(1 - row["failed"] / row["attempts"]),
                *((count(row["stalls"]),) if cuts else ()),
                span(time.median if time else None),
                percent(share),
            )
        )
    header = [place, "attempts", "succeeded", "compute (median)", "compute share"]
    header[3:3] = ["cut off"] if cuts else []
    return Table(tuple(header), tuple(rows))
