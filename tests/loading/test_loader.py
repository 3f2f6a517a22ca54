"""Every sample once, in one order, whoever reads it and however often it is interrupted."""

from __future__ import annotations

import platform
import random
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from tests.loading.conftest import (
    CHUNK,
    CLASSES,
    CONTENT,
    COUNT,
    EACH,
    decode,
    faults_so_far,
    large,
    strict,
    write,
)
from tests.node.stream.arriving import Arriving
from tests.node.transfer.made_tars import make_nested, make_tar
from torch.utils.data import DataLoader

from headway.errors import TransferError
from headway.torch import DataError, Loader, SampleError, Shuffled, TarDataset, TarStream

LABELS = [f"n{c}" for c in range(CLASSES)]


def batches(loader: Any) -> list[list[int]]:
    found = []
    for samples, labels in loader:
        if getattr(loader, "_kind", None) == "index":
            assert samples.tolist() == loader.samples
        assert labels.tolist() == [number // EACH for number in samples.tolist()]
        found.append(samples.tolist())
    return found


def flat(found: list[list[int]]) -> list[int]:
    return [each for batch in found for each in batch]


def test_a_data_set_by_number(path: Path) -> None:
    data = TarDataset(str(path), decode=decode, transform=lambda number: -number)
    assert len(data) == COUNT and data.classes == tuple(LABELS)
    assert data[0] == (0, 0) and data[-1] == (1 - COUNT, CLASSES - 1)
    assert data.__getitems__([50, 3, 4, 51]) == [(-50, 1), (-3, 0), (-4, 0), (-51, 1)]
    with pytest.raises(IndexError):
        data[COUNT]


def test_a_data_loader_of_ones_own(path: Path) -> None:
    data = TarDataset(str(path), decode=decode)
    shares = [Shuffled(data, seed=1, rank=rank, ranks=3, begin=10) for rank in range(3)]
    assert [len(share) for share in shares] == [len(list(share)) for share in shares]
    whole = list(Shuffled(data, seed=1))
    assert sorted(each for share in shares for each in share) == sorted(whole[10:])
    loaded = DataLoader(data, batch_size=16, sampler=Shuffled(data, seed=1), num_workers=2)
    assert flat(batches(loaded)) == whole
    shares[0].set_epoch(1)
    assert len(shares[0]) == COUNT // 3


@pytest.mark.parametrize("workers", [1, 2])
def test_the_order_does_not_depend_on_workers(path: Path, workers: int) -> None:
    data = TarDataset(str(path), decode=decode)
    alone = Loader(data, 16, seed=3)
    expected = [batches(alone), batches(alone)]
    assert alone.epoch == 2
    assert [sorted(flat(epoch)) for epoch in expected] == [list(range(COUNT))] * 2
    assert expected[0] != expected[1]
    loader = Loader(data, 16, seed=3, workers=workers)
    assert len(loader) == len(expected[0]) == 15
    assert [batches(loader), batches(loader)] == expected
    stream = TarStream(data, 16, seed=3, epoch=1)
    loaded = DataLoader(stream, batch_size=None, num_workers=workers)
    assert batches(loaded) == expected[1]


def test_a_stream_is_shared_by_ranks_and_workers(path: Path) -> None:
    data = TarDataset(str(path), decode=decode)
    whole = flat(batches(Loader(data, 16, seed=3)))
    shares = [
        flat(
            batches(
                DataLoader(
                    TarStream(data, 16, seed=3, begin=30, rank=rank, ranks=2),
                    batch_size=None,
                    num_workers=2,
                )
            )
        )
        for rank in range(2)
    ]
    assert shares == [whole[30::2], whole[31::2]]


def test_the_ranks_of_torch_distributed(path: Path) -> None:
    distributed: Any = torch.distributed
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        loader = Loader(TarDataset(str(path), decode=decode), 16)
        assert (loader.rank, loader.ranks) == (0, 1)
    finally:
        distributed.destroy_process_group()


def test_workers_that_are_not_forked(path: Path) -> None:
    data = TarDataset(str(path), decode=strict)
    loader = Loader(
        data, 240, workers=1, multiprocessing_context="spawn", corrupt="skip", corrupt_share=1
    )
    ((samples, _),) = loader
    assert len(samples) == COUNT - 4


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="others do as they like")
def test_workers_keep_the_memory_of_a_batch_for_the_next(path: Path) -> None:
    data = TarDataset(str(path), decode=large)
    # not forked: what tests before this one have freed would count
    faults = list(
        Loader(data, 40, workers=1, multiprocessing_context="spawn", collate=faults_so_far)
    )
    pages_of_a_batch = 40 * (1 << 18) // resource.getpagesize()
    assert faults[-1] - faults[1] < pages_of_a_batch


