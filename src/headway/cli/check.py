"""`headway check`: the checkpoint contract of a job, proven before it is submitted."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from headway.cli.commands import FAILED, OK
from headway.cli.parser import Parser, UsageError, parsed

if TYPE_CHECKING:
    from headway.check import Checked

_STYLES = {"kept": "green", "broken": "red bold", "not tried": "yellow"}


def parser(name: str) -> Parser:
    made = Parser(
        name,
        "JOB.TOML [--slice ARGUMENTS] [--set K=V]… [options]",
        "Prove here that a job survives what pools do: run it whole, then evict it, kill it and\n"
        "start it again, and hold losses, samples and outputs against the whole run. Says\n"
        "which promise is broken and how to mend it. Exit code 1 where one is.",
        [
            ("headway check job.toml --slice '--epochs 2 --limit 200'", "a small slice of it"),
            ("headway check job.toml --row 3 --limit '10 min'", "job 3 of several"),
            ("headway check job.toml --set inputs[0].url=file:///data/small.tar", "less data"),
            ("headway check job.toml --set environment.STEPS=50 --json", "for programs"),
        ],
    )
    made.add_argument("job", metavar="JOB.TOML", help="the job description")
    made.add_argument(
        "--slice",
        default="",
        metavar="ARGUMENTS",
        help="arguments for the command that make it short: seconds to a few minutes",
    )
    made.add_argument("--row", type=int, default=0, metavar="N", help="which job; default: 0")
    made.add_argument(
        "--limit", metavar="TIME", help="end after this long with what was found; default: 30 min"
    )
    made.flag("--quick", help="evictions only: about half the time")
    made.add_argument(
        "--set", action="append", default=[], metavar="K=V", help="change a key of job.toml"
    )
    made.add_argument(
        "--resource",
        action="append",
        default=[],
        metavar="NAME=V",
        help="ask for more or less: cpu, mem, disk, nvidia-gpu, gpu-mem",
    )
    made.set_defaults(call=call)
    return made


def call(arguments: Namespace) -> int:
    from headway.check import LIMIT, check
    from headway.cli.terminal import paint, print_json, printable
    from headway.spec.units import parse_duration

    limit = parsed(arguments.limit, parse_duration, "--limit")
    if limit is not None and limit <= 0:
        raise UsageError("--limit: must be more than nothing", remedy="write --limit '10 min'")

    def say(words: str) -> None:
        if not arguments.json:
            print(paint(printable(words), "dim", sys.stderr), file=sys.stderr, flush=True)

    checked = check(
        arguments.job,
        extra=arguments.slice,
        row=arguments.row,
        overrides=arguments.set,
        resources=arguments.resource,
        limit=limit or LIMIT,
        quick=arguments.quick,
        say=say,
    )
    if arguments.json:
        print_json(checked.as_dict())
    else:
        _print(checked)
    return FAILED if checked.broken else OK


def _print(checked: Checked) -> None:
    from headway.cli.terminal import paint, printable

    for promise in checked.promises:
        verdict = paint(f"{promise.verdict:<9}", _STYLES[promise.verdict])
        print(f"{verdict}  {promise.title}")
        for line in promise.evidence:
            print(f"           {printable(line)}")
    print(f"\ncompared: {printable(checked.compared)}")
    for note in checked.notes:
        print(printable(note))
    mends: dict[str, list[str]] = {}  # one text may mend several
    for promise in checked.promises:
        if promise.mend:
            mends.setdefault(promise.mend, []).append(promise.title)
    for mend, titles in mends.items():
        heading = f"So that {', and '.join(titles)}:"
        print(f"\n{paint(heading, 'bold')}")
        for line in mend.splitlines():
            print(f"    {line}" if line else "")
    broken = f"{len(checked.broken)} broken" if checked.broken else "none broken"
    untried = sum(promise.verdict == "not tried" for promise in checked.promises)
    end = f"{broken}, {untried} not tried" if untried else broken
    print(f"\n{end}; {checked.runs} starts in {checked.seconds:.0f} s")
