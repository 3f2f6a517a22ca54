"""What a reader could not read, and how much of a log it takes at a time.

A log is somebody else's file: anything may be in it, and as much of it as there is room for. The
limits below bound what one line, one event and one compressed file can cost. Nothing is left out
silently: each place becomes a `Skip`, which the commands show.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass

#: Bytes of a line. The longest lines of real logs, lists of input files in a job's ad, have some
#: tens of thousands. What is longer is read up to here.
LINE_LIMIT = 256 << 10
#: Bytes between two end marks. More than this is not an event.
EVENT_LIMIT = 4 << 20
#: The first bytes that come out of a compressed file are taken whatever their ratio is.
FREE_BYTES = 64 << 20
#: Behind those: bytes that come out for each byte that went in. Logs shrink 10- to 30-fold. The
#: most repetitive log, one event every minute, shrinks 50-fold (gzip) to 280-fold (xz).
RATIO_LIMIT = 500
#: Bytes that come out of one compressed file.
INFLATED_LIMIT = 4 << 30
#: Skips of one file, or of one part of it, that are told of one by one.
SKIPS_LIMIT = 1000

LONG_LINE = f"the rest of a line of more than {LINE_LIMIT >> 10} KiB"
NO_END = "an event without an end"
ZEROS = "zeros, as a crash or a hole in the file leaves them"
MORE = "more places like the ones before"


@dataclass(frozen=True)
class Skip:
    """Bytes of a log that are part of no event, and what they look like.

    Places and lengths are those of the decompressed bytes.
    """

    offset: int
    length: int
    why: str


class Skips(list[Skip]):
    """The skips of a file in their order; what follows on the last one belongs to it."""

    def add(self, offset: int, length: int, why: str) -> None:
        """Note that these bytes are part of no event."""
        last = self[-1] if self else None
        if last and last.why == why and last.offset + last.length == offset:
            self[-1] = Skip(last.offset, last.length + length, why)
        elif last and len(self) > SKIPS_LIMIT:
            # This one stands for all the others: their bytes are counted, their places are not.
            self[-1] = Skip(last.offset, last.length + length, MORE)
        else:
            self.append(Skip(offset, length, why if len(self) < SKIPS_LIMIT else MORE))


def bounded(skipped: Iterable[tuple[int, Skip]]) -> list[tuple[int, Skip]]:
    """Skips with the files that they are of, in their order, no more of a file than are told."""
    files: dict[int, Skips] = {}
    for file, skip in sorted(skipped, key=lambda placed: (placed[0], placed[1].offset)):
        files.setdefault(file, Skips()).add(skip.offset, skip.length, skip.why)
    return [(file, skip) for file, skips in files.items() for skip in skips]


def is_zeros(data: bytes) -> bool:
    """Whether the data are nothing but zeros, told at the speed of memory."""
    return data[:1] == b"\0" and data == bytes(len(data))


def end_of_hole(descriptor: int, at: int) -> int:
    """Where the next byte of a file is that somebody wrote; `at` itself where nobody can tell."""
    try:
        return os.lseek(descriptor, at, os.SEEK_DATA)
    except OSError as error:
        return os.fstat(descriptor).st_size if error.errno == errno.ENXIO else at
    except AttributeError:  # a system without holes
        return at
