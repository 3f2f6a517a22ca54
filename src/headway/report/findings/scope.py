"""What a finding is about: its jobs, its attempts, and the seconds that it accounts for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headway.report.accounts import Accounts, once
from headway.report.findings.finding import (
    NAMED,
    Step,
    avoid,
    avoid_machines,
    do,
    is_address,
    shown,
)
from headway.report.numbers import hours, span
from headway.report.words import Cause, Outcome, Phase, Verdict

#: Outcomes of jobs that have ended, or stand still, without a result.
NO_RESULT = (Outcome.FAILED.value, Outcome.HELD.value, Outcome.REMOVED.value)

#: Endings of attempts that say nothing about what went wrong.
NOT_FAILED = ("success", "open", Cause.REMOVED.value)


@dataclass(frozen=True)
class Scope:
    """The jobs and attempts that a finding is about, and the badput in them."""

    jobs: pl.Series
    attempts: pl.Series
    named: tuple[str, ...]
    rows: tuple[str, ...]  # the same, with the row of its table after each that has one
    held: tuple[str, ...]  # the first few that are held now, for lines that release them
    claim: pl.DataFrame
    lost: pl.Series
    gpu: bool  # all these jobs hold GPUs

    @property
    def cost_s(self) -> float:
        """Seconds of badput."""
        return float(self.claim.get_column("seconds").sum())

    @property
    def cost(self) -> str:
        """The badput in words: "302.2 GPU hours lost"."""
        return f"{slot_time(self.cost_s, self.gpu)} lost"

    @property
    def first_two(self) -> str:
        """Two of the jobs with their rows, and how many more there are."""
        more = self.jobs.len() - 2
        return ", ".join(self.rows[:2]) + (f" and {more:,} more" if more > 0 else "")


def scope(
    accounts: Accounts,
    attempts: pl.DataFrame,
    *,
    jobs: pl.Series | None = None,
    phases: Sequence[Phase] = (),
    causes: Sequence[Cause] = (),
    lost: pl.Series | None = None,
) -> Scope:
    """The scope of some rows of `Accounts.attempts`, and of `jobs` that have none of these.

    Only badput in `phases` and of `causes` is claimed, all if none are given. The jobs without a
    result count as lost to it, unless `lost` says which.
    """
    concerned = attempts.get_column("job")
    if jobs is not None:
        concerned = pl.concat([concerned, jobs.cast(pl.UInt32)])
    concerned = concerned.unique().sort()
    wanted = [name for name in _OF_A_JOB if name in accounts.jobs.columns]
    rows = accounts.jobs.select(wanted)[concerned]
    if lost is None:
        lost = _lost(accounts, rows, attempts, jobs)
    return Scope(
        jobs=concerned,
        attempts=attempts.get_column("attempt"),
        named=_names(rows),
        rows=_with_rows(rows),
        held=_names(rows.filter(pl.col("outcome") == Outcome.HELD.value)),
        claim=claim(accounts, attempts, phases, causes),
        lost=lost.cast(pl.UInt32),
        gpu=_on_gpus(accounts, rows),
    )


#: What a scope tells of its jobs.
_OF_A_JOB = ("job", "id", "row", "outcome", "log", "cluster", "gpus")


def _names(jobs: pl.DataFrame) -> tuple[str, ...]:
    return tuple(shown(name, 60) for name in jobs.get_column("id").head(NAMED).to_list())


def _with_rows(jobs: pl.DataFrame) -> tuple[str, ...]:
    if "row" not in jobs.columns:
        return _names(jobs)
    rows = jobs.get_column("row").head(NAMED).to_list()
    return tuple(
        f"{name} ({shown(row, 60)})" if row else name
        for name, row in zip(_names(jobs), rows, strict=True)
    )


def read_last_words(about: Scope) -> Step:
    """The advice where only the command knows why it failed."""
    return do(f"Read what the command wrote last: the error file of {about.first_two}.")


def _lost(
    accounts: Accounts, rows: pl.DataFrame, attempts: pl.DataFrame, jobs: pl.Series | None
) -> pl.Series:
    """Jobs without a result whose last attempt is concerned: what came before was got over."""
    stuck = rows.get_column("job").filter(rows.get_column("outcome").is_in(NO_RESULT)).to_numpy()
    concerned = np.zeros(accounts.attempts.height + 1, bool)
    concerned[attempts.get_column("attempt").to_numpy()] = True
    lost = concerned[last_attempts(accounts)[stuck]]  # -1: none, as the last of the flags says
    if jobs is not None:
        lost |= np.isin(stuck, jobs.to_numpy())
    return pl.Series("job", stuck[lost])


@once
def last_attempts(accounts: Accounts) -> NDArray[np.int64]:
    """The row of each job's last attempt, -1 for a job without one."""
    found = np.full(accounts.jobs.height, -1, np.int64)
    order = accounts.attempts.select("job", "attempt", "number").sort("job", "number", "attempt")
    found[order.get_column("job").to_numpy()] = order.get_column("attempt").to_numpy()
    return found


def _on_gpus(accounts: Accounts, rows: pl.DataFrame) -> bool:
    asked = rows.get_column("gpus")
    if asked.count():
        return bool((asked.drop_nulls() > 0).all())
    # A held job's log often has no table of resources; those of its cluster have.
    clusters = rows.select("log", "cluster").unique()
    mates = _gpus(accounts).join(clusters, on=["log", "cluster"], how="semi", nulls_equal=True)
    return mates.height > 0 and bool(mates.get_column("all").all())


