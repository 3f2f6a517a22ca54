"""The tar indexer: says which bytes of a tar file it must see next, and notes where members lie.

It reads headers only, one range after the other, so that a file can be indexed while it is hashed,
while it arrives, or by a few small reads. It knows ustar, GNU and pax headers, long names, sparse
members, links, and tar files within the tar file (one level, as ILSVRC2012 has one for each class).
"""

from __future__ import annotations

import zlib

from headway.node.transfer.members import (
    BLOCK,
    HARD_LINK,
    SPARSE,
    SYMBOLIC_LINK,
    Builder,
    safe_name,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator

    Wants = Generator[tuple[int, int], bytes, None]

MAX_EXTENDED = 1 << 20  # bytes of a long name or a pax header; longer ones are nobody's
_MAX_MAP = 1 << 16  # blocks that continue the map of a sparse member
_REGULAR = b"0\0007"
_WITHOUT_DATA = b"123456"
_ZEROS = bytes(BLOCK)
_BLANKS = b" " * 8


class TarIndexer:
    """Indexes one tar file; `want` is the range to `take` next, None when it is done."""

    def __init__(self, size: int | None = None, *, empty_is_tar: bool = True) -> None:
        """`size` is that of the file, if it is known already."""
        self.members = Builder()
        self.is_tar = False
        self.damage = ""  # what is wrong with it, in words
        self.end_mark = False  # whether it closes as tar files do; without, it may be cut short
        self._size = size
        self._empty_is_tar = empty_is_tar
        self._kept = bytearray()
        self._fed = 0
        self._inside = b""  # the member whose bytes it skips
        self._announced = False  # an extended header has come, its member has not
        self._walk = self._outer()
        self.want: tuple[int, int] | None = None
        self._go_on(None)

    def take(self, data: bytes) -> None:
        """The bytes of the wanted range."""
        if self.want is None or len(data) != self.want[1]:
            raise ValueError("these are not the bytes that were wanted")
        self._go_on(data)

    def feed(self, piece: memoryview | bytes) -> None:
        """The next bytes of the file, where it is read from one end to the other."""
        begin, end = self._fed, self._fed + len(piece)
        self._fed = end
        while self.want is not None:
            offset, length = self.want
            if offset + length > end:
                if offset < end:
                    self._kept += piece[max(0, offset - begin) :]
                return
            if self._kept:
                self._kept += piece[: offset + length - begin]
                data = bytes(self._kept)
                self._kept.clear()
            else:
                data = bytes(piece[offset - begin : offset - begin + length])
            self._go_on(data)

    def finish(self, size: int) -> None:
        """The file is over after `size` bytes."""
        if self.want is None:
            return
        offset = self.want[0]
        self.want = None
        self._walk.close()
        if self.is_tar and (offset != size or self._announced):
            header = self._announced or offset < size
            self.damage = f"it ends within {'a header' if header else _shown(self._inside)}"

    def _go_on(self, data: bytes | None) -> None:
        try:
            self.want = next(self._walk) if data is None else self._walk.send(data)
        except StopIteration:
            self.want = None
        except _Damaged as error:
            self.want = None
            if self.is_tar:
                self.damage = str(error)

    def _outer(self) -> Wants:
        yield from self._archive(0, self._size, None)

    def _archive(self, at: int, end: int | None, class_name: bytes | None) -> Wants:
        """One tar file; `class_name` is that of all its members where it is a nested one."""
        nested = class_name is not None
        extended = _Extended()
        while end is None or at < end:
            if end is not None and at + BLOCK > end:
                raise _Damaged("it ends within a header")
            block = yield at, BLOCK
            if block == _ZEROS:
                if not nested:
                    self.is_tar = self.is_tar or (at == 0 and self._empty_is_tar)
                    self.end_mark = self.is_tar
                return
            if not _checksum_fits(block):
                raise _Damaged(f"at byte {at} it has no header")
            if not nested:
                self.is_tar = True
            at += BLOCK
            kind, size = block[156:157], _number(block[124:136])
            if kind in b"LKxgX":
                if size > MAX_EXTENDED or (end is not None and at + size > end):
                    raise _Damaged(f"at byte {at} an extended header is too long")
                self._announced = True
                if size:
                    extended.take(kind, (yield at, size))
                at += _padded(size)
                self._announced = kind != b"g"
                continue
            self._announced = False
            header = _Header(block, kind, size, extended)
            if extended:
                extended.forget()
            at = yield from self._member(header, at, end, class_name)
        if at != end or self._announced:
            raise _Damaged("it ends within a header")

    def _member(
        self, header: _Header, at: int, end: int | None, class_name: bytes | None
    ) -> Generator[tuple[int, int], bytes, int]:
        """Note one member whose data is at `at`; returns where the next header is."""
        name, kind, size = header.name, header.kind, header.size
        if kind in _WITHOUT_DATA:
            if kind in b"12":
                link = HARD_LINK if kind == b"1" else SYMBOLIC_LINK
                self._add(header, at, 0, class_name, link, 0)
            return at
        if header.map_goes_on:
            for _ in range(_MAX_MAP):
                if end is not None and at + BLOCK > end:
                    raise _Damaged("it ends within a header")
                block = yield at, BLOCK
                at += BLOCK
                if not block[504]:
                    break
            else:
                raise _Damaged(f"at byte {at} the map of a sparse member has no end")
        over = at + _padded(size)
        self._inside = name
        if end is not None and over > end:
            raise _Damaged(f"it ends within {_shown(name)}")
        if header.sparse:
            self._add(header, at, size, class_name, SPARSE, header.full_size)
        elif kind in _REGULAR and not (kind == b"\0" and name.endswith(b"/")):
            whole = class_name is None and size >= BLOCK and name[-4:].lower() == b".tar"
            if not (whole and (yield from self._nested(name, at, size))):
                self._add(header, at, size, class_name)
        return over

    def _nested(self, name: bytes, at: int, size: int) -> Generator[tuple[int, int], bytes, bool]:
        """Index a tar file within the tar file; False if it is none, or not a whole one."""
        plain = safe_name(name)
        if plain is None:
            return False
        mark, first = self.members.mark(), len(self.members)
        try:
            yield from self._archive(at, at + size, plain.rpartition(b"/")[2][:-4] or b"tar")
        except _Damaged:
            self._announced = False
            self.members.rollback(mark)
            return False
        if not self.members.add_tar(plain, at, size, first):
            self.members.rollback(mark)
            return False
        return True

    def _add(
        self,
        header: _Header,
        offset: int,
        size: int,
        class_name: bytes | None,
        kind: int = 0,
        full_size: int = 0,
    ) -> None:
        name = header.name
        if class_name is None and b"/" in name:
            plain = safe_name(name) or b""
            class_name = plain.rpartition(b"/")[0].rpartition(b"/")[2] or None
        self.members.add(name, offset, size, class_name, kind, full_size, header.target)


class _Damaged(Exception):
    """The bytes are not those of a tar file, or not of a whole one."""


class _Extended:
    """What long-name and pax headers say of the member that follows them, or of all."""

    def __init__(self) -> None:
        self._everywhere: dict[bytes, bytes] = {}
        self._here: dict[bytes, bytes] = {}

    def __bool__(self) -> bool:
        return bool(self._here or self._everywhere)

    def take(self, kind: bytes, data: bytes) -> None:
        if kind == b"L":
            self._here[b"path"] = data.partition(b"\0")[0]
        elif kind == b"K":
            self._here[b"linkpath"] = data.partition(b"\0")[0]
        else:
            (self._everywhere if kind == b"g" else self._here).update(_pax_records(data))

    def get(self, key: bytes) -> bytes | None:
        return self._here.get(key, self._everywhere.get(key))

    def forget(self) -> None:
        self._here = {}


class _Header:
    """One member's header, with what extended headers say instead."""

    def __init__(self, block: bytes, kind: bytes, size: int, extended: _Extended) -> None:
        self.kind, self.size = kind, size
        self.name, self.target = _name(block), b""
        self.sparse, self.map_goes_on, self.full_size = False, False, size
        if kind == b"S":
            self.sparse, self.map_goes_on = True, block[482] != 0
            self.full_size = _number(block[483:495])
        elif kind in b"12":
            self.target = block[157:257].partition(b"\0")[0]
        if extended:
            self._heed(extended)

    def _heed(self, extended: _Extended) -> None:
        self.name = extended.get(b"GNU.sparse.name") or extended.get(b"path") or self.name
        self.target = extended.get(b"linkpath") or self.target
        size = extended.get(b"size")
        if size is not None:
            self.size = _decimal(size)
        if self.kind != b"S" and any(map(extended.get, _SPARSE_KEYS)):
            full = extended.get(b"GNU.sparse.realsize") or extended.get(b"GNU.sparse.size") or b"0"
            self.sparse, self.full_size = True, _decimal(full)


_SPARSE_KEYS = (b"GNU.sparse.major", b"GNU.sparse.map", b"GNU.sparse.size")


def _checksum_fits(block: bytes) -> bool:
    try:
        told = _number(block[148:156])
    except _Damaged:
        return False
    counted = block[:148] + _BLANKS + block[156:]  # the checksum counts its own field as blanks
    # Adler-32 holds the sum of the bytes modulo a prime, and is thirty times faster than sum()
    if zlib.adler32(counted) & 0xFFFF == (told + 1) % 65521:
        return True
    # some old programs have added the bytes up as signed numbers
    return sum(counted) - 256 * sum(byte > 127 for byte in counted) == told


def _number(field: bytes) -> int:
    """A number of a header: octal digits, or binary where the first bit is set."""
    if field[0] & 0x80:
        if field[0] != 0x80:
            raise _Damaged("a header holds a negative number")
        value = int.from_bytes(field[1:], "big")
    else:
        digits = field.partition(b"\0")[0].strip(b" ")
        if digits.strip(b"01234567"):
            raise _Damaged("a header holds a number that is none")
        value = int(digits or b"0", 8)
    if value >= 1 << 62:
        raise _Damaged("a header holds a number out of bounds")
    return value


def _decimal(text: bytes) -> int:
    if not text.isdigit() or len(text) > 18:
        raise _Damaged("a pax header holds a number that is none")
    return int(text)


def _pax_records(data: bytes) -> dict[bytes, bytes]:
    """`LENGTH KEY=VALUE\\n`, one after the other."""
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(data) and data[at]:
        blank = data.find(b" ", at, at + 8)
        digits = data[at:blank] if blank > 0 else b""
        end = at + int(digits) if digits.isdigit() else 0
        key, equals, value = data[blank + 1 : end - 1].partition(b"=")
        if not blank < end <= len(data) or data[end - 1 : end] != b"\n" or not equals:
            raise _Damaged("a pax header is garbled")
        found[key] = value
        at = end
    return found


def _name(block: bytes) -> bytes:
    name = block[:100].partition(b"\0")[0]
    if block[345] and block[257:263] == b"ustar\0":  # GNU's own format keeps other things there
        end = 476 if block[508:512] == b"tar\0" else 500
        return block[345:end].partition(b"\0")[0] + b"/" + name
    return name


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _shown(name: bytes) -> str:
    text = name[-60:].decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "?" for c in text) or "a member"
