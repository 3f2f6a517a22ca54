"""Comparing reports: what got better than in the first, by how much, and whether by chance."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import chain, islice, product
from string import ascii_uppercase
from typing import Any

import polars as pl

from headway.report.accounts import JOBS, Accounts
from headway.report.enums import CAUSE_WORDS, Cause, JobOutcome
from headway.report.totals import Totals, rated, totals

#: Jobs of a run below which its figures are not worth much, whatever they are.
FEW = 10


class Unit(str, Enum):
    """How a figure is written."""

    COUNT = "count"
    NUMBER = "number"
    SHARE = "share"
    SECONDS = "seconds"
    BYTES = "bytes"
    RATE = "rate"


class Trend(str, Enum):
    """What a difference means."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    CHANCE = "may be chance"
    NONE = ""  # neither good nor bad, or not to be told


@dataclass(frozen=True)
class Difference:
    """One figure of two runs.

    `noise` is how far the two may lie apart by chance alone, 99 times out of 100; None: not known.
    """

    name: str
    unit: Unit
    a: float | None
    b: float | None
    better: int = 0  # 1: more is better, -1: less is, 0: neither
    noise: float | None = None

    @property
    def difference(self) -> float | None:
        return None if self.a is None or self.b is None else self.b - self.a

    @property
    def change(self) -> Trend:
        gap = self.difference
        if gap is None or not self.better:
            return Trend.NONE
        if abs(gap) <= 1e-9 * max(abs(self.a or 0), abs(self.b or 0)):
            return Trend.SAME
        if self.noise is None or abs(gap) <= self.noise:
            return Trend.CHANCE
        return Trend.BETTER if gap * self.better > 0 else Trend.WORSE


@dataclass(frozen=True)
class Figure:
    """One figure of every run; the first is the baseline, `noises` are those of the others."""

    name: str
    unit: Unit
    values: tuple[float | None, ...]
    better: int = 0
    noises: tuple[float | None, ...] = ()

    @cached_property
    def rows(self) -> tuple[Difference, ...]:
        """Each other run against the first."""
        first, *others = self.values
        noises = self.noises or (None,) * len(others)
        return tuple(
            Difference(self.name, self.unit, first, value, self.better, noise)
            for value, noise in zip(others, noises, strict=True)
        )

    @property
    def most(self) -> float:
        return max(value or 0.0 for value in self.values)

    @property
    def known(self) -> bool:
        return any(value is not None for value in self.values)

    def as_dict(self) -> dict[str, Any]:
        """As JSON types; the first run differs from nothing."""
        runs: list[dict[str, Any]] = [{"value": self.values[0]}]
        runs += [
            {
                "value": row.b,
                "difference": row.difference,
                "noise": row.noise,
                "change": row.change.value,
            }
            for row in self.rows
        ]
        return {"name": self.name, "unit": self.unit.value, "better": self.better, "runs": runs}


@dataclass(frozen=True)
class Pair:
    """One run against the first: the figures of a comparison that either of them has."""

    a: str
    b: str
    figures: tuple[Difference, ...]
    losses: tuple[Difference, ...]  # the largest of either first
    sites: dict[str, tuple[Difference, ...]]  # those of both first
    place: str = "site"  # what these are called


