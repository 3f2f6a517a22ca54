"""Templates, paths in the scratch folder, and URLs."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from urllib.parse import unquote, urlsplit

from headway.node.plan import AGENT, OUT, PAYLOAD, PLAN, SECRETS, fill, placeholders
from headway.spec.errors import Wrong, listed, show
from headway.text import closest

RESERVED = frozenset({OUT, PLAN, PAYLOAD, SECRETS, AGENT, "condor_exec.exe"})
RESERVED_BEGINNINGS = (
    ".headway", ".job.ad", ".machine.ad", ".update.ad", ".chirp", ".condor", "_condor_",
)  # fmt: skip
FEDERATION_SCHEMES = ("osdf", "stash", "pelican")
INPUT_SCHEMES = ("http", "https", "file", *FEDERATION_SCHEMES)  # outputs have the same

_LITERAL = "a literal `{` is written `{{`, and `}` is `}}`"
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# What nearly every path of a large table looks like; only others need a closer look.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9][\w.=+,-]{0,60}(?:/[A-Za-z0-9][\w.=+,-]{0,60})*")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zstd")
_ARCHIVES = (".tar", ".tgz", ".tbz2", ".tbz", ".txz", ".tzst", ".zip")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+._-]*)://")
_PLAIN_URL = re.compile(r"(?:https?://[\w.:-]+|(?:file|osdf|stash)://)/[\w./=+%?&~-]*\w")
# No part of it begins with a dot, so it climbs nowhere and is as short as it can be.
_PLAIN_TO = re.compile(r"(?:https?://[\w.:-]+|/?\w[\w.=+-]*)(?:/\w[\w.=+-]*)*")
_SPACE_OR_CONTROL = re.compile(r"[\x00-\x20\x7f]")


def check_template(text: str, columns: Collection[str] | None) -> str:
    """`text`, if every placeholder is among `columns` (None: not known) and braces are in pairs."""
    if "\0" in text:
        raise Wrong("contains a NUL character", "remove it")
    if "{" not in text and "}" not in text:
        return text
    asked = placeholders(text)
    unknown = [] if columns is None else [each for each in asked if each not in columns]
    if unknown and columns is not None:
        what = f"no column is called {listed(dict.fromkeys(unknown))}"
        raise Wrong(what, f"{_meant(unknown[0], columns)}; {_LITERAL}")
    bare = fill(text, dict.fromkeys(asked, ""))
    opening, closing = (text.count(each) - bare.count(each) for each in "{}")
    if opening != closing:
        brace = "}" if closing > opening else "{"
        raise Wrong(
            f"`{brace}{brace}` stands for a single `{brace}`, and has no partner here",
            f"{_LITERAL}: two of them are written `{brace * 4}`",
        )
    return text


def refuse_placeholders(text: str) -> str:
    """`text`, if there are no placeholders in it, which would never be filled in."""
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


def folder_path(text: str) -> str:
    """A path within the job's folder, tidied; placeholders are refused."""
    refuse_placeholders(text)
    return _tidy(text, text)


def template_path(text: str) -> str:
    """The same for a path that may hold placeholders; each row's path is checked later."""
    return _tidy(text, fill(text, dict.fromkeys(placeholders(text), "x")))


