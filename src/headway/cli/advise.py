"""`headway advise`: what to do about held jobs, and why."""

from __future__ import annotations

import contextlib
import gc
import re
import shlex
import shutil
import time
from argparse import Namespace
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headway.cli.commands import OK
from headway.cli.parser import Parser, UsageError
from headway.cli.terminal import (
    metered,
    paint,
    patience,
    print_hidden,
    print_json,
    print_stderr,
    print_table,
)
from headway.errors import HeadwayError, PoolError
from headway.holds.advice import CONDOR, Act, Advice, Change, Commands, set_words
from headway.holds.evidence import span
from headway.text import many, printable, wrapped

if TYPE_CHECKING:
    from headway.cli.address import Address
    from headway.holds.history import History
    from headway.holds.hold import Hold
    from headway.pool.folder import RunFolder

#: What to do, in words, and its colour; what can be done at once comes first.
_VERDICTS = {
    Act.RELEASE: ("release", "green"),
    Act.CHANGE: ("change, then release", "yellow"),
    Act.WAIT: ("wait, then release", "cyan"),
    Act.REMOVE: ("remove", "red"),
    Act.UNKNOWN: ("cannot tell", "dim"),
    Act.LEAVE: ("leave it", "dim"),
}
_ORDER = list(_VERDICTS)
_WIDEST = 96
_LONGEST_COMMAND = 500
MOST = 50  # rows of the table, unless all are asked for
_JOB = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}\Z", re.ASCII)
_PAUSE = 10_000  # holds that are judged between two updates of the progress


def document(advices: Iterable[Advice], asked: HeldJobs) -> dict[str, Any]:
    """What `--json` prints."""
    made = [
        {"name": _name(advice, asked), "group": group_of(advice), **advice.as_json()}
        for advice in advices
    ]
    return {
        "of": asked.what,
        "held": len(made),
        "counts": Counter(each["act"] for each in made),
        "unread": [{"file": file, "why": why} for file, why in asked.history.unread],
        "advice": made,
    }


def _name(advice: Advice, asked: HeldJobs) -> str:
    hold = advice.hold
    return asked.names.get((hold.cluster, hold.proc)) or str(hold.job)


def group_of(advice: Advice) -> str:
    """The name of the group that an advice belongs to: its act, its cause, its edits."""
    edits = (f"{each.attribute}={each.new}" for each in advice.changes if each.new)
    return ":".join([advice.act.value.replace(" ", "-"), advice.cause, *edits])


def members_of(group: str, advices: Iterable[Advice], asked: HeldJobs) -> list[str]:
    """The jobs of a group, or of all groups whose names begin like it."""
    found = [
        _name(each, asked)
        for each in advices
        if group_of(each) == group or group_of(each).startswith(f"{group}:")
    ]
    if not found:
        known = sorted({group_of(each) for each in advices})
        raise UsageError(
            f"no held job is in the group {group!r}",
            f"the groups are: {', '.join(known[:8])}" if known else "no job is held",
        )
    return found


def print_card(advice: Advice, asked: HeldJobs, now: float) -> None:
    """Print everything about one job, the verdict first."""
    hold = advice.hold
    print(f"{paint(_name(advice, asked), 'bold')}  {_verdict(advice)}{_chance(advice)}")
    if advice.until_words and advice.act is Act.WAIT:
        _print(f"Wait {advice.until_words}.")
    _print(advice.headline, style="bold")
    print(paint(f"  {_circumstances(advice, now)}", "dim"))
    if hold.reason:
        where = f" (012 of {hold.job} in {hold.log[:200]})" if hold.log else ""
        _print(f"the log says{where}: {hold.reason[:600]}", style="dim")
    print()
    for reason in advice.reasons:
        _print(reason, "- ")
    if advice.changes:
        print(f"\n  {paint('Change', 'bold')}")
        for change in advice.changes:
            _print(change.words, "- ")
            if change.line:
                _print(f"for future jobs: {change.line}", "  ", style="dim")
    if advice.cost_release is not None and advice.cost_remove is not None:
        release, remove = _hours(advice.cost_release), _hours(advice.cost_remove)
        loss = f"Expected loss: {release} {advice.cost_unit} if it is released as it is"
        print()
        _print(f"{loss}, {remove} if it is removed.")
    if advice.command:
        print()
        if advice.act is Act.CHANGE and not any(change.new for change in advice.changes):
            print("  When that is done:")
        print(f"  {paint(printable(advice.command), 'cyan')}")


