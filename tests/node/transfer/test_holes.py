"""Parts of a file are given back to the disk, and the rest of it stays."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from headway.node.transfer import part


def test_a_hole_takes_no_room(tmp_path: Path) -> None:
    if not part.can_punch(str(tmp_path)):
        pytest.skip("this file system gives nothing back")
    path = tmp_path / "a"
    path.write_bytes(b"x" * (1 << 20))
    with path.open("r+b") as file:
        os.fsync(file.fileno())
        before = os.fstat(file.fileno()).st_blocks
        part.punch(file.fileno(), 1 << 18, 1 << 19)
        assert os.fstat(file.fileno()).st_blocks <= before - (1 << 19) // 512
    data = path.read_bytes()
    assert data == b"x" * (1 << 18) + bytes(1 << 19) + b"x" * (1 << 18)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_a_file_system_that_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_file: int, _begin: int, _length: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "no")

    monkeypatch.setattr(part, "punch", refuse)
    assert part.can_punch(str(tmp_path)) is False


def test_writeback_is_started_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * (1 << 20))
    with path.open("r+b") as file:
        part.start_writeback(file.fileno(), 1 << 18, 1 << 19)
    assert path.read_bytes() == b"x" * (1 << 20)


def test_a_system_without_early_writeback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Bare:
        def __init__(self, _name: object) -> None:
            pass

    monkeypatch.setattr(part, "_sync_file_range", None)
    monkeypatch.setattr("ctypes.CDLL", Bare)
    path = tmp_path / "a"
    path.write_bytes(b"x")
    with path.open("r+b") as file:
        part.start_writeback(file.fileno(), 0, 1)
        part.start_writeback(file.fileno(), 0, 1)
    assert path.read_bytes() == b"x"
