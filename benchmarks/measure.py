"""What commands cost: seconds of the wall clock and of CPU, and the most memory they held.

And on which machine: a file of raw figures says so beside them.
"""

from __future__ import annotations

import os
import platform
import resource
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[1] / "src"
INTERVAL = 0.1  # seconds between two looks at the memory


class Cost(NamedTuple):
    wall: float  # seconds
    cpu: float  # seconds, of all processes
    memory: int  # bytes at the worst moment, of all processes; what they share counts once
    outputs: list[str]  # what each command printed
    stolen: float = 0.0  # of the processors' time, the share that other virtual machines took


def measure(*commands: list[str], watch: bool = False) -> Cost:
    """Runs commands at the same time, each in its own process, with Headway's source at hand.

    The memory is the most of each process unless they are watched, which sees what they hold
    together, and slows them down: take the seconds from another run.
    """
    path = os.pathsep.join(filter(None, [str(SOURCE), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    _compile()
    with ExitStack() as stack:
        outs, errors = (
            [stack.enter_context(tempfile.TemporaryFile()) for _ in commands] for _ in range(2)
        )
        begin, stolen = time.perf_counter(), _stolen()
        processes = [
            subprocess.Popen(command, stdout=out, stderr=error, env=environment)
            for command, out, error in zip(commands, outs, errors, strict=True)
        ]
        watcher = _Watch([process.pid for process in processes]) if watch else None
        usages = [_wait(process) for process in processes]
        wall = time.perf_counter() - begin
        stolen = (_stolen() - stolen) / (wall * (os.cpu_count() or 1))
        memory = watcher.stop() if watcher else 0
        outputs = []
        for process, out, error in zip(processes, outs, errors, strict=True):
            out.seek(0)
            error.seek(0)
            complaint = error.read().decode(errors="replace")
            # HTCondor's command line prints the traceback of its own crash, and exits with 0.
            if process.returncode or "Traceback" in complaint:
                raise SystemExit(f"{process.args!r} failed:\n{complaint[-3000:]}")
            outputs.append(out.read().decode(errors="replace"))
    cpu = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    unit = 1 if sys.platform == "darwin" else 1024
    memory = memory or unit * sum(u.ru_maxrss for u in usages)
    return Cost(wall, cpu, memory, outputs, stolen)


def _stolen() -> float:
    """Seconds that the processors were not given to this machine since it started; 0 if unknown."""
    with suppress(OSError, IndexError, ValueError), open("/proc/stat") as file:
        return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")
    return 0.0


@cache
def _compile() -> None:
    """Compile Headway's source, as pip does with all that it installs."""
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(SOURCE)], check=True)


def _wait(process: subprocess.Popen[bytes]) -> resource.struct_rusage:
    """What the process used, and all below it that it waited for."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage


class _Watch:
    """The most memory that processes and all below them hold together, looked at now and then."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self._most = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        self._over.set()
        self._thread.join()
        return self._most

    def _look(self) -> None:
        while not self._over.wait(INTERVAL):
            self._most = max(self._most, sum(map(_memory, self._family())))

    def _family(self) -> list[int]:
        found = list(self._pids)
        for pid in found:
            with suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    found += map(int, (task / "children").read_text().split())
        return found


def _memory(pid: int) -> int:
    """Proportional set size: private pages, and a share of those that others hold too."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def machine() -> dict[str, str | int]:
    """What figures depend on beside the programs that were measured."""
    model = platform.processor() or platform.machine()
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "openssl": " ".join(ssl.OPENSSL_VERSION.split()[:2]),
        "python": platform.python_version(),
    }


def file_system(path: Path) -> str:
    """The kind of file system on which a folder lies, as mount names it: "ext4", "tmpfs"."""
    kinds: dict[Path, str] = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        kinds[Path(place.encode().decode("unicode_escape"))] = kind
    whole = path.resolve()
    return next((kinds[place] for place in (whole, *whole.parents) if place in kinds), "unknown")