def print_many(advices: Sequence[Advice], asked: HeldJobs, now: float, most: int | None) -> None:
    """Print the held jobs by cause, a command for each group, and a table of the jobs."""
    for file, why in asked.history.unread[:3]:
        print_stderr(f"not read: {printable(file)} {printable(why)}")
    number = many(len(advices), "held job") if advices else "no job is held"
    print(f"{paint(printable(asked.what), 'bold')}: {number}")
    if not advices:
        return
    groups: defaultdict[str, list[Advice]] = defaultdict(list)
    for advice in advices:
        groups[group_of(advice)].append(advice)
    for members in sorted(groups.values(), key=lambda g: (_ORDER.index(g[0].act), -len(g))):
        print()
        _print_group(members, asked)
    print()
    _print_jobs(advices, asked, now, most)


def _print_group(members: Sequence[Advice], asked: HeldJobs) -> None:
    first = members[0]
    print(f"{_verdict(first)}  {many(len(members), 'job')}{_chances(members)}")
    others = "" if len({each.headline for each in members}) == 1 else " (and others like it)"
    _print(f"{first.headline}{others}", style="bold")
    if first.act is Act.WAIT and first.until_words:
        _print(f"Wait {members[-1].until_words}.")
    for change in first.changes:
        _print(change.words, "- ")
    if not first.changes:
        _print(first.reasons[-1])
    if command := _group_command(members, asked):
        print(f"  {paint(printable(command), 'cyan')}")


def _group_command(members: Sequence[Advice], asked: HeldJobs) -> str:
    if len(members) == 1:
        return members[0].command
    act = members[0].act
    jobs = [each.hold.job for each in members]
    if act in (Act.LEAVE, Act.UNKNOWN):
        return ""
    edits = [change for change in members[0].changes if change.attribute and change.new]
    parts = [asked.commands.edit(jobs, edit.attribute, edit.new) for edit in edits]
    last = asked.commands.remove(jobs) if act is Act.REMOVE else asked.commands.release(jobs)
    command = " && ".join(part for part in [*parts, last] if part)
    return command if len(command) <= _LONGEST_COMMAND else _piped(members, edits, asked)


def _piped(members: Sequence[Advice], edits: Sequence[Change], asked: HeldJobs) -> str:
    """The command for so many jobs that their numbers come from another call."""
    ids = f"headway advise {asked.words} --ids {shlex.quote(group_of(members[0]))}"
    tool = "headway release" if asked.names else "condor_release"
    if members[0].act is Act.REMOVE:
        tool = "headway remove" if asked.names else "condor_rm"
    if not edits:
        return f"{ids} | xargs {tool}"
    # Once a job is edited it is in another group: the names are kept for the last step.
    parts = [f"{ids} > held-jobs.txt"]
    for edit in edits:
        words = set_words(edit.attribute, edit.new)
        change = f"-I ID condor_qedit ID {edit.attribute} {shlex.quote(edit.new)}"
        parts.append(f"xargs {f'headway set {words}' if asked.names else change} < held-jobs.txt")
    return " && ".join([*parts, f"xargs {tool} < held-jobs.txt"])


def _print_jobs(advices: Sequence[Advice], asked: HeldJobs, now: float, most: int | None) -> None:
    ordered = sorted(advices, key=lambda each: (_ORDER.index(each.act), each.hold.job))
    shown = ordered if most is None else ordered[:most]
    rows = [
        (
            _name(each, asked),
            each.act.value,
            "" if each.probability is None else _percent(each.probability),
            span(max(0.0, now - each.hold.time)),
            str(each.hold.holds),
            printable(each.hold.site[:40]),
            printable(each.headline),
        )
        for each in shown
    ]
    print_table(
        ("job", "advice", "chance", "held for", "hold", "site", "why"),
        rows,
        [_VERDICTS[each.act][1] for each in shown],
    )
    print_hidden(len(ordered) - len(shown), "--all shows them")


