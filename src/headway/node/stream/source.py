"""A source of samples: an object, which of its bytes are samples, and their order."""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from itertools import compress
from typing import NamedTuple

from headway.node.stream.arrival import Wanted, chunks_each_time, chunks_once
from headway.node.stream.order import Blocks, FileOrder, Order, default_window
from headway.node.stream.samples import (
    NO_CLASS,
    Choice,
    DataError,
    Object,
    Samples,
    check_tar,
    folder_of,
    label_of,
    samples_of,
)
from headway.node.transfer.manifest import MIN_CHUNK
from headway.node.transfer.tar import FILE, TarIndexer, safe_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from typing import Any

    from headway.node.transfer.manifest import Manifest
    from headway.node.transfer.tar import _Header


class Position(NamedTuple):
    """One sample, before its bytes have arrived."""

    name: str
    class_name: str | None
    label: int
    offset: int
    size: int


def as_it_arrives(thing: Object, choice: Choice) -> Iterator[Position]:
    """The samples in the order of the file; waits for headers, not for the bytes of samples."""
    classes = choice.classes
    numbers = None if classes is None else {name: place for place, name in enumerate(classes)}
    walker = _Walker(thing.size)
    while walker.want is not None or walker.fresh:
        while walker.fresh:
            name, class_name, offset, size = walker.fresh.popleft()
            if not choice.takes(name):
                continue
            if choice.record is None:
                label = NO_CLASS
                if choice.labelled:
                    label = label_of(thing.path, name, class_name, numbers)
                yield Position(name, class_name, label, offset, size)
                continue
            for number, place in enumerate(choice.records(name, offset, size)):
                yield Position(f"{name}[{number}]", None, NO_CLASS, place, choice.record)
        if walker.want is not None:
            walker.take(thing.read(*walker.want))
    check_tar(thing, walker)


class _Walker(TarIndexer):
    """Hands out each member as soon as its header has been read."""

    def __init__(self, size: int) -> None:
        self.fresh: deque[tuple[str, str | None, int, int]] = deque()
        self._folder = ""  # to which the members of a nested tar file would be unpacked
        self._handed = 0
        super().__init__(size)

    def _nested(self, name: bytes, at: int, size: int) -> Generator[tuple[int, int], bytes, bool]:
        self._folder, before = folder_of(_text(safe_name(name) or b"")), self._handed
        complete = yield from super()._nested(name, at, size)
        self._folder = ""
        if not complete and self._handed > before:
            raise DataError(f"{_text(name)} is a damaged tar file, and samples from it were used")
        return complete

    def _add(
        self,
        header: _Header,
        offset: int,
        size: int,
        class_name: bytes | None,
        kind: int = FILE,
        full_size: int = 0,
    ) -> None:
        name = safe_name(header.name)
        if name is None or kind != FILE or not size:
            return
        if class_name is None and b"/" in name:
            class_name = name.rpartition(b"/")[0].rpartition(b"/")[2]
        self._handed += 1
        shown = f"{self._folder}/{_text(name)}" if self._folder else _text(name)
        text = None if class_name is None else _text(class_name)
        self.fresh.append((shown, text, offset, size))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


_LEAST_SAMPLES = 8  # of a block, on average
_BLOCK, _MANY_BLOCKS = 8 << 20, 2000  # bytes of a block, unless that leaves too few blocks
_LARGE_BLOCK, _FEW_BLOCKS = 16, 64  # chunks of a block, and blocks in a window of disk


