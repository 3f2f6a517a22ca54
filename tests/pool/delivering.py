"""Sites whose nodes keep outputs for couriers, and jobs that leave theirs there."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import pwd
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headway.api import Run
from headway.cli.wrap import write_plugin
from headway.events import JobState, Outcome, Status
from headway.pool.arrivals import arrival
from headway.pool.htcondor.node_config import NodeSettings, node_config
from headway.pool.prepare import SMALLEST_SANDBOX

from .harness import POOL_USER, Pool
from .places import CondorPlace

SIZE = SMALLEST_SANDBOX + 500_000
#: What an attempt writes says which attempt of which job has written it.
COMMAND = f'yes "$HEADWAY_JOB $HEADWAY_ATTEMPT" | head -c {SIZE} > out.bin'
JOB = """\
name = "{name}"
shell = true
command = '{command}'
count = {count}
{more}
[retries]
backoff = "1 s"
avoid = "1 s"
input = {holds}
[resources]
memory = "64 MB"
disk = "{disk}"
[sites]
only = ["{site}"]
[submit]
"+WantsSite" = '"{site}"'
"""
SWEEP = """
import sys, time
sys.path.insert(0, sys.argv[1])
from headway.node.store.folder import Store
from headway.node.store.sandboxes import Sandboxes
store, later = Store(sys.argv[2]), time.time() + float(sys.argv[3])
print(*Sandboxes(store).sweep(later), *store.sweep(later), sep="\\n")
"""
TAKEN, OVERDUE = 3600.0, 30 * 86400.0  # seconds after which what was delivered, and the rest, goes
_lock = threading.Lock()


def content(job: int, attempt: str, size: int = SIZE) -> str:
    """The sha256 of what that attempt of a job has written."""
    line = f"{job} {attempt}\n".encode()
    return hashlib.sha256((line * (size // len(line) + 1))[:size]).hexdigest()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Site:
    """A site with a store and transfer slots, for the jobs of one test alone."""

    def __init__(
        self,
        pool: Pool,
        name: str,
        *,
        closed: bool = False,
        transfer_slots: int = 3,
        containers: bool = False,
    ) -> None:
        """`closed`: couriers wait until `open`; `containers`: they see the store."""
        self.pool, self.name = pool, name
        gate = "START = $(START) && (TARGET.HeadwayCourier =!= True || MY.TakesCouriers)"
        self.program = pool.home / "headway-node-faults.pyz"
        with _lock:  # pool.sh configures one site after the other
            if not self.program.exists():
                write_plugin(self.program)
            settings = NodeSettings(
                program=str(self.program),
                keep_free=0,
                period=3600,
                transfer_slots=transfer_slots,
                containers=containers,
            )
            self._write_gate(not closed)
            pool.add_sites({name: gate}, node_config(settings))
        self.root = pool.home / "sites" / name / "headway-store"
        user = pwd.getpwnam(POOL_USER).pw_uid
        self.sandboxes, self.drafts = (
            self.root / f"u{user}" / each for each in ("sandboxes", "drafts")
        )
        asked = f'GLIDEIN_ResourceName == "{name}" && HeadwayStore =!= undefined'
        ask = ["condor_status", "-af", "Name", "-constraint", asked]
        pool.wait_for(lambda: pool.run_as_user(ask).stdout.strip(), 60, "the store in its ad")

    def of(self, user: str) -> Site:
        """The same site, for jobs of another user."""
        other = copy.copy(self)
        other.pool = self.pool.of(user)
        return other

    def _write_gate(self, opened: bool) -> None:
        path = self.pool.config_d(self.name) / "95-gate.conf"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = f"TakesCouriers = {opened}\nSTARTD_ATTRS = $(STARTD_ATTRS) TakesCouriers\n"
        path.write_text(lines)

    def open(self, *, running: bool = True) -> None:
        """Let couriers start."""
        self._write_gate(True)
        if running:
            self.pool.administer(self.name, "condor_reconfig", "-startd")

    def held(self) -> list[str]:
        """The names of the sandboxes in its store."""
        return sorted(os.listdir(self.sandboxes)) if self.sandboxes.exists() else []

    def files(self) -> list[Path]:
        """The outputs in its store."""
        return sorted(self.sandboxes.glob("*/files/out.bin"))

    def sweep(self, after: float = TAKEN) -> list[str]:
        """Run the sweeper so many seconds from now, as the site's account; what went."""
        done = subprocess.run(
            [sys.executable, "-I", "-c", SWEEP, self.program, self.root, str(after)],
            user=pwd.getpwnam(POOL_USER).pw_uid,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split("\n")

    def is_empty(self, after: float = TAKEN) -> None:
        """Insist that nothing is left in the store after the sweeper."""
        went = self.sweep(after)
        left = [str(path) for path in (self.sandboxes, self.drafts) for path in path.iterdir()]
        assert not left, (left, went)

    @contextlib.contextmanager
    def store_of(self, size: str) -> Iterator[None]:
        """Its store is a file system of its own, of that size."""
        with file_system(self.root, size, POOL_USER):
            self.pool.administer(self.name, "condor_restart", "-startd", "-fast")
            marker = self.root / "headway-store.json"
            self.pool.wait_for(marker.exists, 60, "the store on a file system of its own")
            yield

    def agent(self, run: Run, job: int) -> int:
        """The pid of the agent that works on a job of this run now, as soon as there is one."""

        def found() -> int:
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    words = path.read_text(errors="replace").split("\0")
                    if words[-3:] == ["agent", "plan.json", ""]:
                        ad = (path.parent / "cwd" / ".job.ad").read_text()
                        ours = f'HeadwayRun = "{run.folder.facts.id}"' in ad
                        number = re.search(r"^HeadwayJob = (\d+)$", ad, re.M)
                        if ours and int(number[1] if number else 0) == job:
                            return int(path.parent.name)
            return 0

        return self.pool.wait_for(found, 60, f"the agent of {run.label}.{job}")


class Jobs:
    """A run whose outputs are to go home later: of a single job, or of several in a DAG."""

    def __init__(
        self,
        site: Site,
        count: int = 1,
        *,
        to: str = "",
        within: str = "1 h",
        command: str = COMMAND,
        holds: int = 10,
        more: str = "",
        disk: str = "100 MB",
        before: Callable[[Path], object] = lambda _folder: None,
    ) -> None:
        """`before` gets the folder that the jobs will be submitted in."""
        self.site, self.count = site, count
        self.place = CondorPlace(site.pool)
        to = to.replace("COUNT", str(count))  # the jobs of two runs need two places
        output = f'{{path = "out.bin", to = "{to}"}}' if to else '"out.bin"'
        outputs = f'[outputs]\nfiles = [{output}]\ndeliver = "later"\nwithin = "{within}"'
        name = "single" if count == 1 else "several"
        text = JOB.format(
            name=name, command=command, count=count, more=f"{more}\n{outputs}", site=site.name,
            holds=holds, disk=disk,
        )  # fmt: skip
        before(self.place.folder)
        self.run = self.place.start(text)

    def wait(self, until: Callable[[JobState], object], job: int = 0, timeout: float = 120) -> None:
        self.place.wait(self.run, until, timeout, job)

    def left(self) -> None:
        """Wait until all have left their outputs in the store."""
        for job in range(self.count):
            self.wait(lambda state: state.status is Status.DELIVERING or state.terminal, job)

    def settle(self, timeout: float = 180) -> Run:
        """Wait until the run is over; for a DAG, until DAGMan is."""
        self.place.settle(self.run, timeout)
        if self.count > 1:
            self.site.pool.wait_for(self.dagman_is_gone, 60, "the end of DAGMan")
        return self.run

    def dagman_is_gone(self) -> bool:
        return not self.queue("DAGManJobId =?= undefined")

    def is_gone(self) -> None:
        """Insist that the queue will be without its jobs and DAGMan."""
        self.site.pool.wait_for(lambda: not self.queue(), 60, "an empty queue")

    def queue(self, constraint: str = "true") -> list[str]:
        """Its jobs in the queue, DAGMan among them, by their ids."""
        ours = f'HeadwayRun == "{self.run.folder.facts.id}" && ({constraint})'
        return self.ask("condor_q", "-af:j", "JobStatus", "-constraint", ours)

    def ask(self, *words: str) -> list[str]:
        done = self.site.pool.run_as_user(words)
        assert done.returncode == 0, done.stderr
        return [line for line in done.stdout.splitlines() if line.strip()]

    def attempts(self, job: int) -> list[dict[str, Any]]:
        """The records of its attempts that came home, the oldest first."""
        return [
            json.loads((path / "record.json").read_text())
            for path in self.run.folder.attempts(job)
            if (path / "record.json").exists()
        ]

    def computed(self, job: int) -> list[str]:
        """The attempts of a job whose command has run: by their records, and by the ticket.

        The record of an attempt that is killed after its hand-over may stay behind.
        """
        found = [str(each["attempt"]) for each in self.attempts(job) if each["command"]]
        ticket = self.run.folder.job_folder(job) / "ticket.json"
        left = json.loads(ticket.read_text()) if ticket.exists() else {}
        if left and (attempt := left["sandbox"].split("-", 2)[2]) not in found:
            found.append(attempt)
        return found

    def agent_log(self, job: int = 0) -> str:
        """What the agents of all its attempts have noted."""
        logs = (path / "agent.log" for path in self.run.folder.attempts(job))
        return "".join(path.read_text() for path in logs if path.exists())

    def delivered(
        self,
        *,
        computed: int | None = 1,
        at: Callable[[int], bytes] | Path | None = None,
        size: int = SIZE,
        of: Sequence[int] = (),
    ) -> None:
        """Insist that each job has succeeded, with exactly one output: that of one attempt.

        Args:
            computed: How often its command ran.
            at: What is at the destination, or its folder, if that is not the run folder.
            size: The bytes of the output.
            of: The jobs, if not all.
        """
        for job in of or range(self.count):
            state = self.run.jobs[job]
            assert state.outcome is Outcome.SUCCESS, (state, self.place.story())
            home = self.run.folder.job_folder(job)
            path = home / "outputs" / "out.bin"
            if isinstance(at, Path):
                path = at / f"{job}.bin"
            data = at(job) if callable(at) else path.read_bytes()
            found = hashlib.sha256(data).hexdigest()
            attempts = self.computed(job)
            whole = [each for each in attempts if content(job, each, size) == found]
            assert len(whole) == 1 and len(attempts) == (computed or len(attempts)), (
                attempts,
                whole,
                self.agent_log(job),
            )
            copies = [each for each in home.rglob("*.bin") if callable(at) or each != path]
            assert not copies, f"there is another copy: {copies}"
            assert arrival(self.run.folder.path, job) == ""
        assert of or self.run.succeeded()

    def nothing_home(self, job: int = 0) -> None:
        """Insist that none of its outputs are where those of a job that succeeded would be."""
        assert not (self.run.folder.job_folder(job) / "outputs").exists()


@contextlib.contextmanager
def file_system(place: Path, size: str, owner: str) -> Iterator[None]:
    """A small file system at this place."""
    account = pwd.getpwnam(owner)
    place.mkdir(exist_ok=True)
    os.chown(place, account.pw_uid, account.pw_gid)
    options = f"size={size},mode=755,uid={account.pw_uid},gid={account.pw_gid}"
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def ways(site: Site, several: int = 2, **options: object) -> list[Jobs]:
    """The same jobs both ways: one that is its own courier, and several with DAGMan's."""
    with ThreadPoolExecutor(2) as hands:
        return list(hands.map(lambda count: Jobs(site, count, **options), (1, several)))  # type: ignore[arg-type]


def settle(*jobs: Jobs) -> None:
    with ThreadPoolExecutor(len(jobs)) as hands:
        list(hands.map(lambda each: each.settle(), jobs))
