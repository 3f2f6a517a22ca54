"""The checkpoint: a snapshot of its paths in the output folder, from which any node can go on.

On an eviction HTCondor saves the output folder and nothing else, so the checkpoint travels in it.
The snapshot is made of hard links, which costs nothing. Before the command runs again its files get
blocks of their own: a command that is cut off while it writes must not spoil the last good one.
"""

from __future__ import annotations

import os
import stat

from headway.node.plan import OUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = f"{OUT}/checkpoint"
_DRAFT = f"{OUT}/checkpoint.new"
_CLONE = 0x40049409  # Linux: FICLONE, the same blocks for both until one of them is written


def save(paths: list[str], problem: Callable[[str], None]) -> None:
    """Take the snapshot; the one before it stays until this one is complete."""
    root = os.path.realpath(os.curdir)
    discard(_DRAFT)
    for path in paths:
        target = os.path.join(_DRAFT, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.lexists(target):  # it is there when a folder above it is a path as well
            _link(path, target, root, [], problem)
    discard(FOLDER)
    os.rename(_DRAFT, FOLDER)


def restore(paths: list[str], check: Callable[[], None]) -> list[str]:
    """Put back what is missing here, and set the snapshot apart from what is not."""
    restored = []
    discard(_DRAFT)
    for path in paths:
        kept = os.path.join(FOLDER, path)
        if not os.path.exists(kept):
            continue
        if os.path.lexists(path):
            for folder, name in _files(kept):
                check()
                _unshare(os.path.join(folder, name))
        else:
            _copy(kept, path, check)
            restored.append(path)
    return restored


def discard(folder: str = FOLDER) -> None:
    """Forget a snapshot: the job has ended, one way or the other."""
    if os.path.lexists(folder):
        import shutil

        shutil.rmtree(folder)


def _link(
    source: str, target: str, root: str, above: list[str], problem: Callable[[str], None]
) -> None:
    """Hard links to all files below `source`; symbolic links are followed, but not outside."""
    place = os.path.realpath(source)
    if not place.startswith(f"{root}/") or not os.path.exists(place) or place in above:
        problem(f"{source} leads nowhere, out of the job's folder or back; not in the checkpoint")
        return
    mode = os.stat(place).st_mode
    if stat.S_ISDIR(mode):
        os.makedirs(target)
        for name in sorted(os.listdir(place)):
            inner = os.path.join(source, name)
            _link(inner, os.path.join(target, name), root, [*above, place], problem)
    elif stat.S_ISREG(mode):
        try:
            os.link(place, target)
        except OSError:  # a file system without hard links, or another one
            copy_file(place, target)
    else:
        problem(f"{source} is neither a file nor a folder; not in the checkpoint")


def _unshare(path: str) -> None:
    if os.lstat(path).st_nlink > 1:
        copy_file(path, f"{path}.headway-part")
        os.replace(f"{path}.headway-part", path)


def _copy(source: str, target: str, check: Callable[[], None]) -> None:
    """Copy; under its own name it appears only when it is complete."""
    part = f"{target}.headway-part"
    discard_any(part)
    os.makedirs(os.path.dirname(target) or os.curdir, exist_ok=True)
    if os.path.isdir(source):
        os.makedirs(part)
        for folder, subfolders, names in os.walk(source):
            here = os.path.join(part, os.path.relpath(folder, source))
            for name in subfolders:
                os.makedirs(os.path.join(here, name))
            for name in names:
                check()
                copy_file(os.path.join(folder, name), os.path.join(here, name))
    else:
        copy_file(source, part)
    os.rename(part, target)


def copy_file(source: str, target: str) -> None:
    """Copy one file with its mode and times, by sharing blocks where the file system can."""
    import shutil

    try:
        import fcntl

        with open(source, "rb") as giver, open(target, "wb") as taker:
            fcntl.ioctl(taker.fileno(), _CLONE, giver.fileno())
    except (ImportError, OSError):
        shutil.copyfile(source, target)
    shutil.copystat(source, target)


def discard_any(path: str) -> None:
    """Remove a file or a folder, if it is there."""
    if os.path.isdir(path) and not os.path.islink(path):
        discard(path)
    elif os.path.lexists(path):
        os.unlink(path)


def _files(path: str) -> list[tuple[str, str]]:
    if not os.path.isdir(path):
        return [os.path.split(path)]
    return [(folder, name) for folder, _, names in os.walk(path) for name in names]
