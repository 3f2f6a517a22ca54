"""Data sets with numbered samples, their order in an epoch, and the batches made from them."""

from __future__ import annotations

import contextlib
import os
import random
import sys
from array import array
from collections import deque
from itertools import islice

import torch
from torch.utils.data import Dataset, IterableDataset, Sampler, get_worker_info
from torch.utils.data.dataloader import default_collate

from headway.node.errors import HeadwayError, NodeError, TransferError
from headway.node.stream.order import Order, delayed, noise, steps
from headway.node.stream.samples import RAISE, Choice, DataError, Tally
from headway.node.stream.source import FetchOrder, Position, SampleSource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    # the seed of the batch's random choices, and its samples
    BatchRequest = tuple[int, Sequence[int] | Sequence[Position]]
    # the batch, None if it is empty; which samples could not be decoded, and why; what ended it
    MadeBatch = tuple[Any, dict[int, str], HeadwayError | None]


_LOT = 4096  # samples that are handed out at once
_SALT = 0xA24BAED4963EE407  # so that epochs and seeds do not share random numbers


class TarDataset(Dataset):
    """The samples of a tar file by number, as (sample, label).

    The tar file may be complete or still arriving. Labels number the classes (nested tar files, or
    else folders) by name, or as `classes` says.

    Example:
        >>> data = TarDataset("train.tar", decode=len, only="*.jpeg")
        >>> len(data), data[0], data.classes
        (2, (5, 0), ('cat', 'dog'))
    """

    def __init__(
        self,
        path: str,
        *,
        decode: Callable[[bytes], Any] | None = None,
        transform: Callable[[Any], Any] | None = None,
        only: str | Sequence[str] = (),
        classes: Sequence[str] | None = None,
        record: int | None = None,
        head: int = 1,
    ) -> None:
        """Open a tar file.

        Args:
            path: The tar file, or an input that arrives while the command runs.
            decode: Converts the bytes of a sample; by default a sample is its bytes.
            transform: Converts the decoded sample.
            only: Patterns of the names of samples, such as "*.jpeg".
            classes: The names of all classes, in the order of their labels.
            record: The bytes of a sample, if a member has many, as in CIFAR's binary files (3073).
            head: With `record`, the bytes before the sample; the last of them is its label.

        Raises:
            DataError: The file is not a tar file, has no samples, or has other classes.
            NodeError: The file is not here, and does not arrive either.
            TransferError: It does not arrive.
        """
        self.decode, self.transform = decode, transform
        self.draws = decode is not None or transform is not None  # random numbers, perhaps
        if record is not None and not 0 <= head < record:
            raise DataError(f"a record of {record} bytes has no sample after {head} bytes of label")
        self._head = head if record is not None else 0
        self.source = SampleSource(os.fspath(path), Choice(only, record, classes, labelled=True))

    def __len__(self) -> int:
        return len(self.source.samples)

    def __getitem__(self, number: int) -> Any:
        return self.__getitems__([range(len(self))[number]])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Several samples at once: neighbours in the file are read together."""
        made, faults = self.make(numbers)
        Tally(RAISE).add(list(faults.values()), len(self))
        return made

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, by label."""
        given = self.source.choice.classes
        return self.source.samples.classes if given is None else given

    def make(self, wanted: Sequence[int] | Sequence[Position]) -> tuple[list[Any], dict[int, str]]:
        """The samples, and by index in `wanted` why others could not be decoded."""
        source = self.source
        if wanted and isinstance(wanted[0], Position):
            places: Sequence[Any] = wanted
            labels = [place.label for place in places]
            contents = source.object.read_many(
                [place.offset for place in places], [place.size for place in places]
            )
        else:
            column = source.samples.labels
            labels = [column[number] for number in wanted]  # type: ignore[index]
            contents = source.read(wanted)  # type: ignore[arg-type]
        made: list[Any] = []
        faults: dict[int, str] = {}
        head, decode, transform = self._head, self.decode, self.transform
        for at, data in enumerate(contents):
            label = labels[at]
            if head:
                label, data = data[head - 1], data[head:]
            if decode is not None:
                try:
                    data = decode(data)
                except Exception as error:
                    faults[at] = f"{self._place(wanted[at])} cannot be decoded: {_words(error)}"
                    continue
            made.append((data if transform is None else transform(data), label))
        return made, faults

    def _place(self, one: int | Position) -> str:
        if isinstance(one, Position):
            return f"{one.name} ({one.size} bytes at byte {one.offset} of {self.source.path})"
        return self.source.place(one)


