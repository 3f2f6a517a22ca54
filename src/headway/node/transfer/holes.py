"""Holes: parts of a file that are given back to the disk, where the file system can do that."""

from __future__ import annotations

import errno
import os

_KEEP_SIZE, _PUNCH_HOLE = 1, 2


def punch(file: int, begin: int, length: int) -> None:
    """Give back the blocks of a stretch; the file stays as long as it is, and reads as zeros."""
    try:
        import ctypes

        call = ctypes.CDLL(None, use_errno=True).fallocate
    except (ImportError, AttributeError):  # a Python without it, or not Linux
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP)) from None
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    while call(file, _KEEP_SIZE | _PUNCH_HOLE, begin, length):
        number = ctypes.get_errno()
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))


def can_punch(folder: str) -> bool:
    """Whether the file system of a folder gives back parts of a file."""
    path = os.path.join(folder, f".headway-hole-{os.getpid()}")
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.unlink(path)
        os.write(file, bytes(1 << 16))
        before = os.fstat(file).st_blocks
        os.fsync(file)  # some have no blocks before that
        before = max(before, os.fstat(file).st_blocks)
        punch(file, 0, 1 << 16)
        return os.fstat(file).st_blocks < before
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            return False
        raise
    finally:
        os.close(file)
