"""Jobs stopped at a limit on how long they may take."""

from __future__ import annotations

import polars as pl

from headway.report.accounts import Accounts
from headway.report.findings.alike import against_mates, clearly_worse, with_cluster
from headway.report.findings.finding import Finding, Step, do, job_toml, shell, shown, submit
from headway.report.findings.reasons import TOO_LONG, allowed_duration, caused_ends
from headway.report.findings.scope import Scope, listed, median, scope, sited, stay_away
from headway.report.numbers import limit, percent, span
from headway.report.words import Cause, Outcome
from headway.text import many

#: Hold codes of HTCondor's own limits (allowed_job_duration, allowed_execute_duration).
CODES = {46: "job", 47: "execute"}
#: Hold codes of policies, where only the text tells what they are about.
POLICIES = (3, 21, 26)
#: Where the OSPool, which names its sites, holds jobs of its categories "Medium" and "Long".
MEDIUM, LONG = 72000.0, 144000.0
#: allowed_job_duration counts from the start, whatever was saved since.
WHOLE_JOB = 46
#: A site stands out when its jobs are stopped this many times as often as the others'.
FACTOR = 3.0
#: Fewer attempts, there or elsewhere, are no picture.
ATTEMPTS_AT_LEAST = 5


def duration(accounts: Accounts) -> list[Finding]:
    """One finding for each limit; the log names it, so a single job is enough."""
    code, reason = pl.col("code"), pl.col("reason").cast(pl.String)
    by_policy = pl.col("attempt").is_in(_stopped_by_rules(accounts).implode())
    over = (pl.col("ending") == Cause.OVER_TIME.value) | code.is_in(list(CODES)) | by_policy
    # What computed nothing until then is no matter of time, and another finding's.
    over = over.fill_null(False) & (pl.col("cause") != Cause.IDLE.value).fill_null(True)
    cut = accounts.attempts.filter(over).with_columns(reason=reason)
    if not cut.height:
        return []
    limits = {text: _limit(text) for text in cut.get_column("reason").unique().to_list()}
    cut = cut.with_columns(
        limit=pl.col("reason").replace_strict(limits, default=None, return_dtype=pl.Float64)
    )
    parts = cut.sort("limit", nulls_last=True).group_by("limit", maintain_order=True)
    return [_finding(accounts, at if isinstance(at, float) else None, p) for (at,), p in parts]


def _stopped_by_rules(accounts: Accounts) -> pl.Series:
    """The attempts that a rule of the job or of the pool ended because of their time."""
    ruled = pl.col("code").is_in(POLICIES) & pl.col("cause").is_in(TOO_LONG)
    return caused_ends(accounts).filter(ruled).get_column("attempt")


def _limit(reason: str | None) -> float | None:
    found = allowed_duration(reason)
    return found[1] if found else None


def _finding(accounts: Accounts, at: float | None, cut: pl.DataFrame) -> Finding:
    about = scope(accounts, cut)
    good = accounts.jobs.filter(pl.col("outcome") == Outcome.SUCCESS.value)
    typical = median(good.get_column("good_compute_s"))
    evidence = [
        ("computed until then (median)", span(median(cut.get_column("compute_s")))),
        ("checkpoints that they wrote", f"{cut.get_column('checkpoints').sum():,}"),
    ]
    if typical is not None and good.height:
        compared = f"{span(typical)} ({many(good.height, 'job')})"
        evidence.append(("compute of jobs that succeeded (median)", compared))
    where = sited(accounts).get_column("site").gather(cut.get_column("attempt")).drop_nulls()
    if where.len():
        evidence.append(("where", listed(where.unique().sort().to_list())))
    bad_site = _site(accounts, cut)
    if bad_site:
        site, here, share = bad_site
        told = f"{shown(site, 60)}: {here:,} of them, {percent(share)} of what ran there"
        evidence.append(("far more often than elsewhere at", told))
    of = f" of {limit(at)}" if at else ""
    jobs = about.jobs.len()
    stopped = f"{many(jobs, 'job')} {'was' if jobs == 1 else 'were'} stopped"
    return Finding(
        key=f"over-time:{at:.0f}" if at else "over-time",
        title=f"{stopped} at the time limit{of}: {about.cost}",
        why=_why(at, typical, cut),
        cost_s=about.cost_s,
        jobs=jobs,
        attempts=cut.height,
        lost_jobs=about.lost.len(),
        named=about.named,
        evidence=tuple(evidence),
        advice=_advice(
            accounts,
            at,
            typical,
            about,
            bad_site[0] if bad_site else None,
            whole=bool((cut.get_column("code") == WHOLE_JOB).any()),
        ),
        claim=about.claim,
        lost=about.lost,
    )


