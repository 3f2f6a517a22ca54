"""The checkpoint: a snapshot of its paths in the output folder, from which any node can continue.

On an eviction HTCondor saves the output folder and nothing else, so the checkpoint is part of it.
The agent may be killed, and the folder copied, at any time. So each snapshot has a folder of its
own, `checkpoint/NUMBER-RANDOM`, and its manifest is written last: a snapshot is complete when each
file that its manifest names is there in full length. Only then are older ones deleted. A copy that
lacks a file is never restored.

The snapshot is made of hard links, which costs nothing. Before the command runs again its files get
blocks of their own: a command that is killed while it writes must not damage the last good one.
"""

from __future__ import annotations

import json
import os
import re
import stat

from headway.node.plan import OUT
from headway.node.record import write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FOLDER = f"{OUT}/checkpoint"
_OLD_DRAFT = f"{FOLDER}.new"  # of an earlier Headway, for which FOLDER itself was the snapshot
_MANIFEST, _FILES, _OLD = "manifest.json", "files", ".old"
_NAME = re.compile(r"[0-9]+-[0-9a-f]{6}", re.ASCII)
_FORMAT = 1
_CLONE = 0x40049409  # Linux: FICLONE, both files share their blocks until one is written


class CheckpointFiles:
    """A complete snapshot: its folder, and the names of its folders and files."""

    def __init__(self, place: str, folders: list[str], files: list[str]) -> None:
        self.place, self.folders, self.files = place, folders, files

    def below(self, path: str) -> CheckpointFiles:
        """The part that belongs to one path."""
        both = (self.folders, self.files)
        parts = ([n for n in names if n == path or n.startswith(f"{path}/")] for names in both)
        return CheckpointFiles(self.place, *parts)


def find(folder: str = FOLDER) -> CheckpointFiles | None:
    """The newest complete snapshot in `headway-out/checkpoint`, or in a copy of it."""
    names = _listed(folder)
    for name in sorted(filter(_NAME.fullmatch, names), key=_number, reverse=True):
        snapshot = _read(os.path.join(folder, name))
        if snapshot is not None:
            return snapshot
    rest = [name for name in names if not _NAME.match(name)]
    if rest and not os.path.lexists(f"{folder}.new"):
        return _walk(folder, rest)
    return None


