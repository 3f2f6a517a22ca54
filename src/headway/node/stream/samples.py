"""The samples of an object, by columns: where each lies, and of which class it is.

A sample is a member of a tar file, or a record of fixed length within one. There may be millions:
nothing here makes an object for each. Classes are numbered by the order of their names, as those
who unpack into folders have it.
"""

from __future__ import annotations

import fnmatch
import re
from array import array
from bisect import bisect_right
from itertools import compress, repeat

from headway.node.errors import HeadwayError
from headway.node.transfer.members import Index
from headway.node.transfer.tar_index import TarIndexer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headway.node.stream.reader import Object

NO_CLASS = -1
_PACKED = (
    (b"\x1f\x8b", "gzip", "gunzip"),
    (b"BZh", "bzip2", "bunzip2"),
    (b"\xfd7zXZ", "xz", "unxz"),
    (b"\x28\xb5\x2f\xfd", "zstd", "unzstd"),
    (b"PK\x03\x04", "zip", "unzip"),
)


class DataError(HeadwayError):
    """The data set is not what the program takes it for."""


class Choice:
    """Which bytes of an object are samples."""

    def __init__(
        self,
        only: str | Sequence[str] = (),
        record: int | None = None,
        classes: Sequence[str] | None = None,
        *,
        labelled: bool = False,
    ) -> None:
        """`only`: patterns as in a shell, of names; `record`: the length of one in bytes.

        `labelled`: all samples have a class, or none has.
        """
        if record is not None and record < 1:
            raise DataError(f"a record of {record} bytes is none")
        patterns = [only] if isinstance(only, str) else list(only)
        self.only = tuple(patterns)
        self.record = record
        self.labelled = labelled
        self.classes = None if classes is None else tuple(classes)
        joined = "|".join(map(fnmatch.translate, patterns))
        self._pattern = re.compile(joined, re.IGNORECASE) if patterns else None

    def takes(self, name: str) -> bool:
        return self._pattern is None or self._pattern.match(name) is not None

    def filters(self) -> bool:
        return self._pattern is not None

    def records(self, name: str, offset: int, size: int) -> range:
        """Where the samples of a member begin."""
        if self.record is None:
            return range(offset, offset + 1)
        if size % self.record:
            raise DataError(
                f"{name} has {size} bytes, which is no multiple of the record of {self.record}",
                remedy="`only` says which members hold records",
            )
        return range(offset, offset + size, self.record)


class Samples:
    """All samples of one object, in the order of the file."""

    def __init__(
        self,
        offsets: array[int],
        sizes: array[int],
        labels: array[int],
        classes: tuple[str, ...],
        names: Callable[[], Iterable[str]] | None,
        firsts: array[int] | None = None,
    ) -> None:
        """`firsts`: of records, the number of the first one in each member that `names` names."""
        self.offsets, self.sizes, self.labels = offsets, sizes, labels
        self.classes = classes
        self._all_names, self._firsts = names, firsts
        self._names: Names | None = None

    def __reduce__(self) -> tuple[type[Samples], tuple[object, ...]]:
        # names are for people, and would double what is sent to another process
        columns = (self.offsets, self.sizes, self.labels, self.classes, None, self._firsts)
        return Samples, columns

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def named(self) -> bool:
        """Whether it knows names: a copy in another process does not."""
        return self._all_names is not None

    def class_name(self, number: int) -> str | None:
        label = self.labels[number]
        return None if label == NO_CLASS else self.classes[label]

    def name(self, number: int) -> str:
        """As if unpacked, with a folder for each nested tar file; of a record: NAME[7]."""
        if self._firsts is None:
            return self.names[number]
        member = bisect_right(self._firsts, number) - 1
        return f"{self.names[member]}[{number - self._firsts[member]}]"

    def find(self, name: str) -> int:
        """The number of the sample with this name; KeyError where there is none."""
        if self._firsts is None:
            return self.names.find(name)
        member, _, digits = name.rstrip("]").rpartition("[")
        if not digits.isdecimal() or not name.endswith("]"):
            raise KeyError(name)
        place = self.names.find(member)
        number = self._firsts[place] + int(digits)
        last = self._firsts[place + 1] if place + 1 < len(self._firsts) else len(self)
        if number >= last:
            raise KeyError(name)
        return number

    @property
    def names(self) -> Names:
        """Of each member that holds samples; decoded when first asked for."""
        if self._names is None:
            self._names = Names(self._all_names() if self._all_names is not None else ())
        return self._names


