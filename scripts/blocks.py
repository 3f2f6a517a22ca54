"""Blocks of pages that a script writes, each between its markers.

    <!-- usage: fetch -->
    ... whatever the script makes of the name "fetch" ...
    <!-- end of usage -->

A script says of which kind its blocks are, and what stands in each; `--check` only says which pages
are out of date, and exits with 1.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path


def names(text: str, kind: str) -> list[str]:
    """The names of a page's blocks of one kind, in their order."""
    return [match["name"] for match in _pattern(kind).finditer(text)]


def replaced(text: str, kind: str, made: Callable[[str], str]) -> str:
    """A page with every block of one kind as `made` has it now."""

    def block(match: re.Match[str]) -> str:
        name = match["name"]
        return f"<!-- {kind}: {name} -->\n{made(name)}\n<!-- end of {kind} -->\n"

    return _pattern(kind).sub(block, text)


def rewrite(pages: Iterable[Path], updated: Callable[[str], str]) -> int:
    """Rewrite the pages that are out of date, or with --check say which; the exit code."""
    checking, stale = "--check" in sys.argv, 0
    for page in pages:
        text = page.read_text(encoding="utf-8")
        new = updated(text)
        if new != text:
            stale += 1
            print(f"{page.name} {'is out of date' if checking else 'is rewritten'}")
            if not checking:
                page.write_text(new, encoding="utf-8")
    return 1 if stale and checking else 0


def _pattern(kind: str) -> re.Pattern[str]:
    return re.compile(rf"<!-- {kind}: (?P<name>[\w-]+) -->\n.*?<!-- end of {kind} -->\n", re.DOTALL)
