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

import errno
import hashlib
import json
import os
import queue
import stat
import threading
from collections.abc import Sequence

from headway.node.errors import ManifestError
from headway.node.files import write_atomically

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from headway.node.transfer.tar import Index, Member, NestedTar, TarIndexer

    Piece = bytes | bytearray | memoryview
    _Queue = queue.SimpleQueue[tuple[bytearray, int] | None]
else:
    _Queue = queue.SimpleQueue


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
        from headway.node.transfer.tar import Index

        count = _number(head, "members", 0, MAX_MANIFEST)
        index = Index(count, size, sections)
    return Manifest(size, chunk_size, sha256, Digests(digests), index)


def open_manifest(path: str, *, pin: str | None = None) -> Manifest:
    """Read a manifest from a file, and check it."""
    with open(path, "rb") as file:
        return read_manifest(file.read(MAX_MANIFEST + 1), pin=pin)


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


# The survey of a file: its digests and the index of its members, in one pass at disk speed.
#
# Reading, the digest of the whole and the digests of the chunks each have a thread; hashing lets
# the others run. The buffers go round, so that memory stays the same whatever the size of the
# file.


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
        from headway.node.transfer.tar import TarIndexer  # reading a manifest does without

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


# Publishing: the manifest of a file, put beside it under its own name, whole or not at all.


_COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".txz", ".tar.zst")


class Published:
    """A manifest that lies beside its object."""

    def __init__(self, path: str, data: bytes, notes: list[str]) -> None:
        self.path = path
        self.digest = digest_of(data)  # what job.toml pins
        self.bytes = len(data)
        self.manifest: Manifest = read_manifest(data, pin=self.digest)
        self.notes = notes  # what the publisher should know of the object


def publish(
    path: str,
    *,
    chunk_size: int | None = None,
    index: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Published:
    """Write PATH.headway; an older manifest is replaced, a file that is none never is."""
    path = os.fspath(path)
    target = path + SUFFIX
    if path.endswith(SUFFIX):
        raise ManifestError(
            f"{os.path.basename(path)} is itself a manifest by its name",
            remedy=f"publish {os.path.basename(path)[: -len(SUFFIX)]}",
        )
    is_new = _is_free(target)
    _check_folder(target)
    found = survey(path, progress, chunk_size=chunk_size, index=index)
    notes = []
    if found.tar is not None:
        if not found.tar.end_mark:
            notes.append("it has no end mark, as a tar file that was cut short; look whether it is")
        if found.tar.members.left_out:
            count = found.tar.members.left_out
            notes.append(f"{count} members are not in the index: their names lead out of a folder")
    elif index and path.lower().endswith(_COMPRESSED):
        notes.append("it is compressed, so that its members cannot be indexed; a plain tar can")
    data = found.manifest()
    published = Published(target, data, notes)  # what is handed out must be good
    _put(data, target, is_new)
    return published


def _is_free(target: str) -> bool:
    """Whether there is nothing at the target; a file that is no manifest stays."""
    if not os.path.lexists(target):
        return True
    try:
        if os.path.islink(target) or not os.path.isfile(target):
            raise _foreign(target)
        with open(target, "rb") as file:
            if not looks_like_manifest(file.read(64)):
                raise _foreign(target)
    except OSError as error:
        raise _unwritable(target, error) from None
    return False


def _check_folder(target: str) -> None:
    """Say before the pass over the file, not after it, that the manifest cannot be written."""
    folder = os.path.dirname(target) or os.curdir
    if os.path.isdir(folder) and not os.access(folder, os.W_OK | os.X_OK):
        raise ManifestError(
            f"{os.path.basename(target)} cannot be written: {folder} is not yours to write to",
            remedy="publish a copy or a link to it in a folder of yours",
        )


def _put(data: bytes, target: str, is_new: bool) -> None:
    try:
        write_atomically(target, data, mode=None, exclusive=is_new)
    except FileExistsError:
        raise _foreign(target) from None
    except OSError as error:
        raise _unwritable(target, error) from None


def _foreign(target: str) -> ManifestError:
    return ManifestError(
        f"{os.path.basename(target)} exists and is not a manifest of Headway's",
        remedy="move it away; it is not touched",
    )


def _unwritable(target: str, error: OSError) -> ManifestError:
    return ManifestError(f"{os.path.basename(target)} cannot be written: {error.strerror}")
