"""The tools that benchmarks of transfers compare: how each is called, and whether it is here.

`HEADWAY_PELICANFS_PYTHON` names a Python that has pelicanfs, when this one has not. HTCondor's own
curl_plugin comes from the tests' pool (`tests/pool/pool.sh build`), and brings its own OpenSSL,
which may be years younger than the system's and decrypt several times as fast. `headway+` is
Headway with that OpenSSL, and nothing else changed. `headway sha256` and `headway manifest` prove
what they bring, by a checksum of the whole and chunk by chunk.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.lab import Authority  # noqa: E402

_HEADWAY = """
import sys
from headway.node.errors import NodeError, Stopped, TransferError
from headway.node.transfer import fetch
path, size, checksum, manifest, connections, *urls = sys.argv[1:]
options = {"size": int(size) if size else None, "checksum": checksum or None}
options["absence_is_final"] = True  # as `headway fetch` has it: nobody waits in a slot
if manifest:
    from headway.node.transfer.manifest import read_manifest
    options["manifest"] = read_manifest(open(manifest, "rb").read())
if connections:
    options |= {"connections": int(connections), "per_source": int(connections)}
try:
    fetch(urls, path, **options)
except (NodeError, Stopped, TransferError) as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""

_PELICANFS = """
import sys
from pelicanfs.core import PelicanFileSystem
host, path, target = sys.argv[1:]
PelicanFileSystem(host).get_file(path, target)
"""
_PELICANFS_VERSION = "from importlib.metadata import version; print(version('pelicanfs'))"


@dataclass(frozen=True)
class Task:
    """One file to fetch."""

    urls: list[str]
    path: Path
    size: int | None  # None: it is not declared
    sha256: str = ""  # hex, for tools that can check it
    manifest: Path | None = None  # that `headway publish` wrote
    connections: int | None = None  # None: as the tool does by itself
    federation: str = ""  # pelican://host:port of the director
    name: str = ""  # the object's path in the federation
    bundle: Path | None = None  # of the authority that signed the servers' certificates
    retry: bool = False  # for tools that do not by themselves


@dataclass(frozen=True)
class Tool:
    """How to call one tool."""

    name: str
    command: Callable[[Task], list[str]]
    missing: Callable[[], str | None]  # why it cannot be used here
    version: Callable[[], str]
    environment: dict[str, str] = field(default_factory=dict)
    most_connections: int = 1
    mirrors: bool = False  # takes several URLs for one object
    federated: bool = False  # wants a director
    tls_only: bool = False  # differs from another tool over https only
    proves: str = ""  # "sha256" or "manifest": it differs from another tool in proving the object


def _program(name: str) -> Callable[[], str | None]:
    return lambda: None if shutil.which(name) else f"{name} is not installed"


def _says(*command: str) -> Callable[[], str]:
    """The first line that a program prints of its version."""

    def version() -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return (done.stdout.splitlines() or ["unknown"])[0].strip()

    return version


def _headway_version() -> str:
    from headway import __version__

    return f"{__version__} {_says('git', '-C', str(ROOT), 'describe', '--always', '--dirty')()}"


def _curl(task: Task) -> list[str]:
    retry = ["--retry", "10", "--retry-all-errors", "-C", "-"] if task.retry else []
    return ["curl", "-sS", "--fail", "-L", *retry, "-o", str(task.path), task.urls[0]]


def _wget(task: Task) -> list[str]:
    trust = [f"--ca-certificate={task.bundle}"] if task.bundle is not None else []
    return ["wget", "-q", "-c", *trust, "-O", str(task.path), task.urls[0]]


def _aria2c(task: Task) -> list[str]:
    count = str(task.connections or 4)
    command = ["aria2c", "-q", "-x", count, "-s", count, "-k", "1M", "--allow-overwrite=true"]
    command += ["--file-allocation=none", "--max-tries=10", "--retry-wait=1"]
    if task.sha256:
        command += [f"--checksum=sha-256={task.sha256}"]
    if task.bundle is not None:
        command += [f"--ca-certificate={task.bundle}"]
    return [*command, "-d", str(task.path.parent), "-o", task.path.name, *task.urls]


def _pelicanfs(task: Task) -> list[str]:
    return [_pelicanfs_python(), "-c", _PELICANFS, task.federation, task.name, str(task.path)]


def _pelicanfs_python() -> str:
    return os.environ.get("HEADWAY_PELICANFS_PYTHON", sys.executable)


