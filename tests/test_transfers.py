"""headway.fetch, headway.put and headway.publish, from Python."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.lab import Digests, Made, Rate, Server

import headway
from headway.transfers import left_of

CONTENT = Made(6 << 20, seed=6)


def test_fetch_tells_how_far_it_is(tmp_path: Path) -> None:
    seen: list[headway.Snapshot] = []
    with Server({"/a": CONTENT}, [Rate(4e6)]) as one, Server({"/a": CONTENT}, [Rate(4e6)]) as two:
        urls = [one.url("/a"), two.url("/a")]
        got = headway.fetch(urls, tmp_path, progress=seen.append, size=CONTENT.size)
    assert (got.path, got.bytes, got.proof) == (str(tmp_path / "a"), CONTENT.size, "size")
    assert CONTENT.fault(tmp_path / "a") is None
    assert seen[-1].bytes == seen[-1].total == CONTENT.size
    assert [each.bytes for each in seen] == sorted(each.bytes for each in seen)
    midway = [each for each in seen if 0 < each.bytes < CONTENT.size]
    assert midway[-1].rate > 0 and midway[-1].eta
    assert {source.url for source in seen[-1].sources} == set(urls)


def test_fetch_can_be_stopped_and_asked_again(tmp_path: Path) -> None:
    target = tmp_path / "b"
    with Server({"/a": CONTENT}, [Rate(4e6)]) as it:
        url = it.url("/a")
        with pytest.raises(headway.Stopped):
            headway.fetch(url, target, should_stop=lambda: it.sent > 3 << 20)
        assert left_of(target) == tmp_path / "b.part"
        with pytest.raises(RuntimeError, match="of the caller"):
            headway.fetch(url, target, progress=_fail)
        assert left_of(target) is not None and not target.exists()
        it.faults, sent = [], it.sent
        headway.fetch(url, target)
        assert it.sent - sent < CONTENT.size - (1 << 19)
    assert CONTENT.fault(target) is None
    assert left_of(target) is None


def _fail(_: headway.Snapshot) -> None:
    raise RuntimeError("of the caller")


def test_a_file_that_comes_meanwhile_stays(tmp_path: Path) -> None:
    target = tmp_path / "a"

    def saw(snapshot: headway.Snapshot) -> None:
        target.write_text("mine")

    with Server({"/a": CONTENT}) as it:
        with pytest.raises(headway.TransferError, match="appeared during the download"):
            headway.fetch(it.url("/a"), target, progress=saw)
        assert target.read_text() == "mine"
        headway.fetch(it.url("/a"), target, progress=saw, overwrite=True)
    assert CONTENT.fault(target) is None


def test_a_file_that_comes_at_the_last_moment_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the last look and the name there is only the disk's word that all is written."""
    target = tmp_path / "a"
    synced = os.fsync

    def late(file: int) -> None:
        synced(file)
        if not target.exists():
            target.write_text("mine")

    monkeypatch.setattr(os, "fsync", late)
    with Server({"/a": CONTENT}) as it:
        with pytest.raises(headway.TransferError, match="appeared during the download") as caught:
            headway.fetch(it.url("/a"), target, size=CONTENT.size)
        assert target.read_text() == "mine" and "--overwrite" in caught.value.remedy
        sent = it.sent
        headway.fetch(it.url("/a"), target, size=CONTENT.size, overwrite=True)
        assert it.sent - sent < CONTENT.size // 10  # what had arrived was kept
    assert CONTENT.fault(target) is None
    assert os.listdir(tmp_path) == ["a"]


def test_put_publish_and_fetch_again(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    CONTENT.write(path).close()
    published = headway.publish(path, chunk_size=1 << 20)
    with Server(moves=True, digests=Digests()) as it:
        for each in (path, published.path):
            assert headway.put(each, it.url("/out/")).proof == "digest"
        assert it.store.paths() == ["/out/data.bin", "/out/data.bin.headway"]
        url, pin = it.url("/out/data.bin"), published.digest
        got = headway.fetch(url, tmp_path / "new" / "copy.bin", manifest=pin)
        assert (got.proof, got.verified) == ("manifest", True)
        again = headway.fetch(url, path, manifest=pin)
        assert (again.url, again.bytes) == ("", CONTENT.size)  # it was here
        with pytest.raises(headway.ManifestError, match="64 hex digits"):
            headway.fetch(url, tmp_path / "x", manifest="md5:00")
        with pytest.raises(headway.TransferError, match="but its manifest says"):
            headway.fetch(url, tmp_path / "x", size=1, manifest=pin)
    with pytest.raises(headway.TransferError, match="is not a regular file"):
        headway.put("/dev/null", "https://h/x")
    with pytest.raises(headway.TransferError, match="does not exist") as missing:
        headway.put(tmp_path / "none", "https://h/")
    assert not missing.value.retryable
    with pytest.raises(headway.TransferError, match="no URL"):
        headway.fetch([], tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "data.bin",
        "data.bin.headway",
        "new",
    ]
