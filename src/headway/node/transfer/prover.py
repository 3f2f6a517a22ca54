"""The prover: checks bytes in a thread of its own as soon as they are on disk.

With a manifest each chunk is checked as soon as it is complete; a declared checksum is computed
over the bytes from the beginning up to the first gap, so that both are ready soon after the last
byte. The bytes are read back from the page cache, which also exposes a disk that does not keep what
it is given.
"""

from __future__ import annotations

import hashlib
import threading

from headway.node.errors import NodeError
from headway.node.transfer.checksum import Checksum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headway.node.transfer.ledger import Ledger
    from headway.node.transfer.manifest import Manifest
    from headway.node.transfer.part import Part

_PIECE = 1 << 20


class Prover:
    """Follows the ledger in a thread of its own; `changed` wakes all, and `lock` is its lock."""

    def __init__(
        self,
        part: Part,
        ledger: Ledger,
        changed: threading.Condition,
        lock: threading.RLock,
        bad_chunk: Callable[[int, int], None],
        manifest: Manifest | None,
        tell: Callable[[int, int], None] | None = None,
    ) -> None:
        """`tell` is called for each chunk that is right, with the condition held."""
        self._part, self._ledger, self._changed = part, ledger, changed
        self._tell = tell
        self._bytes_came = threading.Condition(lock)  # wakes this thread and nobody else
        self._bad_chunk = bad_chunk  # called with the condition held
        self._manifest = manifest
        self._proven: set[int] = set()
        self._whole: dict[int, None] = {}  # chunks that are on disk and not proven, oldest first
        self._frontier = 0  # chunks before it are all proven
        self._checksum: Checksum | None = None
        self._hashed = 0
        self._epoch = 0  # grows whenever bytes that may have been read are forgotten
        self._thread: threading.Thread | None = None
        self._end = False
        self._buffer: memoryview | None = None
        self.error: Exception | None = None

    def expect(self, checksum: str | None) -> None:
        """Check the whole object against a checksum, from the beginning; None: not any more."""
        self._checksum, self._hashed = Checksum(checksum) if checksum else None, 0
        self._epoch += 1

    @property
    def expects(self) -> bool:
        return self._checksum is not None

    def arrived(self, begin: int, end: int) -> None:
        """These bytes are on disk now, and the condition is held."""
        if self._manifest is None or begin >= end:
            return
        size, whole = self._manifest.chunk_size, self._manifest.size
        for number in range(begin // size, -(-end // size)):
            first = number * size
            if number not in self._proven and self._ledger.on_disk(first, min(first + size, whole)):
                self._whole[number] = None

    def known(self, begin: int, end: int) -> None:
        """These bytes are here and were proven before, and the condition is held."""
        if self._manifest is not None:
            size = self._manifest.chunk_size
            last = len(self._manifest.digests) if end >= self._manifest.size else end // size
            for number in range(-(-begin // size), last):
                self._proven.add(number)
                self._whole.pop(number, None)

    def prefer(self, stretches: Iterable[tuple[int, int]]) -> None:
        """Prove these first, and the condition is held."""
        if self._manifest is None or len(self._whole) < 2:
            return
        size = self._manifest.chunk_size
        first = (n for a, b in stretches for n in range(a // size, -(-b // size)))
        chosen = {number: None for number in first if number in self._whole}
        self._whole = {**chosen, **self._whole}

    def wake(self) -> None:
        """There are new bytes, and the condition is held."""
        if self._thread is None and (self._checksum or self._manifest):
            self._thread = threading.Thread(target=self._run, name="prover", daemon=True)
            self._thread.start()
        self._bytes_came.notify()

    def forgotten(self, begin: int, end: int) -> None:
        """Bytes were taken back, and the condition is held."""
        self._epoch += 1
        if self._manifest is not None:
            size = self._manifest.chunk_size
            gone = range(begin // size, min(-(-end // size), len(self._manifest.digests)))
            self._proven.difference_update(gone)
            for number in gone:
                self._whole.pop(number, None)
            self._frontier = min(self._frontier, begin // size)
        if begin < self._hashed and self._checksum is not None:
            self._checksum.restart()
            self._hashed = 0

    def done(self) -> bool:
        """Whether all bytes have been looked at, and the condition is held."""
        size = self._ledger.size
        if size is None or not self._ledger.complete:
            return False
        if self._manifest is not None and len(self._proven) < len(self._manifest.digests):
            return False
        return self._checksum is None or self._hashed == size

    def wrong(self) -> str | None:
        """None when the whole is what was declared, else words; to be called when `done`."""
        return None if self._checksum is None else self._checksum.fault()

    def close(self) -> bool:
        """End the thread; whether it has ended."""
        self._end = True
        with self._changed:
            self._bytes_came.notify()
        if self._thread is not None:
            self._thread.join(5.0)
        return self._thread is None or not self._thread.is_alive()

    def _run(self) -> None:
        self._buffer = memoryview(bytearray(_PIECE))
        while not self._end:
            with self._bytes_came:
                work = self._next()
                if work is None:
                    self._bytes_came.wait(0.2)
                    continue
                epoch = self._epoch
            try:
                if work[0] == "chunk":
                    self._check(work[1], epoch)
                else:
                    self._hash(work[1], work[2], epoch)
            except NodeError as error:
                with self._changed:
                    self.error = error
                    self._changed.notify_all()
                return

    def _next(self) -> tuple[str, int, int] | None:
        ledger = self._ledger
        if ledger.size is None:
            return None
        if self._manifest is not None:
            while self._frontier in self._proven:
                self._frontier += 1
            for number in self._whole:
                return "chunk", number, 0
        if self._checksum is None:
            return None
        reach = ledger.prefix()
        if self._manifest is not None:
            reach = min(reach, self._frontier * self._manifest.chunk_size)
        if reach > self._hashed:
            return "hash", self._hashed, min(reach, self._hashed + 16 * _PIECE)
        return None

    def _check(self, number: int, epoch: int) -> None:
        assert self._manifest is not None
        begin = number * self._manifest.chunk_size
        end = min(begin + self._manifest.chunk_size, self._manifest.size)
        hasher = hashlib.new(self._manifest.algorithm)
        self._read(begin, end, hasher.update)
        right = hasher.digest() == self._manifest.digests[number]
        with self._changed:
            if epoch != self._epoch or self._end:
                return  # if the chunk is still whole it is looked at again
            self._whole.pop(number, None)
            if right:
                self._proven.add(number)
                if self._tell is not None:
                    self._tell(begin, end)
            else:
                self._bad_chunk(begin, end)
            self._changed.notify_all()

    def _hash(self, begin: int, end: int, epoch: int) -> None:
        checksum = self._checksum
        assert checksum is not None
        self._read(begin, end, checksum.feed)
        with self._changed:
            if epoch == self._epoch:
                self._hashed = end
                if end == self._ledger.size:
                    self._changed.notify_all()
            elif checksum is self._checksum:
                checksum.restart()  # it has eaten bytes that were taken back meanwhile
                self._hashed = 0

    def _read(self, begin: int, end: int, feed: Callable[[memoryview], object]) -> None:
        assert self._buffer is not None
        while begin < end and not self._end:
            count = self._part.read_into([self._buffer[: min(_PIECE, end - begin)]], begin)
            if count == 0:
                raise NodeError(f"the node's disk fails: {self._part.name} became shorter")
            feed(self._buffer[:count])
            begin += count
