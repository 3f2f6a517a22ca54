"""The order of an epoch: in which blocks are fetched, samples read, and batches made.

Everything here is pure, and the same for the fetcher and for every reader: the order follows from
the index, the seed and the epoch. A *block* is a stretch of the object, one or several chunks of
its manifest, with the samples that begin in it. In most tar files the blocks are sorted by class,
so the order spreads the blocks of each class evenly over the epoch, at random within that. A sample
comes at random within `window` blocks after its own block, so that a reader in this order needs no
block that was not fetched before, and none more than `window` blocks later. The one exception is a
sample that crosses into the next block: it comes after the later of the two.

A position in the order is one number, however many workers and ranks share the reading. A *step*
takes the next `size` samples for each rank, so that after any step the rest can be divided again
among other ranks, batch sizes and workers. The last step takes what is left. If that is fewer
samples than ranks, the step before takes them too: every rank has the same number of steps, and no
batch is empty.
"""

from __future__ import annotations

import random
from array import array
from collections import Counter, deque
from itertools import chain, islice
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import TypeVar

    Number = TypeVar("Number", int, float)
    T = TypeVar("T")


SHARE = 0.05  # of all blocks: the default window
LEAST_WINDOW = 4
_SALT = 0x9E3779B97F4A7C15  # so that blocks and epochs do not share random numbers


