"""How well an order is shuffled, in numbers."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeVar

    from headway.node.stream.order import Order

    T = TypeVar("T", int, float)

STRETCH = 1000  # samples over which the mix of classes is looked at


class Quality(NamedTuple):
    """What an order promises; `str` says it in words."""

    samples: int
    blocks: int
    window: int  # blocks that a sample is drawn from
    window_samples: int
    window_bytes: int
    first: float  # share of the blocks that must be there before the first 64 samples are
    classes: int
    stretch: int  # samples in a row over which the mix of classes is looked at
    fewest_classes: int  # in any such stretch; the first one of an epoch is the poorest
    usual_classes: int
    worst_mix: float  # share of a stretch that is of other classes than the whole would have
    usual_mix: float
    perfect_mix: float  # what drawing each sample from the whole at random gives, at the median

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
    """Looks at every stretch of an epoch."""
    whole = Counter(labels)
    count = len(labels)
    stretch = min(stretch, count)

    def away(here: Counter[int]) -> float:
        each = (abs(here[label] / stretch - share / count) for label, share in whole.items())
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
        classes=len(whole),
        stretch=stretch,
        fewest_classes=min(kinds, default=0),
        usual_classes=_median(kinds),
        worst_mix=max(mixes, default=0.0),
        usual_mix=_median(mixes),
        perfect_mix=_median(perfect),
    )


def _median(numbers: list[T]) -> T | int:
    return sorted(numbers)[len(numbers) // 2] if numbers else 0
