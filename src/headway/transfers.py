"""Transfers by hand: one object fetched, one file sent; what a file must be is `publish`."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from headway.errors import (
    DiskError,
    HeadwayError,
    NodeError,
    NotFoundError,
    Stopped,
    TransferError,
)
from headway.node.outputs import below
from headway.node.transfer import Fetched, Sent, Snapshot, prove, shown
from headway.node.transfer import fetch as _fetch
from headway.node.transfer import put as _put
from headway.node.transfer.fetch import pinned_manifest
from headway.node.transfer.journal import SUFFIX as _JOURNAL
from headway.node.transfer.manifest import Published
from headway.node.transfer.manifest import publish as _publish
from headway.node.transfer.options import CONNECTIONS, PER_SOURCE
from headway.node.transfer.part import SUFFIX as _PART
from headway.node.transfer.part import Taken
from headway.node.transfer.urls import name as _name
from headway.spec.errors import Wrong
from headway.spec.fields import checked_checksum
from headway.spec.places import url_basename
from headway.spec.units import format_size

__all__ = ["Fetched", "Published", "Sent", "Snapshot", "fetch", "left_of", "publish", "put"]

PATIENCE = 1800.0  # seconds without a byte from anywhere: nobody's GPU waits for it
GRACE = 60.0  # seconds for which every source must say that there is no such object

AnyPath = str | os.PathLike[str]


def fetch(
    urls: str | Sequence[str],
    path: AnyPath | None = None,
    *,
    checksum: str | None = None,
    size: int | None = None,
    manifest: str | None = None,
    overwrite: bool = False,
    progress: Callable[[Snapshot], None] | None = None,
    patience: float = PATIENCE,
    grace: float = GRACE,
    connections: int | None = None,
    direct: bool = False,
    should_stop: Callable[[], bool] = lambda: False,
) -> Fetched:
    """Download one object, from one URL or several mirrors of it.

    What has arrived stays in PATH.part when it ends early, and the same call goes on from there.

    Args:
        urls: One URL, or several of the same object, the best first.
        path: Where it shall be; a folder, or None for this one, keeps the URL's name.
        checksum: What it must have, as "sha256:…".
        size: The bytes that it must have.
        manifest: The digest that `headway publish` printed: it proves every chunk.
        overwrite: Replace a file that is there already. Otherwise one that is proven to be the
            object is left alone, and any other is refused.
        progress: Called with a snapshot, twice a second at most.
        patience: Seconds without a byte from anywhere after which it fails.
        grace: Seconds for which all sources must say that there is no such object.
        connections: How many to open; all may go to one server. By default 4, and 2 to a server.
        direct: Have federations give the origin's bytes, not those of a cache.
        should_stop: Asked often; the download ends when it says so.

    Returns:
        The file, and what proves that it is the object.

    Raises:
        NotFoundError: All sources say that there is no such object.
        AccessDeniedError: They refuse it, or a token is missing.
        StalledError: Nothing came for longer than the patience.
        CorruptError: What they give is not what was declared.
        TransferError: It failed in some other way, or in several.
        NoSpaceError: The disk is full.
        NodeError: The disk fails, or the folder cannot be written to.
        Stopped: `should_stop` said so.
    """
    begin = time.monotonic()
    grace = min(grace, patience)
    given = [urls] if isinstance(urls, str) else list(urls)
    _check_urls(given)
    target = target_of(given[0], path)
    if checksum is not None:
        checksum = _checksum(checksum)
    here = _stands(target)
    if here and not overwrite and checksum is None and manifest is None:
        raise _in_the_way(target, "nothing proves that it is this object")
    _make_folder(target)
    chunks = None
    if manifest is not None:
        chunks = pinned_manifest(
            given,
            manifest,
            folder=str(target.parent),
            patience=patience,
            grace=grace,
            absence_is_final=True,
            direct=direct,
            should_stop=should_stop,
        )
    if here and (checksum is not None or chunks is not None):
        wrong = None
        for declared in filter(None, (checksum, chunks.checksum if chunks else None)):
            wrong = wrong or prove(
                str(target), size=size, checksum=declared, should_stop=should_stop
            )
        if wrong is None:
            return _already(target, time.monotonic() - begin, "manifest" if chunks else "checksum")
        if not overwrite:
            raise _in_the_way(target, f"it is another one: {wrong}")

    try:
        return _fetch(
            given,
            str(target),
            size=size,
            checksum=checksum,
            manifest=chunks,
            watch=progress,
            should_stop=should_stop,
            patience=patience,
            grace=grace,
            absence_is_final=True,
            connections=connections or CONNECTIONS,
            per_source=connections or PER_SOURCE,
            keep=True,
            replace=overwrite,
            direct=direct,
        )
    except Stopped:
        raise
    except Taken:
        raise _in_the_way(target, "it came while this one was under way") from None
    except HeadwayError as error:
        raise _told(error, target) from None


def put(
    path: AnyPath,
    url: str,
    *,
    overwrite: bool = False,
    progress: Callable[[int, int | None], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Sent:
    """Upload one file, and see that it is there.

    Args:
        path: The file.
        url: Where it shall be; one that ends in `/` keeps the file's name.
        overwrite: Replace what is there already.
        progress: Called with the bytes that were sent and the total, twice a second at most.
        should_stop: Asked often; the upload ends when it says so.

    Returns:
        What was sent, and how it was found to be there.

    Raises:
        NotFoundError: There is no such file, or no such place at the server.
        AccessDeniedError: The server refuses it, or a token is missing.
        TransferError: It failed in some other way.
        Stopped: `should_stop` said so.
    """
    path = _sayable(os.fspath(path))
    _check_urls([url])
    if not os.path.isfile(path):
        if os.path.isdir(path):
            raise TransferError(f"{path} is a folder", retryable=False, remedy="name a file")
        raise NotFoundError(f"{path} is not there", retryable=False, remedy="name a file")
    return _put(
        path,
        destination(path, url),
        overwrite=overwrite,
        progress=progress,
        should_stop=should_stop,
    )


def publish(
    path: AnyPath,
    *,
    chunk_size: int | None = None,
    index: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Published:
    """Write PATH.headway, the manifest that says what the file must be.

    Args:
        path: The file.
        chunk_size: Bytes of the chunks that are proven one by one; None: as suits its size.
        index: Note where each member of a tar file is, so that it can be read in any order.
        progress: Called with the bytes that were read and the total.

    Returns:
        The manifest's path, and its `digest`, which jobs pin.

    Raises:
        ManifestError: The file cannot be read, or changes meanwhile.
    """
    return _publish(
        _sayable(os.fspath(path)), chunk_size=chunk_size, index=index, progress=progress
    )


def destination(path: AnyPath, url: str) -> str:
    """The URL under which `put` leaves a file."""
    if url.partition("?")[0].endswith("/"):
        return below(url, os.path.basename(os.fspath(path)))
    return url


def target_of(url: str, path: AnyPath | None = None) -> Path:
    """Where `fetch` puts the object of a URL: a folder, or no path, keeps the URL's name."""
    _check_urls([url])
    if path is not None and not (os.fspath(path).endswith("/") or os.path.isdir(path)):
        return Path(_sayable(os.fspath(path)))
    name = url_basename(url) or ""
    if name in ("", ".", "..") or not name.isprintable() or len(os.fsencode(name)) > 200:
        raise TransferError(
            f"{shown(url)} does not end with the name of a file",
            retryable=False,
            remedy="say under which name to keep it",
        )
    return Path(path or "", name)


