"""The arrival of an object: which chunks are on disk and verified, for all processes that read it.

`PATH.arrival` is mapped into memory by the fetcher, which alone writes what has arrived, and by its
readers, which write only what they wait for. It has a page of head, then for each chunk a byte that
says whether it is there, and after these for each chunk another that says whether it ever was:

    0     magic and version
    8     size of the object, 16 size of a chunk
    24    state: arriving, complete, failed
    32    the chunk that each of 64 readers waits for, plus one
    544   the seconds that each of them has waited
    1056  how often bytes were given back, 1064 the bytes of disk that the object may take
    1072  the bytes that came again after they were given back
    1584  the seconds that each of 32 training loops has waited for its next batch
    2048  why it failed

The fetcher holds a lock on the file as long as it lives, so that a reader knows whether waiting
makes sense. A fetcher that takes over from one that was killed continues with the same file: what
is marked is on disk and verified, and stays so.

`PATH.wanted` goes the other way: the chunks in the order in which they will be read. One reader (a
data loader's main process) writes it when it starts or resumes an epoch, so that the fetcher need
not know about seeds and orders. It has a head, then the number of each chunk in four bytes:

    0     magic and version
    8     size of a chunk, 16 how many chunks are listed
    24    how many of them, from the first on, the reader is done with in this epoch

A new order replaces the file; only the last of the three changes in place. If chunks are given
back after use, one that is needed again is listed again. Without such a file the fetcher uses a
default order. What readers wait for in `PATH.arrival` comes first in any case.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import sys
import time
from array import array
from itertools import accumulate

from headway.node.errors import TransferError
from headway.node.files import Lock, create_new, lock, why_untrusted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


WANTED_SUFFIX = ".wanted"
_WANTED_MAGIC = b"hwwantd1"
_WANTED_HEAD = struct.Struct("<8sQQQ")
_DONE_AT = 24
_NUMBER = struct.Struct("<Q")
MAX_CHUNKS = 1 << 22


class Wanted:
    """The reader's side: one epoch's order, and how far it is."""

    def __init__(self, path: str, chunks: array[int], chunk: int) -> None:
        """`path`: of the object; any earlier order is replaced."""
        self.chunks = len(chunks)
        target = f"{path}{WANTED_SUFFIX}"
        draft = f"{target}.{os.getpid()}"
        self._file = create_new(draft)
        try:
            data = _WANTED_HEAD.pack(_WANTED_MAGIC, chunk, len(chunks), 0)
            data += _swapped(chunks).tobytes()
            while data:
                data = data[os.write(self._file, data) :]
            os.rename(draft, target)
        except BaseException:
            self.close()
            with contextlib.suppress(OSError):
                os.unlink(draft)
            raise

    def done(self, count: int) -> None:
        """The reader no longer needs the first `count` of them in this epoch."""
        if self._file >= 0:
            os.pwrite(self._file, _NUMBER.pack(count), _DONE_AT)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class WantedOrder:
    """The fetcher's side: what a reader has written, if it is valid."""

    def __init__(self, chunks: array[int], done: int) -> None:
        self.chunks, self.done = chunks, done


def read_wanted(path: str, chunk: int, chunks: int) -> WantedOrder | None:
    """The order that a reader of the object has written; None if there is none that is valid.

    Cheap enough to call a few times a second: a hundred kilobytes for 150 GB.
    """
    try:
        with open(f"{path}{WANTED_SUFFIX}", "rb") as file:
            if why_untrusted(os.fstat(file.fileno())):
                return None
            data = file.read(_WANTED_HEAD.size + 4 * MAX_CHUNKS + 1)
    except OSError:
        return None
    if len(data) < _WANTED_HEAD.size:
        return None
    magic, size, count, done = _WANTED_HEAD.unpack_from(data)
    if magic != _WANTED_MAGIC or size != chunk or len(data) != _WANTED_HEAD.size + 4 * count:
        return None
    numbers = array("I")
    numbers.frombytes(memoryview(data)[_WANTED_HEAD.size :])
    numbers = _swapped(numbers)
    if count and max(numbers) >= chunks:
        return None
    return WantedOrder(numbers, min(done, count))