def test_the_order_is_the_same_for_ever(path: Path) -> None:
    loader = Loader(TarDataset(str(path), decode=decode), 12, seed=11)
    loader.set_epoch(1)
    assert next(iter(loader))[0].tolist() == [186, 189, 181, 81, 88, 83, 93, 94, 91, 183, 89, 180]


class Team:
    """The ranks of a training, in step."""

    def __init__(
        self, data: TarDataset, size: int, ranks: int, state: dict[str, Any], workers: int = 0
    ) -> None:
        self.loaders = [
            Loader(data, size, seed=4, rank=r, ranks=ranks, workers=workers) for r in range(ranks)
        ]
        for loader in self.loaders:
            if state:
                loader.load_state_dict(state)
        self._loops: list[Iterator[Any]] = [iter(loader) for loader in self.loaders]

    def step(self) -> list[int]:
        found = [next(loop, None) for loop in self._loops]
        assert len({batch is None for batch in found}) == 1  # nobody waits for the others
        return [each for batch in found if batch is not None for each in batch[0].tolist()]

    def state(self) -> dict[str, Any]:
        states = [loader.state_dict() for loader in self.loaders]
        assert all(state == states[0] for state in states)
        return states[0]


teams = st.tuples(st.integers(1, 50), st.integers(1, 5), st.integers(0, 12))


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30
)
@given(st.lists(teams, min_size=1, max_size=6))
def test_any_interruptions_and_any_teams(path: Path, teams: list[tuple[int, int, int]]) -> None:
    """Each team goes on from the last one's state, with its own batch size and ranks."""
    data = TarDataset(str(path), decode=decode)
    whole = flat(batches(Loader(data, 10, seed=4)))
    had: list[int] = []
    state: dict[str, Any] = {}
    for size, ranks, steps in [*teams, (7, 2, 999)]:
        team = Team(data, size, ranks, state)
        for _ in range(steps):
            got = team.step()
            if not got:
                break
            had += got
        state = team.state()
        assert set(had) == set(whole[: len(had)]) and len(set(had)) == len(had)
        if state["epoch"]:
            break
    assert state["epoch"] == 1 and state["position"] == 0
    assert sorted(had) == list(range(COUNT))


workers_too = st.tuples(
    st.integers(1, 50), st.integers(1, 3), st.integers(0, 2), st.integers(0, 12)
)


@pytest.mark.timeout(240)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=8
)
@given(st.lists(workers_too, min_size=1, max_size=4), st.booleans())
def test_any_workers_ranks_and_kills(
    path: Path, teams: list[tuple[int, int, int, int]], indexed: bool
) -> None:
    """Two epochs; each team ends without a word while its workers are ahead, as a killed one does.

    Without an index, the first epoch is in the order of the arrival.
    """
    data = TarDataset(str(path), decode=decode, classes=LABELS)
    begun = {**Loader(data, 1, seed=4).state_dict(), "order": "index" if indexed else "arrival"}
    reference = Loader(data, 10, seed=4)
    reference.load_state_dict(begun)
    whole = [flat(batches(reference)), flat(batches(reference))]
    assert [sorted(each) for each in whole] == [list(range(COUNT))] * 2
    had: list[list[int]] = [[], []]
    state = begun
    for size, ranks, workers, steps in [*teams, (9, 2, 1, 999), (11, 1, 0, 999)]:
        team = Team(data, size, ranks, state, workers)
        for _ in range(steps):
            epoch, place = state["epoch"], state["position"]
            got = team.step()
            if not got:
                break
            state = team.state()
            assert sorted(got) == sorted(whole[epoch][place : place + len(got)])
            had[epoch] += got
        state = team.state()
        if state["epoch"] == 2:
            break
    assert [sorted(each) for each in had] == [list(range(COUNT))] * 2


