"""The fetcher as a process: what it is told, what it tells, and when it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.lab import Fault, Flip, Made, Rate, Server
from tests.node.conftest import wait

from headway.node.stream.arrival import COMPLETE, Arrival
from headway.node.transfer.manifest import digest_of, make_manifest

CHUNK = 1 << 16
CONTENT = Made(40 * CHUNK, seed=5)


class Fetcher:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "a.bin"
        CONTENT.write(folder / "there").close()
        self.manifest = make_manifest(str(folder / "there"), chunk_size=CHUNK)
        self.path.with_name("a.bin.headway").write_bytes(self.manifest)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headway.node", "fetcher"],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def ask(self, url: str, **more: Any) -> None:
        task = {"path": "a.bin", "urls": [url], "manifest": digest_of(self.manifest), **more}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(task).encode() + b"\n")
        self.process.stdin.flush()

    def end(self) -> dict[str, Any]:
        """Close its input; returns its last word."""
        out, _ = self.process.communicate(timeout=15)
        last: dict[str, Any] = json.loads(out.splitlines()[-1])
        return last


@pytest.fixture
def fetcher(tmp_path: Path) -> Iterator[Fetcher]:
    made = Fetcher(tmp_path)
    yield made
    if made.process.poll() is None:
        made.process.kill()
        made.process.communicate()


def test_the_end_of_its_input_is_its_own(fetcher: Fetcher) -> None:
    with Server({"/a": CONTENT}, [Rate(1 << 19)]) as server:
        fetcher.ask(server.url("/a"))
        arrival = f"{fetcher.path}.arrival"
        wait(lambda: os.path.exists(arrival))
        with Arrival.follow(arrival) as reader:
            wait(lambda: reader.count() > 3 * CHUNK)
        last = fetcher.end()
    assert fetcher.process.returncode == 0
    assert last["state"] == "stopped" and 3 * CHUNK < last["here"] < CONTENT.size
    assert fetcher.path.with_name("a.bin.part.journal").exists()  # another one can go on


def test_killed_between_its_last_byte_and_its_last_word(fetcher: Fetcher) -> None:
    CONTENT.write(fetcher.path).close()
    arrival = f"{fetcher.path}.arrival"
    Arrival.begin(arrival, CONTENT.size, CHUNK).close()
    with Arrival.follow(arrival) as reader:
        fetcher.ask("http://127.0.0.1:9/never-asked", again=True)
        assert fetcher.end()["state"] == "complete"
        assert reader.state == COMPLETE and reader.count() == CONTENT.size


def test_no_chunk_is_told_of_before_it_is_proven(fetcher: Fetcher) -> None:
    flips: list[Fault] = [Flip(at=at) for at in range(0, CONTENT.size, CHUNK)]
    with Server({"/a": CONTENT}, flips) as server:
        fetcher.ask(server.url("/a"))
        fetcher.process.wait(15)
        last = fetcher.end()
    assert (last["state"], last["code"]) == ("failed", 82) and server.sent >= CHUNK
    with Arrival.follow(f"{fetcher.path}.arrival") as reader:
        assert reader.ever == 0


def test_a_manifest_that_was_changed_is_not_believed(fetcher: Fetcher) -> None:
    beside = fetcher.path.with_name("a.bin.headway")
    beside.write_bytes(fetcher.manifest[:-1] + bytes([fetcher.manifest[-1] ^ 1]))
    fetcher.ask("http://127.0.0.1:9/never-asked")
    last = fetcher.end()
    assert (last["state"], last["code"], fetcher.process.returncode) == ("failed", 81, 81)


def test_nobody_but_the_agent_starts_it(fetcher: Fetcher) -> None:
    _, error = fetcher.process.communicate(b"hello\n", timeout=15)
    assert fetcher.process.returncode == 87 and b"started by the agent" in error
