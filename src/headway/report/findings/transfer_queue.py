"""Jobs that hold a slot and wait until the access point has a transfer slot for them."""

from __future__ import annotations

import polars as pl

from headway.report.accounts import Accounts
from headway.report.findings.finding import Finding, config, job_toml, submit
from headway.report.findings.scope import example, median, quantile, scope
from headway.report.numbers import hours, percent, span
from headway.report.words import Phase, Verdict
from headway.text import many

#: Below this share of all slot time, and this many seconds, the queue does its work.
SHARE = 0.02
AT_LEAST = 3600.0
#: A wait that a person would notice, and how many attempts must have had it.
NOTICED = 300.0
ATTEMPTS_AT_LEAST = 10


def transfer_queue(accounts: Accounts) -> list[Finding]:
    """At most one finding: the slot time that waited for the access point."""
    waited = accounts.attempts.filter(pl.col("waiting_s") > 0)
    total = float(waited.get_column("waiting_s").sum())
    slot_s = max(float(accounts.attempts.get_column("slot_s").sum()), total)
    long = waited.filter(pl.col("waiting_s") >= NOTICED)
    if long.height < ATTEMPTS_AT_LEAST or total < max(AT_LEAST, SHARE * slot_s):
        return []
    about = scope(accounts, long.head(0), jobs=long.get_column("job"))
    # What of this was lost with its attempt is counted where the attempt is.
    kept = accounts.pieces.filter(
        (pl.col("phase") == Phase.WAITING.value) & (pl.col("verdict") != Verdict.BAD.value)
    )
    return [
        Finding(
            key="transfer-queue",
            title=f"Slots waited {hours(total)} for a transfer slot at the access point: "
            f"{percent(total / slot_s)} of all slot time",
            why="The access point sends only so many inputs at once; a job that is matched in the "
            "meantime holds its slot and waits.",
            waiting_s=float(kept.get_column("seconds").sum()),
            waiting="of slot time waited",
            jobs=about.jobs.len(),
            attempts=long.height,
            named=about.named,
            evidence=(
                ("attempts that waited 5 min or longer", many(long.height, "attempt")),
                (
                    "median / 95th percentile of those that waited",
                    f"{span(median(waited.get_column('waiting_s')))} / "
                    f"{span(quantile(waited.get_column('waiting_s'), 0.95))}",
                ),
            ),
            advice=(
                submit(
                    "Take large inputs off the access point: a URL is fetched by the node itself.",
                    f"transfer_input_files = {example(accounts, 'DATA.tar')}",
                ),
                job_toml("The same in job.toml.", "[[inputs]]", 'url = "https://CACHE/DATA.tar"'),
                submit("Start fewer jobs at once.", "max_materialize = 50"),
                config(
                    "The owner of the access point can let more transfers run at once, if its disk "
                    "and its network bear it (uploads are inputs, seen from there).",
                    "MAX_CONCURRENT_UPLOADS = 200",
                    "MAX_CONCURRENT_DOWNLOADS = 200",
                ),
            ),
        )
    ]
