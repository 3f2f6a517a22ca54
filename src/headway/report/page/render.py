"""The page as one HTML file: template, style, charts, scripts and data, under a strict policy."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np

from headway.node import VERSION
from headway.report.accounts import Accounts
from headway.report.enums import (
    CAUSE_WORDS,
    OFF_SLOT,
    OUTCOME_WORDS,
    PHASE_WORDS,
    Cause,
    JobOutcome,
    Phase,
    Worth,
)
from headway.report.figures import (
    Completion,
    Histogram,
    Loss,
    SiteFigures,
    Totals,
    completion,
    transfer_lengths,
)
from headway.report.numbers import count, days, limit, percent
from headway.report.page.charts import (
    Markup,
    areas,
    histogram,
    join,
    moment,
    steps,
    tag,
    text,
    zone_words,
)
from headway.report.page.sections import (
    Occupancy,
    deliveries_table,
    findings_section,
    legend,
    losses_table,
    occupancy,
    phase_legend,
    phase_seconds,
    reading,
    section,
    site_points,
    site_section,
    slot_time,
    summary,
    words_section,
)
from headway.report.page.tables import Tables, json_text, tables
from headway.text import many

if TYPE_CHECKING:
    from headway.report.findings import Finding


def policy(style: str, script: str = "") -> str:
    """Nothing from anywhere: only this very script, if there is one, and this very style."""
    scripts = f"script-src '{_hash(script)}'; " if script else ""
    return (
        f"default-src 'none'; {scripts}style-src '{_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )


def patterns() -> Markup:
    """Stripes for badput and checks for what is not decided, in the colour of each phase."""
    made = []
    for phase in Phase:
        ground = tag("rect", width=6, height=6, class_=f"ground {phase.value}")
        stripes = tag("path", d="M-1 7L7 -1M-1 1L1 -1M5 7L7 5", class_="stripe")
        speck = tag("rect", x=1.5, y=1.5, width=3, height=3, class_="speck")
        for verdict, mark in ((Worth.BAD, stripes), (Worth.OPEN, speck)):
            made.append(
                tag(
                    "pattern",
                    ground,
                    mark,
                    id=f"{phase.value}-{verdict.value}",
                    width=6,
                    height=6,
                    patternUnits="userSpaceOnUse",
                )
            )
    return join(*made)


@cache
def asset(name: str) -> str:
    """A file of the page's assets; the style with the rules for its patterns."""
    body = (files("headway.report.page") / "assets" / name).read_text(encoding="utf-8")
    if name != "page.css":
        return body
    rules = [
        f".{phase.value}.{verdict.value} {{ fill: url(#{phase.value}-{verdict.value}); }}\n"
        for phase in Phase
        for verdict in (Worth.BAD, Worth.OPEN)
    ]
    return body + ".ground { fill: var(--own); }\n" + "".join(f".piece{rule}" for rule in rules)


def local_zone(at: float) -> timezone:
    """This machine's offset from UTC at that time."""
    try:
        shift = datetime.fromtimestamp(at).astimezone().utcoffset()
    except (OverflowError, ValueError, OSError):
        return timezone.utc
    return timezone(shift) if shift else timezone.utc


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


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
        "figure",
        title,
        legend([(name, words) for _, name, words in kinds]),
        drawing,
        tag("figcaption", caption),
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
    good_line = tag("li", _stroke("succeeded"), "succeeded")
    ended_line = tag("li", _stroke("ended"), "ended, successfully or not")
    strokes = tag("ul", good_line, ended_line, class_="legend")
    return tag("figure", title, strokes, drawing, tag("figcaption", caption))


def _when(done: Completion, number: int) -> float:
    place = next(at for at, reached in enumerate(done.succeeded) if reached >= number)
    return done.times[place]


def _slots(busy: Occupancy, zone: timezone) -> Markup:
    """Jobs on a slot at each moment, by what they did there."""
    title = "Jobs that held a slot, moment by moment"
    phases = [phase for phase in _LAYERS if phase in busy.phases]
    total = np.sum([busy.phases[phase] for phase in phases], axis=0) if phases else np.zeros(1)
    computing = busy.phases.get(Phase.COMPUTE)
    caption = f"At most {_rounded_count(float(total.max()))} at once. "
    if computing is not None:
        mean = sum(computing) / float(total.sum())
        caption += f"On average {percent(mean)} of them computed, for a result or not. "
    return _stack(title, phases, busy, zone, caption)


def _waiters(busy: Occupancy, zone: timezone) -> Markup:
    """Jobs without a slot at each moment."""
    phases = [phase for phase in reversed(OFF_SLOT) if phase in busy.phases]
    most = [
        f"at most {_rounded_count(max(busy.phases[p]))} {PHASE_WORDS[p]} at once" for p in phases
    ]
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
    entries = legend((phase.value, PHASE_WORDS[phase]) for phase in phases)
    return tag("figure", heading, entries, drawing, tag("figcaption", caption))


