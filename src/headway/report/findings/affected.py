"""What a finding is about: its jobs, its attempts, and the seconds that it accounts for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from headway.report.accounts import OUTCOMES, Accounts, once
from headway.report.enums import Cause, JobOutcome, Phase, Worth
from headway.report.findings.finding import (
    NAMED,
    Finding,
    LogPosition,
    LostSeconds,
    Rows,
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

_CODE = {outcome: place for place, outcome in enumerate(OUTCOMES.categories)}
#: Outcomes of jobs that have ended, or stand still, without a result.
_NO_RESULT = [
    _CODE[each.value] for each in (JobOutcome.FAILED, JobOutcome.HELD, JobOutcome.REMOVED)
]


@dataclass(frozen=True)
class Affected:
    """The jobs and attempts that a finding is about, and the badput in them."""

    jobs: int
    attempts: int
    named: tuple[str, ...]  # the first few jobs
    rows: tuple[str, ...]  # the same, with the row of its table after each that has one
    held: tuple[str, ...]  # the first few that are held now, for lines that release them
    seconds: LostSeconds
    lost: Rows  # jobs that have no result because of it
    gpu: bool  # all these jobs hold GPUs

    @property
    def cost_s(self) -> float:
        """Seconds of badput."""
        return self.seconds.total_s

    @property
    def cost(self) -> str:
        """The badput in words: "302.2 GPU hours lost"."""
        return f"{slot_time(self.cost_s, self.gpu)} lost"

    @property
    def first_two(self) -> str:
        """Two of the jobs with their rows, and how many more there are."""
        more = self.jobs - 2
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
            jobs=self.jobs,
            attempts=self.attempts,
            lost_jobs=len(self.lost),
            named=self.named,
            evidence=tuple(evidence),
            table=table,
            advice=tuple(advice),
            seconds=self.seconds,
            lost=self.lost,
            echo=echo,
        )


class _Columns(NamedTuple):
    """What is looked up for every finding, by the row of a job or an attempt."""

    job: NDArray[np.uint32]  # of each attempt
    last: NDArray[np.int64]  # attempt of each job, -1 for none
    outcome: NDArray[np.uint8]  # of each job, as its place in `OUTCOMES`
    gpus: NDArray[np.float64]  # of each job; NaN: not known


@once
def _columns(accounts: Accounts) -> _Columns:
    last = np.full(accounts.jobs.height, -1, np.int64)
    order = accounts.attempts.select("job", "attempt", "number").sort("job", "number", "attempt")
    last[order.get_column("job").to_numpy()] = order.get_column("attempt").to_numpy()
    return _Columns(
        accounts.attempts.get_column("job").to_numpy(),
        last,
        accounts.jobs.get_column("outcome").to_physical().to_numpy(),
        accounts.jobs.get_column("gpus").to_numpy(),
    )


def affected(
    accounts: Accounts,
    attempts: pl.DataFrame | None,
    *,
    jobs: pl.Series | None = None,
    phases: Sequence[Phase] = (),
    causes: Sequence[Cause] = (),
    lost: Rows | None = None,
) -> Affected:
    """What the attempts of a table, and `jobs` that may have none of these, are about.

    Args:
        accounts: The accounts.
        attempts: Rows with a column `attempt`, in which null is none.
        jobs: Further jobs.
        phases: Only badput in these is counted; all if none are given.
        causes: Only badput of these is counted; all if none are given.
        lost: The jobs that count as lost to it; else all without a result whose last attempt is
            among the attempts, and `jobs` without a result.

    Returns:
        The jobs, the attempts and their badput.
    """
    columns = _columns(accounts)
    tried = np.zeros(len(columns.job) + 1, bool)  # one more for "no attempt", -1
    concerned, more = (np.zeros(len(columns.last), bool) for _ in range(2))
    if attempts is not None:
        tried[attempts.get_column("attempt").drop_nulls().to_numpy()] = True
        concerned[columns.job[tried[:-1]]] = True
    if jobs is not None:
        more[jobs.to_numpy()] = True
    every = np.flatnonzero(concerned | more)
    outcome = columns.outcome[every]
    if lost is None:
        # What came before a job's last attempt was got over.
        mine = tried[columns.last[every]] | more[every]
        lost = every[mine & np.isin(outcome, _NO_RESULT)]
    names = _names(accounts, every)
    return Affected(
        jobs=len(every),
        attempts=int(tried.sum()),
        named=names,
        rows=_with_rows(accounts, names, every),
        held=_names(accounts, every[outcome == _CODE[JobOutcome.HELD.value]]),
        seconds=_lost_seconds(accounts, tried, phases, causes),
        lost=lost,
        gpu=_on_gpus(accounts, every),
    )


def last_attempts(accounts: Accounts, jobs: pl.Series) -> Rows:
    """The row of each job's last attempt, -1 for a job without one."""
    return np.asarray(_columns(accounts).last[jobs.to_numpy()])


