"""`headway heal`: release held jobs that can succeed, and leave the others alone."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.commands import INTERRUPTED, OK
from headway.cli.parser import Parser, UsageError, whole_number
from headway.cli.terminal import (
    StopSignal,
    clock,
    date_time,
    near,
    paint,
    patience,
    print_hidden,
    print_json,
    print_stderr,
    print_table,
)
from headway.spec.units import parse_duration, parse_size
from headway.text import many, printable

if TYPE_CHECKING:
    from headway.errors import PoolError
    from headway.holds.audit import HealAction
    from headway.holds.decisions import Decision
    from headway.holds.heal import Healer
    from headway.holds.rules import Rules
    from headway.pool import RunFolder

_MOST = 40  # lines of one kind
_STYLES = {"release": "green", "remove": "red", "wait": "yellow", "leave": "dim"}
_PAST = {"release": "released", "remove": "removed"}


def print_decisions(healer: Healer, *, did: bool) -> None:
    """Print every decision, those with something to do first, and what the queue refused."""
    name, decisions = healer.queue.name, healer.decisions
    if not decisions:
        print(f"{name}: no job is held")
        return
    order = list(_STYLES)
    shown = sorted(decisions, key=lambda d: order.index(d.verb.value))[:_MOST]
    rows = [
        (d.verb.value, str(d.case.held.key), _code(d), _words(d, f"until {clock(d.due)} at most"))
        for d in shown
    ]
    print_table(("", "job", "code", "why"), rows, [_STYLES[d.verb.value] for d in shown])
    print_hidden(len(decisions) - len(shown), "--json has all of them")
    counts = Counter(d.verb.value for d in decisions)
    print(f"{name}: " + ", ".join(f"{counts[verb]:,} to {verb}" for verb in order if counts[verb]))
    if not did and (counts["release"] or counts["remove"]):
        print("nothing was done; --do does it")
    for decision in decisions:
        if words := _refusal(healer, decision):
            print(f"{decision.case.held.key} was not {_PAST[decision.verb.value]}: {words}")


def decisions_as_json(healer: Healer) -> dict[str, Any]:
    """The same for programs; `refused` says why the queue did not do what was decided."""
    refusals = [(decision, _refusal(healer, decision)) for decision in healer.decisions]
    decisions = [
        {**decision.as_json(), **({"refused": refusal} if refusal else {})}
        for decision, refusal in refusals
    ]
    return {"queue": healer.queue.name, "decisions": decisions}


def _refusal(healer: Healer, decision: Decision) -> str:
    """Why the queue did not do what was decided; empty if it did, or if nothing was tried."""
    entry = healer.state.by_id.get(decision.intent.id) if decision.intent else None
    return printable(entry.words) if entry is not None and entry.done is False else ""


def _code(decision: Decision) -> str:
    held = decision.case.held
    return f"{held.code}/{held.subcode}"


def _words(decision: Decision, wait: str) -> str:
    """The reason for a decision, with what is changed, or `wait`: how long heal waits."""
    intent = decision.intent
    words = printable(decision.why)
    if intent is not None:
        edits = [f"{e.attribute} = {e.new}" for e in intent.edits if e.old]
        edits += [f"not at {', '.join(intent.avoid)}"] if intent.avoid else []
        words += f" ({'; '.join(edits)})" if edits else ""
    elif decision.verb.value == "wait":
        words += f" ({wait})"
    return words


class HealPrinter:
    """Prints what is new while heal watches."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._printed: dict[tuple[str, str], str] = {}
        self._ended: set[str] = set()
        self._healers: list[Healer] = []

    def begins(self, healer: Healer) -> None:
        """Heal begins to watch."""
        self._healers.append(healer)
        # The audit has the ends that an earlier heal has seen.
        self._ended |= {id for id, entry in healer.state.by_id.items() if entry.ending is not None}
        if not self._as_json:
            print(f"watching the jobs of {healer.queue.name}; press Ctrl-C to end", flush=True)

    def looked(self, healer: Healer) -> None:
        """Print the new decisions and ends of the last look."""
        for decision in healer.decisions:
            key = (healer.queue.name, decision.id)
            text = f"{decision.verb.value} {decision.why}"
            if self._printed.get(key) != text:
                self._printed[key] = text
                self._decided(healer, decision)
        for id, entry in healer.state.by_id.items():
            if entry.ending is not None and id not in self._ended:
                self._ended.add(id)
                self._end(healer, entry)

    def trouble(self, healer: Healer, error: PoolError) -> None:
        """The pool did not answer."""
        if not self._print_json("trouble", healer, message=error.message):
            print_stderr(f"{healer.queue.name}: {printable(error.message)}")

    def ends(self, *, interrupted: bool) -> None:
        """Heal has ended."""
        for healer in self._healers:
            done = list(healer.state.by_id.values())
            if not self._print_json("end", healer, **_counts(done)):
                why = "heal ended" if interrupted else "no job is left"
                print(f"{healer.queue.name}: {why}; {summary(done)}")

    def _decided(self, healer: Healer, decision: Decision) -> None:
        # Whatever a decision waits for, heal looks at all jobs when the first decision is due.
        look = time.time() + max(0.0, healer.due - time.monotonic())
        facts = {"next_look": round(look, 3), **decision.as_json()}
        if self._print_json("decision", healer, **facts):
            return
        verb = paint(f"{decision.verb.value:<8}", _STYLES[decision.verb.value])
        job = decision.case.held.key
        words = _words(decision, f"looks again at {clock(look)}, or when its log has news")
        print(f"{clock()} {verb} {job} {_code(decision)}: {words}", flush=True)
        if refusal := _refusal(healer, decision):
            print(f"{clock()} {'not done':<8} {job}: {refusal}", flush=True)

    def _end(self, healer: Healer, entry: HealAction) -> None:
        assert entry.ending is not None
        job, how = entry.intent.key, entry.ending.value
        if not self._print_json("outcome", healer, job=str(job), how=how):
            print(f"{clock()} {'ended':<8} {job}: {how}", flush=True)

    def _print_json(self, type: str, healer: Healer, **facts: object) -> bool:
        """Print a JSON line, if that is wanted; returns whether it is."""
        if self._as_json:
            print_json({"type": type, "queue": healer.queue.name, **facts})
        return self._as_json