def _rounded_count(number: float) -> str:
    return f"{number:.1f}" if round(number, 1) % 1 and number < 9.95 else count(number)


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


_SCRIPTS = ("format", "theme", "unpack", "jobs", "details", "table", "timeline", "main")
_PLACE = re.compile(r"\{\{(\w+)\}\}")


def render(
    accounts: Accounts,
    totals: Totals,
    losses: Sequence[Loss],
    sites: Sequence[SiteFigures],
    findings: Sequence[Finding],
    *,
    title: str,
    generated: float,
    notes: Sequence[str] = (),
    zone: timezone | None = None,
) -> str:
    """The report as one HTML file.

    `notes` stand below the title. Times are shown at one offset from UTC: `zone`, or that of this
    machine at the end of the report.
    """
    zone = zone or local_zone(accounts.end)
    seconds = phase_seconds(accounts)
    packed, lengths = tables(accounts), transfer_lengths(accounts)
    style, script = asset("page.css"), _script()
    parts = {
        "policy": policy(style, script),
        "title": join(f"{text(title, 200)} – Headway report"),
        "heading": tag("bdi", text(title, 200)),
        "about": _about(accounts, zone),
        "notes": join(*(tag("p", text(note, 600), class_="note") for note in notes)),
        "style": Markup(style),
        "script": Markup(script),
        "patterns": patterns(),
        "summary": summary(totals, seconds),
        "findings": findings_section(findings, totals),
        "time": section(
            "time",
            "Where the slot time went",
            tag("div", slot_time(totals, seconds), _losses(losses, totals), class_="halves"),
        ),
        "sites": site_section(sites, site_points(accounts), noun=accounts.place),
        "sites_title": join(f"{accounts.place.capitalize()}s"),
        "charts_title": join(charts_title(lengths)),
        "charts": over_time(
            accounts,
            completion(accounts),
            lengths,
            occupancy(accounts),
            _transfer_limit(findings),
            zone,
        ),
        "left_out": tag("p", packed.note, class_="note") if packed.note else Markup(""),
        "legend": phase_legend(
            (phase for phase in Phase if phase in {known for known, _ in seconds}),
            bad=True,
            undecided=any(verdict is Worth.OPEN for _, verdict in seconds),
        ),
        "reading": reading(accounts),
        "words": words_section(delivered=totals.deliveries is not None),
        "made": join(f"Made by Headway {VERSION} on {moment(generated, zone)} {zone_words(zone)}."),
        "data": Markup(json_text(_facts(packed, zone, moved=totals.transfer_s > 0))),
        "payloads": join(
            *(
                tag("script", Markup(payload), type="text/plain", id=f"data-{name}")
                for name, payload in packed.payloads.items()
            )
        ),
    }
    # One pass: what a log says is never looked at for places to fill.
    return _PLACE.sub(lambda match: parts[match[1]], asset("page.html"))


def _losses(losses: Sequence[Loss], totals: Totals) -> Markup:
    """What was lost and, below it, what couriers brought home, where there were any."""
    lost = losses_table(losses, totals)
    if totals.deliveries is None:
        return lost
    return tag("div", lost, deliveries_table(totals.deliveries))


def _transfer_limit(findings: Sequence[Finding]) -> float | None:
    """Where transfers are cut off, by the costliest finding of it, for the histogram to mark."""
    for finding in findings:
        name, _, limit = finding.key.partition(":")
        if name == "transfer-cut" and re.fullmatch(r"\d+(\.\d+)?", limit):
            return float(limit)
    return None


def _about(accounts: Accounts, zone: timezone) -> Markup:
    jobs = len(accounts.jobs)
    if not jobs:
        return join("No job is in these logs.")
    return join(
        f"{many(jobs, 'job')}, {many(len(accounts.attempts), 'attempt')}, "
        f"{moment(accounts.begin, zone)} to {moment(accounts.end, zone)} ({zone_words(zone)})"
    )


def _facts(packed: Tables, zone: timezone, *, moved: bool) -> dict[str, object]:
    """What the scripts need to know besides the columns: the words above all."""
    endings = {cause.value: CAUSE_WORDS[cause] for cause in Cause}
    return {
        **packed.about,
        "zone": zone.utcoffset(None).total_seconds(),
        "moved": moved,
        "words": {
            "phases": [phase.value for phase in Phase],
            "phase_words": {phase.value: PHASE_WORDS[phase] for phase in Phase},
            "verdicts": [verdict.value for verdict in Worth],
            "causes": [CAUSE_WORDS[cause] for cause in Cause],
            "cause_keys": [cause.value for cause in Cause],
            "outcomes": [OUTCOME_WORDS[outcome] for outcome in JobOutcome],
            "endings": {**endings, "success": "success", "open": "still going on"},
        },
    }


@cache
def _script() -> str:
    bodies = "\n".join(asset(f"{name}.js") for name in _SCRIPTS)
    return f'(() => {{\n"use strict";\n{bodies}}})();\n'
