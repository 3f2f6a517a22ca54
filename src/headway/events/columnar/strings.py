"""Strings of many events: each kept once, and made inert."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.events.classad import inert

_LIMIT = 2000  # bytes


class Packed(Sequence[str]):
    """Texts without newlines, as the bytes that they are."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self._data = data
        self._count = int(np.count_nonzero(data == 0x0A)) + 1 if data.size else 0

    @staticmethod
    def of(texts: Sequence[str]) -> Packed:
        """These texts; none of them has a newline."""
        if isinstance(texts, Packed):
            return texts
        return Packed(np.frombuffer("\n".join(texts).encode(), np.uint8))

    @property
    def data(self) -> NDArray[np.uint8]:
        """All of them, with a newline between two."""
        return self._data

    def all(self) -> list[str]:
        """The texts, one by one."""
        return self._data.tobytes().decode().split("\n") if self._count else []

    def at(self, places: NDArray[np.int64]) -> list[str]:
        """The texts at these places."""
        if len(places) * 4 > self._count:
            every = self.all()
            return [every[place] for place in places.tolist()]
        ends = np.append(np.flatnonzero(self._data == 0x0A), self._data.size)
        data, begins = self._data.tobytes(), np.append(0, ends[:-1] + 1)
        bounds = zip(begins[places].tolist(), ends[places].tolist(), strict=True)
        return [data[begin:end].decode() for begin, end in bounds]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        return iter(self.all())

    def __getitem__(self, place: Any) -> Any:
        return self.all()[place]


class Strings:
    """Texts by number, each once, made inert."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._places: dict[str, int] = {"": -1}

    def place(self, text: str) -> int:
        """The number of a text; -1 for none."""
        found = self._places.get(text)
        if found is not None:
            return found
        made = inert(text, _LIMIT)
        found = self._places.get(made)
        if found is None:
            found = self._places[made] = len(self.all)
            self.all.append(made)
        if len(text) <= _LIMIT:  # a giant is not worth remembering as it was
            self._places[text] = found
        return found

    def place_all(self, texts: list[str]) -> list[int]:
        """The numbers of texts that have no blanks around them."""
        places = self._places
        new = [text for text in texts if text not in places]
        if new:
            joined = "".join(new)
            if joined.isascii() and joined.isprintable() and len(max(new, key=len)) <= _LIMIT:
                # All of them are inert already.
                start = len(self.all)
                self.all += dict.fromkeys(new)
                places.update(zip(self.all[start:], range(start, len(self.all)), strict=True))
            else:
                return [self.place(text) for text in texts]
        return [places[text] for text in texts]
