"""A view of a block of a text log: the same bytes as numbers, as words and as characters."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headway.events.columnar.headers import Flags, Longs, Words, mask, word, words


class View:
    """A padded block."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.byte: NDArray[np.uint8] = np.frombuffer(data, np.uint8)
        self.word = words(data)

    @cached_property
    def characters(self) -> str:
        """One for each byte, so that places are the same."""
        return self.data.decode("latin-1")

    @cached_property
    def ascii(self) -> bool:
        """Whether bytes are characters."""
        return self.data.isascii()

    def slices(self, starts: Longs, ends: Longs) -> list[bytes]:
        """The bytes between these places."""
        data = self.data
        return [data[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]

    def texts(self, starts: Longs, ends: Longs) -> list[str]:
        """What is between these places, in UTF-8, without what surrounds it."""
        if not self.ascii:
            return [raw.decode().strip() for raw in self.slices(starts, ends)]
        all_ = self.characters
        return [all_[a:b].strip() for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]

    def says(self, at: Longs, text: bytes) -> Flags:
        """Where this text stands at these places."""
        found = np.ones(len(at), np.bool_)
        for start in range(0, len(text), 8):
            found &= begins(self.word[at + start], text[start : start + 8])
        return found


def begins(at_words: Words, text: bytes) -> Flags:
    """Which of these words begin with a text of up to eight bytes."""
    return np.asarray((at_words & mask(text)) == word(text))
