"""The sections of the page: the shares, the findings, slot time, losses, sites, what was read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl

from headway.report.accounts import Accounts
from headway.report.deliveries import SAVED, SLOTS, Deliveries, delivery_rows
from headway.report.enums import (
    CAUSE_WORDS,
    OFF_SLOT,
    OUTCOME_WORDS,
    PHASE_WORDS,
    SLOT_PHASES,
    Cause,
    JobOutcome,
    Phase,
    Worth,
)
from headway.report.figures import Loss, SiteFigures, Spread, Totals
from headway.report.numbers import UNKNOWN, count, other_files, percent, rate, share, size, span
from headway.report.page.charts import (
    Child,
    Markup,
    join,
    length_axis,
    log_text,
    spread_row,
    stacked,
    svg,
    tag,
    text,
)
from headway.report.totals import moved
from headway.text import many

if TYPE_CHECKING:
    from headway.report.findings import Finding, Step


#: A site with more cases than this is drawn as a box alone: points would only make a smear.
MOST_POINTS = 150


@dataclass(frozen=True)
class Occupancy:
    """How many jobs were in each phase, on average, in equal steps from `begin` to `end`."""

    begin: float
    end: float
    phases: Mapping[Phase, tuple[float, ...]]


def phase_seconds(accounts: Accounts) -> dict[tuple[Phase, Worth], float]:
    """Seconds by phase and verdict, without the pairs that never came up."""
    table = accounts.pieces.group_by("phase", "verdict").agg(pl.col("seconds").sum())
    return {
        (Phase(row["phase"]), Worth(row["verdict"])): float(row["seconds"])
        for row in table.iter_rows(named=True)
        if row["seconds"] > 0
    }


def occupancy(accounts: Accounts, bins: int = 180) -> Occupancy:
    """Every piece of every job counts for exactly as long as it lasts."""
    begin, end = accounts.begin, accounts.end
    if not end > begin:
        return Occupancy(begin, begin, {})
    width = (end - begin) / bins
    found = {}
    for phase in Phase:
        pieces = accounts.pieces.filter(pl.col("phase") == phase.value)
        if not len(pieces):
            continue
        starts = pieces["begin"].to_numpy() - begin
        ends = starts + pieces["seconds"].to_numpy()
        spent = _until(starts, width, bins) - _until(ends, width, bins)
        found[phase] = tuple(np.maximum(np.diff(spent) / width, 0.0).round(3).tolist())
    return Occupancy(begin, end, found)


def _until(times: npt.NDArray[np.float64], width: float, bins: int) -> npt.NDArray[np.float64]:
    """For each edge of the bins, the time gone by since `times`, added up over those before it."""
    place = np.clip(times // width, 0, bins - 1).astype(np.int64)
    number = np.bincount(place, minlength=bins).cumsum()
    added = np.bincount(place, weights=times, minlength=bins).cumsum()
    edges = np.arange(1, bins + 1) * width
    gone: npt.NDArray[np.float64] = np.concatenate([[0.0], number * edges - added])
    return gone


def site_points(accounts: Accounts) -> dict[str, dict[str | None, list[float]]]:
    """The single cases behind the spreads of each site, where they are few enough to be seen."""
    good = accounts.jobs.filter(
        (pl.col("outcome") == JobOutcome.SUCCESS.value) & (pl.col("attempts") > 0)
    )
    arrived = accounts.attempts.filter(moved())
    return {
        "compute": _points(good, "good_compute_s"),
        "transfer": _points(arrived, "transfer_in_s"),
    }


def _points(frame: pl.DataFrame, column: str) -> dict[str | None, list[float]]:
    grouped = (
        frame.select(pl.col("site").cast(pl.String), pl.col(column).alias("value"))
        .filter(pl.len().over("site") <= MOST_POINTS)
        .group_by("site")
        .agg(pl.col("value").drop_nulls())
    )
    return {row["site"]: row["value"] for row in grouped.iter_rows(named=True)}


#: So many findings show so many of their steps at once; the others open on demand.
OPEN_FINDINGS, OPEN_STEPS = 3, 2

Seconds = Mapping[tuple[Phase, Worth], float]
_WORTH = {Worth.GOOD: "goodput", Worth.BAD: "badput", Worth.OPEN: "not decided yet"}


def summary(totals: Totals, seconds: Seconds) -> Markup:
    """The two shares side by side, the bar that shows what they are shares of, and the jobs."""
    attempts = f"{many(totals.attempts, 'attempt')} of {many(totals.jobs, 'job')}"
    shares = tag(
        "div",
        _share("Compute share", percent(totals.compute_share), "compute of verified results"),
        _share("Goodput", percent(totals.goodput), "that, and the transfers it needed"),
        _share("Slot time", span(totals.slot_s), attempts),
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


def _share(name: str, value: str, words: str) -> Markup:
    """A figure, its unit smaller than the number."""
    number, _, unit = value.rpartition(" ")
    shown = join(number, tag("span", f" {unit}", class_="unit")) if number else join(value)
    return tag(
        "div",
        tag("p", name, class_="label"),
        tag("p", shown, class_="figure"),
        tag("p", words),
        class_="share",
    )


def _outcomes(totals: Totals) -> Markup:
    numbers = {
        JobOutcome.SUCCESS: totals.succeeded,
        JobOutcome.FAILED: totals.failed,
        JobOutcome.HELD: totals.held,
        JobOutcome.REMOVED: totals.removed,
        JobOutcome.UNFINISHED: totals.unfinished,
    }
    known = {outcome: number for outcome, number in numbers.items() if number}
    parts = [
        (f"outcome-{outcome.value}", number, OUTCOME_WORDS[outcome])
        for outcome, number in known.items()
    ]
    strip = stacked(((name, share(n, totals.jobs) or 0.0, words) for name, n, words in parts), 8)
    rows = [tag("li", swatch(name), tag("b", count(n)), f" {words}") for name, n, words in parts]
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
    for verdict in (Worth.GOOD, Worth.OPEN, Worth.BAD):
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
    phases = dict.fromkeys(Phase(name.split()[0]) for name, _, _ in parts)
    kinds = {name.split()[1] for name, _, _ in parts}
    return phase_legend(phases, bad=Worth.BAD.value in kinds, undecided=Worth.OPEN.value in kinds)


def phase_legend(phases: Iterable[Phase], *, bad: bool, undecided: bool) -> Markup:
    """Phases by their colours, and what the hatching means."""
    entries = [(phase.value, PHASE_WORDS[phase]) for phase in phases]
    entries += [("starting bad", "hatched: badput")] if bad else []
    entries += [("starting open", "checked: not decided yet")] if undecided else []
    return legend(entries)


def legend(entries: Iterable[tuple[str, str]]) -> Markup:
    """The class of each swatch, and what it stands for."""
    return tag("ul", *(tag("li", swatch(name), words) for name, words in entries), class_="legend")


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
    body = tag("p", "Nothing stands out: these logs show no known pattern of loss.")
    if findings:
        items = (_finding(place, findings, totals) for place in range(len(findings)))
        body = tag("ol", *items, class_="findings")
    return section("findings", "What cost most, and what to change", body)


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
        f"{count(finding.lost_jobs)} still without a result" if finding.lost_jobs else None,
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


#: More sites, files or skipped places than this are counted, not listed.
MOST_SITES, MOST_FILES = 40, 50


def section(name: str, title: str, *children: Child) -> Markup:
    """A part of the page with its heading, to which the contents lead."""
    heading = tag("h2", title, id=f"{name}-title")
    return tag("section", heading, *children, id=name, aria_labelledby=f"{name}-title")


def table(
    caption: str,
    header: Sequence[Child],
    rows: Sequence[Sequence[Child]],
    *,
    class_: str = "",
    foot: Sequence[Child] = (),
    groups: Sequence[tuple[str, Sequence[Sequence[Child]]]] = (),
    least: Sequence[int] = (),
) -> Markup:
    """A table whose first column names its rows; it scrolls by itself where the page is narrow.

    `groups` are further rows, each group under a title of its own; `least` are the pixels that
    each column has at least where the layout is fixed.
    """

    def row(cells: Sequence[Child]) -> Markup:
        first, *others = cells
        return tag("tr", tag("th", first, scope="row"), *(tag("td", cell) for cell in others))

    def group(title: str, rows: Sequence[Sequence[Child]]) -> Markup:
        head = tag("th", title, colspan=len(header), scope="rowgroup")
        return tag("tbody", tag("tr", head), *(row(cells) for cells in rows))

    body = tag(
        "table",
        tag("caption", caption),
        tag("colgroup", *(tag("col", width=width) for width in least)) if least else None,
        tag("thead", tag("tr", *(tag("th", cell, scope="col") for cell in header))),
        tag("tbody", *(row(cells) for cells in rows)),
        *(group(title, more) for title, more in groups),
        tag("tfoot", row(foot)) if foot else None,
        class_=class_ or None,
    )
    return tag("div", body, class_="wide", tabindex=0, role="region", aria_label=caption)


def slot_time(totals: Totals, seconds: Seconds) -> Markup:
    """Phases by goodput and badput: the numbers of the main bar, and its legend."""
    verdicts = [Worth.GOOD, Worth.BAD]
    if any(verdict is Worth.OPEN for _, verdict in seconds):
        verdicts.append(Worth.OPEN)
    names = {Worth.GOOD: "goodput", Worth.BAD: "badput", Worth.OPEN: "not decided"}
    rows: list[list[Child]] = []
    for phase in SLOT_PHASES:
        parts = [seconds.get((phase, verdict), 0.0) for verdict in Worth]
        if not sum(parts):
            continue
        cells: list[Child] = [PHASE_WORDS[phase]]
        for verdict in verdicts:
            part = seconds.get((phase, verdict))
            mark = swatch(f"{phase.value} {verdict.value}") if part else None
            cells.append(join(mark, span(part)) if part else UNKNOWN)
        rows.append([*cells, percent(share(sum(parts), totals.slot_s))])
    sums = {Worth.GOOD: totals.good_s, Worth.BAD: totals.bad_s, Worth.OPEN: totals.open_s}
    foot: list[Child] = ["all slot time", *(span(sums[verdict]) for verdict in verdicts), "100 %"]
    body = table(
        "Slot time by phase",
        ["phase", *(names[verdict] for verdict in verdicts), "of slot time"],
        rows,
        class_="numbers",
        foot=foot if totals.slot_s else (),
    )
    off = [
        f"{span(seconds.get((phase, Worth.NONE)))} {PHASE_WORDS[phase]}"
        for phase in OFF_SLOT
        if seconds.get((phase, Worth.NONE))
    ]
    spent = " and ".join([", ".join(off[:-1]), *off[-1:]] if off[1:] else off)
    note = f"Without a slot, jobs spent {spent}; no share counts that." if off else ""
    return tag("div", body, tag("p", note, class_="note") if note else None, class_="half")


def deliveries_table(deliveries: Deliveries) -> Markup:
    """What couriers brought home, and what that saved."""
    rows: list[list[Child]] = [[words, value] for words, value in delivery_rows(deliveries)]
    caption = f"Deliveries: {SLOTS}"
    body = table(caption, ["what", "how much"], rows, class_="numbers")
    note = tag("p", SAVED, class_="note") if deliveries.saved_s else None
    return tag("div", body, note, class_="half")


def losses_table(losses: Sequence[Loss], totals: Totals) -> Markup:
    """Badput by cause, each with its bar, and the way to the jobs concerned."""
    if not losses:
        return tag("div", tag("p", "No slot time was lost."), class_="half")
    most = max(loss.seconds for loss in losses) or 1.0
    rows: list[list[Child]] = []
    for loss in losses:
        parts = [
            (f"{phase} bad", part / most, PHASE_WORDS[Phase(phase)])
            for phase, part in loss.phases.items()
        ]
        name = join(
            tag("button", loss.words, type="button", class_="link", data_cause=loss.cause),
            svg(12, stacked(parts, 12), class_="bar"),
        )
        lost, part = span(loss.seconds), percent(loss.share)
        rows.append([name, lost, part, count(loss.attempts), count(loss.jobs)])
    part = percent(share(totals.bad_s, totals.slot_s))
    body = table(
        "Badput by cause",
        ["cause", "lost", "of slot time", "attempts", "jobs"],
        rows,
        class_="numbers losses",
        foot=["all badput", span(totals.bad_s), part, "", ""],
    )
    return tag("div", body, class_="half")


def site_section(
    sites: Sequence[SiteFigures],
    points: dict[str, dict[str | None, list[float]]],
    *,
    noun: str = "site",
) -> Markup:
    """Sites side by side as a table, and how compute and transfer times are distributed.

    `noun` is what a place is called. Of a log without transfers nothing is said of any.
    """
    shown = sites[:MOST_SITES]
    moved = any(site.transfer.count or site.stalls or site.transfer_s for site in sites)
    rows: list[list[Child]] = [
        [
            _site(site),
            count(site.jobs),
            percent(site.success_rate),
            span(site.compute.mean),
            span(site.compute.median),
            *((span(site.transfer.median), rate(site.transfer_rate)) if moved else ()),
            *((count(site.stalls),) if moved else ()),
            count(site.holds),
            count(site.evictions),
            span(site.slot_s),
            percent(site.compute_share),
            percent(site.goodput),
        ]
        for site in shown
    ]
    header: list[Child] = [noun, "jobs", "succeeded", "compute, mean", "median"]
    header += ["transfer, median", "rate", "stalls"] if moved else []
    header += ["holds", "evictions", "slot time", "compute share", "goodput"]
    left = len(sites) - len(shown)
    more = f"{many(left, noun)} with less slot time not shown; --by site has them all."
    return section(
        "sites",
        f"{noun.capitalize()}s side by side",
        table(
            f"{noun.capitalize()}s, the one with the most slot time first",
            header,
            rows,
            class_="numbers",
        ),
        tag("p", more, class_="note") if left else None,
        tag(
            "div",
            _spreads(
                "Compute of jobs that succeeded",
                "compute",
                [(s, s.compute) for s in shown],
                points["compute"],
            ),
            _spreads(
                "Input transfers that arrived",
                "transfer-in",
                [(s, s.transfer) for s in shown],
                points["transfer"],
            )
            if moved
            else None,
            class_="pair" if moved else "alone",
        ),
    )


def _site(site: SiteFigures) -> Markup:
    return log_text(site.site, 80) if site.site is not None else tag("i", "not known")


def _spreads(
    title: str,
    name: str,
    spreads: Sequence[tuple[SiteFigures, Spread]],
    points: dict[str | None, list[float]],
) -> Markup:
    known = [(site, spread) for site, spread in spreads if spread.count]
    if not known:
        return tag("figure", tag("h3", title), tag("p", "None yet.", class_="note"))
    reach = max(
        max([spread.p95 or 0.0, spread.median or 0.0, *points.get(site.site, [])])
        for site, spread in known
    )
    top = (reach or 1.0) * 1.02
    rows = []
    words = []
    for site, spread in known:
        rows.append(tag("dt", _site(site), tag("span", f" {count(spread.count)}", class_="quiet")))
        rows.append(tag("dd", spread_row(spread, points.get(site.site, []), top, f"{name} good")))
        words.append(
            join(
                _site(site),
                f": median {span(spread.median)}, from {span(spread.least)} to {span(spread.most)}",
            )
        )
    rows += [tag("dt"), tag("dd", length_axis(top))]
    how = (
        "Box: the middle half; line in it: the median; whiskers: 5 to 95 %. "
        f"Single cases are dots where a site has at most {MOST_POINTS}."
    )
    listed: list[Child] = []
    for part in words:
        listed += ["; " if listed else None, part]
    return tag(
        "figure",
        tag("h3", title),
        tag("dl", *rows, class_="spreads", aria_hidden="true"),
        tag("figcaption", tag("span", *listed, ". ", class_="in-words"), how),
    )


def reading(accounts: Accounts) -> Markup:
    """What was read, and what could not be."""
    lost = sum(skip.length for _, skip in accounts.skipped)
    parts: list[Child] = [
        tag(
            "p",
            f"{many(accounts.events, 'event')} from {many(len(accounts.files), 'file')}. ",
            "Every byte was read."
            if not (accounts.skipped or accounts.unread or accounts.unfinished)
            else f"{size(lost)} in {many(len(accounts.skipped), 'place')} were part of no event; "
            f"{many(len(accounts.unread), 'file')} could not be read.",
            f" {other_files(accounts.others)}" if accounts.others else "",
        )
    ]
    unread = [[log_text(path), log_text(why)] for path, why in accounts.unread[:MOST_FILES]]
    skipped = [
        [log_text(path), count(skip.offset), count(skip.length), log_text(skip.why)]
        for path, skip in accounts.skipped[:MOST_FILES]
    ]
    unfinished = [
        [log_text(path), count(rest.offset), count(rest.length)]
        for path, rest in accounts.unfinished[:MOST_FILES]
    ]
    incomplete = "Last events that are not complete: are they still being written?"
    where = ["file", "from byte", "bytes"]
    looks = [*where, "what they look like"]
    for title, header, rows, name, every in (
        ("Files that could not be read", ["file", "why"], unread, "", accounts.unread),
        ("Bytes that are part of no event", looks, skipped, "reading", accounts.skipped),
        (incomplete, where, unfinished, "reading", accounts.unfinished),
    ):
        if rows:
            parts += [table(title, header, rows, class_=name), _left(every)]
    files = [tag("li", log_text(path)) for path in accounts.files[:MOST_FILES]]
    parts.append(
        tag("details", tag("summary", "The files"), tag("ul", *files), _left(accounts.files))
    )
    return section("reading", "What was read, and what could not be", *parts)


def _left(things: Sequence[object]) -> Markup | None:
    left = len(things) - MOST_FILES
    return tag("p", f"And {count(left)} more.", class_="note") if left > 0 else None


_WORDS = (
    ("job", "One line of work that a user asked for."),
    (
        "attempt",
        "One try of a job on one slot, those included that ended before the command began.",
    ),
    ("site", "GLIDEIN_ResourceName, or the machine's own name where a log does not tell it."),
    ("slot time", "The time that attempts held a slot. Queued and held jobs hold none."),
    (
        "computed nothing",
        "An attempt that held its slot for ten minutes or longer, used next to no CPU time and did "
        "not succeed.",
    ),
    ("compute share", "Compute of verified results over all slot time."),
    ("goodput", "That, and the transfers it needed, over all slot time."),
    ("badput", "Slot time that became no part of a result; it always has a cause."),
    (
        "not decided",
        "Slot time of attempts that still go on, or of jobs that may yet use their checkpoint.",
    ),
    ("succeeded", "The command returned 0 and every declared output is there."),
    (
        "stall",
        "A transfer that was cut off, or that gave too little for too long, and began again.",
    ),
)


#: Words of pages that have deliveries.
_OF_DELIVERIES = (
    ("courier", "A job that brings outputs home from a node's store; no attempt of theirs."),
    ("transfer slot", "A slot that takes only couriers. Its time is no slot time here."),
)


def words_section(*, delivered: bool) -> Markup:
    """What the words of the page mean, and each cause of badput."""
    words = _WORDS + (_OF_DELIVERIES if delivered else ())
    pairs = [join(tag("dt", word), tag("dd", meaning)) for word, meaning in words]
    known = [cause for cause in Cause if delivered or cause is not Cause.LOST_SANDBOX]
    causes = "; ".join(CAUSE_WORDS[cause] for cause in known if CAUSE_WORDS[cause])
    return section(
        "words",
        "What the words mean",
        tag("dl", *pairs, class_="words"),
        tag("p", f"Causes of badput: {causes}.", class_="note"),
    )
