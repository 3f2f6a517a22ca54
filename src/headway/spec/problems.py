"""From what the models refuse to problems that a person can act on."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from headway.errors import Problem
from headway.spec.job import Checkpoint, Gpus, Input, Job, Output, Resources, Retries, Sites
from headway.spec.keys import unknown_key
from headway.spec.override import Setting
from headway.spec.words import Loc, Wrong, closest, key_path, show


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


_LEVELS: dict[type[BaseModel], Loc] = {
    Resources: ("resources",),
    Gpus: ("resources", "gpus"),
    Input: ("inputs", 0),
    Output: ("outputs", 0),
    Checkpoint: ("checkpoint",),
    Retries: ("retries",),
    Sites: ("sites",),
}

KNOWN_KEYS: dict[tuple[str, ...], list[str]] = {
    (): [key if key != "rows" else "table" for key in _keys(Job)],
    ("resources",): _keys(Resources),
    ("resources", "gpus"): _keys(Gpus),
    ("inputs",): _keys(Input),
    ("outputs",): _keys(Output),
    ("checkpoint",): _keys(Checkpoint),
    ("retries",): _keys(Retries),
    ("sites",): _keys(Sites),
}

_MISSING = {
    ("name",): 'add name = "…", which names the run',
    ("command",): 'add command = "…", such as "python3 train.py"',
    ("inputs", "url"): 'add url = "https://…"',
    ("inputs", "path"): 'the URL does not end in a file name: add path = "…"',
    ("outputs", "path"): 'add path = "…", what the command leaves behind',
    ("checkpoint", "paths"): 'add paths = ["…"], what the command writes as its checkpoint',
}


@dataclass(frozen=True)
class Places:
    """Says of a key path where a person wrote it: in the file, or in an option."""

    source: str
    original: Mapping[str, Any]  # the file before any option
    document: Mapping[str, Any]  # the same with the options applied
    settings: Sequence[Setting] = ()

    def where(self, loc: Loc) -> str:
        """The file and key path, or the option that brought the key in."""
        loc = self.written(loc)
        for setting in reversed(self.settings):
            common = _common(setting.loc, loc)
            if common and (common == setting.loc or not _exists(self.original, common)):
                return setting.label
        return f"{self.source}: {key_path(loc)}" if loc else self.source

    def written(self, loc: Loc) -> Loc:
        """The part of a key path that is in the document; the rest stems from a shorthand."""
        node: Any = self.document
        for depth, part in enumerate(loc):
            if not _holds(node, part):
                return loc if isinstance(node, dict) else loc[:depth]
            node = node[part]
        return loc


def explain(error: ValidationError, places: Places, level: Loc = ()) -> list[Problem]:
    """One problem for each thing that the models refused; `level`: where in a job the model is."""
    errors = error.errors(include_url=False)
    locs = {tuple(part for part in one["loc"] if part != "[key]") for one in errors}
    problems: dict[Problem, None] = {}
    for one in errors:
        loc = tuple(part for part in one["loc"] if part != "[key]")
        sibling = (*loc[:-1], "url")
        if (
            one["type"] == "missing"
            and loc[-1] == "path"
            and any(other[: len(sibling)] == sibling for other in locs)
        ):
            continue  # the path would have come from the URL, which is wrong itself
        what, remedy = _words(
            one["type"], (*level, *loc), one.get("input"), one.get("ctx") or {}, one["msg"]
        )
        problems[Problem(places.where(loc), what, remedy)] = None
    return list(problems)


def explain_part(
    error: ValidationError, model: type[BaseModel], given: Mapping[str, Any]
) -> list[Problem]:
    """The same for a part of a job that somebody makes in Python, such as its Resources."""
    return explain(error, Places(model.__name__, given, given), _LEVELS.get(model, ()))


def _words(
    kind: str, loc: Loc, value: Any, context: dict[str, Any], message: str
) -> tuple[str, str]:
    wrong = context.get("error")
    if isinstance(wrong, Wrong):
        return wrong.what, wrong.remedy
    if kind == "missing":
        level = tuple(part for part in loc if isinstance(part, str))
        return "is missing", _MISSING.get(level, "")
    if kind == "extra_forbidden":
        return unknown_key(loc, KNOWN_KEYS)
    if kind in ("int_type", "int_from_float", "int_parsing", "int_parsing_size"):
        return f"should be a whole number, not {show(value)}", _whole(value)
    if kind in ("float_type", "finite_number", "float_parsing"):
        remedy = f"write {value} without quotes" if isinstance(value, str) else "write e.g. 7.5"
        return f"should be a number, not {show(value)}", remedy
    if kind == "string_type":
        scalar = not isinstance(value, (list, dict))
        remedy = f'write "{show(value)}" in quotes' if scalar else "write it in quotes"
        return f"should be text, not {show(value)}", remedy
    if kind == "bool_type":
        return f"should be true or false, not {show(value)}", "write it without quotes"
    if kind in ("tuple_type", "list_type"):
        remedy = f"write [{show(value)}]" if isinstance(value, (str, int)) else "write it as […]"
        return f"should be a list, not {show(value)}", remedy
    if kind in ("dict_type", "model_type", "model_attributes_type"):
        return f"should be a table, not {show(value)}", _table(loc)
    if kind == "literal_error":
        return _choice(loc, value, str(context.get("expected", "")))
    bounds = {
        "greater_than_equal": ("ge", "at least"),
        "greater_than": ("gt", "more than"),
        "less_than_equal": ("le", "at most"),
        "less_than": ("lt", "less than"),
    }
    if kind in bounds:
        name, words = bounds[kind]
        remedy = "leave `gpus` out for none" if loc[-2:] == ("gpus", "count") else ""
        return f"{show(value)} is not possible: it must be {words} {context[name]:,}", remedy
    return message[:1].lower() + message[1:], ""


def _whole(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value) and abs(value) < 1e15:
        return f"write {max(1, math.ceil(value))}"
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value.strip()):
        return f"write {int(value)} without quotes"
    return "write e.g. 1"


def _table(loc: Loc) -> str:
    level = tuple(part for part in loc if isinstance(part, str))
    inner = KNOWN_KEYS.get(level)
    header = f"[[{level[0]}]]" if level in (("inputs",), ("outputs",)) else f"[{'.'.join(level)}]"
    return f"write a section {header}" + (f" with keys such as `{inner[0]}`" if inner else "")


def _choice(loc: Loc, value: Any, expected: str) -> tuple[str, str]:
    choices = re.findall(r"'([^']*)'", expected)
    what = f"{show(value)} is none of {', '.join(show(choice) for choice in choices)}"
    if loc == ("duration",) and re.search(r"[0-9]", str(value)):
        return what, "it is OSPool's category; a limit in hours is `time_limit`"
    near = closest(value, choices) if isinstance(value, str) else None
    return what, f"did you mean {show(near)}?" if near else ""


def _common(one: Loc, two: Loc) -> Loc:
    length = 0
    while length < min(len(one), len(two)) and one[length] == two[length]:
        length += 1
    return one[:length]


def _exists(document: Any, loc: Loc) -> bool:
    for part in loc:
        if not _holds(document, part):
            return False
        document = document[part]
    return True


def _holds(node: Any, part: str | int) -> bool:
    if isinstance(node, dict):
        return part in node
    return isinstance(node, list) and isinstance(part, int) and part < len(node)
