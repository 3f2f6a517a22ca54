"""Data sets by number, their order in an epoch, and the batches that are made of them."""

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

    # what the batch's random choices start from, and its samples
    BatchRequest = tuple[int, Sequence[int] | Sequence[Position]]
    PlainError = tuple[str, str, str, bool]  # kind, message, remedy, retryable
    # the batch, None if nothing of it is left; which could not be decoded, and why; what ended it
    MadeBatch = tuple[Any, dict[int, str], PlainError | None]


_LOT = 4096  # samples that are dealt at once
_SALT = 0xA24BAED4963EE407  # so that epochs and seeds do not share their random numbers


class TarDataset(Dataset):  # type: ignore[type-arg]
    """The samples of a tar file by number, as (sample, label).

    The tar file may be whole or still arriving. Labels number the classes (nested tar files, or
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
            path: the tar file, or an input that arrives while the command runs.
            decode: makes something of a sample's bytes; unless given, a sample is its bytes.
            transform: makes something of what was decoded.
            only: patterns of the names of samples, such as "*.jpeg".
            classes: the names of all classes, in the order of their labels.
            record: each so many bytes are a sample, as in CIFAR's binary version (3073).
            head: of a record: how many bytes come before the sample; the last one is its label.

        Raises:
            DataError: the file is no tar file, has no samples, or its classes are others.
            NodeError: the file is not here, and does not arrive either.
            TransferError: it does not arrive.
        """
        self.decode, self.transform = decode, transform
        self.draws = decode is not None or transform is not None  # maybe, random numbers
        if record is not None and not 0 <= head < record:
            raise DataError(f"a record of {record} bytes has no sample behind {head} of label")
        self._head = head if record is not None else 0
        self.source = SampleSource(os.fspath(path), Choice(only, record, classes, labelled=True))

    def __len__(self) -> int:
        return len(self.source.samples)

    def __getitem__(self, number: int) -> Any:
        return self.__getitems__([range(len(self))[number]])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Several at once: neighbours in the file are read together."""
        made, faults = self.make(numbers)
        Tally(RAISE).add(list(faults.values()), len(self))
        return made

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, by label."""
        told = self.source.choice.classes
        return self.source.samples.classes if told is None else told

    def make(self, wanted: Sequence[int] | Sequence[Position]) -> tuple[list[Any], dict[int, str]]:
        """The samples; by place in `wanted`, and in words, those that could not be decoded."""
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
    """Any data set with `__len__` and `__getitem__`, as the loader wants to have it."""

    draws = True  # maybe, random numbers

    def __init__(self, dataset: Any, *, skip: bool = False) -> None:
        """`skip`: a sample that cannot be read is handed over in words, and not raised."""
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
                f"{name} does not give its samples by number, so that no place in it can be kept",
                remedy="give a map-style data set, with __len__ and __getitem__ (of Hugging Face's"
                " load_dataset one without streaming=True), or a tar file with TarDataset",
            )
        self.dataset, self._skip = dataset, skip
        self.source = _MapSource(name, len(dataset))

    def __len__(self) -> int:
        return self.source.size

    def make(self, wanted: Sequence[int]) -> tuple[list[Any], dict[int, str]]:
        """The samples; by place in `wanted`, and in words, those that could not be read."""
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
                faults[at] = f"{self.source.path}[{number}] cannot be read: {_words(error)}"
        return made, faults


def as_dataset(dataset: Any, *, skip: bool = False) -> Any:
    """The data set as loaders and samplers want to have it: a TarDataset, or a MapDataset."""
    return dataset if isinstance(dataset, TarDataset) else MapDataset(dataset, skip=skip)


class _MapSource:
    """What a loader asks of a source; here all samples are at hand, in any order."""

    sha256 = None
    indexed = True

    def __init__(self, name: str, size: int) -> None:
        if size < 1:
            raise DataError(f"{name} has no samples")
        self.path, self.size = name, size

    def order(self, *, seed: int | None, epoch: int, **_of_a_tar_file: Any) -> Permutation:
        return Permutation(self.size, seed, epoch)


