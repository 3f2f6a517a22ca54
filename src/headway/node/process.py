"""The user's command: a process group that is started, signalled and ended as a whole."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import sys
import time

import headway.node
from headway.node.errors import Stopped

TYPE_CHECKING = False
if TYPE_CHECKING:
    import resource
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any, TypeVar

    T = TypeVar("T")


# Children of a training, such as a data loader's workers, end when the training ends them.
#
# A pool's SIGTERM reaches the whole process group. The training needs another batch or two before
# it has saved its state, and a loader whose workers are gone would raise an error meanwhile.


def ignore_foreign_sigterm(*_: object) -> None:
    """From now on this process ignores SIGTERM, unless it comes from its parent."""
    import threading  # start-up is slot time: a plain attempt needs no threads

    # blocked, it waits for the thread below, which unlike a handler learns who sent it
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_listen, args=(os.getppid(),), daemon=True).start()


def _listen(parent: int) -> None:
    while True:
        sender = signal.sigwaitinfo({signal.SIGTERM}).si_pid
        if sender == parent or os.getppid() != parent:
            os._exit(0)  # as torch's own workers do: to a loader anything else is a failure


# The watch: notices that the attempt must end, whatever the agent is doing.
#
# A signal handler only sets a flag and wakes the main thread by a pipe, so nothing is interrupted
# half-way, and no signal is lost between looking and waiting. Work that may block runs in a thread
# of its own, which the main thread abandons when the attempt must end.

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
EVICTED = "evicted"
ORPHANED = "orphaned"
_TICK = 1.0  # seconds between two looks at the parent
_WORDS = {
    EVICTED: "the pool asked the attempt to end (evicted, held or removed)",
    ORPHANED: "the pool that started the attempt is gone",
}


class Watch:
    """Catches the signals from its creation on; `cause` is empty while the attempt may go on."""

    def __init__(self, parent: int | None = None) -> None:
        self.cause = ""
        self._parent = parent
        self._first_parent = os.getppid()
        self._next_look = 0.0
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in STOP_SIGNALS:
            # started under nohup: a hangup is not meant for us
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._stop)
        signal.signal(signal.SIGCHLD, _nothing)

    def _stop(self, _number: int, _frame: object) -> None:
        self.cause = self.cause or EVICTED

    def words(self) -> str:
        """Why the attempt must end."""
        return _WORDS.get(self.cause, "")

    def must_stop(self) -> bool:
        """Whether the attempt must end; for those who ask from another thread."""
        return self.cause != ""

    def check(self) -> None:
        """Raise Stopped when the attempt must end."""
        self._look()
        if self.cause:
            raise Stopped(self.words())

    def wait(self, seconds: float | None) -> None:
        """Sleep until a signal arrives, a child ends, work is done, or the time is up."""
        if self._parent is not None:
            seconds = _TICK if seconds is None else min(seconds, _TICK)
        timeout = None if seconds is None else max(0.0, seconds)
        ready, _, _ = select.select([self._read], [], [], timeout)
        if ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._read, 4096)
        self._look()

    def work(self, task: Callable[[], T], tick: Callable[[], float | None] | None = None) -> T:
        """Run `task` in a thread; calls `tick`, which returns the seconds to its next call."""
        import threading

        result: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                result.append(task())
            except BaseException as error:
                errors.append(error)
            os.write(self._write, b"\0")

        self.check()
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        while not result and not errors:
            self.wait(tick() if tick else None)
            if self.cause:
                thread.join(0.2)  # it may be about to finish
                raise Stopped(self.words())
        if errors:
            raise errors[0]
        return result[0]

    def _look(self) -> None:
        """Check for orphans: HEADWAY_PARENT must still be our parent, or at least alive."""
        now = time.monotonic()
        if self._parent is None or self.cause or now < self._next_look:
            return
        self._next_look = now + _TICK / 2
        parent = os.getppid()
        if parent == self._parent:
            return
        if self._first_parent == self._parent or parent != self._first_parent:
            self.cause = ORPHANED
            return
        try:  # there is a wrapper between the pool and us
            os.kill(self._parent, 0)
        except ProcessLookupError:
            self.cause = ORPHANED
        except OSError:
            pass  # another user's: it is alive


def _nothing(_number: int, _frame: object) -> None:
    """A Python-level handler must exist for the wake-up to be written."""


OUT_OF_TIME = "time limit"
NO_DATA = "no data"
# Python changes how some signals are handled; the command gets the defaults
_DEFAULT = [
    number
    for name in ("SIGPIPE", "SIGXFSZ", "SIGXFZ", "SIGTERM", "SIGINT", "SIGCHLD")
    if (number := getattr(signal, name, None)) is not None
]


def own_archive() -> str:
    """The path of headway-node.pyz if this process runs from it, else an empty text."""
    package = os.path.abspath(headway.node.__path__[0])
    archive = os.path.dirname(os.path.dirname(package))
    return archive if os.path.isfile(archive) else ""


def isolated(code: str) -> list[str]:
    """The command line that runs a program of ours in this Python, in whatever folder.

    `-m`, and `-c` alone, import from the current folder first: a json.py there would hide
    Python's own. `-I` would also hide what the user has installed, and `-P` needs Python 3.11.

    Args:
        code: Statements, which may import `headway` and use `sys`.
    """
    return [sys.executable, "-c", f"import sys; sys.path[:] = filter(None, sys.path); {code}"]


@contextlib.contextmanager
def signals_blocked() -> Iterator[None]:
    """Hold back the signals to the agent, so that none arrives while it starts a process."""
    held = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def spawn(path: str, argv: list[str], environment: Mapping[str, str], files: list[Any]) -> int:
    """Start a program in a process group of its own; `files`: actions of posix_spawn."""
    return os.posix_spawn(
        path, argv, environment, file_actions=files, setpgroup=0, setsigmask=[], setsigdef=_DEFAULT
    )


class CannotStart(Exception):
    """The command does not exist or cannot be executed; says why."""


class CommandResult:
    """How the command ended: `status` or `signal`, and in `cause` why it was made to end."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.signal: int | None = None
        self.cause = ""
        self.seconds = 0.0
        self.cpu_user = 0.0
        self.cpu_system = 0.0
        self.max_rss = 0  # bytes

    def words(self) -> str:
        """How the command ended."""
        return describe_exit(-self.signal if self.signal is not None else self.status or 0)


