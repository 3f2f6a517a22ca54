"""The kinds of 040 events, by the words of their headers, all at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.events.columnar.headers import Longs, mask, word, words
from headway.events.event import TRANSFER_TEXTS
from headway.events.kind import BY_TRANSFER


class _Words(NamedTuple):
    """The words of a 040 event's header, eight bytes at a time, and what they mean."""

    length: int
    words: list[tuple[int, np.uint64, np.uint64]]  # where, mask, what
    kind: int


def _transfer_words(text: bytes, kind: int) -> _Words:
    pieces = [(at, text[at : at + 8]) for at in range(0, len(text), 8)]
    return _Words(len(text), [(at, mask(piece), word(piece)) for at, piece in pieces], kind)


_TRANSFERS = [
    _transfer_words(text.encode(), int(BY_TRANSFER[transfer]))
    for transfer, text in TRANSFER_TEXTS.items()
]


def transfer_kinds(data: bytes, texts: Longs, ends: Longs) -> NDArray[np.uint8]:
    """The kinds of the 040 events whose words begin and end at these places of a padded block."""
    at_word = words(data)
    kinds = np.zeros(len(texts), np.uint8)
    lengths = ends - texts
    for template in _TRANSFERS:
        rows = np.flatnonzero(lengths == template.length)
        for place, bits, expected in template.words:
            rows = rows[(at_word[texts[rows] + place] & bits) == expected]
        kinds[rows] = template.kind
    return kinds
