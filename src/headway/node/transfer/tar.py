"""The member index of a tar file, by columns: built while the file is read, decoded when asked for.

One entry per member in each column: `sizes` (4 or 8 bytes), `gaps` (blocks of 512 bytes between the
end of the member before and this one's data; 255: the next number of `far`), `class_of` (0: none,
otherwise one more than the class's place in `classes`), and of the name what it shares at its
`front` and `back` with the name before, and the `middles` of `lengths` bytes. `tars` lists the
nested tar files, `notes` the few members that are not plain files. Integers are little-endian.
Of 1.28 million images the whole takes about eleven bytes each.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from typing import NamedTuple

from headway.node.errors import ManifestError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    Wants = Generator[tuple[int, int], bytes, None]


BLOCK = 512
MAX_NAME = 4096
MAX_CLASSES = MAX_TARS = 1 << 18
FILE, SPARSE, HARD_LINK, SYMBOLIC_LINK = 0, 1, 2, 3
KINDS = ("file", "sparse", "hard link", "symbolic link")
_FAR = 255
_TAR = struct.Struct("<QQIIH")
_NOTE = struct.Struct("<IBQH")
_LENGTH = struct.Struct("<H")


class Member(NamedTuple):
    """One member; `offset` and `size` are those of its bytes in the published file."""

    name: str  # as in its tar file, without a leading ./ or /; never leads out of a folder
    offset: int
    size: int
    class_name: str | None
    tar: str | None  # the nested tar file that it is in
    kind: str  # one of KINDS; a sparse member's bytes are not its content, a link has none
    full_size: int  # of a sparse member when unpacked
    target: str  # of a link, as it is written in the tar file: not to be trusted


class NestedTar(NamedTuple):
    """A tar file within the tar file, and which members are in it."""

    name: str
    offset: int
    size: int
    first: int  # the number of its first member
    members: int  # how many it has


def safe_name(raw: bytes) -> bytes | None:
    """A member's name as a path below some folder; None if it is none, or too long."""
    plain = b"//" not in raw and b"/." not in raw and raw[:1] not in (b".", b"/", b"")
    if not plain or raw[-1:] == b"/":
        parts = [part for part in raw.split(b"/") if part not in (b"", b".")]
        if b".." in parts:
            return None
        raw = b"/".join(parts)
    return raw if raw and len(raw) <= MAX_NAME and b"\0" not in raw else None


