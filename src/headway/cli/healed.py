"""What heal says: decisions as they are made, and the audit afterwards."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli import OK
from headway.cli.show import near, paint, print_json, print_table, printable

if TYPE_CHECKING:
    from headway.errors import PoolError
    from headway.heal.decide import Decision
    from headway.heal.healer import Healer
    from headway.heal.state import Done

_MOST = 40  # lines of one kind
_STYLES = {"release": "green", "remove": "red", "wait": "yellow", "leave": "dim"}
_PAST = {"release": "released", "remove": "removed"}


def print_decisions(healer: Healer, *, did: bool) -> None:
    """Every decision of one look, those with something to do first, and what was refused."""
    name, decisions = healer.queue.name, healer.decisions
    if not decisions:
        print(f"{name}: no job is held")
        return
    order = list(_STYLES)
    chosen = sorted(decisions, key=lambda d: order.index(d.verb.value))
    rows = [
        (d.verb.value, str(d.case.held.key), _code(d), _words(d, f"until {_clock(d.due)} at most"))
        for d in chosen[:_MOST]
    ]
    print_table(
        ("", "job", "code", "why"), rows, [_STYLES[d.verb.value] for d in chosen[: len(rows)]]
    )
    if len(chosen) > len(rows):
        print(f"… and {len(chosen) - len(rows):,} more; --json has all of them")
    counts = Counter(d.verb.value for d in decisions)
    print(f"{name}: " + ", ".join(f"{counts[verb]:,} to {verb}" for verb in order if counts[verb]))
    if not did and (counts["release"] or counts["remove"]):
        print("nothing was done; --do does it")
    for decision in decisions:
        words = _refusal(healer, decision)
        if words:
            print(f"{decision.case.held.key} was not {_PAST[decision.verb.value]}: {words}")


def decisions_as_json(healer: Healer) -> dict[str, Any]:
    """The same for programs; `refused` says why the queue did not do what was decided."""
    found = []
    for decision in healer.decisions:
        refused = _refusal(healer, decision)
        found.append({**decision.as_json(), **({"refused": refused} if refused else {})})
    return {"queue": healer.queue.name, "decisions": found}


def _refusal(healer: Healer, decision: Decision) -> str:
    """Why the queue did not do what was decided, in words; "": it did, or nothing was tried."""
    entry = healer.state.by_id.get(decision.intent.id) if decision.intent else None
    return printable(entry.words) if entry is not None and entry.done is False else ""


def _code(decision: Decision) -> str:
    held = decision.case.held
    return f"{held.code}/{held.subcode}"


def _words(decision: Decision, wait: str) -> str:
    """Why; with what is changed, or in `wait` how long heal waits."""
    intent = decision.intent
    words = printable(decision.why)
    if intent is not None:
        edits = [f"{e.attribute} = {e.new}" for e in intent.edits if e.old]
        edits += [f"not at {', '.join(intent.avoid)}"] if intent.avoid else []
        words += f" ({'; '.join(edits)})" if edits else ""
    elif decision.verb.value == "wait":
        words += f" ({wait})"
    return words


class Teller:
    """Says what is new while heal watches."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._told: dict[tuple[str, str], str] = {}
        self._ended: set[str] = set()
        self._healers: list[Healer] = []

    def begins(self, healer: Healer) -> None:
        """Heal begins to watch."""
        self._healers.append(healer)
        # What an earlier heal has seen the end of is in the audit.
        self._ended |= {id for id, entry in healer.state.by_id.items() if entry.ending is not None}
        if not self._as_json:
            print(f"watching the jobs of {healer.queue.name}; Ctrl-C ends it", flush=True)

    def looked(self, healer: Healer) -> None:
        """Say what the last look brought that had not been said."""
        for decision in healer.decisions:
            key = (healer.queue.name, decision.id)
            said = f"{decision.verb.value} {decision.why}"
            if self._told.get(key) != said:
                self._told[key] = said
                self._decided(healer, decision)
        for id, entry in healer.state.by_id.items():
            if entry.ending is not None and id not in self._ended:
                self._ended.add(id)
                self._end(healer, entry)

    def trouble(self, healer: Healer, error: PoolError) -> None:
        """The pool did not answer."""
        if self._as_json:
            print_json({"type": "trouble", "queue": healer.queue.name, "message": error.message})
        else:
            print(f"{healer.queue.name}: {printable(error.message)}", file=sys.stderr, flush=True)

    def ends(self, *, interrupted: bool) -> None:
        """Heal has ended."""
        for healer in self._healers:
            done = list(healer.state.by_id.values())
            if self._as_json:
                print_json({"type": "end", "queue": healer.queue.name, **_counts(done)})
            else:
                why = "heal ended" if interrupted else "no job is left"
                print(f"{healer.queue.name}: {why}; {summary(done)}")

    def _decided(self, healer: Healer, decision: Decision) -> None:
        # Whatever a decision waits for, heal looks at all jobs when the first of them is due.
        look = time.time() + max(0.0, healer.due - time.monotonic())
        if self._as_json:
            facts = {"queue": healer.queue.name, "next_look": round(look, 3)}
            print_json({"type": "decision", **facts, **decision.as_json()})
            return
        verb = paint(f"{decision.verb.value:<8}", _STYLES[decision.verb.value])
        job = decision.case.held.key
        words = _words(decision, f"looks again at {_clock(look)}, or when its log has news")
        print(f"{_clock()} {verb} {job} {_code(decision)}: {words}", flush=True)
        if refusal := _refusal(healer, decision):
            print(f"{_clock()} {'not done':<8} {job}: {refusal}", flush=True)

    def _end(self, healer: Healer, entry: Done) -> None:
        assert entry.ending is not None
        job, how = entry.intent.key, entry.ending.value
        if self._as_json:
            print_json({"type": "outcome", "queue": healer.queue.name, "job": str(job), "how": how})
        else:
            print(f"{_clock()} {'ended':<8} {job}: {how}", flush=True)


