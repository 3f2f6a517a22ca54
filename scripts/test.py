"""Every check and test, in the order in which they are quickest to fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_SOME_FAILED = 1  # pytest's exit code, as opposed to a run that broke off
_BESIDE = ("--ignore", "tests/pool")
_POOL = ("tests/pool",)


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
    with tempfile.TemporaryFile() as told:
        # The pool's tests mostly wait, and go before the others where both want a core.
        pool = subprocess.Popen(_pytest(*_POOL), cwd=ROOT, stdout=told, stderr=told)
        workers = str(os.cpu_count() or 1)
        beside = _pytest(*_BESIDE, "-n", workers)
        print(f"\n== pytest {' '.join(_BESIDE)}, and at the same time tests/pool", flush=True)
        codes = [subprocess.run(["nice", *beside], cwd=ROOT).returncode, pool.wait()]
        print("\n== pytest tests/pool", flush=True)
        told.seek(0)
        shutil.copyfileobj(told, sys.stdout.buffer)
        sys.stdout.flush()
    return max(_settled(code, chosen) for code, chosen in zip(codes, (_BESIDE, _POOL), strict=True))


def _settled(code: int, chosen: tuple[str, ...]) -> int:
    """Some tests kill daemons, or count seconds, at moments that a busy machine shifts: what failed
    gets a second try, alone and in plain sight."""
    if code != _SOME_FAILED:
        return code
    print("\n== second try of what failed", flush=True)
    return subprocess.run([*_pytest(*chosen), "--last-failed"], cwd=ROOT).returncode


def _pytest(*chosen: str) -> list[str]:
    """Each of the two remembers for itself what failed."""
    cache = f"cache_dir=.pytest_cache/{'pool' if chosen[0] == _POOL[0] else 'beside'}"
    return [sys.executable, "-m", "pytest", *chosen, "-o", cache, "--durations", "10"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
