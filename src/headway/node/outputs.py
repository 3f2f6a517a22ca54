"""Outputs: what the command wrote is checked, then moved to where the pool transfers it from.

Files and folders are renamed, never copied. A symbolic link is replaced by what it points to, by a
hard link where the file system allows; within a folder too. A link that dangles, leaves the job's
folder or leads back into itself has nothing to send: as a declared output it counts as missing,
within a folder it is left out and named in the record. Sockets, pipes and devices are left out.
"""

from __future__ import annotations

import errno
import functools
import os
import stat

from headway.node.errors import FULL, HeadwayError
from headway.node.files import tree_files
from headway.node.plan import OUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from headway.node.plan import PlannedOutput
    from headway.node.record import Progress
    from headway.node.store.sandboxes import Sending


class OutputError(HeadwayError):
    """A declared output is missing or too small, or cannot be moved or sent."""


class FoundOutput:
    """A declared output that exists: its real path and its size."""

    def __init__(self, output: PlannedOutput, place: str) -> None:
        self.output, self.place = output, place
        sizes = [os.lstat(path).st_size for path, _ in tree_files(place)]
        self.bytes, self.files = sum(sizes), len(sizes)

    def entry(self, where: str) -> dict[str, object]:
        """What the record says about it."""
        return {"path": self.output.path, "bytes": self.bytes, "files": self.files, "where": where}


def find(
    outputs: list[PlannedOutput], problem: Callable[[str], None]
) -> tuple[list[FoundOutput], list[str]]:
    """The outputs that exist, and what is wrong with the others.

    On the way links within folders are resolved, and what cannot be transferred is removed.
    """
    root = os.path.realpath(os.curdir)
    found, faults = [], []
    for output in outputs:
        each, fault = _find_one(output, root, problem)
        if each is not None and each.bytes < output.min_size:
            fault = f"{output.path} has {each.bytes} bytes, at least {output.min_size} are declared"
        if each is not None:
            found.append(each)
        if fault and output.required:
            faults.append(fault)
        elif fault:
            problem(f"not required, but {fault}")
    return found, faults


def move(found: list[FoundOutput], folder: str) -> list[dict[str, object]]:
    """Move outputs into `folder` under their declared paths; returns entries for the record."""
    entries = []

    def rank(each: FoundOutput) -> tuple[bool, int]:
        # Links first, while what they point to is in its place; then a folder before what is in it.
        return not os.path.islink(each.output.path), each.output.path.count("/")

    for each in sorted(found, key=rank):
        target = os.path.join(folder, each.output.path)
        if not os.path.lexists(target):  # else it was moved with the folder above it
            try:
                os.makedirs(os.path.dirname(target), exist_ok=True)
                _take(each, target)
            except OSError as error:
                raise OutputError(
                    f"{each.output.path} cannot be moved to {target}: {error.strerror}"
                ) from None
        entries.append(each.entry(target))
    return entries


def _find_one(
    output: PlannedOutput, root: str, problem: Callable[[str], None]
) -> tuple[FoundOutput | None, str]:
    path = output.path
    if not os.path.lexists(path):
        return None, f"{path} is missing"
    place = os.path.realpath(path)
    if not os.path.exists(place):
        return None, f"{path} is a link to {os.readlink(path)!r}, which does not exist"
    if not _within(place, root):
        return None, f"{path} leads out of the job's folder, to {place}"
    mode = os.stat(place).st_mode
    if stat.S_ISREG(mode):
        _make_readable(place, mode)
        return FoundOutput(output, place), ""
    if not stat.S_ISDIR(mode):
        return None, f"{path} is neither a file nor a folder"
    if place == root or _within(os.path.join(root, OUT), place):
        return None, f"{path} leads to the job's folder itself"
    _tidy(place, root, problem, [place])
    return FoundOutput(output, place), ""


