"""What a project folder and other users of the machine cannot do to a run, and cannot see of it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.loaded import finished

from .house import SMALL, House

# Modules of the standard library that headway, its supervisor and its agent import.
SHADOWING = ("selectors", "argparse", "json", "tempfile", "uuid", "signal", "sqlite3", "headway")
PWNED = "import os\nopen({mark!r}, 'a').write(__name__ + chr(10))\nraise SystemExit('pwned')\n"
JOB = f'name = "safe"\ncommand = "sh -c \'echo fine > out.txt\'"\noutputs = ["out.txt"]\n{SMALL}'


@pytest.fixture
def shadowed(house: House) -> House:
    """A project whose modules have names of the standard library, each of which would do harm."""
    for name in SHADOWING:
        house.write(PWNED.format(mark=str(house.folder / "pwned")), f"{name}.py")
    return house


def test_nothing_is_imported_from_the_current_folder(shadowed: House) -> None:
    """A selectors.py stopped `headway run`; in a folder that others can write it was their code."""
    shadowed.environment.pop("PYTHONPATH")
    shadowed.write(JOB)
    headway = shutil.which("headway", path=os.path.dirname(sys.executable))
    if headway is None:
        pytest.skip("headway is not installed")
    done = subprocess.run(
        [headway, "run", "job.toml", "--pool", "local:cpus=1"],
        cwd=shadowed.folder,
        env=shadowed.environment,
        capture_output=True,
        text=True,
    )
    assert not (shadowed.folder / "pwned").exists(), (shadowed.folder / "pwned").read_text()
    assert done.returncode == 0, done.stdout + done.stderr
    assert (shadowed.newest().outputs() / "out.txt").read_text() == "fine\n"


def test_nor_from_the_jobs_own(house: House) -> None:
    """The agent starts in the folder where the job's files are, and a stream's fetcher too."""
    names = ", ".join(f'"{name}.py"' for name in SHADOWING)
    for name in SHADOWING:
        house.write(PWNED.format(mark=str(house.folder / "pwned")), f"{name}.py")
    house.environment["PYTHONPATH"] += f":{house.folder / 'empty'}"
    data = house.write("x" * 1000, "data/data.bin")
    stream = f'[[inputs]]\nurl = "{data.as_uri()}"\npath = "data.bin"\nmode = "stream"\n'
    code = "import sys; sys.path.pop(0); sys.exit(__import__('headway.cli').cli.main())"
    house.write(JOB.replace("outputs", f"files = [{names}]\noutputs", 1) + stream)
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "job.toml", "--pool", "local:cpus=1"],
        cwd=house.folder,
        env=house.environment,
        capture_output=True,
        text=True,
    )
    assert not (house.folder / "pwned").exists(), (house.folder / "pwned").read_text()
    assert done.returncode == 0, done.stdout + done.stderr


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_what_others_can_see_of_a_running_job(house: House) -> None:
    """Its scratch folder, the chirp cookie and what may hold secrets are the user's alone."""
    house.write("key", "secret.txt", mode=0o600)
    job = 'name = "long"\ncommand = "sleep 60"\nfiles = ["secret.txt"]\ngrace = "1 s"\n'
    run = house.start(f'{job}{SMALL}[environment]\nKEY = "very secret"\n')
    house.wait(run, lambda state: state.phase == "run")
    folder = run.folder.path
    (scratch,) = (folder / "scratch").iterdir()
    assert mode(scratch) == 0o700
    assert mode(scratch / ".chirp.config") == 0o600
    house.headway("remove", run.label)
    for name in ("job.json", "plan.json", "payload.tar"):
        assert mode(folder / name) == 0o600, name
    closed = {scratch, folder / "scratch"}
    for path in folder.rglob("*"):
        seen = path.is_file() and mode(path) & 0o077 and not closed & set(path.parents)
        if seen and "very secret" in path.read_text(errors="replace"):
            raise AssertionError(f"{path} shows the environment")


def test_others_can_write_nothing_of_a_run_whatever_the_umask(house: House) -> None:
    """What a group shares by its umask is the results, never what Headway goes by."""
    save = "mkdir -p ckpt; echo 1 > ckpt/a; exit 85"
    job = f'name = "open"\ncommand = "sh -c \'{save}\'"\n'
    house.write(f'{job}{SMALL}[checkpoint]\npaths = ["ckpt"]\n')
    held = house.popen("run", "job.toml", "--pool", "local:cpus=1", "--detach", umask=0)
    assert finished(held).returncode == 0
    folder = house.newest().folder
    deadline = time.monotonic() + 120
    while not (folder.path / "spool").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    asked = house.popen("remove", folder.label, umask=0)
    assert finished(asked).returncode == 0
    while not (folder.jobs / "0" / "attempts").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    names = {"jobs", "jobs/0", "jobs/0/attempts", "control", "supervisor.log", "events.log"}
    seen = {path.relative_to(folder.path).as_posix(): mode(path) for path in every(folder.path)}
    assert names <= set(seen), seen
    assert [f"{name} {bits:o}" for name, bits in seen.items() if bits & 0o022] == []


def every(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if not path.is_symlink()]
