"""Write the usage of each command into the pages of docs/commands, between its markers.

python scripts/update_docs.py           # rewrite what is out of date
python scripts/update_docs.py --check   # only say so; exit code 1
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from blocks import names, replaced, rewrite

from headway.cli import parser_of

PAGES = Path(__file__).parents[1] / "docs" / "commands"


def updated(text: str) -> str:
    """A page with every usage block as the command line has it now."""
    return replaced(text, "usage", lambda name: f"\n```text\n{_usage(name)}\n```\n")


def _usage(command: str) -> str:
    return parser_of(command).format_help().rstrip()


def documented(text: str) -> list[str]:
    """The commands whose usage a page shows."""
    return names(text, "usage")


if __name__ == "__main__":
    sys.exit(rewrite(sorted(PAGES.glob("*.md")), updated))
