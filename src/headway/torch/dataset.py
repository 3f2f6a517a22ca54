"""The samples of a tar file by number."""

from __future__ import annotations

import os

from torch.utils.data import Dataset

from headway.node.stream.growing import Place
from headway.node.stream.samples import Choice, DataError
from headway.node.stream.source import Source
from headway.node.stream.tally import RAISE, Tally

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any


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


def _words(error: Exception) -> str:
    """The error, and the line that it is from: it may be the decoder's own fault."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name = os.path.basename(trace.tb_frame.f_code.co_filename) if trace is not None else ""
    line = trace.tb_lineno if trace is not None else 0
    return f"{type(error).__name__}: {error} ({name}:{line})"
