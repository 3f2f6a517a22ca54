"""Event logs that HTCondor writes as JSON: one object per event, one after the other."""

from __future__ import annotations

import json
import re
from typing import Any

from headway.events.chunk import decoded
from headway.events.classad import Expr
from headway.events.forms.ad import Ad, AdValue
from headway.events.forms.framing import AdParser

_EXPRESSION = re.compile(r"/Expr\((.*)\)/\Z", re.DOTALL)

_LAST_LINE = rb"(?:\}|\{[^\n]*\})[ \t\r,]*\n"


class JsonParser(AdParser):
    """Reads objects that begin and end at the beginning of a line, or fill one line each."""

    _opening = b"{"
    _last_line = re.compile(_LAST_LINE)
    _end = re.compile(rb"\n" + _LAST_LINE)
    _between = re.compile(rb"(?:\A\xef\xbb\xbf)?[ \t\r\n,]*(?:(?:\[|\])[ \t\r\n,]*)?")

    @staticmethod
    def ends_with(last: bytes) -> bool:
        """Whether only a newline is missing behind these last bytes of a log."""
        return last.endswith(b"}")

    def _ad(self, frame: bytes) -> Ad | None:
        text = decoded(frame).rstrip(" \t\r\n,")
        try:
            ad = json.loads(text, object_hook=_hook)
        except ValueError:
            return None
        return ad if isinstance(ad, dict) else None


def _hook(ad: dict[str, Any]) -> dict[str, AdValue]:
    return {name: _value(value) for name, value in ad.items()} if _odd(ad) else ad


def _odd(ad: dict[str, Any]) -> bool:
    return any(
        type(value) is list or (type(value) is str and value[:6] == "/Expr(")
        for value in ad.values()
    )


def _value(value: Any) -> AdValue:
    if type(value) is list:
        return [_value(inner) for inner in value]
    if type(value) is str and (match := _EXPRESSION.match(value)):
        return Expr(match[1])
    return value  # type: ignore[no-any-return]
