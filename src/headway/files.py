"""The files in a tar file, one after the other, for programs without a framework.

    import headway.files

    files = headway.files.stream("train.tar", seed=1, epoch=0)
    for name, class_name, data in files:
        ...

The tar file may be complete or still arriving (an input with mode = "stream"); it is not unpacked.
To resume, pass `files.position` as `begin`.
"""

from __future__ import annotations

from itertools import islice

from headway.node.errors import NodeError, TransferError
from headway.node.stream.order import delayed
from headway.node.stream.samples import Choice, DataError
from headway.node.stream.source import FetchOrder, SampleSource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["BUFFER", "DataError", "Files", "NodeError", "Stream", "TransferError", "stream"]

BUFFER = 4096  # files to draw from when there is no index
_AHEAD = 64  # files that are read at once


def stream(
    path: str,
    *,
    seed: int | None = None,
    epoch: int = 0,
    begin: int = 0,
    only: str | Sequence[str] = (),
    record: int | None = None,
    rank: int = 0,
    ranks: int = 1,
    window: int | None = None,
    buffer: int = BUFFER,
) -> Stream:
    """The files of a tar file as (name, class name, bytes), each once.

    Args:
        path: The tar file, or an input that arrives while the command runs.
        seed: The seed of the order; None: the order of the file.
        epoch: The number of the epoch, which changes the order.
        begin: How many files all ranks together have had: `position` of an earlier stream.
        only: Patterns of names, such as "*.jpg".
        record: The bytes of a record, if each should count as a file.
        rank: Which of `ranks` this is.
        ranks: How many processes share the files.
        window: The number of blocks of the tar file to draw a file from.
        buffer: The number of files to draw from, if the object arrives without a manifest.

    Returns:
        An iterator with a `position`.

    Raises:
        DataError: The file is not a tar file or has no files, or there is no such rank.
        NodeError: The file is not here, and does not arrive either.
        TransferError: It does not arrive.

    Example:
        >>> files = stream("train.tar")
        >>> next(files)
        ('cat/1.jpeg', 'cat', b'miaow')
        >>> [name for name, _, _ in stream("train.tar", begin=files.position)]
        ['dog/1.jpeg', 'notes.txt']
    """
    files = Files(path, only=only, record=record)
    return Stream(files, seed, epoch, begin, rank, ranks, window, buffer)


class Files:
    """The files of a tar file by name and by number, without unpacking it.

    Example:
        >>> files = Files("train.tar", only="*.jpeg")
        >>> len(files), files.classes, files["dog/1.jpeg"]
        (2, ('cat', 'dog'), ('dog/1.jpeg', 'dog', b'woof'))
    """

    def __init__(
        self, path: str, *, only: str | Sequence[str] = (), record: int | None = None
    ) -> None:
        """Open a tar file.

        Args:
            path: The tar file, or an input that arrives while the command runs.
            only: Patterns of names, such as "*.jpg".
            record: The bytes of a record, if each should count as a file.

        Raises:
            DataError: The file is not a tar file, or has no files.
            NodeError: The file is not here, and does not arrive either.
            TransferError: It does not arrive.
        """
        self.source = SampleSource(path, Choice(only, record))

    def __len__(self) -> int:
        return len(self.source.samples)

    def __getitem__(self, key: int | str) -> tuple[str, str | None, bytes]:
        """One file; waits until it is here.

        Args:
            key: Its name, or its number in the order of the tar file.

        Returns:
            Name, class name and bytes.

        Raises:
            KeyError: There is no file of that name.
            IndexError: There is no file of that number.
        """
        samples = self.source.samples
        number = samples.find(key) if isinstance(key, str) else range(len(samples))[key]
        (data,) = self.source.read([number])
        return samples.name(number), samples.class_name(number), data

    def names(self) -> Iterator[str]:
        """The names of all files, in the order of the tar file."""
        samples = self.source.samples
        return (samples.name(number) for number in range(len(samples)))

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of all classes: of nested tar files, or else of folders."""
        return self.source.samples.classes

    @property
    def waited(self) -> float:
        """Seconds spent waiting for data to arrive."""
        return self.source.object.waited


class Stream:
    """One pass over the files; an iterator."""

    def __init__(
        self,
        files: Files,
        seed: int | None,
        epoch: int,
        begin: int,
        rank: int,
        ranks: int,
        window: int | None,
        buffer: int,
    ) -> None:
        if not 0 <= rank < ranks or begin < 0:
            raise DataError(f"there is no rank {rank} of {ranks}, or no position {begin}")
        self.files = files
        self.position = begin  # pass it as `begin` to resume; of all ranks together
        self._rank, self._ranks, self._seed, self._epoch = rank, ranks, seed, epoch
        self._window, self._buffer = window, buffer
        self._each = self._by_index() if files.source.indexed else self._as_it_arrives()

    @property
    def waited(self) -> float:
        """Seconds spent waiting for data to arrive."""
        return self.files.waited

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> tuple[str, str | None, bytes]:
        found = next(self._each)
        self.position += self._ranks
        return found

    def _by_index(self) -> Iterator[tuple[str, str | None, bytes]]:
        source, samples = self.files.source, self.files.source.samples
        order = source.order(seed=self._seed, epoch=self._epoch, window=self._window)
        lead = FetchOrder(source, order, self.position) if self._rank == 0 else None
        skip = self._rank
        try:
            for position, lot in order.walk(self.position):
                if lead is not None:
                    lead.passed(position)
                mine = lot[skip :: self._ranks]
                skip = (skip - len(lot)) % self._ranks
                for at in range(0, len(mine), _AHEAD):
                    numbers = mine[at : at + _AHEAD]
                    for number, data in zip(numbers, source.read(numbers)):
                        yield samples.name(number), samples.class_name(number), data
        finally:
            if lead is not None:
                lead.close()

    def _as_it_arrives(self) -> Iterator[tuple[str, str | None, bytes]]:
        source = self.files.source
        places = source.as_it_arrives()
        if self._seed is not None:
            places = delayed(places, self._buffer, self._seed, self._epoch)
        for place in islice(places, self.position + self._rank, None, self._ranks):
            yield place.name, place.class_name, source.object.read(place.offset, place.size)