class MapDataset:
    """Any data set with `__len__` and `__getitem__`, in the form that the loader needs."""

    draws = True  # random numbers, perhaps
    # it is its own source: all samples are available, in any order
    sha256 = None
    indexed = True

    def __init__(self, dataset: Any, *, skip: bool = False) -> None:
        """`skip`: a sample that cannot be read is reported, and not raised."""
        name = type(dataset).__name__
        if isinstance(dataset, dict):
            parts = ", ".join(map(repr, list(dataset)[:5]))
            raise DataError(
                f"{name} is not one data set but several: {parts}",
                remedy=f"give one of them: data[{next(iter(dataset), 'train')!r}]",
            )
        by_number = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
        if isinstance(dataset, IterableDataset) or not by_number:
            raise DataError(
                f"{name} does not give its samples by number, so a position in it cannot be saved",
                remedy="give a map-style data set, with __len__ and __getitem__ (Hugging Face's"
                " load_dataset without streaming=True), or a tar file with TarDataset",
            )
        self.dataset, self._skip = dataset, skip
        self.path, self.size = name, len(dataset)
        if self.size < 1:
            raise DataError(f"{name} has no samples")

    @property
    def source(self) -> MapDataset:
        return self

    def order(self, *, seed: int | None, epoch: int, **_of_a_tar_file: Any) -> Permutation:
        return Permutation(self.size, seed, epoch)

    def __len__(self) -> int:
        return self.size

    def make(self, wanted: Sequence[int]) -> tuple[list[Any], dict[int, str]]:
        """The samples, and by index in `wanted` why others could not be read."""
        several = getattr(self.dataset, "__getitems__", None)
        try:
            if several is not None:
                return list(several(wanted)), {}
            return [self.dataset[number] for number in wanted], {}
        except Exception:
            if not self._skip:
                raise
        made: list[Any] = []
        faults: dict[int, str] = {}
        for at, number in enumerate(wanted):
            try:
                made.append(self.dataset[number])
            except (NodeError, TransferError):
                raise
            except Exception as error:
                faults[at] = f"{self.path}[{number}] cannot be read: {_words(error)}"
        return made, faults


def as_dataset(dataset: Any, *, skip: bool = False) -> Any:
    """The data set as loaders and samplers need it: a TarDataset, or a MapDataset."""
    return dataset if isinstance(dataset, TarDataset) else MapDataset(dataset, skip=skip)


class Permutation:
    """The random order of an epoch; without a seed, the order of the data set."""

    def __init__(self, size: int, seed: int | None, epoch: int) -> None:
        self._numbers: Sequence[int] = range(size)
        if seed is None:
            return
        salted = ((seed & (1 << 64) - 1) << 64 | epoch) * _SALT
        # Python guarantees that random() gives the same numbers for the same seed for ever
        draw = random.Random(salted).random  # noqa: S311 - no secret
        numbers = array("Q", range(size))
        for last in range(size - 1, 0, -1):
            other = int(draw() * (last + 1))
            numbers[last], numbers[other] = numbers[other], numbers[last]
        self._numbers = numbers

    def walk(self, begin: int = 0) -> Iterator[tuple[int, list[int]]]:
        """The samples from a position on, in lots."""
        for place in range(begin, len(self._numbers), _LOT):
            yield place, list(self._numbers[place : place + _LOT])


