"""One running test pool, and an ordinary user to work on it."""

from __future__ import annotations

import contextlib
import copy
import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal, TypeVar

from .client import make_client

HERE = Path(__file__).resolve().parent
USER = "hwuser"
POOL_USER = "hwpool"
STALL = 5  # seconds that the starter of some sites gives a transfer
T = TypeVar("T")


class PoolUnavailable(Exception):
    """No pool can be had on this machine; the text says why in one line."""


class Pool:
    """A pool of its own in a folder of its own; `start` makes it, `stop` leaves nothing of it."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        """Take `settings` as further environment of pool.sh, such as POOL_EXTRA_SITES."""
        self.user = USER  # who submits
        self._settings = dict(settings or {})
        self._lock: IO[str] | None = None
        self._clients: list[subprocess.Popen[str]] = []
        self.keeps_folder = bool(os.environ.get("HEADWAY_POOL_KEEP"))
        self.home = Path()
        self.version = ""
        # a container image with /bin/sh and Python, as one file and unpacked
        self.image = self.image_dir = Path()
        self.containers = False  # whether the machine lets apptainer run: it needs user namespaces
        self.sites: list[str] = []
        self.env: dict[str, str] = {}

    def start(self) -> None:
        """Build what is missing and start every daemon, or raise PoolUnavailable."""
        if os.geteuid() != 0:
            raise PoolUnavailable(
                f"needs root: jobs must be submitted by a user ({USER}) who does not own the pool"
            )
        self.version = self._script("version")
        self.image = Path(self._script("image"))
        self.image_dir = self.image.with_suffix("")
        remove_stale_pools()
        self.home = Path(tempfile.mkdtemp(prefix=f"hwpool-{os.getuid()}-", dir="/tmp"))
        try:
            self.home.chmod(0o755)
            self._lock = take_ownership(self.home)
            self._script("up")
            self.sites = sorted(path.name for path in (self.home / "sites").iterdir())
            self._make_user_side()
            capable = self.run_as_user(["condor_status", "-af", "HasSIF"]).stdout.split()
            self.containers = set(capable) == {"true"}
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop every process that the pool or its user started and remove the pool's folder."""
        for process in self._clients:
            if process.poll() is None:  # the pid of one that has ended may be somebody else's
                _kill_group(process)
        if self.home == Path():
            return
        self._script("down")
        if not self.keeps_folder:
            shutil.rmtree(self.home)
        if self._lock:
            self._lock.close()

    def stop_site(self, site: str, how: Literal["down", "drain", "crash"] = "down") -> None:
        """Stop a site: at once, with time for its jobs to write checkpoints, or by kill -9."""
        self._script(how, site)

    def start_sites(self, *sites: str) -> None:
        """Start stopped sites and wait until they take jobs."""
        self._script("up", *sites)

    def add_sites(self, sites: Mapping[str, str], config_d: str = "") -> None:
        """Start further sites, of that configuration, for jobs alone that say `WantsSite`.

        `config_d` is a file that an administrator puts into config.d of each, such as one of
        `headway node-config`.
        """
        for name in sites if config_d else ():
            folder = self.config_d(name)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "90-headway.conf").write_text(config_d)
        lines = [
            f'{name}|4|4096||START = TARGET.WantsSite =?= "{name}";{more}'
            for name, more in sites.items()
        ]
        self._script("add", POOL_SITES="\n".join(lines))

    def config_d(self, site: str) -> Path:
        """The folder of a site's further configuration files."""
        return self.home / "sites" / site / "config.d"

    def administer(self, site: str, *command: str) -> None:
        """Run one of HTCondor's commands as the administrator of a site."""
        env = {**self.env, "CONDOR_CONFIG": str(self.home / "etc" / f"site-{site}")}
        subprocess.run(command, env=env, check=True, capture_output=True, timeout=60)

    def of(self, user: str) -> Pool:
        """The same pool, as another user of this machine sees it."""
        other = copy.copy(self)
        other.user = user
        home = str(other.user_dir())
        other.env = {**self.env, "HOME": home, "USER": user, "LOGNAME": user}
        return other

    def user_dir(self) -> Path:
        """Make a fresh folder of the user's, which others may read and only the user may write."""
        path = Path(tempfile.mkdtemp(dir=self.home / "user"))
        path.chmod(0o755)  # jobs of a test look into it for a sign
        self.give(path)
        return path

    def give(self, path: Path) -> None:
        """Make the user the owner of a folder or file and all below it, as if it had made them."""
        account = pwd.getpwnam(self.user)
        for item in [path, *path.rglob("*")]:
            os.chown(item, account.pw_uid, account.pw_gid, follow_symlinks=False)

    def popen_as_user(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.Popen[str]:
        """Start a program as hwuser; `env` adds to the pool's `env`, `options` go to Popen."""
        account = pwd.getpwnam(self.user)
        process: subprocess.Popen[str] = subprocess.Popen(
            [os.fspath(arg) for arg in argv],
            cwd=cwd or self.env["HOME"],
            env={**self.env, **(env or {})},
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=os.getgrouplist(self.user, account.pw_gid),
            umask=0o022,
            start_new_session=True,
            text=True,
            **{"stdin": subprocess.DEVNULL, **options},
        )
        self._clients.append(process)
        return process

    def run_as_user(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 120,
        input: str | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program as hwuser to its end and return what it printed."""
        process = self.popen_as_user(
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE if input is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            _kill_group(process)
            raise
        self._clients.remove(process)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def python(self, code: str, *args: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run Python code as hwuser, with headway and htcondor2 at hand."""
        return self.run_as_user(["python", "-c", code, *args], **options)

    def headway(self, args: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run the command line of the checkout's headway as hwuser."""
        return self.run_as_user(["python", "-m", "headway", *args], **options)

    def wait_for(self, predicate: Callable[[], T], timeout: float = 180, what: str = "") -> T:
        """Call `predicate` until it returns something true, and return that."""
        end = time.monotonic() + timeout
        while not (value := predicate()):
            if time.monotonic() > end:
                what = what or getattr(predicate, "__name__", repr(predicate))
                raise AssertionError(f"not within {timeout:g} s: {what}")
            time.sleep(0.05)
        return value

    def _script(self, *args: str, **settings: str) -> str:
        """Run pool.sh for this pool."""
        done = subprocess.run(
            [HERE / "pool.sh", *args],
            env={**os.environ, **self._settings, **settings, "POOL_HOME": str(self.home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 3:
            raise PoolUnavailable(done.stderr.strip().removeprefix("pool: "))
        if done.returncode != 0:
            raise RuntimeError(f"pool.sh {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def _make_user_side(self) -> None:
        """Give hwuser a home, an interpreter with the checkout's headway, and an environment."""
        for name in ("user", "user/home"):
            (self.home / name).mkdir()
            self.give(self.home / name)
        cache, client = self.image.parent, self.home / "client"
        try:
            make_client(client, cache)
        except (OSError, subprocess.SubprocessError) as error:
            raise PoolUnavailable(f"no Python for {USER}: {error}") from error
        runtime = cache / "runtime/usr"
        self.env = {
            "CONDOR_CONFIG": str(self.home / "etc/condor_config"),
            "PATH": f"{client}/bin:{runtime}/bin:{runtime}/sbin:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.home / "user/home"),
            "USER": USER,
            "LOGNAME": USER,
            "LANG": "C.UTF-8",
        }


def take_ownership(home: Path) -> IO[str]:
    """Lock the pool's folder; the kernel lets go of it when this process is gone."""
    # locked before it gets its name, so that nobody can find it unlocked
    lock = (home / "owner.new").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    (home / "owner.new").rename(home / "owner")
    return lock


def remove_stale_pools() -> None:
    """Stop and remove pools whose test session was killed before it could."""
    for owner in Path("/tmp").glob(f"hwpool-{os.getuid()}-*/owner"):
        if owner.parent.owner() != pwd.getpwuid(os.getuid()).pw_name:
            continue
        with owner.open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            stale = Pool()
            stale.home = owner.parent
            stale.stop()


def _kill_group(process: subprocess.Popen[str]) -> None:
    """Kill a program and what it started, and collect it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
