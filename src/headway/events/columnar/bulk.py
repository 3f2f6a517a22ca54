"""Reading all events of many files as columns, on several processors."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from headway.errors import EventLogError
from headway.events.columnar.assemble import File, arrays_of, assemble
from headway.events.columnar.columns import (
    TYPES,
    Array,
    Columns,
    EventArrays,
    Packed,
    no_events,
    placed,
    smallest_type,
)
from headway.events.columnar.scan import Scanner
from headway.events.columnar.thin import Thin, thin_of, thinned
from headway.events.columnar.workers import can_fork, each, give_memory_back, keep_memory
from headway.events.files import find_logs
from headway.events.opening import (
    END,
    HEADER,
    NO_END,
    NO_EVENT,
    Format,
    LogReader,
    Skip,
    blank,
    end_of_hole,
    file_blocks,
    is_zeros,
)
from headway.events.read import read_log
from headway.node.host import usable_processors

# Ranges of a text log that can be read independently: each begins where an event ends.


#: An end mark wherever reading began: it shares no newline with a mark before it.
_SURE_END = re.compile(rb"(?<!\n\.\.\.)(?<!\n\.\.\.\r)\n\.\.\.\r?\n")
_BEHIND = 8
_LOOK = 1 << 16


def ranges(descriptor: int, size: int, step: int) -> list[tuple[int, int]]:
    """Ranges of about `step` bytes; where there is no end mark for long, they are longer."""
    starts, at = [0], step
    while at < size:
        found, looked = _next_start(descriptor, at, min(at + step, size))
        if found is not None and starts[-1] < found < size:
            starts.append(found)
        at += step * max(1, (looked - at) // step)
    return list(zip(starts, [*starts[1:], size], strict=True))


def _next_start(descriptor: int, start: int, stop: int) -> tuple[int | None, int]:
    """Where an event ends between these places, or None, and how far the search went."""
    at = start
    while at < stop:
        data = os.pread(descriptor, _LOOK + 2 * _BEHIND, max(0, at - _BEHIND))
        if len(data) <= _BEHIND:
            return None, stop
        match = _SURE_END.search(data, min(at, _BEHIND))
        if match:
            return max(0, at - _BEHIND) + match.end(), at
        at += _LOOK
        if is_zeros(data):
            at = max(at, end_of_hole(descriptor, at))
    return None, at


@dataclass
class PieceResult:
    """What came of reading a piece of a file, or several small files."""

    file: int  # place among the files, of the first one
    part: EventArrays
    unfinished: list[tuple[int, Skip]] = field(default_factory=list)  # with the file
    unread: str = ""  # why


def _compact(part: EventArrays) -> EventArrays:
    """The same events in less memory: columns in small numbers, or once if all rows are alike."""
    columns = {name: _smallest(column) for name, column in part.columns.items()}
    return replace(part, columns=columns, strings=Packed.of(part.strings))


def _smallest(column: Array) -> Array:
    if column.size and (column == column[0]).all():
        return column[:1].copy()
    if column.size and column.dtype.kind == "i":
        return column.astype(smallest_type(int(column.min()), int(column.max())), copy=False)
    return column


def _expanded(part: EventArrays) -> EventArrays:
    """Compact arrays with one number per row again."""
    # Of all columns, only the minutes are calculated with before they become part of others.
    minute = part.columns["minute"]
    part.columns["minute"] = minute.astype(TYPES["minute"], copy=False)
    count = sum(part.sizes)
    part.columns = {name: np.broadcast_to(col, count) for name, col in part.columns.items()}
    return part


def _plain(results: Iterable[PieceResult]) -> list[dict[str, Any]]:
    """Compact results in the way that workers can send."""

    def flat(skips: Iterable[tuple[int, Skip]]) -> list[tuple[int, dict[str, Any]]]:
        return [(file, vars(skip)) for file, skip in skips]

    plain = []
    for result in results:
        texts, part = Packed.of(result.part.strings).data, result.part
        sent = {**vars(part), "strings": texts, "skipped": flat(part.skipped)}
        plain.append({**vars(result), "part": sent, "unfinished": flat(result.unfinished)})
    return plain


def _results(plain: Iterable[dict[str, Any]]) -> list[PieceResult]:
    """The results that `_plain` was given."""

    def skips(flat: Iterable[tuple[int, dict[str, Any]]]) -> list[tuple[int, Skip]]:
        return [(file, Skip(**skip)) for file, skip in flat]

    results = []
    for result in plain:
        part = result["part"]
        texts, skipped = Packed(part["strings"]), skips(part["skipped"])
        result["part"] = EventArrays(**{**part, "strings": texts, "skipped": skipped})
        results.append(PieceResult(**{**result, "unfinished": skips(result["unfinished"])}))
    return results


_LIMIT = 4 << 20
#: Uncertain ends: their mark may share a newline with the one before.
_UNSURE = (b"\n..." + END, b"\n...\r" + END)


class SmallFiles:
    """Small files that are read as if they were one; only those whose last event is complete."""

    def __init__(self) -> None:
        self._files: list[int] = []
        self._starts: list[int] = []
        self._pieces: list[bytes] = []
        self._size = 0
        self._unfinished: list[tuple[int, Skip]] = []

    def take(self, file: int, data: bytes) -> bool:
        """Add a file, if it is certain where its last event ends and there is room."""
        if data.endswith(END[:-1]):
            data += END[-1:]
        end = data.rfind(END) + len(END) if data else 0
        whole = data[:end]
        unsure = (end < len(END) and data) or whole.endswith(_UNSURE) or b"\r" in data[end:]
        if unsure or (self._files and self._size + end > _LIMIT):
            return False
        self._unfinished += unfinished(file, end, data[end:])
        self._files.append(file)
        self._starts.append(self._size)
        self._pieces.append(whole)
        self._size += end
        return True

    def results(self) -> list[PieceResult]:
        """The events of all of them; nothing if there are no files."""
        if not self._files:
            return []
        scanner = Scanner()
        scanner.feed(b"".join(self._pieces))
        part = placed(scanner.arrays(), self._files, self._starts)
        return [PieceResult(self._files[0], part, self._unfinished)]


def unfinished(file: int, offset: int, rest: bytes) -> list[tuple[int, Skip]]:
    """What follows the last complete event of a file, if anything does."""
    if blank(rest):
        return []
    why = NO_END if HEADER.match(rest) else NO_EVENT
    return [(file, Skip(offset, len(rest), why))]


#: Bytes to scan at a time: they and the arrays made of them fit into the processor's cache.
_BLOCK = 4 << 20
#: Bytes that one worker takes at a time: enough for its caches to pay off, and so little that each
#: worker comes back several times and all finish at about the same time.
_RANGE = 16 << 20
#: Files up to this size are read together: each by itself would cost a millisecond.
_SMALL = 256 << 10
#: Below this size a second process does not pay off.
_WORTH_FORKING = 16 << 20
#: Above this size, memory matters more than a few percent of time.
_LARGE = 500 << 20

Progress = Callable[[int, int], None]


class Piece(NamedTuple):
    """A range of a file that is plain text, or a whole file of any other kind."""

    file: int
    path: str
    start: int
    stop: int  # of bytes on the disk
    format: Format
    ranged: bool
    last: bool  # whether the file ends here


_log = logging.getLogger(__name__)


def read_columns(
    paths: Iterable[str | os.PathLike[str]],
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Columns:
    """All complete events of these logs as arrays, and what had to be skipped.

    Args:
        paths: Files and folders; see `find_logs`.
        workers: How many processes read at most; None is one for each processor.
        progress: Called with how many bytes of how many have been read.

    Returns:
        The events, one row each, in the order of the logs.

    Raises:
        EventLogError: A file that was named itself cannot be read.

    Example:
        >>> with EventWriter("events.log") as writer:
        ...     _ = writer.submitted(7, 0, "<192.0.2.10:9618>")
        >>> read_columns(["events.log"]).cluster.tolist()
        [7]
    """
    unread, logs, files, tasks = _plan(paths)
    parts = _parts(tasks, files, workers or usable_processors(), progress, None, thin=False)
    columns = assemble(parts, files, *logs)
    columns.unread = unread + columns.unread
    _log.debug("read %d events of %d files", len(columns), len(files))
    return columns


def read_thin(
    paths: Iterable[str | os.PathLike[str]],
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> Thin:
    """What accounts need of all complete events of these logs, in little memory.

    Args:
        paths: Files and folders; see `find_logs`.
        workers: How many processes read at most; None is one for each processor.
        progress: Called with how many bytes of how many have been read.
        meanwhile: Called while other processes read, if they do.

    Returns:
        The events, without those that make no difference to any account.
    """
    unread, logs, files, tasks = _plan(paths)
    large = sum(piece.stop - piece.start for task in tasks for piece in task) > _LARGE
    give_memory_back() if large else keep_memory()
    parts = _parts(tasks, files, workers or usable_processors(), progress, meanwhile, thin=True)
    thin = thin_of(parts, files, *logs)
    thin.unread = unread
    return thin


_Plan = tuple[list[tuple[str, str]], tuple[list[str], list[str]], list[File], list[list[Piece]]]


def _plan(paths: Iterable[str | os.PathLike[str]]) -> _Plan:
    """What is not a log, the logs with their owners, their files, and the tasks of reading them."""
    unread: list[tuple[str, str]] = []
    chains = find_logs(paths, unread)
    files: list[File] = []
    pieces: list[Piece] = []
    for log, chain in enumerate(chains):
        for found in chain.files:
            files.append(File(str(found.path), log, found.mtime))
            pieces += _pieces(files, found.format)
    logs = [chain.name for chain in chains], [chain.owner or "" for chain in chains]
    return unread, logs, files, _tasks(pieces)


def _parts(
    tasks: list[list[Piece]],
    files: list[File],
    workers: int,
    progress: Progress | None,
    meanwhile: Callable[[], object] | None,
    *,
    thin: bool,
) -> Iterator[EventArrays]:
    """The events in the order of the files; notes in `files` what could not be read."""
    sizes = [sum(piece.stop - piece.start for piece in task) for task in tasks]
    total, done, following = sum(sizes), 0, 0
    waiting: dict[int, list[PieceResult]] = {}
    for number, made in _each(tasks, workers, total, thin, meanwhile):
        done += sizes[number]
        if progress:
            progress(done, total)
        waiting[number] = made
        while following in waiting:
            for result in waiting.pop(following):
                files[result.file].unread = files[result.file].unread or result.unread
                for place, skip in result.unfinished:
                    files[place].unfinished = skip
                yield result.part
            following += 1


def _pieces(files: list[File], format: Format) -> Iterator[Piece]:
    """The pieces of the last file."""
    place, file = len(files) - 1, files[-1]
    try:
        with LogReader(file.name) as reader:
            size, file.modified = reader.stat.st_size, reader.stat.st_mtime
            if reader.compression or format in (Format.XML, Format.JSON):
                yield Piece(place, file.name, 0, size, format, False, True)
                return
            for start, stop in ranges(reader.fileno(), size, _RANGE):
                yield Piece(place, file.name, start, stop, format, True, stop == size)
    except OSError as error:
        file.unread = _why(error)


def _tasks(pieces: Iterable[Piece]) -> list[list[Piece]]:
    """Pieces that one worker reads together."""
    tasks: list[list[Piece]] = []
    size = 0
    for piece in pieces:
        length = piece.stop - piece.start
        if not tasks or size + length > _RANGE:
            tasks.append([])
            size = 0
        tasks[-1].append(piece)
        size += length
    return tasks


def _each(
    tasks: list[list[Piece]],
    workers: int,
    total: int,
    thin: bool,
    meanwhile: Callable[[], object] | None,
) -> Iterator[tuple[int, list[PieceResult]]]:
    def read(number: int) -> list[PieceResult]:
        results = _read(tasks[number])
        for result in results:
            result.part = _compact(thinned(result.part) if thin else result.part)
        return results

    workers = min(workers, len(tasks))
    if workers > 1 and total >= _WORTH_FORKING and can_fork():
        sent = each(len(tasks), lambda number: _plain(read(number)), workers, meanwhile)
        compact = ((number, _results(plain)) for number, plain in sent)
    elif thin:
        compact = ((number, read(number)) for number in range(len(tasks)))
    else:
        yield from ((number, _read(task)) for number, task in enumerate(tasks))
        return
    for number, results in compact:
        for result in results:
            result.part = _expanded(result.part)
        yield number, results


def _read(task: list[Piece]) -> list[PieceResult]:
    results: list[PieceResult] = []
    batch = SmallFiles()
    for piece in task:
        data = _small(piece)
        if data is not None and batch.take(piece.file, data):
            continue
        results += batch.results()
        batch = SmallFiles()
        if data is None or not batch.take(piece.file, data):
            results.append(_read_piece(piece))
    return results + batch.results()


def _small(piece: Piece) -> bytes | None:
    """The bytes of a small file, which is best read together with others."""
    if not piece.ranged or piece.start or piece.stop > _SMALL:
        return None
    try:
        with open(piece.path, "rb", buffering=0) as file:
            return os.pread(file.fileno(), piece.stop, 0)
    except OSError:
        return None  # reading it alone will say why


def _read_piece(piece: Piece) -> PieceResult:
    try:
        return _scan(piece) if piece.ranged or piece.format is Format.TEXT else _read_ads(piece)
    except (OSError, EventLogError) as error:
        part = placed(no_events(), [piece.file], [0])
        return PieceResult(piece.file, part, unread=_why(error))


def _scan(piece: Piece) -> PieceResult:
    scanner = Scanner(piece.start)
    with LogReader(piece.path) as reader:
        # Not mapped into memory: somebody who truncates the file would kill this process.
        ranged = file_blocks(reader.fileno(), piece.start, piece.stop, _BLOCK)
        for block in ranged if piece.ranged else _filled(reader.blocks(_BLOCK)):
            if isinstance(block, int):
                scanner.zeros(block)
            else:
                scanner.feed(block)
        if piece.last:
            scanner.close()
        part = placed(scanner.arrays(), [piece.file], [0])
        if reader.damage:
            part.skipped.append((piece.file, reader.damage))
    rest = unfinished(piece.file, scanner.offset, scanner.pending)
    return PieceResult(piece.file, part, rest)


def _filled(blocks: Iterable[bytes | int]) -> Iterator[bytes | int]:
    """The same in whole blocks: a decompressor gives its bytes in small ones."""
    held: list[bytes] = []
    size = 0
    for block in blocks:
        if isinstance(block, int):
            yield b"".join(held)
            yield block
        else:
            held.append(block)
            size += len(block)
            if size < _BLOCK:
                continue
            yield b"".join(held)
        held, size = [], 0
    yield b"".join(held)


def _read_ads(piece: Piece) -> PieceResult:
    log = read_log(piece.path)
    part = arrays_of(log.events)
    part.files, part.skipped = [piece.file], [(piece.file, skip) for skip in log.skipped]
    return PieceResult(piece.file, part)


def _why(error: OSError | EventLogError) -> str:
    return f"cannot be read: {getattr(error, 'strerror', None) or error}"
