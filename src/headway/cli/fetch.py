"""`headway fetch`: bring objects here, each proven before it gets its name."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headway.cli import print_error
from headway.cli.commands import OK
from headway.cli.parser import Parser, UsageError, parsed
from headway.cli.terminal import StopSignal, cut, near, paint, patience, print_json, printable
from headway.node.transfer import Snapshot, SourceState, shown
from headway.spec.units import format_duration, format_size, parse_duration, parse_size

if TYPE_CHECKING:
    from headway.transfers import Fetched


# The meter: how far one fetch is, how fast, how long still, and how each source does.


SOON = 0.4  # seconds after which a terminal gets its bar
LINES = (2.0, 10.0, 30.0, 60.0)  # seconds after which a line is written; then every minute
STILL = 5.0  # seconds without a byte that are worth a word
_SMOOTH = 0.25
_BAR, _NAME, _HOST = 24, 32, 36  # characters
_ROOM_FOR_BAR = 84  # columns
_STYLES = {"active": "cyan", "idle": "green", "benched": "yellow", "refused": "red", "new": "dim"}
_WORDS = {"active": "", "idle": "dim"}


class Meter(Protocol):
    """What shows a fetch while it goes on."""

    def saw(self, snapshot: Snapshot) -> None: ...
    def close(self) -> None: ...


def choose_meter(name: str, limit: float, *, silent: bool) -> Meter:
    """The meter that fits where stderr goes; `limit`: the patience, in seconds."""
    from headway.cli.view import is_able

    if silent:
        return NoMeter()
    if sys.stderr.isatty() and is_able():
        return LiveMeter(name, limit)
    return LineMeter(name, limit)


class Course:
    """What several snapshots tell that one alone does not."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self.rate = 0.0  # smoothed
        self._bytes = -1
        self._moved = 0.0

    def take(self, snapshot: Snapshot, now: float) -> None:
        if snapshot.bytes != self._bytes:
            self._bytes, self._moved = snapshot.bytes, now
        step = _SMOOTH if self.rate else 1.0
        self.rate += step * (snapshot.rate - self.rate)

    def left(self, snapshot: Snapshot) -> float | None:
        """Seconds to the end at this pace."""
        if snapshot.total is None or self.rate < 1 or snapshot.bytes >= snapshot.total:
            return None
        return (snapshot.total - snapshot.bytes) / self.rate

    def words(self, snapshot: Snapshot, now: float) -> str:
        """Why it is not faster, where that is known."""
        if snapshot.total is not None and snapshot.bytes >= snapshot.total:
            return "all of it is here; a last look at it"
        if not snapshot.sources:
            return "asking where the object is"
        still = now - self._moved
        if still >= STILL:
            limit = format_duration(self._limit)
            return f"nothing has come for {still:.0f} s; given up after {limit} at the latest"
        if snapshot.slow == "disk":
            return "the disk takes longer than the network"
        if snapshot.slow == "network":
            return "all sources are slow alike: it is the network"
        if snapshot.slow == "source" and sum(each.rate > 0 for each in snapshot.sources) == 1:
            return "the only source that gives anything is slow, not stalled; it goes on"
        return ""


def amount(snapshot: Snapshot) -> str:
    """Bytes of how many: `93.1 / 150 GB`."""
    done = format_size(snapshot.bytes)
    if not snapshot.total:
        return done
    total = format_size(snapshot.total)
    if done.split()[1:] == total.split()[1:]:
        done = done.split()[0]
    return f"{done} / {total}"


def source_words(source: SourceState) -> str:
    """What one source does, or why it does nothing."""
    if source.state == "active":
        lines = "1 connection" if source.connections == 1 else f"{source.connections} connections"
        return lines if source.rate >= 1 else f"{lines}, nothing now"
    return f"{source.words} ({source.phase})" if source.phase else source.words


