"""The scratch folder of an attempt, and the processes that an attempt may leave behind."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import stat
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from headway.node.checkpoint import copy_file, find
from headway.node.plan import OUT
from headway.pool.folder import RunFolder

_CHECKPOINT = "checkpoint"  # in the output folder; only the spool keeps it
_SMALL = 16 * 2**20
MARK = "HEADWAY_SCRATCH"  # the environment variable that tells whose a process is
_SET_CHILD_SUBREAPER = 36
_TRIES = 200  # looks, 10 ms apart, until what was killed is gone


def checkpoint_folder(folder: RunFolder, job: int) -> Path:
    """Where the last good checkpoint of a job is kept until the job is over."""
    return folder.path / "spool" / str(job)


def has_checkpoint(scratch: Path) -> bool:
    """Whether the agent has left a complete checkpoint."""
    return find(str(scratch / OUT / _CHECKPOINT)) is not None


def save_checkpoint(folder: RunFolder, job: int, scratch: Path, *, move: bool = False) -> None:
    """Keep a copy of the checkpoint in the output folder; `move` it once the command has ended."""
    made = scratch / OUT / _CHECKPOINT
    final = checkpoint_folder(folder, job)
    draft, old = final / f".{_CHECKPOINT}.new", final / f".{OUT}.old"
    for place in (final.parent, final):
        # for the user alone: what is in it becomes the state of the next attempt
        place.mkdir(0o700, parents=True, exist_ok=True)
    remove_tree(draft)
    try:
        if not move:
            shutil.copytree(made, draft, symlinks=True, copy_function=copy_file)
        if (final / OUT / _CHECKPOINT).is_dir():
            remove_tree(old)
            (final / OUT).rename(old)
        (final / OUT).mkdir(exist_ok=True)
        (made if move else draft).rename(final / OUT / _CHECKPOINT)
    finally:
        remove_tree(draft)
    remove_tree(old)


def restore_checkpoint(saved: Path, scratch: Path) -> None:
    """Give a new attempt the last checkpoint, or `.old` after a crash between two renames."""
    for name in (OUT, f".{OUT}.old"):
        if (saved / name / _CHECKPOINT).is_dir():
            given = scratch / OUT
            shutil.copytree(saved / name, given, symlinks=True, copy_function=copy_file)
            return


def bring_home(scratch: Path, home: Path) -> int:
    """Merge a scratch folder's output into `home`; returns its bytes.

    The output of earlier attempts is kept. After a crash, another call brings the rest.
    """
    out = scratch / OUT
    if not out.is_dir():
        return 0
    for name in (_CHECKPOINT, f"{_CHECKPOINT}.new"):
        remove_tree(out / name)
    size = tree_size(out)
    home.mkdir(parents=True, exist_ok=True)
    for entry in os.listdir(out):
        _merge(out / entry, home / entry)
    return size


def _merge(source: Path, target: Path) -> None:
    """Move a file or folder; two folders become one, anything else is replaced."""
    folder = source.is_dir() and not source.is_symlink()
    if folder and target.is_dir() and not target.is_symlink():
        _open(source)
        for entry in os.listdir(source):
            _merge(source / entry, target / entry)
        return
    if os.path.lexists(target) and (folder or target.is_dir()):
        discard(target)
    if folder:
        _open(source)  # to move a folder one must be allowed to write into it
    source.rename(target)


def _open(folder: Path) -> None:
    mode = folder.stat().st_mode
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        folder.chmod(stat.S_IMODE(mode) | stat.S_IRWXU)


def discard(path: Path) -> None:
    """Remove a file, a link or a folder."""
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)


def remove_tree(path: Path) -> None:
    """Remove a folder, as far as possible, even where a command took away its own permissions."""

    def unlock(_function: object, name: str, _error: object) -> None:
        found = Path(name)
        with contextlib.suppress(OSError):
            found.parent.chmod(0o700)
            if found.is_dir() and not found.is_symlink():
                found.chmod(0o700)
                shutil.rmtree(name, ignore_errors=True)
            else:
                found.unlink()

    # `name` may itself be what could not be opened: a second walk finds what the first unlocked.
    for _ in range(2):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, onerror=unlock)


def move_into_place(source: Path, target: Path, tag: str) -> None:
    """Move a file or folder, also to another disk; at any moment one of the two is complete.

    The same `tag` finds and replaces what an interrupted move has left.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".headway-{tag}.part")
    discard(draft)
    try:
        _put(source, target)
        return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    try:
        if source.is_dir() and not source.is_symlink():
            shutil.copytree(source, draft, symlinks=True)
        else:
            shutil.copy2(source, draft, follow_symlinks=False)
        _put(draft, target)
    finally:
        discard(draft)
    discard(source)


