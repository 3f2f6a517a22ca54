"""Simple sound statistics: what a few cases can show, and what they cannot."""

from __future__ import annotations

import math
from statistics import NormalDist

#: 95 % intervals throughout: one false alarm in twenty is what a tired reader forgives.
Z = 1.96


def wilson(hits: int, of: int) -> tuple[float, float]:
    """Bounds of a rate; honest for few cases and at 0 and 1, where the usual formula is not."""
    if of <= 0:
        return 0.0, 1.0
    share = hits / of
    spread = Z * math.sqrt(share * (1 - share) / of + Z * Z / (4 * of * of))
    centre, scale = share + Z * Z / (2 * of), 1 + Z * Z / of
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def clearly_more(hits: int, of: int, other_hits: int, other_of: int, factor: float) -> bool:
    """Whether a rate is at least `factor` times another, and their intervals lie apart."""
    if of <= 0 or other_of <= 0:
        return False
    apart = wilson(hits, of)[0] > wilson(other_hits, other_of)[1]
    return apart and hits / of >= factor * (other_hits / other_of)


def young(between_s: float, cost_s: float) -> float:
    """The checkpoint interval that loses least, by Young's rule, at a mean time between losses."""
    return math.sqrt(2 * max(between_s, 0.0) * max(cost_s, 0.0))


def standard_errors(places: int) -> float:
    """How far out the worst of so many places must lie: chance does it once in forty reports."""
    return NormalDist().inv_cdf(1 - 0.025 / max(places, 1))
