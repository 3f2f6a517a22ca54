"""Pool-wide event logs of any size, made of a real pool's logs: their words, new jobs and times.

    python benchmarks/made_logs.py FILE [--jobs N | --size MB] [--mix all|pool] [--days N]

Each made job follows one real job event by event. It gets a cluster and a proc of its own, and its
own machines, slots, ports and sites; its times are drawn anew: a wait in the queue, transfers,
hours of compute. What an event says about these times is said anew too. The jobs of a cluster
arrive together, the events of all jobs are interleaved in order of time, and the log stops while
jobs are still on their slots, as the log of a pool does. The same arguments make the same bytes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from stories import POOL_MIX, Story, stories_of

SEED = 100
BEGIN = np.datetime64("2026-08-03T06:00:00", "s").astype(np.int64)
DAY = 86_400
#: Machines of a pool whose jobs say at which site they are, and of one that is its own site.
MACHINES, MACHINES_OF_ONE_SITE = 5_000, 1_000
CHUNK = 100_000  # events that are put into words at a time
SITES = {
    "CHTC-Spark-CE1": 24,
    "PDX-Coeus-CE1": 42,
    "GP-ARGO-ksu-backfill": 13,
    "SDSC-PRP-CE1": 30,
    "UNL-Swan-CE1": 11,
    "Expanse-PATh-EP": 9,
    "UConn-HPC": 7,
    "AMNH-Ares-CE1": 5,
    "MTState-Tempest-CE1": 4,
    "ND-CAML-GPU": 3,
}


class Made(NamedTuple):
    jobs: int
    events: int
    size: int


def make_log(
    path: Path,
    *,
    jobs: int | None = None,
    size: int | None = None,
    mix: Mapping[str, int] | None = None,
    days: int = 21,
    seed: int = SEED,
    attributes: int = 0,
) -> Made:
    """Writes a log of so many jobs, or of at least so many bytes, and says what is in it.

    Each 001 has so many attributes more, as `ulog_execute_attrs` can bring: with their 80 bytes
    each they make the log larger and its events not more.
    """
    stories, weights = stories_of(mix)
    for story in stories:
        for step in story.steps:
            if step.number == 1:
                step.text = step.text.removesuffix("...\n") + _attributes(attributes) + "...\n"
    if jobs is None:
        mean = float(np.dot([story.size for story in stories], weights))
        jobs = int(1.03 * (size or 0) / mean) + 50
    machines = MACHINES if mix else MACHINES_OF_ONE_SITE
    events = _Events(stories, weights, jobs, days, machines, np.random.default_rng(seed))
    written = 0
    with open(path, "wb") as file:
        for text in events.texts():
            written += file.write(text.encode())
    if size is not None and written < size:
        raise SystemExit(f"{path}: {written} bytes, not {size}")
    return Made(jobs, len(events.order), written)


def _attributes(count: int) -> str:
    return "".join(f'\tMachineAttr{at:03d} = "{"0123456789" * 6}"\n' for at in range(count))


class _Events:
    """All events of all made jobs, in order of time."""

    def __init__(
        self,
        stories: list[Story],
        weights: NDArray[np.float64],
        jobs: int,
        days: int,
        machines: int,
        random: np.random.Generator,
    ) -> None:
        self.cluster, self.proc, arrival = _clusters(jobs, days, random)
        told = random.choice(len(stories), size=jobs, p=weights)
        columns: list[list[NDArray[np.int32]]] = []
        self.render = [step.text.format for story in stories for step in story.steps]
        first = 0
        for at, story in enumerate(stories):
            who = np.flatnonzero(told == at)
            columns.append(_tell(story, first, who, arrival[who], machines, random))
            first += len(story.steps)
        joined = [np.concatenate(column) for column in zip(*columns, strict=True)]
        self.time, self.job, self.text, self.machine, self.execute, self.busy = joined
        # The sort is stable: a job's events are in their order, and keep it within a second.
        order = np.lexsort((self.job, self.time))
        self.order = order[: np.searchsorted(self.time[order], days * DAY)]
        self.machines = _machines(machines, random)

    def texts(self) -> Iterator[str]:
        render, machines = self.render, self.machines
        for begin in range(0, len(self.order), CHUNK):
            rows = self.order[begin : begin + CHUNK]
            job, machine = self.job[rows], self.machine[rows]
            days, clocks = _dates(self.time[rows])
            columns: list[list[Any]] = [
                self.text[rows].tolist(),
                self.cluster[job].tolist(),
                self.proc[job].tolist(),
                days,
                clocks,
                (1 + job % 8).tolist(),
                (1 + (job // 8 + machine) % 97).tolist(),
                machine.tolist(),
                (10_000 + (job * 7 + machine * 13) % 50_000).tolist(),
                self.execute[rows].tolist(),
                self.busy[rows].tolist(),
            ]
            yield "".join(
                [
                    render[text](c, p, day, clock, slot, glidein, *machines[m][:2], port,
                                 machines[m][2], execute, busy)
                    for text, c, p, day, clock, slot, glidein, m, port, execute, busy in zip(
                        *columns, strict=True
                    )
                ]
            )  # fmt: skip


def _clusters(
    jobs: int, days: int, random: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Cluster, proc and time of arrival of each job; clusters have 1 to a few thousand jobs."""
    sizes = np.minimum(1 + random.lognormal(3, 1.5, size=jobs), 5_000).astype(np.int64)
    count = int(np.searchsorted(np.cumsum(sizes), jobs)) + 1
    sizes = sizes[:count]
    arrivals = np.sort(random.integers(0, int(days * DAY * 0.97), size=count))
    which = np.repeat(np.arange(count), sizes)[:jobs]
    proc = np.arange(jobs) - (np.cumsum(sizes) - sizes)[which]
    return 790_000 + which, proc, arrivals[which] + proc // 200


