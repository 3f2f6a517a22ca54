"""One attempt of a job as processes on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import PoolError
from headway.events import Resource, Usage
from headway.node.classad import quoted
from headway.node.errors import TIME_LIMIT
from headway.node.files import remove_orphaned_folders
from headway.node.plan import AGENT
from headway.pool import folder
from headway.pool.base import Action
from headway.pool.folder import RunFolder
from headway.pool.local.machine import Claim, ResourceRequest, Site, find_apptainer
from headway.pool.local.scratch import (
    MARK,
    checkpoint_folder,
    give,
    kill_marked,
    remove_tree,
    restore_checkpoint,
    save_checkpoint,
)


@dataclass
class ResourceUsage:
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

    @classmethod
    def recorded(cls, record: Mapping[str, Any]) -> ResourceUsage:
        """As far as the agent's own record knows it."""
        found = record["segments"] if record else []
        seconds = sum(number(s, "end") - number(s, "begin") for s in found if number(s, "end"))
        return cls(
            busy=max(0.0, seconds),
            executed=max(0.0, seconds),
            user=sum(number(segment, "cpu_user") for segment in found),
            system=sum(number(segment, "cpu_system") for segment in found),
            peak_memory=int(max((number(segment, "max_rss") for segment in found), default=0)),
        )

    def in_log(self, request: ResourceRequest) -> dict[str, Any]:
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


def number(segment: Mapping[str, Any], key: str) -> float:
    """A number of a record that a command could have written to."""
    value = segment.get(key)
    return float(value) if isinstance(value, (int, float)) and 0 <= value < 1e15 else 0.0


