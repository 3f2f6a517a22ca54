"""The weather: what goes wrong when and where, a pure function of the world's seed and the time.

Times are seconds since the first job of a round had a slot, so that every run of a seed meets the
same weather, whoever asks and however often. A second round has weather of its own, by the same
rules.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import Enum

from study.world import CHTC, DAY, GP, HOUR, PDX, Site, Slot, World


class Kind(Enum):
    """What can be wrong with a cache, or (ABSENT) with the director."""

    SLOW = "slow"
    SILENT = "silent"
    SHORT = "short copy"
    ABSENT = "404"


@dataclass(frozen=True)
class Episode:
    """A stretch of bad weather at a site's cache, or (ABSENT) of the director.

    A director has several replicas: with a `site` it is that site's, else all of them. With a
    `slot` it is so for that slot alone, and begins when it first asks that cache or director.
    """

    kind: Kind
    begin: float
    end: float
    site: str | None = None
    transfer: float = 0.0  # seconds of the study that a transfer would take: how slow it is
    slot: str = ""

    def holds(self, now: float) -> bool:
        return self.begin <= now < self.end

    def left(self, moment: Moment) -> float:
        """The seconds until it is over, for one who asks at that moment; 0 if it is not so."""
        if self.slot not in ("", moment.client):
            return 0.0
        now = moment.own if self.slot else moment.now
        return self.end - now if self.holds(now) else 0.0


@dataclass(frozen=True)
class Moment:
    """When a slot asks: by the run's clock, and since it asked there for the first time."""

    now: float
    client: str = ""  # SITE/SLOT
    own: float = 0.0


@dataclass(frozen=True)
class Eviction:
    """A slot throws its job out: with a warning, or as a node does that goes away."""

    at: float
    slot: str
    warned: bool = True


@dataclass(frozen=True)
class Weather:
    episodes: tuple[Episode, ...]
    evictions: tuple[Eviction, ...]

    def of_cache(self, site: str, moment: Moment) -> list[Episode]:
        """What is wrong with a site's cache."""
        return [
            e
            for e in self.episodes
            if e.kind is not Kind.ABSENT and e.site == site and e.left(moment)
        ]

    def of_director(self, site: str, moment: Moment) -> list[Episode]:
        """What is wrong with the director, as a site sees it."""
        return [
            e
            for e in self.episodes
            if e.kind is Kind.ABSENT and e.site in (None, site) and e.left(moment)
        ]


def make_weather(world: World, number: int = 1) -> Weather:
    """The weather of a world's seed, fitted to what the study's table says happened.

    `number`: of the round.
    """
    dice = random.Random(f"weather {world.seed}" + (f" round {number}" if number > 1 else ""))
    overloads = {
        # Long at CHTC, as in the first half of the study, shorter elsewhere.
        CHTC: _overload(world, CHTC, 0.25, dice.uniform(11.0, 12.5), dice),
        PDX: _overload(world, PDX, 0.85, dice.uniform(5.5, 7.0), dice),
        GP: _overload(world, GP, 0.70, dice.uniform(1.5, 2.5), dice),
    }
    burst = round(dice.uniform(0.45, 0.55) * world.jobs)
    row = max(1, round(0.10 * world.jobs))
    victims = _Victims(world, {site: each[0].begin for site, each in overloads.items()}, dice)
    victims.spare(range(burst, burst + row))
    evicted, short, absent = victims.one(CHTC), victims.one(PDX), victims.one(CHTC, PDX)
    begin = evicted.place * world.spacing + world.scale.seconds(CHTC.transfer)
    midst = begin + dice.uniform(0.4, 0.6) * world.scale.seconds(evicted.compute)
    late = overloads[GP][0].end + 1.2 * world.scale.hour
    computing = _computing(world, late, overloads[GP][0].begin)
    episodes = [
        *(episode for each in overloads.values() for episode in each),
        Episode(Kind.SHORT, *_turns(world, short.place, 1), PDX.name),
        # 404 to one job, to every tenth in a row, and for an hour to a site
        Episode(Kind.ABSENT, *_turns(world, absent.place, 1)),
        Episode(Kind.ABSENT, *_turns(world, burst, row)),
        Episode(Kind.ABSENT, late, late + world.scale.hour, GP.name),
    ]
    if world.certain:
        episodes = [one for each in episodes for one in _certain(world, each)]
    return Weather(
        tuple(episodes),
        (Eviction(midst, evicted.label, warned=False), Eviction(late - 1.0, computing.label)),
    )


def _certain(world: World, episode: Episode) -> list[Episode]:
    """What passes within seconds, for the very slots that are to meet it, whenever they ask."""
    if episode.kind is Kind.SLOW or (episode.kind is Kind.ABSENT and episode.site):
        return [episode]
    lasts = episode.end - episode.begin
    first = [s for s in world.slots[: world.jobs] if episode.site in (None, s.site.name)]
    if episode.kind is Kind.SILENT:  # for who asked last before it
        met = [s for s in first if s.networked and s.place * world.spacing < episode.end][-1:]
    else:
        met = [s for s in first if episode.holds(s.place * world.spacing)]
    return [replace(episode, begin=0.0, end=lasts, slot=slot.label) for slot in met]


def _overload(
    world: World, site: Site, share: float, hours: float, dice: random.Random
) -> list[Episode]:
    """A cache is slow for hours from when that share of its site's jobs has asked.

    Those that ask before it, or after it, are well; all others the starter of 2024 cuts every hour.
    """
    places = sorted(slot.place for slot in world.of(site) if slot.place < world.jobs)
    begin = (places[min(round(share * len(places)), len(places) - 1)] - 0.5) * world.spacing
    end = begin + hours * (world.longest / DAY) * world.scale.hour
    silence = dice.uniform(0.08, 0.2) * world.scale.hour
    return [
        Episode(Kind.SLOW, begin, end, site.name, dice.uniform(1.5, 2.2) * HOUR),
        # it falls silent, and is slow when it comes back
        Episode(Kind.SILENT, begin - silence, begin, site.name),
    ]


def _computing(world: World, when: float, before: float) -> Slot:
    """The slot at GP-ARGO whose job, of those that asked before, has computed least by then."""

    def begin(slot: Slot) -> float:
        return slot.place * world.spacing + world.scale.seconds(GP.transfer)

    busy = [
        slot
        for slot in world.of(GP)
        if 0 < slot.place * world.spacing < before
        # one that trains while its data arrives ends sooner than one that waits for it
        and when + 2 < slot.place * world.spacing + world.scale.seconds(slot.compute)
    ]
    longest = sorted(world.of(GP)[1:], key=lambda slot: slot.compute)[-1:]
    return max(busy or longest, key=begin)


class _Victims:
    """Jobs that ask before their cache is overloaded, each for one fault only."""

    def __init__(self, world: World, overloaded: dict[Site, float], dice: random.Random) -> None:
        self._left = [
            slot
            for slot in world.slots
            if 0 < slot.place * world.spacing < overloaded[slot.site] and slot.networked
        ]
        self._dice = dice

    def spare(self, places: range) -> None:
        self._left = [slot for slot in self._left if slot.place not in places]

    def one(self, *sites: Site) -> Slot:
        chosen = self._dice.choice([slot for slot in self._left if slot.site in sites])
        self._left.remove(chosen)
        return chosen


def _turns(world: World, first: int, number: int) -> tuple[float, float]:
    """The time in which so many jobs, from that one on, ask for the first time."""
    return (first - 0.5) * world.spacing, (first + number - 0.5) * world.spacing
