"""The manifest of an object: its size, a digest per chunk, and for a tar file where each member is.

`headway publish PATH` writes it to `PATH.headway`. Two lines of text, then binary sections:

    headway-manifest 1 SHA256-OF-THE-NEXT-LINE
    {"chunk_size":…,"members":…,"sections":[[NAME,LENGTH,SHA256],…],"sha256":…,"size":…}
    SECTION SECTION …

The text says to people and to old readers what it is; each section is a column of fixed width, so
that nothing has to be parsed before it is needed, and the chunk digests are readable without the
member index. No part is compressed: the names are stored as differences, which is enough, needs no
zlib on the node, and leaves a hostile manifest nothing to blow up. The digests in the two lines
tell accidents; only a pin, the sha256 of the whole manifest, tells a forgery. The same object
gives the same manifest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from headway.node.errors import ManifestError as ManifestError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from headway.node.transfer.members import Index, Member, NestedTar

    Piece = bytes | bytearray | memoryview

SUFFIX = ".headway"
MAGIC = b"headway-manifest "
VERSION = 1
MAX_MANIFEST = 256 << 20  # bytes that a reader takes in at most
MAX_HEAD = 64 << 10  # bytes of the two lines
MAX_SIZE = 1 << 50
MIN_CHUNK, MAX_CHUNK = 64 << 10, 1 << 30
MAX_CHUNKS = 1 << 20
_DIGEST = 32  # whole sha256: cutting it would save a third of a megabyte of 150 GB, and an argument
_AGAIN = "fetch it again from another source, or publish the object again"


class Chunk:
    """One stretch of the object, and the sha256 of its bytes."""

    def __init__(self, offset: int, size: int, digest: bytes) -> None:
        self.offset, self.size, self.digest = offset, size, digest

    def __repr__(self) -> str:
        return f"Chunk({self.offset}, {self.size}, {self.digest.hex()[:12]}…)"


class Digests(Sequence[bytes]):
    """The chunk digests by number, read where they lie."""

    def __init__(self, table: memoryview) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table) // _DIGEST

    def __getitem__(self, number: int) -> bytes:  # type: ignore[override]
        if not 0 <= number < len(self):
            raise IndexError(number)
        return bytes(self._table[number * _DIGEST : (number + 1) * _DIGEST])


class Manifest:
    """What an object must be; made by `read_manifest`, which has checked all but the members."""

    algorithm = "sha256"

    def __init__(
        self, size: int, chunk_size: int, sha256: str, digests: Digests, index: Index | None
    ) -> None:
        self.size, self.chunk_size = size, chunk_size
        self.sha256 = sha256  # of the whole object, in hex
        self.digests = digests
        self._index = index

    @property
    def checksum(self) -> str:
        """The whole object's checksum as job.toml writes it."""
        return f"sha256:{self.sha256}"

    @property
    def chunks(self) -> int:
        """How many chunks there are."""
        return len(self.digests)

    def chunk(self, number: int) -> Chunk:
        """The chunk with this number, from 0; IndexError where there is none."""
        offset = number * self.chunk_size
        digest = self.digests[number]
        return Chunk(offset, min(self.chunk_size, self.size - offset), digest)

    @property
    def is_tar(self) -> bool:
        """Whether the object is a tar file whose members are indexed."""
        return self._index is not None

    @property
    def member_count(self) -> int:
        return self._index.count if self._index is not None else 0

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes of the members, in the order in which the tar file first has them."""
        return self._index.classes if self._index is not None else ()

    @property
    def tars(self) -> tuple[NestedTar, ...]:
        """The tar files within the tar file, as ILSVRC2012 has one for each class."""
        return self._index.tars if self._index is not None else ()

    def members(self) -> Iterator[Member]:
        """Each member in the order of the file, decoded one by one; ManifestError on nonsense."""
        return self._index.members() if self._index is not None else iter(())

    @property
    def index(self) -> Index | None:
        """The member index by columns, for those who need millions of offsets at once."""
        return self._index


def chunk_size_for(size: int) -> int:
    """About a thousand chunks, from 256 KiB to 1 MiB each; of huge objects as many as there may be.

    What is read while it arrives is dealt out by chunks, so few or large ones would mix badly.
    """
    chunk = 256 << 10
    while (chunk < 1 << 20 and size > chunk * 1000) or size > chunk * MAX_CHUNKS:
        chunk *= 2
    return chunk


def digest_of(data: Piece) -> str:
    """The manifest's own digest, as it is pinned: that of `sha256sum PATH.headway`."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def make_manifest(
    path: str,
    progress: Callable[[int, int], None] | None = None,
    *,
    chunk_size: int | None = None,
    index: bool = True,
) -> bytes:
    """The manifest of a file here, in one pass over it; `progress(done, size)` is called often."""
    from headway.node.transfer.survey import survey

    return survey(path, progress, chunk_size=chunk_size, index=index).manifest()


def write_manifest(
    size: int, chunk_size: int, sha256: bytes, digests: Piece, index: list[tuple[str, bytes]] | None
) -> bytes:
    """The bytes of a manifest; `index` are the sections of the member index."""
    sections = [("chunks", bytes(digests)), *(index or [])]
    members = dict(sections).get("gaps")
    head = {
        "chunk_size": chunk_size,
        "members": None if members is None else len(members),
        "sections": [
            [name, len(data), hashlib.sha256(data).hexdigest()] for name, data in sections
        ],
        "sha256": sha256.hex(),
        "size": size,
    }
    line = json.dumps(head, separators=(",", ":"), sort_keys=True).encode()
    first = MAGIC + f"{VERSION} {hashlib.sha256(line).hexdigest()}\n".encode()
    return b"".join([first, line, b"\n", *(data for _, data in sections)])


