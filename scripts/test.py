"""Every check and test, in the order in which they are quickest to fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_SOME_FAILED = 1  # pytest's exit code, as opposed to a run that broke off


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
    workers = str(os.cpu_count() or 1)
    beside = tested("--ignore", "tests/pool", workers=workers)
    return tested("tests/pool") or beside  # the pool is one: its tests run one after the other


def tested(*chosen: str, workers: str = "0") -> int:
    """Some tests kill daemons, or count seconds, at moments that a busy machine shifts: what failed
    gets a second try, alone and in plain sight."""
    code = step("pytest", *chosen, "-n", workers, "--durations", "10")
    if code != _SOME_FAILED:
        return code
    print("\n== second try of what failed", flush=True)
    return step("pytest", *chosen, "--last-failed")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
