"""An object that is read by position, and its samples: where each one is, and its class.

`PATH` is the complete object. While it arrives, `PATH.arrival` says what is there, and `PATH.part`
holds it. `PATH.headway` is its manifest, which the agent puts there if job.toml pins its digest.

A sample is a member of a tar file, or a record of fixed length within one. There may be millions of
them, so nothing here makes an object for each. Classes are numbered by the order of their names, as
tools do that read samples from folders.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import sys
import time
from array import array
from bisect import bisect_right
from itertools import compress, islice

from headway.node.errors import HeadwayError, NodeError, TransferError
from headway.node.stream.arrival import ARRIVAL_SUFFIX as ARRIVAL
from headway.node.stream.arrival import Arrival
from headway.node.transfer.manifest import SUFFIX as MANIFEST
from headway.node.transfer.manifest import open_manifest
from headway.node.transfer.part import SUFFIX as PART
from headway.node.transfer.tar import Index, TarIndexer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headway.node.transfer.manifest import Manifest


_GAP = 1536  # bytes between neighbours in a tar file: padding and a header, or two
_RUN = 1 << 20  # bytes that are read at once at most, or one sample
_BEGINS = 60.0  # seconds that a fetcher may take to find out the object's size


class Object:
    """One object; forked processes may share it, because nothing changes the file position."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        self.waited = 0.0  # seconds, of this process
        self._file, self.arrival = _opened(self.path)
        self.size = self.arrival.size if self.arrival else os.fstat(self._file).st_size

    def read(self, begin: int, length: int) -> bytes:
        """Exactly these bytes; waits until they are here."""
        if self.arrival is None:
            return self._read(begin, length)
        while True:
            self.waited += self.arrival.wait(begin, begin + length)
            losses = self.arrival.losses
            if not self.arrival.has(begin, begin + length):
                continue
            data = self._read(begin, length)
            # check again: other processors may see the marks and the count in another order, but
            # both before the bytes are removed, because the kernel's locks are in between
            if self.arrival.losses == losses and self.arrival.has(begin, begin + length):
                return data

    def read_many(self, offsets: Sequence[int], sizes: Sequence[int]) -> list[bytes]:
        """The bytes at each of these offsets; neighbours are read at once."""
        found = [b""] * len(offsets)
        for begin, end, run in _runs(offsets, sizes):
            data = self.read(begin, end - begin)
            if len(run) == 1:
                found[run[0]] = data
            else:
                for place in run:
                    at = offsets[place] - begin
                    found[place] = data[at : at + sizes[place]]
        return found

    def _read(self, begin: int, length: int) -> bytes:
        data = os.pread(self._file, length, begin)
        while len(data) < length:
            piece = os.pread(self._file, length - len(data), begin + len(data))
            if not piece:
                raise NodeError(
                    f"{self.path} ends unexpectedly at byte {begin + len(data)}",
                    remedy="the node's disk may be full or failing",
                )
            data += piece
        return data

    def manifest(self) -> Manifest | None:
        """The manifest beside it, if there is one; it must be for an object of this size."""
        try:
            found = open_manifest(f"{self.path}{MANIFEST}")
        except FileNotFoundError:
            return None
        if found.size != self.size:
            raise TransferError(
                f"{self.path}{MANIFEST} is for another object: it has {found.size} bytes,"
                f" and this one has {self.size}",
                retryable=False,
                remedy="`headway publish` writes it again",
            )
        return found

    def loop_waits(self, loop: int, seconds: float) -> None:
        """Note it for the record, even if all of the object was here before the loop began."""
        if self.arrival is not None:
            self.arrival.loop_waits(loop, seconds)
            return
        ended = contextlib.suppress(OSError, TransferError, ValueError)
        with ended, Arrival.follow(f"{self.path}{ARRIVAL}") as arrival:
            arrival.loop_waits(loop, seconds)

    def close(self) -> None:
        if self.arrival is not None:
            self.arrival.close()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Object:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _runs(offsets: Sequence[int], sizes: Sequence[int]) -> Iterator[tuple[int, int, list[int]]]:
    """The ranges to read, and which of the offsets are in each."""
    order = sorted(range(len(offsets)), key=offsets.__getitem__)
    run: list[int] = []
    begin = end = 0
    for place in order:
        offset = offsets[place]
        if run and 0 <= offset - end <= _GAP and end - begin <= _RUN:
            run.append(place)
        else:
            if run:
                yield begin, end, run
            begin, run = offset, [place]
        end = offset + sizes[place]
    if run:
        yield begin, end, run


