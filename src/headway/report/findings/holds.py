"""Findings about holds: bursts, jobs that nobody released, loops, time limits."""

from __future__ import annotations

import re
import zlib
from typing import Any

import polars as pl

from headway.holds.table import BEFORE_START, DEPENDS, INPUT, TRANSIENT, HoldMeaning
from headway.node.errors import MEANING
from headway.report.accounts import Accounts, once
from headway.report.enums import CAUSE_WORDS, Cause, JobOutcome
from headway.report.findings.affected import (
    Affected,
    affected,
    failed,
    listed,
    median,
    sited,
    sorted_names,
    stay_away,
)
from headway.report.findings.clusters import against_mates, clearly_worse, with_cluster
from headway.report.findings.finding import (
    Finding,
    Rows,
    Step,
    Table,
    both,
    do,
    job_toml,
    shell,
    short_name,
    shown,
    submit,
)
from headway.report.findings.jobs import DISK, MEMORY
from headway.report.findings.reasons import (
    OBJECT_AT_FAULT,
    TOO_LONG,
    HoldText,
    allowed_duration,
    caused_ends,
    caused_holds,
    on_purpose,
    what,
)
from headway.report.numbers import count, days, limit, percent, span
from headway.text import many

#: Holds that follow each other within this time have, one may think, the same cause.
GAP = 300.0
#: Fewer jobs than this fail together by chance.
AT_LEAST = 5
#: How many kinds of hold get a finding; the rest is in the table of holds.
MOST_BURSTS = 5
#: Another detector explains these better.
NOT_THESE = ("over-time", *TOO_LONG, *MEMORY.causes, *DISK.causes)
_MOST_CLUSTERS, _MOST_NAMED = 5, 10


def hold_burst(accounts: Accounts) -> list[Finding]:
    """One finding for each kind of hold that came in a burst."""
    if accounts.holds.height < AT_LEAST:
        return []
    excluded = [*NOT_THESE, *on_purpose()]
    held = caused_holds(accounts).filter(
        ~pl.col("cause").is_in(excluded) & pl.col("time").is_not_null()
    )
    kind = ["code", "subcode", "template"]
    held = held.sort(*kind, "time", nulls_last=True)
    new = (pl.col("time").diff() > GAP) | pl.any_horizontal(
        pl.col(name).ne_missing(pl.col(name).shift()) for name in kind
    )
    held = held.with_columns(burst=new.fill_null(True).cum_sum())
    sizes = held.group_by("burst").agg(size=pl.col("job").n_unique(), at=pl.col("time").min())
    bursts = sizes.filter(pl.col("size") >= AT_LEAST)
    if not bursts.height:
        return []
    largest = held.join(bursts, on="burst").group_by(kind).agg(pl.col("size").max())
    largest = largest.sort("size", *kind, descending=[True, False, False, False]).head(MOST_BURSTS)
    return [
        _burst_finding(
            accounts,
            held.filter(
                pl.all_horizontal(pl.col(name).eq_missing(pl.lit(row[name])) for name in kind)
            ),
            bursts,
        )
        for row in largest.iter_rows(named=True)
    ]


def _burst_finding(accounts: Accounts, held: pl.DataFrame, bursts: pl.DataFrame) -> Finding:
    inside = held.join(bursts, on="burst")
    burst = inside.sort("size", "burst", descending=[True, False])
    burst = burst.filter(pl.col("burst") == burst.item(0, "burst")).sort("time")
    row = burst.row(0, named=True)
    hold = HoldText(held)
    about = _about(accounts, held)
    first, last, run = longest_run(accounts.jobs.select("cluster", "proc")[burst.get_column("job")])
    length = float(burst.item(-1, "time")) - float(burst.item(0, "time"))
    in_burst, in_all = burst.get_column("job").n_unique(), about.jobs
    arrived = _arrived(accounts, held.get_column("job")) if hold.entry.way == INPUT else 0
    evidence = [
        ("the reason", shown(row["reason"])),
        ("code/subcode", hold.codes[0]),
        ("held for it in all", many(in_all, "job")),
        ("in the largest burst", f"{many(in_burst, 'job')} within {span(max(length, 1))}"),
    ]
    consecutive = ""
    if run >= AT_LEAST:
        consecutive = (
            f"; {run:,} of them consecutive ({first} to {last}) within {span(max(length, 1))}"
        )
        evidence.append(("consecutive jobs", f"{run:,}: {first} to {last}"))
    evidence.append(("still without a result", many(len(about.lost), "job")))
    if arrived:
        evidence.append(("inputs of jobs of the same clusters that did arrive", f"{arrived:,}"))
    kind = zlib.crc32(str(row["template"]).encode("utf-8", "replace"))
    return about.finding(
        key=f"hold-burst:{hold.codes[0]}:{kind:08x}",
        title=f"{many(in_all, 'job')} were held for the same reason: {hold.headline}{consecutive}",
        why=_burst_why(hold, arrived),
        evidence=evidence,
        advice=_burst_advice(accounts, about.lost, held, hold, arrived),
    )