class Names:
    """Many names as one text."""

    def __init__(self, names: Iterable[str]) -> None:
        text = bytearray(b"\0")
        self._ends = array("Q")
        for name in names:
            text += name.encode("utf-8", "surrogateescape")
            self._ends.append(len(text))
            text.append(0)
        self._text = bytes(text)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> str:
        begin = self._ends[number - 1] + 1 if number else 1
        return self._text[begin : self._ends[number]].decode("utf-8", "surrogateescape")

    def find(self, name: str) -> int:
        """Of several with the same name the last, as unpacking would leave it."""
        wanted = name.encode("utf-8", "surrogateescape")
        at = -1 if b"\0" in wanted else self._text.rfind(b"\0" + wanted + b"\0")
        if at < 0 or not wanted:
            raise KeyError(name)
        return bisect_right(self._ends, at)


def samples_of(thing: Object, choice: Choice, index: Index | None) -> Samples:
    """The samples that an index lists; without one the headers of the file are read."""
    if index is None:
        index = index_of(thing) if choice.record is None or _is_tar(thing) else None
    if index is None:
        return _bare(thing, choice)
    offsets, sizes, numbers = index.offsets(), index.sizes(), index.class_numbers()
    keep = _kept(index, choice, sizes)
    if keep is not None:
        offsets = array(offsets.typecode, compress(offsets, keep))
        sizes = array(sizes.typecode, compress(sizes, keep))
        numbers = array(numbers.typecode, compress(numbers, keep))
    if not len(offsets):
        found = f"none of its {index.count} members" if index.count else "no member"
        raise DataError(
            f"{thing.path} has no samples: {found} is a file with bytes in it"
            + (f" that {' or '.join(choice.only)} names" if choice.only else "")
        )
    if choice.record is not None:
        return _records(choice, index, keep, offsets, sizes)
    classes, table = _numbered(thing.path, index.classes, set(numbers), choice.classes)
    labels = array("i", map(table.__getitem__, numbers))
    samples = Samples(offsets, sizes, labels, classes, lambda: _names(index, keep))
    if choice.labelled and classes and NO_CLASS in labels:
        raise _classless(thing.path, samples.name(labels.index(NO_CLASS)))
    return samples


def index_of(thing: Object) -> Index:
    """The member index of a whole tar file, by its headers alone."""
    indexer = TarIndexer(thing.size)
    while indexer.want is not None:
        indexer.take(thing.read(*indexer.want))
    check_tar(thing, indexer)
    sections = {name: memoryview(data) for name, data in indexer.members.sections()}
    return Index(len(indexer.members), thing.size, sections)


def check_tar(thing: Object, indexer: TarIndexer) -> None:
    """DataError where a file that was walked through is no whole tar file."""
    if indexer.is_tar and not indexer.damage:
        return
    if indexer.is_tar:
        raise DataError(f"{thing.path} is a damaged tar file: {indexer.damage}")
    head = thing.read(0, min(8, thing.size))
    for magic, kind, tool in _PACKED:
        if head.startswith(magic):
            raise DataError(
                f"{thing.path} is compressed with {kind}: nothing in it can be read by its place",
                remedy=f"unpack it once with {tool}, and publish the .tar (images and the like"
                " hardly grow)",
            )
    raise DataError(f"{thing.path} is no tar file")


def label_of(path: str, name: str, class_name: str | None, numbers: dict[str, int] | None) -> int:
    """The number of a class where they are known beforehand only if the program says them."""
    if class_name is None:
        if numbers:
            raise _classless(path, name)
        return NO_CLASS
    if numbers is None:
        raise DataError(
            f"which classes {path} has is known only when all of it is here: {name} is of"
            f" {class_name!r}",
            remedy="pass classes=[…], or publish it and pin its manifest in job.toml",
        )
    if class_name not in numbers:
        raise _unnamed(path, [class_name])
    return numbers[class_name]


