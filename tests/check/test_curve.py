"""What two runs are compared by, and when they are the same."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from headway.check.bench import differing, digests
from headway.check.judge import tolerance_of
from headway.check.trials import (
    CurveComparison,
    TracedStep,
    compare,
    from_text,
    from_trace,
    label,
    spread,
)


def curve(count: int, begin: int = 0, noise: float = 0.0) -> list[TracedStep]:
    return [
        TracedStep(f"step {n}", (n / 7 + noise,), f"[{n}]") for n in range(begin, begin + count)
    ]


def same(found: CurveComparison) -> bool:
    return found.numbers is None and found.samples is None and not found.skipped


def test_a_trace() -> None:
    lines = [
        json.dumps({"epoch": 1, "step": 2, "loss": 0.5, "lr": 1, "samples": [3, 4]}),
        json.dumps({"event": "save"}),
        '{"step": 3, "loss": ',  # cut by a kill
        json.dumps({"step": 3, "loss": math.nan}),
        "[" * 100_000,
    ]
    first, second = from_trace(lines)
    assert first == TracedStep("epoch 1 step 2", (0.5, 1.0), "[3, 4]")
    assert second.step == "step 3" and math.isnan(second.numbers[0]) and second.samples is None


@pytest.mark.parametrize(
    ("line", "step", "numbers"),
    [
        ("epoch 1/4 batch 3 loss=0.25 seconds=1.3", "epoch 1/4 batch 3 loss=#", (0.25,)),
        ("Epoch 3: loss 1.5e-3, took 12.5 s", "Epoch 3: loss #,", (0.0015,)),
        ("[12/100] 0.5 acc 0.75 (3.2 it/s)", "[12/100] # acc # ()", (0.5, 0.75)),
        ("2026-01-02 03:04:05 step 7 loss: nan", "step 7 loss: #", (math.nan,)),
        ("step 4 learning_rate 0.1", "step 4 lr #", (0.1,)),
    ],
)
def test_printed_lines(line: str, step: str, numbers: tuple[float, ...]) -> None:
    (row,) = from_text([line])
    assert row.step == step
    assert repr(row.numbers) == repr(numbers)


@pytest.mark.parametrize(
    ("step", "shown"),
    [
        ("epoch 2/6 train_loss=# test_loss=#", "epoch 2/6"),
        ("[12/100] # acc #", "[12/100]"),
        ("Epoch 3: loss #,", "Epoch 3: loss"),
        ("epoch 1 step 2", "epoch 1 step 2"),
        ("# at 5", "# at 5"),
        ("loss=# step 3", "loss="),
    ],
)
def test_steps_for_people(step: str, shown: str) -> None:
    assert label(step) == shown


def test_lines_that_say_no_step_are_no_rows() -> None:
    assert from_text(["hello", "loss 0.5", "done in 3.4 s", "epoch 3"]) == []


def test_an_interrupted_run_that_is_the_same() -> None:
    found = compare(curve(10), [curve(6), curve(3, 4), curve(3, 7)])
    assert same(found)
    assert found.starts == (0, 4, 7) and found.ends == (5, 6, 9)
    assert found.compared == found.samples_compared == 12


def test_numbers_that_differ() -> None:
    wrong = [TracedStep("step 5", (8 / 7,), "[5]")]
    found = compare(curve(10), [curve(5), wrong])
    assert found.numbers is not None and found.numbers.step == "step 5"
    assert found.elsewhere == "step 8"
    assert found.samples is None and "step 9" in found.skipped


def test_samples_that_differ() -> None:
    found = compare(curve(3), [[TracedStep("step 1", (1 / 7,), "[2]")]])
    assert found.numbers is None and found.samples is not None


def test_steps_that_come_again_in_each_epoch_tell_nothing() -> None:
    found = compare([*curve(3), *curve(2)], [curve(3)])
    assert found.compared == 1  # step 2, the only one that is told once


@pytest.mark.parametrize(
    ("apart", "allowed"),
    [(0.0, 0.0), (1e-7, 2e-7), (4e-4, 8e-4), (6e-4, None), (0.01, None), (math.inf, None)],
)
def test_what_passes_as_the_same(apart: float, allowed: float | None) -> None:
    assert tolerance_of(apart) == allowed


def test_a_spread_is_allowed_for() -> None:
    one, other = curve(5, begin=1), curve(5, begin=1, noise=1e-9)
    apart = spread(one, other)
    assert 0 < apart < 1e-8
    assert compare(one, [other]).numbers is not None
    assert same(compare(one, [other], tolerance=10 * apart))
    assert spread(curve(5), curve(4)) == math.inf
    nan = [TracedStep("step 0", (math.nan,))]
    assert spread(nan, nan) == 0 and same(compare(nan, [nan]))


def test_results_without_what_may_differ(tmp_path: Path) -> None:
    for name, seconds, loss in (("a", 1.0, 0.5), ("b", 2.0, 0.5), ("c", 1.0, 0.6)):
        (tmp_path / name).mkdir()
        told = {"seconds": seconds, "epochs": [{"loss": loss, "time": seconds}], "lr": 0.1}
        (tmp_path / name / "metrics.json").write_text(json.dumps(told))
        (tmp_path / name / "model.bin").write_bytes(b"model")
    a, b, c = (digests(tmp_path / name) for name in "abc")
    assert differing(a, b) == [] and differing(a, c) == ["metrics.json"]
    assert differing(a, {}) == ["metrics.json", "model.bin"]
    assert digests(tmp_path / "none") == {}