def _opened(path: str) -> tuple[int, Arrival | None]:
    """The file with the object's bytes and, unless it is complete, what has arrived of it."""
    end = time.monotonic() + _BEGINS
    while True:
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC), None
        if not os.path.exists(f"{path}{ARRIVAL}"):
            raise NodeError(
                f"{path} is not here, and does not arrive either",
                remedy='an input with mode = "stream" arrives while the command runs',
            )
        with contextlib.suppress(FileNotFoundError):
            arrival = Arrival.follow(f"{path}{ARRIVAL}")
            with contextlib.suppress(FileNotFoundError):
                return os.open(f"{path}{PART}", os.O_RDONLY | os.O_CLOEXEC), arrival
            try:
                arrival.check()
            finally:
                arrival.close()  # it has just got its final name, or begins
        if time.monotonic() > end:
            raise TransferError(f"{path} does not begin to arrive", retryable=True)
        time.sleep(0.02)


NO_CLASS = -1
_PACKED = (
    (b"\x1f\x8b", "gzip", "gunzip"),
    (b"BZh", "bzip2", "bunzip2"),
    (b"\xfd7zXZ", "xz", "unxz"),
    (b"\x28\xb5\x2f\xfd", "zstd", "unzstd"),
    (b"PK\x03\x04", "zip", "unzip"),
)


class DataError(HeadwayError):
    """The data set is not what the program expects."""


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
        """`only`: patterns of names, as in a shell; `record`: the bytes of one.

        `labelled`: all samples have a class, or none has.
        """
        if record is not None and record < 1:
            raise DataError(f"record must be at least 1, and is {record}")
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
                f"{name} has {size} bytes, which is not a multiple of the record of {self.record}",
                remedy="select the members that have records with `only`",
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
        """`firsts`: with records, the number of the first one in each member of `names`."""
        self.offsets, self.sizes, self.labels = offsets, sizes, labels
        self.classes = classes
        self._all_names, self._firsts = names, firsts
        self._names: Names | None = None

    def __reduce__(self) -> tuple[type[Samples], tuple[object, ...]]:
        # names are for people, and would double what other processes get
        columns = (self.offsets, self.sizes, self.labels, self.classes, None, self._firsts)
        return Samples, columns

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def named(self) -> bool:
        """Whether it has names: a copy in another process has none."""
        return self._all_names is not None

    def class_name(self, number: int) -> str | None:
        label = self.labels[number]
        return None if label == NO_CLASS else self.classes[label]

    def name(self, number: int) -> str:
        """The path after unpacking, with a folder for each nested tar; of a record: NAME[7]."""
        if self._firsts is None:
            return self.names[number]
        member = bisect_right(self._firsts, number) - 1
        return f"{self.names[member]}[{number - self._firsts[member]}]"

    def find(self, name: str) -> int:
        """The number of the sample with this name; raises KeyError if there is none."""
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
        """The names of the members that have samples; decoded when first used."""
        if self._names is None:
            self._names = Names(self._all_names() if self._all_names is not None else ())
        return self._names


class Names:
    """Many names in one text."""

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
        """The number of a name; of several the last, as unpacking would leave it."""
        wanted = name.encode("utf-8", "surrogateescape")
        at = -1 if b"\0" in wanted else self._text.rfind(b"\0" + wanted + b"\0")
        if at < 0 or not wanted:
            raise KeyError(name)
        return bisect_right(self._ends, at)


def samples_of(thing: Object, choice: Choice, index: Index | None) -> Samples:
    """The samples in an index; without one the headers of the file are read."""
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
        matching = f" that matches {' or '.join(choice.only)}" if choice.only else ""
        raise DataError(f"{thing.path} has no samples: {found} is a non-empty file{matching}")
    if choice.record is not None:
        return _records(choice, index, keep, offsets, sizes)
    classes, table = _numbered(thing.path, index.classes, set(numbers), choice.classes)
    labels = array("i", map(table.__getitem__, numbers))
    samples = Samples(offsets, sizes, labels, classes, lambda: _names(index, keep))
    if choice.labelled and classes and NO_CLASS in labels:
        raise _classless(thing.path, samples.name(labels.index(NO_CLASS)))
    return samples


def index_of(thing: Object) -> Index:
    """The member index of a complete tar file, from its headers alone."""
    indexer = TarIndexer(thing.size)
    while indexer.want is not None:
        indexer.take(thing.read(*indexer.want))
    check_tar(thing, indexer)
    sections = {name: memoryview(data) for name, data in indexer.members.sections()}
    return Index(len(indexer.members), thing.size, sections)


def check_tar(thing: Object, indexer: TarIndexer) -> None:
    """Raise DataError if the file that was indexed is not a complete tar file."""
    if indexer.is_tar and not indexer.damage:
        return
    if indexer.is_tar:
        raise DataError(f"{thing.path} is a damaged tar file: {indexer.damage}")
    head = thing.read(0, min(8, thing.size))
    for magic, kind, tool in _PACKED:
        if head.startswith(magic):
            raise DataError(
                f"{thing.path} is compressed with {kind}, so its members cannot be read separately",
                remedy=f"decompress it once with {tool}, and publish the .tar (images hardly grow)",
            )
    raise DataError(f"{thing.path} is not a tar file")


