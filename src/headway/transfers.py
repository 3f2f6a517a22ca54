"""Download, upload or publish one file from Python."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from headway.errors import DiskError, HeadwayError, NodeError, NotFoundError, Stopped, TransferError
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

PATIENCE = 1800.0  # seconds without data; longer than in a job, where a GPU waits for it
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

    If it ends early, the data stays in PATH.part, and the same call continues from there.

    Args:
        urls: One URL, or several URLs of the same object, the best first.
        path: The file to write, or a folder; default: this folder, with the name in the URL.
        checksum: The checksum of the object, as "sha256:…".
        size: The size of the object in bytes.
        manifest: The digest that `headway publish` printed; with it every chunk is verified.
        overwrite: Replace a file that exists. Without it, a file that is verified to be the object
            is left alone, and any other file is an error.
        progress: Called with a snapshot, twice a second at most.
        patience: Seconds without data from any source after which the download fails.
        grace: Seconds for which all sources must say that there is no such object.
        connections: How many to open, all of them to one server if need be. By default 4, and at
            most 2 to one server.
        direct: Download from the origin of a federation, not from its caches.
        should_stop: Called often; the download ends when it returns True.

    Returns:
        The file, and how it was verified.

    Raises:
        NotFoundError: All sources say that there is no such object.
        AccessDeniedError: The sources refuse access, or a token is missing.
        StalledError: No data came for longer than `patience`.
        CorruptError: The data is not what was declared.
        TransferError: The download failed for another reason, or for several.
        NoSpaceError: The disk is full.
        NodeError: The disk fails, or the folder cannot be written to.
        Stopped: `should_stop` returned True.
    """
    begin = time.monotonic()
    grace = min(grace, patience / 2)  # `patience` counts from the start, and would end first
    given = [urls] if isinstance(urls, str) else list(urls)
    _check_urls(given)
    target = target_of(given[0], path)
    if checksum is not None:
        try:
            checksum = checked_checksum(checksum)
        except Wrong as error:
            raise _refusal(f"the checksum {error.what}", error.remedy) from None
    here = _exists(target)
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
        raise _in_the_way(target, "it appeared during the download") from None
    except HeadwayError as error:
        raise _with_remedy(error, target) from None


def put(
    path: AnyPath,
    url: str,
    *,
    overwrite: bool = False,
    progress: Callable[[int, int | None], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Sent:
    """Upload one file, and verify that it has arrived.

    Args:
        path: The file.
        url: Where to upload it; a URL that ends in `/` keeps the file's name.
        overwrite: Replace a file that is there already.
        progress: Called with the bytes that were sent and the total, twice a second at most.
        should_stop: Called often; the upload ends when it returns True.

    Returns:
        What was sent, and how it was verified.

    Raises:
        NotFoundError: There is no such file, or no such place on the server.
        AccessDeniedError: The server refuses access, or a token is missing.
        TransferError: The upload failed for another reason.
        Stopped: `should_stop` returned True.
    """
    path = _checked_path(path)
    _check_urls([url])
    if os.path.exists(path) and not os.path.isfile(path):
        what = "a folder" if os.path.isdir(path) else "not a regular file"
        raise _refusal(f"{path} is {what}", "name a file")
    if not os.path.isfile(path):
        raise NotFoundError(f"{path} does not exist", retryable=False, remedy="name a file")
    to = destination(path, url)
    return _put(path, to, overwrite=overwrite, progress=progress, should_stop=should_stop)


def publish(
    path: AnyPath,
    *,
    chunk_size: int | None = None,
    index: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Published:
    """Write PATH.headway, the manifest with which jobs verify the file.

    Args:
        path: The file.
        chunk_size: The size of the chunks that are verified one by one, in bytes; default: by the
            size of the file.
        index: Record where each member of a tar file is, so that jobs can read it in any order.
        progress: Called with the bytes that were read and the total.

    Returns:
        The manifest's path and its `digest`, which goes into job.toml.

    Raises:
        ManifestError: The file cannot be read, or changes meanwhile.
    """
    file = _checked_path(path)
    return _publish(file, chunk_size=chunk_size, index=index, progress=progress)


def destination(path: AnyPath, url: str) -> str:
    """The URL to which `put` uploads a file."""
    if url.partition("?")[0].endswith("/"):
        return below(url, os.path.basename(os.fspath(path)))
    return url


def target_of(url: str, path: AnyPath | None = None) -> Path:
    """The file that `fetch` writes; in a folder, or without a path, it has the URL's name."""
    _check_urls([url])
    if path is not None and not (os.fspath(path).endswith("/") or os.path.isdir(path)):
        return Path(_checked_path(path))
    name = url_basename(url) or ""
    if name in ("", ".", "..") or not name.isprintable() or len(os.fsencode(name)) > 200:
        what = f"{shown(url)} does not end with the name of a file"
        raise _refusal(what, "give a path with the name of the file")
    return Path(path or "", name)


def left_of(path: Path) -> Path | None:
    """The part of a file from which the same call would continue, if there is one."""
    part = Path(f"{path}{_PART}")
    return part if os.path.exists(f"{part}{_JOURNAL}") and part.is_file() else None


def _refusal(what: str, remedy: str) -> TransferError:
    return TransferError(what, retryable=False, remedy=remedy)


def _checked_path(path: AnyPath) -> str:
    text = os.fspath(path)
    if "\0" in text:
        raise _refusal(f"{text!r} is not a path", "remove the NUL character")
    return text


def _check_urls(given: list[str]) -> None:
    if not given:
        raise _refusal("there is no URL", "name one")
    for url in given:
        if not isinstance(url, str):
            raise _refusal(f"{url!r} is not a URL", "write it as text")
        try:
            _name(url)
        except ValueError as error:
            raise _refusal(str(error), "use https://, osdf:/// or file:///") from None


def _exists(target: Path) -> bool:
    """Whether there is a file already; anything else is never replaced."""
    if not os.path.lexists(target):
        return False
    if not target.is_file():
        raise _refusal(f"{target} is in the way and is not a file", "choose another path")
    return True


def _in_the_way(target: Path, why: str) -> TransferError:
    return _refusal(
        f"{target} is here already, and {why}",
        "choose another path; or use overwrite (--overwrite), which replaces the file once the new"
        " one is complete and verified; or give a checksum to verify the file that is here",
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


def _with_remedy(error: HeadwayError, target: Path) -> HeadwayError:
    """The engine's error, with a remedy for the user of this machine."""
    if isinstance(error, DiskError):
        folder = target.absolute().parent
        error.message = error.message.replace("the node's disk", "the disk")
        with contextlib.suppress(FileNotFoundError):  # the folder itself may be what is gone
            free = format_size(shutil.disk_usage(folder).free)
            error.remedy = f"choose another folder, or make room: {folder} has {free} left"
    remedies = [error.remedy]
    if isinstance(error, TransferError) and error.retryable:
        remedies.append("`headway sources` shows how well each source works right now")
    left = left_of(target)
    if left is not None:
        remedies.append(f"the data stays in {left.name}, and the same call continues from there")
    error.remedy = "; ".join(filter(None, remedies))
    return error