def _names(accounts: Accounts, jobs: Rows) -> tuple[str, ...]:
    return tuple(map(short_name, accounts.jobs.get_column("id").gather(jobs[:NAMED])))


def _with_rows(accounts: Accounts, names: tuple[str, ...], jobs: Rows) -> tuple[str, ...]:
    if "row" not in accounts.jobs.columns:
        return names
    rows = accounts.jobs.get_column("row").gather(jobs[:NAMED])
    return tuple(
        f"{name} ({short_name(row)})" if row else name
        for name, row in zip(names, rows, strict=True)
    )


def read_error_file(about: Affected) -> Step:
    """The advice where only the command knows why it failed."""
    return do(f"Read what the command wrote last: the error file of {about.first_two}.")


def _on_gpus(accounts: Accounts, jobs: Rows) -> bool:
    asked = _columns(accounts).gpus[jobs]
    known = ~np.isnan(asked)
    if known.any():
        return bool((asked[known] > 0).all())
    # A held job's log often has no table of resources; those of its cluster have.
    clusters = _gpu_clusters(accounts)
    if not clusters.height:
        return False
    mine = accounts.jobs.select("log", "cluster")[jobs].unique()
    mates = clusters.join(mine, on=["log", "cluster"], how="semi", nulls_equal=True)
    return mates.height > 0 and bool(mates.get_column("all").all())


@once
def _gpu_clusters(accounts: Accounts) -> pl.DataFrame:
    """The clusters whose GPUs are known, and whether all of their jobs asked for one."""
    known = accounts.jobs.select("log", "cluster", "gpus").drop_nulls("gpus")
    return known.group_by("log", "cluster").agg(all=(pl.col("gpus") > 0).all())


@once
def sited(accounts: Accounts) -> pl.DataFrame:
    """The attempts with their site, null where sites have names and only the machine is known.

    Only the columns that findings ask for: copies of all are large.
    """
    attempts = accounts.attempts.select(
        *("attempt", "job", "number", "executed", "arrived", "ending", "cause", "code", "subcode"),
        *("return_value", "checkpoints", "transfer_in_s", "compute_s", "checkpoint_s", "slot_s"),
        *("good_compute_s", "bad_s", "received", "agent_transfer", "cpu_s", "evicted"),
        pl.col("site", "machine", "reason").cast(pl.String),
    )
    sites = accounts.named_sites
    return attempts.with_columns(sites) if sites.count() else attempts


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


