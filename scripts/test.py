"""Every check and test, in the order in which they are quickest to fail.

scripts/test.py                  every check, every test
scripts/test.py --cov [...]      the tests without a pool, or those named, and what of src they miss
scripts/test.py tests/spec ...   pytest with these words
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHECKS = [
    ["-m", "ruff", "format", "--check", "."],
    ["-m", "ruff", "check", "."],
    ["-c", "import importlinter.cli as cli; cli.lint_imports_command()", "--no-logo", "--no-cache"],
    ["-m", "vulture"],
]
_ENOUGH = 8 << 30  # bytes of memory that files may take
# One after the other: two pools at a time are too much for two cores, and the examples share data
# and a torch that has been loaded.
_ONE_BY_ONE = [["-m", "pool", "tests/pool"], ["-m", "pool", "tests/study"], ["tests/examples"]]
_WITHOUT_POOLS = ["-m", "not pool"]


def main(arguments: list[str]) -> int:
    # Tests start hundreds of processes, and each would compile Headway again. It is compiled before
    # they begin, because some of them may write only a little: Python would keep half a module.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # Several processes with threads on every core each would mostly wait for one another.
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    subprocess.run([sys.executable, "-m", "compileall", "-q", "src", "benchmarks"], cwd=ROOT)
    if arguments[:1] == ["--cov"]:
        return coverage(arguments[1:] or _WITHOUT_POOLS)
    if arguments:
        return step("-m", "pytest", *arguments)
    # This compiles the tests as pytest wants them, once and not in each of its processes.
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-qq"]
    collects = subprocess.Popen(collect, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        for check in CHECKS:
            if code := step(*check):
                return code
    finally:
        collects.wait()
    return tests()


def step(*arguments: str) -> int:
    print(f"\n== {' '.join(arguments)}", flush=True)
    return subprocess.run([sys.executable, *arguments], cwd=ROOT).returncode


def tests() -> int:
    """All of them, and mypy, at the same time; the worst exit code."""
    folders = [words[-1] for words in _ONE_BY_ONE]
    one_by_one = [_pytest(Path(words[-1]).name, *words) for words in _ONE_BY_ONE]
    one_by_one.append([sys.executable, "-m", "mypy"])
    with _memory() as memory, ThreadPoolExecutor(1) as beside:
        others = beside.submit(_quietly, one_by_one)
        print(f"\n== pytest, and beside it {', '.join(folders)}, mypy", flush=True)
        rest = _pytest("rest", *_WITHOUT_POOLS, *_workers(), *memory, "--ignore", "tests/examples")
        ran = [abs(subprocess.run(rest, cwd=ROOT).returncode)]
        for words, code, told in others.result():
            print(f"\n== {' '.join(words)}\n{told}", flush=True)
            ran.append(code)
    return max(ran)


def _quietly(commands: list[list[str]]) -> list[tuple[list[str], int, str]]:
    """Run one after the other; returns each with its exit code and what it said."""
    ran = []
    for words in commands:
        done = subprocess.run(
            words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        ran.append((words, abs(done.returncode), done.stdout))
    return ran


def coverage(arguments: list[str]) -> int:
    """What the tests run of src, in processes that they start, too."""
    step("-m", "coverage", "erase")
    with _memory() as memory:
        code = step("-m", "coverage", "run", "-m", "pytest", *_workers(), *memory, *arguments)
    step("-m", "coverage", "combine", "--quiet")
    step("-m", "coverage", "report")
    return code


def _workers() -> list[str]:
    return ["-n", str(2 + (os.cpu_count() or 1)), "--dist", "worksteal"]


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


def _pytest(name: str, *more: str) -> list[str]:
    """Each remembers for itself what failed."""
    cache = f"cache_dir=.pytest_cache/{name}"
    return [sys.executable, "-m", "pytest", *more, "-o", cache, "--durations", "25"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
