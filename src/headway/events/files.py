"""Which files make up a log: rotations in order, each file once."""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from headway.errors import EventLogError
from headway.events.clock import Clock
from headway.events.opening import HEAD_SIZE, Format, LogReader, sniff
from headway.events.read import parser_for

_log = logging.getLogger(__name__)

_NO_LOG, _EMPTY = "is not an event log", "is empty"
#: Why files that nobody named are left out: commands show only how many there were.
NO_LOGS = (_NO_LOG, _EMPTY)
_REMEDY = "Check the path, and that you may read the file."
_REMEDIES = {_NO_LOG: "Name the file that `log =` of the submit file names."}

#: How far to look for the first event of a file that somebody named: it may begin with a hole.
_NAMED_HEAD = 1 << 20
#: Events of several writers get out of order by less than this many seconds.
_SLACK = 60
#: What tells that a folder is a run's, and its log.
_RUN_FOLDER, _RUN_LOG = {"run.json", "job.json"}, "events.log"
_PACKED = ("", ".gz", ".xz", ".zst", ".bz2")
_ROTATED = re.compile(
    r"(?P<base>.+?)"
    r"(?:\.(?:(?P<old>old)|(?P<number>[1-9]\d{0,5})|(?P<stamp>\d{8}T\d{6})))?"
    r"(?P<packed>\.(?:gz|xz|zst|bz2))?\Z",
    re.ASCII | re.DOTALL,
)


@dataclass(frozen=True)
class LogFile:
    """One file of a log, as it was when it was found."""

    path: Path
    format: Format
    size: int  # on the disk
    mtime: float
    owner: str | None  # user name, None if the user has none
    first: float | None  # the time of the first event, if it was near


@dataclass(frozen=True)
class LogChain:
    """The files that together are one log, the oldest first."""

    name: str  # of the log itself, whether or not it still has a file without rotations
    files: tuple[LogFile, ...]

    @property
    def owner(self) -> str | None:
        """Who owns the newest file."""
        return self.files[-1].owner


def find_logs(
    paths: Iterable[str | os.PathLike[str]], unread: list[tuple[str, str]] | None = None
) -> list[LogChain]:
    """The logs that the paths name: files with their rotations, and what directories hold.

    What looks like a log is decided by the content. Files in directories that are none, or cannot
    be read, go to `unread` with the reason; so do rotations that nobody named. A file that
    was named itself raises EventLogError. No file comes twice, by whatever names it was reached.
    """
    search = _Search([] if unread is None else unread)
    for path in paths:
        search.add(Path(path))
    found = search.chains()
    _log.debug("found %d logs", len(found))
    return found


def rotations(path: Path) -> list[Path]:
    """The files beside a log into which it was rotated, the oldest first."""
    return [one.path for one in _families(path.parent).get(path.name, []) if one.age is not None]


def back_in_time(path: Path) -> Iterator[Path]:
    """Names under which rotations of a log may be found, the newest first, while they move.

    A file only ever moves to a higher number, so whoever tries one name after the other meets each
    file at least once, even if the log is rotated meanwhile.
    """
    for packed in _PACKED:
        yield path.with_name(f"{path.name}.old{packed}")
    number, last = 0, _last_number(path)
    while number < last:
        number += 1
        for packed in _PACKED:
            yield path.with_name(f"{path.name}.{number}{packed}")
        if number == last:
            last = _last_number(path)
    for other in reversed(rotations(path)):
        age = Rotation.of(other).age
        if age and age[2]:
            yield other


def _last_number(path: Path) -> int:
    ages = (Rotation.of(other).age for other in rotations(path))
    return max((-age[1] for age in ages if age), default=0)


@dataclass(frozen=True)
class Rotation:
    """What a file's name says: of which log it is a rotation, and how old."""

    path: Path
    base: Path
    #: Timestamps are older than numbers, numbers older than `.old`; None: the log itself.
    age: tuple[int, int, str] | None
    packed: bool

    @staticmethod
    def of(path: Path) -> Rotation:
        """What the name of this path says."""
        match = _ROTATED.match(path.name)
        if not match:
            return Rotation(path, path, None, False)
        age = None
        if match["stamp"]:
            age = (0, 0, match["stamp"])
        elif match["number"]:
            age = (1, -int(match["number"]), "")
        elif match["old"]:
            age = (2, 0, "")
        return Rotation(path, path.with_name(match["base"]), age, bool(match["packed"]))

    @property
    def order(self) -> tuple[int, int, str, bool]:
        """Where the file belongs in its chain."""
        return (*(self.age or (3, 0, "")), self.packed)


