"""Content: bytes that are a function of their offset, so that gigabytes need no memory."""

from __future__ import annotations

import functools
import hashlib
import os
import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

PIECE = 1 << 18
_BLOCK = 1 << 16
_BASE = 1 << 20


class Content:
    """The bytes of one version of an object."""

    size: int

    def read(self, offset: int, length: int) -> bytes:
        """The bytes from `offset`; fewer at the end."""
        raise NotImplementedError

    def descriptor(self) -> int | None:
        """An open file with exactly these bytes, for sendfile."""
        return None

    @property
    def etag(self) -> str:
        """A validator that no other content of the lab has."""
        raise NotImplementedError

    def pieces(self, length: int = PIECE) -> Iterator[bytes]:
        for offset in range(0, self.size, length):
            yield self.read(offset, length)

    def digest(self, name: str) -> str:
        """Hex digits of sha256, md5, adler32, crc32 or crc32c."""
        return _digest(self, name)

    def checksum(self, name: str = "sha256") -> str:
        """As a job declares it: "name:hex"."""
        return f"{name}:{self.digest(name)}"

    def fault(self, path: str | os.PathLike[str]) -> str | None:
        """None when the file holds exactly these bytes, else where it differs."""
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != self.size:
                return f"{size} bytes, not {self.size}"
            for number, piece in enumerate(self.pieces()):
                if (got := file.read(PIECE)) != piece:
                    first = next(
                        i for i, byte in enumerate(piece) if got[i : i + 1] != bytes([byte])
                    )
                    return f"byte {number * PIECE + first} is wrong"
        return None

    def write(self, path: str | os.PathLike[str]) -> Filed:
        """The same content as a file, which a server gives with sendfile."""
        with open(path, "wb") as file:
            for piece in self.pieces():
                file.write(piece)
        return Filed(path)


class Made(Content):
    """Pseudo-random bytes: each block of 64 KiB is another cut of the seed's base, and numbered.

    So a block in the wrong place, or of another seed, is never right by chance.
    """

    def __init__(self, size: int, seed: int = 0) -> None:
        self.size, self.seed = size, seed
        self._base = _base(seed)

    def read(self, offset: int, length: int) -> bytes:
        end = min(offset + length, self.size)
        if offset >= end:
            return b""
        first = offset // _BLOCK
        whole = b"".join([self._block(i) for i in range(first, (end - 1) // _BLOCK + 1)])
        begin = offset - first * _BLOCK
        return whole[begin : begin + end - offset]

    @property
    def etag(self) -> str:
        return f'"{self.seed:x}-{self.size:x}"'

    def _block(self, number: int) -> bytes:
        cut = number * 0x9E3779B1 % _BASE
        return struct.pack("<QQ", self.seed, number) + self._base[cut + 16 : cut + _BLOCK]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Made) and (self.size, self.seed) == (other.size, other.seed)

    def __hash__(self) -> int:
        return hash((self.size, self.seed))

    def __repr__(self) -> str:
        return f"Made({self.size}, seed={self.seed})"


class Held(Content):
    """Bytes at hand."""

    def __init__(self, data: bytes) -> None:
        self.data, self.size = data, len(data)
        # once: for each request it would be most of the time that an answer takes
        self._etag = f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'

    def read(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]

    @property
    def etag(self) -> str:
        return self._etag


#: Every byte as another one, quick enough for a source that keeps its pace.
_OTHER = bytes(byte ^ 0xFF for byte in range(256))


class Patched(Content):
    """Another version of some content, with other bytes in one stretch alone."""

    def __init__(self, content: Content, begin: int, end: int) -> None:
        self.size = content.size
        self._content, self._begin, self._end = content, begin, end

    def read(self, offset: int, length: int) -> bytes:
        data = self._content.read(offset, length)
        first, last = (min(max(0, at - offset), len(data)) for at in (self._begin, self._end))
        return data[:first] + data[first:last].translate(_OTHER) + data[last:]

    @property
    def etag(self) -> str:
        return f'{self._content.etag[:-1]}-{self._begin:x}-{self._end:x}"'

    def __repr__(self) -> str:
        return f"Patched({self._content!r}, {self._begin}, {self._end})"


class Gzipped(Content):
    """Some content as a gzip stream; its blocks are stored, so that any part is quick to make."""

    _MOST = 0xFFFF  # bytes in a stored block, after the five bytes that say so

    def __init__(self, content: Content) -> None:
        self._content = content
        self._blocks = max(1, -(-content.size // self._MOST))
        self.size = 10 + 5 * self._blocks + content.size + 8

    def read(self, offset: int, length: int) -> bytes:
        end = min(offset + length, self.size)
        first = max(0, (offset - 10) // (self._MOST + 5))
        data, at = bytearray(), 10 + first * (self._MOST + 5)
        if first == 0:
            data, at = bytearray(b"\x1f\x8b\x08\0\0\0\0\0\0\xff"), 0
        for number in range(first, self._blocks):
            if at + len(data) >= end:
                break
            part = self._content.read(number * self._MOST, self._MOST)
            last = number == self._blocks - 1
            data += struct.pack("<BHH", last, len(part), len(part) ^ 0xFFFF) + part
        if at + len(data) < end:
            crc = int(self._content.digest("crc32"), 16)
            data += struct.pack("<II", crc, self._content.size & 0xFFFFFFFF)
        return bytes(data[offset - at : end - at])

    @property
    def etag(self) -> str:
        return f"W/{self._content.etag}"


class Filed(Content):
    """The bytes of a file, which must not change while it is served."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._file = open(path, "rb")  # noqa: SIM115, it lives as long as the content
        self.size = os.fstat(self._file.fileno()).st_size

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._file.fileno(), max(0, min(length, self.size - offset)), offset)

    def descriptor(self) -> int | None:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()

    @property
    def etag(self) -> str:
        about = self.path.stat()
        return f'"{about.st_ino:x}-{about.st_mtime_ns:x}"'

    def __enter__(self) -> Filed:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@functools.lru_cache(maxsize=8)
def _base(seed: int) -> bytes:
    return random.Random(seed).randbytes(_BASE + _BLOCK)


@functools.lru_cache(maxsize=256)
def _digest(content: Content, name: str) -> str:
    if name in ("sha256", "md5"):
        hasher = hashlib.new(name, usedforsecurity=False)
        for piece in content.pieces():
            hasher.update(piece)
        return hasher.hexdigest()
    sums = {"adler32": zlib.adler32, "crc32": zlib.crc32, "crc32c": crc32c}
    if name not in sums:
        raise ValueError(f"no digest called {name}")
    value = 1 if name == "adler32" else 0
    for piece in content.pieces():
        value = sums[name](piece, value)
    return f"{value:08x}"


def crc32c(data: bytes, value: int = 0) -> int:
    """The Castagnoli CRC; 10 MB/s, and independent of every other one in this project."""
    table, value = _crc_table(), value ^ 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


@functools.cache
def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table
