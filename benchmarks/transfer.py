"""How fast tools fetch a large file, and what it costs them; and a crowd on one cache.

    python benchmarks/transfer.py [--size MB] [--runs N] [--ways A,B] [--connections 1,4]
                                  [--targets memory,disk] [--tools A,B] [--folder FOLDER]
                                  [--disk FOLDER] [--minutes N] [--json FILE]
    python benchmarks/transfer.py --crowd [--clients N] [--size MB] [--json FILE]

Ways: `http` and `https` on loopback; and on request `wide` and `wide-https` through a path that
adds 40 ms of delay and gives each connection 25 MB/s, into memory only. The server's file lies in
memory; the fetched one lies in memory too, or on a disk. On a disk, all tools must leave the file
equally safe: `sync` of the file and of its folder follows each run, and its time and CPU count.
What others have written is flushed before each run.

Every tool may open the same number of connections; one that knows only one opens one. None hashes,
except for `headway sha256` and `headway manifest`: they state what it costs to prove the object by
its checksum or by its manifest. HTCondor's curl_plugin brings an OpenSSL of its own; `headway+` is
Headway on that one, so that tools and libraries can be told apart. These three are shown and not
judged, and run three times; so does a peer that is then far behind the fastest one. A column whose
share of the time (--minutes, 60) is over takes no further turns after its third, and says so.

Prints MB/s, CPU seconds per GB and memory (the highest resident set): medians of the runs, which
are taken in turns, with the quartiles and the slowest and fastest of them; and the server's own
CPU, which tells whether it was the server that was measured. --json keeps every run. Exits with 1
when Headway does not meet its limits (LIMITS below), or takes more than 80 MB of memory.

With --crowd: many clients on one cache that gives 200 MB/s in all, less as more than 120
connections are open, and refuses more than 160. Exits with 1 when Headway as it comes lets the last
of them finish later than with one connection each, in the mean of two turns.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure import file_system, machine
from tests.lab import Authority, Content, Crowded, Director, Made, Server, Strained, WidePath
from transfer_server import Served, has_nginx, serve
from transfer_tools import TOOLS, Task, Tool, environment

from headway.node.transfer.manifest import SUFFIX, publish

NAME = "/lab/object"
DELAY, RATE = 0.040, 25e6  # of the wide path: seconds of a round trip, bytes/s of a connection
WAYS = ("http", "https")
TARGETS = ("memory", "disk")
IN_MEMORY = ("tmpfs", "ramfs")
SCOUTS = 3  # runs of those that are not judged, and of peers that are far behind
LONGEST = 900.0  # seconds of one run
FAR_BEHIND = 0.8  # of the fastest peer's median: who has no run that is faster
CROWD_RATE, CROWD, REFUSED = 200e6, 120, 160


class Limit(NamedTuple):
    """What Headway must reach on one way: its rate over a peer's, its CPU over curl's."""

    rate: float
    peer: str | None  # None: whichever is the fastest
    cpu: float | None


LIMITS = {
    ("http", "memory"): Limit(1.0, None, 1.0),
    ("https", "memory"): Limit(0.95, "curl", 1.15),
    ("http", "disk"): Limit(0.95, None, 1.2),
    ("https", "disk"): Limit(0.95, None, 1.2),
    ("wide", "memory"): Limit(1.0, None, None),
    ("wide-https", "memory"): Limit(1.0, None, None),
}
MEMORY = 80e6  # bytes


@dataclass(frozen=True)
class Run:
    """What one run of a tool took."""

    seconds: float
    cpu: float  # seconds
    memory: int  # bytes


class Median(NamedTuple):
    rate: float  # bytes per second
    cpu: float  # seconds per GB
    memory: float  # bytes


@dataclass
class Column:
    """All runs of all tools on one way to one target."""

    way: str
    target: str  # "memory" or "disk"
    connections: int
    size: int  # bytes that each run fetches
    runs: dict[str, list[Run]] = field(default_factory=dict)
    server_cpu: float | None = None  # seconds per GB

    @classmethod
    def read(cls, raw: dict[str, Any]) -> Column:
        """A column as `--json` wrote it."""
        runs = {name: [Run(**run) for run in each] for name, each in raw["runs"].items()}
        known = ("way", "target", "connections", "size", "server_cpu")
        return cls(**{key: raw[key] for key in known}, runs=runs)

    @property
    def title(self) -> str:
        some = "1 connection" if self.connections == 1 else f"{self.connections} connections"
        return f"{self.way}, {some}, {'on disk' if self.target == 'disk' else 'in memory'}"

    @property
    def peers(self) -> list[str]:
        return [name for name in self.runs if not name.startswith("headway")]

    def rates(self, tool: str) -> list[float]:
        """Bytes per second of each run."""
        return [self.size / run.seconds for run in self.runs[tool]]

    def median(self, tool: str) -> Median:
        runs = self.runs[tool]
        return Median(
            statistics.median(self.rates(tool)),
            statistics.median(run.cpu for run in runs) / (self.size / 1e9),
            statistics.median(run.memory for run in runs),
        )

    def fastest_peer(self) -> str | None:
        return max(self.peers, key=lambda name: self.median(name).rate, default=None)

    def most_runs(self, tool: str, runs: int) -> int:
        """How often a tool is to run, as far as the runs up to now tell."""
        if tool.startswith("headway") and tool != "headway":
            return min(runs, SCOUTS)
        taken, fastest = self.runs.get(tool, []), self.fastest_peer()
        if tool in ("headway", "curl") or len(taken) < SCOUTS or fastest is None:
            return runs
        behind = max(self.rates(tool)) < FAR_BEHIND * self.median(fastest).rate
        return min(runs, SCOUTS) if behind else runs

    def complaints(self) -> list[str]:
        """Where Headway does not meet its limits."""
        if "headway" not in self.runs or (self.way, self.target) not in LIMITS:
            return []
        limit, ours = LIMITS[self.way, self.target], self.median("headway")
        said = []
        peer = limit.peer or self.fastest_peer()
        if peer in self.runs and ours.rate < limit.rate * self.median(peer).rate:
            share = ours.rate / self.median(peer).rate
            said.append(f"{self.title}: {share:.3f} of {peer}'s rate, not {limit.rate:.2f}")
        if limit.cpu is not None and "curl" in self.runs:
            share = ours.cpu / self.median("curl").cpu
            if share > limit.cpu:
                said.append(f"{self.title}: {share:.2f} times curl's CPU, not {limit.cpu:.2f}")
        if ours.memory > MEMORY:
            said.append(f"{self.title}: {ours.memory / 1e6:.0f} MB of memory")
        return said

    def lines(self) -> Iterator[str]:
        """The column for a terminal, the fastest tool first."""
        yield self.title
        yield (
            f"{'':17}{'runs':>4}{'MB/s':>6}{'(quartiles)':>13}{'(all)':>13}"
            f"{'CPU s/GB':>10}{'MB':>5}{'headway is':>14}"
        )
        ours = self.median("headway").rate if "headway" in self.runs else None
        for name in sorted(self.runs, key=lambda name: -self.median(name).rate):
            found, rates = self.median(name), self.rates(name)
            low, high = quartiles(rates)
            ratio = f"{ours / found.rate:8.2f} times" if ours and name in self.peers else ""
            yield (
                f"{name:17}{len(rates):4}{found.rate / 1e6:6.0f}{_span(low, high):>13}"
                f"{_span(min(rates), max(rates)):>13}{found.cpu:10.2f}{found.memory / 1e6:5.0f}"
                f"{ratio:>14}"
            )
        if self.server_cpu is not None:
            yield f"the server: {self.server_cpu:.2f} CPU s/GB"


def quartiles(values: list[float]) -> tuple[float, float]:
    """The first and the third; of one value, itself."""
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def _span(low: float, high: float) -> str:
    return f"({low / 1e6:.0f}-{high / 1e6:.0f})"


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure tools that fetch files.")
    parser.add_argument("--size", type=int, help="MiB (2048; with --crowd 16)")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--ways", default=",".join(WAYS), help="also: wide, wide-https")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--connections", default="1,4")
    parser.add_argument("--tools", help="some of: " + ", ".join(TOOLS))
    parser.add_argument("--folder", type=Path, help="for the files in memory (/dev/shm)")
    parser.add_argument("--disk", type=Path, help="for the files on disk (a temporary folder)")
    parser.add_argument("--minutes", type=float, default=60, help="for all columns together")
    parser.add_argument("--json", type=Path, help="write every run to this file")
    parser.add_argument("--crowd", action="store_true")
    parser.add_argument("--clients", type=int, default=100, help="with --crowd")
    arguments = parser.parse_args()
    size = (arguments.size or (16 if arguments.crowd else 2048)) << 20
    tools = []
    for tool in TOOLS.values():
        if arguments.tools and tool.name not in arguments.tools.split(","):
            continue
        if why := tool.missing():
            print(f"without {tool.name}: {why}", file=sys.stderr)
        else:
            tools.append(tool)
    about: dict[str, Any] = machine()
    about["tools"] = {tool.name: tool.version() for tool in tools}
    with contextlib.ExitStack() as stack:

        def place(folder: Path | None) -> Path:
            made = tempfile.TemporaryDirectory(prefix="headway-bench-", dir=folder)
            return Path(stack.enter_context(made))

        memory = place(arguments.folder or _memory(size))
        if arguments.crowd:
            return _crowd(tools, Made(size, seed=1), arguments.clients, memory, arguments.json)
        folders = {"memory": memory}
        local = [way for way in arguments.ways.split(",") if not way.startswith("wide")]
        if "disk" in arguments.targets.split(",") and local:
            folders["disk"] = place(arguments.disk or _disk())
        about["file_systems"] = {name: file_system(each) for name, each in folders.items()}
        for name, kind in about["file_systems"].items():
            print(f"{name}: {kind}", flush=True)
            if (kind in IN_MEMORY) != (name == "memory"):
                print(f"without a true {name}: {folders[name]} is on {kind}", file=sys.stderr)
        if not has_nginx():
            print("without nginx: the lab's own server may be slower than a tool", file=sys.stderr)
        seconds = 60 * arguments.minutes
        bench = Bench(tools, Made(size, seed=1), arguments.runs, folders, seconds)
        for way in arguments.ways.split(","):
            for count in map(int, arguments.connections.split(",")):
                for target in arguments.targets.split(","):
                    if target == "memory" or not way.startswith("wide"):
                        bench.columns.append(Column(way, target, count, size))
        complaints = bench.measure(about, arguments.json)
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


def _memory(size: int) -> Path | None:
    """Memory where there is room for source and target."""
    with contextlib.suppress(OSError):
        about = os.statvfs("/dev/shm")
        if about.f_bavail * about.f_frsize > 2.5 * size:
            return Path("/dev/shm")
    return None


def _disk() -> Path:
    """A folder for temporary files that does not lie in memory."""
    places = [Path(tempfile.gettempdir()), Path("/var/tmp"), Path.home(), Path.cwd()]
    return next((place for place in places if file_system(place) not in IN_MEMORY), places[0])


class Bench:
    """A run of the benchmark: every tool on every column, in turns."""

    def __init__(
        self, tools: list[Tool], made: Made, runs: int, folders: dict[str, Path], seconds: float
    ) -> None:
        self.tools, self.runs, self.folders = tools, runs, folders
        self.columns: list[Column] = []
        self._made, self._seconds = made, seconds
        self._begin, self._done = time.monotonic(), 0

    def measure(self, about: dict[str, Any], keep: Path | None) -> list[str]:
        """Fill the columns, show and keep each as it is done; complaints about Headway."""
        root, complaints = self.folders["memory"], []
        source = Path(root, NAME.lstrip("/"))
        source.parent.mkdir(parents=True)
        with self._made.write(source) as content:
            if any(tool.proves for tool in self.tools):
                publish(str(source), index=False)
            for column in self.columns:
                self._fill(column, content)
                print("", *column.lines(), sep="\n", flush=True)
                complaints += column.complaints()
                if keep is not None:
                    _keep(keep, about, [each for each in self.columns if each.runs])
        return complaints

    def _fill(self, column: Column, content: Content) -> None:
        tools = self._tools(column)
        share = (self.columns.index(column) + 1) / len(self.columns)
        with _source(column.way, content, self.folders["memory"]) as (served, url, federation):
            before = served.cpu
            for turn in range(1, self.runs + 1):
                if turn > SCOUTS and time.monotonic() > self._begin + share * self._seconds:
                    print(f"{column.title}: its time is over after {turn - 1} turns", flush=True)
                    break
                due = [tool for tool in tools if turn <= column.most_runs(tool.name, self.runs)]
                # whoever follows a tool that gave memory back finds it warm: nobody always does
                for tool in random.sample(due, len(due)):
                    task = Task(
                        [url],
                        self.folders[column.target] / "target",
                        content.size,
                        content.digest("sha256") if tool.proves == "sha256" else "",
                        Path(f"{self.folders['memory']}{NAME}{SUFFIX}")
                        if tool.proves == "manifest"
                        else None,
                        connections=min(column.connections, tool.most_connections),
                        federation=federation,
                        name=NAME,
                        bundle=Authority.get().bundle,
                    )
                    taken = column.runs.setdefault(tool.name, [])
                    taken.append(_run(tool, task, content, column.target, whole=not taken))
                    self._done += 1
                last = ", ".join(
                    f"{tool.name} {column.rates(tool.name)[-1] / 1e6:.0f}" for tool in due
                )
                left = self._minutes_left(column, turn)
                print(
                    f"{column.title}: turn {turn} of {self.runs}: {last} MB/s; {left}", flush=True
                )
            if before is not None and served.cpu is not None:
                total = content.size * sum(map(len, column.runs.values()))
                column.server_cpu = (served.cpu - before) / (total / 1e9)

    def _tools(self, column: Column) -> list[Tool]:
        return [tool for tool in self.tools if "https" in column.way or not tool.tls_only]

    def _minutes_left(self, column: Column, turn: int) -> str:
        """As if all runs took as long as those up to now."""
        left = 0
        for other in self.columns[self.columns.index(column) :]:
            for tool in self._tools(other):
                most = other.most_runs(tool.name, self.runs)
                left += max(0, most - (turn if other is column else 0))
        seconds = left * (time.monotonic() - self._begin) / self._done
        return f"about {seconds / 60:.0f} min left"


def _keep(path: Path, about: dict[str, Any], columns: list[Column]) -> None:
    """Write every run, and what follows from them, where the machine is named."""
    kept = [
        {
            **asdict(column),
            "medians": {name: column.median(name)._asdict() for name in column.runs},
            "complaints": column.complaints(),
        }
        for column in columns
    ]
    path.write_text(json.dumps({"machine": about, "columns": kept}, indent=1) + "\n")


def _run(tool: Tool, task: Task, content: Content, target: str, *, whole: bool) -> Run:
    """One run, and a look at what it brought, byte for byte where `whole`."""
    commands = [tool.command(task)]
    if target == "disk":
        os.sync()  # nobody pays for what another has written
        commands.append(["sync", str(task.path), str(task.path.parent)])
    run = _measure(commands, environment(tool, Authority.get()), task.path.parent)
    wrong = content.fault(task.path) if whole else None
    if wrong or task.path.stat().st_size != content.size:
        raise SystemExit(f"{tool.name} made a wrong file: {wrong}")
    task.path.unlink()
    return run


@contextlib.contextmanager
def _source(way: str, content: Content, root: Path) -> Iterator[tuple[Served, str, str]]:
    """The server, the object's URL on this way, and the federation in which it lies."""
    tls = Authority.get().good if "https" in way else None
    with contextlib.ExitStack() as stack:
        served = stack.enter_context(serve(content, root, NAME, tls))
        url = served.url
        if way.startswith("wide"):
            path = stack.enter_context(WidePath(served.address, delay=DELAY, rate=RATE))
            url = path.url(url)
        director = stack.enter_context(Director("/lab", [url[: -len(NAME)]]))
        yield served, url, f"pelican://{director.address[0]}:{director.address[1]}"


