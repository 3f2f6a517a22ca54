"""Every sample once, whoever shares the reading, and wherever it goes on."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from headway.node.stream.order import count_steps, delayed, noise, steps

counts = st.integers(0, 300)
sizes = st.integers(1, 40)
teams = st.integers(1, 6)


def dealt(
    samples: list[int], size: int, ranks: int, drop_last: bool = False
) -> list[list[tuple[int, list[int]]]]:
    return [
        list(steps(samples, size, rank=rank, ranks=ranks, drop_last=drop_last))
        for rank in range(ranks)
    ]


@given(counts, sizes, teams)
def test_every_sample_once_in_as_many_steps_for_each_rank(
    count: int, size: int, ranks: int
) -> None:
    samples = list(range(count))
    shares = dealt(samples, size, ranks)
    assert sorted(s for share in shares for _, batch in share for s in batch) == samples
    assert {len(share) for share in shares} == {count_steps(count, size, ranks=ranks)}
    place = 0
    for together in zip(*shares, strict=True):
        taken = {taken for taken, _ in together}
        batches = [batch for _, batch in together]
        assert len(taken) == 1
        assert sorted(s for b in batches for s in b) == samples[place : place + min(taken)]
        assert max(map(len, batches)) - min(map(len, batches)) <= 1
        assert count < ranks or all(batches)
        assert max(map(len, batches)) <= size + (ranks > 1)
        place += min(taken)
    assert place == count


@given(counts, sizes, teams)
def test_whole_batches_only(count: int, size: int, ranks: int) -> None:
    shares = dealt(list(range(count)), size, ranks, drop_last=True)
    for share in shares:
        assert len(share) == count // (size * ranks)
        assert all(len(batch) == size for _, batch in share)
    assert count_steps(count, size, ranks=ranks, drop_last=True) == count // (size * ranks)


@given(counts, sizes, teams, sizes, teams, st.data())
def test_going_on_with_others(
    count: int, size: int, ranks: int, other_size: int, others: int, data: st.DataObject
) -> None:
    samples = list(range(count))
    before = dealt(samples, size, ranks)
    done = data.draw(st.integers(0, len(before[0])))
    had = [s for share in before for _, batch in share[:done] for s in batch]
    place = sum(taken for taken, _ in before[0][:done])
    after = dealt(samples[place:], other_size, others)
    had += [s for share in after for _, batch in share for s in batch]
    assert sorted(had) == samples


@given(counts, st.integers(1, 50), st.integers(), st.integers(0, 9))
def test_a_delay_is_a_shuffle_within_bounds(count: int, window: int, seed: int, epoch: int) -> None:
    come = 0

    def coming() -> object:
        nonlocal come
        for come in range(1, count + 1):
            yield come - 1

    given_out = []
    for sample in delayed(coming(), window, seed, epoch):  # type: ignore[arg-type, var-annotated]
        assert sample < come  # it has come
        assert come == count or come - sample <= window  # and is not held back for long
        given_out.append(sample)
    assert sorted(given_out) == list(range(count))


def test_a_delay_is_the_same_for_ever() -> None:
    assert list(delayed(range(12), 5, 7, 2)) == [0, 1, 3, 2, 5, 4, 8, 6, 9, 7, 11, 10]
    orders = {tuple(delayed(range(99), 20, s, e)) for s in (0, 1, -1) for e in (0, 1)}
    assert len(orders) == 6


def test_noise_differs_from_batch_to_batch() -> None:
    found = {noise(s, e, p, r) for s in (0, 1) for e in (0, 1) for p in (0, 1, 256) for r in (0, 1)}
    assert len(found) == 24
    assert noise(3, 1, 256, 0) == 7986560236011997482
