"""What goes into a scratch folder, comes home, and must not stay behind."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from headway.pool.folder import RunFolder
from headway.pool.local import scratch as tools
from headway.pool.local.scratch import (
    Orphans,
    bring_home,
    has_checkpoint,
    kill_marked,
    move_into_place,
    remove_tree,
    restore_checkpoint,
    save_checkpoint,
)
from headway.pool.program import build_agent, compile_agent

from .house import SOURCE, wait


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def listing(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_outputs_come_home_and_older_ones_stay(tmp_path: Path) -> None:
    home = write(tmp_path / "home", attempts__one__stdout="1", outputs__x="old", outputs__y="old")
    scratch = write(
        tmp_path / "s",
        **{"headway-out__attempts__two__stdout": "2", "headway-out__outputs__x": "n"},
    )
    write(scratch / "headway-out/checkpoint", state="not for home")
    assert bring_home(scratch, home) == 2
    assert listing(home) == {
        "attempts/one/stdout": "1",
        "attempts/two/stdout": "2",
        "outputs/x": "n",
        "outputs/y": "old",
    }
    assert bring_home(scratch, home) == 0  # asked again after a crash
    assert bring_home(tmp_path / "none", home) == 0


def test_a_file_where_a_folder_was_and_the_other_way_round(tmp_path: Path) -> None:
    home = write(tmp_path / "home", outputs__x__deep="old", outputs__y="old")
    (tmp_path / "outside").mkdir()
    (home / "outputs/z").symlink_to(tmp_path / "outside")
    scratch = write(
        tmp_path / "s/headway-out/outputs", x="new", y__deep="new", z__deep="new"
    ).parent
    bring_home(scratch.parent, home)
    assert listing(home / "outputs") == {"x": "new", "y/deep": "new", "z/deep": "new"}
    assert list((tmp_path / "outside").iterdir()) == []  # nothing is written through a link


def test_what_a_command_locked_comes_home_and_is_removed(tmp_path: Path) -> None:
    scratch = write(tmp_path / "s/headway-out/outputs", locked__file="x").parent.parent
    (scratch / "headway-out/outputs/locked").chmod(0)
    bring_home(scratch, tmp_path / "home")
    assert listing(tmp_path / "home") == {"outputs/locked/file": "x"}
    tree = write(tmp_path / "tree", a__b__c="x")
    (tree / "a/b").chmod(0)
    (tree / "a").chmod(0o500)
    remove_tree(tree)
    assert not tree.exists()
    remove_tree(tree)


@pytest.mark.parametrize(
    ("move", "steps"),
    [
        (False, [(tools, "copy_file", 2), (Path, "rename", 1), (Path, "rename", 2)]),
        (False, [(Path, "rename", 2), (Path, "rename", 1), (Path, "mkdir", 2)]),
        (True, [(Path, "rename", 1), (Path, "rename", 2), (Path, "rename", 1)]),
    ],
)
def test_a_checkpoint_is_whole_after_any_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, move: bool, steps: list[tuple[Any, str, int]]
) -> None:
    folder = RunFolder(tmp_path / "run")
    saved = folder.path / "spool/0"

    def restored() -> set[str]:
        target = tmp_path / "new"
        remove_tree(target)
        target.mkdir()
        restore_checkpoint(saved, target)
        found = listing(target)
        assert sorted(found) == ["headway-out/checkpoint/a", "headway-out/checkpoint/b"]
        return set(found.values())

    scratch = write(tmp_path / "s/headway-out", checkpoint__a="1", checkpoint__b="1").parent
    save_checkpoint(folder, 0, scratch)
    assert restored() == {"1"}
    write(scratch / "headway-out", checkpoint__a="2", checkpoint__b="2")

    for where, name, count in steps:  # each call goes on from what the one before has left
        calls = [0]
        real = getattr(where, name)

        def broken(*words: object, real: Any = real, count: int = count, **more: object) -> object:
            calls[0] += 1  # noqa: B023 (called before the next round)
            if calls[0] == count:  # noqa: B023
                raise OSError(28, "No space left on device")
            return real(*words, **more)

        with monkeypatch.context() as patch, pytest.raises(OSError):
            patch.setattr(where, name, broken)
            save_checkpoint(folder, 0, scratch, move=move)
        assert restored() == {"1"}
        assert has_checkpoint(scratch)
    save_checkpoint(folder, 0, scratch, move=move)
    assert restored() == {"2"}
    assert [path.name for path in saved.iterdir()] == ["headway-out"]


def test_a_checkpoint_that_is_being_made_is_not_trusted(tmp_path: Path) -> None:
    assert not has_checkpoint(tmp_path)
    made = write(tmp_path / "headway-out/checkpoint/1-abcdef", files__a="1")
    assert not has_checkpoint(tmp_path)
    write(made, **{"manifest.json": '{"format": 1, "folders": [], "files": {"a": 1}}'})
    assert has_checkpoint(tmp_path)
    write(made.parent / "2-abcdef", files__a="2")
    assert has_checkpoint(tmp_path)  # the one before
    (made / "files/a").unlink()
    assert not has_checkpoint(tmp_path)


def test_a_checkpoint_of_an_earlier_headway_is_trusted_alone(tmp_path: Path) -> None:
    write(tmp_path / "headway-out", checkpoint__a="1")
    assert has_checkpoint(tmp_path)
    write(tmp_path / "headway-out/checkpoint.new", a="2")
    assert not has_checkpoint(tmp_path)


@pytest.mark.parametrize("disks", [1, 2])
def test_outputs_are_moved_into_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disks: int
) -> None:
    if disks == 2:
        real = Path.replace

        def replace(source: Path, target: Path) -> Path:
            if source.parent != target.parent:
                raise OSError(errno.EXDEV, "Invalid cross-device link")
            return real(source, target)

        monkeypatch.setattr(Path, "replace", replace)
    source = write(tmp_path / "out", model__a="1")
    target = tmp_path / "results/deep/model"
    target.parent.mkdir(parents=True)
    write(target.parent / ".headway-tag.part", left="by a move that was cut off")
    move_into_place(source / "model", target, "tag")
    assert listing(target) == {"a": "1"}
    for text in ("a file", "a newer file"):
        (source / "model").write_text(text)
        move_into_place(source / "model", target, "tag")
        assert target.read_text() == text
    (source / "model").symlink_to("nowhere")
    move_into_place(source / "model", target, "tag")
    assert target.is_symlink()
    write(source, model__b="2")
    move_into_place(source / "model", target, "tag")
    assert listing(target) == {"b": "2"}
    assert [path.name for path in target.parent.iterdir()] == ["model"]
    assert not any(source.iterdir())


def test_a_move_to_another_disk_that_is_cut_off_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = write(tmp_path / "out", model="1") / "model", tmp_path / "there/model"

    def broken(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(Path, "replace", broken)
    with pytest.raises(OSError):
        move_into_place(source, target, "tag")
    assert source.read_text() == "1"
    assert list(target.parent.iterdir()) == []


# -- strays

DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        if sys.argv[1] == "bare":
            os.execve("/bin/sleep", ["sleep", "300"], {})
        if sys.argv[1] == "hidden":
            os.chdir("/")
            os.execve("/bin/sleep", ["sleep", "301"], {})
        os.execv("/bin/sleep", ["sleep", "302"])
    os._exit(0)
os.wait()
"""
PARENT = f"""
import os, subprocess, sys, time
from pathlib import Path
from headway.pool.local.scratch import MARK, Orphans, _children
strays, scratch = Orphans(), Path(sys.argv[1])
strays.adopt()
def start(kind, number):
    env = dict(os.environ) | {{MARK: str(scratch / number)}}
    (scratch / number).mkdir()
    argv = [sys.executable, "-c", {DAEMON!r}, kind]
    subprocess.run(argv, env=env, cwd=scratch / number)
start("marked", "0.1")
start("bare", "1.1")
start("hidden", "2.1")
start("marked", "3.1")
time.sleep(0.2)
print(len(_children()), end=" ")
for number in ("0.1", "1.1", "2.1"):
    strays.end_of(scratch / number, ())
    print(len(_children()), end=" ")
strays.end_all()
print(len(_children()))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper")
def test_strays_are_found_however_they_hide(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    # Four; without the marked one; without the one in its folder; the hidden one stays till the
    # end, and so does what belongs to an attempt that runs.
    assert done.stdout.split() == ["4", "3", "2", "2", "0"], done.stderr


def test_after_a_crash_strays_are_found_by_their_mark(tmp_path: Path) -> None:
    mine, other = tmp_path / "scratch", tmp_path / "scratch2"
    started = [
        subprocess.Popen(["sleep", "300"], env={"HEADWAY_SCRATCH": str(place)}, cwd=where)
        for place, where in (
            (mine / "0.1", "/"),
            (mine, "/"),
            (other / "0.1", "/"),
            ("/elsewhere", tmp_path),
        )
    ]
    try:
        time.sleep(0.1)
        mine.mkdir()
        watcher = subprocess.Popen(["sleep", "300"], cwd=mine)  # a shell that looks around
        started.append(watcher)
        kill_marked(mine)
        assert [process.wait(60) for process in started[:2]] == [-signal.SIGKILL] * 2
        assert [process.poll() for process in started[2:]] == [None] * 3
    finally:
        for process in started:
            process.kill()
            process.wait()


MOURNED = """
import subprocess, sys, time
from pathlib import Path
from headway.pool.local.scratch import ended_with_us
with ended_with_us(Path(sys.argv[1]), 1.0):
    print("started", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("killed", [True, False])
def test_who_is_killed_is_mourned(tmp_path: Path, killed: bool) -> None:
    marked = {"HEADWAY_SCRATCH": str(tmp_path / "0.1"), "PATH": os.environ["PATH"]}
    gentle = subprocess.Popen(["sleep", "300"], env=marked)
    deaf = subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 300 & wait"], env=marked)
    parent = subprocess.Popen(
        [sys.executable, "-c", MOURNED, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert parent.stdout is not None and parent.stdout.readline() == "started\n"
        if killed:
            parent.kill()
            assert gentle.wait(10) == -signal.SIGTERM
            assert deaf.wait(10) == -signal.SIGKILL
        else:
            parent.communicate("\n", timeout=120)
            assert parent.returncode == 0
            assert gentle.poll() is None and deaf.poll() is None
    finally:
        for process in (gentle, deaf, parent):
            process.kill()
            process.communicate()
        kill_marked(tmp_path)


def test_without_a_subreaper_the_mark_must_do(tmp_path: Path) -> None:
    process = subprocess.Popen(["sleep", "300"], env={"HEADWAY_SCRATCH": str(tmp_path)})
    Orphans().end_of(tmp_path, ())
    wait(lambda: process.poll() is not None)


# -- the compiled agent


def test_the_compiled_agent_is_the_same_agent(tmp_path: Path) -> None:
    agent = tmp_path / "headway-node.pyz"
    build_agent(agent)
    made = compile_agent(agent, tmp_path / "none")
    assert made != agent and compile_agent(agent, tmp_path / "none") == made
    with zipfile.ZipFile(agent) as given, zipfile.ZipFile(made) as compiled:
        for name in given.namelist():
            assert given.read(name) == compiled.read(name)
    for path in (agent, made):
        done = subprocess.run(
            [path, "--help"], env={"HEADWAY_PYTHON": sys.executable}, capture_output=True, text=True
        )
        assert "agent" in done.stdout + done.stderr, done
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([agent.name, made.name])


def test_an_agent_that_cannot_be_compiled_runs_as_it_is(tmp_path: Path) -> None:
    agent = tmp_path / "headway-node.pyz"
    agent.write_bytes(b"#!/bin/sh\n")
    assert compile_agent(agent, tmp_path / "none") == agent
    assert [path.name for path in tmp_path.iterdir()] == [agent.name]
