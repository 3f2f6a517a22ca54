"""Names: a finished file gets its own, without taking anybody else's, and whose a found one is."""

from __future__ import annotations

import contextlib
import os
import stat


def name_new(part: str, path: str) -> None:
    """Give the file its name; FileExistsError where the name is taken."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            raise FileExistsError(path) from None
        os.replace(part, path)


def settle(folder: str) -> None:
    """Let a new name survive a crash, where the file system allows that."""
    with contextlib.suppress(OSError):
        handle = os.open(folder or os.curdir, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def create_new(path: str) -> int:
    """Open a new file for this user alone; what has the name, or a link, is taken away first."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return os.open(path, flags, 0o600)


def planted(status: os.stat_result, *, by_root: bool = False) -> str:
    """Why a file that was found is not to be relied upon, in words; "": it is this user's alone.

    `by_root`: the system may have put it there, too.
    """
    owners = (os.geteuid(), 0) if by_root else (os.geteuid(),)
    if status.st_uid not in owners:
        return f"belongs to another user ({status.st_uid})"
    if status.st_mode & stat.S_IWOTH:
        return "can be written to by every user of this machine"
    return ""
