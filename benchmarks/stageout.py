"""What transfer slots gain: the experiment of the slides on asynchronous stage-out.

    python benchmarks/stageout.py [--json FILE] [--jobs 4,8,16] [--ways stock,headway]
                                  [--settings quick,default] [--at-once N] [--work SECONDS]
    python benchmarks/stageout.py --result [--json FILE]      only what is known already

Jobs of 30 s, one after the other on the only slot of a real HTCondor pool, each with an output that
takes twice as long to go home. Stock is a submit file: the slot waits until the output is there.
Headway is the same command in a job.toml with `deliver = "later"`: the outputs go home through
transfer slots, several at once, while the slot computes the next job. The ideal is that only the
last output is waited for: n·t + u.

Both have the same node. Its way home carries 1 MB/s for each connection, whoever opens it
(slow_way.c); so the outputs do not share a rate, as in the slides. Two settings: `quick` is the
tests' pool, whose negotiator looks every second, and `default` has HTCondor's own intervals. All
times are of the event log, from the first job's start to the end of the last whose output is
there; an output that is not what its job made ends the benchmark.

A cell, one run of n jobs, is written to the file (benchmarks/results/stageout.json) as soon as it
is finished, and is not run again: what was stopped goes on. Needs root, as the pool's tests do
(tests/pool/README.md), and a C compiler. Exits with 1 when Headway does not reach LIMITS below.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure import machine
from stageout_pool import Load, Measured, Stopped, one_slot_pool, run_headway, run_stock
from tests.pool.harness import PoolUnavailable

from headway.node.files import write_atomically

RESULTS = Path(__file__).parent / "results" / "stageout.json"
WORK, TIMES_WORK = 30, 2  # seconds of computing; an output takes so many times as long
WAYS = {"stock": run_stock, "headway": run_headway}
SETTINGS = {"quick": "a negotiator every second", "default": "HTCondor's default intervals"}
REPEATS = 3
ONCE = 16  # so many jobs run once
NO = "**no**"


class Limit(NamedTuple):
    """What Headway must reach: times of the ideal at most, times as fast as stock at least."""

    over_ideal: float
    over_stock: float | None = None  # with JOBS jobs


JOBS = 8  # with which ways are compared
LIMITS = {"quick": Limit(1.05, 2.2), "default": Limit(1.25)}


@dataclass(frozen=True)
class Cell:
    """One run of so many jobs in one way."""

    setting: str
    way: str
    jobs: int
    repeat: int

    def __str__(self) -> str:
        return f"{self.setting}, {self.way}, {self.jobs} jobs, run {self.repeat}"


def plan(settings: Sequence[str], ways: Sequence[str], jobs: Sequence[int]) -> list[Cell]:
    """Every cell that the tables need: all ways in turns, and stock's default intervals once.

    With stock the slot is never given back, so the intervals make no difference to it.
    """
    cells = []
    for setting in settings:
        for count in jobs:
            for repeat in range(1, 2 if count >= ONCE else REPEATS + 1):
                for way in ways:
                    if (setting, way) != ("default", "stock") or (count, repeat) == (JOBS, 1):
                        cells.append(Cell(setting, way, count, repeat))
    return cells


class Results:
    """What is known, in a file that is written anew with each cell."""

    def __init__(self, path: Path, work: int) -> None:
        self.path = path
        self._lock = threading.Lock()
        self.kept: dict[str, Any] = {"machine": machine(), "work": work, "cells": []}
        if path.exists():
            self.kept = json.loads(path.read_text())
        if self.kept["work"] != work:
            raise SystemExit(f"{path} is of jobs of {self.kept['work']} s: name another file")

    def has(self, cell: Cell) -> bool:
        return any(cell == _cell(raw) for raw in self.kept["cells"])

    def add(self, cell: Cell, found: Measured, version: str) -> None:
        """Keep a cell that is finished on this version of HTCondor."""
        with self._lock:
            self.kept["machine"]["htcondor"] = version
            self.kept["cells"].append({**asdict(cell), **found._asdict()})
            self.kept["cells"].sort(key=lambda raw: _order(_cell(raw)))
            # a line for each cell
            cells = ",\n".join(json.dumps(cell) for cell in self.kept["cells"])
            about = {key: value for key, value in self.kept.items() if key != "cells"}
            head = json.dumps(about, indent=1).removesuffix("\n}")
            write_atomically(self.path, f'{head},\n "cells": [\n{cells}\n]\n}}\n'.encode())


def _cell(raw: dict[str, Any]) -> Cell:
    return Cell(raw["setting"], raw["way"], raw["jobs"], raw["repeat"])


def _order(cell: Cell) -> tuple[int, int, int, int]:
    settings, ways = list(SETTINGS), list(WAYS)
    return settings.index(cell.setting), cell.jobs, ways.index(cell.way), cell.repeat


@dataclass(frozen=True)
class Row:
    """One setting with so many jobs: the seconds of every run, by way."""

    setting: str
    jobs: int
    ideal: float
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def median(self, way: str) -> float | None:
        return statistics.median(self.seconds[way]) if way in self.seconds else None

    @property
    def over_ideal(self) -> float | None:
        """Headway's median over the ideal."""
        ours = self.median("headway")
        return ours / self.ideal if ours is not None else None

    @property
    def over_stock(self) -> float | None:
        """How many times as fast as stock Headway is, in the medians."""
        ours, theirs = self.median("headway"), self.median("stock")
        return theirs / ours if ours is not None and theirs is not None else None

    def judged(self) -> Iterator[tuple[str, str, str]]:
        """Each limit, what was found, and whether it holds."""
        limit = LIMITS[self.setting]
        if self.over_ideal is not None:
            held = "yes" if self.over_ideal <= limit.over_ideal else NO
            yield f"at most {limit.over_ideal:.2f} of the ideal", f"{self.over_ideal:.3f}", held
        if limit.over_stock and self.over_stock is not None and self.jobs == JOBS:
            held = "yes" if self.over_stock >= limit.over_stock else NO
            yield f"at least {limit.over_stock} times as fast", f"{self.over_stock:.2f}", held

    def complaints(self) -> list[str]:
        """Where Headway does not reach its limits."""
        where = f"{self.setting}, {self.jobs} jobs"
        return [
            f"{where}: {found}, not {limit}" for limit, found, held in self.judged() if held == NO
        ]


