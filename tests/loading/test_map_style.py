"""A loader of any data set with numbers: MNIST, ImageFolder, Hugging Face's, and torch's own."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from tests.loading.conftest import decode, write
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    default_collate,
)

from headway.checkpoint import Checkpoint
from headway.torch import DataError, Loader, SampleError, Shuffled, TarDataset

COUNT = 100


class Digits(Dataset[Any]):
    """As torchvision's MNIST: pictures and targets in memory, and a transform."""

    def __init__(self, transform: Callable[[Any], Any] | None = None, count: int = COUNT) -> None:
        self.data = torch.arange(count, dtype=torch.float32).reshape(count, 1, 1)
        self.targets = torch.arange(count)
        self.transform = transform

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        picture = self.data[index]
        if self.transform is not None:
            picture = self.transform(picture)
        return picture, int(self.targets[index])


class Folder:
    """As torchvision's ImageFolder: files by class, read when they are asked for."""

    def __init__(self, root: Path) -> None:
        self.classes = sorted(each.name for each in root.iterdir())
        self.samples = [
            (path, label)
            for label, name in enumerate(self.classes)
            for path in sorted((root / name).iterdir())
        ]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[int, int]:
        path, label = self.samples[index]
        return int(path.read_text()), label


class Rows:
    """As a data set of Hugging Face: rows are dicts, columns too; many are read at once."""

    def __init__(self) -> None:
        self.read: list[list[int]] = []

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, key: int | slice) -> dict[str, Any]:
        if isinstance(key, slice):
            chosen = range(COUNT)[key]
            return {"text": [f"row {n}" for n in chosen], "number": list(chosen)}
        return {"text": f"row {key}", "number": range(COUNT)[key]}

    def __getitems__(self, keys: list[int]) -> list[dict[str, Any]]:
        self.read.append(keys)
        return [self[key] for key in keys]


def numbers_of(batch: Any) -> list[int]:
    """Which samples a batch has, by what is in it."""
    if isinstance(batch, dict):
        assert batch["text"] == [f"row {number}" for number in batch["number"]]
        return batch["number"].tolist()
    return [int(each) for each in torch.as_tensor(batch[0]).flatten()]


def epoch_of(loader: Loader) -> list[list[int]]:
    found = []
    for batch in loader:
        assert numbers_of(batch) == loader.samples
        found.append(loader.samples)
    return found


def flat(found: list[list[int]]) -> list[int]:
    return [each for batch in found for each in batch]


def folder(tmp_path: Path) -> Folder:
    for number in range(COUNT):
        path = tmp_path / "images" / f"class{number // 25}" / f"{number:03}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(number))
    return Folder(tmp_path / "images")


