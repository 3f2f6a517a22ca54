"""Reports beside each other on a terminal; pure, from a comparison to lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headway.report.changes import (
    both,
    doubts,
    gap,
    is_told,
    labelled,
    sentence,
    titles,
    told,
    value,
)
from headway.report.compare import Change, Comparison, Figure, Pair, Row
from headway.report.layout import Column, Line, line, paragraph, table

_MARKS = {change: change.value for change in Change} | {Change.CHANCE: "chance?"}
_STYLES = {Change.BETTER: "green", Change.WORSE: "red"}
_MOST_SITES = 12
#: Letters of a run's name where it heads a column, and columns that the names of figures need.
_WIDEST, _FIRST = 11, 24


def beside(found: Comparison, *, width: int = 80) -> list[Line]:
    """What got better in each run than in the first, then every figure of all."""
    width = max(40, min(width, 120))
    first, *others = labelled(found.names, _WIDEST)
    lines = paragraph(f"{first} → {', '.join(others)}", width, style="bold")
    for note in found.notes:
        lines += paragraph(f"note: {note}", width, "  ", "yellow")
    for pair in found.pairs:
        lines += [*_parted(found, pair), *_words(pair, width)]
    if doubts(found):
        lines += paragraph(doubts(found), width, "  ", "yellow")
    lines += _table("figure", found.figures, found, width)
    if found.losses:
        lines += [line(), line(("Losses by cause, of the slot time", "bold"))]
        lines += _table("cause", found.losses, found, width)[1:]
    placed = [pair for pair in found.pairs if pair.sites]
    if placed:
        lines += [line(), line((f"{found.place.capitalize()}s", "bold"))]
    for pair in placed:
        lines += [*_parted(found, pair), *_sites(pair, width)]
    return lines


def _parted(found: Comparison, pair: Pair) -> list[Line]:
    """Which run the lines below are of, where there are several."""
    return [line(), line(f"{pair.a} → {pair.b}")] if len(found.pairs) > 1 else []


def _words(found: Pair, width: int) -> list[Line]:
    """The changes that are more than chance, in a sentence each; else that there are none."""
    lines: list[Line] = []
    rows = told(found)
    for row in rows:
        first = f"  {row.change.value}: "
        lines += paragraph(sentence(row), width, " " * len(first), _STYLES[row.change], first)
    if not rows:
        lines += paragraph("No figure differs by more than chance may do.", width, "  ")
    return lines


def _table(title: str, figures: Sequence[Figure], found: Comparison, width: int) -> list[Line]:
    """A column for each run, and as much of how it differs as there is room for.

    Runs for which there is no room stand below, the first with them again.
    """
    names = titles(found.names, _WIDEST)
    known = [figure for figure in figures if figure.known]
    lines: list[Line] = []
    for others in _abreast(len(names) - 1, width):
        columns = [Column(title, left=True), Column(names[0], 9)]
        for other in others:
            columns += [Column(names[other + 1], 9), Column("change", 8), Column("", 7, left=True)]
        cells, styles = [], []
        for figure in known:
            rows = [figure.rows[other] for other in others]
            cells.append([figure.name, value(figure, figure.values[0])])
            for row in rows:
                cells[-1] += [value(row, row.b), gap(row), _mark(row)]
            styles.append(_style(rows))
        lines += [line(), *table(columns, cells, width, styles)]
    return lines


def _abreast(others: int, width: int) -> Iterator[range]:
    """As many of the other runs at a time as have room beside the first."""
    room = max(1, (width - _FIRST) // (_WIDEST + 2) - 1)
    for begin in range(0, others, room):
        yield range(begin, min(begin + room, others))


def _sites(found: Pair, width: int) -> list[Line]:
    """One row a site, each figure as it was and as it is."""
    shown = dict(list(found.sites.items())[:_MOST_SITES])
    heads = ("jobs", "success", "compute", "transfer rate")
    columns = [Column(found.place, left=True)]
    columns += [Column(head, 9 - place) for place, head in enumerate(heads)]
    cells = [(site, *map(both, rows)) for site, rows in shown.items()]
    lines = table(columns, cells, width, [_style(rows[1:2]) for rows in shown.values()])
    more = len(found.sites) - len(shown)
    return lines + ([line((f"  … and {more:,} more: --html, --json", "dim"))] if more > 0 else [])


def _mark(row: Row) -> str:
    return "same" if row.change in _STYLES and not is_told(row) else _MARKS[row.change]


def _style(rows: Sequence[Row]) -> str:
    """The colour of a change, where those that are told agree."""
    styles = {_STYLES[row.change] for row in rows if is_told(row)}
    return styles.pop() if len(styles) == 1 else ""
