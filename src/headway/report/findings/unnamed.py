"""What no other detector names: holds and losses that are a large share all the same.

The other detectors know mechanisms. A log can lose most of its time to something that is none of
them, and a report must not say then that nothing stands out.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from headway.report.accounts import Accounts, once
from headway.report.findings.finding import Finding, Step, do, shell, shown
from headway.report.findings.reasons import Told, caused_ends, caused_holds, what
from headway.report.findings.scope import Scope, listed, read_last_words, scope
from headway.report.words import CAUSE_WORDS, Cause
from headway.text import many

#: What concerns this share of the jobs, or of all slot time, has to be named.
SHARE = 0.1
_POLICY = "The job attribute "  # HTCondor's words for a rule of the submit file that put a job back


_PURPOSE = {
    "user-request": "somebody held them by hand",
    "submitted-on-hold": "they were submitted on hold",
}


def unnamed(accounts: Accounts) -> list[Finding]:
    """A finding for each kind of hold, and each cause of loss, that is a large share."""
    # What another finding has told of already is left out by the ledger: these are echoes.
    return [*_holds(accounts), *_losses(accounts)]


def _holds(accounts: Accounts) -> Iterator[Finding]:
    if not accounts.holds.height:
        return
    holds = caused_holds(accounts)
    kinds = holds.group_by("cause").agg(jobs=pl.col("job").n_unique())
    for cause, _ in kinds.sort("jobs", "cause", descending=[True, False]).iter_rows():
        held = holds.filter(pl.col("cause") == cause)
        ended = accounts.attempts_at(held.get_column("attempt"))
        if not _may_be_large(accounts, held, ended):
            continue
        about = scope(accounts, ended, jobs=held.get_column("job"))
        if not _is_large(accounts, about):
            continue
        told = Told(held)
        were = "was" if about.jobs.len() == 1 else "were"
        yield _finding(
            accounts,
            about,
            key=f"held:{cause}",
            words=f"{were} held: {_PURPOSE.get(cause, told.headline)} ({told.number})",
            why=told.why,
            # Nearly every reason names its own file or slot: the first stands for all.
            evidence=(("the reason", shown(told.reason)), ("code/subcode", told.number))
            if told.reason
            else (("code/subcode", told.number),),
            advice=(do(told.do), *_about_holds(accounts, about)),
        )


def _losses(accounts: Accounts) -> Iterator[Finding]:
    lost = accounts.attempts.filter(pl.col("cause") != Cause.NONE.value)
    for cause in (cause for cause in Cause if cause is not Cause.NONE):
        ended = lost.filter(pl.col("cause") == cause.value)
        if not _may_be_large(accounts, ended, ended):
            continue
        about = scope(accounts, ended)
        if not _is_large(accounts, about):
            continue
        reasons = ended.get_column("reason").cast(pl.String).drop_nulls().unique().sort()
        said = [reason for reason in reasons.to_list() if not reason.startswith(_POLICY)]
        values = ended.get_column("return_value").drop_nulls().unique().sort().to_list()
        words = f"lost time: {CAUSE_WORDS[cause]}"
        if cause is Cause.FAILED and len(said) == 1:
            words = f"failed: {what(said[0])}"
        elif cause is Cause.FAILED and not said and values:
            words = f"failed: return value {listed(map(str, values))}"
        told = None if cause is Cause.FAILED else _by_words(accounts, ended)
        why = "No pattern that Headway knows explains this loss."
        step = do(f"Look at what the log says of {about.first_two}.")
        if cause is Cause.FAILED:
            why, step = "The cause is in the command's own words.", read_last_words(about)
        elif told:
            words, why, step = f"lost time: {told.headline}", told.why, do(told.do)
        yield _finding(
            accounts,
            about,
            key=f"lost:{cause.value}",
            words=words,
            why=why,
            evidence=(("the reason", what(told.reason if told else said[0])),) if said else (),
            advice=(step,),
        )


def _by_words(accounts: Accounts, ended: pl.DataFrame) -> Told | None:
    """What the reasons of most of these attempts say, if the table of holds knows it."""
    said = caused_ends(accounts)[ended.get_column("attempt")].filter(pl.col("reason") != "")
    said = said.drop_nulls("cause")
    kinds = said.group_by("cause").len().sort("len", "cause", descending=[True, False])
    if not kinds.height or 2 * kinds.item(0, "len") < ended.height:
        return None
    told = Told(said.filter(pl.col("cause") == kinds.item(0, "cause")))
    return None if told.entry.id == "unknown" else told


def _may_be_large(accounts: Accounts, rows: pl.DataFrame, ended: pl.DataFrame) -> bool:
    """By the rows that name its jobs and by its attempts: what is small need not be looked at."""
    return rows.height >= SHARE * accounts.jobs.height > 0 or (
        float(ended.get_column("bad_s").fill_nan(0).sum()) >= 0.99 * SHARE * _slot_s(accounts)
    )


def _is_large(accounts: Accounts, about: Scope) -> bool:
    return about.lost.len() >= SHARE * accounts.jobs.height > 0 or (
        about.cost_s > 0 and about.cost_s >= SHARE * _slot_s(accounts)
    )


@once
def _slot_s(accounts: Accounts) -> float:
    return float(accounts.jobs.get_column("slot_s").fill_nan(0).sum())


def _finding(
    accounts: Accounts,
    about: Scope,
    *,
    key: str,
    words: str,
    why: str,
    evidence: tuple[tuple[str, str], ...],
    advice: tuple[Step, ...],
) -> Finding:
    jobs = about.jobs.len()
    cost = f"; {about.cost}" if about.cost_s >= 1 else ""
    return Finding(
        key=key,
        title=f"{many(jobs, 'job')} of {accounts.jobs.height:,} {words}{cost}",
        why=why,
        cost_s=about.cost_s,
        jobs=jobs,
        attempts=about.attempts.len(),
        lost_jobs=about.lost.len(),
        named=about.named,
        evidence=(*evidence, ("without a result to this day", many(about.lost.len(), "job"))),
        advice=advice,
        claim=about.claim,
        lost=about.lost,
        echo=True,
    )


def _about_holds(accounts: Accounts, about: Scope) -> tuple[Step, ...]:
    rows = accounts.jobs_at(about.jobs)
    logs = rows.get_column("log").cast(pl.String).drop_nulls().unique().sort().head(1).to_list()
    return (
        shell(
            "See what the hold means, whether a release helps, and what to change.",
            f"headway advise {shown(logs[0], 200) if logs else 'LOG'}",
        ),
    )
