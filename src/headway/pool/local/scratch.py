"""The scratch folder of an attempt: what goes in, comes home, and must not stay behind."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from pathlib import Path

from headway.node.checkpoint import copy_file, find
from headway.pool.folder import RunFolder

OUT = "headway-out"
_CHECKPOINT = "checkpoint"  # in the output folder; it is kept in the spool and goes no further
_SMALL = 16 * 2**20


def checkpoint_folder(folder: RunFolder, job: int) -> Path:
    """Where the last good checkpoint of a job is kept until the job is over."""
    return folder.path / "spool" / str(job)


def has_checkpoint(scratch: Path) -> bool:
    """Whether the agent has left a complete one."""
    return find(str(scratch / OUT / _CHECKPOINT)) is not None


def save_checkpoint(folder: RunFolder, job: int, scratch: Path, *, move: bool = False) -> None:
    """Keep a copy of the checkpoint that the agent has put into its output folder.

    A copy, because the command goes on to write to those files; `move` where none will.
    """
    made = scratch / OUT / _CHECKPOINT
    final = checkpoint_folder(folder, job)
    draft, old = final / f".{_CHECKPOINT}.new", final / f".{OUT}.old"
    for place in (final.parent, final):
        place.mkdir(
            0o700, parents=True, exist_ok=True
        )  # what is in it becomes the state of the next attempt
    remove_tree(draft)
    try:
        if not move:
            shutil.copytree(made, draft, symlinks=True, copy_function=copy_file)
        if (final / OUT / _CHECKPOINT).is_dir():
            remove_tree(old)
            (final / OUT).rename(old)
        (final / OUT).mkdir(exist_ok=True)
        (made if move else draft).rename(final / OUT / _CHECKPOINT)
    finally:
        remove_tree(draft)
    remove_tree(old)


def restore_checkpoint(saved: Path, scratch: Path) -> None:
    """Give a new attempt the last checkpoint (`.old`: a crash came between two renames)."""
    for name in (OUT, f".{OUT}.old"):
        if (saved / name / _CHECKPOINT).is_dir():
            given = scratch / OUT
            shutil.copytree(saved / name, given, symlinks=True, copy_function=copy_file)
            return


def bring_home(scratch: Path, home: Path) -> int:
    """Merge a scratch folder's output into `home`; returns its bytes.

    What an earlier attempt left there is kept, and asking again after a crash brings the rest.
    """
    out = scratch / OUT
    if not out.is_dir():
        return 0
    for name in (_CHECKPOINT, f"{_CHECKPOINT}.new"):
        remove_tree(out / name)
    size = tree_size(out)
    home.mkdir(parents=True, exist_ok=True)
    for entry in os.listdir(out):
        _merge(out / entry, home / entry)
    return size


def _merge(source: Path, target: Path) -> None:
    """Move a file or folder; two folders become one, anything else is replaced."""
    folder = source.is_dir() and not source.is_symlink()
    if folder and target.is_dir() and not target.is_symlink():
        _open(source)
        for entry in os.listdir(source):
            _merge(source / entry, target / entry)
        return
    if os.path.lexists(target) and (folder or target.is_dir()):
        discard(target)
    if folder:
        _open(source)  # to move a folder one must be allowed to write into it
    source.rename(target)


def _open(folder: Path) -> None:
    mode = folder.stat().st_mode
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        folder.chmod(stat.S_IMODE(mode) | stat.S_IRWXU)


def discard(path: Path) -> None:
    """Remove a file, a link or a folder."""
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)


def remove_tree(path: Path) -> None:
    """Remove a folder, as far as possible, even where a command took away its own permissions."""

    def unlock(_function: object, name: str, _error: object) -> None:
        found = Path(name)
        with contextlib.suppress(OSError):
            found.parent.chmod(0o700)
            if found.is_dir() and not found.is_symlink():
                found.chmod(0o700)
                shutil.rmtree(name, ignore_errors=True)
            else:
                found.unlink()

    # `name` may itself be what could not be opened: a second walk finds what the first unlocked.
    for _ in range(2):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, onerror=unlock)


def move_into_place(source: Path, target: Path, tag: str) -> None:
    """Move a file or folder, also to another disk, so that at any moment one of the two is whole.

    The same `tag` finds and replaces what a move that was cut off has left.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".headway-{tag}.part")
    discard(draft)
    try:
        _put(source, target)
        return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    try:
        if source.is_dir() and not source.is_symlink():
            shutil.copytree(source, draft, symlinks=True)
        else:
            shutil.copy2(source, draft, follow_symlinks=False)
        _put(draft, target)
    finally:
        discard(draft)
    discard(source)


def _put(source: Path, target: Path) -> None:
    if source.is_dir() or target.is_dir():
        discard(target)  # only files replace files in one step
    source.replace(target)


def give(source: Path, target: Path) -> None:
    """A copy of a file for an attempt; of a large one a second name, which must do."""
    if source.stat().st_size <= _SMALL:
        copy_file(str(source), str(target))
        return
    try:
        os.link(source, target)
    except OSError:
        copy_file(str(source), str(target))


def tree_size(path: Path) -> int:
    """The bytes of all files below a folder."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(f"{folder}/{name}").st_size
    return total
