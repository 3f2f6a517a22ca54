"""A comparison in words: how its figures are written, and all of it as lines of a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from headway.report.compare import FEW, Comparison, Difference, Figure, Pair, Trend, Unit, letters
from headway.report.numbers import UNKNOWN, count, percent, rate, size, span
from headway.report.terminal import Line, TableColumn, line, paragraph, table

#: What is told in words; all else is in the tables.
_CLEAR = (Trend.BETTER, Trend.WORSE)
_MOST_LOSSES = 3


def clear_changes(found: Pair) -> list[Difference]:
    """The figures that differ by more than chance, and the largest losses that do."""
    rows = [row for row in found.figures if is_clear(row)]
    return rows + [row for row in found.losses if is_clear(row)][:_MOST_LOSSES]


def is_clear(row: Difference) -> bool:
    """Whether a difference is more than chance, and large enough to be seen."""
    return row.change in _CLEAR and bool(by_how_much(row))


def sentence(row: Difference) -> str:
    """One figure of two runs: "compute share: 43.3 % → 91.2 % (+47.9 points)"."""
    by = by_how_much(row)
    return f"{row.name}: {written(row, row.a)} → {written(row, row.b)}" + (f" ({by})" if by else "")


def few_jobs(found: Comparison) -> str:
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


def before_and_after(row: Difference) -> str:
    """Both values, the unit once where it is the same."""
    if row.a is None and row.b is None:
        return UNKNOWN
    a, b = written(row, row.a), written(row, row.b)
    number, _, unit = a.partition(" ")
    return f"{number if unit and b.endswith(f' {unit}') else a} → {b}"


def written(row: Difference | Figure, number: float | None) -> str:
    """One run's value in its unit."""
    return UNKNOWN if number is None else _IN_UNIT[row.unit](number)


def by_how_much(row: Difference) -> str:
    """By how much the second run differs; "" where one would not see it."""
    difference = row.difference
    if difference is None or not difference:
        return ""
    sign = "+" if difference > 0 else "-"
    if row.unit is Unit.SHARE:
        points = f"{abs(difference) * 100:.1f}"
        return f"{sign}{points} points" if float(points) else ""
    if row.unit is Unit.COUNT or not row.a:
        return f"{sign}{_IN_UNIT[row.unit](abs(difference))}"
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


_IN_UNIT: dict[Unit, Callable[[float], str]] = {
    Unit.COUNT: count,
    Unit.NUMBER: "{:,.2f}".format,
    Unit.SHARE: percent,
    Unit.SECONDS: span,
    Unit.BYTES: size,
    Unit.RATE: rate,
}


_MARKS = {change: change.value for change in Trend} | {Trend.CHANCE: "chance?"}
_STYLES = {Trend.BETTER: "green", Trend.WORSE: "red"}
_MOST_SITES = 12
#: Letters of a run's name where it heads a column, and columns that the names of figures need.
_WIDEST, _FIRST = 11, 24


def comparison_text(found: Comparison, *, width: int = 80) -> list[Line]:
    """What got better in each run than in the first, then every figure of all."""
    width = max(40, min(width, 120))
    first, *others = labelled(found.names, _WIDEST)
    lines = paragraph(f"{first} → {', '.join(others)}", width, style="bold")
    for note in found.notes:
        lines += paragraph(f"note: {note}", width, "  ", "yellow")
    for pair in found.pairs:
        lines += [*_heading(found, pair), *_clear_changes(pair, width)]
    if few_jobs(found):
        lines += paragraph(few_jobs(found), width, "  ", "yellow")
    lines += _table("figure", found.figures, found, width)
    if found.losses:
        lines += [line(), line(("Losses by cause, of the slot time", "bold"))]
        lines += _table("cause", found.losses, found, width)[1:]
    placed = [pair for pair in found.pairs if pair.sites]
    if placed:
        lines += [line(), line((f"{found.place.capitalize()}s", "bold"))]
    for pair in placed:
        lines += [*_heading(found, pair), *_sites(pair, width)]
    return lines


def _heading(found: Comparison, pair: Pair) -> list[Line]:
    """Which run the lines below are of, where there are several."""
    return [line(), line(f"{pair.a} → {pair.b}")] if len(found.pairs) > 1 else []


def _clear_changes(found: Pair, width: int) -> list[Line]:
    """The changes that are more than chance, in a sentence each; else that there are none."""
    lines: list[Line] = []
    rows = clear_changes(found)
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
    for others in _side_by_side(len(names) - 1, width):
        columns = [TableColumn(title, left=True), TableColumn(names[0], 9)]
        for other in others:
            columns += [
                TableColumn(names[other + 1], 9),
                TableColumn("change", 8),
                TableColumn("", 7, left=True),
            ]
        cells, styles = [], []
        for figure in known:
            rows = [figure.rows[other] for other in others]
            cells.append([figure.name, written(figure, figure.values[0])])
            for row in rows:
                cells[-1] += [written(row, row.b), by_how_much(row), _mark(row)]
            styles.append(_style(rows))
        lines += [line(), *table(columns, cells, width, styles)]
    return lines


def _side_by_side(others: int, width: int) -> Iterator[range]:
    """As many of the other runs at a time as have room beside the first."""
    room = max(1, (width - _FIRST) // (_WIDEST + 2) - 1)
    for begin in range(0, others, room):
        yield range(begin, min(begin + room, others))


def _sites(found: Pair, width: int) -> list[Line]:
    """One row a site, each figure as it was and as it is."""
    shown = dict(list(found.sites.items())[:_MOST_SITES])
    heads = ("jobs", "success", "compute", "transfer rate")
    columns = [TableColumn(found.place, left=True)]
    columns += [TableColumn(head, 9 - place) for place, head in enumerate(heads)]
    cells = [(site, *map(before_and_after, rows)) for site, rows in shown.items()]
    lines = table(columns, cells, width, [_style(rows[1:2]) for rows in shown.values()])
    more = len(found.sites) - len(shown)
    return lines + ([line((f"  … and {more:,} more: --html, --json", "dim"))] if more > 0 else [])


def _mark(row: Difference) -> str:
    return "same" if row.change in _STYLES and not is_clear(row) else _MARKS[row.change]


def _style(rows: Sequence[Difference]) -> str:
    """The colour of a change, where those that are told agree."""
    styles = {_STYLES[row.change] for row in rows if is_clear(row)}
    return styles.pop() if len(styles) == 1 else ""
