"""URLs of inputs, and the places outputs may go to."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from headway.spec.templates import placeholders
from headway.spec.words import Wrong, show

INPUT_SCHEMES = ("http", "https", "file", "osdf", "stash", "pelican")
OUTPUT_SCHEMES = INPUT_SCHEMES
_FEDERATION = ("osdf", "stash", "pelican")

_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zstd")
_ARCHIVES = (".tar", ".tgz", ".tbz2", ".tbz", ".txz", ".tzst", ".zip")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+._-]*)://")
_PLAIN = re.compile(r"(?:https?://[\w.:-]+|(?:file|osdf|stash)://)/[\w./=+%?&~-]*\w")
# No part of it begins with a dot, so it climbs nowhere and is as short as it can be.
_PLAIN_TO = re.compile(r"(?:https?://[\w.:-]+|/?\w[\w.=+-]*)(?:/\w[\w.=+-]*)*")
_SPACE_OR_CONTROL = re.compile(r"[\x00-\x20\x7f]")


def input_url(text: str) -> str:
    """A URL that Headway can fetch from; one that begins with a placeholder is checked by row."""
    if begins_with_placeholder(text):
        return text
    scheme = _scheme(text)
    if scheme is None:
        raise Wrong(
            f"{show(text)} is not a URL",
            "a file beside job.toml belongs in `files`; elsewhere on this machine it is file:///…",
        )
    if scheme not in INPUT_SCHEMES:
        raise Wrong(
            f"Headway does not fetch from {scheme}://",
            f"use one of {', '.join(f'{name}://' for name in INPUT_SCHEMES)}",
        )
    _check_url(text, scheme)
    return text


def output_to(text: str) -> str:
    """A destination: a path on the access point or a URL that accepts uploads."""
    if begins_with_placeholder(text):
        return text
    scheme = _scheme(text)
    if scheme is not None:
        if scheme not in OUTPUT_SCHEMES:
            raise Wrong(
                f"Headway does not send to {scheme}://",
                "use a path on the access point, https://, osdf:/// or file:///",
            )
        _check_url(text, scheme)
        return text
    if not text.strip():
        raise Wrong("is empty", "leave `to` out to keep the output in the run folder")
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise Wrong(f"{show(text)} holds a control character", "remove it")
    if text.startswith("~"):
        raise Wrong(f"{show(text)}: `~` is not expanded", "write the whole path")
    if re.match(r"(https?|file|osdf|stash|pelican):", text, re.IGNORECASE):
        raise Wrong(f"{show(text)} is not a URL", "write it with `://`")
    if text.rstrip("/").rpartition("/")[2] in ("", ".", "..") and not text.endswith("/"):
        raise Wrong(f"{show(text)} is not a file", "name the file, or end a folder with `/`")
    return text


def plain_url(text: str) -> bool:
    """Whether a filled URL is of the everyday form that needs no closer look."""
    return _PLAIN.fullmatch(text) is not None


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


def _scheme(text: str) -> str | None:
    """The scheme; of `name+scheme` without the credential's name."""
    match = _SCHEME.match(text)
    return match.group(1).lower().rpartition("+")[2] if match else None


def _check_url(text: str, scheme: str) -> None:
    rest = text.partition("://")[2]
    authority = re.split(r"[/?#\\]", rest, maxsplit=1)[0]
    if "@" in authority:
        raise Wrong(
            "the URL holds a user name or password, and job descriptions are kept and shared",
            "remove everything up to `@`",
        )
    if _SPACE_OR_CONTROL.search(text):
        raise Wrong(f"{show(text)} holds a space or control character", "write a space as %20")
    if "," in text and scheme in _FEDERATION:
        raise Wrong(f"{show(text)} holds a comma, which separates files in HTCondor", "write %2C")
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
        _check_host(text, scheme)


def _check_host(text: str, scheme: str) -> None:
    try:
        parts = urlsplit(text)
        if not parts.hostname:
            raise ValueError
        _ = parts.port
    except ValueError:
        raise Wrong(f"{show(text)} has no valid host", f"write {scheme}://host/path") from None
