"""The supervisor as a process: what the local pool starts for each run."""

from __future__ import annotations

import argparse
import contextlib
import os
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from headway.errors import HeadwayError, RunError
from headway.pool.folder import RunFolder
from headway.pool.local.recovery import recover
from headway.pool.local.strays import mourned
from headway.pool.local.supervisor import LOCK, Supervisor

_RESERVE = 16384


@contextlib.contextmanager
def _lock(folder: RunFolder) -> Iterator[None]:
    """Wait out the moments in which others look at the lock to see whether anybody lives."""
    for patience in (0.05, 0.1, 0.2, 0.5, 0):
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(folder.locked(LOCK))
            except RunError:
                if not patience:
                    raise
                time.sleep(patience)
                continue
            yield
            return


@contextlib.contextmanager
def _reserve(folder: RunFolder) -> Iterator[None]:
    """Keep some room on the disk, so that why it all ended can be said when the disk is full."""
    reserve = folder.path / ".reserve"
    try:
        with contextlib.suppress(OSError):
            reserve.write_bytes(os.urandom(_RESERVE))
        yield
    finally:
        with contextlib.suppress(OSError):
            reserve.unlink(missing_ok=True)


def _last_words(folder: RunFolder, error: HeadwayError | OSError) -> str:
    """Why the supervisor ends before its jobs do, in one line for supervisor.log."""
    if isinstance(error, HeadwayError):
        words, remedy = error.message, error.remedy.rstrip(".")
    else:
        words = f"{error.filename or 'this machine'}: {error.strerror or error}"
        remedy = "mend that"
    if not isinstance(error, RunError):
        remedy += f"; then go on with `headway run --resume {folder.label}`"
    return f"{words}; {remedy}".replace("\n", " ")


def supervise(folder: RunFolder, *, ready: Callable[[], None], leash: int | None) -> None:
    """Run a folder's jobs to their end; `leash` is a pipe whose closing means: stop."""
    with contextlib.ExitStack() as stack:
        if folder.job.container is not None:  # before the lock, which a child would hold too
            stack.enter_context(mourned(folder.path / "scratch", folder.job.grace))
        stack.enter_context(_lock(folder))
        stack.enter_context(_reserve(folder))
        supervisor = stack.enter_context(contextlib.closing(Supervisor(folder)))
        _handle_signals(supervisor)
        supervisor.strays.adopt()

        def let_go() -> None:
            supervisor.selector.unregister(leash)  # type: ignore[arg-type]
            supervisor.ask_to_stop()

        if leash is not None:
            supervisor.selector.register(leash, selectors.EVENT_READ, let_go)
        recover(supervisor)
        ready()
        supervisor.run()


def _handle_signals(supervisor: Supervisor) -> None:
    """SIGTERM and SIGINT stop the run; every signal wakes the supervisor."""
    signal.set_wakeup_fd(supervisor.waker.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: supervisor.ask_to_stop())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def main() -> int:
    """Supervise the run whose folder the arguments name; returns the exit code."""
    parser = argparse.ArgumentParser(prog="headway.pool.local.main")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ready", type=int)
    parser.add_argument("--leash", type=int)
    arguments = parser.parse_args()

    def ready() -> None:
        if arguments.ready is not None:
            os.write(arguments.ready, b"ready")
            os.close(arguments.ready)

    folder = RunFolder(arguments.folder)
    try:
        supervise(folder, ready=ready, leash=arguments.leash)
    except (HeadwayError, OSError) as error:
        with contextlib.suppress(OSError):
            print(_last_words(folder, error), file=sys.stderr, flush=True)
        return 1
    return 0
