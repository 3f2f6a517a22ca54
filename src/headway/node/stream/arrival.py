"""The arrival of an object: which chunks are on disk and proven, for all processes that read it.

`PATH.arrival` is mapped into memory by the fetcher, who alone writes what has arrived, and by its
readers, who write only what they wait for. A page of head, then for each chunk a byte that says
whether it is there, and behind all of them for each another that says whether it ever was:

    0     magic and version
    8     size of the object, 16 size of a chunk
    24    state: arriving, whole, failed
    32    the chunk that each of 64 readers waits for, plus one
    544   the seconds that each of them has waited
    1056  how often bytes were given back, 1064 the bytes of disk that the object may take
    1072  the bytes that came again after they were given back
    1584  the seconds that each of 32 training loops has waited for its next batch
    2048  why it failed

The fetcher holds a lock on the file while it lives, so that a reader can tell waiting from waiting
for nobody. A fetcher that takes over from one that was killed goes on with the same file: what is
marked is on disk and proven, and stays so.

`PATH.wanted` goes the other way: the chunks in the order in which they will be read. The one reader
that leads (a data loader's main process) writes it when it begins or goes on with an epoch, so that
the fetcher need not know seeds or orders. A head, then the number of each chunk in four bytes:

    0     magic and version
    8     size of a chunk, 16 how many chunks are listed
    24    how many of them, from the first on, the reader is done with in this epoch

A new order replaces the file; only the last of the three changes in place. Where chunks are given
back once they were passed, one that is needed again is listed again. Without such a file the
fetcher has an order of its own, and the readers' wishes in `PATH.arrival` come first in any case.
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
from headway.node.files import Lock, create_new, lock, planted

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
        """`path`: of the object; any other order that was told is replaced."""
        self.chunks = len(chunks)
        target = f"{path}{WANTED_SUFFIX}"
        draft = f"{target}.{os.getpid()}"
        self._file = create_new(draft)
        try:
            data = (
                _WANTED_HEAD.pack(_WANTED_MAGIC, chunk, len(chunks), 0) + _swapped(chunks).tobytes()
            )
            while data:
                data = data[os.write(self._file, data) :]
            os.rename(draft, target)
        except BaseException:
            self.close()
            with contextlib.suppress(OSError):
                os.unlink(draft)
            raise

    def done(self, count: int) -> None:
        """The reader needs the first `count` of them no more in this epoch."""
        if self._file >= 0:
            os.pwrite(self._file, _NUMBER.pack(count), _DONE_AT)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class WantedOrder:
    """The fetcher's side: what a reader has written, if it is sound."""

    def __init__(self, chunks: array[int], done: int) -> None:
        self.chunks = chunks  # all below the number that there are
        self.done = done


