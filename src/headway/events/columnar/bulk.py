"""Reading logs in bulk: all events of many files as columns, on several processors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from headway.errors import EventLogError
from headway.events.columnar.assemble import File, assemble, part_of
from headway.events.columnar.batch import Batch, unfinished
from headway.events.columnar.columns import Columns
from headway.events.columnar.parcel import Result, pack, unpack
from headway.events.columnar.part import Part, no_events, placed
from headway.events.columnar.ranges import ranges
from headway.events.columnar.scan import Scanner
from headway.events.columnar.thin import Thin, thin_of, thinned
from headway.events.columnar.workers import can_fork, each, give_memory_back, keep_memory
from headway.events.forms.files import LogChain, find_logs
from headway.events.forms.opening import file_blocks, open_log
from headway.events.forms.sniffing import Format
from headway.events.read import read_log
from headway.node.processors import usable_processors

#: Bytes that are scanned at a time: they and what is made of them stay in the processor's cache.
_BLOCK = 4 << 20
#: Bytes that one worker takes at a time: enough for its memory of texts to pay, and for each worker
#: to come back several times, so that all are done at about the same time.
_RANGE = 16 << 20
#: Files up to this size are read together: by itself each would cost a millisecond.
_SMALL = 256 << 10
#: Below this a second process is not worth its start.
_WORTH_FORKING = 16 << 20

#: From here on memory counts for more than a few percent of time.
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


def read_columns(
    paths: Iterable[str | os.PathLike[str]],
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Columns:
    """All complete events of these logs, and what had to be skipped; see `find_logs` for `paths`.

    `workers` is at most how many processes read (None: one for each processor). `progress` is
    told how many bytes of how many are done.
    """
    unread, chains, files, tasks = _found(paths)
    columns = assemble(
        _parts(tasks, files, workers or usable_processors(), progress, None, thin=False),
        files,
        [chain.name for chain in chains],
        [chain.owner or "" for chain in chains],
    )
    columns.unread = unread + columns.unread
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
        workers: At most how many processes read; None: one for each processor.
        progress: Is told how many bytes of how many are done.
        meanwhile: Is called while other processes read, if they do.

    Returns:
        The events as far as accounts can tell them apart.
    """
    unread, chains, files, tasks = _found(paths)
    large = sum(piece.stop - piece.start for task in tasks for piece in task) > _LARGE
    give_memory_back() if large else keep_memory()
    thin = thin_of(
        _parts(tasks, files, workers or usable_processors(), progress, meanwhile, thin=True),
        files,
        [chain.name for chain in chains],
        [chain.owner or "" for chain in chains],
    )
    thin.unread = unread
    return thin


def _found(
    paths: Iterable[str | os.PathLike[str]],
) -> tuple[list[tuple[str, str]], list[LogChain], list[File], list[list[Piece]]]:
    """What is no log and why, the logs, their files, and what is to be read in one go each."""
    unread: list[tuple[str, str]] = []
    chains = find_logs(paths, unread)
    files: list[File] = []
    pieces: list[Piece] = []
    for log, chain in enumerate(chains):
        for found in chain.files:
            files.append(File(str(found.path), log, found.mtime))
            pieces += _pieces(files, found.format)
    return unread, chains, files, _tasks(pieces)


def _parts(
    tasks: list[list[Piece]],
    files: list[File],
    workers: int,
    progress: Progress | None,
    meanwhile: Callable[[], object] | None,
    *,
    thin: bool,
) -> Iterator[Part]:
    """What is read, in the order of the files; notes there what could not be."""
    sizes = [sum(piece.stop - piece.start for piece in task) for task in tasks]
    total, done, following = sum(sizes), 0, 0
    waiting: dict[int, list[Result]] = {}
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
    """What there is to read of the last file."""
    place, file = len(files) - 1, files[-1]
    try:
        with open_log(file.name) as reader:
            size, file.modified = reader.stat.st_size, reader.stat.st_mtime
            if reader.compression or format in (Format.XML, Format.JSON):
                yield Piece(place, file.name, 0, size, format, False, True)
                return
        if size <= _RANGE:
            yield Piece(place, file.name, 0, size, format, True, True)
            return
        with open(file.name, "rb", buffering=0) as opened:
            for start, stop in ranges(opened.fileno(), size, _RANGE):
                yield Piece(place, file.name, start, stop, format, True, stop == size)
    except OSError as error:
        file.unread = _why(error)


def _tasks(pieces: Iterable[Piece]) -> list[list[Piece]]:
    """Pieces to read in one go: small files together."""
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
) -> Iterator[tuple[int, list[Result]]]:
    def packed(number: int) -> list[memoryview]:
        results = _read(tasks[number])
        if thin:
            for result in results:
                result.part = thinned(result.part)
        return pack(results)

    workers = min(workers, len(tasks))
    if workers > 1 and total >= _WORTH_FORKING and can_fork():
        for number, data in each(len(tasks), packed, workers, meanwhile):
            yield number, unpack(data)
    else:
        for number, task in enumerate(tasks):
            # Packed, what waits for the others takes a third.
            yield (
                number,
                unpack(memoryview(b"".join(packed(number)))) if thin else _read(task),
            )


def _read(task: list[Piece]) -> list[Result]:
    results: list[Result] = []
    batch = Batch()
    for piece in task:
        data = _small(piece)
        if data is not None and batch.take(piece.file, data):
            continue
        results += batch.results()
        batch = Batch()
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
        return None  # and be told why


def _read_piece(piece: Piece) -> Result:
    try:
        if piece.ranged:
            return _scan_range(piece)
        return _scan_stream(piece) if piece.format is Format.TEXT else _read_ads(piece)
    except (OSError, EventLogError) as error:
        part = placed(no_events(), [piece.file], [0])
        return Result(piece.file, piece.start, part, unread=_why(error))


def _scan_range(piece: Piece) -> Result:
    scanner = Scanner(piece.start)
    with open(piece.path, "rb", buffering=0) as file:
        # Not mapped: a file that somebody truncates would kill us.
        _feed(scanner, file_blocks(file.fileno(), piece.start, piece.stop, _BLOCK))
    return _scanned(piece, scanner)


def _scan_stream(piece: Piece) -> Result:
    scanner = Scanner()
    with open_log(piece.path) as reader:
        _feed(scanner, _filled(reader.blocks(_BLOCK)))
        result = _scanned(piece, scanner)
        if reader.damage:
            result.part.skipped.append((piece.file, reader.damage))
    return result


def _feed(scanner: Scanner, blocks: Iterable[bytes | int]) -> None:
    for block in blocks:
        if isinstance(block, int):
            scanner.zeros(block)
        else:
            scanner.feed(block)


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


def _scanned(piece: Piece, scanner: Scanner) -> Result:
    if piece.last:
        scanner.close()
    part = placed(scanner.part(), [piece.file], [0])
    rest = unfinished(piece.file, scanner.offset, scanner.pending)
    return Result(piece.file, piece.start, part, rest)


def _read_ads(piece: Piece) -> Result:
    log = read_log(piece.path)
    part = part_of(log.events)
    part.files, part.skipped = [piece.file], [(piece.file, skip) for skip in log.skipped]
    return Result(piece.file, piece.start, part)


def _why(error: OSError | EventLogError) -> str:
    return f"cannot be read: {getattr(error, 'strerror', None) or error}"
