"""How fast tools fetch a large file, and what it costs them; and a crowd on one cache.

    python benchmarks/transfer.py [--size MB] [--runs N] [--ways A,B] [--connections 1,4]
                                  [--tools A,B] [--folder FOLDER]
    python benchmarks/transfer.py --crowd [--clients N] [--size MB]

Ways: `http` and `https` on loopback, `wide` and `wide-https` through a path that adds 40 ms of
delay and gives each connection 25 MB/s. Every tool may open the same number of connections; one
that knows only one opens one. None hashes, except for `headway sha256` and `headway manifest`: they
state what it costs to prove the object by its checksum or by its manifest. Prints MB/s, CPU seconds
per GB and memory (the highest resident set), the median of the runs, taken in turns, with the
slowest and the fastest of them; and the server's own CPU, which tells whether it was the server
that was measured. Where the runs do not tell Headway from the fastest peer, both run again, up to
three times as often. Exits with 1 when Headway is slower than the fastest peer, needs more CPU than
curl over http or 1.4 times as much over https, or more than 80 MB of memory. HTCondor's curl_plugin
brings an OpenSSL of its own; `headway+` is Headway on that one, shown beside the others so that
tools and libraries can be told apart. Neither it nor the two that hash are judged.

With --crowd: many clients on one cache that gives 200 MB/s in all, less as more than 120
connections are open, and refuses more than 160. Exits with 1 when Headway as it comes lets the last
of them finish later than with one connection each, in the mean of two turns.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.lab import Authority, Content, Crowded, Director, Made, Server, Strained, WidePath
from transfer_server import Served, has_nginx, serve
from transfer_tools import TOOLS, Task, Tool, environment

from headway.node.transfer.manifest import SUFFIX
from headway.node.transfer.publish import publish

NAME = "/lab/object"
DELAY, RATE = 0.040, 25e6  # of the wide path: seconds of a round trip, bytes/s of a connection
WAYS = ("http", "https", "wide", "wide-https")
HTTP_CPU, HTTPS_CPU, MEMORY = 1.0, 1.4, 80e6
MORE = 3  # times as many runs, where the first ones decide nothing
CROWD_RATE, CROWD, REFUSED = 200e6, 120, 160


@dataclass(frozen=True)
class Cost:
    rate: float  # bytes per second
    cpu: float  # seconds per GB
    memory: float  # bytes


class Costs(list[Cost]):
    """What one tool's runs cost."""

    @property
    def median(self) -> Cost:
        return Cost(*(statistics.median(each) for each in zip(*map(astuple, self), strict=True)))

    @property
    def rates(self) -> list[float]:
        return [cost.rate for cost in self]


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure tools that fetch files.")
    parser.add_argument("--size", type=int, help="MiB (2048; with --crowd 16)")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--connections", default="1,4")
    parser.add_argument("--tools", help="some of: " + ", ".join(TOOLS))
    parser.add_argument("--folder", type=Path, help="for the files; best in memory")
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
    with tempfile.TemporaryDirectory(prefix="headway-bench-", dir=_place(arguments, size)) as where:
        if arguments.crowd:
            return _crowd(tools, Made(size, seed=1), arguments.clients, Path(where))
        complaints = []
        if not has_nginx():
            print("without nginx: the lab's own server may be slower than a tool", file=sys.stderr)
        source = Path(where, NAME.lstrip("/"))
        source.parent.mkdir(parents=True)
        with Made(size, seed=1).write(source) as content:
            if any(tool.proves for tool in tools):
                publish(str(source), index=False)
            for way in arguments.ways.split(","):
                for connections in map(int, arguments.connections.split(",")):
                    costs = _column(tools, way, connections, content, arguments.runs, Path(where))
                    complaints += _show(way, connections, costs)
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


def _place(arguments: argparse.Namespace, size: int) -> str | None:
    """Memory where there is room for source and target: the disk is not what is measured."""
    if arguments.folder:
        return str(arguments.folder)
    with contextlib.suppress(OSError):
        about = os.statvfs("/dev/shm")
        if about.f_bavail * about.f_frsize > 2.5 * size:
            return "/dev/shm"
    return None


def _column(
    tools: list[Tool], way: str, connections: int, content: Content, runs: int, folder: Path
) -> dict[str, Costs]:
    """Every tool on one way, in turns; those between whom it is not decided, more often."""
    tools = [tool for tool in tools if "https" in way or not tool.tls_only]
    taken = {tool.name: Costs() for tool in tools}
    with _source(way, content, folder) as (served, url, federation):
        before = served.cpu

        def turn(tool: Tool) -> None:
            task = Task(
                [url],
                folder / "target",
                content.size,
                content.digest("sha256") if tool.proves == "sha256" else "",
                Path(f"{folder}{NAME}{SUFFIX}") if tool.proves == "manifest" else None,
                connections=min(connections, tool.most_connections),
                federation=federation,
                name=NAME,
                bundle=Authority.get().bundle,
            )
            taken[tool.name].append(_run(tool, task, content, whole=not taken[tool.name]))

        for _ in range(runs):
            for tool in tools:
                turn(tool)
        while close := _undecided(taken, runs):
            for tool in tools:
                if tool.name in close:
                    turn(tool)
        if before is not None and served.cpu is not None:
            total = content.size * sum(map(len, taken.values()))
            print(f"\nthe server: {(served.cpu - before) / (total / 1e9):.2f} CPU s/GB", end="")
    return taken