def left_of(path: Path) -> Path | None:
    """The part of a file that the same call would go on from, if there is one."""
    part = Path(f"{path}{_PART}")
    return part if os.path.exists(f"{part}{_JOURNAL}") and part.is_file() else None


def _sayable(path: str) -> str:
    """A path that the system can be asked for."""
    if "\0" in path:
        raise TransferError(f"{path!r} is not a path", retryable=False, remedy="remove the NUL")
    return path


def _check_urls(given: list[str]) -> None:
    if not given:
        raise TransferError("there is no URL", retryable=False, remedy="name one")
    for url in given:
        if not isinstance(url, str):
            raise TransferError(f"{url!r} is not a URL", retryable=False, remedy="write it as text")
        try:
            _name(url)
        except ValueError as error:
            raise TransferError(
                str(error), retryable=False, remedy="use https://, osdf:/// or file:///"
            ) from None


def _checksum(text: str) -> str:
    try:
        return checked_checksum(text)
    except Wrong as wrong:
        raise TransferError(
            f"the checksum {wrong.what}", retryable=False, remedy=wrong.remedy
        ) from None


def _stands(target: Path) -> bool:
    """Whether a file lies there already; what is no file is never replaced."""
    if not os.path.lexists(target):
        return False
    if not target.is_file():
        raise TransferError(
            f"{target} is in the way and is not a file",
            retryable=False,
            remedy="choose another path",
        )
    return True


def _in_the_way(target: Path, why: str) -> TransferError:
    return TransferError(
        f"{target} is here already, and {why}",
        retryable=False,
        remedy="choose another path, or replace it with overwrite (--overwrite), which happens once"
        " the new one is whole and proven; a checksum proves one that is here",
    )


def _make_folder(target: Path) -> None:
    folder = target.parent
    remedy = "choose another folder"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NodeError(f"{folder} cannot be made: {error.strerror}", remedy=remedy) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise NodeError(f"{folder} is not yours to write to", remedy=remedy)


def _already(target: Path, seconds: float, proof: str) -> Fetched:
    size = target.stat().st_size
    return Fetched(str(target), size, seconds, "", True, proof, Snapshot(size, size, 0, 0, [], ""))


def _told(error: HeadwayError, target: Path) -> HeadwayError:
    """The engine's error, with what it means for somebody who sits before this machine."""
    if isinstance(error, DiskError):
        folder = target.absolute().parent
        error.message = error.message.replace("the node's disk", "the disk")
        with contextlib.suppress(FileNotFoundError):  # the folder itself may be what is gone
            free = format_size(shutil.disk_usage(folder).free)
            error.remedy = f"choose another folder, or make room: {folder} has {free} left"
    told = [error.remedy]
    if isinstance(error, TransferError) and error.retryable:
        told.append("`headway sources` shows how each source is right now")
    left = left_of(target)
    if left is not None:
        told.append(f"what has arrived stays in {left.name}, and the same call goes on from there")
    error.remedy = "; ".join(filter(None, told))
    return error
