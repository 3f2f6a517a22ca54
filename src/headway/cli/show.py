"""Printing: colours where they are wanted, text that cannot act on a terminal, tables, JSON."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import threading
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
# C0 and C1 controls, and the marks that turn the direction of text around.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


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


def printable(text: str) -> str:
    """One line without anything that a terminal would act on."""
    return _CONTROL.sub(lambda match: " " if match[0] in "\t\n" else "�", text)


def print_json(document: Any) -> None:
    """One JSON document on one line, out at once."""
    print(json.dumps(document, ensure_ascii=False, default=str), flush=True)


def near(path: Path) -> str:
    """A path as one would type it here."""
    with contextlib.suppress(ValueError, OSError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


def width_of(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(bool(unicodedata.combining(char)) for char in text)


def cut(text: str, width: int) -> str:
    """`text` in at most `width` columns."""
    if width_of(text) <= width:
        return text
    while text and width_of(text) > width - 1:
        text = text[:-1]
    return f"{text.rstrip()}…"


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
    fitted = [cut(cell, width) for cell, width in zip(cells, widths, strict=True)]
    padded = [cell + " " * (w - width_of(cell)) for cell, w in zip(fitted, widths, strict=True)]
    return "  ".join(padded).rstrip()


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