@pytest.mark.parametrize("workers", [0, 2])
def test_going_on_with_other_workers_counts_what_the_loop_had(path: Path, workers: int) -> None:
    data = TarDataset(str(path), decode=decode)
    whole = batches(Loader(data, 16, seed=2))
    first = Loader(data, 16, seed=2, workers=2, prefetch_factor=4)
    loop = iter(first)
    had = [next(loop)[0].tolist() for _ in range(5)]
    state = first.state_dict()
    assert state["position"] == 80  # whatever was prepared beyond
    second = Loader(data, 16, seed=99, workers=workers)
    second.load_state_dict(state)
    second.set_epoch(0)  # as loops over range(epochs) do; it has begun already
    assert had + batches(second) == whole


def test_a_loop_that_is_left_goes_on(path: Path) -> None:
    data = TarDataset(str(path), decode=decode)
    for workers in (0, 2):
        loader = Loader(data, 16, seed=2, workers=workers)
        had = []
        while loader.epoch == 0:
            for samples, _ in loader:
                had += samples.tolist()
                if len(had) % 48 == 0:
                    break
        assert sorted(had) == list(range(COUNT))


def test_two_loops_at_once_are_refused(path: Path) -> None:
    loader = Loader(TarDataset(str(path), decode=decode), 16)
    first, second = iter(loader), iter(loader)
    next(second)
    next(second)
    with pytest.raises(DataError, match="another loop"):
        list(first)


def test_whole_batches_only(path: Path) -> None:
    loader = Loader(TarDataset(str(path), decode=decode), 50, drop_last=True)
    assert len(loader) == 4 and [len(batch) for batch in batches(loader)] == [50] * 4


def test_without_shuffling(path: Path) -> None:
    loader = Loader(TarDataset(str(path), decode=decode), 50, shuffle=False)
    assert flat(batches(loader)) == flat(batches(loader)) == list(range(COUNT))


def test_the_ranks_of_the_environment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = TarDataset(str(path), decode=decode)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    loader = Loader(data, 16, seed=2)
    assert batches(loader) == batches(Loader(data, 16, seed=2, rank=1, ranks=3))
    with pytest.raises(DataError, match="go together"):
        Loader(data, 16, rank=1)
    with pytest.raises(DataError, match="no rank 3 of 3"):
        Loader(data, 16, rank=3, ranks=3)


def test_the_state_of_another_data_set_of_the_same_shape(path: Path) -> None:
    content = CONTENT.replace(b"7/\0\0", b"7/\0x")
    other = write(path.with_name("b.tar"), content)
    state = Loader(TarDataset(str(other), decode=decode), 16).state_dict()
    loader = Loader(TarDataset(str(path), decode=decode), 16)
    with pytest.raises(DataError, match=r"for another data set: SHA-256 .* of the same size"):
        loader.load_state_dict(state)
    copy = write(path.with_name("c.tar"), content, manifest=False)
    Loader(TarDataset(str(copy), decode=decode), 16).load_state_dict(state)  # nothing says more


def test_the_state_of_another_data_set(path: Path) -> None:
    other = write(path.with_name("b.tar"), make_tar({"a": b"1/"}))
    state = Loader(TarDataset(str(other), decode=decode), 1).state_dict()
    loader = Loader(TarDataset(str(path), decode=decode), 16)
    with pytest.raises(DataError, match="for another data set: 1 samples"):
        loader.load_state_dict(state)
    for wrong in ({}, {**state, "position": -1}, {**state, "unit": "8"}, {**state, "order": "x"}):
        with pytest.raises(DataError, match="not a loader's state"):
            loader.load_state_dict(wrong)


def noisy(number: int) -> torch.Tensor:
    drawn = [random.random(), float(torch.rand(())), float(numpy.random.rand())]
    return torch.tensor([number, *drawn], dtype=torch.float64)


