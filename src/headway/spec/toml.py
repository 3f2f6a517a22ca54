"""Reading TOML, with errors that say where and what."""

from __future__ import annotations

import re
import stat
import sys
from pathlib import Path
from typing import Any

from headway.errors import Problem, SpecError
from headway.spec.files import like

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_MAX_BYTES = 16 * 10**6
_AT = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)$")


def read_toml(path: Path) -> dict[str, Any]:
    """The document in a file, which must not be empty."""
    name = path.name or str(path)
    try:
        mode = path.stat()
        if stat.S_ISDIR(mode.st_mode):
            raise _error(name, "is a folder", f"name the file: {path / 'job.toml'}")
        if not stat.S_ISREG(mode.st_mode):
            raise _error(name, "is not a regular file", "name the file that describes the job")
        if mode.st_size > _MAX_BYTES:
            raise _error(name, "is larger than 16 MB", "put large tables into a CSV file")
        content = path.read_bytes()
    except FileNotFoundError:
        remedy = like(path)
        if "did" not in remedy:
            remedy = "name the file that describes the job; `headway init SCRIPT` writes one"
        raise _error(name, "there is no such file", remedy) from None
    except OSError as error:
        raise _error(name, f"cannot be read: {error.strerror}", "check its permissions") from None
    except ValueError:
        raise _error(name, "is not the name of a file", "") from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        what = f"line {line} is not UTF-8"
        raise _error(name, what, f"convert it: iconv -t UTF-8 {name}") from None
    document = parse_toml(text, name)
    if not document:
        raise _error(name, "is empty", 'it needs at least name = "…" and command = "…"')
    return document


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """The document in a text; `name` is what errors call it."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        at = _AT.search(message)
        what = _AT.sub("", message)
        what = f"is not TOML: {what[:1].lower()}{what[1:]}"
        if not at:
            raise _error(name, what, "") from None
        if not at.group(1):
            last = text.rstrip().rpartition("\n")[2]
            remedy = _remedy(last, what) or "close what was opened"
            raise _error(f"{name}: at the end", what, remedy) from None
        line = int(at.group(1))
        wrong = text.replace("\r\n", "\n").split("\n")[line - 1]
        where = f"{name}: line {line}, column {at.group(2)}"
        remedy = _remedy(wrong, what)
        if not name.endswith(".toml"):
            remedy = f"`headway init {name}` writes a job.toml for a script or a submit file"
        raise _error(where, what, remedy) from None
    except (RecursionError, ValueError):
        raise _error(name, "is not TOML: nested too deeply, or a number too long", "") from None


def parse_value(text: str) -> Any:
    """A value as TOML reads it, or the text itself where it is not TOML."""
    try:
        document = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return document["value"] if list(document) == ["value"] else text


def _remedy(line: str, what: str) -> str:
    bare = line.strip()
    key, _, value = (part.strip() for part in bare.partition("="))
    if bare.startswith("+"):
        return f'put the key in quotes: "{key}" = …'
    if re.search("[“”‘’]", bare):
        return 'use straight quotation marks: "'
    if value in ("True", "False"):
        return f"write {key} = {value.lower()}"
    if "overwrite" in what or "twice" in what or "already" in what:
        return "the key or section is there twice: keep one"
    if "invalid value" in what and value:
        return f'text needs quotation marks: {key} = "{value}"'
    if re.fullmatch(r"[A-Za-z_-]+\s*:.*", bare):
        return "TOML writes key = value, not key: value"
    if "=" not in bare and "[" not in bare:
        return "write key = value"
    return ""


def _error(where: str, what: str, remedy: str) -> SpecError:
    return SpecError([Problem(where, what, remedy)])
