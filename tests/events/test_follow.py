"""The follower: each event once, whatever happens to the file."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.errors import EventLogError
from headway.events import EventWriter, Follower, follow


def event(proc: int, text: str = "x") -> bytes:
    return f"008 (001.{proc:03d}.000) 2026-11-15 22:19:56 {text}\n...\n".encode()


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def polled(follower: Follower) -> list[int]:
    return [event.proc for event in follower.poll()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.log"


@pytest.fixture
def follower(path: Path) -> Follower:
    return Follower(path)


def test_not_there_yet(path: Path, follower: Follower) -> None:
    assert polled(follower) == []
    append(path, event(0))
    assert polled(follower) == [0]
    assert polled(follower) == []


def test_partial_writes(path: Path, follower: Follower) -> None:
    data = event(0) + event(1)
    found = []
    for at in range(len(data)):
        append(path, data[at : at + 1])
        found.append(polled(follower))
    assert [proc for procs in found for proc in procs] == [0, 1]
    assert found[len(event(0)) - 1] == [0]
    assert found[-1] == [1]


def test_rotation(path: Path, follower: Follower) -> None:
    append(path, event(0) + event(1)[:20])
    assert polled(follower) == [0]
    append(path, event(1)[20:] + event(2) + b"torn")
    path.rename(path.with_suffix(".old"))
    append(path, event(3))
    assert polled(follower) == [1, 2, 3]
    assert [skip.length for skip in follower.skipped] == [4]
    path.rename(path.with_suffix(".old"))
    append(path.with_suffix(".old"), event(4))
    assert polled(follower) == [4]
    assert polled(follower) == []
    append(path, event(5))
    assert polled(follower) == [5]


def test_deleted_and_made_anew(path: Path, follower: Follower) -> None:
    append(path, event(0))
    assert polled(follower) == [0]
    path.unlink()
    assert polled(follower) == []
    append(path, event(1))
    assert polled(follower) == [1]


def test_truncated_in_place(path: Path, follower: Follower) -> None:
    append(path, event(0) + event(1))
    assert polled(follower) == [0, 1]
    path.write_bytes(b"")
    assert polled(follower) == []
    append(path, event(2))
    assert polled(follower) == [2]
    # Filled beyond the old length before anybody looked.
    path.write_bytes(event(3, "other") + event(4) + event(5))
    assert polled(follower) == [3, 4, 5]


def test_a_writer_that_mends_a_torn_event(path: Path, follower: Follower) -> None:
    append(path, event(0) + event(1)[:-7])
    assert polled(follower) == [0]
    with EventWriter(path) as writer:
        writer.generic(1, 2, "instead, and rather longer than what was torn off")
    assert polled(follower) == [2]
    append(path, event(3)[:-7])
    assert polled(follower) == []
    EventWriter(path).close()
    assert polled(follower) == []
    append(path, event(4))
    assert polled(follower) == [4]
    assert follower.skipped == []


@given(st.lists(st.sampled_from(["append", "part", "rotate", "mend", "poll"]), max_size=25))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_event_once(tmp_path: Path, steps: list[str]) -> None:
    path = tmp_path / "any.log"
    path.unlink(missing_ok=True)
    follower = Follower(path)
    proc, found = 0, []
    for step in steps:
        if step == "append":
            with EventWriter(path) as writer:
                writer.generic(1, proc, "x" * (proc * 37 % 200))
            proc += 1
        elif step == "part":
            EventWriter(path).close()
            append(path, event(999)[:-4])
        elif step == "mend":
            EventWriter(path).close()
        elif step == "rotate" and path.exists():
            found += polled(follower)
            path.rename(path.with_suffix(".old"))
        else:
            found += polled(follower)
    assert found + polled(follower) == list(range(proc))
    follower.close()


def test_idle_costs_one_stat(
    path: Path, follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(path, event(0))
    follower.poll()
    with monkeypatch.context() as patch:
        for name in ("open", "pread", "fstat", "read"):
            patch.setattr(os, name, None)
        found = polled(follower)
    assert found == []


def test_what_cannot_be_followed(tmp_path: Path) -> None:
    with pytest.raises(EventLogError, match="cannot be followed: Is a directory"):
        Follower(tmp_path).poll()


def test_follow(path: Path) -> None:
    stop = threading.Event()

    def write() -> None:
        for proc in range(5):
            time.sleep(0.02)
            append(path, event(proc))
        stop.set()

    thread = threading.Thread(target=write)
    thread.start()
    assert [event.proc for event in follow(path, 0.01, stop=stop)] == list(range(5))
    thread.join()
    assert next(follow(path)).proc == 0


def rotate(path: Path, keep: int) -> None:
    """Rotate as HTCondor does: one `.old`, or `.1` the newest."""
    if keep == 1:
        path.rename(f"{path}.old")
        return
    for number in range(keep, 0, -1):
        for packed in ("", ".gz"):
            source = Path(f"{path}.{number - 1}{packed}" if number > 1 else f"{path}{packed}")
            if source.exists():
                source.rename(f"{path}.{number}{packed}")


@pytest.mark.parametrize("keep", [1, 4])
def test_two_rotations_between_polls(path: Path, keep: int) -> None:
    append(path, event(0, "long before"))
    rotate(path, keep)
    append(path, event(1, "first"))
    follower = Follower(path)
    assert polled(follower) == [1]
    append(path, event(2))
    rotate(path, keep)
    append(path, event(3) + b"torn")
    rotate(path, keep)
    append(path, event(4))
    assert polled(follower) == [2, 3, 4]
    assert [skip.length for skip in follower.skipped] == [4]
    for proc in range(5, 9):
        rotate(path, keep)
        append(path, event(proc))
        assert polled(follower) == [proc]
    follower.close()


def test_many_rotations_between_polls(path: Path) -> None:
    append(path, event(0))
    follower = Follower(path)
    assert polled(follower) == [0]
    for proc in range(1, 8):
        rotate(path, 9)
        append(path, event(proc))
    assert polled(follower) == list(range(1, 8))
    follower.close()


def test_rotated_before_anybody_opened_it(path: Path) -> None:
    append(path, event(0, "older than the follower"))
    rotate(path, 3)
    follower = Follower(path)
    assert polled(follower) == []
    append(path, event(1))
    rotate(path, 3)
    append(path, event(2))
    assert polled(follower) == [1, 2]
    follower.close()


def test_rotated_files_that_are_compressed_later(path: Path) -> None:
    append(path, event(0, "z"))
    follower = Follower(path)
    assert polled(follower) == [0]
    for proc in (1, 2, 3):
        rotate(path, 9)
        append(path, event(proc))
    for rotated in list(path.parent.glob("events.log.*")):
        rotated.with_name(rotated.name + ".gz").write_bytes(gzip.compress(rotated.read_bytes()))
        rotated.unlink()
    assert polled(follower) == [1, 2, 3]
    append(path, event(4))
    assert polled(follower) == [4]
    rotate(path, 9)
    append(path, event(5))
    assert polled(follower) == [5]
    follower.close()


def test_made_anew_beside_an_old_rotation(path: Path) -> None:
    append(path, event(0, "the run before"))
    rotate(path, 1)
    append(path, event(1))
    follower = Follower(path)
    assert polled(follower) == [1]
    path.unlink()
    append(path, event(2))
    assert polled(follower) == [2]
    follower.close()


def header(sequence: int, size: int = 0) -> bytes:
    text = (
        f"Global JobLog: ctime=17947994{sequence} id=1.2.{sequence} sequence={sequence} size={size}"
    )
    return f"008 (-01.-01.-01) 11/16 03:23:4{sequence % 10} {text:<200}\n...\n".encode()


def test_the_pool_s_own_log(path: Path) -> None:
    append(path, header(1) + event(0))
    follower = Follower(path)
    assert polled(follower) == [-1, 0]

    def turn(sequence: int) -> None:
        # HTCondor writes the header of the file that it rotates once more, with other numbers.
        append(path, event(sequence * 10))
        data = path.read_bytes()
        new = header(sequence - 1, 1234).replace(b"03:23:4", b"03:24:0")
        with path.open("r+b") as file:
            file.write(new[: data.index(b"\n...\n")])
        rotate(path, 1)
        append(path, header(sequence) + event(sequence))

    turn(2)
    assert polled(follower) == [20, -1, 2]
    turn(3)
    turn(4)
    assert polled(follower) == [30, -1, 3, 40, -1, 4]
    assert follower.skipped == []
    for sequence in (5, 6, 7):
        turn(sequence)
    assert polled(follower) == [50, -1, 6, 70, -1, 7]
    assert [skip.why for skip in follower.skipped] == [
        "1 rotated files are gone that nobody had read"
    ]
    follower.close()


@given(
    st.lists(st.sampled_from(["append", "rotate", "poll", "compress"]), max_size=30), st.booleans()
)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_each_event_once_through_rotations(tmp_path: Path, steps: list[str], first: bool) -> None:
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    path = folder / "log"
    if first:
        append(path, event(0, "before"))
        rotate(path, 99)
    follower = Follower(path)
    found, proc = polled(follower), 1
    for step in steps:
        if step == "append":
            append(path, event(proc))
            proc += 1
        elif step == "rotate" and path.exists():
            rotate(path, 99)
        elif step == "compress":
            for plain in folder.glob("log.*[0-9]"):
                plain.with_name(f"{plain.name}.gz").write_bytes(gzip.compress(plain.read_bytes()))
                plain.unlink()
        else:
            found += polled(follower)
    append(path, event(proc))
    assert found + polled(follower) == list(range(1, proc + 1))
    follower.close()


def test_syscalls_of_an_idle_poll(path: Path, tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if not strace:
        pytest.skip("needs strace")
    append(path, event(0))
    script = (
        "import os, sys\nfrom headway.events import Follower\nf = Follower(sys.argv[1])\n"
        "f.poll()\nf.poll()\nos.path.exists('/begin')\n"
        "for _ in range(100): f.poll()\nos.path.exists('/end')\n"
    )
    trace = tmp_path / "trace"
    command = [strace, "-o", str(trace), sys.executable, "-c", script, str(path)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("strace may not trace here")
    calls = trace.read_text().partition('"/begin"')[2].partition('"/end"')[0].splitlines()[1:-1]
    assert len(calls) == 100
    assert {call.partition("(")[0] for call in calls} <= {"newfstatat", "stat", "statx"}


def test_rotations_while_somebody_looks(path: Path) -> None:
    stop = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        while not stop.is_set():
            for _ in range(7):
                append(path, event(written, str(written)))
                written += 1
            stop.wait(0.001)
            rotate(path, 40)

    follower = Follower(path)
    found = polled(follower)
    thread = threading.Thread(target=write)
    thread.start()
    end = time.monotonic() + 1
    while time.monotonic() < end:
        found += polled(follower)
        time.sleep(0.004)
    stop.set()
    thread.join()
    found += polled(follower)
    assert found == list(range(written))
    follower.close()
