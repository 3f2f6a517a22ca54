"""Charts that are drawn here, as SVG: they need no script, follow the theme, and print."""

from __future__ import annotations

import html
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone

from headway.events import inert
from headway.report.numbers import Spread

#: Longer texts from a log are cut: a table cell is no place for a megabyte.
LONGEST = 400
# Marks that turn the direction of what stands around them.
_TURNS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_EMPTY = frozenset({"br", "col", "rect", "line", "path", "circle"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = Markup | str | int | None


def text(value: object, limit: int = LONGEST) -> str:
    """A text from a log as one harmless line: no controls, no turned direction, not endless."""
    line = _TURNS.sub("\N{REPLACEMENT CHARACTER}", str(value)[: limit * 4])
    line = inert(line, limit)
    if line.isprintable():
        return line
    return "".join(
        c if unicodedata.category(c)[0] != "C" else "\N{REPLACEMENT CHARACTER}" for c in line
    )


def tag(name: str, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """One element; `class_` and `for_` lose their underscore, others become hyphens."""
    words = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            words.append(f" {key}")
        else:
            shown = f"{value:.6g}" if isinstance(value, float) else str(value)
            words.append(f' {key}="{html.escape(shown)}"')
    opening = f"<{name}{''.join(words)}"
    if name in _EMPTY and not children:
        return Markup(f"{opening}/>")
    return Markup(f"{opening}>{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    """Children one after the other, each escaped if it is not markup."""
    return Markup(
        "".join(
            child if isinstance(child, Markup) else html.escape(str(child), quote=False)
            for child in children
            if child is not None
        )
    )


def log_text(value: object, limit: int = LONGEST) -> Markup:
    """A text from a log, kept to itself whatever way it is written."""
    return tag("bdi", text(value, limit))


_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 14400, 21600, 43200)
_DAY = 86_400


def count_marks(top: float, about: int = 4) -> list[float]:
    """Round numbers from 0 up to `top`, the last one at or above it."""
    if top <= 0:
        return [0.0, 1.0]
    raw = top / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * unit for unit in (1, 2, 2.5, 5, 10) if power * unit >= raw)
    step = max(step, 1.0)
    return [step * at for at in range(math.ceil(top / step - 1e-9) + 1)]


def length_marks(top: float, about: int = 6) -> list[float]:
    """Round lengths of time from 0 on, none above `top`."""
    step = _step(max(top, 1e-6), about)
    return [step * at for at in range(math.floor(top / step + 1e-9) + 1)]


def time_marks(begin: float, end: float, zone: timezone, about: int = 6) -> list[float]:
    """Round times of day, or midnights, between two times."""
    step = _step(max(end - begin, 1.0), about)
    shift = zone.utcoffset(None).total_seconds()
    first = math.ceil((begin + shift) / step) * step - shift
    return [first + step * at for at in range(math.floor((end - first) / step) + 1)]


def _step(length: float, about: int) -> float:
    raw = length / about
    if raw < 1:
        power = 10.0 ** math.floor(math.log10(raw))
        return next(power * unit for unit in (1, 2, 5, 10) if power * unit >= raw * 0.999)
    for step in _STEPS:
        if step >= raw:
            return float(step)
    days = raw / _DAY
    power = 10.0 ** math.floor(math.log10(days))
    rounded = next((power * unit for unit in (1, 2, 5, 10) if power * unit >= days), power * 10)
    return math.ceil(rounded) * _DAY


def length_words(seconds: float, marks: Sequence[float]) -> str:
    """The label of one mark of a length, in the one unit that suits them all."""
    top = max(marks, default=0)
    if seconds == 0:
        return "0"
    unit, name = (3600, "h") if top >= 2 * 3600 else (60, "min") if top >= 180 else (1, "s")
    return f"{seconds / unit:,.4g} {name}"


def moment(seconds: float, zone: timezone) -> str:
    """A time to the minute: "17 Nov 2023 09:41"."""
    try:
        at = datetime.fromtimestamp(seconds, zone)
    except (OverflowError, ValueError, OSError):
        return "–"
    return f"{at.day} {at:%b %Y %H:%M}"


def mark_words(seconds: float, step: float, zone: timezone) -> str:
    """The label of one mark of the clock: the day at midnight, else the time."""
    try:
        at = datetime.fromtimestamp(seconds, zone)
    except (OverflowError, ValueError, OSError):
        return ""
    if step >= _DAY or at.hour == at.minute == at.second == 0:
        return f"{at.day} {at:%b}"
    return f"{at:%H:%M}" if at.second == 0 and step >= 60 else f"{at:%H:%M:%S}"


def zone_words(zone: timezone) -> str:
    """ "UTC", or "UTC−06:00"."""
    shift = zone.utcoffset(None)
    if not shift:
        return "UTC"
    sign = "−" if shift < timedelta(0) else "+"
    minutes = abs(int(shift.total_seconds())) // 60
    return f"UTC{sign}{minutes // 60:02d}:{minutes % 60:02d}"


#: Heights in pixels of a plot and of the axis below it.
PLOT, AXIS = 200, 24


def at(share: float) -> str:
    """A place along the width."""
    return f"{max(0.0, min(1.0, share)) * 100:.3f}%"


def svg(height: int, *children: Child, label: str | None = None, class_: str = "") -> Markup:
    """A drawing as wide as its place; without a label it is an ornament."""
    return tag(
        "svg",
        *children,
        class_=f"chart {class_}".strip(),
        width="100%",
        height=height,
        role="img" if label else None,
        aria_label=label,
        aria_hidden=None if label else "true",
        focusable="false",
    )


def stacked(parts: Iterable[tuple[str, float, str]], height: int) -> Markup:
    """One bar from left to right: the class, the share and the tooltip of each part."""
    drawn, left = [], 0.0
    for name, share, words in parts:
        drawn.append(
            tag(
                "rect",
                tag("title", words),
                x=at(left),
                y=0,
                width=at(share),
                height=height,
                class_=f"piece {name}",
            )
        )
        left += share
    return join(*drawn)


def spread_row(spread: Spread, points: Sequence[float], top: float, name: str) -> Markup:
    """A box from the quarter to the three quarters, whiskers to 5 and 95 %, and each point."""
    height, middle = 28, 14
    drawn: list[Markup] = [tag("line", x1="0%", x2="100%", y1=middle, y2=middle, class_="rule")]
    for place, value in enumerate(points):
        # Three lanes below each other, so that equal points do not hide each other.
        drawn.append(
            tag("circle", cx=at(value / top), cy=8 + place % 3 * 6, r=2, class_=f"dot {name}")
        )
    numbers = (spread.p5, spread.p25, spread.median, spread.p75, spread.p95)
    if all(number is not None for number in numbers):
        low, first, median, third, high = ((number or 0.0) / top for number in numbers)
        drawn += [
            tag("line", x1=at(low), x2=at(high), y1=middle, y2=middle, class_="whisker"),
            tag("rect", x=at(first), y=6, width=at(third - first), height=16, class_=f"box {name}"),
            tag("line", x1=at(median), x2=at(median), y1=3, y2=25, class_="median"),
        ]
    return svg(height, *drawn, class_="spread")


def length_axis(top: float) -> Markup:
    """The axis below rows of spreads."""
    marks = length_marks(top)
    return svg(AXIS, *_below([(mark / top, length_words(mark, marks)) for mark in marks], 0))


def histogram(
    edges: Sequence[float],
    stacks: Sequence[tuple[str, Sequence[int]]],
    limit: tuple[float, str] | None,
    label: str,
) -> Markup:
    """Bins side by side, each a stack of counts by kind, and the limit where things pile up."""
    width = edges[1] - edges[0] if len(edges) > 1 else (edges[0] or 1.0) * 2
    top_x = edges[-1] + width
    if limit and limit[0] > top_x:
        top_x = limit[0] * 1.05
    most = max(sum(counts[bin] for _, counts in stacks) for bin in range(len(edges)))
    marks = count_marks(most)
    top = marks[-1]
    drawn = _grid(marks)
    for bin, edge in enumerate(edges):
        base = float(PLOT)
        for name, counts in stacks:
            if not counts[bin]:
                continue
            tall = counts[bin] / top * (PLOT - 24)
            base -= tall
            drawn.append(
                tag(
                    "rect",
                    x=at(edge / top_x),
                    y=base,
                    width=at(width / top_x),
                    height=tall,
                    class_=f"piece {name}",
                )
            )
    if limit:
        place = limit[0] / top_x
        drawn += [
            tag("line", x1=at(place), x2=at(place), y1=4, y2=PLOT, class_="limit"),
            tag(
                "text",
                limit[1],
                x=at(place),
                y=14,
                dx=-6 if place > 0.5 else 6,
                text_anchor="end" if place > 0.5 else "start",
                class_="limit-words",
            ),
        ]
    lengths = length_marks(top_x)
    axis = _below([(mark / top_x, length_words(mark, lengths)) for mark in lengths], PLOT)
    return svg(PLOT + AXIS, *drawn, *axis, label=label)


def steps(
    lines: Sequence[tuple[str, Sequence[float], Sequence[float]]],
    begin: float,
    end: float,
    top: float,
    zone: timezone,
    label: str,
) -> Markup:
    """Stepped curves over the clock: the class, the times and the values of each."""
    marks = count_marks(top)
    paths = []
    for name, times, values in lines:
        level, path = 0.0, [f"M0 {1000.0:g}"]
        for time, value in zip(times, values, strict=True):
            x = _thousandth(time, begin, end)
            path.append(f"H{x:g}V{1000 - value / marks[-1] * 1000:.1f}")
            level = value
        path.append(f"H1000V{1000 - level / marks[-1] * 1000:.1f}")
        paths.append(_path("".join(path), f"curve {name}"))
    return svg(PLOT + AXIS, *_grid(marks), _inner(*paths), *_clock(begin, end, zone), label=label)


def areas(
    layers: Sequence[tuple[str, Sequence[float]]],
    begin: float,
    end: float,
    zone: timezone,
    label: str,
) -> Markup:
    """Layers on top of each other over the clock, each with a value for equal steps of time."""
    bins = len(layers[0][1]) if layers else 0
    most = max((sum(values[at] for _, values in layers) for at in range(bins)), default=0.0)
    marks = count_marks(most)
    base = [0.0] * bins
    shapes = []
    for name, values in layers:
        upper = [low + value for low, value in zip(base, values, strict=True)]
        there = _edge(upper, marks[-1])
        back = _edge(base, marks[-1])[::-1]
        corners = " ".join(f"{x:g},{y:.1f}" for x, y in [*there, *back])
        shapes.append(_path(f"M{corners}Z", f"piece {name}"))
        base = upper
    return svg(PLOT + AXIS, _inner(*shapes), *_grid(marks), *_clock(begin, end, zone), label=label)


def _edge(values: Sequence[float], top: float) -> list[tuple[float, float]]:
    bins = len(values)
    points = []
    for place, value in enumerate(values):
        y = 1000 - value / top * 1000
        points += [(place / bins * 1000, y), ((place + 1) / bins * 1000, y)]
    return points


def _inner(*children: Markup) -> Markup:
    # Stretched to the width of the page; strokes keep theirs.
    return tag(
        "svg",
        *children,
        x=0,
        y=24,
        width="100%",
        height=PLOT - 24,
        viewBox="0 0 1000 1000",
        preserveAspectRatio="none",
    )


def _path(d: str, name: str) -> Markup:
    return tag("path", d=d, class_=name, vector_effect="non-scaling-stroke")


def _grid(marks: Sequence[float]) -> list[Markup]:
    """Lines across, each with its number standing on it."""
    drawn = []
    for mark in marks:
        y = PLOT - mark / marks[-1] * (PLOT - 24)
        drawn.append(tag("line", x1="0%", x2="100%", y1=y, y2=y, class_="rule"))
        if mark:
            drawn.append(tag("text", f"{mark:,.10g}", x=0, y=y - 4, class_="tick"))
    return drawn


def _clock(begin: float, end: float, zone: timezone) -> list[Markup]:
    marks = time_marks(begin, end, zone)
    step = marks[1] - marks[0] if len(marks) > 1 else end - begin
    places = [
        (_thousandth(mark, begin, end) / 1000, mark_words(mark, step, zone)) for mark in marks
    ]
    return _below(places, PLOT)


def _below(marks: Sequence[tuple[float, str]], y: int) -> list[Markup]:
    drawn = []
    for number, (place, words) in enumerate(marks):
        anchor = "start" if place < 0.04 else "end" if place > 0.96 else "middle"
        # A narrow page shows every other one of many.
        name = "tick odd" if number % 2 and len(marks) > 4 else "tick"
        drawn.append(tag("line", x1=at(place), x2=at(place), y1=y, y2=y + 4, class_="axis"))
        drawn.append(tag("text", words, x=at(place), y=y + 18, text_anchor=anchor, class_=name))
    return drawn


def _thousandth(time: float, begin: float, end: float) -> float:
    share = (time - begin) / (end - begin) if end > begin else 0.0
    return round(max(0.0, min(1.0, share)) * 1000, 2)
