"""Every shape that events have in real logs: both readers say the same, and none falls behind."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.events.test_scan import assert_same, quick

from headway.events.columnar import scan

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def _module(name: str) -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
        assert spec and spec.loader
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return module


shapes = _module("shapes")
CASES = [(shape, "no year") for shape in shapes.SHAPES]
CASES += [("005 table", header) for header in shapes.HEADERS]


@pytest.mark.parametrize(("shape", "header"), CASES, ids=lambda name: name)
def test_each_shape_is_read_with_all_others(
    shape: str, header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = shapes.alone(shape, shapes.HEADERS[header], 40)
    assert len(assert_same(data, 1 << 20, 1001)) == 40

    def one_by_one(*args: object) -> None:
        raise AssertionError("an event was read by itself")

    monkeypatch.setattr(scan._BlockReader, "_recover", one_by_one)
    monkeypatch.setattr(scan, "Event", one_by_one)
    scanner = scan.Scanner()
    scanner.feed(data)
    assert len(scanner.arrays()) == 40


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(shapes.SHAPES)), st.sampled_from(sorted(shapes.HEADERS)))
    ),
    st.integers(1, 3000),
    st.randoms(use_true_random=False),
)
@quick
def test_shapes_in_any_order_and_a_little_damaged(
    chosen: list[tuple[str, str]], block: int, random: object
) -> None:
    data = bytearray(
        b"".join(shapes.alone(shape, shapes.HEADERS[header], 2) for shape, header in chosen)
    )
    for _ in range(len(chosen) // 3):
        at = random.randrange(len(data))  # type: ignore[attr-defined]
        data[at] = random.choice(b"\n\r\t 0x.:<\xe9")  # type: ignore[attr-defined]
    assert_same(bytes(data), block)
