"""Placing files: whole or not at all, and never over what is not a report of ours."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from headway.errors import ReportError

#: How many of a file's first bytes may be looked at to tell whose it is.
GLANCE = 4096

Ours = Callable[[Path, bytes], bool]


def check_targets(targets: Sequence[Path], ours: Ours, *, force: bool) -> None:
    """Refuse before anything is written if one of the files is somebody else's."""
    for target in targets:
        if force or not _is_regular(target):
            continue
        try:
            with target.open("rb") as file:
                mine = ours(target, file.read(GLANCE))
        except OSError as error:
            raise _cannot(target, error) from error
        if not mine:
            raise ReportError(
                f"{target} is there already, and no report of ours",
                remedy="name another file, or say --force to replace it",
            )


@contextlib.contextmanager
def placed(target: Path) -> Iterator[Path]:
    """A temporary name to write to; the file gets its own when all of it is there."""
    try:
        if target.is_dir():
            raise ReportError(f"{target} is a folder", remedy="name a file in it")
        if target.exists() and not _is_regular(target):
            yield target  # a device or a pipe is written into, never replaced
            return
        final = target.resolve()  # a link stays one
        handle, name = tempfile.mkstemp(dir=final.parent, prefix=f".{final.name[:80]}.")
        os.close(handle)
    except OSError as error:
        raise _cannot(target, error) from error
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(final)
    except OSError as error:
        raise _cannot(target, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def made_folder(folder: Path) -> Path:
    """The folder, made if it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot(folder, error) from error
    return folder


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _cannot(target: Path, error: OSError) -> ReportError:
    return ReportError(
        f"{target} cannot be written: {error.strerror or error}",
        remedy="is there space and permission, and is the folder there?",
    )
