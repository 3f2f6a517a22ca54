"""`headway heal`: release what can go on, change what must change, and leave the rest alone."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.commands import INTERRUPTED, OK
from headway.cli.parser import Parser, UsageError
from headway.cli.terminal import (
    StopSignal,
    near,
    paint,
    patience,
    print_json,
    print_table,
    printable,
)

if TYPE_CHECKING:
    from headway.errors import PoolError
    from headway.holds.audit import HealAction
    from headway.holds.decisions import Decision
    from headway.holds.heal import Healer
    from headway.holds.rules import Rules
    from headway.pool import RunFolder


# What heal says: decisions as they are made, and the audit afterwards.


_MOST = 40  # lines of one kind
_STYLES = {"release": "green", "remove": "red", "wait": "yellow", "leave": "dim"}
_PAST = {"release": "released", "remove": "removed"}


def print_decisions(healer: Healer, *, did: bool) -> None:
    """Every decision of one look, those with something to do first, and what was refused."""
    name, decisions = healer.queue.name, healer.decisions
    if not decisions:
        print(f"{name}: no job is held")
        return
    order = list(_STYLES)
    chosen = sorted(decisions, key=lambda d: order.index(d.verb.value))
    rows = [
        (d.verb.value, str(d.case.held.key), _code(d), _words(d, f"until {_clock(d.due)} at most"))
        for d in chosen[:_MOST]
    ]
    print_table(
        ("", "job", "code", "why"), rows, [_STYLES[d.verb.value] for d in chosen[: len(rows)]]
    )
    if len(chosen) > len(rows):
        print(f"… and {len(chosen) - len(rows):,} more; --json has all of them")
    counts = Counter(d.verb.value for d in decisions)
    print(f"{name}: " + ", ".join(f"{counts[verb]:,} to {verb}" for verb in order if counts[verb]))
    if not did and (counts["release"] or counts["remove"]):
        print("nothing was done; --do does it")
    for decision in decisions:
        words = _refusal(healer, decision)
        if words:
            print(f"{decision.case.held.key} was not {_PAST[decision.verb.value]}: {words}")


def decisions_as_json(healer: Healer) -> dict[str, Any]:
    """The same for programs; `refused` says why the queue did not do what was decided."""
    found = []
    for decision in healer.decisions:
        refused = _refusal(healer, decision)
        found.append({**decision.as_json(), **({"refused": refused} if refused else {})})
    return {"queue": healer.queue.name, "decisions": found}


def _refusal(healer: Healer, decision: Decision) -> str:
    """Why the queue did not do what was decided, in words; "": it did, or nothing was tried."""
    entry = healer.state.by_id.get(decision.intent.id) if decision.intent else None
    return printable(entry.words) if entry is not None and entry.done is False else ""


def _code(decision: Decision) -> str:
    held = decision.case.held
    return f"{held.code}/{held.subcode}"


def _words(decision: Decision, wait: str) -> str:
    """Why; with what is changed, or in `wait` how long heal waits."""
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
    """Says what is new while heal watches."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._told: dict[tuple[str, str], str] = {}
        self._ended: set[str] = set()
        self._healers: list[Healer] = []

    def begins(self, healer: Healer) -> None:
        """Heal begins to watch."""
        self._healers.append(healer)
        # What an earlier heal has seen the end of is in the audit.
        self._ended |= {id for id, entry in healer.state.by_id.items() if entry.ending is not None}
        if not self._as_json:
            print(f"watching the jobs of {healer.queue.name}; Ctrl-C ends it", flush=True)

    def looked(self, healer: Healer) -> None:
        """Say what the last look brought that had not been said."""
        for decision in healer.decisions:
            key = (healer.queue.name, decision.id)
            said = f"{decision.verb.value} {decision.why}"
            if self._told.get(key) != said:
                self._told[key] = said
                self._decided(healer, decision)
        for id, entry in healer.state.by_id.items():
            if entry.ending is not None and id not in self._ended:
                self._ended.add(id)
                self._end(healer, entry)

    def trouble(self, healer: Healer, error: PoolError) -> None:
        """The pool did not answer."""
        if self._as_json:
            print_json({"type": "trouble", "queue": healer.queue.name, "message": error.message})
        else:
            print(f"{healer.queue.name}: {printable(error.message)}", file=sys.stderr, flush=True)

    def ends(self, *, interrupted: bool) -> None:
        """Heal has ended."""
        for healer in self._healers:
            done = list(healer.state.by_id.values())
            if self._as_json:
                print_json({"type": "end", "queue": healer.queue.name, **_counts(done)})
            else:
                why = "heal ended" if interrupted else "no job is left"
                print(f"{healer.queue.name}: {why}; {summary(done)}")

    def _decided(self, healer: Healer, decision: Decision) -> None:
        # Whatever a decision waits for, heal looks at all jobs when the first of them is due.
        look = time.time() + max(0.0, healer.due - time.monotonic())
        if self._as_json:
            facts = {"queue": healer.queue.name, "next_look": round(look, 3)}
            print_json({"type": "decision", **facts, **decision.as_json()})
            return
        verb = paint(f"{decision.verb.value:<8}", _STYLES[decision.verb.value])
        job = decision.case.held.key
        words = _words(decision, f"looks again at {_clock(look)}, or when its log has news")
        print(f"{_clock()} {verb} {job} {_code(decision)}: {words}", flush=True)
        if refusal := _refusal(healer, decision):
            print(f"{_clock()} {'not done':<8} {job}: {refusal}", flush=True)

    def _end(self, healer: Healer, entry: HealAction) -> None:
        assert entry.ending is not None
        job, how = entry.intent.key, entry.ending.value
        if self._as_json:
            print_json({"type": "outcome", "queue": healer.queue.name, "job": str(job), "how": how})
        else:
            print(f"{_clock()} {'ended':<8} {job}: {how}", flush=True)