class LiveMeter:
    """A bar and a line for each source, drawn anew on a terminal and gone at the end."""

    def __init__(self, name: str, limit: float, console: Console | None = None) -> None:
        self._name = printable(name)
        self.course = Course(limit)
        self._begun = time.monotonic()
        self.console = console or Console(stderr=True, highlight=False)
        self._live = Live(
            console=self.console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._wait = contextlib.ExitStack()
        self._wait.enter_context(patience(f"looking for {self._name}"))

    def saw(self, snapshot: Snapshot) -> None:
        now = time.monotonic()
        self.course.take(snapshot, now)
        self._wait.close()
        if now - self._begun < SOON:
            return
        with contextlib.suppress(OSError, ValueError):
            if not self._live.is_started:
                self._live.start()
            self._live.update(self.picture(snapshot, now), refresh=True)

    def close(self) -> None:
        self._wait.close()
        with contextlib.suppress(OSError, ValueError):
            self._live.stop()

    def picture(self, snapshot: Snapshot, now: float) -> RenderableType:
        """The lines for this moment."""
        width, height = self.console.size
        room = max(1, height - 4)
        parts: list[RenderableType] = [self._head(snapshot, width)]
        words = self.course.words(snapshot, now)
        if words:
            parts.append(Text(f"  {words}", style="yellow", no_wrap=True, overflow="ellipsis"))
        # those who give come first, those who have not been asked last
        order = ("active", "idle", "benched", "refused", "new")
        sources = sorted(snapshot.sources, key=lambda each: order.index(each.state))
        parts.append(_table(sources[:room]))
        if len(sources) > room:
            parts.append(Text(f"  … and {len(sources) - room} more", style="dim"))
        return Group(*parts)

    def _head(self, snapshot: Snapshot, width: int) -> Text:
        line = Text(cut(self._name, _NAME), style="bold", no_wrap=True, overflow="ellipsis")
        if snapshot.total:
            share = min(1.0, snapshot.bytes / snapshot.total)
            done = int(share * _BAR)
            if width >= _ROOM_FOR_BAR:
                line.append("  ").append("━" * done, "not bold cyan")
                line.append("─" * (_BAR - done), "not bold dim")
            line.append(f"  {int(100 * share)} %", "not bold")
        line.append(f"  {amount(snapshot)}", "not bold")
        line.append(f"  {format_size(self.course.rate)}/s", "not bold cyan")
        left = self.course.left(snapshot)
        if left is not None:
            line.append(f"  {format_duration(max(1, int(left)))} left", "not bold")
        return line


def _table(sources: list[SourceState]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False, expand=True)
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=_HOST + 2)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right", min_width=9)
    table.add_column(no_wrap=True, justify="right", min_width=8)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for each in sources:
        style = _STYLES[each.state]
        table.add_row(
            Text(f"  {cut(printable(each.host), _HOST)}"),
            Text(each.state, style=style),
            Text(f"{format_size(each.rate)}/s" if each.rate >= 1 else ""),
            Text(format_size(each.bytes) if each.bytes else ""),
            Text(printable(source_words(each)), style=_WORDS.get(each.state, style)),
        )
    return table


def due(said: int) -> float:
    """Seconds from the beginning to the next line, after so many."""
    beyond = said - len(LINES) + 1
    return LINES[said] if beyond <= 0 else LINES[-1] * (1 + beyond)


class LineMeter:
    """A line now and then, for logs; nothing for what takes less than two seconds."""

    def __init__(self, name: str, limit: float) -> None:
        self._name = printable(name)
        self.course = Course(limit)
        self._begun = time.monotonic()
        self._said = 0  # lines
        self._wait = contextlib.ExitStack()
        self._wait.enter_context(patience(f"looking for {self._name}"))

    def saw(self, snapshot: Snapshot) -> None:
        now = time.monotonic()
        self.course.take(snapshot, now)
        self._wait.close()
        if now - self._begun >= due(self._said):
            self._said += 1
            with contextlib.suppress(OSError, ValueError):
                print(self.line(snapshot, now), file=sys.stderr, flush=True)

    def line(self, snapshot: Snapshot, now: float) -> str:
        """All that matters, in one line."""
        share = f"{100 * snapshot.bytes // snapshot.total} %, " if snapshot.total else ""
        text = f"{self._name}: {share}{amount(snapshot)}, {format_size(self.course.rate)}/s"
        left = self.course.left(snapshot)
        if left is not None:
            text += f", {format_duration(max(1, int(left)))} left"
        told = [self.course.words(snapshot, now)]
        told += [
            f"{printable(each.host)} is {each.state}: {printable(source_words(each))}"
            for each in snapshot.sources
            if each.state in ("benched", "refused")
        ]
        said = "; ".join(filter(None, told))
        return paint(f"{text} ({said})" if said else text, "dim", sys.stderr)

    def close(self) -> None:
        self._wait.close()