@dataclass(frozen=True)
class Comparison:
    """Reports side by side, the baseline first; `few` names those of too few jobs to tell much."""

    names: tuple[str, ...]
    figures: tuple[Figure, ...]
    losses: tuple[Figure, ...]  # shares of each run's own slot time, by cause
    sites: dict[str, tuple[Figure, ...]]  # those of any run
    few: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what a reader should know of any run
    place: str = "site"  # or "machine", where no log names sites

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Each other run against the first."""
        return tuple(self._pair(place) for place in range(len(self.names) - 1))

    def _pair(self, place: int) -> Pair:
        def rows(figures: Iterable[Figure]) -> tuple[Difference, ...]:
            return tuple(figure.rows[place] for figure in figures)

        lost = [row for row in rows(self.losses) if row.a or row.b]
        lost.sort(key=lambda row: -max(row.a or 0.0, row.b or 0.0))
        sites = {site: rows(figures) for site, figures in self.sites.items()}
        here = {
            site: any(row.a for row in found) + any(row.b for row in found)
            for site, found in sites.items()
        }
        shown = sorted(filter(here.get, sites), key=lambda site: (-here[site], site))
        return Pair(
            self.names[0],
            self.names[place + 1],
            rows(self.figures),
            tuple(lost),
            {site: sites[site] for site in shown},
            self.place,
        )

    def as_dict(self) -> dict[str, Any]:
        """As JSON types."""
        return {
            "runs": list(self.names),
            "figures": [figure.as_dict() for figure in self.figures],
            "losses": [figure.as_dict() for figure in self.losses],
            "sites": {
                site: [figure.as_dict() for figure in figures]
                for site, figures in self.sites.items()
            },
            "few": list(self.few),
            "notes": list(self.notes),
        }


def compare(a: Accounts, b: Accounts, *more: Accounts, names: Sequence[str] = ()) -> Comparison:
    """What got better from `a` to `b`, and to each other one."""
    runs = [_Run(accounts) for accounts in (a, b, *more)]
    named = tuple(names) or letters(len(runs))
    few = [name for name, run in zip(named, runs, strict=True) if run.ended.height < FEW]
    place = "site" if any(each.place == "site" for each in (a, b, *more)) else "machine"
    return Comparison(
        named, tuple(_figures(runs)), tuple(_losses(runs)), _sites(runs), tuple(few), place=place
    )


def letters(number: int) -> tuple[str, ...]:
    """So many names where there are none to tell runs apart: A to Z, then AA."""
    words = (product(ascii_uppercase, repeat=length) for length in itertools.count(1))
    return tuple(map("".join, islice(chain.from_iterable(words), number)))


class _Run:
    def __init__(self, accounts: Accounts) -> None:
        self.jobs = accounts.jobs
        self.attempts = accounts.attempts
        self.pieces = accounts.pieces
        self.totals: Totals = totals(accounts)
        self.ended = self.jobs.filter(pl.col("outcome") != JobOutcome.UNFINISHED.value)
        self.good = self.jobs.filter(pl.col("outcome") == JobOutcome.SUCCESS.value)


_Runs = Sequence[_Run]


def _figures(runs: _Runs) -> list[Figure]:
    done = [run.good["end"] - run.good["matched"] for run in runs]
    cost = [_ratio(run.jobs["slot_s"], run.jobs["outcome"] == "success") for run in runs]
    # Logs without transfers have nothing to say of them.
    moved = any(run.totals.transfer_s or run.totals.stalls for run in runs)
    return [
        Figure("jobs", Unit.COUNT, tuple(run.totals.jobs for run in runs)),
        _figure(
            "success, of jobs that ended", Unit.SHARE, [_proportion(run.ended) for run in runs], 1
        ),
        _of_slot("compute share", runs, "good_compute_s"),
        _of_slot("goodput", runs, "good_s"),
        _figure("slot time per result", Unit.SECONDS, cost, -1),
        _figure("time to result, mean", Unit.SECONDS, [_mean(series) for series in done], -1),
        _figure("time to result, median", Unit.SECONDS, [_median(series) for series in done], -1),
        _per_job("attempts per job", runs, "attempts"),
        *([_per_job("stalls per job", runs, "stalls")] if moved else []),
        _per_job("evictions per job", runs, "evictions"),
        _per_job("holds per job", runs, "holds"),
        _figure("bytes in per result", Unit.BYTES, [_bytes(run) for run in runs], -1),
        _figure("transfer rate", Unit.RATE, [_rate(run.attempts) for run in runs], 1),
    ]


def _losses(runs: _Runs) -> list[Figure]:
    """Each cause's share of the slot time, the largest of any run first."""
    figures = []
    for cause in Cause:
        lost = [
            run.pieces.filter((pl.col("verdict") == "bad") & (pl.col("cause") == cause.value))
            .group_by("job")
            .agg(pl.col("seconds").sum().alias("lost"))
            for run in runs
        ]
        if all(each.is_empty() for each in lost):
            continue
        shares = []
        for run, each in zip(runs, lost, strict=True):
            table = run.jobs.select("job", "slot_s").join(each, on="job", how="left")
            shares.append(_ratio(table["lost"].fill_null(0.0), table["slot_s"]))
        figures.append(_figure(CAUSE_WORDS[cause], Unit.SHARE, shares, -1))
    return sorted(figures, key=lambda figure: -figure.most)


def _sites(runs: _Runs) -> dict[str, tuple[Figure, ...]]:
    """Each site of any run, those of most runs first: jobs that ended, success, compute, rate."""
    found: dict[str, tuple[Figure, ...]] = {}
    ended = [_by_site(run.ended.select("site", "outcome")) for run in runs]
    good = [_by_site(run.good.select("site", "good_compute_s")) for run in runs]
    tried = [run.attempts.select("site", *_RATED, moved=rated()) for run in runs]
    known = [_by_site(table.filter("moved")) for table in tried]
    names = [set(table["site"].drop_nulls().unique().cast(pl.String).to_list()) for table in tried]
    for site in sorted(
        set().union(*names), key=lambda site: (-sum(site in each for each in names), site)
    ):
        jobs = [parts.get(site, _NO_JOBS) for parts in ended]
        taken = [parts.get(site, _NO_RESULT)["good_compute_s"] for parts in good]
        rates = [_ratio(*(parts.get(site, _NO_BYTES)[name] for name in _RATED)) for parts in known]
        found[site] = (
            Figure("ended", Unit.COUNT, tuple(each.height for each in jobs)),
            _figure("success", Unit.SHARE, [_proportion(each) for each in jobs], 1),
            _figure("compute, mean", Unit.SECONDS, [_mean(series) for series in taken], -1),
            _figure("transfer rate", Unit.RATE, rates, 1),
        )
    return found


