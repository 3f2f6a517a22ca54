"""What has arrived is told to other processes exactly, and never too early."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from headway.node.errors import TransferError
from headway.node.stream import arrival
from headway.node.stream.arrival import COMPLETE, FAILED, Arrival


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "a.tar.arrival")


def test_what_somebody_else_could_have_written_is_not_believed(path: str, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"mine")
    os.symlink(precious, f"{path}.{os.getpid()}")  # where the new one is about to be written
    with Arrival.begin(path, 100, 10) as made:
        made.mark(0, 50)
    assert precious.read_bytes() == b"mine"
    os.chmod(path, 0o666)
    with pytest.raises(TransferError, match="every user"):
        Arrival.follow(path)
    with Arrival.go_on(path, 100, 10) as anew:
        assert anew.marked() == []
    os.rename(path, tmp_path / "moved")
    os.symlink(tmp_path / "moved", path)
    with pytest.raises(OSError):
        Arrival.follow(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.integers(1, 5000),
    st.integers(1, 700),
    st.lists(st.tuples(st.booleans(), st.integers(0, 5000), st.integers(0, 5000)), max_size=12),
    st.integers(0, 5000),
    st.integers(0, 5000),
)
def test_only_whole_chunks_count(
    path: str, size: int, chunk: int, marks: list[tuple[bool, int, int]], a: int, b: int
) -> None:
    there: set[int] = set()
    ever: set[int] = set()
    again = 0

    def size_of(number: int) -> int:
        return min(size, number * chunk + chunk) - number * chunk

    with Arrival.begin(path, size, chunk) as kept, Arrival.follow(path) as seen:
        for marked, x, y in marks:
            begin, end = sorted((min(x, size), min(y, size)))
            (kept.mark if marked else kept.unmark)(begin, end)
            for number in range(kept.chunks):
                span = range(number * chunk, min(size, number * chunk + chunk))
                if marked and begin <= span.start and span.stop <= end:
                    again += size_of(number) if number in ever - there else 0
                    there.add(number)
                    ever.add(number)
                if not marked and begin < end and begin < span.stop and span.start < end:
                    there.discard(number)
        begin, end = sorted((min(a, size - 1), min(b, size)))
        needed = set(range(begin // chunk, -(-end // chunk)))
        assert seen.has(begin, end) == (needed <= there)
        assert seen.count() == sum(map(size_of, there))
        assert seen.ever == sum(map(size_of, ever)) and seen.again == again


def test_a_reader_waits_and_says_for_what(path: str) -> None:
    with Arrival.begin(path, 10_000, 1000) as kept, Arrival.follow(path) as seen:
        kept.mark(0, 4000)
        assert seen.wait(100, 3999) == 0.0
        waited: list[float] = []
        thread = threading.Thread(target=lambda: waited.append(seen.wait(3500, 5500, reader=70)))
        thread.start()
        end = time.monotonic() + 5
        while kept.wishes() != [4]:
            assert time.monotonic() < end
        kept.mark(4000, 5000)
        while kept.wishes() != [5]:
            assert time.monotonic() < end
        kept.mark(5000, 6000)
        thread.join(5)
        assert waited and 0 < waited[0] < 5
        assert kept.wishes() == []
        assert kept.waited() == pytest.approx(waited[0])


def test_a_failure_reaches_the_readers(path: str) -> None:
    with Arrival.begin(path, 10_000, 1000) as kept, Arrival.follow(path) as seen:
        kept.fail("every cache said 403 ü", retryable=False)
        assert seen.state == FAILED
        with pytest.raises(TransferError, match="every cache said 403 ü") as failed:
            seen.wait(0, 10)
        assert not failed.value.retryable


def test_what_is_there_can_be_read_after_a_failure(path: str) -> None:
    with Arrival.begin(path, 10_000, 1000) as kept, Arrival.follow(path) as seen:
        kept.mark(0, 1000)
        kept.fail("x" * 9999, retryable=True)
        assert seen.wait(0, 1000) == 0.0


def test_the_end(path: str) -> None:
    with Arrival.begin(path, 9_999, 1000) as kept, Arrival.follow(path) as seen:
        kept.finish()
        assert seen.state == COMPLETE and seen.has(0, 9_999) and seen.count() == 9_999


FETCHER = """
    import sys, time
    from headway.node.stream.arrival import Arrival
    kept = Arrival.begin(sys.argv[1], 10_000, 1000)
    kept.mark(0, int(sys.argv[2]))
    print("here", flush=True)
    time.sleep(20)
"""


def started(path: str, there: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(FETCHER), path, str(there)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def ended(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    with process, process.stdout:
        process.kill()


def test_a_fetcher_that_is_killed_and_started_again(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrival, "_LOOK", 0.01)
    first = started(path, 2000)
    with Arrival.follow(path) as seen:
        ended(first)
        assert seen.wait(0, 2000) == 0.0
        second = started(path, 5000)
        try:
            assert 0 < seen.wait(3000, 5000) < 5
        finally:
            ended(second)


def test_another_fetcher_goes_on_with_what_is_marked(path: str) -> None:
    with Arrival.begin(path, 9_500, 1000, room=7000) as first, Arrival.follow(path) as reader:
        first.mark(1000, 3000)
        first.mark(9000, 9500)
        first.fail("it was killed", retryable=True)
        first.close()
        with Arrival.go_on(path, 9_500, 1000, room=7000) as second:
            assert second.marked() == [(1000, 3000), (9000, 9500)]
            reader.check()
            second.mark(0, 1000)
            assert reader.has(0, 3000) and reader.room == 7000
        with Arrival.go_on(path, 9_400, 1000) as other:  # another object
            assert other.marked() == [] and other.room == 0


def test_whoever_reads_can_tell_that_bytes_went(path: str) -> None:
    with Arrival.begin(path, 5000, 1000) as fetcher, Arrival.follow(path) as reader:
        fetcher.mark(0, 5000)
        before = reader.losses
        fetcher.unmark(1500, 1600)
        assert reader.losses != before
        assert reader.has(0, 1000) and not reader.has(1000, 1001) and reader.has(2000, 5000)


def test_nobody_fetches_any_more(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrival, "_LOOK", 0.01)
    monkeypatch.setattr(arrival, "_ABANDONED", 0.1)
    fetcher = started(path, 2000)
    with Arrival.follow(path) as seen:
        ended(fetcher)
        with pytest.raises(TransferError, match="its fetcher is gone"):
            seen.wait(3000, 5000)


def test_a_slow_fetcher_is_waited_for(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrival, "_LOOK", 0.01)
    monkeypatch.setattr(arrival, "_ABANDONED", 0.1)
    with Arrival.begin(path, 10_000, 1000) as kept, Arrival.follow(path) as seen:
        threading.Timer(0.5, kept.mark, (3000, 5000)).start()
        assert seen.wait(3000, 5000) > 0.3


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=64), st.integers(0, 9000))
def test_anything_else_is_refused(path: str, head: bytes, length: int) -> None:
    Path(path).write_bytes(head + bytes(max(0, length - len(head))))
    with pytest.raises(TransferError, match=r"does not say|is too short"):
        Arrival.follow(path)


def test_a_full_disk_shows_at_the_beginning(path: str) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            Arrival.begin(path, 10_000, 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(os.path.dirname(path)) == []
