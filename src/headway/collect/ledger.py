"""The ledger of a store: one file that names all parts and cursors, put in place as a whole.

What the ledger does not name does not exist. So a part and the cursors that stand behind its events
become true in the same moment, and whoever is killed before that has done nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from headway.collect.cursor import Gap, Gaps, Source, source_as_json, source_from_json
from headway.errors import CollectError
from headway.events.collected import FORMAT, LEDGER
from headway.node.locks import lock

_LOCK = "lock"


@dataclass(frozen=True)
class Part:
    """One Parquet file of a day."""

    day: str  # YYYY-MM-DD, or "unknown"
    name: str
    rows: int
    bytes: int
    first: int  # microseconds since the epoch
    last: int

    @property
    def path(self) -> str:
        """Where it is, below the store's folder."""
        return f"events/day={self.day}/{self.name}"


@dataclass
class Ledger:
    """All that is true of a store."""

    folder: Path
    anonymised: bool = False
    check: str = ""  # what the key makes of a known text
    number: int = 0  # of commits
    sources: list[Source] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    gaps: Gaps = field(default_factory=Gaps)

    @classmethod
    def read(cls, folder: Path) -> Ledger | None:
        """The ledger of a store, or None where there is no store yet."""
        try:
            found = json.loads((folder / LEDGER).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise _damaged(folder, str(error)) from error
        try:
            if found["format"] != FORMAT:
                raise CollectError(
                    f"{folder} was written by another version of headway"
                    f" (format {str(found['format'])[:20]}, this one knows {FORMAT})",
                    remedy="collect into another folder, or use that version",
                )
            return cls(
                folder,
                found["anonymised"],
                found["check"],
                found["number"],
                [source_from_json(one) for one in found["sources"]],
                [Part(**one) for one in found["parts"]],
                Gaps([Gap(**one) for one in found["gaps"]], found["gap_count"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise _damaged(folder, f"{type(error).__name__}: {error}") from error

    def commit(self) -> None:
        """Make it true: on the disk, whole, under its name."""
        self.number += 1
        document = {
            "format": FORMAT,
            "anonymised": self.anonymised,
            "check": self.check,
            "number": self.number,
            "sources": [source_as_json(one) for one in self.sources],
            "parts": [asdict(one) for one in self.parts],
            "gaps": [asdict(one) for one in self.gaps.listed],
            "gap_count": self.gaps.count,
        }
        data = json.dumps(document, separators=(",", ":")).encode()
        put(self.folder / LEDGER, data)

    def clean(self) -> None:
        """Take away what a process that was killed had begun."""
        named = {part.path for part in self.parts}
        for path in self.folder.glob("events/day=*/*part-*"):
            if path.relative_to(self.folder).as_posix() not in named:
                with contextlib.suppress(OSError):
                    path.unlink()
        with contextlib.suppress(OSError):
            (self.folder / _temporary(LEDGER)).unlink()
        for folder in self.folder.glob("events/day=*"):
            with contextlib.suppress(OSError):
                folder.rmdir()  # if it is empty


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Nobody else collects into this folder meanwhile."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise cannot_write(folder, error) from error
    try:
        try:
            held = lock(descriptor)
        except BlockingIOError:
            owner = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
            who = f" (process {owner})" if owner.isdigit() else ""
            raise CollectError(
                f"another `headway collect` writes into {folder}{who}",
                remedy="one at a time is enough: it can follow many logs",
            ) from None
        except OSError as error:
            raise cannot_write(folder, error) from error
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        try:
            yield
        finally:
            held.release()
    finally:
        os.close(descriptor)


def put(path: Path, data: bytes) -> None:
    """Write a file so that it is there as a whole, also after a power cut, or not at all."""
    temporary = path.with_name(_temporary(path.name))
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
        sync(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise cannot_write(path, error) from error


def sync(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cannot_write(path: Path, error: OSError) -> CollectError:
    """Words for a disk that is full, or a folder that is not ours."""
    return CollectError(
        f"{path} cannot be written: {error.strerror or error}",
        remedy="make room or see to the permissions, and start again: what was stored is whole,"
        " and it goes on from there as long as the logs are still there",
    )


def _temporary(name: str) -> str:
    return f".{name}.new"


def _damaged(folder: Path, why: str) -> CollectError:
    return CollectError(
        f"{folder / LEDGER} cannot be read: {why[:200]}",
        remedy="it is written by `headway collect` alone; put a copy of it back,"
        " or collect into another folder",
    )
