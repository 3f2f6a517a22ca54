"""The follower: reads what a start writes while it runs, and who runs in it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path

from headway.check.start import Start
from headway.pool.local.strays import marked

TRACE = ".headway-trace"
_SHELLS = ("sh", "bash", "dash", "ksh", "zsh", "busybox")
_TAIL = 2000  # characters of stderr that are kept


class Follower:
    """Reads what a start writes: its trace, its record, its streams, from where they were."""

    def __init__(self, scratch: Path) -> None:
        self._trace = scratch / TRACE
        self._attempts = scratch / "headway-out" / "attempts"
        self._at = self._trace.stat().st_size if self._trace.exists() else 0
        self._streams = {path: path.stat().st_size for path in self._attempts.glob("*/std*")}
        self._records = self._marks()
        self._lines = self._printed = 0
        self._stdout: tuple[Path, int] | None = None
        self._read = self._at
        self._running = False
        self.begin = time.time()

    def _marks(self) -> dict[Path, tuple[int, int]]:
        found = {}
        for path in self._attempts.glob("*/record.json"):
            with contextlib.suppress(OSError):
                status = path.stat()
                found[path] = (status.st_ino, status.st_mtime_ns)
        return found

    def running(self) -> bool:
        """Whether the agent has started the command: it writes its record just before."""
        if not self._running and self._marks() != self._records:
            self._running, self.begin = True, time.time()
        return self._running

    def rows(self) -> int:
        """The rows of the trace so far."""
        with contextlib.suppress(OSError), self._trace.open("rb") as file:
            file.seek(self._read)
            data = file.read()
            self._read += len(data)
            self._lines += data.count(b'"step"')
        return self._lines

    def printed(self) -> int:
        """The lines of stdout so far."""
        with contextlib.suppress(OSError):
            if self._stdout is None and self._running:
                newest = max(self._attempts.glob("*/stdout"), key=os.path.getmtime, default=None)
                if newest is not None:
                    self._stdout = (newest, self._streams.get(newest, 0))
            if self._stdout is not None:
                path, place = self._stdout
                with path.open("rb") as file:
                    file.seek(place)
                    data = file.read()
                self._stdout = (path, place + len(data))
                self._printed += data.count(b"\n")
        return self._printed

    def finish(self, made: Start) -> None:
        with contextlib.suppress(OSError):
            data = self._trace.read_bytes()[self._at :]
            made.trace = data.decode("utf-8", "replace").splitlines()
        for name in ("stdout", "stderr"):
            text = ""
            for path in sorted(self._attempts.glob(f"*/{name}")):
                data = path.read_bytes()[self._streams.get(path, 0) :]
                text += data.decode("utf-8", "replace")
            if name == "stdout":
                made.lines = text.splitlines()
            else:
                made.stderr = text[-_TAIL:]
        newest = max(self._marks().items(), key=lambda each: each[1][1], default=None)
        if newest is None or (newest[0] in self._records and not self._running):
            return
        with contextlib.suppress(OSError, ValueError):
            record = json.loads(newest[0].read_bytes())
            made.reason = str(record.get("reason") or "")
            command = record.get("command") or {}
            if made.code is not None:
                made.status, made.signal = command.get("status"), command.get("signal")
                made.seconds = float(command.get("seconds") or 0.0)


def programs(scratch: Path, agent: int) -> list[str]:
    """The command lines of what runs in a scratch folder, the agent left out."""
    found = []
    for pid in sorted(marked(scratch)):
        with contextlib.suppress(OSError):
            line = _arguments(pid).replace(b"\0", b" ").decode("utf-8", "replace").strip()
            if pid != agent and line:
                found.append(line[:200])
    return found


def listeners(scratch: Path, agent: int) -> set[int]:
    """The programs of an attempt that have a handler for SIGTERM.

    Shells do not count, which have one for the sake of what they start, nor does what the agent has
    forked and is not yet a program of its own.
    """
    found = set()
    own = _arguments(agent)
    for pid in marked(scratch):
        with contextlib.suppress(OSError, ValueError):
            text = Path(f"/proc/{pid}/status").read_text()
            told = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
            caught = int(told.get("SigCgt", "0"), 16) >> (signal.SIGTERM - 1) & 1
            if caught and told.get("Name", "").strip() not in _SHELLS and _arguments(pid) != own:
                found.add(pid)
    return found


def _arguments(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
