"""A folder with jobs in it, the command line as processes, and a look at what they leave behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.loaded import SOURCE as SOURCE
from tests.loaded import Done, run_headway

from headway.api import Run
from headway.events import JobState, read_log
from headway.pool import Runs
from headway.pool.local.main import LOG

SMALL = '[resources]\nmemory = "20 MB"\ndisk = "10 MB"\n'


class House:
    """What a test does as a user would."""

    def __init__(self, folder: Path, pool: str = "local:cpus=2") -> None:
        self.folder = folder
        self.pool = pool
        self.environment = {
            **{key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ},
            "PYTHONPATH": str(SOURCE),
            "XDG_RUNTIME_DIR": str(folder),
            "HEADWAY_CACHE": "off",
            "LANG": "C.UTF-8",
        }
        self._started: list[subprocess.Popen[str]] = []

    def write(self, text: str, name: str = "job.toml", *, mode: int = 0o644) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)
        return path

    def popen(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "headway", *words],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        self._started.append(process)
        return process

    def close(self) -> None:
        """Kill everything that was started here, whatever has become of the test."""
        own = self.environment["XDG_RUNTIME_DIR"]  # tests may have changed the folder
        marks = [("headway", own), (f"HEADWAY_SCRATCH={own}",)]
        for pid in [pid for mark in marks for pid in processes(*mark)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._started:
            with process:
                process.kill()

    def headway(self, *words: str, code: int | None = 0) -> Done:
        """One command to its end; never a traceback."""
        done = run_headway(words, cwd=self.folder, env=self.environment)
        assert "Traceback" not in done.stderr, done.stderr
        assert "this is a bug" not in done.stderr, done.stderr
        if code is not None:
            said = f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
            assert done.returncode == code, said
        return done

    def run(self, job: str, *words: str, code: int | None = 0) -> Run:
        """Run a job.toml to its end."""
        self.write(job)
        self.headway("run", "job.toml", "--pool", self.pool, *words, code=code)
        return self.newest()

    def start(self, job: str, *words: str) -> Run:
        """Submit a job.toml and come back."""
        return self.run(job, "--detach", *words)

    def newest(self) -> Run:
        return Run(Runs(self.folder / ".headway").find())

    def wait(self, run: Run, until: Callable[[JobState], object], job: int = 0) -> JobState:
        def there() -> bool:
            state = run.jobs.get(job)
            return state is not None and bool(until(state))

        wait(there)
        return run.jobs[job]

    def settle(self, run: Run) -> Run:
        assert run.wait(120), run.folder.events.read_text()[-3000:]
        return run


def wait(condition: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def processes(*marks: str) -> Iterator[int]:
    """The processes whose command line or environment holds all of these."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                text = Path(f"/proc/{name}/cmdline").read_bytes()
                text += b"\0" + Path(f"/proc/{name}/environ").read_bytes()
            except OSError:
                continue
            if all(mark.encode() in text for mark in marks):
                yield int(name)


def supervisor_of(run: Run) -> int | None:
    """The process that runs the jobs of this run, if there is one."""
    log = str(run.folder.path / LOG)
    for process in processes("headway.pool.local.main"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{process}/fd/1") == log:
                return process
    return None


def judge(path: Path) -> int:
    """Have HTCondor's own reader read a log; returns how many events it found."""
    import htcondor2

    with htcondor2.JobEventLog(str(path)) as log:
        return len(list(log.events(stop_after=0)))


def check_log(run: Run) -> None:
    """HTCondor's reader and ours find the same number of events, and nothing is skipped."""
    log = read_log(run.folder.events)
    assert not log.skipped
    assert judge(run.folder.events) == len(log.events)
