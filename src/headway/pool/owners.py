"""Whose a run is: what Headway acts on must be the user's own, and nobody else's to change.

What lies in a run folder becomes code that runs as the user (the node program) and words that a
schedd obeys. So before Headway acts on a run, its folder and those above it, `runs` and `.headway`,
must belong to the user and must not be writable by anybody else. To read somebody else's run is
safe: what is read is a plain file, and its values are checked.
"""

from __future__ import annotations

import errno
import getpass
import grp
import os
import pwd
import shlex
import stat
from pathlib import Path

from headway.errors import RunError


def user_name(uid: int) -> str:
    """The name of an account, or its number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def own_name() -> str:
    """The name of whoever asks, or the number of an account that has none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def is_private_group(gid: int) -> bool:
    """Whether the group is the user's own: many systems give each user one, and umask 002."""
    try:
        group, name = grp.getgrgid(gid), pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False
    return group.gr_name == name and not set(group.gr_mem) - {name}


def others_can_write(found: os.stat_result) -> bool:
    """Whether others than the owner can write there; the user's private group has no others."""
    by_group = bool(found.st_mode & stat.S_IWGRP) and not is_private_group(found.st_gid)
    return by_group or bool(found.st_mode & stat.S_IWOTH)


def check_own(folder: Path) -> None:
    """Refuse a folder that is not the user's own, or that others can write to.

    A symbolic link is looked at as well as the folder that it leads to. A folder that does not
    exist yet is nobody's, and fine.

    Args:
        folder: A `.headway` folder, the `runs` in it, or a run folder.

    Raises:
        RunError: It belongs to another user, others can write to it, or it is no folder.
    """
    try:
        for found in (folder.lstat(), folder.stat()):
            if found.st_uid != os.geteuid():
                raise _foreign(folder, found.st_uid)
    except (FileNotFoundError, NotADirectoryError):
        if folder.is_symlink():
            raise RunError(
                f"{folder} is a link that leads nowhere",
                remedy=f"remove it: `rm {shlex.quote(str(folder))}`",
            ) from None
        return
    except OSError as error:
        raise RunError(f"{folder} cannot be looked at: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise RunError(f"{folder} is not a folder", remedy="move it away, and run again")
    if others_can_write(found):
        raise RunError(
            f"others can write to {folder} (mode {stat.S_IMODE(found.st_mode):04o}), and so change"
            " what your jobs run",
            remedy=f"close it: `chmod -R go-w {shlex.quote(str(folder))}`; a file system that keeps"
            " no permissions is no place for runs",
        )


def check_keeps(folder: Path) -> None:
    """Refuse a folder in which everybody can put another folder into the place of the user's own.

    A sticky folder, such as /tmp, is fine: there each user moves only what is the user's. So is a
    folder that a group shares on purpose.

    Raises:
        RunError: Everybody can write to the folder, and it is not sticky.
    """
    try:
        mode = folder.stat().st_mode
    except OSError:
        return  # what wants to use it will say so
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        place = shlex.quote(str(folder))
        raise RunError(
            f"everybody can write to {folder}, and so put other runs into the place of yours",
            remedy=f"close it: `chmod o-w {place}`; or work in a folder of your own",
        )


def open_own(path: Path, flags: int, mode: int = 0o600) -> int:
    """Open or make a file that must be the user's own, and a plain one.

    Args:
        path: The file; a symbolic link in its last place is not followed.
        flags: As for `os.open`.
        mode: The permissions of a new file.

    Returns:
        A file descriptor.

    Raises:
        RunError: It is a link, no plain file, has a second name, is another user's, or others can
            write to it.
        OSError: It cannot be opened for another reason.
    """
    fd = _open_plain(path, flags, mode)
    try:
        found = os.fstat(fd)
        if found.st_uid != os.geteuid():
            raise _foreign(path, found.st_uid)
        if found.st_nlink > 1:
            raise RunError(
                f"{path} has a second name elsewhere, and whatever is written to it goes there too",
                remedy=_copied(path),
            )
        if others_can_write(found):
            raise RunError(
                f"others can write to {path} (mode {stat.S_IMODE(found.st_mode):04o})",
                remedy=f"close it: `chmod go-w {shlex.quote(str(path))}`",
            )
    except BaseException:
        os.close(fd)
        raise
    return fd


def open_plain(path: Path) -> int:
    """Open a file for reading, whosever it is: only a plain one, so that nothing waits for ever.

    Raises:
        RunError: It is a link, or no plain file.
        OSError: It cannot be opened for another reason.
    """
    return _open_plain(path, os.O_RDONLY, 0)


def read_plain(path: Path, most: int) -> bytes:
    """All of a file, whosever it is: only of a plain one, and of one that is not too large.

    Raises:
        RunError: It is a link, or no plain file.
        OSError: It has more than `most` bytes, or cannot be read.
    """
    with open(open_plain(path), "rb") as file:
        large = os.fstat(file.fileno()).st_size > most
        data = b"" if large else file.read(most + 1)
    if large or len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", str(path))
    return data


def check_links(folder: Path) -> None:
    """Refuse a folder with symbolic links right in it: what acts on it would act elsewhere.

    Raises:
        RunError: It names the link.
    """
    try:
        with os.scandir(folder) as entries:
            link = next((Path(entry.path) for entry in entries if entry.is_symlink()), None)
    except OSError:
        return  # not there yet; what wants to use it will say so
    if link is not None:
        raise RunError(f"{link} is a symbolic link, which headway never makes", remedy=_gone(link))


def _open_plain(path: Path, flags: int, mode: int) -> int:
    try:
        # without O_NONBLOCK, to open a pipe that nobody writes to would not end
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        # ENXIO: a pipe that nobody reads, or a socket
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        what = "a symbolic link" if path.is_symlink() else "not a plain file"
        raise RunError(f"{path} is {what}, which headway never makes", remedy=_gone(path)) from None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise RunError(f"{path} is not a plain file", remedy=_gone(path))
    return fd


def _gone(path: Path) -> str:
    return f"if you trust the folder, remove it: `rm {shlex.quote(str(path))}`"


def _copied(path: Path) -> str:
    name = shlex.quote(str(path))
    return f"make it a file of its own: `cp {name} {name}.new && mv {name}.new {name}`"


def _foreign(path: Path, uid: int) -> RunError:
    owner, place = user_name(uid), shlex.quote(str(path))
    remedy = f"to act on {owner}'s runs, become {owner}: `sudo -u {owner} headway …`"
    if uid == 0:
        remedy = f"if it ought to be yours: `sudo chown -R {user_name(os.geteuid())} {place}`"
    return RunError(
        f"{path} belongs to {owner}, not to you",
        remedy=f"{remedy}; for runs of your own work in another folder: `cd` there",
    )