def _measure(commands: list[list[str]], variables: dict[str, str], folder: Path) -> Run:
    """Commands one after the other, all of which must succeed, and what they took together."""
    log, cpu, memory = folder / "said", 0.0, 0
    begin = time.monotonic()
    for command in commands:
        with log.open("wb") as said:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env=variables,
                cwd=folder,
            )
            while True:
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid:
                    break
                memory = max(memory, _highest(process.pid))
                time.sleep(0.01)
                if time.monotonic() > begin + LONGEST:
                    process.kill()
        cpu += usage.ru_utime + usage.ru_stime
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{command[0]} failed:\n{log.read_text(errors='replace')[-2000:]}")
    return Run(time.monotonic() - begin, cpu, memory)


def _highest(pid: int) -> int:
    """The most that a process has been resident; getrusage's figure begins with the parent's."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


@dataclass(frozen=True)
class Rush:
    """All clients at once on a saturated cache."""

    tool: str
    connections: int | None  # of each client; None: as the tool comes
    seconds: float  # until the last client ended
    failed: int
    most: int  # connections at once

    @property
    def label(self) -> str:
        return f"{self.tool}, {'1 connection' if self.connections else 'as it comes'}"


def _crowd(tools: list[Tool], content: Made, clients: int, folder: Path, keep: Path | None) -> int:
    rushes: list[Rush] = []
    ideal = clients * content.size / CROWD_RATE
    print(f"{clients} clients, {content.size / 2**20:.0f} MiB each", flush=True)
    for tool in tools:
        if tool.federated or tool.tls_only or tool.proves:
            continue
        # there and back: whoever rushes first finds the machine in another state
        kinds: list[int | None] = [1, None, None, 1] if tool.most_connections > 1 else [1]
        for connections in kinds:
            rush = _rush(tool, connections, content, clients, folder)
            rushes.append(rush)
            words = f", {rush.failed} failed" if rush.failed else ""
            print(
                f"{rush.label:28}{rush.seconds:7.1f} s (ideal {ideal:.1f}){words},"
                f" {rush.most} connections",
                flush=True,
            )
    if keep is not None:
        about = {**machine(), "tools": {tool.name: tool.version() for tool in tools}}
        kept = {"machine": about, "clients": clients, "size": content.size, "ideal": ideal}
        kept["rushes"] = [asdict(rush) for rush in rushes]
        keep.write_text(json.dumps(kept, indent=1) + "\n")
    complaints = crowd_complaints(rushes)
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


def crowd_complaints(rushes: list[Rush]) -> list[str]:
    """Whether Headway's own number of connections makes the last client later."""
    taken: dict[str, list[float]] = {}
    for rush in rushes:
        seconds = float("inf") if rush.failed else rush.seconds
        taken.setdefault(rush.label, []).append(seconds)
    took = {label: statistics.fmean(each) for label, each in taken.items()}
    one, ours = took.get("headway, 1 connection"), took.get("headway, as it comes")
    if one is None or ours is None or ours <= one:
        return []
    return [f"headway, as it comes, takes {ours / one:.2f} times as long as with one connection"]


