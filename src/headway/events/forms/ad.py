"""A ClassAd as XML and JSON logs hold it: names and Python values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Union

from headway.events.classad import Expr

AdValue = Union[None, str, int, float, "list[AdValue]", "dict[str, AdValue]"]
Ad = dict[str, AdValue]

_LARGEST = 10**18


def text_of(ad: Ad, name: str) -> str:
    """The attribute as text; empty if it is not there."""
    value = ad.get(name)
    return value if isinstance(value, str) else "" if value is None else notation(value)


def integer_of(ad: Ad, name: str, default: int = 0) -> int:
    """The attribute if it is a whole number that a log can hold."""
    value = ad.get(name)
    return int(value) if isinstance(value, int) and abs(value) < _LARGEST else default


def notation(value: AdValue) -> str:
    """The value as a text log writes it."""
    if value is None:
        return "undefined"
    if isinstance(value, Expr):
        return str(value) or "undefined"
    if isinstance(value, str):
        # In a log a backslash is itself, except before a quote.
        return '"' + value.replace("\n", "\\n").replace('"', '\\"') + '"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) < _LARGEST else "error"
    if isinstance(value, float):
        return repr(value).upper() if math.isfinite(value) else "undefined"
    if isinstance(value, list):
        return "{ " + ",".join(map(notation, value)) + " }"
    return "[ " + "; ".join(f"{name} = {notation(inner)}" for name, inner in value.items()) + " ]"


def attribute_lines(ad: Mapping[str, AdValue], indent: str = "") -> list[str]:
    """One line per attribute, sorted as HTCondor sorts them: by name, regardless of case."""
    return [f"{indent}{name} = {notation(ad[name])}" for name in sorted(ad, key=str.lower)]
