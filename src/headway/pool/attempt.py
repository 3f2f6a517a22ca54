"""One attempt of a job as processes on this machine."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import PoolError
from headway.events import Resource, Usage
from headway.pool.base import Action
from headway.pool.folder import RunFolder
from headway.pool.machine import Claim, Request, Site, find_apptainer

OUT = "headway-out"
IN_CONTAINER = "/srv"
# What a job may know of the user's shell. A pool gives no more, so a job that needs more fails here first.
_INHERITED = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"]


class Attempt:
    """A scratch folder, the agent in it, and everything that the agent has started."""

    def __init__(
        self, folder: RunFolder, job: int, number: int, site: Site, claim: Claim, slot: int
    ) -> None:
        self.folder = folder
        self.job = job
        self.number = number
        self.site = site
        self.claim = claim
        self.slot_number = slot
        self.scratch = folder.path / "scratch" / f"{job}.{number}"
        self._claimed = time.monotonic()
        self.used = Used(gpus=claim.gpus)
        self.checkpointed = False
        self.ending: Ending | None = None
        self._kill_at = float("inf")
        self._started = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._argv: list[str] = []
        self._environment: dict[str, str] = {}

    @property
    def owner(self) -> str:
        return f"{self.job}.{self.number}"

    @property
    def host(self) -> str:
        return f"<127.0.0.1:0?alias={self.site.name}>"

    @property
    def slot(self) -> str:
        return f"slot1_{self.slot_number}@{self.site.name}"

    def prepare(self, chirp_config: str) -> None:
        """Make the scratch folder as HTCondor would: plan, payload, and the last checkpoint."""
        self.folder.job_folder(self.job).mkdir(parents=True, exist_ok=True)
        spool = checkpoint_folder(self.folder, self.job)
        if spool.is_dir():
            shutil.copytree(spool, self.scratch, symlinks=True)
        else:
            self.scratch.mkdir(parents=True)
        shutil.copyfile(self.folder.plan, self.scratch / self.folder.plan.name)
        _link(self.folder.payload, self.scratch / self.folder.payload.name)
        (self.scratch / ".chirp.config").write_text(chirp_config, encoding="ascii")
        ads = {".job.ad": self._job_ad(), ".machine.ad": self._machine_ad()}
        for name, attributes in ads.items():
            text = "".join(f"{key} = {_literal(value)}\n" for key, value in attributes.items())
            (self.scratch / name).write_text(text, encoding="utf-8")

    def start(self, row: str, container: str | None) -> None:
        """Start the agent; whatever it starts can be found by its scratch folder."""
        inside = Path(IN_CONTAINER) if container else self.scratch
        gpus = ",".join(self.claim.gpus)
        self._environment = {
            **{key: os.environ[key] for key in _INHERITED if key in os.environ},
            **{key: value for key, value in os.environ.items() if key.startswith("LC_")},
            **self.site.environment,
            "HEADWAY_ROW": row,
            "GLIDEIN_ResourceName": self.site.name,
            "_CONDOR_SCRATCH_DIR": str(inside),
            "_CONDOR_JOB_AD": str(inside / ".job.ad"),
            "_CONDOR_MACHINE_AD": str(inside / ".machine.ad"),
            "_CONDOR_SLOT": self.slot,
            "OMP_NUM_THREADS": str(self.claim.cpus),
            "TMPDIR": str(inside),
        }
        if self.claim.gpus:
            self._environment["CUDA_VISIBLE_DEVICES"] = gpus
            self._environment["_CONDOR_AssignedGPUs"] = gpus
        agent = ["agent", self.folder.plan.name]
        if container:
            _link(self.folder.agent, self.scratch / self.folder.agent.name)
            self._argv = [*_container_argv(container, self.scratch, self._environment), *agent]
            self._environment = dict(os.environ)
        else:
            self._environment["HEADWAY_PYTHON"] = sys.executable
            self._environment["HEADWAY_PARENT"] = str(os.getpid())
            self._argv = [str(self.folder.agent), *agent]
        self._environment["HEADWAY_SCRATCH"] = str(self.scratch)
        self.restart()

    def restart(self) -> None:
        """Start the agent again in the same folder, as HTCondor does after a checkpoint."""
        home = self.folder.job_folder(self.job)
        self._started = time.monotonic()
        with (home / "agent.out").open("ab") as out, (home / "agent.err").open("ab") as err:
            self._process = subprocess.Popen(
                self._argv,
                cwd=self.scratch,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def poll(self) -> int | None:
        """The agent's exit status once it has ended (negative: a signal), with its usage added up."""
        process = self._process
        if process is None or process.returncode is not None:
            return process.returncode if process else None
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid == 0:
            if time.monotonic() > self._kill_at:
                self.kill()
            return None
        process.returncode = os.waitstatus_to_exitcode(status)
        scale = 1 if sys.platform == "darwin" else 1024
        self.used.executed += time.monotonic() - self._started
        self.used.busy = time.monotonic() - self._claimed
        self.used.user += usage.ru_utime
        self.used.system += usage.ru_stime
        self.used.peak_memory = max(self.used.peak_memory, usage.ru_maxrss * scale)
        kill_strays(self.scratch)
        return process.returncode

    def end(self, ending: Ending, grace: float) -> None:
        """Ask the agent to end; it is killed when the grace is over."""
        self.ending = ending
        self._kill_at = time.monotonic() + grace
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End everything of this attempt at once."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        kill_strays(self.scratch)

    def save_checkpoint(self, paths: Iterable[str]) -> None:
        """Copy the checkpoint to where the next attempt finds it; the last good one stays till then."""
        save_checkpoint(self.folder, self.job, self.scratch, paths)
        self.checkpointed = True

    def bring_home(self) -> None:
        """Move the output folder into the run folder."""
        self.used.scratch_bytes = _tree_size(self.scratch)
        self.used.bytes_home += bring_home(self.scratch, self.folder.job_folder(self.job))

    def clean(self) -> None:
        remove_tree(self.scratch)

    def _job_ad(self) -> dict[str, object]:
        facts = self.folder.facts
        return {
            "ClusterId": facts.number,
            "ProcId": self.job,
            "HeadwayRun": facts.id,
            "NumShadowStarts": self.number,
            "RequestCpus": self.claim.cpus,
            "RequestMemory": self.claim.memory // 2**20,
            "RequestDisk": self.claim.disk // 2**10,
            "RequestGPUs": len(self.claim.gpus),
        }

    def _machine_ad(self) -> dict[str, object]:
        return {
            "Name": self.slot,
            "GLIDEIN_ResourceName": self.site.name,
            "Cpus": self.claim.cpus,
            "Memory": self.claim.memory // 2**20,
            "Disk": self.claim.disk // 2**10,
            "GPUs": len(self.claim.gpus),
            "AssignedGPUs": ",".join(self.claim.gpus),
        }


