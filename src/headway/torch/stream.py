"""Orders of samples: for a DataLoader of one's own, and batch by batch."""

from __future__ import annotations

from collections import deque
from itertools import islice

from torch.utils.data import IterableDataset, Sampler, get_worker_info
from torch.utils.data.dataloader import default_collate

from headway.node.errors import HeadwayError
from headway.node.stream.order import Order
from headway.node.stream.source import Lead
from headway.node.stream.steps import delayed
from headway.node.stream.tally import RAISE, Tally
from headway.torch.dataset import as_dataset
from headway.torch.feed import (
    Feed,
    asks,
    local_rank,
    numbers_of,
    raise_trouble,
    ranks_here,
    trouble_of,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from headway.node.stream.growing import Place
    from headway.torch.dataset import Permutation, TarDataset
    from headway.torch.feed import Ask, Made

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
        lead = Lead(source, order, self.begin) if leads else None
        samples = Progress(self.begin).samples(order, lead, follow=True)
        return islice(samples, self.rank, None, self.ranks)

    def __len__(self) -> int:
        return max(0, -(-(len(self.dataset) - self.begin - self.rank) // self.ranks))

    def set_epoch(self, epoch: int) -> None:
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
        """Without a `seed` in the order of the file; `buffer`: see `Loader`."""
        self.dataset, self.batch_size = dataset, batch_size
        self.seed, self.epoch, self.begin = seed, epoch, begin
        self.rank, self.ranks = ranks_here(rank, ranks)
        self.drop_last, self.window, self.buffer, self.collate = drop_last, window, buffer, collate
        self.kind = INDEX if dataset.source.indexed else ARRIVAL

    def __iter__(self) -> Iterator[Any]:
        feed = Feed(self.dataset, self.collate)
        for _, ask in self.asks():
            batch, faults, trouble = feed[ask]
            raise_trouble(trouble)
            Tally(RAISE).add(list(faults.values()), 0)
            yield batch

    def asks(self) -> Iterator[tuple[int, Ask]]:
        """This worker's share of the steps: what each takes of all ranks together, and the ask."""
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker is not None else (0, 1)
        each = asks(
            self._samples(leads=number == 0 and local_rank(self.rank) == 0),
            self.batch_size,
            (self.seed or 0, self.epoch, self.begin),
            rank=self.rank,
            ranks=self.ranks,
            drop_last=self.drop_last,
        )
        return islice(each, number, None, workers)

    def _samples(self, leads: bool) -> Iterator[int] | Iterator[Place]:
        source = self.dataset.source
        if self.kind == INDEX:
            order = source.order(seed=self.seed, epoch=self.epoch, window=self.window)
            progress = Progress(self.begin)
            lead = Lead(source, order, self.begin) if leads else None
            return progress.samples(order, lead, follow=True)
        places = source.as_it_goes()
        if self.seed is not None:
            places = delayed(places, self.buffer, self.seed, self.epoch)
        return islice(places, self.begin, None)


class Steps(IterableDataset):  # type: ignore[type-arg]
    """The same for the loader: what a step takes of all ranks, this one's samples, the batch."""

    def __init__(self, stream: TarStream) -> None:
        self.stream = stream

    def __iter__(self) -> Iterator[tuple[int, list[int], Made]]:
        feed = Feed(self.stream.dataset, self.stream.collate)
        try:
            for taken, ask in self.stream.asks():
                yield taken, numbers_of(ask), feed[ask]
        except HeadwayError as error:
            yield 0, [], (None, {}, trouble_of(error))


class Progress:
    """Turns the loop's place in the order into what the fetcher may forget."""

    def __init__(self, place: int) -> None:
        self._place = place  # of the next sample that is asked for
        self._lots: deque[tuple[int, int]] = deque()  # the place of each lot, and its position
        self._lead: Lead | None = None

    def samples(
        self, order: Order | Permutation, lead: Lead | None, *, follow: bool = False
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