def _about(accounts: Accounts, held: pl.DataFrame) -> Affected:
    # A job that was held again for something else is not lost to this.
    last = _last_holds(accounts)
    stuck = (JobOutcome.HELD.value, JobOutcome.REMOVED.value)
    mine = held.join(last, on=["job", "time"], how="semi").get_column("job").unique().sort()
    outcomes = accounts.jobs.get_column("outcome").gather(mine)
    lost = mine.filter(outcomes.is_in(stuck)).to_numpy()
    return affected(accounts, held, jobs=held.get_column("job"), lost=lost)


@once
def _last_holds(accounts: Accounts) -> pl.DataFrame:
    """When each job was held last."""
    return accounts.holds.group_by("job").agg(pl.col("time").max())


def _arrived(accounts: Accounts, jobs: pl.Series) -> int:
    """How many inputs of jobs of the same clusters did arrive."""
    clusters = accounts.jobs.get_column("cluster")
    moved = clusters.gather(_arrivals(accounts))
    return int(moved.is_in(clusters.gather(jobs).unique().implode()).sum())


@once
def _arrivals(accounts: Accounts) -> pl.Series:
    """The job of each attempt whose input arrived."""
    moved = pl.col("arrived").fill_null(False) & (pl.col("transfer_in_s") > 0)
    return accounts.attempts.select("job", moved=moved).filter("moved").get_column("job")


def _burst_why(hold: HoldText, arrived: int) -> str:
    entry = hold.entry
    if entry.id == "unknown":
        return (
            "The same words on many jobs within minutes point to one cause outside the jobs, or to "
            "one mistake in all of them."
        )
    if not _by_url(entry):
        return hold.why
    if not arrived:
        return (
            "HTCondor holds a job at the first failed transfer that its plugin does not call "
            "retriable. No input of these clusters ever arrived: the URL or the rights are wrong."
        )
    there = (
        "Other jobs of the same clusters got their input: the source failed for a while, and "
        "HTCondor holds a job at the first failure that its plugin does not call retriable."
    )
    if re.search(OBJECT_AT_FAULT, hold.reason):
        there = (
            "The object is there, for other jobs of the same clusters got their input: for a "
            "while the source answered wrongly, and HTCondor holds a job at the first such "
            "answer, without another try."
        )
    return there


def _by_url(entry: HoldMeaning) -> bool:
    """Whether it is about an input that a source gives, not about a file of the access point."""
    return entry.way == INPUT and "file" not in entry.checks


def _may_release(entry: HoldMeaning, arrived: int) -> bool:
    """Whether a plain release is worth its try: it is cheap, or what failed passes by itself."""
    if _by_url(entry):
        return bool(arrived)
    return entry.kind == TRANSIENT or (entry.kind == DEPENDS and entry.step in BEFORE_START)


def _burst_advice(
    accounts: Accounts, lost: Rows, held: pl.DataFrame, hold: HoldText, arrived: int
) -> tuple[Step, ...]:
    entry = hold.entry
    steps: list[Step] = []
    if _by_url(entry) and not arrived:
        steps.append(do("Check the URL, its spelling and your rights with a fetch by hand."))
    elif not _by_url(entry) and entry.id != "unknown":
        steps.append(do(hold.do))
    may = _may_release(entry, arrived)
    if may and (line := _release(accounts, lost, held)):
        text = "Release them: nothing is wrong with the jobs."
        if entry.step not in BEFORE_START:
            text = "Release them. Each start does the work again, from its last checkpoint."
        elif not _by_url(entry):
            text = "Release them once the cause is fixed."
        steps.append(shell(text, line))
    if may and _by_url(entry):
        steps += _automatic(held)
    return tuple(steps)


