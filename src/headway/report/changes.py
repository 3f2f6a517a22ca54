"""Differences in words: how figures of runs are written, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Sequence

from headway.report.compare import FEW, Change, Comparison, Figure, Pair, Row, Unit, letters
from headway.report.numbers import UNKNOWN, count, percent, rate, size, span

#: What is told in words; all else is in the tables.
TOLD = (Change.BETTER, Change.WORSE)
_MOST_LOSSES = 3


def told(found: Pair) -> list[Row]:
    """The figures that differ by more than chance, and the largest losses that do."""
    rows = [row for row in found.figures if is_told(row)]
    return rows + [row for row in found.losses if is_told(row)][:_MOST_LOSSES]


def is_told(row: Row) -> bool:
    """Whether a difference is more than chance, and large enough to be seen."""
    return row.change in TOLD and bool(gap(row))


def sentence(row: Row) -> str:
    """One figure of two runs: "compute share: 43.3 % → 91.2 % (+47.9 points)"."""
    by = gap(row)
    return f"{row.name}: {value(row, row.a)} → {value(row, row.b)}" + (f" ({by})" if by else "")


def doubts(found: Comparison) -> str:
    """That there are too few jobs to tell much; "" where there are enough."""
    if not found.few:
        return ""
    *others, last = dict.fromkeys(found.few)
    names = f"{', '.join(others)} and {last}" if others else last
    return f"Few jobs have ended in {names} (fewer than {FEW}): much of this may be chance."


def labelled(names: Sequence[str], widest: int) -> list[str]:
    """The runs' names in full, each after the letter that stands for it if one does."""
    shown = titles(names, widest)
    if shown != letters(len(shown)) or shown == tuple(names):
        return list(names)
    return [f"{letter}: {name}" for letter, name in zip(shown, names, strict=True)]


def both(row: Row) -> str:
    """Both values, the unit once where it is the same."""
    if row.a is None and row.b is None:
        return UNKNOWN
    a, b = value(row, row.a), value(row, row.b)
    number, _, unit = a.partition(" ")
    return f"{number if unit and b.endswith(f' {unit}') else a} → {b}"


def value(row: Row | Figure, number: float | None) -> str:
    """One run's value in its unit."""
    return UNKNOWN if number is None else _written(row.unit, number)


def gap(row: Row) -> str:
    """By how much the second run differs; "" where one would not see it."""
    difference = row.difference
    if difference is None or not difference:
        return ""
    sign = "+" if difference > 0 else "-"
    if row.unit is Unit.SHARE:
        points = f"{abs(difference) * 100:.1f}"
        return f"{sign}{points} points" if float(points) else ""
    if row.unit is Unit.COUNT or not row.a:
        return f"{sign}{_written(row.unit, abs(difference))}"
    share = abs(difference / row.a)
    if row.b and row.b / row.a >= 2:
        return f"{row.b / row.a:,.1f} times"
    return f"{sign}{share * 100:.0f} %" if share >= 0.005 else ""


def titles(names: Sequence[str], widest: int) -> tuple[str, ...]:
    """The runs' names, short enough for columns, and each another."""
    paths = [name.removesuffix(".log").split("/") for name in names]
    while len(set(map(tuple, paths))) > 1 and min(map(len, paths)) > 1:
        if len({path[0] for path in paths}) == 1:
            paths = [path[1:] for path in paths]
        elif len({path[-1] for path in paths}) == 1:
            paths = [path[:-1] for path in paths]
        else:
            break
    short = tuple(_short("/".join(path), widest) for path in paths)
    return short if len(set(short)) == len(short) else letters(len(short))


def _short(name: str, widest: int) -> str:
    # The end of it tells logs apart, the beginning is alike.
    return name if len(name) <= widest else f"…{name[1 - widest :]}"


def _written(unit: Unit, number: float) -> str:
    if unit is Unit.SHARE:
        return percent(number)
    if unit is Unit.SECONDS:
        return span(number)
    if unit is Unit.BYTES:
        return size(number)
    if unit is Unit.RATE:
        return rate(number)
    return count(number) if unit is Unit.COUNT else f"{number:,.2f}"