class _Search:
    def __init__(self, unread: list[tuple[str, str]]) -> None:
        self.unread = unread
        self._found: dict[Path, LogFile] = {}
        self._seen: set[tuple[int, int]] = set()
        self._folders: dict[Path, dict[str, list[Rotation]]] = {}

    def add(self, path: Path) -> None:
        """Look for the logs of a path that the user named."""
        if os.path.isdir(path):
            for inner in _walk(path, self.unread):
                self._take(inner, named=False)
            return
        if path.parent not in self._folders:
            self._folders[path.parent] = _families(path.parent)
        family = [one.path for one in self._folders[path.parent].get(path.name, [])]
        beside = [other for other in family if other != path]
        # A log that has just been rotated may have no new file yet.
        if os.path.lexists(path) or not beside:
            self._take(path, named=True)
        for other in beside:
            self._take(other, named=False)

    def _take(self, path: Path, *, named: bool) -> None:
        try:
            status = os.stat(path)
            ident = (status.st_dev, status.st_ino)
            if ident in self._seen:
                return
            why = self._look(path, status, named)
        except OSError as error:
            ident, why = None, f"cannot be read: {error.strerror}"
        if not why and ident:
            self._seen.add(ident)
        elif named:
            raise EventLogError(f"{path} {why}", remedy=_REMEDIES.get(why, _REMEDY))
        elif why:
            _log.debug("skipped %s: %s", path, why)
            self.unread.append((str(path), why))

    def _look(self, path: Path, status: os.stat_result, named: bool) -> str:
        if not stat.S_ISREG(status.st_mode):
            return "is not a regular file"
        head = _head(path, _NAMED_HEAD if named else HEAD_SIZE)
        found = sniff(head)
        if named and found is Format.NONE:
            # Only the first bytes may be damaged.
            starts = range(HEAD_SIZE // 2, len(head), HEAD_SIZE // 2)
            formats = (sniff(b"\n" + head[start : start + HEAD_SIZE]) for start in starts)
            found = next((one for one in formats if one is not Format.NONE), Format.NONE)
        if found is Format.NONE and not (named and not head):
            return _NO_LOG if head else _EMPTY
        first = _first_time(head, status.st_mtime)
        self._found[path] = LogFile(
            path, found, status.st_size, status.st_mtime, user_name(status.st_uid), first
        )
        return ""

    def chains(self) -> list[LogChain]:
        """What was found, in the order of the logs' names."""
        groups: dict[Path, list[Rotation]] = {}
        for path in self._found:
            one = Rotation.of(path)
            groups.setdefault(one.base, []).append(one)
        chains = [chain for base in groups for chain in self._chain(base, groups[base])]
        return sorted(chains, key=lambda chain: chain.name)

    def _chain(self, base: Path, members: list[Rotation]) -> Iterator[LogChain]:
        members.sort(key=lambda one: one.order)
        kept: dict[object, Rotation] = {}
        for one in members:
            if one.age in kept:
                what = f"is a compressed copy of {kept[one.age].path.name}"
                self.unread.append((str(one.path), what))
            else:
                kept[one.age] = one
        files = [self._found[one.path] for one in kept.values()]
        times = [file.first for file in files if file.first is not None]
        if None not in kept and len(files) > 1 and not _one_log(list(kept.values()), times):
            # job.1, job.2, …: logs of their own, which only look like rotations.
            for file in files:
                yield LogChain(str(file.path), (file,))
            return
        disordered = any(earlier > later + _SLACK for earlier, later in pairwise(times))
        if disordered and len(times) == len(files):
            files.sort(key=lambda file: file.first or 0.0)
        yield LogChain(str(base) if len(files) > 1 else str(files[0].path), tuple(files))


def _families(folder: Path) -> dict[str, list[Rotation]]:
    """The names in a folder by the log of which they are, or could be, rotations."""
    found: dict[str, list[Rotation]] = {}
    with suppress(OSError):
        for name in os.listdir(folder):
            one = Rotation.of(folder / name)
            found.setdefault(one.base.name, []).append(one)
    for family in found.values():
        family.sort(key=lambda one: one.order)
    return found


def _one_log(members: list[Rotation], times: list[float]) -> bool:
    # Rotations of one log begin one after the other, without one in between missing.
    numbers = [-one.age[1] for one in members if one.age and one.age[0] == 1]
    gapless = not numbers or numbers == list(range(numbers[0], numbers[0] - len(numbers), -1))
    rising = all(earlier < later for earlier, later in pairwise(times))
    return gapless and rising and len(times) == len(members)


def _walk(top: Path, unread: list[tuple[str, str]]) -> Iterator[Path]:
    # Links to directories are not followed, so there are no loops.
    def failed(error: OSError) -> None:
        unread.append((str(error.filename), f"cannot be read: {error.strerror}"))

    for folder, folders, names in os.walk(top, onerror=failed):
        if set(names) >= _RUN_FOLDER:
            # All else in it is Headway's own, or the jobs' results.
            folders.clear()
            names = [name for name in names if Rotation.of(Path(name)).base.name == _RUN_LOG]
        folders.sort()
        for name in sorted(names):
            yield Path(folder, name)


def _head(path: Path, size: int) -> bytes:
    with LogReader(path) as file:
        head = file.head(HEAD_SIZE)
        if size > HEAD_SIZE and sniff(head) is Format.NONE:
            head += file.head(size - HEAD_SIZE)
    return head


def _first_time(head: bytes, mtime: float) -> float | None:
    parser = parser_for(head, Clock(mtime))
    # Mostly the first event is enough; XML and JSON have other end marks.
    pieces = [piece + b"\n...\n" for piece in head.split(b"\n...\n")[:-1]] or [head]
    for piece in (*pieces, b"\n"):
        # The header of the pool-wide log bears the time of the rotation.
        found = next((event.time for event in parser.feed(piece) if event.cluster >= 0), None)
        if found is not None:
            return found
    return None


def user_name(uid: int) -> str | None:
    """The name of a user of this machine; None if there is none."""
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return None
