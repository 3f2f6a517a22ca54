"""`headway logs`: what a job wrote, as it wrote it."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable

from headway.cli import OK
from headway.cli.parser import Parser, UsageError


def parser(name: str) -> Parser:
    made = Parser(
        name,
        "[RUN|RUN.JOB] [-f] [--stderr|--agent]",
        "Print what a job wrote: its stdout, or its stderr, or what the agent noted about the\n"
        "attempt. Of several attempts the newest that is here. Bytes pass unchanged; only on\n"
        "a terminal, control characters other than colours are left out.",
        [
            ("headway logs", "the newest run, if it has one job"),
            ("headway logs cifar10-3.0", "job 0 of that run"),
            ("headway logs .4 --stderr", "job 4 of the newest run"),
            ("headway logs cifar10-3.0 -f", "go on until the job is over"),
        ],
    )
    made.add_argument("address", nargs="?", metavar="RUN|RUN.JOB", help="default: the newest run")
    made.add_argument(
        "-f", "--follow", action="store_true", help="go on until the job ends, across attempts"
    )
    which = made.add_mutually_exclusive_group()
    which.add_argument("--stderr", action="store_true", help="its stderr instead")
    which.add_argument("--agent", action="store_true", help="the agent's own log instead")
    made.set_defaults(call=call)
    return made


def call(arguments: Namespace) -> int:
    from headway.api import Run
    from headway.cli.address import find_job
    from headway.cli.show import print_json
    from headway.cli.stream import Stream

    if arguments.json and arguments.follow:
        raise UsageError(
            "headway logs: --json and --follow do not go together",
            remedy="one document has an end; leave one of them out",
        )
    address = find_job(arguments.address)
    name = "stderr" if arguments.stderr else "agent.log" if arguments.agent else "stdout"
    stream = Stream(Run(address.folder), address.job or 0, name)
    if arguments.json:
        print_json(stream.document())
        return OK
    nothing = True
    show = _writer()
    for data in stream.follow() if arguments.follow else stream.read():
        nothing = False
        show(data, False)
    show(b"", True)
    if nothing:
        print(stream.why_nothing(), file=sys.stderr)
    return OK


def _writer() -> Callable[[bytes, bool], None]:
    """Bytes as they are into a file or pipe; tamed on a terminal."""
    from headway.cli.stream import Tamer

    sys.stdout.flush()
    out = sys.stdout.buffer
    tamer = Tamer() if sys.stdout.isatty() else None

    def write(data: bytes, last: bool) -> None:
        out.write(tamer.feed(data, last=last) if tamer else data)
        out.flush()

    return write
