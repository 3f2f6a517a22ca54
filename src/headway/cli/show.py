"""Printing: colours where they are wanted, text that cannot act on a terminal, tables, JSON."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from headway.text import cut, padded, printable, width_of

__all__ = [
    "cut",
    "metered",
    "near",
    "paint",
    "patience",
    "print_json",
    "print_table",
    "printable",
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
