"""How soon a second `headway run` begins its command, when the first has fetched the same input.

    python benchmarks/second_run.py [--runs N] [--size MEGABYTES] [--json FILE]

The local pool keeps the input in the user's cache; here a server on loopback says that it has not
changed. Two peers run the same command in a shell, which first copies the input from the same disk,
or fetches it again with curl. Prints the wall clock from the start of each to the start of its
command, and the CPU time of all its processes; exits with 1 when Headway's median is over the
budget.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from local_overhead import adopt_orphans, cpu_of_ended
from measure import SOURCE, file_system, machine

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.lab import Made
from transfer_server import serve

BUDGET = 300.0  # milliseconds until the command starts, on two quiet cores
SECOND = "a second run"
_LATER = 0.1  # seconds after which the processes of a run have ended
_NOW = "date +%s.%N"
_JOB = """\
name = "second"
command = "{command}"
inputs = ["{url}"]
[resources]
memory = "100 MB"
disk = "{disk} MB"
"""
Figures = dict[str, float]  # wall: seconds until the command starts; cpu: seconds of CPU in all


class SecondRun:
    """An input of so many megabytes that is served, and what starts a command that reads it."""

    def __init__(self, folder: Path, url: str, size: int, source: Path = SOURCE) -> None:
        self.folder, self.url, self.size, self.source = folder, url, size, source
        self.folder.mkdir()
        self._file = self.folder / "input"
        text = _JOB.format(command=_NOW, url=url, disk=2 * size)
        (self.folder / "job.toml").write_text(text)

    def headway(self) -> Figures:
        """A run; the first of these downloads."""
        path = os.pathsep.join(filter(None, [str(self.source), os.environ.get("PYTHONPATH")]))
        env = {**os.environ, "PYTHONPATH": path, "HEADWAY_CACHE": str(self.folder / "cache")}
        run = [sys.executable, "-m", "headway", "run", "job.toml", "--again"]

        def start() -> str:
            subprocess.run(run, cwd=self.folder, env=env, check=True, stdout=subprocess.DEVNULL)
            [out] = self.folder.glob(".headway/runs/*/jobs/0/attempts/*/stdout")
            return out.read_text()

        try:
            return _figures(start)
        finally:
            shutil.rmtree(self.folder / ".headway/runs", ignore_errors=True)

    def copy(self) -> Figures:
        """A copy of a file on the same disk."""
        [kept] = self.folder.glob("cache/**/data")
        return self._shell(f"cp {shlex.quote(str(kept))} {self._file}")

    def curl(self) -> Figures:
        """Another download."""
        return self._shell(f"curl -sS -o {self._file} {self.url}")

    def _shell(self, before: str) -> Figures:
        self._file.unlink(missing_ok=True)
        words = ["sh", "-c", f"{before} && {_NOW}"]
        return _figures(lambda: subprocess.run(words, check=True, stdout=-1, text=True).stdout)


def _figures(start: Callable[[], str]) -> Figures:
    """Of something that returns the time at which its command started, as the command told it."""
    adopt_orphans()
    cpu, begin = cpu_of_ended(), time.time()
    began = float(start())
    time.sleep(_LATER)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:  # the server is a child, too, and goes on
            pass
    return {"wall": began - begin, "cpu": cpu_of_ended() - cpu}


@contextlib.contextmanager
def served(megabytes: int) -> Iterator[tuple[str, Path]]:
    """The URL of an input, and a folder on the same disk."""
    content = Made(megabytes << 20, seed=1)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as name:
        root = Path(name) / "served"
        root.mkdir(0o755)
        with open(root / "input.bin", "wb") as file:
            for begin in range(0, content.size, 1 << 24):
                file.write(content.read(begin, min(content.size, begin + (1 << 24))))
        Path(name).chmod(0o755)
        with serve(content, root, "/input.bin", None) as server:
            yield server.url, Path(name)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure the start of a run whose input is kept.")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--size", type=int, default=1024, help="megabytes of the input")
    parser.add_argument("--budget", type=float, default=BUDGET, help="milliseconds")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as pip compiles what it installs
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(SOURCE)], check=True)
    known = _measured(arguments.size, arguments.runs)
    if arguments.json:
        arguments.json.write_text(json.dumps(known, indent=1) + "\n")
    for name, figures in known["ways"].items():
        walls, cpus = ([1000 * each[key] for each in figures] for key in ("wall", "cpu"))
        spread = f"({min(walls):.0f}–{max(walls):.0f})"
        print(f"{name:<20}{statistics.median(walls):8.0f} ms {spread:<12}", end="")
        print(f"{statistics.median(cpus):8.0f} ms CPU")
    print(f"{arguments.size} MiB, {arguments.runs} turns, {os.cpu_count()} cores,", end=" ")
    print(f"load {known['load']:.1f}; budget {arguments.budget:.0f} ms")
    median = statistics.median(each["wall"] for each in known["ways"][SECOND])
    if 1000 * median > arguments.budget:
        print("over the budget")
        return 1
    return 0


def _measured(size: int, turns: int) -> dict[str, Any]:
    """The figures of each way, taken in turns, and what they depend on."""
    with served(size) as (url, folder):
        run = SecondRun(folder / "runs", url, size)
        ways = {SECOND: run.headway, "cp": run.copy, "curl": run.curl}
        first = [run.headway()]
        taken: dict[str, list[Figures]] = {name: [] for name in ways}
        for _ in range(turns):
            for name, way in ways.items():
                taken[name].append(way())
        about = machine() | {"file_systems": {"disk": file_system(folder)}}
    load = os.getloadavg()[0]
    return {"machine": about, "size": size, "load": load, "ways": {"the first run": first} | taken}


if __name__ == "__main__":
    sys.exit(main())
