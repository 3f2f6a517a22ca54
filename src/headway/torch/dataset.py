"""Data sets by number: the samples of a tar file, or any map-style data set."""

from __future__ import annotations

import os
import random
from array import array

from torch.utils.data import Dataset, IterableDataset

from headway.node.errors import NodeError, TransferError
from headway.node.stream.growing import Place
from headway.node.stream.samples import Choice, DataError
from headway.node.stream.source import Source
from headway.node.stream.tally import RAISE, Tally

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

_LOT = 4096  # samples that are dealt at once
_SALT = 0xA24BAED4963EE407  # so that epochs and seeds do not share their random numbers


class TarDataset(Dataset):  # type: ignore[type-arg]
    """The samples of a tar file by number, as (sample, label).

    `decode` makes something of a sample's bytes, `transform` of that; `only` takes patterns of
    names. Labels number the classes (nested tar files, or else folders) by name, or as `classes`
    says. `record`: each so many bytes are a sample, the last of the first `head` its label, as in
    CIFAR's binary version (3073 and 1).
    """

    def __init__(
        self,
        path: str,
        *,
        decode: Callable[[bytes], Any] | None = None,
        transform: Callable[[Any], Any] | None = None,
        only: str | Sequence[str] = (),
        classes: Sequence[str] | None = None,
        record: int | None = None,
        head: int = 1,
    ) -> None:
        self.decode, self.transform = decode, transform
        self.draws = decode is not None or transform is not None  # maybe, random numbers
        if record is not None and not 0 <= head < record:
            raise DataError(f"a record of {record} bytes has no sample behind {head} of label")
        self._head = head if record is not None else 0
        self.source = Source(os.fspath(path), Choice(only, record, classes, labelled=True))

    def __len__(self) -> int:
        return len(self.source.samples)

    def __getitem__(self, number: int) -> Any:
        return self.__getitems__([range(len(self))[number]])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[Any]:
        """Several at once: neighbours in the file are read together."""
        made, faults = self.make(numbers)
        Tally(RAISE).add(list(faults.values()), len(self))
        return made

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, by label."""
        told = self.source.choice.classes
        return self.source.samples.classes if told is None else told

    def make(self, wanted: Sequence[int] | Sequence[Place]) -> tuple[list[Any], dict[int, str]]:
        """The samples; by place in `wanted`, and in words, those that could not be decoded."""
        source = self.source
        if wanted and isinstance(wanted[0], Place):
            places: Sequence[Any] = wanted
            labels = [place.label for place in places]
            contents = source.object.read_many(
                [place.offset for place in places], [place.size for place in places]
            )
        else:
            column = source.samples.labels
            labels = [column[number] for number in wanted]  # type: ignore[index]
            contents = source.read(wanted)  # type: ignore[arg-type]
        made: list[Any] = []
        faults: dict[int, str] = {}
        head, decode, transform = self._head, self.decode, self.transform
        for at, data in enumerate(contents):
            label = labels[at]
            if head:
                label, data = data[head - 1], data[head:]
            if decode is not None:
                try:
                    data = decode(data)
                except Exception as error:
                    faults[at] = f"{self._place(wanted[at])} cannot be decoded: {_words(error)}"
                    continue
            made.append((data if transform is None else transform(data), label))
        return made, faults

    def _place(self, one: int | Place) -> str:
        if isinstance(one, Place):
            return f"{one.name} ({one.size} bytes at byte {one.offset} of {self.source.path})"
        return self.source.place(one)


class MapDataset:
    """Any data set with `__len__` and `__getitem__`, as the loader wants to have it."""

    draws = True  # maybe, random numbers

    def __init__(self, dataset: Any, *, skip: bool = False) -> None:
        """`skip`: a sample that cannot be read is handed over in words, and not raised."""
        name = type(dataset).__name__
        if isinstance(dataset, dict):
            parts = ", ".join(map(repr, list(dataset)[:5]))
            raise DataError(
                f"{name} is not one data set but several: {parts}",
                remedy=f"give one of them: data[{next(iter(dataset), 'train')!r}]",
            )
        by_number = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
        if isinstance(dataset, IterableDataset) or not by_number:
            raise DataError(
                f"{name} does not give its samples by number, so that no place in it can be kept",
                remedy="give a map-style data set, with __len__ and __getitem__ (of Hugging Face's"
                " load_dataset one without streaming=True), or a tar file with TarDataset",
            )
        self.dataset, self._skip = dataset, skip
        self.source = _MapSource(name, len(dataset))

    def __len__(self) -> int:
        return self.source.size

    def make(self, wanted: Sequence[int]) -> tuple[list[Any], dict[int, str]]:
        """The samples; by place in `wanted`, and in words, those that could not be read."""
        several = getattr(self.dataset, "__getitems__", None)
        try:
            if several is not None:
                return list(several(wanted)), {}
            return [self.dataset[number] for number in wanted], {}
        except Exception:
            if not self._skip:
                raise
        made: list[Any] = []
        faults: dict[int, str] = {}
        for at, number in enumerate(wanted):
            try:
                made.append(self.dataset[number])
            except (NodeError, TransferError):
                raise
            except Exception as error:
                faults[at] = f"{self.source.path}[{number}] cannot be read: {_words(error)}"
        return made, faults


def as_dataset(dataset: Any, *, skip: bool = False) -> Any:
    """The data set as loaders and samplers want to have it: a TarDataset, or a MapDataset."""
    return dataset if isinstance(dataset, TarDataset) else MapDataset(dataset, skip=skip)


class _MapSource:
    """What a loader asks of a source; here all samples are at hand, in any order."""

    sha256 = None
    indexed = True

    def __init__(self, name: str, size: int) -> None:
        if size < 1:
            raise DataError(f"{name} has no samples")
        self.path, self.size = name, size

    def order(self, *, seed: int | None, epoch: int, **_of_a_tar_file: Any) -> Permutation:
        return Permutation(self.size, seed, epoch)


class Permutation:
    """The order of an epoch in which each sample comes at random; without a seed, as they are."""

    def __init__(self, size: int, seed: int | None, epoch: int) -> None:
        self._numbers: Sequence[int] = range(size)
        if seed is None:
            return
        salted = ((seed & (1 << 64) - 1) << 64 | epoch) * _SALT
        # Python promises that random() of the same whole number gives the same floats for ever
        draw = random.Random(salted).random  # noqa: S311 - no secret
        numbers = array("Q", range(size))
        for last in range(size - 1, 0, -1):
            other = int(draw() * (last + 1))
            numbers[last], numbers[other] = numbers[other], numbers[last]
        self._numbers = numbers

    def walk(self, begin: int = 0) -> Iterator[tuple[int, list[int]]]:
        """The samples from a place on, in lots."""
        for place in range(begin, len(self._numbers), _LOT):
            yield place, list(self._numbers[place : place + _LOT])


def _words(error: Exception) -> str:
    """The error, and the line that it is from: it may be the decoder's own fault."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name = os.path.basename(trace.tb_frame.f_code.co_filename) if trace is not None else ""
    line = trace.tb_lineno if trace is not None else 0
    return f"{type(error).__name__}: {error} ({name}:{line})"
