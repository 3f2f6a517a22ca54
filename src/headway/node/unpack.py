"""Unpacking: an input becomes a folder or a file, and the payload becomes the job's own files.

The first bytes tell the format, not the name: tar, plain or compressed with gzip, bzip2, xz or
zstd; zip; or one compressed file. The archive is not trusted. Every member must have a name within
the folder. Links that lead out of it, pipes and devices are left out and named. Of a file's mode
only the right to execute it is kept. Everything is written to a folder beside the target, which is
renamed when it is complete, and no more is written than the disk that the job requested.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import re
import stat
import tarfile

from headway.node.checkpoint import discard
from headway.node.errors import (
    FULL,
    DiskError,
    HeadwayError,
    NodeError,
    NoSpaceError,
    Stopped,
    TransferError,
)
from headway.node.plan import OUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    import zipfile
    from collections.abc import Callable, Collection, Iterator
    from typing import Any, Protocol

    class Readable(Protocol):
        """A compressed file, read from its beginning to its end."""

        def read(self, size: int = ..., /) -> bytes: ...
        def close(self) -> object: ...


MOST_MEMBERS = 20_000_000
_BLOCK = 512
_CHUNK = 1 << 20
_MOST_NAMED = 5  # members that were left out
_STREAM = 1 << 15  # the reader copies the rest of it for every header
_HEADERS = 1 << 20  # bytes of a name, or of the other headers of a member
_NOTES = 1 << 12  # bytes of the headers for all members: each member has a copy
_DIGITS = 255  # in a row; older versions of tarfile need time quadratic in it
_DEEPEST = 256  # nested folders, so that they can be removed
_FOLDER, _FILE = 4096, 512  # bytes of disk that an empty one takes
_LINK = 4096
_KINDS = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bz2"),
    (b"\xfd7zXZ\x00", "lzma"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
)
_ZIPS = (b"PK\x03\x04", b"PK\x05\x06")
# errors for a name that cannot be used here; the disk is not to blame
_NAMES = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EILSEQ, errno.EINVAL)
_PLAIN = "pack it again with plain `tar`"
_AGAIN = "declare its checksum, so that a damaged copy is found before it is used"


class Damaged(Exception):
    """The archive cannot be read to its end, or holds what must not be written."""

    def __init__(self, words: str, remedy: str = "") -> None:
        super().__init__(words)
        self.remedy = remedy


class Unpacked:
    """What came out of an archive."""

    def __init__(self) -> None:
        self.files = 0
        self.bytes = 0
        self.left_out: list[str] = []  # the first members that were not written, and why
        self.left_count = 0

    def leave(self, words: str) -> None:
        self.left_count += 1
        if len(self.left_out) < _MOST_NAMED:
            self.left_out.append(words)


def unpack(
    archive: str,
    target: str,
    *,
    room: int | None,
    proven: bool,
    should_stop: Callable[[], bool] = lambda: False,
) -> Unpacked:
    """Unpack an archive to a folder, or to a file if it is one compressed file, and remove it.

    All of it is unpacked or nothing. `room`: the bytes that the content may take; `proven`: a
    checksum or manifest has verified the archive. TransferError means that it is damaged, hostile,
    of an unknown format or too large, NodeError that the node's disk or Python is at fault.
    """
    folder, name = os.path.split(target)
    draft = os.path.join(folder, f".{name}.unpacking")
    shown = os.path.basename(archive)
    work = _Work(draft, room, proven, should_stop)
    try:
        os.makedirs(folder or os.curdir, exist_ok=True)
        discard(draft)
        _read(archive, work)
        _put_in_place(draft, target)
        os.unlink(archive)
    except _TooLarge:
        raise TransferError(
            f"{shown} takes more than {room} bytes unpacked, which is what is left of the disk"
            " that the job asked for",
            retryable=False,
            remedy="request more disk ([resources] disk): the archive and its content are there at"
            " the same time",
        ) from None
    except Damaged as error:
        with contextlib.suppress(OSError):
            os.unlink(archive)  # another try downloads it again
        raise TransferError(
            f"{shown} cannot be unpacked: {error}",
            retryable=not proven and not error.remedy,
            remedy=error.remedy or ("pack it again" if proven else _AGAIN),
        ) from None
    except OSError as error:
        if error.errno in (*FULL, errno.EFBIG):
            raise NoSpaceError(
                f"the node's disk is full: {shown} has no room beyond {work.result.bytes} bytes"
                " unpacked",
                remedy="request more disk, or let the job run on another node",
            ) from None
        raise DiskError(f"the node's disk fails: {shown}: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):
            discard(draft)
    return work.result


def can_read_zstd() -> bool:
    """Whether this node can read files compressed with zstd."""
    return bool(_zstd_program()) or _zstd_module() is not None


class _TooLarge(Exception):
    """The content is larger than it may be."""


class _Work:
    """The folder that is being filled, and the room that is left for it."""

    def __init__(
        self, draft: str, room: int | None, proven: bool, should_stop: Callable[[], bool]
    ) -> None:
        self.draft = draft
        self.proven = proven
        self.result = Unpacked()
        self._room = room
        self._should_stop = should_stop
        self._members = 0
        self._entries = 0  # bytes that files and folders take even if empty
        self._folder: str | None = None  # the last one that was made
        self._links: dict[str, str] = {}

    def member(self, name: str) -> str:
        """Check a member's name; returns it normalised, "" for the folder itself."""
        self.check()
        self._members += 1
        if self._members > MOST_MEMBERS:
            raise Damaged(f"it has more than {MOST_MEMBERS} members", "pack fewer, larger files")
        plain = os.path.normpath(name) if name else "."
        if name.startswith("/") or plain.split("/")[0] == ".." or "\0" in name:
            raise Damaged(
                f"its member {name[:200]!r} is outside of the folder",
                "pack it again with names below one folder",
            )
        if plain.count("/") > _DEEPEST:
            raise Damaged(
                f"its member {name[:200]!r} is more than {_DEEPEST} folders deep",
                "pack it again with fewer folders within each other",
            )
        return "" if plain == "." else plain

    def check(self) -> None:
        if self._should_stop():
            raise Stopped("the unpacking was stopped")

    def expect(self, size: int) -> None:
        """Raise _TooLarge if so many more bytes have no room, before any of them is written."""
        if self._room is not None and self.result.bytes + self._entries + size > self._room:
            raise _TooLarge

    def make_folder(self, name: str) -> None:
        if name == self._folder:
            return
        missing = []
        with _named(name):
            place = name
            while not self._mkdir(place):
                missing.append(place)
                place = os.path.dirname(place)
            for place in reversed(missing):
                self._mkdir(place)
        self._folder = name

    def _mkdir(self, name: str) -> bool:
        """Make one folder; False: the one around it is missing."""
        path = os.path.join(self.draft, name) if name else self.draft
        try:
            os.mkdir(path)
        except FileNotFoundError:
            if not name:
                raise
            return False
        except FileExistsError:
            if not os.path.isdir(path):
                raise
        else:
            self._count(_FOLDER if name else 0)
        return True

    def _count(self, size: int) -> None:
        """Count the disk that an entry takes, however small the file."""
        self._entries += size
        self.expect(0)

    def write(self, name: str, pieces: Iterator[bytes], mode: int, mtime: float) -> None:
        """Write a file; of two members with the same name the later one counts, as with tar."""
        self.make_folder(os.path.dirname(name))
        self._links.pop(name, None)
        self.write_at(name, pieces, mode, mtime)

    def write_at(self, name: str, pieces: Iterator[bytes], mode: int, mtime: float | None) -> None:
        """Write a file to a folder that exists; the name is "" if the draft itself is the file."""
        path = os.path.join(self.draft, name) if name else self.draft
        with _named(name):
            file = self._create(path)
        try:
            self._count(_FILE if name else 0)
            for piece in pieces:
                self.check()
                self.expect(len(piece))
                self.result.bytes += len(piece)
                view = memoryview(piece)
                while view:
                    view = view[os.write(file, view) :]
            os.fchmod(file, 0o755 if mode & 0o100 else 0o644)
            if mtime is not None:
                with contextlib.suppress(OSError, OverflowError, ValueError):
                    os.utime(file, (mtime, mtime))
        finally:
            os.close(file)
        self.result.files += 1

    def _create(self, path: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return os.open(path, flags, 0o600)
        except FileExistsError:
            found = os.lstat(path)
            if _has_other_name(path, found):
                name = os.path.relpath(path, self.draft)
                raise Damaged(
                    f"its member {name!r} differs from another in capitals only, which this"
                    " node's file system does not tell apart",
                    "give its members names that differ in more than capitals",
                ) from None
            os.unlink(path)
            self.result.files -= 1
            self._entries -= _FILE
            if found.st_nlink == 1:  # else its bytes stay, under another name
                self.result.bytes -= found.st_size
            return os.open(path, flags, 0o600)

    def link(self, name: str, pointed: str) -> None:
        """Note a link; links are made last, so that no member is written through one."""
        if not pointed or leaves(name, pointed):
            self.result.leave(f"the link {name[:200]!r}, which leads out of the folder")
        else:
            if name not in self._links:
                self._count(_FILE)
            self._links[name] = pointed

    def same_file(self, name: str, other: str) -> None:
        """Make a second name for a file that has been written."""
        self.make_folder(os.path.dirname(name))
        self._count(_FILE)
        path, known = os.path.join(self.draft, name), os.path.join(self.draft, other)
        with _named(name):
            with contextlib.suppress(FileNotFoundError):
                if name != other and stat.S_ISREG(os.lstat(known).st_mode):
                    self._links.pop(name, None)
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(path)
                    os.link(known, path)
                    self.result.files += 1
                    return
            raise Damaged(f"its member {name[:200]!r} is another name of a file that it lacks")

    def finish(self) -> None:
        self.make_folder("")
        made = []
        for name, pointed in self._links.items():
            self.make_folder(os.path.dirname(name))
            path = os.path.join(self.draft, name)
            if os.path.isdir(path) and not os.path.islink(path):
                self.result.leave(f"the link {name[:200]!r}, which has the name of a folder")
                continue
            with _named(name):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                os.symlink(pointed, path)
            made.append(name)
        # by its text each link stays within the folder, but several together may still leave it
        root = os.path.realpath(self.draft)
        for name in made:
            path = os.path.join(self.draft, name)
            if not f"{os.path.realpath(path)}/".startswith(f"{root}/"):
                os.unlink(path)
                self.result.leave(f"the link {name[:200]!r}, which leads out of the folder")


def _has_other_name(path: str, found: os.stat_result) -> bool:
    """Whether a file exists under a name that differs only in case.

    The folder is listed only if the file system seems to ignore case.
    """
    folder, name = os.path.split(path)
    try:
        swapped = os.lstat(os.path.join(folder, name.swapcase()))
    except OSError:
        return False
    alike = name != name.swapcase() and found.st_nlink == 1 and os.path.samestat(swapped, found)
    return alike and name not in os.listdir(folder or os.curdir)


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Blame the archive for a name that the file system refuses."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NAMES:
            raise
        words = f"its member {name[:200]!r} cannot be written: {error.strerror}"
        raise Damaged(words, "give its members other names") from None
    except ValueError as error:  # no file system takes it
        raise Damaged(f"its member {name[:200]!r} cannot be written: {error}") from None


def _read(archive: str, work: _Work) -> None:
    with open(archive, "rb") as file:
        start = file.read(_BLOCK)
    try:
        if start.startswith(_ZIPS):
            _read_zip(archive, work)
            return
        kind = next((name for magic, name in _KINDS if start.startswith(magic)), "")
        if not kind and not _is_tar(start):
            raise Damaged("it is no tar, zip or compressed file", "leave out `unpack`")
        with contextlib.closing(_opened(archive, kind)) as stream:
            first = _exactly(stream, _BLOCK)
            if _is_tar(first):
                _read_tar(_Again(first, stream), work)
            else:
                _decompress(first, stream, work)
    except (Damaged, _TooLarge, Stopped, NodeError):
        raise
    except OSError as error:
        # gzip and bz2 have no number for what is wrong; zip seeks to where nothing can be
        if error.errno not in (None, errno.EINVAL, errno.EOVERFLOW):
            raise
        raise Damaged(error.strerror or str(error)) from None
    except ImportError as error:
        raise NodeError(
            f"{os.path.basename(archive)} cannot be unpacked: this node's Python has no"
            f" {error.name}",
            remedy="another node may work",
        ) from None
    except MemoryError:
        raise
    except Exception as error:  # of the decompressors and readers, whatever they raise
        raise Damaged(str(error) or type(error).__name__) from None


def _opened(archive: str, kind: str) -> Readable:
    """Open an archive for reading its decompressed bytes."""
    if not kind:
        return open(archive, "rb")
    module = _zstd_module() if kind == "zstd" else importlib.import_module(kind)
    if module is not None:
        opened: Readable = module.open(archive, "rb")
        return opened
    program = _zstd_program()
    if not program:
        raise NodeError(
            f"{os.path.basename(archive)} cannot be unpacked: this node has neither the program"
            " zstd nor Python 3.14",
            remedy="another node may work; gzip and xz can be read everywhere",
        )
    import subprocess

    command, pipe = [program, "-d", "-c", "-q", "--", archive], subprocess.PIPE
    return _Program(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe))


