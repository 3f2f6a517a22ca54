"""Opening log files, compressed or not: by what is in them, not by their names."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol

from headway.events.skip import (
    FREE_BYTES,
    INFLATED_LIMIT,
    RATIO_LIMIT,
    Skip,
    end_of_hole,
    is_zeros,
)

_STEP = 1 << 16
#: A stream may ask for this much memory to be decompressed, which all usual settings stay below.
_WINDOW_LOG = 27
_XZ_MEMORY = 256 << 20


class _Decompressor(Protocol):
    """What bz2, lzma and zstd have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class LogReader:
    """The decompressed bytes of a file, in pieces, with never more in memory than one piece.

    Of a damaged or truncated file come all the bytes before the damage; then `damage` says what
    is wrong. So it does where a compressed file gives more than a log would: see `RATIO_LIMIT` and
    `INFLATED_LIMIT`. OSError comes through as it is.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115
        try:
            self.stat = os.fstat(self._file.fileno())
            self.compression, make = _compression(os.read(self._file.fileno(), 16))
            self._file.seek(0)
        except BaseException:
            self._file.close()
            raise
        self._stream = _Stream(self._file, make) if make else None
        #: How many bytes have come out.
        self.offset = 0
        self.damage: Skip | None = None

    def read(self, size: int = 1 << 20) -> bytes:
        """At least one and at most `size` bytes; none at the end or where the damage begins."""
        if self._stream is None:
            data = self._file.read(size)
        elif self.damage:
            data = b""
        else:
            try:
                data = self._stream.read(size)
            except _Damaged:
                data = self._rest(size)
            if why := self._too_much(len(data)):
                self.damage = Skip(self.offset, 0, why)
                data = b""
        self.offset += len(data)
        return data

    def blocks(self, size: int) -> Iterator[bytes | int]:
        """What is left in blocks of up to `size` bytes; in place of zeros, how many there are."""
        if self._stream is None:
            for block in file_blocks(self._file.fileno(), self.offset, None, size):
                self.offset += block if isinstance(block, int) else len(block)
                yield block
            return
        while data := self.read(size):
            yield len(data) if is_zeros(data) else data

    def _too_much(self, count: int) -> str:
        """Why so many bytes more are too many; empty if they are not."""
        assert self._stream
        after = self.offset + count
        if after > INFLATED_LIMIT:
            return (
                f"the {self.compression} data go on, and of a compressed file only the first"
                f" {INFLATED_LIMIT >> 30} GiB are read: decompress it to have it read whole"
            )
        if after > FREE_BYTES and after > RATIO_LIMIT * self._stream.taken:
            return (
                f"the {self.compression} data grow more than {RATIO_LIMIT}-fold, as no log does:"
                f" decompress the file to have it read whole"
            )
        return ""

    def head(self, size: int) -> bytes:
        """The next `size` bytes, or fewer if there are no more."""
        found = b""
        while len(found) < size and (block := self.read(size - len(found))):
            found += block
        return found

    def fileno(self) -> int:
        """The file's descriptor, which stays this reader's."""
        return self._file.fileno()

    def rewind(self) -> None:
        """Begin again."""
        self._file.seek(0)
        self.offset = 0
        self.damage = None
        if self._stream:
            self._stream = _Stream(self._file, self._stream.make)

    def close(self) -> None:
        """Give the file back."""
        self._file.close()

    def __enter__(self) -> LogReader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _rest(self, size: int) -> bytes:
        # What a decompressor had made of a piece before it met the damage is lost with the error.
        # So go there again, and take the piece in byte by byte.
        assert self._stream
        last, ahead = self._stream.before, self.offset
        self._file.seek(0)
        self._stream = stream = _Stream(self._file, self._stream.make)
        found = bytearray()
        try:
            while ahead and stream.taken < last and (piece := stream.read(min(ahead, _STEP))):
                ahead -= len(piece)
            stream.step = 1
            while len(found) < ahead + size and (piece := stream.read(size)):
                found += piece
        except _Damaged as error:
            why = f"the {self.compression} data {error}"
            self.damage = Skip(self.offset + len(found) - ahead, 0, why)
        return bytes(found[ahead:])


def file_blocks(descriptor: int, at: int, stop: int | None, size: int) -> Iterator[bytes | int]:
    """The bytes of a file from `at` to `stop`, its end for None, in blocks of up to `size` bytes.

    A block of nothing but zeros comes as their number, and with the hole that follows it: a file
    may say that it has a terabyte where nobody has written a byte.
    """
    while data := os.pread(descriptor, size if stop is None else min(size, stop - at), at):
        at += len(data)
        if not is_zeros(data):
            yield data
            continue
        end = end_of_hole(descriptor, at)
        end = end if stop is None else min(end, stop)
        yield len(data) + max(0, end - at)
        at = max(at, end)


def open_log(path: str | os.PathLike[str]) -> LogReader:
    """A reader of the file's bytes, decompressed if gzip, xz, bzip2 or zstd made them."""
    return LogReader(path)


class _Damaged(Exception):
    """A compressed stream cannot be read on from here."""


class _Stream:
    """One or several compressed streams, one after the other, as one."""

    def __init__(self, file: BinaryIO, make: Callable[[], _Decompressor]) -> None:
        self.make = make
        #: Bytes that are taken in at a time; how many have been, and had been before the last time.
        self.step, self.taken, self.before = _STEP, 0, 0
        self._file = file
        self._one: _Decompressor | None = None
        self._input = b""

    def read(self, size: int) -> bytes:
        while True:
            if self._one is None and not self._begin():
                return b""
            one = self._one
            assert one
            if one.needs_input and not self._input:
                self._input = self._more()
                if not self._input:
                    raise _Damaged("end in the middle")
            piece, self._input = self._input, b""
            try:
                data = one.decompress(piece, size)
            except MemoryError:
                raise
            except Exception as error:  # each module has its own
                raise _Damaged(f"are damaged: {error}") from error
            if one.eof:
                self._input = one.unused_data
                self._one = None
            if data:
                return data

    def _begin(self) -> bool:
        # Tape blocks and xz pad streams with zeros.
        while not (rest := self._input.lstrip(b"\0")):
            self._input = self._more()
            if not self._input:
                return False
        while len(rest) < 16 and (more := self._more()):
            rest += more
        if _compression(rest)[1] is None:
            raise _Damaged("are followed by something else")
        self._input = rest
        self._one = self.make()
        return True

    def _more(self) -> bytes:
        found = self._file.read(self.step)
        self.before, self.taken = self.taken, self.taken + len(found)
        return found


class _Gzip:
    """zlib with the manners of its younger siblings."""

    def __init__(self) -> None:
        import zlib

        self._zlib = zlib.decompressobj(wbits=31)
        self._full = False

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def needs_input(self) -> bool:
        return not self._full and not self._zlib.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        found = self._zlib.decompress(self._zlib.unconsumed_tail + data, max_length)
        self._full = len(found) == max_length
        return found


def _xz() -> _Decompressor:
    import lzma

    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)


def _bzip2() -> _Decompressor:
    import bz2

    return bz2.BZ2Decompressor()


def _zstd() -> _Decompressor:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG})


def _compression(head: bytes) -> tuple[str, Callable[[], _Decompressor] | None]:
    if head.startswith(b"\x1f\x8b\x08"):
        return "gzip", _Gzip
    if head.startswith(b"\xfd7zXZ\0"):
        return "xz", _xz
    if head[:3] == b"BZh" and head[4:10] in (b"1AY&SY", b"\x17rE8P\x90"):
        return "bzip2", _bzip2
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return "zstd", _zstd
    return "", None
