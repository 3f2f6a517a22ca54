"""The comparison as one HTML file: two reports side by side, what got better, and by how much."""

from __future__ import annotations

from datetime import timezone

from headway.node.version import VERSION
from headway.report.changes import both, doubts, gap, is_told, sentence, titles, told, value
from headway.report.compare import Change, Comparison, Row
from headway.report.numbers import percent
from headway.report.page.charts import stacked, svg
from headway.report.page.lead import swatch
from headway.report.page.markup import Child, Markup, join, log_text, tag, text
from headway.report.page.scale import moment, zone_words
from headway.report.page.sections import section, table
from headway.report.page.sheet import asset, local_zone, patterns, policy
from headway.text import many

#: More sites than this are counted, not listed.
MOST_SITES = 40
#: Letters of a side's name where it heads a column.
WIDEST = 24
_CARDS = (
    ("success, of jobs that ended", "Success", "of the jobs that ended"),
    ("compute share", "Compute share", "compute of verified results"),
    ("goodput", "Goodput", "that, and the transfers it needed"),
    ("slot time per result", "Slot time", "for one result"),
)
_HOW = (
    "A difference is called better or worse where chance alone makes one as large in 1 of 100 "
    "cases; what is less than that may be chance, and of few jobs most is. Losses are shares "
    "of each side's own slot time, so that runs of different sizes can be compared."
)


def versus(found: Comparison, *, generated: float, zone: timezone | None = None) -> str:
    """The comparison as a page that needs nothing else, not even a script."""
    zone = zone or local_zone(generated)
    style = asset("page.css")
    names = join(log_text(found.a, 200), " → ", log_text(found.b, 200))
    doubt = doubts(found)
    notes = [*found.notes, *([doubt] if doubt else [])]
    body = [
        tag(
            "header",
            tag("div", tag("p", "Headway comparison"), class_="brand"),
            tag("h1", names),
            *(tag("p", text(note, 600), class_="note") for note in notes),
            class_="top",
        ),
        tag(
            "main",
            _summary(found),
            section("changes", "What changed", _changes(found)),
            section("figures", "Every figure", _figures(found)),
            section("losses", "Losses by cause", _losses(found)),
            section("sites", "Sites", *_sites(found)),
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
        f"{tag('title', f'{text(found.a, 100)} → {text(found.b, 100)} – Headway comparison')}\n"
        f"<style>{style}</style>\n"
    )
    hidden = '<svg class="patterns" width="0" height="0" aria-hidden="true" focusable="false">'
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n{head}</head>\n<body>\n'
        '<a class="skip" href="#changes">Skip to what changed</a>\n'
        f"{hidden}<defs>{patterns()}</defs></svg>\n{join(*body)}\n</body>\n</html>\n"
    )


def _summary(found: Comparison) -> Markup:
    """The four figures that matter most, and all slot time of both sides in two bars."""
    rows = {row.name: row for row in found.figures}
    cards = [_card(title, words, rows[name]) for name, title, words in _CARDS]
    return tag(
        "section",
        tag("h2", "Summary", class_="unseen", id="summary-title"),
        tag("div", *cards, class_="shares four"),
        _bars(found, rows),
        id="summary",
        aria_labelledby="summary-title",
    )


def _card(title: str, words: str, row: Row) -> Markup:
    return tag(
        "div",
        tag("p", title, class_="label"),
        tag("p", both(row), class_="figure both"),
        tag("p", words),
        tag("p", _change(row), class_=_class(row)),
        class_="share",
    )


def _bars(found: Comparison, rows: dict[str, Row]) -> Markup | None:
    """One bar a side, as long as its own slot time: goodput from the left, then badput."""
    drawn: list[Child] = []
    known: dict[str, str] = {}
    for place, name in enumerate(titles(found, WIDEST)):
        parts = _parts(found, rows, place)
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
    entries = [tag("li", swatch(kind), words) for kind, words in known.items()]
    return tag(
        "figure",
        tag("ul", *entries, class_="legend"),
        tag("dl", *drawn, class_="spreads"),
        class_="slot-bar",
    )


def _parts(found: Comparison, rows: dict[str, Row], place: int) -> list[tuple[str, float, str]]:
    def side(row: Row) -> float | None:
        return row.b if place else row.a

    compute, good = side(rows["compute share"]), side(rows["goodput"])
    if compute is None or good is None:
        return []
    bad = sum(side(row) or 0.0 for row in found.losses)
    parts = [
        ("compute good", compute, "compute of verified results"),
        ("transfer-in good", good - compute, "transfers that they needed"),
        ("starting bad", bad, "badput"),
        ("starting open", 1.0 - good - bad, "not decided yet"),
    ]
    return [part for part in parts if part[1] > 0.0005]


def _changes(found: Comparison) -> Markup:
    rows = told(found)
    if not rows:
        return tag("p", "No figure differs by more than chance may do.")
    return tag(
        "ul",
        *(
            tag("li", tag("b", f"{row.change.value}: ", class_=_class(row)), sentence(row))
            for row in rows
        ),
        class_="changes",
    )


def _figures(found: Comparison) -> Markup:
    first, second = titles(found, WIDEST)
    cells: list[list[Child]] = [
        [row.name, *_numbers(row)]
        for row in found.figures
        if row.a is not None or row.b is not None
    ]
    header: list[Child] = ["figure", log_text(first), log_text(second), "change"]
    return table("Figures of the whole", header, cells, class_="numbers versus")


def _numbers(row: Row) -> list[Child]:
    """Both values, by how much they differ, and what that is."""
    change = tag("span", _change(row), class_=" ".join(filter(None, ("wraps", _class(row)))))
    return [value(row, row.a), value(row, row.b), change]


def _losses(found: Comparison) -> Markup:
    """Each cause with two bars on one scale, and the numbers beside them."""
    if not found.losses:
        return tag("p", "No slot time was lost on either side.")
    first, second = titles(found, WIDEST)
    most = max(max(row.a or 0.0, row.b or 0.0) for row in found.losses) or 1.0
    cells: list[list[Child]] = []
    for row in found.losses:
        bars = [
            svg(8, stacked([(f"{name} bad", (share or 0.0) / most, "")], 8), class_="bar")
            for name, share in (("starting", row.a), ("compute", row.b))
        ]
        cells.append([join(row.name, *bars), *_numbers(row)])
    header: list[Child] = [
        "cause",
        join(swatch("starting bad"), log_text(first)),
        join(swatch("compute bad"), log_text(second)),
        "change",
    ]
    caption = "Badput by cause, as a share of each side's own slot time"
    return table(caption, header, cells, class_="numbers versus losses")


def _sites(found: Comparison) -> list[Child]:
    if not found.sites:
        return [tag("p", "The logs name no site.", class_="note")]
    shown = list(found.sites.items())[:MOST_SITES]
    cells: list[list[Child]] = [
        [log_text(site, 80), *(tag("span", both(row), class_=_class(row)) for row in rows)]
        for site, rows in shown
    ]
    header: list[Child] = ["site", "jobs that ended", "success", "compute, mean", "transfer rate"]
    left = len(found.sites) - len(shown)
    more = f"{many(left, 'site')} more not shown; --json has them all."
    return [
        table("Sites, those of both sides first", header, cells, class_="numbers"),
        tag("p", more, class_="note") if left else None,
    ]


def _change(row: Row) -> str:
    """By how much, and what that is, in words."""
    by = gap(row)
    if not by:
        return "" if row.change is Change.NONE else Change.SAME.value
    return f"{by}, {row.change.value}" if row.change.value else by


def _class(row: Row) -> str | None:
    return row.change.value if is_told(row) else None
