"""Where files may lie: within the job's folder, and in nobody else's way."""

from __future__ import annotations

import re

from headway.spec.templates import fill, placeholders, refuse_placeholders
from headway.spec.words import Wrong, show

RESERVED = frozenset(
    {
        "headway-out",
        "plan.json",
        "payload.tar",
        "headway-secrets.json",
        "headway-node.pyz",
        "condor_exec.exe",
    }
)
RESERVED_BEGINNINGS = (
    ".headway",
    ".job.ad",
    ".machine.ad",
    ".update.ad",
    ".chirp",
    ".condor",
    "_condor_",
)

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# What nearly every path of a large table looks like; anything else is looked at closely.
_PLAIN = re.compile(r"[A-Za-z0-9][\w.=+,-]{0,60}(?:/[A-Za-z0-9][\w.=+,-]{0,60})*")


def folder_path(text: str) -> str:
    """A path within the job's folder, tidied; placeholders are refused."""
    refuse_placeholders(text)
    return _tidy(text, text)


def template_path(text: str) -> str:
    """The same for a path that may hold placeholders; each row's path is checked later."""
    return _tidy(text, fill(text, dict.fromkeys(placeholders(text), "x")))


def filled_path_wrong(path: str) -> Wrong | None:
    """Why a path with a row's values in it cannot be taken, if it cannot."""
    if _PLAIN.fullmatch(path) and path not in RESERVED and path.partition("/")[0] not in RESERVED:
        return None
    try:
        _tidy(path, path)
    except Wrong as wrong:
        return wrong
    return None


def tidy(path: str) -> str:
    """The path without `.`, doubled and trailing slashes, so that equal places compare equal."""
    if "//" not in path and "./" not in path and not path.endswith(("/", ".")):
        return path
    return "/".join(part for part in path.split("/") if part not in ("", "."))


def parents(path: str) -> list[str]:
    """The folders that a relative path lies in, the outermost first."""
    parts = path.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts))]


def _tidy(text: str, filled: str) -> str:
    """`text` tidied, if `filled` (the same with values in place) is a path within the folder."""
    shown = show(filled if filled != text else text)
    if not filled.strip():
        raise Wrong("is empty", "name a file or folder, relative to the job's folder")
    if _CONTROL.search(filled):
        raise Wrong(f"{shown} holds a control character", "rename the file")
    if "\\" in filled:
        raise Wrong(f"{shown} holds a backslash", "separate folders with `/`")
    if filled.startswith(("/", "~")):
        raise Wrong(f"{shown} is not relative to the job's folder", "write a relative path")
    parts = [part for part in filled.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise Wrong(f"{shown} leaves the job's folder", "write a path without `..`")
    if not parts:
        raise Wrong(f"{shown} is the job's folder itself", "name what in it is meant")
    if parts[0] in RESERVED or parts[0].startswith(RESERVED_BEGINNINGS):
        raise Wrong(
            f"the name {show(parts[0])} is used by Headway or HTCondor", "choose another name"
        )
    if any(len(part.encode(errors="replace")) > 255 for part in parts) or len(filled) > 4000:
        raise Wrong(f"{shown} is too long for a file name", "choose a shorter name")
    return tidy(text)