def _words(error: Exception) -> str:
    """The error and its line: the decoder itself may be wrong."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name = os.path.basename(trace.tb_frame.f_code.co_filename) if trace is not None else ""
    line = trace.tb_lineno if trace is not None else 0
    return f"{type(error).__name__}: {error} ({name}:{line})"


class BatchMaker(Dataset):
    """Makes batches; an error with the data is returned, not raised.

    An exception that torch passes between processes would lose its type and its remedy.
    """

    def __init__(
        self, dataset: TarDataset | MapDataset, collate: Callable[[list[Any]], Any]
    ) -> None:
        self.dataset, self.collate = dataset, collate

    def __getitem__(self, request: BatchRequest) -> MadeBatch:
        seed, wanted = request
        try:
            with _noise(seed) if self.dataset.draws else contextlib.nullcontext():
                made, faults = self.dataset.make(wanted)  # type: ignore[arg-type]
                return self.collate(made) if made else None, faults, None
        except HeadwayError as error:
            return None, {}, error


def batch_requests(
    samples: Iterable[Any],
    size: int,
    where: tuple[int, int, int],
    *,
    rank: int,
    ranks: int,
    drop_last: bool,
) -> Iterator[tuple[int, BatchRequest]]:
    """For each step the number of samples that all ranks take, and this rank's batch.

    `where`: the seed, the epoch, and the position of the first sample.
    """
    seed, epoch, place = where
    for taken, batch in steps(samples, size, rank=rank, ranks=ranks, drop_last=drop_last):
        yield taken, (noise(seed, epoch, place, rank), batch)
        place += taken


def numbers_of(request: BatchRequest) -> list[int]:
    """The numbers of the samples; without an index, where each begins."""
    return [each if isinstance(each, int) else each.offset for each in request[1]]


@contextlib.contextmanager
def _noise(seed: int) -> Iterator[None]:
    """Seed the random choices of a transform, and restore the generators afterwards."""
    numpy = sys.modules.get("numpy")
    before = random.getstate(), torch.get_rng_state(), numpy and numpy.random.get_state()
    random.seed(seed)
    # not torch.manual_seed, which would also seed the GPUs' generators
    torch.set_rng_state(torch.Generator().manual_seed(seed).get_state())
    if numpy:
        numpy.random.seed(seed & 0xFFFFFFFF)
    try:
        yield
    finally:
        random.setstate(before[0])
        torch.set_rng_state(before[1])
        if numpy:
            numpy.random.set_state(before[2])


def ranks_here(rank: int | None, ranks: int | None) -> tuple[int, int]:
    """The rank and the number of ranks: as given, from torch.distributed, or from torchrun."""
    if (rank is None) != (ranks is None):
        raise DataError("rank and ranks go together")
    if rank is None or ranks is None:
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            rank, ranks = distributed.get_rank(), distributed.get_world_size()
        else:
            rank, ranks = _number("RANK", 0), _number("WORLD_SIZE", 1)
    if not 0 <= rank < ranks:
        raise DataError(f"there is no rank {rank} of {ranks}")
    return rank, ranks


def local_rank(rank: int) -> int:
    """The rank among those on this machine; the first of them directs the fetcher."""
    return _number("LOCAL_RANK", rank)


def _number(variable: str, otherwise: int) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else otherwise


BUFFER = 4096  # samples that a shuffle without an index draws from
INDEX, ARRIVAL = "index", "arrival"  # what an epoch's order comes from


class Shuffled(Sampler):
    """The order of an epoch for your own DataLoader; `Loader` also saves its position."""

    def __init__(
        self,
        dataset: Any,
        *,
        seed: int = 0,
        epoch: int = 0,
        begin: int = 0,
        rank: int | None = None,
        ranks: int | None = None,
        window: int | None = None,
    ) -> None:
        """Make a sampler.

        Args:
            dataset: A TarDataset, or any data set with `__len__` and `__getitem__`.
            seed: The seed of the order.
            epoch: The number of the epoch, which changes the order.
            begin: How many samples of the epoch all ranks together have had.
            rank: Which of `ranks` this is; by default from torch.distributed or torchrun.
            ranks: How many processes share the data.
            window: For a tar file, the number of blocks to draw a sample from.

        Raises:
            DataError: The data set has no samples by number.
        """
        self._source = as_dataset(dataset).source
        self.dataset, self.seed, self.epoch, self.begin = dataset, seed, epoch, begin
        self.rank, self.ranks = ranks_here(rank, ranks)
        self.window = window

    def __iter__(self) -> Iterator[int]:
        source = self._source
        order = source.order(seed=self.seed, epoch=self.epoch, window=self.window)
        leads = isinstance(order, Order) and local_rank(self.rank) == 0
        lead = FetchOrder(source, order, self.begin) if leads else None
        samples = LoopProgress(self.begin).samples(order, lead, follow=True)
        return islice(samples, self.rank, None, self.ranks)

    def __len__(self) -> int:
        return max(0, -(-(len(self.dataset) - self.begin - self.rank) // self.ranks))

    def set_epoch(self, epoch: int) -> None:
        """Start this epoch, unless it has started already."""
        if epoch != self.epoch:
            self.epoch, self.begin = epoch, 0


class TarStream(IterableDataset):
    """The batches of an epoch, for `DataLoader(stream, batch_size=None)`.

    With any number of workers the loader gives the same batches in the same order. The position
    after k batches is begin + k * batch_size * ranks.
    """

    def __init__(
        self,
        dataset: TarDataset,
        batch_size: int,
        *,
        seed: int | None = 0,
        epoch: int = 0,
        begin: int = 0,
        rank: int | None = None,
        ranks: int | None = None,
        drop_last: bool = False,
        window: int | None = None,
        buffer: int = BUFFER,
        collate: Callable[[list[Any]], Any] = default_collate,
    ) -> None:
        """Make a stream of batches.

        Args:
            dataset: The tar file.
            batch_size: Samples in a batch, for each rank.
            seed: The seed of the order; None: the order of the file.
            epoch: The number of the epoch, which changes the order.
            begin: How many samples of the epoch all ranks together have had.
            rank: Which of `ranks` this is; by default from torch.distributed or torchrun.
            ranks: How many processes share the data.
            drop_last: Leave out a last batch that is not full.
            window: The number of blocks to draw a sample from.
            buffer: The number of samples to draw from, if the file arrives without a manifest.
            collate: Makes a batch from a list of samples.

        Raises:
            DataError: There is no such rank.
        """
        self.dataset, self.batch_size = dataset, batch_size
        self.seed, self.epoch, self.begin = seed, epoch, begin
        self.rank, self.ranks = ranks_here(rank, ranks)
        self.drop_last, self.window, self.buffer, self.collate = drop_last, window, buffer, collate
        self.kind = INDEX if dataset.source.indexed else ARRIVAL

    def __iter__(self) -> Iterator[Any]:
        maker = BatchMaker(self.dataset, self.collate)
        for _, request in self.batch_requests():
            batch, faults, error = maker[request]
            if error is not None:
                raise error
            Tally(RAISE).add(list(faults.values()), 0)
            yield batch

    def batch_requests(self) -> Iterator[tuple[int, BatchRequest]]:
        """This worker's share of the steps: how many samples all ranks take, and the request."""
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        each = batch_requests(
            self._samples(leads=number == 0 and local_rank(self.rank) == 0),
            self.batch_size,
            (self.seed or 0, self.epoch, self.begin),
            rank=self.rank,
            ranks=self.ranks,
            drop_last=self.drop_last,
        )
        return islice(each, number, None, workers)

    def _samples(self, leads: bool) -> Iterator[int] | Iterator[Position]:
        source = self.dataset.source
        if self.kind == INDEX:
            order = source.order(seed=self.seed, epoch=self.epoch, window=self.window)
            lead = FetchOrder(source, order, self.begin) if leads else None
            return LoopProgress(self.begin).samples(order, lead, follow=True)
        places = source.as_it_arrives()
        if self.seed is not None:
            places = delayed(places, self.buffer, self.seed, self.epoch)
        return islice(places, self.begin, None)


