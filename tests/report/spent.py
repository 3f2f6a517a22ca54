"""What accounts say was spent, and whether it adds up."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
from tests.report.columns import Made, made_columns

from headway.events.event import Kind
from headway.report.accounting import account
from headway.report.accounts import Accounts
from headway.report.enums import OFF_SLOT


def accounts_of(events: Sequence[tuple[float, Kind]], **more: object) -> Accounts:
    return account(made_columns([Made(at, kind) for at, kind in events]), **more)  # type: ignore[arg-type]


def spent(accounts: Accounts) -> dict[tuple[str, str, str], float]:
    """Seconds by phase, verdict and cause."""
    frame = accounts.pieces.group_by("phase", "verdict", "cause").agg(pl.col("seconds").sum())
    return {(p, v, c): s for p, v, c, s in frame.iter_rows()}


def adds_up(accounts: Accounts) -> None:
    """Every table tells the same seconds, to the microsecond."""

    def us(column: pl.Series) -> list[int]:
        return [round(value * 1e6) for value in column]

    pieces = (
        accounts.pieces.with_columns(us=(pl.col("seconds") * 1e6).round().cast(pl.Int64))
        .group_by("job")
        .agg(pl.col("us").sum())
    )
    by_piece = dict(pieces.iter_rows())
    jobs, attempts = accounts.jobs, accounts.attempts
    assert [by_piece.get(job, 0) for job in jobs["job"]] == us(jobs["total_s"])
    kinds = ("queued_s", "held_s", "prefetch_s", "stored_s", "delivery_s", "slot_s")
    parts = zip(*(us(jobs[kind]) for kind in kinds), strict=True)
    assert [sum(part) for part in parts] == us(jobs["total_s"])
    for frame in (jobs, attempts):
        worth = zip(us(frame["good_s"]), us(frame["bad_s"]), us(frame["open_s"]), strict=True)
        assert [sum(part) for part in worth] == us(frame["slot_s"])
    phases = [name for name in attempts.columns if name.endswith("_s")][:8]
    rows = zip(*(us(attempts[name]) for name in phases), strict=True)
    assert [sum(row) for row in rows] == us(attempts["slot_s"])
    lasted = zip(us(attempts["begin"]), us(attempts["end"]), strict=True)
    assert [end - begin for begin, end in lasted] == us(attempts["slot_s"])
    bad = accounts.pieces.filter(pl.col("verdict") == "bad")
    assert not bad.filter(pl.col("cause") == "none").height
    on_slot = accounts.pieces.filter(pl.col("verdict") != "none")
    assert on_slot["attempt"].null_count() == 0
    off = {phase.value for phase in OFF_SLOT}
    assert set(accounts.pieces.filter(pl.col("verdict") == "none")["phase"]) <= off
