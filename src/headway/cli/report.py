"""`headway report`: where the slot time of jobs went, from their event logs."""

from __future__ import annotations

import gc
import io
import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.commands import OK
from headway.cli.parser import Parser, UsageError, since
from headway.cli.terminal import metered, paint, patience, print_json

if TYPE_CHECKING:
    from headway.pool import RunFolder
    from headway.report import Report
    from headway.report.terminal import Line

GROUPS = ("site", "user", "cluster", "code", "hour")


def parser(name: str) -> Parser:
    made = Parser(
        name,
        call,
        "[LOG|RUN]… [--html FILE] [--csv PATH] [--parquet PATH] [options]\n"
        "       headway report --compare A B… [--html FILE] [--csv FILE]",
        "Show where the slot time of jobs went: what cost most and what to change, the losses by"
        " cause, and the sites side by side. headway report reads a run, or HTCondor's event logs:"
        " also rotated or compressed ones, folders of logs, and archives of `headway collect`. It"
        " changes nothing. The exit code is 0 even if jobs failed.",
        [
            ("headway report train.log", "one log"),
            ("headway report logs/ --html report.html", "a folder of logs, as a web page"),
            ("headway report cifar10-3", "a run, with what its agents recorded"),
            ("headway report train.log --since 7d --by user", "the last week, by user"),
            ("headway report train.log --output 'model_$(Process).pt'", "success needs the file"),
            ("headway report --compare before.log after.log", "what got better, and by how much"),
            ("headway report --compare sweep-1 sweep-2 --html both.html", "the same as a web page"),
            ("headway report --compare old/ new/ newest/ --csv all.csv", "each against the first"),
        ],
    )
    text = "logs, folders of logs, or runs; default: the newest run"
    made.argument("place", "LOG|RUN", text, nargs="*")
    made.option("--html", "FILE", "write one web page that works offline; -: stdout")
    text = "write the tables into a folder; to FILE.csv or -: only the jobs"
    made.option("--csv", "PATH", text)
    text = "write the tables into a folder; to FILE.parquet: only the jobs"
    made.option("--parquet", "PATH", text)
    by = f"group by {', '.join(GROUPS[:-1])} or {GROUPS[-1]}"
    made.option("--by", "WHAT", by, choices=GROUPS)
    text = "leave out jobs without an event since then: 7d, 12h, 2025-11-16"
    made.option("--since", "WHEN", text, parse=since)
    made.option(
        "--output",
        "PATTERN",
        "a file that each job must leave, with $(Cluster) and $(Process), here or next to the log;"
        " a job without it has not succeeded, even with exit code 0",
        many=True,
    )
    text = "compare two or more logs, folders or runs, each with the first"
    made.option("--compare", "A B…", text, nargs="+")
    made.flag("--findings", "show all findings, with their evidence")
    made.flag("--force", "replace files even if headway report did not write them")
    return made


def call(arguments: Namespace) -> int:
    _check(arguments)
    to_stdout = "-" in (arguments.html, arguments.csv)
    if arguments.compare:
        document, lines, files = _comparison(arguments)
    else:
        document, lines, files = _report(arguments)
    written = [str(path) for path in files]
    if arguments.json:
        with patience("calculating the figures"):
            shown = document()
        print_json({**shown, "written": written})
    elif written:
        for path in written:  # what goes to stdout is the report, and nothing else
            print(f"written: {path}", file=sys.stderr if to_stdout else sys.stdout)
    elif not to_stdout:
        with patience("calculating the figures"):
            rows = lines()
        for line in rows:
            print("".join(paint(text, style) for text, style in line).rstrip())
        if sys.stdout.isatty() and not arguments.compare:
            print(paint("\nEvery attempt on a web page: --html report.html", "dim"))
    gc.freeze()  # the command ends here: nothing of a large report need be searched for cycles
    return OK


