"""Charts over time and length: completion, what jobs were doing, transfers and their limit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timezone

import numpy as np

from headway.report.accounts import Accounts
from headway.report.figures import Completion, Histogram
from headway.report.numbers import count, days, limit, percent
from headway.report.page.charts import areas, histogram, steps
from headway.report.page.lead import swatch
from headway.report.page.markup import Markup, tag
from headway.report.page.measures import Occupancy
from headway.report.page.scale import moment, zone_words
from headway.report.page.sections import section
from headway.report.words import PHASE_WORDS, Phase
from headway.text import many

_KINDS = (
    ("arrived", "transfer-in good", "arrived"),
    ("cut", "transfer-in bad", "cut off or stalled"),
    ("failed", "disconnected bad", "failed"),
    ("other", "starting bad", "ended by something else"),
)
#: What a slot is held for, from the axis up.
_LAYERS = (
    Phase.COMPUTE,
    Phase.CHECKPOINT,
    Phase.TRANSFER_IN,
    Phase.TRANSFER_OUT,
    Phase.WAITING,
    Phase.STARTING,
    Phase.DISCONNECTED,
    Phase.SUSPENDED,
)


def over_time(
    accounts: Accounts,
    done: Completion,
    lengths: Histogram,
    busy: Occupancy,
    cut_at: float | None,
    zone: timezone,
) -> Markup:
    """The transfers first, where there are any, since they cost most; then the clock."""
    clock = (_completion(accounts, done, zone), _slots(busy, zone), _waiters(busy, zone))
    charts = (_transfers(lengths, cut_at), *clock) if lengths.edges else clock
    pairs = [tag("div", *charts[at : at + 2], class_="pair") for at in range(0, len(charts), 2)]
    return section("charts", charts_title(lengths), *pairs)


def charts_title(lengths: Histogram) -> str:
    """What the section is called, and the way to it."""
    return "Transfers and time" if lengths.edges else "Over time"


def _transfers(lengths: Histogram, cut_at: float | None) -> Markup:
    title = tag("h3", "How long input transfers took")
    columns = {"arrived": lengths.arrived, "cut": lengths.cut}
    columns |= {"failed": lengths.failed, "other": lengths.other}
    kinds = [(key, name, words) for key, name, words in _KINDS if sum(columns[key])]
    numbers = ", ".join(f"{count(sum(columns[key]))} {words}" for key, _, words in kinds)
    width = lengths.edges[1] - lengths.edges[0] if len(lengths.edges) > 1 else 0
    caption = f"{numbers}. Each bar is {limit(width)} wide. " if width else f"{numbers}. "
    if cut_at:
        beyond = sum(
            n for edge, n in zip(lengths.edges, lengths.arrived, strict=True) if edge >= cut_at
        )
        caption += f"The line marks {limit(cut_at)}: {_beyond(beyond)} beyond it."
    drawing = histogram(
        lengths.edges,
        [(name, columns[key]) for key, name, _ in kinds],
        (cut_at, limit(cut_at)) if cut_at else None,
        caption,
    )
    return tag(
        "figure", title, _legend([(n, w) for _, n, w in kinds]), drawing, tag("figcaption", caption)
    )


def _beyond(number: int) -> str:
    return "no transfer arrived" if number == 0 else f"{many(number, 'transfer')} arrived"


def _completion(accounts: Accounts, done: Completion, zone: timezone) -> Markup:
    title = tag("h3", "Jobs that had come to an end")
    if not done.times:
        return tag("figure", title, tag("p", "No job has come to an end yet.", class_="note"))
    good = done.succeeded[-1]
    caption = f"{count(good)} of {many(done.jobs, 'job')} succeeded"
    if good:
        half = _when(done, (good + 1) // 2) - accounts.begin
        most = _when(done, int(np.ceil(good * 0.9))) - accounts.begin
        caption += (
            f", half of these within {days(half)} of the first event, 90 % within {days(most)}"
        )
    caption += f". Times are {zone_words(zone)}."
    drawing = steps(
        [("ended", done.times, done.ended), ("succeeded", done.times, done.succeeded)],
        accounts.begin,
        accounts.end,
        done.jobs,
        zone,
        caption,
    )
    legend = tag(
        "ul",
        tag("li", _stroke("succeeded"), "succeeded"),
        tag("li", _stroke("ended"), "came to an end, however"),
        class_="legend",
    )
    return tag("figure", title, legend, drawing, tag("figcaption", caption))


def _when(done: Completion, number: int) -> float:
    place = next(at for at, reached in enumerate(done.succeeded) if reached >= number)
    return done.times[place]


def _slots(busy: Occupancy, zone: timezone) -> Markup:
    """Jobs on a slot at each moment, by what they did there."""
    title = "Jobs that held a slot, moment by moment"
    phases = [phase for phase in _LAYERS if phase in busy.phases]
    total = np.sum([busy.phases[phase] for phase in phases], axis=0) if phases else np.zeros(1)
    computing = busy.phases.get(Phase.COMPUTE)
    caption = f"At most {_about(float(total.max()))} at once. "
    if computing is not None:
        mean = sum(computing) / float(total.sum())
        caption += f"On average {percent(mean)} of them computed, for a result or not. "
    return _stack(title, phases, busy, zone, caption)


def _waiters(busy: Occupancy, zone: timezone) -> Markup:
    """Jobs without a slot at each moment."""
    phases = [phase for phase in (Phase.HELD, Phase.QUEUED) if phase in busy.phases]
    most = [f"at most {_about(max(busy.phases[p]))} {PHASE_WORDS[p]} at once" for p in phases]
    caption = ", ".join(most)
    caption = f"{caption[:1].upper()}{caption[1:]}. "
    return _stack("Jobs that had none", phases, busy, zone, caption)


def _stack(
    title: str, phases: Sequence[Phase], busy: Occupancy, zone: timezone, caption: str
) -> Markup:
    heading = tag("h3", title)
    if not phases:
        return tag("figure", heading, tag("p", "None.", class_="note"))
    caption += (
        f"From {moment(busy.begin, zone)} to {moment(busy.end, zone)}, {zone_words(zone)}, "
        "averages of equal steps; every job counts."
    )
    layers = [(phase.value, busy.phases[phase]) for phase in phases]
    drawing = areas(layers, busy.begin, busy.end, zone, caption)
    legend = _legend([(phase.value, PHASE_WORDS[phase]) for phase in phases])
    return tag("figure", heading, legend, drawing, tag("figcaption", caption))


def _about(number: float) -> str:
    return f"{number:.1f}" if round(number, 1) % 1 and number < 9.95 else count(number)


def _legend(entries: Sequence[tuple[str, str]]) -> Markup:
    return tag("ul", *(tag("li", swatch(name), words) for name, words in entries), class_="legend")


def _stroke(name: str) -> Markup:
    return tag(
        "svg",
        tag("line", x1=0, x2=20, y1=6, y2=6, class_=f"curve {name}"),
        class_="swatch",
        width=20,
        height=12,
        aria_hidden="true",
        focusable="false",
    )
