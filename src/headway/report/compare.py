"""Comparing two reports: what got better, by how much, and whether it may be chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

import polars as pl

from headway.report.accounts import Accounts
from headway.report.totals import Totals, rated, totals
from headway.report.words import CAUSE_WORDS, Cause, Outcome

#: Jobs of a side below which its figures are not worth much, whatever they are.
FEW = 10


class Unit(str, Enum):
    """How a figure is written."""

    COUNT = "count"
    NUMBER = "number"
    SHARE = "share"
    SECONDS = "seconds"
    BYTES = "bytes"
    RATE = "rate"


class Change(str, Enum):
    """What a difference means."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    CHANCE = "may be chance"
    NONE = ""  # neither good nor bad, or not to be told


@dataclass(frozen=True)
class Row:
    """One figure of both sides.

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
    def change(self) -> Change:
        gap = self.difference
        if gap is None or not self.better:
            return Change.NONE
        if abs(gap) <= 1e-9 * max(abs(self.a or 0), abs(self.b or 0)):
            return Change.SAME
        if self.noise is None or abs(gap) <= self.noise:
            return Change.CHANCE
        return Change.BETTER if gap * self.better > 0 else Change.WORSE

    def as_dict(self) -> dict[str, Any]:
        """As JSON types."""
        facts = asdict(self) | {"unit": self.unit.value}
        return facts | {"difference": self.difference, "change": self.change.value}


@dataclass(frozen=True)
class Comparison:
    """Two reports side by side; `few` names the sides with too few jobs to tell much."""

    a: str
    b: str
    figures: tuple[Row, ...]
    losses: tuple[Row, ...]  # shares of each side's slot time, by cause
    sites: dict[str, tuple[Row, ...]]  # those of either side
    few: tuple[str, ...]
    notes: tuple[str, ...] = ()  # what a reader should know of either side

    def as_dict(self) -> dict[str, Any]:
        """As JSON types."""
        return {
            "a": self.a,
            "b": self.b,
            "figures": [row.as_dict() for row in self.figures],
            "losses": [row.as_dict() for row in self.losses],
            "sites": {site: [row.as_dict() for row in rows] for site, rows in self.sites.items()},
            "few": list(self.few),
            "notes": list(self.notes),
        }


def compare(a: Accounts, b: Accounts, names: tuple[str, str] = ("A", "B")) -> Comparison:
    """What got better from `a` to `b`."""
    both = (_Side(a), _Side(b))
    few = [name for name, side in zip(names, both, strict=True) if side.ended.height < FEW]
    return Comparison(*names, tuple(_figures(both)), tuple(_losses(both)), _sites(both), tuple(few))


class _Side:
    def __init__(self, accounts: Accounts) -> None:
        self.jobs = accounts.jobs
        self.attempts = accounts.attempts
        self.pieces = accounts.pieces
        self.totals: Totals = totals(accounts)
        self.ended = self.jobs.filter(pl.col("outcome") != Outcome.UNFINISHED.value)
        self.good = self.jobs.filter(pl.col("outcome") == Outcome.SUCCESS.value)


_Both = tuple[_Side, _Side]


def _figures(both: _Both) -> list[Row]:
    done = [side.good["end"] - side.good["matched"] for side in both]
    cost = [_ratio(side.jobs["slot_s"], side.jobs["outcome"] == "success") for side in both]
    t = (both[0].totals, both[1].totals)
    return [
        Row("jobs", Unit.COUNT, t[0].jobs, t[1].jobs),
        _share("success, of jobs that ended", both),
        _of_slot("compute share", both, "good_compute_s"),
        _of_slot("goodput", both, "good_s"),
        _row("slot time per result", Unit.SECONDS, cost, -1),
        _row("time to result, mean", Unit.SECONDS, [_mean(series) for series in done], -1),
        _row("time to result, median", Unit.SECONDS, [_median(series) for series in done], -1),
        _per_job("attempts per job", both, "attempts"),
        _per_job("stalls per job", both, "stalls"),
        _per_job("evictions per job", both, "evictions"),
        _per_job("holds per job", both, "holds"),
        _row("bytes in per result", Unit.BYTES, [_bytes(side) for side in both], -1),
        _row("transfer rate", Unit.RATE, [_rate(side.attempts) for side in both], 1),
    ]


def _losses(both: _Both) -> list[Row]:
    """Each cause's share of the slot time, the largest of either side first."""
    rows = []
    for cause in Cause:
        lost = [
            side.pieces.filter((pl.col("verdict") == "bad") & (pl.col("cause") == cause.value))
            .group_by("job")
            .agg(pl.col("seconds").sum().alias("lost"))
            for side in both
        ]
        if all(each.is_empty() for each in lost):
            continue
        shares = []
        for side, each in zip(both, lost, strict=True):
            table = side.jobs.select("job", "slot_s").join(each, on="job", how="left")
            shares.append(_ratio(table["lost"].fill_null(0.0), table["slot_s"]))
        rows.append(_row(CAUSE_WORDS[cause], Unit.SHARE, shares, -1))
    return sorted(rows, key=lambda row: -max(row.a or 0.0, row.b or 0.0))


