"""Event logs that HTCondor writes as XML: one `<c>` per event, one after the other.

Only the few elements of a ClassAd are known. There are no entities but XML's own five, no
document type and no other document that this one could refer to.
"""

from __future__ import annotations

import re

from headway.events.chunk import decoded
from headway.events.classad import Expr
from headway.events.forms.ad import Ad, AdValue
from headway.events.forms.framing import AdParser

_DEPTH = 64
_TOKEN = re.compile(
    r"\s*(?:"
    r'<a n="(?P<name>[^"<>]{1,1024})">\s*'
    r"|<(?P<kind>[sireb]|at|rt)>(?P<value>[^<]*)</(?P=kind)>\s*"
    r'|<b v="(?P<truth>[tf])"\s*/>\s*'
    r"|<(?P<open>[cl])>\s*"
    r"|<(?P<empty>s|e|c|l|un|er)\s*/>\s*"
    r"|</(?P<close>[acl])>\s*"
    r"|<(?P<void>un|er)></(?P=void)>\s*"
    r")",
)
#: A whole attribute, as nearly all of them are.
_ATTRIBUTE = re.compile(r'\s*<a n="([^"<>]{1,1024})"><([sire])>([^<]*)</\2></a>\s*')
_ENTITY = re.compile(r"&(#[0-9]{1,7}|#x[0-9A-Fa-f]{1,6}|lt|gt|amp|quot|apos);")
_ENTITIES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_ESCAPE = re.compile(r"\\([0-7]{1,3}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}

_LAST_LINE = rb"(?:<c>[^\n]*)?</c>[ \t\r]*\n"


class XmlParser(AdParser):
    """Reads elements `<c>` that begin and end at the beginning of a line, or fill one line each."""

    _opening = b"<c>"
    _last_line = re.compile(_LAST_LINE)
    _end = re.compile(rb"\n" + _LAST_LINE)
    _between = re.compile(
        rb"(?:\A\xef\xbb\xbf)?\s*(?:<\?xml[^<>]*\?>\s*)?(?:<!DOCTYPE[^<>\[\]]*>\s*)?"
        rb"(?:</?classads>\s*)*"
    )

    @staticmethod
    def ends_with(last: bytes) -> bool:
        """Whether only a newline is missing behind these last bytes of a log."""
        return last.endswith(b"</c>")

    def _ad(self, frame: bytes) -> Ad | None:
        try:
            return _parse(decoded(frame))
        except ValueError:
            return None


def _parse(text: str) -> Ad:
    """The outermost ClassAd of the text; ValueError if it is not well formed."""
    root: list[AdValue] = []
    # Containers that are open, and the name that each waits to give a value to.
    stack: list[tuple[list[AdValue] | Ad, str | None]] = [(root, None)]
    at, end = 0, len(text)
    while at < end:
        holder, name = stack[-1]
        simple = _ATTRIBUTE.match(text, at)
        if simple and name is None and isinstance(holder, dict):
            holder[_unescaped(simple[1])] = _scalar(simple[2], simple[3])
            at = simple.end()
            continue
        match = _TOKEN.match(text, at)
        if not match:
            raise ValueError("no ClassAd")
        at = match.end()
        if match["name"] is not None:
            if not isinstance(holder, dict) or name is not None:
                raise ValueError("an attribute out of place")
            stack[-1] = (holder, _unescaped(match["name"]))
        elif match["close"] == "a":
            # The value has taken the name away with it.
            if not isinstance(holder, dict):
                raise ValueError("an end out of place")
            stack[-1] = (holder, None)
        elif match["close"]:
            if len(stack) < 2 or isinstance(holder, dict) != (match["close"] == "c"):
                raise ValueError("an end out of place")
            stack.pop()
        else:
            value = _value(match)
            if isinstance(holder, list):
                holder.append(value)
            elif name is None:
                raise ValueError("a value without a name")
            else:
                holder[name] = value
            if match["open"]:
                if len(stack) > _DEPTH or not isinstance(value, (dict, list)):
                    raise ValueError("nested too deeply")
                stack.append((value, None))
    if len(stack) != 1 or len(root) != 1 or not isinstance(root[0], dict):
        raise ValueError("no ClassAd")
    return root[0]


def _value(match: re.Match[str]) -> AdValue:
    if match["truth"]:
        return match["truth"] == "t"
    kind = match["open"] or match["empty"] or match["void"] or match["kind"]
    if kind == "c":
        return {}
    if kind == "l":
        return []
    if kind == "un":
        return None
    if kind == "er":
        return Expr("error")
    return _scalar(kind, match["value"] or "")


def _scalar(kind: str, text: str) -> AdValue:
    text = _unescaped(text)
    if kind == "i":
        return int(text[:20])
    if kind == "r":
        return float(text)
    if kind == "b":
        return text.strip().lower() in ("t", "true")
    if kind == "e":
        return Expr(text)
    return _ESCAPE.sub(_escaped, text) if "\\" in text else text


def _unescaped(text: str) -> str:
    return _ENTITY.sub(_entity, text) if "&" in text else text


def _entity(match: re.Match[str]) -> str:
    name = match[1]
    if name[0] != "#":
        return _ENTITIES[name]
    code = int(name[2:], 16) if name[1] == "x" else int(name[1:])
    return chr(code) if code < 0x110000 else "�"


def _escaped(match: re.Match[str]) -> str:
    escape = match[1]
    if escape[0] in "01234567":
        return chr(int(escape, 8))
    return _ESCAPES.get(escape, escape)
