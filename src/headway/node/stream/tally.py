"""The tally of samples that could not be decoded: told, counted, and not without a limit."""

from __future__ import annotations

import sys

from headway.node.stream.samples import DataError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

RAISE, SKIP = "raise", "skip"
SHARE = 0.01
_EVERY = 100


class SampleError(DataError):
    """A sample could not be decoded; says which, and where it lies."""


class Tally:
    """Of one epoch."""

    def __init__(self, policy: str, share: float = SHARE) -> None:
        """`share`: of the samples of an epoch that may be left out."""
        if policy not in (RAISE, SKIP):
            raise DataError(f"{policy!r} is no policy for corrupt samples: {RAISE!r} or {SKIP!r}")
        if not 0 <= share <= 1:
            raise DataError(f"{share} is no share of the samples: 0 to 1")
        self.policy, self.share = policy, share
        self.skipped = 0

    def add(self, faults: Sequence[str], total: int) -> None:
        """`total`: the samples that the epoch has, as far as is known."""
        for words in faults:
            if self.policy == RAISE:
                raise SampleError(
                    words, remedy='corrupt="skip" leaves such samples out, and counts them'
                )
            self.skipped += 1
            if self.skipped > max(1.0, self.share * total):
                raise SampleError(
                    f"{self.skipped} samples could not be decoded, more than {self.share:.2%} of"
                    f" {total}; the last: {words}",
                    remedy="look at that one: is it the data, or the decoder?",
                )
            if self.skipped % _EVERY == 1:
                said = f"left out a sample ({self.skipped} in this epoch): {words}"
                print(said, file=sys.stderr, flush=True)