def summary(entries: Sequence[HealAction]) -> str:
    """All actions of an audit in one sentence."""
    counts = _counts(entries)
    endings = ", ".join(f"{n:,} {how}" for how, n in counts["endings"].items())
    made = f"{many(counts['releases'], 'release')}, {many(counts['removals'], 'removal')}"
    return f"{made}{f': {endings}' if endings else ''}"


def _counts(entries: Sequence[HealAction]) -> dict[str, Any]:
    endings = Counter(e.ending.value for e in entries if e.ending is not None and e.is_release)
    return {
        "releases": sum(bool(e.done) and e.is_release for e in entries),
        "removals": sum(bool(e.done) and not e.is_release for e in entries),
        "endings": dict(endings),
        "open": sum(bool(e.done) and e.ending is None for e in entries),
    }


def show_audits(paths: Sequence[Path], *, as_json: bool) -> int:
    """Print what heal has done so far, and how it ended."""
    from headway.holds.audit import HealState, read_audit
    from headway.holds.rules import Rules

    for path in paths:
        state = HealState.of(read_audit(path), Rules())
        entries = list(state.by_id.values())
        if as_json:
            acts = [_act(entry) for entry in entries]
            print_json({"audit": str(path), **_counts(entries), "acts": acts})
            continue
        rows = [
            (
                date_time(e.intent.time),
                str(e.intent.key),
                f"{e.intent.code}/{e.intent.subcode}",
                _PAST[e.intent.act] if e.done else "not done" if e.done is False else "not known",
                _ended(e),
            )
            for e in entries[-_MOST:]
        ]
        if rows:
            print_table(("when", "job", "code", "act", "how it ended"), rows)
        print(f"{near(path)}: {summary(entries)}")
    return OK


def _act(entry: HealAction) -> dict[str, Any]:
    ending = entry.ending.value if entry.ending else None
    return {**entry.intent.as_json(), "done": entry.done, "words": entry.words, "ending": ending}


def _ended(entry: HealAction) -> str:
    if entry.done is False:
        return printable(entry.words)
    if entry.ending is not None:
        return entry.ending.value
    return "under way, past what had held it" if entry.passed else "under way"


def parser(name: str) -> Parser:
    made = Parser(
        name,
        call,
        "[RUN… | --pool htcondor | LOG…] [--do] [--once] [options]\n"
        "       headway heal --audit [RUN… | --pool htcondor]",
        "Look after held jobs. headway heal releases jobs that can succeed: after a pause, within a"
        " budget, and one job before many. It raises a request that was too small, within"
        " limits. It leaves alone every job that a person holds, has edited or has marked with"
        " `+HeadwayHeal = false`. Without --do it only shows what it would do and why. With --do it"
        " keeps watching until Ctrl-C, or until no job of the runs is left.",
        [
            ("headway heal", "what it would do about the held jobs of the newest run"),
            ("headway heal cifar10-3 --do", "heal that run until its jobs are over"),
            ("headway heal --pool htcondor --do", "all of my jobs at this access point"),
            ("headway heal train.log --do --once", "one round for the jobs of a log"),
            ("headway heal --pool htcondor --audit", "what was done, and how it ended"),
        ],
    )
    made.argument("address", "RUN|LOG", "runs or event logs; default: the newest run", nargs="*")
    text = "all of my jobs at a schedd: htcondor or htcondor:schedd=NAME"
    made.option("--pool", "POOL", text)
    made.flag("--do", "act; without it nothing is changed")
    made.flag("--once", "do one round, then exit")
    made.flag("--remove", "also remove jobs that cannot succeed after any release")
    count = whole_number()
    text = "releases of one job, by anybody; default: 5, or what the run's job.toml says"
    made.option("--most-per-job", "N", text, parse=count)
    text = "releases in an hour; default: 1000, of which 500 for one user"
    made.option("--most-per-hour", "N", text, parse=count)
    text = "never request more memory than this; default: 128 GiB"
    made.option("--most-memory", "SIZE", text, parse=parse_size)
    text = "never request more disk than this; default: 500 GB"
    made.option("--most-disk", "SIZE", text, parse=parse_size)
    made.flag("--duration", "also change the duration category of a job")
    text = "the pause after the first hold; doubles with each hold; default: 60 s"
    made.option("--backoff", "TIME", text, parse=parse_duration)
    text = "after waiting this long, try one job; default: 1 h"
    made.option("--most-wait", "TIME", text, parse=parse_duration)
    made.flag("--everybody", "with --pool: the jobs of all users, for administrators")
    made.flag("--audit", "show what was done, and how it ended")
    return made


