"""Losses: badput by cause, and below each cause by the code that HTCondor gave for it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from headway.report.accounts import Accounts
from headway.report.values import share, total
from headway.report.words import CAUSE_WORDS, SLOT_PHASES, Cause, Phase, Verdict


@dataclass(frozen=True)
class CodeLoss:
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

    def as_dict(self) -> dict[str, Any]:
        """As JSON types."""
        return asdict(self)


@dataclass(frozen=True)
class Loss:
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

    def as_dict(self) -> dict[str, Any]:
        """As JSON types."""
        return asdict(self) | {"codes": [code.as_dict() for code in self.codes]}


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
    pieces = accounts.pieces.lazy().filter(pl.col("verdict") == Verdict.BAD.value)
    by_phase = [
        pl.col("seconds").filter(pl.col("phase") == phase.value).sum().alias(phase.value)
        for phase in SLOT_PHASES
    ]
    strikes = pieces.group_by("job", "attempt", "cause").agg(pl.col("seconds").sum(), *by_phase)
    ended = accounts.attempts.lazy().select(
        "attempt", "code", "subcode", "reason", pl.col("cause").alias("its_cause")
    )
    # The code tells what ended the attempt: of another cause, such as a suspension, it is no news.
    cause = pl.col("cause")
    its = (cause == pl.col("its_cause")) | (cause == Cause.REDONE.value)
    told = [pl.when(its).then(pl.col(name)) for name in ("code", "subcode", "reason")]
    return (
        strikes.join(ended, on="attempt", how="left")
        .with_columns(pl.col("cause").cast(pl.String), *told)
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
