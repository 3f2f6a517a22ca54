"""The collector: reads event logs and stores each event once, by day, even after a kill."""

from __future__ import annotations

import fnmatch
import gc
import glob
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from headway.collect.ledger import (
    RowBatch,
    StoreLedger,
    StorePart,
    cannot_write,
    compactable,
    day_name,
    locked,
    merged,
    write_batch,
)
from headway.collect.masks import Masks, Pseudonyms, key_of
from headway.collect.tail import Cursor, EventRow, Gap, OpenLog, StoredLog, Tail
from headway.errors import CollectError, EventLogError
from headway.events.collected import LEDGER
from headway.events.files import Rotation, find_logs, user_name
from headway.events.opening import HEAD_SIZE, Format, LogReader, sniff

_log = logging.getLogger(__name__)

Ident = tuple[int, int]


class FoundLog(NamedTuple):
    """A log to collect."""

    path: Path
    rotated: bool  # whether other files may be its rotations
    owner: str
    size: int  # of all its files on the disk


class _FoundFile(NamedTuple):
    path: Path
    stat: os.stat_result
    named: bool


class Finder:
    """Finds the logs in the places that the user named; reads the head of each file only once."""

    def __init__(self, places: Sequence[str], *, without: Path, waits: bool) -> None:
        self._places = places
        self._without = without
        #: Logs that were found before; they stay, whatever becomes of their files.
        self._logs: dict[Path, None] = {}
        self._looked: dict[tuple[Ident, Path], tuple[int, bool]] = {}
        self._rotated: dict[Path, dict[Path, list[Path]]] = {}
        self.unread: dict[str, str] = {}
        for place in places:
            self._check(place, waits)

    def remember(self, names: Iterable[str]) -> None:
        """Add logs that were found in these places before, even if they are gone now."""
        for path in map(Path, names):
            if any(_contains(place, path) for place in self._places):
                self._logs.setdefault(path)

    def find(self, known: set[Ident]) -> list[FoundLog]:
        """The logs in the order of their names; `known` are files that are known to be logs."""
        self._rotated.clear()
        families: dict[Path, list[_FoundFile]] = {}
        for entry in self._entries():
            families.setdefault(Rotation.of(entry.path).base, []).append(entry)
        found = [log for base in sorted(families) for log in self._family(base, families, known)]
        there = {log.path for log in found}
        # A log without a file at the moment may still be read from an open or renamed one.
        found += [FoundLog(path, False, "", 0) for path in self._logs if path not in there]
        return sorted(found)

    def _family(
        self, base: Path, families: dict[Path, list[_FoundFile]], known: set[Ident]
    ) -> Iterator[FoundLog]:
        members = families[base]
        logs = [one for one in members if one.named or self._is_log(one, known)]
        if not logs:
            return
        size = sum(one.stat.st_size for one in logs)
        if base in self._logs or any(one.path == base for one in logs):
            self._logs[base] = None
            owner = next((one for one in logs if one.path == base), logs[-1])
            yield FoundLog(base, len(members) > 1, user_name(owner.stat.st_uid) or "", size)
            return
        for one in logs:
            if one.path in self._logs:
                yield FoundLog(one.path, False, user_name(one.stat.st_uid) or "", one.stat.st_size)
        fresh = [one for one in logs if one.path not in self._logs]
        if not fresh:
            return
        try:
            chains = find_logs([one.path for one in fresh])
        except EventLogError:
            return  # gone in the meantime
        for chain in chains:
            path = Path(chain.name)
            self._logs[path] = None
            yield FoundLog(path, len(chain.files) > 1, chain.owner or "", size)

    def _entries(self) -> Iterator[_FoundFile]:
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
                    yield _FoundFile(path, status, named)

    def _paths(self, place: str) -> Iterator[tuple[Path, bool]]:
        if os.path.isdir(place):
            for folder, folders, names in os.walk(place):
                folders[:] = sorted(
                    name for name in folders if Path(folder, name).resolve() != self._without
                )
                yield from ((Path(folder, name).absolute(), False) for name in sorted(names))
            return
        is_name = os.path.lexists(place) or not glob.has_magic(place)
        for name in [place] if is_name else sorted(glob.glob(place)):
            if os.path.isdir(name):
                yield from self._paths(name)
                continue
            path = Path(name).absolute()
            self._logs.setdefault(path)
            yield path, True
            yield from ((other, False) for other in self._rotations(path))

    def _rotations(self, path: Path) -> list[Path]:
        folder = path.parent
        if folder not in self._rotated:
            by_log = self._rotated[folder] = {}
            with suppress(OSError):
                for name in os.listdir(folder):
                    file = Rotation.of(folder / name)
                    if file.age is not None or file.packed:
                        by_log.setdefault(file.base, []).append(file.path)
        return sorted(self._rotated[folder].get(path, []))

    def _is_log(self, entry: _FoundFile, known: set[Ident]) -> bool:
        ident = (entry.stat.st_dev, entry.stat.st_ino)
        if ident in known:
            return True
        key = (ident, entry.path)
        size, is_log = self._looked.get(key, (-1, False))
        if is_log or (size == entry.stat.st_size or size >= HEAD_SIZE):
            return is_log
        try:
            with LogReader(entry.path) as file:
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
        if os.path.lexists(place) and not os.path.isfile(place):
            raise CollectError(
                f"{place} is not a regular file", remedy="name an event log, or a folder"
            )
        if os.path.isfile(place) and not os.access(place, os.R_OK):
            raise CollectError(
                f"{place} cannot be read: Permission denied",
                remedy="change its permissions; often only the group `condor` can read the"
                " pool-wide log",
            )
        if glob.has_magic(place) or os.path.isfile(place):
            return
        path = Path(place).absolute()
        if (waits and path.parent.is_dir()) or self._rotations(path):
            return
        raise CollectError(
            f"there is no log {place}",
            remedy="name an event log, a folder with logs, or a pattern such as 'logs/*.log'"
            + ("" if waits else "; with --follow, the log may also be written later"),
        )