def _why(at: float | None, typical: float | None, cut: pl.DataFrame) -> str:
    saved = cut.get_column("checkpoints").sum()
    text = "A job that runs into the limit is put on hold"
    text += ", and without a checkpoint all that it computed is lost." if not saved else "."
    if at and typical is not None and typical < at / 2:
        return (
            f"{text} Jobs like it needed {span(typical)}: these were on a slow node or hung, "
            "rather than too long for the limit."
        )
    return f"{text} Released as it is, it runs into the limit again."


def _site(accounts: Accounts, cut: pl.DataFrame) -> tuple[str, int, float] | None:
    """The site where it happens far more often than to the same clusters elsewhere."""
    ran = sited(accounts).filter(pl.col("executed") & pl.col("site").is_not_null())
    stopped = pl.col("attempt").is_in(cut.get_column("attempt").implode())
    ran = with_cluster(accounts, ran).with_columns(stopped=stopped)
    rows = clearly_worse(against_mates(ran, "site", "stopped"), FACTOR, ATTEMPTS_AT_LEAST)
    if not rows.height:
        return None
    row = rows.sort("hits", "site", descending=[True, False]).row(0, named=True)
    return str(row["site"]), int(row["hits"]), row["hits"] / row["of"]


def _advice(
    accounts: Accounts,
    at: float | None,
    typical: float | None,
    about: Scope,
    site: str | None,
    *,
    whole: bool,
) -> tuple[Step, ...]:
    gain = (
        "what is saved is not lost at the limit, and a released job goes on from there."
        if whole
        else "the limit then counts from the last checkpoint, and nothing is lost."
    )
    steps: list[Step] = [
        submit(
            f"Write a checkpoint, exit with 85 and be started again: {gain}",
            "checkpoint_exit_code = 85",
            "transfer_checkpoint_files = checkpoint.pt",
        ),
        job_toml(
            "The same in job.toml.",
            "[checkpoint]",
            'paths = ["checkpoint.pt"]',
            'interval = "1 h"',
        ),
    ]
    ospool = at == MEDIUM and bool(accounts.site_names)
    if ospool and (typical is None or typical > MEDIUM / 4):
        steps += [
            submit(
                "A job that needs 10 to 20 hours belongs in the longer category of the OSPool, "
                "which is held at 40 hours.",
                '+JobDurationCategory = "Long"',
            ),
            job_toml("The same in job.toml.", 'duration = "Long"'),
        ]
    if site:
        steps += stay_away(accounts, site)
    if about.held:
        steps.append(_released(at if ospool else None, typical, about.held[0]))
    return tuple(steps)


def _released(at: float | None, typical: float | None, job: str) -> Step:
    if at != MEDIUM:
        return do("Change the job before it is released: unmodified it will be held again.")
    if typical is not None and typical < at / 2:
        # More time helps no job that hung or met a slow node.
        return shell(
            "Submit the held jobs again, with a checkpoint, rather than release them: the OSPool "
            "forbids to release unmodified what was held for its duration.",
            f"condor_rm {job}",
        )
    # The category is turned into the limit when a job is submitted: both must be changed.
    return shell(
        "Change the job before it is released: unmodified it will be held again, and the OSPool "
        "forbids it.",
        f"condor_qedit {job} JobDurationCategory '\"Long\"' AllowedExecuteDuration {LONG:.0f}",
        f"condor_release {job}",
    )
