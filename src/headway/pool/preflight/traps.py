"""Known traps in the scripts of a job, whatever language they are in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from headway.pool.preflight.findings import Context, Finding, Severity
from headway.pool.preflight.nodepaths import far_path, path_in, scratch_path
from headway.pool.preflight.pytraps import python_traps
from headway.pool.preflight.shelltraps import is_shell, shebang_traps, shell_traps
from headway.pool.preflight.traptable import found

__all__ = ["Context", "python_traps", "read_script", "script_traps", "shell_traps"]

_MOST_LINES, _LONGEST_LINE = 20_000, 500
LONGEST_SCRIPT = 2_000_000  # bytes; what is longer was not written by hand


def script_traps(text: str, name: str, context: Context | None = None) -> list[Finding]:
    """The traps of a script; a language that is not known has those of its first line alone."""
    context = context or Context()
    if is_python(text, name):
        return python_traps(text, name, context)
    if is_shell(text, name) or context.interpreter:
        return shell_traps(text, name, context)
    return [*shebang_traps(text, name, context), *plain_paths(text, name, context)]


def plain_paths(text: str, name: str, context: Context) -> Iterator[Finding]:
    """Paths of another machine in a text whose language is not known: a hint on each such line."""
    for number, line in enumerate(text.split("\n")[:_MOST_LINES], 1):
        if line.lstrip()[:1] in ("#", "%", ";") or line.lstrip().startswith("//"):
            continue
        for word in re.split(r"[\s\"'`()\[\]{},;<>]+", line[:_LONGEST_LINE]):
            far = far_path(word, context.contained) and not word.startswith("~")
            if far or scratch_path(word):
                trap = "absolute-path" if far else "scratch-path"
                where, path = f"{name}:{number}", path_in(word)
                yield found(trap, where, line[:_LONGEST_LINE], Severity.HINT, path=path)
                break


def is_python(text: str, name: str) -> bool:
    """Whether a file is a Python script, by its name or its first line."""
    return name.endswith(".py") or (text.startswith("#!") and "python" in text.split("\n", 1)[0])


def read_script(path: Path) -> str | None:
    """The text of a script, or None if the file is no text or cannot be read."""
    try:
        if not path.is_file() or path.stat().st_size > LONGEST_SCRIPT:
            return None
        data = path.read_bytes()
    except OSError:
        return None
    return None if b"\0" in data else data.decode("utf-8", errors="replace")
