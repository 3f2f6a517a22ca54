"""Text for people: numbers of things, how wide it is, and what of it is safe to show."""

from __future__ import annotations

import re
import unicodedata

# C0 and C1 controls, and the marks that turn the direction of text around.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def many(number: int, one: str, more: str = "") -> str:
    """A number of things: "1 job", "1,234 jobs"."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def printable(text: str) -> str:
    """One line without anything that a terminal would act on."""
    return _CONTROL.sub(lambda match: " " if match[0] in "\t\n" else "�", text)


def width_of(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(bool(unicodedata.combining(char)) for char in text)


def cut(text: str, width: int) -> str:
    """`text` in at most `width` columns."""
    if width_of(text) <= width:
        return text
    while text and width_of(text) > width - 1:
        text = text[:-1]
    return f"{text.rstrip()}…"


def padded(text: str, width: int, *, right: bool = False) -> str:
    """`text` in exactly `width` columns; `right`: the blanks go before it."""
    text = cut(text, width)
    blanks = " " * (width - width_of(text))
    return blanks + text if right else text + blanks


def wrapped(text: str, width: int) -> list[str]:
    """`text` in lines of at most `width` columns; a word that is longer is cut in pieces."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        while width_of(word) > width:
            room = width - width_of(line) - 1 if line else width
            if room < width // 2:
                lines, line, room = [*lines, line], "", width
            piece = word[:room]
            while width_of(piece) > room:
                piece = piece[:-1]
            lines.append(f"{line} {piece}" if line else piece)
            word, line = word[len(piece) :], ""
        if line and width_of(line) + 1 + width_of(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line and word else line or word
    return [*lines, line] if line else lines
