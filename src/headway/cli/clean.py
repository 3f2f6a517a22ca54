"""`headway clean`: remove runs that are over, and say first what would go."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headway.cli.commands import FAILED, OK
from headway.cli.parser import Parser, UsageError, parsed

if TYPE_CHECKING:
    from headway.pool.results import Candidate


def parser(name: str) -> Parser:
    made = Parser(
        name,
        "[RUN…] [--older TIME] [--keep N] [--outputs] [--do]",
        "Remove runs that have ended, with their logs and records. Says what would go and how\n"
        "much that is, and removes it only with --do. A run with jobs that are not over is never\n"
        "removed; one whose outputs are nowhere else goes only with --outputs. A run that is gone\n"
        "no longer counts for `headway run --only-missing`.",
        [
            ("headway clean", "what could go; changes nothing"),
            ("headway clean --older 30d", "what would go of runs that ended 30 days ago"),
            ("headway clean --older 30d --do", "and removes it"),
            ("headway clean --keep 3 --do", "all but the newest three runs of each name"),
            ("headway clean scan-1 --outputs --do", "that run, with the outputs in it"),
        ],
    )
    made.add_argument("address", nargs="*", metavar="RUN", help="default: all runs that are here")
    made.add_argument("--older", metavar="TIME", help="only runs that ended so long ago, e.g. 30d")
    made.add_argument("--keep", type=int, metavar="N", help="leave the newest N runs of each name")
    made.flag("--outputs", help="also runs with outputs that are nowhere else")
    made.flag("--do", help="remove; without it nothing is changed")
    made.set_defaults(call=call)
    return made


def call(arguments: Namespace) -> int:
    from headway.api import look
    from headway.cli.address import find_run
    from headway.cli.terminal import patience, print_json
    from headway.errors import HeadwayError
    from headway.pool import results
    from headway.pool.folder import Runs
    from headway.spec import parse_duration

    older = parsed(arguments.older, parse_duration, "--older")
    if arguments.keep is not None and arguments.keep < 0:
        raise UsageError("headway clean: --keep: it must be 0 or more", remedy="such as --keep 3")
    chosen = arguments.address or older is not None or arguments.keep is not None
    if arguments.do and not chosen:
        raise UsageError(
            "headway clean: --do needs to know which runs",
            remedy="name them, or say --older 30d or --keep 3; `headway clean` shows what there is",
        )
    runs = Runs.here()
    if arguments.do:
        runs.check_own()
    named = [find_run(word, runs) for word in arguments.address]
    away = [folder for folder in named if folder.path.parent != runs.folder]
    if away:
        raise UsageError(
            f"headway clean: {away[0].path} is not in {runs.folder}",
            remedy="go to the folder that it belongs to",
        )
    labels = [folder.label for folder in named] or None
    with patience("looking through the runs"):
        found = results.candidates(
            runs, look, chosen=labels, older=older, keep=arguments.keep, outputs=arguments.outputs
        )
    failed = False
    done = []
    for one in found:
        if arguments.do and one.goes:
            try:
                one = results.remove(runs, one, look)
            except HeadwayError as error:
                failed = True
                print(f"error: {error}", file=sys.stderr)
        done.append(one)
    freed = results.sweep(runs, act=arguments.do)
    gone = [one for one in done if (one.removed if arguments.do else one.goes)]
    total = sum(one.bytes for one in gone) + freed
    if arguments.json:
        listed = [one.as_dict() for one in done]
        print_json(
            {"folder": str(runs.folder), "done": arguments.do, "bytes": total, "runs": listed}
        )
    else:
        _print(done, len(gone), total, did=arguments.do)
    return FAILED if failed else OK


def _words(one: Candidate, *, did: bool) -> str:
    if not one.goes:
        return f"stays: {one.why}"
    verb = "removed" if one.removed else "was not removed" if did else "would go"
    return f"{verb} {one.why}".rstrip()


def _print(found: Sequence[Candidate], gone: int, total: int, *, did: bool) -> None:
    from headway.cli.terminal import print_table
    from headway.spec import format_duration, format_size
    from headway.text import many

    if not found:
        print("there are no runs here")
    else:
        rows = [
            (
                one.folder.label,
                format_duration(int(time.time() - one.ended)) if one.ended else "",
                format_size(one.bytes),
                f"{one.outputs:,}" if one.outputs else "",
                _words(one, did=did),
            )
            for one in found
        ]
        styles = ["yellow" if one.goes else "dim" for one in found]
        print_table(("run", "ended ago", "size", "outputs", ""), rows, styles)
    words = f"{many(gone, 'run')}, {format_size(total)}"
    if did:
        print(f"removed {words}")
    elif total:
        print(f"{words} would go; --do removes them")
