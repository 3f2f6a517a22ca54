"""The loader: batches for a training loop, and its position in the data."""

from __future__ import annotations

import time
from collections import deque
from functools import partial

import torch
from torch.utils.data import DataLoader, Sampler
from torch.utils.data.dataloader import default_collate

from headway.node.process import ignore_foreign_sigterm
from headway.node.stream.order import Order, count_steps, quality_of
from headway.node.stream.samples import RAISE, SHARE, SKIP, DataError, SampleError, Tally
from headway.node.stream.source import FetchOrder
from headway.torch.dataset import (
    ARRIVAL,
    BUFFER,
    INDEX,
    BatchMaker,
    LoopProgress,
    MapDataset,
    Steps,
    TarStream,
    as_dataset,
    batch_requests,
    local_rank,
    numbers_of,
    ranks_here,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import Any

    from headway.node.stream.order import Quality
    from headway.torch.dataset import BatchRequest, MadeBatch, Permutation

    # for each step the samples that all ranks take, this rank's samples, and the batch
    Batches = Generator[tuple[int, list[int], MadeBatch], None, None]

PREFETCH = 2  # batches that each worker of torch's loader prepares by default
_FEW = 1000  # samples that an epoch is assumed to have at least, if that is not known
_KEEP_FREE = 31 << 20  # bytes; glibc ignores blocks of 32 MiB or more


class Loader:
    """Batches for a training loop, and its position in the data.

    It is a cursor: after a loop that ends early, the next loop continues with the next batch. At
    the end of an epoch `epoch` grows by one and `position` becomes 0. `position` counts the samples
    that the loops of all ranks have received, not those that workers have prepared. In its first
    epoch, an object that arrives without a manifest is shuffled within `buffer` samples.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        workers: int = 0,
        rank: int | None = None,
        ranks: int | None = None,
        drop_last: bool = False,
        window: int | None = None,
        buffer: int = BUFFER,
        collate: Callable[[list[Any]], Any] = default_collate,
        corrupt: str = RAISE,
        corrupt_share: float = SHARE,
        **settings: Any,
    ) -> None:
        """Make a loader at the beginning of epoch 0.

        Args:
            dataset: A TarDataset, or any data set with `__len__` and `__getitem__`.
            batch_size: Samples in a batch, for each rank.
            seed: The seed of the order and of the random choices of transforms.
            shuffle: False: in the order of the data set.
            workers: Processes that make batches; 0: this one does. `num_workers` is the same.
            rank: Which of `ranks` this is; by default from torch.distributed or torchrun.
            ranks: How many processes share the data.
            drop_last: Leave out a last batch that is not full.
            window: For a tar file, the number of blocks to draw a sample from.
            buffer: The number of samples to draw from, if a tar file arrives without a manifest.
            collate: Makes a batch from a list of samples. `collate_fn` is the same.
            corrupt: "raise", or "skip" for up to `corrupt_share` of an epoch.
            corrupt_share: See `corrupt`.
            settings: Those of torch's DataLoader: pin_memory, prefetch_factor, …

        Raises:
            DataError: The data set has no samples by number, or a setting is wrong.
        """
        if batch_size is None or batch_size < 1:
            raise DataError(f"batch_size must be at least 1, and is {batch_size}")
        for name in ("sampler", "batch_sampler"):
            if settings.pop(name, None) is not None:
                raise DataError(
                    f"{name}: the loader has an order of its own, to which its position refers",
                    remedy="leave it out; torch.utils.data.Subset chooses samples",
                )
        # as torch's DataLoader calls them
        workers = settings.pop("num_workers", workers)
        collate = settings.pop("collate_fn", None) or collate
        self._data = as_dataset(dataset, skip=corrupt == SKIP)
        self._is_map = isinstance(self._data, MapDataset)
        if window is not None and self._is_map:
            raise DataError("window: only a tar file is read in blocks; leave it out")
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.rank, self.ranks = ranks_here(rank, ranks)
        self._local = local_rank(self.rank)
        self.epoch = self.position = 0
        self.waited = 0.0  # seconds that loops have waited for batches
        self.samples: list[int] = []  # the samples in the last batch
        self._seed, self._window, self._buffer = seed if shuffle else None, window, buffer
        self._unit: int | None = None
        self._kind: str | None = None  # of this epoch's order; None: it has not begun
        self._tally = Tally(corrupt, corrupt_share)
        self._turn = 0
        self._maker = BatchMaker(self._data, collate)
        if workers:
            settings.setdefault("persistent_workers", True)
            settings["worker_init_fn"] = partial(_begin_worker, settings.get("worker_init_fn"))
        # its own generator: the training's random numbers must not depend on when it began
        self._settings = {"generator": torch.Generator(), **settings, "num_workers": workers}
        prepared = 1 + workers * (self._settings.get("prefetch_factor") or PREFETCH)
        self._ahead = prepared * batch_size * self.ranks
        self._requests = _RequestSampler()
        self._loader: Any = None

    def __iter__(self) -> Iterator[Any]:
        self._turn += 1
        return self._batches(self._turn)

    def __len__(self) -> int:
        """The steps of an epoch."""
        if not self._data.source.indexed:
            raise TypeError("the number of samples is not known before all of the object is here")
        return count_steps(
            len(self._data), self.batch_size, ranks=self.ranks, drop_last=self.drop_last
        )

    @property
    def skipped(self) -> int:
        """The samples of this epoch that could not be decoded."""
        return self._tally.skipped

    def set_epoch(self, epoch: int) -> None:
        """Start this epoch, unless it has started already."""
        if epoch != self.epoch:
            self._turn += 1
            self._begin(epoch)

    def quality(self) -> Quality:
        """How well this epoch is shuffled; takes as long as an epoch without reading any bytes.

        Returns:
            The figures; `str` explains them.

        Raises:
            DataError: The data set is not a tar file, and so shuffled as a whole.
        """
        order = self._order()
        if not isinstance(order, Order):
            raise DataError("a data set that is not a tar file is always shuffled as a whole")
        return quality_of(order, self._data.source.samples.labels)

    def state_dict(self) -> dict[str, Any]:
        """The loader's position in the data, for `load_state_dict`."""
        source = self._data.source
        return {
            "format": 1,
            "epoch": self.epoch,
            "position": self.position,
            "seed": self._seed,
            "window": self._window,
            "unit": self._unit,
            "buffer": self._buffer,
            "order": self._kind,
            "skipped": self.skipped,
            "size": source.size,
            "sha256": source.sha256,
            "samples": len(self._data) if source.indexed else None,
            "map": self._is_map,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved position, with this loader's batch size, workers and ranks.

        Args:
            state: What `state_dict` returned.

        Raises:
            DataError: It is not a loader's state, or it is for another data set.
        """
        if state.get("format") != 1 or not _is_sound(state):
            raise DataError("this is not a loader's state, or it is from another Headway version")
        source = self._data.source
        own = (source.size, len(self._data) if source.indexed else state["samples"])
        given = (state["size"], own[1] if state["samples"] is None else state["samples"])
        was_map = bool(state.get("map"))
        before, here = state.get("sha256"), source.sha256
        fault = ""
        if given != own or was_map != self._is_map:
            fault = (
                f"{_describe(given, was_map)}, and {source.path} has {_describe(own, self._is_map)}"
            )
        elif before is not None and here is not None and before != here:
            fault = f"SHA-256 {before[:16]}…, and {source.path} of the same size has {here[:16]}…"
        if fault:
            raise DataError(
                f"the loader's state is for another data set: {fault}",
                remedy="continue with the data that it was made with, or start over",
            )
        self._turn += 1
        self._begin(state["epoch"])
        self.position, self._kind = state["position"], state["order"]
        self._seed, self._window, self._unit = state["seed"], state["window"], state["unit"]
        self._buffer, self._tally.skipped = state["buffer"], state["skipped"]

    def _begin(self, epoch: int) -> None:
        self.epoch, self.position, self._kind = epoch, 0, None
        self._tally = Tally(self._tally.policy, self._tally.share)

    def _order(self) -> Order | Permutation:
        order: Order | Permutation = self._data.source.order(
            seed=self._seed,
            epoch=self.epoch,
            window=self._window,
            unit=self._unit,
            ahead=self._ahead,
        )
        if self._seed is not None and isinstance(order, Order):
            # kept in the state, because a later Headway may choose others
            self._window, self._unit = order.window, order.blocks.unit
        return order

    def _batches(self, turn: int) -> Iterator[Any]:
        start = time.monotonic()
        if self._kind is None:
            first = self.epoch == 0 and not self._data.source.indexed
            self._kind = ARRIVAL if first else INDEX
        progress = LoopProgress(self.position)
        batches = self._by_index(progress) if self._kind == INDEX else self._as_it_arrives()
        try:
            while True:
                if turn != self._turn:
                    raise DataError("another loop over the same loader has begun since")
                found = next(batches, None)
                self.waited += time.monotonic() - start
                if not self._is_map:
                    self._data.source.object.loop_waits(self._local, self.waited)
                if found is None:
                    break
                taken, samples, (batch, faults, error) = found
                if error is not None:
                    raise error
                self._tally.add(list(faults.values()), self._total())
                place = self.position = self.position + taken
                self.samples = [each for at, each in enumerate(samples) if at not in faults]
                if batch is not None:
                    yield batch
                elif self.ranks > 1:
                    raise SampleError(f"no sample of rank {self.rank}'s batch could be decoded")
                start = time.monotonic()
                # only when the next batch is requested: until then other ranks may read this one
                progress.passed(place)
            self._begin(self.epoch + 1)
        except Exception:
            # else the error's traceback would keep torch's iterator, and if both are collected as
            # garbage together, it waits in vain for its workers to end
            self._loader = None
            raise
        finally:
            batches.close()
            progress.close()

    def _by_index(self, progress: LoopProgress) -> Batches:
        order = self._order()
        lead = None
        if self._local == 0 and isinstance(order, Order):
            lead = FetchOrder(self._data.source, order, self.position)
        each = batch_requests(
            progress.samples(order, lead),
            self.batch_size,
            (self._seed or 0, self.epoch, self.position),
            rank=self.rank,
            ranks=self.ranks,
            drop_last=self.drop_last,
        )
        self._requests.begin(each)
        sent = self._requests.sent
        if self._loader is None:
            self._loader = DataLoader(
                self._maker,
                batch_size=None,
                sampler=self._requests,
                collate_fn=_same,
                **self._settings,
            )
        for made in self._loader:
            yield (*sent.popleft(), made)

    def _as_it_arrives(self) -> Batches:
        stream = TarStream(
            self._data,
            self.batch_size,
            seed=self._seed,
            epoch=self.epoch,
            begin=self.position,
            rank=self.rank,
            ranks=self.ranks,
            drop_last=self.drop_last,
            buffer=self._buffer,
            collate=self._maker.collate,
        )
        stream.kind = ARRIVAL  # even if all of it has come since the epoch began
        settings = {**self._settings, "persistent_workers": False}
        yield from DataLoader(Steps(stream), batch_size=None, collate_fn=_same, **settings)

    def _total(self) -> int:
        """How many samples the epoch has, as far as known."""
        return len(self._data) if self._kind == INDEX else max(self.position, _FEW)


class _RequestSampler(Sampler):
    """Passes the requests of the current loop to torch's loader, which outlives it."""

    def __init__(self) -> None:
        self.begin(iter(()))

    def begin(self, each: Iterator[tuple[int, BatchRequest]]) -> None:
        self._each = each
        self.sent: deque[tuple[int, list[int]]] = deque()  # whose batches have not come yet

    def __iter__(self) -> Iterator[BatchRequest]:
        each, sent = self._each, self.sent
        for taken, request in each:
            sent.append((taken, numbers_of(request)))
            yield request


def _is_sound(state: dict[str, Any]) -> bool:
    counts = [state.get(name) for name in ("epoch", "position", "buffer", "skipped", "size")]
    sizes = [state.get(name) for name in ("window", "unit", "samples")]
    return (
        all(isinstance(each, int) and 0 <= each < 1 << 62 for each in counts)
        and all(each is None or (isinstance(each, int) and each > 0) for each in sizes)
        and isinstance(state.get("seed"), (int, type(None)))
        and isinstance(state.get("sha256"), (str, type(None)))
        and state.get("order") in (None, INDEX, ARRIVAL)
    )


def _describe(size: tuple[int, int | None], is_map: bool) -> str:
    return f"{size[1]} samples" if is_map else f"{size[1]} samples in {size[0]} bytes"


def _begin_worker(then: Callable[[int], None] | None, worker: int) -> None:
    """Prepare a worker process, and do what the user wants it to do first."""
    ignore_foreign_sigterm()
    # From the largest block that was ever freed glibc learns how much freed memory to keep: twice
    # as much. The batches themselves are in shared memory, so without this it would give back the
    # memory of their samples after every batch, and the kernel would clear it for the next. The
    # block is never written to, and so costs nothing.
    bytes(_KEEP_FREE)
    if then is not None:
        then(worker)


def _same(made: Any) -> Any:
    return made