@dataclass(frozen=True)
class Ending:
    """What a running attempt was asked to end for, and what the log shall say of it."""

    action: Action
    reason: str


@dataclass
class Used:
    """What an attempt has used so far."""

    busy: float = 0.0  # seconds that the slot was taken
    executed: float = 0.0  # of which the agent ran
    user: float = 0.0
    system: float = 0.0
    peak_memory: int = 0
    scratch_bytes: int = 0
    bytes_in: int = 0
    bytes_home: int = 0
    gpus: tuple[str, ...] = ()

    def in_log(self, request: Request) -> dict[str, Any]:
        """The same as the event log has it."""
        cpus = (self.user + self.system) / self.executed if self.executed > 0 else 0.0
        memory, disk = _mebibytes(request.memory), _kibibytes(request.disk)
        resources = {
            "Cpus": Resource(round(cpus, 2), request.cpus, request.cpus),
            "Disk": Resource(_kibibytes(self.scratch_bytes), disk, disk),
            "GPUs": Resource(None, request.gpus or None, request.gpus, self.gpus),
            "Memory": Resource(_mebibytes(self.peak_memory), memory, memory),
            "TimeExecute": Resource(round(self.executed)),
            "TimeSlotBusy": Resource(round(self.busy)),
        }
        return {
            "usage": Usage(round(self.user), round(self.system)),
            "sent": self.bytes_home,
            "received": self.bytes_in,
            "resources": resources,
        }


