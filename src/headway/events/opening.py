"""Opening log files, compressed or not: by what is in them, not by their names."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import BinaryIO, NamedTuple, Protocol

# A log is somebody else's file: anything may be in it, and any amount of it. The limits below
# bound what one line, one event and one compressed file can cost. Nothing is left out silently:
# each place becomes a `Skip`, which the commands show.


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
#: Skips of one file, or of one part of it, that are listed one by one.
SKIPS_LIMIT = 1000

LONG_LINE = f"the rest of a line of more than {LINE_LIMIT >> 10} KiB"
NO_END = "an event without an end"
NO_EVENT = "no event"
NO_DATE = "an impossible date"
ZEROS = "zeros, as a crash or a hole in the file leaves them"
MORE = "more places like the ones before"


@dataclass(frozen=True)
class Skip:
    """Bytes of a log that belong to no event, and what they look like.

    Places and lengths are those of the decompressed bytes.
    """

    offset: int
    length: int
    why: str


class Skips(list[Skip]):
    """The skips of a file in order; one that continues the last one is added to it."""

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
    """Skips with their files, in order, at most `SKIPS_LIMIT` of each file."""
    files: dict[int, Skips] = {}
    for file, skip in sorted(skipped, key=lambda placed: (placed[0], placed[1].offset)):
        files.setdefault(file, Skips()).add(skip.offset, skip.length, skip.why)
    return [(file, skip) for file, skips in files.items() for skip in skips]


def is_zeros(data: bytes) -> bool:
    """Whether the data are nothing but zeros."""
    return data[:1] == b"\0" and data == bytes(len(data))


def end_of_hole(descriptor: int, at: int) -> int:
    """Where the hole of a sparse file ends; `at` itself if it is in none or nobody knows."""
    try:
        return os.lseek(descriptor, at, os.SEEK_DATA)
    except OSError as error:
        return os.fstat(descriptor).st_size if error.errno == errno.ENXIO else at
    except AttributeError:  # a system without holes
        return at


# The grammar of a text log: a chunk is what lies between two end marks, mostly one event.


END = b"\n...\n"
#: The longest beginning of an end mark.
ALMOST_END = len(b"\n...\r")

_ANY_END = re.compile(rb"\n\.\.\.\r?\n")
_HEADER_PATTERN = (
    rb"(\d{3}) \((-?\d{1,10})\.(-?\d{1,10})\.(-?\d{1,10})\) "
    rb"((?:\d\d/\d\d|\d{4}-\d\d-\d\d)[ T]\d\d:\d\d):(\d\d)(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)?"
    rb"(?: |(?=\r?\n)|\Z)"
)
HEADER = re.compile(_HEADER_PATTERN)
_RESYNC = re.compile(rb"(?:\A|(?<=[\n\0])|(?<=\xef\xbb\xbf))" + _HEADER_PATTERN)
_NESTED = re.compile(rb"\n\d\d\d \(")
_NESTED_AMONG_NULS = re.compile(rb"[\n\0]\d\d\d \(")  # five times slower
BOM = b"\xef\xbb\xbf"
_BLANK = BOM + b" \t\r\n"


class ChunkHeader(NamedTuple):
    """A chunk's header, if it has one, and how many bytes before it are lost, and why."""

    header: re.Match[bytes] | None
    lost: int
    why: str


def find_header(chunk: bytes, nuls: bool = True) -> ChunkHeader:
    """The header of the event in a chunk; `nuls`: whether there may be NUL bytes."""
    match = HEADER.match(chunk)
    if match and not (_NESTED_AMONG_NULS if nuls else _NESTED).search(chunk, match.end()):
        return ChunkHeader(match, 0, "")
    # The last header is the one that the end mark belongs to: a writer that crashed left
    # the one before it, or two writers got in each other's way.
    matches = list(_RESYNC.finditer(chunk))
    match = matches[-1] if matches else None
    lost = chunk[: match.start()] if match else chunk
    torn = HEADER.match(lost.lstrip(_BLANK + b"\0"))
    return ChunkHeader(match, len(lost), NO_END if torn else NO_EVENT)


