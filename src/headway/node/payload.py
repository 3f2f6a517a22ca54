"""The payload: the job's own files, unpacked so that nothing lands outside the job's folder.

What is already there stays: a checkpoint that HTCondor restored, or a file that the command of an
earlier start has changed. Each file appears under its name only when it is complete. Links that
leave the job's folder, pipes and devices are left out and named; a name outside is refused.
"""

from __future__ import annotations

import os
import tarfile

from headway.node.errors import HeadwayError
from headway.node.plan import OUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_PART = ".headway-part"
_CHUNK = 1 << 20


class PayloadError(HeadwayError):
    """The payload is damaged, or it would write where it must not."""


def unpack(
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
                        _write(tar, _content(tar, member), target, check)
                        written += 1
                else:
                    problem(f"{name} is neither a file nor a folder; it was left out")
    except (tarfile.TarError, EOFError) as error:
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
        raise PayloadError(f"the payload holds {name!r}, which lies outside the job's folder")
    if first == OUT or plain in reserved:
        raise PayloadError(
            f"the payload holds {plain!r}, a name that headway uses itself",
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
    """The member that holds the bytes: itself, or for a hard link the file that it is a name of."""
    if not member.islnk():
        return member
    try:
        content = tar.getmember(member.linkname)
    except KeyError:
        content = member
    if not content.isreg():
        raise PayloadError(f"the payload holds a hard link {member.name!r} to nothing")
    return content


def _write(
    tar: tarfile.TarFile, member: tarfile.TarInfo, target: str, check: Callable[[], None]
) -> None:
    source = tar.extractfile(member)
    if source is None:
        raise PayloadError(f"the payload holds {member.name!r} without its content")
    part = os.path.join(os.path.dirname(target), _PART)
    left = member.size
    with open(part, "wb") as file:
        while left > 0:
            check()
            data = source.read(min(_CHUNK, left))
            if not data:
                raise PayloadError(
                    f"the payload ends within {member.name!r}", remedy="submit again"
                )
            file.write(data)
            left -= len(data)
    os.chmod(part, 0o755 if member.mode & 0o100 else 0o644)
    os.utime(part, (member.mtime, member.mtime))
    os.replace(part, target)
