"""The two places where the same job must do the same: the local pool and a real HTCondor pool."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tests.loaded import ENOUGH, Done, run_headway

from headway.api import Run
from headway.events import JobState
from headway.pool import Runs

from .harness import Pool

T = TypeVar("T")


class Place:
    """A folder of the user's and the command line in it; subclasses say who and where."""

    pool: str
    bad_site: str
    begins_there = (
        ""  # a line of job.toml: jobs begin at the bad site, whoever else is in its slots
    )
    folder: Path
    image: Path  # a container's
    env: Mapping[str, str] = {}  # of the shell, beside the usual

    def popen(self, *args: str, **options: Any) -> subprocess.Popen[str]:
        raise NotImplementedError

    def wait_for_what_it_takes_along(self) -> None:
        """After a command was killed: nothing of it goes on but jobs in a queue."""

    def give(self) -> None:
        """Hand over what the test has written to the user."""

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            if text.startswith("#!"):
                path.chmod(0o755)
        self.give()

    def headway(self, *args: str, timeout: float = 120, code: int | None = 0) -> Done:
        """Run a headway command to its end, and insist on its exit code."""
        process = self.popen(*args, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            raise AssertionError(
                f"headway {args} did not end\n{out}\n{err}\n{self.story()}"
            ) from None
        if code is not None and process.returncode != code:
            raise AssertionError(
                f"headway {args}: exit {process.returncode}\n{out}\n{err}\n{self.story()}"
            )
        return subprocess.CompletedProcess(args, process.returncode, out, err)

    def run(self, job: str, *args: str, code: int | None = 0, timeout: float = 120) -> Run:
        """Run a job.toml to its end."""
        self.write({"job.toml": job})
        self.headway("run", "job.toml", "--pool", self.pool, *args, code=code, timeout=timeout)
        return self.newest()

    def start(self, job: str, *args: str) -> Run:
        """Submit a job.toml and come back."""
        return self.run(job, "--detach", *args)

    def newest(self) -> Run:
        return Run(Runs(self.folder / ".headway").find())

    def wait(
        self, run: Run, until: Callable[[JobState], T], timeout: float = 180, job: int = 0
    ) -> T:
        """Wait until the job's state, by its event log, is as wanted."""
        deadline = time.monotonic() + timeout
        while True:
            state = run.jobs.get(job)
            value = until(state) if state is not None else None
            if value:
                return value
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {timeout:g} s: {state}\n{self.story()}")
            time.sleep(0.05)

    def settle(self, run: Run, timeout: float = 180) -> Run:
        if not run.wait(timeout):
            raise AssertionError(f"{run.label} did not settle\n{self.story()}")
        return run

    def story(self) -> str:
        """What happened, for the message of a failed test."""
        try:
            run = self.newest()
        except Exception as error:
            return f"(no run: {error})"
        errors = "\n".join(
            f"{path.relative_to(run.folder.path)}:\n{path.read_text(errors='replace')}"
            for path in sorted(run.folder.path.glob("jobs/*/*.err"))[:4]
        )
        log = run.folder.events
        return f"{errors}\n{log.read_text(errors='replace')[-6000:] if log.exists() else 'no log'}"


class LocalPlace(Place):
    pool = "local:site=GOOD,cpus=2,memory=4GB,disk=4GB,simulate-gpus=2;site=BAD,cpus=2,memory=4GB"
    bad_site = "BAD"

    def __init__(self, folder: Path, path: str = "") -> None:
        self.folder = folder
        self.path = path

    def popen(self, *args: str, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "headway", *args],
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
            **options,
        )

    def headway(self, *args: str, timeout: float = 120, code: int | None = 0) -> Done:
        """The same from a process that has loaded Headway already."""
        done = run_headway(args, cwd=self.folder, env=self._environment(), timeout=timeout)
        if code is not None and done.returncode != code:
            said = f"{done.stdout}\n{done.stderr}\n{self.story()}"
            raise AssertionError(f"headway {args}: exit {done.returncode}\n{said}")
        return done

    def wait_for_what_it_takes_along(self) -> None:
        """Its pool, which notices a moment later; who asks again now would be answered by it."""
        folder, deadline = self.newest().folder, time.monotonic() + ENOUGH
        while folder.is_locked("supervisor"):
            assert time.monotonic() < deadline, self.story()
            time.sleep(0.02)

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join(part for part in (self.path, os.environ["PATH"]) if part)
        return {**os.environ, "PATH": path, **self.env}


class CondorPlace(Place):
    pool = "htcondor"
    bad_site = "PDX-Coeus-CE1"
    begins_there = (
        f"requirements = 'NumJobStarts > 0 || TARGET.GLIDEIN_ResourceName =?= \"{bad_site}\"'\n"
    )

    def __init__(self, condor: Pool) -> None:
        self.condor = condor
        self.folder = condor.user_dir()
        self.image = condor.image

    def give(self) -> None:
        self.condor.give(self.folder)

    def popen(self, *args: str, **options: Any) -> subprocess.Popen[str]:
        return self.condor.popen_as_user(
            ["python", "-m", "headway", *args], cwd=self.folder, env=self.env, **options
        )


def apptainer_folder(condor: Pool) -> str:
    """Where the pool's own apptainer lies, for machines that have no other."""
    found = shutil.which("apptainer", path=condor.env["PATH"])
    return str(Path(found).parent) if found else ""


def record(run: Run, job: int = 0) -> dict[str, Any]:
    """The newest attempt record that came home."""
    found: dict[str, Any] = json.loads((run.folder.attempts(job)[-1] / "record.json").read_text())
    return found
