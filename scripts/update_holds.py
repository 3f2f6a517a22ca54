"""Write the tables of docs/holds.md, between their markers, from the table of holds and real logs.

python scripts/update_holds.py           # rewrite what is out of date
python scripts/update_holds.py --check   # only say so; exit code 1
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from headway.advisor import History, advise
from headway.advisor.table import Entry, filled, table

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "holds.md"
LOGS = ROOT / "tests" / "events" / "logs"
_BLOCK = re.compile(r"<!-- table: (?P<name>\w+) -->\n.*?<!-- end of table -->\n", re.DOTALL)


def updated(text: str) -> str:
    """The page with both tables as they are now."""
    tables = {"scenarios": scenarios, "entries": entries}

    def block(match: re.Match[str]) -> str:
        lines = "\n".join(tables[match["name"]]())
        return f"<!-- table: {match['name']} -->\n\n{lines}\n\n<!-- end of table -->\n"

    return _BLOCK.sub(block, text)


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


def _codes(entry: Entry) -> str:
    if entry.from_code is not None:
        return f"{entry.from_code} or more"
    codes = ", ".join(map(str, sorted(entry.codes or ()))) or "any"
    if entry.subcodes:
        return f"{codes} / {', '.join(map(str, sorted(entry.subcodes)))}"
    return f"{codes} / {entry.least} or more" if entry.least and entry.least > 1 else codes


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    text = PAGE.read_text(encoding="utf-8")
    new = updated(text)
    if new == text:
        return 0
    checking = "--check" in sys.argv
    print(f"{PAGE.name} {'is out of date' if checking else 'is rewritten'}")
    if not checking:
        PAGE.write_text(new, encoding="utf-8")
    return 1 if checking else 0


if __name__ == "__main__":
    sys.exit(main())
