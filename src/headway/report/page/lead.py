"""The first screen: the two shares, how the jobs stand, and the findings in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headway.report.figures import Totals
from headway.report.numbers import count, percent, span
from headway.report.page.charts import stacked, svg
from headway.report.page.markup import Child, Markup, join, log_text, tag, text
from headway.report.values import share
from headway.report.words import OUTCOME_WORDS, PHASE_WORDS, SLOT_PHASES, Outcome, Phase, Verdict
from headway.text import many

if TYPE_CHECKING:
    from headway.report.findings import Finding, Step

#: So many findings show so many of their steps at once; the others open on demand.
OPEN_FINDINGS, OPEN_STEPS = 3, 2

Seconds = Mapping[tuple[Phase, Verdict], float]
_WORTH = {Verdict.GOOD: "goodput", Verdict.BAD: "badput", Verdict.OPEN: "not decided yet"}


def summary(totals: Totals, seconds: Seconds) -> Markup:
    """The two shares side by side, the bar that shows what they are shares of, and the jobs."""
    shares = tag(
        "div",
        _share("Compute share", totals.compute_share, "compute of verified results"),
        _share("Goodput", totals.goodput, "that, and the transfers it needed"),
        tag(
            "div",
            tag("p", "Slot time", class_="label"),
            tag("p", _big(span(totals.slot_s)), class_="figure"),
            tag("p", f"{many(totals.attempts, 'attempt')} of {many(totals.jobs, 'job')}"),
            class_="share",
        ),
        _outcomes(totals),
        class_="shares",
    )
    return tag(
        "section",
        tag("h2", "Summary", class_="unseen", id="summary-title"),
        shares,
        _bar(totals, seconds),
        id="summary",
        aria_labelledby="summary-title",
    )


def _share(name: str, value: float | None, words: str) -> Markup:
    return tag(
        "div",
        tag("p", name, class_="label"),
        tag("p", _big(percent(value)), class_="figure"),
        tag("p", words),
        class_="share",
    )


def _big(words: str) -> Markup:
    """A number and its unit, the unit smaller."""
    number, _, unit = words.rpartition(" ")
    return join(number, tag("span", f" {unit}", class_="unit")) if number else join(words)


def _outcomes(totals: Totals) -> Markup:
    numbers = {
        Outcome.SUCCESS: totals.succeeded,
        Outcome.FAILED: totals.failed,
        Outcome.HELD: totals.held,
        Outcome.REMOVED: totals.removed,
        Outcome.UNFINISHED: totals.unfinished,
    }
    known = {outcome: number for outcome, number in numbers.items() if number}
    strip = stacked(
        (
            (
                f"outcome-{outcome.value}",
                (share(number, totals.jobs) or 0.0),
                OUTCOME_WORDS[outcome],
            )
            for outcome, number in known.items()
        ),
        8,
    )
    rows = [
        tag(
            "li",
            swatch(f"outcome-{outcome.value}"),
            tag("b", count(number)),
            f" {OUTCOME_WORDS[outcome]}",
        )
        for outcome, number in known.items()
    ]
    return tag(
        "div",
        tag("p", "Jobs", class_="label"),
        svg(8, strip, class_="bar"),
        tag("ul", *rows, class_="outcomes"),
        class_="share jobs",
    )


def _bar(totals: Totals, seconds: Seconds) -> Markup:
    """All slot time in one bar, goodput from the left, and what the two shares span."""
    parts: list[tuple[str, float, str]] = []
    for verdict in (Verdict.GOOD, Verdict.OPEN, Verdict.BAD):
        phases = [Phase.COMPUTE, *(phase for phase in SLOT_PHASES if phase != Phase.COMPUTE)]
        for phase in phases:
            part = share(seconds.get((phase, verdict)), totals.slot_s)
            if part:
                words = f"{PHASE_WORDS[phase]}, {_WORTH[verdict]}: {percent(part)}"
                parts.append((f"{phase.value} {verdict.value}", part, words))
    if not parts:
        return tag("p", "No job has held a slot yet.", class_="note")
    good, compute = totals.goodput or 0.0, totals.compute_share or 0.0
    bad = share(totals.bad_s, totals.slot_s) or 0.0
    words = (
        f"Of {span(totals.slot_s)} of slot time, {percent(compute)} was compute of "
        f"verified results, {percent(good)} goodput and {percent(bad)} badput."
    )
    drawing = svg(
        88,
        stacked(parts, 32),
        *_span(0.0, compute, 41, "compute share"),
        *_span(0.0, good, 67, "goodput"),
        *_span(1 - bad, 1.0, 41, "badput"),
        label=words,
        class_="main-bar",
    )
    return tag(
        "figure",
        _legend(parts),
        drawing,
        tag("figcaption", words, class_="unseen"),
        class_="slot-bar",
    )


def _legend(parts: Sequence[tuple[str, float, str]]) -> Markup:
    """The phases of the bar in its order, and what its hatching means."""
    phases = dict.fromkeys(name.split()[0] for name, _, _ in parts)
    entries = [tag("li", swatch(name), PHASE_WORDS[Phase(name)]) for name in phases]
    kinds = {name.split()[1] for name, _, _ in parts}
    if Verdict.BAD.value in kinds:
        entries.append(tag("li", swatch("starting bad"), "hatched: badput"))
    if Verdict.OPEN.value in kinds:
        entries.append(tag("li", swatch("starting open"), "checked: not decided yet"))
    return tag("ul", *entries, class_="legend")


def _span(begin: float, end: float, y: int, name: str) -> list[Markup]:
    """A bracket below the bar, named where it has room for the name."""
    if end - begin <= 0.005:
        return []
    left, right = f"{begin * 100:.3f}%", f"{end * 100:.3f}%"
    drawn = [tag("line", x1=left, x2=right, y1=y, y2=y, class_="bracket")]
    if end - begin > 0.2:
        last = begin > 0
        drawn.append(
            tag(
                "text",
                f"{name} {percent(end - begin)}",
                x=right if last else left,
                y=y + 16,
                text_anchor="end" if last else "start",
                class_="tick",
            )
        )
    return drawn


def swatch(name: str) -> Markup:
    return tag(
        "svg",
        tag("rect", width=12, height=12, class_=f"piece {name}"),
        class_="swatch",
        width=12,
        height=12,
        aria_hidden="true",
        focusable="false",
    )


def findings_section(findings: Sequence[Finding], totals: Totals) -> Markup:
    """What cost most, why, and the lines to change."""
    if findings:
        body: Markup = tag(
            "ol",
            *(_finding(place, findings, totals) for place in range(len(findings))),
            class_="findings",
        )
    else:
        body = tag("p", "Nothing stands out: no known pattern of loss is in these logs.")
    return tag(
        "section",
        tag("h2", "What cost most, and what to change", id="findings-title"),
        body,
        id="findings",
        aria_labelledby="findings-title",
    )


def _finding(place: int, findings: Sequence[Finding], totals: Totals) -> Markup:
    finding = findings[place]
    part = share(finding.cost_s, totals.slot_s)
    facts = [
        f"{span(finding.cost_s)} of slot time lost"
        + (f" ({percent(part)})" if part and part >= 0.001 else "")
        if finding.cost_s
        else None,
        f"{span(finding.waiting_s)} {finding.waiting}" if finding.waiting_s else None,
        _shared(finding, findings),
        many(finding.jobs, "job") if finding.jobs else None,
        many(finding.attempts, "attempt") if finding.attempts else None,
        f"{count(finding.lost_jobs)} without a result to this day" if finding.lost_jobs else None,
    ]
    return tag(
        "li",
        tag(
            "div",
            tag("h3", text(finding.title, 600)),
            tag("p", " · ".join(filter(None, facts)), class_="facts") if any(facts) else None,
            tag("p", finding.price, class_="facts") if finding.price else None,
            tag("p", text(finding.why, 1200)),
            _evidence(finding, place == 0),
        ),
        _advice(finding.advice, OPEN_STEPS if place < OPEN_FINDINGS else 0),
        class_="finding",
        id=f"finding-{place + 1}",
    )


def _shared(finding: Finding, findings: Sequence[Finding]) -> str | None:
    """How much of the cost other findings count too, and which."""
    places = [str(n + 1) for n, other in enumerate(findings) if other.key in finding.shared_with]
    if not places or finding.shared_s < 0.5:
        return None
    return f"{span(finding.shared_s)} of it also in finding {' and '.join(places)}"


def _advice(steps: Sequence[Step], shown: int) -> Markup | None:
    if not steps:
        return None
    first, others = steps[:shown], steps[shown:]
    more = f"{many(len(others), 'more step')}" if first else "What to change"
    return tag(
        "div",
        tag("ul", *map(_step, first), class_="steps") if first else None,
        tag("details", tag("summary", more), tag("ul", *map(_step, others), class_="steps"))
        if others
        else None,
        class_="advice",
    )


def _step(step: Step) -> Markup:
    lines: Child = None
    if step.lines:
        where = tag("p", step.place.value, class_="place") if step.place.value else None
        code = tag("code", "\n".join(text(line, 600) for line in step.lines))
        lines = tag("div", where, tag("pre", code), class_="lines")
    return tag("li", tag("p", text(step.text, 1200)), lines)


def _evidence(finding: Finding, opened: bool) -> Markup | None:
    inside: list[Child] = []
    if finding.evidence:
        pairs = [
            join(tag("dt", text(label)), tag("dd", log_text(value)))
            for label, value in finding.evidence
        ]
        inside.append(tag("dl", *pairs))
    if finding.table:
        head = tag("tr", *(tag("th", text(cell), scope="col") for cell in finding.table.header))
        rows = [
            tag("tr", *(tag("td", log_text(cell)) for cell in row)) for row in finding.table.rows
        ]
        table = tag(
            "table",
            tag("caption", "The cases behind this finding", class_="unseen"),
            tag("thead", head),
            tag("tbody", *rows),
        )
        inside.append(
            tag("div", table, class_="wide", tabindex=0, role="region", aria_label="Evidence table")
        )
    if finding.places:
        spots: list[Child] = []
        for spot in finding.places:
            spots += ["; " if spots else None, log_text(str(spot))]
        inside.append(tag("p", "In the log: ", *spots))
    if finding.named:
        names: list[Child] = []
        for name in finding.named:
            names += [
                ", " if names else None,
                tag(
                    "button", text(name, 60), type="button", class_="link", data_job=text(name, 60)
                ),
            ]
        more = finding.jobs - len(finding.named)
        names.append(f" and {count(more)} more" if more > 0 else None)
        inside.append(tag("p", "Jobs: ", *names))
    return tag("details", tag("summary", "Evidence"), *inside, open=opened) if inside else None
