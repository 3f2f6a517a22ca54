"""Write the usage of each command into the pages of docs/commands, between its markers.

python scripts/update_docs.py           # rewrite what is out of date
python scripts/update_docs.py --check   # only say so; exit code 1
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from headway.cli import parser_of

PAGES = Path(__file__).parents[1] / "docs" / "commands"
_BLOCK = re.compile(r"<!-- usage: (?P<command>[a-z]+) -->\n.*?<!-- end of usage -->\n", re.DOTALL)


def updated(text: str) -> str:
    """A page with every usage block as the command line has it now."""

    def block(match: re.Match[str]) -> str:
        name = match["command"]
        usage = parser_of(name).format_help().rstrip()
        return f"<!-- usage: {name} -->\n\n```text\n{usage}\n```\n\n<!-- end of usage -->\n"

    return _BLOCK.sub(block, text)


def documented(text: str) -> list[str]:
    """The commands whose usage a page shows."""
    return [match["command"] for match in _BLOCK.finditer(text)]


def main() -> int:
    stale = 0
    for page in sorted(PAGES.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        new = updated(text)
        if new != text:
            stale += 1
            print(f"{page.name} {'is out of date' if '--check' in sys.argv else 'is rewritten'}")
            if "--check" not in sys.argv:
                page.write_text(new, encoding="utf-8")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
