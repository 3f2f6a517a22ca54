"""What the command line changes: in a job.toml (`--set`, `--resource`) and in the queue (`set`)."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headway.errors import Problem
from headway.spec.errors import Loc, Wrong, key_path, show
from headway.spec.files import parse_value
from headway.spec.units import format_duration, format_size, parse_duration, parse_size
from headway.text import closest

_SEGMENT = re.compile(r"""\.?(?:([A-Za-z0-9_+-]+)|("(?:[^"\\]|\\.)*"|'[^']*'))|\[([0-9]+)\]""")
_REMOVE = object()


@dataclass(frozen=True)
class Setting:
    """One change: the option as it was written, the key path and the new value."""

    label: str
    loc: Loc
    value: Any


def apply_overrides(
    raw: Mapping[str, Any], sets: Sequence[str] = (), resources: Sequence[str] = ()
) -> tuple[dict[str, Any], list[Problem]]:
    """A copy of the document with `--set` and then `--resource` options applied."""
    document, _, problems = apply_options(raw, sets, resources)
    return document, problems


def apply_options(
    raw: Mapping[str, Any], sets: Sequence[str], resources: Sequence[str]
) -> tuple[dict[str, Any], list[Setting], list[Problem]]:
    """The same, and the options that were applied."""
    document = copy.deepcopy(dict(raw))
    settings: list[Setting] = []
    problems: list[Problem] = []
    # The number of GPUs first, so that the order of the options does not matter.
    resources = sorted(resources, key=lambda text: not str(text).startswith("nvidia-gpu"))
    options = [("--set", parse_set, text) for text in sets]
    for option, parse, text in [*options, *(("--resource", parse_resource, t) for t in resources)]:
        try:
            if not isinstance(text, str):
                raise Wrong("is not KEY=VALUE", 'write it as text, such as "count=2"')
            setting = parse(text)
            _put(document, setting)
            settings.append(setting)
        except Wrong as wrong:
            problems.append(wrong.at(f"{option} {text}"))
    none = [one.label for one in settings if one.value is _REMOVE]
    for one in settings:
        if none and one.loc == ("resources", "gpus", "memory") and one.label[:10] == "--resource":
            what = f"{none[-1]} asks for no GPU that could have memory"
            problems.append(Problem(one.label, what, "keep one of the two"))
    return document, settings, problems


def parse_set(text: str) -> Setting:
    """A `--set` option; what follows `=` is a TOML value if it reads as one, else text."""
    malformed = Wrong("is not KEY=VALUE", "write it like --set resources.gpus.count=2")
    parts: list[str | int] = []
    end = 0
    while end < len(text) and text[end] != "=":
        match = _SEGMENT.match(text, end)
        if not match or (match.group().startswith(".") == (end == 0) and match.group(3) is None):
            raise malformed
        bare, quoted, index = match.groups()
        if bare is not None:
            parts.append(int(bare) if bare.isdigit() and len(bare) < 10 else bare)
        elif quoted is not None:
            parts.append(_unquoted(quoted))
        else:
            parts.append(int(index) if len(index) < 10 else 10**9)
        end = match.end()
    if not parts or isinstance(parts[0], int) or end >= len(text):
        raise malformed
    value = parse_value(text[end + 1 :])
    if parts[0] in ("environment", "submit") and len(parts) > 1:
        parts = [parts[0], ".".join(str(part) for part in parts[1:])]
        if not isinstance(value, str):
            value = text[end + 1 :]  # these are text: 1.10 must not become 1.1
    return Setting(f"--set {text}", tuple(parts), value)


