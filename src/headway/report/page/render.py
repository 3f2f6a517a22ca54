"""One self-contained HTML file: template, style, scripts and data, under a strict policy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timezone
from functools import cache
from typing import TYPE_CHECKING

from headway.node.version import VERSION
from headway.report.accounts import Accounts
from headway.report.figures import Loss, SiteFigures, Totals, completion, transfer_lengths
from headway.report.page.lead import Seconds, findings_section, summary, swatch
from headway.report.page.markup import Markup, join, tag, text
from headway.report.page.measures import occupancy, phase_seconds, site_points
from headway.report.page.over_time import charts_title, over_time
from headway.report.page.pack import json_text
from headway.report.page.scale import moment, zone_words
from headway.report.page.sections import (
    losses_table,
    reading,
    section,
    site_section,
    slot_time,
    words_section,
)
from headway.report.page.sheet import asset, local_zone, patterns, policy
from headway.report.page.tables import Tables, tables
from headway.report.words import (
    CAUSE_WORDS,
    OUTCOME_WORDS,
    PHASE_WORDS,
    Cause,
    Outcome,
    Phase,
    Verdict,
)
from headway.text import many

if TYPE_CHECKING:
    from headway.report.findings import Finding

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
            tag("div", slot_time(totals, seconds), losses_table(losses, totals), class_="halves"),
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
        "legend": _legend(seconds),
        "reading": reading(accounts),
        "words": words_section(),
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
            "verdicts": [verdict.value for verdict in Verdict],
            "causes": [CAUSE_WORDS[cause] for cause in Cause],
            "cause_keys": [cause.value for cause in Cause],
            "outcomes": [OUTCOME_WORDS[outcome] for outcome in Outcome],
            "endings": {**endings, "success": "success", "open": "still going on"},
        },
    }


def _legend(seconds: Seconds) -> Markup:
    """The phases that came up, and how goodput and badput are told apart."""
    used = [phase for phase in Phase if any(known is phase for known, _ in seconds)]
    entries = [tag("li", swatch(phase.value), PHASE_WORDS[phase]) for phase in used]
    entries.append(tag("li", swatch("starting bad"), "hatched: badput"))
    if any(verdict is Verdict.OPEN for _, verdict in seconds):
        entries.append(tag("li", swatch("starting open"), "checked: not decided yet"))
    return tag("ul", *entries, class_="legend")


@cache
def _script() -> str:
    bodies = "\n".join(asset(f"{name}.js") for name in _SCRIPTS)
    return f'(() => {{\n"use strict";\n{bodies}}})();\n'