class Permutation:
    """The order of an epoch in which each sample comes at random; without a seed, as they are."""

    def __init__(self, size: int, seed: int | None, epoch: int) -> None:
        self._numbers: Sequence[int] = range(size)
        if seed is None:
            return
        salted = ((seed & (1 << 64) - 1) << 64 | epoch) * _SALT
        # Python promises that random() of the same whole number gives the same floats for ever
        draw = random.Random(salted).random  # noqa: S311 - no secret
        numbers = array("Q", range(size))
        for last in range(size - 1, 0, -1):
            other = int(draw() * (last + 1))
            numbers[last], numbers[other] = numbers[other], numbers[last]
        self._numbers = numbers

    def walk(self, begin: int = 0) -> Iterator[tuple[int, list[int]]]:
        """The samples from a place on, in lots."""
        for place in range(begin, len(self._numbers), _LOT):
            yield place, list(self._numbers[place : place + _LOT])


def _words(error: Exception) -> str:
    """The error, and the line that it is from: it may be the decoder's own fault."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name = os.path.basename(trace.tb_frame.f_code.co_filename) if trace is not None else ""
    line = trace.tb_lineno if trace is not None else 0
    return f"{type(error).__name__}: {error} ({name}:{line})"


class BatchMaker(Dataset):  # type: ignore[type-arg]
    """Makes whole batches; whatever goes wrong with the data is handed over, not raised.

    Between processes an exception would lose its type and its remedy.
    """

    def __init__(
        self, dataset: TarDataset | MapDataset, collate: Callable[[list[Any]], Any]
    ) -> None:
        self.dataset, self.collate = dataset, collate

    def __getitem__(self, ask: BatchRequest) -> MadeBatch:
        seed, wanted = ask
        try:
            with _noise(seed) if self.dataset.draws else contextlib.nullcontext():
                made, faults = self.dataset.make(wanted)  # type: ignore[arg-type]
                return self.collate(made) if made else None, faults, None
        except HeadwayError as error:
            return None, {}, plain_error(error)


def batch_requests(
    samples: Iterable[Any],
    size: int,
    where: tuple[int, int, int],
    *,
    rank: int,
    ranks: int,
    drop_last: bool,
) -> Iterator[tuple[int, BatchRequest]]:
    """For each step how many samples all ranks take, and this rank's batch.

    `samples`: numbers, or places; `where`: the seed, the epoch, and the place of the first sample.
    """
    seed, epoch, place = where
    for taken, batch in steps(samples, size, rank=rank, ranks=ranks, drop_last=drop_last):
        yield taken, (noise(seed, epoch, place, rank), batch)
        place += taken


def numbers_of(ask: BatchRequest) -> list[int]:
    """Which samples are asked for; without an index they are known by where they begin."""
    return [each if isinstance(each, int) else each.offset for each in ask[1]]


@contextlib.contextmanager
def _noise(seed: int) -> Iterator[None]:
    """Random choices of a transform follow from the batch, and do not disturb anybody else's."""
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


def plain_error(error: HeadwayError) -> PlainError:
    """An error as other processes can have it."""
    retryable = isinstance(error, TransferError) and error.retryable
    kind = "node" if isinstance(error, NodeError) else "data"
    kind = "transfer" if isinstance(error, TransferError) else kind
    return kind, error.message, error.remedy, retryable


def raise_plain(trouble: PlainError | None) -> None:
    if trouble is not None:
        kind, message, remedy, retryable = trouble
        if kind == "transfer":
            raise TransferError(message, retryable=retryable, remedy=remedy)
        raise (NodeError if kind == "node" else DataError)(message, remedy=remedy)


def ranks_here(rank: int | None, ranks: int | None) -> tuple[int, int]:
    """As told, or as torch.distributed or torchrun's environment say, or one alone."""
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
    """Among the ranks on this machine; the first of them leads the fetcher."""
    return _number("LOCAL_RANK", rank)


def _number(variable: str, otherwise: int) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else otherwise