def call(arguments: Namespace) -> int:
    places = _places(arguments)
    if arguments.audit:
        return show_audits([path for path, _ in places], as_json=arguments.json)
    healers: list[Healer] = []
    try:
        with patience("reading logs and asking the queue"):
            for path, folder in places:
                healers.append(_healer(arguments, path, folder))
            if not arguments.do or arguments.once:
                return _once(healers, arguments)
        return _watch(healers, arguments, ends=places[0][1] is not None)
    finally:
        for healer in healers:
            healer.close()


def _places(arguments: Namespace) -> list[tuple[Path, RunFolder | None]]:
    """The audit files, each with its run, or None for the audit of a whole pool."""
    from headway.cli.address import are_logs, find_run
    from headway.holds.audit import audit_of_pool, audit_of_run

    logs = bool(arguments.address) and all(are_logs([word]) for word in arguments.address)
    if arguments.audit and arguments.do:
        raise UsageError("--audit only shows, and --do acts", "leave out one of them")
    if arguments.everybody and not arguments.pool:
        raise UsageError("--everybody goes with --pool", "headway heal --pool htcondor --everybody")
    if arguments.pool and arguments.address and not logs:
        what = f"--pool and {arguments.address[0]} do not go together"
        raise UsageError(what, "a run knows its pool; leave --pool out")
    for log in arguments.address if logs else ():
        if not os.path.exists(log):
            remedy = "check the path; `log =` of the submit file names it"
            raise UsageError(f"there is no log {log}", remedy)
    if arguments.pool or logs:
        return [(audit_of_pool(arguments.pool or "htcondor"), None)]
    folders = [find_run(text) for text in arguments.address or [None]]
    return [(audit_of_run(f), f) for f in {str(f.path): f for f in folders}.values()]


def _healer(arguments: Namespace, path: Path, folder: RunFolder | None) -> Healer:
    from headway.holds.heal import Healer
    from headway.holds.queue import JobQueue, queue_of_pool, queue_of_run
    from headway.holds.rules import rules_of_run
    from headway.pool import pool_of

    rules = _rules(arguments)
    if folder is None:
        logs = [Path(log) for log in arguments.address]
        name = arguments.pool or "htcondor"
        queue: JobQueue = queue_of_pool(name, user="" if arguments.everybody else None, logs=logs)
    else:
        if arguments.do:
            folder.check_own()
        rules = rules_of_run(folder, rules, arguments.most_per_job)
        queue = queue_of_run(folder, pool_of(folder.facts.pool))
    return Healer(queue, path, rules, do=arguments.do)


def _rules(arguments: Namespace) -> Rules:
    from headway.holds.rules import Rules

    memory, disk, backoff = arguments.most_memory, arguments.most_disk, arguments.backoff
    given = {
        "remove": arguments.remove,
        "duration": arguments.duration,
        "most_per_job": arguments.most_per_job,
        "most_per_hour": arguments.most_per_hour,
        "most_memory": None if memory is None else memory // 2**20,
        "most_disk": None if disk is None else disk // 2**10,
        "backoff": backoff,
        "pause": None if backoff is None else 5 * backoff,
        "most_wait": arguments.most_wait,
    }
    return Rules(**{name: value for name, value in given.items() if value is not None})


def _once(healers: Sequence[Healer], arguments: Namespace) -> int:
    for healer in healers:
        healer.look()
    if arguments.json:
        print_json({"did": arguments.do, "queues": [decisions_as_json(each) for each in healers]})
        return OK
    for healer in healers:
        print_decisions(healer, did=arguments.do)
    return OK


def _watch(healers: Sequence[Healer], arguments: Namespace, *, ends: bool) -> int:
    """Heal until Ctrl-C or, where `ends`, until no job is left."""
    from headway.holds.heal import watch

    printer = HealPrinter(as_json=arguments.json)
    stop = StopSignal()
    for healer in healers:
        printer.begins(healer)
    with stop.listening():
        watch(
            healers,
            stop.event,
            trouble=printer.trouble,
            looked=printer.looked,
            over=(lambda: all(healer.queue.is_empty() for healer in healers)) if ends else None,
        )
    printer.ends(interrupted=bool(stop))
    return INTERRUPTED if stop else OK