class NoMeter:
    """Shows nothing."""

    def saw(self, snapshot: Snapshot) -> None:
        pass

    def close(self) -> None:
        pass


MOST_CONNECTIONS = 16
_PROOF = {
    "manifest": "every chunk is what the manifest says",
    "checksum": "its checksum is right",
    "digest": "it is what the server's own digest says",
    "size": "its size is right, no checksum was given",
    "": "nothing proves its bytes: no checksum was given, and the server tells none",
}
_ONE = ("--mirror", "--checksum", "--manifest", "--size")


def parser(name: str) -> Parser:
    made = Parser(
        name,
        "URL… [-o PATH] [--checksum ALG:HEX] [options]",
        "Bring objects here, from http(s)://, osdf://, stash://, pelican:// or file:// URLs.\n"
        "Several URLs are several files; other places of the one object are --mirror. The bytes\n"
        "gather in NAME.part; a fetch that was stopped, killed or given up goes on from there\n"
        "when the same command is given again. A file gets its name when it is whole and proven.",
        [
            ("headway fetch osdf:///ospool/ap40/data/me/train.tar", "to ./train.tar"),
            ("headway fetch https://a.org/x --mirror https://b.org/x", "one file, two sources"),
            ("headway fetch https://a.org/x https://a.org/y -o data", "data/x and data/y"),
            ("headway fetch https://a.org/x -o x.tar --checksum md5:…", "proven on arrival"),
        ],
    )
    made.add_argument("url", nargs="+", metavar="URL", help="the object, or several objects")
    made.add_argument(
        "-o",
        "--to",
        metavar="PATH",
        help="the file, or a folder for it; default: here, as the URL calls it",
    )
    made.add_argument(
        "--mirror",
        action="append",
        default=[],
        metavar="URL",
        help="another source of the same object; may be repeated",
    )
    made.add_argument(
        "--checksum", metavar="ALG:HEX", help="what it must be: sha256, md5, crc32c, adler32"
    )
    made.add_argument(
        "--manifest",
        metavar="sha256:HEX",
        help="prove each chunk by URL.headway, which must have this digest",
    )
    made.add_argument("--size", metavar="N", help="how large it must be: bytes, or with a unit")
    made.flag("--overwrite", help="replace a file that is here, once proven")
    made.add_argument(
        "--patience",
        metavar="TIME",
        help="how long nothing may come from anywhere; default: 30 min",
    )
    made.add_argument(
        "--connections",
        metavar="N",
        help="at once; default: 4, at most 2 of them to one server",
    )
    made.flag("--direct", help="from the federation's origin, past its caches")
    made.set_defaults(call=call)
    return made


def call(arguments: Namespace) -> int:
    from headway.errors import HeadwayError, Stopped

    options = _options(arguments)
    places = _places(arguments)
    asked = StopSignal()
    worst = OK
    with asked.heard():
        for url, place in zip(arguments.url, places, strict=True):
            try:
                _one(url, place, options, arguments, asked)
            except Stopped:
                return _stopped(place, asked)
            except HeadwayError as error:
                if len(places) == 1 or arguments.debug:
                    raise
                worst = max(worst, print_error(error, arguments.json))
    return worst


def _one(
    url: str, place: Path, options: dict[str, Any], arguments: Namespace, asked: StopSignal
) -> None:
    from headway.transfers import fetch, left_of

    left = left_of(place)
    if left is not None and not arguments.json:
        what = f"{printable(near(left))} is here: going on from it, if the object is still the same"
        print(what, file=sys.stderr)
    meter = choose_meter(place.name, options["patience"], silent=arguments.json)
    with contextlib.closing(meter):
        done = fetch(
            [url, *arguments.mirror],
            place,
            **options,
            progress=meter.saw,
            should_stop=lambda: bool(asked),
        )
    if arguments.json:
        print_json(_facts(url, arguments.mirror, done))
    else:
        print(_sentence(place, done))