def _rush(tool: Tool, connections: int | None, content: Made, clients: int, folder: Path) -> Rush:
    scale = clients / 100
    strain = [
        Crowded(max(2, int(REFUSED * scale))),
        Strained(CROWD_RATE, max(1, int(CROWD * scale))),
    ]
    variables = environment(tool, Authority.get())
    with Server({NAME: content}, strain) as server, contextlib.ExitStack() as stack:
        begin, processes = time.monotonic(), []
        for number in range(clients):
            place = folder / f"{number}"
            place.mkdir(exist_ok=True)
            task = Task(
                [server.url(NAME)],
                place / "object",
                content.size,
                content.digest("sha256"),
                connections=connections,
            )
            said = stack.enter_context((place / "said").open("wb"))
            processes.append(
                subprocess.Popen(
                    tool.command(task),
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    env=variables,
                    cwd=place,
                )
            )
        for process in processes:
            process.wait()
        seconds = time.monotonic() - begin
        most = server.connections_max
    right = 0
    for number, process in enumerate(processes):
        path = folder / f"{number}" / "object"
        right += process.returncode == 0 and content.fault(path) is None
        path.unlink(missing_ok=True)
    return Rush(tool.name, connections, seconds, clients - right, most)


if __name__ == "__main__":
    sys.exit(main())
