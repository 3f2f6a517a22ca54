"""Work in several processes that share nothing but the work: forked, and gone with their parent."""

from __future__ import annotations

import ctypes
import gc
import os
import selectors
import signal
import struct
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np

from headway.errors import EventLogError

_FRAME = struct.Struct("<qq")  # which piece of work, how many bytes follow
_NEXT = struct.Struct("<q")
_FAILED, _DONE = -1, -2
#: Bytes that a worker can send before anybody reads, where the system lets it.
_PIPE_SIZE = 1 << 20
#: Settings of glibc's malloc: numbers and values.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = (-3, 32 << 20), (-1, 256 << 20)
_SMALL_MMAP_THRESHOLD = (-3, 256 << 10)


def can_fork() -> bool:
    """Whether this process may be copied: other threads would be lost in the middle of things.

    A timer is asleep, and holds nothing.
    """
    others = (
        thread
        for thread in threading.enumerate()
        if thread is not threading.current_thread() and not isinstance(thread, threading.Timer)
    )
    return (
        hasattr(os, "fork")
        and sys.platform != "darwin"  # where system libraries break in the copy
        and not any(others)
        and signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL  # nobody else takes our children
    )


def each(
    count: int,
    work: Callable[[int], list[memoryview]],
    workers: int,
    meanwhile: Callable[[], object] | None = None,
) -> Iterator[tuple[int, memoryview]]:
    """What `work` makes of each number below `count`, as it gets done, in any order.

    Each worker takes the next number when it is free. A failure in one ends all. `meanwhile` is
    called in this process once all of them are at work.
    """
    # Whoever holds the pipe's one entry takes its number and puts the next one back.
    baton_out, baton_in = os.pipe()
    os.write(baton_in, _NEXT.pack(0))
    pipes: list[int] = []
    pids: list[int] = []
    try:
        for _ in range(workers):
            out, into = os.pipe()
            pipes.append(out)
            _widen(into)
            try:
                pid = _fork()
                if not pid:
                    _be_a_worker(count, work, (baton_out, baton_in), into, pipes)
            finally:
                os.close(into)
            pids.append(pid)
        if meanwhile:
            meanwhile()
        yield from _collected(pipes)
    finally:
        for descriptor in (baton_out, baton_in, *pipes):
            os.close(descriptor)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)  # one that is done is there until we have waited for it
            os.waitpid(pid, 0)


def _widen(pipe: int) -> None:
    with suppress(OSError, ImportError, AttributeError):
        import fcntl

        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)


def _fork() -> int:
    with warnings.catch_warnings():
        # Python counts the threads of NumPy's linear algebra, which a worker does not use.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _be_a_worker(
    count: int,
    work: Callable[[int], list[memoryview]],
    baton: tuple[int, int],
    into: int,
    others: list[int],
) -> None:
    # Never comes back: what the parent has begun (files, exit handlers) is the parent's.
    status = 1
    try:
        # Only the parent reads, so that a worker's next write fails once the parent is gone.
        for descriptor in others:
            os.close(descriptor)
        gc.disable()  # a worker makes no cycles, and soon ends
        keep_memory()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while True:
            (number,) = _NEXT.unpack(os.read(baton[0], _NEXT.size))
            os.write(baton[1], _NEXT.pack(number + 1))
            if number >= count:
                _send(into, _DONE, [])
                break
            try:
                made = work(number)
            except Exception:
                failure = traceback.format_exc().encode("utf-8", "replace")
                _send(into, _FAILED, [memoryview(failure)])
                break
            _send(into, number, made)
        status = 0
    except OSError:
        pass  # the parent is gone
    finally:
        os._exit(status)


def keep_memory() -> None:
    """Let work use the memory of the work before it, and not get it anew, page by page."""
    with suppress(OSError, AttributeError):  # another libc: then it is a little slower
        mallopt = ctypes.CDLL(None).mallopt
        for setting in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
            mallopt(*setting)


def give_memory_back() -> None:
    """From here on the system gets at once what this process frees of large arrays.

    malloc would keep it in pieces that fit nobody, as much as is in use. So does that of polars,
    which looks at its settings when it is first imported. It costs a little time.
    """
    os.environ.setdefault("_RJEM_MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0")
    with suppress(OSError, AttributeError):  # another libc
        ctypes.CDLL(None).mallopt(*_SMALL_MMAP_THRESHOLD)


def trim_memory() -> None:
    """Give the system back what is free between what is in use."""
    with suppress(OSError, AttributeError):  # another libc
        ctypes.CDLL(None).malloc_trim(0)


def _send(into: int, number: int, pieces: list[memoryview]) -> None:
    total = sum(piece.nbytes for piece in pieces)
    for piece in (memoryview(_FRAME.pack(number, total)), *pieces):
        rest = piece.cast("B") if piece.nbytes else piece
        while rest.nbytes:
            rest = rest[os.write(into, rest) :]


class _Inbox:
    """What one worker has sent so far of its next result."""

    def __init__(self) -> None:
        self.number = 0
        self._head = bytearray()
        self._body: memoryview | None = None
        self._filled = 0

    def receive(self, descriptor: int) -> bool:
        """Read what is there; False at the end."""
        if self._body is None:
            data = os.read(descriptor, _FRAME.size - len(self._head))
            self._head += data
            if len(self._head) == _FRAME.size:
                self.number, size = _FRAME.unpack(self._head)
                # Not a bytearray, which would be filled with zeros first.
                self._body, self._filled = np.empty(size, np.uint8).data, 0
            return bool(data)
        if self._filled == len(self._body):
            return True
        count = os.readv(descriptor, [self._body[self._filled :]])
        self._filled += count
        return count > 0

    def take(self) -> memoryview | None:
        """The result if it is complete."""
        if self._body is None or self._filled < len(self._body):
            return None
        body, self._body = self._body, None
        self._head.clear()
        return body


def _collected(pipes: list[int]) -> Iterator[tuple[int, memoryview]]:
    with selectors.DefaultSelector() as selector:
        for descriptor in pipes:
            selector.register(descriptor, selectors.EVENT_READ, _Inbox())
        while selector.get_map():
            for key, _ in selector.select():
                inbox: _Inbox = key.data
                if not inbox.receive(key.fd):
                    raise _died()
                body = inbox.take()
                if body is None:
                    continue
                if inbox.number == _FAILED:
                    raise EventLogError(
                        "reading the event logs failed:\n" + str(body, "utf-8", "replace"),
                        remedy="This is a bug in Headway; please report it with the log.",
                    )
                if inbox.number == _DONE:
                    selector.unregister(key.fd)
                else:
                    yield inbox.number, body


def _died() -> EventLogError:
    return EventLogError(
        "a process that was reading the event logs died",
        remedy="Perhaps the memory ran out: try with fewer logs at once, or with one worker.",
    )
