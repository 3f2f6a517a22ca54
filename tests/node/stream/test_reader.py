"""The same bytes, whether the object is here or arrives."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from headway.node.errors import NodeError, TransferError
from headway.node.stream import samples
from headway.node.stream.arrival import Arrival
from headway.node.stream.samples import Object
from headway.node.transfer.manifest import publish

CONTENT = os.urandom(10_000)


def test_an_object_that_is_here(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(CONTENT)
    with Object(str(tmp_path / "a")) as here:
        assert here.size == 10_000 and here.arrival is None and here.manifest() is None
        assert here.read(1234, 4321) == CONTENT[1234 : 1234 + 4321]
        assert here.read(5, 0) == b""
        with pytest.raises(NodeError, match="ends unexpectedly at byte 10000"):
            here.read(9_999, 2)


def test_an_object_that_arrives(tmp_path: Path) -> None:
    path = tmp_path / "a"
    with Arrival.begin(f"{path}.arrival", 10_000, 1000) as arrival:
        part = tmp_path / "a.part"
        part.write_bytes(bytes(10_000))
        with Object(str(path)) as coming:

            def arrive() -> None:
                time.sleep(0.1)
                with part.open("r+b") as file:
                    file.write(CONTENT)
                arrival.finish()
                part.rename(path)

            thread = threading.Thread(target=arrive)
            thread.start()
            assert coming.read(2500, 1000) == CONTENT[2500:3500]
            assert 0.05 < coming.waited < 5
            thread.join()
            assert coming.read(0, 10_000) == CONTENT
    with Object(str(path)) as here:
        assert here.arrival is None


class Slow(Object):
    """Between its look at what is there and its read, all of it is given back, and comes again."""

    def __init__(self, path: str, go: threading.Event, writer: threading.Thread) -> None:
        super().__init__(path)
        self.go, self.writer, self.again = go, writer, False

    def _read(self, begin: int, length: int) -> bytes:
        if self.again:
            return super()._read(begin, length)
        self.go.set()
        self.writer.join()
        hole = super()._read(begin, length)
        Path(f"{self.path}.part").write_bytes(CONTENT)
        with Arrival.follow(f"{self.path}.arrival") as fetcher:
            fetcher.mark(0, self.size)
        self.again = True
        return hole


@pytest.mark.parametrize("line", range(1, 7))
def test_what_is_given_back_between_a_look_and_a_read(tmp_path: Path, line: int) -> None:
    """The reader looks just before each line with which the fetcher says that bytes go."""
    path = tmp_path / "a"
    (tmp_path / "a.part").write_bytes(CONTENT)
    paused, go = threading.Event(), threading.Event()

    def give_back() -> None:
        lines = 0

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal lines
            if frame.f_code is not Arrival.unmark.__code__:
                return None
            lines += event != "call"
            if lines == line and not paused.is_set():
                paused.set()
                go.wait(10)
            return trace

        sys.settrace(trace)
        arrival.unmark(0, 10_000)
        sys.settrace(None)
        (tmp_path / "a.part").write_bytes(bytes(10_000))
        paused.set()

    with Arrival.begin(f"{path}.arrival", 10_000, 1000) as arrival:
        arrival.mark(0, 10_000)
        writer = threading.Thread(target=give_back)
        with Slow(str(path), go, writer) as reader:
            writer.start()
            assert paused.wait(10)
            if reader.arrival is not None and reader.arrival.has(2500, 3500):
                assert reader.read(2500, 1000) == CONTENT[2500:3500]
            go.set()
            writer.join()


def test_a_fork_reads_on_its_own(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(CONTENT)
    with Object(str(tmp_path / "a")) as here:
        child = os.fork()
        if child == 0:
            os._exit(0 if here.read(7, 77) == CONTENT[7:84] else 1)
        assert here.read(100, 10) == CONTENT[100:110]
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_nothing_is_here(tmp_path: Path) -> None:
    with pytest.raises(NodeError, match="does not arrive either"):
        Object(str(tmp_path / "a"))


def test_it_never_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "_BEGINS", 0.1)
    never = pytest.raises(TransferError, match="does not begin to arrive")
    with Arrival.begin(f"{tmp_path / 'a'}.arrival", 10_000, 1000), never:
        Object(str(tmp_path / "a"))


def test_the_manifest_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(CONTENT)
    publish(str(path))
    with Object(str(path)) as here:
        found = here.manifest()
        assert found is not None and found.size == 10_000
    path.write_bytes(CONTENT[1:])
    with Object(str(path)) as here, pytest.raises(TransferError, match="is for another object"):
        here.manifest()
