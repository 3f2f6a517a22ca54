"""Samples of a tar file without an index, as its headers arrive."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from headway.node.stream.samples import NO_CLASS, Choice, DataError, check_tar, folder_of, label_of
from headway.node.transfer.members import FILE, safe_name
from headway.node.transfer.tar_index import TarIndexer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from headway.node.stream.reader import Object
    from headway.node.transfer.tar_index import _Header


class Place(NamedTuple):
    """One sample, before its bytes have come."""

    name: str
    class_name: str | None
    label: int
    offset: int
    size: int


def as_it_goes(thing: Object, choice: Choice) -> Iterator[Place]:
    """The samples in the order of the file; waits for headers, not for the samples' own bytes."""
    classes = choice.classes
    numbers = None if classes is None else {name: place for place, name in enumerate(classes)}
    walker = _Walker(thing.size)
    while walker.want is not None or walker.fresh:
        while walker.fresh:
            name, class_name, offset, size = walker.fresh.popleft()
            if not choice.takes(name):
                continue
            if choice.record is None:
                label = NO_CLASS
                if choice.labelled:
                    label = label_of(thing.path, name, class_name, numbers)
                yield Place(name, class_name, label, offset, size)
                continue
            for number, place in enumerate(choice.records(name, offset, size)):
                yield Place(f"{name}[{number}]", None, NO_CLASS, place, choice.record)
        if walker.want is not None:
            walker.take(thing.read(*walker.want))
    check_tar(thing, walker)


class _Walker(TarIndexer):
    """Hands out each member as soon as its header was read."""

    def __init__(self, size: int) -> None:
        self.fresh: deque[tuple[str, str | None, int, int]] = deque()
        self._folder = ""  # that the members of a nested tar file would be unpacked to
        self._handed = 0
        super().__init__(size)

    def _nested(self, name: bytes, at: int, size: int) -> Generator[tuple[int, int], bytes, bool]:
        self._folder, before = folder_of(_text(safe_name(name) or b"")), self._handed
        whole = yield from super()._nested(name, at, size)
        self._folder = ""
        if not whole and self._handed > before:
            raise DataError(f"{_text(name)} is a damaged tar file, and samples of it were read")
        return whole

    def _add(
        self,
        header: _Header,
        offset: int,
        size: int,
        class_name: bytes | None,
        kind: int = FILE,
        full_size: int = 0,
    ) -> None:
        name = safe_name(header.name)
        if name is None or kind != FILE or not size:
            return
        if class_name is None and b"/" in name:
            class_name = name.rpartition(b"/")[0].rpartition(b"/")[2]
        self._handed += 1
        shown = f"{self._folder}/{_text(name)}" if self._folder else _text(name)
        text = None if class_name is None else _text(class_name)
        self.fresh.append((shown, text, offset, size))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