def _verdict(advice: Advice) -> str:
    words, style = _VERDICTS[advice.act]
    return paint(words, f"bold {style}")


def _chance(advice: Advice) -> str:
    if advice.probability is None or advice.low is None or advice.high is None:
        return ""
    then = {Act.CHANGE: "after the change ", Act.UNKNOWN: "released as it is "}.get(advice.act, "")
    text = f"{then}{_percent(advice.probability)} likely to succeed"
    text += f" ({_percent(advice.low)} to {_percent(advice.high)}"
    text += ", thin evidence)" if advice.thin else f", {advice.cases:,} cases)"
    return f"  {text}"


def _chances(members: Sequence[Advice]) -> str:
    found = [each.probability for each in members if each.probability is not None]
    if not found:
        return ""
    low, high = _percent(min(found)), _percent(max(found))
    thin = ", thin evidence" if all(each.thin for each in members) else ""
    then = {Act.CHANGE: "after the change "}.get(members[0].act, "")
    return f", {then}{low if low == high else f'{low} to {high}'} likely to succeed{thin}"


def _circumstances(advice: Advice, now: float) -> str:
    hold = advice.hold
    parts = [
        f"held {span(max(0.0, now - hold.time))} ago",
        f"hold number {hold.holds}",
        many(hold.starts, "start") if hold.starts else "",
        f"at {printable(hold.site[:80])}" if hold.site else "",
        "better elsewhere next time" if advice.avoid_site else "",
        f"code {hold.code}/{hold.subcode}",
    ]
    return ", ".join(filter(None, parts))


def _percent(share: float) -> str:
    """Never quite certain."""
    return f"{min(0.99, max(0.01, share)):.0%}"


def _hours(hours: float) -> str:
    if 0 < hours < 0.01:
        return "less than 0.01"
    return f"{hours:.1f}" if hours >= 1 else f"{hours:.2f}"


def _print(text: str, lead: str = "", style: str = "") -> None:
    """Print a paragraph, wrapped at the terminal's edge."""
    width = min(_WIDEST, shutil.get_terminal_size().columns) - 2 - len(lead)
    for number, line in enumerate(wrapped(printable(text), max(20, width))):
        before = lead if not number else " " * len(lead)
        print(f"  {before}{paint(line, style)}")


def parser(name: str) -> Parser:
    made = Parser(
        name,
        call,
        "[JOB|RUN|LOG…] [--held] [options]",
        "Explain what to do about held jobs: release them, change something and release them, wait,"
        " or remove them. For each job headway advise shows how likely a release is to succeed, the"
        " reasons, and the command to type. It learns from the event logs up to the time of the"
        " hold, and it checks what can be checked now: whether a server has the file, whether a"
        " path exists. It changes nothing, and it gives no advice on jobs that somebody holds on"
        " purpose.",
        [
            ("headway advise train.log", "the held jobs of a log; needs no pool"),
            ("headway advise train.log 8123.4", "one job of it"),
            ("headway advise cifar10-3", "the held jobs of a run"),
            ("headway advise cifar10-3.0", "one job of a run"),
            ("headway advise 8123.4", "a job in the queue of this access point"),
            ("headway advise --held", "all my held jobs in the queue"),
            ("headway advise --held --json", "for programs"),
        ],
    )
    made.argument("place", "JOB|RUN|LOG", "jobs, a run or logs; default: the newest run", nargs="*")
    made.flag("--held", "all held jobs in the queue")
    made.option("--user", "NAME", "with --held: whose jobs; default: yours; all: everybody's")
    made.option("--pool", "POOL", "which queue: htcondor or htcondor:schedd=NAME")
    made.option("--also", "LOG", "another log to learn from; may be repeated", many=True)
    made.flag("--offline", "read only the logs; ask no server")
    made.option("--ids", "GROUP", "print only the jobs of a group, such as release:input-network")
    made.flag("--all", f"show every job, even if there are more than {MOST}")
    return made


@dataclass
class HeldJobs:
    """The held jobs that were asked for, what is known of them, and the commands to type."""

    what: str
    history: History
    holds: list[Hold]
    commands: Commands
    here: bool = False  # whether this machine is the access point of the jobs
    one: str = ""  # the name of the job, if one was asked for
    words: str = ""  # the arguments that ask for the same again
    names: dict[tuple[int, int], str] = field(default_factory=dict)
    abandoned: str = ""  # the label of the run, if its local pool has ended


