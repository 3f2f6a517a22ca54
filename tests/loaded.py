"""`headway` commands without the time in which Python loads Headway, which is most of their time.

A process that has loaded Headway forks for each command. What it forks is a process of its own,
with its own folder, environment, streams and exit code, and does what `python -m headway` does. A
test of how a command starts, or of signals to it, starts Python anew instead.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pkgutil
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[1] / "src"
ENOUGH = 120.0  # seconds after which a command is taken to hang
_MOST = 1 << 17  # bytes of a request
_FREE = 3  # the first file descriptor after stdin, stdout and stderr
Done = subprocess.CompletedProcess[str]


def run_headway(
    words: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float = ENOUGH,
    errors: str = "strict",
) -> Done:
    """Run `headway …` to its end; one that hangs is killed, and what it said is shown.

    Args:
        words: what comes after `headway`.
        cwd: the folder that it runs in.
        env: its whole environment.
        timeout: seconds.
        errors: what becomes of bytes that are no text.
    """
    starting = {name for name in env if name.startswith(("PYTHON", "LD_"))} - {"PYTHONPATH"}
    if any(env[name] != os.environ.get(name) for name in starting):
        return start_headway(words, cwd=cwd, env=env, timeout=timeout, errors=errors)
    (umask,) = re.findall(r"^Umask:\s*(\d+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    request = {"words": [*words], "cwd": str(cwd), "env": dict(env), "umask": int(umask, 8)}
    pipes = [os.pipe() for _ in range(3)]
    try:
        passed = [theirs for _, theirs in pipes]
        socket.send_fds(_loader(), [json.dumps(request).encode()], passed)
    finally:
        for _, theirs in pipes:
            os.close(theirs)
    out, err, told = (ours for ours, _ in pipes)
    said = {out: b"", err: b"", told: b""}
    unfinished, end = set(said), time.monotonic() + timeout
    try:
        while unfinished and (left := end - time.monotonic()) > 0:
            for ready in select.select(list(unfinished), [], [], left)[0]:
                block = os.read(ready, 1 << 16)
                said[ready] += block
                if not block:
                    unfinished.remove(ready)
    finally:
        pid, *status = said[told].decode().split()
        if not status:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        for ours, _ in pipes:
            os.close(ours)
    texts = [
        said[stream].decode(errors=errors).replace("\r\n", "\n").replace("\r", "\n")
        for stream in (out, err)
    ]
    assert not unfinished, _hangs(words, timeout, *texts)
    return subprocess.CompletedProcess([*words], int(status[0]), *texts)


def start_headway(
    words: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float = ENOUGH,
    errors: str = "strict",
) -> Done:
    """The same in a Python of its own, a child of this process."""
    with subprocess.Popen(
        [sys.executable, "-m", "headway", *words],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors=errors,
    ) as process:
        return finished(process, timeout)


def finished(process: subprocess.Popen[str], timeout: float = ENOUGH) -> Done:
    """A command at its end; one that hangs is killed, and what it said is shown."""
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(_hangs(process.args, timeout, *process.communicate())) from None
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def _hangs(words: object, timeout: float, out: str, err: str) -> str:
    return f"{words} did not end in {timeout:g} s\n{out}\n{err}"


@functools.cache
def _loader() -> socket.socket:
    """The way to the process that has loaded Headway; it ends when this process does."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=theirs.fileno(),
            cwd="/",
            env={**os.environ, "PYTHONPATH": str(SOURCE), "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,
        )

    def close() -> None:
        ours.close()
        process.wait()

    atexit.register(close)
    return ours


# -- the other side


def serve() -> tuple[dict[str, Any], list[int]]:
    """Fork for each request; returns in the process that is to become the command."""
    requests = socket.socket(fileno=os.dup(0))
    running: dict[int, tuple[int, int]] = {}  # by a descriptor that tells when it has ended
    while True:
        ready, _, _ = select.select([requests.fileno(), *running], [], [])
        for descriptor in ready:
            if descriptor in running:
                pid, told = running.pop(descriptor)
                _, status = os.waitpid(pid, 0)
                with contextlib.suppress(BrokenPipeError):  # nobody waits for it any more
                    os.write(told, b"%d" % os.waitstatus_to_exitcode(status))
                os.close(descriptor)
                os.close(told)
                continue
            data, files, *_ = socket.recv_fds(requests, _MOST, 3, socket.MSG_CMSG_CLOEXEC)
            if not data:
                sys.exit()
            pid = os.fork()
            if pid == 0:
                return json.loads(data), files
            os.close(files[0])
            os.close(files[1])
            os.write(files[2], b"%d\n" % pid)
            running[os.pidfd_open(pid)] = (pid, files[2])


def become(request: dict[str, Any], files: list[int]) -> None:
    """What the system and Python do before the first line of a program."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, file in enumerate([nothing, *files[:2]]):
        os.dup2(file, number)
    os.closerange(_FREE, os.sysconf("SC_OPEN_MAX"))
    os.umask(request["umask"])
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    sys.argv[1:] = request["words"]
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(  # noqa: SIM115
        2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False
    )


if __name__ == "__main__":
    del sys.path[0]  # tests
    from headway import cli, report

    for package in (cli, report):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    gc.freeze()  # so that a command's own rubbish is all there is to look through
    become(*serve())
    code = cli.main()
    sys.stdout.flush()
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    os._exit(code)  # without taking apart, module by module, what was loaded
