"""Finding logs: what the places that somebody named hold now, also what came there since."""

from __future__ import annotations

import fnmatch
import glob
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from headway.errors import CollectError, EventLogError
from headway.events.forms.files import Rotation, find_logs
from headway.events.forms.opening import open_log
from headway.events.forms.sniffing import HEAD_SIZE, Format, sniff

Ident = tuple[int, int]


class Found(NamedTuple):
    """A log, and whether files beside it may be its rotations."""

    path: Path
    rotated: bool
    owner: str
    size: int  # of all its files on the disk


class _Entry(NamedTuple):
    path: Path
    stat: os.stat_result
    named: bool


class Finder:
    """Looks again and again; what it has looked into it does not look into again."""

    def __init__(self, places: Sequence[str], *, without: Path, waits: bool) -> None:
        self._places = places
        self._without = without
        #: Names of logs that have been taken for logs: they stay, whatever becomes of their files.
        self._logs: dict[Path, None] = {}
        self._looked: dict[tuple[Ident, Path], tuple[int, bool]] = {}
        self._beside: dict[Path, dict[Path, list[Path]]] = {}
        self.unread: dict[str, str] = {}
        for place in places:
            self._check(place, waits)

    def remember(self, names: Iterable[str]) -> None:
        """Look after logs that were found in these places before, also if they are gone now."""
        for name in names:
            path = Path(name)
            if any(_holds(place, path) for place in self._places):
                self._logs.setdefault(path)

    def find(self, known: set[Ident]) -> list[Found]:
        """The logs in the order of their names; `known` are files that need no look."""
        self._beside.clear()
        families: dict[Path, list[_Entry]] = {}
        for entry in self._entries():
            families.setdefault(Rotation.of(entry.path).base, []).append(entry)
        found = [log for base in sorted(families) for log in self._family(base, families, known)]
        there = {log.path for log in found}
        # A log that has no file at the moment may still be read from the one it has left.
        found += [Found(path, False, "", 0) for path in self._logs if path not in there]
        return sorted(found)

    def _family(
        self, base: Path, families: dict[Path, list[_Entry]], known: set[Ident]
    ) -> Iterator[Found]:
        members = families[base]
        logs = [one for one in members if one.named or self._is_log(one, known)]
        if not logs:
            return
        size = sum(one.stat.st_size for one in logs)
        if base in self._logs or any(one.path == base for one in logs):
            self._logs[base] = None
            owner = next((one for one in logs if one.path == base), logs[-1])
            yield Found(base, len(members) > 1, _user(owner.stat.st_uid), size)
            return
        for one in logs:
            if one.path in self._logs:
                yield Found(one.path, False, _user(one.stat.st_uid), one.stat.st_size)
        fresh = [one for one in logs if one.path not in self._logs]
        if not fresh:
            return
        try:
            chains = find_logs([one.path for one in fresh])
        except EventLogError:
            return  # gone meanwhile: another time
        for chain in chains:
            path = Path(chain.name)
            self._logs[path] = None
            yield Found(path, len(chain.files) > 1, chain.owner or "", size)

    def _entries(self) -> Iterator[_Entry]:
        seen: set[Path] = set()
        for place in self._places:
            for path, named in self._paths(place):
                if path in seen:
                    continue
                seen.add(path)
                try:
                    status = os.stat(path)
                except OSError as error:
                    if not isinstance(error, FileNotFoundError):
                        self.unread[str(path)] = f"cannot be read: {error.strerror}"
                    continue
                if stat.S_ISREG(status.st_mode):
                    yield _Entry(path, status, named)

    def _paths(self, place: str) -> Iterator[tuple[Path, bool]]:
        if os.path.isdir(place):
            for folder, folders, names in os.walk(place):
                folders[:] = sorted(
                    name for name in folders if Path(folder, name).resolve() != self._without
                )
                yield from ((Path(folder, name).absolute(), False) for name in sorted(names))
            return
        named = [place] if os.path.lexists(place) or not _is_pattern(place) else glob.glob(place)
        for name in sorted(named):
            if os.path.isdir(name):
                yield from self._paths(name)
                continue
            path = Path(name).absolute()
            self._logs.setdefault(path)
            yield path, True
            # Its rotations come with it.
            yield from ((other, False) for other in self._rotations(path))

    def _rotations(self, path: Path) -> list[Path]:
        folder = path.parent
        if folder not in self._beside:
            found = self._beside[folder] = {}
            for name in _names(folder):
                one = Rotation.of(folder / name)
                if one.age is not None or one.packed:
                    found.setdefault(one.base, []).append(one.path)
        return sorted(self._beside[folder].get(path, []))

    def _is_log(self, entry: _Entry, known: set[Ident]) -> bool:
        ident = (entry.stat.st_dev, entry.stat.st_ino)
        if ident in known:
            return True
        key = (ident, entry.path)
        size, is_log = self._looked.get(key, (-1, False))
        if is_log or (size == entry.stat.st_size or size >= HEAD_SIZE):
            return is_log
        try:
            with open_log(entry.path) as file:
                is_log = sniff(file.head(HEAD_SIZE)) is not Format.NONE
            self.unread.pop(str(entry.path), None)
        except OSError as error:
            self.unread[str(entry.path)] = f"cannot be read: {error.strerror}"
        self._looked[key] = (entry.stat.st_size, is_log)
        return is_log

    def _check(self, place: str, waits: bool) -> None:
        if os.path.isdir(place):
            if os.path.realpath(place) == str(self._without):
                raise CollectError(
                    f"{place} is the store itself",
                    remedy="name the logs, and the folder to store them in with --into",
                )
            return
        if _is_pattern(place) or os.path.lexists(place):
            if os.path.lexists(place) and not os.path.isfile(place):
                raise CollectError(
                    f"{place} is not a regular file", remedy="name an event log, or a folder"
                )
            if os.path.isfile(place) and not os.access(place, os.R_OK):
                raise CollectError(
                    f"{place} cannot be read: Permission denied",
                    remedy="see to its permissions; the pool-wide log is often readable for the"
                    " group `condor` only",
                )
            return
        beside = Path(place).absolute()
        if waits and beside.parent.is_dir():
            return
        if any(Rotation.of(beside.parent / name).base == beside for name in _names(beside.parent)):
            return
        raise CollectError(
            f"there is no log {place}",
            remedy="name an event log, a folder with logs, or a pattern such as 'logs/*.log'"
            + ("" if waits else "; with --follow also a log that is yet to come"),
        )


def _holds(place: str, path: Path) -> bool:
    here = os.path.abspath(place)
    if os.path.isdir(place):
        return Path(here) in path.parents
    return fnmatch.fnmatchcase(str(path), here)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _is_pattern(place: str) -> bool:
    return glob.has_magic(place)


def _user(uid: int) -> str:
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return ""
