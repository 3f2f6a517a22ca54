"""ClassAds: complete ads, and single values in HTCondor's files, logs and queries.

New-style ads look like `[ Name = value; … ]`, old-style ads have one attribute in each line, and so
have event logs. A value that is not a literal is kept as `Expr`, and not evaluated. The names in
complete ads are put in lower case, because their case does not matter.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Union

    Ad = dict[str, object]
    Value = Union[str, int, float, bool]

MAX_BYTES = 16 << 20
_DEEPEST = 30
_BLANK = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|'(?:[^'\\]|\\.)+'", re.DOTALL)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}(?![0-9A-Za-z_.])")
_REAL = re.compile(
    r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?(?![0-9A-Za-z_.])"
)
_WORD = re.compile(r"(?:true|false|undefined|error)(?![A-Za-z0-9_.(])", re.IGNORECASE)
_END_OF_VALUE = re.compile(r"[;,\]}]|\Z")
_ESCAPE = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|//[^\n]*|/\*.*?\*/|.', re.DOTALL)
_OPENING = {"[": "]", "{": "}", "(": ")"}
_ATTRIBUTE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")
_BLANKS = " \t\n\r\f\v"


class AdError(ValueError):
    """A text that is not made of ClassAds."""


class Expr(str):
    """An expression, as it is written: a list, a record, `undefined`."""

    __slots__ = ()


def read_ads(text: str) -> list[Ad]:
    """The new-style ads of a file, one after the other."""
    if len(text) > MAX_BYTES:
        raise AdError(f"more than {MAX_BYTES} characters")
    found, at = [], _skip(text, 0)
    while at < len(text):
        if text[at] not in "[,;":
            raise AdError(f"no ClassAd begins at character {at}")
        if text[at] == "[":
            ad, at = _ad(text, at, 0)
            found.append(ad)
        else:
            at += 1
        at = _skip(text, at)
    return found


def read_old_ad(text: str) -> Ad:
    """An old-style ad, one attribute in each line, as in .job.ad; other lines are ignored."""
    found: Ad = {}
    for name, value in parse_lines(text[:MAX_BYTES].splitlines()).items():
        found[name.lower()] = value
        if isinstance(value, Expr) and value.lower() in ("undefined", "error"):
            found[name.lower()] = None
        elif isinstance(value, Expr) and len(value) > 1 and value[0] == value[-1] == '"':
            found[name.lower()] = value[1:-1].replace('\\"', '"')  # a quote without its backslash
    return found


def read_job_ad(environment: Mapping[str, str]) -> Ad:
    """The ad of this job, which the pool has put beside the job; empty if there is none."""
    return read_ad_file(environment.get("_CONDOR_JOB_AD", ""))


def read_ad_file(path: str) -> Ad:
    """The old-style ad in a file, with its names in lower case; empty if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return read_old_ad(file.read(MAX_BYTES))
    except (OSError, ValueError):
        return {}


def parse_lines(lines: Iterable[str]) -> dict[str, Value]:
    """The attributes in lines like `Name = value`; other lines are ignored."""
    found: dict[str, Value] = {}
    for line in lines:
        name, equals, value = (part.strip(_BLANKS) for part in line.partition("="))
        if equals and value and _ATTRIBUTE.match(name):
            found[name] = parse_value(value)
    return found


def parse_value(text: str) -> Value:
    """A literal of an old-style ad as a Python value, anything else as an `Expr`."""
    if len(text) >= 2 and text[0] == text[-1] == '"':
        # A backslash is itself, except before a quote.
        inner = text[1:-1].replace('\\"', "\0")
        return inner.replace("\0", '"') if '"' not in inner else Expr(text)
    value, at = _literal(text, 0)
    return value if isinstance(value, (bool, int, float)) and at == len(text) else Expr(text)


def write_ad(ad: Mapping[str, object]) -> str:
    """One new-style ad on one line."""
    return format_value(dict(ad))


def format_lines(ad: Mapping[str, object], indent: str = "") -> list[str]:
    """One old-style line per attribute, in HTCondor's order: by name, regardless of case."""
    return [
        f"{indent}{name} = {format_value(ad[name], old_quoted)}"
        for name in sorted(ad, key=str.lower)
    ]


def format_value(value: object, quote: Callable[[str], str] | None = None) -> str:
    """The value as an ad has it; `quote` formats strings, by default as `quoted`."""
    quote = quote or quoted
    if value is None:
        return "undefined"
    if isinstance(value, Expr):
        return str(value) or "undefined"
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if -(2**63) <= value < 2**63 else "error"
    if isinstance(value, float):
        return repr(value).upper() if value - value == 0 else "undefined"  # nor is NaN
    if isinstance(value, dict):
        parts = (f"{name} = {format_value(inner, quote)}" for name, inner in value.items())
        return "[ " + "; ".join(parts) + " ]"
    if isinstance(value, (list, tuple)):
        return "{ " + ",".join(format_value(inner, quote) for inner in value) + " }"
    return quote(str(value))


