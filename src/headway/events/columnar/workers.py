"""Work in several forked processes, which end with their parent."""

from __future__ import annotations

import ctypes
import gc
import json
import os
import selectors
import signal
import struct
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from headway.errors import EventLogError

_FRAME = struct.Struct("<qq")  # which piece of work, how many bytes follow
_NUMBER = struct.Struct("<q")
_FAILED, _DONE = -1, -2
_ALIGN = 8  # of arrays in what is sent

#: Bytes that a worker can send before anybody reads, where the system lets it.
_PIPE_SIZE = 1 << 20
#: Settings of glibc's malloc: numbers and values.
_MMAP_THRESHOLD, _TRIM_THRESHOLD = (-3, 32 << 20), (-1, 256 << 20)
_SMALL_MMAP_THRESHOLD = (-3, 256 << 10)


def can_fork() -> bool:
    """Whether this process may fork: in the copy, other threads would stop in mid-work.

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
    work: Callable[[int], object],
    workers: int,
    meanwhile: Callable[[], object] | None = None,
) -> Iterator[tuple[int, Any]]:
    """What `work` makes of each number below `count`, in the order in which it is finished.

    It makes lists and dicts of arrays, numbers and texts; a tuple arrives as a list.
    Each worker takes the next number when it is free. A failure in one ends all. `meanwhile` is
    called in this process once all of them are at work.
    """
    # Whoever holds the pipe's one entry takes its number and puts the next one back.
    baton_out, baton_in = os.pipe()
    os.write(baton_in, _NUMBER.pack(0))
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
    count: int, work: Callable[[int], object], baton: tuple[int, int], into: int, others: list[int]
) -> None:
    # Never returns: files and exit handlers belong to the parent.
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
            (number,) = _NUMBER.unpack(os.read(baton[0], _NUMBER.size))
            os.write(baton[1], _NUMBER.pack(number + 1))
            if number >= count:
                _send(into, _DONE, [])
                break
            try:
                sent = _packed(work(number))
            except Exception:
                failure = traceback.format_exc().encode("utf-8", "replace")
                _send(into, _FAILED, [memoryview(failure)])
                break
            _send(into, number, sent)
        status = 0
    except OSError:
        pass  # the parent is gone
    finally:
        os._exit(status)


def keep_memory() -> None:
    """Let work reuse the memory of the work before it, which would come anew page by page."""
    for setting in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
        _call_glibc("mallopt", *setting)


def give_memory_back() -> None:
    """Return to the system at once what this process frees of large arrays; costs a little time.

    Otherwise malloc keeps it, in pieces too small for anything else. So does the allocator of
    polars, which reads its settings when it is first imported.
    """
    os.environ.setdefault("_RJEM_MALLOC_CONF", "dirty_decay_ms:0,muzzy_decay_ms:0")
    _call_glibc("mallopt", *_SMALL_MMAP_THRESHOLD)


def trim_memory() -> None:
    """Return to the system the free memory between what is in use."""
    _call_glibc("malloc_trim", 0)


def _call_glibc(name: str, *arguments: int) -> None:
    with suppress(OSError, AttributeError):  # another C library: then it is a little slower
        getattr(ctypes.CDLL(None), name)(*arguments)


def _send(into: int, number: int, pieces: list[memoryview]) -> None:
    total = sum(piece.nbytes for piece in pieces)
    for piece in (memoryview(_FRAME.pack(number, total)), *pieces):
        rest = piece.cast("B") if piece.nbytes else piece
        while rest.nbytes:
            rest = rest[os.write(into, rest) :]


def _packed(made: object) -> list[memoryview]:
    """JSON that says of each array what it is and where, then the arrays as they lie in memory."""
    pieces: list[memoryview] = []
    at = 0

    def noted(value: object) -> object:
        nonlocal at
        if isinstance(value, np.generic):
            return value.item()
        if not isinstance(value, np.ndarray):
            raise TypeError(f"a worker cannot send {type(value)}")
        data, begin = np.ascontiguousarray(value).reshape(-1).view(np.uint8).data, at
        pieces.extend(_aligned(data))
        at += data.nbytes + -data.nbytes % _ALIGN
        return {"dtype": value.dtype.str, "shape": value.shape, "at": begin}

    head = json.dumps(made, default=noted).encode()
    return [memoryview(_NUMBER.pack(len(head))), *_aligned(memoryview(head)), *pieces]


def _aligned(piece: memoryview) -> list[memoryview]:
    return [piece, memoryview(bytes(-piece.nbytes % _ALIGN))]


def _unpacked(data: memoryview) -> Any:
    """What `_packed` was given; its arrays lie in the data."""
    (size,) = _NUMBER.unpack_from(data)
    head, arrays = data[_NUMBER.size :][:size], data[_NUMBER.size + size + -size % _ALIGN :]

    def found(value: dict[str, Any]) -> Any:
        if "dtype" not in value:
            return value
        return np.ndarray(value["shape"], value["dtype"], arrays, value["at"])

    return json.loads(bytes(head), object_hook=found)


def _collected(pipes: list[int]) -> Iterator[tuple[int, Any]]:
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            selector.register(pipe, selectors.EVENT_READ, frames := _frames(pipe))
            next(frames)
        while selector.get_map():
            for key, _ in selector.select():
                frame = next(key.data)
                if frame is None:
                    continue
                next(key.data)
                number, body = frame
                if number == _FAILED:
                    raise EventLogError(
                        "reading the event logs failed:\n" + str(body, "utf-8", "replace"),
                        remedy="This is a bug in Headway; please report it with the log.",
                    )
                if number == _DONE:
                    selector.unregister(key.fd)
                else:
                    yield number, _unpacked(body)


def _frames(pipe: int) -> Generator[tuple[int, memoryview] | None, None, None]:
    """What a worker sends; None before each read, so that nobody waits for a slow worker."""
    while True:
        number, size = _FRAME.unpack((yield from _received(pipe, _FRAME.size)))
        yield number, (yield from _received(pipe, size))


def _received(pipe: int, size: int) -> Generator[None, None, memoryview]:
    # Not a bytearray, which would be filled with zeros first.
    body, filled = np.empty(size, np.uint8).data, 0
    while filled < size:
        yield
        count = os.readv(pipe, [body[filled:]])
        if not count:
            raise EventLogError(
                "a process that was reading the event logs died",
                remedy="Perhaps the memory ran out: try fewer logs at once, or one worker.",
            )
        filled += count
    return body
