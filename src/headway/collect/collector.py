"""The collector: logs in, a store by day out, each event once, whatever happens in between."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from headway.collect.cursor import Cursor, Gap, Source
from headway.collect.finding import Finder, Found, Ident
from headway.collect.ledger import Ledger, cannot_write, locked
from headway.collect.masks import Masks
from headway.collect.parts import Batch, compactable, day_name, forget, merged, write_batch
from headway.collect.pseudonyms import Pseudonyms, key_of
from headway.collect.rotated import LogFile
from headway.collect.slicing import Row
from headway.collect.tail import Tail
from headway.errors import CollectError
from headway.events.collected import LEDGER

#: Events, and bytes of logs, that are committed together at most.
_ROWS, _BYTES = 100_000, 32 << 20
#: Days that one file of a log may be about; what is beyond goes to `day=unknown`.
_DAYS = 400
_DAY = 86400
_EARLIEST = 7305  # 1990, before the first event log
#: Files that are kept open, of the logs that grew last.
_HELD = 64

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Poll:
    """What one look at the logs brought."""

    events: int = 0
    bytes: int = 0  # of the logs
    logs: int = 0
    gaps: tuple[Gap, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()  # file, why


class Collector:
    """Stores logs in a folder that is locked meanwhile; close it, or use it in a `with`."""

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
        self._holds = waits
        self._tails: dict[Path, Tail] = {}
        self._held: dict[Path, Tail] = {}
        self._unread: dict[str, str] = {}
        if self._is_taken():
            raise CollectError(
                f"{self.folder} is not empty, and no store of ours",
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

    def _open(self, anonymise: bool, key: str | os.PathLike[str] | None) -> Ledger:
        ledger = Ledger.read(self.folder)
        if ledger is None:
            ledger = Ledger(self.folder, anonymised=anonymise)
        elif anonymise and not ledger.anonymised:
            raise CollectError(
                f"{self.folder} holds events that are not anonymised",
                remedy="collect into another folder: one store is either the one or the other",
            )
        self._masks: Masks | None = None
        self.key = b""
        #: Where the key of an anonymised store has just been made, if it was.
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
        # What a first start that was killed may have left is ours.
        ours = {"lock", "key", ".key.new", "events", f".{LEDGER}.new"}
        return LEDGER not in names and not ours.issuperset(names)

    def poll(self, progress: Progress | None = None) -> Poll:
        """Store all that has become complete since the last time."""
        with _without_collection():
            return self._poll(progress)

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
            tail.poll(rotated=log.rotated, hold=self._holds)
            self._let_go(tail)
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
        """Polls every so many seconds, until `stop` is set and what is there has been stored."""
        while True:
            stopping = stop.is_set()
            yield self.poll(progress)
            if stopping:
                return
            stop.wait(every)

    def close(self) -> None:
        """Give files and lock back."""
        for tail in self._tails.values():
            tail.release()
        self._stack.close()

    def __enter__(self) -> Collector:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _tail(self, log: Found, known: Mapping[Ident, Cursor]) -> Tail | None:
        if log.path in self._tails:
            self._writer.source(log)  # who owns it may be known only now
        else:
            if self._writer.knows(log) is None and self._is_of_another(log.path, known):
                return None
            source = self._writer.source(log)
            self._tails[log.path] = Tail(log.path, source, self.key, self._writer)
        return self._tails[log.path]

    def _is_of_another(self, path: Path, known: Mapping[Ident, Cursor]) -> bool:
        """Whether a file that is new here is a known log's, under a name of its own choice."""
        try:
            now = os.stat(path)
            cursor = known.get((now.st_dev, now.st_ino))
            file = LogFile(path, self.key) if cursor else None
        except OSError:
            return False
        if cursor is None or file is None:
            return False
        try:
            return file.is_of(cursor)
        finally:
            file.close()

    def _let_go(self, tail: Tail) -> None:
        """Keep the files open of those logs that grew last."""
        if tail.holds and tail.path not in self._held:
            self._held[tail.path] = tail
            if len(self._held) > _HELD:
                self._held.pop(next(iter(self._held))).release()

    def _compact(self) -> None:
        ledger = self.ledger
        today = day_name(int(time.time() // _DAY))
        for group in compactable(ledger.parts, today):
            whole = merged(self.folder, group, ledger.number + 1)
            if whole.rows != sum(part.rows for part in group):
                raise CollectError(
                    f"the parts of {whole.day} in {self.folder} do not hold what they did",
                    remedy="has somebody changed files there? They are left as they are",
                )
            gone = {part.path for part in group}
            first = next(at for at, part in enumerate(ledger.parts) if part.path in gone)
            ledger.parts.insert(first, whole)
            ledger.parts = [one for one in ledger.parts if one.path not in gone]
            ledger.commit()
            forget(self.folder, group)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Millions of rows and no cycles among them: looking for some takes a third of the time."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


class _Writer:
    """Gathers rows and commits them together with the cursors behind them."""

    def __init__(self, ledger: Ledger, masks: Masks | None) -> None:
        self._ledger, self._masks = ledger, masks
        self._sources = {source.name: source for source in ledger.sources}
        self._batch = Batch()
        self._dirty = ledger.number == 0
        self.begin(None)

    def begin(self, progress: Progress | None) -> None:
        """Count anew."""
        self._progress = progress
        self.events = self.bytes = self.total = 0
        self.gaps: list[Gap] = []

    def _name(self, log: Found) -> str:
        name = str(log.path)
        return f"log-{self._masks.names.digest(name)}" if self._masks else name

    def knows(self, log: Found) -> Source | None:
        """What the ledger knows of a log, if anything."""
        return self._sources.get(self._name(log))

    def source(self, log: Found) -> Source:
        """What the ledger knows of a log, from now on."""
        name = self._name(log)
        if name not in self._sources:
            made = self._sources[name] = Source(len(self._ledger.sources), name)
            self._ledger.sources.append(made)
        found = self._sources[name]
        if log.owner and not found.owner:
            found.owner = self._masks.names.user(log.owner) if self._masks else log.owner
        return found

    def cursors(self) -> dict[Ident, Cursor]:
        """The files that are known to be logs."""
        return {
            (one.device, one.inode): one
            for source in self._ledger.sources
            for one in source.files
            if not one.gone
        }

    def add(self, source: Source, cursor: Cursor, rows: list[Row], size: int) -> None:
        """Take events; commits when there are many."""
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
        """Note what was lost."""
        self._ledger.gaps.add(gap)
        self.gaps.append(gap)
        self._dirty = True

    def commit(self) -> None:
        """Make all that was gathered true."""
        if not self._dirty:
            return
        ledger = self._ledger
        if len(self._batch):
            ledger.parts += write_batch(ledger.folder, self._batch, ledger.number + 1)
        ledger.commit()
        self._batch = Batch()
        self._dirty = False

    @staticmethod
    def _days(cursor: Cursor, rows: Sequence[Row]) -> list[int]:
        """The day of each event; -1 for one that a file cannot sensibly be about."""
        latest = int(time.time() // _DAY) + 2
        known = set(cursor.days)
        found = []
        for row in rows:
            day = int(row.time // _DAY)
            if day not in known:
                if not _EARLIEST <= day <= latest or len(known) >= _DAYS:
                    day = -1
                else:
                    known.add(day)
                    cursor.days.append(day)
            found.append(day)
        return found
