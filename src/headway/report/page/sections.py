"""The sections below the first screen: slot time, losses, sites, what was read, the words."""

from __future__ import annotations

from collections.abc import Sequence

from headway.report.accounts import Accounts
from headway.report.figures import Loss, SiteFigures, Spread, Totals
from headway.report.numbers import UNKNOWN, count, percent, rate, size, span
from headway.report.page.charts import length_axis, spread_row, stacked, svg
from headway.report.page.lead import Seconds, swatch
from headway.report.page.markup import Child, Markup, join, log_text, tag
from headway.report.page.measures import MOST_POINTS
from headway.report.values import share
from headway.report.words import CAUSE_WORDS, PHASE_WORDS, SLOT_PHASES, Cause, Phase, Verdict
from headway.text import many

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
    verdicts = [Verdict.GOOD, Verdict.BAD]
    if any(verdict is Verdict.OPEN for _, verdict in seconds):
        verdicts.append(Verdict.OPEN)
    names = {Verdict.GOOD: "goodput", Verdict.BAD: "badput", Verdict.OPEN: "not decided"}
    rows: list[list[Child]] = []
    for phase in SLOT_PHASES:
        parts = [seconds.get((phase, verdict), 0.0) for verdict in Verdict]
        if not sum(parts):
            continue
        cells: list[Child] = [PHASE_WORDS[phase]]
        for verdict in verdicts:
            part = seconds.get((phase, verdict))
            mark = swatch(f"{phase.value} {verdict.value}") if part else None
            cells.append(join(mark, span(part)) if part else UNKNOWN)
        rows.append([*cells, percent(share(sum(parts), totals.slot_s))])
    sums = {Verdict.GOOD: totals.good_s, Verdict.BAD: totals.bad_s, Verdict.OPEN: totals.open_s}
    foot: list[Child] = ["all slot time", *(span(sums[verdict]) for verdict in verdicts), "100 %"]
    body = table(
        "Slot time by phase",
        ["phase", *(names[verdict] for verdict in verdicts), "of slot time"],
        rows,
        class_="numbers",
        foot=foot if totals.slot_s else (),
    )
    off = [
        f"{span(seconds.get((phase, Verdict.NONE)))} {PHASE_WORDS[phase]}"
        for phase in (Phase.QUEUED, Phase.HELD)
        if seconds.get((phase, Verdict.NONE))
    ]
    note = f"Without a slot, jobs spent {' and '.join(off)}; no share counts that." if off else ""
    return tag("div", body, tag("p", note, class_="note") if note else None, class_="half")


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
        rows.append(
            [
                name,
                span(loss.seconds),
                percent(loss.share),
                count(loss.attempts),
                count(loss.jobs),
            ]
        )
    lost = share(totals.bad_s, totals.slot_s)
    body = table(
        "Badput by cause",
        ["cause", "lost", "of slot time", "attempts", "jobs"],
        rows,
        class_="numbers losses",
        foot=["all badput", span(totals.bad_s), percent(lost), "", ""],
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
            f" {many(accounts.others, 'other file')} there, no event logs with events."
            if accounts.others
            else "",
        )
    ]
    if accounts.unread:
        rows: list[list[Child]] = [
            [log_text(path), log_text(why)] for path, why in accounts.unread[:MOST_FILES]
        ]
        parts += [
            table("Files that could not be read", ["file", "why"], rows),
            _left(accounts.unread),
        ]
    if accounts.skipped:
        rows = [
            [log_text(path), count(skip.offset), count(skip.length), log_text(skip.why)]
            for path, skip in accounts.skipped[:MOST_FILES]
        ]
        header: list[Child] = ["file", "from byte", "bytes", "what they look like"]
        parts += [
            table("Bytes that are part of no event", header, rows, class_="reading"),
            _left(accounts.skipped),
        ]
    if accounts.unfinished:
        rows = [
            [log_text(path), count(rest.offset), count(rest.length)]
            for path, rest in accounts.unfinished[:MOST_FILES]
        ]
        parts += [
            table(
                "Last events that are not complete: are they still being written?",
                ["file", "from byte", "bytes"],
                rows,
                class_="reading",
            ),
            _left(accounts.unfinished),
        ]
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


def words_section() -> Markup:
    """What the words of the page mean, and each cause of badput."""
    pairs = [join(tag("dt", word), tag("dd", meaning)) for word, meaning in _WORDS]
    causes = "; ".join(CAUSE_WORDS[cause] for cause in Cause if CAUSE_WORDS[cause])
    return section(
        "words",
        "What the words mean",
        tag("dl", *pairs, class_="words"),
        tag("p", f"Causes of badput: {causes}.", class_="note"),
    )