def folder_of(tar: str) -> str:
    """Where the members of a nested tar file would be unpacked to."""
    folder = tar[: -len(".tar")] if tar[-4:].lower() == ".tar" else tar
    return tar if folder.rpartition("/")[2] in ("", ".", "..") else folder


def _is_tar(thing: Object) -> bool:
    indexer = TarIndexer(thing.size, empty_is_tar=False)
    if indexer.want is not None and sum(indexer.want) <= thing.size:
        indexer.take(thing.read(*indexer.want))
    return indexer.is_tar


def _bare(thing: Object, choice: Choice) -> Samples:
    """Records that are in no tar file."""
    head = thing.read(0, min(8, thing.size))
    if any(head.startswith(magic) for magic, _, _ in _PACKED):
        check_tar(thing, TarIndexer(0, empty_is_tar=False))
    places = choice.records(thing.path, 0, thing.size)
    if not len(places):
        raise DataError(f"{thing.path} has no samples: it is empty")
    sizes = array("I", [choice.record or 0]) * len(places)
    labels = array("i", [NO_CLASS]) * len(places)
    name = thing.path.rpartition("/")[2]
    return Samples(array("Q", places), sizes, labels, (), lambda: [name], array("Q", [0]))


def _kept(index: Index, choice: Choice, sizes: array[int]) -> bytearray | None:
    """A 1 for each member that holds samples; None: all do."""
    others = list(index.not_files())
    if not (others or choice.filters() or 0 in sizes):
        return None
    keep = bytearray(map(bool, sizes))
    for number in others:
        keep[number] = 0
    if choice.filters():
        takes = choice.takes
        for number, name in enumerate(_names(index, None)):
            if not takes(name):
                keep[number] = 0
    return keep


def _names(index: Index, keep: bytearray | None) -> Iterator[str]:
    names = _in_folders(index)
    return compress(names, keep) if keep is not None else names


def _in_folders(index: Index) -> Iterator[str]:
    names = index.names()
    at = 0
    for tar in index.tars:
        for _ in repeat(None, tar.first - at):
            yield next(names)
        folder = folder_of(tar.name)
        for _ in repeat(None, tar.members):
            yield f"{folder}/{next(names)}"
        at = tar.first + tar.members
    yield from names


def _records(
    choice: Choice,
    index: Index,
    keep: bytearray | None,
    offsets: array[int],
    sizes: array[int],
) -> Samples:
    begins, firsts = array("Q"), array("Q")
    for name, offset, size in zip(_names(index, keep), offsets, sizes):
        firsts.append(len(begins))
        begins.extend(choice.records(name, offset, size))
    lengths = array("I", [choice.record or 0]) * len(begins)
    labels = array("i", [NO_CLASS]) * len(begins)
    return Samples(begins, lengths, labels, (), lambda: _names(index, keep), firsts)


def _numbered(
    path: str, names: tuple[str, ...], used: set[int], told: Sequence[str] | None
) -> tuple[tuple[str, ...], list[int]]:
    """The classes, and the label for each number of the index."""
    own = {names[number - 1] for number in used if number}
    classes = tuple(sorted(own)) if told is None else tuple(told)
    places = {name: place for place, name in enumerate(classes)}
    unnamed = sorted(own - places.keys())
    if unnamed:
        raise _unnamed(path, unnamed)
    return classes, [NO_CLASS, *(places.get(name, NO_CLASS) for name in names)]


def _unnamed(path: str, unnamed: list[str]) -> DataError:
    some = ", ".join(unnamed[:5]) + (", …" if len(unnamed) > 5 else "")
    return DataError(
        f"{path} has classes that `classes` does not name: {some}",
        remedy="name all of them, or leave members out with `only`",
    )


def _classless(path: str, name: str) -> DataError:
    return DataError(
        f"{name} in {path} is of no class, and others are",
        remedy="`only` says which members are samples",
    )