def call(arguments: Namespace) -> int:
    with patience("reading the event logs"):
        asked = _asked(arguments)
        asked.words = _again(arguments)
    gc.freeze()  # the command ends soon: no need to search a long history for cycles
    advices = _advices(asked, arguments)
    if arguments.ids:
        for name in members_of(arguments.ids, advices, asked):
            print(name)
    elif arguments.json:
        print_json(document(advices, asked))
    elif asked.one and not advices:
        print(f"{asked.one} is not held")
    elif asked.one:
        print_card(advices[-1], asked, time.time())
    else:
        print_many(advices, asked, time.time(), None if arguments.all else MOST)
    if asked.abandoned and advices and not (arguments.ids or arguments.json):
        from headway.cli.job_text import nobody_runs

        print(nobody_runs(asked.abandoned))
    return OK


def _again(arguments: Namespace) -> str:
    words = list(arguments.place)
    words += ["--held"] if arguments.held else []
    for name in ("user", "pool"):
        words += [f"--{name}", getattr(arguments, name)] if getattr(arguments, name) else []
    for log in arguments.also:
        words += ["--also", log]
    words += ["--offline"] if arguments.offline else []
    return shlex.join(words)


def _advices(asked: HeldJobs, arguments: Namespace) -> list[Advice]:
    from headway.holds.advise import advise
    from headway.holds.checks import check

    now = time.time()
    with patience("looking at what stopped them"):
        found = check(
            asked.holds, asked.history, now=now, offline=arguments.offline, here=asked.here
        )
    made: list[Advice] = []
    with metered("weighing the evidence") as progress:
        for number, (hold, findings) in enumerate(zip(asked.holds, found, strict=True)):
            made.append(advise(hold, asked.history, findings, now, commands=asked.commands))
            if number % _PAUSE == 0:
                progress(number, len(asked.holds))
    return made


def _asked(arguments: Namespace) -> HeldJobs:
    from headway.cli.address import are_logs

    words: list[str] = arguments.place
    if arguments.held:
        if words:
            raise UsageError(
                f"--held and {words[0]} do not go together",
                "--held means the whole queue; --also LOG names more logs to learn from",
            )
        return _queued(arguments, None)
    if arguments.user is not None:
        raise UsageError("--user goes with --held", "add --held")
    jobs = [word for word in words if _JOB.match(word)]
    logs = [word for word in words if word not in jobs]
    if are_logs(logs):
        return _of_logs(logs, jobs, arguments)
    if len(words) > 1:
        remedy = "name one run or one job, or any number of logs"
        raise UsageError(f"unexpected argument {words[1]!r}", remedy)
    return _of_run_or_queue(words[0] if words else None, arguments)


def _of_logs(logs: list[str], jobs: list[str], arguments: Namespace) -> HeldJobs:
    history = _history([*logs, *arguments.also])
    holds = _chosen(history, [_job(word) for word in jobs])
    if arguments.also:
        from headway.events.files import find_logs

        own = {chain.name for chain in find_logs(logs)}
        holds = [hold for hold in holds if hold.log in own]
    what = logs[0] if len(logs) == 1 else f"{logs[0]} and {len(logs) - 1} more"
    return HeldJobs(what, history, holds, CONDOR, one=jobs[0] if len(jobs) == 1 else "")


def _of_run_or_queue(word: str | None, arguments: Namespace) -> HeldJobs:
    """A job of a run that is here goes before a job in the queue of the same number."""
    from headway.cli.address import find
    from headway.pool.folder import Runs

    match = _JOB.match(word) if word else None
    if arguments.pool is not None or (match and not list(Runs.here())):
        if not match:
            raise UsageError(
                "--pool goes with --held or a job's number",
                "a run knows its pool; leave --pool out",
            )
        return _queued(arguments, _job(word or ""))
    try:
        address = find(word)
    except HeadwayError:
        if not match:
            raise
        return _queued(arguments, _job(word or ""))
    return _of_run(address, arguments)


