"""Files on any machine: atomic writes, locks, and temporary folders with a short path."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_UNSUPPORTED = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL)


def write_atomically(
    path: str | os.PathLike[str],
    data: bytes,
    mode: int | None = 0o644,
    *,
    fsync: bool = True,
    exclusive: bool = False,
    temporary: str = "",
) -> None:
    """Write a file under a temporary name in the same folder, then rename it.

    A reader of the path sees all of the old file or all of the new one.

    Args:
        path: The file.
        data: All of its bytes.
        mode: Its permissions; None: 0o666 less the umask.
        fsync: Make sure that the bytes and the name are on disk before this returns.
        exclusive: Never replace an existing file.
        temporary: The temporary name, for callers that clean up after a kill; by default random.

    Raises:
        FileExistsError: With `exclusive`, the file exists.
        OSError: The file cannot be written, and nothing is left of it; or its folder cannot be
            synced.
    """
    folder, name = os.path.split(os.fspath(path))
    part = os.path.join(folder, temporary or f".{name[:80]}.{os.urandom(4).hex()}")
    file = create_new(part, 0o666 if mode is None else 0o600)
    try:
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(file, left) :]
            if mode is not None:
                os.fchmod(file, mode)
            if fsync:
                os.fsync(file)
        finally:
            os.close(file)
        if exclusive:
            name_new(part, os.fspath(path))
        else:
            os.replace(part, path)
        if fsync:
            sync_folder(folder, strict=True)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)


def name_new(part: str, path: str) -> None:
    """Rename a file; raises FileExistsError if the name is taken."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(path):
            raise FileExistsError(path) from None
        os.replace(part, path)


def sync_folder(folder: str, *, strict: bool = False) -> None:
    """Write the names in a folder to disk, where the file system allows that.

    `strict`: raise OSError when the disk fails.
    """
    try:
        handle = os.open(folder or os.curdir, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if strict and error.errno not in (*_UNSUPPORTED, errno.EBADF, errno.EACCES):
            raise


def create_new(path: str, mode: int = 0o600) -> int:
    """Create and open a file, by default for this user only; replaces an existing one."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return os.open(path, flags, mode)


def why_untrusted(status: os.stat_result, *, by_root: bool = False) -> str:
    """Why a file cannot be trusted; empty if it belongs to this user only.

    `by_root`: it may also belong to root.
    """
    owners = (os.geteuid(), 0) if by_root else (os.geteuid(),)
    if status.st_uid not in owners:
        return f"belongs to another user ({status.st_uid})"
    if status.st_mode & stat.S_IWOTH:
        return "can be written to by every user of this machine"
    return ""


# Locks on files, also where the file system has none.
#
# A lock says which process works on a file, and the kernel releases it when that process ends,
# however it ends. `flock` does that on most file systems. Some home folders have none: Lustre
# mounted without `flock` (ENOSYS), NFS without a lock service (ENOLCK), some FUSE and AFS mounts
# (EOPNOTSUPP). Byte-range locks fail there as well. Then a file in this machine's /tmp, named
# after the file's device and inode, is locked instead. That works between the processes of one
# user on one machine, as with Lustre's own `localflock`; the user has to make sure that two
# machines do not work on the same file at once.

try:
    import fcntl
except ImportError:  # not a Unix
    fcntl = None  # type: ignore[assignment]

NONE_HERE = (errno.ENOLCK, *_UNSUPPORTED)
# The same for all processes, whatever their TMPDIR is.
_PLACES = ("/tmp", "/var/tmp")  # noqa: S108 (the folder in it must be the user's own)


class Lock:
    """A lock on an open file. It lasts until `release`, or until the process ends."""

    def __init__(self, file: int, stand_in: tuple[int, str] | None = None) -> None:
        self._file = file
        self._stand_in = stand_in  # the descriptor and path of the file that is locked instead

    @property
    def descriptor(self) -> int:
        """The descriptor that a child process must inherit to keep the lock."""
        return self._stand_in[0] if self._stand_in else self._file

    def release(self) -> None:
        """Release the lock; the file itself stays open. A second call does nothing."""
        if self._stand_in:
            descriptor, path = self._stand_in
            self._stand_in, self._file = None, -1
            with contextlib.suppress(OSError):
                # Only the last holder removes the file, or two processes could each have a lock.
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(path)
            os.close(descriptor)
        elif self._file >= 0:
            with contextlib.suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_UN)
            self._file = -1


def lock(file: int, *, shared: bool = False, wait: bool = False) -> Lock:
    """Lock an open file.

    Args:
        file: Its descriptor.
        shared: Others may hold shared locks at the same time.
        wait: Wait until the lock is free.

    Returns:
        The lock. The caller keeps it as long as it is needed, and releases it before closing the
        file.

    Raises:
        BlockingIOError: Another process holds it.
        OSError: Neither the file system nor this machine's /tmp can lock.
    """
    if fcntl is None:
        raise OSError(errno.ENOLCK, "this system has no file locks")
    how = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
    try:
        fcntl.flock(file, how)
        return Lock(file)
    except OSError as error:
        if error.errno not in NONE_HERE:
            raise
    about = os.fstat(file)
    path = os.path.join(_lock_folder(), f"{about.st_dev:x}-{about.st_ino:x}")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        descriptor = os.open(path, flags, 0o600)
        try:
            fcntl.flock(descriptor, how)
            with contextlib.suppress(FileNotFoundError):
                if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                    return Lock(file, (descriptor, path))
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its last holder has removed the file: create it again


def _lock_folder() -> str:
    """The user's own folder on this machine for the files that are locked instead."""
    words = "there is no temporary folder"
    for place in _PLACES:
        folder = os.path.join(place, f"headway-locks-{os.geteuid()}")
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, 0o700)
            found = os.lstat(folder)
        except OSError as error:
            words = f"{folder} cannot be made: {error.strerror}"
            continue
        open_to_others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not open_to_others:
            return folder
        words = f"{folder} is not a folder of yours alone"
    raise OSError(errno.ENOLCK, f"this file system has no locks, and {words}")


