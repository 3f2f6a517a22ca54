"""The study's first two methods: HTCondor's own transfer, and https from the origin.

The third, OSDF, is what all runs of the study do.
"""

from __future__ import annotations

import re
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from study.data import WEIGHTS, DataSet
from study.federation import DATA, Federation
from study.ground import ERA_2024, NODE, make_pool
from study.overhead import Overhead, measure
from study.weather import Weather
from study.world import World
from tests.lab import Filed, Held
from tests.pool.harness import Pool

from headway.events import Outcome, fold, read_log
from headway.pool.policy import log_lines

FULL_SIZE = 158_783 << 20  # as the study's hold says: TransferInputSizeMB (158783)
CUTS = 2  # after which a transfer that begins from nothing each time has shown what it does


@dataclass(frozen=True)
class Methods:
    """What became of each method, in the words of who refused it."""

    native_stock: str  # the hold
    native_headway: str  # what preflight says
    https_cuts: int  # of a job whose input comes from the origin through HTCondor's own plugin
    https_stock_arrived: bool
    https_headway_seconds: float  # of the agent's transfer, of the same object from the same place
    https_headway_succeeded: bool
    overhead: Overhead

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def try_methods(world: World, data: DataSet, folder: Path) -> Methods:
    """Try both on a pool of their own, and what empty jobs cost there."""
    objects = {DATA: Filed(data.path), f"{DATA}.headway": Held(data.manifest)}
    calm = Weather((), ())
    folder.mkdir(parents=True)
    with Federation(world, calm, objects, Held(WEIGHTS)) as federation:
        pool = make_pool(world, federation, ERA_2024, folder / "nodes")
        pool.start()
        try:
            held = _native(pool)
            refused = _refused(pool)
            overhead = measure(pool)
            url = federation.origin.url(DATA)
            cuts, arrived = _https(pool, url, data, world)
            seconds, succeeded = _https_headway(pool, url, data, world)
        finally:
            pool.stop()
    return Methods(held, refused, cuts, arrived, seconds, succeeded, overhead)


def _native(pool: Pool) -> str:
    folder = _with_big_file(pool)
    _condor_submit(pool, folder, {"transfer_input_files": "ILSVRC2012_img_train.tar"})
    text = pool.wait_for(lambda: _log_with(folder, "012"), 60, "the hold of a native transfer")
    pool.run_as_user(["condor_rm", "-all"])
    found = re.search(r"TransferInputSizeMB.*", text)
    return found[0] if found else text


def _refused(pool: Pool) -> str:
    folder = _with_big_file(pool)
    (folder / "job.toml").write_text(
        'name = "native"\ncommand = "python3 train.py ILSVRC2012_img_train.tar model.json"\n'
        'files = ["train.py", "ILSVRC2012_img_train.tar"]\noutputs = ["model.json"]\n'
        '[resources]\ndisk = "400 GB"\n'
    )
    pool.give(folder)
    done = pool.headway(["run", "job.toml", "--pool", "htcondor", "--no-color"], cwd=folder)
    if done.returncode == 0:
        raise RuntimeError("preflight let 158 GB of files pass")
    return (done.stdout + done.stderr).strip()


def _https(pool: Pool, url: str, data: DataSet, world: World) -> tuple[int, bool]:
    """How often HTCondor's own plugin is cut, and whether the object ever arrives."""
    folder = pool.user_dir()
    wanted = {"transfer_input_files": url, "request_disk": f"{3 * data.size // 1024} KB"}
    _condor_submit(pool, folder, wanted)
    deadline = time.monotonic() + (CUTS + 3) * world.scale.hour
    while time.monotonic() < deadline:
        text = _log_with(folder, "001", "012")
        cuts = (folder / "events.log").read_text().count("transfer stalled")
        if text or cuts >= CUTS:
            break
        time.sleep(0.5)
    pool.run_as_user(["condor_rm", "-all"])
    return cuts, bool(_log_with(folder, "001"))


def _https_headway(pool: Pool, url: str, data: DataSet, world: World) -> tuple[float, bool]:
    folder = pool.user_dir()
    (folder / "job.toml").write_text(
        'name = "origin"\ncommand = "test -s data.tar"\n'
        f'[[inputs]]\nurl = "{url}"\npath = "data.tar"\nmanifest = "{data.pin}"\n'
        f'[resources]\nmemory = "64 MB"\ndisk = "{3 * data.size} B"\n'
    )
    pool.give(folder)
    done = pool.headway(
        ["run", "job.toml", "--pool", "htcondor"], cwd=folder, timeout=8 * world.scale.hour + 60
    )
    log = next(folder.glob(".headway/runs/*/events.log"))
    (state,) = fold(read_log(log).events).values()
    lines = re.findall(r"state=arrived.*\bseconds=([0-9.]+)", log.read_text())
    arrived = done.returncode == 0 and state.outcome is Outcome.SUCCESS
    return float(lines[0]) if lines else 0.0, arrived


def _with_big_file(pool: Pool) -> Path:
    folder = pool.user_dir()
    shutil.copy(NODE / "train.py", folder)
    with (folder / "ILSVRC2012_img_train.tar").open("wb") as file:
        file.truncate(FULL_SIZE)  # a hole: no disk is used
    pool.give(folder)
    return folder


def _condor_submit(pool: Pool, folder: Path, wanted: dict[str, str]) -> None:
    lines = {
        "executable": "/bin/true",
        "transfer_executable": "False",
        "should_transfer_files": "YES",
        "request_memory": "64 MB",
        "log": "events.log",
        **log_lines(),
        **wanted,
    }
    text = "".join(f"{key} = {value}\n" for key, value in lines.items())
    (folder / "job.sub").write_text(f"{text}queue\n")
    pool.give(folder)
    done = pool.run_as_user(["condor_submit", "job.sub"], cwd=folder)
    if done.returncode:
        raise RuntimeError(done.stderr)


def _log_with(folder: Path, *events: str) -> str:
    log = folder / "events.log"
    text = log.read_text() if log.exists() else ""
    return text if any(f"\n{number} (" in text for number in events) else ""
