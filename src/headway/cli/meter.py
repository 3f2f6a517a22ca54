"""The meter: how far one fetch is, how fast, how long still, and how each source does."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headway.cli.show import cut, paint, patience, printable
from headway.node.transfer import Snapshot, SourceState
from headway.spec.units import format_duration, format_size

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
    from headway.cli.watch import is_able

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
