"""The package: the node half as one file, headway-node.pyz."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import headway.node

# what a command may import beside the node half itself: files and folders of the package
_FOR_COMMANDS = ("checkpoint", "files", "torch")
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
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(_bytes())
        temporary.chmod(0o755)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


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
