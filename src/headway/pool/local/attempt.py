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

from headway.cache import make_cache
from headway.errors import PoolError
from headway.events import Resource, Usage
from headway.node.classad import quoted
from headway.node.errors import TIME_LIMIT
from headway.node.files import remove_orphaned_folders
from headway.node.host import STORE
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
        """The usage that the agent's own record shows."""
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
        """The usage as arguments of the event writer."""
        cpus = (self.user + self.system) / self.executed if self.executed > 0 else 0.0
        memory, used_memory = (-(-size // 2**20) for size in (request.memory, self.peak_memory))
        disk, used_disk = (-(-size // 2**10) for size in (request.disk, self.scratch_bytes))
        resources = {
            "Cpus": Resource(round(cpus, 2), request.cpus, request.cpus),
            "Disk": Resource(used_disk, disk, disk),
            "GPUs": Resource(None, request.gpus or None, request.gpus, self.gpus),
            "Memory": Resource(used_memory, memory, memory),
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
    """A number in a record, which a command may have tampered with."""
    value = segment.get(key)
    return float(value) if isinstance(value, (int, float)) and 0 <= value < 1e15 else 0.0


def read_record(attempt: Path) -> dict[str, Any]:
    """The record in an attempt's folder, with good segments only; empty: it cannot be read."""
    record = folder.read_record(attempt)
    segments = record.get("segments")
    kept = [s for s in segments if isinstance(s, dict)] if isinstance(segments, list) else []
    return {**record, "segments": kept} if record else {}


IN_CONTAINER = "/srv"
_TOOLS = ("APPTAINER", "SINGULARITY")  # whose prefix carries a variable into the container
_OUTSIDE = {"PATH", "LD_LIBRARY_PATH", "HOME", "VIRTUAL_ENV", "CONDA_PREFIX"}  # of no use inside
# What a job gets of the user's environment. A pool gives no more, so a job that needs more should
# fail here first.
_INHERITED = [
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "VIRTUAL_ENV", "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "http_proxy",
    "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
]  # fmt: skip
# Credentials for the agent's own transfers; the command gets them only where job.toml says so.
_BEARER = "BEARER_TOKEN"
_BEARER_PLACES = ["BEARER_TOKEN_FILE", "_CONDOR_CREDS"]
_STRENGTH = [Action.EVICT, Action.HOLD, Action.REMOVE]


class RunningAttempt:
    """A scratch folder, the agent in it, and everything that the agent has started."""

    def __init__(
        self, folder: RunFolder, job: int, number: int, site: Site, claim: Claim, slot: int
    ) -> None:
        self.folder, self.job, self.number = folder, job, number
        self.site, self.claim, self.slot_number = site, claim, slot
        self.store: Path | None = None  # where inputs are kept for the next job
        self.time_limit = 0  # seconds, if it was changed after the submit; 0: the plan's
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
        """The process id of the agent."""
        return self._process.pid if self._process is not None else 0

    @property
    def host(self) -> str:
        return f"<127.0.0.1:0?alias={self.site.name}>"

    @property
    def slot(self) -> str:
        return f"slot1_{self.slot_number}@{self.site.name}"

    def prepare(self, chirp_config: str, *, has_inputs: bool) -> None:
        """Make the scratch folder as HTCondor would, with plan, payload and last checkpoint."""
        self.store = make_cache() if has_inputs else None
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
        for name, attributes in self._ads().items():
            text = "".join(f"{key} = {_literal(value)}\n" for key, value in attributes.items())
            (self.scratch / name).write_text(text, encoding="utf-8")

    def start(self, agent: Path, row: str, container: str | None) -> None:
        """Start the agent; MARK in the environment tells which processes are its own."""
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
        places = {key: os.path.abspath(v) for key in _BEARER_PLACES if (v := os.environ.get(key))}
        token = {_BEARER: text} if (text := os.environ.get(_BEARER)) else {}
        self._environment |= {**places, **token}
        self._environment["HEADWAY_PRIVATE"] = " ".join([_BEARER, *_BEARER_PLACES])
        if container:
            give(self.folder.agent, self.scratch / self.folder.agent.name)
            shared = [(place, ":ro") for place in places.values() if os.path.exists(place)]
            if self.store is not None:
                shared.append((str(self.store), ""))
            # apptainer's own separators cannot be in a path to bind
            binds = [f"{p}:{p}{how}" for p, how in shared if not set(p) & set(":,")]
            argv = _container_argv(container, self.scratch, self._environment, binds)
            self._argv = [*argv, *words]
            # not among the arguments, which everybody on the machine can read
            given = {k: v for k, v in self._environment.items() if k not in _OUTSIDE}
            carried = {f"{tool}ENV_{key}": given[key] for tool in _TOOLS for key in given}
            self._environment = {**os.environ, **carried, MARK: str(self.scratch)}
        else:
            self._environment["HEADWAY_PYTHON"] = sys.executable
            self._environment["HEADWAY_PARENT"] = str(os.getpid())
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

        Of two requests the stronger one counts, and the grace stays as it was.
        """
        if self.ending is not None:
            self.ending = max(self.ending, ending, key=lambda e: _STRENGTH.index(e.action))
            return
        self.ending = ending
        self._kill_at = time.monotonic() + grace
        if self._process is not None and self._process.returncode is None:
            # not Popen.terminate, which might reap it, and its usage would be lost
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGTERM)

    def release(self, reason: str) -> bool:
        """If it is ending for a hold, take that back: its job goes back into the queue."""
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
        """Copy the checkpoint to where the next attempt finds it, in a thread: it may be large."""

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
        """Whether a copy has just ended; true once for each."""
        if self._saving is None or self._saving.is_alive():
            return False
        self._saving = None
        return True

    def clean(self) -> None:
        remove_tree(self.scratch)
        remove_orphaned_folders()  # of an agent that somebody else has killed

    def _ads(self) -> dict[str, dict[str, object]]:
        """The attributes of the files that HTCondor would write for the job and its slot."""
        facts, claim = self.folder.facts, self.claim
        slot = {"Cpus": claim.cpus, "Memory": claim.memory // 2**20, "Disk": claim.disk // 2**10}
        slot["GPUs"] = len(claim.gpus)
        job: dict[str, object] = {
            "ClusterId": facts.number,
            "ProcId": self.job,
            "HeadwayRun": facts.id,
            "NumShadowStarts": self.number,
            **{f"Request{name}": amount for name, amount in slot.items()},
        }
        if self.time_limit:
            job[TIME_LIMIT] = self.time_limit
        place: dict[str, object] = {"Name": self.slot, "GLIDEIN_ResourceName": self.site.name}
        if self.store is not None:
            place[STORE] = str(self.store)
        return {
            ".job.ad": job,
            ".machine.ad": {**place, **slot, "AssignedGPUs": ",".join(claim.gpus)},
        }


@dataclass(frozen=True)
class AttemptEnd:
    """Why a running attempt was asked to end; the log gives the reason."""

    action: Action
    reason: str


def _not_for_others(path: str, flags: int) -> int:
    """Open a file that others may read but not write, whatever the umask is."""
    return os.open(path, flags, 0o644)


def _container_argv(
    image: str, scratch: Path, environment: Mapping[str, str], shared: Sequence[str]
) -> list[str]:
    tool = find_apptainer()
    if tool is None:
        raise PoolError(
            f"the job asks for the container {image}, and there is no apptainer on this machine",
            remedy="install apptainer, or take `container` out for a run on this machine",
        )
    binds = [f"{scratch}:{IN_CONTAINER}", *shared]
    flags = ["--containall", "--no-home", "--pwd", IN_CONTAINER]
    flags += [word for bind in binds for word in ("--bind", bind)]
    if os.geteuid() == 0:
        flags.append("--no-privs")  # no pool would give a job root's privileges
    if environment.get("CUDA_VISIBLE_DEVICES") and Path("/dev/nvidiactl").exists():
        flags.append("--nv")
    return [tool, "--silent", "exec", *flags, image, f"{IN_CONTAINER}/{AGENT}"]


def _literal(value: object) -> str:
    if isinstance(value, (int, float)):
        return str(value)
    return quoted(str(value).replace("\n", " "))
