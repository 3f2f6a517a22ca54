"""Any mixture of faults at two sources ends in the right bytes or in a clean error."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, example, given, settings
from tests.lab import (
    Drop,
    FailedTrailer,
    Fault,
    Flip,
    Garbage,
    Hang,
    IgnoreRange,
    Made,
    Rate,
    Reset,
    Server,
    Shorter,
    Silent,
    Status,
    Truncate,
    Version,
    WrongContentRange,
    WrongLength,
)

from headway.node.errors import TransferError
from headway.node.transfer import fetch, reading
from headway.node.transfer.job import Job

from .chunks import Chunks
from .scale import scaled

KB = 1 << 10
MANY = settings.default.max_examples if settings.default else 100
SIZE = 1500 * KB + 123
CONTENT = Made(SIZE, seed=21)
CHUNKS = Chunks(CONTENT, 100 * KB)

offsets = st.integers(0, SIZE - 1)
faults = st.one_of(
    st.builds(Hang, at=st.sampled_from(["accept", "request"])),
    st.builds(Drop, at=st.sampled_from(["accept", "request"]), reset=st.booleans()),
    st.builds(Silent, after=offsets, scope=st.sampled_from(["connection", "server"])),
    st.builds(Reset, offsets),
    st.builds(Truncate, offsets),
    st.builds(Shorter, offsets),
    st.builds(WrongLength, st.integers(-5, 5)),
    st.builds(Rate, st.integers(200 * KB, 20_000 * KB)),
    st.builds(Status, st.sampled_from([403, 404, 429, 500, 503])),
    st.just(Garbage()),
    st.builds(Flip, offsets),
    st.just(IgnoreRange()),
    st.just(WrongContentRange()),
    st.builds(Version, st.just(Made(SIZE, seed=22))),
    st.builds(FailedTrailer, offsets),
)


@st.composite
def sick(draw: st.DrawFn) -> Fault:
    fault: Fault = draw(faults)
    how = draw(st.sampled_from(["always", "once", "connection", "seconds"]))
    if how == "once":
        return fault.once()
    if how == "connection":
        return fault.connections(1)
    return fault.for_seconds(0.3) if how == "seconds" else fault


@pytest.fixture(scope="module", autouse=True)
def small_and_quick() -> Iterator[None]:
    """The same decisions at a fiftieth of the size and a tenth of the time."""
    with scaled(seconds=0.1, sizes=0.02):
        yield


@settings(max_examples=MANY // 4, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    one=st.lists(sick(), max_size=2),
    other=st.lists(sick(), max_size=2),
    proof=st.sampled_from(["checksum", "manifest", "both"]),
)
@example([Silent(after=0)], [], "checksum")
@example([Reset(1), Version(Made(SIZE, seed=22))], [], "checksum")
@example([Reset(1).connections(1), Version(Made(SIZE, seed=22))], [], "manifest")
def test_right_bytes_or_a_clean_error(
    tmp_path_factory: pytest.TempPathFactory, one: list[Fault], other: list[Fault], proof: str
) -> None:
    folder = tmp_path_factory.mktemp("any")
    begin = time.monotonic()
    with Server({"/a": CONTENT}, one) as first, Server({"/a": CONTENT}, other) as second:
        try:
            fetch(
                [first.url("/a"), second.url("/a")],
                str(folder / "o"),
                checksum=CONTENT.checksum() if proof != "manifest" else None,
                manifest=CHUNKS if proof != "checksum" else None,
                patience=2.0,
                grace=0.5,
            )
        except TransferError as error:
            assert one and other, "a healthy source was there"
            assert "did not arrive" in error.message
            assert os.listdir(folder) == []
        else:
            assert CONTENT.fault(folder / "o") is None
            assert os.listdir(folder) == ["o"]
    assert time.monotonic() - begin < 15


@settings(max_examples=MANY // 8, deadline=None, suppress_health_check=list(HealthCheck))
@given(one=st.lists(sick().filter(lambda f: not isinstance(f, (Flip, Shorter))), max_size=2))
def test_a_healthy_source_beside_any_faults_and_nothing_declared(
    tmp_path_factory: pytest.TempPathFactory, one: list[Fault]
) -> None:
    """Without a proof a flipped byte cannot be told, but versions are never mixed."""
    folder = tmp_path_factory.mktemp("any")
    with Server({"/a": CONTENT}, one) as first, Server({"/a": CONTENT}) as second:
        fetch([first.url("/a"), second.url("/a")], str(folder / "o"), patience=5.0)
    path: Path = folder / "o"
    assert CONTENT.fault(path) is None or Made(SIZE, seed=22).fault(path) is None


class Suspicious:
    """Readers who look at every chunk that they are told of, then and again in the end."""

    unit, room = CHUNKS.chunk_size, 0

    def __init__(self, path: Path, seed: int) -> None:
        self._path, self._seed = path, seed
        self.told: set[int] = set()
        self.wrong: list[int] = []
        self._turned = False

    def begins(self, _size: int) -> list[tuple[int, int]]:
        return []

    def proven(self, begin: int, end: int) -> None:
        self.told.add(begin)
        self.look_at(begin, self._path.with_name("o.part"))

    def look_at(self, begin: int, path: Path) -> None:
        with path.open("rb") as file:
            file.seek(begin)
            if file.read(self.unit) != CONTENT.read(begin, self.unit):
                self.wrong.append(begin)

    def lost(self, begin: int, end: int) -> None:
        self.told -= set(range(begin // self.unit * self.unit, end, self.unit))

    def look(self, job: Job) -> None:
        if not self._turned:
            self._turned = True
            order = [(at, min(at + self.unit, SIZE)) for at in range(0, SIZE, self.unit)]
            random.Random(self._seed).shuffle(order)
            reading.turn(job, order)
        with job.changed:
            for begin in self.told:  # somebody else may write where it was right
                self.look_at(begin, self._path.with_name("o.part"))


@settings(max_examples=MANY // 8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    one=st.lists(sick(), max_size=2), other=st.lists(sick(), max_size=2), seed=st.integers(0, 99)
)
def test_no_reader_is_told_of_wrong_bytes(
    tmp_path_factory: pytest.TempPathFactory, one: list[Fault], other: list[Fault], seed: int
) -> None:
    folder = tmp_path_factory.mktemp("any")
    readers = Suspicious(folder / "o", seed)
    with Server({"/a": CONTENT}, one) as first, Server({"/a": CONTENT}, other) as second:
        try:
            urls = [first.url("/a"), second.url("/a")]
            path = str(folder / "o")
            fetch(urls, path, manifest=CHUNKS, patience=2.0, grace=0.5, readers=readers)
        except TransferError as error:
            assert one and other, error.message
        else:
            assert CONTENT.fault(folder / "o") is None
            assert len(readers.told) == len(CHUNKS.digests)
    assert readers.wrong == []
