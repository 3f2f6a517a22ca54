"""Fixtures: the command line as a process of its own, and runs that never ran."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from tests.loaded import SOURCE as SOURCE
from tests.loaded import Done as Done
from tests.loaded import run_headway, start_headway

from headway.api import Run
from headway.events import EventWriter
from headway.pool.folder import RunFacts, RunFolder, Runs
from headway.spec import build_job, dump_job

from .shell import Shell

SCRIPT = """\
import sys, time
print("out", *sys.argv[1:], flush=True)
print("err", file=sys.stderr, flush=True)
time.sleep(float(sys.argv[1]))
open("result.txt", "w").write("done")
sys.exit(int(sys.argv[2]))
"""
JOB = """\
name = "small"
command = "python3 work.py {seconds} {code}"
files = ["work.py"]
table = "jobs.csv"
grace = "5 s"
[resources]
memory = "50 MB"
disk = "10 MB"
[[outputs]]
path = "result.txt"
"""


def environment(folder: Path) -> dict[str, str]:
    """What the processes under test see: this source tree, no colours, claims of their own."""
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "USER") if key in os.environ}
    return {
        **kept,
        "PYTHONPATH": str(SOURCE),
        "XDG_RUNTIME_DIR": str(folder),
        "HEADWAY_CACHE": "off",
        "TERM": "xterm",
        "LANG": "C.UTF-8",
        "COLUMNS": "120",
    }


def without_progress(stderr: str) -> str:
    """What was said beside `reading the event logs …`, which a busy machine may bring about."""
    return re.sub(r"^[a-z][a-z' ]+ …\n", "", stderr, flags=re.MULTILINE)


@pytest.fixture(autouse=True)
def nothing_goes_on(tmp_path: Path) -> Iterator[None]:
    """End what a test has left running."""
    yield
    for folder in Runs(tmp_path / ".headway"):
        if folder.facts.pool["kind"] == "local" and folder.is_locked("supervisor"):
            Run(folder).remove()


@pytest.fixture
def command() -> Sequence[str]:
    return (sys.executable, "-m", "headway")


@pytest.fixture
def headway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """Call `headway …` in the test's folder; `anew`: in a Python that has loaded nothing yet."""
    monkeypatch.chdir(tmp_path)

    def call(
        *words: str, code: int | None = 0, env: Mapping[str, str] | None = None, anew: bool = False
    ) -> Done:
        run = start_headway if anew else run_headway
        seen = {**environment(tmp_path), **(env or {})}
        done = run(words, cwd=tmp_path, env=seen, errors="surrogateescape")
        if code is not None:
            assert done.returncode == code, done.stdout + done.stderr
        done.stderr = without_progress(done.stderr)
        return done

    return call


@pytest.fixture
def job_toml(tmp_path: Path) -> Callable[..., Path]:
    """Write a job whose commands sleep and exit as told, one (seconds, exit code) a job."""

    def write(*jobs: tuple[float, int], name: str = "small") -> Path:
        (tmp_path / "work.py").write_text(SCRIPT)
        rows = "".join(f"{seconds},{code}\n" for seconds, code in jobs)
        (tmp_path / "jobs.csv").write_text(f"seconds,code\n{rows}")
        path = tmp_path / "job.toml"
        path.write_text(JOB.replace('"small"', f'"{name}"'))
        return path

    return write


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., RunFolder]:
    """A run folder with an event log that a test writes itself."""
    clock = [1000.0]

    def make(
        name: str = "fake",
        *,
        jobs: int = 1,
        cluster: int | None = 1,
        pool: str = "htcondor",
        events: Callable[[EventWriter], None] | None = None,
    ) -> RunFolder:
        raw = {"name": name, "command": "true", "count": jobs, "outputs": [{"path": "model.pt"}]}
        job = build_job(raw, folder=tmp_path)

        def fill(folder: RunFolder, facts: RunFacts) -> None:
            folder.job_file.write_text(dump_job(job))
            folder.jobs.mkdir()

        facts: dict[str, object] = {"kind": pool, "schedd": None, "collector": None, "sites": []}
        runs = Runs(tmp_path / ".headway")
        folder = runs.create(name, pool=facts, base=tmp_path, digest="none", fill=fill)
        clock[0] += 1
        folder.update(cluster=cluster, created=clock[0])
        if events is not None:
            with EventWriter(folder.events) as writer:
                events(writer)
        return folder

    return make


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)
