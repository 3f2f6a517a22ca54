"""Run folders: whole or not there, and the rest is found when one is damaged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from headway.errors import RunError
from headway.pool.folder import RunFacts, RunFolder, Runs

from .house import SOURCE, wait

MAKER = """
import sys, time
from pathlib import Path
from headway.pool.folder import Runs
def fill(folder, facts):
    (folder.path / "half").write_text("x")
    print("filling", flush=True)
    sys.stdin.readline()
runs = Runs(Path(sys.argv[1]))
pool = {"kind": "local"}
print(runs.create("job", pool=pool, base=Path("/"), digest="d", fill=fill).label, flush=True)
"""


def make(runs: Runs, name: str = "job", digest: str = "d") -> RunFolder:
    def fill(folder: RunFolder, _: RunFacts) -> None:
        folder.jobs.mkdir()

    return runs.create(name, pool={"kind": "local"}, base=Path("/"), digest=digest, fill=fill)


def maker(root: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", MAKER, str(root)],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "filling\n"
    return process


def test_makers_at_the_same_time_get_different_numbers(tmp_path: Path) -> None:
    makers = [maker(tmp_path) for _ in range(3)]
    for process in makers:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    labels = sorted(process.communicate()[0].strip() for process in makers)
    assert labels == ["job-1", "job-2", "job-3"]
    assert sorted(run.facts.number for run in Runs(tmp_path)) == [1, 2, 3]


def test_threads_at_the_same_time_too(tmp_path: Path) -> None:
    made: list[str] = []
    runs = Runs(tmp_path)
    threads = [threading.Thread(target=lambda: made.append(make(runs).label)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 8


def test_a_maker_that_is_killed_leaves_no_run(tmp_path: Path) -> None:
    process = maker(tmp_path)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    runs = Runs(tmp_path)
    assert list(runs) == []
    assert make(runs).label == "job-1"
    draft = next(runs.folder.glob(".new-*"))  # another may still be filling it
    os.utime(draft, (time.time() - 2 * 86400,) * 2)
    make(runs)
    assert not draft.exists()


@pytest.mark.parametrize("name", ["ünï cödé 日本", "a b", "x" * 100, "é" * 100, "trailing-7"])
def test_any_name_that_a_job_can_have(tmp_path: Path, name: str) -> None:
    runs = Runs(tmp_path / "with space ü")
    first, second = make(runs, name), make(runs, name)
    assert runs.find(name).label == second.label
    assert runs.find(first.label).path == first.path
    assert second.facts.number == 2


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", '{"id": 1}', "null", "\xff\xfe", '{"format": 9}']
)
def test_a_damaged_run_is_left_out_and_told_when_named(tmp_path: Path, damage: str) -> None:
    runs = Runs(tmp_path)
    bad = make(runs, "bad")
    make(runs, "good", "wanted")
    (bad.path / "run.json").write_bytes(damage.encode("latin-1"))
    assert [run.label for run in runs] == ["good-1"]
    assert runs.find().label == "good-1"
    same = runs.same("wanted")
    assert same is not None and same.label == "good-1"
    with pytest.raises(RunError, match=r"run\.json cannot be read"):
        runs.find("bad-1")
    assert make(runs, "bad").label == "bad-2"


def test_what_is_no_run_is_passed_over(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    make(runs)
    (runs.folder / "notes-7").mkdir()
    (runs.folder / "file-8").write_text("")
    assert [run.label for run in runs] == ["job-1"]
    with pytest.raises(RunError, match="there is no run 'jop'") as error:
        runs.find("jop")
    assert "headway list" in error.value.remedy


def test_a_full_or_forbidden_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="a run folder cannot be made in") as error:
        make(Runs(tmp_path / "file" / ".headway"))
    assert "write" in error.value.remedy

    def fill(folder: RunFolder, _: RunFacts) -> None:
        raise OSError(28, "No space left on device")

    runs = Runs(tmp_path)
    with pytest.raises(RunError, match="cannot be written: No space left on device"):
        runs.create("job", pool={"kind": "local"}, base=tmp_path, digest="", fill=fill)
    assert list(runs.folder.iterdir()) == []


def test_locks_are_seen_and_looking_takes_none(tmp_path: Path) -> None:
    folder = make(Runs(tmp_path))
    assert not folder.is_locked()
    assert not (folder.path / "run.lock").exists()  # nothing was written by looking
    with folder.locked():
        assert folder.is_locked()
        with pytest.raises(RunError, match="another headway"), folder.locked():
            pass
    assert not folder.is_locked()
    stop = threading.Event()
    seen: list[bool] = []

    def look() -> None:
        while not stop.is_set():
            seen.append(folder.is_locked())

    lookers = [threading.Thread(target=look) for _ in range(3)]
    for thread in lookers:
        thread.start()
    wait(lambda: len(seen) > 300)
    stop.set()
    for thread in lookers:
        thread.join()
    assert not any(seen)


def test_a_folder_that_may_only_be_read(tmp_path: Path) -> None:
    folder = make(Runs(tmp_path))
    (folder.path / "run.lock").mkdir()
    with pytest.raises(RunError, match="cannot be locked"), folder.locked():
        pass
    with pytest.raises(RunError, match="not a plain file"):
        folder.is_locked()


@pytest.mark.skipif(os.getuid() == 0, reason="root can write everywhere")
def test_a_read_only_folder_for_those_who_are_not_root(tmp_path: Path) -> None:
    folder = make(Runs(tmp_path))
    folder.path.chmod(0o555)
    try:
        assert not folder.is_locked()
        with pytest.raises(RunError, match="Permission denied"):
            folder.update(cluster=1)
        with pytest.raises(RunError, match="Permission denied"), folder.locked():
            pass
    finally:
        folder.path.chmod(0o755)


def test_one_who_packs_for_ever_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.pool.folder._PACKING", 0.1)
    runs = Runs(tmp_path / ".headway")
    with runs.alone("a1"):
        with pytest.raises(RunError, match="another headway is making a run"), runs.alone("a2"):
            pass
        with runs.alone("b1"):
            pass