def _sites(both: _Both) -> dict[str, tuple[Row, ...]]:
    """Each site of either side: jobs that ended, success, compute and rate."""
    found: dict[str, tuple[Row, ...]] = {}
    names = [set(side.attempts["site"].drop_nulls().cast(pl.String).to_list()) for side in both]
    for site in sorted(
        names[0] | names[1], key=lambda name: (name not in names[0] & names[1], name)
    ):
        here = pl.col("site").cast(pl.String) == site
        ended = [side.ended.filter(here) for side in both]
        good = [side.good.filter(here)["good_compute_s"] for side in both]
        attempts = [side.attempts.filter(here) for side in both]
        found[site] = (
            Row("ended", Unit.COUNT, ended[0].height, ended[1].height),
            _row("success", Unit.SHARE, [_proportion(jobs) for jobs in ended], 1),
            _row("compute, mean", Unit.SECONDS, [_mean(series) for series in good], -1),
            _row("transfer rate", Unit.RATE, [_rate(table) for table in attempts], 1),
        )
    return found


#: A figure and its standard error, and how many cases it is of.
_Estimate = tuple[float | None, float | None, int]


def _row(name: str, unit: Unit, sides: Sequence[_Estimate], better: int) -> Row:
    (a, error_a, n_a), (b, error_b, n_b) = sides
    noise = None
    if error_a is not None and error_b is not None:
        noise = _student(min(n_a, n_b) - 1) * math.hypot(error_a, error_b)
    return Row(name, unit, a, b, better, noise)


def _share(name: str, both: _Both) -> Row:
    return _row(name, Unit.SHARE, [_proportion(side.ended) for side in both], 1)


def _of_slot(name: str, both: _Both, column: str) -> Row:
    sides = [_ratio(side.jobs[column], side.jobs["slot_s"]) for side in both]
    return _row(name, Unit.SHARE, sides, 1)


def _per_job(name: str, both: _Both, column: str) -> Row:
    return _row(name, Unit.NUMBER, [_mean(side.jobs[column]) for side in both], -1)


def _proportion(jobs: pl.DataFrame) -> _Estimate:
    number = jobs.height
    if not number:
        return None, None, 0
    good = int((jobs["outcome"] == Outcome.SUCCESS.value).sum())
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


def _bytes(side: _Side) -> _Estimate:
    if not side.attempts["received"].count():
        return None, None, 0
    sums = side.attempts.group_by("job").agg(pl.col("received").sum().alias("moved"))
    table = side.jobs.select("job", "outcome").join(sums, on="job", how="left")
    return _ratio(table["moved"].fill_null(0.0), table["outcome"] == Outcome.SUCCESS.value)


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