def _of_run(address: Address, arguments: Namespace) -> HeldJobs:
    run = address.folder
    if not run.events.exists():
        raise UsageError(
            f"{run.label} has no event log yet",
            f"it was not submitted; `headway run --resume {run.label}` submits it",
        )
    history = _history([str(run.events), *arguments.also])
    cluster, ids = run.facts.cluster, _ids(run)
    jobs = []
    if address.job is not None and cluster is not None:
        jobs = [ids.get(address.job, (cluster, address.job))]
    here = [log for log in history.logs if log.startswith(str(run.path))]
    holds = [hold for hold in _chosen(history, jobs) if not here or hold.log in here]
    local = run.facts.pool.get("kind") == "local"
    holds = _with_requests(run, holds, offline=arguments.offline)
    commands = CONDOR if ids else Commands(run.label, local)
    asked = HeldJobs(run.label, history, holds, commands, here=True)
    numbers = {key: number for number, key in ids.items()}
    asked.names = {
        key: f"{run.label}.{numbers.get(key, key[1])}"
        for key in ((hold.cluster, hold.proc) for hold in asked.holds)
    }
    asked.one = "" if address.job is None else str(address)
    if local and holds:
        from headway.api import Run

        with contextlib.suppress(HeadwayError):  # of another user's run we can only read the log
            asked.abandoned = run.label if Run(run).lost() else ""
    return asked


def _ids(run: RunFolder) -> dict[int, tuple[int, int]]:
    """HTCondor's ids of the jobs of a DAG, by their numbers in the run; else empty."""
    if not run.dag.exists():
        return {}
    from headway.api import Run

    return {number: _job(state.htcondor_id) for number, state in Run(run).jobs.items()}


def _with_requests(run: RunFolder, holds: list[Hold], *, offline: bool) -> list[Hold]:
    """The holds with what their jobs request now, where the advice depends on it.

    A request may have changed since the hold, and HTCondor's log does not say so.
    """
    from headway.holds.hold import Key, meaning_of
    from headway.holds.queue import queue_of_run
    from headway.pool import pool_of

    if not any("request" in meaning_of(hold).checks for hold in holds):
        return holds
    facts = run.facts
    ads: dict[Key, Mapping[str, object]] = {}
    if facts.pool.get("kind") == "local" or (not offline and facts.cluster is not None):
        try:
            with patience("asking the queue"):
                held = queue_of_run(run, pool_of(facts.pool)).held()
            ads = {job.key: job.facts for job in held}
        except PoolError as error:
            print_stderr(f"using only the log: {printable(error.message)}")
    return [hold.knowing(ads.get(Key(hold.cluster, hold.proc), {})) for hold in holds]


def _queued(arguments: Namespace, job: tuple[int, int] | None) -> HeldJobs:
    from headway.holds.queue import holds_of, logs_of, queue_of_pool

    pool = arguments.pool or "htcondor"
    if pool.partition(":")[0] != "htcondor":
        remedy = "name a run of that pool, or use --pool htcondor"
        raise UsageError(f"--pool {pool} has no queue to ask", remedy)
    user = ""
    if job is None and arguments.user != "all":
        from headway.pool.folder import own_name

        user = arguments.user or own_name()
    queue = queue_of_pool(pool, user=user, job=job)
    with patience("asking the queue"):
        held = queue.held(edits=False)
    history = _history([*logs_of(held), *arguments.also])
    what = f"the queue, {user}" if user else "the queue"
    one = "" if job is None else f"{job[0]}.{job[1]}"
    return HeldJobs(what, history, holds_of(held, history), CONDOR, here=queue.is_here, one=one)


def _history(paths: Sequence[str]) -> History:
    from headway.holds.history import History

    return History.from_logs(paths) if paths else History()


def _chosen(history: History, jobs: Sequence[tuple[int, int]]) -> list[Hold]:
    held = history.held()
    if not jobs:
        return held
    for cluster, proc in jobs:
        if not history.knows(cluster, proc):
            raise UsageError(
                f"there is no job {cluster}.{proc} in the log",
                "`headway status LOG` shows the jobs of the log",
            )
    return [hold for hold in held if (hold.cluster, hold.proc) in jobs]


def _job(word: str) -> tuple[int, int]:
    cluster, _, proc = word.partition(".")
    return int(cluster), int(proc)
