"""This machine as a place to run jobs: what it has, and what the running jobs have claimed."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from headway.errors import PoolError, RunError
from headway.node.files import lock
from headway.node.host import usable_processors
from headway.pool.folder import failing
from headway.spec import parse_size


@dataclass(frozen=True)
class Gpu:
    """One GPU, real or simulated."""

    id: str
    memory: int = 40 * 2**30
    capability: float = 8.0
    simulated: bool = False


@dataclass(frozen=True)
class Site:
    """A named share of this machine, or all of it."""

    name: str
    cpus: int
    memory: int
    disk: int
    gpus: tuple[Gpu, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    whole_machine: bool = False  # then other runs on this machine are counted too

    @property
    def shared(self) -> bool:
        """Whether other runs must know what is claimed from it."""
        return self.whole_machine or any(not gpu.simulated for gpu in self.gpus)

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Site:
        """A site as run.json keeps it."""
        return cls(**{**facts, "gpus": tuple(Gpu(**gpu) for gpu in facts["gpus"])})


@dataclass(frozen=True)
class ResourceRequest:
    """What one job asks for."""

    cpus: int
    memory: int
    disk: int
    gpus: int = 0
    gpu_memory: int = 0
    gpu_capability: float = 0.0
    time_limit: int = 0  # seconds, if it was changed after the submit; 0: the plan's

    @classmethod
    def of(cls, wanted: Mapping[str, Any]) -> ResourceRequest:
        """The request that `resources` of a resolved job describes."""
        gpus = wanted["gpus"]
        asked = (gpus["count"], gpus["memory"] or 0, gpus["capability"] or 0.0) if gpus else ()
        return cls(wanted["cpus"], wanted["memory"], wanted["disk"], *asked)

    def words(self) -> str:
        """The request in words."""
        memory, disk = (-(-size // 2**20) for size in (self.memory, self.disk))
        gpus = f", {self.gpus} GPUs" if self.gpus else ""
        return f"{self.cpus} cpus, {memory} MiB memory, {disk} MiB disk{gpus}"


@dataclass(frozen=True)
class Claim:
    """What one running attempt has taken from a site."""

    site: str
    cpus: int
    memory: int
    disk: int
    gpus: tuple[str, ...] = ()


def take(site: Site, request: ResourceRequest, taken: Iterable[Claim]) -> Claim | None:
    """The claim of a request on a site where others have `taken` theirs; None: it does not fit."""
    claims = list(taken)
    for key in ("cpus", "memory", "disk"):
        if sum(getattr(c, key) for c in (*claims, request)) > getattr(site, key):
            return None
    busy = {gpu for claim in claims for gpu in claim.gpus}
    free = [
        gpu.id
        for gpu in site.gpus
        if gpu.id not in busy
        and gpu.memory >= request.gpu_memory
        and gpu.capability >= request.gpu_capability
    ]
    if len(free) < request.gpus:
        return None
    gpus = tuple(free[: request.gpus])
    return Claim(site.name, request.cpus, request.memory, request.disk, gpus)


def sites_of(pool: Mapping[str, Any], label: str = "") -> tuple[Site, ...]:
    """The sites that run.json keeps of a local pool; raises RunError if it is damaged."""
    try:
        return tuple(Site.from_facts(site) for site in pool["sites"])
    except (KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"run.json{' of ' if label else ''}{label} does not say where the jobs run: {error!r}",
            remedy="the run folder is damaged: start a new run",
        ) from error


def this_machine(folder: Path) -> Site:
    """All of this machine; `folder` is on the disk where the scratch folders will be."""
    return Site(
        platform.node() or "localhost",
        cpus=usable_processors(),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        disk=shutil.disk_usage(folder).free,
        gpus=tuple(_real_gpus()),
        whole_machine=True,
    )


def parse_sites(text: str, folder: Path) -> tuple[Site, ...]:
    """The shares of this machine that a text such as `cpus=4,gpus=2;site=B,cpus=1` describes."""
    machine = this_machine(folder)
    if not text:
        return (machine,)
    sites: list[Site] = []
    try:
        for part in text.split(";"):
            taken = {gpu.id for site in sites for gpu in site.gpus}
            free = tuple(gpu for gpu in machine.gpus if gpu.id not in taken)
            sites.append(_parse_site(part, machine, free))
            if sites[-1].name in {site.name for site in sites[:-1]}:
                raise ValueError(f"two sites are called {sites[-1].name!r}")
    except ValueError as error:
        raise PoolError(
            f"--pool local:{text}: {error}",
            remedy="for example local:cpus=4,memory=8GB,simulate-gpus=2",
        ) from error
    return tuple(sites)


def _parse_site(text: str, machine: Site, gpus: tuple[Gpu, ...]) -> Site:
    """One site; `gpus` are those that no other site has."""
    pairs = [pair for pair in text.split(",") if pair.strip()]
    bare = next((pair for pair in pairs if "=" not in pair), None)
    if bare is not None:
        raise ValueError(f"{bare!r} has no value")
    values = {key.strip(): value.strip() for key, _, value in (p.partition("=") for p in pairs)}
    unknown = set(values) - {"site", "cpus", "memory", "disk", "gpus", "simulate-gpus"}
    if unknown:
        raise ValueError(f"unknown key {sorted(unknown)[0]!r}")
    name = values.get("site", machine.name)
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise ValueError(f"{name!r} is not the name of a site")
    real = _whole_number(values, "gpus", len(gpus), least=0)
    if real > len(gpus):
        raise ValueError(f"gpus={real}, and this machine has {len(gpus)} left")
    simulated = _whole_number(values, "simulate-gpus", 0, least=0)
    return Site(
        name,
        cpus=_whole_number(values, "cpus", machine.cpus, least=1),
        memory=parse_size(values.get("memory", f"{machine.memory} B")),
        disk=parse_size(values.get("disk", f"{machine.disk} B")),
        gpus=gpus[:real] + tuple(Gpu(f"GPU-{name}-{n}", simulated=True) for n in range(simulated)),
    )


def _whole_number(values: Mapping[str, str], key: str, default: int, *, least: int) -> int:
    text = values.get(key, str(default))
    if not re.fullmatch(r"[0-9]{1,6}", text, re.ASCII) or int(text) < least:
        raise ValueError(f"{key} must be a whole number from {least} up, not {text!r}")
    return int(text)


Held = tuple[Site, Claim]  # a claim and the site that it was taken from


def _shared(site: Site, claim: Claim) -> Claim:
    """What a claim takes from other runs: a share was set aside by its user, but not its GPUs."""
    return claim if site.whole_machine else replace(claim, cpus=0, memory=0, disk=0)


class MachineClaims:
    """What all runs of this user have claimed from this machine together.

    Each supervisor has a file, and holds a lock on it for as long as it lives: the claims of a dead
    one are void. Everything happens under one lock on the folder.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or _claims_folder()
        what = f"{self.folder}, where runs record what they use, cannot be written"
        remedy = "set XDG_RUNTIME_DIR to a folder of your own"
        with failing(what, remedy, PoolError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = self.folder.lstat()
            if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
                raise PoolError(f"{self.folder} is not a folder of yours", remedy=remedy)
            with self._alone():
                handle, name = tempfile.mkstemp(dir=self.folder, prefix="claims-", suffix=".json")
                self._own = os.fdopen(handle, "r+")
                self._path = Path(name)
                self._held = lock(self._own.fileno(), wait=True)

    def claim(self, site: Site, request: ResourceRequest, running: Sequence[Held]) -> Claim | None:
        """Claim what `request` asks for, if it is free."""
        mine = [claim for where, claim in running if where.name == site.name]
        if take(site, request, mine) is None:
            return None
        with self._alone():
            others = [_shared(site, claim) for claim in self._others()]
            claim = take(site, request, [*mine, *others])
            if claim is not None:
                self._write([*running, (site, claim)])
            return claim

    def record(self, running: Sequence[Held]) -> None:
        """Record what this run holds now."""
        with self._alone():
            self._write(running)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink()
        self._held.release()
        self._own.close()

    def _write(self, running: Sequence[Held]) -> None:
        self._own.seek(0)
        self._own.write(json.dumps([asdict(_shared(*held)) for held in running]))
        self._own.truncate()
        self._own.flush()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        with open(self.folder / "lock", "ab") as file:
            held = lock(file.fileno(), wait=True)
            try:
                yield
            finally:
                held.release()

    def _others(self) -> Iterable[Claim]:
        for path in self.folder.glob("claims-*.json"):
            if path == self._path:
                continue
            with contextlib.suppress(OSError, ValueError, TypeError), path.open() as file:
                try:
                    lock(file.fileno()).release()
                except BlockingIOError:
                    for facts in json.loads(file.read() or "[]"):
                        yield Claim(**{**facts, "gpus": tuple(facts["gpus"])})
                else:
                    path.unlink()


def find_apptainer() -> str | None:
    """The program that runs containers on this machine, if there is one."""
    return shutil.which("apptainer") or shutil.which("singularity")


def _claims_folder() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK):
        return Path(runtime) / "headway"
    return Path(tempfile.gettempdir()) / f"headway-{os.getuid()}"


def _real_gpus() -> Iterable[Gpu]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return
    query = [tool, "--query-gpu=uuid,memory.total,compute_cap", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return
    for line in done.stdout.splitlines():
        match = re.match(r"\s*(GPU-[\w-]+),\s*([0-9]+),\s*([0-9.]+)\s*$", line)
        if match:
            yield Gpu(match[1], int(match[2]) * 2**20, float(match[3]))