def _check(arguments: Namespace) -> None:
    """Refuse what does not go together, before anything is read."""
    out = [name for name in ("html", "csv") if getattr(arguments, name) == "-"]
    out += ["json"] if arguments.json else []
    if len(out) > 1:
        remedy = "name a file for one of them"
        raise UsageError(f"--{out[0]} - and --{out[1]} both go to stdout", remedy)
    if arguments.parquet == "-":
        raise UsageError("--parquet does not go to stdout", "name a folder or a file")
    if not arguments.compare:
        return
    if len(arguments.compare) < 2:
        raise UsageError(
            "--compare has one run, and nothing to compare it with",
            "name two or more logs, folders or runs, the one to compare with first",
        )
    given = {name: getattr(arguments, name) for name in ("parquet", "by", "findings")}
    named = [f"--{name}" for name, value in given.items() if value] + arguments.place
    if named:
        raise UsageError(
            f"--compare and {named[0]} do not go together",
            "--compare takes two or more logs, folders or runs, and --html, --csv or --json",
        )


Parts = tuple[Callable[[], dict[str, Any]], Callable[[], "Iterable[Line]"], Iterable[Path]]


def _report(arguments: Namespace) -> Parts:
    """What --json prints, what a terminal shows, and the files, each made when it is asked for."""
    found = _read(arguments.place, arguments)

    def lines() -> Iterable[Line]:
        from headway.report.terminal import summary

        return summary(
            found,
            width=shutil.get_terminal_size().columns,
            everything=arguments.findings,
            blocks=(sys.stdout.encoding or "").lower().replace("-", "") in ("utf8", "cp65001"),
            by=arguments.by,
        )

    def files() -> Iterable[Path]:
        from headway.report.export import write_csv, write_parquet

        yield from _write_page(found.html, arguments)
        with patience("writing the tables"):
            if arguments.csv == "-":
                _csv_to_stdout(found.tables["jobs"])
            elif arguments.csv:
                yield from write_csv(found.tables, Path(arguments.csv), force=arguments.force)
            if arguments.parquet:
                path = Path(arguments.parquet)
                yield from write_parquet(found.tables, path, force=arguments.force)

    wanted = arguments.html or arguments.csv or arguments.parquet
    return lambda: found.json(arguments.by), lines, files() if wanted else ()


def _comparison(arguments: Namespace) -> Parts:
    """The same for a comparison."""
    first, second, *more = (_read([place], arguments) for place in arguments.compare)
    found = first.compare(second, *more)

    def document() -> dict[str, Any]:
        from headway.report.export import FORMAT, plain

        return dict(plain({"format": FORMAT, **found.as_dict()}))

    def lines() -> Iterable[Line]:
        from headway.report.compare_text import comparison_text

        return comparison_text(found, width=shutil.get_terminal_size().columns)

    def files() -> Iterable[Path]:
        from headway.report.export import comparison_table, write_comparison
        from headway.report.page import versus

        yield from _write_page(lambda: versus(found, generated=time.time()), arguments)
        if arguments.csv == "-":
            _csv_to_stdout(comparison_table(found))
        elif arguments.csv:
            yield write_comparison(found, Path(arguments.csv), force=arguments.force)

    return document, lines, files() if arguments.html or arguments.csv else ()


def _read(places: Sequence[str], arguments: Namespace) -> Report:
    from headway.pool import Runs

    chosen: list[str | RunFolder] = [*places] or [Runs.here().find()]
    with metered("reading the event logs") as progress:
        from headway.report import report

        return report(chosen, outputs=arguments.output, since=arguments.since, progress=progress)


def _write_page(make: Callable[[], str], arguments: Namespace) -> Iterable[Path]:
    from headway.report.export import write_html

    if not arguments.html:
        return
    with patience("making the page"):
        page = make().encode("utf-8", "replace")
    if arguments.html == "-":
        _to_stdout(page)
    else:
        yield write_html(page, Path(arguments.html), force=arguments.force)


def _csv_to_stdout(table: Any) -> None:
    from headway.report.export import csv

    out = io.BytesIO()  # polars has no good error for a reader that has gone away
    csv(table, out)
    _to_stdout(out.getvalue())


def _to_stdout(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
