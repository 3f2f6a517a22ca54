"""Programs with torch without the seconds in which Python loads torch, which is most of their time.

A process that has loaded torch forks for each program. What it forks is a process of its own, with
its own folder, environment, streams and exit code, and does what `python PROGRAM` does: Headway is
loaded anew, from where its environment says.

    torch_loaded.command("train.py")           # for a plan, or for subprocess
    program = torch_loaded.start(["train.py"], cwd=folder, output=file)
    program.kill(), program.wait()

A command that is killed takes its program with it, a moment later.
"""

from __future__ import annotations

import array
import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

_MOST = 1 << 17  # bytes of a request
_FREE = 3  # the first file descriptor after stdin, stdout and stderr


class TorchLoaded:
    """The process that has loaded torch; it ends when this process does."""

    def __init__(self) -> None:
        self.name = f"headway-torch-{os.getpid()}-{time.monotonic_ns()}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        with _listener(self.name) as listener:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(listener.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=[listener.fileno()],
                cwd="/",
                env={**kept, "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def command(self, *words: str) -> list[str]:
        """What does as `python PROGRAM …` does."""
        return [sys.executable, "-I", "-S", __file__, self.name, *words]

    def start(
        self, words: Sequence[str], *, cwd: Path, output: int, errors: int | None = None
    ) -> Program:
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            streams = [nothing, output, output if errors is None else errors]
            return Program(self.name, words, str(cwd), dict(os.environ), streams)
        finally:
            os.close(nothing)


class Program:
    """A program that was forked."""

    def __init__(
        self, name: str, words: Sequence[str], cwd: str, env: dict[str, str], streams: list[int]
    ) -> None:
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.connect(f"\0{name}")
        request = json.dumps({"words": [*words], "cwd": cwd, "env": env}).encode()
        rights = socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams)
        self._connection.sendmsg([request], [rights])
        self.pid = int(self._hear())
        self.returncode: int | None = None

    def _hear(self) -> bytes:
        said = self._connection.recv(_MOST)
        if not said:
            raise ChildProcessError("the process that had loaded torch has ended")
        return said

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._connection.settimeout(timeout)
            self.returncode = int(self._hear())
            self._connection.close()
        return self.returncode


def _listener(name: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"\0{name}")  # of no folder, whose name may be too long
    listener.listen(64)
    return listener


# -- the other side


class _Forks:
    """Its programs by a descriptor that tells when they have ended, and by their connection."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._running: dict[int, tuple[int, socket.socket]] = {}

    def serve(self) -> tuple[dict[str, Any], list[int]]:
        """Fork for each request; returns in the process that is to become the program."""
        while True:
            asking = {connection.fileno(): end for end, (_, connection) in self._running.items()}
            watched = [0, self._listener.fileno(), *self._running, *asking]
            ready, _, _ = select.select(watched, [], [])
            for descriptor in ready:
                if descriptor == 0:
                    self._kill_all()
                    sys.exit()
                elif descriptor in self._running:
                    self._ended(descriptor)
                elif asking.get(descriptor) in self._running:  # nobody waits for it any more
                    signal.pidfd_send_signal(asking[descriptor], signal.SIGKILL)
                    self._ended(asking[descriptor])
                elif descriptor == self._listener.fileno():
                    connection, _ = self._listener.accept()
                    data, files, *_ = socket.recv_fds(connection, _MOST, 3)
                    pid = os.fork() if data else -1
                    if pid == 0:
                        return json.loads(data), files
                    for file in files:
                        os.close(file)
                    if pid > 0:
                        connection.send(b"%d" % pid)
                        self._running[os.pidfd_open(pid)] = pid, connection

    def _ended(self, descriptor: int) -> None:
        pid, connection = self._running.pop(descriptor)
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(OSError):  # its command was killed
            connection.send(b"%d" % os.waitstatus_to_exitcode(status))
        connection.close()
        os.close(descriptor)

    def _kill_all(self) -> None:
        for pid, _ in self._running.values():
            os.kill(pid, signal.SIGKILL)


def become(request: dict[str, Any], files: list[int]) -> None:
    """What the system and Python do before the first line of a program."""
    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(_FREE, os.sysconf("SC_OPEN_MAX"))
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    sys.argv = request["words"]
    more = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [os.path.dirname(os.path.abspath(sys.argv[0])), *filter(None, more)]
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(  # noqa: SIM115
        2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False
    )


def main() -> int:
    if not sys.argv[1].isdecimal():
        return Program(sys.argv[1], sys.argv[2:], os.getcwd(), dict(os.environ), [0, 1, 2]).wait()
    del sys.path[0]  # this folder
    import runpy

    import torch._dynamo  # an optimizer, and the ranks of a training, load it
    import torch.distributed
    import torch.utils.data  # noqa: F401

    gc.freeze()  # so that a program's own rubbish is all there is to look through
    become(*_Forks(socket.socket(fileno=int(sys.argv[1]))).serve())
    runpy.run_path(sys.argv[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