def chunks_once(stretches: Iterable[tuple[int, int]], chunk: int) -> tuple[array[int], array[int]]:
    """The chunks of these stretches, each once, in the order in which they first occur.

    Also, for each, how many stretches must have been read until neither it nor any chunk before it
    in the list is needed: a chunk may belong to two stretches that are far apart.
    """
    last: dict[int, int] = {}  # keeps the order of the first occurrence
    for count, (begin, end) in enumerate(stretches, 1):
        for number in range(begin // chunk, -(-end // chunk)):
            last[number] = count
    return array("I", last), array("I", accumulate(last.values(), max))


def chunks_each_time(
    stretches: Iterable[tuple[int, int]], chunk: int
) -> tuple[array[int], array[int]]:
    """The chunks of these stretches, each as often as it occurs, and the stretch of each."""
    chunks, until = array("I"), array("I")
    for count, (begin, end) in enumerate(stretches, 1):
        numbers = range(begin // chunk, -(-end // chunk))
        chunks.extend(numbers)
        until.extend([count] * len(numbers))
    return chunks, until


def _swapped(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers = array(numbers.typecode, numbers)
        numbers.byteswap()
    return numbers


ARRIVAL_SUFFIX = ".arrival"
ARRIVING, COMPLETE, FAILED = 0, 1, 2
READERS = 64
_MAGIC = b"hwarriv2"
_HEAD = struct.Struct("<8sQQ")
_STATE, _RETRYABLE, _WISHES, _WAITS, _WORDS, _PAGE = 24, 25, 32, 544, 2048, 4096
_LOSSES, _ROOM, _AGAIN, _LOOPS = 1056, 1064, 1072, 1584
LOOPS = 32
_MOST_WORDS = 2000
_LENGTH = struct.Struct("<H")
_WAIT = struct.Struct("<d")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.02
_ABANDONED = 30.0  # seconds without a fetcher after which a reader gives up: it may be restarted
_LOOK = 1.0  # seconds between two looks at whether it lives


class Arrival:
    """What has arrived of one object; a context manager."""

    def __init__(self, file: int, path: str) -> None:
        self.path = path
        self._file = file
        self._lock: Lock | None = None
        self._map = mmap.mmap(file, 0)
        self.size: int
        self.chunk: int
        magic, self.size, self.chunk = _HEAD.unpack_from(self._map, 0)
        self.chunks = -(-self.size // self.chunk) if self.chunk else 0
        if magic != _MAGIC or not self.chunk or len(self._map) != _PAGE + 2 * self.chunks:
            self.close()
            raise TransferError(f"{path} does not say what has arrived", retryable=False)

    @classmethod
    def begin(cls, path: str, size: int, chunk: int, *, room: int = 0) -> Arrival:
        """Create the file, and lock it until it is closed; `room`: bytes of disk, 0: no limit."""
        chunks = -(-size // chunk)
        if chunks > MAX_CHUNKS:
            raise TransferError(f"{path}: more than {MAX_CHUNKS} chunks", retryable=False)
        draft = f"{path}.{os.getpid()}"
        file = create_new(draft)
        try:
            os.write(file, _HEAD.pack(_MAGIC, size, chunk))
            # a full disk must be noticed now, not in the map
            os.posix_fallocate(file, 0, _PAGE + 2 * chunks)
            os.pwrite(file, _NUMBER.pack(room), _ROOM)
            held = lock(file, wait=True)
            os.rename(draft, path)
        except BaseException:
            os.close(file)
            with contextlib.suppress(OSError):
                os.unlink(draft)
            raise
        made = cls(file, path)
        made._lock = held
        return made

    @classmethod
    def go_on(cls, path: str, size: int, chunk: int, *, room: int = 0) -> Arrival:
        """Continue with the file of a fetcher that was killed, or create it."""
        try:
            found = cls.follow(path)
        except (OSError, TransferError, ValueError):
            return cls.begin(path, size, chunk, room=room)
        if (found.size, found.chunk, found.room) != (size, chunk, room):
            found.close()
            return cls.begin(path, size, chunk, room=room)
        found._lock = lock(found._file, wait=True)  # a reader that looks at it holds it briefly
        found._map[_STATE] = ARRIVING
        return found

    @classmethod
    def follow(cls, path: str) -> Arrival:
        """Open the file as a reader."""
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        about = os.fstat(file)
        wrong = why_untrusted(about) or ("is too short" if about.st_size < _PAGE else "")
        if wrong:
            os.close(file)
            raise TransferError(f"{path} {wrong}: what has arrived is not known", retryable=False)
        return cls(file, path)

    def close(self) -> None:
        if self._file >= 0:
            self._map.close()
            if self._lock is not None:
                self._lock.release()
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Arrival:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- for the fetcher

    def mark(self, begin: int, end: int) -> None:
        """These bytes are on disk and verified; only complete chunks count."""
        first = -(-begin // self.chunk)
        last = self.chunks if end >= self.size else end // self.chunk
        if first >= last:
            return
        ever, marks = _PAGE + self.chunks, b"\1" * (last - first)
        here, had = self._map[_PAGE + first : _PAGE + last], self._map[ever + first : ever + last]
        again = [first + at for at, now in enumerate(here) if had[at] and not now]
        if again:
            short = self.chunks * self.chunk - self.size if again[-1] == self.chunks - 1 else 0
            _NUMBER.pack_into(self._map, _AGAIN, self.again + len(again) * self.chunk - short)
        self._map[ever + first : ever + last] = marks
        self._map[_PAGE + first : _PAGE + last] = marks

    def unmark(self, begin: int, end: int) -> None:
        """Unmark each chunk with any of these bytes; call it before the bytes are removed."""
        first, last = begin // self.chunk, min(self.chunks, -(-end // self.chunk))
        if begin < end and self._map.find(b"\1", _PAGE + first, _PAGE + last) >= 0:
            # the marks first: a reader with the new count must not see them
            self._map[_PAGE + first : _PAGE + last] = bytes(last - first)
            _NUMBER.pack_into(self._map, _LOSSES, self.losses + 1)

    def marked(self) -> list[tuple[int, int]]:
        """The stretches that are here."""
        flags = self._map[_PAGE : _PAGE + self.chunks]
        found, at = [], flags.find(1)
        while at >= 0:
            end = flags.find(0, at)
            end = self.chunks if end < 0 else end
            found.append((at * self.chunk, min(self.size, end * self.chunk)))
            at = flags.find(1, end)
        return found

    def finish(self) -> None:
        self.mark(0, self.size)
        self._map[_STATE] = COMPLETE

    def fail(self, words: str, *, retryable: bool) -> None:
        text = words.encode("utf-8", "replace")[:_MOST_WORDS]
        self._map[_WORDS : _WORDS + 2 + len(text)] = _LENGTH.pack(len(text)) + text
        self._map[_RETRYABLE] = retryable
        self._map[_STATE] = FAILED

    def wishes(self) -> list[int]:
        """The chunks that readers wait for."""
        numbers = struct.unpack_from(f"<{READERS}Q", self._map, _WISHES)
        return sorted({number - 1 for number in numbers if 0 < number <= self.chunks})

    def waited(self) -> float:
        """The seconds that training loops have waited, or else all readers together."""
        loops = self.loop_waited()
        if loops:
            return loops
        return sum(self._seconds(_WAITS, READERS))

    def loop_waited(self) -> float:
        """The longest time in seconds that a training loop has waited, for arrival or decoding."""
        return max(self._seconds(_LOOPS, LOOPS), default=0.0)

    def _seconds(self, at: int, slots: int) -> list[float]:
        found = struct.unpack_from(f"<{slots}d", self._map, at)
        return [seconds for seconds in found if 0 < seconds < 1e9]

    # -- for readers

    @property
    def state(self) -> int:
        return self._map[_STATE]

    @property
    def losses(self) -> int:
        """How often bytes were removed: a reader compares it before and after reading."""
        return int(_NUMBER.unpack_from(self._map, _LOSSES)[0])

    @property
    def room(self) -> int:
        """The bytes of disk that the object may take; 0: no limit."""
        return int(_NUMBER.unpack_from(self._map, _ROOM)[0])

    def loop_waits(self, reader: int, seconds: float) -> None:
        """Note how long a training loop has waited for batches since it began."""
        _WAIT.pack_into(self._map, _LOOPS + 8 * (reader % LOOPS), seconds)

    def has(self, begin: int, end: int) -> bool:
        """Whether all of these bytes are here."""
        first, last = begin // self.chunk, -(-min(end, self.size) // self.chunk)
        return self._map.find(b"\0", _PAGE + first, _PAGE + last) < 0

    def count(self) -> int:
        """How many bytes are here."""
        return self._sum(_PAGE)

    @property
    def ever(self) -> int:
        """How many bytes are here or were given back; each counts once."""
        return self._sum(_PAGE + self.chunks)

    @property
    def again(self) -> int:
        """How many bytes were fetched again after they were given back."""
        return int(_NUMBER.unpack_from(self._map, _AGAIN)[0])

    def _sum(self, flags: int) -> int:
        count = sum(self._map[flags : flags + self.chunks])
        last = count and self._map[flags + self.chunks - 1]
        return count * self.chunk - (self.chunks * self.chunk - self.size if last else 0)

    def wait(
        self,
        begin: int,
        end: int,
        *,
        reader: int | None = None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> float:
        """Wait until these bytes are here; returns the seconds. `reader`: a process."""
        if self.has(begin, end):
            return 0.0
        start = looked = alive = time.monotonic()
        number = (os.getpid() if reader is None else reader) % READERS
        slot = _WISHES + 8 * number
        pause = _FIRST_PAUSE
        try:
            while not self.has(begin, end):
                self.check()
                if should_stop():
                    raise TransferError("the wait for data was ended", retryable=True)
                _NUMBER.pack_into(self._map, slot, self._missing(begin, end) + 1)
                now = time.monotonic()
                if now - looked > _LOOK:
                    looked = now
                    alive = now if self._fetcher_lives() else alive
                    if now - alive > _ABANDONED:
                        raise TransferError(
                            "the data stopped arriving: its fetcher is gone",
                            retryable=True,
                            remedy="the agent's log says why",
                        )
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        finally:
            _NUMBER.pack_into(self._map, slot, 0)
            seconds = time.monotonic() - start
            (before,) = _WAIT.unpack_from(self._map, _WAITS + 8 * number)
            _WAIT.pack_into(self._map, _WAITS + 8 * number, before + seconds)
        return seconds

    def _missing(self, begin: int, end: int) -> int:
        first, last = begin // self.chunk, -(-min(end, self.size) // self.chunk)
        return max(first, self._map.find(b"\0", _PAGE + first, _PAGE + last) - _PAGE)

    def _fetcher_lives(self) -> bool:
        """Whether a fetcher holds the lock on the file that is at this path now."""
        try:
            here = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            if os.fstat(here).st_ino != os.fstat(self._file).st_ino:
                self._turn_to(here)
            lock(here, shared=True).release()
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(here)

    def _turn_to(self, file: int) -> None:
        """Use the file of another fetcher from now on."""
        fresh = os.open(f"/proc/self/fd/{file}", os.O_RDWR | os.O_CLOEXEC)
        with contextlib.suppress(TransferError, ValueError, OSError):
            other = Arrival(fresh, self.path)
            if (other.size, other.chunk) == (self.size, self.chunk):
                self._map, other._map = other._map, self._map
                self._file, other._file = other._file, self._file
            other.close()

    def check(self) -> None:
        """Raise the fetcher's error when nothing more will come."""
        if self.state == FAILED:
            (length,) = _LENGTH.unpack_from(self._map, _WORDS)
            text = bytes(self._map[_WORDS + 2 : _WORDS + 2 + min(length, _MOST_WORDS)])
            retryable = bool(self._map[_RETRYABLE])
            raise TransferError(text.decode("utf-8", "replace"), retryable=retryable)
