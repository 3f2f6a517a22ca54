"""The terminal summary: what cost most in words, then the figures; pure, from a report to lines."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headway.report.figures import GroupFigures, Loss, Totals, sites
from headway.report.layout import Column, Line, bar, line, paragraph, table
from headway.report.numbers import UNKNOWN, count, days, percent, rate, size, span
from headway.report.total_rows import total_rows
from headway.text import many

if TYPE_CHECKING:
    from headway.report.findings.finding import Finding
    from headway.report.whole import Report

TOP = 3  # findings that are shown unless all are asked for
_MOST_SITES = 20
_MOST_LINES = 5  # of skipped and unread files
_BARS = 24


def summary(
    report: Report,
    *,
    width: int = 80,
    everything: bool = False,
    blocks: bool = True,
    by: str | None = None,
) -> list[Line]:
    """All sections; `everything`: every finding with its evidence; `blocks`: bars are not ASCII."""
    width = max(40, min(width, 120))
    moved = report.totals.transfer_s > 0
    parts = [
        _header(report, width),
        _findings(report.findings, width, everything),
        _shares(report.totals, width, blocks),
        _losses(report.losses, width, blocks),
        _totals(report.totals, width),
        _sites(report, width, moved),
        _groups(report.groups(by), by, width, moved) if by else [],
        _records(report, width),
        _unread(report, width),
    ]
    lines: list[Line] = []
    for part in parts:
        lines += [line(), *part] if lines and part else part
    return lines


def _header(report: Report, width: int) -> list[Line]:
    accounts, totals = report.accounts, report.totals
    known = accounts.attempts.get_column("site").drop_nulls().n_unique()
    users = accounts.jobs["user"].drop_nulls().n_unique()
    facts = [many(totals.jobs, "job"), many(totals.attempts, "attempt")]
    facts += [many(known, accounts.place)] if known else []
    facts += [many(users, "user")] if users > 1 else []
    lines = paragraph(report.name, width, style="bold")
    lines += paragraph(", ".join(facts), width)
    if accounts.end > accounts.begin:
        began, ended = (time.localtime(at) for at in (accounts.begin, accounts.end))
        form = "%Y-%m-%d %H:%M"
        span_ = f"{time.strftime(form, began)} to {time.strftime(f'{form} %Z', ended)}"
        lines += paragraph(f"{span_}, {days(accounts.end - accounts.begin)}", width)
    for note in report.notes:
        lines += paragraph(f"note: {note}", width, "  ", "yellow")
    return lines


def _findings(findings: Sequence[Finding], width: int, everything: bool) -> list[Line]:
    if not findings:
        return [line(("No known pattern of loss is in these logs.", "dim"))]
    lines = [line(("What cost most", "bold"))]
    for number, finding in enumerate(findings if everything else findings[:TOP], 1):
        lines += [line()] if everything and number > 1 else []
        first = f"{number:>3}. "
        lines += paragraph(finding.title, width, " " * len(first), "bold", first)
        if finding.price:
            lines += paragraph(finding.price, width, "     ", "dim")
        lines += paragraph(finding.why, width, "     ")
        if everything:
            lines += _evidence(finding, width)
        lines += _advice(finding, width, everything)
    hidden = len(findings) - TOP
    if hidden > 0 and not everything:
        lines.append(line((f"     … and {many(hidden, 'finding')} more: --findings", "dim")))
    return lines


def _evidence(finding: Finding, width: int) -> list[Line]:
    lines: list[Line] = []
    for label, value in finding.evidence:
        lines += paragraph(f"{label}: {value}", width, "       ", "dim", "     - ")
    if finding.table is not None:
        columns = [Column(title, -n, left=n == 0) for n, title in enumerate(finding.table.header)]
        lines += table(columns, finding.table.rows, width, indent="       ")
    if finding.places:
        where = "; ".join(map(str, finding.places))
        lines += paragraph(f"in the log: {where}", width, "       ", "dim", "     - ")
    if finding.named:
        rest = finding.jobs - len(finding.named)
        more = f" and {rest:,} more" if rest > 0 else ""
        lines += paragraph(
            f"jobs: {', '.join(finding.named)}{more}", width, "       ", "dim", "     - "
        )
    return lines


def _advice(finding: Finding, width: int, everything: bool) -> list[Line]:
    lines: list[Line] = []
    for step in finding.advice if everything else finding.advice[:1]:
        place = f" ({step.place.value})" if step.place.value else ""
        lines += paragraph(f"{step.text}{place}", width, "       ", "", "     → ")
        # Lines are for copying: never wrapped.
        lines += [line("         ", (each, "cyan")) for each in step.lines]
    return lines


def _shares(totals: Totals, width: int, blocks: bool) -> list[Line]:
    if not totals.slot_s:
        return [line("No job of these has held a slot yet.")]
    needed = totals.good_s - totals.good_compute_s
    parts = [
        ("compute of verified results", totals.good_compute_s, "green"),
        ("transfers that they needed", needed, "green"),
        ("lost (badput)", totals.bad_s, "red"),
        ("not decided yet", totals.open_s, "cyan"),
    ]
    rows = [(words, seconds, style) for words, seconds, style in parts if seconds > 0]
    slot = (("Slot time ", "bold"), span(totals.slot_s))
    shares = (
        "compute share ",
        (percent(totals.compute_share), "bold"),
        ", goodput ",
        (percent(totals.goodput), "bold"),
    )
    lines = [line(*slot), line("  ", *shares)] if width < 60 else [line(*slot, ": ", *shares)]
    return lines + _bars(rows, totals.slot_s, width, blocks)


def _losses(losses: Sequence[Loss], width: int, blocks: bool) -> list[Line]:
    if not losses:
        return []
    lines = [line(("Losses by cause", "bold"))]
    rows = [(loss.words, loss.seconds, "red") for loss in losses]
    tails = [f"{many(loss.attempts, 'attempt')}, {many(loss.jobs, 'job')}" for loss in losses]
    total = sum(loss.seconds / loss.share for loss in losses[:1] if loss.share)
    return lines + _bars(rows, total, width, blocks, tails)


def _bars(
    rows: Sequence[tuple[str, float, str]],
    total: float,
    width: int,
    blocks: bool,
    tails: Sequence[str] = (),
) -> list[Line]:
    """Words, a bar, the share, the time; the bars, then the words after them, give way first."""
    tails = tails or [""] * len(rows)
    shares = [percent(seconds / total) if total else UNKNOWN for _, seconds, _ in rows]
    lengths = [span(seconds) for _, seconds, _ in rows]
    share, length = (max(map(len, texts), default=0) for texts in (shares, lengths))
    longest = max((len(name) for name, _, _ in rows), default=0)
    words = min(longest, width - 6 - share - length)
    tail = max(map(len, tails), default=0)
    fixed = 2 + words + 2 + share + 2 + length
    room = width - fixed - (2 + tail if tail else 0) - 2
    if room < 6 and tail:
        tails, room = [""] * len(rows), width - fixed - 2
    drawn = max(0, min(_BARS, room))
    longest_s = max((seconds for _, seconds, _ in rows), default=1.0) or 1.0
    lines = []
    for (name, seconds, style), part, time_, after in zip(
        rows, shares, lengths, tails, strict=True
    ):
        picture = bar(seconds / longest_s, drawn, blocks=blocks) if drawn >= 6 else ""
        gap = " " * (drawn - len(picture) + 2) if drawn >= 6 else ""
        name = name if len(name) <= words else name[: words - 1] + "…"
        lines.append(
            line(
                f"  {name:<{words}}  ",
                (picture, style),
                f"{gap}{part:>{share}}  {time_:>{length}}",
                (f"  {after}" if after else "", "dim"),
            )
        )
    return lines


def _totals(totals: Totals, width: int) -> list[Line]:
    rows = total_rows(totals)
    words = max(len(name) for name, _ in rows)
    lines = [line(("Totals", "bold"))]
    for name, value in rows:
        if width - words < 20:
            lines += [*paragraph(name, width, "  ", "", "  "), *paragraph(value, width, "    ")]
        else:
            lines += paragraph(value, width, " " * (words + 4), "", f"  {name:<{words}}  ")
    return lines


_SITE_COLUMNS = (
    Column("jobs", 9),
    Column("success", 8),
    Column("mean", 6),
    Column("median", 5),
    Column("rate", 4),
    Column("stalls", 7),
    Column("holds", 3),
    Column("evictions", 2),
    Column("lost", 1),
)


def _sites(report: Report, width: int, moved: bool) -> list[Line]:
    shown, place = sites(report.accounts, _MOST_SITES), report.accounts.place
    if not shown or shown[0].site is None:
        return []
    rows = [
        (
            site.site if site.site is not None else "(not told)",
            count(site.jobs),
            percent(site.success_rate),
            span(site.compute.mean),
            span(site.compute.median),
            rate(site.transfer_rate),
            count(site.stalls) if moved else UNKNOWN,
            count(site.holds),
            count(site.evictions),
            span(site.bad_s),
        )
        for site in shown
    ]
    meaning = "  mean and median of the compute of results" if width >= 60 else ""
    title = line((f"{place.capitalize()}s", "bold"), (meaning, "dim"))
    first = Column(place, left=True)
    lines = [title, *table((first, *_SITE_COLUMNS), rows, width)]
    rest = report.accounts.attempts.get_column("site").n_unique() - len(shown)
    if rest > 0:
        lines.append(line((f"  … and {many(rest, place)} more: --html, --csv", "dim")))
    return lines


_GROUP_COLUMNS = (
    Column("jobs", 9),
    Column("succeeded", 8),
    Column("attempts", 2),
    Column("slot time", 7),
    Column("compute share", 6),
    Column("goodput", 5),
    Column("lost", 4),
    Column("stalls", 3),
    Column("holds", 1),
)


def _groups(found: Sequence[GroupFigures], by: str, width: int, moved: bool) -> list[Line]:
    none = "(no hold)" if by == "code" else "(not told)"
    rows = [
        (
            group.key if group.key is not None else none,
            count(group.jobs),
            count(group.succeeded),
            count(group.attempts),
            span(group.slot_s),
            percent(group.compute_share),
            percent(group.goodput),
            span(group.bad_s),
            count(group.stalls) if moved else UNKNOWN,
            count(group.holds),
        )
        for group in found
    ]
    title = {"code": "By hold code", "hour": "By hour (UTC)"}.get(by, f"By {by}")
    columns = (Column(by, left=True), *_GROUP_COLUMNS)
    return [line((title, "bold")), *table(columns, rows, width)]


def _records(report: Report, width: int) -> list[Line]:
    """What the agent measured itself."""
    records = report.records
    if records.is_empty():
        return []

    def total(name: str) -> float:
        return float(records[name].sum())

    words = [f"{many(records.height, 'attempt record')} came home"]
    if total("staged"):
        words.append(f"{size(total('staged'))} staged in by the agent in {span(total('staged_s'))}")
    if total("streamed"):
        words.append(
            f"{size(total('streamed'))} streamed in while the command ran, which waited"
            f" {span(total('waited_s'))} for it"
        )
    if total("outputs"):
        verified = many(int(total("outputs")), "output")
        words.append(f"{verified} verified ({size(total('output_bytes'))})")
    saved = sum(max(0, segments - 1) for segments in records["segments"].drop_nulls())
    words += [f"{many(saved, 'checkpoint')} by the command itself"] if saved else []
    return paragraph(f"{'; '.join(words)}.", width, "", "dim")


def _unread(report: Report, width: int) -> list[Line]:
    accounts = report.accounts
    lines: list[Line] = []
    if accounts.skipped:
        lost = sum(skip.length for _, skip in accounts.skipped)
        places = many(len(accounts.skipped), "place")
        lines += paragraph(
            f"Skipped {lost:,} bytes at {places}, which are part of no event:",
            width,
            "  ",
            "yellow",
        )
        for file, skip in accounts.skipped[:_MOST_LINES]:
            where = f"{file} at byte {skip.offset:,}: {skip.length:,} bytes, {skip.why}"
            lines += paragraph(where, width, "    ", "", "  - ")
        lines += _rest(len(accounts.skipped))
    for file, rest in accounts.unfinished[:_MOST_LINES]:
        words = f"The last event of {file} is not complete ({rest.length:,} bytes from byte"
        words += f" {rest.offset:,}), and was not counted: is it still being written?"
        lines += paragraph(words, width, "  ", "yellow")
    lines += _rest(len(accounts.unfinished))
    if accounts.unread:
        lines += paragraph("Not read:", width, "  ", "yellow")
        for file, why in accounts.unread[:_MOST_LINES]:
            lines += paragraph(f"{file}: {why}", width, "    ", "", "  - ")
        lines += _rest(len(accounts.unread))
    if accounts.others:
        words = f"{many(accounts.others, 'other file')} there, no event logs with events."
        lines += paragraph(words, width, "", "dim")
    return lines


def _rest(number: int) -> list[Line]:
    more = number - _MOST_LINES
    return [line((f"  … and {more:,} more: --json", "dim"))] if more > 0 else []
