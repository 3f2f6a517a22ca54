"""The survey of a file: its digests and the index of its members, in one pass at disk speed.

Reading, the digest of the whole and the digests of the chunks each have a thread; hashing lets the
others run. The buffers go round, so that memory stays the same whatever the size of the file.
"""

from __future__ import annotations

import errno
import hashlib
import os
import queue
import stat
import threading

from headway.node.transfer.manifest import (
    MAX_CHUNK,
    MAX_CHUNKS,
    MAX_SIZE,
    MIN_CHUNK,
    ManifestError,
    chunk_size_for,
    write_manifest,
)
from headway.node.transfer.tar_index import TarIndexer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_PIECE = 4 << 20
_PIECES = 4


class Survey:
    """What a pass over a file has found."""

    def __init__(self, size: int, chunk_size: int, hashes: _Hashes, tar: TarIndexer | None) -> None:
        self.size, self.chunk_size = size, chunk_size
        self.sha256, self.digests = hashes.whole.digest(), bytes(hashes.chunks)
        self.tar = tar

    def manifest(self) -> bytes:
        """The bytes of the manifest."""
        index = self.tar.members.sections() if self.tar is not None else None
        return write_manifest(self.size, self.chunk_size, self.sha256, self.digests, index)


def survey(
    path: str,
    progress: Callable[[int, int], None] | None = None,
    *,
    chunk_size: int | None = None,
    index: bool = True,
) -> Survey:
    """Read a file from one end to the other; ManifestError where it is not one to publish."""
    name = os.path.basename(path)
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise _unreadable(name, error) from None
    try:
        before = os.fstat(file)
        if not stat.S_ISREG(before.st_mode):
            raise ManifestError(f"{name} is not a file", remedy="publish each file of a folder")
        size = before.st_size
        chunk = _checked_chunk_size(size, chunk_size)
        empty_is_tar = path.lower().endswith(".tar")
        tar = TarIndexer(size, empty_is_tar=empty_is_tar) if index else None
        hashes = _Hashes(chunk)
        _read(file, name, size, hashes, tar, progress)
        after = os.fstat(file)
    finally:
        os.close(file)
    if (after.st_size, after.st_mtime_ns) != (size, before.st_mtime_ns):
        raise _changed(name)
    if tar is not None:
        tar.finish(size)
        if tar.damage:
            raise ManifestError(
                f"{name} is a damaged tar file: {tar.damage}",
                remedy="make it anew; --no-index publishes it as it is, as mere bytes",
            )
    return Survey(size, chunk, hashes, tar if tar is not None and tar.is_tar else None)


def _read(
    file: int,
    name: str,
    size: int,
    hashes: _Hashes,
    tar: TarIndexer | None,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Let every byte pass by the hashes and the indexer."""
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    done = 0
    with hashes:
        while done < size:
            buffer = hashes.buffer()
            try:
                count = os.readv(file, [memoryview(buffer)[: min(_PIECE, size - done)]])
            except OSError as error:
                raise _unreadable(name, error) from None
            if not count:
                raise _changed(name)
            if tar is not None and tar.want is not None:
                tar.feed(memoryview(buffer)[:count])
            hashes.take(buffer, count)
            done += count
            if progress is not None:
                progress(done, size)


class _Hashes:
    """The digest of the whole and those of the chunks, each made by a thread of its own."""

    def __init__(self, chunk_size: int) -> None:
        self.whole = hashlib.sha256()
        self.chunks = bytearray()
        self._chunk_size = chunk_size
        self._chunk, self._in_chunk = hashlib.sha256(), 0
        self._free: queue.Queue[bytearray] = queue.Queue()
        self._work = (_Queue(), _Queue())
        feeds = (self.whole.update, self._feed_chunks)
        self._threads = [
            threading.Thread(target=self._hash, args=pair, daemon=True)
            for pair in zip(self._work, feeds)
        ]
        self._users: dict[int, int] = {}
        self._lock = threading.Lock()
        self._error: BaseException | None = None

    def __enter__(self) -> None:
        for _ in range(_PIECES):
            self._free.put(bytearray(_PIECE))
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        for work in self._work:
            work.put(None)
        for thread in self._threads:
            thread.join()
        if self._error is not None:
            raise self._error
        if self._in_chunk:
            self.chunks += self._chunk.digest()

    def buffer(self) -> bytearray:
        """A buffer that nobody uses any more."""
        buffer = self._free.get()
        if self._error is not None:
            raise self._error
        return buffer

    def take(self, buffer: bytearray, count: int) -> None:
        """Hash the next bytes; the buffer comes back by itself."""
        with self._lock:
            self._users[id(buffer)] = len(self._work)
        for work in self._work:
            work.put((buffer, count))

    def _hash(self, work: _Queue, feed: Callable[[memoryview], None]) -> None:
        while True:
            item = work.get()
            if item is None:
                return
            buffer, count = item
            try:
                feed(memoryview(buffer)[:count])
            except BaseException as error:  # the reader waits for the buffer, and must be told
                self._error = self._error or error
            with self._lock:
                self._users[id(buffer)] -= 1
                unused = not self._users[id(buffer)]
            if unused:
                self._free.put(buffer)

    def _feed_chunks(self, piece: memoryview) -> None:
        while piece:
            part = piece[: self._chunk_size - self._in_chunk]
            self._chunk.update(part)
            self._in_chunk += len(part)
            piece = piece[len(part) :]
            if self._in_chunk == self._chunk_size:
                self.chunks += self._chunk.digest()
                self._chunk, self._in_chunk = hashlib.sha256(), 0


if TYPE_CHECKING:
    _Queue = queue.SimpleQueue[tuple[bytearray, int] | None]
else:
    _Queue = queue.SimpleQueue


def _checked_chunk_size(size: int, chunk_size: int | None) -> int:
    if size > MAX_SIZE:
        raise ManifestError(f"{size} bytes are more than a manifest can describe")
    chunk = chunk_size_for(size) if chunk_size is None else chunk_size
    if not MIN_CHUNK <= chunk <= MAX_CHUNK or chunk % 4096:
        raise ManifestError(
            f"a chunk of {chunk} bytes is none: 64 KiB to 1 GiB, in steps of 4 KiB",
            remedy="8 MiB to 64 MiB serve well",
        )
    if size > chunk * MAX_CHUNKS:
        raise ManifestError(
            f"chunks of {chunk} bytes would be more than {MAX_CHUNKS}",
            remedy=f"{chunk_size_for(size)} bytes would do",
        )
    return chunk


def _unreadable(name: str, error: OSError) -> ManifestError:
    remedy = "name a file that is there" if error.errno == errno.ENOENT else ""
    if error.errno in (errno.EACCES, errno.EPERM):
        remedy = "ask its owner to let you read it, or publish a copy that is yours"
    return ManifestError(
        f"{name} cannot be read: {error.strerror}",
        remedy=remedy or "copy it to a sound disk, look at the copy, and publish that",
    )


def _changed(name: str) -> ManifestError:
    return ManifestError(
        f"{name} has changed while it was read", remedy="publish it when nobody writes to it"
    )
