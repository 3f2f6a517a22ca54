"""The study's world and weather: functions of the seed, fitted to the study's table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from statistics import fmean

import pytest
from study.weather import Kind, Moment, make_weather
from study.world import CHTC, GP, PDX, World, compute_times, make_world, short_world

SEEDS = range(1, 21)


def test_a_seed_makes_one_world_and_one_weather() -> None:
    assert make_world(3) == make_world(3) != make_world(4)
    assert make_weather(make_world(3)) == make_weather(make_world(3))
    assert make_weather(make_world(3)) != make_weather(make_world(4))
    assert make_weather(make_world(3), 2) == make_weather(make_world(3), 2)
    assert make_weather(make_world(3), 2) != make_weather(make_world(3))


@pytest.mark.parametrize("seed", SEEDS)
def test_sites_are_as_in_the_study(seed: int) -> None:
    world = make_world(seed)
    first = [slot for slot in world.slots if slot.place < world.jobs]
    assert Counter(slot.site.name for slot in first) == {CHTC.name: 12, PDX.name: 20, GP.name: 8}
    times = compute_times()
    for site in (CHTC, PDX):
        mine = fmean(slot.compute for slot in world.of(site))
        assert mine == pytest.approx(fmean(times[site.name]), rel=0.02)
    slow = [slot for slot in world.slots if slot.compute > 20 * 3600]
    assert [slot.label for slot in slow] == [f"{GP.name}/node1-slot1"]
    assert sum(not slot.networked for slot in world.slots) == 1


@pytest.mark.parametrize("make", [make_world, short_world])
@pytest.mark.parametrize("seed", SEEDS)
def test_four_slots_are_a_node(make: Callable[[int], World], seed: int) -> None:
    world = make(seed)
    assert len({slot.label for slot in world.slots}) == len(world.slots)
    alone, sizes = 0, Counter[int]()
    for slots in world.nodes.values():
        assert [slot.on_node for slot in slots] == list(range(1, len(slots) + 1))
        if any(slot.place >= world.jobs or not slot.networked for slot in slots):
            assert len(slots) == 1, "what others have brought is not there"
            alone += 1
        else:
            sizes[len(slots)] += 1
    assert alone == 3
    assert max(sizes) == 4
    assert sum(count for size, count in sizes.items() if size < 4) <= 3  # the last of a site


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("make", [make_world, short_world])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_fault_meets_a_job_of_its_own(
    make: Callable[[int], World], seed: int, number: int
) -> None:
    world = make(seed)
    weather = make_weather(world, number)
    kinds = Counter(episode.kind for episode in weather.episodes)
    assert kinds == {Kind.SLOW: 3, Kind.SILENT: 3, Kind.SHORT: 1, Kind.ABSENT: 3}
    known = {slot.label for slot in world.slots}
    assert {eviction.slot for eviction in weather.evictions} <= known
    assert len({eviction.slot for eviction in weather.evictions}) == 2

    def asked(kind: Kind) -> set[int]:
        """The jobs that ask for the first time while it is so, by their place."""
        return {
            slot.place
            for slot in world.slots[: world.jobs]
            for episode in weather.episodes
            if episode.kind is kind
            and episode.site in (None, slot.site.name)
            and episode.left(Moment(slot.place * world.spacing, slot.label))
        }

    evicted = {slot.place for slot in world.slots if slot.label == weather.evictions[0].slot}
    offline = {slot.place for slot in world.slots if not slot.networked}
    gone, shortened = asked(Kind.ABSENT), asked(Kind.SHORT)
    assert shortened and gone and not shortened & gone
    assert not evicted & (gone | shortened | offline | asked(Kind.SLOW))
    assert len(gone) >= 2


def test_bad_weather_is_where_it_is() -> None:
    weather = make_weather(make_world(1))
    slow = next(e for e in weather.episodes if e.kind is Kind.SLOW and e.site == CHTC.name)
    there = weather.of_cache(CHTC.name, Moment(slow.begin + 1))
    assert slow in there and slow not in weather.of_cache(CHTC.name, Moment(slow.end))
    assert slow not in weather.of_cache(PDX.name, Moment(slow.begin + 1))
    absent = next(e for e in weather.episodes if e.kind is Kind.ABSENT and e.site == GP.name)
    assert weather.of_director(GP.name, Moment(absent.begin)) == [absent]
    assert weather.of_director(PDX.name, Moment(absent.begin)) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_in_short_the_faults_wait_for_their_jobs(seed: int) -> None:
    """On a busy machine a job asks late; what lasts for seconds only would be over."""
    world = short_world(seed)
    weather, late = make_weather(world), 1000.0
    met = Counter[Kind]()
    for slot in world.slots[: world.jobs]:
        first, again = Moment(late, slot.label), Moment(late, slot.label, late)
        for found in (weather.of_cache, weather.of_director):
            met.update(episode.kind for episode in found(slot.site.name, first))
            assert not found(slot.site.name, again)
    assert met == {Kind.SILENT: 3, Kind.SHORT: 1, Kind.ABSENT: 2}
