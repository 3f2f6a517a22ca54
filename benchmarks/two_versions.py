"""Is Headway as fast as it was? Compares two checkouts, in alternating turns.

    git worktree add ../before REVISION
    python benchmarks/two_versions.py ../before . [--turns 9] [--only transfer,events] [--json FILE]

Both checkouts run their own benchmarks, with the same Python and on the same data: downloads over
http and https with 1 and 4 connections, reading and reporting an event log of a pool and one of
old and new shapes, feeding a trainer, the start of the command line, the start of a run whose input
is kept, and the local pool's cost of a job. Only Headway runs, not its peers. Prints the median of
each figure, and their ratio. A figure is worse when it has grown by more than 3 % and by more than
the old version's interquartile range. Exits with 1 when one is.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from made_logs import make_log
from measure import machine
from second_run import SecondRun, served
from shapes import make_shapes

WORSE = 1.03
Figures = dict[str, float]  # seconds, of which less is better


class Version:
    """A checkout, and how its programs are started."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder = root.resolve(), folder
        compiled = [sys.executable, "-m", "compileall", "-q", str(self.root / "src")]
        subprocess.run(compiled, check=True)

    def run(self, *command: str) -> tuple[str, float]:
        """What a command printed, and the seconds that it took."""
        environment = {**os.environ, "PYTHONPATH": str(self.root / "src")}
        begin = time.perf_counter()
        done = subprocess.run(
            [sys.executable, *command],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
        )
        seconds = time.perf_counter() - begin
        # A benchmark that misses one of its own limits exits with 1: here only the ratio counts.
        if done.returncode not in (0, 1) or "Traceback" in done.stderr:
            raise SystemExit(f"{' '.join(command)} in {self.root}:\n{done.stderr[-3000:]}")
        return done.stdout, seconds

    def script(self, name: str, *options: str) -> str:
        return self.run(str(self.root / "benchmarks" / name), *options)[0]

    def kept(self, name: str, *options: str) -> Any:
        """The raw figures of a benchmark that can keep them."""
        path = self.folder / "figures.json"
        self.script(name, *options, "--json", str(path))
        return json.loads(path.read_text())


def transfer(version: Version) -> Figures:
    options = ["--tools", "headway", "--runs", "1", "--size", "1024", "--targets", "memory"]
    found = version.kept("transfer.py", *options, "--ways", "http,https", "--connections", "1,4")
    figures: Figures = {}
    for column in found["columns"]:
        [run] = column["runs"]["headway"]
        name = f"{column['way']}, {column['connections']} connections"
        figures |= {name: run["seconds"], f"{name}, CPU": run["cpu"]}
    return figures


def events(version: Version) -> Figures:
    figures: Figures = {}
    for log in ("pool", "shapes"):
        path = str(version.folder / f"{log}.log")
        reader = str(version.root / "benchmarks" / "event_readers.py")
        said, seconds = version.run(reader, "columns", path)
        figures |= {f"reading, {log}": seconds}
        figures |= {f"reading, {log}, CPU": json.loads(said)["work_cpu_s"]}
        figures |= {f"report, {log}": version.run("-m", "headway", "report", path)[1]}
    return figures


def streaming(version: Version) -> Figures:
    options = ["--ways", "headway", "--runs", "1", "--images", "4000", "--worlds", "present"]
    [run] = version.kept("streaming.py", *options)["worlds"]["present"]["headway"]
    first = {"first batch": run["first"], "an image, raw": 1 / run["raw_rate"]}
    return {**first, "an epoch, raw, CPU": run["raw_epoch_cpu"], "an image": 1 / run["rate"]}


def startup(version: Version) -> Figures:
    times = {"headway --help": "import sys; from headway.cli import main; sys.exit(main())"}
    times |= {"import headway": "import headway", "import json": "import json"}
    figures: Figures = {}
    for name, code in times.items():
        runs = [version.run("-c", code, "--help")[1] for _ in range(5)]
        figures[name] = statistics.median(runs)
    return figures


def second_run(version: Version) -> Figures:
    with served(256) as (url, folder):
        run = SecondRun(folder / "runs", url, 256, version.root / "src")
        run.headway()  # which fetches the input
        runs = [run.headway() for _ in range(5)]
    names = {"to its command": "wall", "all of it, CPU": "cpu"}
    return {name: statistics.median(each[key] for each in runs) for name, key in names.items()}


def local_overhead(version: Version) -> Figures:
    said = version.script("local_overhead.py", "--jobs", "100")
    found = re.search(r"^headway +([\d.]+) ms wall +([\d.]+) ms CPU", said, re.M)
    if found is None:
        raise SystemExit(f"local_overhead.py printed no figure of headway:\n{said}")
    wall, cpu = (float(each) / 1000 for each in found.groups())
    return {"a local job": wall, "a local job, CPU": cpu}


BENCHMARKS: dict[str, Callable[[Version], Figures]] = {
    each.__name__: each
    for each in (startup, second_run, local_overhead, events, transfer, streaming)
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the speed of two checkouts.")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--only", default=",".join(BENCHMARKS))
    parser.add_argument("--size", type=float, default=100, help="megabytes of each event log")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    names = arguments.only.split(",")
    kept: dict[str, Any] = {"machine": machine(), "figures": {}}
    worse = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "events" in names:
            make_log(folder / "pool.log", size=int(arguments.size * 1e6))
            make_shapes(folder / "shapes.log", int(arguments.size * 1e6))
        versions = [Version(each, folder) for each in (arguments.before, arguments.after)]
        for name in names:
            taken = _turns(BENCHMARKS[name], versions, arguments.turns)
            kept["figures"][name] = taken
            worse += _show(name, taken)
            if arguments.json:
                arguments.json.write_text(json.dumps(kept, indent=1) + "\n")
    print(f"load {os.getloadavg()[0]:.1f};", f"worse: {', '.join(worse) or 'none'}")
    return 1 if worse else 0


def _turns(
    benchmark: Callable[[Version], Figures], versions: list[Version], turns: int
) -> dict[str, list[list[float]]]:
    """Each figure of each version, turn by turn; who begins alternates."""
    found: dict[str, list[list[float]]] = {}
    for turn in range(turns):
        for number in (0, 1) if turn % 2 == 0 else (1, 0):
            for name, seconds in benchmark(versions[number]).items():
                found.setdefault(name, [[], []])[number].append(seconds)
        print(f"{benchmark.__name__}: turn {turn + 1} of {turns}", file=sys.stderr)
    return found


def _show(benchmark: str, taken: dict[str, list[list[float]]]) -> list[str]:
    """Print the figures of a benchmark; return the names of those that are worse."""
    print(f"\n{benchmark:<28}{'before ms':>11}{'quartiles':>20}{'after ms':>11}{'ratio':>8}")
    worse = []
    for name, (old, new) in taken.items():
        low, before, high = statistics.quantiles(old, n=4, method="inclusive")
        after = statistics.median(new)
        mark = ""
        if after > before * WORSE and after - before > high - low:
            worse.append(f"{benchmark}: {name}")
            mark = "  worse"
        spread = f"{1000 * low:.2f} - {1000 * high:.2f}"
        print(
            f"{name:<28}{1000 * before:>11.2f}{spread:>20}{1000 * after:>11.2f}"
            f"{after / before:>8.3f}{mark}",
            flush=True,
        )
    return worse


if __name__ == "__main__":
    sys.exit(main())
