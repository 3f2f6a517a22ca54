"""Layout of plain text: lines with styles, bars, and tables that give up columns to fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headway.text import padded, printable, width_of, wrapped

#: A piece of a line and its style: words such as "bold red", or none.
Span = tuple[str, str]
Line = tuple[Span, ...]

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEAST = 12  # columns that the first column of a table keeps


def line(*parts: str | Span) -> Line:
    """A line of pieces; all of them come out harmless, whatever log they are from."""
    spans = ((part, "") if isinstance(part, str) else part for part in parts)
    return tuple((printable(text), style) for text, style in spans if text)


def plain(lines: Iterable[Line]) -> str:
    """The lines without their styles."""
    return "".join("".join(text for text, _ in each).rstrip() + "\n" for each in lines)


def paragraph(
    text: str, width: int, indent: str = "", style: str = "", first: str = ""
) -> list[Line]:
    """Wrapped text; `first` stands before its first line, in the place of the indent."""
    room = max(20, width - len(indent))
    lines = wrapped(printable(text), room)
    return [
        line(indent if number or not first else first, (each, style))
        for number, each in enumerate(lines)
    ]


def bar(share: float | None, width: int, *, blocks: bool = True) -> str:
    """A bar of at most `width` columns; what is not nothing shows."""
    part = min(1.0, max(0.0, share or 0.0)) * width
    if not blocks:
        return "#" * (max(1, round(part)) if part else 0)
    eighths = max(1, round(part * 8)) if part else 0
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


@dataclass(frozen=True)
class Column:
    """A column of a table; those of the least worth go first, together, where there is no room."""

    title: str
    worth: int = 0
    left: bool = False


def table(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    width: int,
    styles: Sequence[str] = (),
    indent: str = "  ",
) -> list[Line]:
    """Titles and rows; a column in which nothing stands is left out."""
    cells = [[printable(cell) for cell in row] for row in rows]
    keep = [n for n in range(len(columns)) if n == 0 or any(row[n].strip(" –") for row in cells)]
    widths = {n: max(width_of(text) for text in _column(columns, cells, n)) for n in keep}
    while len(keep) > 2 and _needed(keep, widths, indent) > width:
        least = min(columns[n].worth for n in keep[1:])
        better = [n for n in keep[1:] if columns[n].worth > least]
        keep = [keep[0], *better] if better else keep[:-1]
    over = _needed(keep, widths, indent, widths[0]) - width
    if over > 0:
        widths[0] = max(_LEAST, widths[0] - over)

    def row(texts: Sequence[str]) -> str:
        shown = [padded(texts[n], widths[n], right=not columns[n].left) for n in keep]
        return (indent + "  ".join(shown)).rstrip()

    drawn = [line((row([column.title for column in columns]), "dim"))]
    marks = styles or [""] * len(cells)
    return drawn + [line((row(texts), style)) for texts, style in zip(cells, marks, strict=True)]


def _column(columns: Sequence[Column], rows: Sequence[Sequence[str]], place: int) -> list[str]:
    return [columns[place].title, *(row[place] for row in rows)]


def _needed(keep: Sequence[int], widths: dict[int, int], indent: str, most: int = 20) -> int:
    """Columns that a table takes; its first one can be cut to `most`."""
    rest = sum(widths[n] for n in keep if n) + 2 * (len(keep) - 1)
    return len(indent) + min(widths[0], most) + rest
