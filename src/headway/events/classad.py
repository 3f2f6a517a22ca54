"""The little of ClassAd syntax that event logs hold: `Name = literal` lines."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping


class Expr(str):
    """A ClassAd expression that is kept as it is written: a list, a record, `undefined`."""

    __slots__ = ()


Value = str | int | float | bool | Expr

_BLANKS = " \t\n\r\f\v"
_ATTRIBUTE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z", re.ASCII)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
_INT = re.compile(r"[+-]?[0-9]{1,19}\Z", re.ASCII)
_REAL = re.compile(r"[+-]?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\Z", re.ASCII)
_RESERVED = frozenset({"true", "false", "undefined", "error", "is", "isnt", "parent", "not"})


def parse_lines(lines: Iterable[str]) -> dict[str, Value]:
    """The attributes among the lines; lines that are no attribute are passed over."""
    found: dict[str, Value] = {}
    for line in lines:
        name, equals, value = (part.strip(_BLANKS) for part in line.partition("="))
        if equals and value and _ATTRIBUTE.match(name):
            found[name] = parse_value(value)
    return found


def parse_value(text: str) -> Value:
    """A literal as a Python value, anything else as an `Expr`."""
    if len(text) >= 2 and text[0] == text[-1] == '"':
        inner = text[1:-1].replace('\\"', "\0")
        return inner.replace("\0", '"') if '"' not in inner else Expr(text)
    if _INT.match(text):
        return int(text)
    if _REAL.match(text):
        return float(text)
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    return Expr(text)


def format_lines(attributes: Mapping[str, Value], indent: str = "") -> list[str]:
    """One line per attribute, sorted as HTCondor sorts them: by name, regardless of case."""
    return [
        f"{indent}{_checked(name)} = {format_value(attributes[name])}"
        for name in sorted(attributes, key=str.lower)
    ]


def format_value(value: Value) -> str:
    """The literal that HTCondor's log reader turns back into this value."""
    if isinstance(value, Expr):
        return inert(value) or "undefined"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else "undefined"
    # In a log a backslash is itself, except before a quote, where nothing can write it.
    text = re.sub(r"(?<!\\)\\+(?=\"|\Z)", lambda match: "/" * len(match[0]), inert(value))
    return '"' + text.replace('"', '\\"') + '"'


def _checked(name: str) -> str:
    if not _NAME.match(name) or name.lower() in _RESERVED:
        raise ValueError(f"{name!r} is not a ClassAd attribute name")
    return name


# HTCondor itself writes a reason's newline as "|" and its carriage return as a space.
_CONTROLS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029], " ")
_CONTROLS[0x0A] = "|"


def inert(text: str, limit: int = 8000) -> str:
    """One line of at most `limit` bytes without control characters: it cannot forge an event."""
    text = text.strip()
    if not text.isprintable():
        text = text.translate(_CONTROLS).encode("utf-8", "replace").decode("utf-8").strip()
    if len(text) * 4 > limit:
        raw = text.encode("utf-8")
        if len(raw) > limit:
            text = raw[: limit - 3].decode("utf-8", "ignore").rstrip() + "…"
    return text
