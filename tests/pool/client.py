"""A Python with the checkout's headway, for a user who may read neither the checkout nor /root.

The libraries that headway depends on are installed once into the pool's cache. Each pool then gets
a virtual environment of its own, made within a second: links to the system's interpreter, a path
file that names the libraries, and a copy of the sources as they are now. It needs no PYTHONPATH, so
programs that headway starts through `sys.executable` find everything too.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


def make_client(folder: Path, cache: Path) -> None:
    """Make the virtual environment `folder`, with its interpreter in `bin/python`."""
    project, base = _project(), system_python()
    libraries = _install_libraries(cache, base, project["dependencies"])
    _run(base, "-m", "venv", "--without-pip", str(folder))
    site = next(folder.glob("lib/python3*/site-packages"))
    (site / "libraries.pth").write_text(f"{libraries}\n")
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", site, dirs_exist_ok=True, ignore=ignore)
    _describe(site, folder / "bin", project)
    # hwuser cannot write here, so without this every start would compile again
    _run(str(folder / "bin/python"), "-m", "compileall", "-q", str(site / "headway"))
    _make_readable(folder)


def install_extra(extra: str, cache: Path) -> Path:
    """Install what an extra of the project needs, for jobs that run the system's Python."""
    return _install_libraries(cache, system_python(), _project()["optional-dependencies"][extra])


def system_python() -> str:
    base = shutil.which("python3", path=SYSTEM_PATH)
    if base is None:
        raise FileNotFoundError(f"no python3 in {SYSTEM_PATH}")
    return base


def _project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def _install_libraries(cache: Path, python: str, dependencies: list[str]) -> Path:
    """Install the dependencies for that interpreter, unless the cache has just these."""
    version = _run(python, "-c", "import sys; print(sys.version)")
    key = hashlib.sha256(json.dumps([version, sorted(dependencies)]).encode()).hexdigest()[:12]
    folder = cache / f"client-{key}"
    with (cache / "client.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            new = cache / "client-new"
            shutil.rmtree(new, ignore_errors=True)
            # a virtual environment made by uv has no pip
            runner = sys.executable if importlib.util.find_spec("pip") else python
            pip = [runner, "-m", "pip", "--python", python, "--quiet", "install"]
            _run(*pip, "--root-user-action=ignore", "--target", str(new), *dependencies)
            _make_readable(new)
            new.rename(folder)
    return folder


def _describe(site: Path, bin: Path, project: dict[str, Any]) -> None:
    """Write what an installer would have: the package's metadata and its commands."""
    name, version = project["name"], project["version"]
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(metadata)
    for command, target in project.get("scripts", {}).items():
        module, function = target.split(":")
        code = f"import sys\nfrom {module} import {function}\nsys.exit({function}())\n"
        (bin / command).write_text(f"#!{bin}/python\n{code}")
        (bin / command).chmod(0o755)


def _make_readable(folder: Path) -> None:
    """Let everybody read the folder, whatever the umask was when it was made."""
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))


def _run(*argv: str) -> str:
    """Run a program and return what it printed; its last words are the error's text."""
    # what the test session's own interpreter was told must not reach another one
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode != 0:
        raise OSError((done.stderr.strip() or f"{argv[0]} failed").splitlines()[-1])
    return done.stdout