def _lost_seconds(
    accounts: Accounts, tried: NDArray[np.bool_], phases: Sequence[Phase], causes: Sequence[Cause]
) -> LostSeconds:
    """The badput of the attempts whose flag is set, by attempt and phase."""
    bad = _badput(accounts)
    mine = tried[bad.attempt]
    for values, wanted, words in ((bad.phase, phases, Phase), (bad.cause, causes, Cause)):
        if wanted:
            mine &= np.isin(values, [list(words).index(word) for word in wanted])
    key = bad.attempt[mine] * np.int64(len(Phase)) + bad.phase[mine]
    keys, place = np.unique(key, return_inverse=True)
    seconds = np.asarray(np.bincount(place, bad.seconds[mine], len(keys)), np.float64)
    keys, seconds = keys[seconds > 0], seconds[seconds > 0]
    return LostSeconds(keys // len(Phase), (keys % len(Phase)).astype(np.uint8), seconds)


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


@once
def _endings(accounts: Accounts) -> pl.DataFrame:
    """Of each attempt, whether it has ended but not by removal, and whether so without success."""
    ending = sited(accounts).get_column("ending").fill_null("open")
    ended = ~ending.is_in(["open", Cause.REMOVED.value])
    return pl.DataFrame({"ended": ended, "failed": ended & (ending != "success")})


def ended(accounts: Accounts, *names: str) -> pl.DataFrame:
    """These columns of the attempts that have ended, well or not, but not by removal."""
    return sited(accounts).select(names).filter(_endings(accounts).get_column("ended"))


def failed(accounts: Accounts, *names: str) -> pl.DataFrame:
    """These columns of the attempts that have ended otherwise than well or by removal."""
    return sited(accounts).select(names).filter(_endings(accounts).get_column("failed"))


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


def sorted_names(names: pl.Series) -> list[str]:
    """The different names of a column, sorted."""
    return names.unique().drop_nulls().cast(pl.String).sort().to_list()


def listed(names: Sequence[str], limit: int = 3, between: str = ", ") -> str:
    """A few names in a row: "a, b, c and 4 more"."""
    known = [name for name in names if name]
    rest = len(known) - limit
    text = between.join(shown(name, 80 if between == ", " else 200) for name in known[:limit])
    return f"{text} and {rest:,} more" if rest > 0 else text


#: How many events are cited; the tables of `--csv` have them all.
_CITED = 3


def cited_events(accounts: Accounts, finding: Finding) -> tuple[LogPosition, ...]:
    """The events that ended the attempts behind a finding.

    Args:
        accounts: The accounts.
        finding: What a detector saw.

    Returns:
        A few, those that cost most first; of a finding that cost nothing, those of the jobs that
        it names. A job that never had an attempt is cited by its log alone.
    """
    lost = finding.seconds
    if len(lost.attempt):
        attempts, first = np.unique(lost.attempt, return_index=True)
        seconds = np.add.reduceat(lost.seconds, first)
        attempts = attempts[np.lexsort((attempts, -seconds))[:_CITED]]
        jobs = _columns(accounts).job[attempts]
    else:
        ids = accounts.jobs.get_column("id")
        jobs = ids.is_in(list(finding.named)).arg_true().head(_CITED).to_numpy()
        attempts = _columns(accounts).last[jobs]
    events = accounts.attempts.select("file", "offset")
    logs = accounts.jobs.select("id", "log")[jobs].rows()
    found = [events.row(at) if at >= 0 else (None, None) for at in attempts.tolist()]
    return tuple(
        LogPosition(shown(name, 60), shown(file or log or "", 200), offset)
        for (name, log), (file, offset) in zip(logs, found, strict=True)
    )


#: A finding that may say what others say better is left out when they have this share of it.
ECHO = 0.5


class Remainder(NamedTuple):
    """What is left of a finding's seconds when those that others count are taken off."""

    shared_s: float
    shared_with: tuple[str, ...]
    missing_s: float  # what the results take that are missing because of it
    weight_s: float


class Counted:
    """Which seconds and jobs findings have counted: the same second is counted once."""

    def __init__(self, accounts: Accounts) -> None:
        self._attempts = accounts.attempts.height
        self._counted: dict[int, NDArray[np.float64]] = {}  # by phase: seconds of each attempt
        self._owner: dict[int, NDArray[np.int16]] = {}  # by phase: who counted first
        self._lost = np.zeros(accounts.jobs.height, bool)
        self._keys: list[str] = []
        good = accounts.jobs.filter(pl.col("outcome") == JobOutcome.SUCCESS.value)
        #: What a result takes: the slot time of a successful job's own result.
        self._result_s = median(good.get_column("good_s")) or 0.0

    def enter(self, finding: Finding) -> Remainder | None:
        """Count what nobody has counted yet, and say what somebody has.

        None: other findings have said it all.
        """
        lost, shared, owners = finding.seconds, 0.0, set[int]()
        parts = [(phase, lost.phase == phase) for phase in np.unique(lost.phase).tolist()]
        for phase, mine in parts:
            if phase in self._counted:
                # Of one attempt's phase, two findings count the same seconds as far as they can.
                at = lost.attempt[mine]
                both = np.minimum(self._counted[phase][at], lost.seconds[mine])
                shared += float(both.sum())
                owners |= set(self._owner[phase][at][both > 0].tolist())
        new = int((~self._lost[finding.lost]).sum())
        cost = finding.cost_s or 0.0
        shared = min(shared, cost)
        every = cost + len(finding.lost) * self._result_s
        left = cost - shared + new * self._result_s
        if finding.echo and every > 0 and left <= (1 - ECHO) * every:
            return None
        for phase, mine in parts:
            self._count(phase, lost.attempt[mine], lost.seconds[mine])
        self._lost[finding.lost] = True
        self._keys.append(finding.key)
        waiting = (finding.waiting_s or 0.0) if finding.slot_waiting else 0.0
        return Remainder(
            shared_s=shared,
            shared_with=tuple(self._keys[at] for at in sorted(owners)),
            missing_s=new * self._result_s,
            weight_s=left + waiting,
        )

    def _count(self, phase: int, at: Rows, seconds: NDArray[np.float64]) -> None:
        if phase not in self._counted:
            self._counted[phase] = np.zeros(self._attempts)
            self._owner[phase] = np.full(self._attempts, -1, np.int16)
        owner, counted = self._owner[phase], self._counted[phase]
        owner[at] = np.where(owner[at] < 0, len(self._keys), owner[at])
        counted[at] = np.maximum(counted[at], seconds)
