"""The job's files, and tar files that mean harm."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from headway.node.unpack import PayloadError, unpack_payload

from .conftest import Node


def member(name: str, **values: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in values.items():
        setattr(info, key, value)
    return info


def pack(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> str:
    with tarfile.open(path, "w") as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return str(path)


def open_up(archive: str, folder: Path) -> tuple[int, list[str]]:
    problems: list[str] = []
    count = unpack_payload(archive, str(folder), ("plan.json",), lambda: None, problems.append)
    return count, problems


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def test_files_folders_and_inner_links(tmp_path: Path, folder: Path) -> None:
    archive = pack(
        tmp_path / "p.tar",
        (member("src", type=tarfile.DIRTYPE), b""),
        (member("src/träin er.py", mode=0o644, mtime=1e9), b"code"),
        (member("./run.sh", mode=0o755), b"#!/bin/sh\n"),
        (member("deep/er/file"), b"x"),
        (member("src/link", type=tarfile.SYMTYPE, linkname="../run.sh"), b""),
        (member("hard", type=tarfile.LNKTYPE, linkname="deep/er/file"), b""),
        (member("empty", type=tarfile.DIRTYPE), b""),
    )
    assert open_up(archive, folder) == (4, [])
    assert (folder / "src/träin er.py").read_text() == "code"
    assert os.access(folder / "run.sh", os.X_OK)
    assert not os.access(folder / "src/träin er.py", os.X_OK)
    assert (folder / "src/träin er.py").stat().st_mtime == 1e9
    assert (folder / "src/link").resolve() == folder / "run.sh"
    assert (folder / "hard").read_text() == "x"
    assert (folder / "empty").is_dir()
    assert not list(folder.rglob(".headway-part"))


def test_what_is_there_stays(tmp_path: Path, folder: Path) -> None:
    archive = pack(tmp_path / "p.tar", (member("a"), b"packed"), (member("b"), b"packed"))
    (folder / "a").write_text("changed by the command")
    assert open_up(archive, folder)[0] == 1
    assert (folder / "a").read_text() == "changed by the command"
    assert (folder / "b").read_text() == "packed"


@pytest.mark.parametrize(
    "name", ["/etc/x", "../x", "a/../../x", "headway-out/outputs/x", "headway-out", "plan.json"]
)
def test_names_that_are_refused(tmp_path: Path, folder: Path, name: str) -> None:
    archive = pack(tmp_path / "p.tar", (member(name), b"x"))
    with pytest.raises(PayloadError):
        open_up(archive, folder)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "info",
    [
        member("l", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member("a/l", type=tarfile.SYMTYPE, linkname="../../x"),
        member("p", type=tarfile.FIFOTYPE),
        member("d", type=tarfile.CHRTYPE, devmajor=1, devminor=3),
    ],
)
def test_what_is_left_out(tmp_path: Path, folder: Path, info: tarfile.TarInfo) -> None:
    archive = pack(tmp_path / "p.tar", (info, b""), (member("good"), b"x"))
    count, problems = open_up(archive, folder)
    assert (count, len(problems)) == (1, 1)
    assert not os.path.lexists(folder / info.name)


def test_nothing_is_written_through_a_link(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "outside").mkdir()
    archive = pack(
        tmp_path / "p.tar",
        (member("in", type=tarfile.SYMTYPE, linkname="."), b""),
        (member("in/x"), b"x"),
    )
    open_up(archive, folder)
    assert (folder / "in/x").read_text() == "x"
    (folder / "gate").symlink_to("../outside")
    archive = pack(tmp_path / "p.tar", (member("gate/x"), b"x"), (member("gate/d/x"), b"x"))
    with pytest.raises(PayloadError):
        open_up(archive, folder)
    assert not list((tmp_path / "outside").iterdir())


def test_a_hard_link_to_nothing(tmp_path: Path, folder: Path) -> None:
    archive = pack(
        tmp_path / "p.tar", (member("h", type=tarfile.LNKTYPE, linkname="/etc/passwd"), b"")
    )
    with pytest.raises(PayloadError):
        open_up(archive, folder)


@pytest.mark.parametrize("keep", [700, 1100])
def test_a_damaged_archive(tmp_path: Path, folder: Path, keep: int) -> None:
    archive = pack(tmp_path / "p.tar", (member("a"), b"x" * 5000))
    Path(archive).write_bytes(Path(archive).read_bytes()[:keep])
    with pytest.raises(PayloadError):
        open_up(archive, folder)
    assert not (folder / "a").exists()
    Path(archive).write_bytes(b"no tar at all" * 100)
    with pytest.raises(PayloadError):
        open_up(archive, folder)


def test_the_agent_unpacks_and_refuses(node: Node) -> None:
    node.plan(["./run.sh"], payload="payload.tar")
    assert node.run() == 80, "another node may get it"
    assert "did not transfer it" in node.stderr
    pack(node.folder / "payload.tar", (member("run.sh", mode=0o755), b"#!/bin/sh\necho hi\n"))
    assert node.run() == 0
    assert node.stdout() == "hi\n"
    (node.folder / "run.sh").write_text("#!/bin/sh\necho changed\n")
    assert node.run() == 0
    assert node.stdout() == "changed\n"
    pack(node.folder / "payload.tar", (member("../x"), b"x"))
    assert node.run() == 87
    assert "outside the job's folder" in node.stderr
