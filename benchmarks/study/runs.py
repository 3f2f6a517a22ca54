"""The runs: how the same jobs are asked for, today, two years ago, and with Headway."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from study.data import WEIGHTS, DataSet
from study.federation import ACCESS_POINT, DATA, Federation
from study.federation import WEIGHTS as WEIGHTS_PATH
from study.ground import ERA_2024, ERA_2026, NODE, SWEEP, Era, make_pool
from study.weather import Weather, make_weather
from study.world import World
from tests.lab import Filed, Held
from tests.pool.harness import Pool

from headway.events import EventType, Follower, Jobs, Status, fold, read_log
from headway.node.store.inputs import Wanted
from headway.node.store.sweeper import INPUTS, advertised
from headway.pool.htcondor.submit import HOLDERS_FIRST
from headway.pool.policy import log_lines

LOG = "events.log"
LONGEST = 26  # hours of the study, after which what has not ended is left
CALM = 20.0  # seconds in which held jobs must have stayed held
LONG_ENOUGH = 15.0  # seconds in which a pool that has another slot for a job finds it
# `headway`, which lets jobs wait for a node that holds their input for as long as is said here.
_HEADWAY = """\
import headway.pool.htcondor.submit as submit
from headway.cli import main
submit.HOLDERS_FIRST = {seconds}
raise SystemExit(main())
"""


@dataclass(frozen=True)
class Way:
    """One way to run the jobs."""

    name: str
    words: str
    era: Era
    mode: str = ""  # of the input in job.toml; empty: a submit file
    round: int = 1


def _twice(way: Way) -> tuple[Way, Way]:
    return way, replace(way, name=f"{way.name}-again", round=2)


#: The rounds of each pool: the second finds what the first has left on the nodes.
POOLS = (
    _twice(Way("stock-2024", "HTCondor's defaults of 2024, whole files by plugin", ERA_2024)),
    _twice(Way("stock-2026", "HTCondor 25.14 with PelicanRetryPolicy", ERA_2026)),
    _twice(Way("headway", "job.toml, staged in by the agent", ERA_2024, "file")),
    (Way("headway-stream", 'job.toml with mode = "stream"', ERA_2024, "stream"),),
)
WAYS = tuple(way for rounds in POOLS for way in rounds)


@dataclass(frozen=True)
class Ran:
    """What a run left: its folder with the log and the outputs, and what the servers counted."""

    way: Way
    folder: Path
    log: Path
    made: Mapping[int, Mapping[str, Any]]  # the outputs that are right, by job
    size: int  # bytes of the object
    moved: Mapping[str, int]  # bytes of it that were sent to each slot (SITE/NODE-SLOT)
    holding: int  # nodes that held it when the round began
    met: Mapping[str, int]  # slots that met each kind of bad weather
    wall: float  # seconds


def run(rounds: Sequence[Way], world: World, data: DataSet, to: Path) -> Iterator[Ran]:
    """Run all jobs once a round, on a pool and a federation of their own.

    Each round leaves its log and outputs in `to`/WAY/seed-N/kept.
    """
    objects = {DATA: Filed(data.path), f"{DATA}.headway": Held(data.manifest)}
    first = rounds[0]
    nodes = to / first.name / f"seed-{world.seed}" / "nodes"
    with Federation(world, make_weather(world), objects, Held(WEIGHTS)) as federation:
        pool = make_pool(world, federation, first.era, nodes, clusters=1000 + world.seed)
        with _running(pool):
            for way in rounds:
                kept = to / way.name / f"seed-{world.seed}" / "kept"
                kept.parent.mkdir(parents=True, exist_ok=True)
                weather = make_weather(world, way.round)
                _clear(pool)
                holding = _told(pool, data)
                federation.begin_round(weather)
                begin = time.monotonic()
                log = _submit(way, world, federation, data, pool)
                with _evicting(weather, federation, pool):
                    _wait(log, world, federation)
                wall = time.monotonic() - begin
                shutil.copytree(log.parent, kept)
                moved, met = federation.moved(), federation.met()
                made = _verified(kept, way, data.model)
                yield Ran(way, kept, kept / LOG, made, data.size, moved, holding, met, wall)


def _clear(pool: Pool) -> None:
    """Remove what has not ended, and wait until every slot is free."""
    pool.run_as_user(["condor_rm", "-all"])
    busy = ["condor_status", "-constraint", 'State =!= "Unclaimed"', "-af", "Name"]
    pool.wait_for(lambda: not pool.run_as_user(busy).stdout, 120, "that all slots are free")


def _told(pool: Pool, data: DataSet) -> int:
    """How many nodes hold the data set, once all of them have told the pool."""
    name = Wanted((), pin=data.pin).name
    stores = pool.home.glob(f"sites/*/headway-store/u*/inputs/{name}")
    holding = {path.relative_to(pool.home / "sites").parts[0] for path in stores}

    def told() -> bool:
        done = pool.run_as_user(["condor_status", "-af", "Name", INPUTS])
        telling = {
            words[0].partition("@glidein_")[2].partition("@")[0]
            for words in map(str.split, done.stdout.splitlines())
            if words and advertised(name) in "".join(words[1:])
        }
        return telling == holding

    pool.wait_for(told, 3 * SWEEP, "that nodes tell what they hold")
    return len(holding)


@contextmanager
def _running(pool: Pool) -> Iterator[None]:
    pool.start()
    try:
        yield
    finally:
        pool.stop()


def _submit(way: Way, world: World, federation: Federation, data: DataSet, pool: Pool) -> Path:
    """Ask for the jobs; where their event log is."""
    folder = pool.user_dir()
    shutil.copy(NODE / "train.py", folder)
    weights = federation.web.url(WEIGHTS_PATH)
    env = {"OSDF_DIRECTOR_URL": federation.director.url(f"/{ACCESS_POINT}/0")}
    if way.mode:
        (folder / "job.toml").write_text(job_toml(way.mode, world, data, weights))
        # HTCondor counts whole seconds
        code = _HEADWAY.format(seconds=max(1, round(world.scale.seconds(HOLDERS_FIRST))))
        command = ["python", "-c", code, "run", "job.toml", "--pool", "htcondor", "--detach"]
    else:
        shutil.copy(NODE / "wrapper.sh", folder)
        (folder / "wrapper.sh").chmod(0o755)
        (folder / "job.sub").write_text(submit_file(world, data, weights))
        command = ["condor_submit", "job.sub"]
    pool.give(folder)
    done = pool.run_as_user(command, cwd=folder, env=env)
    if done.returncode:
        raise RuntimeError(f"{way.name}: {done.stdout}{done.stderr}")
    return next(folder.glob(".headway/runs/*")) / LOG if way.mode else folder / LOG


def submit_file(world: World, data: DataSet, weights: str) -> str:
    """As the study's: whole file by osdf://, the script's own wrapper, nothing else."""
    lines = {
        "universe": "vanilla",
        "executable": "wrapper.sh",
        "arguments": f"model_$(Cluster)_$(Process).json {weights}",
        "transfer_input_files": f"train.py, osdf://{DATA}",
        "should_transfer_files": "YES",
        "when_to_transfer_output": "ON_EXIT",
        "request_cpus": "1",
        "request_memory": "64 MB",
        "request_disk": f"{3 * data.size // 1024} KB",
        "error": "$(Process).err",
        "log": LOG,
        **log_lines(),
    }
    text = "".join(f"{key} = {value}\n" for key, value in lines.items())
    return f"{text}queue {world.jobs}\n"


def job_toml(mode: str, world: World, data: DataSet, weights: str) -> str:
    """The same job as Headway takes it: what the script fetched by itself is an input."""
    stream = " --stream" if mode == "stream" else ""
    return f"""name = "study"