def quoted(text: str) -> str:
    """A ClassAd string, no part of which can be taken for an expression."""
    escaped = _rejoined(text).replace("\0", "?").replace("\\", "\\\\").replace('"', '\\"')
    return (
        '"' + "".join(c if c >= " " and c != "\x7f" else f"\\{ord(c):03o}" for c in escaped) + '"'
    )


def old_quoted(text: str) -> str:
    """A string as old-style ads and event logs quote it; see `parse_value`."""
    return '"' + text.replace("\n", "\\n").replace('"', '\\"') + '"'


def _ad(text: str, at: int, depth: int) -> tuple[Ad, int]:
    if depth > _DEEPEST:
        raise AdError("the ads are nested too deeply")
    found: Ad = {}
    at = _skip(text, at + 1)
    while at < len(text) and text[at] != "]":
        if text[at] == ";":
            at = _skip(text, at + 1)
            continue
        match = _NAME.match(text, at)
        if not match:
            raise AdError(f"no attribute begins at character {at}")
        name = match[0][1:-1] if match[0][0] == "'" else match[0]
        at = _skip(text, match.end())
        if text[at : at + 1] != "=":
            raise AdError(f"an attribute without a value at character {at}")
        value, at = _value(text, _skip(text, at + 1), depth)
        found[name.lower()] = value
        if text[at : at + 1] not in (";", "]"):
            raise AdError(f"a value does not end at character {at}")
    if at >= len(text):
        raise AdError("the last ad has no end")
    return found, at + 1


def _value(text: str, at: int, depth: int) -> tuple[object, int]:
    """The value that begins here, and where the text after it begins."""
    begin = at
    value: object
    if text[at : at + 1] == "[":
        value, at = _ad(text, at, depth + 1)
    elif text[at : at + 1] == "{":
        value, at = _list(text, at, depth + 1)
    else:
        value, at = _literal(text, at)
    at = _skip(text, at)
    if value is _NONE or not _END_OF_VALUE.match(text, at):  # an expression of which it is a part
        at = _end_of_expression(text, begin)
        value = Expr(text[begin:at].strip())
    return value, at


def _list(text: str, at: int, depth: int) -> tuple[list[object], int]:
    if depth > _DEEPEST:
        raise AdError("the lists are nested too deeply")
    found: list[object] = []
    at = _skip(text, at + 1)
    while at < len(text) and text[at] != "}":
        if text[at] == ",":
            at = _skip(text, at + 1)
            continue
        value, after = _value(text, at, depth)
        if after == at:
            raise AdError(f"no value begins at character {at}")
        found.append(value)
        at = after
    if at >= len(text):
        raise AdError("a list has no end")
    return found, at + 1


_NONE = object()


def _literal(text: str, at: int) -> tuple[object, int]:
    match = _STRING.match(text, at)
    if match:
        text = _ESCAPE.sub(_unescape, match[1]) if "\\" in match[1] else match[1]
        return _rejoined(text), match.end()
    match = _INTEGER.match(text, at)
    if match:
        return int(match[0]), match.end()
    match = _REAL.match(text, at)
    if match:
        return float(match[0]), match.end()
    match = _WORD.match(text, at)
    if match:
        return {"true": True, "false": False}.get(match[0].lower()), match.end()
    return _NONE, at


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "01234567":
        return bytes([int(code, 8)]).decode("ascii", "surrogateescape")
    return _ESCAPES.get(code, code)


def _rejoined(text: str) -> str:
    """Join the bytes of a character, which HTCondor writes one by one; keep other bytes."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")


def _end_of_expression(text: str, at: int) -> int:
    """Where the attribute ends: at the next ; , ] or } outside of brackets and quotes."""
    closing: list[str] = []
    while at < len(text):
        match = _TOKEN.match(text, at)
        token = match[0] if match else text[at]
        if token in ('"', "'"):
            raise AdError("a quote has no end")
        if token in _OPENING:
            closing.append(_OPENING[token])
            if len(closing) > 1000:
                raise AdError("the brackets are nested too deeply")
        elif closing and token == closing[-1]:
            closing.pop()
        elif not closing and token in (";", ",", "]", "}"):
            return at
        at += len(token)
    raise AdError("a value has no end")


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at