def save(paths: list[str], problem: Callable[[str], None]) -> None:
    """Take a snapshot of `paths`; if that fails, the one before it is still there.

    `problem` is called with a message about what could not be included or deleted.
    """
    root = os.path.realpath(os.curdir)
    before = _listed(FOLDER)
    number = max(map(_number, filter(_NAME.fullmatch, before)), default=0) + 1
    made = os.path.join(FOLDER, f"{number}-{os.urandom(3).hex()}")
    taken = CheckpointFiles(os.path.join(made, _FILES), [], [])
    try:
        os.makedirs(taken.place)
        for path in sorted(paths):  # a folder comes before the paths below it
            target = os.path.join(taken.place, path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if not os.path.lexists(target):
                _link(path, taken, root, [], problem)
        sizes = {name: os.lstat(os.path.join(taken.place, name)).st_size for name in taken.files}
        manifest = {"format": _FORMAT, "folders": taken.folders, "files": sizes}
        write_json(os.path.join(made, _MANIFEST), manifest)
    except OSError:
        _forget([os.path.basename(made)], problem)
        raise
    _forget([*before, os.path.relpath(_OLD_DRAFT, FOLDER)], problem)


def restore(
    paths: list[str], check: Callable[[], None], problem: Callable[[str], None]
) -> list[str]:
    """Restore those of `paths` that are missing, and give the snapshot blocks of its own.

    Returns the restored paths. `check` is called often, and raises if the attempt must end.
    """
    snapshot = find()
    if snapshot is None:
        if os.listdir(FOLDER):
            problem("the checkpoint that came here is not complete; the command starts over")
        discard(FOLDER)
        discard(_OLD_DRAFT)
        return []
    own = os.path.relpath(snapshot.place, FOLDER).split("/")[0]
    left = [name for name in _listed(FOLDER) if name != own]  # by a kill
    _forget([name for name in left if own != os.curdir or _NAME.match(name)], problem)
    restored = []
    for path in sorted(paths):
        part = snapshot.below(path)
        if not part.files and not part.folders:
            continue
        if os.path.lexists(path):
            for name in part.files:
                check()
                _unshare(os.path.join(part.place, name))
        else:
            _copy(part, path, check)
            restored.append(path)
    return restored


def discard(path: str = FOLDER) -> None:
    """Remove a file or folder if it exists; by default all snapshots."""
    if os.path.isdir(path) and not os.path.islink(path):
        import shutil

        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def copy_file(source: str, target: str) -> None:
    """Copy one file with its mode and times; shares blocks if the file system can."""
    import shutil

    try:
        import fcntl

        with open(source, "rb") as giver, open(target, "wb") as taker:
            fcntl.ioctl(taker.fileno(), _CLONE, giver.fileno())
    except (ImportError, OSError):
        shutil.copyfile(source, target)
    shutil.copystat(source, target)


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _forget(names: list[str], problem: Callable[[str], None]) -> None:
    """Delete older snapshots.

    Each is renamed first, in case somebody is copying the folder: then all of it is missing, and
    the copy fails. In a folder that is being emptied, missing files would go unnoticed.
    """
    for name in names:
        path = os.path.join(FOLDER, name)
        try:
            if _NAME.fullmatch(name):
                os.rename(path, f"{path}{_OLD}")
                path += _OLD
            discard(path)
        except OSError as error:
            problem(f"{path} could not be deleted: {error.strerror}")


def _number(name: str) -> int:
    return int(name.partition("-")[0])


def _walk(place: str, names: Iterable[str]) -> CheckpointFiles:
    """The snapshot of an earlier Headway, which had no manifest."""

    def refuse(error: OSError) -> None:
        raise error

    found = CheckpointFiles(place, [], [])
    for name in names:
        path = os.path.join(place, name)
        if not os.path.isdir(path):
            found.files.append(name)
            continue
        found.folders.append(name)
        for folder, folders, files in os.walk(path, onerror=refuse):
            here = os.path.relpath(folder, place)
            found.folders += [os.path.join(here, each) for each in folders]
            found.files += [os.path.join(here, each) for each in files]
    return found


def _read(made: str) -> CheckpointFiles | None:
    """The snapshot, if all files in its manifest exist; a transfer may leave out empty folders."""
    place = os.path.join(made, _FILES)
    try:
        with open(os.path.join(made, _MANIFEST), encoding="utf-8") as file:
            manifest = json.load(file)
        folders, sizes = list(manifest["folders"]), dict(manifest["files"])
        if manifest["format"] != _FORMAT or not all(map(_inside, [*folders, *sizes])):
            return None
        for name, size in sizes.items():
            found = os.lstat(os.path.join(place, name))
            if not stat.S_ISREG(found.st_mode) or found.st_size != size:
                return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return CheckpointFiles(place, folders, list(sizes))


def _inside(name: object) -> bool:
    return (
        isinstance(name, str)
        and os.path.normpath(name) == name
        and not name.startswith("/")
        and name.split("/")[0] != ".."
    )


def _link(
    source: str, taken: CheckpointFiles, root: str, above: list[str], problem: Callable[[str], None]
) -> None:
    """Hard-link all files below `source`; symbolic links are followed, but not outside."""
    place = os.path.realpath(source)
    if not place.startswith(f"{root}/") or not os.path.exists(place) or place in above:
        problem(f"{source} leads nowhere, out of the job's folder or back; not in the checkpoint")
        return
    mode, target = os.stat(place).st_mode, os.path.join(taken.place, source)
    if stat.S_ISDIR(mode):
        os.makedirs(target)
        taken.folders.append(source)
        for name in sorted(os.listdir(place)):
            _link(os.path.join(source, name), taken, root, [*above, place], problem)
    elif stat.S_ISREG(mode):
        try:
            os.link(place, target)
        except OSError:  # a file system without hard links, or another one
            copy_file(place, target)
        taken.files.append(source)
    else:
        problem(f"{source} is neither a file nor a folder; not in the checkpoint")


def _unshare(path: str) -> None:
    if os.lstat(path).st_nlink > 1:
        copy_file(path, f"{path}.headway-part")
        os.replace(f"{path}.headway-part", path)


def _copy(part: CheckpointFiles, path: str, check: Callable[[], None]) -> None:
    """Copy a path out of the snapshot; it gets its own name only when it is complete."""
    draft = f"{path}.headway-part"
    discard(draft)
    os.makedirs(os.path.dirname(path) or os.curdir, exist_ok=True)
    for name in part.folders:
        os.makedirs(draft + name[len(path) :], exist_ok=True)
    for name in part.files:
        check()
        copy_file(os.path.join(part.place, name), draft + name[len(path) :])
    os.rename(draft, path)