def _release(accounts: Accounts, lost: Rows, held: pl.DataFrame) -> str:
    """The command that releases those of the jobs that are held now, and no others."""
    jobs = accounts.jobs.select("id", "cluster", "outcome", "hold_code", "hold_subcode")
    stuck = pl.col("outcome") == JobOutcome.HELD.value
    mine = jobs[lost].filter(stuck)
    code, subcode = held.select("code", "subcode").row(0)
    if not mine.height or code is None:
        return ""
    clusters = mine.get_column("cluster").unique().sort()
    same = (pl.col("hold_code") == code) & (pl.col("hold_subcode").eq_missing(subcode))
    same &= pl.col("cluster").is_in(clusters.implode())
    others = jobs.filter(stuck & same).height > mine.filter(same).height
    if others or clusters.len() > _MOST_CLUSTERS:
        # The same code stands for holds that must not be released.
        names = [str(name) for name in mine.get_column("id").to_list()]
        return f"condor_release {' '.join(names)}" if len(names) <= _MOST_NAMED else ""
    where = " || ".join(f"ClusterId == {cluster}" for cluster in clusters.to_list())
    return f"condor_release -constraint '{_same_hold(held)} && ({where})'"


def _same_hold(held: pl.DataFrame) -> str:
    code, subcode = held.select("code", "subcode").row(0)
    return f"HoldReasonCode == {code}" + (f" && HoldReasonSubCode == {subcode}" if subcode else "")


def _automatic(held: pl.DataFrame) -> tuple[Step, ...]:
    """How such holds are released without anybody."""
    return (
        submit(
            "Let HTCondor release such holds on its own, within limits.",
            f"periodic_release = {_same_hold(held)} && NumHolds < 5 && "
            "NumShadowStarts < 20 && (time() - EnteredCurrentStatus) > 600",
        ),
        shell(
            "Such lines, with growing pauses, are among those that `headway wrap` adds to a "
            "copy of a submit file.",
            "headway wrap JOB.sub",
        ),
        job_toml(
            "In job.toml the agent tries again within the attempt, and Headway releases the "
            "job after a pause.",
            "[retries]",
            "input = 5",
            'backoff = "60 s"',
        ),
    )


def longest_run(jobs: pl.DataFrame) -> tuple[str, str, int]:
    """First and last of the longest row of consecutive procs of one cluster, and its length."""
    rows = (
        jobs.select("cluster", "proc")
        .unique()
        .sort("cluster", "proc")
        .with_columns(step=pl.col("proc") - pl.int_range(pl.len()).over("cluster"))
        .group_by("cluster", "step")
        .agg(first=pl.col("proc").min(), last=pl.col("proc").max(), run=pl.len())
        .sort("run", "cluster", "first", descending=[True, False, False])
    )
    if not rows.height:
        return "", "", 0
    row = rows.row(0, named=True)
    name = row["cluster"]
    return f"{name}.{row['first']}", f"{name}.{row['last']}", int(row["run"])


_DAY = 86400.0
#: A weekend is not neglect.
HELD_LONG = 3 * _DAY
#: The OSPool may remove jobs that have been held for longer.
OSPOOL = 14 * _DAY
_MOST = 6


def unreleased(accounts: Accounts) -> list[Finding]:
    """At most one finding: the jobs that have been held for days."""
    held = accounts.jobs.filter(pl.col("outcome") == JobOutcome.HELD.value).select("job", "id")
    last = caused_holds(accounts).sort("time").unique("job", keep="last", maintain_order=True)
    stuck = last.join(held, on="job").filter(
        pl.col("released").is_null()
        & ~pl.col("cause").is_in(on_purpose())
        & (pl.col("held_s") >= HELD_LONG)
    )
    if not stuck.height:
        return []
    about = affected(accounts, None, jobs=stuck.get_column("job"))
    longest = float(stuck.get_column("held_s").max() or 0.0)  # type: ignore[arg-type]
    kinds = stuck.group_by("cause").agg(jobs=pl.len(), held_s=pl.col("held_s").max())
    kinds = kinds.sort("jobs", "cause", descending=[True, False]).head(_MOST)
    middle = median(stuck.get_column("held_s"))
    evidence = [("held for (median / longest)", f"{days(middle)} / {days(longest)}")]
    why = "A held job does nothing until somebody releases it."
    if accounts.uses_osdf:
        may = f"more than {OSPOOL / _DAY:.0f} days: the OSPool may remove them"
        evidence.append((may, count(stuck.filter(pl.col("held_s") >= OSPOOL).height)))
        why += " The OSPool may remove jobs that have been held for more than 14 days."
    return [
        Finding(
            key="unreleased",
            title=f"{many(stuck.height, 'job')} {'has' if stuck.height == 1 else 'have'} been held "
            f"for more than {HELD_LONG / _DAY:.0f} days (the longest for {days(longest)}), and "
            f"nobody has released or removed {'it' if stuck.height == 1 else 'them'}",
            why=why,
            waiting_s=float(stuck.get_column("held_s").sum()),
            waiting="on hold",
            jobs=stuck.height,
            lost_jobs=len(about.lost),
            named=about.named,
            evidence=tuple(evidence),
            table=Table(
                ("code", "jobs", "longest", "what it is", "what to do"),
                tuple(_row(stuck, kind) for kind in kinds.iter_rows(named=True)),
            ),
            advice=_RELEASE_OR_REMOVE,
            lost=about.lost,
            slot_waiting=False,
        )
    ]


