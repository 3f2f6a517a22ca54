"""The scratch folder of an attempt: what goes in, comes home, and must not stay behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path

from headway.node.checkpoint import copy_file
from headway.pool.folder import RunFolder

OUT = "headway-out"
_CHECKPOINT = "checkpoint"  # in the output folder; it is kept in the spool and goes no further
_SMALL = 16 * 2**20


def checkpoint_folder(folder: RunFolder, job: int) -> Path:
    """Where the last good checkpoint of a job is kept until the job is over."""
    return folder.path / "spool" / str(job)


def has_checkpoint(scratch: Path) -> bool:
    """Whether the agent has left a whole one; while it makes one, `.new` lies beside it."""
    made = scratch / OUT / _CHECKPOINT
    return made.is_dir() and not made.with_name(f"{_CHECKPOINT}.new").exists()


def save_checkpoint(folder: RunFolder, job: int, scratch: Path) -> None:
    """Keep a copy of the output folder, in which the agent has put the checkpoint."""
    final = checkpoint_folder(folder, job)
    draft, old = final / f".{OUT}.new", final / f".{OUT}.old"
    remove_tree(draft)
    try:
        final.mkdir(parents=True, exist_ok=True)
        shutil.copytree(scratch / OUT, draft, symlinks=True, copy_function=copy_file)
        if (final / OUT).exists():
            remove_tree(old)
            (final / OUT).rename(old)
        draft.rename(final / OUT)
    finally:
        remove_tree(draft)
    remove_tree(old)


def restore_checkpoint(saved: Path, scratch: Path) -> None:
    """Give a new attempt the last checkpoint (`.old`: a crash came between two renames)."""
    for name in (OUT, f".{OUT}.old"):
        if (saved / name).is_dir():
            shutil.copytree(saved / name, scratch / OUT, symlinks=True, copy_function=copy_file)
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
    """Move a file or folder, also to another disk, so that `target` is whole or not there.

    The same `tag` finds and replaces what a move that was cut off has left.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".headway-{tag}.part")
    discard(draft)
    shutil.move(source, draft)
    if target.is_dir() and not target.is_symlink():
        remove_tree(target)
    draft.replace(target)


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