def _take(each: FoundOutput, target: str) -> None:
    """Rename it; if it is a link, give what it points to a second name."""
    path = each.output.path
    if os.path.islink(path):
        _duplicate(each.place, target)
        os.unlink(path)
        return
    try:
        os.rename(path, target)
    except OSError as error:
        if error.errno != errno.EXDEV:  # a mount within the job's folder
            raise
        import shutil

        shutil.move(path, target)


def _duplicate(source: str, target: str) -> None:
    """Hard-link a file, or each file of a folder; copy where that is not possible."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
        for name in os.listdir(source):
            _duplicate(os.path.join(source, name), os.path.join(target, name))
        return
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno in FULL:
            raise
        import shutil

        shutil.copy2(source, target)


def _tidy(folder: str, root: str, problem: Callable[[str], None], within: list[str]) -> None:
    """Prepare a folder for transfer, in place: no links, nothing special, all of it readable."""
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        shown = os.path.relpath(path, root)
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            _resolve(path, shown, root, problem, within)
        elif stat.S_ISDIR(mode):
            if mode & 0o700 != 0o700:
                os.chmod(path, stat.S_IMODE(mode) | 0o700)
            _tidy(path, root, problem, within)
        elif stat.S_ISREG(mode):
            _make_readable(path, mode)
        else:
            problem(f"{shown} is neither a file nor a folder and was left out")
            os.unlink(path)


def _resolve(
    path: str, shown: str, root: str, problem: Callable[[str], None], within: list[str]
) -> None:
    """Replace a link by what it points to, or remove it; `within`: folders being resolved."""
    place = os.path.realpath(path)
    here = os.path.realpath(os.path.dirname(path))
    fault = ""
    if not os.path.exists(place):
        fault = f"points to {os.readlink(path)!r}, which does not exist"
    elif not _within(place, root):
        fault = f"leads out of the job's folder, to {place}"
    elif os.path.isdir(place) and (_within(here, place) or place in within):
        fault = "leads back to a folder that it is in"
    elif not os.path.isdir(place) and not os.path.isfile(place):
        fault = "points to something that is neither a file nor a folder"
    elif os.path.isdir(place):
        _tidy(place, root, problem, [*within, place])
    os.unlink(path)
    if fault:
        problem(f"{shown} {fault}; it was left out")
    else:
        _duplicate(place, path)


def _make_readable(path: str, mode: int) -> None:
    if not mode & 0o400:
        os.chmod(path, stat.S_IMODE(mode) | 0o400)


def _within(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def send(
    found: list[FoundOutput],
    progress: Progress,
    should_stop: Callable[[], bool],
    sending: Sending | None = None,
) -> list[dict[str, object]]:
    """Send each output to its URL, a folder file by file; returns entries for the record.

    `sending`: what attempts before this one have begun to send of the very same files.
    """
    from headway.node.transfer import put, shown  # most attempts send nothing

    entries = []
    for each in found:
        url, overwrite = each.output.url or "", each.output.overwrite
        progress.begin(each.output.path)
        for path, name in tree_files(each.place):
            target = below(url, name)
            sent = put(
                path,
                target,
                overwrite=overwrite,
                progress=progress.moved,
                should_stop=should_stop,
                again=sending is not None and sending.begun(target),
                begin=None if sending is None else functools.partial(sending.begin, target),
            )
            progress.finished(sent.bytes)
        entries.append(each.entry(shown(url)))
    return entries


def drop(found: list[FoundOutput], kept: list[FoundOutput]) -> None:
    """Remove outputs that have been sent, but nothing that belongs to those that are kept too."""
    homes = [f"{each.output.path}/" for each in kept]
    for each in found:
        for path, name in tree_files(each.place):
            whole = f"{each.output.path}/{name}/" if name else f"{each.output.path}/"
            if not whole.startswith(tuple(homes)):
                os.unlink(path)


def below(url: str, name: str) -> str:
    """The URL of a file in a folder; the query, which may be a signature, stays at the end."""
    if not name:
        return url
    from urllib.parse import quote

    place, mark, query = url.partition("?")
    return f"{place.rstrip('/')}/{quote(name)}{mark}{query}"