BUFFER = 4096  # samples that a shuffle without an index draws from
INDEX, ARRIVAL = "index", "arrival"  # what an epoch's order comes from


class Shuffled(Sampler):  # type: ignore[type-arg]
    """The order of an epoch for a DataLoader of one's own; `Loader` also keeps the place in it."""

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
            dataset: a TarDataset, or any data set with `__len__` and `__getitem__`.
            seed: what the order follows from.
            epoch: which order of that seed.
            begin: how many samples of the epoch all ranks together have had.
            rank: which of `ranks` this is; from torch.distributed or torchrun unless told.
            ranks: how many share the data.
            window: of a tar file: blocks that a sample is drawn from.

        Raises:
            DataError: the data set has no samples by number.
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
        """Begin this epoch, unless it has begun already."""
        if epoch != self.epoch:
            self.epoch, self.begin = epoch, 0


class TarStream(IterableDataset):  # type: ignore[type-arg]
    """An epoch in its order, batch by batch, for `DataLoader(stream, batch_size=None)`.

    With any number of workers the loader gives the same batches in the same order. The place after
    k batches is begin + k * batch_size * ranks.
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
            dataset: the tar file.
            batch_size: samples of a batch, for each rank.
            seed: what the order follows from; None: the order of the file.
            epoch: which order of that seed.
            begin: how many samples of the epoch all ranks together have had.
            rank: which of `ranks` this is; from torch.distributed or torchrun unless told.
            ranks: how many share the data.
            drop_last: leave out a last batch that is not full.
            window: blocks that a sample is drawn from.
            buffer: of a file that arrives without a manifest: samples to draw from.
            collate: makes a batch of a list of samples.

        Raises:
            DataError: there is no such rank.
        """
        self.dataset, self.batch_size = dataset, batch_size
        self.seed, self.epoch, self.begin = seed, epoch, begin
        self.rank, self.ranks = ranks_here(rank, ranks)
        self.drop_last, self.window, self.buffer, self.collate = drop_last, window, buffer, collate
        self.kind = INDEX if dataset.source.indexed else ARRIVAL

    def __iter__(self) -> Iterator[Any]:
        feed = BatchMaker(self.dataset, self.collate)
        for _, ask in self.batch_requests():
            batch, faults, trouble = feed[ask]
            raise_plain(trouble)
            Tally(RAISE).add(list(faults.values()), 0)
            yield batch

    def batch_requests(self) -> Iterator[tuple[int, BatchRequest]]:
        """This worker's share of the steps: what each takes of all ranks together, and the ask."""
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
            progress = LoopProgress(self.begin)
            lead = FetchOrder(source, order, self.begin) if leads else None
            return progress.samples(order, lead, follow=True)
        places = source.as_it_arrives()
        if self.seed is not None:
            places = delayed(places, self.buffer, self.seed, self.epoch)
        return islice(places, self.begin, None)


class Steps(IterableDataset):  # type: ignore[type-arg]
    """The same for the loader: what a step takes of all ranks, this one's samples, the batch."""

    def __init__(self, stream: TarStream) -> None:
        self.stream = stream

    def __iter__(self) -> Iterator[tuple[int, list[int], MadeBatch]]:
        feed = BatchMaker(self.stream.dataset, self.stream.collate)
        try:
            for taken, ask in self.stream.batch_requests():
                yield taken, numbers_of(ask), feed[ask]
        except HeadwayError as error:
            yield 0, [], (None, {}, plain_error(error))


class LoopProgress:
    """Turns the loop's place in the order into what the fetcher may forget."""

    def __init__(self, place: int) -> None:
        self._place = place  # of the next sample that is asked for
        self._lots: deque[tuple[int, int]] = deque()  # the place of each lot, and its position
        self._lead: FetchOrder | None = None

    def samples(
        self, order: Order | Permutation, lead: FetchOrder | None, *, follow: bool = False
    ) -> Iterator[int]:
        """`follow`: nobody calls `passed`; what is asked for is taken to be read."""
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
