"""The snapshot of a checkpoint, when it is killed, fails or is copied at any moment."""

from __future__ import annotations

import errno
import itertools
import json
import os
import random
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.node import checkpoint

Tree = dict[str, str]
OUT = "headway-out"
SHAPES = {
    "a file": ["model.pt"],
    "a folder": ["ckpt"],
    "files and folders": ["state/b.json", "state", "model.pt"],
}
EACH = -2
# what Python announces before it does it: all that has to do with files, and what changes them
EVENTS = ("open", "os.", "shutil.")
CHANGES = ("os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate", "os.utime")
ALL = [("a file", False), ("a folder", True), ("files and folders", True)]


def write(path: str, text: str) -> None:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def work(paths: list[str], version: str) -> None:
    """What a command writes: one file has the same length each time, others come and go."""
    for path in paths:
        if "." not in path:
            shutil.rmtree(path, ignore_errors=True)
    for path in paths:
        if "." in path:
            write(path, f"content {version}")
        else:
            write(f"{path}/weights", f"content {version}")
            write(f"{path}/inner/step-{version}", version * int(version))
            os.makedirs(f"{path}/empty-{version}", exist_ok=True)


def tree(paths: list[str]) -> Tree:
    """All files below the paths, with their content; folders with a slash behind their name."""
    found: Tree = {}
    for path in paths:
        if os.path.isfile(path):
            found[path] = Path(path).read_text(encoding="ascii")
        for folder, folders, files in os.walk(path):
            found |= {f"{folder}/{name}/": "" for name in folders}
            for name in files:
                found[f"{folder}/{name}"] = Path(folder, name).read_text(encoding="ascii")
    return found


def restored(out: Path | str, elsewhere: Path, paths: list[str], told: list[str]) -> Tree:
    """What a new attempt finds in its folder, if it is given this output folder."""
    shutil.rmtree(elsewhere, ignore_errors=True)
    shutil.copytree(out, elsewhere / OUT)
    before = os.getcwd()
    os.chdir(elsewhere)
    try:
        if os.path.isdir(checkpoint.FOLDER):
            checkpoint.restore(paths, lambda: None, told.append)
        return tree(paths)
    finally:
        os.chdir(before)


