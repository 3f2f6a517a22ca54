"""Steps: how an order of samples is dealt to batches, ranks and workers.

A *step* takes the next `size` samples for each rank, so that after any step the place in the order
is one number for all ranks together, and the rest can be dealt anew to other ranks, batch sizes and
workers. The last step takes what is left. Should that be fewer samples than ranks, the step before
takes them along: every rank has the same number of steps, and none an empty batch.
"""

from __future__ import annotations

import random
from collections import deque
from itertools import islice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TypeVar

    T = TypeVar("T")

_SALT = 0xD1342543DE82EF95


def steps(
    samples: Iterable[T], size: int, *, rank: int = 0, ranks: int = 1, drop_last: bool = False
) -> Iterator[tuple[int, list[T]]]:
    """For each step how many samples all ranks take together, and this rank's own."""
    rest, full = iter(samples), size * ranks
    ahead = list(islice(rest, full + ranks))
    while len(ahead) == full + ranks:
        yield full, ahead[rank:full:ranks]
        ahead = ahead[full:]
        ahead += islice(rest, full)
    if drop_last:
        ahead = ahead[:full] if len(ahead) >= full else []
    if ahead:
        yield len(ahead), ahead[rank::ranks]


def count_steps(samples: int, size: int, *, ranks: int = 1, drop_last: bool = False) -> int:
    """How many steps these samples make."""
    whole, left = divmod(samples, size * ranks)
    if drop_last or left < ranks:
        return whole or int(left > 0 and not drop_last)
    return whole + 1


def delayed(samples: Iterable[T], window: int, seed: int, epoch: int) -> Iterator[T]:
    """Each sample at random within the next `window`; begins with the first, and needs no length.

    For samples that come one by one: the same seed and epoch give the same order.
    """
    if window <= 1:
        yield from samples
        return
    salted = ((seed & (1 << 64) - 1) << 64 | epoch) * _SALT
    draw = random.Random(salted).random  # noqa: S311 - no secret
    coming: deque[list[tuple[float, T]]] = deque([] for _ in range(window))
    for sample in samples:
        delay = draw() * window
        coming[int(delay)].append((delay, sample))
        yield from _next(coming)
        coming.append([])
    while coming:
        yield from _next(coming)


def _next(coming: deque[list[tuple[float, T]]]) -> Iterator[T]:
    bucket = coming.popleft()
    bucket.sort(key=_fraction)
    for _, sample in bucket:
        yield sample


def _fraction(entry: tuple[float, object]) -> float:
    return entry[0] % 1.0


def noise(seed: int, epoch: int, place: int, rank: int) -> int:
    """What the random choices within a batch start from: the same whichever worker makes it."""
    salted = (((seed & (1 << 64) - 1) << 32 | epoch) << 64 | place << 20 | rank) * _SALT
    return random.Random(salted).getrandbits(63)  # noqa: S311 - no secret