def rows(kept: dict[str, Any]) -> list[Row]:
    """What the cells come to."""
    found: dict[tuple[str, int], Row] = {}
    for raw in kept["cells"]:
        cell = _cell(raw)
        ideal = Load(cell.jobs, kept["work"], TIMES_WORK * kept["work"]).ideal
        row = found.setdefault((cell.setting, cell.jobs), Row(cell.setting, cell.jobs, ideal))
        row.seconds.setdefault(cell.way, []).append(raw["seconds"])
    return list(found.values())


def table(found: Sequence[Row]) -> list[list[str]]:
    """Titles, and a row for each setting and number of jobs."""
    titles = ["intervals", "jobs", "ideal", *WAYS, "headway over ideal", "times as fast as stock"]
    lines = [
        [
            row.setting,
            str(row.jobs),
            f"{row.ideal:.0f} s",
            *(_spread(row.seconds.get(way, [])) for way in WAYS),
            f"{row.over_ideal:.3f}" if row.over_ideal is not None else "",
            f"{row.over_stock:.2f}" if row.over_stock is not None else "",
        ]
        for row in found
    ]
    return [titles, *lines]


def _spread(seconds: Sequence[float]) -> str:
    """The median, with the least and the most of several runs."""
    if not seconds:
        return ""
    few = f" ({min(seconds):.0f}–{max(seconds):.0f})" if len(seconds) > 1 else ""
    return f"{statistics.median(seconds):.0f} s{few}"


def headline(kept: dict[str, Any]) -> str:
    """What transfer slots gain, in a sentence."""
    (row,) = [row for row in rows(kept) if (row.setting, row.jobs) == ("quick", JOBS)]
    ours, theirs = row.median("headway"), row.median("stock")
    return (
        f"{row.jobs} jobs of {kept['work']} s on one slot, each with an output that takes"
        f" {TIMES_WORK * kept['work']} s to go home: {theirs:.0f} s with a submit file,"
        f" {ours:.0f} s with Headway; {row.ideal:.0f} s are the ideal."
    )


def main() -> int:
    args = _arguments()
    results = Results(args.json, args.work)
    if not args.result:
        cells = plan(args.settings, args.ways, args.jobs)
        _run_all([cell for cell in cells if not results.has(cell)], results, args.at_once)
    found = rows(results.kept)
    for line in table(found):
        print("  ".join(f"{cell:>22}" for cell in line))
    complaints = [words for row in found for words in row.complaints()]
    print(*complaints, sep="\n")
    return 1 if complaints else 0


def _run_all(cells: Sequence[Cell], results: Results, at_once: int) -> None:
    """Run the cells, several pools at a time: they wait most of it."""
    # What a pool and its jobs compute takes little time, and other work must not make it more: on
    # two busy cores Python needs two seconds to start. Niceness would not do, because each daemon
    # is a session of its own, and Linux shares the cores out between sessions.
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())

    def one(cell: Cell) -> None:
        if stop.is_set():
            return
        load = Load(cell.jobs, results.kept["work"], TIMES_WORK * results.kept["work"])
        begin = time.monotonic()
        try:
            with one_slot_pool(cell.setting == "quick") as pool:
                _say(f"{cell}: begins, ideal {load.ideal:.0f} s")
                found = WAYS[cell.way](pool, load, stop)
        except Stopped:
            return
        except Exception:
            stop.set()
            raise
        results.add(cell, found, pool.version)
        ratio = found.seconds / load.ideal
        took = time.monotonic() - begin
        _say(f"{cell}: {found.seconds:.1f} s, {ratio:.3f} of the ideal; took {took:.0f} s in all")

    longest = sorted(cells, key=lambda cell: (-cell.jobs, cell.way != "stock"))
    with ThreadPoolExecutor(at_once) as hands:
        list(hands.map(one, longest))
    if stop.is_set():
        sys.exit("stopped; what is finished is kept")


def _say(words: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {words}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Outputs that go home beside computing.")
    parser.add_argument("--json", type=Path, default=RESULTS)
    parser.add_argument("--jobs", type=_numbers, default=[4, 8, 16])
    parser.add_argument("--ways", type=_names, default=list(WAYS))
    parser.add_argument("--settings", type=_names, default=list(SETTINGS))
    parser.add_argument("--at-once", type=int, default=1, help="pools at a time")
    parser.add_argument("--work", type=int, default=WORK, help="seconds that a job computes")
    parser.add_argument("--result", action="store_true", help="run nothing")
    args: argparse.Namespace = parser.parse_args()
    return args


def _numbers(words: str) -> list[int]:
    return [int(word) for word in words.split(",")]


def _names(words: str) -> list[str]:
    return words.split(",")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PoolUnavailable as reason:
        sys.exit(f"no real pool: {reason}")
