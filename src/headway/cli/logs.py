"""`headway logs`: what a job wrote, as it wrote it."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from headway.cli import OK
from headway.cli.parser import Parser

if TYPE_CHECKING:
    from headway.api import Run
    from headway.cli.stream import Stream

_STYLES = ("cyan", "green", "yellow", "bold", "dim")


def parser(name: str) -> Parser:
    made = Parser(
        name,
        "[RUN|RUN.JOB] [-f] [--stderr|--agent]",
        "Print what a job wrote: its stdout, or its stderr, or what the agent noted about the\n"
        "attempt. Of several attempts the newest that is here. Of a run of several jobs: what\n"
        "all of them wrote, with the job and its row before each line. Bytes pass unchanged; only\n"
        "on a terminal, control characters other than colours are left out.",
        [
            ("headway logs", "the newest run, all of its jobs"),
            ("headway logs cifar10-3.0", "job 0 of that run"),
            ("headway logs .4 --stderr", "job 4 of the newest run"),
            ("headway logs cifar10-3.0 -f", "go on until the job is over"),
            ("headway logs scan-1 -f", "all jobs, until the run is over"),
        ],
    )
    made.add_argument("address", nargs="?", metavar="RUN|RUN.JOB", help="default: the newest run")
    made.add_argument(
        "-f", "--follow", action="store_true", help="go on until the jobs end, across attempts"
    )
    which = made.add_mutually_exclusive_group()
    which.add_argument("--stderr", action="store_true", help="its stderr instead")
    which.add_argument("--agent", action="store_true", help="the agent's own log instead")
    made.set_defaults(call=call)
    return made


def call(arguments: Namespace) -> int:
    from headway.api import Run
    from headway.cli.address import find
    from headway.cli.show import print_json
    from headway.cli.stream import Stream

    address = find(arguments.address)
    name = "stderr" if arguments.stderr else "agent.log" if arguments.agent else "stdout"
    run = Run(address.folder)
    if address.job is None and run.folder.job.size > 1:
        return _call_on_all(run, name, arguments)
    stream = Stream(run, address.job or 0, name)
    if arguments.json and not arguments.follow:
        print_json(stream.document())
        return OK
    nothing = True
    show = _json_writer(stream) if arguments.json else _writer()
    for data in stream.follow() if arguments.follow else stream.read():
        nothing = False
        show(data, False)
    show(b"", True)
    if nothing:
        print(stream.why_nothing(), file=sys.stderr)
    return OK


def _call_on_all(run: Run, name: str, arguments: Namespace) -> int:
    """The streams of all jobs, each line with its job before it."""
    from headway.cli.show import paint, print_json, width_of
    from headway.cli.stream import AllStreams, Tamer
    from headway.text import RowWords, padded

    streams = AllStreams(run, name)
    if arguments.json and not arguments.follow:
        jobs = [stream.document() for stream in streams.streams]
        print_json({"run": run.label, "stream": name, "jobs": jobs})
        return OK
    rows, row = run.folder.job.rows, RowWords(run.folder.job.rows)
    names = [f"{run.label}.{job} {row(job, 32)}".rstrip() for job in range(len(streams.streams))]
    width = max(map(width_of, names))
    sys.stdout.flush()
    out, tame = sys.stdout.buffer, sys.stdout.isatty()
    for job, line in streams.follow() if arguments.follow else streams.read():
        if arguments.json:
            told = {"run": run.label, "job": job, "row": dict(rows[job]) if rows else None}
            print_json({**told, "stream": name, "text": line.decode("utf-8", "replace")})
            continue
        before = paint(padded(names[job], width), _STYLES[job % len(_STYLES)])
        shown = Tamer().feed(line, last=True) if tame else line
        out.write(f"{before} | ".encode("utf-8", "replace") + shown + b"\n")
        if arguments.follow:
            out.flush()
    out.flush()
    if not streams.shown:
        print(f"nothing is here of the {name} of {run.label}'s jobs", file=sys.stderr)
    return OK


def _json_writer(stream: Stream) -> Callable[[bytes, bool], None]:
    """One JSON object a line that the job wrote."""
    from headway.cli.show import print_json

    rest = b""
    told = {key: stream.document_head()[key] for key in ("run", "job", "row", "stream")}

    def write(data: bytes, last: bool) -> None:
        nonlocal rest
        *lines, rest = (rest + data).split(b"\n")
        for line in [*lines, rest] if last and rest else lines:
            print_json({**told, "text": line.decode("utf-8", "replace")})

    return write


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
