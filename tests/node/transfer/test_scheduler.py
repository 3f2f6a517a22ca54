"""The scheduler: decisions about sources and lanes, without a clock or a socket."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from headway.node.transfer import scheduler
from headway.node.transfer.scheduler import LaneView, SourceView, openings, stalls
from headway.node.transfer.source import Fault, Source

MB = 1 << 20


def lane(source: int = 0, **changes: object) -> LaneView:
    about: dict[str, object] = {
        "key": source * 10,
        "source": source,
        "phase": "body",
        "age": 10.0,
        "silence": 0.0,
        "recent": 10.0 * MB,
        "usual": 10.0 * MB,
        "left": 50 * MB,
        "got": MB,
    }
    return LaneView(**{**about, **changes})  # type: ignore[arg-type]


def cut(lanes: list[LaneView], sources: list[SourceView]) -> list[int]:
    return [reason.lane for reason in stalls(lanes, sources)]


@given(rate=st.floats(0.001, 1e9), age=st.floats(0, 1e6), usual=st.floats(0, 1e10))
def test_a_slow_source_that_is_alone_is_never_stalled(
    rate: float, age: float, usual: float
) -> None:
    alone = lane(recent=rate, age=age, usual=usual, silence=0.9, gap=1.0)
    assert cut([alone], [SourceView(key=0, lanes=1)]) == []


@given(rates=st.lists(st.floats(1.0, 1e9), min_size=2, max_size=4), gaps=st.floats(0, 1.5))
def test_the_fastest_lane_is_never_cut(rates: list[float], gaps: float) -> None:
    lanes = [lane(i, recent=rate, silence=gaps) for i, rate in enumerate(rates)]
    sources = [SourceView(key=i, lanes=1) for i in range(len(rates))]
    fastest = max(lanes, key=lambda view: view.recent)
    assert fastest.key not in cut(lanes, sources)


def test_silence_beside_others_is_noticed_in_seconds() -> None:
    sources = [SourceView(key=0, lanes=1), SourceView(key=1, lanes=1)]
    assert cut([lane(0, silence=2.1), lane(1)], sources) == [0]
    assert cut([lane(0, silence=1.9), lane(1)], sources) == []
    # a source that is known to pause is given longer
    assert cut([lane(0, silence=2.1, gap=1.0), lane(1)], sources) == []


def test_a_source_far_below_its_peers_loses_its_chunk() -> None:
    sources = [SourceView(key=0, lanes=1), SourceView(key=1, lanes=1)]
    assert cut([lane(0, recent=MB), lane(1)], sources) == [0]
    assert cut([lane(0, recent=2 * MB), lane(1)], sources) == []
    assert cut([lane(0, recent=MB, age=1.0), lane(1)], sources) == []  # it has just begun
    assert cut([lane(0, recent=MB, left=MB), lane(1)], sources) == []  # it is nearly done


def test_a_source_that_fell_below_its_own_rate_gives_way_to_a_fresh_one() -> None:
    fallen = lane(0, recent=0.5 * MB, usual=20.0 * MB)
    assert cut([fallen], [SourceView(key=0, lanes=1), SourceView(key=1)]) == [0]
    assert cut([fallen], [SourceView(key=0, lanes=1), SourceView(key=1, ready=False)]) == []


def test_when_all_fall_together_it_is_the_network() -> None:
    sources = [SourceView(key=i, lanes=1) for i in range(2)] + [SourceView(key=2)]
    lanes = [lane(i, recent=0.5 * MB, usual=20.0 * MB) for i in range(2)]
    assert cut(lanes, sources) == []


def test_a_slow_disk_is_nobodys_stall() -> None:
    sources = [SourceView(key=0, lanes=1), SourceView(key=1, lanes=1)]
    assert cut([lane(0, phase="disk", silence=60.0), lane(1)], sources) == []


def test_first_bytes_may_take_longer_when_nobody_else_can_help() -> None:
    waiting = lane(0, phase="first byte", silence=9.0, got=0, recent=0.0)
    assert cut([waiting], [SourceView(key=0, lanes=1)]) == []
    assert cut([waiting], [SourceView(key=0, lanes=1), SourceView(key=1)]) == [0]
    late = lane(0, phase="first byte", silence=20.0, got=0, recent=0.0)
    assert cut([late], [SourceView(key=0, lanes=1)]) == [0]
    # after a few vain tries it is given more time
    assert cut([late], [SourceView(key=0, lanes=1, silences=2)]) == []


def opened(sources: list[SourceView], lanes: list[LaneView], **changes: object) -> list[int]:
    about: dict[str, object] = {"most": 4, "remaining": 1000 * MB, "known": True, **changes}
    return openings(sources, lanes, **about)  # type: ignore[arg-type]


def test_one_source_is_asked_first_and_the_next_when_it_is_silent() -> None:
    sources = [SourceView(key=i, rank=i) for i in range(3)]
    assert opened(sources, [], known=False)[0] == 0
    waiting = lane(0, phase="connect", silence=0.5, got=0, recent=0.0)
    sources[0].lanes = 1
    assert opened(sources, [waiting], known=False) == []
    waiting.silence = 1.1
    assert opened(sources, [waiting], known=False)[0] == 1


def test_the_last_bytes_of_one_that_fell_silent_are_fetched_elsewhere() -> None:
    """Its rate of the last seconds would bring them at once, but it is silent."""
    sources = [SourceView(key=0, lanes=1), SourceView(key=1)]

    def opened(silence: float) -> list[int]:
        last = lane(0, silence=silence, recent=MB, left=MB // 2)
        found = openings(sources, [last], most=4, remaining=MB // 2, known=True)
        assert not found or scheduler.steal([last], 1, MB) == (0, MB // 2)
        return found

    assert 1 in opened(2.1) and not opened(0.1)


def test_no_lane_is_opened_where_the_node_itself_is_the_limit() -> None:
    sources = [SourceView(key=0, lanes=1, allowed=4)]
    busy = lane(0, cpu_share=0.9)
    assert opened(sources, [busy], processors=2) == []
    assert opened(sources, [busy], processors=3) == []
    assert opened(sources, [busy], processors=4) == [0, 0, 0]
    assert opened(sources, [lane(0, cpu_share=0.3)], processors=1) == [0, 0, 0]
    # one that has fallen silent keeps nobody busy
    assert opened(sources, [lane(0, cpu_share=0.9, silence=1.5)], processors=2) == [0, 0, 0]
    # what bytes cost is not known before some have come
    assert opened(sources, [lane(0, age=0.01)], processors=2) == []
    assert opened(sources, [lane(0, got=0, silence=0.01)], processors=2) == []
    assert opened(sources, [lane(0, age=0.01, phase="disk")], processors=2) == []
    assert opened(sources, [lane(0, got=0, silence=0.1)], processors=2) == [0, 0, 0]


def test_a_far_source_gets_its_lanes_as_soon_as_it_has_answered() -> None:
    sources = [SourceView(key=0, lanes=1, allowed=4)]
    answered = lane(0, got=0, silence=0.0, latency=0.08)
    assert opened(sources, [answered], processors=2) == [0, 0, 0]
    assert opened(sources, [lane(0, age=0.01, latency=0.08)], processors=2) == [0, 0, 0]
    assert opened(sources, [lane(0, age=0.01, latency=0.002)], processors=2) == []


def test_lanes_are_limited_by_source_and_in_all() -> None:
    sources = [SourceView(key=0, lanes=1), SourceView(key=1, rank=1)]
    assert opened(sources, [lane(0)]) == [0, 1, 1]
    assert opened(sources, [lane(0), lane(0), lane(1), lane(1)]) == []
    sources[0].allowed = 1
    assert opened(sources, [lane(0)]) == [1, 1]


def test_the_origin_comes_last() -> None:
    cache, origin = SourceView(key=0, lanes=1), SourceView(key=1, last_resort=True)
    assert 1 not in opened([cache, origin], [lane(0)])
    cache.ready = False
    assert opened([cache, origin], [], known=False) == [1]


def test_a_small_rest_needs_no_further_connection() -> None:
    sources = [SourceView(key=0, lanes=1), SourceView(key=1)]
    assert opened(sources, [lane(0, left=MB)], remaining=MB) == []
    drags = lane(0, left=MB, recent=1000.0)
    assert opened(sources, [drags], remaining=MB) != []


@given(
    remaining=st.integers(1, 1 << 42),
    lanes=st.integers(1, 4),
    rate=st.floats(0, 1e10),
    others=st.floats(0, 1e10),
    latency=st.floats(0, 60),
    ordered=st.booleans(),
)
def test_chunks_have_bounds(
    remaining: int, lanes: int, rate: float, others: float, latency: float, ordered: bool
) -> None:
    count = scheduler.chunk(remaining, lanes, rate, rate + others, latency=latency, ordered=ordered)
    assert scheduler.LEAST_CHUNK <= count <= max(remaining, scheduler.LEAST_CHUNK)
    if ordered and lanes > 1:
        assert count <= max(scheduler.MOST_CHUNK, rate * latency / scheduler.OVERHEAD)


@given(
    remaining=st.integers(1 << 22, 1 << 42),
    lanes=st.integers(1, 4),
    rate=st.floats(1e3, 1e10),
    latency=st.floats(0, 60),
    ordered=st.booleans(),
)
def test_a_request_is_worth_its_wait(
    remaining: int, lanes: int, rate: float, latency: float, ordered: bool
) -> None:
    count = scheduler.chunk(remaining, lanes, rate, lanes * rate, latency=latency, ordered=ordered)
    least = min(rate * latency / scheduler.OVERHEAD, remaining / lanes, scheduler.MOST_FOR_LATENCY)
    assert count >= 0.99 * least - 1


def test_lanes_share_what_is_to_come() -> None:
    size = 2000 * MB
    free, shares = size, []
    for _ in range(4):
        shares.append(scheduler.chunk(size, 4, 0.0, 0.0, free=free))
        free -= shares[-1]
    assert shares == [500 * MB] * 4
    assert scheduler.chunk(size, 1, 0.0, 0.0) == size
    assert scheduler.chunk(size, 2, 10.0 * MB, 40.0 * MB) == 200 * MB, "twenty seconds of it"


def test_the_last_lane_leaves_no_crumb() -> None:
    # bytes of the first have come meanwhile, so that a fourth of the rest is less than a fourth
    left = 500 * MB - 3000
    assert scheduler.chunk(2000 * MB - 3000, 4, 0.0, 0.0, free=500 * MB) == 500 * MB
    assert scheduler.chunk(2000 * MB - 3000, 4, 0.0, 0.0, free=600 * MB) == pytest.approx(
        left, 0.01
    )


def test_who_waits_no_longer_than_its_source_usually_takes_keeps_its_bytes() -> None:
    waits = lane(0, phase="first byte", silence=3.5, recent=0.0, got=0, left=50 * MB, latency=3.0)
    assert scheduler.steal([waits], 1, 20e6, 3.0) is None
    hangs = lane(0, phase="first byte", silence=7.0, recent=0.0, got=0, left=50 * MB, latency=3.0)
    assert scheduler.steal([hangs], 1, 20e6, 3.0) is not None
    nearly = lane(0, left=50 * MB, recent=20e6, latency=3.0)
    assert scheduler.steal([nearly], 1, 20e6) is not None
    assert scheduler.steal([nearly], 1, 20e6, 3.0) is None, "it ends before a thief had a byte"
    far = lane(0, left=3 * MB, recent=25.0 * MB)  # 120 ms to go, and a round trip takes 40
    assert scheduler.steal([far], 1, 25.0 * MB, 0.04) == (0, MB)


def test_chunks_shrink_towards_the_end() -> None:
    sizes, left = [], 2000 * MB
    while left > 0:
        sizes.append(min(left, scheduler.chunk(left, 4, 0.0, 0.0, ordered=True)))
        left -= sizes[-1]
    assert sizes[:-1] == sorted(sizes[:-1], reverse=True)
    assert sizes[0] == scheduler.MOST_CHUNK and len(sizes) < 70


def test_an_idle_lane_takes_its_share_of_a_slow_ones_rest() -> None:
    found = scheduler.steal([lane(0, left=50 * MB, recent=1.0 * MB)], 1, 9.0 * MB)
    assert found is not None and found[0] == 0
    assert found[1] == pytest.approx(45 * MB, rel=0.01)
    assert scheduler.steal([lane(0, left=MB)], 1, 9.0 * MB) is None
    late = scheduler.steal([lane(0, left=50 * MB)], 1, 10.0 * MB, 1.0)
    assert late == (0, 20 * MB), "both have four seconds to go when the thief's first byte comes"
    silent = scheduler.steal([lane(0, left=MB, silence=3.0, recent=0.0)], 1, 9.0 * MB)
    assert silent == (0, MB)


def test_hedges_are_small_late_and_elsewhere() -> None:
    drags = lane(0, left=MB, recent=1000.0)
    assert scheduler.hedge([drags], 1, 10.0 * MB, budget=2 * MB) == 0
    assert scheduler.hedge([drags], 0, 10.0 * MB, budget=2 * MB) is None
    assert scheduler.hedge([drags], 1, 10.0 * MB, budget=MB // 2) is None
    assert scheduler.hedge([lane(0, left=MB)], 1, 10.0 * MB, budget=2 * MB) is None
    assert scheduler.hedge_budget(1000 * MB, 0) == 40 * MB
    assert scheduler.hedge_budget(1000 * MB, 40 * MB) == 0


def test_absence_needs_everybodys_word_for_the_grace_period() -> None:
    assert scheduler.agreed_absent([0.0, 1.0], 11.5, 10.0)
    assert not scheduler.agreed_absent([0.0, 3.0], 11.5, 10.0)
    assert not scheduler.agreed_absent([0.0, None], 99.0, 10.0)
    assert not scheduler.agreed_absent([], 99.0, 10.0)


def test_a_source_is_benched_longer_each_time_and_forgiven_by_bytes() -> None:
    source = Source("http://h/x", key=0)
    pauses = []
    for number in range(10):
        now = 1000.0 * number
        source.failed(Fault("x"), now, 0.5)
        pauses.append(source.benched_until - now)
    assert pauses[:4] == [0.5, 1.0, 2.0, 4.0] and pauses[-1] == 60.0
    source.gave(1, 20_000.0)
    source.failed(Fault("x"), 20_000.0, 0.5)
    assert source.benched_until == 20_000.5


def test_retry_after_is_honoured_up_to_a_limit() -> None:
    source = Source("http://h/x", key=0)
    source.failed(Fault("x", after=7.0, strain=True), 100.0, 0.5)
    assert (source.benched_until, source.allowed) == (107.0, 1)
    source.failed(Fault("x", after=1e9), 200.0, 0.5)
    assert source.benched_until == 500.0


def test_lost_connections_come_back_one_by_one() -> None:
    source = Source("http://h/x", key=0, most=4)
    source.failed(Fault("x", strain=True), 0.0, 0.5)
    source.failed(Fault("x", strain=True), 1.0, 0.5)
    assert source.allowed == 1
    for now in range(2, 50):
        source.gave(1000, float(now))
    assert source.allowed == 3


def test_a_falling_rate_costs_a_connection() -> None:
    about = SourceView(key=0, lanes=2)
    slow = [lane(0, recent=2.0 * MB), lane(0, recent=2.5 * MB)]
    assert scheduler.falling(about, slow, 10.0 * MB)
    assert scheduler.falling(about, slow, 4.5 * MB), "one alone brought as much"
    assert not scheduler.falling(about, slow, 4.0 * MB)
    assert not scheduler.falling(about, slow[:1], 10.0 * MB)


@given(size=st.integers(1, 1 << 40), lanes=st.integers(1, 16), ordered=st.booleans())
def test_the_first_request_stays_within_the_object(size: int, lanes: int, ordered: bool) -> None:
    count = scheduler.first_chunk(size, lanes, ordered=ordered)
    assert min(size, scheduler.FIRST_CHUNK) <= count <= size
    assert scheduler.first_chunk(None, lanes, ordered=ordered) == scheduler.FIRST_CHUNK


def test_readers_wait_for_whole_chunks_that_are_worth_a_request() -> None:
    assert scheduler.chunk_for_readers(0.0, 0.0, 3 * MB) == 3 * MB
    assert scheduler.chunk_for_readers(10.0 * MB, 0.1, MB) == 10 * MB
    assert scheduler.chunk_for_readers(1e12, 1.0, MB) == scheduler.MOST_CHUNK


def test_a_lane_asks_for_its_share_by_rate() -> None:
    fast = [lane(1, recent=30.0 * MB)]
    rest = {"lanes": 2, "free": 400 * MB, "latency": 0.0, "ordered": False}
    mine = scheduler.share(fast, 0, 10.0 * MB, 400 * MB, **rest)  # type: ignore[arg-type]
    assert mine == 100 * MB
    alike = [lane(1, recent=0.0)]  # of whom nothing is known will do as well as this one
    mine = scheduler.share(alike, 0, 10.0 * MB, 400 * MB, **rest)  # type: ignore[arg-type]
    assert mine == 200 * MB


@pytest.mark.parametrize(
    ("rates", "seconds", "writing", "slow"),
    [
        ([1e7, 1e6], 1.0, 0.0, "source"),
        ([9e5, 8e5], 9.0, 0.0, "network"),
        ([9e5, 8e5], 7.0, 0.0, ""),
        ([9e4], 9.0, 0.0, "source"),
        ([1e7, 9e6], 10.0, 11.0, "disk"),
        ([1e7, 9e6], 4.0, 11.0, ""),
        ([], 100.0, 0.0, ""),
    ],
)
def test_what_holds_it_up(rates: list[float], seconds: float, writing: float, slow: str) -> None:
    assert scheduler.bottleneck(rates, 2, seconds=seconds, writing=writing) == slow
