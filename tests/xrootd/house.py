"""The house: a network namespace with an XRootD origin, an XCache and a director in it."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.lab import Authority

ROOT = Path(__file__).parents[2]
NEEDED = ("xrootd", "unshare", "nsenter", "ip", "runuser", "openssl")
ORIGIN, CACHE = 8443, 8444  # the namespace is ours: ports need not be free elsewhere
_USER = "xrootd"

_BOTH = """\
all.role server
all.export /lab
all.adminpath {folder}/run/{name}
all.pidpath {folder}/run/{name}
xrd.port {port}
xrd.protocol http:{http} libXrdHttp.so
xrd.tls {folder}/ca/good.pem {folder}/ca/good.key
xrd.tlsca certfile {folder}/ca/lab-ca.pem
xrd.network nodnr norpipa
http.listingdeny yes
"""
_ORIGIN = """\
oss.localroot {folder}/origin
xrootd.chksum max 2 adler32 crc32c md5
"""
_CACHE = """\
ofs.osslib libXrdPss.so
pss.origin 127.0.0.1:1094
pss.cachelib libXrdPfc.so
oss.localroot {folder}/cache
pfc.ram 1g
pfc.blocksize 1m
pfc.diskusage 0.98 0.99
"""
_SLOWLY = """\
xrootd.fslib throttle default
throttle.throttle data {rate}
"""


def missing() -> str:
    """Why there can be no house here; empty: there can."""
    gone = [name for name in NEEDED if shutil.which(name) is None]
    if gone:
        return (
            f"{', '.join(gone)} not installed: "
            "apt-get install xrootd-server xrootd-client-plugins iproute2 util-linux openssl"
        )
    if os.getuid() != 0:
        return "a network namespace and the user xrootd need root"
    made = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True)
    return f"no network namespace: {made.stderr.strip()}" if made.returncode else ""


class House:
    """Started by `open`, ended by `close`; every process in it is ours, and ends with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.objects = folder / "origin" / "lab"  # what the origin has, as files
        self._processes: list[subprocess.Popen[str]] = []

    def open(self) -> None:
        for name in ("run", "ca", "origin/lab", "cache"):
            (self.folder / name).mkdir(parents=True)
        Authority(self.folder / "ca")
        self.folder.chmod(0o755)
        self._give(self.folder)
        holder = self._start("unshare", "--net", "sh", "-c", "ip link set lo up; echo; cat")
        assert holder.stdout is not None
        holder.stdout.readline()
        self._namespace = f"/proc/{holder.pid}/ns/net"
        self._xrootd("origin", 1094, ORIGIN, _ORIGIN)
        self._cache = self._xrootd("cache", 1095, CACHE, _CACHE)
        words = [str(self.folder / "ca"), str(ORIGIN), str(CACHE)]
        told = self._inside(sys.executable, "-m", "tests.xrootd.director", *words)
        assert told.stdout is not None
        self.federation = told.stdout.readline().strip()  # host:port
        for port in (ORIGIN, CACHE):
            self._wait_for(port)

    def close(self) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in reversed(self._processes):
            try:
                process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()

    @contextlib.contextmanager
    def slow_cache(self, rate: int) -> Iterator[int]:
        """The cache gives so many bytes a second for a while; its process's id, which may end."""
        self._end_cache()
        slowly = _SLOWLY.format(rate=rate)
        self._cache = self._xrootd("cache", 1095, CACHE, _CACHE + slowly)
        try:
            self._wait_for(CACHE)
            yield self._cache_id()
        finally:
            self._end_cache()
            self._cache = self._xrootd("cache", 1095, CACHE, _CACHE)
            self._wait_for(CACHE)

    def put(self, name: str, data: bytes) -> None:
        """Give the origin an object, past any protocol."""
        (self.objects / name).parent.mkdir(parents=True, exist_ok=True)
        (self.objects / name).write_bytes(data)
        self._give(self.objects)

    def url(self, name: str) -> str:
        return f"pelican://{self.federation}/lab/{name}"

    def run(
        self, *arguments: str, env: Mapping[str, str] | None = None, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a Python module's command line in the namespace, with the lab's authority trusted."""
        return subprocess.run(
            ["nsenter", f"--net={self._namespace}", sys.executable, *arguments],
            env={**self._environment(), **(env or {})},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def logs(self) -> str:
        """The end of what both servers wrote, for a failure's sake."""
        texts = [path.read_text(errors="replace") for path in (self.folder / "run").rglob("*.log")]
        return "\n".join(text[-2000:] for text in texts)

    def _end_cache(self) -> None:
        self._cache.terminate()
        self._cache.communicate(timeout=60)

    def _cache_id(self) -> int:
        """runuser waits for its child, which is XRootD."""
        pid = self._cache.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def _xrootd(self, name: str, port: int, http: int, more: str) -> subprocess.Popen[str]:
        config = self.folder / f"{name}.cfg"
        config.write_text(
            (_BOTH + more).format(folder=self.folder, name=name, port=port, http=http)
        )
        log = self.folder / "run" / f"{name}.log"
        who = ("runuser", "-u", _USER, "--")
        return self._inside(*who, "xrootd", "-c", str(config), "-l", str(log), "-n", name)

    def _inside(self, *command: str) -> subprocess.Popen[str]:
        return self._start("nsenter", f"--net={self._namespace}", *command)

    def _start(self, *command: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            env=self._environment(),
        )
        self._processes.append(process)
        return process

    def _environment(self) -> dict[str, str]:
        drop = ("_proxy", "bearer_token", "_condor_creds")
        kept = {name: v for name, v in os.environ.items() if not name.lower().endswith(drop)}
        bundle = self.folder / "ca" / "lab-ca.pem"
        path = os.pathsep.join([str(ROOT), kept.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        return {**kept, "SSL_CERT_FILE": str(bundle), "PYTHONPATH": path}

    def _give(self, top: Path) -> None:
        user = pwd.getpwnam(_USER)
        for path in [top, *top.rglob("*")]:
            os.chown(path, user.pw_uid, user.pw_gid)

    def _wait_for(self, port: int) -> None:
        knock = f"import socket; socket.create_connection(('127.0.0.1', {port}), 1)"
        deadline = time.monotonic() + 120
        while self.run("-I", "-S", "-c", knock).returncode:
            if time.monotonic() > deadline:
                raise RuntimeError(f"XRootD does not listen at {port}:\n{self.logs()}")
            time.sleep(0.2)
