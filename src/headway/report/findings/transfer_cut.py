"""Input transfers that end at a time-out: none longer than the limit has ever arrived."""

from __future__ import annotations

import polars as pl

from headway.report.accounts import Accounts
from headway.report.findings.finding import (
    Finding,
    Step,
    config,
    do,
    job_toml,
    shown,
    submit,
)
from headway.report.findings.reasons import STALLED
from headway.report.findings.scope import example, failed, median, quantile, scope, sited, tried
from headway.report.numbers import count, limit, rate, size, span
from headway.report.words import Cause
from headway.text import many

#: Where the log itself names the limit there is nothing to infer; fewer are not worth a line.
NAMED_AT_LEAST = 3
#: When 10 of 10 transfers past a limit fail, at most 28 % of such transfers arrive (Wilson, 95 %).
INFERRED_AT_LEAST = 10
#: What people set limits to, in seconds.
ROUND = tuple(60 * minutes for minutes in (1, 2, 5, 10, 15, 20, 30, 45, 60, 90)) + tuple(
    3600 * hours for hours in (2, 3, 4, 6, 8, 10, 12, 16, 20, 24)
)
#: A cut comes within this share above its limit, for the starter looks only now and then; ...
TIGHT = 1.1
#: ... but a log without the 040 for queueing adds the queue to the transfer.
LOOSE = 1.5
#: The share of the long failures that must lie there.
PILE = 0.6
#: Below the limit failures must be rare: else they are not caused by it.
BELOW = 0.1

_STARTER = "STARTER_FILE_XFER_STALL_TIMEOUT"


def transfer_cut(accounts: Accounts) -> list[Finding]:
    """One finding for each limit that transfers were cut off at."""
    arrived = tried(accounts).filter(
        ~pl.col("agent_transfer").fill_null(False)
        & (pl.col("transfer_in_s") > 0)
        & pl.col("arrived").fill_null(False)
    )
    ended = (
        failed(accounts)
        .filter(~pl.col("arrived").fill_null(False) & (pl.col("transfer_in_s") > 0))
        .with_columns(
            said=pl.col("reason").cast(pl.String).str.extract(STALLED, 1).cast(pl.Float64)
        )
    )
    named = ended.filter(pl.col("said") > 0).with_columns(limit=_rounded(pl.col("said")))
    found = [
        _finding(accounts, float(at), part, arrived, named=True)
        for (at,), part in named.sort("limit").group_by("limit", maintain_order=True)
        if part.height >= NAMED_AT_LEAST and isinstance(at, float)
    ]
    rest = ended.filter(pl.col("said").is_null())
    inferred = inferred_limit(arrived.get_column("transfer_in_s"), rest.get_column("transfer_in_s"))
    if inferred is not None:
        past = rest.filter(pl.col("transfer_in_s") >= inferred)
        cut = past.filter(pl.col("ending") == Cause.TRANSFER_CUT.value)
        # A log that tells cuts from other ends is believed; one that cannot has cuts among them.
        past = cut if 2 * cut.height >= past.height else past
        found.append(_finding(accounts, inferred, past, arrived, named=False))
    return found


def inferred_limit(arrived: pl.Series, ended: pl.Series) -> float | None:
    """The round limit that failed transfers pile up at and no arrived one is longer than."""
    longest = _most(arrived)
    over = ended.filter(ended > longest)
    low = quantile(over, 0.05)
    if over.len() < INFERRED_AT_LEAST or low is None:
        return None
    at = max((value for value in ROUND if longest <= value <= low), default=None)
    if at is None:
        return None
    # With arrivals close below the limit, the gap itself is evidence; else only a tight pile is.
    reach = LOOSE if longest >= at / 2 else TIGHT
    piled = over.is_between(at, at * reach).sum()
    below = ended.is_between(at / 2, at, closed="left").sum()
    if piled < PILE * over.len() or below > BELOW * over.len():
        return None
    return float(at)


def _most(values: pl.Series) -> float:
    value = values.drop_nulls().max()
    return float(value) if isinstance(value, (int, float)) else 0.0