def filled_path_wrong(path: str) -> Wrong | None:
    """Why a path with a row's values in it is not valid, if it is not."""
    if _PLAIN_PATH.fullmatch(path) and path.partition("/")[0] not in RESERVED:
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
    shown = show(filled)
    if not filled.strip():
        raise Wrong("is empty", "name a file or folder, relative to the job's folder")
    if _CONTROL.search(filled):
        raise Wrong(f"{shown} contains a control character", "rename the file")
    if "\\" in filled:
        raise Wrong(f"{shown} contains a backslash", "separate folders with `/`")
    if filled.startswith(("/", "~")):
        raise Wrong(f"{shown} is not relative to the job's folder", "write a relative path")
    parts = [part for part in filled.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise Wrong(f"{shown} leaves the job's folder", "write a path without `..`")
    if not parts:
        raise Wrong(f"{shown} is the job's folder itself", "name what in it is meant")
    if parts[0] in RESERVED or parts[0].startswith(RESERVED_BEGINNINGS):
        what = f"the name {show(parts[0])} is used by Headway or HTCondor"
        raise Wrong(what, "choose another name")
    if any(len(part.encode(errors="replace")) > 255 for part in parts) or len(filled) > 4000:
        raise Wrong(f"{shown} is too long for a file name", "choose a shorter name")
    return tidy(text)


def input_url(text: str) -> str:
    """A URL that can be downloaded; one that begins with a placeholder is checked row by row."""
    if begins_with_placeholder(text):
        return text
    scheme = _scheme(text)
    if scheme is None:
        raise Wrong(
            f"{show(text)} is not a URL",
            "a file beside job.toml belongs in `files`; elsewhere on this machine it is file:///…",
        )
    if scheme not in INPUT_SCHEMES:
        known = ", ".join(f"{name}://" for name in INPUT_SCHEMES)
        raise Wrong(f"Headway does not fetch from {scheme}://", f"use one of {known}")
    _check_url(text, scheme)
    return text


def output_to(text: str) -> str:
    """A destination: a path on the access point or a URL that accepts uploads."""
    if begins_with_placeholder(text):
        return text
    scheme = _scheme(text)
    if scheme is not None:
        if scheme not in INPUT_SCHEMES:
            remedy = "use a path on the access point, https://, osdf:/// or file:///"
            raise Wrong(f"Headway does not send to {scheme}://", remedy)
        _check_url(text, scheme)
        return text
    if not text.strip():
        raise Wrong("is empty", "leave `to` out to keep the output in the run folder")
    if _CONTROL.search(text):
        raise Wrong(f"{show(text)} contains a control character", "remove it")
    if text.startswith("~"):
        raise Wrong(f"{show(text)}: `~` is not expanded", "write the whole path")
    if re.match(r"(https?|file|osdf|stash|pelican):", text, re.IGNORECASE):
        raise Wrong(f"{show(text)} is not a URL", "write it with `://`")
    if text.rstrip("/").rpartition("/")[2] in ("", ".", "..") and not text.endswith("/"):
        raise Wrong(f"{show(text)} is not a file", "name the file, or end a folder with `/`")
    return text


def plain_url(text: str) -> bool:
    """Whether a filled URL is of the everyday form that needs no closer look."""
    return _PLAIN_URL.fullmatch(text) is not None


def plain_destination(text: str) -> bool:
    """Whether a filled destination is tidy and needs no closer look."""
    return _PLAIN_TO.fullmatch(text) is not None


def begins_with_placeholder(text: str) -> bool:
    """Whether not even the scheme is known before a row is filled in."""
    return text.startswith("{") and bool(placeholders(text.partition("}")[0] + "}"))


def url_basename(text: str) -> str | None:
    """The file name at the end of a URL, without its query, if it has one."""
    if begins_with_placeholder(text) or _scheme(text) is None:
        return None
    path = re.split(r"[?#]", text, maxsplit=1)[0].partition("://")[2]
    if "/" not in path:
        return None
    return unquote(path.rpartition("/")[2]).rpartition("/")[2] or None


def unpacked_name(name: str) -> str:
    """What an archive or a compressed file is called once it is unpacked: data.tar.gz is data."""
    plain = name
    for endings in (_COMPRESSED, _ARCHIVES):
        ending = next((each for each in endings if plain.lower().endswith(each)), "")
        plain = plain[: len(plain) - len(ending)] or plain
    return plain


def is_url(text: str) -> bool:
    """Whether a destination is a URL rather than a path of the access point."""
    return _scheme(text) is not None


def local_path(text: str) -> str:
    """The path that a destination means on the access point; other URLs stay as they are."""
    return unquote(urlsplit(text).path) if text[:5].lower() == "file:" else text


def image_path(container: str, base: Path) -> str:
    """The URL or the full path of a container image."""
    return container if "://" in container else (base / container).as_posix()


def _scheme(text: str) -> str | None:
    """The scheme; of `name+scheme` without the credential's name."""
    match = _SCHEME.match(text)
    return match.group(1).lower().rpartition("+")[2] if match else None


def _check_url(text: str, scheme: str) -> None:
    rest = text.partition("://")[2]
    authority = re.split(r"[/?#\\]", rest, maxsplit=1)[0]
    if "@" in authority:
        raise Wrong(
            "the URL contains a user name or password, and job descriptions are kept and shared",
            "remove everything up to `@`",
        )
    if _SPACE_OR_CONTROL.search(text):
        raise Wrong(f"{show(text)} contains a space or control character", "write a space as %20")
    if "," in text and scheme in FEDERATION_SCHEMES:
        raise Wrong(
            f"{show(text)} contains a comma, which HTCondor reads as a separator", "write %2C"
        )
    path = rest[len(authority) :]
    if scheme == "file":
        if authority not in ("", "localhost"):
            raise Wrong(f"{show(text)} names a machine", "write file:/// and the absolute path")
        if path in ("", "/"):
            raise Wrong(f"{show(text)} names no file", "write file:/// and the absolute path")
    elif scheme in ("osdf", "stash"):
        if authority:
            raise Wrong(
                f"{show(text)} lacks a slash: what follows {scheme}:// would be a host",
                f"write {scheme}:///{show(rest)[1:-1]}",
            )
        if path in ("", "/"):
            raise Wrong(f"{show(text)} names no object", f"write {scheme}:///namespace/object")
    elif not authority:
        raise Wrong(f"{show(text)} names no host", f"write {scheme}://host/path")
    elif not placeholders(authority):
        try:
            parts = urlsplit(text)
            _ = parts.port  # raises ValueError if it is not a port
            valid = bool(parts.hostname)
        except ValueError:
            valid = False
        if not valid:
            raise Wrong(f"{show(text)} has no valid host", f"write {scheme}://host/path")
