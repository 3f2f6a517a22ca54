"""Ways of feeding a trainer from a tar file of class tars, beside each other.

    python benchmarks/streaming.py [--quick] [--runs N] [--worlds present,arriving,window]
                                   [--ways "A;B"] [--images N] [--rate MB/s] [--folder FOLDER]
                                   [--under COMMAND] [--json FILE]

Extract and read files as ImageFolder does; webdataset; mosaicml-streaming; Headway. What a way must
do first (extract, repack, convert, publish) counts as time before its first batch. Each repetition
of each way is a process of its own with the same batch size, decoding and number of workers;
imports count for none. Worlds: `present`, the whole file is there; `arriving`, it comes from a
server that gives all connections together so many MB/s: each way's own files are served, and the
way with folders fetches the tar file before it extracts it; `window`, Headway alone, with
`keep = false`: what it states before it begins, and what it then takes.

Images/s are counted from the first batch on where all is present; where data arrives, over the
whole epoch, with all that had to be done and waited for. CPU is that of one epoch and of all before
it: what had to be done first, workers and fetchers; epoch CPU leaves out what had to be done first.
Extra disk and inodes are what a way makes beyond the tar file at home and, where data arrives, one
copy of what is served on the node. Times are medians of the repetitions, which are taken in turns.
Says in which columns Headway does not lead; exits with 1 where its runs do not even overlap with a
better peer's, or where the epoch ends more than 10 % after the download.

All ways run in the Python of the environment variable HEADWAY_STREAMING_PYTHON, or else in this
one. A virtual environment for all of them: `pip install torch==2.13.0 pillow webdataset`, and then
`pip install --no-deps mosaicml-streaming` with the packages that it asks for, torchvision left out.
`--under "flock FILE"` has every process wait for its turn on the machine. --json keeps every run.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from measure import SOURCE, machine
from tests.lab import Filed, Server, Strained

PYTHON = os.environ.get("HEADWAY_STREAMING_PYTHON", sys.executable)
OURS = "headway"
WAYS = ("extract, folder", "webdataset", "mosaicml-streaming", OURS)
WORLDS = ("present", "arriving", "window")
CLASSES = 20
NAME = "train.tar"
BATCH, WORKERS, SEED = 64, 2, 1
MAKE_DATA = Path(__file__).parents[1] / "examples" / "imagenet" / "make_data.py"
PICTURE = ("--side", "256", "--quality", "60", "--distinct", "250")  # about 12 KB each
LATE = 1.10  # of the download's time: when the epoch shall be over
WINDOW_EPOCHS = 2
LOOK = 0.01  # seconds between two looks at the server

Result = dict[str, float]


class Column(NamedTuple):
    title: str
    key: str
    more_is_better: bool
    shown: str

    def standing(self, ours: list[float], theirs: list[float]) -> str:
        """Of all runs: whether ours "leads" by their median, is "level" or "behind"."""
        sign = 1 if self.more_is_better else -1
        a, b = ([sign * each for each in values] for values in (ours, theirs))
        if statistics.median(a) >= statistics.median(b):
            return "leads"
        return "level" if max(a) >= min(b) and len(a) > 1 else "behind"


PRESENT = (
    Column("first batch s", "first", False, ".2f"),
    Column("raw images/s", "raw_rate", True, ",.0f"),
    Column("images/s", "rate", True, ",.0f"),
    Column("raw CPU s", "raw_cpu", False, ".1f"),
    Column("raw epoch CPU s", "raw_epoch_cpu", False, ".1f"),
    Column("CPU s", "cpu", False, ".1f"),
    Column("epoch CPU s", "epoch_cpu", False, ".1f"),
    Column("extra MB", "disk", False, ".1f"),
    Column("inodes", "inodes", False, ",.0f"),
    Column("classes", "classes", True, ".0f"),
)
ARRIVING = (
    Column("first batch s", "first", False, ".2f"),
    Column("epoch done s", "done", False, ".1f"),
    Column("images/s", "rate", True, ",.0f"),
    Column("end/download", "late", False, ".3f"),
    Column("CPU s", "cpu", False, ".1f"),
    Column("epoch CPU s", "epoch_cpu", False, ".1f"),
    Column("extra MB", "disk", False, ".1f"),
    Column("inodes", "inodes", False, ",.0f"),
    Column("classes", "classes", True, ".0f"),
)


class Bench:
    """One run of the benchmark: the data, and how its processes are started."""

    def __init__(self, folder: Path, images: int, rate: float, under: list[str]) -> None:
        self.folder, self.images, self.rate, self._under = folder, images, rate, under
        self.tar = folder / NAME

    def make_data(self) -> None:
        words = ["--classes", str(CLASSES), "--per-class", str(self.images // CLASSES), *PICTURE]
        command = [PYTHON, str(MAKE_DATA), "--output", str(self.tar), *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def missing(self, way: str) -> str:
        """Why a way cannot run here; empty: it can."""
        done = self._start([], "imports", self._task(way, decode=False, url=None))
        return "" if done.returncode == 0 else done.stderr.strip().rpartition("\n")[2]

    def present(self, way: str) -> Result:
        self._clear()
        prepared = self._measured("prepare", self._task(way, decode=False, url=None))
        disk, inodes = used(self.folder / "made", self.tar)
        raw = self._measured("run", self._task(way, decode=False, url=None))
        found = self._measured("run", self._task(way, decode=True, url=None))
        more_disk, more_inodes = used(self.folder / "node", self.tar)
        return {
            "first": prepared["seconds"] + found["first"] - found["begin"],
            "raw_rate": self._rate(raw),
            "rate": self._rate(found),
            "raw_cpu": prepared["cpu"] + raw["cpu"],
            "cpu": prepared["cpu"] + found["cpu"],
            "raw_epoch_cpu": raw["cpu"],
            "epoch_cpu": found["cpu"],
            "disk": (disk + more_disk) / 1e6,
            "inodes": inodes + more_inodes,
            "classes": found["classes"],
            "bytes": raw["bytes"],
        }

    def arriving(self, way: str) -> Result:
        self._clear()
        prepared = self._measured("prepare", self._task(way, decode=True, url=""))
        disk, inodes = used(self.folder / "made", self.tar)
        with self._served(way) as (server, url):
            with Watch(server, self.folder / "node" / f"{NAME}.part") as watch:
                found = self._measured("run", self._task(way, decode=True, url=url))
            served = sum(server.store[path].content.size for path in server.store.paths())
        more_disk, more_inodes = used(self.folder / "node", self.tar)
        done = prepared["seconds"] + found["end"] - found["begin"]
        return {
            "first": prepared["seconds"] + found["first"] - found["begin"],
            "done": done,
            "rate": self.images / done,
            "late": (found["end"] - watch.first) / (watch.last - watch.first),
            "download": watch.last - watch.first,
            "cpu": prepared["cpu"] + found["cpu"],
            "epoch_cpu": found["cpu"],
            "disk": (disk + max(0, more_disk - served)) / 1e6,
            "inodes": inodes + more_inodes,
            "classes": found["classes"],
        }

    def window(self, share: float) -> Result:
        """Headway with room for a share of the object."""
        self._clear()
        self._measured("prepare", self._task(OURS, decode=True, url=""))
        window = int(self.tar.stat().st_size * share)
        with self._served(OURS) as (server, url):
            task = self._task(OURS, decode=False, url=url, window=window, epochs=WINDOW_EPOCHS)
            with Watch(server, self.folder / "node" / f"{NAME}.part") as watch:
                found = self._measured("run", task)
            sent = server.sent
        return {"disk": watch.disk, "sent": sent, **found}

    def _rate(self, found: dict[str, float]) -> float:
        """Images a second once they come: what is before the first batch has its own column."""
        return (self.images - BATCH) / (found["end"] - found["first"])

    def _task(self, way: str, *, decode: bool, url: str | None, **more: int) -> dict[str, Any]:
        places = {"made": str(self.folder / "made"), "node": str(self.folder / "node")}
        task = {"way": way, "tar": str(self.tar), "images": self.images, **places, **more}
        settings = {"batch": BATCH, "workers": WORKERS, "seed": SEED}
        return {**task, **settings, "decode": decode, "url": url}

    def _clear(self) -> None:
        for name in ("made", "node"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir()

    @contextmanager
    def _served(self, way: str) -> Iterator[tuple[Server, str]]:
        """What the way has made, or else the tar file, at a limited rate."""
        files = [path for path in (self.folder / "made").rglob("*") if path.is_file()]
        with ExitStack() as stack:
            content = {f"/{path.name}": stack.enter_context(closing(Filed(path))) for path in files}
            if not content:
                content = {f"/{NAME}": stack.enter_context(closing(Filed(self.tar)))}
            server = stack.enter_context(Server(content, [Strained(self.rate, 1000)]))
            yield server, server.url(NAME if not files else "").rstrip("/")

    def _measured(self, step: str, task: dict[str, Any]) -> dict[str, float]:
        os.sync()  # what others have written is not this one's work
        done = self._start(self._under, step, task)
        if done.returncode:
            raise SystemExit(f"{task['way']}, {step}:\n{done.stderr[-3000:]}")
        found: dict[str, float] = json.loads(done.stdout.rpartition("\n")[2])
        return found

    def _start(
        self, under: list[str], step: str, task: dict[str, Any]
    ) -> subprocess.CompletedProcess[str]:
        path = self.folder / "task.json"
        path.write_text(json.dumps(task))
        program = str(Path(__file__).with_name("streaming_ways.py"))
        return subprocess.run(
            [*under, PYTHON, program, step, str(path)],
            env={**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONWARNINGS": "ignore"},
            capture_output=True,
            text=True,
        )


class Watch:
    """When the first and the last byte left the server, and the most disk that a file took."""

    def __init__(self, server: Server, path: Path) -> None:
        self.first = self.last = 0.0
        self.disk = 0
        self._server, self._path = server, path
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        seen = 0
        while not self._over.wait(LOOK):
            sent, now = self._server.sent, time.monotonic()
            if sent != seen:
                seen, self.last = sent, now
                self.first = self.first or now
            if self._path.exists():
                self.disk = max(self.disk, self._path.stat().st_blocks * 512)


def used(folder: Path, tar: Path) -> tuple[int, int]:
    """Bytes of disk and inodes below a folder; the tar file itself, or its copy, is no inode."""
    disk = inodes = 0
    home = tar.stat().st_ino
    for path in folder.rglob("*"):
        about = path.lstat()
        if about.st_ino != home:
            disk += about.st_blocks * 512
            inodes += path.name not in (NAME, f"{NAME}.part")
    return disk, inodes


def median(results: list[Result]) -> Result:
    return {key: statistics.median(each[key] for each in results) for key in results[0]}


def standings(
    world: str, columns: tuple[Column, ...], taken: dict[str, list[Result]]
) -> dict[str, list[str]]:
    """Where Headway does not lead: "level", the runs do not tell who does, or "behind"."""
    said: dict[str, list[str]] = {"level": [], "behind": []}
    ours = taken.get(OURS, [])
    for column in columns if ours else ():
        for peer, theirs in taken.items():
            values = [[each[column.key] for each in results] for results in (ours, theirs)]
            standing = column.standing(*values)
            if standing != "leads":
                a, b = (format(statistics.median(each), column.shown) for each in values)
                words = f"{standing} in {column.title}: {a}, {peer} {b}"
                said[standing].append(f"{world}: {words}")
    late = statistics.median(each.get("late", 0.0) for each in ours) if ours else 0.0
    if late > LATE:
        said["behind"].append(f"{world}: the epoch ends at {late:.3f} of the download's time")
    return said


def table(columns: tuple[Column, ...], found: dict[str, Result]) -> list[str]:
    widths = [max(len(column.title), 8) + 2 for column in columns]
    titles = (f"{column.title:>{width}}" for column, width in zip(columns, widths, strict=True))
    lines = [" " * 20 + "".join(titles)]
    for way, result in found.items():
        values = (
            f"{format(result[column.key], column.shown):>{width}}"
            for column, width in zip(columns, widths, strict=True)
        )
        lines.append(f"{way:20}" + "".join(values))
    return lines


def compare(
    world: str,
    columns: tuple[Column, ...],
    measured: Callable[[str], Result],
    ways: list[str],
    runs: int,
) -> dict[str, list[Result]]:
    """Every way in turns, shown as they end; all runs of each."""
    taken: dict[str, list[Result]] = {way: [] for way in ways}
    for number in range(runs):
        for way in ways:
            taken[way].append(measured(way))
            print(f"{world} {number + 1}: {way} {_shown(taken[way][-1])}", file=sys.stderr)
    found = {way: median(results) for way, results in taken.items()}
    print(f"\n{world}", *table(columns, found), sep="\n", flush=True)
    if "download" in found[ways[-1]]:
        words = ", ".join(f"{way} {found[way]['download']:.1f} s" for way in ways)
        print(f"the downloads alone: {words}")
    return taken


def show_window(bench: Bench, found: Result) -> None:
    stated, epochs = found["each_epoch"] * WINDOW_EPOCHS, WINDOW_EPOCHS
    print(
        f"\nwindow, {epochs} epochs: {bench.tar.stat().st_size / 1e6:.1f} MB of data\n"
        f"disk:    stated {found['window'] / 1e6:7.1f} MB, taken {found['disk'] / 1e6:7.1f} MB\n"
        f"fetched: stated {stated / 1e6:7.1f} MB, came  {found['sent'] / 1e6:7.1f} MB"
        f" ({found['sent'] / stated:.3f}), of them again {found['refetched'] / 1e6:.1f} MB",
        flush=True,
    )


def _shown(result: Result) -> str:
    return " ".join(f"{key}={value:.4g}" for key, value in result.items())


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare ways of feeding a trainer.")
    parser.add_argument("--quick", action="store_true", help="small, once, and nothing is judged")
    parser.add_argument("--runs", type=int, help="repetitions (3)")
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--ways", default=";".join(WAYS), help="with ; between them")
    parser.add_argument("--images", type=int, help=f"of {CLASSES} classes (20000)")
    parser.add_argument("--rate", type=float, default=8.0, help="MB/s, of all connections together")
    parser.add_argument("--share", type=float, default=0.25, help="of the data, as the window")
    parser.add_argument("--folder", type=Path, help="for the data")
    parser.add_argument("--under", default="", help="a command to start each process with")
    parser.add_argument("--json", type=Path, help="write every run to this file")
    arguments = parser.parse_args()
    images = arguments.images or (2000 if arguments.quick else 20_000)
    runs = arguments.runs or (1 if arguments.quick else 3)
    level, behind = [], []
    with tempfile.TemporaryDirectory(prefix="headway-bench-", dir=arguments.folder) as name:
        bench = Bench(Path(name), images, arguments.rate * 1e6, shlex.split(arguments.under))
        bench.make_data()
        print(
            f"{images} images of {CLASSES} classes, {bench.tar.stat().st_size / 1e6:.1f} MB",
            flush=True,
        )
        ways = []
        for way in arguments.ways.split(";"):
            if why := bench.missing(way):
                print(f"without {way}: {why}")
            else:
                ways.append(way)
        kept: dict[str, Any] = {"machine": machine(), "images": images, "rate": bench.rate}
        kept |= {"size": bench.tar.stat().st_size, "share": arguments.share, "worlds": {}}
        for world in arguments.worlds.split(","):
            if world == "window":
                found = bench.window(arguments.share)
                kept["worlds"][world] = {OURS: [found]}
                show_window(bench, found)
            else:
                measured = bench.present if world == "present" else bench.arriving
                columns = PRESENT if world == "present" else ARRIVING
                taken = compare(world, columns, measured, ways, runs)
                kept["worlds"][world] = taken
                said = standings(world, columns, taken)
                level += said["level"]
                behind += said["behind"]
            if arguments.json:
                arguments.json.write_text(json.dumps(kept, indent=1) + "\n")
    print(*level, *behind, sep="\n")
    return 1 if behind and not arguments.quick else 0


if __name__ == "__main__":
    sys.exit(main())