def _rounded(said: pl.Expr) -> pl.Expr:
    """The limit behind "stalled for 3607 seconds": the round number just below, if there is one."""
    close = [
        pl.when(said.is_between(value, value * 1.05 + 5)).then(pl.lit(float(value)))
        for value in reversed(ROUND)
    ]
    return pl.coalesce([*close, said])


def _finding(
    accounts: Accounts, at: float, cut: pl.DataFrame, arrived: pl.DataFrame, *, named: bool
) -> Finding:
    about = scope(accounts, cut)
    length = cut.get_column("transfer_in_s")
    # The agent's transfers are not under this limit, and HTCondor writes 0 for bytes unknown.
    bytes_in = median(arrived.filter(pl.col("received") > 0).get_column("received"))
    evidence = [
        ("transfers cut off", f"{count(cut.height)} in {many(about.jobs.len(), 'job')}"),
        ("shortest / median that was cut", f"{_exact(length.min())} / {_exact(length.median())}"),
        ("transfers that arrived", count(arrived.height)),
    ]
    if arrived.height:
        most = _most(arrived.get_column("transfer_in_s"))
        evidence.append(("longest that arrived", _exact(most)))
    if bytes_in:
        needed = f"{rate(bytes_in / at)} for {size(bytes_in)}"
        evidence.append(("rate that an input needs to arrive in time", needed))
    sites = sited(accounts).get_column("site").gather(cut.get_column("attempt")).drop_nulls()
    if sites.len():
        top = sites.value_counts(sort=True).sort("count", "site", descending=[True, False]).row(0)
        evidence.append(("most often at", f"{shown(top[0], 60)}: {top[1]:,} of {cut.height:,}"))
    evidence.append(("the limit is known from", _known_from(named)))
    return Finding(
        key=f"transfer-cut:{at:.0f}",
        title=f"{many(cut.height, 'input transfer')} {'was' if cut.height == 1 else 'were'} "
        f"cut off at {limit(at)}: {about.cost}",
        why=_why(at, _most(arrived.get_column("transfer_in_s")) if arrived.height else None),
        cost_s=about.cost_s,
        jobs=about.jobs.len(),
        attempts=cut.height,
        lost_jobs=about.lost.len(),
        named=about.named,
        evidence=tuple(evidence),
        advice=_advice(accounts, at),
        claim=about.claim,
        lost=about.lost,
    )


def _why(at: float, longest: float | None) -> str:
    if longest is None:
        never = "No input has arrived at all. "
    elif longest <= at:
        never = f"No input that took longer than {limit(at)} has ever arrived. "
    else:
        never = ""  # HTCondor's own transfers show progress, and may take longer
    return (
        f"{never}HTCondor's starter cuts a transfer plugin off at that age ({_STARTER}, 1 hour "
        "unless set; before version 25.2.1 even while bytes flow), puts the job back into the "
        "queue and begins again from byte 0. It is called a stall, but trying again at the same "
        "rate ends the same way."
    )


def _known_from(named: bool) -> str:
    if named:
        return 'the log: "Input File transfer stalled for … seconds"'
    return "the lengths: failures pile up at it, and nothing longer arrived"


def _exact(seconds: object) -> str:
    known = float(seconds) if isinstance(seconds, (int, float)) else None
    return f"{span(known)} ({count(known)} s)"


def _advice(accounts: Accounts, at: float) -> tuple[Step, ...]:
    return (
        job_toml(
            "Let the agent stage the data in, after the job has started: no cut-off applies, and a "
            "transfer that stalls goes on elsewhere from its last byte. Take the URL out of "
            "transfer_input_files and declare it as an input.",
            "[[inputs]]",
            'url = ["https://CACHE/DATA.tar", "https://ORIGIN/DATA.tar"]',
            'path = "DATA.tar"',
        ),
        submit(
            f"Or split the data so that each file arrives well within {limit(at)}, and let each "
            "job fetch only its own part.",
            f"transfer_input_files = {example(accounts, 'part-$(Process).tar')}",
        ),
        config(
            "The owner of the pool can raise the limit on the execution points.",
            f"{_STARTER} = {int(max(4 * at, 14400))}",
        ),
        do("Do not release or resubmit these jobs as they are: each try costs the same again."),
    )
