"""What the reader wants reaches the fetcher whole, or not at all."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from tests.node.stream.arriving import Arriving
from tests.node.transfer.made_tars import make_nested

from headway.node.stream.arrival import Wanted, chunks_each_time, chunks_once, read_wanted
from headway.node.stream.order import Blocks, Order
from headway.node.stream.samples import Choice
from headway.node.stream.source import FetchOrder, SampleSource
from headway.node.transfer.manifest import make_manifest


def test_it_is_told_and_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "a.tar")
    assert read_wanted(path, 1000, 9) is None
    first = Wanted(path, array("I", [5, 0, 8]), 1000)
    found = read_wanted(path, 1000, 9)
    assert found is not None and list(found.chunks) == [5, 0, 8] and found.done == 0
    first.done(2)
    found = read_wanted(path, 1000, 9)
    assert found is not None and found.done == 2
    second = Wanted(path, array("I"), 1000)
    first.done(3)  # of an epoch that is over
    found = read_wanted(path, 1000, 9)
    assert found is not None and list(found.chunks) == [] and found.done == 0
    first.close()
    second.close()
    assert [each.name for each in tmp_path.iterdir()] == ["a.tar.wanted"]


def test_a_chunk_may_be_wanted_again(tmp_path: Path) -> None:
    path = str(tmp_path / "a.tar")
    Wanted(path, array("I", [1, 0, 1, 1]), 1000).close()
    found = read_wanted(path, 1000, 2)
    assert found is not None and list(found.chunks) == [1, 0, 1, 1]


@pytest.mark.parametrize(("chunk", "chunks"), [(1001, 9), (1000, 8), (1000, 2)])
def test_that_of_another_object_is_passed_over(tmp_path: Path, chunk: int, chunks: int) -> None:
    path = str(tmp_path / "a.tar")
    Wanted(path, array("I", [5, 0, 8]), 1000).close()
    assert read_wanted(path, chunk, chunks) is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=80), st.booleans())
def test_anything_else_is_passed_over(tmp_path: Path, data: bytes, magic: bool) -> None:
    (tmp_path / "a.wanted").write_bytes(b"hwwantd1" * magic + data)
    found = read_wanted(str(tmp_path / "a"), 1000, 9)
    assert found is None or set(found.chunks) <= set(range(9))


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30)), max_size=20), st.integers(1, 9))
def test_a_chunk_is_done_with_after_its_last_stretch(
    spans: list[tuple[int, int]], chunk: int
) -> None:
    stretches = [(begin, begin + length) for begin, length in spans]
    chunks, until = chunks_once(stretches, chunk)
    needed = [set(range(a // chunk, -(-b // chunk))) for a, b in stretches]
    assert sorted(chunks) == sorted(set().union(*needed))
    for place, count in enumerate(until):
        later: set[int] = set().union(*needed[count:])
        assert not later & set(chunks[: place + 1])
        assert count == 1 or set().union(*needed[count - 1 :]) & set(chunks[: place + 1])


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30)), max_size=20), st.integers(1, 9))
def test_a_chunk_that_is_needed_again_is_listed_again(
    spans: list[tuple[int, int]], chunk: int
) -> None:
    stretches = [(begin, begin + length) for begin, length in spans]
    chunks, until = chunks_each_time(stretches, chunk)
    needed = [list(range(a // chunk, -(-b // chunk))) for a, b in stretches]
    assert list(chunks) == [number for each in needed for number in each]
    for count in range(len(stretches)):
        left = chunks[bisect_right(until, count) :]  # as Lead has it
        assert list(left) == [number for each in needed[count:] for number in each]


def test_a_reader_leads(tmp_path: Path) -> None:
    """What is told as done is read again at most by the sample that crosses, and all is told."""
    classes = {f"n{c}": {f"{i}": bytes(30_000) for i in range(40)} for c in range(4)}
    content, path = make_nested(classes), tmp_path / "a.tar"
    path.write_bytes(content)
    Path(f"{path}.headway").write_bytes(make_manifest(str(path), chunk_size=1 << 16))
    path.unlink()
    with Arriving(path, content, 1 << 16) as arriving:
        source = SampleSource(str(path), Choice())
        order = source.order(seed=1, epoch=0)
        begin = 50
        lead = FetchOrder(source, order, begin)
        place, again = begin, set()
        for position, lot in order.walk(begin):
            lead.passed(position)
            found = read_wanted(str(path), 1 << 16, arriving.chunks)
            assert found is not None
            gone = set(found.chunks[: found.done])
            for sample in lot:
                at = source.samples.offsets[sample]
                if gone & set(range(at >> 16, (at + 29_999 >> 16) + 1)):
                    again.add(sample)
            place += len(lot)
        assert place == 160
        crossing = {order.blocks.samples(b)[-1] for b in range(len(order.blocks))}
        assert again <= crossing
        lead.passed(position + 99)
        found = read_wanted(str(path), 1 << 16, arriving.chunks)
        assert found is not None and found.done == len(found.chunks)
        lead.close()


def test_going_on_asks_for_what_is_left() -> None:
    offsets = range(0, 100_000, 100)
    blocks = Blocks(offsets, [100] * 1000, 1000, 100_000)
    order = Order(blocks, [0] * 1000, seed=1, epoch=0, window=5)
    assert len(list(order.stretches(0))) == 100
    assert len(list(order.stretches(900))) < 20
    assert list(order.stretches(1000)) == []
