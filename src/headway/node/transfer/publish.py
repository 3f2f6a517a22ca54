"""Publishing: the manifest of a file, put beside it under its own name, whole or not at all."""

from __future__ import annotations

import contextlib
import os

from headway.node.transfer.manifest import (
    SUFFIX,
    Manifest,
    ManifestError,
    digest_of,
    looks_like_manifest,
    read_manifest,
)
from headway.node.transfer.naming import name_new, settle
from headway.node.transfer.survey import survey

_COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".txz", ".tar.zst")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Published:
    """A manifest that lies beside its object."""

    def __init__(self, path: str, data: bytes, notes: list[str]) -> None:
        self.path = path
        self.digest = digest_of(data)  # what job.toml pins
        self.bytes = len(data)
        self.manifest: Manifest = read_manifest(data, pin=self.digest)
        self.notes = notes  # what the publisher should know of the object


def publish(
    path: str,
    *,
    chunk_size: int | None = None,
    index: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Published:
    """Write PATH.headway; an older manifest is replaced, a file that is none never is."""
    path = os.fspath(path)
    target = path + SUFFIX
    if path.endswith(SUFFIX):
        raise ManifestError(
            f"{os.path.basename(path)} is itself a manifest by its name",
            remedy=f"publish {os.path.basename(path)[: -len(SUFFIX)]}",
        )
    is_new = _is_free(target)
    _check_folder(target)
    found = survey(path, progress, chunk_size=chunk_size, index=index)
    notes = []
    if found.tar is not None:
        if not found.tar.end_mark:
            notes.append("it has no end mark, as a tar file that was cut short; look whether it is")
        if found.tar.members.left_out:
            count = found.tar.members.left_out
            notes.append(f"{count} members are not in the index: their names lead out of a folder")
    elif index and path.lower().endswith(_COMPRESSED):
        notes.append("it is compressed, so that its members cannot be indexed; a plain tar can")
    data = found.manifest()
    published = Published(target, data, notes)  # what is handed out must be good
    _put(data, target, is_new)
    return published


def _is_free(target: str) -> bool:
    """Whether there is nothing at the target; a file that is no manifest stays."""
    if not os.path.lexists(target):
        return True
    try:
        if os.path.islink(target) or not os.path.isfile(target):
            raise _foreign(target)
        with open(target, "rb") as file:
            if not looks_like_manifest(file.read(64)):
                raise _foreign(target)
    except OSError as error:
        raise _unwritable(target, error) from None
    return False


def _check_folder(target: str) -> None:
    """Say before the pass over the file, not after it, that the manifest cannot be written."""
    folder = os.path.dirname(target) or os.curdir
    if os.path.isdir(folder) and not os.access(folder, os.W_OK | os.X_OK):
        raise ManifestError(
            f"{os.path.basename(target)} cannot be written: {folder} is not yours to write to",
            remedy="publish a copy or a link to it in a folder of yours",
        )


def _put(data: bytes, target: str, is_new: bool) -> None:
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name}.{os.urandom(4).hex()}")
    try:
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(file, left) :]
            os.fsync(file)
        finally:
            os.close(file)
        if is_new:
            name_new(temporary, target)
        else:
            os.replace(temporary, target)
        settle(folder)
    except FileExistsError:
        raise _foreign(target) from None
    except OSError as error:
        raise _unwritable(target, error) from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _foreign(target: str) -> ManifestError:
    return ManifestError(
        f"{os.path.basename(target)} exists and is not a manifest of Headway's",
        remedy="move it away; it is not touched",
    )


def _unwritable(target: str, error: OSError) -> ManifestError:
    return ManifestError(f"{os.path.basename(target)} cannot be written: {error.strerror}")
