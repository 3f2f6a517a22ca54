"""How a run begins: its supervisor loads while the job is read, and is never left without one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.lab import Made, Server
from tests.loaded import finished

from headway.errors import HeadwayError
from headway.events import read_log
from headway.pool.local.job import LocalJob
from headway.pool.local.pool import LocalPool
from headway.spec import Retries, build_job, dump_job

from .house import SMALL, House, processes, supervisor_of, wait

SLEEPING = f'name = "sleep"\ncommand = "sleep 30"\ngrace = "2 s"\n{SMALL}'


def supervisors(house: House) -> list[int]:
    return list(processes("headway.pool.local.main", str(house.folder)))


@pytest.mark.parametrize(
    ("module", "spared"),
    [
        ("headway.pool.local.main", ["pydantic", "headway.pool.prepare", "headway.node.transfer"]),
        ("headway.pool.local.pool", ["pydantic", "headway.pool.prepare", "headway.node.transfer"]),
        ("headway.api", ["headway.node.transfer", "headway.holds", "rich"]),
    ],
)
def test_what_would_delay_a_start_is_not_loaded(module: str, spared: list[str]) -> None:
    code = f"import sys; import {module}; print([m for m in {spared} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_the_supervisor_reads_what_the_models_have_written(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("x\n1\n2\n")
    raw = {
        "name": "all", "command": "true {x}", "table": "rows.csv", "grace": "7 s",
        "inputs": ["https://example.org/data"], "container": "docker://python",
        "outputs": ["a", {"path": "b{x}", "to": "there/{x}", "overwrite": True},
                    {"path": "c", "to": "https://example.org/{x}"}],
        "checkpoint": {"paths": ["ckpt"]}, "retries": {"node": 7, "avoid": "1 h"},
        "sites": {"prefer": ["A"], "only": ["A", "B"], "avoid": ["C"]},
        "resources": {"cpus": 3, "memory": "5 GB", "disk": "6 GB",
                      "gpus": {"count": 2, "memory": "7 GB", "capability": 7.5}},
    }  # fmt: skip
    job = build_job(raw, folder=tmp_path)
    read = LocalJob.of(json.loads(dump_job(job)))
    assert (read.size, read.grace, read.container) == (2, 7, "docker://python")
    assert read.has_inputs and read.has_checkpoint
    assert [read.row(1), read.row(0)] == [job.row(1), job.row(0)]
    for own, given in zip(read.outputs, job.outputs, strict=True):
        assert (own.path, own.to, own.overwrite) == (given.path, given.to, given.overwrite)
        assert read.uploads(own) == job.uploads(given)
    assert vars(read.retries) == job.retries.model_dump()
    assert [sorted(each) for each in (read.prefer, read.only, read.avoid)] == [
        *map(list, ("A", "AB", "C"))
    ]
    asked = (read.request.cpus, read.request.memory, read.request.disk, read.request.gpus)
    assert asked == (3, 5 * 10**9, 6 * 10**9, 2)
    assert (read.request.gpu_memory, read.request.gpu_capability) == (7 * 10**9, 7.5)


def test_a_run_of_an_older_headway_goes_on(house: House) -> None:
    run = house.start(SLEEPING)
    house.headway("hold", run.label)
    wait(lambda: not supervisors(house))
    written = json.loads(run.folder.job_file.read_text())
    del written["retries"]["avoid"], written["container"]
    run.folder.job_file.write_text(json.dumps(written))
    read = LocalJob.read(run.folder)
    assert (read.container, read.retries.avoid) == (None, Retries().avoid)
    run.folder.job_file.write_text('{"name": 3}')
    with pytest.raises(HeadwayError, match=r"job\.json"):
        LocalJob.read(type(run.folder)(run.folder.path))


@pytest.mark.parametrize("words", [(), ("--dry-run",), ("--only-missing",)])
def test_a_run_that_does_not_begin_leaves_nothing(house: House, words: tuple[str, ...]) -> None:
    if words == ("--only-missing",):
        house.run(f'name = "true"\ncommand = "true"\n{SMALL}')
    elif words == ("--dry-run",):
        house.write(SLEEPING)
    else:
        house.write("name = 3\n")
    house.headway("run", "job.toml", "--pool", house.pool, *words, code=None if not words else 0)
    assert not supervisors(house)


def test_a_second_command_needs_no_supervisor_of_its_own(house: House) -> None:
    run = house.start(SLEEPING)
    first = supervisor_of(run)
    second = house.popen("run", "job.toml", "--pool", house.pool, "--json")
    assert second.stdout is not None
    assert run.label in second.stdout.readline()
    wait(lambda: supervisors(house) == [first])
    second.send_signal(signal.SIGINT)
    assert finished(second).returncode == 130
    assert supervisor_of(run) == first
    house.headway("remove", run.label)
    wait(lambda: not supervisors(house))


def test_a_command_that_is_killed_at_once_leaves_nothing(house: House) -> None:
    house.write(SLEEPING)
    process = house.popen("run", "job.toml", "--pool", house.pool)
    deadline = time.monotonic() + 60
    while not supervisors(house):
        assert time.monotonic() < deadline
    process.kill()
    wait(lambda: not supervisors(house), 30)
    wait(lambda: not list(processes(f"HEADWAY_SCRATCH={house.folder}")), 30)


@pytest.mark.parametrize("moment", range(8))
def test_ctrl_c_while_a_run_begins(house: House, moment: int) -> None:
    """Before the run is there, or while its first job starts: the command ends after its jobs."""
    house.write(SLEEPING)
    process = house.popen("run", "job.toml", "--pool", house.pool, start_new_session=True)
    wait(lambda: b"run" in Path(f"/proc/{process.pid}/cmdline").read_bytes())
    time.sleep(0.06 * moment)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:  # once in 300 times Python ignores it while it loads a module
        os.killpg(process.pid, signal.SIGINT)
    done = finished(process)
    assert done.returncode  # which one is up to Python while it loads modules
    assert not list(processes(f"HEADWAY_SCRATCH={house.folder}"))
    wait(lambda: not supervisors(house), 30)
    started = [*house.folder.glob(".headway/runs/sleep-1")]
    if started and (started[0] / "events.log").exists():
        assert not read_log(started[0] / "events.log").skipped
        house.headway("remove", "sleep-1")


def test_streams_may_be_closed(house: House) -> None:
    house.write(f'name = "true"\ncommand = "true"\n{SMALL}')
    command = f"exec {sys.executable} -m headway run job.toml --detach --again --pool {house.pool}"
    for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):  # nobody watches: a view needs stdout
        words = ["sh", "-c", f"{command} {closed}"]
        subprocess.run(words, cwd=house.folder, env=house.environment, timeout=120, check=False)
        assert house.settle(house.newest()).succeeded(), closed
    assert len([*house.folder.glob(".headway/runs/*")]) == 4


def test_what_keeps_a_supervisor_from_beginning_is_said(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = house.start(SLEEPING)
    house.headway("hold", run.label)
    wait(lambda: not supervisors(house))
    monkeypatch.setenv("PYTHONPATH", str(house.folder))  # where there is no headway
    monkeypatch.chdir(house.folder)
    (house.folder / "headway").mkdir()
    (house.folder / "headway/__init__.py").write_text("raise ImportError('broken')\n")
    with pytest.raises(HeadwayError, match="did not start"):
        LocalPool.from_facts(run.folder.facts.pool).submit(run.folder)


def test_a_second_run_begins_its_command_soon(house: House) -> None:
    """Within 0.3 s on two quiet cores: some four times what it takes to load pydantic."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    house.environment["HEADWAY_CACHE"] = str(house.folder / "cache")
    model = "from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator"
    ratios, fetched = [], 0
    with Server({"/data.bin": Made(64 << 20, seed=1)}) as server:
        url = server.url("/data.bin")
        house.write(
            f'name = "second"\ncommand = "date +%s.%N"\ninputs = ["{url}"]\n'
            '[resources]\nmemory = "20 MB"\ndisk = "200 MB"\n'
        )
        for _ in range(12):
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", model], check=True, env=house.environment)
            unit, begin = time.perf_counter() - begin, time.time()
            done = finished(house.popen("run", "job.toml", "--pool", house.pool, "--again"))
            assert done.returncode == 0, done.stderr
            began = float((house.newest().folder.attempts(0)[0] / "stdout").read_text())
            if fetched:
                ratios.append((began - begin) / unit)
            fetched = fetched or len(server.ranges)
            if ratios and ratios[-1] < 4.5:
                break
        assert ratios[-1] < 4.5, ratios
        assert len(server.ranges) == fetched, "the input was fetched again"