class Group:
    """One command in a process group of its own."""

    def __init__(
        self, argv: list[str], environment: Mapping[str, str], stdout: int, stderr: int
    ) -> None:
        self.argv = argv
        self._environment = environment
        self._files = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, stdout, 1),
            (os.POSIX_SPAWN_DUP2, stderr, 2),
        ]
        self._pid = 0
        self._sent: set[int] = set()
        self._reaped: tuple[int, resource.struct_rusage]

    def run(
        self,
        watch: Watch,
        *,
        grace: float,
        limit: float | None = None,
        nudge: tuple[float, int] | None = None,
        tick: Callable[[], float] | None = None,
        out_of_data: Callable[[], bool] = lambda: False,
    ) -> CommandResult:
        """Run to the end; `nudge` is (seconds, signal) for one signal in between.

        On eviction, at the time limit or when `out_of_data` says so, the group gets SIGTERM, and
        SIGKILL after the grace. `tick` is called now and then; it returns the seconds to the next.
        """
        outcome = CommandResult()
        if not self._start(watch):
            outcome.cause = watch.cause
            return outcome
        begin = time.monotonic()
        kill_at: float | None = None
        while not self._ended():
            soon = tick() if tick is not None else None
            now = time.monotonic() - begin
            late = limit is not None and now >= limit
            if outcome.cause == "" and (watch.cause or late or out_of_data()):
                outcome.cause = watch.cause or (OUT_OF_TIME if late else NO_DATA)
                self._signal(signal.SIGTERM)
                kill_at = now + grace
            if watch.cause == ORPHANED or (kill_at is not None and now >= kill_at):
                self._signal(signal.SIGKILL)
                kill_at = now + 60.0  # it cannot be killed now: look again later
            if nudge is not None and now >= nudge[0]:
                if outcome.cause == "":
                    self._signal(nudge[1])
                nudge = None
            due = [kill_at, nudge[0] if nudge else None, limit if outcome.cause == "" else None]
            waits = [at - now for at in due if at is not None]
            waits += [] if soon is None else [soon]
            watch.wait(min(waits) if waits else None)
        deadline = begin + kill_at if kill_at is not None else time.monotonic() + grace
        self._reap(outcome, deadline, watch)
        outcome.seconds = time.monotonic() - begin
        return outcome

    def _start(self, watch: Watch) -> bool:
        """Start with all signals blocked, so that none arrives between looking and starting."""
        path = find_program(self.argv[0], self._environment.get("PATH"))
        with signals_blocked():
            if watch.cause:
                return False
            try:
                self._pid = spawn(path, self.argv, self._environment, self._files)
            except OSError as error:
                raise CannotStart(_why(path, error)) from None
        return True

    def _signal(self, number: int) -> None:
        self._sent.add(number)
        # PermissionError: macOS raises it when only a zombie is left
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, number)

    def _ended(self) -> bool:
        """Whether the leader has ended; if possible it stays a zombie, which keeps its group id."""
        if hasattr(os, "waitid"):
            seen = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            return seen is not None
        pid, status, usage = os.wait4(self._pid, os.WNOHANG)
        self._reaped = (status, usage)
        return pid != 0

    def _reap(self, outcome: CommandResult, deadline: float, watch: Watch) -> None:
        """Take the leader's status, and make sure that nothing of the group is left."""
        if hasattr(os, "waitid"):
            seen = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT)
            killed = seen is not None and seen.si_code != os.CLD_EXITED
            by_us = killed and seen is not None and self._gentle(seen.si_status)
            if not by_us:
                self._signal(signal.SIGKILL)  # stragglers
            _, status, usage = os.wait4(self._pid, 0)
        else:
            status, usage = self._reaped
            by_us = os.WIFSIGNALED(status) and self._gentle(os.WTERMSIG(status))
        # The signal kills a wrapper script at once, while the program that it runs, which got the
        # same signal, is still saving its state: that program has the grace, too.
        while by_us and time.monotonic() < deadline and self._alive() and watch.cause != ORPHANED:
            watch.wait(0.05)
        if self._alive():
            self._signal(signal.SIGKILL)
            end = time.monotonic() + 0.5
            while self._alive() and time.monotonic() < end:
                time.sleep(0.005)
        if os.WIFSIGNALED(status):
            outcome.signal = os.WTERMSIG(status)
        else:
            outcome.status = os.WEXITSTATUS(status)
        outcome.cpu_user, outcome.cpu_system = usage.ru_utime, usage.ru_stime
        outcome.max_rss = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)

    def _gentle(self, number: int) -> bool:
        return number in self._sent and number != signal.SIGKILL

    def _alive(self) -> bool:
        try:
            os.killpg(self._pid, 0)
        except OSError:
            return False
        return True


