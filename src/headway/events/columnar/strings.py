"""Strings of many events: each kept once, and made inert."""

from __future__ import annotations

from headway.events.classad import inert

_LIMIT = 2000  # bytes


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
