"""Killed at any step, on a full disk: nothing lost, nothing twice."""

from __future__ import annotations

import errno
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.collect.stores import LOGS, collect, long_log, same_events
from tests.collect.test_rotation import append, copied, numbered, the_whole

from headway.collect import Collector, read_collected, status
from headway.errors import CollectError

EVENTS = long_log(2)
#: All through which a store changes.
STEPS = ("open", "write", "fsync", "replace", "unlink", "mkdir", "rmdir")
SOURCE = Path(__file__).parents[2] / "src"


class Killed(BaseException):
    """What nobody catches, as nobody catches SIGKILL."""


def failing(
    patch: pytest.MonkeyPatch, names: tuple[str, ...], at: int, error: BaseException
) -> Callable[[], int]:
    """Have the n-th of these calls fail before it does anything; tells how many there were."""
    count = 0

    def failing_one(call: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == at:
                raise error
            return call(*arguments, **options)

        return act

    for name in names:
        patch.setattr(os, name, failing_one(getattr(os, name)))
    return lambda: count


def test_killed_at_every_step(tmp_path: Path) -> None:
    log, store = tmp_path / "EventLog", tmp_path / "kept"
    rotated, step, done = 0, 0, 0
    while done < 3:  # so often it came to its end
        step += 1
        begin = step * 8 % len(EVENTS)
        append(log, EVENTS[begin : begin + 8])
        with pytest.MonkeyPatch.context() as patch:
            counted = failing(patch, STEPS, step - done, Killed())
            try:
                collect(store, log)
            except Killed:
                pass
            else:
                assert counted() < step - done
                done += 1
        if step % 7 == 0:
            numbered(log)
            rotated += 1
        if step % 5 == 0:
            collect(store, log)
            same_events(store, [log])
    assert step > 15 and rotated > 1
    append(log, EVENTS[:3])
    collect(store, log)
    same_events(store, [log])
    assert status(store).gap_count == 0
    named = {part.day for part in status(store).days}
    assert len(list(store.glob("events/*/*"))) == sum(day.parts for day in status(store).days)
    assert len(list(store.glob("events/*"))) == len(named)


def test_a_full_disk_at_every_write(tmp_path: Path) -> None:
    store = tmp_path / "kept"
    logs = tmp_path / "logs"
    shutil.copytree(LOGS, logs)
    collect(store, logs)
    for at in range(1, 50):
        for log in sorted(logs.glob("*.log"))[:5]:
            append(log, EVENTS[at : at + 2])
        with pytest.MonkeyPatch.context() as patch:
            full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            counted = failing(patch, ("write",), at, full)
            try:
                collect(store, logs)
            except CollectError as error:
                assert "No space left on device" in str(error) and "make room" in str(error)
                assert not list(store.glob("events/*/.*"))
            else:
                break
        assert counted() == at
    assert at > 2
    same_events(store, [logs])


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    store = tmp_path / "kept"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    words = [sys.executable, "-m", "headway", "collect", str(LOGS), "--into", str(store)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        words, preexec_fn=limit, capture_output=True, text=True, env=environment, timeout=60
    )
    assert done.returncode == 2, done.stderr
    assert "cannot be written: File too large" in done.stderr
    collect(store, LOGS)
    same_events(store, [LOGS])


FOLLOW = """
import sys, threading
from headway.collect import Collector
with Collector([sys.argv[1]], sys.argv[2], waits=True) as collector:
    for poll in collector.follow(0.01, threading.Event()):
        print(poll.events, len(poll.gaps), flush=True)
"""


@pytest.mark.parametrize("rotate", [numbered, copied])
def test_a_process_that_is_killed_again_and_again(
    rotate: Callable[[Path], None], tmp_path: Path
) -> None:
    log, store = tmp_path / "logs" / "EventLog", tmp_path / "kept"
    log.parent.mkdir()
    log.touch()
    whole = b"".join(EVENTS)
    chance = random.Random(17)
    at = kills = rotations = 0
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
    while at < len(whole):
        process = subprocess.Popen(
            [sys.executable, "-c", FOLLOW, str(log), str(store)],
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert process.stdout
        try:
            process.stdout.readline()
            end = time.monotonic() + chance.uniform(0.02, 0.4)
            enough = at + len(whole) // 6
            while time.monotonic() < end and at < min(enough, len(whole)):
                size = chance.choice([10, 300, 3000, 9000])
                with log.open("ab") as file:
                    file.write(whole[at : at + size])
                at += size
                # Nobody rotates within an event; and not more often than files are kept.
                if whole[:at].endswith(b"\n...\n") and chance.random() < 0.3 and rotations < 8:
                    rotate(log)
                    rotations += 1
                if chance.random() < 0.1:
                    stop = whole.find(b"\n...\n", at)
                    stop = len(whole) if stop < 0 else stop + 5
                    with log.open("ab") as file:
                        file.write(whole[at:stop])
                    at = stop
                    if rotations < 8:
                        rotate(log)
                        rotations += 1
                time.sleep(0.002)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
        kills += 1
        assert kills < 60
    collect(store, log)
    # Events of one second may lie in the log and in its copy: only files say which was the first.
    the_whole(store, tmp_path, ordered=rotate is numbered)
    assert kills > 5 and rotations > 2
    assert status(store).gap_count == 0


def test_a_reader_sees_one_commit_while_parts_are_merged(tmp_path: Path) -> None:
    """What is read between two commits is what one of them names."""
    log, store = tmp_path / "job.log", tmp_path / "kept"
    append(log, EVENTS[:100])
    collect(store, log)
    append(log, EVENTS[100:200])
    with pytest.MonkeyPatch.context() as patch:
        seen: list[int] = []
        place = os.replace

        def looked(*names: Any) -> None:
            seen.append(len(read_collected(store)))
            place(*names)
            seen.append(len(read_collected(store)))

        patch.setattr(os, "replace", looked)
        with Collector([log], store) as collector:
            collector.poll()
    assert len(seen) == 8 and set(seen) == {100, 200}