def _pelicanfs_missing() -> str | None:
    if "HEADWAY_PELICANFS_PYTHON" in os.environ:
        done = subprocess.run([_pelicanfs_python(), "-c", "import pelicanfs"], capture_output=True)
        return "HEADWAY_PELICANFS_PYTHON has no pelicanfs" if done.returncode else None
    found = importlib.util.find_spec("pelicanfs")
    return None if found else "pelicanfs is not installed, and HEADWAY_PELICANFS_PYTHON not set"


def _plugin_path() -> Path | None:
    shared = "/var/cache" if os.geteuid() == 0 else os.path.expanduser("~/.cache")
    cache = os.environ.get("HEADWAY_POOL_CACHE", f"{shared}/headway/pool")
    found = Path(cache, "runtime", "usr", "libexec", "condor", "curl_plugin")
    return found if found.is_file() else None


def _plugin(task: Task) -> list[str]:
    asked, told = task.path.with_suffix(".in"), task.path.with_suffix(".out")
    asked.write_text(f'[ Url = "{task.urls[0]}"; LocalFileName = "{task.path}" ]\n')
    return [str(_plugin_path()), "-infile", str(asked), "-outfile", str(told)]


def _headway(task: Task) -> list[str]:
    checksum = f"sha256:{task.sha256}" if task.sha256 else ""
    size = "" if task.size is None else str(task.size)
    wish = [str(task.path), size, checksum, str(task.manifest or "")]
    return [sys.executable, "-c", _HEADWAY, *wish, str(task.connections or ""), *task.urls]


def _headway_plus(task: Task) -> list[str]:
    return [*_with_libraries(), *_headway(task)[1:]]


def _headway_plus_missing() -> str | None:
    if _plugin_path() is None:
        return "tests/pool/pool.sh build brings the OpenSSL of HTCondor's plugin"
    done = subprocess.run([*_with_libraries(), "-c", "import ssl"], capture_output=True)
    return "this Python does not run with the pool's libraries" if done.returncode else None


def _with_libraries() -> list[str]:
    """This Python, with the libraries that curl_plugin uses in place of the system's."""
    plugin = _plugin_path()
    assert plugin is not None
    folder = plugin.parents[2] / "lib" / f"{os.uname().machine}-linux-gnu"
    loader = next(iter(sorted(folder.glob("ld-linux*.so.*"))), folder / "none")
    path = f"{folder}:{sysconfig.get_config_var('LIBDIR')}"
    return [str(loader), "--library-path", path, os.path.realpath(sys.executable)]


TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            "curl_plugin",
            _plugin,
            lambda: None if _plugin_path() else "tests/pool/pool.sh build brings HTCondor's plugin",
            _says(str(ROOT / "tests/pool/pool.sh"), "version"),
            {"CONDOR_CONFIG": "ONLY_ENV"},
        ),
        Tool("curl", _curl, _program("curl"), _says("curl", "--version")),
        Tool("wget", _wget, _program("wget"), _says("wget", "--version")),
        Tool(
            "aria2c",
            _aria2c,
            _program("aria2c"),
            _says("aria2c", "--version"),
            most_connections=16,
            mirrors=True,
        ),
        Tool(
            "pelicanfs",
            _pelicanfs,
            _pelicanfs_missing,
            lambda: _says(_pelicanfs_python(), "-c", _PELICANFS_VERSION)(),
            federated=True,
        ),
        Tool(
            "headway",
            _headway,
            lambda: None,
            _headway_version,
            {"PYTHONPATH": str(ROOT / "src")},
            most_connections=16,
            mirrors=True,
        ),
        Tool(
            "headway+",
            _headway_plus,
            _headway_plus_missing,
            _headway_version,
            {"PYTHONPATH": str(ROOT / "src")},
            most_connections=16,
            tls_only=True,
        ),
        *(
            Tool(
                f"headway {proof}",
                _headway,
                lambda: None,
                _headway_version,
                {"PYTHONPATH": str(ROOT / "src")},
                most_connections=16,
                proves=proof,
            )
            for proof in ("sha256", "manifest")
        ),
    )
}


def environment(tool: Tool, authority: Authority) -> dict[str, str]:
    """The environment of a tool's process: no proxies, and the lab's authority for TLS.

    What is written in Python keeps its byte code, as an installed tool has it.
    """
    kept = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    bundles = ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE")
    kept |= dict.fromkeys(bundles, str(authority.bundle))
    kept |= {"X509_CERT_DIR": str(authority.folder)}  # curl_plugin's
    return {**kept, **tool.environment}
