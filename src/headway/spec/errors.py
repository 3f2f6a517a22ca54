"""The error of a value in a job description, and how messages show values and keys."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

from headway.errors import Problem

Loc = tuple[str | int, ...]  # a key path: ("inputs", 1, "url")

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


class Wrong(ValueError):
    """A value that is not valid: what is wrong with it, and the remedy."""

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(f"{what}; {remedy}" if remedy else what)
        self.what = what
        self.remedy = remedy

    def at(self, where: str) -> Problem:
        """The problem of the key, file or option at that place."""
        return Problem(where, self.what, self.remedy)


def show(value: object, width: int = 60) -> str:
    """`value` as TOML would write it, short enough for a message."""
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, dict):
        return "a table"
    try:
        text = str(value).lower() if isinstance(value, bool) else str(value)
    except ValueError:  # an integer with more digits than Python agrees to print
        return "a number of thousands of digits"
    text = text if len(text) <= width else text[: width - 1] + "…"
    return json.dumps(text, ensure_ascii=False) if isinstance(value, str) else text


def key_path(loc: Loc) -> str:
    """A key path as TOML and `--set` write it: `inputs[1].url`."""
    text = ""
    for part in loc:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            key = part if _BARE_KEY.fullmatch(part) else show(part)
            text += f".{key}" if text else key
    return text


def listed(names: Iterable[str], most: int = 12) -> str:
    """`a`, `b` and `c`, cut short where there are many."""
    quoted = [f"`{name}`" for name in names]
    if len(quoted) > most:
        return ", ".join(quoted[:most]) + f" and {len(quoted) - most} more"
    if len(quoted) < 2:
        return "".join(quoted)
    return ", ".join(quoted[:-1]) + f" and {quoted[-1]}"


def first_few(places: list[str], most: int = 3) -> str:
    """The first places and a count of the rest: `lines 3, 5, 9 and 20 more`."""
    text = ", ".join(places[:most])
    return f"{text} and {len(places) - most} more" if len(places) > most else text


def text_of(value: object) -> str:
    """A TOML scalar as the text that a command sees."""
    if isinstance(value, (list, tuple, dict)) or value is None:
        raise Wrong(f"should be text or a number, not {show(value)}")
    try:
        return str(value).lower() if isinstance(value, bool) else str(value)
    except ValueError:
        raise Wrong("has too many digits", "write it in quotes") from None
