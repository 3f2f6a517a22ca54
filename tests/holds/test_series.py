"""A series answers as of any moment, in whatever order it was filled."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headway.holds.history import Series
from headway.holds.hold import Cut

CUTS = st.builds(Cut, st.integers(0, 9).map(float), st.integers(0, 2), st.integers(0, 5))


@given(
    st.lists(CUTS, unique=True, max_size=20),
    CUTS | st.builds(Cut, st.integers(0, 10).map(float)),
    st.integers(-1, 10).map(float),
    st.booleans(),
)
def test_totals_and_the_last(filled: list[Cut], cut: Cut, since: float, asked: bool) -> None:
    series = Series(2)
    for number, at in enumerate(filled):
        series.add(at, (1.0, float(number)))
        if asked:
            series.total(cut)
    before = [(at, n) for n, at in enumerate(filled) if at < cut]
    wanted = [(at, n) for at, n in before if at.moment >= since]
    assert series.total(cut, since) == (float(len(wanted)), float(sum(n for _, n in wanted)))
    assert series.last(cut) == max((at.moment for at, _ in before), default=None)
