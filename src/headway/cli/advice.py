"""Advice on the terminal: a card for one job; groups and a table for many; JSON."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from headway.advisor.advice import Act, Advice, Change
from headway.advisor.commands import set_words
from headway.advisor.phrases import span
from headway.cli.parser import UsageError
from headway.cli.show import paint, print_table, printable
from headway.text import many, wrapped

if TYPE_CHECKING:
    from headway.cli.advise import Asked

_STYLES = {
    Act.RELEASE: "green",
    Act.CHANGE: "yellow",
    Act.REMOVE: "red",
    Act.WAIT: "cyan",
    Act.UNKNOWN: "dim",
    Act.LEAVE: "dim",
}
_WORDS = {
    Act.RELEASE: "release",
    Act.CHANGE: "change, then release",
    Act.REMOVE: "remove",
    Act.WAIT: "wait, then release",
    Act.UNKNOWN: "cannot tell",
    Act.LEAVE: "leave it",
}
#: What can be done at once comes first, what needs thought next.
_ORDER = (Act.RELEASE, Act.CHANGE, Act.WAIT, Act.REMOVE, Act.UNKNOWN, Act.LEAVE)
_WIDEST = 96
_LONGEST_COMMAND = 500


def document(advices: Iterable[Advice], asked: Asked) -> dict[str, Any]:
    """What `--json` prints."""
    made = [_named(advice, asked) for advice in advices]
    counts: dict[str, int] = {}
    for each in made:
        counts[each["act"]] = counts.get(each["act"], 0) + 1
    return {
        "of": asked.what,
        "held": len(made),
        "counts": counts,
        "unread": [{"file": file, "why": why} for file, why in asked.history.unread],
        "advice": made,
    }


def _named(advice: Advice, asked: Asked) -> dict[str, Any]:
    return {"name": _name(advice, asked), "group": group_of(advice), **advice.as_json()}


def _name(advice: Advice, asked: Asked) -> str:
    hold = advice.hold
    return asked.names.get((hold.cluster, hold.proc)) or str(hold.job)


def group_of(advice: Advice) -> str:
    """The name of the group that an advice belongs to: its act, its cause, its edits."""
    edits = (f"{each.attribute}={each.new}" for each in advice.changes if each.new)
    return ":".join([advice.act.value.replace(" ", "-"), advice.cause, *edits])


def members_of(group: str, advices: Iterable[Advice], asked: Asked) -> list[str]:
    """The jobs of a group, or of all groups whose names begin like it."""
    found = [
        _name(each, asked)
        for each in advices
        if group_of(each) == group or group_of(each).startswith(f"{group}:")
    ]
    if not found:
        known = sorted({group_of(each) for each in advices})
        raise UsageError(
            f"headway advise: no held job is in the group {group!r}",
            remedy=f"there {'are' if known else 'is nothing'} {', '.join(known[:8])}".rstrip(),
        )
    return found


def print_card(advice: Advice, asked: Asked, now: float) -> None:
    """All that is to be said about one job, the verdict first."""
    hold = advice.hold
    print(f"{paint(_name(advice, asked), 'bold')}  {_verdict(advice)}{_chance(advice)}")
    if advice.until_words and advice.act is Act.WAIT:
        _print(f"Wait {advice.until_words}.", "")
    _print(advice.headline, "", style="bold")
    print(paint(f"  {_circumstances(advice, now)}", "dim"))
    if hold.reason:
        where = f" (012 of {hold.job} in {hold.log[:200]})" if hold.log else ""
        _print(f"the log says{where}: {hold.reason[:600]}", "", style="dim")
    print()
    for reason in advice.reasons:
        _print(reason, "- ")
    if advice.changes:
        print()
        print(paint("  Change", "bold"))
        for change in advice.changes:
            _print(change.words, "- ")
            if change.line:
                _print(f"for jobs to come: {change.line}", "  ", style="dim")
    costs = _costs(advice)
    if costs:
        print()
        _print(costs, "")
    if advice.command:
        print()
        if advice.act is Act.CHANGE and not any(change.new for change in advice.changes):
            print("  When that is done:")
        print(f"  {paint(printable(advice.command), 'cyan')}")


def print_many(advices: Sequence[Advice], asked: Asked, now: float, most: int | None) -> None:
    """The held jobs by cause and act, a command for each group, and a table of the jobs."""
    what = printable(asked.what)
    for file, why in asked.history.unread[:3]:
        print(f"not read: {printable(file)} {printable(why)}", file=sys.stderr)
    if not advices:
        print(f"{paint(what, 'bold')}: no job is held")
        return
    number = many(len(advices), "held job")
    print(f"{paint(what, 'bold')}: {number}")
    for members in _groups(advices):
        print()
        _print_group(members, asked)
    print()
    _print_jobs(advices, asked, now, most)


def _groups(advices: Sequence[Advice]) -> list[list[Advice]]:
    found: dict[str, list[Advice]] = {}
    for advice in advices:
        found.setdefault(group_of(advice), []).append(advice)
    return sorted(found.values(), key=lambda group: (_ORDER.index(group[0].act), -len(group)))


def _print_group(members: Sequence[Advice], asked: Asked) -> None:
    first = members[0]
    number = many(len(members), "job")
    print(f"{_verdict(first)}  {number}{_chances(members)}")
    headline = first.headline if len({each.headline for each in members}) == 1 else ""
    _print(headline or f"{first.headline} (and others like it)", "", style="bold")
    if first.act is Act.WAIT and first.until_words:
        _print(f"Wait {members[-1].until_words}.", "")
    for change in first.changes:
        _print(change.words, "- ")
    if not first.changes:
        _print(first.reasons[-1], "")
    command = _group_command(members, asked)
    if command:
        print(f"  {paint(printable(command), 'cyan')}")


def _group_command(members: Sequence[Advice], asked: Asked) -> str:
    if len(members) == 1:
        return members[0].command
    act = members[0].act
    jobs = [each.hold.job for each in members]
    if act in (Act.LEAVE, Act.UNKNOWN):
        return ""
    edits = [change for change in members[0].changes if change.attribute and change.new]
    parts = [asked.commands.edit(jobs, edit.attribute, edit.new) for edit in edits]
    last = asked.commands.remove(jobs) if act is Act.REMOVE else asked.commands.release(jobs)
    command = " && ".join(part for part in [*parts, last] if part)
    return command if len(command) <= _LONGEST_COMMAND else _piped(members, edits, asked)


def _piped(members: Sequence[Advice], edits: Sequence[Change], asked: Asked) -> str:
    """For so many jobs that their numbers do not fit: the numbers come from another call."""
    ids = f"headway advise {asked.words} --ids {shlex.quote(group_of(members[0]))}"
    tool = "headway release" if asked.names else "condor_release"
    if members[0].act is Act.REMOVE:
        tool = "headway remove" if asked.names else "condor_rm"
    if not edits:
        return f"{ids} | xargs {tool}"
    # Once a job is edited it is in another group: the names are kept for the last step.
    parts = [f"{ids} > held-jobs.txt"]
    for edit in edits:
        words = set_words(edit.attribute, edit.new)
        change = f"-I ID condor_qedit ID {edit.attribute} {shlex.quote(edit.new)}"
        parts.append(f"xargs {f'headway set {words}' if asked.names else change} < held-jobs.txt")
    return " && ".join([*parts, f"xargs {tool} < held-jobs.txt"])


def _print_jobs(advices: Sequence[Advice], asked: Asked, now: float, most: int | None) -> None:
    ordered = sorted(advices, key=lambda each: (_ORDER.index(each.act), each.hold.job))
    shown = ordered if most is None else ordered[:most]
    rows = [
        (
            _name(each, asked),
            each.act.value,
            "" if each.probability is None else _percent(each.probability),
            span(max(0.0, now - each.hold.time)),
            str(each.hold.holds),
            printable(each.hold.site[:40]),
            printable(each.headline),
        )
        for each in shown
    ]
    print_table(
        ("job", "advice", "chance", "held for", "hold", "site", "why"),
        rows,
        [_STYLES[each.act] for each in shown],
    )
    if len(shown) < len(ordered):
        print(f"… and {len(ordered) - len(shown):,} more; --all shows them")


def _verdict(advice: Advice) -> str:
    return paint(_WORDS[advice.act], f"bold {_STYLES[advice.act]}")


def _chance(advice: Advice) -> str:
    if advice.probability is None or advice.low is None or advice.high is None:
        return ""
    then = {Act.CHANGE: "after the change ", Act.UNKNOWN: "released as it is "}.get(advice.act, "")
    text = f"{then}{_percent(advice.probability)} likely to succeed"
    text += f" ({_percent(advice.low)} to {_percent(advice.high)}"
    text += ", thin evidence)" if advice.thin else f", {advice.cases:,} cases)"
    return f"  {text}"


def _chances(members: Sequence[Advice]) -> str:
    found = [each.probability for each in members if each.probability is not None]
    if not found:
        return ""
    low, high = _percent(min(found)), _percent(max(found))
    thin = ", thin evidence" if all(each.thin for each in members) else ""
    then = {Act.CHANGE: "after the change "}.get(members[0].act, "")
    return f", {then}{low if low == high else f'{low} to {high}'} likely to succeed{thin}"


def _circumstances(advice: Advice, now: float) -> str:
    hold = advice.hold
    parts = [f"held {span(max(0.0, now - hold.time))} ago", f"hold number {hold.holds}"]
    if hold.starts:
        parts.append(many(hold.starts, "start"))
    if hold.site:
        parts.append(f"at {printable(hold.site[:80])}")
    if advice.avoid_site:
        parts.append("better elsewhere next time")
    parts.append(f"code {hold.code}/{hold.subcode}")
    return ", ".join(parts)


def _costs(advice: Advice) -> str:
    if advice.cost_release is None or advice.cost_remove is None:
        return ""
    return (
        f"Expected loss: {_hours(advice.cost_release)} {advice.cost_unit} if it is released as it"
        f" is, {_hours(advice.cost_remove)} if it is removed."
    )


def _percent(share: float) -> str:
    """Never quite certain."""
    return f"{min(0.99, max(0.01, share)):.0%}"


def _hours(hours: float) -> str:
    if 0 < hours < 0.01:
        return "less than 0.01"
    return f"{hours:.1f}" if hours >= 1 else f"{hours:.2f}"


def _print(text: str, lead: str, style: str = "") -> None:
    """A paragraph, wrapped at the terminal's edge."""
    width = min(_WIDEST, shutil.get_terminal_size().columns) - 2 - len(lead)
    for number, line in enumerate(wrapped(printable(text), max(20, width))):
        before = lead if not number else " " * len(lead)
        print(f"  {before}{paint(line, style)}")
