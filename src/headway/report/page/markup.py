"""Markup that cannot be forged: every text is escaped unless it was made here."""

from __future__ import annotations

import html
import re
import unicodedata

from headway.events.classad import inert

#: Longer texts from a log are cut: a table cell is no place for a megabyte.
LONGEST = 400
# Marks that turn the direction of what stands around them.
_TURNS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_EMPTY = frozenset({"br", "col", "rect", "line", "path", "circle"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = Markup | str | int | None


def text(value: object, limit: int = LONGEST) -> str:
    """A text from a log as one harmless line: no controls, no turned direction, not endless."""
    line = _TURNS.sub("\N{REPLACEMENT CHARACTER}", str(value)[: limit * 4])
    line = inert(line, limit)
    if line.isprintable():
        return line
    return "".join(
        c if unicodedata.category(c)[0] != "C" else "\N{REPLACEMENT CHARACTER}" for c in line
    )


def tag(name: str, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """One element; `class_` and `for_` lose their underscore, others become hyphens."""
    words = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            words.append(f" {key}")
        else:
            shown = f"{value:.6g}" if isinstance(value, float) else str(value)
            words.append(f' {key}="{html.escape(shown)}"')
    opening = f"<{name}{''.join(words)}"
    if name in _EMPTY and not children:
        return Markup(f"{opening}/>")
    return Markup(f"{opening}>{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    """Children one after the other, each escaped if it is not markup."""
    return Markup(
        "".join(
            child if isinstance(child, Markup) else html.escape(str(child), quote=False)
            for child in children
            if child is not None
        )
    )


def log_text(value: object, limit: int = LONGEST) -> Markup:
    """A text from a log, kept to itself whatever way it is written."""
    return tag("bdi", text(value, limit))