def _undecided(taken: dict[str, Costs], runs: int) -> set[str]:
    """Headway and a faster peer, as long as their runs overlap and there may be more of them."""
    close: set[str] = set()
    for peer in _peers(taken):
        ours, theirs = taken["headway"], taken[peer]
        overlap = max(ours.rates) > min(theirs.rates)
        if overlap and len(ours) < MORE * runs and ours.median.rate < theirs.median.rate:
            close |= {"headway", peer}
    return close


def _peers(taken: dict[str, Costs]) -> list[str]:
    return [name for name in taken if not name.startswith("headway") and "headway" in taken]


def _run(tool: Tool, task: Task, content: Content, *, whole: bool) -> Cost:
    """One run, and a look at what it brought, byte for byte where `whole`."""
    command, variables = tool.command(task), environment(tool, Authority.get())
    cost = _measure(command, variables, task.path.parent, content.size)
    wrong = content.fault(task.path) if whole else None
    if wrong or task.path.stat().st_size != content.size:
        raise SystemExit(f"{tool.name} made a wrong file: {wrong}")
    task.path.unlink()
    return cost


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


def _measure(command: list[str], variables: dict[str, str], folder: Path, size: int) -> Cost:
    """One run of a tool, which must succeed."""
    log = folder / "said"
    with log.open("wb") as said:
        begin = time.monotonic()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=variables, cwd=folder
        )
        memory = 0
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            memory = max(memory, _highest(process.pid))
            time.sleep(0.01)
        seconds = time.monotonic() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[0]} failed:\n{log.read_text(errors='replace')[-2000:]}")
    return Cost(size / seconds, (usage.ru_utime + usage.ru_stime) / (size / 1e9), memory)


def _highest(pid: int) -> int:
    """The most that a process has been resident; getrusage's figure begins with the parent's."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def _show(way: str, connections: int, taken: dict[str, Costs]) -> list[str]:
    """Print one column; complaints about Headway."""
    costs = {name: each.median for name, each in taken.items()}
    ours = costs.get("headway")
    print(f"\n{way}, {connections} connection{'s' if connections > 1 else ''}")
    print(f"{'':17}{'MB/s':>6}{'(all runs)':>13}{'CPU s/GB':>10}{'MB':>5}{'headway is':>14}")
    for name, cost in sorted(costs.items(), key=lambda item: -item[1].rate):
        ratio = (
            f"{ours.rate / cost.rate:8.2f} times" if ours and not name.startswith("headway") else ""
        )
        low, high = min(taken[name].rates) / 1e6, max(taken[name].rates) / 1e6
        rates = f"{cost.rate / 1e6:6.0f}{f'({low:.0f}-{high:.0f})':>13}"
        print(f"{name:17}{rates}{cost.cpu:10.2f}{cost.memory / 1e6:5.0f}{ratio:>14}", flush=True)
    if ours is None:
        return []
    where, complaints = f"{way}, {connections}", []
    for peer in _peers(taken):
        if ours.rate < costs[peer].rate:
            share = ours.rate / costs[peer].rate
            complaints.append(f"{where}: {share:.3f} of {peer}'s rate")
    if (curl := costs.get("curl")) and not way.startswith("wide"):
        allowed = HTTPS_CPU if way == "https" else HTTP_CPU
        if ours.cpu > allowed * curl.cpu:
            complaints.append(f"{where}: {ours.cpu / curl.cpu:.2f} times curl's CPU")
    if ours.memory > MEMORY:
        complaints.append(f"{where}: {ours.memory / 1e6:.0f} MB of memory")
    return complaints


def _crowd(tools: list[Tool], content: Made, clients: int, folder: Path) -> int:
    """All clients at once on a saturated cache: when the last one has its file."""
    taken: dict[str, list[float]] = {}
    print(f"{clients} clients, {content.size / 2**20:.0f} MiB each")
    for tool in tools:
        if tool.federated or tool.tls_only or tool.proves:
            continue
        # there and back: whoever rushes first finds the machine in another state
        kinds: list[int | None] = [1, None, None, 1] if tool.most_connections > 1 else [1]
        for connections in kinds:
            kind = "1 connection" if connections else "as it comes"
            label = f"{tool.name}, {kind}"
            seconds, failed, most = _rush(tool, connections, content, clients, folder)
            taken.setdefault(label, []).append(seconds if not failed else float("inf"))
            ideal = clients * content.size / CROWD_RATE
            words = f", {failed} failed" if failed else ""
            print(f"{label:28}{seconds:7.1f} s (ideal {ideal:.1f}){words}, {most} connections")
    took = {label: statistics.fmean(each) for label, each in taken.items()}
    one, ours = took.get("headway, 1 connection"), took.get("headway, as it comes")
    if one is not None and ours is not None and ours > one:
        print(f"headway, as it comes, takes {ours / one:.2f} times as long as with one connection")
        return 1
    return 0


def _rush(
    tool: Tool, connections: int | None, content: Made, clients: int, folder: Path
) -> tuple[float, int, int]:
    """Seconds until the last client ends, how many failed, the most connections at once."""
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
    return seconds, clients - right, most


if __name__ == "__main__":
    sys.exit(main())
