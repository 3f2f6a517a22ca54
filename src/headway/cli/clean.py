"""`headway clean`: delete runs that have ended, and say first what would go."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headway.cli.commands import FAILED, OK
from headway.cli.parser import Parser, UsageError, whole_number
from headway.cli.terminal import patience, print_json, print_stderr, print_table
from headway.spec.units import format_duration, format_size, parse_duration
from headway.text import many

if TYPE_CHECKING:
    from headway.pool.results import Candidate


def parser(name: str) -> Parser:
    made = Parser(
        name,
        call,
        "[RUN…] [--older TIME] [--keep N] [--outputs] [--do]",
        "Delete runs that have ended, with their logs and records. Without --do, headway clean"
        " only shows what it would delete and how much space that frees. It never deletes a run"
        " with jobs that have not ended, and it deletes a run that holds the only copy of its"
        " outputs only with --outputs. `headway run --only-missing` no longer finds the results of"
        " a deleted run.",
        [
            ("headway clean", "show what can be deleted; changes nothing"),
            ("headway clean --older 30d", "show the runs that ended at least 30 days ago"),
            ("headway clean --older 30d --do", "delete them"),
            ("headway clean --keep 3 --do", "delete all but the newest three runs of each name"),
            ("headway clean scan-1 --outputs --do", "delete that run and the outputs in it"),
        ],
    )
    made.argument("address", "RUN", "the runs; default: all runs that are here", nargs="*")
    text = "only runs that ended at least this long ago, such as 30d"
    made.option("--older", "TIME", text, parse=parse_duration)
    text = "keep the newest N runs of each name"
    made.option("--keep", "N", text, parse=whole_number())
    made.flag("--outputs", "also delete runs that hold the only copy of their outputs")
    made.flag("--do", "delete; without it nothing is changed")
    return made


def call(arguments: Namespace) -> int:
    from headway.api import look
    from headway.cli.address import find_run
    from headway.errors import HeadwayError
    from headway.pool import results
    from headway.pool.folder import Runs

    chosen = arguments.address or arguments.older is not None or arguments.keep is not None
    if arguments.do and not chosen:
        raise UsageError(
            "--do needs to know which runs",
            "name them, or use --older 30d or --keep 3; `headway clean` shows what there is",
        )
    runs = Runs.here()
    if arguments.do:
        runs.check_own()
    named = [find_run(word, runs) for word in arguments.address]
    for folder in named:
        if folder.path.parent != runs.folder:
            raise UsageError(
                f"{folder.path} is not in {runs.folder}", "go to the folder that it belongs to"
            )
    with patience("looking through the runs"):
        found = results.candidates(
            runs,
            look,
            chosen=[folder.label for folder in named] or None,
            older=arguments.older,
            keep=arguments.keep,
            outputs=arguments.outputs,
        )
    code = OK
    for number, one in enumerate(found):
        if arguments.do and one.goes:
            try:
                found[number] = results.remove(runs, one, look)
            except HeadwayError as error:
                code = FAILED
                print_stderr(f"error: {error}")
    freed = results.sweep(runs, act=arguments.do)
    gone = [one for one in found if (one.removed if arguments.do else one.goes)]
    total = sum(one.bytes for one in gone) + freed
    if arguments.json:
        document = {"folder": str(runs.folder), "done": arguments.do, "bytes": total}
        print_json({**document, "runs": [one.as_dict() for one in found]})
    else:
        _print(found, len(gone), total, did=arguments.do)
    return code


def _print(found: Sequence[Candidate], gone: int, total: int, *, did: bool) -> None:
    if not found:
        print("there are no runs here")
    else:
        rows = [
            (
                one.folder.label,
                format_duration(int(time.time() - one.ended)) if one.ended else "",
                format_size(one.bytes),
                f"{one.outputs:,}" if one.outputs else "",
                _decision(one, did=did),
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


def _decision(one: Candidate, *, did: bool) -> str:
    if not one.goes:
        return f"stays: {one.why}"
    verb = "removed" if one.removed else "was not removed" if did else "would go"
    return f"{verb} {one.why}".rstrip()