def _clock(moment: float | None = None) -> str:
    return time.strftime("%H:%M:%S", time.localtime(moment))


def summary(entries: Sequence[HealAction]) -> str:
    """All acts of an audit in one sentence."""
    counts = _counts(entries)
    endings = ", ".join(f"{n:,} {how}" for how, n in counts["endings"].items())
    made = f"{counts['releases']:,} releases, {counts['removals']:,} removals"
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
    """What heal has done so far, and how it ended."""
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
                time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(e.intent.time)),
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
        "[RUN… | --pool htcondor | LOG…] [--do] [--once] [options]\n"
        "       headway heal --audit [RUN… | --pool htcondor]",
        "Look after held jobs: release those that can go on, with a pause, a budget and one\n"
        "canary before many; raise a request that was too small, within limits; leave alone what\n"
        "a person holds, has edited, or marked with `+HeadwayHeal = false`. Says what it would do\n"
        "and why, and does it only with --do: then it watches, until Ctrl-C or until no job of\n"
        "the runs is left.",
        [
            ("headway heal", "what would be done about the newest run's held jobs"),
            ("headway heal cifar10-3 --do", "heal that run until its jobs are over"),
            ("headway heal --pool htcondor --do", "all of my jobs at this access point"),
            ("headway heal train.log --do --once", "one round for the jobs of a log"),
            ("headway heal --pool htcondor --audit", "what was done, and how it ended"),
        ],
    )
    made.add_argument("address", nargs="*", metavar="RUN|LOG", help="default: the newest run")
    made.add_argument(
        "--pool", metavar="POOL", help="all of my jobs at a schedd: htcondor, htcondor:schedd=NAME"
    )
    made.flag("--do", help="act; without it nothing is changed")
    made.flag("--once", help="one round, then end")
    made.flag("--remove", help="also remove jobs that no release can help")
    made.add_argument(
        "--most-per-job", type=_count, metavar="N",
        help="releases of a job, whoever makes them; default: 5, of a run what its job.toml says",
    )  # fmt: skip
    made.add_argument(
        "--most-per-hour",
        type=_count,
        metavar="N",
        help="releases in an hour; default: 1000, of a user 500",
    )
    made.add_argument(
        "--most-memory", metavar="SIZE", help="no request is raised beyond it; default: 128 GiB"
    )
    made.add_argument(
        "--most-disk", metavar="SIZE", help="no request is raised beyond it; default: 500 GB"
    )
    made.flag("--duration", help="also change the duration category of a job")
    made.add_argument(
        "--backoff", metavar="TIME", help="the pause after a first hold; it doubles; default: 60 s"
    )
    made.add_argument(
        "--most-wait", metavar="TIME", help="after it a canary is tried; default: 1 h"
    )
    made.flag("--everybody", help="with --pool: the jobs of all users, for staff")
    made.flag("--audit", help="show what was done and how it ended")
    made.set_defaults(call=call)
    return made


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ValueError
    return int(text)


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
    """The audits that are meant, each with its run unless it is a whole pool's."""
    from headway.cli.address import find_run
    from headway.holds.audit import audit_of_pool, audit_of_run

    def refuse(what: str, remedy: str) -> None:
        raise UsageError(f"headway heal: {what}", remedy=remedy)

    logs = _are_logs(arguments.address)
    if arguments.audit and arguments.do:
        refuse("--audit only shows, and --do acts", "leave out one of them")
    if arguments.everybody and not arguments.pool:
        refuse("--everybody goes with --pool", "`headway heal --pool htcondor --everybody`")
    if arguments.pool and arguments.address and not logs:
        refuse(f"--pool and {arguments.address[0]} do not go together", "a run knows its pool")
    for log in arguments.address if logs else ():
        if not os.path.exists(log):
            refuse(f"there is no log {log}", "check the path; `log =` of the submit file names it")
    if arguments.pool or logs:
        return [(audit_of_pool(arguments.pool or "htcondor"), None)]
    folders = [find_run(text) for text in arguments.address or [None]]
    return [(audit_of_run(f), f) for f in {str(f.path): f for f in folders}.values()]


def _are_logs(words: Sequence[str]) -> bool:
    from headway.cli.status import are_logs

    return bool(words) and all(are_logs([word]) for word in words)


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
    from headway.spec.units import parse_duration, parse_size

    changed: dict[str, Any] = {"remove": arguments.remove, "duration": arguments.duration}
    if arguments.most_per_job is not None:
        changed["most_per_job"] = arguments.most_per_job
    if arguments.most_per_hour is not None:
        changed["most_per_hour"] = arguments.most_per_hour
    try:
        if arguments.most_memory:
            changed["most_memory"] = parse_size(arguments.most_memory) // 2**20
        if arguments.most_disk:
            changed["most_disk"] = parse_size(arguments.most_disk) // 2**10
        if arguments.backoff:
            changed["backoff"] = parse_duration(arguments.backoff)
            changed["pause"] = 5 * changed["backoff"]
        if arguments.most_wait:
            changed["most_wait"] = parse_duration(arguments.most_wait)
    except ValueError as error:
        raise UsageError(f"headway heal: {error}", remedy="such as 32GB or 5min") from error
    return Rules(**changed)


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
    asked = StopSignal()
    for healer in healers:
        printer.begins(healer)
    with asked.heard():
        watch(
            healers,
            asked.event,
            trouble=printer.trouble,
            looked=printer.looked,
            over=(lambda: all(healer.queue.is_empty() for healer in healers)) if ends else None,
        )
    printer.ends(interrupted=bool(asked))
    return INTERRUPTED if asked else OK
