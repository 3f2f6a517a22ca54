"""What the report of a large event log costs, beside HTCondor's own ways to read one.

    python benchmarks/events.py [--size MB] [--runs N] [--folder FOLDER]
    python benchmarks/events.py --million [--jobs N] [--folder FOLDER]

Makes a log of a pool from the real logs in tests/events/logs (see made_logs.py), then reads that
same file with each reader in a process of its own:

- headway: the full accounting, from the bytes to totals, losses by cause and sites;
- JobEventLog: `htcondor2`'s reader, asked only for type, cluster, proc and time of each event; once
  as it comes, on one core, and once as two processes with half of the file each;
- eventlog read: the summary of jobs that `htcondor eventlog read` prints.

Prints MB/s, events/s, memory over file size, and ratios. Exits with 1 when Headway is not 10 times
as fast as JobEventLog and 15 times as fast as the summary, or holds more than 3 times the file.

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
from pathlib import Path
from typing import Any

from made_logs import Made, make_log
from measure import Cost, measure
from stories import POOL_MIX

READERS = Path(__file__).with_name("event_readers.py")
OVER_JOBLOG, OVER_SUMMARY, MEMORY = 10.0, 15.0, 3.0
SECONDS, PAGE = 180.0, 15e6  # of a million jobs


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the report of a large event log.")
    parser.add_argument("--size", type=float, default=800, help="megabytes")
    parser.add_argument("--runs", type=int, default=3, help="of headway; the median counts")
    parser.add_argument("--million", action="store_true", help="end to end on a million jobs")
    parser.add_argument("--jobs", type=int, default=1_000_000, help="with --million")
    parser.add_argument("--folder", type=Path, help="keep the made log here, and use it again")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as passing:
        folder = arguments.folder or Path(passing)
        folder.mkdir(parents=True, exist_ok=True)
        if arguments.million:
            return _million(folder, arguments.jobs)
        return _compare(folder, arguments.size, arguments.runs)


def _compare(folder: Path, size: float, runs: int) -> int:
    log, made = _log(folder / f"pool-{size:.0f}MB.log", size=int(size * 1e6))
    halves = _halves(log, folder)
    print(f"{'':<24} {'wall s':>7} {'CPU s':>7} {'MB/s':>7} {'events/s':>10} {'memory/file':>11}")
    costs = sorted((_read("headway", log) for _ in range(runs)), key=lambda cost: cost.wall)
    watched = _read("headway", log, watch=True)
    ours = costs[runs // 2]._replace(memory=watched.memory)
    found = json.loads(ours.outputs[0])
    _print("headway, full accounting", ours, made)
    _expect("headway", found, events=made.events, jobs=made.jobs, skipped=0)
    alone = _read("joblog", log)
    _print("JobEventLog", alone, made, ours)
    _expect("JobEventLog", json.loads(alone.outputs[0]), events=made.events)
    both = _read("joblog", *halves)
    _print("JobEventLog, two halves", both, made, ours)
    summary = _read("cli", log)
    _print("htcondor eventlog read", summary, made, ours)
    steps = ", ".join(
        f"{name} {found[f'{name}_s']:.2f} s" for name in ("import", "read", "account", "figures")
    )
    print(f"headway: {steps}; walls {', '.join(f'{cost.wall:.2f}' for cost in costs)} s")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    return _judge(
        (alone.wall / ours.wall, ">=", OVER_JOBLOG, "times as fast as JobEventLog"),
        (summary.wall / ours.wall, ">=", OVER_SUMMARY, "times as fast as htcondor eventlog read"),
        (watched.memory / made.size, "<=", MEMORY, "times the file in memory"),
    )


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


def _expect(who: str, found: dict[str, Any], **wanted: int) -> None:
    for name, value in wanted.items():
        if found[name] != value:
            raise SystemExit(f"{who}: {found[name]} {name}, not {value}")


def _print(name: str, cost: Cost, made: Made, ours: Cost | None = None) -> None:
    rate, events = made.size / 1e6 / cost.wall, made.events / cost.wall
    line = f"{name:<24} {cost.wall:7.2f} {cost.cpu:7.2f} {rate:7.1f} {events:10,.0f}"
    line += f" {cost.memory / made.size:11.2f}"
    if ours is not None:
        line += f"   headway: {cost.wall / ours.wall:.1f} × wall, {cost.cpu / ours.cpu:.1f} × CPU"
    print(line, flush=True)


def _judge(*musts: tuple[float, str, float, str]) -> int:
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
