"""The feed: what a worker does with the samples it is asked for, and what it hands back."""

from __future__ import annotations

import contextlib
import os
import random
import sys

import torch
from torch.utils.data import Dataset

from headway.node.errors import HeadwayError, NodeError, TransferError
from headway.node.stream.samples import DataError
from headway.node.stream.steps import noise, steps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from headway.node.stream.growing import Place
    from headway.torch.dataset import MapDataset, TarDataset

    Ask = tuple[int, Sequence[int] | Sequence[Place]]  # a batch: its noise, and its samples
    Trouble = tuple[str, str, str, bool]
    # the batch, None if nothing of it is left; which could not be decoded, and why; what ended it
    Made = tuple[Any, dict[int, str], Trouble | None]


class Feed(Dataset):  # type: ignore[type-arg]
    """Makes whole batches; whatever goes wrong with the data is handed over, not raised.

    Between processes an exception would lose its type and its remedy.
    """

    def __init__(
        self, dataset: TarDataset | MapDataset, collate: Callable[[list[Any]], Any]
    ) -> None:
        self.dataset, self.collate = dataset, collate

    def __getitem__(self, ask: Ask) -> Made:
        seed, wanted = ask
        try:
            with _noise(seed) if self.dataset.draws else contextlib.nullcontext():
                made, faults = self.dataset.make(wanted)  # type: ignore[arg-type]
                return self.collate(made) if made else None, faults, None
        except HeadwayError as error:
            return None, {}, trouble_of(error)


def asks(
    samples: Iterable[Any],
    size: int,
    where: tuple[int, int, int],
    *,
    rank: int,
    ranks: int,
    drop_last: bool,
) -> Iterator[tuple[int, Ask]]:
    """For each step how many samples all ranks take, and this rank's batch.

    `samples`: numbers, or places; `where`: the seed, the epoch, and the place of the first sample.
    """
    seed, epoch, place = where
    for taken, batch in steps(samples, size, rank=rank, ranks=ranks, drop_last=drop_last):
        yield taken, (noise(seed, epoch, place, rank), batch)
        place += taken


def numbers_of(ask: Ask) -> list[int]:
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


def trouble_of(error: HeadwayError) -> Trouble:
    """An error as other processes can have it."""
    retryable = isinstance(error, TransferError) and error.retryable
    kind = "node" if isinstance(error, NodeError) else "data"
    kind = "transfer" if isinstance(error, TransferError) else kind
    return kind, error.message, error.remedy, retryable


def raise_trouble(trouble: Trouble | None) -> None:
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
