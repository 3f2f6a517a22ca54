"""Any mixture of faults at two sources ends in the right bytes or in a clean error."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, example, given, settings
from tests.lab import (
    Chunked,
    Coded,
    Drop,
    FailedTrailer,
    Fault,
    Flip,
    FoldedHeaders,
    Garbage,
    Hang,
    Http10,
    IgnoreRange,
    LyingHead,
    Made,
    OtherBytes,
    Patched,
    Portal,
    Rate,
    Reset,
    Server,
    Shorter,
    Silent,
    Status,
    Truncate,
    Unsized,
    Validators,
    Version,
    WrongContentRange,
    WrongLength,
)

from headway.node.errors import TransferError
from headway.node.transfer import fetch
from headway.node.transfer.assembly import Assembly
from headway.node.transfer.manifest import Manifest

from .chunks import manifest_of
from .scale import scaled

if TYPE_CHECKING:
    from headway.node.transfer.options import ReadControl

KB = 1 << 10
MANY = settings.default.max_examples if settings.default else 100
SIZE = 1500 * KB + 123


@dataclass(frozen=True)
class Case:
    """An object, the chunks of its manifest, and what is wrong at its two sources."""

    one: list[Fault]
    other: list[Fault]
    size: int = SIZE
    chunk: int = 100 * KB

    @property
    def content(self) -> Made:
        return Made(self.size, seed=21)

    @property
    def chunks(self) -> Manifest:
        return manifest_of(self.content, self.chunk)

    def is_a_version(self, path: Path) -> bool:
        others = [fault.content for fault in self.one if isinstance(fault, Version)]
        return any(each.fault(path) is None for each in (self.content, *others))


@st.composite
def sick(draw: st.DrawFn, size: int, *, told: bool = False) -> Fault:
    """`told`: only what shows without a proof."""
    offsets = st.integers(0, size - 1)
    # crumbs end in an error; with a little more each time it would come, but not soon
    cuts = st.one_of(st.integers(1, 200), st.integers(size // 20, size))
    content = Made(size, seed=21)
    begin, end = sorted((draw(offsets), draw(offsets)))
    unseen = [
        st.builds(Flip, offsets),
        st.builds(OtherBytes, offsets),
        st.just(WrongContentRange(lie=True)),
    ]
    fault: Fault = draw(
        st.one_of(
            st.builds(Hang, at=st.sampled_from(["accept", "request"])),
            st.builds(Drop, at=st.sampled_from(["accept", "request"]), reset=st.booleans()),
            st.builds(Silent, after=cuts, scope=st.sampled_from(["connection", "server"])),
            st.builds(Reset, cuts),
            st.builds(Truncate, cuts),
            st.builds(WrongLength, st.integers(-5, 5)),
            st.builds(Rate, st.integers(200 * KB, 20_000 * KB)),
            st.builds(Status, st.sampled_from([403, 404, 429, 500, 503])),
            st.just(Garbage()),
            st.just(IgnoreRange()),
            st.just(WrongContentRange()),
            st.builds(Version, st.just(Made(size, seed=22))),
            st.just(Version(Patched(content, begin, end + 1))),
            st.builds(FailedTrailer, offsets),
            st.builds(Shorter, offsets),
            st.builds(Chunked, st.sampled_from([None, 1, 64, 5000])),
            st.just(Unsized()),
            st.builds(Http10, sized=st.booleans()),
            st.builds(LyingHead, length=offsets),
            st.just(LyingHead(etag='"other"')),
            st.builds(Validators, etag=st.sampled_from(["new", ('"a"', '"b"')])),
            st.just(Validators(etag=("",), modified="new")),
            st.just(Portal()),
            st.just(Coded()),
            st.just(FoldedHeaders()),
            *([] if told else unseen),
        )
    )
    how = draw(st.sampled_from(["always", "once", "connection", "seconds"]))
    if how == "once":
        return fault.once()
    if how == "connection":
        return fault.connections(1)
    return fault.for_seconds(0.3) if how == "seconds" else fault


@st.composite
def cases(draw: st.DrawFn, *, told: bool = False) -> Case:
    """Any size and any layout of chunks, with faults within; `told` leaves the other healthy."""
    size = draw(st.one_of(st.just(SIZE), st.integers(1, SIZE)))
    chunk = draw(st.integers(max(1, size // 100), size + KB))
    one = draw(st.lists(sick(size, told=told), max_size=2))
    other = [] if told else draw(st.lists(sick(size), max_size=2))
    return Case(one, other, size, chunk)


@pytest.fixture(scope="module", autouse=True)
def small_and_quick() -> Iterator[None]:
    """The same decisions at a fiftieth of the size and a tenth of the time."""
    with scaled(seconds=0.1, sizes=0.02):
        yield


@settings(max_examples=MANY // 4, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases(), proof=st.sampled_from(["checksum", "manifest", "both"]))
@example(Case([Silent(after=0)], []), "checksum")
@example(Case([Reset(1), Version(Made(SIZE, seed=22))], []), "checksum")
@example(Case([Reset(1).connections(1), Version(Made(SIZE, seed=22))], []), "manifest")
def test_right_bytes_or_a_clean_error(
    tmp_path_factory: pytest.TempPathFactory, case: Case, proof: str
) -> None:
    folder, content = tmp_path_factory.mktemp("any"), case.content
    begin = time.monotonic()
    hopeless = case.one and case.other  # else a busy machine must not end the patience
    with Server({"/a": content}, case.one) as first, Server({"/a": content}, case.other) as second:
        try:
            fetch(
                [first.url("/a"), second.url("/a")],
                str(folder / "o"),
                checksum=content.checksum() if proof != "manifest" else None,
                manifest=case.chunks if proof != "checksum" else None,
                patience=2.0 if hopeless else 14.0,
                grace=0.5,
            )
        except TransferError as error:
            assert hopeless, "a healthy source was there"
            assert "did not arrive" in error.message
            assert os.listdir(folder) == []
        else:
            assert content.fault(folder / "o") is None
            assert os.listdir(folder) == ["o"]
    assert time.monotonic() - begin < 15


@settings(max_examples=MANY // 8, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases(told=True))
@example(Case([Version(Patched(Made(SIZE, seed=21), 600 * KB, 1200 * KB))], []))
def test_a_healthy_source_beside_any_faults_and_nothing_declared(
    tmp_path_factory: pytest.TempPathFactory, case: Case
) -> None:
    """Without a proof a flipped byte cannot be told, but versions are never mixed."""
    path = tmp_path_factory.mktemp("any") / "o"
    with Server({"/a": case.content}, case.one) as first, Server({"/a": case.content}) as second:
        try:
            fetch([first.url("/a"), second.url("/a")], str(path), patience=5.0)
        except TransferError as error:
            assert "sources disagree" in error.message
            assert os.listdir(path.parent) == []
        else:
            assert case.is_a_version(path)


class Suspicious:
    """Readers who look at every chunk that they are told of, then and again in the end."""

    room = 0

    def __init__(self, path: Path, case: Case, seed: int) -> None:
        self._path, self._case, self._seed = path, case, seed
        self.unit = case.chunk
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
            if file.read(self.unit) != self._case.content.read(begin, self.unit):
                self.wrong.append(begin)

    def lost(self, begin: int, end: int) -> None:
        self.told -= set(range(begin // self.unit * self.unit, end, self.unit))

    def look(self, control: ReadControl) -> None:
        assert isinstance(control, Assembly)
        if not self._turned:
            self._turned = True
            size = self._case.size
            order = [(at, min(at + self.unit, size)) for at in range(0, size, self.unit)]
            random.Random(self._seed).shuffle(order)
            control.turn(order)
        with control.changed:
            for begin in self.told:  # somebody else may write where it was right
                self.look_at(begin, self._path.with_name("o.part"))


@settings(max_examples=MANY // 8, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=cases(), seed=st.integers(0, 99))
def test_no_reader_is_told_of_wrong_bytes(
    tmp_path_factory: pytest.TempPathFactory, case: Case, seed: int
) -> None:
    folder, content, chunks = tmp_path_factory.mktemp("any"), case.content, case.chunks
    readers = Suspicious(folder / "o", case, seed)
    with Server({"/a": content}, case.one) as first, Server({"/a": content}, case.other) as second:
        try:
            urls = [first.url("/a"), second.url("/a")]
            path = str(folder / "o")
            fetch(urls, path, manifest=chunks, patience=2.0, grace=0.5, readers=readers)
        except TransferError as error:
            assert case.one and case.other, error.message
        else:
            assert content.fault(folder / "o") is None
            assert len(readers.told) == len(chunks.digests)
    assert readers.wrong == []
