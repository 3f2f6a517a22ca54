"""`headway fetch`: download files, each verified before it gets its name."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headway.cli import print_error
from headway.cli.commands import OK
from headway.cli.parser import Parser, UsageError, whole_number
from headway.cli.terminal import (
    StopSignal,
    amount,
    can_redraw,
    near,
    patience,
    print_json,
    print_stderr,
)
from headway.node.transfer import Snapshot, SourceState, shown
from headway.spec.units import format_duration, format_size, parse_duration, parse_size
from headway.text import cut, many, printable

if TYPE_CHECKING:
    from headway.transfers import Fetched

SOON = 0.4  # seconds after which a terminal gets its bar
LINES = (2.0, 10.0, 30.0, 60.0)  # seconds after which a line is written; then every minute
STILL = 5.0  # seconds without a byte that are worth a word
MOST_CONNECTIONS = 16
_SMOOTH = 0.25
_BAR, _NAME, _HOST = 24, 32, 36  # characters
_ROOM_FOR_BAR = 84  # columns
_STYLES = {"active": "cyan", "idle": "green", "benched": "yellow", "refused": "red", "new": "dim"}
_TEXT_STYLES = {**_STYLES, "active": "", "idle": "dim"}
#: In the table, sources that deliver come first, those that were not asked yet last.
_ORDER = ("active", "idle", "benched", "refused", "new")
_PROOF = {
    "manifest": "every chunk is what the manifest says",
    "checksum": "its checksum is right",
    "digest": "it matches the server's own digest",
    "size": "its size is right; no checksum was given",
    "": "not verified: no checksum was given, and the server sends none",
}


class Meter:
    """How far one download is, how fast, and how long it still takes; shows nothing itself.

    Args:
        name: what is downloaded.
        limit: seconds without a byte after which the download fails.
    """

    def __init__(self, name: str, limit: float) -> None:
        self.name = printable(name)
        self.rate = 0.0  # smoothed
        self._limit = limit
        self._bytes = -1
        self._moved = 0.0
        self._begun = time.monotonic()
        self._patience = contextlib.ExitStack()

    def saw(self, snapshot: Snapshot) -> None:
        """Take in a snapshot of the download, and show it."""
        now = time.monotonic()
        self.take(snapshot, now)
        self._patience.close()
        with contextlib.suppress(OSError, ValueError):
            self.show(snapshot, now)

    def show(self, snapshot: Snapshot, now: float) -> None:
        """Show a snapshot."""

    def close(self) -> None:
        """The download has ended."""
        self._patience.close()

    def take(self, snapshot: Snapshot, now: float) -> None:
        """Update the rate, and when the last byte came."""
        if snapshot.bytes != self._bytes:
            self._bytes, self._moved = snapshot.bytes, now
        step = _SMOOTH if self.rate else 1.0
        self.rate += step * (snapshot.rate - self.rate)

    def left(self, snapshot: Snapshot) -> float | None:
        """Seconds to the end at this rate."""
        if snapshot.total is None or self.rate < 1 or snapshot.bytes >= snapshot.total:
            return None
        return (snapshot.total - snapshot.bytes) / self.rate

    def left_words(self, snapshot: Snapshot) -> str:
        """`2 min left`; empty where that is not known."""
        left = self.left(snapshot)
        return "" if left is None else f"{format_duration(max(1, int(left)))} left"

    def words(self, snapshot: Snapshot, now: float) -> str:
        """Why it is not faster, where that is known."""
        if snapshot.total is not None and snapshot.bytes >= snapshot.total:
            return "all bytes have arrived; verifying them"
        if not snapshot.sources:
            return "looking up the sources of the object"
        still = now - self._moved
        if still >= STILL:
            limit = format_duration(self._limit)
            return f"no data for {still:.0f} s; gives up after {limit} without data"
        if snapshot.slow == "disk":
            return "the disk is slower than the network"
        if snapshot.slow == "network":
            return "all sources are equally slow: the network is the limit"
        if snapshot.slow == "source" and sum(each.rate > 0 for each in snapshot.sources) == 1:
            return "the only source that delivers is slow, not stalled; the download goes on"
        return ""


class LiveMeter(Meter):
    """A bar and a line for each source, redrawn on a terminal and gone at the end."""

    def __init__(self, name: str, limit: float, console: Console | None = None) -> None:
        super().__init__(name, limit)
        self.console = console or Console(stderr=True, highlight=False)
        self._live = Live(
            console=self.console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._patience.enter_context(patience(f"looking for {self.name}"))

    def show(self, snapshot: Snapshot, now: float) -> None:
        if now - self._begun >= SOON:
            if not self._live.is_started:
                self._live.start()
            self._live.update(self.picture(snapshot, now), refresh=True)

    def close(self) -> None:
        super().close()
        with contextlib.suppress(OSError, ValueError):
            self._live.stop()

    def picture(self, snapshot: Snapshot, now: float) -> RenderableType:
        """The lines for this moment."""
        width, height = self.console.size
        room = max(1, height - 4)
        parts: list[RenderableType] = [self._head(snapshot, width)]
        words = self.words(snapshot, now)
        if words:
            parts.append(Text(f"  {words}", style="yellow", no_wrap=True, overflow="ellipsis"))
        sources = sorted(snapshot.sources, key=lambda each: _ORDER.index(each.state))
        parts.append(_table(sources[:room]))
        if len(sources) > room:
            parts.append(Text(f"  … and {len(sources) - room} more", style="dim"))
        return Group(*parts)

    def _head(self, snapshot: Snapshot, width: int) -> Text:
        line = Text(cut(self.name, _NAME), style="bold", no_wrap=True, overflow="ellipsis")
        if snapshot.total:
            share = min(1.0, snapshot.bytes / snapshot.total)
            done = int(share * _BAR)
            if width >= _ROOM_FOR_BAR:
                line.append("  ").append("━" * done, "not bold cyan")
                line.append("─" * (_BAR - done), "not bold dim")
            line.append(f"  {int(100 * share)} %", "not bold")
        line.append(f"  {amount(snapshot.bytes, snapshot.total)}", "not bold")
        line.append(f"  {format_size(self.rate)}/s", "not bold cyan")
        left = self.left_words(snapshot)
        return line.append(f"  {left}", "not bold") if left else line


def source_words(source: SourceState) -> str:
    """What one source does, or why it does nothing."""
    if source.state == "active":
        lines = many(source.connections, "connection")
        return lines if source.rate >= 1 else f"{lines}, no data now"
    return f"{source.words} ({source.phase})" if source.phase else source.words


def _table(sources: list[SourceState]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False, expand=True)
    table.add_column(no_wrap=True, overflow="ellipsis", max_width=_HOST + 2)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right", min_width=9)
    table.add_column(no_wrap=True, justify="right", min_width=8)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for each in sources:
        table.add_row(
            Text(f"  {cut(printable(each.host), _HOST)}"),
            Text(each.state, style=_STYLES[each.state]),
            Text(f"{format_size(each.rate)}/s" if each.rate >= 1 else ""),
            Text(format_size(each.bytes) if each.bytes else ""),
            Text(printable(source_words(each)), style=_TEXT_STYLES[each.state]),
        )
    return table


def due(lines: int) -> float:
    """Seconds from the beginning to the next line, after so many lines."""
    beyond = lines - len(LINES) + 1
    return LINES[lines] if beyond <= 0 else LINES[-1] * (1 + beyond)


class LineMeter(Meter):
    """A line now and then, for logs; nothing for what takes less than two seconds."""

    def __init__(self, name: str, limit: float) -> None:
        super().__init__(name, limit)
        self._lines = 0
        self._patience.enter_context(patience(f"looking for {self.name}"))

    def show(self, snapshot: Snapshot, now: float) -> None:
        if now - self._begun >= due(self._lines):
            self._lines += 1
            print_stderr(self.line(snapshot, now), "dim")

    def line(self, snapshot: Snapshot, now: float) -> str:
        """All that matters, in one line."""
        share = f"{100 * snapshot.bytes // snapshot.total} %" if snapshot.total else ""
        done, rate = amount(snapshot.bytes, snapshot.total), f"{format_size(self.rate)}/s"
        facts = filter(None, [share, done, rate, self.left_words(snapshot)])
        notes = [self.words(snapshot, now)]
        notes += [
            f"{printable(each.host)} is {each.state}: {printable(source_words(each))}"
            for each in snapshot.sources
            if each.state in ("benched", "refused")
        ]
        noted = "; ".join(filter(None, notes))
        return f"{self.name}: {', '.join(facts)}{f' ({noted})' if noted else ''}"


def parser(name: str) -> Parser:
    made = Parser(
        name,
        call,
        "URL… [-o PATH] [--checksum ALG:HEX] [options]",
        "Download files from http(s)://, osdf://, stash://, pelican:// or file:// URLs. Several"
        " URLs are several files; use --mirror for other sources of the same file. The data is"
        " collected in NAME.part and gets its final name only when it is complete and verified. If"
        " a download was interrupted, run the same command again to continue it.",
        [
            ("headway fetch osdf:///ospool/ap40/data/me/train.tar", "to ./train.tar"),
            ("headway fetch https://a.org/x --mirror https://b.org/x", "one file, two sources"),
            ("headway fetch https://a.org/x https://a.org/y -o data", "data/x and data/y"),
            ("headway fetch https://a.org/x -o x.tar --checksum md5:…", "verified on arrival"),
        ],
    )
    made.argument("url", "URL", "the file, or several files", nargs="+")
    text = "the file to write, or a folder; default: this folder, with the name in the URL"
    made.option("-o", "--to", "PATH", text)
    made.option("--mirror", "URL", "another source of the same file; may be repeated", many=True)
    made.option("--checksum", "ALG:HEX", "its checksum: sha256, md5, crc32c or adler32")
    text = "verify each chunk with URL.headway, which must have this digest"
    made.option("--manifest", "sha256:HEX", text)
    made.option("--size", "N", "its size: in bytes, or with a unit", parse=_size)
    made.flag("--overwrite", "replace an existing file once the new one is verified")
    text = "fail after this long without data from any source; default: 30 min"
    made.option("--patience", "TIME", text, parse=parse_duration)
    text = "connections to use; default: 4, at most 2 of them to one server"
    made.option("--connections", "N", text, parse=_connections)
    made.flag("--direct", "download from the federation's origin, not from its caches")
    return made


_connections = whole_number(
    MOST_CONNECTIONS, least=1, remedy="few connections leave a cache room for other people's jobs"
)


def _size(text: str) -> int:
    """A size is copied from a listing of bytes as often as it is written with a unit."""
    plain = text.replace(",", "").replace("_", "")
    return int(plain) if plain.isascii() and plain.isdigit() else parse_size(text)


def call(arguments: Namespace) -> int:
    from headway.errors import HeadwayError, Stopped

    paths = _paths(arguments)
    stop = StopSignal()
    worst = OK
    with stop.listening():
        for url, path in zip(arguments.url, paths, strict=True):
            try:
                _fetch(url, path, arguments, stop)
            except Stopped:
                return _stopped(path, stop)
            except HeadwayError as error:
                if len(paths) == 1 or arguments.debug:
                    raise
                worst = max(worst, print_error(error, arguments.json))
    return worst


def _paths(arguments: Namespace) -> list[Path]:
    """Where each file goes; UsageError where that is not clear."""
    from headway.transfers import target_of

    urls, to = arguments.url, arguments.to
    if to == "-":
        raise UsageError(
            "the data arrives from several sources at once, not in order",
            "name a file, and read it when it is complete",
        )
    if len(urls) == 1:
        return [target_of(urls[0], to)]
    for option in ("mirror", "checksum", "manifest", "size"):
        if getattr(arguments, option) not in (None, []):
            raise UsageError(
                f"--{option} is about one object, and there are several URLs",
                "fetch them one by one; other sources of one object are --mirror URL",
            )
    if to is not None and os.path.lexists(to) and not os.path.isdir(to):
        raise UsageError(
            f"{to} is not a folder, and there are several URLs",
            "name a folder; other sources of one object are --mirror URL",
        )
    paths = [target_of(url, os.path.join(to or os.curdir, "")) for url in urls]
    for number, path in enumerate(paths):
        if path in paths[:number]:
            raise UsageError(
                f"two of the URLs end in {path.name}",
                "if they are one object, name one and give the other as --mirror URL;"
                " if not, fetch them one by one with -o",
            )
    return paths


def _fetch(url: str, path: Path, arguments: Namespace, stop: StopSignal) -> None:
    from headway.transfers import PATIENCE, fetch, left_of

    left = left_of(path)
    if left is not None and not arguments.json:
        print_stderr(f"found {near(left)}: continuing from it if the object is still the same")
    limit = PATIENCE if arguments.patience is None else arguments.patience
    kind = LiveMeter if can_redraw(sys.stderr) else LineMeter
    meter = Meter(path.name, limit) if arguments.json else kind(path.name, limit)
    with contextlib.closing(meter):
        done = fetch(
            [url, *arguments.mirror],
            path,
            checksum=arguments.checksum,
            size=arguments.size,
            manifest=arguments.manifest,
            overwrite=arguments.overwrite,
            patience=limit,
            connections=arguments.connections,
            direct=arguments.direct,
            progress=meter.saw,
            should_stop=lambda: bool(stop),
        )
    if arguments.json:
        print_json(_document([url, *arguments.mirror], done))
    else:
        print(_sentence(path, done))


def _document(urls: list[str], done: Fetched) -> dict[str, Any]:
    return {
        "urls": [shown(url) for url in urls],
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
    """Bytes that an earlier call had downloaded."""
    came = sum(each.bytes for each in done.snapshot.sources)
    return max(0, done.bytes - came) if done.url else 0


def _sentence(path: Path, done: Fetched) -> str:
    name, proof = near(path), _PROOF[done.proof]
    if not done.url:
        return f"{name} is here already, {format_size(done.bytes)}: {proof}"
    resumed = _resumed(done)
    rate = format_size((done.bytes - resumed) / done.seconds) if done.seconds > 0 else "?"
    text = f"{name}: {format_size(done.bytes)} in {format_duration(done.seconds)} ({rate}/s)"
    if resumed:
        text += f", {format_size(resumed)} of it was here already"
    given = sorted((s for s in done.snapshot.sources if s.bytes), key=lambda each: -each.bytes)
    if len(given) > 1:
        came = sum(each.bytes for each in given)
        shares = (f"{printable(s.host)} {100 * s.bytes / came:.0f} %" for s in given)
        text += f", from {', '.join(shares)}"
    return f"{text}; {proof}"


def _stopped(path: Path, stop: StopSignal) -> int:
    from headway.transfers import left_of

    left = left_of(path)
    what = "nothing had arrived yet"
    if left is not None:
        what = f"{near(left)} stays, and the same command continues from there"
    print_stderr(f"\nstopped: {what}")
    return stop.exit_code
