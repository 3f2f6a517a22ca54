"""Two reports beside each other on a terminal; pure, from a comparison to lines."""

from __future__ import annotations

from collections.abc import Sequence

from headway.report.compare import FEW, Change, Comparison, Row, Unit
from headway.report.layout import Column, Line, line, paragraph, table
from headway.report.numbers import UNKNOWN, count, percent, rate, size, span

_MARKS = {change: change.value for change in Change} | {Change.CHANCE: "chance?"}
_STYLES = {Change.BETTER: "green", Change.WORSE: "red"}
_WIDEST = 14  # columns of a side's name as a title
_MOST_SITES = 12


def beside(found: Comparison, *, width: int = 80, notes: Sequence[str] = ()) -> list[Line]:
    """What got better, then every figure of both sides."""
    width = max(40, min(width, 120))
    lines = paragraph(f"{found.a} → {found.b}", width, style="bold")
    for note in notes:
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
    told = [row for row in found.figures if row.change in _STYLES]
    told += [row for row in found.losses if row.change in _STYLES][:3]
    lines: list[Line] = []
    for row in told:
        words = f"{row.name}: {_value(row, row.a)} → {_value(row, row.b)} ({_gap(row)})"
        first = f"  {row.change.value}: "
        lines += paragraph(words, width, " " * len(first), _STYLES[row.change], first)
    if not told:
        lines += paragraph("No figure differs by more than chance may do.", width, "  ")
    if found.few:
        names = " and ".join(found.few)
        lines += paragraph(
            f"Few jobs have ended in {names} (fewer than {FEW}): much of this may be chance.",
            width,
            "  ",
            "yellow",
        )
    return lines


def _table(title: str, rows: Sequence[Row], found: Comparison, width: int) -> list[Line]:
    columns = (
        Column(title, left=True),
        Column(_short(found.a), 9),
        Column(_short(found.b), 9),
        Column("change", 8),
        Column("", 7, left=True),
    )
    cells = [
        (row.name, _value(row, row.a), _value(row, row.b), _gap(row), _MARKS[row.change])
        for row in rows
        if row.a is not None or row.b is not None
    ]
    styles = [_STYLES.get(row.change, "") for row in rows if (row.a, row.b) != (None, None)]
    return table(columns, cells, width, styles)


def _sites(found: Comparison, width: int) -> list[Line]:
    """One row a site, each figure as it was and as it is."""
    shown = dict(list(found.sites.items())[:_MOST_SITES])
    titles = ("jobs", "success", "compute", "transfer rate")
    columns = [Column("site", left=True)]
    columns += [Column(title, 9 - place) for place, title in enumerate(titles)]
    cells = [(site, *map(_both, rows)) for site, rows in shown.items()]
    lines = table(
        columns, cells, width, [_STYLES.get(rows[1].change, "") for rows in shown.values()]
    )
    more = len(found.sites) - len(shown)
    return lines + ([line((f"  … and {more:,} more: --json", "dim"))] if more > 0 else [])


def _both(row: Row) -> str:
    """Both values, the unit once where it is the same."""
    if row.a is None and row.b is None:
        return UNKNOWN
    a, b = _value(row, row.a), _value(row, row.b)
    number, _, unit = a.partition(" ")
    return f"{number if unit and b.endswith(f' {unit}') else a} → {b}"


def _value(row: Row, value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return _written(row.unit, value)


def _written(unit: Unit, value: float) -> str:
    if unit is Unit.SHARE:
        return percent(value)
    if unit is Unit.SECONDS:
        return span(value)
    if unit is Unit.BYTES:
        return size(value)
    if unit is Unit.RATE:
        return rate(value)
    return count(value) if unit is Unit.COUNT else f"{value:,.2f}"


def _gap(row: Row) -> str:
    gap = row.difference
    if gap is None or not gap:
        return ""
    sign = "+" if gap > 0 else "-"
    if row.unit is Unit.SHARE:
        points = f"{abs(gap) * 100:.1f}"
        return f"{sign}{points} points" if float(points) else ""
    if row.unit is Unit.COUNT or not row.a:
        return f"{sign}{_written(row.unit, abs(gap))}"
    share = abs(gap / row.a)
    if row.b and row.b / row.a >= 2:
        return f"{row.b / row.a:,.1f} times"
    return f"{sign}{share * 100:.0f} %" if share >= 0.005 else ""


def _short(name: str) -> str:
    """A side's name as a title: the end of it tells two logs apart, the beginning is alike."""
    name = name.removesuffix(".log")
    return name if len(name) <= _WIDEST else f"…{name[1 - _WIDEST :]}"
