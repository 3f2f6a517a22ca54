"""The comparison as one HTML file: reports side by side, what got better, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timezone

from headway.node import VERSION
from headway.report.compare import Comparison, Difference, Figure, Pair, Trend
from headway.report.compare_text import (
    before_and_after,
    by_how_much,
    clear_changes,
    few_jobs,
    is_clear,
    labelled,
    sentence,
    titles,
    written,
)
from headway.report.numbers import percent
from headway.report.page.charts import (
    Child,
    Markup,
    join,
    log_text,
    moment,
    stacked,
    svg,
    tag,
    text,
    zone_words,
)
from headway.report.page.render import asset, local_zone, patterns, policy
from headway.report.page.sections import legend, section, table
from headway.text import many

#: More sites than this are counted, not listed.
MOST_SITES = 40
#: Letters of a run's name where it heads a column.
WIDEST = 24
#: Pixels that the names of figures and each run have at least.
_FIRST, _COLUMN = 112, 84
_SCORE = (
    ("success, of jobs that ended", "Success", "of the jobs that ended"),
    ("compute share", "Compute share", "compute of verified results"),
    ("goodput", "Goodput", "that, and the transfers it needed"),
    ("slot time per result", "Slot time", "for one result"),
)
_LOSSES = "Losses by cause, as shares of each run's own slot time"
_HOW = (
    "A difference is called better or worse where chance alone makes one as large in 1 of 100 "
    "cases; what is less than that may be chance, and of few jobs most is. Losses are shares "
    "of each run's own slot time, so that runs of different sizes can be compared."
)


@dataclass(frozen=True)
class Front:
    """A table of one's own before the figures: its first column names its rows."""

    title: str
    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()


def versus(
    found: Comparison, *, generated: float, zone: timezone | None = None, front: Front | None = None
) -> str:
    """The comparison as a page that needs nothing else, not even a script."""
    zone = zone or local_zone(generated)
    style = asset("page.css")
    first, *others = labelled(found.names, WIDEST)
    names = [text(name, 100) for name in found.names]
    title = f"{names[0]} → {', '.join(names[1:])} – Headway comparison"
    doubt = few_jobs(found)
    notes = [*found.notes, *([doubt] if doubt else [])]
    body = [
        tag(
            "header",
            tag("div", tag("p", "Headway comparison"), class_="brand"),
            tag("h1", log_text(first, 200), " → ", _listed(others)),
            *(tag("p", text(note, 600), class_="note") for note in notes),
            class_="top",
        ),
        tag(
            "main",
            _front(front) if front else None,
            _summary(found),
            section("figures", "Every figure", *_figures(found)),
            *(_against(found, place) for place in range(len(found.pairs))),
            id="main",
        ),
        tag(
            "footer",
            tag("p", _HOW),
            tag("p", f"Made by Headway {VERSION} on {moment(generated, zone)} {zone_words(zone)}."),
        ),
    ]
    head = (
        '<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy(style)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<meta name="generator" content="Headway">\n'
        f"{tag('title', title)}\n"
        f"<style>{style}</style>\n"
    )
    hidden = '<svg class="patterns" width="0" height="0" aria-hidden="true" focusable="false">'
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n{head}</head>\n<body>\n'
        '<a class="skip" href="#figures">Skip to every figure</a>\n'
        f"{hidden}<defs>{patterns()}</defs></svg>\n{join(*body)}\n</body>\n</html>\n"
    )


def _listed(names: Sequence[str]) -> Markup:
    first, *others = (log_text(name, 200) for name in names)
    return join(first, *(join(", ", name) for name in others))


def _front(front: Front) -> Markup:
    notes = (tag("p", note, class_="note") for note in front.notes)
    shown = table(front.caption, front.head, front.rows, class_="numbers")
    return section("front", front.title, shown, *notes)


def _summary(found: Comparison) -> Markup:
    """The four figures that matter most, a row for each run, and all its slot time in a bar."""
    figures = {figure.name: figure for figure in found.figures}
    header: list[Child] = ["run"]
    header += [join(tag("b", title), " ", tag("span", words)) for _, title, words in _SCORE]
    cells: list[list[Child]] = [
        [log_text(name), *(_cell(figures[figure], place) for figure, _, _ in _SCORE)]
        for place, name in enumerate(titles(found.names, WIDEST))
    ]
    return tag(
        "section",
        tag("h2", "Summary", class_="unseen", id="summary-title"),
        table("The figures that matter most", header, cells, class_="score"),
        _bars(found, figures),
        id="summary",
        aria_labelledby="summary-title",
    )


