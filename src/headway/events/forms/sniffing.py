"""Telling the format of a log from its first bytes."""

from __future__ import annotations

import re
from enum import Enum

#: As much as `sniff` needs: a log that was rotated may begin in the middle of a long event.
HEAD_SIZE = 1 << 14


class Format(str, Enum):
    """How the events of a log are written."""

    TEXT = "text"
    XML = "xml"
    JSON = "json"
    NONE = "none"


_SIGNS = re.compile(
    rb"(?:\A|(?<=[\n\0])|(?<=\xef\xbb\xbf))"
    rb"(?:(?P<text>\d{3} \(-?\d{1,10}\.-?\d{1,10}\.-?\d{1,10}\) "
    rb"(?:\d\d/\d\d|\d{4}-\d\d-\d\d)[ T]\d\d:\d\d:\d\d)"
    rb'|(?P<xml>[ \t]*(?:<c>[^\n]*)?<a n="(?:EventTypeNumber|EventTime)">)'
    rb'|(?P<json>[ \t]*(?:\{[^\n]*)?"(?:EventTypeNumber|EventTime)" ?:))'
)


def sniff(head: bytes) -> Format:
    """The format of the first whole sign of an event among the first bytes of a log."""
    match = _SIGNS.search(head, 0, HEAD_SIZE)
    return Format(match.lastgroup) if match and match.lastgroup else Format.NONE
