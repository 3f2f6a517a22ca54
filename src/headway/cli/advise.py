"""`headway advise`: what to do about held jobs, and why."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import shlex
import sys
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headway.cli import OK
from headway.cli.parser import Parser, UsageError
from headway.errors import HeadwayError

if TYPE_CHECKING:
    from headway.advisor import Advice, History, Hold
    from headway.advisor.commands import Commands
    from headway.cli.address import Address
    from headway.pool.folder import RunFolder
    from headway.pool.schedd import Schedd

MOST = 50  # rows of the table, unless all are asked for
_JOB = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})\Z", re.ASCII)
_PAUSE = 10_000  # holds that are judged between two words on the progress


def parser(name: str) -> Parser:
    made = Parser(
        name,
        "[JOB|RUN|LOG…] [--held] [options]",
        "Say what to do about held jobs: release, change something and release, wait, remove, or\n"
        "that it cannot be told, with how likely a release succeeds, the reasons, and the command\n"
        "to type. Learns from the event logs that it is given, up to the moment of the hold, and\n"
        "looks at what can be looked at now (does the object answer, is the file there). Changes\n"
        "nothing. Jobs that somebody put on hold on purpose get no advice.",
        [
            ("headway advise train.log", "the held jobs of a log; needs no pool"),
            ("headway advise train.log 8123.4", "one job of it"),
            ("headway advise cifar10-3", "the held jobs of a run"),
            ("headway advise cifar10-3.0", "one job of a run"),
            ("headway advise 8123.4", "a job of this access point's queue"),
            ("headway advise --held", "all my held jobs in the queue"),
            ("headway advise --held --json", "for programs"),
        ],
    )
    made.add_argument(
        "place", nargs="*", metavar="JOB|RUN|LOG", help="jobs, a run, logs; default: newest run"
    )
    made.add_argument("--held", action="store_true", help="all held jobs of the queue")
    made.add_argument(
        "--user", metavar="NAME", help="with --held: whose; default: yours; all: everybody's"
    )
    made.add_argument(
        "--pool", metavar="POOL", help="which queue: htcondor, or htcondor:schedd=NAME"
    )
    made.add_argument(
        "--also", action="append", default=[], metavar="LOG", help="another log to learn from"
    )
    made.add_argument(
        "--offline", action="store_true", help="look at nothing but the logs; ask no server"
    )
    made.add_argument(
        "--ids", metavar="GROUP", help="print the jobs of a group alone: release:input-network"
    )
    made.add_argument("--all", action="store_true", help=f"every job, also beyond {MOST}")
    made.set_defaults(call=call)
    return made


@dataclass
class Asked:
    """What the advice is about: the holds, what is known, and how one acts on these jobs."""

    what: str
    history: History
    holds: list[Hold]
    commands: Commands
    #: This machine is the jobs' access point.
    here: bool = False
    #: One job was asked for, by this name.
    one: str = ""
    #: How the same is asked for again.
    words: str = ""
    names: dict[tuple[int, int], str] = field(default_factory=dict)
    #: The local pool of this run has ended: what releases jobs by itself does so only with it.
    abandoned: str = ""


def call(arguments: Namespace) -> int:
    from headway.cli.show import patience

    with patience("reading the event logs"):
        asked = _asked(arguments)
        asked.words = _again(arguments)
    gc.freeze()  # the command ends soon: nothing of a long history need be searched for cycles
    advices = _advices(asked, arguments)
    if arguments.ids:
        from headway.cli.advice import members_of

        for name in members_of(arguments.ids, advices, asked):
            print(name)
    elif arguments.json:
        from headway.cli.advice import document
        from headway.cli.show import print_json

        print_json(document(advices, asked))
    elif asked.one and not advices:
        print(f"{asked.one} is not held")
    elif asked.one:
        from headway.cli.advice import print_card

        print_card(advices[-1], asked, time.time())
    else:
        from headway.cli.advice import print_many

        print_many(advices, asked, time.time(), None if arguments.all else MOST)
    if asked.abandoned and advices and not (arguments.ids or arguments.json):
        from headway.cli.words import nobody_runs

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


def _advices(asked: Asked, arguments: Namespace) -> list[Advice]:
    from headway.advisor import advise
    from headway.advisor.checks import check
    from headway.cli.show import metered, patience

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


def _asked(arguments: Namespace) -> Asked:
    words: list[str] = arguments.place
    if arguments.held:
        if words:
            raise UsageError(
                f"headway advise: --held and {words[0]} do not go together",
                remedy="--held means the whole queue; --also LOG names more logs to learn from",
            )
        return _queued(arguments, None)
    if arguments.user is not None:
        raise UsageError("headway advise: --user goes with --held", remedy="add --held")
    jobs = [word for word in words if _JOB.match(word)]
    logs = [word for word in words if word not in jobs]
    if logs and _are_logs(logs):
        return _of_logs(logs, jobs, arguments)
    if len(words) > 1:
        raise UsageError(
            f"headway advise: {words[1]!r} is one too many",
            remedy="name one run or one job, or any number of logs",
        )
    return _of_run_or_queue(words[0] if words else None, arguments)


def _are_logs(words: Sequence[str]) -> bool:
    """As `log_status.are_logs` has it, which need not be loaded for what is plainly a file."""
    if all(os.path.isfile(word) and (os.sep in word or word.endswith(".log")) for word in words):
        return True
    from headway.cli.log_status import are_logs

    return are_logs(words)


def _of_logs(logs: list[str], jobs: list[str], arguments: Namespace) -> Asked:
    from headway.advisor.commands import CONDOR

    history = _history([*logs, *arguments.also])
    holds = _chosen(history, [_job(word) for word in jobs])
    if arguments.also:
        from headway.events.forms.files import find_logs

        own = {chain.name for chain in find_logs(logs)}
        holds = [hold for hold in holds if hold.log in own]
    what = logs[0] if len(logs) == 1 else f"{logs[0]} and {len(logs) - 1} more"
    asked = Asked(what, history, holds, CONDOR)
    if len(jobs) == 1:
        asked.one = jobs[0]
    return asked


def _of_run_or_queue(word: str | None, arguments: Namespace) -> Asked:
    """A run that is here goes before a job of the queue of the same number."""
    from headway.cli.address import find
    from headway.pool.folder import Runs

    match = _JOB.match(word) if word else None
    if arguments.pool is not None or (match and not list(Runs.here())):
        if not match:
            raise UsageError(
                "headway advise: --pool goes with --held or a job's number",
                remedy="a run knows its pool: leave --pool out",
            )
        return _queued(arguments, _job(word or ""))
    try:
        address = find(word)
    except HeadwayError:
        if not match:
            raise
        return _queued(arguments, _job(word or ""))
    return _of_run(address, arguments)


def _of_run(address: Address, arguments: Namespace) -> Asked:
    from headway.advisor.commands import RunCommands

    run = address.folder
    if not run.events.exists():
        raise UsageError(
            f"headway advise: {run.label} has no event log yet",
            remedy=f"it was not submitted; `headway run --resume {run.label}` does that",
        )
    history = _history([str(run.events), *arguments.also])
    cluster = run.facts.cluster
    jobs = [] if address.job is None or cluster is None else [(cluster, address.job)]
    here = [log for log in history.logs if log.startswith(str(run.path))]
    holds = [hold for hold in _chosen(history, jobs) if not here or hold.log in here]
    local = run.facts.pool.get("kind") == "local"
    holds = _with_requests(run, holds, offline=arguments.offline)
    asked = Asked(run.label, history, holds, RunCommands(run.label, local), here=True)
    asked.names = {(hold.cluster, hold.proc): f"{run.label}.{hold.proc}" for hold in asked.holds}
    if address.job is not None:
        asked.one = str(address)
    if local and holds:
        from headway.api import Run

        with contextlib.suppress(HeadwayError):  # somebody else's run: its log is all there is
            asked.abandoned = run.label if Run(run).lost() else ""
    return asked


def _with_requests(run: RunFolder, holds: list[Hold], *, offline: bool) -> list[Hold]:
    """The holds with what their jobs ask for now, where the advice depends on it.

    A request may have been changed since the hold, and HTCondor's log does not tell of that.
    """
    from headway.advisor.hold import entry_of
    from headway.cli.show import patience, printable
    from headway.errors import PoolError
    from headway.pool import pool_of

    if not any("request" in entry_of(hold).checks for hold in holds):
        return holds
    ads: Mapping[int, Mapping[str, object]] = {}
    facts = run.facts
    if facts.pool.get("kind") == "local":
        ads = pool_of(facts.pool).query(run)
    elif not offline and facts.cluster is not None:
        from headway.advisor.queue import held_ads
        from headway.pool.schedd import Schedd, run_scope

        schedd = Schedd(facts.pool.get("schedd"), facts.pool.get("collector"))
        try:
            with patience("asking the queue"):
                found = held_ads(schedd, scope=run_scope(facts.cluster, facts.id))
            ads = {ad["ProcId"]: ad for ad in found}
        except PoolError as error:
            print(f"by the log alone: {printable(error.message)}", file=sys.stderr)
    return [hold.knowing(ads.get(hold.proc, {})) for hold in holds]


def _queued(arguments: Namespace, job: tuple[int, int] | None) -> Asked:
    from headway.advisor.commands import CONDOR
    from headway.advisor.queue import held_ads, holds_of, logs_of
    from headway.cli.show import patience

    schedd, remote = _schedd(arguments.pool)
    user = ""
    if job is None and arguments.user != "all":
        from headway.pool.owners import own_name

        user = arguments.user or own_name()
    with patience("asking the queue"):
        ads = held_ads(schedd, user=user, job=job)
    history = _history([*logs_of(ads), *arguments.also])
    what = f"the queue, {user}" if user else "the queue"
    asked = Asked(what, history, holds_of(ads, history), CONDOR, here=not remote)
    if job is not None:
        asked.one = f"{job[0]}.{job[1]}"
    return asked


def _schedd(pool: str | None) -> tuple[Schedd, bool]:
    from headway.pool.htcondor import HTCondorPool
    from headway.pool.schedd import Schedd

    kind, _, options = (pool or "htcondor").partition(":")
    if kind != "htcondor":
        raise UsageError(
            f"headway advise: --pool {pool} has no queue to ask",
            remedy="name a run of it, or --pool htcondor",
        )
    facts = HTCondorPool.parse(options).facts()
    return Schedd(facts["schedd"], facts["collector"]), bool(facts["schedd"])


def _history(paths: Sequence[str]) -> History:
    from headway.advisor import History

    return History.from_logs(paths) if paths else History()


def _chosen(history: History, jobs: Sequence[tuple[int, int]]) -> list[Hold]:
    held = history.held()
    if not jobs:
        return held
    for cluster, proc in jobs:
        if not history.knows(cluster, proc):
            raise UsageError(
                f"headway advise: there is no job {cluster}.{proc} in the log",
                remedy="`headway status LOG` shows the jobs that are",
            )
    return [hold for hold in held if (hold.cluster, hold.proc) in jobs]


def _job(word: str) -> tuple[int, int]:
    match = _JOB.match(word)
    if match is None:
        raise UsageError(f"headway advise: {word!r} is no job", remedy="such as 8123.4")
    return int(match[1]), int(match[2])
