"""`headway report`: where every second of slot time went, from event logs that are there."""

from __future__ import annotations

import gc
import io
import sys
import time
from argparse import Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli.commands import OK
from headway.cli.parser import Parser, UsageError, moment

if TYPE_CHECKING:
    from headway.pool import RunFolder
    from headway.report import Report
    from headway.report.compare import Comparison
    from headway.report.terminal import Line

GROUPS = ("site", "user", "cluster", "code", "hour")


def parser(name: str) -> Parser:
    made = Parser(
        name,
        "[LOG|RUN]… [--html FILE] [--csv PATH] [--parquet PATH] [options]\n"
        "       headway report --compare A B… [--html FILE] [--csv FILE]",
        "Say where the slot time of jobs went: what cost most and what to change, the losses by\n"
        "cause, the sites side by side. Reads HTCondor's event logs (also rotated or compressed\n"
        "ones, folders of them, and what `headway collect` has kept) or a run, and changes\n"
        "nothing. Exit code 0, also where jobs failed.",
        [
            ("headway report train.log", "one log"),
            ("headway report logs/ --html report.html", "a folder of logs, as a page"),
            ("headway report cifar10-3", "a run, with what its agents recorded"),
            ("headway report train.log --since 7d --by user", "the last week, by user"),
            ("headway report train.log --output 'model_$(Process).pt'", "success needs the file"),
            ("headway report --compare before.log after.log", "what got better, by how much"),
            ("headway report --compare sweep-1 sweep-2 --html both.html", "the same as a page"),
            ("headway report --compare old/ new/ newest/ --csv all.csv", "each against the first"),
        ],
    )
    made.add_argument(
        "place",
        nargs="*",
        metavar="LOG|RUN",
        help="logs, folders of logs, runs; default: newest run",
    )
    made.add_argument("--html", metavar="FILE", help="write one page that works offline; -: stdout")
    made.add_argument(
        "--csv", metavar="PATH", help="write the tables into a folder; FILE.csv or -: the jobs"
    )
    made.add_argument(
        "--parquet", metavar="PATH", help="write the tables into a folder; FILE.parquet: the jobs"
    )
    made.add_argument("--by", choices=GROUPS, metavar="WHAT", help=f"group by {_listed(GROUPS)}")
    made.add_argument(
        "--since", metavar="WHEN", help="leave out jobs without an event since: 7d, 12h, 2025-11-16"
    )
    made.add_argument(
        "--output",
        action="append",
        default=[],
        metavar="PATTERN",
        help="what each job must leave, with $(Cluster) and $(Process), here or beside the log;"
        " a 0 whose file is missing is no success",
    )
    made.add_argument(
        "--compare",
        nargs="+",
        metavar="A B…",
        help="two or more logs, folders or runs side by side, each other against the first",
    )
    made.flag("--findings", help="all findings, with their evidence")
    made.flag("--force", help="replace files that are not reports of ours, too")
    made.set_defaults(call=call)
    return made


def call(arguments: Namespace) -> int:
    _check(arguments)
    if arguments.compare:
        return _compare(arguments)
    from headway.cli.terminal import patience

    found = _read(arguments.place, arguments)
    written = [str(path) for path in _write(found, arguments)]
    if arguments.json:
        from headway.cli.terminal import print_json

        with patience("working out the figures"):
            document = found.json(arguments.by)
        print_json({**document, "written": written})
    elif written:
        _tell(written, arguments)
    elif "-" not in (arguments.html, arguments.csv):
        _print_summary(found, arguments)
    gc.freeze()  # the command ends here: nothing of a large report need be searched for cycles
    return OK


def _check(arguments: Namespace) -> None:
    """Refuse what does not go together, before anything is read."""
    out = [name for name in ("html", "csv") if getattr(arguments, name) == "-"]
    out += ["json"] if arguments.json else []
    if len(out) > 1:
        raise UsageError(
            f"headway report: --{out[0]} - and --{out[1]} both go to stdout",
            remedy="name a file for one of them",
        )
    if arguments.parquet == "-":
        raise UsageError(
            "headway report: --parquet does not go to stdout", remedy="name a folder or a file"
        )
    if not arguments.compare:
        return
    if len(arguments.compare) < 2:
        raise UsageError(
            "headway report: --compare has one run, and nothing to compare it with",
            remedy="name two or more logs, folders or runs, the one to start from first",
        )
    given = {name: getattr(arguments, name) for name in ("parquet", "by", "findings")}
    named = [f"--{name}" for name, value in given.items() if value] + arguments.place
    if named:
        raise UsageError(
            f"headway report: --compare and {named[0]} do not go together",
            remedy="--compare takes two or more logs, folders or runs, and --html, --csv or --json",
        )


