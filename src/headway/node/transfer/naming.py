"""Names: a finished file gets its own, without taking anybody else's."""

from __future__ import annotations

import contextlib
import os


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