def _zstd_module() -> Any:
    """Python's own module, from 3.14 on."""
    try:
        return importlib.import_module("compression.zstd")
    except ImportError:
        return None


def _zstd_program() -> str:
    import shutil

    return shutil.which("zstd") or shutil.which("unzstd") or ""


class _Program:
    """The output of a program that decompresses; if the program fails, the file is damaged."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None and process.stderr is not None
        self._process, self._out, self._errors = process, process.stdout, process.stderr

    def read(self, size: int = -1, /) -> bytes:
        data = self._out.read(size)
        if not data:
            said = self._errors.read(1000).decode("utf-8", "replace").strip()
            if self._process.wait() != 0:
                raise Damaged(said.replace("\n", " ")[:200] or "zstd cannot read it")
        return data

    def close(self) -> None:
        self._out.close()
        self._errors.close()
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()


class _Again:
    """A stream, after bytes of it that were read already and are to be read once more."""

    def __init__(self, again: bytes, rest: Any) -> None:
        self.again, self._rest = again, rest

    def read(self, size: int = -1, /) -> bytes:
        if self.again:
            data, self.again = self.again[:size], self.again[size:]
            return data
        return bytes(self._rest.read(size))


def _exactly(stream: Readable, size: int) -> bytes:
    data = b""
    while len(data) < size and (piece := stream.read(size - len(data))):
        data += piece
    return data


def _is_tar(block: bytes) -> bool:
    """Whether a tar file begins with this block; an empty one begins with zeros."""
    from headway.node.transfer.tar import TarIndexer

    indexer = TarIndexer()
    if len(block) == _BLOCK:
        indexer.take(block)
    return indexer.is_tar


class _Headers(_Again):
    """A tar file while the headers of one member are read, which must not be too long."""

    def __init__(self, stream: Any) -> None:
        super().__init__(b"", stream)
        self._left = 2 * _HEADERS

    def read(self, size: int = -1, /) -> bytes:
        self._left -= 0 if self.again else size
        if self._left < 0:
            raise Damaged("the headers of a member are too long", _PLAIN)
        return super().read(size)

    def seek(self, place: int) -> None:
        self._rest.seek(place)

    def tell(self) -> int:
        return int(self._rest.tell()) - len(self.again)


def _check_notes(notes: bytes) -> None:
    """Raise Damaged unless these are pax records: `LENGTH KEY=VALUE` and a newline, repeated.

    Before Python 3.12.6, tarfile spends hours and gigabytes on what only looks like that.
    """
    place = 0
    while place < len(notes) and notes[place] != 0:
        digits, space, _ = notes[place : place + 20].partition(b" ")
        size = int(digits) if space and digits.isdigit() else 0
        record = notes[place + len(digits) + 1 : place + size]
        if place + size > len(notes) or record.find(b"=") < 1 or record[-1:] != b"\n":
            raise Damaged("the notes on a member are not what tar writes", _PLAIN)
        place += size
    if max(map(len, re.findall(rb"\d+", notes)), default=0) > _DIGITS:
        raise Damaged("the notes on a member hold a number without end", _PLAIN)


def _read_tar(stream: _Again, work: _Work) -> None:
    kinds = (
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
        tarfile.SOLARIS_XHDTYPE,
        tarfile.GNUTYPE_LONGNAME,
        tarfile.GNUTYPE_LONGLINK,
    )
    noted = 0

    class Member(tarfile.TarInfo):
        """A member whose headers fit into memory."""

        @classmethod
        def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Any:
            """Raise Damaged for a broken header, which tarfile would take for the end."""
            if not buf and not work.proven:
                raise Damaged("it ends without its end mark")
            try:
                return super().frombuf(buf, encoding, errors)
            except (tarfile.TruncatedHeaderError, tarfile.InvalidHeaderError) as error:  # type: ignore[attr-defined]
                raise Damaged(f"it is damaged after {work.result.files} files: {error}") from None

        def _proc_member(self, tar: Any) -> tarfile.TarInfo:
            if self.type in kinds and self.size > _HEADERS:
                raise Damaged("the header of a member is too long", _PLAIN)
            stream = tar.fileobj
            if not isinstance(stream, _Headers):
                tar.fileobj = _Headers(stream)
            try:
                found: tarfile.TarInfo = super()._proc_member(tar)  # type: ignore[misc]
                return found
            finally:
                tar.fileobj = stream

        def _proc_pax(self, tar: Any) -> tarfile.TarInfo:
            nonlocal noted
            if self.type == tarfile.XGLTYPE:
                noted += self.size
                if noted > _NOTES:
                    raise Damaged("its headers for all members are too long", _PLAIN)
            notes = tar.fileobj.read(self._block(self.size))  # type: ignore[attr-defined]
            _check_notes(notes[: self.size])
            tar.fileobj.again = notes
            found: tarfile.TarInfo = super()._proc_pax(tar)  # type: ignore[misc]
            return found

    with tarfile.open(fileobj=stream, mode="r|", tarinfo=Member, bufsize=_STREAM) as tar:  # type: ignore[call-overload]
        while (member := tar.next()) is not None:
            tar.members.clear()  # a data set has millions
            name = work.member(member.name)
            if member.isdir() or not name:
                work.make_folder(name)
            elif member.isreg():
                work.expect(member.size)
                work.write(name, _bytes_of(tar, member), member.mode, member.mtime)
            elif member.issym():
                work.link(name, member.linkname)
            elif member.islnk():
                work.same_file(name, work.member(member.linkname))
            else:
                work.result.leave(f"{name[:200]!r}, which is neither a file nor a folder")
    while stream.read(_CHUNK):  # to the end, where the decompressor compares its checksum
        work.check()
    work.finish()


def _bytes_of(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    source = tar.extractfile(member)
    left = member.size
    while left > 0:
        data = source.read(min(_CHUNK, left)) if source is not None else b""
        if not data:
            raise Damaged(f"it ends within its member {member.name[:200]!r}")
        left -= len(data)
        yield data


def _read_zip(archive: str, work: _Work) -> None:
    import zipfile

    with zipfile.ZipFile(archive) as found:
        members = found.infolist()
        work.expect(sum(member.file_size for member in members))
        for member in members:
            name = work.member(member.filename)
            mode = member.external_attr >> 16
            if member.is_dir() or not name:
                work.make_folder(name)
                continue
            if member.flag_bits & 1:
                words = f"its member {name[:200]!r} needs a password"
                raise Damaged(words, "pack it again without one")
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFLNK):
                work.result.leave(f"{name[:200]!r}, which is neither a file nor a folder")
                continue
            try:
                with found.open(member) as source:
                    if stat.S_ISLNK(mode):
                        work.link(name, os.fsdecode(source.read(_LINK)))
                    else:
                        pieces = iter(lambda source=source: source.read(_CHUNK), b"")  # type: ignore[misc]
                        work.write(name, pieces, mode, _zip_time(member))
            except NotImplementedError:
                words = f"its member {name[:200]!r} is compressed in a way that Python cannot read"
                raise Damaged(words, "pack it again as .tar or with plain `zip`") from None
    work.finish()


def _zip_time(member: zipfile.ZipInfo) -> float:
    import time

    try:
        return time.mktime((*member.date_time, 0, 0, -1))
    except (OverflowError, ValueError):
        return 0.0


def _decompress(first: bytes, stream: Readable, work: _Work) -> None:
    """Decompress a single file: the draft is then not a folder."""

    def pieces() -> Iterator[bytes]:
        yield first
        while data := stream.read(_CHUNK):
            yield data

    work.write_at("", pieces(), 0o644, None)


def _put_in_place(draft: str, target: str) -> None:
    """Rename the draft to the target, and remove what an earlier try has left there."""
    old = f"{draft}.old"
    discard(old)
    if os.path.lexists(target):
        os.rename(target, old)
    os.rename(draft, target)
    discard(old)


# The payload: the job's own files, unpacked so that nothing is written outside the job's folder.
#
# Existing files stay: a checkpoint that HTCondor restored, or a file that the command has changed
# in an earlier start. Each file gets its name only when it is complete. Links that leave the job's
# folder, pipes and devices are left out and named; a name outside the folder is refused.

_PART = ".headway-part"


class PayloadError(HeadwayError):
    """The payload is damaged, or would write where it must not."""


def unpack_payload(
    archive: str,
    folder: str,
    reserved: Collection[str],
    check: Callable[[], None],
    problem: Callable[[str], None],
) -> int:
    """Unpack regular files, folders and inner links; returns how many files were written."""
    written = 0
    links: list[tuple[str, str]] = []
    try:
        with tarfile.open(archive, "r:") as tar:
            for member in tar:
                check()
                name = _safe_name(member.name, reserved)
                target = os.path.join(folder, name)
                if member.isdir():
                    _make_folder(folder, name)
                elif member.issym():
                    if leaves(name, member.linkname):
                        problem(f"the link {name} leads out of the job's folder; it was left out")
                    else:
                        links.append((name, member.linkname))
                elif member.isreg() or member.islnk():
                    _make_folder(folder, os.path.dirname(name))
                    if not os.path.lexists(target):
                        _write_member(tar, _content(tar, member), target, check)
                        written += 1
                else:
                    problem(f"{name} is neither a file nor a folder; it was left out")
    except (tarfile.TarError, EOFError, Damaged) as error:
        raise PayloadError(f"{archive} is damaged: {error}", remedy="submit again") from None
    # Links come last: no file of the payload can be written through one.
    for name, pointed in links:
        _make_folder(folder, os.path.dirname(name))
        if not os.path.lexists(os.path.join(folder, name)):
            os.symlink(pointed, os.path.join(folder, name))
    return written


def _safe_name(name: str, reserved: Collection[str]) -> str:
    plain = os.path.normpath(name)
    first = plain.split("/")[0]
    if plain.startswith("/") or first == ".." or "\0" in name:
        raise PayloadError(f"the payload has {name!r}, which is outside the job's folder")
    if first == OUT or plain in reserved:
        raise PayloadError(
            f"the payload has {plain!r}, a name that Headway uses itself",
            remedy="rename the file and submit again",
        )
    return plain


def leaves(name: str, pointed: str) -> bool:
    """Whether a link of that name leads out of the folder that it is in."""
    end = os.path.normpath(os.path.join(os.path.dirname(name), pointed))
    return pointed.startswith("/") or end.split("/")[0] == ".."


def _make_folder(folder: str, name: str) -> None:
    """Create the folder; a link on the way to it must not lead outside."""
    path = os.path.join(folder, name)
    root = os.path.realpath(folder)
    if os.path.commonpath([root, os.path.realpath(path)]) != root:
        raise PayloadError(f"the payload writes to {name!r} through a link out of the job's folder")
    os.makedirs(path, exist_ok=True)


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The member that has the bytes: for a hard link the file that it is a name of."""
    if not member.islnk():
        return member
    with contextlib.suppress(KeyError):
        content = tar.getmember(member.linkname)
        if content.isreg():
            return content
    raise PayloadError(f"the payload has a hard link {member.name!r} to nothing")


def _write_member(
    tar: tarfile.TarFile, member: tarfile.TarInfo, target: str, check: Callable[[], None]
) -> None:
    part = os.path.join(os.path.dirname(target), _PART)
    with open(part, "wb") as file:
        for piece in _bytes_of(tar, member):
            check()
            file.write(piece)
    os.chmod(part, 0o755 if member.mode & 0o100 else 0o644)
    os.utime(part, (member.mtime, member.mtime))
    os.replace(part, target)