def _read(places: Sequence[str], arguments: Namespace) -> Report:
    from headway.cli.terminal import metered
    from headway.pool import Runs

    since = None if arguments.since is None else moment(arguments.since, time.time())
    chosen: list[str | RunFolder] = [*places] or [Runs.here().find()]
    with metered("reading the event logs") as progress:
        from headway.report import report

        return report(chosen, outputs=arguments.output, since=since, progress=progress)


def _write(found: Report, arguments: Namespace) -> Iterable[Path]:
    """Everything that goes into files, or to stdout."""
    from headway.cli.terminal import patience

    if not (arguments.html or arguments.csv or arguments.parquet):
        return
    from headway.report.export import csv, write_csv, write_html, write_parquet

    if arguments.html:
        with patience("making the page"):
            page = found.html().encode("utf-8", "replace")
        if arguments.html == "-":
            _to_stdout(page)
        else:
            yield write_html(page, Path(arguments.html), force=arguments.force)
    with patience("writing the tables"):
        if arguments.csv == "-":
            whole = io.BytesIO()  # polars has no words for a reader that has gone away
            csv(found.tables["jobs"], whole)
            _to_stdout(whole.getvalue())
        elif arguments.csv:
            yield from write_csv(found.tables, Path(arguments.csv), force=arguments.force)
        if arguments.parquet:
            yield from write_parquet(found.tables, Path(arguments.parquet), force=arguments.force)


def _tell(written: Sequence[str], arguments: Namespace) -> None:
    # What goes to stdout is the report, and nothing else.
    to = sys.stderr if "-" in (arguments.html, arguments.csv) else sys.stdout
    for path in written:
        print(f"written: {path}", file=to)


def _to_stdout(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)


def _print_summary(found: Report, arguments: Namespace) -> None:
    from headway.cli.terminal import paint, patience
    from headway.report.terminal import summary

    with patience("working out the figures"):
        lines = summary(
            found,
            width=_width(),
            everything=arguments.findings,
            blocks=_has_blocks(),
            by=arguments.by,
        )
    _print(lines)
    if sys.stdout.isatty():
        print(paint("\nEvery attempt on a page: --html report.html", "dim"))


def _compare(arguments: Namespace) -> int:
    first, second, *more = (_read([place], arguments) for place in arguments.compare)
    found = first.compare(second, *more)
    written = [str(path) for path in _write_comparison(found, arguments)]
    if arguments.json:
        from headway.cli.terminal import print_json
        from headway.report.export import FORMAT, plain

        print_json(plain({"format": FORMAT, **found.as_dict(), "written": written}))
    elif written:
        _tell(written, arguments)
    elif "-" not in (arguments.html, arguments.csv):
        from headway.report.compare_text import comparison_text

        _print(comparison_text(found, width=_width()))
    return OK


def _write_comparison(found: Comparison, arguments: Namespace) -> Iterable[Path]:
    if not (arguments.html or arguments.csv):
        return
    from headway.report.export import comparison_table, csv, write_comparison, write_html

    if arguments.html:
        from headway.report.page import versus

        page = versus(found, generated=time.time()).encode("utf-8", "replace")
        if arguments.html == "-":
            _to_stdout(page)
        else:
            yield write_html(page, Path(arguments.html), force=arguments.force)
    if arguments.csv == "-":
        whole = io.BytesIO()
        csv(comparison_table(found), whole)
        _to_stdout(whole.getvalue())
    elif arguments.csv:
        yield write_comparison(found, Path(arguments.csv), force=arguments.force)


def _print(lines: Iterable[Line]) -> None:
    from headway.cli.terminal import paint

    for line in lines:
        print("".join(paint(text, style) for text, style in line).rstrip())


def _width() -> int:
    import shutil

    return shutil.get_terminal_size().columns


def _has_blocks() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") in ("utf8", "cp65001")


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