def _contains(place: str, path: Path) -> bool:
    here = os.path.abspath(place)
    if os.path.isdir(place):
        return Path(here) in path.parents
    return fnmatch.fnmatchcase(str(path), here)


#: The most events, and bytes of logs, that are committed together.
_ROWS, _BYTES = 100_000, 32 << 20
#: Days that one file of a log may have events of; the rest goes to `day=unknown`.
_DAYS = 400
_DAY = 86400
_EARLIEST = 7305  # 1990, before the first event log
#: How many files stay open, of the logs that grew last.
_MOST_OPEN = 64

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Poll:
    """What one look at the logs has found."""

    events: int = 0
    bytes: int = 0  # of the logs
    logs: int = 0
    gaps: tuple[Gap, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()  # file, why


class Collector:
    """Stores event logs in a folder, which is locked until `close`, or the end of a `with`.

    Args:
        places: Logs, folders of logs, or patterns.
        into: The folder of the store; made if it is not there.
        anonymise: Store pseudonyms in place of names.
        key: The file with the key of the pseudonyms; default: `key` in the store.
        waits: Whether the logs are followed: one may not be there yet, and files stay open.

    Raises:
        CollectError: There is no such log, or nothing can be stored in the folder.
    """

    def __init__(
        self,
        places: Sequence[str | os.PathLike[str]],
        into: str | os.PathLike[str],
        *,
        anonymise: bool = False,
        key: str | os.PathLike[str] | None = None,
        waits: bool = False,
    ) -> None:
        if not places:
            raise CollectError("no log is named", remedy="name one, or a folder with logs")
        self.folder = Path(into).absolute()
        self._finder = Finder(
            [os.fspath(place) for place in places], without=self.folder.resolve(), waits=waits
        )
        self._waits = waits
        self._tails: dict[Path, Tail] = {}
        self._open_tails: dict[Path, Tail] = {}
        self._unread: dict[str, str] = {}
        if self._is_taken():
            raise CollectError(
                f"{self.folder} is not empty, and not a store of `headway collect`",
                remedy="name a new folder with --into",
            )
        with ExitStack() as stack:
            stack.enter_context(locked(self.folder))
            self.ledger = self._open(anonymise, key)
            self._stack = stack.pop_all()
        self._writer = _Writer(self.ledger, self._masks)
        if not self.ledger.anonymised:
            live = (one for one in self.ledger.sources if any(not f.gone for f in one.files))
            self._finder.remember(source.name for source in live)

    def _open(self, anonymise: bool, key: str | os.PathLike[str] | None) -> StoreLedger:
        ledger = StoreLedger.read(self.folder)
        if ledger is None:
            ledger = StoreLedger(self.folder, anonymised=anonymise)
        elif anonymise and not ledger.anonymised:
            raise CollectError(
                f"{self.folder} has events that are not anonymised",
                remedy="collect into another folder: a store is anonymised from its first event on",
            )
        self._masks: Masks | None = None
        self.key = b""
        #: The file of the key, if it was made now.
        self.made_key: Path | None = None
        if ledger.anonymised:
            place = Path(key) if key else self.folder / "key"
            self.key, made = key_of(place, may_make=not ledger.check)
            names = Pseudonyms(self.key)
            check = names.digest("headway collect")
            if ledger.check not in ("", check):
                raise CollectError(
                    f"{place} is not the key with which {self.folder} was anonymised",
                    remedy="name that key with --key, or collect into another folder",
                )
            ledger.check = check
            self._masks = Masks(names)
            self.made_key = place if made else None
        ledger.clean()
        return ledger

    def _is_taken(self) -> bool:
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise cannot_write(self.folder, error) from error
        # A first start that was killed may have left these.
        ours = {"lock", "key", ".key.new", "events", f".{LEDGER}.new"}
        return LEDGER not in names and not ours.issuperset(names)

    def poll(self, progress: Progress | None = None) -> Poll:
        """Store all events that are new; `progress` gets the bytes read, and the bytes in all."""
        with _without_gc():
            poll = self._poll(progress)
        _log.debug("polled: %s", poll)
        return poll

    def _poll(self, progress: Progress | None) -> Poll:
        writer = self._writer
        writer.begin(progress)
        known = writer.cursors()
        found = self._finder.find(set(known))
        tails = [(tail, log) for log in found if (tail := self._tail(log, known))]
        writer.total = sum(log.size for log in found) - sum(
            cursor.offset for tail, _ in tails for cursor in tail.source.files if not cursor.gone
        )
        for tail, log in tails:
            tail.poll(rotated=log.rotated, keep_open=self._waits)
            self._limit_open(tail)
        writer.commit()
        self._compact()
        fresh = {k: v for k, v in self._finder.unread.items() if self._unread.get(k) != v}
        self._unread.update(fresh)
        return Poll(
            writer.events, writer.bytes, len(found), tuple(writer.gaps), tuple(fresh.items())
        )

    def follow(
        self, every: float, stop: threading.Event, progress: Progress | None = None
    ) -> Iterator[Poll]:
        """Poll every so many seconds and, after `stop` is set, once more."""
        while True:
            stopping = stop.is_set()
            yield self.poll(progress)
            if stopping:
                return
            stop.wait(every)

    def close(self) -> None:
        """Close all files and unlock the store."""
        for tail in self._tails.values():
            tail.release()
        self._stack.close()

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _tail(self, log: FoundLog, known: Mapping[Ident, Cursor]) -> Tail | None:
        writer = self._writer
        is_new = log.path not in self._tails
        if is_new and not writer.knows(log) and self._is_of_another(log.path, known):
            return None
        source = writer.source(log)  # also if it is not new: its owner may be known only now
        if is_new:
            self._tails[log.path] = Tail(log.path, source, self.key, writer.add, writer.lost)
        return self._tails[log.path]

    def _is_of_another(self, path: Path, known: Mapping[Ident, Cursor]) -> bool:
        """Whether a new file belongs to a known log that somebody has renamed."""
        try:
            now = os.stat(path)
            cursor = known.get((now.st_dev, now.st_ino))
            if cursor is None:
                return False
            with closing(OpenLog(path, self.key)) as file:
                return file.is_of(cursor)
        except OSError:
            return False

    def _limit_open(self, tail: Tail) -> None:
        """Keep only the files of the logs that grew last open."""
        if tail.file and tail.path not in self._open_tails:
            self._open_tails[tail.path] = tail
            if len(self._open_tails) > _MOST_OPEN:
                self._open_tails.pop(next(iter(self._open_tails))).release()

    def _compact(self) -> None:
        ledger = self.ledger
        today = day_name(int(time.time() // _DAY))
        for group in compactable(ledger.parts, today):
            made = merged(self.folder, group, ledger.number + 1)
            if made.rows != sum(part.rows for part in group):
                raise CollectError(
                    f"the parts of {made.day} in {self.folder} do not have the events they had",
                    remedy="has somebody changed files there? They are left as they are",
                )
            ledger.parts[ledger.parts.index(group[0])] = made
            gone = set(group)
            ledger.parts = [part for part in ledger.parts if part not in gone]
            ledger.commit()
            for part in group:
                with suppress(OSError):
                    (self.folder / part.path).unlink()


@contextmanager
def _without_gc() -> Iterator[None]:
    """Millions of rows have no cycles, and looking for cycles takes a third of the time."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


class _Writer:
    """Collects rows, and commits them together with the cursors after them."""

    def __init__(self, ledger: StoreLedger, masks: Masks | None) -> None:
        self._ledger, self._masks = ledger, masks
        self._sources = {source.name: source for source in ledger.sources}
        self._batch = RowBatch()
        self._dirty = ledger.number == 0
        self.begin(None)

    def begin(self, progress: Progress | None) -> None:
        """Start to count for another poll."""
        self._progress = progress
        self.events = self.bytes = self.total = 0
        self.gaps: list[Gap] = []

    def _name(self, log: FoundLog) -> str:
        name = str(log.path)
        return f"log-{self._masks.names.digest(name)}" if self._masks else name

    def knows(self, log: FoundLog) -> bool:
        """Whether the ledger has the log."""
        return self._name(log) in self._sources

    def source(self, log: FoundLog) -> StoredLog:
        """The log as the ledger has it; a new one is added."""
        name = self._name(log)
        if name not in self._sources:
            made = self._sources[name] = StoredLog(len(self._ledger.sources), name)
            self._ledger.sources.append(made)
        found = self._sources[name]
        if log.owner and not found.owner:
            found.owner = self._masks.names.user(log.owner) if self._masks else log.owner
        return found

    def cursors(self) -> dict[Ident, Cursor]:
        """The files that the ledger knows."""
        return {
            (one.device, one.inode): one
            for source in self._ledger.sources
            for one in source.files
            if not one.gone
        }

    def add(self, source: StoredLog, cursor: Cursor, rows: list[EventRow], size: int) -> None:
        """Add events; commits when there are many."""
        batch = self._batch
        batch.day += self._days(cursor, rows)
        batch.source += [source.id] * len(rows)
        batch.file += [cursor.number] * len(rows)
        if self._masks:
            mask = self._masks.event
            rows = [row._replace(text=mask(row.number, row.text)) for row in rows]
        batch.rows += rows
        batch.size += size
        self._dirty = True
        self.events += len(rows)
        self.bytes += size
        if self._progress:
            self._progress(self.bytes, max(self.total, self.bytes))
        if len(batch) >= _ROWS or batch.size >= _BYTES:
            self.commit()

    def lost(self, gap: Gap) -> None:
        """Record what was lost."""
        self._ledger.add_gap(gap)
        self.gaps.append(gap)
        self._dirty = True

    def commit(self) -> None:
        """Write the rows, and the ledger that counts them."""
        if not self._dirty:
            return
        ledger = self._ledger
        if len(self._batch):
            ledger.parts += write_batch(ledger.folder, self._batch, ledger.number + 1)
        ledger.commit()
        self._batch = RowBatch()
        self._dirty = False

    @staticmethod
    def _days(cursor: Cursor, rows: Sequence[EventRow]) -> list[int]:
        """The day of each event; -1 if it is impossible."""
        latest = int(time.time() // _DAY) + 2
        known = set(cursor.days)
        days = []
        for row in rows:
            day = int(row.time // _DAY)
            if day not in known:
                if not _EARLIEST <= day <= latest or len(known) >= _DAYS:
                    day = -1
                else:
                    known.add(day)
                    cursor.days.append(day)
            days.append(day)
        return days


@dataclass(frozen=True)
class Day:
    """One day of a store."""

    day: str
    events: int
    bytes: int
    parts: int


@dataclass(frozen=True)
class StoreStatus:
    """A store as it was at one commit."""

    folder: Path
    anonymised: bool
    events: int
    jobs: int
    logs: int
    bytes: int  # of the parts on the disk
    first: float | None  # times of the earliest and the latest event, without day=unknown
    last: float | None
    skipped: int  # bytes of the logs that are part of no event
    days: tuple[Day, ...]
    gaps: tuple[Gap, ...]
    gap_count: int

    def as_json(self) -> dict[str, Any]:
        """The status in types that JSON has."""
        return {"type": "collected", **asdict(self), "folder": str(self.folder)}


def status(folder: Path) -> StoreStatus:
    """What is in a store, even while it is written to.

    Args:
        folder: The store.

    Returns:
        Its status at one commit.

    Raises:
        CollectError: There is no store, or it is damaged.
    """
    for _ in range(5):
        ledger = StoreLedger.read(folder)
        if ledger is None:
            raise CollectError(
                f"there is no store in {folder}",
                remedy="`headway collect LOG --into FOLDER` makes one",
            )
        try:
            jobs = _jobs(ledger)
        except FileNotFoundError:
            continue  # small parts were just merged into a large one
        return _status(ledger, jobs)
    raise CollectError(f"the parts in {folder} are not there", remedy="has somebody moved them?")


def _status(ledger: StoreLedger, jobs: int) -> StoreStatus:
    days: dict[str, list[StorePart]] = {}
    for part in ledger.parts:
        days.setdefault(part.day, []).append(part)
    dated = [part for part in ledger.parts if part.day != "unknown"]
    return StoreStatus(
        ledger.folder,
        ledger.anonymised,
        sum(part.rows for part in ledger.parts),
        jobs,
        sum(source.next > 0 for source in ledger.sources),
        sum(part.bytes for part in ledger.parts),
        min((part.first / 1e6 for part in dated), default=None),
        max((part.last / 1e6 for part in dated), default=None),
        sum(file.skipped for source in ledger.sources for file in source.files),
        tuple(
            Day(day, sum(p.rows for p in parts), sum(p.bytes for p in parts), len(parts))
            for day, parts in sorted(days.items())
        ),
        tuple(ledger.gaps),
        ledger.gap_count,
    )


def _jobs(ledger: StoreLedger) -> int:
    import polars as pl

    if not ledger.parts:
        return 0
    paths = [ledger.folder / part.path for part in ledger.parts]
    for path in paths:
        path.stat()  # polars has its own error for a file that is gone
    found = (
        pl.scan_parquet(paths)
        .filter(pl.col("proc") >= 0, pl.col("cluster") >= 0, pl.col("number") < 100)
        .select(pl.struct("cluster", "proc").n_unique())
        .collect()
    )
    return int(found.item())
