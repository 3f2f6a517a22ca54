"""Text for people: what they meant, numbers of things, how wide it is, what is safe to show."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

# C0 and C1 controls, and the marks that turn the direction of text around.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def closest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word that `word` was probably meant to be."""
    import difflib  # only once something is wrong

    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower()[:100], by_lower, n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else None


def many(number: int, one: str, more: str = "") -> str:
    """A number of things: "1 job", "1,234 jobs"."""
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def ordinal(number: int) -> str:
    """A place in an order: "1st", "2nd", "11th"."""
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{number:,}{'th' if 10 < number % 100 < 20 else ends.get(number % 10, 'th')}"


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


class RowWords:
    """The rows of a table in short, `lr=0.3 seed=2`: of each job what tells it from the others."""

    VALUE = 24  # columns of a terminal that one value may take
    ROW = 48

    def __init__(self, rows: Sequence[Mapping[str, str]] | None) -> None:
        self._rows = rows or ()
        names = list(self._rows[0]) if self._rows else []
        values = {name: {row.get(name, "") for row in self._rows} for name in names}
        own = [name for name in names if name != "job"]
        differ = [name for name in own if len(values[name]) > 1]
        # `job` is the number in a longer table, of interest where there is nothing else
        alone = own if len(self._rows) == 1 else []
        self._names = differ or alone or [name for name in names if name == "job"]
        self._begins = {name: _common_folder(values[name]) for name in self._names}

    def __call__(self, job: int, width: int = ROW) -> str:
        """A job's row in at most `width` columns, harmless on a terminal; empty: it has none."""
        if not 0 <= job < len(self._rows):
            return ""
        row = self._rows[job]
        return cut(" ".join(f"{name}={self._value(name, row)}" for name in self._names), width)

    def _value(self, name: str, row: Mapping[str, str]) -> str:
        text = printable(row.get(name, ""))
        if width_of(text) > self.VALUE and self._begins[name]:
            text = f"…{text[len(self._begins[name]) :]}"
        text = cut(text, self.VALUE)
        return f'"{text}"' if not text or " " in text else text


def _common_folder(values: set[str]) -> str:
    """The beginning, up to a `/`, that all values have in common."""
    first, last = min(values), max(values)
    same = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), 0)
    return first[: first.rfind("/", 0, same) + 1]
