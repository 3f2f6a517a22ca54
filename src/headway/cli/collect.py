"""`headway collect`: archive event logs, by day, before a rotation takes them away."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from headway.cli.commands import OK
from headway.cli.parser import Parser, UsageError
from headway.cli.terminal import (
    StopSignal,
    clock,
    metered,
    paint,
    patience,
    print_json,
    print_stderr,
    print_table,
)
from headway.spec.units import format_size, parse_duration
from headway.text import many, printable

if TYPE_CHECKING:
    from headway.collect import Collector, Gap, Poll, Status

_SHOWN_DAYS, _SHOWN_GAPS = 14, 10


def parser(name: str) -> Parser:
    made = Parser(
        name,
        call,
        "LOG… --into FOLDER [--follow] [--anonymise] [options]\n"
        "       headway collect FOLDER --status",
        "Archive HTCondor's event logs before they rotate away. Headway stores each event exactly"
        " once in FOLDER, as compressed Parquet files by day (UTC). Run the command again, or leave"
        " it running with --follow: it continues where it stopped, across log rotations and even"
        " after it was killed. If a log rotated away before it could be read, the archive records"
        " a gap.",
        [
            ("headway collect train.log --into archive/", "store what is in the log now"),
            ("headway collect logs/ '/scratch/*/job.log' --into archive/", "folders, patterns"),
            ("headway collect /var/log/condor/EventLog --into archive/ --follow", "keep running"),
            ("headway collect logs/ --into open/ --anonymise", "without names, to share"),
            ("headway collect archive/ --status", "what is stored"),
        ],
    )
    text = "event logs, folders of logs, or patterns; includes rotated logs"
    made.argument("place", "LOG", text, nargs="*")
    made.option("--into", "FOLDER", "where to store the events; created if it does not exist")
    made.flag("--follow", "keep running, and store new events as they come")
    text = "how often --follow reads the logs; default: 60s"
    made.option("--every", "TIME", text, parse=_interval, default=60.0)
    made.flag(
        "--anonymise",
        "replace users, hosts, sites, paths and everything in hold reasons that is not HTCondor's"
        " own text by pseudonyms",
    )
    made.option(
        "--key", "FILE", "the key of the pseudonyms; default: FOLDER/key, made on first use"
    )
    made.flag("--status", "show what FOLDER holds, then exit")
    return made


def _interval(text: str) -> float:
    from headway.spec.errors import Wrong

    seconds = parse_duration(text)
    if not 1 <= seconds <= 86400:
        raise Wrong(f"{text[:40]} is not between 1s and 1d", "write it such as 60s or 5min")
    return seconds


def call(arguments: Namespace) -> int:
    if arguments.status:
        return _status(arguments)
    if not arguments.place:
        raise UsageError("missing: LOG", "name a log, or a folder with logs")
    if not arguments.into:
        remedy = "say where to store the events, such as --into archive/"
        raise UsageError("missing: --into FOLDER", remedy)
    if arguments.key and not arguments.anonymise:
        raise UsageError("--key goes with --anonymise", "add --anonymise")
    from headway.collect import Collector

    with Collector(
        arguments.place,
        arguments.into,
        anonymise=arguments.anonymise,
        key=arguments.key,
        waits=arguments.follow,
    ) as collector:
        if collector.made_key is not None:
            print_stderr(
                f"the key of the pseudonyms is {printable(str(collector.made_key))}: whoever has it"
                " can find out who is behind a pseudonym; do not share it",
                "yellow",
            )
        if not arguments.follow:
            with metered("storing the events") as progress:
                poll = collector.poll(progress)
            _print_poll(poll, collector, arguments)
            return OK
        stop = StopSignal()
        with stop.listening():  # it ends once it has stored what is there
            for poll in collector.follow(arguments.every, stop.event):
                _print_poll(poll, collector, arguments)
    return OK


def _print_poll(poll: Poll, collector: Collector, arguments: Namespace) -> None:
    if arguments.json:
        if poll.events or poll.gaps or poll.unread or not arguments.follow:
            document = {"type": "stored", "events": poll.events, "bytes": poll.bytes}
            gaps = [vars(gap) for gap in poll.gaps]
            unread = [{"file": file, "why": why} for file, why in poll.unread]
            print_json({**document, "logs": poll.logs, "gaps": gaps, "unread": unread})
        return
    for file, why in poll.unread:
        print_stderr(f"{printable(file)} {why}", "yellow")
    _print_gaps(poll.gaps, sys.stderr)
    if poll.events or not arguments.follow:
        what = "nothing new"
        if poll.events:
            counts = f"{poll.events:,} new events ({format_size(poll.bytes)})"
            what = f"{counts} of {many(poll.logs, 'log')}"
        when = f"{clock()}  " if arguments.follow else ""
        print(f"{when}{what} in {printable(str(collector.folder))}", flush=True)


def _status(arguments: Namespace) -> int:
    from headway.collect import status

    folders = [*arguments.place, *([arguments.into] if arguments.into else [])]
    if len(folders) != 1:
        raise UsageError("--status: name one folder", "headway collect FOLDER --status")
    with patience("reading the archive"):
        found = status(Path(folders[0]))
    if arguments.json:
        print_json(found.as_json())
    else:
        _print_status(found)
    return OK


def _print_status(found: Status) -> None:
    kind = "anonymised, " if found.anonymised else ""
    print(f"{printable(str(found.folder))}: {kind}{format_size(found.bytes)} in all")
    counts = [many(found.events, "event"), many(found.jobs, "job"), many(found.logs, "log")]
    print("  {} of {} from {}".format(*counts))
    if found.first is not None and found.last is not None:
        print(f"  from {_utc(found.first)} to {_utc(found.last)}")
    if found.skipped:
        print(f"  {found.skipped:,} bytes of the logs are part of no event")
    if found.days:
        print()
        rows = [(day.day, f"{day.events:,}", format_size(day.bytes)) for day in found.days]
        print_table(("day (UTC)", "events", "size"), rows[-_SHOWN_DAYS:])
        if len(rows) > _SHOWN_DAYS:
            print(f"and {len(rows) - _SHOWN_DAYS} days before")
    print(f"\n{found.gap_count:,} gaps:" if found.gap_count else "\nno gaps")
    _print_gaps(found.gaps[-_SHOWN_GAPS:], sys.stdout)


def _print_gaps(gaps: Iterable[Gap], stream: TextIO) -> None:
    for gap in gaps:
        since = f", since {_utc(gap.since)}" if gap.since is not None else ""
        text = f"gap in {printable(gap.source)}{since}: {gap.why}"
        print(paint(text, "yellow", stream), file=stream)


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))
