"""What a few cases can show, and what they cannot."""

from __future__ import annotations

import math


def wilson(hits: float, of: float, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval of a rate; honest for few cases and at 0 and 1, where the usual one is not.

    Args:
        hits: In how many cases it happened.
        of: How many cases there are; a case may weigh more or less than one.
        z: How many standard errors wide: 1.96 gives a 95 % interval, 1.645 one of 90 %.

    Returns:
        Its two bounds, between 0 and 1; without a case nothing is known.
    """
    if of <= 0:
        return 0.0, 1.0
    share = hits / of
    scale, middle = 1 + z * z / of, share + z * z / (2 * of)
    half = z * math.sqrt(max(0.0, share * (1 - share)) / of + z * z / (4 * of * of))
    low, high = (middle - half) / scale, (middle + half) / scale
    return max(0.0, min(share, low)), min(1.0, max(share, high))
