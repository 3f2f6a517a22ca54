"""The loader: batches for a training loop, and its place in the data."""

from __future__ import annotations

import time
from collections import deque

import torch
from torch.utils.data import DataLoader, Sampler
from torch.utils.data.dataloader import default_collate

from headway.node.process import heed_parent_alone
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
    raise_plain,
    ranks_here,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import Any

    from headway.node.stream.order import Quality
    from headway.torch.dataset import BatchRequest, MadeBatch, Permutation

    # for each step what it takes of all ranks, this one's samples, and the batch
    Batches = Generator[tuple[int, list[int], MadeBatch], None, None]

PREFETCH = 2  # batches that each worker of torch's loader prepares unless told otherwise
_FEW = 1000  # samples that an epoch is taken to have at least, where nobody knows
_KEPT = 31 << 20  # bytes; glibc does not heed blocks of 32 MiB or more


class Loader:
    """Batches for a training loop, and its place in the data.

    It is a cursor: a loop that is left early goes on with the next batch when another begins; at
    the end of an epoch `epoch` is one more and `position` 0. `position` counts the samples that the
    loops of all ranks have been given, whatever workers have prepared beyond. An object that
    arrives without a manifest is shuffled, in its first epoch, over the last `buffer` samples.
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
            dataset: a TarDataset, or any data set with `__len__` and `__getitem__`.
            batch_size: samples of a batch, for each rank.
            seed: what the order and the random choices of transforms follow from.
            shuffle: False: in the order of the data set.
            workers: processes that make batches; 0: this one does. `num_workers` is the same.
            rank: which of `ranks` this is; from torch.distributed or torchrun unless told.
            ranks: how many share the data.
            drop_last: leave out a last batch that is not full.
            window: of a tar file: blocks that a sample is drawn from.
            buffer: of a tar file that arrives without a manifest: samples to draw from.
            collate: makes a batch of a list of samples. `collate_fn` is the same.
            corrupt: "raise", or "skip" for up to `corrupt_share` of an epoch.
            corrupt_share: see `corrupt`.
            settings: those of torch's DataLoader: pin_memory, prefetch_factor, …

        Raises:
            DataError: the data set has no samples by number, or a setting does not fit.
        """
        if batch_size is None or batch_size < 1:
            raise DataError(f"a batch of {batch_size} samples is none")
        for name in ("sampler", "batch_sampler"):
            if settings.pop(name, None) is not None:
                raise DataError(
                    f"{name}: the loader has an order of its own, by which it keeps its place",
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
        self.samples: list[int] = []  # which samples are in the batch that was last given
        self._seed, self._window, self._buffer = seed if shuffle else None, window, buffer
        self._unit: int | None = None
        self._kind: str | None = None  # of this epoch's order; None: it has not begun
        self._tally = Tally(corrupt, corrupt_share)
        self._turn = 0
        self._feed = BatchMaker(self._data, collate)
        if workers:
            settings.setdefault("persistent_workers", True)
            settings["worker_init_fn"] = _Begin(settings.get("worker_init_fn"))
        # a generator of its own: the training's random numbers must not depend on when it began
        self._settings = {"generator": torch.Generator(), **settings, "num_workers": workers}
        prepared = 1 + workers * (self._settings.get("prefetch_factor") or PREFETCH)
        self._ahead = prepared * batch_size * self.ranks
        self._asked = _RequestSampler()
        self._loader: Any = None

    def __iter__(self) -> Iterator[Any]:
        self._turn += 1
        return self._batches(self._turn)

    def __len__(self) -> int:
        """The steps of a whole epoch."""
        if not self._data.source.indexed:
            raise TypeError("how many samples there are is not known before all of it is here")
        return count_steps(
            len(self._data), self.batch_size, ranks=self.ranks, drop_last=self.drop_last
        )

    @property
    def skipped(self) -> int:
        """The samples of this epoch that could not be decoded."""
        return self._tally.skipped

    def set_epoch(self, epoch: int) -> None:
        """Begin this epoch, unless it has begun already."""
        if epoch != self.epoch:
            self._turn += 1
            self._begin(epoch)

    def quality(self) -> Quality:
        """How well this epoch is shuffled; costs about as much as reading it without its bytes.

        Returns:
            The figures; `str` says them in words.

        Raises:
            DataError: the data set is not a tar file, and so shuffled as a whole.
        """
        order = self._order()
        if not isinstance(order, Order):
            raise DataError("a data set that is not a tar file is shuffled as a whole: all is well")
        return quality_of(order, self._data.source.samples.labels)

    def state_dict(self) -> dict[str, Any]:
        """The loader's place in the data, as `load_state_dict` takes it."""
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
        """Go on from there, with this loader's batch size, workers and ranks.

        Args:
            state: what `state_dict` gave.

        Raises:
            DataError: it is no loader's state, or that of another data set.
        """
        if state.get("format") != 1 or not _is_sound(state):
            raise DataError("this is no loader's state, or that of another version of Headway")
        source = self._data.source
        own = (source.size, len(self._data) if source.indexed else state["samples"])
        given = (state["size"], own[1] if state["samples"] is None else state["samples"])
        was_map = bool(state.get("map"))
        if given != own or was_map != self._is_map:
            raise DataError(
                f"the loader's state is of another data set: {_told(given, was_map)},"
                f" and {source.path} has {_told(own, self._is_map)}",
                remedy="go on with the data that it was made with, or begin anew",
            )
        before, here = state.get("sha256"), source.sha256
        if before is not None and here is not None and before != here:
            raise DataError(
                "the loader's state is of another data set of the same size: of SHA-256"
                f" {before[:16]}…, and {source.path} has {here[:16]}…",
                remedy="go on with the data that it was made with, or begin anew",
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
            # from now on, should a later Headway choose others
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
                self._count_wait(time.monotonic() - start)
                if found is None:
                    break
                taken, samples, (batch, faults, trouble) = found
                raise_plain(trouble)
                self._tally.add(list(faults.values()), self._total())
                place = self.position = self.position + taken
                self.samples = [each for at, each in enumerate(samples) if at not in faults]
                if batch is not None:
                    yield batch
                elif self.ranks > 1:
                    raise SampleError(f"no sample of rank {self.rank}'s batch could be decoded")
                start = time.monotonic()
                # not before the next batch is asked for: until then other ranks may read this one
                progress.passed(place)
            self._begin(self.epoch + 1)
        except Exception:
            # else the error's traceback would keep torch's iterator, and when the two are found to
            # be garbage together it waits in vain for its workers to end
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
        asked: deque[tuple[int, list[int]]] = deque()
        self._asked.each = _noting(each, asked)
        if self._loader is None:
            self._loader = DataLoader(
                self._feed,
                batch_size=None,
                sampler=self._asked,
                collate_fn=_same,
                **self._settings,
            )
        for made in self._loader:
            yield (*asked.popleft(), made)

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
            collate=self._feed.collate,
        )
        stream.kind = ARRIVAL  # also where all of it has come since the epoch began
        settings = {**self._settings, "persistent_workers": False}
        yield from DataLoader(Steps(stream), batch_size=None, collate_fn=_same, **settings)

    def _total(self) -> int:
        """How many samples the epoch has, as far as is known."""
        return len(self._data) if self._kind == INDEX else max(self.position, _FEW)

    def _count_wait(self, seconds: float) -> None:
        self.waited += seconds
        if not self._is_map:
            self._data.source.object.loop_waits(self._local, self.waited)


class _RequestSampler(Sampler):  # type: ignore[type-arg]
    """Hands the batches of the present loop to torch's loader, which outlives it."""

    def __init__(self) -> None:
        self.each: Iterator[BatchRequest] = iter(())

    def __iter__(self) -> Iterator[BatchRequest]:
        return self.each


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


def _told(size: tuple[int, int | None], is_map: bool) -> str:
    return f"{size[1]} samples" if is_map else f"{size[1]} samples in {size[0]} bytes"


def _noting(
    each: Iterator[tuple[int, BatchRequest]], asked: deque[tuple[int, list[int]]]
) -> Iterator[BatchRequest]:
    for taken, ask in each:
        asked.append((taken, numbers_of(ask)))
        yield ask


class _Begin:
    """What a worker does first; then what the user wants it to do."""

    def __init__(self, then: Callable[[int], None] | None) -> None:
        self._then = then

    def __call__(self, worker: int) -> None:
        _begin_worker()
        if self._then is not None:
            self._then(worker)


def _begin_worker() -> None:
    heed_parent_alone()
    # From the largest block that was ever freed glibc learns how much freed memory to keep: twice
    # as much. The batches themselves are in shared memory, so without this it would give the room
    # of their samples back after every batch, and the kernel would clear it for the next. The block
    # is never written to, and so costs nothing.
    bytes(_KEPT)


def _same(made: Any) -> Any:
    return made
