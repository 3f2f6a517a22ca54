"""The grammar of a text log: a chunk is what lies between two end marks, mostly one event."""

from __future__ import annotations

import re
from typing import NamedTuple

from headway.events.skip import LINE_LIMIT, LONG_LINE, Skips

END = b"\n...\n"
#: The longest part of an end mark that is none yet.
ALMOST_END = len(b"\n...\r")

_ANY_END = re.compile(rb"\n\.\.\.\r?\n")
_HEADER_PATTERN = (
    rb"(\d{3}) \((-?\d{1,10})\.(-?\d{1,10})\.(-?\d{1,10})\) "
    rb"((?:\d\d/\d\d|\d{4}-\d\d-\d\d)[ T]\d\d:\d\d):(\d\d)(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)?"
    rb"(?: |(?=\r?\n)|\Z)"
)
HEADER = re.compile(_HEADER_PATTERN)
_RESYNC = re.compile(rb"(?:\A|(?<=[\n\0])|(?<=\xef\xbb\xbf))" + _HEADER_PATTERN)
_NESTED = re.compile(rb"\n\d\d\d \(")
_NESTED_AMONG_NULS = re.compile(rb"[\n\0]\d\d\d \(")  # five times slower
_BLANK = b"\xef\xbb\xbf \t\r\n"


class Found(NamedTuple):
    """A chunk's header, if it has one, and how many bytes before it are lost, and as what."""

    header: re.Match[bytes] | None
    lost: int
    why: str


def look(chunk: bytes, nuls: bool = True) -> Found:
    """The event of a chunk, and what is none; `nuls`: whether there may be any NUL."""
    match = HEADER.match(chunk)
    if match and not (_NESTED_AMONG_NULS if nuls else _NESTED).search(chunk, match.end()):
        return Found(match, 0, "")
    # The last header is the one that the end mark belongs to: a writer that crashed left
    # the one before it, or two writers got in each other's way.
    matches = list(_RESYNC.finditer(chunk))
    match = matches[-1] if matches else None
    lost = chunk[: match.start()] if match else chunk
    torn = HEADER.match(lost.lstrip(_BLANK + b"\0"))
    return Found(match, len(lost), "an event without an end" if torn else "no event")


def blank(data: bytes) -> bool:
    """Whether nobody misses these bytes."""
    return not data.strip(_BLANK)


def split(data: bytes) -> list[bytes]:
    """The chunks of the data, and behind the last end mark the beginning of the next one.

    An end mark's carriage return stays with its chunk, so that the lengths add up.
    """
    if b"\r" not in data:
        return data.split(END)
    chunks, start = [], 0
    for match in _ANY_END.finditer(data):
        carriage = match.end() - match.start() - len(END)
        chunks.append(data[start : match.start()] + b"\r" * carriage)
        start = match.end()
    return [*chunks, data[start:]]


def decoded(rest: bytes) -> str:
    """What follows a header, as text with plain newlines: UTF-8, else Latin-1."""
    try:
        text = rest.decode()
    except UnicodeDecodeError:
        text = rest.decode("latin-1")
    # The last line has its own carriage return and that of the end mark.
    return text.replace("\r\n", "\n").rstrip("\r") if "\r" in text else text


def cut_lines(rest: bytes, offset: int, skipped: Skips) -> bytes:
    """What follows a header at this offset, with no line that is longer than a line may be."""
    if len(rest) <= LINE_LIMIT:
        return rest
    lines = rest.split(b"\n")
    for number, line in enumerate(lines):
        if len(line) > LINE_LIMIT:
            kept = LINE_LIMIT
            while kept > LINE_LIMIT - 4 and line[kept] & 0xC0 == 0x80:
                kept -= 1  # not in the middle of a character
            skipped.add(offset + kept, len(line) - kept, LONG_LINE)
            lines[number] = line[:kept]
        offset += len(line) + 1
    return b"\n".join(lines)
