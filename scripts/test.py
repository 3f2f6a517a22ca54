"""Every check and test, in the order in which they are quickest to fail."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


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
    failed = step("pytest", "-n", workers, "--ignore", "tests/pool", "--durations", "10")
    # The pool is one; its tests run one after the other. Some kill daemons at moments that a busy
    # machine shifts: what failed gets a second try, in plain sight.
    if step("pytest", "tests/pool", "--durations", "10"):
        print("\n== second try of the pool tests that failed", flush=True)
        return step("pytest", "tests/pool", "--last-failed") or failed
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
