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
import stat
from collections import deque
from collections.abc import Sequence

from headway.node.errors import ManifestError
from headway.node.files import write_atomically

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from typing import Any

    from headway.node.transfer.tar import Index, Member, TarIndexer

    Piece = bytes | bytearray | memoryview

SUFFIX = ".headway"
MAGIC = b"headway-manifest "
VERSION = 1
MAX_MANIFEST = 256 << 20  # bytes that a reader takes in at most
MAX_HEAD = 64 << 10  # bytes of the two lines
MAX_SIZE = 1 << 50
MIN_CHUNK, MAX_CHUNK = 64 << 10, 1 << 30
MAX_CHUNKS = 1 << 20
_PIECE, _PIECES = 4 << 20, 4
_COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".txz", ".tar.zst")
_DIGEST = 32  # whole sha256: cutting it would save a third of a megabyte of 150 GB, and an argument
_AGAIN = "fetch it again from another source, or publish the object again"


class Digests(Sequence[bytes]):
    """The chunk digests by number, read from the manifest itself."""

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
        self.checksum = f"sha256:{sha256}"  # the same as job.toml writes it
        self.digests = digests
        self.chunks = len(digests)
        self.index = index  # of a tar file's members, by columns, for millions of them at once
        self.is_tar = index is not None
        self.member_count = index.count if index else 0
        self.classes = index.classes if index else ()  # in the order of the tar file
        self.tars = index.tars if index else ()  # nested ones, as ILSVRC2012 has for each class

    def members(self) -> Iterator[Member]:
        """Each member in the order of the file, decoded one by one; ManifestError on nonsense."""
        return self.index.members() if self.index is not None else iter(())


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
    return scan(path, progress, chunk_size=chunk_size, index=index).manifest()


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
    if pin is not None and digest_of(data) != checked_pin(pin):
        raise ManifestError(
            f"the manifest is {digest_of(data)[:19]}…, not the pinned {checked_pin(pin)[:19]}…",
            retryable=True,
            remedy="another source may have the right one; if the object was published again,"
            " pin the new digest",
        )
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

        index = Index(_number(head, "members", 0, MAX_MANIFEST), size, sections)
    return Manifest(size, chunk_size, sha256, Digests(digests), index)


def open_manifest(path: str, *, pin: str | None = None) -> Manifest:
    """Read a manifest from a file, and check it."""
    with open(path, "rb") as file:
        return read_manifest(file.read(MAX_MANIFEST + 1), pin=pin)


def manifest_url(url: str) -> str:
    """The URL of the manifest of the object at `url`; a query, such as `directread`, stays."""
    path, mark, query = url.partition("?")
    return f"{path}{SUFFIX}{mark}{query}"


def checked_pin(pin: str) -> str:
    """The pin in small letters; ManifestError where it is no sha256."""
    name, _, digits = pin.strip().lower().partition(":")
    if name != "sha256" or not _is_sha256(digits):
        raise ManifestError(
            f"the pin {pin[:80]!r} is not sha256: and 64 hex digits",
            remedy="copy it from what `headway publish` printed",
        )
    return f"{name}:{digits}"


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


# -- the scan of a file: its digests and the index of its members, in one pass at disk speed
#
# Reading, the digest of the whole and the digests of the chunks have a thread each; hashing lets
# the others run. The buffers are used again, so that memory does not grow with the file.


class Scan:
    """What one pass over a file has found."""

    def __init__(self, size: int, chunk_size: int, hashes: _Hashes, tar: TarIndexer | None) -> None:
        self.size, self.chunk_size = size, chunk_size
        self.sha256, self.digests = hashes.whole.digest(), hashes.chunks
        self.tar = tar

    def manifest(self) -> bytes:
        index = self.tar.members.sections() if self.tar is not None else None
        return write_manifest(self.size, self.chunk_size, self.sha256, self.digests, index)


def scan(
    path: str,
    progress: Callable[[int, int], None] | None = None,
    *,
    chunk_size: int | None = None,
    index: bool = True,
) -> Scan:
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
        from headway.node.transfer.tar import TarIndexer  # reading a manifest does without

        tar = TarIndexer(size, empty_is_tar=path.lower().endswith(".tar")) if index else None
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
                remedy="create it again, or publish it as it is with --no-index",
            )
    return Scan(size, chunk, hashes, tar if tar is not None and tar.is_tar else None)