def _put(source: Path, target: Path) -> None:
    if source.is_dir() or target.is_dir():
        discard(target)  # only files replace files in one step
    source.replace(target)


def give(source: Path, target: Path) -> None:
    """Give an attempt a copy of a file, or a hard link to a large one."""
    if source.stat().st_size > _SMALL:
        with contextlib.suppress(OSError):
            os.link(source, target)
            return
    copy_file(str(source), str(target))


def tree_size(path: Path) -> int:
    """The bytes of all files below a folder."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(f"{folder}/{name}").st_size
    return total


class Orphans:
    """Ends the processes that outlive their attempt; `agents` are those of running attempts.

    On Linux the supervisor becomes the parent of every orphan below it, so a look at its own
    children shows whether there is one. Its environment or its folder tells which attempt it
    belongs to; an orphan that shows neither ends with the run.
    """

    def __init__(self) -> None:
        self._adopting = False

    def adopt(self) -> None:
        """From now on this process is the parent of all orphans below it, where the system can."""
        self._adopting = _become_subreaper() and _children() is not None

    def reap(self, agents: Collection[int]) -> None:
        """Reap adopted processes that have ended, since nobody else waits for them."""
        while self._adopting:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None or ended.si_pid in agents:
                return  # its attempt reaps an agent; then the others are next
            with contextlib.suppress(ChildProcessError):
                os.waitpid(ended.si_pid, os.WNOHANG)

    def end_of(self, scratch: Path, agents: Collection[int]) -> None:
        """Kill what an attempt whose agent has ended left behind."""
        if self._adopting:
            _kill_all(lambda: [pid for pid in self._adopted(agents) if _is_of(pid, scratch)])
        else:
            kill_marked(scratch)

    def end_all(self) -> None:
        """Kill every adopted process: no attempt runs any more."""
        if self._adopting:
            _kill_all(lambda: self._adopted(()))

    def _adopted(self, agents: Collection[int]) -> set[int]:
        self.reap(agents)
        return (_children() or set()).difference(agents)


@contextlib.contextmanager
def ended_with_us(folder: Path, grace: float) -> Iterator[None]:
    """If this process is killed meanwhile, end the processes below `folder`, with their grace.

    An agent notices by itself that its pool is gone, but not in a container.
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
    _kill_all(lambda: marked(folder))


def _kill_all(find: Callable[[], Collection[int]]) -> None:
    """Kill what `find` finds until it finds nothing: children show up once their parents end."""
    for _ in range(_TRIES):
        found = find()
        for pid in found:
            _kill(pid)
        if not found:
            return
        time.sleep(0.01)


def marked(folder: Path) -> list[int]:
    """The processes of this user whose environment says that they belong below `folder`."""
    found: list[int] = []
    try:
        names = os.listdir("/proc")
    except OSError:
        return found  # no /proc on this system: killing the process group has to do
    for name in names:
        if not name.isdigit() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{name}").st_uid == os.getuid() and _is_marked(int(name), folder):
                found.append(int(name))
    return found


def _is_of(pid: int, scratch: Path) -> bool:
    """Only for descendants of this process: a user's shell may be in that folder too."""
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