def _clock(moment: float | None = None) -> str:
    return time.strftime("%H:%M:%S", time.localtime(moment))


def summary(entries: Sequence[Done]) -> str:
    """All acts of an audit in one sentence."""
    counts = _counts(entries)
    endings = ", ".join(f"{n:,} {how}" for how, n in counts["endings"].items())
    made = f"{counts['releases']:,} releases, {counts['removals']:,} removals"
    return f"{made}{f': {endings}' if endings else ''}"


def _counts(entries: Sequence[Done]) -> dict[str, Any]:
    endings = Counter(e.ending.value for e in entries if e.ending is not None and e.is_release)
    return {
        "releases": sum(bool(e.done) and e.is_release for e in entries),
        "removals": sum(bool(e.done) and not e.is_release for e in entries),
        "endings": dict(endings),
        "open": sum(bool(e.done) and e.ending is None for e in entries),
    }


def show_audits(paths: Sequence[Path], *, as_json: bool) -> int:
    """What heal has done so far, and how it ended."""
    from headway.heal.audit import read
    from headway.heal.rules import Rules
    from headway.heal.state import State

    for path in paths:
        state = State.of(read(path), Rules())
        entries = list(state.by_id.values())
        if as_json:
            acts = [_act(entry) for entry in entries]
            print_json({"audit": str(path), **_counts(entries), "acts": acts})
            continue
        rows = [
            (
                time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(e.intent.time)),
                str(e.intent.key),
                f"{e.intent.code}/{e.intent.subcode}",
                _PAST[e.intent.act] if e.done else "not done" if e.done is False else "not known",
                _ended(e),
            )
            for e in entries[-_MOST:]
        ]
        if rows:
            print_table(("when", "job", "code", "act", "how it ended"), rows)
        print(f"{near(path)}: {summary(entries)}")
    return OK


def _act(entry: Done) -> dict[str, Any]:
    ending = entry.ending.value if entry.ending else None
    return {**entry.intent.as_json(), "done": entry.done, "words": entry.words, "ending": ending}


def _ended(entry: Done) -> str:
    if entry.done is False:
        return printable(entry.words)
    if entry.ending is not None:
        return entry.ending.value
    return "under way, past what had held it" if entry.passed else "under way"