class Builder:
    """Takes members in the order of the file and keeps them in columns."""

    def __init__(self) -> None:
        self.left_out = 0  # members whose name leads out of a folder or is too long
        self._sizes = array("Q")
        self._gaps = bytearray()
        self._far = array("Q")
        self._class_of = array("I")
        self._classes: dict[bytes, int] = {}
        self._front, self._back = bytearray(), bytearray()
        self._lengths = array("H")
        self._middles = bytearray()
        self._notes = bytearray()
        self._tars: list[tuple[bytes, int, int, int, int]] = []
        self._end = 0
        self._name = b""

    def __len__(self) -> int:
        return len(self._gaps)

    def add(
        self,
        raw: bytes,
        offset: int,
        size: int,
        class_name: bytes | None,
        kind: int = FILE,
        full_size: int = 0,
        target: bytes = b"",
    ) -> None:
        """One more member, behind all that are here."""
        name = safe_name(raw)
        if name is None:
            self.left_out += 1
            return
        if kind != FILE:
            target = target[:MAX_NAME]
            self._notes += _NOTE.pack(len(self), kind, full_size, len(target)) + target
        blocks = (offset - self._end) // BLOCK
        self._gaps.append(min(blocks, _FAR))
        if blocks >= _FAR:
            self._far.append(blocks)
        self._end = offset + -(-size // BLOCK) * BLOCK
        self._sizes.append(size)
        self._class_of.append(self._class_number(class_name))
        front, back = _shared(self._name, name)
        self._front.append(front)
        self._back.append(back)
        middle = name[front : len(name) - back]
        self._lengths.append(len(middle))
        self._middles += middle
        self._name = name

    def _class_number(self, name: bytes | None) -> int:
        return 0 if name is None else self._classes.setdefault(name, len(self._classes)) + 1

    def mark(self) -> Callable[[], None]:
        """A function that forgets the members since, should a nested tar file turn out damaged."""
        columns = [(column, len(column)) for column in self._everything()]
        classes, state = len(self._classes), (self._end, self._name, self.left_out)

        def rollback() -> None:
            for column, length in columns:
                del column[length:]
            while len(self._classes) > classes:
                self._classes.popitem()
            self._end, self._name, self.left_out = state

        return rollback

    def _everything(self) -> list[array[int] | bytearray]:
        numbers = (self._sizes, self._far, self._class_of, self._lengths)
        return [*numbers, self._gaps, self._front, self._back, self._middles, self._notes]

    def add_tar(self, raw: bytes, offset: int, size: int, first: int) -> bool:
        """The members since `first` are those of this nested tar file; False if it cannot be."""
        name = safe_name(raw)
        if name is None or len(self._tars) >= MAX_TARS:
            return False
        self._tars.append((name, offset, size, first, len(self) - first))
        return True

    def sections(self) -> list[tuple[str, bytes]]:
        """The index as sections of a manifest."""
        classes = list(self._classes)
        # one folder around everything says nothing, and one for each member is not a class either
        if (len(classes) == 1 and not self._tars) or len(classes) > MAX_CLASSES:
            classes = []
        tars = [_TAR.pack(*numbers, len(name)) + name for name, *numbers in self._tars]
        sizes = self._sizes
        narrow = not sizes or max(sizes) < 1 << 32
        return [
            ("sizes", _bytes_of(array("I", sizes) if narrow else sizes)),
            ("gaps", bytes(self._gaps)),
            ("far", _bytes_of(self._far)),
            ("class_of", _bytes_of(_narrowed(self._class_of, len(classes)))),
            ("classes", b"".join(_LENGTH.pack(len(name)) + name for name in classes)),
            ("front", bytes(self._front)),
            ("back", bytes(self._back)),
            ("lengths", _bytes_of(self._lengths)),
            ("middles", bytes(self._middles)),
            ("tars", b"".join(tars)),
            ("notes", bytes(self._notes)),
        ]


class Index:
    """The member index of a manifest from anybody: lengths are checked now, values when decoded."""

    def __init__(self, count: int, size: int, sections: Mapping[str, memoryview]) -> None:
        self.count = count
        self._size = size
        empty = memoryview(b"")
        columns = {name: sections.get(name, empty) for name in _WIDTHS}
        for name, widths in _WIDTHS.items():
            if len(columns[name]) not in [count * width for width in widths]:
                raise _wrong(f"its column {name!r} does not hold {count} members")
        self._columns = columns
        self._far, self._middles = sections.get("far", empty), sections.get("middles", empty)
        self._notes = sections.get("notes", empty)
        if len(self._far) % 8:
            raise _wrong("its column 'far' ends within a number")
        self.classes = tuple(_strings(sections.get("classes", empty)))
        self.tars = tuple(_tars(sections.get("tars", empty), count, size))

    def sizes(self) -> array[int]:
        """The size of each member's bytes in the file."""
        column = self._columns["sizes"]
        return _array("I" if len(column) == 4 * self.count else "Q", column)

    def offsets(self) -> array[int]:
        """Where each member's bytes begin in the file."""
        return array("Q", (offset for offset, _ in self.spans()))

    def class_numbers(self) -> array[int]:
        """For each member the place of its class in `classes`, counted from 1; 0: it has none."""
        column = self._columns["class_of"]
        width = len(column) // self.count if self.count else 0
        if not width:
            return array("I", bytes(4 * self.count))
        numbers = _array({1: "B", 2: "H", 4: "I"}[width], column)
        if max(numbers) > len(self.classes):
            raise _wrong("a member is of a class that it does not name")
        return numbers

    def spans(self) -> Iterator[tuple[int, int]]:
        """Offset and size of each member; ManifestError where one would be outside the object."""
        far = iter(_array("Q", self._far))
        end, size_of_object = 0, self._size
        for gap, size in zip(self._columns["gaps"], self.sizes()):
            if gap == _FAR:
                gap = next(far, 1 << 60)
            begin = end + gap * BLOCK
            if begin + size > size_of_object:
                raise _wrong("a member is behind the end of the object")
            yield begin, size
            end = begin + -(-size // BLOCK) * BLOCK

    def names(self) -> Iterator[str]:
        """The name of each member."""
        middles, at, name = bytes(self._middles), 0, b""
        fronts, backs = self._columns["front"], self._columns["back"]
        for front, back, length in zip(fronts, backs, _array("H", self._columns["lengths"])):
            end = at + length
            if front + back > len(name) or end > len(middles):
                raise _wrong("a name is garbled")
            name = name[:front] + middles[at:end] + (name[-back:] if back else b"")
            at = end
            # most names need no closer look, and there may be millions of them
            suspect = b"/" in name or b"\0" in name or name[:1] in _SUSPECT or len(name) > MAX_NAME
            if suspect and safe_name(name) != name:
                raise _wrong("a name is none, or leads out of its folder")
            yield name.decode("utf-8", "surrogateescape")

    def members(self) -> Iterator[Member]:
        """Each member in the order of the file."""
        classes: tuple[str | None, ...] = (None, *self.classes)
        notes, tars = self._each_note(), iter(self.tars)
        noted, note = next(notes, _NO_NOTE)
        tar_end, tar = 0, None
        following = next(tars, None)
        columns = zip(self.spans(), self.names(), self.class_numbers())
        for number, ((offset, size), name, class_number) in enumerate(columns):
            if number >= tar_end:
                tar = None
                while following is not None and number >= following.first + following.members:
                    following = next(tars, None)
                if following is not None and number >= following.first:
                    tar, tar_end = following.name, following.first + following.members
            if number == noted:
                yield Member(name, offset, size, classes[class_number], tar, *note)
                noted, note = next(notes, _NO_NOTE)
            else:
                yield Member(name, offset, size, classes[class_number], tar, "file", size, "")

    def not_files(self) -> Iterator[int]:
        """The numbers of the members that are not plain files."""
        return (number for number, _ in self._each_note())

    def _each_note(self) -> Iterator[tuple[int, tuple[str, int, str]]]:
        at, last, notes = 0, -1, self._notes
        while at < len(notes):
            if at + _NOTE.size > len(notes):
                raise _wrong("its notes end within one")
            number, kind, full_size, length = _NOTE.unpack_from(notes, at)
            at += _NOTE.size + length
            if at > len(notes) or not last < number < self.count or not 0 < kind < len(KINDS):
                raise _wrong("one of its notes is garbled")
            target = _text(notes[at - length : at])
            yield number, (KINDS[kind], full_size, target)
            last = number


_WIDTHS = {
    "sizes": (4, 8),
    "gaps": (1,),
    "class_of": (0, 1, 2, 4),
    "front": (1,),
    "back": (1,),
    "lengths": (2,),
}
_SUSPECT = (b"", b".")
_NO_NOTE = (-1, ("", 0, ""))


def _shared(old: bytes, new: bytes) -> tuple[int, int]:
    """How many bytes two names share at the front, and of the rest at the back."""
    most = min(len(old), len(new), 255)
    # read as one number, the highest bit that differs tells the first byte that does
    different = int.from_bytes(old[:most], "big") ^ int.from_bytes(new[:most], "big")
    front = most - (different.bit_length() + 7) // 8
    most = min(len(old) - front, len(new) - front, 255)
    if not most:
        return front, 0
    different = int.from_bytes(old[-most:], "little") ^ int.from_bytes(new[-most:], "little")
    return front, most - (different.bit_length() + 7) // 8


def _narrowed(numbers: array[int], highest: int) -> array[int]:
    if not highest:
        return array("B")
    return array("B" if highest < 1 << 8 else "H" if highest < 1 << 16 else "I", numbers)


def _bytes_of(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers = array(numbers.typecode, numbers)
        numbers.byteswap()
    return numbers.tobytes()


def _array(typecode: str, column: memoryview) -> array[int]:
    numbers: array[int] = array(typecode)
    numbers.frombytes(column)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _strings(section: memoryview) -> list[str]:
    found: list[str] = []
    at = 0
    while at < len(section):
        length = int.from_bytes(section[at : at + 2], "little")
        at += 2 + length
        if not length or at > len(section) or len(found) >= MAX_CLASSES:
            raise _wrong("its classes are garbled")
        raw = bytes(section[at - length : at])
        if safe_name(raw) != raw or b"/" in raw:
            raise _wrong("the name of a class leads out of its folder")
        found.append(_text(raw))
    return found


def _tars(section: memoryview, count: int, size: int) -> list[NestedTar]:
    found: list[NestedTar] = []
    at = end = next_member = 0
    while at < len(section):
        if at + _TAR.size > len(section) or len(found) >= MAX_TARS:
            raise _wrong("its nested tar files are garbled")
        offset, length, first, members, name_length = _TAR.unpack_from(section, at)
        at += _TAR.size + name_length
        raw = bytes(section[at - name_length : at])
        if at > len(section) or offset < end or offset + length > size or safe_name(raw) != raw:
            raise _wrong("one of its nested tar files is garbled")
        if first < next_member or first + members > count:
            raise _wrong("a nested tar file holds members that are not there")
        found.append(NestedTar(_text(raw), offset, length, first, members))
        end, next_member = offset + length, first + members
    return found


def _text(raw: bytes | memoryview) -> str:
    return bytes(raw).decode("utf-8", "surrogateescape")


def _wrong(why: str) -> ManifestError:
    return ManifestError(
        f"the manifest's member index is wrong: {why}",
        remedy="publish the object again; pin the digest of the new manifest",
    )


# -- the tar indexer: says which bytes of a tar file it must see next, and notes where members are
#
# It reads headers only, one range after the other, so that a file can be indexed while it is
# hashed, while it arrives, or by a few small reads. It knows ustar, GNU and pax headers, long
# names, sparse members, links, and nested tar files (one level, as ILSVRC2012 has one for each
# class).

MAX_EXTENDED = 1 << 20  # bytes of a long name or a pax header; no honest one is longer
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
        self.damage = ""  # what is wrong with it
        self.end_mark = False  # whether it closes as tar files do; without, it may be cut short
        self._empty_is_tar = empty_is_tar
        self._kept = bytearray()
        self._fed = 0
        self._inside = b""  # the member whose bytes it skips
        self._announced = False  # an extended header has come, its member has not
        self._walk = self._archive(0, size, None)
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
        rollback, first = self.members.mark(), len(self.members)
        try:
            yield from self._archive(at, at + size, plain.rpartition(b"/")[2][:-4] or b"tar")
        except _Damaged:
            self._announced = False
            rollback()
            return False
        added = self.members.add_tar(plain, at, size, first)
        if not added:
            rollback()
        return added

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
