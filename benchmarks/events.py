"""What the report of a large event log costs, beside HTCondor's own ways to read one.

    python benchmarks/events.py [--size MB] [--runs N] [--folder FOLDER] [--json FILE]
    python benchmarks/events.py --ten [--jobs N] [--folder FOLDER] [--json FILE]
    python benchmarks/events.py --million [--jobs N] [--folder FOLDER]

Makes two logs: that of a pool, from the real logs in tests/events/logs (see made_logs.py), and one
of the shapes that events have in logs of HTCondor 7 to 24 (see shapes.py). Reads each of them with
each reader in a process of its own:

- headway report: the command as people use it, from its start to its end, findings and all;
- headway, accounts: from the bytes to totals, losses by cause and the fifty largest sites;
- headway, reading: all events as columns;
- JobEventLog: `htcondor2`'s reader, asked only for type, cluster, proc and time of each event; once
  as it comes, on one core, and once as two processes with half of the file each;
- eventlog read: the summary of jobs that `htcondor eventlog read` prints (of the pool's log).

HTCondor's reader stops at a blank line without a word. So it is given the log of shapes without
blank lines between the events, Headway the same log with them.

On a virtual machine others may take a part of the processors' time, and more from a reader with two
processes than from one with one. So each reader runs twice as often as asked for, in turns, and
those runs count from which others took least; of these the table has the median.

Then the time that each shape of event takes by itself, in one process, beside the mean event of the
pool's log: an event that is larger may take longer in proportion.

Exits with 1 when the report is not 10 times as fast as JobEventLog on either log, or reading not 20
times, or a shape takes more than 3 times what the mean event does.

With --ten: a log of ten million events of a million jobs with 10 GB, and one with a tenth of that.
Exits with 1 when the report of the large one holds 2 GB or more, or takes more than 13 times as
long as that of the small one.

With --million: `headway report LOG --html PAGE` on a million jobs, from the start of the command to
its end, and what a browser needs to open the page and to filter its table. Exits with 1 over 180 s
or 15 MB.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from made_logs import Made, make_log
from measure import Cost, machine, measure
from shapes import HEADERS, SHAPES, alone, make_shapes
from stories import POOL_MIX

READERS = Path(__file__).with_name("event_readers.py")
REPORT, READING, SHAPE = 10.0, 20.0, 3.0  # times JobEventLog, times the mean event
SECONDS, PAGE = 180.0, 15e6  # of a million jobs
TEN_MEMORY, TEN_TIME, ATTRIBUTES = 2e9, 13.0, 90  # of ten million events
SHAPE_EVENTS = 20_000


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the report of a large event log.")
    parser.add_argument("--size", type=float, default=200, help="megabytes of each log")
    parser.add_argument(
        "--runs", type=int, default=3, help="that count, of each; twice as many are made"
    )
    parser.add_argument("--ten", action="store_true", help="memory and time on 10 GB")
    parser.add_argument("--million", action="store_true", help="end to end on a million jobs")
    parser.add_argument("--jobs", type=int, default=1_000_000, help="with --ten and --million")
    parser.add_argument("--json", type=Path, help="write the raw figures here")
    parser.add_argument("--folder", type=Path, help="keep the made log here, and use it again")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as passing:
        folder = arguments.folder or Path(passing)
        folder.mkdir(parents=True, exist_ok=True)
        if arguments.million:
            return _million(folder, arguments.jobs)
        figures: dict[str, Any] = {"machine": machine()}
        if arguments.ten:
            musts = _ten(folder, arguments.jobs, figures)
        else:
            musts = _compare(folder, arguments.size, arguments.runs, figures)
        figures["musts"] = [list(must) for must in musts]
        if arguments.json:
            arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
        return _judge(*musts)


Must = tuple[float, str, float, str]


def _compare(folder: Path, size: float, runs: int, figures: dict[str, Any]) -> list[Must]:
    pool, made = _log(folder / f"pool-{size:.0f}MB.log", size=int(size * 1e6))
    logs = {"pool": (pool, pool, made), "shapes": _shape_logs(folder, int(size * 1e6))}
    musts: list[Must] = []
    for name, (ours, theirs, made) in logs.items():
        rows: dict[str, Any] = {"events": made.events, "jobs": made.jobs, "size": made.size}
        figures[name] = rows
        print(f"{'':<24} {'wall s':>7} {'CPU s':>7} {'MB/s':>7} {'events/s':>10} {'memory MB':>10}")
        command = [sys.executable, "-m", "headway", "report", str(ours)]
        turns = {
            "headway report": lambda: measure(command),  # noqa: B023
            "headway, accounts": lambda: _read("headway", ours),  # noqa: B023
            "headway, reading": lambda: _read("columns", ours),  # noqa: B023
            "JobEventLog": lambda: _read("joblog", theirs),  # noqa: B023
        }
        costs = _medians(runs, turns)
        costs["JobEventLog, two halves"] = _read("joblog", *_halves(theirs, folder))
        memory = measure(command, watch=True).memory
        costs["headway report"] = costs["headway report"]._replace(memory=memory)
        if name == "pool":
            costs["htcondor eventlog read"] = _read("cli", theirs)
        _expect(costs["headway, accounts"], events=made.events, jobs=made.jobs, skipped=0)
        _expect(costs["headway, reading"], events=made.events)
        _expect(costs["JobEventLog"], events=made.events)
        for reader, cost in costs.items():
            rows[reader] = {"wall": cost.wall, "cpu": cost.cpu, "memory": cost.memory}
            rows[reader]["stolen"] = round(cost.stolen, 4)
            _print(reader, cost, made)
        alone_ = costs["JobEventLog"].wall
        of_ours = {"headway report": REPORT, "headway, reading": READING}
        for reader, limit in of_ours.items():
            what = f"times as fast as JobEventLog: {reader}, log of {name}"
            musts.append((alone_ / costs[reader].wall, ">=", limit, what))
    figures["by shape"], worst = _by_shape(pool, logs["pool"][2])
    figures["load"] = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {figures['load']:.1f}")
    return [*musts, (worst[1], "<=", SHAPE, f"times the mean event: {worst[0]}")]


def _medians(runs: int, turns: Mapping[str, Callable[[], Cost]]) -> dict[str, Cost]:
    """The median of each, taken in turns: a machine that others use is not always as fast.

    There are twice as many turns, of which those count from whose processors others took least.
    """
    found: dict[str, list[Cost]] = {name: [] for name in turns}
    for _ in range(2 * runs):
        for name, run in turns.items():
            found[name].append(run())
    quiet = {
        name: sorted(costs, key=lambda cost: cost.stolen)[:runs] for name, costs in found.items()
    }
    return {
        name: sorted(costs, key=lambda cost: cost.wall)[runs // 2] for name, costs in quiet.items()
    }


def _shape_logs(folder: Path, size: int) -> tuple[Path, Path, Made]:
    """The log of shapes with blank lines, without, and what is in the latter."""
    blank, plain = folder / "shapes-blank.log", folder / "shapes.log"
    made = make_shapes(plain, size)
    with plain.open("rb") as file, blank.open("wb") as copy:
        for line in file:
            copy.write(line + b"\n" if line == b"...\n" else line)
    print(_told(plain, made), flush=True)
    return blank, plain, made


def _by_shape(pool: Path, made: Made) -> tuple[dict[str, Any], tuple[str, float]]:
    """Microseconds and bytes of an event of each shape, and the shape that costs most."""
    with pool.open("rb") as file:
        data = file.read(64 << 20)
    mean = _scan_cost(data[: data.rindex(b"\n...\n") + 5])
    found: dict[str, Any] = {"mean event": mean}
    cases = [(shape, "no year", shape) for shape in SHAPES]
    cases += [("005 table", header, f"005, {header}") for header in HEADERS]
    worst = ("", 0.0)
    for shape, header, name in cases:
        cost = _scan_cost(alone(shape, HEADERS[header], SHAPE_EVENTS))
        ratio = cost["us"] / (mean["us"] * max(1.0, cost["bytes"] / mean["bytes"]))
        found[name] = cost | {"ratio": ratio}
        worst = max(worst, (name, ratio), key=lambda pair: pair[1])
    for name, cost in found.items():
        over = f"{cost['ratio']:5.2f} ×" if "ratio" in cost else ""
        print(f"{name:<24} {cost['us']:6.2f} us {cost['bytes']:6.0f} B {over}")
    return found, worst


def _scan_cost(data: bytes) -> dict[str, float]:
    """What an event costs in CPU time, the best of three."""
    from headway.events.columnar.scan import Scanner

    best = float("inf")
    for _ in range(3):
        begin = time.process_time()
        scanner = Scanner()
        for start in range(0, len(data), 4 << 20):
            scanner.feed(data[start : start + (4 << 20)])
        events = len(scanner.arrays())
        best = min(best, time.process_time() - begin)
    return {"us": best / events * 1e6, "bytes": len(data) / events}


def _ten(folder: Path, jobs: int, figures: dict[str, Any]) -> list[Must]:
    costs = []
    for count in (jobs // 10, jobs):
        path = folder / f"pool-{count}-jobs-wide.log"
        made = make_log(path, jobs=count, mix=POOL_MIX, days=90, attributes=ATTRIBUTES)
        print(_told(path, made), flush=True)
        command = [sys.executable, "-m", "headway", "report", str(path)]
        cost = measure(command, watch=True)
        path.unlink()
        print(f"headway report: {cost.wall:.1f} s wall, {cost.cpu:.1f} s CPU,", end=" ")
        print(f"{cost.memory / 1e9:.2f} GB", flush=True)
        costs.append(cost)
        figures[f"{count} jobs"] = {
            "events": made.events,
            "size": made.size,
            "wall": cost.wall,
            "cpu": cost.cpu,
            "memory": cost.memory,
        }
    return [
        (costs[1].memory / 1e9, "<=", TEN_MEMORY / 1e9, "GB of memory for the large log"),
        (costs[1].wall / costs[0].wall, "<=", TEN_TIME, "times the time of a tenth of it"),
    ]


def _million(folder: Path, jobs: int) -> int:
    log, made = _log(folder / f"pool-{jobs}-jobs.log", jobs=jobs)
    page = folder / f"pool-{jobs}-jobs.html"
    command = [sys.executable, "-m", "headway", "report", str(log), "--html", str(page)]
    cost = measure(command, watch=True)
    size = page.stat().st_size
    print(f"headway report --html: {cost.wall:.1f} s wall, {cost.cpu:.1f} s CPU,", end=" ")
    print(f"{cost.memory / 1e9:.2f} GB ({cost.memory / made.size:.2f} times the file),", end=" ")
    print(f"page {size / 1e6:.1f} MB")
    _browse(page, folder)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    return _judge(
        (cost.wall, "<=", SECONDS, "seconds from the log to the page"),
        (size / 1e6, "<=", PAGE / 1e6, "MB of page"),
    )


def _log(path: Path, *, size: int | None = None, jobs: int | None = None) -> tuple[Path, Made]:
    """A log of so many bytes, all real jobs alike often; or of so many jobs, mixed as in a pool."""
    note = path.with_suffix(".json")
    if note.exists() and path.exists():
        made = Made(*json.loads(note.read_text()))
        if made.size == path.stat().st_size:
            print(_told(path, made))
            return path, made
    days = 90 if jobs else 21
    made = make_log(path, size=size, jobs=jobs, mix=POOL_MIX if jobs else None, days=days)
    note.write_text(json.dumps(made))
    print(_told(path, made), flush=True)
    return path, made


def _told(path: Path, made: Made) -> str:
    return f"{path.name}: {made.size / 1e6:.0f} MB, {made.events:,} events of {made.jobs:,} jobs"


def _halves(log: Path, folder: Path) -> list[Path]:
    """The log in two files of about the same size."""
    halves = [folder / "half-1.log", folder / "half-2.log"]
    with log.open("rb") as file, halves[0].open("wb") as first, halves[1].open("wb") as second:
        # In pieces: what this process once held would count as the memory of those that it starts.
        while file.tell() < log.stat().st_size // 2:
            first.write(file.read(1 << 20))
        while line := file.readline():
            first.write(line)
            if line == b"...\n":
                break
        shutil.copyfileobj(file, second)
    return halves


def _read(reader: str, *logs: Path, watch: bool = False) -> Cost:
    """All logs at the same time, each in its own process."""
    commands = ([sys.executable, str(READERS), reader, str(log)] for log in logs)
    return measure(*commands, watch=watch)


def _expect(cost: Cost, **wanted: int) -> None:
    """Nobody is quick by leaving something out."""
    found = json.loads(cost.outputs[0])
    for name, value in wanted.items():
        if found[name] != value:
            raise SystemExit(f"{found[name]} {name}, not {value}: {cost.outputs[0]}")


def _print(name: str, cost: Cost, made: Made) -> None:
    rate, events = made.size / 1e6 / cost.wall, made.events / cost.wall
    line = f"{name:<24} {cost.wall:7.2f} {cost.cpu:7.2f} {rate:7.1f} {events:10,.0f}"
    print(f"{line} {cost.memory / 1e6:10.0f}", flush=True)


def _judge(*musts: Must) -> int:
    """Says of each must whether it holds; 1 when one does not."""
    failed = False
    for value, relation, limit, what in musts:
        holds = value >= limit if relation == ">=" else value <= limit
        failed |= not holds
        print(f"{'holds' if holds else 'FAILS'}: {value:.1f} {what} ({relation} {limit:g})")
    return int(failed)


#: In the page: does something, and says how many milliseconds passed until that was painted.
TIMED = """
(async (act) => {{
  const began = performance.now();
  act();
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - began;
}})(() => {{ {act} }})
"""
FIND = "find.value = '{text}'; find.dispatchEvent(new Event('input', {{bubbles: true}}));"
ACTS = {
    "find a site": FIND.format(text="pdx-coeus"),
    "find a cluster": FIND.format(text="790123"),
    "find nothing": FIND.format(text="no such job"),
    "clear": FIND.format(text=""),
    "choose an outcome": "const by = document.getElementById('by-outcome');"
    " by.selectedIndex = 2; by.dispatchEvent(new Event('change'));",
    "sort by slot time": "document.querySelector('th[data-key=slot] button').click();",
    "sort by site": "document.querySelector('th[data-key=site] button').click();",
}


def _browse(page: Path, folder: Path) -> None:
    """How long a browser takes to open the page, and to filter and sort its table."""
    browser = _browser()
    if browser.program() is None:
        print("no Chromium here: the page was not opened")
        return
    with (
        tempfile.TemporaryDirectory(dir=folder) as profile,
        browser.Browser(Path(profile)) as running,
    ):
        view = running.page()
        begin = time.perf_counter()
        view.open(page)
        opened = time.perf_counter() - begin
        paint = view.value(
            "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
        )
        print(f"page: first paint {paint / 1000:.2f} s, all of it {opened:.2f} s")
        for name, act in ACTS.items():
            act = "const find = document.getElementById('find');" + act
            took = [view.value(TIMED.format(act=act)) for _ in range(3)]
            print(f"page: {name:<18} {statistics.median(took):6.0f} ms")
        for complaint in view.complaints():
            raise SystemExit(f"the page complains: {complaint}")


def _browser() -> Any:
    """The browser of the tests."""
    path = Path(__file__).parents[1] / "tests" / "report" / "browser.py"
    spec = importlib.util.spec_from_file_location("browser", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules["browser"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main())