def _read(
    file: int,
    name: str,
    size: int,
    hashes: _Hashes,
    tar: TarIndexer | None,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Let every byte pass by the hashes and the indexer."""
    from concurrent.futures import ThreadPoolExecutor

    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    done = 0
    pending: deque[tuple[bytearray, list[Future[None]]]] = deque()
    with ThreadPoolExecutor(1) as whole, ThreadPoolExecutor(1) as chunks:
        while done < size:
            if len(pending) < _PIECES:
                buffer = bytearray(_PIECE)
            else:
                buffer, hashed = pending.popleft()
                _wait(hashed)
            try:
                count = os.readv(file, [memoryview(buffer)[: min(_PIECE, size - done)]])
            except OSError as error:
                raise _unreadable(name, error) from None
            if not count:
                raise _changed(name)
            piece = memoryview(buffer)[:count]
            if tar is not None and tar.want is not None:
                tar.feed(piece)
            feeds = (whole, hashes.whole.update), (chunks, hashes.feed_chunks)
            pending.append((buffer, [pool.submit(feed, piece) for pool, feed in feeds]))
            done += count
            if progress is not None:
                progress(done, size)
    _wait([each for _, hashed in pending for each in hashed])


def _wait(hashed: list[Future[None]]) -> None:
    for each in hashed:
        each.result()


class _Hashes:
    """The digest of the whole and those of the chunks."""

    def __init__(self, chunk_size: int) -> None:
        self.whole = hashlib.sha256()
        self._chunks = bytearray()
        self._chunk_size = chunk_size
        self._chunk, self._in_chunk = hashlib.sha256(), 0

    @property
    def chunks(self) -> bytes:
        last = self._chunk.digest() if self._in_chunk else b""
        return bytes(self._chunks) + last

    def feed_chunks(self, piece: memoryview) -> None:
        while piece:
            part = piece[: self._chunk_size - self._in_chunk]
            self._chunk.update(part)
            self._in_chunk += len(part)
            piece = piece[len(part) :]
            if self._in_chunk == self._chunk_size:
                self._chunks += self._chunk.digest()
                self._chunk, self._in_chunk = hashlib.sha256(), 0


def _checked_chunk_size(size: int, chunk_size: int | None) -> int:
    if size > MAX_SIZE:
        raise ManifestError(f"{size} bytes are more than a manifest can describe")
    chunk = chunk_size_for(size) if chunk_size is None else chunk_size
    if not MIN_CHUNK <= chunk <= MAX_CHUNK or chunk % 4096:
        raise ManifestError(
            f"{chunk} is no chunk size: it must be 64 KiB to 1 GiB, in steps of 4 KiB",
            remedy="8 MiB to 64 MiB work well",
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
        remedy=remedy or "copy it to a healthy disk, check the copy, and publish that",
    )


def _changed(name: str) -> ManifestError:
    return ManifestError(
        f"{name} has changed while it was read", remedy="publish it when nobody writes to it"
    )


# -- publishing: the manifest of a file is put in the same folder, complete or not at all


class Published:
    """A manifest that was written to the folder of its object."""

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
    found = scan(path, progress, chunk_size=chunk_size, index=index)
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
    try:
        write_atomically(target, data, mode=None, exclusive=is_new)
    except FileExistsError:
        raise _foreign(target) from None
    except OSError as error:
        raise _unwritable(target, error) from None
    return published


def _is_free(target: str) -> bool:
    """Whether there is nothing at the target; a file that is no manifest stays."""
    if not os.path.lexists(target):
        return True
    try:
        if os.path.islink(target) or not os.path.isfile(target):
            raise _foreign(target)
        with open(target, "rb") as file:
            if not file.read(64).startswith(MAGIC):
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


def _foreign(target: str) -> ManifestError:
    return ManifestError(
        f"{os.path.basename(target)} exists and is not a manifest of Headway's",
        remedy="move it away; Headway does not replace it",
    )


def _unwritable(target: str, error: OSError) -> ManifestError:
    return ManifestError(f"{os.path.basename(target)} cannot be written: {error.strerror}")
