"""Sites far worse than the others: success, stalls, compute time, compute share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from headway.report.accounts import Accounts
from headway.report.findings.finding import NO_JOBS, Finding, Step, Table, avoid, do, prefer, shown
from headway.report.findings.scope import ended, scope, slot_time
from headway.report.findings.stats import clearly_more, wilson
from headway.report.numbers import count, hours, percent, span
from headway.report.words import Cause, Outcome

#: Fewer attempts at a site are no picture of it.
ATTEMPTS_AT_LEAST = 10
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
    """One finding for each site that is far worse in one figure or more."""
    sites = _sites(accounts)
    if sites.height < 2:
        return []
    taken = _times(accounts)
    whole = sites.select(pl.col(pl.Int64, pl.Float64).sum()).row(0, named=True)
    found = []
    for row in sites.iter_rows(named=True):
        rest = {key: whole[key] - row[key] for key in whole}
        against = _rates(row, rest) + _slower(taken.get(row["site"])) + _share(row, rest)
        if against:
            found.append(_finding(accounts, row, rest, against, sites, taken))
    return sorted(found, key=lambda f: (-(f.cost_s or 0) - (f.waiting_s or 0), f.key))[:MOST]


def _sites(accounts: Accounts) -> pl.DataFrame:
    """One row a site: what became of the attempts there."""
    return (
        ended(accounts)
        .with_columns(pl.col("site").cast(pl.String))
        .filter(pl.col("site").is_not_null() & (pl.col("site") != ""))
        .group_by("site")
        .agg(
            attempts=pl.len().cast(pl.Int64),
            failed=(pl.col("ending") != "success").sum().cast(pl.Int64),
            stalls=(pl.col("ending") == Cause.TRANSFER_CUT.value).sum().cast(pl.Int64),
            good_compute_s=pl.col("good_compute_s").sum(),
            slot_s=pl.col("slot_s").sum(),
            bad_s=pl.col("bad_s").sum(),
        )
        .sort("attempts", "site", descending=[True, False])
    )


def _times(accounts: Accounts) -> dict[str, _Time]:
    """Compute times by site. Clusters differ in what they compute: only mates are compared."""
    jobs = accounts.jobs.filter(
        (pl.col("outcome") == Outcome.SUCCESS.value)
        & (pl.col("good_compute_s") > 0)
        & pl.col("site").is_not_null()
    ).select("log", "cluster", pl.col("site").cast(pl.String), seconds=pl.col("good_compute_s"))
    counts = jobs.group_by("site").len().filter(pl.col("len") >= JOBS_AT_LEAST)
    names = counts.sort("len", "site", descending=[True, False]).head(COMPARED).get_column("site")
    found = {name: _time(jobs, name) for name in names.to_list()}
    return {name: time for name, time in found.items() if time is not None}


def _time(jobs: pl.DataFrame, site: str) -> _Time | None:
    seconds, here = pl.col("seconds"), pl.col("site") == site
    mates = (
        jobs.filter(~here)
        .group_by("log", "cluster")
        .agg(of=pl.len(), typical=seconds.median(), high=seconds.quantile(0.9, "linear"))
        .filter(pl.col("of") >= MATES_AT_LEAST)
    )
    own = jobs.filter(here).join(mates, on=["log", "cluster"], nulls_equal=True)
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


def _rates(row: dict[str, Any], rest: dict[str, Any]) -> list[_Against]:
    if row["attempts"] < ATTEMPTS_AT_LEAST or rest["attempts"] < ATTEMPTS_AT_LEAST:
        return []
    found = []
    for column, label in (("failed", "attempts that failed"), ("stalls", "transfers cut off")):
        here, there = (row[column], row["attempts"]), (rest[column], rest["attempts"])
        if clearly_more(*here, *there, RATE_FACTOR):
            found.append(_Against(label, percent(here[0] / here[1]), percent(there[0] / there[1])))
    return found


def _slower(time: _Time | None) -> list[_Against]:
    if time is None or max(time.ratio, time.upper) < TIME_FACTOR:
        return []
    if wilson(time.long, time.jobs)[0] < LONG_SHARE:
        return []
    if time.ratio >= TIME_FACTOR:
        here, there, label = span(time.median), span(time.elsewhere), "compute time (median)"
        return [_Against(label, here, there, time.extra_s)]
    label = "computed longer than 9 of 10 jobs elsewhere"
    text = f"{time.long:,} of its {time.jobs:,} jobs {label}"
    return [_Against(label, percent(time.long / time.jobs), "10.0 %", time.extra_s, text)]


def _share(row: dict[str, Any], rest: dict[str, Any]) -> list[_Against]:
    if row["attempts"] < ATTEMPTS_AT_LEAST or rest["attempts"] < ATTEMPTS_AT_LEAST:
        return []
    if not row["slot_s"] > 0 or not rest["slot_s"] > 0:
        return []
    here, there = row["good_compute_s"] / row["slot_s"], rest["good_compute_s"] / rest["slot_s"]
    if here >= SHARE_FACTOR * there:
        return []
    return [_Against("compute share", percent(here), percent(there))]


def _finding(
    accounts: Accounts,
    row: dict[str, Any],
    rest: dict[str, Any],
    against: list[_Against],
    sites: pl.DataFrame,
    taken: dict[str, _Time],
) -> Finding:
    site = row["site"]
    there = ended(accounts).filter(pl.col("site").cast(pl.String) == site)
    bad = there.filter(pl.col("ending") != "success")
    about = scope(accounts, bad, lost=NO_JOBS)
    # Some loss is usual; what is more than at the other sites is this site's own.
    usual = rest["bad_s"] / rest["slot_s"] * row["slot_s"] if rest["slot_s"] > 0 else 0.0
    excess = max(0.0, about.cost_s - usual)
    factor = excess / about.cost_s if about.cost_s else 0.0
    slower = sum(one.slower_s for one in against)
    lost = excess > 0 and len(against) > sum(one.slower_s > 0 for one in against)
    name = shown(site, 60)
    cost = f": {slot_time(excess, about.gpu)} lost beyond what is usual" if lost else ""
    claim = about.claim.with_columns(pl.col("seconds") * factor) if lost else about.claim.head(0)
    return Finding(
        key=f"site-worse:{name}",
        title=f"{name} is far worse than the other sites ({against[0]}){cost}"
        if lost
        else f"{name} is far slower than the other sites: {against[0]}, {hours(slower)} more in all"
        if slower
        else f"{name} is far worse than the other sites: {against[0]}",
        why=_why(against, lost),
        cost_s=float(claim.get_column("seconds").sum()) if lost else None,
        waiting_s=slower or None,
        jobs=there.get_column("job").n_unique(),
        attempts=there.height,
        named=about.named,
        evidence=tuple((one.label, f"{one.here}, elsewhere {one.there}") for one in against),
        table=_table(sites, site, taken),
        advice=(
            *(_prefer(taken, sites, site) if slower and not lost else ()),
            *avoid([site]),
            do("Tell the site's owner or the facilitators, with this table."),
        ),
        claim=claim,
    )


def _prefer(taken: dict[str, _Time], sites: pl.DataFrame, slow: str) -> tuple[Step, ...]:
    """Wishes for sites that take less slot time for a result, losses included; unlike a ban they
    cost no slot."""
    results = pl.col("attempts") - pl.col("failed")
    price = dict(sites.filter(results > 0).select("site", pl.col("slot_s") / results).iter_rows())
    cheaper = [name for name in taken if name in price and price[name] < price.get(slow, 0.0)]
    return prefer(sorted(cheaper, key=lambda name: price[name])[:3])


def _why(against: list[_Against], lost: bool) -> str:
    if not lost:
        return (
            "Its nodes are slower or shared: a slot there gives less work in an hour, and brings "
            "jobs closer to their time limit."
        )
    if any(one.label.startswith("transfers") for one in against):
        return "Data reaches this site more slowly than the others, or from an overloaded cache."
    return "The same jobs fare better elsewhere, so the cause is likely to be at the site."


def _table(sites: pl.DataFrame, worst: str, taken: dict[str, _Time]) -> Table:
    shown_sites = sites.filter(pl.col("site") == worst)
    shown_sites = pl.concat([shown_sites, sites.filter(pl.col("site") != worst).head(ROWS - 1)])
    rows = []
    for row in shown_sites.iter_rows(named=True):
        time = taken.get(row["site"])
        share = row["good_compute_s"] / row["slot_s"] if row["slot_s"] > 0 else None
        rows.append(
            (
                shown(row["site"], 60),
                count(row["attempts"]),
                percent(1 - row["failed"] / row["attempts"]),
                count(row["stalls"]),
                span(time.median if time else None),
                percent(share),
            )
        )
    header = ("site", "attempts", "succeeded", "cut off", "compute (median)", "compute share")
    return Table(header, tuple(rows))