def _tell(
    story: Story,
    first: int,
    who: NDArray[np.int64],
    arrival: NDArray[np.int64],
    machines: int,
    random: np.random.Generator,
) -> list[NDArray[np.int32]]:
    """The events of all jobs that follow one story, job by job: time, job, text and so on."""
    shape = (len(who), len(story.steps))
    least, median, spread = (np.array(column) for column in zip(*story.paces, strict=True))
    gaps = least + median * np.exp(spread * random.standard_normal(shape))
    time = (arrival[:, None] + np.cumsum(gaps, axis=1)).astype(np.int32)
    attempts = random.integers(0, machines, size=(len(who), int(story.attempt.max()) + 1))
    return [
        column.astype(np.int32).ravel()
        for column in (
            time,
            np.broadcast_to(who[:, None], shape),
            np.broadcast_to(first + np.arange(shape[1]), shape),
            attempts[:, story.attempt],
            np.maximum(time[:, story.executed] - time[:, story.execute], 0),
            time - time[:, story.busy],
        )
    ]


def _machines(count: int, random: np.random.Generator) -> list[tuple[str, str, str]]:
    """Name, address and site of each machine."""
    share = np.array(list(SITES.values())) / sum(SITES.values())
    sites = random.choice(list(SITES), size=count, p=share).tolist()
    return [
        (f"gpu{at:04d}.{site.lower()}", f"10.{at // 250}.{at % 250}.7", site)
        for at, site in enumerate(sites)
    ]


def _dates(seconds: NDArray[np.int32]) -> tuple[list[str], list[str]]:
    different, back = np.unique(seconds, return_inverse=True)
    texts = np.datetime_as_string((BEGIN + different.astype(np.int64)).astype("datetime64[s]"))
    pairs = [text.split("T") for text in texts.tolist()]
    found = [pairs[at] for at in back.tolist()]
    return [day for day, _ in found], [clock for _, clock in found]


def main() -> int:
    parser = argparse.ArgumentParser(description="Make a large event log of the real pool's logs.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--size", type=float, default=200.0, help="megabytes, without --jobs")
    parser.add_argument("--mix", choices=["all", "pool"], default="all")
    parser.add_argument("--days", type=int, default=21)
    arguments = parser.parse_args()
    made = make_log(
        arguments.file,
        jobs=arguments.jobs,
        size=None if arguments.jobs else int(arguments.size * 1e6),
        mix=POOL_MIX if arguments.mix == "pool" else None,
        days=arguments.days,
    )
    print(f"{made.size / 1e6:.1f} MB, {made.events} events of {made.jobs} jobs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
