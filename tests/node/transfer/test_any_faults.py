"""Any mixture of faults at two sources ends in the right bytes or in a clean error."""

from __future__ import annotations

import os
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
from headway.node.transfer import fetch, source, steering

from .chunks import Chunks

KB = 1 << 10
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
    """The same decisions at a thousandth of the size and a tenth of the time."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.lower().endswith("_proxy"):
                patch.delenv(name)
        for name, value in {
            "FIRST_CHUNK": 300 * KB,
            "LEAST_CHUNK": 20 * KB,
            "MOST_CHUNK": 200 * KB,
            "RACE": 0.1,
            "WORTH": 0.2,
            "WINDOW": 0.3,
            "SETTLE": 0.3,
            "SILENCE": 0.3,
            "ALONE": 0.4,
            "MOST_ALONE": 0.6,
        }.items():
            patch.setattr(steering, name, value)
        patch.setattr(source, "FIRST_PAUSE", 0.02)
        yield


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    one=st.lists(sick(), max_size=2),
    other=st.lists(sick(), max_size=2),
    proof=st.sampled_from(["checksum", "manifest", "both"]),
)
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
                patience=1.0,
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


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
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