def _row(stuck: pl.DataFrame, kind: dict[str, Any]) -> tuple[str, ...]:
    hold = HoldText(stuck.filter(pl.col("cause") == kind["cause"]))
    codes = ", ".join(hold.codes)
    return codes, count(kind["jobs"]), days(kind["held_s"]), hold.headline, hold.do


_RELEASE_OR_REMOVE = (
    shell(
        "See why each is held, then fix and release it, or remove it.",
        "condor_q -hold -af:j HoldReasonCode HoldReasonSubCode HoldReason",
        "condor_release JOB",
        "condor_rm JOB",
    ),
    job_toml(
        "In job.toml plainly transient holds are released by themselves, this many times.",
        "[retries]",
        "holds = 5",
    ),
)


#: Twice or three times may be bad luck; this often, with nothing gained, is a loop.
SAME_AT_LEAST = 5
#: How many kinds of loop get a finding.
MOST_LOOPS = 3


def retry_loop(accounts: Accounts) -> list[Finding]:
    """One finding for each way in which jobs go round."""
    way = ["ending", "code", "subcode", "return_value", "template"]
    asked = ("attempt", "job", "checkpoints", "bad_s", "reason", *way[:-1])
    tried = failed(accounts, *asked).filter(pl.col("checkpoints").fill_null(0) == 0)
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
        .head(MOST_LOOPS)
    )
    return [
        _loop_finding(
            accounts,
            loops.join(one, on=way, how="semi", nulls_equal=True),
            tried.join(one, on=way, how="semi", nulls_equal=True),
        )
        for one in ways.iter_slices(1)
    ]


