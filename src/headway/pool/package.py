"""The package: the node half as one file, headway-node.pyz."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import stat
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import headway.node
from headway.pool.folder import write_atomically
from headway.pool.owners import check_own, others_can_write

# what a command may import beside the node half itself: files and folders of the package
_FOR_COMMANDS = ("checkpoint", "files", "torch")
_YOUNG = 3600.0  # seconds; a program as new as that may be about to get its first run
PROGRAM = 0o555  # the permissions of a file that runs share
_STAMP = (1980, 1, 1, 0, 0, 0)  # the same sources give the same bytes
# the real headway/__init__.py belongs to the access point and may import anything. Where a command
# has a whole Headway installed, its other parts are still found, behind those of this file.
_INIT = """\
import sys

from headway.node.version import VERSION as __version__

__path__ += [f"{place}/headway" for place in sys.path if place and not __file__.startswith(place)]
"""
_MAIN = "import sys\n\nfrom headway.node.__main__ import start\n\nstart(sys.argv[1:])\n"


def build_agent(path: Path) -> None:
    """Write headway-node.pyz: a shell stub that finds a Python, then a zip file of the sources."""
    write_atomically(path, _bytes(), 0o755)


def share_agent(path: Path, store: Path) -> None:
    """Give a run its headway-node.pyz: a name of its own for a file that the runs share.

    A hard link costs nothing, and a run's program stays whatever becomes of the store or of other
    runs. Where there are no hard links (AFS) the run gets a copy.
    """
    data = _bytes()
    store.mkdir(mode=0o700, exist_ok=True)
    check_own(store)
    shared = store / f"headway-node-{short_digest(data)}.pyz"
    link_shared(shared, path, lambda: shared.read_bytes() == data, lambda: data)


def link_shared(
    shared: Path, path: Path, is_good: Callable[[], bool], make: Callable[[], bytes]
) -> None:
    """Make `path` another name of `shared`, which is made anew where it is missing or damaged."""
    for _ in range(3):
        if not (_is_own(shared) and is_good()):
            write_atomically(shared, make(), PROGRAM)
        try:
            os.link(shared, path, follow_symlinks=False)
            return
        except FileNotFoundError:
            continue  # somebody has tidied up the store
        except OSError:
            break
    write_atomically(path, make(), PROGRAM)


def drop_unused(store: Path, *, act: bool = True) -> int:
    """Remove the programs that no run has a name for; returns their bytes.

    A run that takes one at this moment has its own name for it, or makes it again.
    """
    freed = 0
    for file in store.glob("*headway-node*") if store.is_dir() else ():
        with contextlib.suppress(OSError):
            found = file.lstat()
            if found.st_nlink == 1 and time.time() - found.st_mtime > _YOUNG:
                freed += found.st_size
                if act:
                    file.unlink()
    return freed


def short_digest(data: bytes) -> str:
    """What tells one program from another in a file name."""
    return hashlib.sha256(data).hexdigest()[:20]


def _is_own(file: Path) -> bool:
    """Whether a file is there that nobody but this user can have written."""
    try:
        found = file.lstat()
    except OSError:
        return False
    return (
        stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not others_can_write(found)
    )


def is_agent(path: Path) -> bool:
    """Whether a file is a headway-node.pyz, of this Headway or another."""
    first = (Path(headway.node.__path__[0]) / "stub.sh").read_bytes().split(b"\n")[1]
    with path.open("rb") as file:
        return first in file.read(len(first) + 64)


def packed(package: Path) -> list[Path]:
    """The sources that go into headway-node.pyz, below the folder of the package."""
    return [
        file
        for name in ("node", *_FOR_COMMANDS)
        for file in (
            (package / name).rglob("*.py")
            if (package / name).is_dir()
            else [package / f"{name}.py"]
        )
    ]


def _bytes() -> bytes:
    root = Path(headway.node.__path__[0])
    sources = {
        f"headway/{file.relative_to(root.parent).as_posix()}": file.read_bytes()
        for file in packed(root.parent)
    }
    sources["headway/__init__.py"] = _INIT.encode()
    sources["__main__.py"] = _MAIN.encode()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for name in sorted(sources):
            entry = zipfile.ZipInfo(name, _STAMP)
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            # the stub passes over a Python that lacks zlib
            entry.compress_type = zipfile.ZIP_DEFLATED
            file.writestr(entry, sources[name])
    return (root / "stub.sh").read_bytes() + archive.getvalue()