def _bars(found: Comparison, figures: dict[str, Figure]) -> Markup | None:
    """One bar a run, as long as its own slot time: goodput from the left, then badput."""
    drawn: list[Child] = []
    known: dict[str, str] = {}
    for place, name in enumerate(titles(found.names, WIDEST)):
        parts = _parts(found, figures, place)
        if not parts:
            continue
        known |= {kind: words for kind, _, words in parts}
        said = "; ".join(f"{words} {percent(share)}" for _, share, words in parts)
        drawn += [
            tag("dt", log_text(name)),
            tag("dd", svg(28, stacked(parts, 28), label=f"{text(name, 60)}: {said}")),
        ]
    if not drawn:
        return None
    spreads = tag("dl", *drawn, class_="spreads")
    return tag("figure", legend(known.items()), spreads, class_="slot-bar")


def _parts(
    found: Comparison, figures: dict[str, Figure], place: int
) -> list[tuple[str, float, str]]:
    compute, good = (figures[name].values[place] for name in ("compute share", "goodput"))
    if compute is None or good is None:
        return []
    bad = sum(loss.values[place] or 0.0 for loss in found.losses)
    parts = [
        ("compute good", compute, "compute of verified results"),
        ("transfer-in good", good - compute, "transfers that they needed"),
        ("starting bad", bad, "badput"),
        ("starting open", 1.0 - good - bad, "not decided yet"),
    ]
    return [part for part in parts if part[1] > 0.0005]


def _figures(found: Comparison) -> list[Child]:
    """One table: a row for each figure and each cause of loss, a column for each run."""
    runs = range(len(found.names))
    most = max((loss.most for loss in found.losses), default=0.0) or 1.0
    figures: list[list[Child]] = [
        [figure.name, *(_cell(figure, place) for place in runs)]
        for figure in found.figures
        if figure.known
    ]
    losses: list[list[Child]] = [
        [loss.name, *(join(_bar(loss, place, most), _cell(loss, place)) for place in runs)]
        for loss in found.losses
    ]
    header: list[Child] = ["figure", *(log_text(name) for name in titles(found.names, WIDEST))]
    shown = table(
        "Figures of the whole",
        header,
        figures,
        class_="numbers versus",
        groups=[(_LOSSES, losses)] if losses else (),
        least=(_FIRST, *(_COLUMN for _ in runs)),
    )
    return [shown, None if losses else tag("p", "No slot time was lost in any run.", class_="note")]


def _cell(figure: Figure, place: int) -> Markup:
    """One run's value and, below it, how it differs from the first."""
    parts = [tag("span", written(figure, figure.values[place]), class_="value")]
    if place:
        row = figure.rows[place - 1]
        parts.append(tag("span", _change(row), class_=f"change {_class(row) or ''}".strip()))
    return tag("div", *parts, class_="cell")


def _bar(loss: Figure, place: int, most: float) -> Markup:
    share = (loss.values[place] or 0.0) / most
    return svg(8, stacked([("starting bad", share, "")], 8), class_="bar")


def _against(found: Comparison, place: int) -> Markup:
    """One run against the first: what changed in words, and the sites of both."""
    pair, shown = found.pairs[place], titles(found.names, WIDEST)
    title = join("What changed: ", log_text(shown[0]), " → ", log_text(shown[place + 1]))
    return section(f"changes-{place + 1}", title, _changes(pair), *_sites(pair))


def _changes(found: Pair) -> Markup:
    rows = clear_changes(found)
    if not rows:
        return tag("p", "No figure differs by more than chance may do.", class_="changes")
    return tag(
        "ul",
        *(
            tag("li", tag("b", f"{row.change.value}: ", class_=_class(row)), sentence(row))
            for row in rows
        ),
        class_="changes",
    )


def _sites(found: Pair) -> list[Child]:
    if not found.sites:
        return [tag("p", "The logs name no site.", class_="note")]
    shown = list(found.sites.items())[:MOST_SITES]
    cells: list[list[Child]] = [
        [
            log_text(site, 80),
            *(tag("span", before_and_after(row), class_=_class(row)) for row in rows),
        ]
        for site, rows in shown
    ]
    header: list[Child] = [
        found.place,
        "jobs that ended",
        "success",
        "compute, mean",
        "transfer rate",
    ]
    left = len(found.sites) - len(shown)
    more = f"{many(left, found.place)} more not shown; --json has them all."
    return [
        table(f"{found.place.capitalize()}s, those of both first", header, cells, class_="numbers"),
        tag("p", more, class_="note") if left else None,
    ]


def _change(row: Difference) -> str:
    """By how much, and what that is, in words."""
    by = by_how_much(row)
    if not by:
        return "" if row.change is Trend.NONE else Trend.SAME.value
    return f"{by}, {row.change.value}" if row.change.value else by


def _class(row: Difference) -> str | None:
    return row.change.value if is_clear(row) else None
