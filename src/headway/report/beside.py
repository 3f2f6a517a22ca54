"""Two reports beside each other on a terminal; pure, from a comparison to lines."""

from __future__ import annotations

from collections.abc import Sequence

from headway.report.changes import both, doubts, gap, is_told, sentence, titles, told, value
from headway.report.compare import Change, Comparison, Row
from headway.report.layout import Column, Line, line, paragraph, table

_MARKS = {change: change.value for change in Change} | {Change.CHANCE: "chance?"}
_STYLES = {Change.BETTER: "green", Change.WORSE: "red"}
_MOST_SITES = 12


def beside(found: Comparison, *, width: int = 80) -> list[Line]:
    """What got better, then every figure of both sides."""
    width = max(40, min(width, 120))
    lines = paragraph(f"{found.a} → {found.b}", width, style="bold")
    for note in found.notes:
        lines += paragraph(f"note: {note}", width, "  ", "yellow")
    lines += _words(found, width)
    lines += [line(), *_table("figure", found.figures, found, width)]
    if found.losses:
        lines += [line(), line(("Losses by cause, of the slot time", "bold"))]
        lines += _table("cause", found.losses, found, width)
    if found.sites:
        lines += [line(), line(("Sites", "bold")), *_sites(found, width)]
    return lines


def _words(found: Comparison, width: int) -> list[Line]:
    """The changes that are more than chance, in a sentence each; else that there are none."""
    lines: list[Line] = []
    rows = told(found)
    for row in rows:
        first = f"  {row.change.value}: "
        lines += paragraph(sentence(row), width, " " * len(first), _STYLES[row.change], first)
    if not rows:
        lines += paragraph("No figure differs by more than chance may do.", width, "  ")
    if doubts(found):
        lines += paragraph(doubts(found), width, "  ", "yellow")
    return lines


def _table(title: str, rows: Sequence[Row], found: Comparison, width: int) -> list[Line]:
    first, second = titles(found)
    columns = (
        Column(title, left=True),
        Column(first, 9),
        Column(second, 9),
        Column("change", 8),
        Column("", 7, left=True),
    )
    known = [row for row in rows if row.a is not None or row.b is not None]
    cells = [
        (row.name, value(row, row.a), value(row, row.b), gap(row), _mark(row)) for row in known
    ]
    return table(columns, cells, width, [_style(row) for row in known])


def _sites(found: Comparison, width: int) -> list[Line]:
    """One row a site, each figure as it was and as it is."""
    shown = dict(list(found.sites.items())[:_MOST_SITES])
    heads = ("jobs", "success", "compute", "transfer rate")
    columns = [Column("site", left=True)]
    columns += [Column(head, 9 - place) for place, head in enumerate(heads)]
    cells = [(site, *map(both, rows)) for site, rows in shown.items()]
    lines = table(columns, cells, width, [_style(rows[1]) for rows in shown.values()])
    more = len(found.sites) - len(shown)
    return lines + ([line((f"  … and {more:,} more: --html, --json", "dim"))] if more > 0 else [])


def _mark(row: Row) -> str:
    return "same" if row.change in _STYLES and not is_told(row) else _MARKS[row.change]


def _style(row: Row) -> str:
    return _STYLES[row.change] if is_told(row) else ""
