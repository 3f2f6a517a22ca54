"""The picture of benchmarks/stageout.py: what each slot did when, stock above Headway.

Shown are the runs of eight jobs on the pool with a quick negotiator that took the median time.
scripts/benchmark_figures.py writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stageout import JOBS, TIMES_WORK
from stageout_pool import COMPUTING, PREPARING, Load, Span

SETTING = "quick"
PANELS = {"stock": "HTCondor as it comes", "headway": "Headway, deliver = “later”"}
WIDTH, MARGIN, NAMES = 960, 24, 116  # pixels: the picture, its edge, the names of the rows
ROW, GAP = 24, 6
COLOURS = {"computing": "#2563eb", "transferring": "#d97706"}
INK, PALE = "#1f2937", "#6b7280"


def draw(kept: dict[str, Any]) -> str:
    """The picture of what is known, as SVG on a ground of its own."""
    runs = {way: median_run(kept, way) for way in PANELS}
    most = max(raw["seconds"] for raw in runs.values())
    scale = (WIDTH - 2 * MARGIN - NAMES) / most
    ideal = Load(JOBS, kept["work"], TIMES_WORK * kept["work"]).ideal
    body, top = list(_legend(MARGIN + 12)), MARGIN + 34
    first = top
    for way, raw in runs.items():
        spans = [Span(*span) for span in raw["spans"]]
        body.append(_text(MARGIN, top + 14, f"{PANELS[way]}: {raw['seconds']:.0f} s", bold=True))
        top += 24
        for name, row in slot_rows(spans):
            body.append(_text(MARGIN, top + 16, name, PALE))
            body += [_bar(span, number, top, scale) for span, number in row]
            top += ROW + GAP
        top += 14
    body += _axis(first, top - 8, most, scale, ideal, TIMES_WORK * kept["work"])
    height = top + 30
    words = (
        f"{JOBS} jobs on one slot: {PANELS['stock']} takes {runs['stock']['seconds']:.0f} s,"
        f" Headway {runs['headway']['seconds']:.0f} s"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
            ' font-family="Segoe UI, Helvetica, Arial, sans-serif" font-size="14">',
            f"<title>{words}</title>",
            f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"'
            ' fill="#ffffff" stroke="#d1d5db"/>',
            *body,
            "</svg>\n",
        ]
    )


def median_run(kept: dict[str, Any], way: str) -> dict[str, Any]:
    """Of the runs of one way, the one that took the median time."""
    mine: list[dict[str, Any]] = [
        raw
        for raw in kept["cells"]
        if (raw["setting"], raw["way"], raw["jobs"]) == (SETTING, way, JOBS)
    ]
    return sorted(mine, key=lambda raw: float(raw["seconds"]))[(len(mine) - 1) // 2]


def slot_rows(spans: Sequence[Span]) -> Iterator[tuple[str, list[tuple[Span, str]]]]:
    """Each slot with its spans, the ordinary one first; a span has the number of its job."""
    computed = sorted((span for span in spans if span.what == COMPUTING), key=lambda each: each[3])
    numbers = {span.job: str(place) for place, span in enumerate(computed, 1)}
    slots = sorted({span.slot for span in spans})
    for place, slot in enumerate(slots):
        name = f"transfer slot {place}" if place else "slot"
        mine = [span for span in spans if span.slot == slot and span.what != PREPARING]
        yield name, [(span, numbers.get(span.job, "")) for span in mine]


def _bar(span: Span, number: str, top: float, scale: float) -> str:
    x, width = MARGIN + NAMES + span.begin * scale, (span.end - span.begin) * scale
    bar = (
        f'<rect x="{x:.1f}" y="{top}" width="{max(width, 0.5):.1f}" height="{ROW}"'
        f' fill="{COLOURS[span.what]}" stroke="#ffffff"/>'
    )
    if not number or width < 12:
        return bar
    middle = x + width / 2
    return bar + _text(middle, top + 17, number, "#ffffff", anchor="middle", bold=True)


def _legend(y: float) -> Iterator[str]:
    x = float(MARGIN + NAMES)
    words = {"computing": "computes", "transferring": "sends its output home"}
    for what, colour in COLOURS.items():
        yield f'<rect x="{x}" y="{y - 12}" width="14" height="14" fill="{colour}"/>'
        yield _text(x + 20, y, f"a job {words[what]}")
        x += 150


def _axis(
    top: float, bottom: float, most: float, scale: float, ideal: float, step: int
) -> Iterator[str]:
    """A mark for each minute or so, and the ideal."""
    left = MARGIN + NAMES
    for second in range(0, int(most) + 1, step):
        x = left + second * scale
        yield f'<path d="M{x:.1f} {bottom}v5" stroke="{PALE}"/>'
        unit = " s" if not second else ""
        yield _text(x, bottom + 20, f"{second}{unit}", PALE, anchor="middle")
    yield f'<path d="M{left} {bottom}H{left + most * scale:.1f}" stroke="{PALE}"/>'
    x = left + ideal * scale
    yield f'<path d="M{x:.1f} {top}V{bottom}" stroke="{INK}" stroke-dasharray="4 3"/>'
    yield _text(x + 6, top + 14, f"ideal: {ideal:.0f} s")


def _text(
    x: float, y: float, words: str, fill: str = INK, *, anchor: str = "start", bold: bool = False
) -> str:
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" text-anchor="{anchor}"{weight}>{words}</text>'
    )
