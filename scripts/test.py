"""Every check and test, in the order in which they are quickest to fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_ENOUGH = 8 << 30  # bytes of memory that files may take
_SOME_FAILED = 1  # pytest's exit code, as opposed to a run that broke off
# one after the other, beside the rest: two pools at a time are too much for two cores
_POOLS = {"pool": ["tests/pool"], "study": ["tests/study"]}
_GROUPS = {**_POOLS, "rest": ["--ignore", "tests/pool", "--ignore", "tests/study"]}


def step(*arguments: str) -> int:
    print(f"\n== {' '.join(arguments)}", flush=True)
    return subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT).returncode


def main(arguments: list[str]) -> int:
    if arguments:
        return step("pytest", *arguments)
    checks = [
        ["ruff", "format", "--check", "."],
        ["ruff", "check", "."],
        ["mypy"],
    ]
    for check in checks:
        if code := step(*check):
            return code
    codes: dict[str, int] = {}
    with tempfile.TemporaryFile() as told, _memory() as memory:

        def pools() -> None:
            for name in _POOLS:
                codes[name] = subprocess.run(
                    _pytest(name), cwd=ROOT, stdout=told, stderr=told
                ).returncode

        beside = threading.Thread(target=pools)
        beside.start()
        print(f"\n== pytest, and at the same time {' and '.join(_POOLS)}", flush=True)
        # these mostly wait, too; where two want a core, those that count seconds on a pool go first
        workers = 1 + (os.cpu_count() or 1)
        rest = ["nice", *_pytest("rest", "-n", str(workers), *memory)]
        codes["rest"] = subprocess.run(rest, cwd=ROOT).returncode
        beside.join()
        print(f"\n== pytest of {' and '.join(_POOLS)}", flush=True)
        told.seek(0)
        shutil.copyfileobj(told, sys.stdout.buffer)
        sys.stdout.flush()
    return max(_settled(name, code) for name, code in codes.items())


@contextmanager
def _memory() -> Iterator[list[str]]:
    """Options by which tests write to memory: waiting for a disk is a good part of their time.

    None where TMPDIR is set, or memory is short, or programs may not be run from there.
    """
    shared = Path("/dev/shm")  # noqa: S108 - in a folder of its own
    if "TMPDIR" in os.environ or not os.access(shared, os.W_OK):
        yield []
        return
    with tempfile.TemporaryDirectory(prefix="headway-", dir=shared) as folder:
        program = Path(folder) / "program"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o700)
        try:
            subprocess.run([program], check=True)
            enough = shutil.disk_usage(folder).free > _ENOUGH
        except OSError:
            enough = False
        yield ["--basetemp", f"{folder}/tests"] if enough else []


def _settled(name: str, code: int) -> int:
    """Some tests kill daemons, or count seconds, at moments that a busy machine shifts: what failed
    gets a second try, alone and in plain sight."""
    if code != _SOME_FAILED:
        return code
    print("\n== second try of what failed", flush=True)
    return subprocess.run(_pytest(name, "--last-failed"), cwd=ROOT).returncode


def _pytest(name: str, *more: str) -> list[str]:
    """Each remembers for itself what failed."""
    cache = f"cache_dir=.pytest_cache/{name}"
    return [sys.executable, "-m", "pytest", *_GROUPS[name], *more, "-o", cache, "--durations", "10"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