class SampleSource:
    """An object and its samples; shared with forked processes, others get a copy."""

    def __init__(self, path: str, choice: Choice) -> None:
        self.path, self.choice = os.path.abspath(path), choice
        self._object: Object | None = Object(self.path)
        manifest = self._object.manifest()
        self.size = self._object.size
        self.chunk = manifest.chunk_size if manifest else MIN_CHUNK
        self.sha256 = manifest.sha256 if manifest else None  # of the object
        self._samples: Samples | None = None
        if manifest is not None and (manifest.index is not None or choice.record is not None):
            self._samples = samples_of(self._object, choice, manifest.index)

    @property
    def object(self) -> Object:
        if self._object is None:
            self._object = Object(self.path)
        return self._object

    @property
    def indexed(self) -> bool:
        """Whether the samples are known without waiting for all of the object."""
        return self._samples is not None or self.object.arrival is None

    @property
    def samples(self) -> Samples:
        """All samples; without a manifest this waits until all of the object is here."""
        if self._samples is None:
            self._samples = samples_of(self.object, self.choice, None)
        return self._samples

    @property
    def unit(self) -> int:
        """The bytes of a block: few, but enough that few samples cross into the next."""
        arrival = self.object.arrival
        room = arrival.room if arrival is not None else 0
        return _unit(self.samples.sizes, self.size, self.chunk, room)

    def read(self, numbers: Sequence[int]) -> list[bytes]:
        """The bytes of these samples, in this order; waits until they are here."""
        samples = self.samples
        offsets = [samples.offsets[number] for number in numbers]
        sizes = [samples.sizes[number] for number in numbers]
        return self.object.read_many(offsets, sizes)

    def place(self, number: int) -> str:
        """The name and position of a sample, for messages."""
        samples = self.samples
        if not samples.named:  # a copy in another process has no names
            manifest = self.object.manifest()
            samples = samples_of(self.object, self.choice, manifest.index if manifest else None)
            self._samples = samples
        size, offset = samples.sizes[number], samples.offsets[number]
        return f"{samples.name(number)} ({size} bytes at byte {offset} of {self.path})"

    def order(
        self,
        *,
        seed: int | None,
        epoch: int,
        window: int | None = None,
        unit: int | None = None,
        ahead: int = 0,
    ) -> Order:
        """The order of an epoch; without a seed, the order of the file.

        `ahead`: how many samples are read before the first of them is used.
        """
        samples = self.samples
        unit = unit or self.unit
        blocks = Blocks(samples.offsets, samples.sizes, unit, self.size, self.chunk)
        room = self._room(blocks, ahead)
        if seed is None:
            return FileOrder(blocks)
        if window is None and room is not None:
            window = min(room, default_window(len(blocks)))
        return Order(blocks, samples.labels, seed=seed, epoch=epoch, window=window)

    def _room(self, blocks: Blocks, ahead: int) -> int | None:
        """How many blocks to draw from if the object has a window of disk; None if it has not."""
        arrival = self.object.arrival
        if arrival is None or not arrival.room:
            return None
        # the other blocks: edges, what comes next, and what was read ahead
        others = 2 + -(-ahead * len(blocks) // max(1, len(self.samples)))
        most = arrival.room // blocks.unit
        if most <= others:
            raise DataError(
                f"{self.path}: a window of {arrival.room} bytes is too small: {ahead} samples are"
                " read ahead, and would be fetched again and again",
                remedy=f"window = {(others + 1) * blocks.unit} or more in job.toml, or fewer"
                " workers, or smaller batches",
            )
        return max(1, min(most // 2, most - others))  # half is for what comes next

    def as_it_arrives(self) -> Iterator[Position]:
        """The samples in the order of the file, as their headers arrive."""
        return as_it_arrives(self.object, self.choice)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_object": None}


def bytes_of_epoch(manifest: Manifest, room: int) -> int:
    """How many bytes an epoch fetches if only `room` bytes of the object are kept.

    More than the object has: the edge of a block that a sample crosses is fetched with both.
    """
    index = manifest.index
    sizes = index.sizes() if index is not None else array("Q")
    if index is None or not any(sizes):
        return manifest.size
    offsets = array("Q", compress(index.offsets(), sizes))
    sizes = array("Q", filter(None, sizes))
    unit = _unit(sizes, manifest.size, manifest.chunk_size, room)
    blocks = Blocks(offsets, sizes, unit, manifest.size, manifest.chunk_size)
    needs = FileOrder(blocks).needs(forgets=True)
    return sum(end - begin for _, (begin, end) in needs)


def _unit(sizes: Sequence[int], size: int, chunk: int, room: int) -> int:
    mean = sum(sizes) // len(sizes) + 1
    chunks = -(-_LEAST_SAMPLES * mean // chunk)
    chunks = max(chunks, min(_BLOCK, size // _MANY_BLOCKS) // chunk)
    if room:
        # for a sample that crosses, the edge of one of its blocks is fetched again
        chunks = max(chunks, min(_LARGE_BLOCK, room // chunk // _FEW_BLOCKS))
    return chunks * chunk


class FetchOrder:
    """Tells the fetcher in which order an arriving object is read, and what has been read."""

    def __init__(self, source: SampleSource, order: Order, begin: int) -> None:
        self._wanted: Wanted | None = None
        arrival = source.object.arrival
        if arrival is None:
            return
        needs = list(order.needs(begin, forgets=bool(arrival.room)))
        self._order, self._positions = order, array("Q", (position for position, _ in needs))
        each = chunks_each_time if arrival.room else chunks_once
        chunks, self._until = each((stretch for _, stretch in needs), arrival.chunk)
        self._wanted, self._told = Wanted(source.path, chunks, arrival.chunk), 0

    def passed(self, position: int) -> None:
        """All samples of the positions before this one have been used."""
        if self._wanted is not None:
            over = bisect_left(self._positions, self._order.behind(position))
            count = bisect_right(self._until, over)
            if count > self._told:
                self._told = count
                self._wanted.done(count)

    def close(self) -> None:
        if self._wanted is not None:
            self._wanted.close()
