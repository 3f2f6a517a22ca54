"""A small tar file of class tars, and what a decoder makes of its members."""

from __future__ import annotations

import importlib.util
import resource
from pathlib import Path
from typing import Any

import pytest
from tests.node.transfer.made_tars import make_nested

from headway.node.transfer.manifest import make_manifest

collect_ignore_glob = ["test_*.py"] if importlib.util.find_spec("torch") is None else []

CHUNK = 1 << 16
CLASSES, EACH = 6, 40
COUNT = CLASSES * EACH


def sample(label: int, number: int) -> bytes:
    return f"{label * EACH + number}/".encode() + bytes(3000 + number * 50)


def decode(data: bytes) -> int:
    return int(data.partition(b"/")[0])


def strict(data: bytes) -> int:
    """As decode, but of some samples it makes nothing."""
    if decode(data) % 60 == 7:
        raise ValueError("no JPEG")
    return decode(data)


def large(_: bytes) -> bytearray:
    return bytearray(1 << 18)


def faults_so_far(_: list[Any]) -> int:
    """How often this process had to ask for a page of memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


CONTENT = make_nested(
    {f"n{c}": {f"{i}.bin": sample(c, i) for i in range(EACH)} for c in range(CLASSES)}
)


def write(path: Path, content: bytes = CONTENT, *, manifest: bool = True) -> Path:
    path.write_bytes(content)
    if manifest:
        Path(f"{path}.headway").write_bytes(make_manifest(str(path), chunk_size=CHUNK))
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "train.tar")
