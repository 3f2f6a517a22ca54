"""`headway collect`: keep event logs, by day, before a rotation takes them away."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from headway.cli.commands import OK
from headway.cli.parser import Parser, UsageError

if TYPE_CHECKING:
    from headway.collect import Collector, Gap, Poll, Status

_SHOWN_DAYS, _SHOWN_GAPS = 14, 10


def parser(name: str) -> Parser:
    made = Parser(
        name,
        "LOG… --into FOLDER [--follow] [--anonymise] [options]\n"
        "       headway collect FOLDER --status",
        "Keep HTCondor's event logs from being lost: store them in FOLDER, compressed, by day\n"
        "(UTC) and as Parquet, each event exactly once. Say it again, or leave it running with\n"
        "--follow: it goes on where it was, through rotations of the logs, and after being\n"
        "killed. What a rotation took away before it could be read is noted as a gap.",
        [
            ("headway collect train.log --into kept/", "what is there now"),
            ("headway collect logs/ '/scratch/*/job.log' --into kept/", "folders and patterns"),
            ("headway collect /var/log/condor/EventLog --into kept/ --follow", "for ever"),
            ("headway collect logs/ --into open/ --anonymise", "without names, to hand on"),
            ("headway collect kept/ --status", "what is stored: days, jobs, gaps"),
        ],
    )
    made.add_argument(
        "place",
        nargs="*",
        metavar="LOG",
        help="logs, folders of logs, patterns; rotations come too",
    )
    made.add_argument("--into", metavar="FOLDER", help="where to store; made if it is not there")
    made.flag("--follow", help="stay, and store what comes")
    made.add_argument(
        "--every",
        metavar="TIME",
        default="60s",
        help="how often to look with --follow; default 60s",
    )
    made.flag(
        "--anonymise",
        help="pseudonyms for users, hosts, sites, paths and all else in reasons that is not"
        " HTCondor's own word",
    )
    made.add_argument(
        "--key", metavar="FILE", help="the key of the pseudonyms; default FOLDER/key, made at first"
    )
    made.flag("--status", help="say what FOLDER holds, and end")
    made.set_defaults(call=call)
    return made


def call(arguments: Namespace) -> int:
    if arguments.status:
        return _status(arguments)
    if not arguments.place:
        raise UsageError(
            "headway collect: missing: LOG", remedy="name a log, or a folder with logs"
        )
    if not arguments.into:
        raise UsageError(
            "headway collect: missing: --into FOLDER",
            remedy="say where to store the events, such as --into kept/",
        )
    if arguments.key and not arguments.anonymise:
        raise UsageError(
            "headway collect: --key goes with --anonymise", remedy="say --anonymise too"
        )
    every = _seconds(arguments.every)
    from headway.collect import Collector

    with Collector(
        arguments.place,
        arguments.into,
        anonymise=arguments.anonymise,
        key=arguments.key,
        waits=arguments.follow,
    ) as collector:
        _warn_of_key(collector)
        polls = _followed(collector, every) if arguments.follow else _once(collector)
        for poll in polls:
            _tell(poll, collector, arguments)
    return OK


def _seconds(text: str) -> float:
    from headway.spec import parse_duration
    from headway.spec.errors import Wrong

    try:
        found = parse_duration(text)
    except Wrong as error:
        raise UsageError(f"--every: {error.what}", remedy="write it such as 60s or 5min") from None
    if not 1 <= found <= 86400:
        raise UsageError(f"--every {text[:40]}: not so", remedy="between 1s and 1d")
    return found


def _once(collector: Collector) -> Iterator[Poll]:
    from headway.cli.terminal import metered

    with metered("storing the events") as progress:
        poll = collector.poll(progress)
    yield poll


def _followed(collector: Collector, every: float) -> Iterator[Poll]:
    from headway.cli.terminal import StopSignal

    asked = StopSignal()
    with asked.heard():  # it ends after what is there has been stored
        yield from collector.follow(every, asked.event)


def _tell(poll: Poll, collector: Collector, arguments: Namespace) -> None:
    from headway.cli.terminal import paint, print_json, printable

    if arguments.json:
        if poll.events or poll.gaps or poll.unread or not arguments.follow:
            gaps = [vars(gap) for gap in poll.gaps]
            unread = [{"file": file, "why": why} for file, why in poll.unread]
            print_json(
                {
                    "type": "stored",
                    "events": poll.events,
                    "bytes": poll.bytes,
                    "logs": poll.logs,
                    "gaps": gaps,
                    "unread": unread,
                }
            )
        return
    for file, why in poll.unread:
        print(paint(f"{printable(file)} {why}", "yellow", sys.stderr), file=sys.stderr)
    _print_gaps(poll.gaps, sys.stderr)
    if poll.events or not arguments.follow:
        from headway.spec import format_size

        when = time.strftime("%H:%M:%S  ") if arguments.follow else ""
        logs = f"{poll.logs:,} log" + ("" if poll.logs == 1 else "s")
        size = format_size(poll.bytes)
        what = f"{poll.events:,} new events ({size}) of {logs}" if poll.events else "nothing new"
        print(f"{when}{what} in {printable(str(collector.folder))}", flush=True)


def _warn_of_key(collector: Collector) -> None:
    from headway.cli.terminal import paint, printable

    key = collector.made_key
    if key is not None:
        words = "whoever has it can find out who is behind a pseudonym; do not hand it on"
        text = f"the key of the pseudonyms is {printable(str(key))}: {words}"
        print(paint(text, "yellow", sys.stderr), file=sys.stderr)


def _status(arguments: Namespace) -> int:
    from headway.cli.terminal import patience, print_json
    from headway.collect import status

    folders = [*arguments.place, *([arguments.into] if arguments.into else [])]
    if len(folders) != 1:
        raise UsageError(
            "headway collect --status: name one folder", remedy="headway collect FOLDER --status"
        )
    with patience("looking into the store"):
        found = status(Path(folders[0]))
    if arguments.json:
        print_json(found.as_json())
    else:
        _print_status(found)
    return OK


def _print_status(found: Status) -> None:
    from headway.cli.terminal import print_table, printable
    from headway.spec import format_size
    from headway.text import many

    kind = "anonymised, " if found.anonymised else ""
    print(f"{printable(str(found.folder))}: {kind}{format_size(found.bytes)} in all")
    counts = [many(found.events, "event"), many(found.jobs, "job"), many(found.logs, "log")]
    print("  {} of {} from {}".format(*counts))
    if found.first is not None and found.last is not None:
        print(f"  from {_moment(found.first)} to {_moment(found.last)}")
    if found.skipped:
        print(f"  {found.skipped:,} bytes of the logs are part of no event")
    if found.days:
        print()
        rows = [(day.day, f"{day.events:,}", format_size(day.bytes)) for day in found.days]
        print_table(("day (UTC)", "events", "size"), rows[-_SHOWN_DAYS:])
        if len(rows) > _SHOWN_DAYS:
            print(f"and {len(rows) - _SHOWN_DAYS} days before")
    print()
    if found.gap_count:
        print(f"{found.gap_count:,} gaps:")
        _print_gaps(found.gaps[-_SHOWN_GAPS:], sys.stdout)
    else:
        print("no gaps")


def _print_gaps(gaps: Iterable[Gap], stream: TextIO) -> None:
    from headway.cli.terminal import paint, printable

    for gap in gaps:
        since = f", since {_moment(gap.since)}" if gap.since is not None else ""
        text = f"gap in {printable(gap.source)}{since}: {gap.why}"
        print(paint(text, "yellow", stream), file=stream)


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
