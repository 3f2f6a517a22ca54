"""Disks that are full or cannot be written."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

from headway.checkpoint import Checkpoint, CheckpointError
from headway.collect import ledger
from headway.errors import CollectError

from .conftest import Chirp, Node, Web


@pytest.fixture
def small(tmp_path: Path, pyz: Path, chirp: Chirp) -> Iterator[Node]:
    """A node whose scratch folder is a file system of 2 MB."""
    if os.getuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount: {mounted.stderr.decode().strip()}")
    try:
        yield Node(folder, pyz, chirp)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_an_input_that_does_not_fit(small: Node, web: Web) -> None:
    web.files["data"] = b"x" * 4_000_000
    small.plan(["true"], inputs=[{"urls": [web.url("data")], "path": "data"}])
    assert small.run() == 80
    assert "disk is full" in small.stderr
    assert small.record()["exit"] == 80
    assert not list(small.folder.glob("data*"))


def test_a_declared_size_that_does_not_fit_is_known_at_once(small: Node, web: Web) -> None:
    small.plan(["true"], inputs=[{"urls": [web.url("d")], "path": "d", "size": 4_000_000}])
    assert small.run() == 80
    assert "bytes are free" in small.stderr
    assert web.requests == []


def test_a_command_that_fills_the_disk(small: Node) -> None:
    small.plan("dd if=/dev/zero of=big bs=64k 2>/dev/null; exit 4", outputs=[{"path": "big"}])
    assert small.run() == 83
    assert "Traceback" not in small.stderr
    record = small.record()
    assert (record["exit"], record["command"]["status"]) == (83, 4)
    assert len(record["nonce"]) == 16


def test_outputs_are_moved_on_a_full_disk(small: Node) -> None:
    small.plan("dd if=/dev/zero of=big bs=64k 2>/dev/null; true", outputs=[{"path": "big"}])
    assert small.run() == 0, small.stderr
    assert (small.folder / "headway-out/outputs/big").stat().st_size > 1_000_000


def test_a_payload_that_does_not_fit(small: Node, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 3_000_000)
    archive = tmp_path / "p.tar"
    subprocess.run(["tar", "cf", str(archive), "-C", str(tmp_path), "file"], check=True)
    (small.folder / "payload.tar").symlink_to(archive)
    small.plan(["true"], payload="payload.tar")
    assert small.run() == 80
    assert "disk is full" in small.stderr


def test_a_disk_that_is_full_from_the_start(small: Node) -> None:
    small.plan(["true"])
    with (small.folder / "filler").open("wb") as file, pytest.raises(OSError):
        while True:
            file.write(b"x" * 65536)
            file.flush()
    assert small.run() == 80
    assert "Traceback" not in small.stderr
    assert small.stderr


def test_a_folder_that_cannot_be_written(small: Node) -> None:
    small.plan(["true"])
    subprocess.run(["mount", "-o", "remount,ro", str(small.folder)], check=True)
    assert small.run() == 80
    assert "headway-out/ cannot be made" in small.stderr
    assert "Read-only" in small.stderr


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets each sync of a folder fail from now on."""

    def begin(number: int) -> None:
        synced = os.fsync

        def fsync(file: int) -> None:
            if stat.S_ISDIR(os.fstat(file).st_mode):
                raise OSError(number, os.strerror(number))
            synced(file)

        monkeypatch.setattr(os, "fsync", fsync)

    return begin


def test_a_checkpoint_whose_folder_cannot_be_synced(
    tmp_path: Path, failing: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that cannot do it is none that fails."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    checkpoint = Checkpoint(str(tmp_path))
    checkpoint.save(step=0)
    checkpoint.save(step=1)
    before = os.listdir(tmp_path)
    failing(errno.EIO)
    with pytest.raises(CheckpointError, match="Input/output error"):
        checkpoint.save(step=2)
    assert set(before) <= set(os.listdir(tmp_path))
    failing(errno.EINVAL)
    checkpoint.save(step=3)
    assert checkpoint.load() == {"step": 3}


def test_a_store_whose_folder_cannot_be_synced(
    tmp_path: Path, failing: Callable[[int], None]
) -> None:
    rows = pl.DataFrame({"time": [0]})
    failing(errno.EIO)
    for step in (
        lambda: ledger.put(tmp_path / "ledger.json", b"{}"),
        lambda: ledger._write(tmp_path, "2026-01-01", "part.parquet", rows),
    ):
        with pytest.raises(CollectError, match="cannot be written: Input/output error"):
            step()
    failing(errno.EINVAL)
    ledger.put(tmp_path / "ledger.json", b"{}")
    ledger._write(tmp_path, "2026-01-02", "part.parquet", rows)
