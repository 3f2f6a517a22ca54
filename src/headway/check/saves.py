"""Saves: what a command does to its checkpoint files, and what a kill in between would leave.

To hit a save with a kill is luck: most take less than a millisecond. So the order of its steps is
watched (inotify), and from it each state is built that a kill could have left: a file that is
written under its own name can be found half written, one that is moved into place cannot.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import struct
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.node.checkpoint import copy_file

WRITTEN, MOVED, DELETED = "written", "moved", "deleted"
_MODIFY, _CLOSE_WRITE, _FROM, _TO, _CREATE, _DELETE = 0x2, 0x8, 0x40, 0x80, 0x100, 0x200
_FOLDER, _OVERFLOW = 0x40000000, 0x4000
_MASK = _MODIFY | _CLOSE_WRITE | _FROM | _TO | _CREATE | _DELETE
_MOST = 3  # states that are tried


@dataclass(frozen=True)
class Change:
    """The last thing that was done to a path of the checkpoint, or its removal before that."""

    path: str
    how: str


@dataclass(frozen=True)
class State:
    """What a kill would leave: the first `done` changes, and of the next one perhaps a half."""

    done: int
    torn: str  # a path that is half written; empty: none
    words: str


def fold(events: Iterable[tuple[int, str]], paths: Sequence[str]) -> list[Change]:
    """The last change of each path below `paths`, in their order; from (mask, path).

    Of a path that was removed and then came again both are told: in between it was not there.
    """
    changes: dict[tuple[str, bool], str] = {}  # by path, and whether it is its removal

    def forget(path: str, *, removals: bool) -> None:
        for known in list(changes):
            inner = known[0].startswith(f"{path}/")
            if inner or (known[0] == path and (removals or not known[1])):
                del changes[known]

    for mask, path in events:
        if mask & _FOLDER and mask & (_CREATE | _MODIFY | _CLOSE_WRITE):
            continue
        if not any(path == each or path.startswith(f"{each}/") for each in paths):
            continue
        if mask & (_MODIFY | _CLOSE_WRITE | _CREATE):
            if mask & _CLOSE_WRITE and changes.get((path, False)) == WRITTEN:
                continue  # it keeps its place in the order: that of the last byte
            changes.pop((path, False), None)
            changes[path, False] = WRITTEN
        elif mask & _TO:
            forget(path, removals=False)
            changes[path, False] = MOVED
        elif mask & (_FROM | _DELETE):
            forget(path, removals=True)
            changes[path, True] = DELETED
    return [Change(path, how) for (path, _), how in changes.items()]


def relevant(changes: Iterable[Change], before: Path, after: Path) -> list[Change]:
    """Without what came and went in between."""
    return [
        change
        for change in changes
        if os.path.lexists((before if change.how == DELETED else after) / change.path)
    ]


def states(changes: Sequence[Change], after: Path) -> list[State]:
    """The states worth trying: files half written, and a checkpoint of old and new parts."""
    torn = [
        State(place, change.path, f"{change.path} was half written")
        for place, change in enumerate(changes)
        if change.how == WRITTEN
        and not (after / change.path).is_symlink()
        and (after / change.path).stat().st_size > 1
    ]
    torn.sort(key=lambda state: (after / state.torn).stat().st_size)
    mixed = [
        State(
            place + 1,
            "",
            f"{first.path} was {first.how} and {_next(changes[place + 1 :])} not yet",
        )
        for place, first in enumerate(changes[:-1])
        if any(later.how != DELETED for later in changes[place + 1 :])
    ]
    return [*reversed(torn[-2:]), *mixed[: _MOST - len(torn[-2:])]]


def _next(changes: Sequence[Change]) -> str:
    return next(change.path for change in changes if change.how != DELETED)


def build(state: State, changes: Sequence[Change], before: Path, after: Path, root: Path) -> None:
    """Lay the state out below `root`."""
    copy_paths([name.name for name in before.iterdir()] if before.is_dir() else [], before, root)
    for change in changes[: state.done]:
        _remove(root / change.path)
        if change.how != DELETED:
            copy_paths([change.path], after, root)
    if state.torn:
        _remove(root / state.torn)
        copy_paths([state.torn], after, root)
        os.truncate(root / state.torn, (after / state.torn).stat().st_size // 2)


def copy_paths(paths: Iterable[str], source: Path, target: Path) -> int:
    """Copy what is there of `paths` from one folder to another; returns the bytes."""
    size = 0
    for path in paths:
        origin, place = source / path, target / path
        if not os.path.lexists(origin):
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if origin.is_dir() and not origin.is_symlink():
            shutil.copytree(
                origin, place, symlinks=True, copy_function=copy_file, dirs_exist_ok=True
            )
        elif origin.is_symlink():
            place.symlink_to(origin.readlink())
        else:
            copy_file(str(origin), str(place))
        inner = [place] if not place.is_dir() else place.rglob("*")
        size += sum(each.lstat().st_size for each in inner if not each.is_dir())
    return size


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class Watch:
    """Watches the paths of a checkpoint below a folder; without inotify it sees nothing."""

    def __init__(self, root: Path, paths: Sequence[str]) -> None:
        self.root, self.paths = root, tuple(paths)
        self.events: list[tuple[int, str]] = []
        self.blind = sys.platform != "linux"
        self._folders: dict[int, str] = {}
        self._moved: dict[int, str] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._handle = -1
        if self.blind:
            return
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._handle = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self.blind = self._handle < 0
        if not self.blind:
            for path in self.paths:
                for above in [*Path(path).parents][::-1]:
                    self._add("" if above == Path() else str(above))
                self._add_below(path, told=False)
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def close(self) -> list[Change]:
        """Stop watching; returns what was seen."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            os.close(self._handle)
            self._thread = None
        return fold(self.events, self.paths)

    def mark(self) -> int:
        """Take in what has happened up to now; returns the number of events."""
        with self._lock, contextlib.suppress(BlockingIOError):
            while self._handle >= 0:
                self._take(os.read(self._handle, 1 << 16))
        return len(self.events)

    def _add(self, folder: str) -> None:
        place = os.fsencode(self.root / folder if folder else self.root)
        number = self._libc.inotify_add_watch(self._handle, place, _MASK)
        if number >= 0:
            self._folders[number] = folder

    def _add_below(self, path: str, *, told: bool) -> None:
        """Watch a folder and those in it; `told`: what lies there already is news.

        How it came there nobody saw: it counts as moved, unless it is seen to be written to.
        """
        folder = self.root / path
        if not folder.is_dir() or folder.is_symlink():
            return
        self._add(path)  # first, so that nothing falls between the watch and the look
        with contextlib.suppress(OSError):
            for entry in sorted(os.scandir(folder), key=lambda each: each.name):
                inner = f"{path}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    self._add_below(inner, told=told)
                elif told:
                    self.events.append((_TO, inner))

    def _matters(self, folder: str) -> bool:
        """Whether a checkpoint lies in it, or it in a checkpoint."""
        return any(f"{each}/".startswith(f"{folder}/") for each in self.paths) or any(
            folder.startswith(f"{each}/") for each in self.paths
        )

    def _run(self) -> None:
        while True:
            ended = self._stop.is_set()  # asked first, so that what came before it is still read
            if select.select([self._handle], [], [], 0 if ended else 0.02)[0]:
                self.mark()
            elif ended:
                return

    def _take(self, data: bytes) -> None:
        place = 0
        while place < len(data):
            number, mask, cookie, length = struct.unpack_from("iIII", data, place)
            name = os.fsdecode(data[place + 16 : place + 16 + length].rstrip(b"\0"))
            place += 16 + length
            if mask & _OVERFLOW:
                self.blind = True
            if number not in self._folders or not name:
                continue
            path = os.path.join(self._folders[number], name)
            self.events.append((mask, path))
            if not mask & _FOLDER:
                continue
            if mask & _FROM:
                self._moved[cookie] = path
            elif mask & _TO and cookie in self._moved:
                old = self._moved.pop(cookie)
                for watched, folder in self._folders.items():
                    if folder == old or folder.startswith(f"{old}/"):
                        self._folders[watched] = path + folder[len(old) :]
            if mask & (_CREATE | _TO) and self._matters(path):
                self._add_below(path, told=bool(mask & _CREATE))
