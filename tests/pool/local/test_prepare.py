"""From a job to a run folder: what is packed, and what makes two jobs the same."""

from __future__ import annotations

import base64
import csv
import errno
import json
import os
import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.errors import RunError, SpecError
from headway.node.unpack import unpack_payload
from headway.pool.folder import Runs
from headway.pool.prepare import job_digest, prepare, write_payload
from headway.pool.program import compile_agent, drop_unused, encoded_row, is_agent
from headway.spec import Job, build_job

from .house import SMALL, House


@pytest.fixture
def base(tmp_path: Path) -> Path:
    folder = tmp_path / "my jöb"
    (folder / "src/sub").mkdir(parents=True)
    (folder / "src/a.py").write_text("a")
    (folder / "src/sub/ünï cödé.txt").write_text("u")
    (folder / "src/__pycache__").mkdir()
    (folder / "src/__pycache__/a.pyc").write_text("no")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "empty").mkdir()
    return folder


def job(base: Path, *files: str, **more: object) -> Job:
    return build_job({"name": "p", "command": "true", "files": [*files], **more}, folder=base)


def packed(base: Path, *files: str) -> dict[str, tarfile.TarInfo]:
    write_payload(files, base, base / "payload.tar")
    with tarfile.open(base / "payload.tar") as archive:
        return {member.name: member for member in archive}


def unpacked(base: Path) -> Path:
    """As the agent unpacks it."""
    target = base / "unpacked"
    target.mkdir()
    unpack_payload(str(base / "payload.tar"), str(target), (), lambda: None, lambda _: None)
    return target


def test_the_payload_holds_what_was_named(base: Path) -> None:
    names = packed(base, "src", "run.sh", "empty")
    assert sorted(names) == [
        "empty", "run.sh", "src", "src/a.py", "src/sub", "src/sub/ünï cödé.txt",
    ]  # fmt: skip
    assert names["run.sh"].mode & 0o111 == 0o111
    assert not names["src/a.py"].mode & 0o111
    assert {(member.uid, member.uname) for member in names.values()} == {(0, "")}
    target = unpacked(base)
    assert (target / "src/sub/ünï cödé.txt").read_text() == "u"
    assert os.access(target / "run.sh", os.X_OK)


def test_links_are_packed_as_what_they_point_to(base: Path) -> None:
    (base / "elsewhere").mkdir()
    (base / "elsewhere/data.txt").write_text("data")
    (base / "top").symlink_to(base / "elsewhere")  # a folder, named itself
    (base / "src/file").symlink_to("a.py")
    (base / "src/inner").symlink_to("sub")
    (base / "src/.#a.py").symlink_to("me@host.1234")  # as editors make them
    names = packed(base, "src", "top")
    assert names["top"].isdir() and names["top/data.txt"].isreg()
    assert names["src/file"].isreg()
    assert names["src/inner"].issym() and "src/inner/ünï cödé.txt" not in names
    assert names["src/.#a.py"].issym()
    target = unpacked(base)
    assert (target / "top/data.txt").read_text() == "data"
    assert not (target / "top").is_symlink()
    assert (target / "src/file").read_text() == "a"
    assert (target / "src/inner/ünï cödé.txt").read_text() == "u"


@pytest.mark.skipif(os.getuid() == 0, reason="root can read everything")
def test_a_file_that_cannot_be_read_is_named(base: Path) -> None:
    (base / "src/a.py").chmod(0)
    for act in (
        lambda: job_digest(job(base, "src"), base, "local"),
        lambda: write_payload(("src",), base, base / "payload.tar"),
    ):
        with pytest.raises(SpecError, match=r"files: src/a\.py: cannot be read"):
            act()


def test_a_file_that_is_gone_is_named(base: Path) -> None:
    made = job(base, "run.sh")
    (base / "run.sh").unlink()
    with pytest.raises(SpecError, match=r"files: run\.sh: cannot be read"):
        write_payload(made.files, base, base / "payload.tar")