command = "python3 train.py data.tar model.json --weights weights.pt{stream}"
files = ["train.py"]
count = {world.jobs}
outputs = [{{ path = "model.json", min_size = "64 B" }}]
grace = "{world.patience(60):.0f} s"

[[inputs]]
url = "osdf://{DATA}"
path = "data.tar"
size = {data.size}
manifest = "{data.pin}"
mode = "{mode}"
patience = "{world.patience(180):.0f} s"

[[inputs]]
url = "{weights}"
path = "weights.pt"
size = {len(WEIGHTS)}

[checkpoint]
paths = ["ckpt"]
interval = "{world.scale.hour * world.longest / 4:.0f} s"

[retries]
backoff = "{max(1.0, world.scale.seconds(60)):.0f} s"
avoid = "{max(LONG_ENOUGH, world.scale.seconds(1800)):.0f} s"

[resources]
memory = "64 MB"
disk = "{3 * data.size} B"
"""


@contextmanager
def _evicting(weather: Weather, federation: Federation, pool: Pool) -> Iterator[None]:
    """Throws jobs out of slots when the weather says so."""
    over = threading.Event()

    def look() -> None:
        for eviction in sorted(weather.evictions, key=lambda each: each.at):
            while federation.clock.now() < eviction.at:
                if over.wait(0.2):
                    return
            site, _, place = eviction.slot.partition("/")
            node, _, slot = place.partition("-")
            where = f'regexp("^{slot}@glidein_{site}-{node}@", RemoteHost)'
            how = [] if eviction.warned else ["-fast"]
            pool.run_as_user(["condor_vacate_job", *how, "-constraint", where])

    thread = threading.Thread(target=look, name="evictions")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _wait(log: Path, world: World, federation: Federation) -> None:
    """Until every job has ended, or is held and stays so; the clock starts with the first slot."""
    jobs, follower = Jobs(), Follower(log)
    calm = min(CALM, 1.5 * world.scale.hour)
    deadline = time.monotonic() + LONGEST * world.scale.hour
    changed = time.monotonic()
    while time.monotonic() < deadline:
        for event in follower.poll():
            jobs.update(event)
            changed = time.monotonic()
            if event.number in (EventType.FILE_TRANSFER, EventType.EXECUTE):
                federation.clock.start()
        states = [state.status for state in jobs.cluster().values()]
        if len(states) == world.jobs:
            held = states.count(Status.HELD)
            under_way = [s for s in states if s not in (Status.COMPLETED, Status.REMOVED)]
            if not under_way:
                return
            if held == len(under_way) and time.monotonic() - changed > calm:
                return
        time.sleep(0.5 if federation.clock.now() else 0.05)


def _verified(folder: Path, way: Way, model: str) -> dict[int, dict[str, Any]]:
    """The outputs that are right, by job, each beside the log under one name in all runs.

    One that is there and wrong is put aside, so that for `headway report --output` it is missing.
    """
    ours = folder.glob("jobs/*/outputs/model.json") if way.mode else folder.glob("model_*.json")
    (cluster,) = {state.cluster for state in fold(read_log(folder / LOG).events).values()}
    found = {}
    for path in list(ours):
        job = int(path.parts[-3] if way.mode else path.stem.rpartition("_")[2])
        made = json.loads(path.read_text())
        right = made["model"] == model
        path.rename(folder / f"{'model' if right else 'wrong'}_{cluster}_{job}.json")
        if right:
            found[job] = made
    return found
