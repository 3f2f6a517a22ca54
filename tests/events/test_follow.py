"""The follower: each event once, whatever happens to the file."""

from __future__ import annotations

import os
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
