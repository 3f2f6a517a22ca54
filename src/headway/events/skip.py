"""What a reader could not read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Skip:
    """Bytes of a log that are part of no event, and what they look like.

    Places and lengths are those of the decompressed bytes.
    """

    offset: int
    length: int
    why: str