def read_wanted(path: str, chunk: int, chunks: int) -> WantedOrder | None:
    """What the reader of the object at `path` wants; None: nothing, or nothing that makes sense.

    Cheap enough to ask a few times a second: a hundred kilobytes for 150 GB.
    """
    try:
        with open(f"{path}{WANTED_SUFFIX}", "rb") as file:
            if planted(os.fstat(file.fileno())):
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
    """The chunks of these stretches, each once, in the order of its first mention.

    And for each how many stretches must have been read until neither it nor any chunk before it in
    the list is needed any more: a chunk may belong to two stretches that are far apart.
    """
    last: dict[int, int] = {}  # keeps the order of the first mention
    for count, (begin, end) in enumerate(stretches, 1):
        for number in range(begin // chunk, -(-end // chunk)):
            last[number] = count
    return array("I", last), array("I", accumulate(last.values(), max))


def chunks_each_time(
    stretches: Iterable[tuple[int, int]], chunk: int
) -> tuple[array[int], array[int]]:
    """The chunks of these stretches, each as often as it is named, and for each of which it is."""
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
ARRIVING, WHOLE, FAILED = 0, 1, 2
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
_ABANDONED = 30.0  # seconds without a fetcher after which a reader gives up: one may be restarted
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
            raise TransferError(f"{path} does not tell what has arrived", retryable=False)

    @classmethod
    def begin(cls, path: str, size: int, chunk: int, *, room: int = 0) -> Arrival:
        """Nothing has arrived; it is locked until it is closed. `room`: of the disk, 0: enough."""
        chunks = -(-size // chunk)
        if chunks > MAX_CHUNKS:
            raise TransferError(f"{path}: more than {MAX_CHUNKS} chunks", retryable=False)
        draft = f"{path}.{os.getpid()}"
        file = create_new(draft)
        try:
            os.write(file, _HEAD.pack(_MAGIC, size, chunk))
            # a full disk must show now, not in the map
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
        """What a fetcher that was killed has left, or a beginning."""
        try:
            found = cls.follow(path)
        except (OSError, TransferError, ValueError):
            return cls.begin(path, size, chunk, room=room)
        if (found.size, found.chunk, found.room) != (size, chunk, room):
            found.close()
            return cls.begin(path, size, chunk, room=room)
        found._lock = lock(found._file, wait=True)  # a reader that looks holds it for a moment
        found._map[_STATE] = ARRIVING
        return found

    @classmethod
    def follow(cls, path: str) -> Arrival:
        """As a reader."""
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        about = os.fstat(file)
        wrong = planted(about) or ("does not tell" if about.st_size < _PAGE else "")
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
        """These bytes are on disk and proven; only whole chunks count."""
        first = -(-begin // self.chunk)
        last = self.chunks if end >= self.size else end // self.chunk
        if first < last:
            self._count_again(first, last)
            self._map[_PAGE + first : _PAGE + last] = b"\1" * (last - first)

    def _count_again(self, first: int, last: int) -> None:
        ever = _PAGE + self.chunks
        there, had = self._map[_PAGE + first : _PAGE + last], self._map[ever + first : ever + last]
        again = [first + at for at, now in enumerate(there) if had[at] and not now]
        if again:
            _NUMBER.pack_into(self._map, _AGAIN, self.again + self._bytes(again))
        self._map[ever + first : ever + last] = b"\1" * (last - first)

    def _bytes(self, chunks: list[int]) -> int:
        short = self.chunks * self.chunk - self.size if chunks[-1:] == [self.chunks - 1] else 0
        return len(chunks) * self.chunk - short

    def unmark(self, begin: int, end: int) -> None:
        """No chunk with any of these bytes is there any more; call it before they go."""
        first, last = begin // self.chunk, min(self.chunks, -(-end // self.chunk))
        if begin < end and self._map.find(b"\1", _PAGE + first, _PAGE + last) >= 0:
            # who takes the new count must find the marks gone; who has the old one finds it changed
            self._map[_PAGE + first : _PAGE + last] = bytes(last - first)
            _NUMBER.pack_into(self._map, _LOSSES, self.losses + 1)

    def marked(self) -> list[tuple[int, int]]:
        """The stretches that are there."""
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
        self._map[_STATE] = WHOLE

    def fail(self, words: str, *, retryable: bool) -> None:
        text = words.encode("utf-8", "replace")[:_MOST_WORDS]
        self._map[_WORDS : _WORDS + 2 + len(text)] = _LENGTH.pack(len(text)) + text
        self._map[_RETRYABLE] = retryable
        self._map[_STATE] = FAILED

    def wishes(self) -> list[int]:
        """The chunks that readers wait for."""
        numbers = (_NUMBER.unpack_from(self._map, _WISHES + 8 * slot)[0] for slot in range(READERS))
        return sorted({number - 1 for number in numbers if 0 < number <= self.chunks})

    def waited(self) -> float:
        """The seconds that training loops have waited, or else readers, all of them together."""
        loops = self.loop_waited()
        if loops:
            return loops
        each = (_WAIT.unpack_from(self._map, _WAITS + 8 * slot)[0] for slot in range(READERS))
        return float(sum(seconds for seconds in each if 0 < seconds < 1e9))

    def loop_waited(self) -> float:
        """The seconds that training loops have waited, for arrival or decoding: the worst's."""
        each = (_WAIT.unpack_from(self._map, _LOOPS + 8 * slot)[0] for slot in range(LOOPS))
        return float(max((seconds for seconds in each if 0 < seconds < 1e9), default=0.0))

    # -- for readers

    @property
    def state(self) -> int:
        return self._map[_STATE]

    @property
    def losses(self) -> int:
        """How often bytes that were there have gone: who reads looks before and after."""
        return int(_NUMBER.unpack_from(self._map, _LOSSES)[0])

    @property
    def room(self) -> int:
        """The bytes of disk that the object may take; 0: as many as it has."""
        return int(_NUMBER.unpack_from(self._map, _ROOM)[0])

    def loop_waits(self, reader: int, seconds: float) -> None:
        """This training loop has waited so long for batches since it began."""
        _WAIT.pack_into(self._map, _LOOPS + 8 * (reader % LOOPS), seconds)

    def has(self, begin: int, end: int) -> bool:
        """Whether all of these bytes are there."""
        first, last = begin // self.chunk, -(-min(end, self.size) // self.chunk)
        return self._map.find(b"\0", _PAGE + first, _PAGE + last) < 0

    def count(self) -> int:
        """How many bytes are there."""
        return self._sum(_PAGE)

    @property
    def ever(self) -> int:
        """How many bytes are there, or were until they were given back: each counts once."""
        return self._sum(_PAGE + self.chunks)

    @property
    def again(self) -> int:
        """How many bytes came again after they were given back."""
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
        """Until these bytes are there; returns the seconds that it took. `reader`: a process."""
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
        """Whether somebody marks chunks in the file that is at this path now."""
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
        """Another fetcher has begun: what it tells is what counts from now on."""
        fresh = os.open(f"/proc/self/fd/{file}", os.O_RDWR | os.O_CLOEXEC)
        with contextlib.suppress(TransferError, ValueError, OSError):
            other = Arrival(fresh, self.path)
            if (other.size, other.chunk) == (self.size, self.chunk):
                self._map, other._map = other._map, self._map
                self._file, other._file = other._file, self._file
            other.close()

    def check(self) -> None:
        """TransferError with the fetcher's words when nothing more will come."""
        if self.state == FAILED:
            raise self._failure()

    def _failure(self) -> TransferError:
        (length,) = _LENGTH.unpack_from(self._map, _WORDS)
        text = bytes(self._map[_WORDS + 2 : _WORDS + 2 + min(length, _MOST_WORDS)])
        return TransferError(text.decode("utf-8", "replace"), retryable=bool(self._map[_RETRYABLE]))