def find_program(name: str, path: str | None) -> str:
    """The path of a program, as a shell would find it; raises CannotStart if there is none."""
    if "/" in name:
        if os.path.isdir(name):
            raise CannotStart(f"{name} is a folder, not a program")
        if not os.path.exists(name):
            raise CannotStart(f"{name} does not exist on this node")
        if not os.access(name, os.X_OK):
            raise CannotStart(f"{name} is not executable; `chmod +x` it before submit")
        return name
    for folder in (path or os.defpath).split(os.pathsep):
        candidate = os.path.join(folder or os.curdir, name)
        if os.access(candidate, os.X_OK) and os.path.isfile(candidate):
            return candidate
    words = f"{name} is not on this node's PATH ({path or os.defpath})"
    if os.path.isfile(name):
        hint = "" if os.access(name, os.X_OK) else " and make it executable"
        words = f"{name} is in the job's folder, not on the PATH; write ./{name}{hint}"
    raise CannotStart(words)


def _why(path: str, error: OSError) -> str:
    if error.errno == errno.ENOEXEC:
        return f"{path} is no program for this machine; a script needs a first line like #!/bin/sh"
    if error.errno == errno.ENOENT:  # the file is there, so its interpreter is not
        return f"{path} names an interpreter in its first line that this node does not have"
    if error.errno == errno.E2BIG:
        return f"the arguments and environment of {path} are too long for this node"
    return f"{path} cannot be started: {error.strerror}"


def describe_exit(code: int) -> str:
    """How a process ended; a negative code is the number of a signal."""
    if code >= 0:
        return f"exited with {code}"
    names = {int(each): each.name for each in signal.Signals}
    return f"was killed by {names.get(-code, f'signal {-code}')}"
