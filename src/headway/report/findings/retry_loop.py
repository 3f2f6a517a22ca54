"""Retry loops: jobs that try again and again and end the same way each time."""

from __future__ import annotations

import polars as pl

from headway.node.exits import MEANING
from headway.report.accounts import Accounts
from headway.report.findings.finding import Finding, Step, Table, job_toml, shown, submit
from headway.report.findings.reasons import caused_ends, what
from headway.report.findings.scope import failed, scope
from headway.report.numbers import count, span
from headway.report.words import CAUSE_WORDS, Cause
from headway.text import many

#: Twice or three times may be bad luck; this often, with nothing gained, is a loop.
SAME_AT_LEAST = 5
#: How many kinds of loop are told.
MOST = 3


def retry_loop(accounts: Accounts) -> list[Finding]:
    """One finding for each way in which jobs go round."""
    way = ["ending", "code", "subcode", "return_value", "template"]
    tried = failed(accounts).filter(pl.col("checkpoints").fill_null(0) == 0)
    busy = tried.group_by("job").len().filter(pl.col("len") >= SAME_AT_LEAST)
    tried = tried.join(busy, on="job", how="semi")
    if not tried.height:
        return []
    template = caused_ends(accounts).get_column("template").gather(tried.get_column("attempt"))
    tried = tried.with_columns(template)
    loops = (
        tried.group_by("job", *way)
        .agg(tries=pl.len(), seconds=pl.col("bad_s").sum())
        .filter(pl.col("tries") >= SAME_AT_LEAST)
    )
    if not loops.height:
        return []
    ways = (
        loops.group_by(way)
        .agg(pl.col("tries").sum(), pl.col("seconds").sum())
        .sort("seconds", "tries", *way, descending=[True, True] + [False] * 5, nulls_last=True)
        .head(MOST)
    )
    return [
        _finding(
            accounts,
            loops.join(one, on=way, how="semi", nulls_equal=True),
            tried.join(one, on=way, how="semi", nulls_equal=True),
        )
        for one in ways.iter_slices(1)
    ]


def _finding(accounts: Accounts, loops: pl.DataFrame, tried: pl.DataFrame) -> Finding:
    tried = tried.join(loops, on="job", how="semi")
    about = scope(accounts, accounts.attempts_at(tried.get_column("attempt")))
    names = accounts.jobs.select("job", "id", "outcome")
    longest = loops.join(names, on="job").sort("tries", "job", descending=[True, False])
    top, first = longest.row(0, named=True), tried.row(0, named=True)
    how = _how(first)
    solved = longest.filter(pl.col("outcome").cast(pl.String) == "success").height
    return Finding(
        key=f"retry-loop:{first['ending']}:{first['code']}:{first['return_value']}",
        title=f"{many(loops.height, 'job')} tried {SAME_AT_LEAST} times or more and ended the same "
        f"way each time ({how}): {about.cost}",
        why="Nothing is different from one try to the next: no checkpoint was gained, and no other "
        "place or setting was tried.",
        cost_s=about.cost_s,
        jobs=loops.height,
        attempts=tried.height,
        lost_jobs=about.lost.len(),
        named=about.named,
        evidence=(
            ("tries that ended so", count(tried.height)),
            ("most of one job", f"{shown(top['id'], 40)}: {top['tries']:,} tries"),
            ("succeeded in the end", many(solved, "job")),
            ("what they say", what(str(first["reason"])) if first["reason"] else "nothing"),
        ),
        table=Table(
            ("job", "tries", "lost", "now"),
            tuple(
                (shown(r["id"], 40), count(r["tries"]), span(r["seconds"]), str(r["outcome"]))
                for r in longest.head(5).iter_rows(named=True)
            ),
        ),
        advice=_advice(accounts, str(first["ending"])),
        claim=about.claim,
        lost=about.lost,
        echo=True,
    )


def _how(row: dict[str, object]) -> str:
    words = {cause.value: text for cause, text in CAUSE_WORDS.items()}
    text = words.get(str(row["ending"]), str(row["ending"]))
    if row["return_value"]:
        # The agent's words have the command's own exit code in them; its own code has none.
        said = row["reason"] if row["return_value"] in MEANING else None
        value = what(str(said)) if said else f"return value {row['return_value']}"
        return value if row["ending"] == Cause.FAILED.value else f"{text}, {value}"
    if row["code"] is not None and row["ending"] == Cause.HOLD.value:
        return f"{text}, code {row['code']}"
    return text


def _advice(accounts: Accounts, ending: str) -> tuple[Step, ...]:
    key = {"failed": "command", "bad-node": "node"}.get(ending, "input")
    # Every slot has a Machine; only glideins have a name for their site.
    place = "GLIDEIN_ResourceName" if accounts.site_names else "Machine"
    return (
        submit(
            "Stop after a few tries, and look. NumJobStarts does not count tries whose input never "
            "arrived; NumShadowStarts does.",
            "periodic_hold = NumShadowStarts > 8 && JobStatus == 1",
            'periodic_hold_reason = "tried 8 times"',
        ),
        submit(
            f"Keep each new try away from the last {'site' if accounts.site_names else 'machine'} "
            "(join it with && to requirements that you have).",
            f"job_machine_attrs = {place}",
            "job_machine_attrs_history_length = 4",
            # 0 is the present site by the time that this is asked; a first try has no past.
            f"requirements = (MY.MachineAttr{place}1 =?= undefined || "
            f"TARGET.{place} =!= MY.MachineAttr{place}1)",
        ),
        job_toml("In job.toml both are the default, with these bounds.", "[retries]", f"{key} = 3"),
    )
