"""The command, as an argument list or as one line for the shell."""

from __future__ import annotations

import shlex

from headway.spec.words import Wrong, show

_SHELL_WORDS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1", "2>", "&>", "<<<"})
_SHELL_REMEDY = "add `shell = true` to run it with /bin/sh -c"


def arguments(value: object, *, shell: bool | None, by_people: bool) -> object:
    """The argv that a `command` of text or a list stands for; `shell` is None where not known."""
    if isinstance(value, str):
        if not value.strip():
            raise Wrong("is empty", 'say what to run, such as command = "python3 train.py"')
        if shell is None or shell:
            return (value,)
        return _split(value)
    if isinstance(value, (list, tuple)):
        if not value:
            raise Wrong("is empty", 'say what to run, such as command = "python3 train.py"')
        if shell and (by_people or len(value) != 1):
            raise Wrong(
                "with `shell = true` the command is one text, not a list",
                "write it as text, or remove `shell`",
            )
        if isinstance(value[0], str) and not value[0].strip():
            raise Wrong("the first word, the program, is empty", "begin with the program to run")
        return value
    raise Wrong(f"should be text or a list, not {show(value)}", 'write it like "python3 train.py"')


def _split(text: str) -> tuple[str, ...]:
    joined = text.replace("\\\n", " ").strip()
    try:
        words = _words(joined, " \t\r\n")
        lines = _words(joined, " \t\r")
    except ValueError as error:
        what = (
            "a quotation mark has no partner" if "quotation" in str(error) else str(error).lower()
        )
        raise Wrong(what, "close it, or write the command as a list") from None
    if words != lines:
        raise Wrong("has several lines", f"{_SHELL_REMEDY}, or write one line")
    odd = next((word for word in words if word in _SHELL_WORDS), None)
    if odd:
        raise Wrong(f"`{odd}` means something to a shell only", _SHELL_REMEDY)
    if not words or not words[0].strip():
        raise Wrong("the first word, the program, is empty", "begin with the program to run")
    return tuple(words)


def _words(text: str, whitespace: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = whitespace, True, ""
    return list(lexer)
