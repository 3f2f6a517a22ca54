"""ClassAds, as much as a transfer plugin needs: HTCondor's files of them read, and answers written.

New-style ads, `[ Name = value; … ]`, are read whatever they hold: what is not a plain value is an
expression that nobody here evaluates, and is kept as `Unread`. Names are put in lower case, since
their case means nothing.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    Ad = dict[str, object]

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
_OLD_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class AdError(ValueError):
    """A text that is not made of ClassAds."""


class Unread(str):
    """An expression that is kept as it is written."""


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
    """An old-style ad, one attribute a line, as in .job.ad; lines that are none are passed over."""
    found: Ad = {}
    for line in text[:MAX_BYTES].splitlines():
        name, equals, value = (part.strip() for part in line.partition("="))
        if equals and value and _OLD_NAME.match(name):
            found[name.lower()] = _old_value(value)
    return found


def read_job_ad(environment: Mapping[str, str]) -> Ad:
    """The ad of this job, as the pool has put it beside the job; empty: there is none to be read.

    The names are in lower case.
    """
    try:
        with open(environment.get("_CONDOR_JOB_AD", ""), encoding="utf-8") as file:
            return read_old_ad(file.read())
    except (OSError, ValueError):
        return {}


def write_ad(ad: Mapping[str, object]) -> str:
    """One new-style ad on one line."""
    return "[ " + "; ".join(f"{name} = {_written(value)}" for name, value in ad.items()) + " ]"


def _ad(text: str, at: int, depth: int) -> tuple[Ad, int]:
    if depth > _DEEPEST:
        raise AdError("ads within ads without end")
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
    """The value that begins here, and where what follows it begins."""
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
        value = Unread(text[begin:at].strip())
    return value, at


def _list(text: str, at: int, depth: int) -> tuple[list[object], int]:
    if depth > _DEEPEST:
        raise AdError("lists within lists without end")
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
    """HTCondor writes the bytes of a letter one by one; other bytes stay as they are."""
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")


def _end_of_expression(text: str, at: int) -> int:
    """Where the attribute ends: at the next ; , ] or } that no bracket or quote encloses."""
    closing: list[str] = []
    while at < len(text):
        match = _TOKEN.match(text, at)
        token = match[0] if match else text[at]
        if token in ('"', "'"):
            raise AdError("a quote has no end")
        if token in _OPENING:
            closing.append(_OPENING[token])
            if len(closing) > 1000:
                raise AdError("brackets within brackets without end")
        elif closing and token == closing[-1]:
            closing.pop()
        elif not closing and token in (";", ",", "]", "}"):
            return at
        at += len(token)
    raise AdError("a value has no end")


def _skip(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    return match.end() if match else at


def _old_value(text: str) -> object:
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return text[1:-1].replace('\\"', '"')  # in old ads a backslash is otherwise itself
    value, at = _literal(text, 0)
    return value if value is not _NONE and at == len(text) else Unread(text)


def _written(value: object) -> str:
    if value is None:
        return "undefined"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if abs(value) < 1e300 else "undefined"  # nor is NaN smaller
    if isinstance(value, dict):
        return write_ad(value)
    if isinstance(value, (list, tuple)):
        return "{ " + ", ".join(map(_written, value)) + " }"
    return quoted(_rejoined(str(value)).replace("\0", "?"))


def quoted(text: str) -> str:
    """A text as a ClassAd string, of which no part can be taken for an expression."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return (
        '"' + "".join(c if c >= " " and c != "\x7f" else f"\\{ord(c):03o}" for c in escaped) + '"'
    )