def read_manifest(data: Piece, *, pin: str | None = None) -> Manifest:
    """Check a manifest, from anybody, against itself and the pin ("sha256:…"), and open it."""
    if len(data) > MAX_MANIFEST:
        raise ManifestError(f"the manifest has {len(data)} bytes, more than {MAX_MANIFEST}")
    if pin is not None:
        _check_pin(data, pin)
    view = memoryview(data).cast("B")
    head, begin = _head(view)
    sections = _sections(head, view, begin)
    size = _number(head, "size", 0, MAX_SIZE)
    chunk_size = _number(head, "chunk_size", MIN_CHUNK, MAX_CHUNK)
    digests = sections.get("chunks")
    if digests is None or len(digests) != -(-size // chunk_size) * _DIGEST:
        raise _damaged("its chunk digests do not cover the object")
    sha256 = head.get("sha256")
    if not isinstance(sha256, str) or not _is_sha256(sha256):
        raise _damaged("it names no digest of the whole object")
    index = None
    if head.get("members") is not None:
        from headway.node.transfer.members import Index

        count = _number(head, "members", 0, MAX_MANIFEST)
        index = Index(count, size, sections)
    return Manifest(size, chunk_size, sha256, Digests(digests), index)


def manifest_url(url: str) -> str:
    """Where the manifest of the object at `url` lies; a query, such as `directread`, stays."""
    path, mark, query = url.partition("?")
    return f"{path}{SUFFIX}{mark}{query}"


def looks_like_manifest(head: bytes) -> bool:
    """Whether a file that begins so was written by `headway publish`."""
    return head.startswith(MAGIC)


def checked_pin(pin: str) -> str:
    """The pin in small letters; ManifestError where it is no sha256."""
    name, _, digits = pin.strip().lower().partition(":")
    if name != "sha256" or not _is_sha256(digits):
        raise ManifestError(
            f"the pin {pin[:80]!r} is not sha256: and 64 hex digits",
            remedy="copy it from what `headway publish` printed",
        )
    return f"{name}:{digits}"


def _check_pin(data: Piece, pin: str) -> None:
    wanted = checked_pin(pin)
    have = digest_of(data)
    if have != wanted:
        raise ManifestError(
            f"the manifest is {have[:19]}…, not the pinned {wanted[:19]}…",
            retryable=True,
            remedy="another source may hold the right one; if the object was published anew,"
            " pin the new digest",
        )


def _head(view: memoryview) -> tuple[dict[str, Any], int]:
    """The second line, and where the sections begin."""
    start = bytes(view[:MAX_HEAD])
    first, newline, rest = start.partition(b"\n")
    words = first.decode("ascii", "replace").split(" ")
    if not first.startswith(MAGIC) or len(words) != 3 or not newline:
        raise _damaged("it does not begin as a manifest does")
    if words[1] != str(VERSION):
        if words[1].isdigit() and len(words[1]) < 6:
            raise ManifestError(
                f"the manifest is of version {words[1]}; this Headway reads version {VERSION}",
                remedy="use a newer Headway, or publish the object with this one",
            )
        raise _damaged("its version is no number")
    line, newline, _ = rest.partition(b"\n")
    if not newline or hashlib.sha256(line).hexdigest() != words[2]:
        raise _damaged("its head is not what it was written as")
    try:
        head = json.loads(line)
    except (ValueError, RecursionError):
        raise _damaged("its head is not JSON") from None
    if not isinstance(head, dict):
        raise _damaged("its head is no table")
    return head, len(first) + len(line) + 2


def _sections(head: dict[str, Any], view: memoryview, begin: int) -> dict[str, memoryview]:
    told = head.get("sections")
    if not isinstance(told, list):
        raise _damaged("it lists no sections")
    found: dict[str, memoryview] = {}
    for entry in told:
        if not (isinstance(entry, list) and len(entry) == 3 and isinstance(entry[0], str)):
            raise _damaged("its list of sections is garbled")
        name, length, digest = entry
        if type(length) is not int or not 0 <= length <= len(view) - begin or name in found:
            raise _damaged(f"its section {name[:20]!r} does not fit")
        part = view[begin : begin + length]
        if hashlib.sha256(part).hexdigest() != digest:
            raise _damaged(f"its section {name[:20]!r} is not what it was written as")
        found[name] = part
        begin += length
    if begin != len(view):
        raise _damaged(f"{len(view) - begin} bytes follow its end")
    return found


def _number(head: dict[str, Any], key: str, least: int, most: int) -> int:
    value = head.get(key)
    if type(value) is not int or not least <= value <= most:
        raise _damaged(f"its {key} is out of bounds")
    return value


def _is_sha256(digits: str) -> bool:
    return len(digits) == 64 and all(c in "0123456789abcdef" for c in digits)


def _damaged(why: str) -> ManifestError:
    return ManifestError(f"the manifest is damaged: {why}", retryable=True, remedy=_AGAIN)
