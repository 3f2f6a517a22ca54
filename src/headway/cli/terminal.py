"""Printing: colours where they are wanted, text that cannot act on a terminal, tables, JSON."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from headway.cli.commands import INTERRUPTED
from headway.text import padded, printable, width_of

_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "magenta": "35",
    "cyan": "36",
}


def paint(text: str, style: str, stream: TextIO | None = None) -> str:
    """`text` in colour, if the stream is a terminal and nobody has asked for no colours."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if not style or plain or not (stream or sys.stdout).isatty():
        return text
    codes = ";".join(_CODES[word] for word in style.split())
    return f"\x1b[{codes}m{text}\x1b[0m"


def print_stderr(text: str, style: str = "") -> None:
    """A line on stderr, out at once."""
    print(paint(text, style, sys.stderr), file=sys.stderr, flush=True)


def print_json(document: Any) -> None:
    """One JSON document on one line, out at once."""
    print(json.dumps(document, ensure_ascii=False, default=str), flush=True)


def near(path: Path) -> str:
    """A path relative to the current folder, if it is below it; safe to print."""
    with contextlib.suppress(ValueError, OSError):
        path = path.relative_to(Path.cwd())
    return printable(str(path))


def clock(moment: float | None = None) -> str:
    """The local time of day; default: now."""
    return time.strftime("%H:%M:%S", time.localtime(moment))


def date_time(moment: float) -> str:
    """The local date and time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


def moment(at: float, now: float) -> str:
    """The local time of day, with the date if that was more than half a day ago."""
    return clock(at) if abs(now - at) < 43200 else date_time(at)[:-3]


def amount(done: int, total: int | None) -> str:
    """Bytes of how many: `93.1 / 150 GB`."""
    from headway.spec.units import format_size

    text = format_size(done)
    if not total:
        return text
    number, _, unit = text.partition(" ")
    of = format_size(total)
    return f"{number if of.endswith(f' {unit}') else text} / {of}"


def can_redraw(stream: TextIO) -> bool:
    """Whether a stream is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


def print_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[str] = ()
) -> None:
    """Columns as wide as they must be; on a terminal the last one is cut at its edge."""
    widths = [max(map(width_of, column)) for column in zip(titles, *rows, strict=True)]
    if sys.stdout.isatty():
        room = shutil.get_terminal_size().columns - sum(widths[:-1]) - 2 * (len(widths) - 1)
        widths[-1] = max(20, min(widths[-1], room))
    for row, style in zip([titles, *rows], ["bold", *(styles or [""] * len(rows))], strict=True):
        line = "  ".join(padded(c, w) for c, w in zip(row, widths, strict=True)).rstrip()
        print(paint(line, style))


def print_hidden(number: int, hint: str) -> None:
    """Say how many rows of a table are not shown, if any, and what shows them."""
    if number > 0:
        print(f"… and {number:,} more; {hint}")


@contextlib.contextmanager
def patience(doing: str, seconds: float = 2.0) -> Iterator[None]:
    """Say on stderr what takes so long, once it does."""

    def say() -> None:
        with contextlib.suppress(OSError, ValueError):
            print_stderr(f"{doing} …", "dim")

    timer = threading.Timer(seconds, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def metered(doing: str, seconds: float = 2.0) -> Iterator[Callable[[int, int], None]]:
    """As `patience`; yields a function that takes how much is done, which a terminal shows."""
    begin = last = time.monotonic()
    shown = False
    on_terminal = sys.stderr.isatty()

    def progress(done: int, total: int) -> None:
        nonlocal last, shown
        now = time.monotonic()
        if on_terminal and now - begin > seconds and now - last > 0.25 and total:
            last, shown = now, True
            with contextlib.suppress(OSError, ValueError):
                text = paint(f"{doing} … {100 * done // total} %", "dim", sys.stderr)
                print(f"\r{text}", end="", file=sys.stderr, flush=True)

    with patience(doing, seconds) if not on_terminal else contextlib.nullcontext():
        yield progress
    if shown:
        with contextlib.suppress(OSError, ValueError):
            print(f"\r{' ' * (len(doing) + 8)}\r", end="", file=sys.stderr, flush=True)


@contextlib.contextmanager
def log_to_stderr(verbose: int) -> Iterator[None]:
    """Show on stderr what Headway logs: with 1 what it does, with 2 also every request it makes."""
    if not verbose:
        yield
        return
    import logging

    class Harmless(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return printable(super().format(record))

    log, handler = logging.getLogger("headway"), logging.StreamHandler()
    handler.setFormatter(Harmless("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    before = log.level
    log.setLevel(logging.DEBUG if verbose > 1 else logging.INFO)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


class StopSignal:
    """Whether Ctrl-C or SIGTERM has asked the command to end."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.event = threading.Event()  # for whoever waits

    def __bool__(self) -> bool:
        return self.number is not None

    @property
    def exit_code(self) -> int:
        """What a shell expects of a program that a signal has ended."""
        return INTERRUPTED if self.number in (None, signal.SIGINT) else 128 + self.number

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Listen to Ctrl-C and SIGTERM; a second Ctrl-C changes nothing."""

        def stop(number: int, _: object) -> None:
            self.number = self.number or number
            self.event.set()

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                # Once asked to end, nothing that is pressed again cuts short the way out.
                signal.signal(number, handler if self.number is None else signal.SIG_IGN)