def test_random_transforms_follow_from_the_seed(path: Path) -> None:
    data = TarDataset(str(path), decode=decode, transform=noisy)
    before = random.getstate(), torch.get_rng_state(), repr(numpy.random.get_state())
    alone = [samples for samples, _ in Loader(data, 16, seed=5)]
    workers = Loader(data, 16, seed=5, workers=2)
    with_workers = [samples for samples, _ in workers]
    assert torch.equal(torch.cat(alone), torch.cat(with_workers))
    assert len({tuple(row.tolist()) for row in torch.cat(alone)[:, 1:]}) == COUNT
    again = Loader(data, 16, seed=5)
    loop = iter(again)
    next(loop)
    resumed = Loader(data, 16, seed=5)
    resumed.load_state_dict(again.state_dict())
    assert torch.equal(torch.cat([samples for samples, _ in resumed]), torch.cat(alone[1:]))
    # nor do they disturb the training's own
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert repr(numpy.random.get_state()) == before[2]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_corrupt_sample_is_reported_with_its_place(path: Path, workers: int) -> None:
    data = TarDataset(str(path), decode=strict)
    place = CONTENT.index(b"7/" + bytes(3000))
    words = rf"n0/7\.bin \(3352 bytes at byte {place} of {path}\) cannot be decoded: ValueError"
    with pytest.raises(SampleError, match=words):
        data[7]
    with pytest.raises(SampleError, match=r"no JPEG \(conftest\.py:\d+\)"):
        batches(Loader(data, 240, workers=workers))
    with pytest.raises(SampleError, match="cannot be decoded"):
        list(DataLoader(TarStream(data, 240), batch_size=None, num_workers=workers))


@pytest.mark.parametrize(("workers", "size"), [(0, 1), (2, 1), (0, 8), (2, 8)])
def test_corrupt_samples_are_left_out_and_told(
    path: Path, workers: int, size: int, capfd: pytest.CaptureFixture[str]
) -> None:
    data = TarDataset(str(path), decode=strict)
    loader = Loader(data, size, corrupt="skip", corrupt_share=0.02, workers=workers)
    had = []
    for samples, _ in loader:
        had += samples.tolist()
        assert loader.samples == samples.tolist()
        skipped = loader.skipped
    assert sorted(had) == [number for number in range(COUNT) if number % 60 != 7]
    assert skipped == 4 and loader.skipped == 0  # of another epoch
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 1 and said[0].startswith("left out a sample (1 in this epoch): n")


def test_too_many_corrupt_samples(path: Path) -> None:
    loader = Loader(TarDataset(str(path), decode=strict), 8, corrupt="skip", corrupt_share=0.01)
    with pytest.raises(SampleError, match=r"3 samples .* more than 1\.00% of 240"):
        batches(loader)
    with pytest.raises(DataError, match="corrupt must be"):
        Loader(loader.dataset, 8, corrupt="ignore")


def test_the_count_of_corrupt_samples_survives_a_restart(path: Path) -> None:
    data = TarDataset(str(path), decode=strict)
    first = Loader(data, 8, corrupt="skip", corrupt_share=0.01)
    for _ in first:
        if first.skipped == 2:
            break
    second = Loader(data, 8, corrupt="skip", corrupt_share=0.01)
    second.load_state_dict(first.state_dict())
    with pytest.raises(SampleError, match="3 samples"):
        batches(second)


def test_a_rank_must_not_lose_a_whole_batch(path: Path) -> None:
    """It would have fewer steps than the others, who would wait for it for ever."""
    data = TarDataset(str(path), decode=strict)
    with pytest.raises(SampleError, match="no sample of rank 1's batch"):
        list(Loader(data, 1, corrupt="skip", corrupt_share=1, rank=1, ranks=2))


def test_records(tmp_path: Path) -> None:
    record = [bytes([n % 10]) + bytes([n]) * 8 for n in range(40)]
    members = {"c/data_1.bin": b"".join(record[:20]), "c/data_2.bin": b"".join(record[20:])}
    path = write(tmp_path / "cifar.tar", make_tar({"c/readme.html": b"<html>", **members}))
    data = TarDataset(str(path), only="*.bin", record=9, decode=lambda data: data[0])
    found = [(s, y) for x, labels in Loader(data, 7) for s, y in zip(x, labels, strict=True)]
    assert sorted((int(s), int(y)) for s, y in found) == [(n, n % 10) for n in range(40)]
    with pytest.raises(DataError, match="has no sample after"):
        TarDataset(str(path), record=9, head=9)


