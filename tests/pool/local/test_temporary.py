"""The command's temporary folder: short wherever the project lies, and nothing of it stays."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from headway.api import Run
from headway.check.bench import Bench
from headway.node import files
from headway.node.files import LONGEST, remove_orphaned_folders, short_folder
from headway.spec import build_job

from .house import SMALL, House, processes, supervisor_of, wait

TRAIN = """\
import os, torch
from torch.utils.data import DataLoader, TensorDataset

torch.multiprocessing.set_sharing_strategy("file_descriptor")
data = TensorDataset(torch.arange(8.0))
seen = [x for (x,) in DataLoader(data, num_workers=2)]
open("sum.txt", "w").write(f"{sum(seen).item():.0f} {os.environ['TMPDIR']}")
"""
LISTEN = """\
from multiprocessing.connection import Listener
with Listener(family="AF_UNIX") as listener:
    open("where.txt", "w").write(listener.address)
"""
JOB = """\
name = "train"
command = "{python} train.py"
files = ["train.py"]
outputs = ["sum.txt"]
time_limit = "60 s"
[resources]
memory = "500 MB"
disk = "10 MB"
"""


@pytest.fixture
def deep(house: House) -> House:
    """A project folder of 58 characters and more below the test's own."""
    house.folder = house.folder / ("a-folder-with-quite-a-long-name" * 2)
    house.folder.mkdir()
    return house


def start_long(deep: House) -> tuple[Run, Path]:
    """A job that goes on, and its temporary folder; those of other processes come and go."""
    told = deep.folder / "told"
    words = f'touch "$TMPDIR/x"; echo "$TMPDIR" > {told}.new; mv {told}.new {told}; sleep 60'
    run = deep.start(f'name = "long"\nshell = true\ncommand = \'{words}\'\ngrace = "1 s"\n{SMALL}')
    wait(told.exists)
    place = Path(told.read_text().strip())
    assert place.parent == Path("/tmp") and place.is_dir()
    return run, place


def test_a_data_loaders_workers_in_a_deep_folder(deep: House) -> None:
    """Their sockets did not fit: stderr said `AF_UNIX path too long`, and the job ran for ever."""
    pytest.importorskip("torch")
    deep.write(TRAIN, "train.py")
    run = deep.run(JOB.format(python=sys.executable))
    total, place = (run.outputs() / "sum.txt").read_text().split()
    assert total == "28" and len(place) <= LONGEST and not os.path.exists(place)


def test_it_is_removed_after_a_kill(deep: House) -> None:
    """Nobody is left to tidy up: the next who comes does."""
    run, place = start_long(deep)
    assert place.stat().st_mode & 0o777 == 0o700
    remove_orphaned_folders()
    assert place.is_dir(), "while its agent lives it is not an orphan"
    for pid in [*filter(None, [supervisor_of(run)]), *processes(f"HEADWAY_SCRATCH={deep.folder}")]:
        with contextlib.suppress(ProcessLookupError):  # it ended with one that was killed before
            os.kill(pid, signal.SIGKILL)
    deep.headway("remove", run.label)
    wait(lambda: not place.exists())


def test_an_evicted_job_leaves_none(deep: House) -> None:
    run, place = start_long(deep)
    deep.headway("remove", run.label)
    wait(lambda: not place.exists())


def test_a_short_one_is_kept(tmp_path: Path) -> None:
    """What lies in the scratch folder counts against the slot's disk, and the pool removes it."""
    with short_folder({"TMPDIR": "/srv", "TMP": "relative"}, pytest.fail) as changes:
        assert changes == {}


def test_where_there_is_no_place_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_ROOTS", ("/nonexistent",))
    told: list[str] = []
    with short_folder({"TMPDIR": "/" + "x" * 100}, told.append) as changes:
        assert changes == {}
    assert "TMPDIR is 101 bytes long" in told[0]


def test_what_is_anothers_or_a_link_is_not_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_ROOTS", (str(tmp_path),))
    prefix = f"hw{os.geteuid()}-"
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    (tmp_path / f"{prefix}link").symlink_to(tmp_path / "precious")
    (tmp_path / f"{prefix}orphan" / "closed").mkdir(parents=True)
    (tmp_path / f"{prefix}orphan" / "closed" / "link").symlink_to(tmp_path / "precious")
    (tmp_path / f"{prefix}orphan" / "closed").chmod(0)
    remove_orphaned_folders()
    assert sorted(os.listdir(tmp_path)) == [f"{prefix}link", "precious"]
    assert (tmp_path / "precious" / "file").exists()


def test_in_a_check(tmp_path: Path) -> None:
    """Its folders lie deeper still: 19 characters were enough."""
    folder = tmp_path / "a-project-of-19-chars"
    folder.mkdir()
    (folder / "listen.py").write_text(LISTEN)
    command = f"{sys.executable} listen.py"
    raw = {"name": "x", "command": command, "files": ["listen.py"], "outputs": ["where.txt"]}
    bench = Bench(build_job(raw, folder=folder), folder, folder, 0, time.monotonic() + 60)
    place = bench.new_place()
    assert bench.start(place).code == 0
    where = (bench.scratch(place) / "headway-out/outputs/where.txt").read_text()
    assert len(where) <= 107 and not os.path.exists(where)
