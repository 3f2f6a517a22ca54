"""The node program, headway-node.pyz: packed, compiled for this Python, and shared by runs."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib.util
import io
import json
import marshal
import os
import stat
import sys
import time
import zipfile
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

import headway.node
from headway.node.files import write_atomically
from headway.pool.folder import check_own, others_can_write

_FOR_COMMANDS = ("checkpoint", "files", "torch")  # what a command may import besides the node half
_YOUNG = 3600.0  # seconds; a newer program may be about to get its first run
PROGRAM = 0o555  # the permissions of a file that runs share
_STAMP = (1980, 1, 1, 0, 0, 0)  # the same sources give the same bytes
# The real headway/__init__.py belongs to the access point and may import anything. Where Headway is
# installed for the command, its other parts are still found, after those of this file.
_INIT = """\
import sys

from headway.node import VERSION as __version__

__path__ += [f"{place}/headway" for place in sys.path if place and not __file__.startswith(place)]
"""
_MAIN = "import sys\n\nfrom headway.node.__main__ import start\n\nstart(sys.argv[1:])\n"


def build_agent(path: Path) -> None:
    """Write headway-node.pyz: a shell stub that finds a Python, then a zip file of the sources."""
    write_atomically(path, _agent_bytes(), 0o755)


def share_agent(path: Path, store: Path) -> None:
    """Give a run its headway-node.pyz: a hard link to a file that the runs share.

    The run keeps it whatever becomes of the store or of other runs. Without hard links (AFS) the
    run gets a copy.
    """
    data = _agent_bytes()
    store.mkdir(mode=0o700, exist_ok=True)
    check_own(store)
    shared = store / f"headway-node-{short_digest(data)}.pyz"
    link_shared(shared, path, lambda: shared.read_bytes() == data, lambda: data)


def link_shared(
    shared: Path, path: Path, is_good: Callable[[], bool], make: Callable[[], bytes]
) -> None:
    """Make `path` a link to `shared`, which is made again where it is missing or damaged."""
    for _ in range(3):
        if not (_is_own(shared) and is_good()):
            write_atomically(shared, make(), PROGRAM)
        try:
            os.link(shared, path, follow_symlinks=False)
            return
        except FileNotFoundError:
            continue  # another process has cleaned up the store
        except OSError:
            break
    write_atomically(path, make(), PROGRAM)


def drop_unused(store: Path, *, act: bool = True) -> int:
    """Remove the programs that no run links to any more; returns their bytes."""
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
    """The digest that is part of a program's file name."""
    return hashlib.sha256(data).hexdigest()[:20]


def _is_own(file: Path) -> bool:
    """Whether a file exists that nobody but this user can have written."""
    try:
        found = file.lstat()
    except OSError:
        return False
    own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
    return own and not others_can_write(found)


def is_agent(path: Path) -> bool:
    """Whether a file is a headway-node.pyz, of this or another version of Headway."""
    first = (Path(headway.node.__path__[0]) / "stub.sh").read_bytes().split(b"\n")[1]
    with path.open("rb") as file:
        return first in file.read(len(first) + 64)


def packed(package: Path) -> list[Path]:
    """The sources that go into headway-node.pyz, below the folder of the package."""
    names = ("node", *_FOR_COMMANDS)
    files = [file for name in names if (file := package / f"{name}.py").is_file()]
    return files + [file for name in names for file in (package / name).rglob("*.py")]


def _agent_bytes() -> bytes:
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
            entry.compress_type = zipfile.ZIP_DEFLATED  # the stub skips a Python without zlib
            file.writestr(entry, sources[name])
    return (root / "stub.sh").read_bytes() + archive.getvalue()


def compile_agent(agent: Path, store: Path) -> Path:
    """A headway-node.pyz that also has modules compiled for this Python; itself if that fails.

    It starts in half the time, and the runs share it as they do the agent itself.
    """
    tag = f"{sys.implementation.cache_tag}{agent.suffix}"
    made = agent.with_name(f"{agent.stem}.{tag}")
    if made.exists():
        return made
    try:
        data = agent.read_bytes()
        shared = store / f"{agent.stem}-{short_digest(data)}.{tag}"
        if store.is_dir():
            link_shared(shared, made, lambda: zipfile.is_zipfile(shared), lambda: _compiled(data))
        else:  # an older Headway made the run, or it was moved
            write_atomically(made, _compiled(data), PROGRAM)
    except (OSError, ValueError, SyntaxError, zipfile.BadZipFile):
        return agent
    return made


@lru_cache(maxsize=1)  # a process that prepares several runs compiles once
def _compiled(data: bytes) -> bytes:
    archive = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as given,
        zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as made,
    ):
        stub = data[: min(entry.header_offset for entry in given.infolist())]
        for entry in given.infolist():
            source = given.read(entry)
            made.writestr(entry, source)
            if entry.filename.endswith(".py"):
                code = compile(source, entry.filename, "exec", dont_inherit=True)
                # the flag 1: Python does not check it against its source
                head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little")
                module = head + importlib.util.source_hash(source) + marshal.dumps(code)
                made.writestr(zipfile.ZipInfo(f"{entry.filename}c"), module)
    return stub + archive.getvalue()


def encoded_row(row: Mapping[str, str]) -> str:
    """A job's row as base64url JSON, which needs no quoting in a submit description."""
    text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode("ascii")