@once
def _gpus(accounts: Accounts) -> pl.DataFrame:
    """The clusters whose GPUs are known, and whether all of their jobs asked for one."""
    known = accounts.jobs.select("log", "cluster", "gpus").drop_nulls("gpus")
    return known.group_by("log", "cluster").agg(all=(pl.col("gpus") > 0).all())


#: Columns of attempts that few findings ask for.
_NOT_LOOKED_AT = (
    "begin",
    "end",
    "waiting_s",
    "starting_s",
    "transfer_out_s",
    "disconnected_s",
    "suspended_s",
    "good_s",
    "open_s",
    "sent",
    "memory_used",
    "memory_asked",
    "disk_used",
    "disk_asked",
    "file",
    "offset",
)


def tried(accounts: Accounts) -> pl.DataFrame:
    """The attempts with what most findings ask for: copies of all columns are large."""
    return accounts.attempts.drop(_NOT_LOOKED_AT)


@once
def sited(accounts: Accounts) -> pl.DataFrame:
    """The attempts with their site, null where sites have names and only the machine is known."""
    attempts = tried(accounts).with_columns(pl.col("site", "machine").cast(pl.String))
    machine = pl.col("site").is_null() | (pl.col("site") == pl.col("machine")).fill_null(False)
    if not attempts.filter(~machine).height:
        return attempts
    return attempts.with_columns(site=pl.when(~machine).then("site"))


def stay_away(accounts: Accounts, place: str) -> tuple[Step, ...]:
    """The lines that keep jobs from a place: a site of the log, or a machine that has a name."""
    if place in accounts.site_names:
        return avoid([place])
    return () if is_address(place) else avoid_machines([place])


def tell_owners(accounts: Accounts, source: str) -> Step:
    """Who can mend a cache or origin."""
    osdf = "; for OSDF caches: support@osg-htc.org" if accounts.uses_osdf else ""
    return do(f"Tell the owners of {source}{osdf}.")


def example(accounts: Accounts, name: str) -> str:
    """A URL of the kind that the log knows, for a line that is to be filled in."""
    return f"{'osdf' if accounts.uses_osdf else 'https'}:///…/{name}".replace(
        "https:///", "https://"
    )


def claim(
    accounts: Accounts,
    attempts: pl.DataFrame,
    phases: Sequence[Phase] = (),
    causes: Sequence[Cause] = (),
) -> pl.DataFrame:
    """The badput of attempts, by attempt and phase."""
    concerned = np.zeros(accounts.attempts.height, bool)
    concerned[attempts.get_column("attempt").to_numpy()] = True
    bad = _badput(accounts)
    bad = bad.filter(pl.Series(concerned[bad.get_column("attempt").to_numpy()]))
    if phases:
        bad = bad.filter(pl.col("phase").is_in([phase.value for phase in phases]))
    if causes:
        bad = bad.filter(pl.col("cause").is_in([cause.value for cause in causes]))
    return (
        bad.group_by("attempt", pl.col("phase").to_physical().cast(pl.UInt8).alias("phase"))
        .agg(pl.col("seconds").sum())
        .filter(pl.col("seconds") > 0)
        .sort("attempt", "phase")
    )


@once
def _badput(accounts: Accounts) -> pl.DataFrame:
    """The pieces of attempts that were lost."""
    pieces = accounts.pieces.select("attempt", "phase", "cause", "verdict", "seconds")
    bad = pieces.filter(pl.col("verdict") == Verdict.BAD.value).drop("verdict")
    return bad.drop_nulls(["attempt", "phase"]).with_columns(
        pl.col("seconds").fill_nan(0).fill_null(0)
    )


def failed(accounts: Accounts) -> pl.DataFrame:
    """The attempts that have ended, otherwise than well or by removal."""
    return tried(accounts).filter(~pl.col("ending").fill_null("open").is_in(NOT_FAILED))


def ended(accounts: Accounts) -> pl.DataFrame:
    """The attempts that have ended, well or not, but not by removal, with their site."""
    out = ("open", Cause.REMOVED.value)
    return sited(accounts).filter(~pl.col("ending").fill_null("open").is_in(out))


def job_columns(accounts: Accounts, frame: pl.DataFrame, *names: str) -> pl.DataFrame:
    """The frame with columns of its jobs beside it."""
    return frame.join(accounts.jobs.select("job", *names), on="job", how="left")


def slot_time(seconds: float, gpu: bool) -> str:
    """Slot time in words: "302.2 GPU hours", "49 min of slot time"."""
    unit = "GPU" if gpu else "slot"
    text = hours(seconds)
    if span(seconds) != text:
        return f"{span(seconds)} of {unit} time"
    return text.removesuffix(" h") + f" {unit} hours"


def median(values: pl.Series) -> float | None:
    """The middle one, None where there is none."""
    value = values.drop_nulls().drop_nans().median() if values.len() else None
    return float(value) if isinstance(value, (int, float)) else None


def quantile(values: pl.Series, share: float) -> float | None:
    """The value that a share of all lies below, None where there are none."""
    value = values.drop_nulls().drop_nans().quantile(share, "linear") if values.len() else None
    return None if value is None else float(value)


def listed(names: Iterable[str | None], limit: int = 3, between: str = ", ") -> str:
    """A few names in a row: "a, b, c and 4 more"."""
    known = [name for name in names if name]
    rest = len(known) - limit
    text = between.join(shown(name, 80 if between == ", " else 200) for name in known[:limit])
    return f"{text} and {rest:,} more" if rest > 0 else text
