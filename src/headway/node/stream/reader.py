"""Reading an object by place, whether it is here already or still arriving.

`PATH` is the whole object. While it arrives there are `PATH.arrival`, which tells what of it is
there, and `PATH.part`, which holds it; `PATH.headway` is its manifest, put there by the agent when
its digest is pinned in job.toml.
"""

from __future__ import annotations

import contextlib
import os
import time

from headway.node.errors import NodeError, TransferError
from headway.node.stream.arrival import SUFFIX as ARRIVAL
from headway.node.stream.arrival import Arrival
from headway.node.transfer.manifest import MAX_MANIFEST, read_manifest
from headway.node.transfer.manifest import SUFFIX as MANIFEST
from headway.node.transfer.part import SUFFIX as PART

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headway.node.transfer.manifest import Manifest

_GAP = 1536  # bytes between neighbours in a tar file: padding and a header, or two
_RUN = 1 << 20  # bytes that are read in one go at most, or one sample
_BEGINS = 60.0  # seconds that a fetcher may take to say how long the object is


class Object:
    """One object; forked processes may share it, since nobody moves a place in the file."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self.waited = 0.0  # seconds, of this process
        self._file, self.arrival = _opened(self.path)
        self.size = self.arrival.size if self.arrival else os.fstat(self._file).st_size

    def read(self, begin: int, length: int) -> bytes:
        """Exactly these bytes; waits until they are there."""
        if self.arrival is None:
            return self._read(begin, length)
        while True:
            self.waited += self.arrival.wait(begin, begin + length)
            losses = self.arrival.losses
            if not self.arrival.has(begin, begin + length):
                continue
            data = self._read(begin, length)
            # again: other processors may see marks and count in another order, but both before the
            # hole, since the kernel's locks are between a hole and who reads it
            if self.arrival.losses == losses and self.arrival.has(begin, begin + length):
                return data

    def read_many(self, offsets: Sequence[int], sizes: Sequence[int]) -> list[bytes]:
        """What lies at each of these places; places that are neighbours are read in one go."""
        found = [b""] * len(offsets)
        for begin, end, run in _runs(offsets, sizes):
            data = self.read(begin, end - begin)
            if len(run) == 1:
                found[run[0]] = data
            else:
                for place in run:
                    at = offsets[place] - begin
                    found[place] = data[at : at + sizes[place]]
        return found

    def _read(self, begin: int, length: int) -> bytes:
        whole = os.pread(self._file, length, begin)
        if len(whole) == length:
            return whole
        pieces = []
        while length > 0:
            piece = os.pread(self._file, length, begin)
            if not piece:
                raise NodeError(
                    f"{self.path} ends at byte {begin}, and should not",
                    remedy="the node's disk may be full or failing",
                )
            pieces.append(piece)
            begin, length = begin + len(piece), length - len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def manifest(self) -> Manifest | None:
        """The manifest beside it, if there is one; it must be of an object of this size."""
        try:
            with open(f"{self.path}{MANIFEST}", "rb") as file:
                data = file.read(MAX_MANIFEST + 1)
        except FileNotFoundError:
            return None
        found = read_manifest(data, pin=None)
        if found.size != self.size:
            raise TransferError(
                f"{self.path}{MANIFEST} is of another object: of {found.size} bytes,"
                f" and this one has {self.size}",
                retryable=False,
                remedy="`headway publish` writes it anew",
            )
        return found

    def loop_waits(self, loop: int, seconds: float) -> None:
        """Let the record know, also where all of it was here before the loop began."""
        if self.arrival is not None:
            self.arrival.loop_waits(loop, seconds)
            return
        gone = contextlib.suppress(OSError, TransferError, ValueError)
        with gone, Arrival.follow(f"{self.path}{ARRIVAL}") as arrival:
            arrival.loop_waits(loop, seconds)

    def close(self) -> None:
        if self.arrival is not None:
            self.arrival.close()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Object:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _runs(offsets: Sequence[int], sizes: Sequence[int]) -> Iterator[tuple[int, int, list[int]]]:
    """Where to read from and to, and which of the places lie there."""
    order = sorted(range(len(offsets)), key=offsets.__getitem__)
    run: list[int] = []
    begin = end = 0
    for place in order:
        offset = offsets[place]
        if run and 0 <= offset - end <= _GAP and end - begin <= _RUN:
            run.append(place)
        else:
            if run:
                yield begin, end, run
            begin, run = offset, [place]
        end = offset + sizes[place]
    if run:
        yield begin, end, run


def _opened(path: str) -> tuple[int, Arrival | None]:
    """The file with the object's bytes and, unless it is whole, what has arrived of it."""
    end = time.monotonic() + _BEGINS
    while True:
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC), None
        if not os.path.exists(f"{path}{ARRIVAL}"):
            raise NodeError(
                f"{path} is not here, and does not arrive either",
                remedy='an input with mode = "stream" arrives while the command runs',
            )
        with contextlib.suppress(FileNotFoundError):
            arrival = Arrival.follow(f"{path}{ARRIVAL}")
            with contextlib.suppress(FileNotFoundError):
                return os.open(f"{path}{PART}", os.O_RDONLY | os.O_CLOEXEC), arrival
            try:
                arrival.check()
            finally:
                arrival.close()  # it got its final name at this very moment, or begins
        if time.monotonic() > end:
            raise TransferError(f"{path} does not begin to arrive", retryable=True)
        time.sleep(0.02)