def test_the_quality_is_told(tmp_path: Path) -> None:
    classes = {
        f"n{c}": {f"{i}.bin": f"{c * 300 + i}/".encode() + bytes(5000) for i in range(300)}
        for c in range(10)
    }
    path = write(tmp_path / "t.tar", make_nested(classes))
    quality = Loader(TarDataset(str(path)), 32).quality()
    assert quality.samples == 3000 and quality.classes == quality.fewest_classes == 10
    assert quality.worst_mix < 0.2 and quality.first < 0.1
    assert "usually have 10 of 10 classes, at least 10" in str(quality)


# -- while it arrives


@pytest.mark.parametrize("workers", [0, 2])
def test_training_while_it_arrives(path: Path, workers: int) -> None:
    expected = batches(Loader(TarDataset(str(path), decode=decode), 16, seed=2))
    path.unlink()
    with Arriving(path, CONTENT, CHUNK, pause=0.01, hold=12, strict=True) as arriving:
        data = TarDataset(str(path), decode=decode)
        loader = Loader(data, 16, seed=2, workers=workers)
        loop = iter(loader)
        had = [next(loop)[0].tolist()]
        assert not arriving.whole()
        arriving.release()
        had += [samples.tolist() for samples, _ in loop]
        assert had == expected
        assert loader.waited > 0.02
        assert arriving.arrival.loop_waited() == pytest.approx(loader.waited)
        assert batches(loader) != expected  # the next epoch
    order = data.source.order(seed=2, epoch=0)
    asked = [begin // CHUNK for begin, _ in order.stretches()]
    assert arriving.brought[: len(asked)] == asked


@pytest.mark.parametrize("way", ["sampler", "stream"])
def test_other_ways_to_read_lead_the_fetcher_too(path: Path, way: str) -> None:
    path.unlink()
    with Arriving(path, CONTENT, CHUNK, strict=True) as arriving:
        data = TarDataset(str(path), decode=decode)
        loaded = DataLoader(data, 16, sampler=Shuffled(data, seed=2))
        if way == "stream":
            loaded = DataLoader(TarStream(data, 16, seed=2), batch_size=None, num_workers=1)
        assert sorted(flat(batches(loaded))) == list(range(COUNT))
    asked = [begin // CHUNK for begin, _ in data.source.order(seed=2, epoch=0).stretches()]
    assert arriving.brought[: len(asked)] == asked


@pytest.mark.parametrize("workers", [0, 2])
def test_what_ends_the_arrival_ends_the_loop(path: Path, workers: int) -> None:
    path.unlink()
    arriving = Arriving(path, CONTENT, CHUNK)
    arriving.bring(0)
    arriving.arrival.fail("every source said 404", retryable=False)
    loader = Loader(TarDataset(str(path), decode=decode), 16, workers=workers)
    with pytest.raises(TransferError, match="every source said 404") as failed:
        batches(loader)
    assert not failed.value.retryable
    arriving.arrival.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_without_a_manifest_as_it_arrives(path: Path, workers: int) -> None:
    path.unlink()
    Path(f"{path}.headway").unlink()
    with Arriving(path, CONTENT, CHUNK, hold=12) as arriving:
        data = TarDataset(str(path), decode=decode, classes=LABELS)
        loader = Loader(data, 16, seed=2, buffer=50, workers=workers)
        with pytest.raises(TypeError):
            len(loader)
        loop = iter(loader)
        had = [next(loop)[0].tolist()]
        assert not arriving.whole()
        state = loader.state_dict()
        arriving.release()
        had += [samples.tolist() for samples, _ in loop]
        assert sorted(flat(had)) == list(range(COUNT)) != flat(had)
    # all of it is here now, and yet the same epoch goes on in the same order
    later = Loader(TarDataset(str(path), decode=decode, classes=LABELS), 16, workers=workers)
    later.load_state_dict(state)
    assert had[:1] + batches(later) == had
    assert batches(later) == batches(loader)  # the next epoch, by the index of the whole


def test_without_a_manifest_and_without_classes(path: Path) -> None:
    path.unlink()
    Path(f"{path}.headway").unlink()
    with Arriving(path, CONTENT, CHUNK, hold=2):
        loader = Loader(TarDataset(str(path), decode=decode), 16, workers=2)
        with pytest.raises(DataError, match="are known only when all of it is here"):
            batches(loader)