_RATED = ("received", "transfer_in_s")
_NO_JOBS = pl.DataFrame(schema={"outcome": JOBS["outcome"]})
_NO_RESULT = pl.DataFrame(schema={"good_compute_s": pl.Float64})
_NO_BYTES = pl.DataFrame(schema=dict.fromkeys(_RATED, pl.Float64))


def _by_site(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """The rows of each site; all at once, for there may be thousands of sites."""
    frame = frame.drop_nulls("site").with_columns(pl.col("site").cast(pl.String))
    parts = frame.partition_by("site", as_dict=True)
    return {str(site): part for (site,), part in parts.items()}


#: A figure and its standard error, and how many cases it is of.
_Estimate = tuple[float | None, float | None, int]


def _figure(name: str, unit: Unit, runs: Sequence[_Estimate], better: int) -> Figure:
    values = tuple(value for value, _, _ in runs)
    noises = tuple(_noise(runs[0], other) for other in runs[1:])
    return Figure(name, unit, values, better, noises)


def _noise(a: _Estimate, b: _Estimate) -> float | None:
    (_, error_a, n_a), (_, error_b, n_b) = a, b
    if error_a is None or error_b is None:
        return None
    return _student(min(n_a, n_b) - 1) * math.hypot(error_a, error_b)


def _of_slot(name: str, runs: _Runs, column: str) -> Figure:
    shares = [_ratio(run.jobs[column], run.jobs["slot_s"]) for run in runs]
    return _figure(name, Unit.SHARE, shares, 1)


def _per_job(name: str, runs: _Runs, column: str) -> Figure:
    return _figure(name, Unit.NUMBER, [_mean(run.jobs[column]) for run in runs], -1)


def _proportion(jobs: pl.DataFrame) -> _Estimate:
    number = jobs.height
    if not number:
        return None, None, 0
    good = int((jobs["outcome"] == JobOutcome.SUCCESS.value).sum())
    # Two more of each kind, or 3 of 3 would seem to be without any doubt (Agresti and Coull).
    near = (good + 2) / (number + 4)
    return good / number, math.sqrt(near * (1 - near) / (number + 4)), number


def _mean(values: pl.Series) -> _Estimate:
    known = values.drop_nulls().cast(pl.Float64)
    if known.len() < 2:
        return (float(known[0]) if known.len() else None), None, known.len()
    return _float(known.mean()), _float(known.std()) / math.sqrt(known.len()), known.len()


def _median(values: pl.Series) -> _Estimate:
    middle = values.drop_nulls().median()
    _, error, number = _mean(values)
    # Of a normal distribution the median strays a quarter further than the mean.
    return None if middle is None else _float(middle), error and 1.2533 * error, number


def _ratio(parts: pl.Series, wholes: pl.Series) -> _Estimate:
    """A ratio of sums over jobs, with the error that comes from which jobs they happened to be."""
    part, whole = parts.cast(pl.Float64), wholes.cast(pl.Float64)
    below, number = float(whole.sum()), part.len()
    if not below > 0:
        return None, None, number
    ratio = float(part.sum()) / below
    if number < 2:
        return ratio, None, number
    rest = part - ratio * whole
    return ratio, math.sqrt(float((rest * rest).sum()) * number / (number - 1)) / below, number


def _bytes(run: _Run) -> _Estimate:
    if not run.totals.received:
        return None, None, 0
    sums = run.attempts.group_by("job").agg(pl.col("received").sum().alias("moved"))
    table = run.jobs.select("job", "outcome").join(sums, on="job", how="left")
    return _ratio(table["moved"].fill_null(0.0), table["outcome"] == JobOutcome.SUCCESS.value)


def _rate(attempts: pl.DataFrame) -> _Estimate:
    known = attempts.filter(rated())
    return _ratio(known["received"], known["transfer_in_s"])


def _student(freedom: int) -> float:
    """How many standard errors 99 of 100 cases lie within, of few cases rather more.

    So strict, because there are dozens of figures: of those, 19 in 20 would leave some to chance.
    """
    if freedom < 1:
        return math.inf
    return 2.58 + 5.0 / freedom + 56.0 / freedom**3


def _float(value: Any) -> float:
    return float(value)
