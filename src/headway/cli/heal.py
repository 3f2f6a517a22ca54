"""`headway heal`: release what can go on, change what must change, and leave the rest alone."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli import INTERRUPTED, OK
from headway.cli.parser import Parser, UsageError

if TYPE_CHECKING:
    from headway.heal.healer import Healer
    from headway.heal.rules import Rules
    from headway.pool import RunFolder


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
    made.add_argument("--do", action="store_true", help="act; without it nothing is changed")
    made.add_argument("--once", action="store_true", help="one round, then end")
    made.add_argument(
        "--remove", action="store_true", help="also remove jobs that no release can help"
    )
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
    made.add_argument(
        "--duration", action="store_true", help="also change the duration category of a job"
    )
    made.add_argument(
        "--backoff", metavar="TIME", help="the pause after a first hold; it doubles; default: 60 s"
    )
    made.add_argument(
        "--most-wait", metavar="TIME", help="after it a canary is tried; default: 1 h"
    )
    made.add_argument(
        "--everybody", action="store_true", help="with --pool: the jobs of all users, for staff"
    )
    made.add_argument("--audit", action="store_true", help="show what was done and how it ended")
    made.set_defaults(call=call)
    return made


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ValueError
    return int(text)


def call(arguments: Namespace) -> int:
    from headway.cli.healed import show_audits
    from headway.cli.show import patience

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
    from headway.heal.places import audit_of_pool, audit_of_run

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
    from headway.cli.log_status import are_logs

    return bool(words) and all(are_logs([word]) for word in words)


def _healer(arguments: Namespace, path: Path, folder: RunFolder | None) -> Healer:
    from headway.heal.healer import Healer
    from headway.heal.places import rules_of_run
    from headway.heal.queue import Queue, queue_of_pool, queue_of_run
    from headway.pool import pool_of

    rules = _rules(arguments)
    if folder is None:
        logs = [Path(log) for log in arguments.address]
        name = arguments.pool or "htcondor"
        queue: Queue = queue_of_pool(name, logs=logs, everybody=arguments.everybody)
    else:
        if arguments.do:
            folder.check_own()
        rules = rules_of_run(folder, rules, arguments.most_per_job)
        queue = queue_of_run(folder, pool_of(folder.facts.pool))
    return Healer(queue, path, rules, do=arguments.do)


def _rules(arguments: Namespace) -> Rules:
    from headway.heal.rules import Rules
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
    from headway.cli.healed import decisions_as_json, print_decisions
    from headway.cli.show import print_json

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
    from headway.cli.healed import Teller
    from headway.heal.watch import watch

    teller = Teller(as_json=arguments.json)
    stop = threading.Event()
    for healer in healers:
        teller.begins(healer)
    with _signals(stop):
        watch(
            healers,
            stop,
            trouble=lambda healer, error: teller.trouble(healer, error),
            looked=teller.looked,
            over=(lambda: all(healer.queue.is_empty() for healer in healers)) if ends else None,
        )
    teller.ends(interrupted=stop.is_set())
    return INTERRUPTED if stop.is_set() else OK


@contextlib.contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C asks for the end, and never breaks what is being done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    wanted = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in wanted}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