def _mebibytes(size: int) -> int:
    return -(-size // 2**20)


def _kibibytes(size: int) -> int:
    return -(-size // 2**10)


def read_record(attempt: Path) -> dict[str, Any]:
    """The record that an agent left in its attempt's folder; empty: there is none to be read."""
    record = folder.read_record(attempt)
    segments = record.get("segments")
    kept = [s for s in segments if isinstance(s, dict)] if isinstance(segments, list) else []
    return {**record, "segments": kept} if record else {}


IN_CONTAINER = "/srv"
_TOOLS = ("APPTAINER", "SINGULARITY")  # whose prefix carries a variable into the container
_OUTSIDE = {"PATH", "LD_LIBRARY_PATH", "HOME", "VIRTUAL_ENV", "CONDA_PREFIX"}  # of no use inside
# What a job may know of the user's shell: a pool gives no more, so one that needs more fails here
# first.
_INHERITED = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LANGUAGE",
    "TZ",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "LD_LIBRARY_PATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
]
# Credentials for the agent's own transfers; the command gets them only where job.toml says so.
_BEARER = "BEARER_TOKEN"
_BEARER_PLACES = ["BEARER_TOKEN_FILE", "_CONDOR_CREDS"]
_STRENGTH = [Action.EVICT, Action.HOLD, Action.REMOVE]


class RunningAttempt:
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
        #: Seconds, where somebody has set the limit since the submit; 0: the plan's counts.
        self.time_limit = 0
        self.scratch = folder.path / "scratch" / f"{job}.{number}"
        self._claimed = time.monotonic()
        self.used = ResourceUsage(gpus=claim.gpus)
        self.checkpointed = False
        self.ending: AttemptEnd | None = None
        self.save_error = ""
        self._saving: threading.Thread | None = None
        self._kill_at = float("inf")
        self._started = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._argv: list[str] = []
        self._environment: dict[str, str] = {}

    @property
    def owner(self) -> str:
        return f"{self.job}.{self.number}"

    @property
    def pid(self) -> int:
        """The agent's process."""
        return self._process.pid if self._process is not None else 0

    @property
    def host(self) -> str:
        return f"<127.0.0.1:0?alias={self.site.name}>"

    @property
    def slot(self) -> str:
        return f"slot1_{self.slot_number}@{self.site.name}"

    def prepare(self, chirp_config: str) -> None:
        """Make the scratch folder as HTCondor would: plan, payload, and the last checkpoint."""
        self.folder.job_folder(self.job).mkdir(0o755, parents=True, exist_ok=True)
        saved = checkpoint_folder(self.folder, self.job)
        remove_tree(self.scratch)
        self.scratch.parent.mkdir(0o700, exist_ok=True)
        self.scratch.mkdir(0o700)
        if saved.is_dir():
            restore_checkpoint(saved, self.scratch)
        for file in (self.folder.plan, self.folder.payload):
            give(file, self.scratch / file.name)
        chirp = self.scratch / ".chirp.config"
        chirp.touch(0o600)
        chirp.write_text(chirp_config, encoding="ascii")
        ads = {".job.ad": self._job_ad(), ".machine.ad": self._machine_ad()}
        for name, attributes in ads.items():
            text = "".join(f"{key} = {_literal(value)}\n" for key, value in attributes.items())
            (self.scratch / name).write_text(text, encoding="utf-8")

    def start(self, agent: Path, row: str, container: str | None) -> None:
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
            MARK: str(self.scratch),
        }
        if self.claim.gpus:
            self._environment["CUDA_VISIBLE_DEVICES"] = gpus
            self._environment["_CONDOR_AssignedGPUs"] = gpus
        elif self.site.gpus:
            # As HTCondor does: what was not asked for belongs to another job.
            self._environment["CUDA_VISIBLE_DEVICES"] = ""
        words = ["agent", self.folder.plan.name]
        token = os.environ.get(_BEARER)
        places = {key: os.path.abspath(v) for key in _BEARER_PLACES if (v := os.environ.get(key))}
        self._environment |= places
        self._environment["HEADWAY_PRIVATE"] = " ".join([_BEARER, *_BEARER_PLACES])
        if container:
            give(self.folder.agent, self.scratch / self.folder.agent.name)
            # apptainer's own signs cannot be in what it is told to bind
            binds = [p for p in places.values() if os.path.exists(p) and not set(p) & set(":,")]
            self._environment |= {_BEARER: token} if token else {}
            argv = _container_argv(container, self.scratch, self._environment, binds)
            self._argv = [*argv, *words]
            # not among the arguments, which everybody on the machine can read
            given = {k: v for k, v in self._environment.items() if k not in _OUTSIDE}
            carried = {f"{tool}ENV_{key}": given[key] for tool in _TOOLS for key in given}
            self._environment = {**os.environ, **carried, MARK: str(self.scratch)}
        else:
            self._environment["HEADWAY_PYTHON"] = sys.executable
            self._environment["HEADWAY_PARENT"] = str(os.getpid())
            self._environment |= {_BEARER: token} if token else {}
            self._argv = [str(agent), *words]
        self.restart()

    def restart(self) -> None:
        """Start the agent again in the same folder, as HTCondor does after a checkpoint."""
        home = self.folder.job_folder(self.job)
        self._started = time.monotonic()
        if self.folder.secrets.exists():  # the agent before has taken it away
            given = self.scratch / self.folder.secrets.name
            given.unlink(missing_ok=True)
            give(self.folder.secrets, given)
        with (
            open(home / "agent.out", "ab", opener=_not_for_others) as out,
            open(home / "agent.err", "ab", opener=_not_for_others) as err,
        ):
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
        """The agent's exit status once it has ended (negative: a signal); adds up its usage."""
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
        return process.returncode

    def end(self, ending: AttemptEnd, grace: float) -> None:
        """Ask the agent to end; it is killed when the grace is over.

        Asked twice, the stronger wish counts and the grace stays as it was.
        """
        if self.ending is not None:
            if _STRENGTH.index(ending.action) > _STRENGTH.index(self.ending.action):
                self.ending = ending
            return
        self.ending = ending
        self._kill_at = time.monotonic() + grace
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGTERM)

    def release(self, reason: str) -> bool:
        """Take back the hold that it is ending for, so that its job goes back into the queue."""
        if self.ending is None or self.ending.action is not Action.HOLD:
            return False
        self.ending = AttemptEnd(Action.EVICT, reason)
        return True

    def kill(self) -> None:
        """End everything of this attempt at once."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        kill_marked(self.scratch)
        remove_orphaned_folders()

    def save_checkpoint(self, done: Callable[[], None]) -> None:
        """Begin to copy the checkpoint to where the next attempt finds it.

        In a thread: it may be large, and other jobs do not wait for it.
        """

        def save() -> None:
            try:
                save_checkpoint(self.folder, self.job, self.scratch)
                self.checkpointed = True
                self.save_error = ""
            except OSError as error:
                self.save_error = error.strerror or "not all files could be copied"
            done()

        self._saving = threading.Thread(target=save)
        self._saving.start()

    @property
    def saves(self) -> bool:
        """Whether the copy is still under way."""
        return self._saving is not None and self._saving.is_alive()

    def saved(self) -> bool:
        """Whether a copy has just come to its end; true once for each."""
        if self._saving is None or self._saving.is_alive():
            return False
        self._saving = None
        return True

    def clean(self) -> None:
        remove_tree(self.scratch)
        remove_orphaned_folders()  # what an agent left that was killed by somebody else

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
            **({TIME_LIMIT: self.time_limit} if self.time_limit else {}),
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
class AttemptEnd:
    """What a running attempt was asked to end for, and what the log shall say of it."""

    action: Action
    reason: str


def _not_for_others(path: str, flags: int) -> int:
    """Open a file that others may read and not write, whatever the umask is."""
    return os.open(path, flags, 0o644)


def _container_argv(
    image: str, scratch: Path, environment: Mapping[str, str], readable: Sequence[str]
) -> list[str]:
    tool = find_apptainer()
    if tool is None:
        raise PoolError(
            f"the job asks for the container {image}, and there is no apptainer on this machine",
            remedy="install apptainer, or take `container` out for a run on this machine",
        )
    flags = [
        "--containall",
        "--no-home",
        "--pwd",
        IN_CONTAINER,
        "--bind",
        f"{scratch}:{IN_CONTAINER}",
    ]
    for place in readable:
        flags += ["--bind", f"{place}:{place}:ro"]
    if os.geteuid() == 0:
        flags.append("--no-privs")  # no pool would give a job root's privileges
    if environment.get("CUDA_VISIBLE_DEVICES") and Path("/dev/nvidiactl").exists():
        flags.append("--nv")
    return [tool, "--silent", "exec", *flags, image, f"{IN_CONTAINER}/{AGENT}"]


def _literal(value: object) -> str:
    if isinstance(value, (int, float)):
        return str(value)
    return quoted(str(value).replace("\n", " "))
