"""`headway check` on the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parent / "scripts"
SOURCE = Path(__file__).parents[2] / "src"
JOB = """\
name = "toy"
command = "python3 {script}"
files = ["*.py"]
grace = "5 s"
[resources]
memory = "50 MB"
disk = "10 MB"
"""


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headway", "check", *words],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.fixture
def job(tmp_path: Path) -> Path:
    for name in ("toy.py", "not_atomic.py"):
        (tmp_path / name).write_bytes((SCRIPTS / name).read_bytes())
    text = JOB.format(script="not_atomic.py")
    (tmp_path / "job.toml").write_text(text + '[checkpoint]\npaths = ["ckpt"]\n')
    return tmp_path


def test_what_it_says(job: Path) -> None:
    done = call(job, "job.toml")
    assert done.returncode == 1, done.stderr
    assert "at most 30 min" in done.stderr and "an uninterrupted run" in done.stderr
    lines = done.stdout.splitlines()
    assert "broken     a kill while saving leaves a checkpoint to go on from" in lines
    assert "So that a kill while saving leaves a checkpoint to go on from:" in lines
    assert "    os.replace(path + '.tmp', path)" in lines
    assert "not tried  the declared outputs appear, after an interruption too" in lines
    assert lines[-1].startswith("1 broken, 3 not tried; ")
    assert sorted(os.listdir(job)) == [".headway", "job.toml", "not_atomic.py", "toy.py"]


def test_the_time_is_limited(job: Path) -> None:
    (job / "not_atomic.py").write_text("import time; time.sleep(60)")
    begin = time.monotonic()
    done = call(job, "job.toml", "--limit", "1 s", "--json")
    assert time.monotonic() - begin < 30
    found = json.loads(done.stdout)
    assert done.returncode == 0 and done.stderr == ""
    assert {each["verdict"] for each in found["promises"]} == {"not tried"}
    assert found["runs"] == 1 and "time was over" in found["promises"][0]["evidence"][0]


def test_a_slice_and_a_row(job: Path) -> None:
    (job / "not_atomic.py").write_text("import sys; sys.exit(int(sys.argv[1]))")
    call_ = call(job, "job.toml", "--slice", "7", "--row", "1", "--set", "count=2", "--json")
    assert call_.returncode == 1
    first = json.loads(call_.stdout)["promises"][0]
    assert first["name"] == "runs" and "exited with 7" in first["evidence"][0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["job.toml", "--row", "3"], "there are jobs 0 to 0"),
        (["bare.toml"], "has no [checkpoint]"),
        (["job.toml", "--limit", "soon"], "--limit"),
        (["none.toml"], "none.toml"),
    ],
)
def test_what_cannot_be_checked_is_told(job: Path, words: list[str], said: str) -> None:
    (job / "bare.toml").write_text(JOB.format(script="toy.py"))
    done = call(job, *words)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_outlives_it(job: Path) -> None:
    """Killed outright, it leaves no command behind: the agent sees that it is gone."""
    (job / "not_atomic.py").write_text("import time; open('pid', 'w').close(); time.sleep(600)")
    process = subprocess.Popen(
        [sys.executable, "-m", "headway", "check", "job.toml"],
        cwd=job,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE)},
        stderr=subprocess.DEVNULL,
    )
    with process:
        while not list(job.glob(".headway/check-*/**/pid")):
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
    mark = os.fsencode(f"HEADWAY_SCRATCH={job}")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and _alive(mark):
        time.sleep(0.1)
    assert not _alive(mark)


def _alive(mark: bytes) -> list[str]:
    found = []
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and mark in Path(f"/proc/{entry}/environ").read_bytes():
                found.append(entry)
        except OSError:
            continue
    return found
