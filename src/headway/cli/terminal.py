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
from headway.text import cut, padded, printable, width_of

__all__ = [
    "StopSignal",
    "cut",
    "metered",
    "near",
    "paint",
    "patience",
    "print_json",
    "print_table",
    "printable",
    "shown_log",
    "wants_color",
    "width_of",
]

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


def wants_color(stream: TextIO) -> bool:
    """Whether a stream is a terminal and nobody has asked for no colours."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not plain


def paint(text: str, style: str, stream: TextIO | None = None) -> str:
    """`text` in colour, if the stream takes colours."""
    if not style or not wants_color(stream or sys.stdout):
        return text
    codes = ";".join(_CODES[word] for word in style.split())
    return f"\x1b[{codes}m{text}\x1b[0m"


def print_json(document: Any) -> None:
    """One JSON document on one line, out at once."""
    print(json.dumps(document, ensure_ascii=False, default=str), flush=True)


def near(path: Path) -> str:
    """A path as one would type it here."""
    with contextlib.suppress(ValueError, OSError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


def print_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[str] = ()
) -> None:
    """Columns as wide as they must be; on a terminal the last one is cut at its edge."""
    widths = [max(map(width_of, column)) for column in zip(titles, *rows, strict=True)]
    if sys.stdout.isatty():
        room = shutil.get_terminal_size().columns - sum(widths[:-1]) - 2 * (len(widths) - 1)
        widths[-1] = max(20, min(widths[-1], room))
    print(paint(_line(titles, widths), "bold"))
    for row, style in zip(rows, styles or [""] * len(rows), strict=True):
        print(paint(_line(row, widths), style))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(padded(c, w) for c, w in zip(cells, widths, strict=True)).rstrip()


@contextlib.contextmanager
def patience(doing: str, seconds: float = 2.0) -> Iterator[None]:
    """Say on stderr what takes so long, once it does."""

    def say() -> None:
        with contextlib.suppress(OSError, ValueError):
            print(paint(f"{doing} …", "dim", sys.stderr), file=sys.stderr, flush=True)

    timer = threading.Timer(seconds, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def metered(doing: str, seconds: float = 2.0) -> Iterator[Callable[[int, int], None]]:
    """As `patience`, and on a terminal with how much is done, which is told to what this yields."""
    begin = last = time.monotonic()
    shown = False
    on_terminal = sys.stderr.isatty()

    def told(done: int, total: int) -> None:
        nonlocal last, shown
        now = time.monotonic()
        if on_terminal and now - begin > seconds and now - last > 0.25 and total:
            last, shown = now, True
            with contextlib.suppress(OSError, ValueError):
                text = paint(f"{doing} … {100 * done // total} %", "dim", sys.stderr)
                print(f"\r{text}", end="", file=sys.stderr, flush=True)

    with patience(doing, seconds) if not on_terminal else contextlib.nullcontext():
        yield told
    if shown:
        with contextlib.suppress(OSError, ValueError):
            print(f"\r{' ' * (len(doing) + 8)}\r", end="", file=sys.stderr, flush=True)


@contextlib.contextmanager
def shown_log(verbose: int) -> Iterator[None]:
    """Show on stderr what Headway logs: 1 what it does, 2 every question that it asks, too."""
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
    """Whether somebody wants the command to end."""

    def __init__(self) -> None:
        self.by: int | None = None  # the signal
        self.event = threading.Event()  # for whoever waits

    def __bool__(self) -> bool:
        return self.by is not None

    @property
    def exit_code(self) -> int:
        """What a shell expects of a program that a signal has ended."""
        return INTERRUPTED if self.by in (None, signal.SIGINT) else 128 + self.by

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        """Listen to Ctrl-C and SIGTERM; a second Ctrl-C changes nothing."""

        def stop(number: int, _: object) -> None:
            self.by = self.by or number
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
                signal.signal(number, handler if self.by is None else signal.SIG_IGN)
