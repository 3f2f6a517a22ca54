"""Locks on files, also where the file system has none.

A lock says which process works on a file, and the kernel lets go of it when that process is gone,
however it went. `flock` does that on most file systems. Some homes have none: Lustre that is
mounted without `flock` (ENOSYS), NFS whose lock service is down (ENOLCK), some FUSE and AFS mounts
(EOPNOTSUPP). Byte-range locks fail on those as well. There a file of this machine's /tmp stands in
for the file, found by its device and inode. It keeps apart the processes of one user on one
machine, as Lustre's own `localflock` does; that two machines do not work on the same file at once
is then up to the user.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

try:
    import fcntl
except ImportError:  # not a Unix
    fcntl = None  # type: ignore[assignment]

NONE_HERE = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL)
# The same for all processes, whatever their TMPDIR is.
_PLACES = ("/tmp", "/var/tmp")  # noqa: S108 (the folder in it must be the user's own)


class Lock:
    """A lock on an open file. It lasts until `release`, or until the process ends.

    Args:
        file: The descriptor of the file.
        stand_in: The descriptor and path of the file that stands in for it, if one does.
    """

    def __init__(self, file: int, stand_in: tuple[int, str] | None = None) -> None:
        self._file = file
        self._stand_in = stand_in

    @property
    def descriptor(self) -> int:
        """What a child process must inherit to keep the lock when this process ends."""
        return self._stand_in[0] if self._stand_in else self._file

    def release(self) -> None:
        """Let go of the lock; the file itself stays open. To call it again does nothing."""
        if self._stand_in:
            descriptor, path = self._stand_in
            self._stand_in, self._file = None, -1
            with contextlib.suppress(OSError):
                # Only the last to hold it takes its name away, or two could have a lock each.
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
        wait: Wait until whoever holds it lets go.

    Returns:
        The lock. The caller keeps it for as long as it shall last, and releases it before it closes
        the file.

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
    path = os.path.join(_folder(), f"{about.st_dev:x}-{about.st_ino:x}")
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
        os.close(descriptor)  # whoever held it has taken its name away: make another


def _folder() -> str:
    """The folder of this machine that holds the stand-ins: the user's own, and nobody else's."""
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
