"""A caller catches what an error means: each class of the tree comes from the fault it is for."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.lab import Fault, Flip, Made, Server, Silent, Status

import headway
from headway.node.errors import DiskError, NodeError
from headway.node.transfer import Fetched, fetch, put

CONTENT = Made(300_000, seed=4)


def bring(folder: Path, *faults: list[Fault], **options: object) -> Fetched:
    """Fetch from one server for each list of faults."""
    servers = [Server({"/a": CONTENT}, each) for each in faults]
    try:
        urls = [server.__enter__().url("/a") for server in servers]
        return headway.fetch(urls, folder / "a", grace=0.5, **options)  # type: ignore[arg-type]
    finally:
        for server in servers:
            server.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (404, headway.NotFoundError),
        (410, headway.NotFoundError),
        (401, headway.AccessDeniedError),
        (403, headway.AccessDeniedError),
    ],
)
def test_a_refusal(
    tmp_path: Path, quick: float, status: int, kind: type[headway.TransferError]
) -> None:
    with pytest.raises(kind, match=f"HTTP {status}") as caught:
        bring(tmp_path, [Status(status)], [Status(status)])
    assert type(caught.value) is kind and not caught.value.retryable
    with Server({}, [Status(status)]) as it, pytest.raises(kind) as caught:
        CONTENT.write(tmp_path / "b").close()
        put(str(tmp_path / "b"), it.url("/b"), rounds=1)
    assert type(caught.value) is kind


def test_sources_that_fail_in_different_ways(tmp_path: Path, quick: float) -> None:
    with pytest.raises(headway.TransferError) as caught:
        bring(tmp_path, [Status(403)], [Status(410)])
    assert type(caught.value) is headway.TransferError


def test_a_file_that_is_not_there(tmp_path: Path, quick: float) -> None:
    with pytest.raises(headway.NotFoundError):
        headway.fetch(f"file://{tmp_path}/none", tmp_path / "a", grace=0.1)
    with pytest.raises(headway.NotFoundError):
        headway.put(tmp_path / "none", f"file://{tmp_path}/a")
    with pytest.raises(headway.NotFoundError):
        put(str(tmp_path / "none"), f"file://{tmp_path}/a")


def test_silence(tmp_path: Path, quick: float) -> None:
    with pytest.raises(headway.StalledError, match="nothing came for") as caught:
        bring(tmp_path, [Silent()], patience=1.0)
    assert caught.value.retryable


@pytest.mark.parametrize("declared", [{"checksum": "sha256:" + "0" * 64}, {"size": 5}])
def test_other_bytes_than_declared(
    tmp_path: Path, quick: float, declared: dict[str, object]
) -> None:
    with pytest.raises(headway.CorruptError) as caught:
        bring(tmp_path, [], **declared)
    assert type(caught.value) is headway.CorruptError


def test_a_flipped_bit(tmp_path: Path, quick: float) -> None:
    with pytest.raises(headway.CorruptError):
        bring(tmp_path, [Flip(at=99)], checksum=CONTENT.checksum())


def test_a_wrong_manifest_is_corrupt(tmp_path: Path) -> None:
    with pytest.raises(headway.CorruptError) as caught:
        bring(tmp_path, [], manifest="sha256:12")
    assert type(caught.value) is headway.ManifestError


def _full(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("name", ["pwrite", "posix_fallocate"])
def test_a_full_disk(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, name, _full)
    with pytest.raises(headway.NoSpaceError, match="disk is full") as caught:
        bring(tmp_path, [])
    assert isinstance(caught.value, NodeError)


def test_a_disk_that_fails_has_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pwrite", fail)
    with pytest.raises(DiskError) as caught:
        bring(tmp_path, [])
    assert not isinstance(caught.value, headway.NoSpaceError)


def test_a_wish_to_stop(tmp_path: Path) -> None:
    stop: Callable[[], bool] = lambda: True  # noqa: E731
    with Server({"/a": CONTENT}) as it, pytest.raises(headway.Stopped):
        fetch([it.url("/a")], str(tmp_path / "a"), should_stop=stop)
