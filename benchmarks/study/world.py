"""The world in small: the study's sites, slots and compute times, with time and bytes scaled."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

TABLE = Path(__file__).parents[2] / "tests/report/data/ospool-imagenet-100-jobs.csv"
HOUR = 3600.0
EPOCHS = 5
DAY = 20.0  # hours that a job of the study may execute
SHORT_SIZE = 16_000_000  # bytes
LEAST = 3.0  # seconds: a machine that is busy for a moment is no cache that stopped


@dataclass(frozen=True)
class Site:
    """One site: its share of the jobs, and how long a healthy transfer takes there."""

    name: str
    share: float
    transfer: float  # seconds of the study, the mean of its last transfers


CHTC = Site("CHTC-Spark-CE1", 0.30, 1_500.0)
PDX = Site("PDX-Coeus-CE1", 0.50, 2_750.0)
GP = Site("GP-ARGO-ksu-backfill", 0.20, 900.0)
SITES = (CHTC, PDX, GP)
_NEAR = 0.85  # of the longest that a job may execute
SPARES = [CHTC, GP]  # slots that no job takes at first, for those that have to go elsewhere
AT_ONE_NODE = 4  # slots


@dataclass(frozen=True)
class Scale:
    """What an hour and the data set shrink to."""

    hour: float  # seconds
    size: int  # bytes of the 143 GB

    def seconds(self, of_study: float) -> float:
        return of_study * self.hour / HOUR

    def rate(self, transfer: float) -> float:
        """Bytes a second at which the data set takes so many seconds of the study."""
        return self.size / self.seconds(transfer)


@dataclass(frozen=True)
class Slot:
    """One slot of a site; `place` is its turn in the matchmaking."""

    site: Site
    number: int  # among the slots of its site
    place: int
    compute: float  # seconds of the study that a job computes there
    networked: bool = True  # whether jobs, other than HTCondor itself, get out
    node: int = 0  # among the nodes of its site
    on_node: int = 0  # its number there

    @property
    def node_name(self) -> str:
        return f"{self.site.name}-node{self.node}"

    @property
    def label(self) -> str:
        """SITE/NODE-SLOT."""
        return f"{self.site.name}/node{self.node}-slot{self.on_node}"


@dataclass(frozen=True)
class World:
    """All that is the same in every run of a seed, but for the weather."""

    seed: int
    jobs: int
    scale: Scale
    spacing: int  # seconds between two starts
    slots: tuple[Slot, ...]
    longest: float = DAY  # hours that a job may execute
    certain: bool = False  # each slot has a job, and each fault its slot, however late they are

    def of(self, site: Site) -> list[Slot]:
        return sorted((s for s in self.slots if s.site == site), key=lambda slot: slot.number)

    @property
    def nodes(self) -> dict[str, list[Slot]]:
        """The slots of each node, in the order of their numbers."""
        found: dict[str, list[Slot]] = {}
        for slot in sorted(self.slots, key=lambda slot: slot.on_node):
            found.setdefault(slot.node_name, []).append(slot)
        return dict(sorted(found.items()))

    @property
    def limit(self) -> int:
        """The 20 hours that a job may execute, in seconds."""
        return round(self.scale.seconds(self.longest * HOUR))

    def patience(self, of_study: float) -> float:
        """How many seconds a client waits here that waits so many in the study."""
        return max(LEAST, self.scale.seconds(of_study))

    @property
    def cut(self) -> int:
        """The hour after which the starter of 2024 cuts a transfer, in seconds."""
        return round(self.scale.hour)


def make_world(
    seed: int,
    jobs: int = 40,
    *,
    hour: float = 30.0,
    size: int = 48_000_000,
    spacing: int = 2,
    longest: float = DAY,
    certain: bool = False,
) -> World:
    """The world of a seed: who computes where for how long is drawn from the study's table."""
    dice = random.Random(f"world {seed}")
    # of shorter days, without what would come near their end
    end = _NEAR * longest * HOUR
    times = {site: [t for t in each if t < end] for site, each in compute_times().items()}
    count = {site: round(site.share * jobs) for site in SITES}
    count[PDX] += jobs - sum(count.values())
    # Each site's turns lie all over, in an order that chance makes.
    turns = [
        ((number + dice.random()) / count[site], site.name, site)
        for site in SITES
        for number in range(count[site])
    ]
    order = [site for _, _, site in sorted(turns)]
    # Too slow for the limit; first, so that a run ends within 24 of its hours.
    order.remove(GP)
    order.insert(0, GP)
    offline = dice.choice([place for place, site in enumerate(order[: jobs // 2]) if site == PDX])
    order += SPARES
    drawn = {
        site: _spread(times[site.name], order.count(site) - (site == GP), dice) for site in SITES
    }
    slots: list[Slot] = []
    for place, site in enumerate(order):
        number = 1 + sum(slot.site == site for slot in slots)
        slow = site == GP and number == 1
        too_long = dice.uniform(20.8, 21.4) * (longest / DAY) * HOUR if slow else 0.0
        compute = too_long or drawn[site].pop()
        slots.append(Slot(site, number, place, compute, networked=place != offline))
    placed = tuple(_on_nodes(slots, jobs))
    return World(seed, jobs, Scale(hour, size), spacing, placed, longest, certain)


def _on_nodes(slots: Iterable[Slot], jobs: int) -> list[Slot]:
    """Each slot on a node: four of a site that begin one after the other share one.

    The last node of a site has what is left. Spare slots, and the slot without network, are nodes
    of their own: who goes there finds nothing that others have brought.
    """
    made: list[Slot] = []
    filled: dict[Site, tuple[int, int]] = {}  # the node that is being filled, and its slots
    nodes: dict[Site, int] = {}
    for slot in slots:
        node, taken = filled.get(slot.site, (0, AT_ONE_NODE))
        alone = slot.place >= jobs or not slot.networked
        if alone or taken == AT_ONE_NODE:
            node, taken = nodes.get(slot.site, 0) + 1, 0
            nodes[slot.site] = node
        if not alone:
            filled[slot.site] = node, taken + 1
        made.append(replace(slot, node=node, on_node=taken + 1))
    return made


def short_world(seed: int) -> World:
    """12 jobs and days of 5 hours, for a test: a round ends within a minute, on any machine."""
    return make_world(seed, 12, hour=8.0, size=SHORT_SIZE, longest=5.0, certain=True)


def compute_times() -> dict[str, list[float]]:
    """Seconds that the study's successful jobs computed, by site, in order."""
    found: dict[str, list[float]] = {site.name: [] for site in SITES}
    with TABLE.open() as file:
        for row in csv.DictReader(file):
            if row["outcome"] == "success":
                found[row["sites"].rpartition(";")[2]].append(float(row["execute_s"]))
    return {site: sorted(times) for site, times in found.items()}


def _spread(times: list[float], number: int, dice: random.Random) -> list[float]:
    """So many of the times, one from each of as many equal parts, so that few look like all."""
    at = [(part + dice.random()) / number * len(times) for part in range(number)]
    drawn = [times[min(int(each), len(times) - 1)] for each in at]
    dice.shuffle(drawn)
    return drawn
