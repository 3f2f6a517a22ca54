"""Groups: the same figures for each site, user, cluster, hold code or hour."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

import polars as pl

from headway.report.accounts import Accounts
from headway.report.totals import rated
from headway.report.values import rounded, share, total
from headway.report.words import Cause, Outcome


class By(str, Enum):
    """What jobs and attempts can be grouped by."""

    SITE = "site"
    USER = "user"
    CLUSTER = "cluster"
    CODE = "code"  # of holds: "13/256"
    HOUR = "hour"  # in which an attempt began, UTC: "2024-09-02T13:00Z"


@dataclass(frozen=True)
class GroupFigures:
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

    def as_dict(self) -> dict[str, Any]:
        """As JSON types."""
        return asdict(self)


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
    keys = (_keyed_jobs(accounts, by, attempts, holds), attempts, holds)
    figures = [_OF_JOBS, of_attempts(), _OF_HOLDS]
    frames = [
        frame.group_by("key").agg(figure) for frame, figure in zip(keys, figures, strict=True)
    ]
    table = frames[0]
    for frame in frames[1:]:
        table = table.join(frame, on="key", how="full", coalesce=True, nulls_equal=True)
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
            **read_attempts(row),
        )
        for row in table.iter_rows(named=True)
    ]


_OF_JOBS = [
    pl.col("job").n_unique().alias("jobs"),
    pl.col("job").filter(pl.col("good")).n_unique().alias("succeeded"),
]
#: The columns of attempts that figures of groups are made of.
_ASKED = [
    "job",
    "attempt",
    "site",
    "begin",
    "executed",
    "arrived",
    "ending",
    "evicted",
    "transfer_in_s",
    "received",
    "slot_s",
    "compute_s",
    "good_compute_s",
    "good_s",
    "bad_s",
    "open_s",
]
_OF_HOLDS = [pl.len().alias("holds"), pl.col("held_s").sum()]
_COUNTS = ("attempts", "attempts_executed", "stalls", "evictions")
_SUMS = ("slot_s", "compute_s", "good_compute_s", "good_s", "bad_s", "open_s")


def of_attempts() -> list[pl.Expr]:
    """What attempts alone tell about a group, for an `agg`; `read_attempts` reads it."""
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


def read_attempts(row: dict[str, Any]) -> dict[str, Any]:
    """The figures that `of_attempts` worked out, of a `rounded` row, and shares between them."""
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
    good = (pl.col("outcome") == Outcome.SUCCESS.value).alias("good")
    jobs = accounts.jobs.select("job", "site", "user", "cluster", "attempts", good)
    if by is By.HOUR:
        success = (pl.col("ending") == Outcome.SUCCESS.value).alias("good")
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
