"""The supervisor as a process, which the local pool starts for each run."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headway.errors import HeadwayError, RunError
from headway.events import read_log
from headway.node.errors import ENDED_BY_POOL, Exit
from headway.node.files import remove_orphaned_folders
from headway.node.process import isolated
from headway.pool.folder import RunFolder, open_own
from headway.pool.local.attempt import ResourceUsage, number, read_record
from headway.pool.local.job import LocalJob
from headway.pool.local.queue import QueueEntry
from headway.pool.local.scratch import (
    ended_with_us,
    has_checkpoint,
    kill_marked,
    remove_tree,
    save_checkpoint,
)
from headway.pool.local.supervisor import LOCK, Supervisor, remove_answers

LOG = "supervisor.log"
_PROGRAM = "from headway.pool.local.main import main; sys.exit(main())"
_BEGUN = b"begun"
_START_PATIENCE = 120.0
_SAME_SECOND = 2.0  # the log rounds times down
_RESERVE = 16384  # bytes
_LOCK_PATIENCE = 1.0  # others hold the lock for a moment to see whether a supervisor lives


def recover(supervisor: Supervisor) -> None:
    """Read the state of the jobs from the log, and end the attempts that nobody runs any more."""
    queue, folder = supervisor.queue, supervisor.folder
    queue.replay(read_log(folder.events).events)
    queue.submit_missing(f"<127.0.0.1:0?alias={socket.gethostname()}>")
    scratch = folder.path / "scratch"
    if scratch.is_dir():
        kill_marked(scratch)
        remove_orphaned_folders()
    for entry in queue.in_status("running"):
        _end_attempt(supervisor, entry, scratch / f"{entry.index}.{entry.starts}")
    for left in scratch.glob("*"):
        remove_tree(left)
    for left in (folder.path / "spool").glob("*"):
        job = queue.get(int(left.name)) if left.name.isdigit() else None
        if job is not None and job.status == "over":
            remove_tree(left)
    remove_answers(folder)


def _end_attempt(supervisor: Supervisor, entry: QueueEntry, scratch: Path) -> None:
    """End an attempt as its record says, or evict it where there is none."""
    queue, folder = supervisor.queue, supervisor.folder
    checkpointed = supervisor.job.has_checkpoint and has_checkpoint(scratch)
    if checkpointed:
        save_checkpoint(folder, entry.index, scratch, move=True)
    moved = ResourceUsage()
    stuck = supervisor.bring_home(entry, scratch, moved)
    record = _record_of(supervisor, entry)
    used = ResourceUsage.recorded(record)
    used.bytes_home, used.scratch_bytes = moved.bytes_home, moved.scratch_bytes
    status = record.get("exit")
    if stuck is not None:
        queue.evicted(entry, used, stuck.reason, held=stuck)
    elif type(status) is int and status not in (Exit.CHECKPOINT, ENDED_BY_POOL):
        if status == Exit.OK:
            supervisor.put_in_place(entry)
        queue.exited(entry, status, used, str(record.get("reason") or ""))
    else:
        reason = "the local pool was killed while this job ran"
        queue.evicted(entry, used, reason, checkpointed=checkpointed)


def _record_of(supervisor: Supervisor, entry: QueueEntry) -> dict[str, Any]:
    """The record of the attempt that was running, and of no other of the same job."""
    if entry.attempt:
        return supervisor.record(entry)
    # Its agent could not log its id. A job succeeds only once, so there is only one such record.
    for attempt in reversed(supervisor.folder.attempts(entry.index)):
        record = read_record(attempt)
        began = [number(segment, "begin") for segment in record.get("segments", ())]
        recent = began and began[0] >= entry.since - _SAME_SECOND
        if record.get("exit") == Exit.OK and recent:
            return record
    return {}


@contextlib.contextmanager
def _reserve(folder: RunFolder) -> Iterator[None]:
    """Reserve some space, so that supervisor.log can say why it ended when the disk is full."""
    reserve = folder.path / ".reserve"
    try:
        with contextlib.suppress(OSError):
            reserve.touch(0o600)
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
        remedy = "fix that"
    if not isinstance(error, RunError):
        remedy += f"; then go on with `headway run --resume {folder.label}`"
    return f"{words}; {remedy}".replace("\n", " ")


def supervise(folder: RunFolder, *, ready: Callable[[], None], leash: int | None) -> None:
    """Run a folder's jobs to their end, or until the pipe `leash` is closed."""
    with contextlib.ExitStack() as stack:
        job = LocalJob.read(folder)
        if job.container is not None:  # before the lock, which a child would hold too
            stack.enter_context(ended_with_us(folder.path / "scratch", job.grace))
        stack.enter_context(folder.locked(LOCK, patience=_LOCK_PATIENCE))
        stack.enter_context(_reserve(folder))
        supervisor = stack.enter_context(contextlib.closing(Supervisor(folder, job)))
        _handle_signals(supervisor)
        supervisor.orphans.adopt()

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
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: supervisor.ask_to_stop())
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


class SupervisorProcess:
    """A supervisor's process, as the local pool has it: it loads its modules, and waits for a run.

    It is told by its stdin what to run; once that is closed, its jobs are to end. By its stdout it
    tells that it has begun.
    """

    def __init__(self) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            isolated(_PROGRAM), bufsize=0, stdin=pipe, stdout=pipe, start_new_session=True
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def begin(self, folder: RunFolder, *, detached: bool) -> bool:
        """Have it run a folder's jobs, after this process ends, too, if detached.

        Returns:
            Whether it has begun; if not, supervisor.log says why.
        """
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it could not even load its modules
            process.stdin.write(json.dumps([str(folder.path), detached]).encode() + b"\n")
        readable, _, _ = select.select([process.stdout], [], [], _START_PATIENCE)
        begun = bool(readable) and process.stdout.read(len(_BEGUN)) == _BEGUN
        process.stdout.close()
        if not begun:
            process.terminate()
        if detached or not begun:
            process.stdin.close()
            process.returncode = 0  # nobody waits for it, and Python should not warn
        return begun

    def end(self) -> int:
        """Have it end its jobs with their grace, and wait for it; returns its exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait()

    def drop(self) -> None:
        """End it at once: it has nothing to run."""
        self._process.kill()
        self._process.communicate()


def main() -> int:
    """Supervise the run that stdin names, if it names one; returns the exit code."""
    # not among the first three, one of which may be closed
    leash, tell = (fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 3) for file in (0, 1))
    order = sys.stdin.readline()
    if not order:
        return 0  # there is nothing to run after all
    path, detached = json.loads(order)
    folder = RunFolder(Path(path))

    def ready() -> None:
        os.write(tell, _BEGUN)
        os.close(tell)

    try:
        _take_output(folder)
        supervise(folder, ready=ready, leash=None if detached else leash)
    except (HeadwayError, OSError) as error:
        with contextlib.suppress(OSError):
            print(_last_words(folder, error), file=sys.stderr, flush=True)
        return 1
    return 0


def _take_output(folder: RunFolder) -> None:
    """From now on, what this process prints goes to the run's supervisor.log."""
    log = open_own(folder.path / LOG, os.O_WRONLY | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for file, standard in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(file, standard)
    os.close(log)
    os.close(nothing)
