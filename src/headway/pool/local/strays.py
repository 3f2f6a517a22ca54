"""Strays: processes that an attempt has left behind, however well they hid.

On Linux the supervisor becomes the parent of every orphan below it, so that one look at its own
children tells whether there is a stray at all. Whose it is, its environment or its folder tells;
one that shows neither ends with the run. After a supervisor's own death only those marks are left.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

MARK = "HEADWAY_SCRATCH"
_SET_CHILD_SUBREAPER = 36
_TRIES = 200  # looks, 10 ms apart, until what was killed is gone


class Strays:
    """Finds and ends what outlives an attempt; `agents` are the children that are meant to live."""

    def __init__(self) -> None:
        self._adopting = False

    def adopt(self) -> None:
        """From now on this process is the parent of all orphans below it, where the system can."""
        self._adopting = _become_subreaper() and _children() is not None

    def reap(self, agents: Collection[int]) -> None:
        """Take the status of adopted processes that have ended, which nobody else waits for."""
        while self._adopting:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None or ended.si_pid in agents:
                return  # an agent's end is told by its attempt; then the others' turn comes
            with contextlib.suppress(ChildProcessError):
                os.waitpid(ended.si_pid, os.WNOHANG)

    def end_of(self, scratch: Path, agents: Collection[int]) -> None:
        """Kill what an attempt whose agent has ended left behind."""
        if not self._adopting:
            kill_marked(scratch)
            return
        for _ in range(_TRIES):
            self.reap(agents)
            found = [pid for pid in self._adopted(agents) if _is_of(pid, scratch)]
            if not found:
                return
            for pid in found:
                _kill(pid)  # its own children are adopted then, and looked at in the next round
            time.sleep(0.01)

    def end_all(self) -> None:
        """Kill every adopted process: no attempt runs any more."""
        for _ in range(_TRIES if self._adopting else 0):
            self.reap(())
            found = self._adopted(())
            if not found:
                return
            for pid in found:
                _kill(pid)
            time.sleep(0.01)

    def _adopted(self, agents: Collection[int]) -> set[int]:
        return (_children() or set()).difference(agents)


@contextlib.contextmanager
def mourned(folder: Path, grace: float) -> Iterator[None]:
    """Should this process be killed meanwhile, end what belongs below `folder`, with its grace.

    An agent notices by itself that its pool is gone, but not from within a container.
    """
    watched, held = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            os.closerange(3, watched)
            os.closerange(watched + 1, 4096)
            os.read(watched, 1)  # nobody writes: this returns when the other end is closed
            for found in marked(folder):
                _kill(found, signal.SIGTERM)
            deadline = time.monotonic() + grace
            while marked(folder) and time.monotonic() < deadline:
                time.sleep(0.1)
            kill_marked(folder)
        finally:
            os._exit(0)
    os.close(watched)
    try:
        yield
    finally:
        _kill(pid)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        os.close(held)


def kill_marked(folder: Path) -> None:
    """Kill every process of this user whose environment says that it belongs below `folder`."""
    for _ in range(_TRIES):
        found = marked(folder)
        for pid in found:
            _kill(pid)
        if not found:
            return
        time.sleep(0.01)


def marked(folder: Path) -> list[int]:
    """The processes of this user whose environment says that they belong below `folder`."""
    return list(_own_processes(lambda pid: _is_marked(pid, folder)))


def _is_of(pid: int, scratch: Path) -> bool:
    """Only for descendants: other people's shells may stand in that folder too."""
    with contextlib.suppress(OSError):
        if _is_marked(pid, scratch):
            return True
        place = os.readlink(f"/proc/{pid}/cwd")
        return place == str(scratch) or place.startswith(f"{scratch}/")
    return False


def _is_marked(pid: int, folder: Path) -> bool:
    mark = b"\0" + os.fsencode(f"{MARK}={folder}")
    with open(f"/proc/{pid}/environ", "rb") as file:
        environment = b"\0" + file.read() + b"\0"
    at = environment.find(mark)
    return at >= 0 and environment[at + len(mark)] in b"\0/"


def _own_processes(wanted: Callable[[int], bool]) -> Iterator[int]:
    try:
        names = os.listdir("/proc")
    except OSError:
        return  # no /proc on this system: the process group's end has to do
    user, self = os.getuid(), os.getpid()
    for name in names:
        if not name.isdigit() or int(name) == self:
            continue
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid == user and wanted(int(name)):
                yield int(name)


def _kill(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _children() -> set[int] | None:
    """The children of this process; None where the system does not tell."""
    found: set[int] = set()
    try:
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/children") as file:
                found.update(map(int, file.read().split()))
    except OSError:
        return None
    return found


def _become_subreaper() -> bool:
    if sys.platform != "linux":
        return False
    import ctypes

    try:
        return bool(ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False
