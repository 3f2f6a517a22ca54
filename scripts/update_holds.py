"""Write the tables of docs/holds.md, between their markers, from the table of holds and real logs.

python scripts/update_holds.py           # rewrite what is out of date
python scripts/update_holds.py --check   # only say so; exit code 1
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from blocks import replaced, rewrite

from headway.holds.advise import advise
from headway.holds.history import History
from headway.holds.table import HoldMeaning, filled, table

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "holds.md"
LOGS = ROOT / "tests" / "events" / "logs"


def updated(text: str) -> str:
    """The page with both tables as they are now."""
    tables = {"scenarios": scenarios, "entries": entries}
    return replaced(text, "table", lambda name: "\n" + "\n".join(tables[name]()) + "\n")


def scenarios() -> Iterator[str]:
    """The first hold of each real log that has one."""
    yield "| real log | code | class | advice when it is held | what is said |"
    yield "| --- | --- | --- | --- | --- |"
    for log in sorted(LOGS.glob("*.log")):
        history = History.from_logs([log])
        holds = sorted(history.every_hold(), key=lambda hold: hold.at)
        if holds:
            hold = holds[0]
            advice = advise(hold, history)
            yield (
                f"| `{log.stem}` | {hold.code}/{hold.subcode} | {advice.kind}"
                f" | {advice.act.value} | {_cell(advice.headline)} |"
            )


def entries() -> Iterator[str]:
    """The whole table, in its order."""
    yield "| cause | codes | class | chance | what it means | what to do |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for entry in table():
        chance = "" if entry.kind == "never" else f"{entry.prior:.0%}"
        yield (
            f"| `{entry.id}` | {_codes(entry)} | {entry.kind} | {chance}"
            f" | {_cell(filled(entry.headline, {}))} | {_cell(filled(entry.do, {}))} |"
        )


def _codes(entry: HoldMeaning) -> str:
    if entry.from_code is not None:
        return f"{entry.from_code} or more"
    codes = ", ".join(map(str, sorted(entry.codes or ()))) or "any"
    if entry.subcodes:
        return f"{codes} / {', '.join(map(str, sorted(entry.subcodes)))}"
    return f"{codes} / {entry.least} or more" if entry.least and entry.least > 1 else codes


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(rewrite([PAGE], updated))
