"""The figures of a report: pure functions from accounts to numbers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

import polars as pl

from headway.report.accounts import Accounts
from headway.report.enums import CAUSE_WORDS, SLOT_PHASES, Cause, JobOutcome, Phase, Worth
from headway.report.numbers import (
    JsonFigures,
    Spread,
    read_spread,
    rounded,
    share,
    spread_of,
    total,
)
from headway.report.totals import (
    Completion,
    Histogram,
    Totals,
    completion,
    moved,
    rated,
    totals,
    transfer_lengths,
)


class By(str, Enum):
    """What jobs and attempts can be grouped by."""

    SITE = "site"
    USER = "user"
    CLUSTER = "cluster"
    CODE = "code"  # of holds: "13/256"
    HOUR = "hour"  # in which an attempt began, UTC: "2024-09-02T13:00Z"


@dataclass(frozen=True)
class GroupFigures(JsonFigures):
    """The figures of one group; key None: not known, or by code: no hold.

    An attempt belongs to its own group. A job belongs to that of its last attempt; by hour, to each
    in which an attempt of it began; by code, to each for which it was held.
    """

    key: str | None
    jobs: int
    succeeded: int  # of its jobs; by hour, from an attempt that began then
    attempts: int
    attempts_executed: int
    stalls: int
    evictions: int
    holds: int
    held_s: float
    slot_s: float
    slot_share: float | None  # of the slot time of all groups
    transfer_s: float
    compute_s: float
    good_compute_s: float
    good_s: float
    bad_s: float
    open_s: float
    compute_share: float | None
    goodput: float | None
    received: float | None
    transfer_rate: float | None


def groups(accounts: Accounts, by: By | str, most: int | None = None) -> list[GroupFigures]:
    """The figures of each group.

    Args:
        accounts: The accounts.
        by: What to group by.
        most: How many are wanted at most; None: all.

    Returns:
        One row a group: hours in their order, all else by slot time, None at the end.
    """
    by = By(by)
    attempts = _keyed_attempts(accounts, by)
    holds = _keyed_holds(accounts, by, attempts)
    table = _keyed_jobs(accounts, by, attempts, holds).group_by("key").agg(_OF_JOBS)
    for keyed, figures in ((attempts, _of_attempts()), (holds, _OF_HOLDS)):
        more = keyed.group_by("key").agg(figures)
        table = table.join(more, on="key", how="full", coalesce=True, nulls_equal=True)
    order = "key" if by is By.HOUR else "slot_s"
    table = table.with_columns(pl.col("slot_s").fill_null(0.0)).sort(
        pl.col("key").is_null(), order, "key", descending=[False, by is not By.HOUR, False]
    )
    slot = total(table.get_column("slot_s").sum())
    table = rounded(table.head(table.height if most is None else most))
    return [
        GroupFigures(
            key=row["key"],
            jobs=row["jobs"] or 0,
            succeeded=row["succeeded"] or 0,
            holds=row["holds"] or 0,
            held_s=row["held_s"] or 0.0,
            slot_share=share(row["slot_s"] or 0.0, slot),
            **_read_attempts(row),
        )
        for row in table.iter_rows(named=True)
    ]


_OF_JOBS = [
    pl.col("job").n_unique().alias("jobs"),
    pl.col("job").filter(pl.col("good")).n_unique().alias("succeeded"),
]
_OF_HOLDS = [pl.len().alias("holds"), pl.col("held_s").sum()]
_COUNTS = ("attempts", "attempts_executed", "stalls", "evictions")
_SUMS = ("slot_s", "compute_s", "good_compute_s", "good_s", "bad_s", "open_s")
#: The columns of attempts that figures of groups are made of.
_ASKED = (
    *("job", "attempt", "site", "begin", "executed", "arrived", "ending", "evicted"),
    *("transfer_in_s", "received", *_SUMS),
)


def _of_attempts() -> list[pl.Expr]:
    """What attempts alone say about a group, for an `agg`; `_read_attempts` reads it."""
    received = pl.col("received")
    return [
        pl.len().alias("attempts"),
        pl.col("executed").sum().alias("attempts_executed"),
        (pl.col("ending") == Cause.TRANSFER_CUT.value).sum().alias("stalls"),
        pl.col("evicted").sum().alias("evictions"),
        *(pl.col(name).sum() for name in _SUMS),
        pl.col("transfer_in_s").sum().alias("transfer_s"),
        pl.when(received.count() > 0).then(received.sum()).alias("received"),
        received.filter(rated()).sum().alias("rated_bytes"),
        pl.col("transfer_in_s").filter(rated()).sum().alias("rated_s"),
    ]


def _read_attempts(row: dict[str, Any]) -> dict[str, Any]:
    """The figures that `_of_attempts` worked out, of a `rounded` row, and shares between them."""
    found: dict[str, Any] = {name: row[name] or 0 for name in _COUNTS}
    found |= {name: row[name] or 0.0 for name in (*_SUMS, "transfer_s")}
    found["compute_share"] = share(found["good_compute_s"], found["slot_s"])
    found["goodput"] = share(found["good_s"], found["slot_s"])
    found["received"] = row["received"]
    found["transfer_rate"] = share(row["rated_bytes"], row["rated_s"])
    return found


def _keyed_attempts(accounts: Accounts, by: By) -> pl.DataFrame:
    attempts = accounts.attempts.select(_ASKED)
    if by is By.SITE:
        return attempts.with_columns(_text("site"))
    if by is By.HOUR:
        begin = (pl.col("begin") // 3600 * 3_600_000_000).cast(pl.Int64).cast(pl.Datetime("us"))
        return attempts.with_columns(begin.dt.strftime("%Y-%m-%dT%H:%MZ").alias("key"))
    if by is By.CODE:
        codes = accounts.holds.filter(pl.col("attempt").is_not_null())
        codes = codes.unique("attempt", keep="last").select("attempt", _code())
        return attempts.join(codes, on="attempt", how="left")
    keys = accounts.jobs.select("job", _text(by.value))
    return attempts.join(keys, on="job", how="left")


def _keyed_holds(accounts: Accounts, by: By, attempts: pl.DataFrame) -> pl.DataFrame:
    holds = accounts.holds
    if by is By.CODE:
        return holds.with_columns(_code())
    if by in (By.USER, By.CLUSTER):
        return holds.join(accounts.jobs.select("job", _text(by.value)), on="job", how="left")
    # A job that was held while it was on no slot was nowhere.
    return holds.filter(pl.col("attempt").is_not_null()).join(
        attempts.select("attempt", "key"), on="attempt", how="left"
    )


def _keyed_jobs(
    accounts: Accounts, by: By, attempts: pl.DataFrame, holds: pl.DataFrame
) -> pl.DataFrame:
    good = (pl.col("outcome") == JobOutcome.SUCCESS.value).alias("good")
    jobs = accounts.jobs.select("job", "site", "user", "cluster", "attempts", good)
    if by is By.HOUR:
        success = (pl.col("ending") == JobOutcome.SUCCESS.value).alias("good")
        return attempts.select("job", "key", success)
    if by is By.CODE:
        keys = holds.select("job", "key").unique()
        return jobs.select("job", "good").join(keys, on="job", how="left")
    if by is By.SITE:
        jobs = jobs.filter(pl.col("attempts") > 0)
    return jobs.select("job", "good", _text(by.value))


def _text(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.String).alias("key")


def _code() -> pl.Expr:
    code, subcode = pl.col("code").cast(pl.String), pl.col("subcode").cast(pl.String)
    return pl.concat_str(code, subcode, separator="/", ignore_nulls=True).alias("key")


@dataclass(frozen=True)
class CodeLoss(JsonFigures):
    """What one code of 004 or 012 events cost; code None: no event gave one."""

    code: int | None
    subcode: int | None
    seconds: float
    share: float | None  # of all slot time
    transfer_s: float  # waiting for, and in, transfers of either direction
    compute_s: float  # computing and checkpointing
    attempts: int
    jobs: int
    reason: str | None  # the most frequent one, in the log's words


@dataclass(frozen=True)
class Loss(JsonFigures):
    """What one cause cost; the seconds of all losses add up to the badput."""

    cause: str
    words: str
    seconds: float
    share: float | None
    transfer_s: float
    compute_s: float
    phases: dict[str, float]  # the same seconds by `Phase`, without zeros
    attempts: int
    jobs: int
    reason: str | None
    codes: tuple[CodeLoss, ...]  # costliest first


_TRANSFER = (Phase.WAITING.value, Phase.TRANSFER_IN.value, Phase.TRANSFER_OUT.value)
_COMPUTE = (Phase.COMPUTE.value, Phase.CHECKPOINT.value)


_CODED = ("cause", "code", "subcode")


def losses(accounts: Accounts) -> list[Loss]:
    """Badput by cause, the costliest first."""
    strikes = _strikes(accounts)
    said = strikes.filter(pl.col("reason") != "").group_by(*_CODED, "reason").len("times")
    slot = total(accounts.jobs.get_column("slot_s").sum())
    by_cause = _by(strikes, said, "cause").sort("seconds", "cause", descending=True)
    by_code = _by(strikes, said, *_CODED).sort(
        "seconds", "code", "subcode", descending=[True, False, False], nulls_last=True
    )
    codes: dict[str, list[CodeLoss]] = {}
    for row in by_code.iter_rows(named=True):
        found = codes.setdefault(row["cause"], [])
        found.append(CodeLoss(code=row["code"], subcode=row["subcode"], **_common(row, slot)))
    return [
        Loss(
            cause=row["cause"],
            words=CAUSE_WORDS[Cause(row["cause"])],
            phases={p.value: total(row[p.value]) for p in SLOT_PHASES if total(row[p.value])},
            codes=tuple(codes[row["cause"]]),
            **_common(row, slot),
        )
        for row in by_cause.iter_rows(named=True)
    ]


def _strikes(accounts: Accounts) -> pl.DataFrame:
    """One row for each cause that struck an attempt: what it lost by phase, and the code."""
    # An attempt can lose time to more than one cause, so only the pieces know.
    seconds, phases = pl.col("seconds"), [phase.value for phase in SLOT_PHASES]
    # A column for each phase, mostly zeros: to filter within each group takes longer.
    pieces = accounts.pieces.lazy().filter(pl.col("verdict") == Worth.BAD.value)
    pieces = pieces.with_columns(
        pl.when(pl.col("phase") == name).then(seconds).otherwise(0.0).alias(name) for name in phases
    )
    strikes = pieces.group_by("job", "attempt", "cause").agg(pl.col("seconds", *phases).sum())
    ended = accounts.attempts.lazy().select(
        "attempt", "code", "subcode", "reason", pl.col("cause").alias("its_cause")
    )
    # The code tells what ended the attempt: of another cause, such as a suspension, it is no news.
    cause = pl.col("cause")
    its = (cause == pl.col("its_cause")) | (cause == Cause.REDONE.value)
    codes = [pl.when(its).then(pl.col(name)) for name in ("code", "subcode", "reason")]
    return (
        strikes.join(ended, on="attempt", how="left")
        .with_columns(pl.col("cause").cast(pl.String), *codes)
        .collect()
    )


def _by(strikes: pl.DataFrame, said: pl.DataFrame, *keys: str) -> pl.DataFrame:
    """The figures of each group, and the most frequent of the reasons said in it."""
    figures = strikes.group_by(keys).agg(
        pl.col("seconds").sum(),
        *(pl.col(phase.value).sum() for phase in SLOT_PHASES),
        pl.col("attempt").drop_nulls().n_unique().alias("attempts"),
        pl.col("job").n_unique().alias("jobs"),
    )
    if len(keys) < len(_CODED):
        said = said.group_by(*keys, "reason").agg(pl.col("times").sum())
    most = said.filter(pl.col("times") == pl.col("times").max().over(keys))
    # Of equally frequent ones the first by name, so that a report is the same every time.
    reasons = most.group_by(keys).agg(pl.col("reason").min())
    return figures.join(reasons, on=keys, how="left", nulls_equal=True)


def _common(row: dict[str, Any], slot: float) -> dict[str, Any]:
    return {
        "seconds": total(row["seconds"]),
        "share": share(total(row["seconds"]), slot),
        "transfer_s": total(sum(row[phase] for phase in _TRANSFER)),
        "compute_s": total(sum(row[phase] for phase in _COMPUTE)),
        "attempts": int(row["attempts"]),
        "jobs": int(row["jobs"]),
        "reason": row["reason"],
    }


@dataclass(frozen=True)
class SiteFigures(JsonFigures):
    """The figures of one site; None: the log does not tell which site it was."""

    site: str | None
    jobs: int  # whose last attempt was here
    ended: int  # of these, all but the unfinished
    succeeded: int
    success_rate: float | None  # of the ended ones
    attempts: int
    attempts_executed: int
    failures: int  # attempts that ended without success
    stalls: int
    holds: int
    evictions: int
    slot_s: float
    transfer_s: float
    compute_s: float
    good_compute_s: float
    good_s: float
    bad_s: float
    compute_share: float | None
    goodput: float | None
    compute: Spread  # of the results of jobs that succeeded here
    transfer: Spread  # of the input transfers that arrived
    received: float | None
    transfer_rate: float | None


#: The figures that a site has as any group has them.
_OF_GROUPS = {each.name for each in fields(SiteFigures)} & {
    each.name for each in fields(GroupFigures)
}


def sites(accounts: Accounts, most: int | None = None) -> list[SiteFigures]:
    """The figures of each site.

    Args:
        accounts: The accounts.
        most: How many are wanted at most; None: all.

    Returns:
        One row a site, the one with the most slot time first, the unknown one last.
    """
    wanted = groups(accounts, By.SITE, most)
    names = pl.Series([group.key for group in wanted], dtype=pl.String)
    ran = accounts.jobs.select("site", "attempts", "outcome", "good_compute_s")
    jobs = _by_site(ran.filter(pl.col("attempts") > 0), names, _site_jobs())
    attempts = _by_site(accounts.attempts, names, _site_attempts())
    found = []
    for group in wanted:
        job, attempt = jobs.get(group.key, {}), attempts.get(group.key, {})
        ended = int(job.get("ended", 0))
        found.append(
            SiteFigures(
                site=group.key,
                ended=ended,
                success_rate=share(group.succeeded, ended),
                failures=int(attempt.get("failures", 0)),
                compute=read_spread(job, "compute"),
                transfer=read_spread(attempt, "transfer"),
                **{name: getattr(group, name) for name in _OF_GROUPS},
            )
        )
    return found


def _site_jobs() -> list[pl.Expr]:
    good = pl.col("outcome") == JobOutcome.SUCCESS.value
    return [
        (pl.col("outcome") != JobOutcome.UNFINISHED.value).sum().alias("ended"),
        *spread_of(pl.col("good_compute_s").filter(good), "compute"),
    ]


def _site_attempts() -> list[pl.Expr]:
    return [
        (~pl.col("ending").is_in(["success", "open"])).sum().alias("failures"),
        *spread_of(pl.col("transfer_in_s").filter(moved()), "transfer"),
    ]


def _by_site(
    frame: pl.DataFrame, names: pl.Series, figures: list[pl.Expr]
) -> dict[str | None, dict[str, Any]]:
    here = frame.lazy().with_columns(pl.col("site").cast(pl.String))
    here = here.filter(pl.col("site").is_in(names.implode(), nulls_equal=True))
    table = rounded(here.group_by("site").agg(figures).collect())
    return {row["site"]: row for row in table.iter_rows(named=True)}


__all__ = [
    "By",
    "CodeLoss",
    "Completion",
    "GroupFigures",
    "Histogram",
    "Loss",
    "SiteFigures",
    "Spread",
    "Totals",
    "completion",
    "groups",
    "losses",
    "sites",
    "totals",
    "transfer_lengths",
]
