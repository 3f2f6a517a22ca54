"""`headway check`: test the checkpoint contract of a job before it is submitted."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from headway.cli.commands import FAILED, OK
from headway.cli.parser import Parser, UsageError, whole_number
from headway.cli.terminal import paint, print_json, print_stderr
from headway.spec.units import parse_duration
from headway.text import printable

if TYPE_CHECKING:
    from headway.check import Checked

_STYLES = {"kept": "green", "broken": "red bold", "not tried": "yellow"}


def parser(name: str) -> Parser:
    made = Parser(
        name,
        call,
        "JOB.TOML [--slice ARGUMENTS] [--set K=V]… [options]",
        "Test on this machine that a job survives what happens on a pool. Headway runs the command"
        " once without interruption, then evicts it, kills it and starts it again, and compares"
        " losses, samples and outputs with those of the first run. It says which promise the job"
        " breaks and how to fix it; then the exit code is 1.",
        [
            ("headway check job.toml --slice '--epochs 2 --limit 200'", "a small part of the work"),
            ("headway check job.toml --row 3 --limit '10 min'", "job 3 of several"),
            ("headway check job.toml --set inputs[0].url=file:///data/small.tar", "less data"),
            ("headway check job.toml --set environment.STEPS=50 --json", "for programs"),
        ],
    )
    made.argument("job", "JOB.TOML", "the job description")
    text = "arguments that make the command short: seconds to a few minutes"
    made.option("--slice", "ARGUMENTS", text, default="")
    made.option("--row", "N", "which job; default: 0", parse=whole_number(), default=0)
    text = "stop after this time and show the results so far; default: 30 min"
    made.option("--limit", "TIME", text, parse=parse_duration)
    made.flag("--quick", "test evictions only: takes about half the time")
    made.job_options()
    return made


def call(arguments: Namespace) -> int:
    from headway.check import LIMIT, check

    if arguments.limit is not None and arguments.limit <= 0:
        raise UsageError("--limit: must be more than 0", "write --limit '10 min'")

    def say(words: str) -> None:
        if not arguments.json:
            print_stderr(printable(words), "dim")

    checked = check(
        arguments.job,
        extra=arguments.slice,
        row=arguments.row,
        overrides=arguments.set,
        resources=arguments.resource,
        limit=arguments.limit or LIMIT,
        quick=arguments.quick,
        say=say,
    )
    if arguments.json:
        print_json(checked.as_dict())
    else:
        _print(checked)
    return FAILED if checked.broken else OK


def _print(checked: Checked) -> None:
    fixes: dict[str, list[str]] = {}  # one text may fix several promises
    for promise in checked.promises:
        print(f"{paint(f'{promise.verdict:<9}', _STYLES[promise.verdict])}  {promise.title}")
        for line in promise.evidence:
            print(f"           {printable(line)}")
        if promise.mend:
            fixes.setdefault(promise.mend, []).append(promise.title)
    print(f"\ncompared: {printable(checked.compared)}")
    for note in checked.notes:
        print(printable(note))
    for fix, titles in fixes.items():
        heading = f"So that {', and '.join(titles)}:"
        print(f"\n{paint(heading, 'bold')}")
        for line in fix.splitlines():
            print(f"    {line}" if line else "")
    broken = f"{len(checked.broken)} broken" if checked.broken else "none broken"
    untried = sum(promise.verdict == "not tried" for promise in checked.promises)
    end = f"{broken}, {untried} not tried" if untried else broken
    print(f"\n{end}; {checked.runs} starts in {checked.seconds:.0f} s")
