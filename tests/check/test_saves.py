"""From what a command does to its files, what a kill in between would leave."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headway.check.bench import (
    DELETED,
    MOVED,
    WRITTEN,
    FileChange,
    SaveWatch,
    build,
    copy_paths,
    relevant,
    states,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")


def watched(tmp_path: Path, save: Callable[[Path], None]) -> tuple[list[FileChange], Path, Path]:
    """What is seen of a save below `ckpt`, and copies of before and after."""
    root = tmp_path / "root"
    root.mkdir(exist_ok=True)
    before, after = tmp_path / "before", tmp_path / "after"
    for folder in (before, after):
        folder.mkdir()
    copy_paths(["ckpt"], root, before)
    watch = SaveWatch(root, ["ckpt"])
    save(root)
    changes = watch.close()
    copy_paths(["ckpt"], root, after)
    return relevant(changes, before, after), before, after


def earlier(tmp_path: Path, **files: str) -> None:
    (tmp_path / "root/ckpt").mkdir(parents=True)
    for name, text in files.items():
        (tmp_path / "root/ckpt" / name).write_text(text)


def laid(tmp_path: Path, seen: tuple[list[FileChange], Path, Path]) -> list[dict[str, str]]:
    """The files of each state that a kill could leave."""
    changes, before, after = seen
    found = []
    for number, state in enumerate(states(changes, after)):
        place = tmp_path / f"state-{number}"
        build(state, changes, before, after, place)
        files = [path for path in place.rglob("*") if path.is_file()]
        found.append(
            {path.relative_to(place / "ckpt").as_posix(): path.read_text() for path in files}
        )
    return found


def test_a_file_that_is_written_over(tmp_path: Path) -> None:
    earlier(tmp_path, state="old old ")

    def save(root: Path) -> None:
        (root / "ckpt/state").write_text("new new ")

    seen = watched(tmp_path, save)
    assert seen[0] == [FileChange("ckpt/state", WRITTEN)]
    assert laid(tmp_path, seen) == [{"state": "new "}]


def test_files_that_were_there_before_their_folder_was_watched(tmp_path: Path) -> None:
    def made(name: str) -> SaveWatch:
        (tmp_path / "ckpt").mkdir()
        watch = SaveWatch(tmp_path, ["ckpt"])
        with watch._lock:  # it reads nothing until all is done
            (tmp_path / "ckpt/new").mkdir()
            (tmp_path / "ckpt/new/state").write_text("new")
        watch.mark()
        if name:
            (tmp_path / "ckpt/new").rename(tmp_path / "ckpt" / name)
        watch.close()
        return watch

    assert made("").blind
    shutil.rmtree(tmp_path / "ckpt")
    assert not made("step-1").blind  # whatever was before, the folder is put in place at once


def test_a_file_that_is_put_in_place(tmp_path: Path) -> None:
    earlier(tmp_path, state="old")

    def save(root: Path) -> None:
        (root / "ckpt/state.tmp").write_text("new")
        os.replace(root / "ckpt/state.tmp", root / "ckpt/state")

    seen = watched(tmp_path, save)
    assert seen[0] == [FileChange("ckpt/state", MOVED)]
    assert laid(tmp_path, seen) == []


def test_two_files_one_after_the_other(tmp_path: Path) -> None:
    earlier(tmp_path, a="1", b="1")

    def save(root: Path) -> None:
        for name in "ab":
            (root / f"ckpt/{name}.tmp").write_text("2")
            os.replace(root / f"ckpt/{name}.tmp", root / f"ckpt/{name}")

    assert laid(tmp_path, watched(tmp_path, save)) == [{"a": "2", "b": "1"}]


def test_the_old_one_removed_before_the_new_one(tmp_path: Path) -> None:
    earlier(tmp_path, old="whole")

    def save(root: Path) -> None:
        (root / "ckpt/old").unlink()
        (root / "ckpt/new").write_text("1234")

    seen = watched(tmp_path, save)
    assert [change.how for change in seen[0]] == [DELETED, WRITTEN]
    assert laid(tmp_path, seen) == [{"new": "12"}, {}]


def test_the_old_one_removed_under_the_same_name(tmp_path: Path) -> None:
    earlier(tmp_path, state="old")

    def save(root: Path) -> None:
        (root / "ckpt/state.tmp").write_text("new")
        (root / "ckpt/state").unlink()
        (root / "ckpt/state.tmp").rename(root / "ckpt/state")

    seen = watched(tmp_path, save)
    assert seen[0] == [FileChange("ckpt/state", DELETED), FileChange("ckpt/state", MOVED)]
    assert laid(tmp_path, seen) == [{}]


def test_the_old_one_moved_away_first(tmp_path: Path) -> None:
    earlier(tmp_path, state="2", old="1")

    def save(root: Path) -> None:
        os.replace(root / "ckpt/state", root / "ckpt/old")
        (root / "ckpt/tmp").write_text("3")
        os.replace(root / "ckpt/tmp", root / "ckpt/state")

    assert {"old": "2"} in laid(tmp_path, watched(tmp_path, save))


def test_a_marker_that_is_written_last_counts(tmp_path: Path) -> None:
    earlier(tmp_path, one="1111", latest="one")

    def save(root: Path) -> None:
        (root / "ckpt/two").write_text("2222")
        time.sleep(0.01)
        (root / "latest.tmp").write_text("two")
        os.replace(root / "latest.tmp", root / "ckpt/latest")

    states_ = laid(tmp_path, watched(tmp_path, save))
    assert {"one": "1111", "two": "22", "latest": "one"} in states_


def test_a_folder_that_is_put_in_place(tmp_path: Path) -> None:
    earlier(tmp_path)

    def save(root: Path) -> None:
        draft = root / "ckpt/.new"
        draft.mkdir()
        for name in "ab":
            (draft / name).write_text("x" * 100)
        time.sleep(0.05)
        draft.rename(root / "ckpt/0001")

    seen = watched(tmp_path, save)
    assert seen[0] == [FileChange("ckpt/0001", MOVED)]
    assert laid(tmp_path, seen) == []


def test_a_path_that_did_not_exist(tmp_path: Path) -> None:
    def save(root: Path) -> None:
        (root / "data").mkdir()
        (root / "data/other").write_text("not of the checkpoint")
        (root / "ckpt").mkdir()
        time.sleep(0.1)
        (root / "ckpt/state").write_text("1234")

    seen = watched(tmp_path, save)
    assert seen[0] == [FileChange("ckpt/state", WRITTEN)]
    assert laid(tmp_path, seen) == [{"state": "12"}]


def test_ours_is_put_in_place(tmp_path: Path) -> None:
    from headway.checkpoint import Checkpoint

    earlier(tmp_path)

    def save(root: Path) -> None:
        for step in range(5):
            Checkpoint(str(root / "ckpt")).save(step=step, blob=b"x" * 10_000)

    seen = watched(tmp_path, save)
    assert {change.how for change in seen[0]} == {MOVED}
    for number, state in enumerate(states(seen[0], seen[2])):
        place = tmp_path / f"state-{number}"
        build(state, *seen, place)
        kept = Checkpoint(str(place / "ckpt")).load()
        assert kept is not None and json.dumps(kept["step"]) in "34"
