"""`{column}` placeholders: the access point checks them, the node fills them in."""

from __future__ import annotations

import re

TYPE_CHECKING = False  # `typing` costs the agent 8 ms at start
if TYPE_CHECKING:
    from collections.abc import Mapping

# `${NAME}` belongs to the shell and `{"a": 1}` to JSON: neither is a placeholder.
_PLACEHOLDER = re.compile(r"\{\{|\}\}|(?<!\$)\{([A-Za-z_][A-Za-z0-9_-]*)\}")


def placeholders(text: str) -> list[str]:
    """The column names that `text` asks for, in order of appearance."""
    return [m.group(1) for m in _PLACEHOLDER.finditer(text) if m.group(1)]


def fill(text: str, row: Mapping[str, str]) -> str:
    """`text` with each `{column}` replaced; `{{` and `}}` become single braces."""

    def value(match: re.Match[str]) -> str:
        column = match.group(1)
        return row[column] if column else match.group(0)[0]

    return _PLACEHOLDER.sub(value, text)


def fill_all(texts: Mapping[str, str], row: Mapping[str, str]) -> dict[str, str]:
    """The same mapping with every value filled."""
    return {key: fill(text, row) for key, text in texts.items()}