def blank(data: bytes) -> bool:
    """Whether these bytes are only white space."""
    return not data.strip(_BLANK)


def split(data: bytes) -> list[bytes]:
    """The chunks of the data, and behind the last end mark the beginning of the next one.

    An end mark's carriage return stays with its chunk, so that the lengths add up.
    """
    if b"\r" not in data:
        return data.split(END)
    chunks, start = [], 0
    for match in _ANY_END.finditer(data):
        carriage = match.end() - match.start() - len(END)
        chunks.append(data[start : match.start()] + b"\r" * carriage)
        start = match.end()
    return [*chunks, data[start:]]


def decoded(rest: bytes) -> str:
    """What follows a header, as text with plain newlines: UTF-8, else Latin-1."""
    try:
        text = rest.decode()
    except UnicodeDecodeError:
        text = rest.decode("latin-1")
    # The last line has its own carriage return and that of the end mark.
    return text.replace("\r\n", "\n").rstrip("\r") if "\r" in text else text


def cut_lines(rest: bytes, offset: int, skipped: Skips) -> bytes:
    """What follows a header at this offset, with lines cut at `LINE_LIMIT`."""
    if len(rest) <= LINE_LIMIT:
        return rest
    lines = rest.split(b"\n")
    for number, line in enumerate(lines):
        if len(line) > LINE_LIMIT:
            kept = LINE_LIMIT
            while kept > LINE_LIMIT - 4 and line[kept] & 0xC0 == 0x80:
                kept -= 1  # not in the middle of a character
            skipped.add(offset + kept, len(line) - kept, LONG_LINE)
            lines[number] = line[:kept]
        offset += len(line) + 1
    return b"\n".join(lines)


# Telling the format of a log from its first bytes.


#: As much as `sniff` needs: a log that was rotated may begin in the middle of a long event.
HEAD_SIZE = 1 << 14


class Format(str, Enum):
    """How the events of a log are written."""

    TEXT = "text"
    XML = "xml"
    JSON = "json"
    NONE = "none"


_SIGNS = re.compile(
    rb"(?:\A|(?<=[\n\0])|(?<=\xef\xbb\xbf))"
    rb"(?:(?P<text>\d{3} \(-?\d{1,10}\.-?\d{1,10}\.-?\d{1,10}\) "
    rb"(?:\d\d/\d\d|\d{4}-\d\d-\d\d)[ T]\d\d:\d\d:\d\d)"
    rb'|(?P<xml>[ \t]*(?:<c>[^\n]*)?<a n="(?:EventTypeNumber|EventTime)">)'
    rb'|(?P<json>[ \t]*(?:\{[^\n]*)?"(?:EventTypeNumber|EventTime)" ?:))'
)


def sniff(head: bytes) -> Format:
    """The format of a log, by the first beginning of an event among its first bytes."""
    match = _SIGNS.search(head, 0, HEAD_SIZE)
    return Format(match.lastgroup) if match and match.lastgroup else Format.NONE


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
    """The bytes of a file in pieces, decompressed if gzip, xz, bzip2 or zstd made them.

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
            except _DamagedStream:
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
        """Why so many more bytes are too many; empty if they are not."""
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
        """Start again at the beginning of the file."""
        self._file.seek(0)
        self.offset = 0
        self.damage = None
        if self._stream:
            self._stream = _Stream(self._file, self._stream.make)

    def close(self) -> None:
        """Close the file."""
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
        except _DamagedStream as error:
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


class _DamagedStream(Exception):
    """The rest of a compressed stream cannot be read."""


class _Stream:
    """One compressed stream or several in a row, read as one."""

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
                    raise _DamagedStream("end in the middle")
            piece, self._input = self._input, b""
            try:
                data = one.decompress(piece, size)
            except MemoryError:
                raise
            except Exception as error:  # each module has its own
                raise _DamagedStream(f"are damaged: {error}") from error
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
            raise _DamagedStream("are followed by something else")
        self._input = rest
        self._one = self.make()
        return True

    def _more(self) -> bytes:
        found = self._file.read(self.step)
        self.before, self.taken = self.taken, self.taken + len(found)
        return found


class _Gzip:
    """zlib with the interface of bz2, lzma and zstd."""

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