def _loop_finding(accounts: Accounts, loops: pl.DataFrame, tried: pl.DataFrame) -> Finding:
    tried = tried.join(loops, on="job", how="semi")
    about = affected(accounts, tried)
    names = accounts.jobs.select("job", "id", "outcome")
    longest = loops.join(names, on="job").sort("tries", "job", descending=[True, False])
    top, first = longest.row(0, named=True), tried.row(0, named=True)
    how = _how(first)
    solved = longest.filter(pl.col("outcome").cast(pl.String) == "success").height
    return about.finding(
        key=f"retry-loop:{first['ending']}:{first['code']}:{first['return_value']}",
        title=f"{many(loops.height, 'job')} tried {SAME_AT_LEAST} times or more and ended the same "
        f"way each time ({how}): {about.cost}",
        why="Nothing changes from one try to the next: no checkpoint was saved, and no other "
        "place or setting was tried.",
        evidence=(
            ("tries that ended so", count(tried.height)),
            ("most of one job", f"{shown(top['id'], 40)}: {top['tries']:,} tries"),
            ("succeeded in the end", many(solved, "job")),
            ("what they say", what(str(first["reason"])) if first["reason"] else "nothing"),
        ),
        table=Table.of(
            longest,
            5,
            id=("job", lambda name: shown(name, 40)),
            tries=("tries", count),
            seconds=("lost", span),
            outcome=("now", str),
        ),
        advice=_loop_advice(accounts, str(first["ending"])),
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


def _loop_advice(accounts: Accounts, ending: str) -> tuple[Step, ...]:
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


#: Hold codes of HTCondor's own limits (allowed_job_duration, allowed_execute_duration).
CODES = {46: "job", 47: "execute"}
#: Hold codes of policies, where only the text tells what they are about.
POLICIES = (3, 21, 26)
#: Where the OSPool, which names its sites, holds jobs of its categories "Medium" and "Long".
MEDIUM, RAN_LONG = 72000.0, 144000.0
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
    asked = ("attempt", "ending", "code", "cause", "reason", "compute_s", "checkpoints")
    cut = accounts.attempts.select(asked).filter(over).with_columns(reason=reason)
    if not cut.height:
        return []
    allowed = {text: allowed_duration(text) for text in cut.get_column("reason").unique()}
    limits = {text: found[1] if found else None for text, found in allowed.items()}
    cut = cut.with_columns(
        limit=pl.col("reason").replace_strict(limits, default=None, return_dtype=pl.Float64)
    )
    parts = cut.sort("limit", nulls_last=True).group_by("limit", maintain_order=True)
    return [
        _duration_finding(accounts, at if isinstance(at, float) else None, p) for (at,), p in parts
    ]


def _stopped_by_rules(accounts: Accounts) -> pl.Series:
    """The attempts that a rule of the job or of the pool ended because of their time."""
    ruled = pl.col("code").is_in(POLICIES) & pl.col("cause").is_in(TOO_LONG)
    return caused_ends(accounts).filter(ruled).get_column("attempt")


def _duration_finding(accounts: Accounts, at: float | None, cut: pl.DataFrame) -> Finding:
    about = affected(accounts, cut)
    good = accounts.jobs.filter(pl.col("outcome") == JobOutcome.SUCCESS.value)
    typical = median(good.get_column("good_compute_s"))
    evidence = [
        ("computed until then (median)", span(median(cut.get_column("compute_s")))),
        ("checkpoints that they wrote", f"{cut.get_column('checkpoints').sum():,}"),
    ]
    if typical is not None and good.height:
        compared = f"{span(typical)} ({many(good.height, 'job')})"
        evidence.append(("compute of jobs that succeeded (median)", compared))
    where = sited(accounts).get_column("site").gather(cut.get_column("attempt"))
    if where.count():
        evidence.append(("where", listed(sorted_names(where))))
    bad_site = _site(accounts, cut)
    if bad_site:
        site, here, share = bad_site
        there = f"{short_name(site)}: {here:,} of them, {percent(share)} of what ran there"
        evidence.append(("far more often than elsewhere at", there))
    of = f" of {limit(at)}" if at else ""
    jobs = about.jobs
    stopped = f"{many(jobs, 'job')} {'was' if jobs == 1 else 'were'} stopped"
    return about.finding(
        key=f"over-time:{at:.0f}" if at else "over-time",
        title=f"{stopped} at the time limit{of}: {about.cost}",
        why=_duration_why(at, typical, cut),
        evidence=evidence,
        advice=_duration_advice(
            accounts,
            at,
            typical,
            about,
            bad_site[0] if bad_site else None,
            whole=bool((cut.get_column("code") == WHOLE_JOB).any()),
        ),
    )


def _duration_why(at: float | None, typical: float | None, cut: pl.DataFrame) -> str:
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
    ran = sited(accounts).select("attempt", "job", "site", "executed")
    ran = ran.filter(pl.col("executed") & pl.col("site").is_not_null())
    stopped = pl.col("attempt").is_in(cut.get_column("attempt").implode())
    ran = with_cluster(accounts, ran).with_columns(stopped=stopped)
    rows = clearly_worse(against_mates(ran, "site", "stopped"), FACTOR, ATTEMPTS_AT_LEAST)
    if not rows.height:
        return None
    row = rows.sort("hits", "site", descending=[True, False]).row(0, named=True)
    return str(row["site"]), int(row["hits"]), row["hits"] / row["of"]


def _duration_advice(
    accounts: Accounts,
    at: float | None,
    typical: float | None,
    about: Affected,
    site: str | None,
    *,
    whole: bool,
) -> tuple[Step, ...]:
    gain = (
        "what is saved is not lost at the limit, and a released job goes on from there."
        if whole
        else "the limit then counts from the last checkpoint, and nothing is lost."
    )
    paths = 'paths = ["checkpoint.pt"]'
    steps: list[Step] = [
        submit(
            f"Write a checkpoint, exit with 85 and be started again: {gain}",
            "checkpoint_exit_code = 85",
            "transfer_checkpoint_files = checkpoint.pt",
        ),
        job_toml("The same in job.toml.", "[checkpoint]", paths, 'interval = "1 h"'),
    ]
    ospool = at == MEDIUM and bool(accounts.site_names)
    if ospool and (typical is None or typical > MEDIUM / 4):
        steps += both(
            "A job that needs 10 to 20 hours belongs in the longer category of the OSPool, "
            "which is held at 40 hours.",
            '+JobDurationCategory = "Long"',
            'duration = "Long"',
        )
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
        f"condor_qedit {job} JobDurationCategory '\"Long\"' AllowedExecuteDuration {RAN_LONG:.0f}",
        f"condor_release {job}",
    )