def test_a_full_disk_is_not_blamed_on_the_files(base: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    (base / "src/a.py").write_bytes(os.urandom(100_000))
    with pytest.raises(OSError, match="No space left"):
        write_payload(("src",), base, Path("/dev/full"))


def test_the_digest_changes_with_what_counts(base: Path) -> None:
    def digest() -> str:
        return job_digest(job(base, "src", "run.sh"), base, "local")

    seen = [digest()]
    os.utime(base / "src/a.py", (1, 1))
    (base / "src/__pycache__/a.pyc").write_text("changed")
    assert digest() == seen[0]
    changes: list[Callable[[], object]] = [
        lambda: (base / "src/a.py").write_text("b"),
        lambda: (base / "src/a.py").chmod(0o755),
        lambda: (base / "src/a.py").rename(base / "src/b.py"),
        lambda: (base / "src/more").write_text(""),
        lambda: (base / "src/link").symlink_to("sub"),
    ]
    for change in changes:
        change()
        seen.append(digest())
    assert len(set(seen)) == len(seen)
    assert job_digest(job(base, "src", "run.sh"), base, "local:cpus=1") not in seen
    assert job_digest(job(base, "src", "run.sh", count=2), base, "local") not in seen


def test_bytes_cannot_move_from_one_file_to_the_next(base: Path) -> None:
    def digest(one: str, two: str) -> str:
        (base / "src/a.py").write_text(one)
        (base / "src/b.py").write_text(two)
        return job_digest(job(base, "src"), base, "local")

    assert digest("xsrc/b.py\0", "y") != digest("x", "src/b.py\0y")


def test_a_hundred_thousand_rows(base: Path, tmp_path: Path) -> None:
    rows = "".join(f"{n},name {n}\n" for n in range(100_000))
    (base / "rows.csv").write_text(f"n,name\n{rows}")
    began = time.process_time()
    big = job(base, "src", table="rows.csv", outputs=["{name}.txt"])
    folder = prepare(big, base, Runs(tmp_path / ".headway"), {"kind": "local"}, "d")
    assert time.process_time() - began < 15
    lines = folder.rows.read_text().splitlines()
    assert len(lines) == 100_001
    assert (lines[0], lines[-1]) == ("job,n,name", "99999,99999,name 99999")
    assert json.loads(base64.urlsafe_b64decode(encoded_row(big.row(99_999)))) == {
        "n": "99999", "name": "name 99999", "job": "99999",
    }  # fmt: skip


def test_a_table_is_kept_as_people_read_it(base: Path, tmp_path: Path) -> None:
    table = [{"lr": 0.1, "name": 'a, "b"'}, {"lr": 1e-5, "name": "ü x"}]
    made = job(base, "run.sh", table=table)
    folder = prepare(made, base, Runs(tmp_path / ".headway"), {"kind": "local"}, "d")
    rows = list(csv.DictReader(folder.rows.read_text(encoding="utf-8").splitlines()))
    assert rows == [
        {"job": "0", "lr": "0.1", "name": 'a, "b"'},
        {"job": "1", "lr": "1e-05", "name": "ü x"},
    ]


def test_runs_share_one_program_and_each_keeps_it(base: Path, tmp_path: Path) -> None:
    runs = Runs(tmp_path / ".headway")
    made = job(base, "run.sh")
    one, two = (prepare(made, base, runs, {"kind": "local"}, "d") for _ in range(2))
    assert one.agent.samefile(two.agent) and one.agent.stat().st_mode & 0o777 == 0o555
    (shared,) = one.programs.iterdir()
    assert shared.samefile(one.agent) and drop_unused(one.programs) == 0

    compiled = compile_agent(one.agent, one.programs)
    assert compiled.parent == one.path and is_agent(compiled)
    assert compile_agent(two.agent, two.programs).samefile(compiled)

    for file in one.programs.iterdir():  # whatever becomes of the store, a run has its program
        file.unlink()
    assert is_agent(one.agent) and is_agent(two.agent)
    three = prepare(made, base, runs, {"kind": "local"}, "d")
    assert three.agent.read_bytes() == one.agent.read_bytes()

    shutil.rmtree(three.path)
    (left,) = one.programs.iterdir()
    os.utime(left, (0, 0))
    assert drop_unused(one.programs, act=False) == left.stat().st_size
    assert drop_unused(one.programs) > 0 and not list(one.programs.iterdir())


@pytest.mark.parametrize("damage", ["cut", "link", "writable"])
def test_a_shared_program_that_is_not_what_was_written_is_made_anew(
    base: Path, tmp_path: Path, damage: str
) -> None:
    runs = Runs(tmp_path / ".headway")
    made = job(base, "run.sh")
    first = prepare(made, base, runs, {"kind": "local"}, "d")
    good = first.agent.read_bytes()
    (shared,) = first.programs.iterdir()
    if damage == "link":
        (tmp_path / "theirs").write_bytes(good)
        shared.unlink()
        shared.symlink_to(tmp_path / "theirs")
    elif damage == "writable":
        shared.chmod(0o777)
    else:
        shared.chmod(0o755)
        shared.write_bytes(good[:1000])
    second = prepare(made, base, runs, {"kind": "local"}, "d")
    assert second.agent.read_bytes() == good and not second.agent.is_symlink()
    assert second.agent.stat().st_mode & 0o777 == 0o555
    assert not second.agent.samefile(first.agent)


def test_where_there_are_no_hard_links_a_run_gets_a_copy(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", refuse)
    folder = prepare(job(base, "run.sh"), base, Runs(tmp_path / "h"), {"kind": "local"}, "d")
    assert is_agent(folder.agent) and folder.agent.stat().st_nlink == 1


def test_a_run_is_prepared_whole_or_not_at_all(base: Path, tmp_path: Path) -> None:
    runs = Runs(tmp_path / ".headway")
    made = job(base, "run.sh")
    folder = prepare(made, base, runs, {"kind": "local"}, "d")
    assert {path.name for path in folder.path.iterdir()} == {
        "run.json", "job.json", "plan.json", "payload.tar", "headway-node.pyz", "jobs",
    }  # fmt: skip
    (base / "run.sh").unlink()
    with pytest.raises(SpecError):
        prepare(made, base, runs, {"kind": "local"}, "d")
    assert [path.name for path in runs.folder.iterdir()] == ["p-1"]
    runs.folder.joinpath("p-1").rename(runs.folder / "p-9")
    with pytest.raises(RunError):
        runs.find("p-1x")


def test_a_url_that_only_the_rows_know_is_uploaded_to(house: House) -> None:
    target = house.folder / "sent" / "out.txt"
    target.parent.mkdir()
    house.write(f"to\n{target.as_uri()}\n", "rows.csv")
    run = house.run(
        'name = "sent"\nshell = true\ncommand = "echo hi > out.txt"\ntable = "rows.csv"\n'
        'outputs = [{path = "out.txt", to = "{to}"}]\n' + SMALL
    )
    assert target.read_text() == "hi\n"
    assert not (house.folder / "file:").exists()
    assert not (run.folder.job_folder(0) / "outputs/out.txt").exists()
