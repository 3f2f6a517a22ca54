"""`{column}` placeholders as the access point sees them: are they known, and what do they give?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from operator import itemgetter

from headway.node.template import fill, placeholders
from headway.spec.words import Wrong, closest, listed

__all__ = ["check_template", "fill", "filler", "placeholders", "refuse_placeholders"]

_LITERAL = "a literal `{` is written `{{`, and `}` is `}}`"


def check_template(text: str, columns: Collection[str] | None) -> str:
    """`text`, if every placeholder is among `columns` (None: not known) and braces are in pairs."""
    if "\0" in text:
        raise Wrong("holds a NUL character", "remove it")
    if "{" not in text and "}" not in text:
        return text
    asked = placeholders(text)
    unknown = [name for name in dict.fromkeys(asked) if columns is not None and name not in columns]
    if unknown and columns is not None:
        raise Wrong(
            f"no column is called {listed(unknown)}",
            f"{_meant(unknown[0], columns)}; {_LITERAL}",
        )
    bare = fill(text, dict.fromkeys(asked, ""))
    doubled = (
        text.count("{") - len(asked) - bare.count("{"),
        text.count("}") - len(asked) - bare.count("}"),
    )
    if doubled[0] != doubled[1]:
        brace = "}" if doubled[1] > doubled[0] else "{"
        raise Wrong(
            f"`{brace}{brace}` stands for a single `{brace}`, and has no partner here",
            f"{_LITERAL}: two of them are written `{brace * 4}`",
        )
    return text


def refuse_placeholders(text: str) -> str:
    """`text`, if nothing in it looks like a placeholder that would never be filled in."""
    asked = placeholders(text)
    if asked:
        raise Wrong(
            f"`{{{asked[0]}}}` is not filled in here: this is the same for every job",
            "placeholders work in command, environment, inputs (url, path) and outputs (path, to)",
        )
    return text


def filler(text: str) -> tuple[tuple[str, ...], Callable[[Mapping[str, Sequence[str]]], list[str]]]:
    """The columns `text` asks for, and a function from whole columns to the filled texts."""
    asked = placeholders(text)
    pieces = fill(text, {name: f"\0{name}\0" for name in asked}).split("\0")
    names = tuple(pieces[1::2])
    pieces[::2] = [piece.replace("%", "%%") for piece in pieces[::2]]
    pieces[1::2] = ["%s"] * len(names)
    form = "".join(pieces)

    def filled(columns: Mapping[str, Sequence[str]]) -> list[str]:
        if not names:
            return [form % ()]
        values = itemgetter(*names)(columns)
        rows = zip(*values, strict=True) if len(names) > 1 else zip(values, strict=True)
        return [form % row for row in rows]

    return tuple(dict.fromkeys(names)), filled


def _meant(name: str, columns: Collection[str]) -> str:
    near = closest(name, columns)
    if near:
        return f"did you mean `{{{near}}}`?"
    own = [column for column in columns if column != "job"]
    if own:
        return f"the columns are {listed(own)}, and `{{job}}` is the job's number"
    return "without a `table` there is only `{job}`, the job's number"