def _options(arguments: Namespace) -> dict[str, Any]:
    """What the words of the command line mean; UsageError where they mean nothing."""
    from headway.transfers import PATIENCE

    if len(arguments.url) > 1:
        for option in _ONE:
            if getattr(arguments, option.strip("-")):
                raise UsageError(
                    f"headway fetch: {option} speaks of one object, and there are several URLs",
                    remedy="fetch them one by one; other sources of one object are --mirror URL",
                )
    patience = parsed(arguments.patience, parse_duration, "headway fetch: --patience")
    return {
        "checksum": arguments.checksum,
        "size": parsed(arguments.size, _size, "headway fetch: --size"),
        "manifest": arguments.manifest,
        "overwrite": arguments.overwrite,
        "patience": PATIENCE if patience is None else patience,
        "connections": parsed(arguments.connections, _connections, "headway fetch: --connections"),
        "direct": arguments.direct,
    }


def _size(text: object) -> int:
    """A size is copied from a listing of bytes as often as from words."""

    plain = str(text).replace(",", "").replace("_", "")
    return int(plain) if plain.isascii() and plain.isdigit() else parse_size(text)


def _connections(text: object) -> int:
    from headway.spec.errors import Wrong

    number = str(text)
    if not (number.isascii() and number.isdigit() and 1 <= int(number[:9]) <= MOST_CONNECTIONS):
        raise Wrong(
            f"{number[:20]!r} is not a number from 1 to {MOST_CONNECTIONS}",
            "few connections leave a cache room for other people's jobs",
        )
    return int(number)


def _places(arguments: Namespace) -> list[Path]:
    """Where each object goes."""
    from headway.transfers import target_of

    to = arguments.to
    if to == "-":
        raise UsageError(
            "headway fetch: the bytes arrive from several places at once, not in their order",
            remedy="name a file, and read it when it is whole",
        )
    if len(arguments.url) == 1:
        return [target_of(arguments.url[0], to)]
    if to is not None and os.path.lexists(to) and not os.path.isdir(to):
        raise UsageError(
            f"headway fetch: {to} is not a folder, and there are several URLs",
            remedy="name a folder; other sources of one object are --mirror URL",
        )
    places = [target_of(url, os.path.join(to or os.curdir, "")) for url in arguments.url]
    for number, place in enumerate(places):
        if place in places[:number]:
            raise UsageError(
                f"headway fetch: two of the URLs are called {place.name}",
                remedy="if they are one object, name one and give the other as --mirror URL;"
                " if not, fetch them one by one with -o",
            )
    return places


def _facts(url: str, mirrors: list[str], done: Fetched) -> dict[str, Any]:

    return {
        "urls": [shown(each) for each in (url, *mirrors)],
        "path": done.path,
        "bytes": done.bytes,
        "seconds": round(done.seconds, 3),
        "proof": done.proof,
        "verified": done.verified,
        "here": not done.url,
        "resumed": _resumed(done),
        "sources": [each.as_json() for each in done.snapshot.sources],
    }


def _resumed(done: Fetched) -> int:
    """Bytes that an earlier call had brought."""
    came = sum(each.bytes for each in done.snapshot.sources)
    return max(0, done.bytes - came) if done.url else 0


def _sentence(place: Path, done: Fetched) -> str:

    name, proof = printable(near(place)), _PROOF[done.proof]
    if not done.url:
        return f"{name} is here already, {format_size(done.bytes)}: {proof}"
    resumed = _resumed(done)
    rate = format_size((done.bytes - resumed) / done.seconds) if done.seconds > 0 else "?"
    text = f"{name}: {format_size(done.bytes)} in {format_duration(done.seconds)} ({rate}/s)"
    if resumed:
        text += f", {format_size(resumed)} of it were here"
    given = [each for each in done.snapshot.sources if each.bytes]
    came = sum(each.bytes for each in given)
    if len(given) > 1:
        given.sort(key=lambda each: -each.bytes)
        shares = (f"{printable(s.host)} {100 * s.bytes / came:.0f} %" for s in given)
        text += f", from {', '.join(shares)}"
    return f"{text}; {proof}"


def _stopped(place: Path, asked: StopSignal) -> int:
    from headway.transfers import left_of

    left = left_of(place)
    what = "nothing had arrived yet"
    if left is not None:
        what = f"{printable(near(left))} stays, and the same command goes on from there"
    print(f"\nstopped: {what}", file=sys.stderr)
    return asked.exit_code
