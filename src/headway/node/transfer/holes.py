"""Holes and writeback: what Linux can do with a stretch of a file, and Python has no call for."""

from __future__ import annotations

import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_START = 2  # SYNC_FILE_RANGE_WRITE: begin, and wait for nothing
_sync_file_range: Callable[..., int] | None = None


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


def start_writeback(file: int, begin: int, length: int) -> None:
    """Have the disk begin with a stretch, so that it works while the next bytes are received.

    It says nothing of when the bytes are safe, or whether: only `fsync` does. Where the system has
    no such call, all of them are written then.
    """
    global _sync_file_range
    if _sync_file_range is None:
        try:
            import ctypes

            call = ctypes.CDLL(None).sync_file_range
            call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
            _sync_file_range = call
        except (ImportError, AttributeError, OSError):
            _sync_file_range = _nothing
    _sync_file_range(file, begin, length, _START)


def _nothing(*_: object) -> int:
    return 0


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
