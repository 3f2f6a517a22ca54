"""The command's temporary folder: where its path is short enough for sockets.

A Unix socket's path has at most 107 bytes. Data loaders with workers put sockets below TMPDIR, and
where that is too long their workers fail and the training waits for ever. A pool's own TMPDIR, in
the job's scratch folder, is kept where it is short: what lies there counts against the slot's disk,
and the pool removes it. Otherwise the command gets a folder of its own in /tmp while it runs.

Its name begins with `hw`, the user's number and `-`. The agent holds a lock on it. One that nobody
holds was left by an agent that was killed, and is removed by whoever comes next.
"""

from __future__ import annotations

import contextlib
import os
import stat

from headway.node.locks import Lock, lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

NAMES = ("TMPDIR", "TEMP", "TMP")
LONGEST = 60  # bytes: libraries add up to 47, such as /pymp-xxxxxxxx/listener-xxxxxxxx
_PLACES = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 (the folder in it is made by mkdtemp)


@contextlib.contextmanager
def short_folder(
    environment: Mapping[str, str], say: Callable[[str], None]
) -> Iterator[dict[str, str]]:
    """Give a command a temporary folder with a short path while it runs.

    Args:
        environment: The command's environment.
        say: Told, in words, where no such folder can be made.

    Yields:
        What to change in the environment; nothing where its temporary folder is short already.
    """
    long = [name for name in NAMES if _is_long(environment.get(name))]
    if not long:
        yield {}
        return
    with contextlib.ExitStack() as stack:
        folder = _make(stack)
        if folder is None:
            say(
                f"TMPDIR is {len(os.fsencode(environment[long[0]]))} bytes long and no shorter one"
                " can be made: the workers of a data loader may fail"
            )
        yield dict.fromkeys(long, folder) if folder is not None else {}


def sweep() -> None:
    """Remove the folders that agents of this user left here when they were killed."""
    for place in _PLACES:
        with contextlib.suppress(OSError):
            for name in os.listdir(place):
                if name.startswith(_prefix()):
                    _remove_orphan(os.path.join(place, name))


def _prefix() -> str:
    return f"hw{os.geteuid()}-"


def _is_long(path: str | None) -> bool:
    return path is not None and len(os.fsencode(os.path.abspath(path))) > LONGEST


def _make(stack: contextlib.ExitStack) -> str | None:
    """Make a folder that goes away with `stack`; None where there is no place for one."""
    import tempfile  # start-up is slot time: most attempts do without

    sweep()
    for place in _PLACES:
        with contextlib.suppress(OSError):
            while True:
                folder = tempfile.mkdtemp(prefix=_prefix(), dir=place)
                file, held = _hold(folder, wait=True)
                if os.path.isdir(folder):
                    break
                held.release()  # somebody swept before it was locked
                os.close(file)
            stack.callback(os.close, file)
            stack.callback(held.release)
            stack.callback(_remove, folder)
            return folder
    return None


def _hold(folder: str, *, wait: bool = False) -> tuple[int, Lock]:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(file).st_uid != os.geteuid():
            raise PermissionError(folder)
        return file, lock(file, wait=wait)
    except BaseException:
        os.close(file)
        raise


def _remove_orphan(folder: str) -> None:
    with contextlib.suppress(OSError):
        file, held = _hold(folder)
        try:
            _remove(folder)
        finally:
            held.release()
            os.close(file)


def _remove(folder: str) -> None:
    """Remove a folder, also where a command took away its own permissions."""
    import shutil

    for place, folders, _ in os.walk(folder):
        for name in folders:
            path = os.path.join(place, name)
            with contextlib.suppress(OSError):
                if stat.S_ISDIR(os.lstat(path).st_mode):
                    os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)