# The command's temporary folder: where its path is short enough for sockets.
#
# A Unix socket's path has at most 107 bytes. Data loaders with workers put sockets below TMPDIR,
# and if that is too long their workers fail and the training waits for ever. A pool's own TMPDIR,
# in the job's scratch folder, is used if it is short: files in it count against the slot's disk,
# and the pool removes them. Otherwise the command gets a folder of its own in /tmp while it runs.
#
# Its name begins with `hw`, the user id and `-`. The agent holds a lock on it. A folder without a
# lock was left by an agent that was killed, and the next agent removes it.

_VARIABLES = ("TMPDIR", "TEMP", "TMP")
LONGEST = 60  # bytes: libraries add up to 47, such as /pymp-xxxxxxxx/listener-xxxxxxxx
_ROOTS = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 (the folder in it is made by mkdtemp)


@contextlib.contextmanager
def short_folder(
    environment: Mapping[str, str], say: Callable[[str], None]
) -> Iterator[dict[str, str]]:
    """Give a command a temporary folder with a short path while it runs.

    Yields what to change in its environment; `say` is called if no such folder can be made.
    """
    long = [name for name in _VARIABLES if _is_long(environment.get(name))]
    if not long:
        yield {}
        return
    with contextlib.ExitStack() as stack:
        folder = _make_folder(stack)
        if folder is None:
            say(
                f"TMPDIR is {len(os.fsencode(environment[long[0]]))} bytes long and no shorter one"
                " can be made: the workers of a data loader may fail"
            )
        yield dict.fromkeys(long, folder) if folder is not None else {}


def remove_orphaned_folders() -> None:
    """Remove the folders that agents of this user left here when they were killed."""
    for place in _ROOTS:
        with contextlib.suppress(OSError):
            for name in os.listdir(place):
                if name.startswith(_prefix()):
                    _remove_if_orphaned(os.path.join(place, name))


def _prefix() -> str:
    return f"hw{os.geteuid()}-"


def _is_long(path: str | None) -> bool:
    return path is not None and len(os.fsencode(os.path.abspath(path))) > LONGEST


def _make_folder(stack: contextlib.ExitStack) -> str | None:
    """Make a folder that `stack` removes; None if there is no place for one."""
    import tempfile  # start-up is slot time: most attempts do not need it

    remove_orphaned_folders()
    for place in _ROOTS:
        with contextlib.suppress(OSError):
            while True:
                folder = tempfile.mkdtemp(prefix=_prefix(), dir=place)
                with contextlib.ExitStack() as own:
                    own.enter_context(_locked(folder, wait=True))
                    if os.path.isdir(folder):  # else another process removed it before the lock
                        own.callback(remove_tree, folder)
                        stack.push(own.pop_all())
                        return folder
    return None


@contextlib.contextmanager
def _locked(folder: str, *, wait: bool = False) -> Iterator[None]:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(file).st_uid != os.geteuid():
            raise PermissionError(folder)
        held = lock(file, wait=wait)
        try:
            yield
        finally:
            held.release()
    finally:
        os.close(file)


def _remove_if_orphaned(folder: str) -> None:
    with contextlib.suppress(OSError), _locked(folder):
        remove_tree(folder)


def remove_tree(folder: str) -> None:
    """Remove a folder, even if a command took away its own permissions."""
    import shutil

    for place, folders, _ in os.walk(folder):
        for name in folders:
            path = os.path.join(place, name)
            with contextlib.suppress(OSError):
                if stat.S_ISDIR(os.lstat(path).st_mode):
                    os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def tree_files(path: str) -> list[tuple[str, str]]:
    """(path, name below `path`) of each file of an output; a file has the name ""."""
    if not os.path.isdir(path):
        return [(path, "")]
    found = (os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)
    return sorted((full, os.path.relpath(full, path)) for full in found)
