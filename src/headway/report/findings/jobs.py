"""Findings about the jobs themselves: resources, exit codes, and what nothing explains."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from headway.node.errors import MEANING, Exit
from headway.pool.policy import enough_for
from headway.report.accounts import Accounts, once
from headway.report.enums import CAUSE_WORDS, Cause, JobOutcome
from headway.report.findings.affected import (
    Affected,
    affected,
    example,
    failed,
    last_attempts,
    listed,
    median,
    read_error_file,
    sorted_names,
)
from headway.report.findings.clusters import wilson
from headway.report.findings.finding import (
    Finding,
    Step,
    Table,
    both,
    do,
    job_toml,
    shell,
    shown,
    submit,
)
from headway.report.findings.reasons import HoldText, caused_ends, caused_holds, what
from headway.report.numbers import UNKNOWN, binary, count, percent, span
from headway.spec.units import exact_size
from headway.text import many

#: The codes of limits and rules, under which a job is stopped for what it used.
HELD_BY = (3, 21, 26, 34)

#: Below this share of the request, at the 95th percentile, a request is far too large.
FAR_BELOW = 0.5
#: The 95th percentile of fewer jobs than this is the luck of one.
MEASURED_AT_LEAST = 20
#: What to leave free above the largest use seen: the next job may need a bit more.
ROOM = 1.25


@dataclass(frozen=True)
class _Resource:
    name: str  # as job.toml and the submit file have it
    unit: int  # bytes of what HTCondor counts in
    small: float  # a request below this many bytes keeps no job from a slot
    causes: tuple[str, ...]  # in the table of holds

    @property
    def used(self) -> pl.Expr:
        return (pl.col(f"{self.name}_used") * self.unit).alias("used")

    @property
    def asked(self) -> pl.Expr:
        return (pl.col(f"{self.name}_asked") * self.unit).alias("asked")

    def line(self, megabytes: int) -> str:
        return f"request_{self.name} = {exact_size(megabytes).replace('iB', 'B')}"

    def ask(self, text: str, megabytes: int) -> tuple[Step, Step]:
        toml = f'{self.name} = "{exact_size(megabytes)}"'
        return both(text, self.line(megabytes), "[resources]", toml)


MEMORY = _Resource(
    "memory", 2**20, 4 * 2**30, ("over-memory", "over-memory-icecube", "over-resources")
)
DISK = _Resource("disk", 2**10, 20 * 2**30, ("over-disk",))


def over_asked(accounts: Accounts) -> list[Finding]:
    """Requests that jobs came nowhere near to, memory and disk."""
    return [found for kind in (MEMORY, DISK) if (found := _over(accounts, kind))]


def _over(accounts: Accounts, kind: _Resource) -> Finding | None:
    asked = ("job", "user", "slot_s", "outcome", kind.used, kind.asked)
    jobs = accounts.jobs.select(asked).filter(
        (pl.col("outcome") == JobOutcome.SUCCESS.value)
        & (pl.col("used") > 0)
        & (pl.col("asked") >= kind.small)
    )
    if jobs.height < MEASURED_AT_LEAST:
        return None
    jobs = jobs.with_columns(pl.col("user").cast(pl.String))
    groups = (
        jobs.group_by("user", "asked")
        .agg(
            jobs=pl.len(),
            p95=pl.col("used").quantile(0.95, "linear"),
            most=pl.col("used").max(),
            idle=((pl.col("asked") - pl.col("used")) * pl.col("slot_s")).sum(),
        )
        .filter(
            (pl.col("jobs") >= MEASURED_AT_LEAST) & (pl.col("p95") < FAR_BELOW * pl.col("asked"))
        )
        # One job that needed it all is enough to keep the request.
        .filter(pl.col("most") * ROOM < pl.col("asked"))
        .sort("idle", "asked", "user", descending=[True, True, False])
    )
    if not groups.height:
        return None
    top = groups.row(0, named=True)
    want = top["most"] * ROOM
    concerned = jobs.join(groups, on=["user", "asked"], how="semi", nulls_equal=True)
    about = affected(accounts, None, jobs=concerned.get_column("job"))
    share = percent(top["p95"] / top["asked"])
    return Finding(
        key=f"over-asked:{kind.name}",
        title=f"{many(top['jobs'], 'job')} asked for {binary(top['asked'])} of {kind.name}, and 95 "
        f"of 100 used less than {binary(top['p95'])} ({share})",
        why=f"A job starts only where all that it asks for is free: with less {kind.name} it fits "
        "more slots and waits less.",
        jobs=about.jobs,
        named=about.named,
        evidence=(
            ("largest use of all", binary(top["most"])),
            ("enough, with a quarter to spare", binary(want)),
        ),
        table=Table.of(
            groups.with_columns(line=pl.col("most") * ROOM),
            5,
            user=("user", lambda user: shown(user, 40) or UNKNOWN),
            jobs=("jobs", count),
            asked=("asked", binary),
            p95=("95th percentile", binary),
            most=("largest", binary),
            line=("line", lambda size: kind.line(_whole_gigabytes(size))),
        ),
        advice=kind.ask("Ask for less.", _whole_gigabytes(want)),
    )


def _whole_gigabytes(size: float) -> int:
    """So many bytes, rounded up, in megabytes."""
    return max(1, math.ceil(size / 2**30)) * 1024


def under_asked(accounts: Accounts) -> list[Finding]:
    """Jobs held because they used more than they had asked for; the log says so."""
    return [found for kind in (MEMORY, DISK) if (found := _under(accounts, kind))]


def _under(accounts: Accounts, kind: _Resource) -> Finding | None:
    over = pl.col("cause").is_in(kind.causes)
    holds = caused_holds(accounts).filter(over)
    ends = caused_ends(accounts).select("attempt", "code", "cause", kind.used, kind.asked)
    attempts = ends.filter(pl.col("code").is_in(HELD_BY) & over)
    if not attempts.height and not holds.height:
        return None
    about = affected(accounts, attempts, jobs=holds.get_column("job"))
    # What was asked for when they were stopped: somebody may have raised the request since.
    used, asked = (_most(attempts.get_column(name)) for name in ("used", "asked"))
    jobs = about.jobs
    evidence = []
    if asked:
        evidence.append(("asked for (most)", binary(asked)))
    if used:
        evidence.append(("used when last looked at (most)", binary(used)))
    reason = holds.get_column("reason").drop_nulls().cast(pl.String)
    if reason.len():
        evidence.append(("the reason", shown(reason[0])))
    want = enough_for(max(used or 0.0, asked or 0.0) / 2**20)
    for_asked = f" than the {binary(asked)} asked for" if asked else " than asked for"
    return about.finding(
        key=f"under-asked:{kind.name}",
        title=f"{many(jobs, 'job')} used more {kind.name}{for_asked} and "
        f"{'was' if jobs == 1 else 'were'} stopped: {about.cost}",
        why=f"The pool stops a job that outgrows the {kind.name} it asked for; started again with "
        "the same request it ends the same way.",
        evidence=evidence,
        advice=_more(kind, want, about.held),
    )


def _more(kind: _Resource, want: int, held: tuple[str, ...]) -> tuple[Step, ...]:
    """What to do where `want` MB would be enough."""
    if not want:
        return (do(f"Ask for more {kind.name}: request_{kind.name}, or [resources] of job.toml."),)
    more, toml = kind.ask("Ask for more.", want)
    if kind is MEMORY:
        text = "Ask for more, and for a second try with twice that."
        more = submit(text, *more.lines, f"retry_{kind.line(2 * want)}")
    if not held:
        return more, toml
    edit = f"Request{kind.name.capitalize()} {want * 2**20 // kind.unit}"
    text = "Jobs that are held can be changed and released."
    lines = (f"condor_qedit {held[0]} {edit}", f"condor_release {held[0]}")
    return more, toml, shell(text, *lines)


def _most(values: pl.Series) -> float | None:
    found = values.max()
    return found if isinstance(found, float) and found and math.isfinite(found) else None


#: Fewer jobs with the same value are not a pattern; ...
JOBS_AT_LEAST = 5
#: ... nor is a rate that may be below this, of all jobs that ended.
RATE = 0.01
#: How many values are hold.
MOST = 5
#: Seconds: a command that fails sooner has not begun to work.
AT_ONCE = 60.0
#: How the agent reports a command's own end.
_EXITED = r"\Athe command exited with (\d{1,3})"


def exit_code(accounts: Accounts) -> list[Finding]:
    """One finding for each return value or signal that many jobs ended with."""
    asked = ("job", "outcome", "return_value", "signal", "memory_used", "memory_asked")
    over = accounts.jobs.select(asked).filter(
        pl.col("outcome").is_in([JobOutcome.SUCCESS.value, JobOutcome.FAILED.value])
    )
    value, signal = pl.col("return_value"), pl.col("signal")
    wrong = over.filter(
        (pl.col("outcome") == JobOutcome.FAILED.value)
        & ((value.is_not_null() & (value != 0)) | signal.is_not_null())
    )
    if wrong.height < JOBS_AT_LEAST:
        return []
    wrong = wrong.with_columns(
        # A shell reports a signal as 128 plus its number: 137 and signal 9 are the same end.
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
    tried = failed(accounts, "attempt", "job", "ending", "compute_s")
    tried = tried.filter(pl.col("ending").is_in([Cause.FAILED.value, Cause.BAD_NODE.value]))
    return [
        _exit_finding(accounts, tried, wrong.filter(pl.col("ended") == at), int(at), over.height)
        for at, hits in counts.iter_rows()
        if wilson(hits, over.height)[0] > RATE
    ]


def _with_own(accounts: Accounts, wrong: pl.DataFrame) -> pl.DataFrame:
    """The jobs with their command's own return value where Headway's code stands for any."""
    mine = wrong.filter(pl.col("ended") == int(Exit.COMMAND_FAILED)).select("job")
    last = last_attempts(accounts, mine.get_column("job"))
    reason = accounts.attempts.get_column("reason").cast(pl.String).gather(last[last >= 0])
    own = mine.filter(pl.Series(last >= 0)).with_columns(
        own=reason.str.extract(_EXITED, 1).cast(pl.Int64, strict=False)
    )
    return wrong.join(own, on="job", how="left", maintain_order="left").with_columns(
        ended=pl.coalesce("own", "ended")
    )


def _exit_finding(
    accounts: Accounts, tried: pl.DataFrame, jobs: pl.DataFrame, value: int, of: int
) -> Finding:
    attempts = tried.join(jobs, on="job", how="semi")
    about = affected(accounts, attempts, jobs=jobs.get_column("job"))
    meaning = _meaning(value)
    ran = median(attempts.get_column("compute_s"))
    sites = accounts.attempts.get_column("site").gather(attempts.get_column("attempt"))
    evidence = [
        ("of the jobs that ended", percent(jobs.height / of)),
        ("median time in the command", span(ran)),
    ]
    if sites.count():
        evidence.append((f"{accounts.place}s", listed(sorted_names(sites))))
    if ran is not None and ran < AT_ONCE:
        evidence.append(("so soon", "the command failed before it began to work"))
    name = f"signal {value - 128}" if jobs.get_column("signal").count() else f"return value {value}"
    if value in MEANING and not jobs.get_column("own").count():
        name = f"Headway's own exit code {value}"
    return about.finding(
        key=f"exit:{value}",
        title=f"{many(jobs.height, 'job')} ended with {name}"
        f"{f' ({meaning.name})' if meaning.name else ''}: {about.cost}",
        why=f"HTCondor calls this a normal termination, but it is not a success. {meaning.why}",
        evidence=evidence,
        advice=(*_steps(accounts, jobs, value, about), *meaning.steps, read_error_file(about)),
    )


@dataclass(frozen=True)
class _Meaning:
    """What a value means by custom, why it comes about, and what helps."""

    name: str = ""
    why: str = "Only the command's own output says why."
    steps: tuple[Step, ...] = ()


def _meaning(value: int) -> _Meaning:
    if value in _MEANINGS:
        return _MEANINGS[value]
    known = {int(code): text for code, text in MEANING.items()}
    return _Meaning(known[value], "So Headway's agent says.") if value in known else _Meaning()


_SIGKILL, _NOT_FOUND, _SIGABRT, _SIGSEGV = 137, 127, 134, 139
#: With less of its memory in use than this share, a job was hardly killed for want of it.
_FAR_BELOW = 0.7


def _steps(accounts: Accounts, jobs: pl.DataFrame, value: int, about: Affected) -> tuple[Step, ...]:
    """What helps by custom, as far as these jobs and their pool have to do with it."""
    if value == _SIGKILL:
        return _memory(jobs)
    if value == _NOT_FOUND:
        image = example(accounts, "image.sif")
        text = "Bring a container that holds it."
        return both(text, f"container_image = {image}", f'container = "{image}"')
    if value in (_SIGABRT, _SIGSEGV) and about.gpu:
        text, line = "Ask for GPUs that your build supports.", "gpus_minimum_capability = 7.5"
        return both(text, line, "[resources]", "gpus = { count = 1, capability = 7.5 }")
    return ()


def _memory(jobs: pl.DataFrame) -> tuple[Step, ...]:
    used, asked = (
        float(jobs.get_column(f"memory_{name}").fill_nan(None).max() or 0.0)  # type: ignore[arg-type]
        for name in ("used", "asked")
    )
    if asked and 0 < used < _FAR_BELOW * asked:
        most = f"at most {binary(used * 2**20)} of the {binary(asked * 2**20)} asked for"
        return (do(f"They used {most}: see what else ends them, such as a limit of the node."),)
    want = enough_for(max(used, asked))
    if not want:
        return (do("Ask for more memory: request_memory, or memory in [resources] of job.toml."),)
    return MEMORY.ask("Ask for more memory.", want)


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


#: What concerns this share of the jobs, or of all slot time, has to be named.
SHARE = 0.1
_POLICY = "The job attribute "  # HTCondor's words for a rule of the submit file that put a job back
_PURPOSE = {
    "user-request": "somebody held them by hand",
    "submitted-on-hold": "they were submitted on hold",
}


def unnamed(accounts: Accounts) -> list[Finding]:
    """A finding for each kind of hold, and each cause of loss, that is a large share.

    The other detectors know mechanisms. A log can lose most of its time to something that is none
    of them, and a report must not say then that nothing stands out.
    """
    # What another finding has said already is left out: these are echoes.
    return [*_holds(accounts), *_losses(accounts)]


def _holds(accounts: Accounts) -> Iterator[Finding]:
    if not accounts.holds.height:
        return
    holds = caused_holds(accounts)
    kinds = holds.group_by("cause").agg(jobs=pl.col("job").n_unique())
    for cause, _ in kinds.sort("jobs", "cause", descending=[True, False]).iter_rows():
        held = holds.filter(pl.col("cause") == cause)
        bad_s = accounts.attempts.get_column("bad_s").gather(
            held.get_column("attempt").drop_nulls().unique()
        )
        if not _may_be_large(accounts, held.height, bad_s):
            continue
        about = affected(accounts, held, jobs=held.get_column("job"))
        if not _is_large(accounts, about):
            continue
        hold = HoldText(held)
        were = "was" if about.jobs == 1 else "were"
        yield _unnamed_finding(
            accounts,
            about,
            key=f"held:{cause}",
            words=f"{were} held: {_PURPOSE.get(cause, hold.headline)} ({hold.number})",
            why=hold.why,
            # Nearly every reason names its own file or slot: the first stands for all.
            evidence=(
                *((("the reason", shown(hold.reason)),) if hold.reason else ()),
                ("code/subcode", hold.number),
            ),
            advice=(do(hold.do), _advise(accounts, held)),
        )


def _losses(accounts: Accounts) -> Iterator[Finding]:
    lost = accounts.attempts.select("attempt", "cause", "bad_s", "reason", "return_value")
    parts = lost.filter(pl.col("cause") != Cause.NONE.value).partition_by("cause", as_dict=True)
    for cause in Cause:
        ended = parts.get((cause.value,))
        if ended is None or not _may_be_large(accounts, ended.height, ended.get_column("bad_s")):
            continue
        about = affected(accounts, ended)
        if not _is_large(accounts, about):
            continue
        reasons = ended.get_column("reason").cast(pl.String).drop_nulls().unique()
        said = reasons.filter(~reasons.str.starts_with(_POLICY)).sort().head(2).to_list()
        values = ended.get_column("return_value").drop_nulls().unique().sort().to_list()
        words = f"lost time: {CAUSE_WORDS[cause]}"
        if cause is Cause.FAILED and len(said) == 1:
            words = f"failed: {what(said[0])}"
        elif cause is Cause.FAILED and not said and values:
            words = f"failed: return value {listed(list(map(str, values)))}"
        hold = None if cause is Cause.FAILED else _by_words(accounts, ended)
        why = "No pattern that Headway knows explains this loss."
        step = do(f"Look at what the log says about {about.first_two}.")
        if cause is Cause.FAILED:
            why, step = "Only the command's own output says why.", read_error_file(about)
        elif cause is Cause.LOST_SANDBOX:
            why = "Their outputs were not in the node's store, or no courier came in time."
            step = job_toml("Take them home with the job, or wait longer: within.", *_NOW)
        elif hold:
            words, why, step = f"lost time: {hold.headline}", hold.why, do(hold.do)
        yield _unnamed_finding(
            accounts,
            about,
            key=f"lost:{cause.value}",
            words=words,
            why=why,
            evidence=(("the reason", what(hold.reason if hold else said[0])),) if said else (),
            advice=(step,),
        )


_NOW = ("[outputs]", 'deliver = "now"')


def _by_words(accounts: Accounts, ended: pl.DataFrame) -> HoldText | None:
    """What the reasons of most of these attempts say, if the table of holds knows it."""
    ends = caused_ends(accounts).select("code", "subcode", "reason", "cause")
    said = ends[ended.get_column("attempt")].filter(pl.col("reason") != "").drop_nulls("cause")
    kinds = said.group_by("cause").len().sort("len", "cause", descending=[True, False])
    if not kinds.height or 2 * kinds.item(0, "len") < ended.height:
        return None
    hold = HoldText(said.filter(pl.col("cause") == kinds.item(0, "cause")))
    return None if hold.entry.id == "unknown" else hold


def _may_be_large(accounts: Accounts, rows: int, bad_s: pl.Series) -> bool:
    """By how many rows name its jobs and by what they lost: small ones need not be looked at."""
    return rows >= SHARE * accounts.jobs.height > 0 or (
        float(bad_s.fill_nan(0).sum()) >= 0.99 * SHARE * _slot_s(accounts)
    )


def _is_large(accounts: Accounts, about: Affected) -> bool:
    return len(about.lost) >= SHARE * accounts.jobs.height > 0 or (
        about.cost_s > 0 and about.cost_s >= SHARE * _slot_s(accounts)
    )


@once
def _slot_s(accounts: Accounts) -> float:
    return float(accounts.jobs.get_column("slot_s").fill_nan(0).sum())


def _unnamed_finding(
    accounts: Accounts,
    about: Affected,
    *,
    key: str,
    words: str,
    why: str,
    evidence: tuple[tuple[str, str], ...],
    advice: tuple[Step, ...],
) -> Finding:
    cost = f"; {about.cost}" if about.cost_s >= 1 else ""
    return about.finding(
        key=key,
        title=f"{many(about.jobs, 'job')} of {accounts.jobs.height:,} {words}{cost}",
        why=why,
        evidence=(*evidence, ("still without a result", many(len(about.lost), "job"))),
        advice=advice,
        echo=True,
    )


def _advise(accounts: Accounts, held: pl.DataFrame) -> Step:
    logs = accounts.jobs.get_column("log").gather(held.get_column("job")).cast(pl.String)
    logs = logs.drop_nulls().unique().sort()
    return shell(
        "See what the hold means, whether a release helps, and what to change.",
        f"headway advise {shown(logs[0], 200) if logs.len() else 'LOG'}",
    )
