"""Every check and test, in the order in which they are quickest to fail."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_SOME_FAILED = 1  # pytest's exit code, as opposed to a run that broke off
# each runs beside the others: those with a pool of their own mostly wait
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
    with contextlib.ExitStack() as stack:
        waiting = {}
        for name in _POOLS:
            told = stack.enter_context(tempfile.TemporaryFile())
            command = _pytest(name)
            waiting[name] = (subprocess.Popen(command, cwd=ROOT, stdout=told, stderr=told), told)
        print(f"\n== pytest, and at the same time {' and '.join(waiting)}", flush=True)
        # where two want a core, those that count seconds on a pool go first
        rest = ["nice", *_pytest("rest", "-n", str(os.cpu_count() or 1))]
        codes = {"rest": subprocess.run(rest, cwd=ROOT).returncode}
        for name, (process, told) in waiting.items():
            codes[name] = process.wait()
            print(f"\n== pytest {' '.join(_POOLS[name])}", flush=True)
            told.seek(0)
            shutil.copyfileobj(told, sys.stdout.buffer)
            sys.stdout.flush()
    return max(_settled(name, code) for name, code in codes.items())


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
