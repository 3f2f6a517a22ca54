"""The part: the file in which the bytes of an object are collected before it gets its name."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time

from headway.node.errors import FULL, DiskError, NodeError, NoSpaceError, TransferError
from headway.node.files import Lock, lock, name_new, sync_folder, why_untrusted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SUFFIX = ".part"
_PROBE = 16 << 20
_ROOM = "ask for more disk, or let the job run elsewhere"
_QUICK = 0.001  # seconds; tmpfs clears all pages at once, and a library may have to write each
# The page cache takes memory in blocks as large as a write. Large ones have to be found first, and
# a virtual machine may even have given them back to its host: 1 GiB to ext4 took 3.1 CPU seconds
# in writes of 2 MiB, and 0.9 in writes of this size.
_WRITE = 64 << 10
_BATCH = 16 << 20  # bytes after which the disk starts writing: 1.05 s for a GiB instead of 1.4 s
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
            _sync_file_range = lambda *_: 0  # noqa: E731
    _sync_file_range(file, begin, length, _START)


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


class Taken(TransferError):
    """A file that is not to be replaced has the name."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} exists: somebody put it there while this download was under way",
            retryable=False,
            remedy="choose another path, or remove that file",
        )


class Part:
    """PATH.part, locked against other processes; trouble with the disk is a NodeError."""

    def __init__(self, path: str, *, replace: bool = True) -> None:
        self.path = path
        self._replace = replace  # a file that has the name in the end
        self.name = os.path.basename(path)
        self.place = f"{path}{SUFFIX}"
        self.seconds = 0.0  # in writing
        self.written = 0
        self._gone = False
        self._held: Lock | None = None
        with self._disk():
            os.makedirs(os.path.dirname(path) or os.curdir, exist_ok=True)
            try:
                self._open(os.O_EXCL)
            except FileExistsError:
                self._take_over()

    @contextlib.contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self.trouble(error) from None

    def _take_over(self) -> None:
        """Resume the part that is there, unless somebody else could have put bytes into it."""
        try:
            self._open()
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM):
                self._refuse_planted(os.lstat(self.place))
            if error.errno != errno.ELOOP:
                raise
            os.unlink(self.place)  # a link could lead anywhere
            self._open(os.O_EXCL)
        about = os.fstat(self.file)
        # a second name: whole, by a process that was killed just then, or somebody else's hand
        if about.st_nlink > 1 or why_untrusted(about):
            os.unlink(self.place)
            self._let_go()
            self._open(os.O_EXCL)

    def _open(self, more: int = 0) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | more
        self.file = os.open(self.place, flags, 0o644)
        try:
            about = os.fstat(self.file)
            if not stat.S_ISREG(about.st_mode):
                raise NodeError(f"{self.name}{SUFFIX} is in the way and is not a file")
            if not more:
                self._refuse_planted(about)
            self._lock()
        except Exception:
            self._let_go()
            raise

    def _refuse_planted(self, about: os.stat_result) -> None:
        """Another user's part is neither resumed nor removed: they may be writing to it."""
        if about.st_uid != os.geteuid():
            raise NodeError(
                f"{self.place} {why_untrusted(about)}, so {self.name} cannot be written to it",
                remedy="ask them to remove it, or choose another path",
            )

    def _lock(self) -> None:
        try:
            self._held = lock(self.file)
        except BlockingIOError:
            raise TransferError(
                f"another process is downloading {self.name} at the moment",
                retryable=True,
                remedy="wait for it, or stop it",
            ) from None
        except OSError:
            pass  # a system without locks
        try:
            brought = os.lstat(self.place).st_ino != os.fstat(self.file).st_ino
        except FileNotFoundError:
            brought = True
        if brought:
            raise TransferError(f"another process has just downloaded {self.name}", retryable=True)

    def _let_go(self, busy: bool = False) -> None:
        if self._held is not None:
            self._held.release()
            self._held = None
        if not busy:
            os.close(self.file)

    def clear(self) -> None:
        with self._disk():
            os.ftruncate(self.file, 0)

    def reserve(self, size: int, room: int = 0) -> None:
        """Give the file its size, with room on the disk where the file system can promise it.

        `room`: only so many bytes of it will be there at a time.
        """
        with self._disk():
            if os.fstat(self.file).st_size > size:
                os.ftruncate(self.file, size)
            if size == 0:
                return
            self._need(min(room or size, size))
            if room or not self._allocate(size):
                os.ftruncate(self.file, size)

    def _need(self, size: int) -> None:
        """Asked first: some file systems fill themselves before they find that it is too much."""
        about = os.fstatvfs(self.file)
        free = about.f_bavail * about.f_frsize + os.fstat(self.file).st_blocks * 512
        if about.f_blocks and free < size:  # not every file system tells
            words = f"the node's disk is full: {self.name} needs {size} bytes, and {free} are free"
            raise NoSpaceError(words, remedy=_ROOM)

    def _allocate(self, size: int) -> bool:
        """Whether the file system promises the room, and does so at once."""
        begin = time.monotonic()
        try:
            os.posix_fallocate(self.file, 0, min(size, _PROBE))
            if size > _PROBE and time.monotonic() - begin >= _QUICK:
                return False
            os.posix_fallocate(self.file, 0, size)
        except (OSError, AttributeError) as error:
            if isinstance(error, OSError) and error.errno in FULL:
                raise
            return False
        return True

    def write(self, buffer: memoryview, offset: int) -> None:
        begin = time.monotonic()
        count = len(buffer)
        try:
            while buffer:
                done = os.pwrite(self.file, buffer[: _WRITE - offset % _WRITE], offset)
                buffer = buffer[done:]
                offset += done
                if offset % _BATCH == 0:
                    start_writeback(self.file, offset - _BATCH, _BATCH)
        except OSError as error:
            raise self.trouble(error) from None
        self.seconds += time.monotonic() - begin
        self.written += count

    def punch(self, begin: int, end: int) -> None:
        """Give the blocks of a stretch back to the disk; it reads as zeros then."""
        with self._disk():
            punch(self.file, begin, end - begin)

    def read_into(self, views: Sequence[memoryview], offset: int) -> int:
        try:
            return os.preadv(self.file, views, offset)
        except OSError as error:
            raise self.trouble(error) from None

    def sync(self) -> None:
        with self._disk():
            os.fdatasync(self.file)

    def finish(self, size: int) -> None:
        """Put the file in place under its own name; Taken where it must not replace another."""
        try:
            if os.fstat(self.file).st_size != size:
                os.ftruncate(self.file, size)
            os.fsync(self.file)
            if self._replace:
                os.replace(self.place, self.path)
            else:
                name_new(self.place, self.path)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.place)
            self._gone = True
            sync_folder(os.path.dirname(self.path))
        except FileExistsError:
            raise Taken(self.path) from None
        except FileNotFoundError:
            raise DiskError(
                f"the folder of {self.name} was removed while it arrived",
                remedy="make the folder again, and try again",
            ) from None
        except OSError as error:
            raise self.trouble(error) from None

    def close(self, *, keep: bool, busy: bool = False) -> None:
        """Close; an incomplete file is removed unless somebody may go on with it.

        `busy`: a thread may still hold the number of the file, which must then not be used again.
        """
        if not self._gone and not keep:
            with contextlib.suppress(OSError):
                os.unlink(self.place)
        self._let_go(busy)

    def trouble(self, error: OSError) -> DiskError:
        if error.errno in (*FULL, errno.EFBIG):
            words = f"the node's disk is full: {self.name} has no room beyond {self.written} bytes"
            return NoSpaceError(words, remedy=_ROOM)
        return DiskError(f"the node's disk fails: {self.name}: {error.strerror}")
