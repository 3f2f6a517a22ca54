"""The terminal summary: what cost most in words, then the figures; pure, from a report to lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from headway.report.deliveries import SAVED, SLOTS, Deliveries, delivery_rows
from headway.report.figures import GroupFigures, Loss, SiteFigures, Totals, sites
from headway.report.numbers import UNKNOWN, count, days, other_files, percent, rate, size, span
from headway.text import many, padded, printable, width_of, wrapped

if TYPE_CHECKING:
    import polars as pl

    from headway.report.accounts import Accounts
    from headway.report.findings.finding import Finding

#: A piece of a line and its style: words such as "bold red", or none.
Span = tuple[str, str]
Line = tuple[Span, ...]

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEAST = 12  # columns that the first column of a table keeps


def line(*parts: str | Span) -> Line:
    """A line of pieces; all of them come out harmless, whatever log they are from."""
    spans = ((part, "") if isinstance(part, str) else part for part in parts)
    return tuple((printable(text), style) for text, style in spans if text)


def plain(lines: Iterable[Line]) -> str:
    """The lines without their styles."""
    return "".join("".join(text for text, _ in each).rstrip() + "\n" for each in lines)


def paragraph(
    text: str, width: int, indent: str = "", style: str = "", first: str = ""
) -> list[Line]:
    """Wrapped text; `first` stands before its first line, in the place of the indent."""
    room = max(20, width - len(indent))
    lines = wrapped(printable(text), room)
    return [
        line(indent if number or not first else first, (each, style))
        for number, each in enumerate(lines)
    ]


def bar(share: float | None, width: int, *, blocks: bool = True) -> str:
    """A bar of at most `width` columns; what is not nothing shows."""
    part = min(1.0, max(0.0, share or 0.0)) * width
    if not blocks:
        return "#" * (max(1, round(part)) if part else 0)
    eighths = max(1, round(part * 8)) if part else 0
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


@dataclass(frozen=True)
class TableColumn:
    """A column of a table; those of the least worth go first, together, where there is no room."""

    title: str
    worth: int = 0
    left: bool = False


def table(
    columns: Sequence[TableColumn],
    rows: Sequence[Sequence[str]],
    width: int,
    styles: Sequence[str] = (),
    indent: str = "  ",
) -> list[Line]:
    """Titles and rows; a column in which nothing stands is left out."""
    cells = [[printable(cell) for cell in row] for row in rows]
    keep = [n for n in range(len(columns)) if n == 0 or any(row[n].strip(" –") for row in cells)]
    titles = [column.title for column in columns]
    widths = {n: max(width_of(row[n]) for row in (titles, *cells)) for n in keep}
    while len(keep) > 2 and _needed(keep, widths, indent) > width:
        least = min(columns[n].worth for n in keep[1:])
        better = [n for n in keep[1:] if columns[n].worth > least]
        keep = [keep[0], *better] if better else keep[:-1]
    over = _needed(keep, widths, indent, widths[0]) - width
    if over > 0:
        widths[0] = max(_LEAST, widths[0] - over)

    def row(texts: Sequence[str]) -> str:
        shown = [padded(texts[n], widths[n], right=not columns[n].left) for n in keep]
        return (indent + "  ".join(shown)).rstrip()

    drawn = [line((row(titles), "dim"))]
    marks = styles or [""] * len(cells)
    return drawn + [line((row(texts), style)) for texts, style in zip(cells, marks, strict=True)]


def _needed(keep: Sequence[int], widths: dict[int, int], indent: str, most: int = 20) -> int:
    """Columns that a table takes; its first one can be cut to `most`."""
    rest = sum(widths[n] for n in keep if n) + 2 * (len(keep) - 1)
    return len(indent) + min(widths[0], most) + rest


def total_rows(totals: Totals) -> list[tuple[str, str]]:
    """The totals in words: what and how much, without what there is nothing of."""
    t = totals

    held = [
        (t.held_transfer, "on a transfer"),
        (t.held_duration, "on the time limit"),
        (t.held_other, "for other reasons"),
    ]
    reasons = [f"{number:,} {words}" for number, words in held if number]
    why = reasons[0] if len(reasons) == 1 else f"{t.held:,}: {', '.join(reasons)}"
    started, stalled = f"{t.attempts_executed:,} of {t.attempts:,}", many(t.stalled_jobs, "job")
    wrong = f"{span(t.wrong_transfer_s)}, {span(t.wrong_last_transfer_s)} of it their last"
    result = f"{span(t.result_mean_s)} mean, {span(t.result_median_s)} median"
    wall = f"{span(t.wall_mean_s)} mean, {span(t.wall_median_s)} median"
    longest, shortest = t.longest_arrived_transfer_s, t.shortest_cut_transfer_s
    speed = f" at {rate(t.transfer_rate)}" if t.transfer_rate else ""
    common = f"{many(t.common_transfers, 'transfer')}, {span(t.common_transfer_s)}"
    common += f", for {many(t.common_jobs, 'job')}" if t.common_jobs else ""
    rows: list[tuple[str, str, object]] = [
        ("jobs that succeeded", f"{t.succeeded:,} of {t.jobs:,}", True),
        ("jobs that failed", count(t.failed), t.failed),
        ("jobs that are held", why, t.held),
        ("jobs that were removed", count(t.removed), t.removed),
        ("jobs that have not finished", count(t.unfinished), t.unfinished),
        ("attempts that started the command", started, t.attempts_executed != t.attempts),
        ("transfers cut off or stalled", f"{t.stalls:,} in {stalled}", t.stalls),
        ("evictions", f"{t.evictions:,} in {many(t.evicted_jobs, 'job')}", t.evictions),
        ("holds", count(t.holds), t.holds),
        ("checkpoints that came home", count(t.checkpoints), t.checkpoints),
        ("compute, jobs that succeeded", span(t.good_compute_s), t.good_compute_s),
        ("their last transfers", span(t.last_transfer_s), t.last_transfer_s),
        ("their transfers before that", span(t.retried_transfer_s), t.retried_transfer_s),
        ("their compute that was lost", span(t.evicted_compute_s), t.evicted_compute_s),
        ("compute, held jobs", span(t.held_compute_s), t.held_compute_s),
        ("transfers, held jobs", span(t.held_transfer_s), t.held_transfer_s),
        ("compute, failed jobs", span(t.wrong_compute_s), t.wrong_compute_s),
        ("transfers, failed jobs", wrong, t.wrong_transfer_s),
        ("compute and transfers of a result", result, t.result_mean_s),
        ("first match to result", wall, t.wall_mean_s),
        ("slots that computed nothing", span(t.idle_s), t.idle_s),
        ("CPU time that attempts used", span(t.cpu_s), t.cpu_s),
        ("time in the queue", span(t.queued_s), t.queued_s),
        ("time held", span(t.held_s), t.held_s),
        ("longest transfer that arrived", f"{count(longest)} s", longest),
        ("shortest that was cut off", f"{count(shortest)} s", shortest),
        ("bytes in", f"{size(t.received)}{speed}", t.received),
        ("files brought once for several jobs", common, t.common_transfers),
    ]
    return [(words, value) for words, value, shown in rows if shown]


TOP = 3  # findings that are shown unless all are asked for
_MOST_SITES = 20
_MOST_LINES = 5  # of skipped and unread files
_BARS = 24


class Summarized(Protocol):
    """What of a `Report` the summary shows."""

    name: str
    notes: tuple[str, ...]
    accounts: Accounts
    records: pl.DataFrame

    @property
    def totals(self) -> Totals: ...
    @property
    def losses(self) -> list[Loss]: ...
    @property
    def findings(self) -> list[Finding]: ...
    def groups(self, by: str) -> list[GroupFigures]: ...


def summary(
    report: Summarized,
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
        _deliveries(report.totals.deliveries, width),
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


def _header(report: Summarized, width: int) -> list[Line]:
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
        return [line(("These logs show no known pattern of loss.", "dim"))]
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
        heads = [TableColumn(head, -n, left=n == 0) for n, head in enumerate(finding.table.header)]
        lines += table(heads, finding.table.rows, width, indent="       ")
    if finding.places:
        where = "; ".join(map(str, finding.places))
        lines += paragraph(f"in the log: {where}", width, "       ", "dim", "     - ")
    if finding.named:
        rest = finding.jobs - len(finding.named)
        more = f" and {rest:,} more" if rest > 0 else ""
        names = f"jobs: {', '.join(finding.named)}{more}"
        lines += paragraph(names, width, "       ", "dim", "     - ")
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


def _deliveries(deliveries: Deliveries | None, width: int) -> list[Line]:
    if deliveries is None:
        return []
    lines = [line(("Deliveries", "bold"), (f"  {SLOTS}" if width >= 90 else "", "dim"))]
    lines += _rows(delivery_rows(deliveries), width)
    return lines + (paragraph(SAVED, width, "  ", "dim") if deliveries.saved_s else [])


def _totals(totals: Totals, width: int) -> list[Line]:
    return [line(("Totals", "bold")), *_rows(total_rows(totals), width)]


def _rows(rows: Sequence[tuple[str, str]], width: int) -> list[Line]:
    words = max(len(name) for name, _ in rows)
    lines: list[Line] = []
    for name, value in rows:
        if width - words < 20:
            lines += [*paragraph(name, width, "  ", "", "  "), *paragraph(value, width, "    ")]
        else:
            lines += paragraph(value, width, " " * (words + 4), "", f"  {name:<{words}}  ")
    return lines


#: Of each column its title, its worth and how the figure of a row is written.
_Columns = tuple[tuple[str, int, Callable[[Any], str]], ...]
_SITE_COLUMNS: _Columns = (
    ("jobs", 9, lambda site: count(site.jobs)),
    ("success", 8, lambda site: percent(site.success_rate)),
    ("mean", 6, lambda site: span(site.compute.mean)),
    ("median", 5, lambda site: span(site.compute.median)),
    ("rate", 4, lambda site: rate(site.transfer_rate)),
    ("stalls", 7, lambda site: count(site.stalls)),
    ("holds", 3, lambda site: count(site.holds)),
    ("evictions", 2, lambda site: count(site.evictions)),
    ("lost", 1, lambda site: span(site.bad_s)),
)
_GROUP_COLUMNS: _Columns = (
    ("jobs", 9, lambda group: count(group.jobs)),
    ("succeeded", 8, lambda group: count(group.succeeded)),
    ("attempts", 2, lambda group: count(group.attempts)),
    ("slot time", 7, lambda group: span(group.slot_s)),
    ("compute share", 6, lambda group: percent(group.compute_share)),
    ("goodput", 5, lambda group: percent(group.goodput)),
    ("lost", 4, lambda group: span(group.bad_s)),
    ("stalls", 3, lambda group: count(group.stalls)),
    ("holds", 1, lambda group: count(group.holds)),
)


def _figures(
    title: str,
    columns: _Columns,
    rows: Sequence[tuple[str, SiteFigures | GroupFigures]],
    width: int,
    moved: bool,
) -> list[Line]:
    """One row a site or group; a log without transfers has no stalls to count."""
    shown = [column for column in columns if moved or column[0] != "stalls"]
    heads = [TableColumn(title, left=True), *(TableColumn(*head[:2]) for head in shown)]
    cells = [[name, *(cell(row) for _, _, cell in shown)] for name, row in rows]
    return table(heads, cells, width)


def _sites(report: Summarized, width: int, moved: bool) -> list[Line]:
    shown, place = sites(report.accounts, _MOST_SITES), report.accounts.place
    if not shown or shown[0].site is None:
        return []
    rows = [("(unknown)" if site.site is None else site.site, site) for site in shown]
    meaning = "  mean and median of the compute of results" if width >= 60 else ""
    title = line((f"{place.capitalize()}s", "bold"), (meaning, "dim"))
    lines = [title, *_figures(place, _SITE_COLUMNS, rows, width, moved)]
    rest = report.accounts.attempts.get_column("site").n_unique() - len(shown)
    if rest > 0:
        lines.append(line((f"  … and {many(rest, place)} more: --html, --csv", "dim")))
    return lines


def _groups(found: Sequence[GroupFigures], by: str, width: int, moved: bool) -> list[Line]:
    none = "(no hold)" if by == "code" else "(unknown)"
    rows = [(none if group.key is None else group.key, group) for group in found]
    title = {"code": "By hold code", "hour": "By hour (UTC)"}.get(by, f"By {by}")
    return [line((title, "bold")), *_figures(by, _GROUP_COLUMNS, rows, width, moved)]


def _records(report: Summarized, width: int) -> list[Line]:
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


def _unread(report: Summarized, width: int) -> list[Line]:
    accounts = report.accounts
    lines: list[Line] = []
    if accounts.skipped:
        lost = sum(skip.length for _, skip in accounts.skipped)
        places = many(len(accounts.skipped), "place")
        words = f"Skipped {lost:,} bytes at {places}, which are part of no event:"
        lines += paragraph(words, width, "  ", "yellow")
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
        lines += paragraph(other_files(accounts.others), width, "", "dim")
    return lines


def _rest(number: int) -> list[Line]:
    more = number - _MOST_LINES
    return [line((f"  … and {more:,} more: --json", "dim"))] if more > 0 else []