def forked(act: Callable[[], None]) -> int:
    """Act in a process of its own; returns what it ended with, a signal as a negative number."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Events:
    """Counts what this process does with files, and acts at one of these moments.

    A hook stays for good: only for a process that was forked.
    """

    def __init__(self, *, changes: bool = False) -> None:
        self.act: Callable[[], None] = lambda: None
        self._at, self._seen, self._changes = -1, 0, changes
        sys.addaudithook(self._hook)

    def at(self, number: int, act: Callable[[], None]) -> None:
        self._at, self._seen, self.act = number, 0, act

    @property
    def reached(self) -> bool:
        return self._seen > self._at

    def _hook(self, name: str, arguments: tuple[Any, ...]) -> None:
        matters = name.startswith(EVENTS)
        if self._changes:
            matters = name in CHANGES or (name == "open" and bool(arguments[2] & os.O_CREAT))
        if matters:
            self._seen += 1
            if self._at in (self._seen - 1, EACH):
                self.act()


def no_links(*_names: object, **_options: object) -> None:
    raise OSError(errno.EPERM, "no hard links here")


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "job"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def begin(paths: list[str]) -> tuple[Tree, Tree]:
    """One snapshot is there, and the command has written the next; returns both."""
    work(paths, "1")
    old = tree(paths)
    checkpoint.save(paths, lambda _words: None)
    checkpoint.restore(paths, lambda: None, lambda _words: None)
    work(paths, "2")
    return old, tree(paths)


@pytest.mark.parametrize(("shape", "links"), ALL)
def test_killed_at_any_moment_save_leaves_a_whole_one(
    job: Path, tmp_path: Path, shape: str, links: bool
) -> None:
    paths = SHAPES[shape]
    old, new = begin(paths)
    shutil.copytree(OUT, tmp_path / "begun")
    outcomes = []
    for number in itertools.count():

        def act(number: int = number) -> None:
            if not links:
                os.link = no_links
            events = Events(changes=True)
            events.at(number, lambda: os.kill(os.getpid(), signal.SIGKILL))
            checkpoint.save(paths, lambda _words: None)
            assert not events.reached

        ended = forked(act)
        assert ended in (0, -9)
        found = restored(OUT, tmp_path / "new", paths, [])
        assert found in (old, new), (number, ended)
        outcomes.append((ended, found == new))
        if ended == 0:
            break
        again(tmp_path / "begun")
    assert len(outcomes) > 8
    assert outcomes == sorted(outcomes) and outcomes[-2:] == [(-9, True), (0, True)]


@pytest.mark.parametrize(("shape", "links"), ALL)
def test_where_anything_fails_save_says_so_and_leaves_a_whole_one(
    job: Path, tmp_path: Path, shape: str, links: bool
) -> None:
    paths = SHAPES[shape]
    old, new = begin(paths)
    shutil.copytree(OUT, tmp_path / "begun")

    def fail() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def act() -> None:
        if not links:
            os.link = no_links
        events, outcomes = Events(), set()
        for number in itertools.count():
            told: list[str] = []
            raised = False
            events.at(number, fail)
            try:
                checkpoint.save(paths, told.append)
            except OSError:
                raised = True
            reached = events.reached
            events.at(-1, fail)
            found = restored(OUT, tmp_path / "new", paths, [])
            assert found == (old if raised else new), (number, told)
            outcomes.add((raised, bool(told)))
            if not reached:
                break
            again(tmp_path / "begun")
        assert outcomes >= {(True, False), (False, True), (False, False)}

    assert forked(act) == 0


def again(begun: Path) -> None:
    shutil.rmtree(OUT)
    shutil.copytree(begun, OUT)


class Copier:
    """Copies a folder file by file, with pauses in which the folder may change."""

    def __init__(self, source: str, target: str, chance: random.Random) -> None:
        self.vanished = False
        self._chance = chance
        self._steps = self._copy(source, target)

    def step(self) -> bool:
        return next(self._steps, None) is not None

    def _copy(self, source: str, target: str) -> Iterator[bool]:
        os.makedirs(target, exist_ok=True)
        try:
            names = os.listdir(source)
        except FileNotFoundError:
            self.vanished = True
            return
        self._chance.shuffle(names)
        yield True
        for name in names:
            inner = f"{source}/{name}"
            if os.path.isdir(inner):
                yield from self._copy(inner, f"{target}/{name}")
                continue
            try:
                shutil.copyfile(inner, f"{target}/{name}")
            except FileNotFoundError:
                self.vanished = True
            yield True


def test_a_copy_that_is_made_meanwhile_holds_a_whole_one(tmp_path: Path) -> None:
    """A copy that misses files that have gone is never taken for a whole one either."""
    paths = SHAPES["files and folders"]

    def one(number: int, events: Events) -> str:
        chance = random.Random(number)
        folder, copy = tmp_path / f"{number}", tmp_path / f"{number}.copy"
        folder.mkdir()
        os.chdir(folder)
        old, new = begin(paths)
        copier, share = Copier(OUT, str(copy), chance), chance.random()

        def copy_on() -> None:
            events.act = lambda: None  # of the copier's own doings
            while chance.random() < share and copier.step():
                pass
            events.act = copy_on

        events.at(EACH, copy_on)
        checkpoint.save(paths, lambda _words: None)
        events.at(-1, copy_on)
        while copier.step():
            pass
        told: list[str] = []
        found = restored(copy, tmp_path / f"{number}.new", paths, told)
        if found == {} and copier.vanished:  # HTCondor does not keep a copy that failed
            assert len(told) == 1 and "not complete" in told[0], told
            return "none, failed"
        assert found in (old, new), (number, found)
        return f"{'old' if found == old else 'new'}{', failed' if copier.vanished else ''}"

    def act() -> None:
        events = Events()
        link, outcomes = os.link, set()
        for number in range(40):
            os.link = no_links if number % 3 == 0 else link
            outcomes.add(one(number, events))
        assert outcomes >= {"old", "new", "none, failed"}, outcomes

    assert forked(act) == 0


def test_the_newest_complete_one_is_taken_and_the_rest_goes(job: Path) -> None:
    begin(["ckpt"])
    (whole,) = os.listdir(checkpoint.FOLDER)
    for number, manifest in enumerate(
        ["", "{", "[]", '{"format": 1}', '{"format": 2, "folders": [], "files": {}}', "[" * 100_000]
    ):
        write(f"{checkpoint.FOLDER}/{number + 70}-abcdef/files/ckpt/weights", "torn")
        write(f"{checkpoint.FOLDER}/{number + 70}-abcdef/manifest.json", manifest)
    for number, name in enumerate(["../../../x", "/etc/passwd", "a/../../..", "ckpt/none"]):
        entries: dict[str, Any] = {"format": 1, "folders": [], "files": {name: 4}}
        write(f"{checkpoint.FOLDER}/{number + 80}-abcdef/manifest.json", json.dumps(entries))
        entries = {"format": 1, "folders": [name], "files": {"gone": 1}}
        write(f"{checkpoint.FOLDER}/{number + 90}-abcdef/manifest.json", json.dumps(entries))
    shutil.rmtree("ckpt")
    assert checkpoint.restore(["ckpt"], lambda: None, pytest.fail) == ["ckpt"]
    assert Path("ckpt/weights").read_text() == "content 1"
    assert os.listdir(checkpoint.FOLDER) == [whole]
    work(["ckpt"], "2")
    checkpoint.save(["ckpt"], pytest.fail)
    (newer,) = os.listdir(checkpoint.FOLDER)
    assert newer.startswith("2-")


def test_what_a_kill_left_beside_a_file_is_not_restored(job: Path, tmp_path: Path) -> None:
    begin(["ckpt"])
    snapshot = checkpoint.find()
    assert snapshot is not None
    write(f"{snapshot.place}/ckpt/weights.headway-part", "half")
    assert "half" not in restored(OUT, tmp_path / "new", ["ckpt"], []).values()


def test_empty_folders_that_a_transfer_left_out_come_back(job: Path, tmp_path: Path) -> None:
    work(["ckpt"], "1")
    checkpoint.save(["ckpt"], pytest.fail)
    snapshot = checkpoint.find()
    assert snapshot is not None
    os.rmdir(f"{snapshot.place}/ckpt/empty-1")
    assert restored(OUT, tmp_path / "new", ["ckpt"], []) == tree(["ckpt"])


def test_names_that_are_not_text(job: Path, tmp_path: Path) -> None:
    os.mkdir("ckpt")
    name = os.fsdecode(b"ckpt/\xff\xfe 1")
    with open(name, "wb") as file:
        file.write(b"x")
    checkpoint.save(["ckpt"], pytest.fail)
    restored(OUT, tmp_path / "new", ["ckpt"], [])
    assert os.listdir(os.fsencode(tmp_path / "new/ckpt")) == [b"\xff\xfe 1"]


class TestOfAnEarlierHeadway:
    """There the folder itself was the snapshot, and `checkpoint.new` the next one."""

    def test_it_is_restored_and_replaced(self, job: Path, tmp_path: Path) -> None:
        write(f"{checkpoint.FOLDER}/ckpt/weights", "content 1")
        write(f"{checkpoint.FOLDER}/model.pt", "content 1")
        paths = ["ckpt", "model.pt"]
        told: list[str] = []
        old = restored(OUT, tmp_path / "new", paths, told)
        assert old == {"ckpt/weights": "content 1", "model.pt": "content 1"}
        work(paths, "2")
        checkpoint.save(paths, pytest.fail)
        assert restored(OUT, tmp_path / "new", paths, told) == tree(paths)
        assert len(os.listdir(checkpoint.FOLDER)) == 1
        assert not told

    def test_one_of_two_cannot_be_known_to_be_whole(self, job: Path) -> None:
        write(f"{checkpoint.FOLDER}/ckpt/weights", "content 1")
        write(f"{checkpoint.FOLDER}.new/ckpt/weights", "content 2")
        told: list[str] = []
        assert checkpoint.restore(["ckpt"], lambda: None, told.append) == []
        assert told == ["the checkpoint that came here is not complete; the command starts over"]
        assert os.listdir(OUT) == []