def label_of(path: str, name: str, class_name: str | None, numbers: dict[str, int] | None) -> int:
    """The label of a class, for an object without an index: `numbers` come from the program."""
    if class_name is None:
        if numbers:
            raise _classless(path, name)
        return NO_CLASS
    if numbers is None:
        raise DataError(
            f"the classes of {path} are known only when all of it is here: {name} is of class"
            f" {class_name!r}",
            remedy="pass classes=[…], or publish it and pin its manifest in job.toml",
        )
    if class_name not in numbers:
        raise _unnamed(path, [class_name])
    return numbers[class_name]


def folder_of(tar: str) -> str:
    """The folder to which a nested tar file would be unpacked."""
    folder = tar[: -len(".tar")] if tar[-4:].lower() == ".tar" else tar
    return tar if folder.rpartition("/")[2] in ("", ".", "..") else folder


def _is_tar(thing: Object) -> bool:
    indexer = TarIndexer(thing.size, empty_is_tar=False)
    if indexer.want is not None and sum(indexer.want) <= thing.size:
        indexer.take(thing.read(*indexer.want))
    return indexer.is_tar


def _bare(thing: Object, choice: Choice) -> Samples:
    """Records that are not in a tar file."""
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
    """A 1 for each member that has samples; None if all have."""
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
        yield from islice(names, tar.first - at)
        folder = folder_of(tar.name)
        yield from (f"{folder}/{name}" for name in islice(names, tar.members))
        at = tar.first + tar.members
    yield from names


def _records(
    choice: Choice, index: Index, keep: bytearray | None, offsets: array[int], sizes: array[int]
) -> Samples:
    begins, firsts = array("Q"), array("Q")
    for name, offset, size in zip(_names(index, keep), offsets, sizes):
        firsts.append(len(begins))
        begins.extend(choice.records(name, offset, size))
    lengths = array("I", [choice.record or 0]) * len(begins)
    labels = array("i", [NO_CLASS]) * len(begins)
    return Samples(begins, lengths, labels, (), lambda: _names(index, keep), firsts)


def _numbered(
    path: str, names: tuple[str, ...], used: set[int], given: Sequence[str] | None
) -> tuple[tuple[str, ...], list[int]]:
    """The classes, and the label for each number of the index."""
    own = {names[number - 1] for number in used if number}
    classes = tuple(sorted(own)) if given is None else tuple(given)
    places = {name: place for place, name in enumerate(classes)}
    unnamed = sorted(own - places.keys())
    if unnamed:
        raise _unnamed(path, unnamed)
    return classes, [NO_CLASS, *(places.get(name, NO_CLASS) for name in names)]


def _unnamed(path: str, unnamed: list[str]) -> DataError:
    some = ", ".join(unnamed[:5]) + (", …" if len(unnamed) > 5 else "")
    return DataError(
        f"{path} has classes that are not in `classes`: {some}",
        remedy="list all of them, or leave out members with `only`",
    )


def _classless(path: str, name: str) -> DataError:
    return DataError(
        f"{name} in {path} has no class, and others have one",
        remedy="select the members that are samples with `only`",
    )


RAISE, SKIP = "raise", "skip"
SHARE = 0.01
_EVERY = 100


class SampleError(DataError):
    """A sample could not be decoded; says which one, and where it is."""


class Tally:
    """Counts the samples of an epoch that could not be decoded, up to a limit."""

    def __init__(self, policy: str, share: float = SHARE) -> None:
        """`share`: the share of the samples of an epoch that may be left out."""
        if policy not in (RAISE, SKIP):
            raise DataError(f"corrupt must be {RAISE!r} or {SKIP!r}, and is {policy!r}")
        if not 0 <= share <= 1:
            raise DataError(f"corrupt_share must be from 0 to 1, and is {share}")
        self.policy, self.share = policy, share
        self.skipped = 0

    def add(self, faults: Sequence[str], total: int) -> None:
        """Count faults; `total`: the samples of the epoch, as far as known."""
        for words in faults:
            if self.policy == RAISE:
                remedy = 'corrupt="skip" leaves out such samples, and counts them'
                raise SampleError(words, remedy=remedy)
            self.skipped += 1
            if self.skipped > max(1.0, self.share * total):
                raise SampleError(
                    f"{self.skipped} samples could not be decoded, more than {self.share:.2%} of"
                    f" {total}; the last: {words}",
                    remedy="check whether the data or the decoder is wrong",
                )
            if self.skipped % _EVERY == 1:
                said = f"left out a sample ({self.skipped} in this epoch): {words}"
                print(said, file=sys.stderr, flush=True)
