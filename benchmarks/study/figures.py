"""The figures of a run: what `headway report` says of its log, and what its outputs are worth."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl
from study.runs import Ran
from study.world import SITES, World

from headway.events import EventType, read_log
from headway.report import Report, report
from headway.report.enums import Cause

OUTPUT = "model_$(Cluster)_$(Process).json"


@dataclass(frozen=True)
class Figures:
    """One row of the table; shares are of the slot time."""

    run: str
    seed: int
    jobs: int
    verified: int  # jobs whose output is the right one
    wrong: int  # outputs that are there and wrong: nobody would have noticed
    compute_share: float
    waiting_share: float  # of it, readers that waited for data
    goodput: float
    retried_share: float  # transfers that had to be made again, of jobs that succeeded
    result_mean: float  # hours of the study, first match to the end
    result_median: float
    stretch_p95: float  # the same, over own compute and one transfer at the site's rate
    size: int  # bytes of the object
    holding: int  # nodes that held it when the round began
    nodes: int
    arrived: int  # attempts that got it
    from_store: int  # of them, those that found it on their node, or waited there for another's
    bytes_moved: int
    retried_bytes: float  # of the moved, those beyond one object for each attempt that fetched it
    again_bytes: float  # of the moved, whole objects of attempts beyond one for each result
    stalls: int
    evictions: int
    holds: int
    slot_hours: float
    wall: float  # seconds
    losses: dict[str, float]  # by cause, shares of the slot time
    met: dict[str, int]  # slots that met each kind of bad weather

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def report_of(ran: Ran) -> Report:
    """The report of a run, by the same rule for all: a success has left the right output."""
    return report(str(ran.log), outputs=OUTPUT)


def figures(ran: Ran, world: World) -> Figures:
    """What a run came to."""
    found = report_of(ran)
    good = ran.made
    totals = found.totals
    arrived = _arrived(found, ran)
    fetched = [each for each in arrived if not each.from_store]
    moved = Counter[str]()
    for slot, count in ran.moved.items():
        moved[_node(slot)] += count
    at, by = Counter(each.node for each in fetched), Counter(each.job for each in fetched)
    total = moved.total()
    beyond = sum(max(0, count - at[node] * ran.size) for node, count in moved.items())
    again = sum(max(0, by[job] - (job in good)) for job in by) * ran.size
    walls = _walls(found, good)
    results = pl.Series(walls.values(), dtype=pl.Float64)
    stretches = pl.Series(
        [walls[job] / _ideal(world, good[job]) for job in walls], dtype=pl.Float64
    )
    waited = sum(each["waited"] for each in good.values())
    return Figures(
        run=ran.way.name,
        seed=world.seed,
        jobs=world.jobs,
        verified=len(good),
        wrong=len(list(ran.folder.glob("wrong_*"))),
        compute_share=totals.compute_share or 0.0,
        waiting_share=waited / totals.slot_s,
        goodput=totals.goodput or 0.0,
        retried_share=totals.retried_transfer_s / totals.slot_s,
        result_mean=_number(results.mean()) / world.scale.hour,
        result_median=_number(results.median()) / world.scale.hour,
        stretch_p95=_number(stretches.quantile(0.95, "linear")),
        size=ran.size,
        holding=ran.holding,
        nodes=len(world.nodes),
        arrived=len(arrived),
        from_store=len(arrived) - len(fetched),
        bytes_moved=total,
        retried_bytes=beyond / total if total else 0.0,
        again_bytes=again / total if total else 0.0,
        stalls=totals.stalls,
        evictions=totals.evictions,
        holds=totals.holds,
        slot_hours=totals.slot_s / world.scale.hour,
        wall=ran.wall,
        losses={loss.cause: loss.share or 0.0 for loss in found.losses},
        met=dict(ran.met),
    )


@dataclass(frozen=True)
class _Arrival:
    """An attempt that got the data set."""

    job: int
    node: str
    from_store: bool


def _arrived(found: Report, ran: Ran) -> list[_Arrival]:
    """Attempts that got their input; a node that is not fit is left before that."""
    whole = pl.col("arrived") & pl.col("executed") & (pl.col("cause") != Cause.BAD_NODE.value)
    attempts = found.accounts.attempts.filter(whole).join(
        found.accounts.jobs.select("job", "proc"), on="job"
    )
    begun: dict[int, list[tuple[float, str]]] = {}
    for event in read_log(ran.log).events:
        if event.number == EventType.EXECUTE:
            node = event.slot.partition("@")[2].partition("@")[0].removeprefix("glidein_")
            begun.setdefault(event.proc, []).append((event.time, node))
    kept = _from_store(ran)
    return [
        _Arrival(
            proc,
            max(entry for entry in begun[proc] if entry[0] <= end)[1],
            any(begin <= when <= end for when in kept.get(proc, ())),
        )
        for proc, begin, end in attempts.select("proc", "begin", "end").iter_rows()
    ]


def _from_store(ran: Ran) -> dict[int, list[float]]:
    """When attempts of each job began that took the data set from their node's store."""
    found: dict[int, list[float]] = {}
    for path in ran.folder.glob("jobs/*/attempts/*/record.json"):
        record = json.loads(path.read_text())
        if any(
            each["source"] == "store" and each["bytes"] == ran.size for each in record["inputs"]
        ):
            found.setdefault(int(path.parts[-4]), []).append(record["segments"][0]["begin"])
    return found


def _node(slot: str) -> str:
    """The node of a slot (SITE/NODE-SLOT), as its startd is called."""
    return slot.rpartition("-")[0].replace("/", "-")


def _walls(found: Report, good: Mapping[int, Any]) -> dict[int, float]:
    """Seconds from the first match to the end, of jobs with the right output."""
    rows = found.accounts.jobs.select("proc", "matched", "end").iter_rows()
    return {proc: end - matched for proc, matched, end in rows if proc in good}


def _ideal(world: World, made: Mapping[str, Any]) -> float:
    """Own compute, and one transfer at the rate of the site where most of it was."""
    spent: dict[str, float] = made["spent"]
    most = max(spent, key=lambda site: spent[site])
    (site,) = [each for each in SITES if each.name == most]
    return sum(spent.values()) + world.scale.seconds(site.transfer)


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0
