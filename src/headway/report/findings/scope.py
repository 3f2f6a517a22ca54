"""What a finding is about: its jobs, its attempts, and the seconds that it accounts for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headway.report.accounts import Accounts, once
from headway.report.enums import Cause, JobOutcome, Phase, Worth
from headway.report.findings.finding import (
    NAMED,
    Finding,
    Step,
    Table,
    avoid,
    avoid_machines,
    do,
    is_address,
    short_name,
    shown,
)
from headway.report.numbers import hours, span

#: Outcomes of jobs that have ended, or stand still, without a result.
NO_RESULT = (JobOutcome.FAILED.value, JobOutcome.HELD.value, JobOutcome.REMOVED.value)

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

    def finding(
        self,
        *,
        key: str,
        title: str,
        why: str,
        evidence: Iterable[tuple[str, str]],
        advice: Iterable[Step],
        table: Table | None = None,
        echo: bool = False,
    ) -> Finding:
        """The finding that these jobs lost this badput."""
        return Finding(
            key=key,
            title=title,
            why=why,
            cost_s=self.cost_s,
            jobs=self.jobs.len(),
            attempts=self.attempts.len(),
            lost_jobs=self.lost.len(),
            named=self.named,
            evidence=tuple(evidence),
            table=table,
            advice=tuple(advice),
            claim=self.claim,
            lost=self.lost,
            echo=echo,
        )


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
        held=_names(rows.filter(pl.col("outcome") == JobOutcome.HELD.value)),
        claim=claim(accounts, attempts, phases, causes),
        lost=lost.cast(pl.UInt32),
        gpu=_on_gpus(accounts, rows),
    )


#: What a scope tells of its jobs.
_OF_A_JOB = ("job", "id", "row", "outcome", "log", "cluster", "gpus")


def _names(jobs: pl.DataFrame) -> tuple[str, ...]:
    return tuple(short_name(name) for name in jobs.get_column("id").head(NAMED).to_list())


def _with_rows(jobs: pl.DataFrame) -> tuple[str, ...]:
    if "row" not in jobs.columns:
        return _names(jobs)
    rows = jobs.get_column("row").head(NAMED).to_list()
    return tuple(
        f"{name} ({short_name(row)})" if row else name
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
    mine = concerned[bad.attempt]
    for values, wanted, words in ((bad.phase, phases, Phase), (bad.cause, causes, Cause)):
        if wanted:
            mine &= np.isin(values, [list(words).index(word) for word in wanted])
    key = bad.attempt[mine].astype(np.int64) * len(Phase) + bad.phase[mine]
    keys, place = np.unique(key, return_inverse=True)
    seconds = np.bincount(place, bad.seconds[mine], len(keys))
    return pl.DataFrame(
        {
            "attempt": (keys // len(Phase)).astype(np.uint32),
            "phase": (keys % len(Phase)).astype(np.uint8),
            "seconds": seconds,
        }
    ).filter(seconds > 0)


class _Badput(NamedTuple):
    """The pieces of attempts that were lost, as arrays; phase and cause by their place."""

    attempt: NDArray[np.uint32]
    phase: NDArray[np.uint8]
    cause: NDArray[np.uint8]
    seconds: NDArray[np.float64]


@once
def _badput(accounts: Accounts) -> _Badput:
    bad = (
        accounts.pieces.lazy()
        .filter(pl.col("verdict") == Worth.BAD.value)
        .drop_nulls(["attempt", "phase"])
        .select(
            pl.col("attempt").cast(pl.UInt32),
            pl.col("phase").to_physical().cast(pl.UInt8),
            pl.col("cause").to_physical().cast(pl.UInt8).fill_null(0),
            pl.col("seconds").fill_nan(0).fill_null(0),
        )
        .collect()
    )
    return _Badput(*(column.to_numpy() for column in bad))


def failed(accounts: Accounts) -> pl.DataFrame:
    """The attempts that have ended, otherwise than well or by removal."""
    return tried(accounts).filter(~pl.col("ending").fill_null("open").is_in(NOT_FAILED))


def ended(accounts: Accounts, *names: str) -> pl.DataFrame:
    """These columns of the attempts that have ended, well or not, but not by removal."""
    out = ("open", Cause.REMOVED.value)
    return sited(accounts).select(names).filter(~pl.col("ending").fill_null("open").is_in(out))


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


#: A finding that may say what others say better is left out when they have this share of it.
ECHO = 0.5


class Remainder(NamedTuple):
    """What is left of a finding's claim when those before it have had theirs."""

    shared_s: float
    shared_with: tuple[str, ...]
    missing_s: float  # what the results take that are missing because of it
    weight_s: float


class Claims:
    """Which seconds and jobs findings have claimed: the same second is counted once."""

    def __init__(self, accounts: Accounts) -> None:
        self._attempts = accounts.attempts.height
        self._claimed: dict[int, NDArray[np.float64]] = {}  # by phase: seconds of each attempt
        self._owner: dict[int, NDArray[np.int16]] = {}  # by phase: who claimed first
        self._lost = np.zeros(accounts.jobs.height, bool)
        self._keys: list[str] = []
        good = accounts.jobs.filter(pl.col("outcome") == JobOutcome.SUCCESS.value)
        #: What a result takes: the slot time of a successful job's own result.
        self._result_s = median(good.get_column("good_s")) or 0.0

    def enter(self, finding: Finding) -> Remainder | None:
        """Claims what nobody has claimed, and says what somebody has; None: all is told already."""
        shared, owners = 0.0, set[int]()
        parts = {int(str(p)): part for (p,), part in finding.claim.group_by("phase")}
        for phase, part in parts.items():
            seconds, who = self._shared(phase, part)
            shared += seconds
            owners |= who
        lost = finding.lost.to_numpy()
        new = int((~self._lost[lost]).sum()) if len(lost) else 0
        cost = finding.cost_s or 0.0
        shared = min(shared, cost)
        whole = cost + len(lost) * self._result_s
        left = cost - shared + new * self._result_s
        if finding.echo and whole > 0 and left <= (1 - ECHO) * whole:
            return None
        for phase, part in parts.items():
            self._claim(phase, part, len(self._keys))
        self._lost[lost] = True
        self._keys.append(finding.key)
        waiting = (finding.waiting_s or 0.0) if finding.slot_waiting else 0.0
        return Remainder(
            shared_s=shared,
            shared_with=tuple(self._keys[at] for at in sorted(owners)),
            missing_s=new * self._result_s,
            weight_s=cost - shared + waiting + new * self._result_s,
        )

    def _shared(self, phase: int, part: pl.DataFrame) -> tuple[float, set[int]]:
        """Of one attempt's phase, two claims are taken for the same as far as they can be."""
        if phase not in self._claimed:
            return 0.0, set()
        at, seconds = _numbers(part)
        shared = np.minimum(self._claimed[phase][at], seconds)
        return float(shared.sum()), set(np.unique(self._owner[phase][at][shared > 0]).tolist())

    def _claim(self, phase: int, part: pl.DataFrame, me: int) -> None:
        if phase not in self._claimed:
            self._claimed[phase] = np.zeros(self._attempts)
            self._owner[phase] = np.full(self._attempts, -1, np.int16)
        at, seconds = _numbers(part)
        owner, claimed = self._owner[phase], self._claimed[phase]
        owner[at] = np.where(owner[at] < 0, me, owner[at])
        claimed[at] = np.maximum(claimed[at], seconds)


def _numbers(part: pl.DataFrame) -> tuple[NDArray[np.uint32], NDArray[np.float64]]:
    return part.get_column("attempt").to_numpy(), part.get_column("seconds").to_numpy()