def _mebibytes(size: int) -> int:
    return -(-size // 2**20)


def _kibibytes(size: int) -> int:
    return -(-size // 2**10)


def checkpoint_folder(folder: RunFolder, job: int) -> Path:
    """Where the last good checkpoint of a job is kept."""
    return folder.path / "spool" / str(job)


def save_checkpoint(folder: RunFolder, job: int, scratch: Path, paths: Iterable[str]) -> None:
    """Copy checkpoint paths out of a scratch folder, then put them in place of the older one."""
    final = checkpoint_folder(folder, job)
    final.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=final.parent, prefix=f".{job}-"))
    try:
        for name in (*paths, OUT):
            source, target = scratch / name, draft / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
            else:
                shutil.copy2(source, target)
        old = final.with_name(f".{job}-old")
        remove_tree(old)
        if final.exists():
            final.rename(old)
        draft.rename(final)
        remove_tree(old)
    finally:
        remove_tree(draft)


def bring_home(scratch: Path, home: Path) -> int:
    """Merge a scratch folder's output into `home`; what an earlier attempt left there is kept."""
    size = 0
    out = scratch / OUT
    for folder, subfolders, names in os.walk(out):
        target = home / Path(folder).relative_to(out)
        target.mkdir(parents=True, exist_ok=True)
        for name in [*names, *(s for s in subfolders if (Path(folder) / s).is_symlink())]:
            source = Path(folder) / name
            size += source.lstat().st_size
            source.replace(target / name)
    return size


def kill_strays(scratch: Path) -> None:
    """Kill every process that was started below this scratch folder and still lives."""
    marker = b"\0HEADWAY_SCRATCH=" + os.fsencode(scratch) + b"\0"
    for _ in range(5):
        found = list(_processes_with(marker))
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return
        time.sleep(0.01)


def _processes_with(marker: bytes) -> Iterable[int]:
    try:
        entries = os.listdir("/proc")
    except OSError:
        return  # no /proc on this system: the process group's end has to do
    own = os.getuid()
    for name in entries:
        if not name.isdigit():
            continue
        try:
            if os.stat(f"/proc/{name}").st_uid != own:
                continue
            with open(f"/proc/{name}/environ", "rb") as file:
                if marker in b"\0" + file.read() + b"\0":
                    yield int(name)
        except OSError:
            continue


def _container_argv(image: str, scratch: Path, environment: Mapping[str, str]) -> list[str]:
    tool = find_apptainer()
    if tool is None:
        raise PoolError(
            f"the job asks for the container {image}, and there is no apptainer on this machine",
            remedy="install apptainer, or take `container` out for a run on this machine",
        )
    outside = {"PATH", "LD_LIBRARY_PATH", "HOME", "VIRTUAL_ENV", "CONDA_PREFIX"}
    given = [f"{key}={value}" for key, value in environment.items() if key not in outside]
    flags = [
        "--containall",
        "--no-home",
        "--pwd",
        IN_CONTAINER,
        "--bind",
        f"{scratch}:{IN_CONTAINER}",
    ]
    if os.geteuid() == 0:
        flags.append("--no-privs")  # no pool would give a job root's privileges
    if environment.get("CUDA_VISIBLE_DEVICES") and Path("/dev/nvidiactl").exists():
        flags.append("--nv")
    settings = [argument for pair in given for argument in ("--env", pair)]
    return [tool, "--silent", "exec", *flags, *settings, image, f"{IN_CONTAINER}/headway-node.pyz"]


def _link(source: Path, target: Path) -> None:
    """A second name is quicker than a second copy of what may be large."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno == errno.EEXIST:
            return
        shutil.copy2(source, target)


def _literal(value: object) -> str:
    if isinstance(value, (int, float)):
        return str(value)
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'"{escaped}"'


def remove_tree(path: Path) -> None:
    """Remove a folder even where a command took away its own permissions."""

    def unlock(function: object, name: str, _: object) -> None:
        Path(name).parent.chmod(0o700)
        if Path(name).is_dir() and not Path(name).is_symlink():
            Path(name).chmod(0o700)
            shutil.rmtree(name, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                Path(name).unlink()

    if path.is_dir():
        shutil.rmtree(path, onerror=unlock)


def _tree_size(path: Path) -> int:
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(f"{folder}/{name}").st_size
    return total