KINDS: dict[str, Callable[[Path], Any]] = {
    "MNIST": lambda _: Digits(),
    "ImageFolder": folder,
    "Hugging Face": lambda _: Rows(),
    "TensorDataset": lambda _: TensorDataset(torch.arange(COUNT), torch.arange(COUNT)),
    "ConcatDataset": lambda _: ConcatDataset(
        [TensorDataset(torch.arange(0, 30)), TensorDataset(torch.arange(30, COUNT))]
    ),
    "list": lambda _: [(number, "text") for number in range(COUNT)],
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_sample_once_and_on_from_the_very_next(kind: str, tmp_path: Path) -> None:
    data = KINDS[kind](tmp_path)
    loader = Loader(data, batch_size=16, seed=3)
    assert len(loader) == 7 and loader.dataset is data
    expected = [epoch_of(loader), epoch_of(loader)]
    assert [sorted(flat(each)) for each in expected] == [list(range(COUNT))] * 2
    assert expected[0] != expected[1] and flat(expected[0]) != list(range(COUNT))
    begun = Loader(data, 16, seed=3)
    for batch in islice(begun, 4):
        assert numbers_of(batch) == begun.samples
    resumed = Loader(data, 16)
    resumed.load_state_dict(begun.state_dict())
    assert (resumed.epoch, resumed.position) == (0, 64)
    assert epoch_of(resumed) == expected[0][4:]
    assert epoch_of(resumed) == expected[1]


@pytest.mark.parametrize("workers", [1, 2])
def test_the_order_does_not_depend_on_workers(workers: int) -> None:
    expected = epoch_of(Loader(Rows(), 8, seed=5))
    loader = Loader(Rows(), 8, seed=5, num_workers=workers, prefetch_factor=4)
    taken = [loader.samples for _ in islice(loader, 5)]
    state = loader.state_dict()
    assert taken == expected[:5]  # what workers have prepared beyond does not count
    after = Loader(Rows(), 8, workers=3 - workers)
    after.load_state_dict(state)
    assert epoch_of(after) == expected[5:]


def test_other_ranks_and_batch_sizes_go_on() -> None:
    teams = [(2, 7), (3, 4), (1, 10)]
    state: dict[str, Any] | None = None
    had: list[int] = []
    for ranks, size in teams:
        team = [Loader(Digits(), size, seed=1, rank=rank, ranks=ranks) for rank in range(ranks)]
        for each in team:
            if state is not None:
                each.load_state_dict(state)
        loops = [iter(each) for each in team]
        for _ in range(2 if ranks > 1 else 99):
            if any(next(loop, None) is None for loop in loops):
                break
            had += [number for each in team for number in each.samples]
        state = team[0].state_dict()
    assert sorted(had) == list(range(COUNT))
    assert state is not None and state["epoch"] == 1


def test_the_order_is_the_same_for_ever() -> None:
    """A checkpoint is gone on from with another Python and another torch."""
    loader = Loader(list(range(10)), 10, seed=1)
    assert epoch_only(loader) == [2, 8, 3, 7, 6, 5, 4, 1, 0, 9]
    assert epoch_only(loader)[:6] == [4, 8, 7, 5, 0, 1]
    assert epoch_only(Loader(list(range(4)), 4, shuffle=False)) == [0, 1, 2, 3]


def epoch_only(loader: Loader) -> list[int]:
    return [int(each) for batch in loader for each in batch]


def test_a_subset_with_and_without_many_at_once(tmp_path: Path) -> None:
    rows, chosen = Rows(), list(range(90, 10, -2))
    loader = Loader(Subset(rows, chosen), 8, seed=2)
    found = [number for batch in loader for number in batch["number"].tolist()]
    assert sorted(found) == sorted(chosen)
    assert [len(each) for each in rows.read] == [8] * 5  # a batch is read at once
    tar = TarDataset(str(write(tmp_path / "train.tar")), decode=decode)
    part = Loader(Subset(tar, range(0, 60, 3)), 7, seed=2)
    assert sorted(flat([numbers_of(batch) for batch in part])) == list(range(0, 60, 3))


class Noisy:
    """A random transform of each kind."""

    def __call__(self, picture: Any) -> Any:
        drawn = [random.random(), float(numpy.random.rand()), float(torch.rand(()))]
        return torch.cat([picture.flatten(), torch.tensor(drawn)])


def test_random_transforms_follow_from_the_seed() -> None:
    def pictures(workers: int, steps: int, state: Any = None) -> tuple[list[Any], Any]:
        loader = Loader(Digits(Noisy()), 10, seed=4, workers=workers)
        if state:
            loader.load_state_dict(state)
        found = [batch[0] for batch in islice(loader, steps)]
        return found, loader.state_dict()

    torch.manual_seed(0)
    before = torch.get_rng_state()
    whole, _ = pictures(0, 10)
    assert torch.equal(before, torch.get_rng_state())  # the training's own are left alone
    head, state = pictures(2, 4)
    tail, _ = pictures(1, 6, state)
    assert all(torch.equal(one, other) for one, other in zip(whole, head + tail, strict=True))


def listed(samples: list[Any]) -> list[Any]:
    return samples


def first_act(worker: int) -> None:
    global WORKER
    WORKER = worker


WORKER = -1


class Asks(Digits):
    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.data[index], WORKER


def test_the_settings_of_torchs_loader() -> None:
    loader = Loader(Digits(), 16, shuffle=False, drop_last=True, collate_fn=listed)
    found = list(loader)
    assert len(loader) == len(found) == 6
    assert [label for batch in found for _, label in batch] == list(range(96))
    loader = Loader(Digits(), 16, collate=listed, collate_fn=None)
    assert isinstance(next(iter(loader)), list)
    loader = Loader(Digits(), 16, collate_fn=default_collate, timeout=0, pin_memory=False)
    assert next(iter(loader))[0].shape == (16, 1, 1)
    loader = Loader(Asks(), 16, num_workers=2, worker_init_fn=first_act)
    assert [set(labels.tolist()) for _, labels in loader][:4] == [{0}, {1}, {0}, {1}]
    with pytest.raises(DataError, match=r"^sampler: the loader has an order of its own"):
        Loader(Digits(), 16, sampler=[1, 2])
    with pytest.raises(DataError, match=r"^batch_sampler: the loader has an order of its own"):
        Loader(Digits(), 16, batch_sampler=[[1, 2]])
    with pytest.raises(DataError, match="only a tar file is read in blocks"):
        Loader(Digits(), 16, window=3)
    with pytest.raises(DataError, match="shuffled as a whole"):
        Loader(Digits(), 16).quality()


class Numbers(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


class Streamed:
    """As Hugging Face's with streaming=True."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(10))


def test_what_has_no_samples_by_number_is_refused() -> None:
    for data in (Numbers(), Streamed(), iter([1])):
        with pytest.raises(DataError, match="does not give its samples by number") as raised:
            Loader(data, 2)
        assert "__getitem__" in raised.value.remedy and "streaming=True" in raised.value.remedy
    with pytest.raises(DataError, match="several: 'train', 'test'") as raised:
        Loader({"train": [1], "test": [2]}, 2)
    assert raised.value.remedy == "give one of them: data['train']"
    with pytest.raises(DataError, match="list has no samples"):
        Loader([], 2)
    with pytest.raises(DataError, match="batch_size must be at least 1, and is None"):
        Loader([1], None)  # type: ignore[arg-type]


def test_the_state_of_another_data_set(tmp_path: Path) -> None:
    state = Loader(Digits(), 16).state_dict()
    with pytest.raises(DataError, match="100 samples, and Digits has 90 samples"):
        Loader(Digits(count=90), 16).load_state_dict(state)
    tar = Loader(TarDataset(str(write(tmp_path / "train.tar")), decode=decode), 16)
    with pytest.raises(DataError, match=r"100 samples, and .* in .* bytes"):
        tar.load_state_dict(state)
    with pytest.raises(DataError, match="bytes, and Digits has"):
        Loader(Digits(), 16).load_state_dict(tar.state_dict())


class Torn(Digits):
    def __getitem__(self, index: int) -> tuple[Any, int]:
        if index % 40 == 7:
            raise OSError(f"image file {index} is truncated")
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sample_that_cannot_be_read(workers: int, capsys: pytest.CaptureFixture[str]) -> None:
    if not workers:
        with pytest.raises(OSError, match="is truncated"):  # as with torch's loader
            epoch_of(Loader(Torn(), 16))
    loader = Loader(Torn(), 16, workers=workers, corrupt="skip", corrupt_share=0.03)
    skipped = []
    for _ in loader:
        skipped.append(loader.skipped)
    assert skipped[-1] == 3
    assert "Torn[" in capsys.readouterr().err
    with pytest.raises(SampleError, match=r"more than 1\.00% of 100"):
        epoch_of(Loader(Torn(), 16, workers=workers, corrupt="skip"))


def test_a_checkpoint_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    def train(steps: int) -> list[list[int]]:
        torch.manual_seed(0)
        loader = Loader(Digits(), 16, seed=9, workers=2)
        checkpoint = Checkpoint(str(tmp_path / "ckpt"))
        checkpoint.load(loader=loader)
        found = [numbers_of(batch) for batch in islice(loader, steps)]
        checkpoint.save(loader=loader)
        return found

    whole = epoch_of(Loader(Digits(), 16, seed=9))
    assert train(3) + train(4) == whole


def test_the_order_for_a_data_loader_of_ones_own() -> None:
    whole = flat(epoch_of(Loader(Digits(), 16, seed=1)))
    shares = [Shuffled(Digits(), seed=1, rank=rank, ranks=3, begin=10) for rank in range(3)]
    assert [len(share) for share in shares] == [len(list(share)) for share in shares]
    assert list(shares[0]) == whole[10::3]
    own = DataLoader(Digits(), batch_size=50, sampler=Shuffled(Digits(), seed=1))
    assert flat([numbers_of(batch) for batch in own]) == whole