def parse_resource(text: str) -> Setting:
    """A `--resource` option such as nvidia-gpu=1, cpu=1.5 or mem=8GB."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not value:
        raise Wrong("is not NAME=AMOUNT", "write it like --resource nvidia-gpu=1")
    label = f"--resource {text}"
    sizes: dict[str, Loc] = {
        "mem": ("resources", "memory"),
        "disk": ("resources", "disk"),
        "gpu-mem": ("resources", "gpus", "memory"),
    }
    if name in sizes:
        parse_size(value)
        return Setting(label, sizes[name], value)
    if name == "cpu":
        return Setting(label, ("resources", "cpus"), math.ceil(_amount(value)) or 1)
    if name == "nvidia-gpu":
        count = _amount(value, zero=True)
        if count != int(count):
            raise Wrong(f"{value} is not a whole number of GPUs", f"ask for {math.ceil(count)}")
        if count == 0:
            return Setting(label, ("resources", "gpus"), _REMOVE)
        return Setting(label, ("resources", "gpus", "count"), int(count))
    raise _unknown_resource(name)


@dataclass(frozen=True)
class NewRequest:
    """A change of what a job in the queue asks for: an attribute of its ad, and a text for it."""

    key: str
    attribute: str
    value: str  # a ClassAd expression
    words: str


_REQUESTS = {
    "memory": "RequestMemory",
    "disk": "RequestDisk",
    "cpus": "RequestCpus",
    "gpus": "RequestGPUs",
    "time_limit": "HeadwayTimeLimit",
    "duration": "JobDurationCategory",
}
_CATEGORIES = ("Medium", "Long")


def parse_request(text: str) -> NewRequest:
    """One change of `headway set`, such as memory=2GB; the keys are those of job.toml.

    Args:
        text: KEY=VALUE.

    Returns:
        The attribute of the job's ad, its new value, and both in words.

    Raises:
        Wrong: There is no such key, or the value is not valid for it.
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not value:
        raise Wrong(f"{show(text)} is not KEY=VALUE", "write it like memory=2GB")
    attribute = _REQUESTS.get(key)
    if attribute is None:
        meant = closest(key, _REQUESTS)
        hint = f"do you mean `{meant}`? " if meant else ""
        raise Wrong(f"{show(key)} cannot be set", f"{hint}What can: {', '.join(_REQUESTS)}")
    if key in ("memory", "disk", "time_limit"):
        limit = key == "time_limit"
        amount = math.ceil(parse_duration(value)) if limit else parse_size(value)
        if amount <= 0:
            example = f"{key}=12h" if limit else f"{key}=2GB"
            raise Wrong(f"{key} must be more than 0", f"write it like {example}")
        words = format_duration(amount) if limit else format_size(amount)
        unit = {"memory": 2**20, "disk": 2**10}.get(key, 1)
        return NewRequest(key, attribute, str(-(-amount // unit)), f"{key} = {words}")
    if key == "duration":
        if value not in _CATEGORIES:
            raise Wrong(f"there is no duration {show(value)}", "it is Medium or Long")
        return NewRequest(key, attribute, f'"{value}"', f"{key} = {value}")
    least = 0 if key == "gpus" else 1
    if not re.fullmatch(r"[0-9]{1,6}", value, re.ASCII) or int(value) < least:
        raise Wrong(f"{show(value)} is not a number of {key}", f"a whole number from {least} up")
    return NewRequest(key, attribute, str(int(value)), f"{key} = {int(value)}")


def _unknown_resource(name: str) -> Wrong:
    known = ("nvidia-gpu", "gpu-mem", "cpu", "mem", "disk")
    if name.endswith("-gpu") or name.startswith(("amd", "intel", "rocm", "tpu")):
        return Wrong(
            f"Headway cannot ask a pool for {show(name)}: it knows NVIDIA GPUs only",
            "use nvidia-gpu, or describe the machine with `requirements`",
        )
    habits = {"gpu": "nvidia-gpu", "gpus": "nvidia-gpu", "memory": "mem", "ram": "mem"}
    habits |= {"cpus": "cpu", "cores": "cpu", "vram": "gpu-mem", "storage": "disk"}
    near = habits.get(name.lower()) or closest(name, known)
    meant = f"did you mean {near}? " if near else ""
    return Wrong(f"{show(name)} is not a known resource", f"{meant}known are {', '.join(known)}")


def _amount(text: str, *, zero: bool = False) -> float:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{0,9})?|\.[0-9]{1,9}", text):
        raise Wrong(f"{show(text)} is not an amount", "write a number such as 1")
    amount = float(text)
    if amount == 0 and not zero:
        raise Wrong("0 is too few", "ask for at least 1")
    return amount


def _put(document: dict[str, Any], setting: Setting) -> None:
    """Change the document in place; tables and lists that are missing are created."""
    if setting.value is _REMOVE:
        resources = document.get("resources")
        if isinstance(resources, dict):
            resources.pop("gpus", None)
        return
    node: Any = document
    for depth, part in enumerate(setting.loc, 1):
        here = setting.loc[:depth]
        child = _get(node, part, here)
        if depth == len(setting.loc):
            child = setting.value
        else:
            following = setting.loc[depth]
            new: Any = [] if isinstance(following, int) else {}
            child = _expanded(new if child is None else child, here, following)
        if isinstance(part, int) and part == len(node):
            node.append(child)
        else:
            node[part] = child
        node = child


def _get(node: Any, part: str | int, here: Loc) -> Any:
    if isinstance(part, str):
        return node.get(part)
    if part > len(node):
        there = f"there are {len(node)}" if node else "there are none yet"
        raise Wrong(f"`{key_path(here)}` does not exist: {there}", "count from 0")
    return node[part] if part < len(node) else None


def _expanded(child: Any, here: Loc, following: str | int) -> Any:
    """A shorthand (`gpus = 1`, `inputs = ["https://…"]`) as the table or list it stands for."""
    if isinstance(following, int):
        if isinstance(child, str) and here[-1] == "url":
            return [child]
        if isinstance(child, list):
            return child
        raise Wrong(f"`{key_path(here)}` is {_kind(child)}, not a list", "set it as a whole")
    if isinstance(child, dict):
        return child
    if here == ("resources", "gpus") and isinstance(child, int) and not isinstance(child, bool):
        return {"count": child} if child else {}
    if len(here) == 2 and isinstance(child, str) and here[0] in ("inputs", "outputs"):
        return {"url" if here[0] == "inputs" else "path": child}
    if isinstance(child, list):
        remedy = f"say which: {key_path(here)}[0].{following}=…"
        raise Wrong(f"`{key_path(here)}` is a list", remedy)
    raise Wrong(f"`{key_path(here)}` is {_kind(child)}, not a table", "set it as a whole")


def _kind(value: Any) -> str:
    return show(value) if isinstance(value, (dict, list)) else f"the value {show(value)}"


def _unquoted(text: str) -> str:
    if text.startswith("'"):
        return text[1:-1]
    try:
        return str(json.loads(text))
    except ValueError:
        raise Wrong(f"{text} is not a key", "check the quotation marks") from None