class Blocks:
    """Where samples are: block b has the samples first[b] to first[b + 1], and none is empty."""

    def __init__(
        self,
        offsets: Sequence[int],
        sizes: Sequence[int],
        unit: int,
        size: int,
        chunk: int | None = None,
    ) -> None:
        """`offsets` are sorted; `unit`: bytes of a block, a multiple of `chunk`; `size`: of all."""
        self.unit, self.size, self.chunk = unit, size, chunk or unit
        self.first = array("Q")
        self._end = array("Q")  # of the last byte of each block's samples
        last = -1
        for number, (offset, length) in enumerate(zip(offsets, sizes)):
            if offset // unit != last:
                last = offset // unit
                self.first.append(number)
                self._end.append(offset + length)
            else:
                self._end[-1] = max(self._end[-1], offset + length)
        self._begin = array("Q", (offsets[number] // unit * unit for number in self.first))
        self.first.append(len(offsets))
        self._last = array("Q", (offsets[number - 1] for number in self.first[1:]))

    def __len__(self) -> int:
        return len(self.first) - 1

    def stretch(self, block: int) -> tuple[int, int]:
        """The bytes of a block, in whole units; blocks do not overlap."""
        end = min(self.size, -(-self._end[block] // self.unit) * self.unit)
        if self.crosses(block):
            end = self._begin[block + 1]
        return self._begin[block], end

    def samples(self, block: int) -> range:
        return range(self.first[block], self.first[block + 1])

    def crosses(self, block: int) -> bool:
        """Whether its last sample ends in the next block."""
        return block + 1 < len(self) and self._end[block] > self._begin[block + 1]

    def edges(self, block: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """The chunks in either block of the sample that crosses into the next one."""
        border, chunk = self._begin[block + 1], self.chunk
        end = min(self.size, -(-self._end[block] // chunk) * chunk)
        return (self._last[block] // chunk * chunk, border), (border, end)


class Order:
    """One epoch."""

    def __init__(
        self,
        blocks: Blocks,
        classes: Sequence[int],
        *,
        seed: int,
        epoch: int,
        window: int | None = None,
    ) -> None:
        """`classes`: a number for each sample; `window`: in blocks."""
        self.blocks, self._seed, self._epoch = blocks, seed, epoch
        self.window = window or default_window(len(blocks))
        self.fetched = self._dealt(classes)  # the blocks in the order in which they are fetched
        self._position = array("Q", bytes(8 * len(blocks)))  # of each block in that order
        for position, block in enumerate(self.fetched):
            self._position[block] = position

    def __len__(self) -> int:
        return self.blocks.first[-1]

    def samples(self, begin: int = 0, *, rank: int = 0, ranks: int = 1) -> Iterator[int]:
        """The samples from a position on; with several ranks, each gets every `ranks`-th."""
        return islice(chain.from_iterable(each for _, each in self.walk(begin)), rank, None, ranks)

    def walk(self, begin: int = 0) -> Iterator[tuple[int, list[int]]]:
        """The samples from a position on, in lots, each with the number of its last block."""
        for position, bucket in enumerate(self._buckets()):
            if begin >= len(bucket):
                begin -= len(bucket)
                continue
            bucket.sort()
            yield position, [sample for _, sample in islice(bucket, begin, None)]
            begin = 0

    def needs(
        self, begin: int = 0, *, forgets: bool = False
    ) -> Iterator[tuple[int, tuple[int, int]]]:
        """What a reader at this position needs from there on: at which block, and which bytes.

        Where a sample crosses, the edge of a block that the reader has passed is needed again; with
        `forgets`, if blocks are given back after use, the edges of all earlier blocks.
        """
        at = self.behind(self.position(begin))
        blocks, positions = self.blocks, self._position
        for position in range(at, len(blocks)):
            block, gone = self.fetched[position], position if forgets else at
            yield position, blocks.stretch(block)
            if block and blocks.crosses(block - 1) and positions[block - 1] < gone:
                yield position, blocks.edges(block - 1)[0]
            if blocks.crosses(block) and positions[block + 1] < gone:
                yield position, blocks.edges(block)[1]

    def stretches(self, begin: int = 0) -> Iterator[tuple[int, int]]:
        """What to fetch for a reader at this position, in this order."""
        return (stretch for _, stretch in self.needs(begin))

    def position(self, begin: int) -> int:
        """How many blocks must be here before the sample at this position can be read, less one."""
        for position, bucket in enumerate(self._buckets()):
            begin -= len(bucket)
            if begin < 0:
                return position
        return len(self.blocks) + self.window

    def behind(self, position: int) -> int:
        """How many blocks, in their order, are no longer needed at this block."""
        return min(len(self.blocks), max(0, position - self.window + 1))

    def _buckets(self) -> Iterator[list[tuple[float, int]]]:
        """The samples that come between the arrival of one block and the next."""
        window, count, blocks = self.window, len(self.blocks), self.blocks
        coming: deque[list[tuple[float, int]]] = deque([] for _ in range(window))
        halves: dict[int, tuple[float, int]] = {}  # samples that also need this block
        for position in range(count + window - 1):
            if position < count:
                block = self.fetched[position]
                draw = self._random(block + 1).random
                delays = [(draw() * window, sample) for sample in blocks.samples(block)]
                if blocks.crosses(block) and self._position[block + 1] > position:
                    halves[block + 1] = delays.pop()
                if block in halves:
                    delays.append(halves.pop(block))
                for delay, sample in delays:
                    blocks_later = int(delay)
                    coming[blocks_later].append((delay - blocks_later, sample))
            bucket = coming.popleft()
            coming.append([])
            yield bucket

    def _dealt(self, classes: Sequence[int]) -> array[int]:
        of_class: dict[int, list[int]] = {}
        for block in range(len(self.blocks)):
            of_class.setdefault(classes[self.blocks.first[block]], []).append(block)
        draw = self._random(0).random
        keys: list[tuple[float, int]] = []
        for _, blocks in sorted(of_class.items()):
            shuffled = sorted((draw(), block) for block in blocks)
            keys += [((at + draw()) / len(blocks), block) for at, (_, block) in enumerate(shuffled)]
        keys.sort()
        return array("Q", (block for _, block in keys))

    def _random(self, stream: int) -> random.Random:
        """Python guarantees that random() gives the same numbers for the same seed for ever."""
        salted = ((self._seed & (1 << 64) - 1) << 128 | self._epoch << 64 | stream) * _SALT
        return random.Random(salted)  # noqa: S311 - no secret


class FileOrder(Order):
    """The order of the file, without shuffling."""

    def __init__(self, blocks: Blocks) -> None:
        super().__init__(blocks, (), seed=0, epoch=0, window=2)

    def _buckets(self) -> Iterator[list[tuple[float, int]]]:
        """The last sample of a block comes with the next block if it crosses into it."""
        blocks, carried = self.blocks, range(0)
        for block in range(len(blocks)):
            samples = blocks.samples(block)
            crosses = blocks.crosses(block)
            mine = samples[:-1] if crosses else samples
            yield [(0.0, sample) for sample in chain(carried, mine)]
            carried = samples[-1:] if crosses else range(0)

    def _dealt(self, classes: Sequence[int]) -> array[int]:
        return array("Q", range(len(self.blocks)))


def default_window(blocks: int) -> int:
    """The default window for so many blocks."""
    return max(LEAST_WINDOW, int(blocks * SHARE))


STRETCH = 1000  # samples for which the mix of classes is measured


class Quality(NamedTuple):
    """How well an order mixes the samples; `str` explains it."""

    samples: int
    blocks: int
    window: int  # blocks that a sample is drawn from
    window_samples: int
    window_bytes: int
    first: float  # share of the blocks that the first 64 samples need
    classes: int
    stretch: int  # samples in a row for which the mix of classes is measured
    fewest_classes: int  # in any such stretch; usually the first of an epoch
    usual_classes: int
    worst_mix: float  # share of a stretch that differs from the mix of all samples
    usual_mix: float
    perfect_mix: float  # the median for samples drawn at random from all

    def __str__(self) -> str:
        share = self.window / self.blocks if self.blocks else 1.0
        return (
            f"each of {self.samples} samples comes once, drawn from {self.window} of"
            f" {self.blocks} blocks ({share:.1%}, about {self.window_samples} samples,"
            f" {self.window_bytes / 1e6:.0f} MB) that are dealt evenly over the classes;"
            f" {self.stretch} samples in a row usually have {self.usual_classes} of {self.classes}"
            f" classes, at least {self.fewest_classes}, and {self.usual_mix:.1%} of them"
            f" (at most {self.worst_mix:.1%}) would have to be of another class for the mix of the"
            f" whole; with a perfect shuffle {self.perfect_mix:.1%}; the first samples need"
            f" {self.first:.1%} of the blocks"
        )


def quality_of(order: Order, labels: Sequence[int], stretch: int = STRETCH) -> Quality:
    """Measure every stretch of an epoch."""
    overall = Counter(labels)
    count = len(labels)
    stretch = min(stretch, count)

    def away(here: Counter[int]) -> float:
        each = (abs(here[label] / stretch - share / count) for label, share in overall.items())
        return sum(each) / 2

    samples = order.samples()
    mixes, kinds = [], []
    for _ in range(count // stretch if stretch else 0):
        here = Counter(labels[sample] for sample in islice(samples, stretch))
        mixes.append(away(here))
        kinds.append(len(here))
    draw = random.Random(0)  # noqa: S311 - no secret
    perfect = [away(Counter(draw.choices(labels, k=stretch))) for _ in range(20)] if count else []
    blocks = len(order.blocks)
    window = min(order.window, blocks)
    return Quality(
        samples=count,
        blocks=blocks,
        window=window,
        window_samples=round(count * window / blocks) if blocks else 0,
        window_bytes=window * order.blocks.unit,
        first=min(1.0, (order.position(min(63, count - 1)) + 1) / blocks) if count else 0.0,
        classes=len(overall),
        stretch=stretch,
        fewest_classes=min(kinds, default=0),
        usual_classes=_median(kinds),
        worst_mix=max(mixes, default=0.0),
        usual_mix=_median(mixes),
        perfect_mix=_median(perfect),
    )


def _median(numbers: list[Number]) -> Number | int:
    return sorted(numbers)[len(numbers) // 2] if numbers else 0


_STEP_SALT = 0xD1342543DE82EF95


def steps(
    samples: Iterable[T], size: int, *, rank: int = 0, ranks: int = 1, drop_last: bool = False
) -> Iterator[tuple[int, list[T]]]:
    """For each step, how many samples all ranks take together, and this rank's own."""
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
    full, left = divmod(samples, size * ranks)
    if drop_last or left < ranks:
        return full or int(left > 0 and not drop_last)
    return full + 1


def delayed(samples: Iterable[T], window: int, seed: int, epoch: int) -> Iterator[T]:
    """Delay each sample at random within the next `window`, without knowing how many there are.

    The same seed and epoch give the same order.
    """
    if window <= 1:
        yield from samples
        return
    salted = ((seed & (1 << 64) - 1) << 64 | epoch) * _STEP_SALT
    draw = random.Random(salted).random  # noqa: S311 - no secret
    coming: deque[list[tuple[float, T]]] = deque([] for _ in range(window))
    for sample in samples:
        delay = draw() * window
        coming[int(delay)].append((delay, sample))
        yield from _next(coming)
        coming.append([])
    while coming:
        yield from _next(coming)


def _next(coming: deque[list[tuple[float, T]]]) -> list[T]:
    bucket = sorted(coming.popleft(), key=lambda entry: entry[0] % 1.0)
    return [sample for _, sample in bucket]


def noise(seed: int, epoch: int, place: int, rank: int) -> int:
    """The seed of the random choices within a batch, the same for every worker."""
    salted = (((seed & (1 << 64) - 1) << 32 | epoch) << 64 | place << 20 | rank) * _STEP_SALT
    return random.Random(salted).getrandbits(63)  # noqa: S311 - no secret
