"""Repair: whichever source is wrong, in however many places, its bytes are replaced in the end."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from headway.node.transfer.source import Fault, Identity, Source
from headway.node.transfer.versions import Repair, page_instead

SIZE = 60


def stretches(givers: list[int]) -> list[tuple[int, int, int]]:
    """Who gave which byte, as a ledger tells it."""
    result: list[tuple[int, int, int]] = []
    for place, giver in enumerate(givers):
        if result and result[-1][1:] == (place, giver):
            result[-1] = (result[-1][0], place + 1, giver)
        else:
            result.append((place, place + 1, giver))
    return result


@given(
    givers=st.lists(st.integers(0, 1), min_size=SIZE, max_size=SIZE),
    sick=st.integers(0, 1),
    wrong=st.sets(st.integers(0, SIZE - 1), min_size=1),
    least=st.integers(1, 20),
)
def test_one_of_two_sources_is_wrong(
    givers: list[int], sick: int, wrong: set[int], least: int
) -> None:
    """It ends with the right bytes, for no more than the whole and the smaller share again."""
    share = min(givers.count(0), givers.count(1))
    doubts, again = Repair(), 0
    givers = list(givers)
    while any(givers[place] == sick for place in wrong):
        portion = doubts.next(stretches(givers), least=least)
        assert portion, "every byte was replaced, and some are wrong still"
        for begin, end, giver in portion:
            assert givers[begin:end] == [giver] * (end - begin)
            givers[begin:end] = [1 - giver] * (end - begin)
            again += end - begin
    assert again <= SIZE + share
    if len(wrong) == 1:
        assert again <= SIZE


def test_a_single_source_is_doubted_once() -> None:
    doubts, written = Repair(), [(0, SIZE, 0)]
    again = 0
    while portion := doubts.next(written, least=7):
        assert sum(end - begin for begin, end, _ in portion) == 7 or again + 7 > SIZE
        again += sum(end - begin for begin, end, _ in portion)
    assert again == SIZE
    assert doubts.active
    doubts.clear()
    assert not doubts.active


def test_what_an_earlier_process_left_is_doubted_first() -> None:
    doubts = Repair()
    written = [(0, 10, 3), (10, 60, -1)]
    assert doubts.next(written, least=50) == [(10, 60, -1)]
    assert doubts.next([(0, 10, 3), (10, 60, 4)], least=50) == [(0, 10, 3)]


def test_connections_that_fall_silent_get_shorter() -> None:
    source, limits = Source("http://h/a", key=0), []
    for count in (0, 100, 90, 15, 12):  # the first never began: nothing is known of a limit
        source.fell_silent(count, 10)
        limits.append(source.bytes_per_connection)
    assert limits == [None, 50, 50, 45, 10]


def test_who_gives_wrong_parts_is_asked_for_the_whole() -> None:
    fault = Fault("another part", wrong_part=True)
    fresh, proven = Source("http://h/a", key=0), Source("http://h/b", key=1)
    proven.ranges = True
    for source in (fresh, proven):
        source.failed(fault, 0.0, 0.5)
    assert (fresh.ranges, proven.ranges) == (False, True)
    proven.gave(1, 1.0)
    for _ in range(2):
        proven.failed(fault, 1.0, 0.5)
    assert proven.ranges is True
    proven.failed(fault, 1.0, 0.5)
    assert proven.ranges is False


def test_several_givers_of_one_chunk_are_blamed_when_it_is_wrong_again() -> None:
    repair = Repair()
    assert repair.certain(0, 1)
    assert [repair.certain(64, 2) for _ in range(3)] == [False, False, True]
    assert not repair.certain(128, 2)


def test_a_page_is_not_the_object_unless_the_name_says_so() -> None:
    page = Identity(100, media_type="text/html")
    assert page_instead(Source("http://h/a.tar", key=0), page)
    assert not page_instead(Source("http://h/a.html", key=0), page)
    assert not page_instead(Source("http://h/a.tar", key=0), Identity(100))
