"""Known traps in the scripts of a job, whatever language they are in."""

from __future__ import annotations

from pathlib import Path

from headway.pool.preflight.findings import Context, Finding
from headway.pool.preflight.pytraps import python_traps
from headway.pool.preflight.shelltraps import is_shell, shebang_traps, shell_traps

__all__ = ["Context", "python_traps", "read_script", "script_traps", "shell_traps"]

LONGEST_SCRIPT = 2_000_000  # bytes; what is longer was not written by hand


def script_traps(text: str, name: str, context: Context | None = None) -> list[Finding]:
    """The traps of a script; a language that is not known has those of its first line alone."""
    context = context or Context()
    if is_python(text, name):
        return python_traps(text, name, context)
    if is_shell(text, name) or context.interpreter:
        return shell_traps(text, name, context)
    return shebang_traps(text, name, context)


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