class Steps(IterableDataset):
    """A stream for the loader: how many samples all ranks take, this one's samples, the batch."""

    def __init__(self, stream: TarStream) -> None:
        self.stream = stream

    def __iter__(self) -> Iterator[tuple[int, list[int], MadeBatch]]:
        maker = BatchMaker(self.stream.dataset, self.stream.collate)
        try:
            for taken, request in self.stream.batch_requests():
                yield taken, numbers_of(request), maker[request]
        except HeadwayError as error:
            yield 0, [], (None, {}, error)


class LoopProgress:
    """Tells the fetcher what the loop has passed, and so may be given back."""

    def __init__(self, place: int) -> None:
        self._place = place  # of the next sample to request
        self._lots: deque[tuple[int, int]] = (
            deque()
        )  # the first sample of each lot, and its position
        self._lead: FetchOrder | None = None

    def samples(
        self, order: Order | Permutation, lead: FetchOrder | None, *, follow: bool = False
    ) -> Iterator[int]:
        """`follow`: nobody calls `passed`; samples count as read when they are requested."""
        self._lead = lead
        try:
            for position, lot in order.walk(self._place):
                if follow:
                    self.passed(self._place)
                self._lots.append((self._place, position))
                self._place += len(lot)
                yield from lot
        finally:
            if follow:
                self.close()

    def passed(self, place: int) -> None:
        """The loop has had all samples before this one."""
        while len(self._lots) > 1 and self._lots[1][0] <= place:
            self._lots.popleft()
        if self._lead is not None and self._lots:
            self._lead.passed(self._lots[0][1])

    def close(self) -> None:
        if self._lead is not None:
            self._lead.close()
