"""Jobs that ended with the same non-zero return value or signal."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from headway.node.exits import MEANING, Exit
from headway.pool.policy import enough_for
from headway.report.accounts import Accounts
from headway.report.findings.finding import Finding, Step, do, job_toml, shell, submit
from headway.report.findings.resources import MEMORY
from headway.report.findings.scope import (
    Scope,
    example,
    listed,
    median,
    read_last_words,
    scope,
)
from headway.report.findings.stats import wilson
from headway.report.numbers import binary, percent, span
from headway.report.words import Cause, Outcome
from headway.text import many

#: Fewer jobs with the same value are not a pattern; ...
JOBS_AT_LEAST = 5
#: ... nor is a rate that may be below this, of all jobs that ended.
RATE = 0.01
#: How many values are told.
MOST = 5
#: Seconds: a command that fails sooner has not begun to work.
AT_ONCE = 60.0
#: How the agent tells of a command's own end.
_EXITED = r"\Athe command exited with (\d{1,3})"


def exit_code(accounts: Accounts) -> list[Finding]:
    """One finding for each return value or signal that many jobs ended with."""
    over = accounts.jobs.filter(
        pl.col("outcome").cast(pl.String).is_in((Outcome.SUCCESS.value, Outcome.FAILED.value))
    )
    value, signal = pl.col("return_value"), pl.col("signal")
    wrong = over.filter(
        (pl.col("outcome") == Outcome.FAILED.value)
        & ((value.is_not_null() & (value != 0)) | signal.is_not_null())
    ).with_columns(
        # A shell tells a signal as 128 and its number: 137 and signal 9 are the same end.
        ended=pl.when(signal.is_not_null()).then(signal + 128).otherwise(value).cast(pl.Int64)
    )
    wrong = _with_own(accounts, wrong)
    counts = (
        wrong.group_by("ended")
        .len()
        .filter(pl.col("len") >= JOBS_AT_LEAST)
        .sort("len", "ended", descending=[True, False])
        .head(MOST)
    )
    return [
        _finding(accounts, wrong.filter(pl.col("ended") == at), int(at), over.height)
        for at, hits in counts.iter_rows()
        if wilson(hits, over.height)[0] > RATE
    ]


def _with_own(accounts: Accounts, wrong: pl.DataFrame) -> pl.DataFrame:
    """The jobs with their command's own return value where Headway's code stands for any."""
    mine = wrong.filter(pl.col("ended") == int(Exit.COMMAND_FAILED)).select("job")
    last = accounts.attempts.join(mine, on="job", how="semi").sort("job", "number")
    last = last.unique("job", keep="last").select("job", pl.col("reason").cast(pl.String))
    own = last.select(
        "job", own=pl.col("reason").str.extract(_EXITED, 1).cast(pl.Int64, strict=False)
    )
    return wrong.join(own, on="job", how="left", maintain_order="left").with_columns(
        ended=pl.coalesce("own", "ended")
    )


def _finding(accounts: Accounts, jobs: pl.DataFrame, value: int, of: int) -> Finding:
    attempts = accounts.attempts.join(jobs, on="job", how="semi").filter(
        pl.col("ending").is_in((Cause.FAILED.value, Cause.BAD_NODE.value))
    )
    about = scope(accounts, attempts, jobs=jobs.get_column("job"))
    meaning = _meaning(value)
    ran = median(attempts.get_column("compute_s"))
    sites = attempts.get_column("site").cast(pl.String).drop_nulls().unique().sort()
    evidence = [
        ("of the jobs that ended", percent(jobs.height / of)),
        ("median time in the command", span(ran)),
    ]
    if sites.len():
        evidence.append((f"{accounts.place}s", listed(sites.to_list())))
    if ran is not None and ran < AT_ONCE:
        evidence.append(("so soon", "the command failed before it began to work"))
    name = f"signal {value - 128}" if jobs.get_column("signal").count() else f"return value {value}"
    if value in MEANING and not jobs.get_column("own").count():
        name = f"Headway's own exit code {value}"
    return Finding(
        key=f"exit:{value}",
        title=f"{many(jobs.height, 'job')} ended with {name}"
        f"{f' ({meaning.name})' if meaning.name else ''}: {about.cost}",
        why=f"HTCondor calls such an end a normal termination; it is no success. {meaning.why}",
        cost_s=about.cost_s,
        jobs=jobs.height,
        attempts=attempts.height,
        lost_jobs=about.lost.len(),
        named=about.named,
        evidence=tuple(evidence),
        advice=(*_steps(accounts, jobs, value, about), *meaning.steps, read_last_words(about)),
        claim=about.claim,
        lost=about.lost,
    )


@dataclass(frozen=True)
class _Meaning:
    """What a value means by custom, why it comes about, and what helps."""

    name: str = ""
    why: str = "The cause is in the command's own words."
    steps: tuple[Step, ...] = ()


def _meaning(value: int) -> _Meaning:
    if value in _MEANINGS:
        return _MEANINGS[value]
    known = {int(code): text for code, text in MEANING.items()}
    return _Meaning(known[value], "So Headway's agent says.") if value in known else _Meaning()


_SIGKILL, _NOT_FOUND, _SIGABRT, _SIGSEGV = 137, 127, 134, 139
#: With less of its memory in use than this share, a job was hardly killed for want of it.
_FAR_BELOW = 0.7


def _steps(accounts: Accounts, jobs: pl.DataFrame, value: int, about: Scope) -> tuple[Step, ...]:
    """What helps by custom, as far as these jobs and their pool have to do with it."""
    if value == _SIGKILL:
        return _memory(jobs)
    if value == _NOT_FOUND:
        image = example(accounts, "image.sif")
        return (
            submit("Bring a container that holds it.", f"container_image = {image}"),
            job_toml("The same in job.toml.", f'container = "{image}"'),
        )
    if value in (_SIGABRT, _SIGSEGV) and about.gpu:
        return (
            submit("Ask for GPUs that your build supports.", "gpus_minimum_capability = 7.5"),
            job_toml(
                "The same in job.toml.", "[resources]", "gpus = { count = 1, capability = 7.5 }"
            ),
        )
    return ()


def _memory(jobs: pl.DataFrame) -> tuple[Step, ...]:
    used, asked = (
        float(jobs.get_column(f"memory_{name}").fill_nan(None).max() or 0.0)  # type: ignore[arg-type]
        for name in ("used", "asked")
    )
    if asked and 0 < used < _FAR_BELOW * asked:
        told = f"at most {binary(used * 2**20)} of the {binary(asked * 2**20)} asked for"
        return (
            do(f"They used {told}: see what else ends them, such as a limit of the node's own."),
        )
    want = enough_for(max(used, asked))
    if not want:
        return (do("Ask for more memory: request_memory, or memory in [resources] of job.toml."),)
    submit_line, toml_line = MEMORY.exact_lines(want)
    return (
        submit("Ask for more memory.", submit_line),
        job_toml("The same in job.toml.", "[resources]", toml_line),
    )


_MEANINGS = {
    _SIGKILL: _Meaning(
        "SIGKILL", "A command that is killed has most often used more memory than it may."
    ),
    _NOT_FOUND: _Meaning(
        "command not found",
        "The node does not have what the script calls: a program, or the interpreter.",
    ),
    126: _Meaning(
        "not executable",
        "The file is there but may not, or cannot, be run: no exec bit, or a wrong #! line.",
        (shell("Give it the exec bit before you submit.", "chmod +x SCRIPT"),),
    ),
    124: _Meaning("time-out", "The script's own `timeout` ended the command."),
    _SIGABRT: _Meaning("SIGABRT", "It gave up on an assertion or a failed allocation."),
    135: _Meaning(
        "SIGBUS",
        "Often /dev/shm is too small for the workers of a data loader.",
        (do("Start the data loader with fewer workers, or with num_workers=0."),),
    ),
    _SIGSEGV: _Meaning("SIGSEGV", "Often a library does not fit the node's processor or driver."),
    143: _Meaning("SIGTERM", "It was asked to stop, by the pool or by its owner."),
}
