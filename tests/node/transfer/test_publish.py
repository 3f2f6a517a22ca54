"""Publishing: the manifest beside its object, whole or not at all, and the engine that heeds it."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.lab import Flip, Made, Server

from headway.node.errors import ManifestError
from headway.node.transfer import fetch
from headway.node.transfer.manifest import digest_of, make_manifest, publish, read_manifest

from .made_tars import make_tar

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def written(folder: Path, data: bytes, name: str = "object.tar") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def test_publish_writes_beside_the_object_and_replaces_its_own(tmp_path: Path) -> None:
    path = written(tmp_path, make_tar({"a/1": b"1", "b/2": b"22"}))
    first = publish(str(path))
    target = tmp_path / "object.tar.headway"
    assert first.path == str(target) and target.read_bytes()[:17] == b"headway-manifest "
    assert first.digest == f"sha256:{hashlib.sha256(target.read_bytes()).hexdigest()}"
    path.write_bytes(make_tar({"a/1": b"other"}))
    second = publish(str(path), chunk_size=MIB)
    assert second.digest != first.digest
    assert read_manifest(target.read_bytes(), pin=second.digest).chunk_size == MIB
    assert sorted(p.name for p in tmp_path.iterdir()) == ["object.tar", "object.tar.headway"]


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_a_foreign_file_is_never_touched(tmp_path: Path, kind: str) -> None:
    path, target = written(tmp_path, b"data"), tmp_path / "object.tar.headway"
    if kind == "file":
        target.write_text("my notes")
    elif kind == "folder":
        target.mkdir()
    else:
        target.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ManifestError, match="not a manifest"):
        publish(str(path))
    assert not (tmp_path / "elsewhere").exists()
    assert kind != "file" or target.read_text() == "my notes"


def test_what_cannot_be_published(tmp_path: Path) -> None:
    torn = written(tmp_path, make_tar({"a": b"1" * 9000})[:4000])
    with pytest.raises(ManifestError, match="damaged tar file: it ends within a"):
        publish(str(torn))
    assert publish(str(torn), index=False).manifest.size == 4000
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(ManifestError, match="is not a file"):
            make_manifest(str(tmp_path / name))
    with pytest.raises(ManifestError, match="No such file"):
        publish(str(tmp_path / "nothing"))
    with pytest.raises(ManifestError, match="itself a manifest"):
        publish(f"{torn}.headway")
    for size in (0, -1, KIB, 100_001, 2 * GIB):
        with pytest.raises(ManifestError, match="chunk"):
            publish(str(torn), chunk_size=size)


def test_a_file_that_changes_under_our_hands(tmp_path: Path) -> None:
    path = written(tmp_path, os.urandom(9 * MIB), "growing.bin")

    def grow(done: int, _: int) -> None:
        if done < 9 * MIB:
            with path.open("ab") as file:
                file.write(b"more")

    with pytest.raises(ManifestError, match="has changed"):
        publish(str(path), progress=grow)

    def shrink(_: int, __: int) -> None:
        os.truncate(path, 5 * MIB)

    with pytest.raises(ManifestError, match="has changed"):
        publish(str(path), progress=shrink)
    assert not (tmp_path / "growing.bin.headway").exists()


def test_notes_for_the_publisher(tmp_path: Path) -> None:
    content = make_tar({"a": b"1", "../b": b"2"})
    path = written(tmp_path, content.rstrip(b"\0") + bytes(511))
    notes = publish(str(path)).notes
    assert any("no end mark" in note for note in notes)
    assert any("1 members are not in the index" in note for note in notes)
    packed = written(tmp_path, gzip.compress(content), "cifar-10-binary.tar.gz")
    assert "compressed" in publish(str(packed)).notes[0]
    assert publish(str(packed), index=False).notes == []


def test_a_full_disk_leaves_the_old_manifest(tmp_path: Path) -> None:
    path = written(tmp_path, b"x" * 100)
    before = publish(str(path)).digest
    path.write_bytes(b"y" * 100)
    code = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))\n"
        "from headway.node.transfer.manifest import publish\n"
        "publish(sys.argv[1])"
    )
    # -B: under the limit, bytecode would be cut short, and break every later import
    command = [sys.executable, "-B", "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "cannot be written: File too large" in done.stderr
    assert digest_of((tmp_path / "object.tar.headway").read_bytes()) == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["object.tar", "object.tar.headway"]


def test_a_published_object_is_fetched_and_its_bad_chunk_repaired(tmp_path: Path) -> None:
    content = Made(5_000_000, seed=11)
    here = tmp_path / "object.bin"
    here.write_bytes(content.read(0, content.size))
    done = publish(str(here), chunk_size=256 * KIB)
    data = Path(done.path).read_bytes()
    manifest = read_manifest(data, pin=done.digest)
    with (
        Server({"/o": content, "/o.headway": data}, [Flip(3_000_000)]) as sick,
        Server({"/o": content}) as good,
    ):
        target = tmp_path / "arrived.bin"
        got = fetch([sick.url("/o"), good.url("/o")], str(target), manifest=manifest, patience=15)
        assert content.fault(target) is None
        assert got.proof == "manifest" and got.verified
        assert sick.sent + good.sent < content.size * 1.35  # not the whole object again
