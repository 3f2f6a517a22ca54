"""What the reader wants: the chunks of an object in the order in which it will read them.

`PATH.wanted` is written by the one reader that leads (a data loader's main process) when it begins
or goes on with an epoch, and read by the fetcher, which need not know seeds or orders. A head, then
the number of each chunk in four bytes:

    0     magic and version
    8     size of a chunk, 16 how many chunks are listed
    24    how many of them, from the first on, the reader is done with in this epoch

A new order replaces the file; only the last of the three changes in place. Where chunks are given
back once they were passed, one that is needed again is listed again. Whoever has no such file
fetches in an order of its own, and the readers' wishes in PATH.arrival come first in any case.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
from array import array
from itertools import accumulate

from headway.node.transfer.naming import create_new, planted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

SUFFIX = ".wanted"
_MAGIC = b"hwwantd1"
_HEAD = struct.Struct("<8sQQQ")
_DONE_AT = 24
_DONE = struct.Struct("<Q")
_MOST = 1 << 22


class Wanted:
    """The reader's side: one epoch's order, and how far it is."""

    def __init__(self, path: str, chunks: array[int], chunk: int) -> None:
        """`path`: of the object; any other order that was told is replaced."""
        self.chunks = len(chunks)
        target = f"{path}{SUFFIX}"
        draft = f"{target}.{os.getpid()}"
        self._file = create_new(draft)
        try:
            data = _HEAD.pack(_MAGIC, chunk, len(chunks), 0) + _swapped(chunks).tobytes()
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
            os.pwrite(self._file, _DONE.pack(count), _DONE_AT)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class Told:
    """The fetcher's side: what a reader has written, if it is sound."""

    def __init__(self, chunks: array[int], done: int) -> None:
        self.chunks = chunks  # all below the number that there are
        self.done = done


def told(path: str, chunk: int, chunks: int) -> Told | None:
    """What the reader of the object at `path` wants; None: nothing, or nothing that makes sense.

    Cheap enough to ask a few times a second: a hundred kilobytes for 150 GB.
    """
    try:
        with open(f"{path}{SUFFIX}", "rb") as file:
            if planted(os.fstat(file.fileno())):
                return None
            data = file.read(_HEAD.size + 4 * _MOST + 1)
    except OSError:
        return None
    if len(data) < _HEAD.size:
        return None
    magic, size, count, done = _HEAD.unpack_from(data)
    if magic != _MAGIC or size != chunk or len(data) != _HEAD.size + 4 * count:
        return None
    numbers = array("I")
    numbers.frombytes(memoryview(data)[_HEAD.size :])
    numbers = _swapped(numbers)
    if count and max(numbers) >= chunks:
        return None
    return Told(numbers, min(done, count))


def listed(stretches: Iterable[tuple[int, int]], chunk: int) -> tuple[array[int], array[int]]:
    """The chunks of these stretches, each once, in the order of its first mention.

    And for each how many stretches must have been read until neither it nor any chunk before it in
    the list is needed any more: a chunk may belong to two stretches that are far apart.
    """
    last: dict[int, int] = {}  # keeps the order of the first mention
    for count, (begin, end) in enumerate(stretches, 1):
        for number in range(begin // chunk, -(-end // chunk)):
            last[number] = count
    return array("I", last), array("I", accumulate(last.values(), max))


def repeated(stretches: Iterable[tuple[int, int]], chunk: int) -> tuple[array[int], array[int]]:
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
