"""The scratch folder of an attempt: what goes in, comes home, and must not stay behind."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import time
from collections.abc import Iterable
from pathlib import Path

from headway.pool.folder import RunFolder

OUT = "headway-out"


def checkpoint_folder(folder: RunFolder, job: int) -> Path:
    """Where the last good checkpoint of a job is kept."""
    return folder.path / "spool" / str(job)


def save_checkpoint(folder: RunFolder, job: int, scratch: Path) -> None:
    """Keep a copy of the output folder, in which the agent has put the checkpoint."""
    final = checkpoint_folder(folder, job)
    final.mkdir(parents=True, exist_ok=True)
    draft = final / f".{OUT}.new"
    remove_tree(draft)
    shutil.copytree(scratch / OUT, draft, symlinks=True)
    remove_tree(final / f".{OUT}.old")
    if (final / OUT).exists():
        (final / OUT).rename(final / f".{OUT}.old")
    draft.rename(final / OUT)
    remove_tree(final / f".{OUT}.old")


def restore_checkpoint(saved: Path, scratch: Path) -> None:
    """Give a new attempt the last checkpoint (`.old`: a crash came between two renames)."""
    for name in (OUT, f".{OUT}.old"):
        if (saved / name).is_dir():
            shutil.copytree(saved / name, scratch / OUT, symlinks=True)
            return


def bring_home(scratch: Path, home: Path) -> int:
    """Merge a scratch folder's output into `home`; what an earlier attempt left there is kept."""
    size = 0
    out = scratch / OUT
    for folder, subfolders, names in os.walk(out):
        target = home / Path(folder).relative_to(out)
        target.mkdir(parents=True, exist_ok=True)
        for name in [*names, *(s for s in subfolders if (Path(folder) / s).is_symlink())]:
            source = Path(folder) / name
            size += source.lstat().st_size
            source.replace(target / name)
    return size


def kill_strays(scratch: Path) -> None:
    """Kill every process that was started below this scratch folder and still lives."""
    marker = b"\0HEADWAY_SCRATCH=" + os.fsencode(scratch) + b"\0"
    for _ in range(5):
        found = list(_processes_with(marker))
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return
        time.sleep(0.01)


def _processes_with(marker: bytes) -> Iterable[int]:
    try:
        entries = os.listdir("/proc")
    except OSError:
        return  # no /proc on this system: the process group's end has to do
    own = os.getuid()
    for name in entries:
        if not name.isdigit():
            continue
        try:
            if os.stat(f"/proc/{name}").st_uid != own:
                continue
            with open(f"/proc/{name}/environ", "rb") as file:
                if marker in b"\0" + file.read() + b"\0":
                    yield int(name)
        except OSError:
            continue


def remove_tree(path: Path) -> None:
    """Remove a folder even where a command took away its own permissions."""

    def unlock(function: object, name: str, _: object) -> None:
        Path(name).parent.chmod(0o700)
        if Path(name).is_dir() and not Path(name).is_symlink():
            Path(name).chmod(0o700)
            shutil.rmtree(name, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                Path(name).unlink()

    if path.is_dir():
        shutil.rmtree(path, onerror=unlock)


def move_into_place(source: Path, target: Path) -> None:
    """Move a file or folder, also to another disk, so that `target` is whole or not there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    shutil.move(source, draft)
    if target.is_dir() and not target.is_symlink():
        remove_tree(target)
    draft.replace(target)


def link(source: Path, target: Path) -> None:
    """A second name is quicker than a second copy of what may be large."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno == errno.EEXIST:
            return
        shutil.copy2(source, target)


def tree_size(path: Path) -> int:
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(f"{folder}/{name}").st_size
    return total
