"""file:// targets: a folder of the node, or one that the node shares with others."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from urllib.parse import unquote, urlsplit

from headway.node.locks import Lock, lock
from headway.node.transfer.naming import name_new, planted, settle
from headway.node.transfer.source import Fault
from headway.node.transfer.target import FULL, Pace, Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from headway.node.transfer.target import Progress

_CHUNK = 1 << 20


class FileTarget(Target):
    """A file here."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._path = unquote(urlsplit(url).path)

    def put(
        self,
        path: str,
        size: int,
        overwrite: bool,
        again: bool,
        progress: Progress | None,
        should_stop: Callable[[], bool],
    ) -> None:
        folder = os.path.dirname(self._path)
        pace = Pace(progress, should_stop)
        if not overwrite and os.path.lexists(self._path):
            raise exists()
        try:
            os.makedirs(folder, exist_ok=True)
            with open(path, "rb") as source, _part(self._path, path) as (target, part):
                done = 0
                while piece := source.read(_CHUNK):
                    target.write(piece)
                    done += len(piece)
                    pace.step(done, size)
                target.flush()
                os.fsync(target.fileno())  # a full or lost disk may speak up only now
                there = os.fstat(target.fileno()).st_size
                if done != size or there != size:
                    words = f"{there} of {size} bytes are there after the copy"
                    raise Fault(words, phase="verify")
                if overwrite:
                    os.replace(part, self._path)
                else:
                    name_new(part, self._path)
            settle(folder)
            self.proof = "size"
        except FileExistsError:
            raise exists() from None
        except OSError as error:
            full = "there is no room left" if error.errno in FULL else str(error.strerror)
            raise Fault(full, phase="disk") from None


@contextlib.contextmanager
def _part(target: str, source: str) -> Iterator[tuple[BinaryIO, str]]:
    """A new file beside the target, which is removed unless it has got another name.

    It has the same name at each try of the same file, so that what a killed one has left is
    overwritten; where somebody else may be at work on that, it has a name of its own.
    """
    folder, name = os.path.split(target)
    mark = hashlib.sha256(os.fsencode(os.path.abspath(source))).hexdigest()[:8]
    part = os.path.join(folder, f".{name}.{mark}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    file = os.open(part, flags, 0o666)
    held = _alone(file, part)
    if held is None:
        os.close(file)
        part = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.part")
        file = os.open(part, flags | os.O_EXCL, 0o666)
    try:
        with open(file, "wb") as stream:
            stream.truncate()
            try:
                yield stream, part
            finally:
                if held is not None:
                    held.release()
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)


def _alone(file: int, part: str) -> Lock | None:
    """A lock, if the file still has this name and nobody else writes it."""
    try:
        held = lock(file)
        about, named = os.fstat(file), os.lstat(part)
    except OSError:
        return None
    plain = stat.S_ISREG(about.st_mode) and not planted(about)
    if plain and about.st_ino == named.st_ino and about.st_nlink == 1:
        return held
    held.release()
    return None


def exists() -> Fault:
    """The refusal to replace what somebody has left there."""
    return Fault(
        "something lies there already",
        retryable=False,
        remedy="remove it, choose another `to`, or say overwrite = true for this output",
    )
